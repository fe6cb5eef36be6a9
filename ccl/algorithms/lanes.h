// Schedules of moves. Chunks are cut into slabs of a few messages, and a slab runs through all steps before the next
// one starts. A whole chunk at a time would fill the rings of every rank with first steps, and nobody could go on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/dtype.h"
#include "models/tl/tl.h"

namespace ahbm::ccl {

/// How much of a chunk goes round at a time. With k messages in flight per rank a ring needs k + 1 slots; a ring of one
/// slot takes one message at a time and stores before it forwards.
struct SlabPlan {
  uint64_t slab_elems = 1;
  uint64_t message_elems = 1;
  uint64_t slabs = 0;
  bool store_first = false;

  /// \param message_bytes of the payload, 0: what the slots hold
  /// \param longest elements of the longest chunk  \param share messages of one step on the same queue pair
  SlabPlan(const tl::Tl& tl, DType dtype, uint64_t longest, uint32_t share,
           const std::vector<tl::Dir>& dirs = {tl::Dir::Next, tl::Dir::Prev}, uint32_t message_bytes = 0);
  SlabPlan() = default;
  Range cut(const Range& chunk, uint64_t slab) const;
};

/// A move of a schedule; with `store_first` what it receives is stored before it is passed on.
struct Step {
  tl::Move move;
  bool store_first = false;
};
/// Fills in the next step of a schedule; false: there is none.
using StepSource = std::function<bool(Step&)>;
/// Submits a schedule. \param next as tl::MoveSource: must not wait
void submit_steps(tl::Tl& tl, const StepSource& next);

/// A step number that fits a header. The values repeat after 65,535, far beyond what two queues can hold.
constexpr uint16_t wire_step(uint64_t step) {
  return static_cast<uint16_t>(step % 0xFFFF);
}

}  // namespace ahbm::ccl
