// What process groups, their operations and the callers' parts of them are made of. Private to runtime/distributed.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ccl/select.h"
#include "runtime/distributed/connections.h"
#include "runtime/distributed/distributed.h"

namespace ahbm::runtime::distributed {

/// What one rank (or the driver, for all) brings to an operation.
struct DistributedContext::Call {
  const char* name = "";  ///< the method, as messages call it
  ccl::Collective collective = ccl::Collective::AllReduce;
  std::vector<Tensor> inputs, outputs;  ///< all_reduce, broadcast and reduce: the same tensor in both
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  uint32_t root = 0;  ///< group rank
  uint32_t peer = 0;  ///< of a point-to-point transfer: the receiver
  size_t dim = 0;
  std::vector<uint64_t> input_splits, output_splits;  ///< of all_to_all, in elements
  const ccl::AlgorithmModule* module = nullptr;       ///< of all_reduce
  /// What the ranks have to agree on, as it is told when they do not. Only what the first difference shows is used.
  std::vector<std::pair<const char*, std::string>> agree;
};

/// A value for each of some ranks of a group: of all, or of the two between which a message goes. A large group has as
/// many messages between two ranks as ranks.
template <typename T>
class PerRank {
 public:
  void assign_all(uint32_t n) {
    m_ranks.resize(n);
    std::iota(m_ranks.begin(), m_ranks.end(), 0);
    m_values = std::vector<T>(n);
  }
  /// \param ranks  ascending
  void assign(std::vector<uint32_t> ranks) {
    m_values = std::vector<T>(ranks.size());
    m_ranks = std::move(ranks);
  }
  const std::vector<uint32_t>& ranks() const { return m_ranks; }
  bool has(uint32_t rank) const { return index(rank) < m_ranks.size() && m_ranks[index(rank)] == rank; }
  /// \pre has(rank)
  T& operator[](uint32_t rank) { return m_values[index(rank)]; }
  const T& operator[](uint32_t rank) const { return m_values[index(rank)]; }
  /// In the order of the ranks.
  std::vector<T>& values() { return m_values; }
  const std::vector<T>& values() const { return m_values; }

 private:
  size_t index(uint32_t rank) const {
    if (rank < m_ranks.size() && m_ranks[rank] == rank) return rank;
    return static_cast<size_t>(std::lower_bound(m_ranks.begin(), m_ranks.end(), rank) - m_ranks.begin());
  }
  std::vector<uint32_t> m_ranks;
  std::vector<T> m_values;
};

/// One position in the sequence of a group, from its first caller to its last. Or a pair of send and receive.
struct Operation {
  using Call = DistributedContext::Call;
  uint32_t seq = 0;
  std::string first_caller;
  Call call;                  ///< of the first caller
  PerRank<Call> calls;        ///< by group rank; of the driver the same for all. Dropped after the launch
  std::vector<bool> arrived;  ///< by group rank
  std::vector<uint32_t> global_ranks;
  uint32_t missing = 0;
  std::string waits_for;                  ///< of a point-to-point transfer: what is missing
  bool launched = false;                  ///< all ranks' kernels are on their way (or there is nothing to do)
  std::exception_ptr error;               ///< why it will not run
  PerRank<std::vector<Launch>> launches;  ///< by group rank; none before it is planned
  std::shared_ptr<GroupState> created;    ///< of new_group
  std::shared_ptr<CollectiveRecord> record;
  sc_core::sc_event changed;

  std::string name() const;
  std::string missing_ranks() const;
};

/// The transfers of batches that meet one another: they leave together, as one kernel per rank, when none of them waits
/// for its other half any more.
struct BatchedTransfers {
  size_t unpaired = 0;                               ///< sends and receives that wait for their other half
  std::list<std::shared_ptr<Operation>> operations;  ///< paired with one of another batch
  std::list<std::weak_ptr<WorkState>> works;         ///< of these operations
  std::shared_ptr<BatchedTransfers> joined;          ///< these transfers are part of that one now
};

/// One caller's part of an operation: a rank's, or the driver's for all ranks.
struct WorkState {
  DistributedContext* owner = nullptr;
  Device* device = nullptr;
  std::shared_ptr<GroupState> group;
  std::shared_ptr<Operation> operation;
  std::optional<uint32_t> rank;  ///< in the group; empty: the driver
  std::vector<Tensor> outputs;
  bool last = false;                        ///< of the callers: leads
  std::shared_ptr<BatchedTransfers> batch;  ///< of batch_isend_irecv
  bool done = false;
  std::exception_ptr error;
  sc_core::sc_process_handle caller;
  sc_core::sc_process_handle helper;  ///< of an asynchronous call
  sc_core::sc_event changed;
};

struct GroupState {
  /// A send or receive that waits for its other half.
  struct Post {
    std::shared_ptr<WorkState> work;
    Tensor tensor;
  };
  /// Sender, receiver, tag.
  using Pair = std::tuple<uint32_t, uint32_t, uint32_t>;

  uint32_t id = 0;      ///< in the machine: what descriptors and messages carry
  uint32_t number = 0;  ///< in the context: 0 is the default group
  CclSettings settings;
  const ccl::AlgorithmModule* module = nullptr;
  World world;
  TopologyFacts facts;
  std::vector<SipId> sips;                                    ///< by group rank
  std::vector<PeLocation> pes;                                ///< by group rank, where ranks are PEs; else empty
  std::vector<uint32_t> global_ranks;                         ///< by group rank, ascending
  std::vector<uint32_t> next_seq;                             ///< by group rank
  std::map<uint32_t, std::shared_ptr<Operation>> operations;  ///< those that not every rank has called
  std::deque<const Operation*> ready;                         ///< all ranks have called: they launch in this order
  std::map<Pair, std::deque<Post>> sends, receives;
  std::set<std::shared_ptr<Operation>> batched;  ///< paired transfers of batches that have not left yet
  uint32_t next_transfer = 0;
  std::set<sc_core::sc_process_handle> members;  ///< of the default group: threads that called init
  std::set<sc_core::sc_process_handle> left;     ///< and destroy since
  std::set<uint32_t> left_ranks;                 ///< of another group: group ranks that called destroy
  bool destroyed = false;
  std::string failed;
  std::vector<Launch> in_flight;  ///< and some that have completed
  std::unique_ptr<Connections> connections;
  mutable ccl::SelectionMemo selections;
  sc_core::sc_event changed;

  uint32_t size() const { return world.size; }
  std::optional<uint32_t> rank_of(uint32_t global_rank) const;
  std::string title() const;  ///< `the process group` or `process group 3`
  /// `rank 2` (global) or `the driver`.
  std::string caller_name(std::optional<uint32_t> group_rank) const;
  void note(const Launch& launch) { add_in_flight(in_flight, launch); }
};

}  // namespace ahbm::runtime::distributed
