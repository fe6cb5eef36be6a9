// One size of one collective on a simulated machine, as every command that runs collectives measures it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/topology.h"
#include "platform/cli/all_reduce.h"
#include "platform/machine.h"
#include "platform/run_checks.h"
#include "platform/time_split.h"
#include "runtime/distributed/distributed.h"

namespace ahbm::platform {

/// What the command line asks for cannot be done on this machine: by the algorithm that it names, or by any.
class UnsuitableAlgorithm : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Makes, guards and fills the tensors, lets every rank of the group call the collective, compares what each holds bit
/// for bit with an independent reference, and finds the machine clean.
class Measurement {
 public:
  /// \param split  null: the row explains nothing  \param size  bytes as nccl-tests counts them
  Measurement(ccl::Collective collective, const AllReduceJob& job, Machine& machine,
              const runtime::distributed::ProcessGroup& group, uint64_t size, TimeSplit* split = nullptr);

  /// \throws UnsuitableAlgorithm before anything is measured; std::runtime_error for bytes written outside of the
  /// buffers, a queue or a launch tag that is left over, a time below the bound
  AllReduceRow run();

  /// What ran, of the last run; of a sendrecv from the first message of any pair to the last.
  const runtime::distributed::CollectiveRecord& record() const { return m_record; }

 private:
  using Tensor = runtime::Tensor;
  struct Rank {
    std::vector<Tensor> inputs, outputs;
    std::vector<std::unique_ptr<BufferGuards>> guards;
  };
  class Turn;

  uint32_t root() const { return m_job.options.root; }
  Tensor tensor(uint64_t count, std::optional<uint64_t> seed, Rank& rank);
  void make(uint32_t r, Rank& rank);
  std::vector<runtime::distributed::Work> call(uint32_t r, const Rank& rank);
  void note(const std::vector<std::vector<runtime::distributed::Work>>& works);
  void check_algorithm() const;
  void check_clean() const;
  Explanation explanation(Ps vector_busy_before) const;

  std::vector<uint8_t> contribution(uint64_t seed, uint64_t first, uint64_t count) const;
  std::vector<uint8_t> expected(uint32_t r);
  const std::vector<uint8_t>& reduced();
  void reduce_lane(const ccl::CollectiveShape& shape, const std::vector<runtime::distributed::LaneRun>& runs);
  uint64_t count_wrong(uint32_t r);
  uint64_t differing(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) const;

  const ccl::Collective m_collective;
  const AllReduceJob& m_job;
  Machine& m_machine;
  const runtime::distributed::ProcessGroup m_group;
  const std::vector<uint32_t> m_ranks;
  const uint32_t m_n;
  const uint32_t m_item;
  TimeSplit* const m_split;
  const bool m_functional;
  uint64_t m_block = 0;  ///< elements of what one rank gives or gets
  uint64_t m_count = 0;
  uint64_t m_pieces = 1;  ///< summands that a rank brings: of a partial tensor one per cube
  runtime::DPPolicy m_policy;
  std::vector<Rank> m_tensors;
  std::vector<uint8_t> m_reduced;
  runtime::distributed::CollectiveRecord m_record;
  sc_core::sc_mutex m_turn;
};

/// What no algorithm can undercut for `bytes` (as nccl-tests counts them) over the SIPs of `group`: the bytes that a
/// rank has to send or receive over the bandwidth of its links, and the latency of the longest way that a message has
/// to go. \param root  index into `group`
Ps collective_bound(const SipGraph& graph, ccl::Collective collective, uint64_t bytes, const std::vector<SipId>& group,
                    uint32_t root);

/// busbw / algbw of nccl-tests.
double bus_factor(ccl::Collective collective, uint32_t ranks);

}  // namespace ahbm::platform
