// Checks an algorithm before anything runs: its kernels are recorded for every rank and cube, and their moves carried
// out on sets of contributions instead of numbers. Found are a contribution that is missing or counted twice, a result
// that is not divided once, messages that do not match, a touch outside of the buffer, and a cyclic wait for the given
// queues.
#pragma once

#include <cstdint>
#include <string>

#include "ccl/algorithm.h"
#include "models/tl/framing.h"

namespace ahbm::ccl {

struct PlanQueues {
  RingShape sip{8, 16 << 10};
  RingShape cube{4, 4 << 10};
  uint32_t max_moves = tl::kMaxMoves;  ///< in flight on a PE before a submit blocks
};

struct PlanReport {
  std::string problem;  ///< empty when the plan is sound
  uint64_t messages = 0;
  uint64_t sip_payload_bytes = 0;   ///< between SIPs, all directions together
  uint64_t cube_payload_bytes = 0;  ///< between cubes
  explicit operator bool() const { return problem.empty(); }
};

/// The connections and kernels of one call. What is checked at the end: the contents of every output
/// (ccl/algorithm.h, CollectiveShape), that inputs are as they were unless `in_place`, and that no message is left.
/// The kernel may use moves and waits; its control flow must not depend on data. Lanes of the group have the same
/// shape. \throws std::invalid_argument for `in_place` with an all_to_all or a send_recv; else as the other form
PlanReport check_plan(const AlgorithmModule& module, const Group& group, const CollectiveShape& shape, bool in_place,
                      const PlanQueues& queues = {});

/// For an all-reduce of `n_elem` elements per PE (Sharded: per lane). The kernel may use moves and waits; its control
/// flow must not depend on data. \throws NotImplementedError for a kernel that uses tiles or recv_slot; whatever the
/// kernel or the module throws
PlanReport check_plan(const AlgorithmModule& module, const Group& group, uint64_t n_elem, CubeLayout layout,
                      DType dtype = DType::Float32, const PlanQueues& queues = {});

}  // namespace ahbm::ccl
