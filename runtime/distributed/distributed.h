// `torch.distributed` of this machine: process groups, rank registry, collectives. Decisions D1-D8 of ADR-0047;
// exception types: ValueError is std::invalid_argument, RuntimeError std::runtime_error.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/errors.h"
#include "runtime/distributed/ccl_config.h"
#include "runtime/distributed/lane_plan.h"
#include "runtime/tensor.h"

namespace ahbm::runtime {
class Context;
}

namespace ahbm::runtime::distributed {

struct BatchedTransfers;
struct GroupState;
struct Operation;
struct WorkState;

/// A set of ranks, as torch.distributed.ProcessGroup: made by DistributedContext::new_group. Copies name the same one;
/// a default-constructed one names the group of init_process_group.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<GroupState> state) : m_state(std::move(state)) {}
  bool is_default() const { return m_state == nullptr; }
  const std::shared_ptr<GroupState>& state() const { return m_state; }
  friend bool operator==(const ProcessGroup& a, const ProcessGroup& b) { return a.m_state == b.m_state; }
  friend bool operator!=(const ProcessGroup& a, const ProcessGroup& b) { return !(a == b); }

 private:
  std::shared_ptr<GroupState> m_state;
};

/// The root or the peer of a call: a plain number is a global rank, `group_src(r)` and `group_dst(r)` count in the
/// group.
struct Peer {
  Peer(uint32_t global_rank) : rank(global_rank) {}  // NOLINT(google-explicit-constructor): src = 3 reads
  uint32_t rank = 0;
  bool in_group = false;
};
inline Peer group_src(uint32_t rank) {
  Peer p(rank);
  p.in_group = true;
  return p;
}
inline Peer group_dst(uint32_t rank) {
  return group_src(rank);
}

/// When a rank took part in a collective: from the first descriptor to its PEs until their last completion has arrived.
/// Both 0 when nothing was launched there.
struct CollectiveSpan {
  Ps start = 0;
  Ps end = 0;
};

/// One collective as it ran, over all ranks. Complete when every rank's part is.
struct CollectiveRecord {
  ccl::Collective collective = ccl::Collective::AllReduce;
  uint32_t seq = 0;
  std::string algorithm;  ///< the module that ran
  std::string selection;  ///< where `auto` chose it: the time by its closed form, and the next best one
  uint32_t world_size = 1;
  uint64_t count = 0;  ///< elements that `bytes` counts
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  ccl::CubeLayout layout = ccl::CubeLayout::Sharded;
  /// As nccl-tests: of a rank's logical tensor; all_gather and gather: of the gathered one; reduce_scatter and scatter:
  /// of the whole input; all_to_all: of the largest rank's input
  uint64_t bytes = 0;
  Ps start = 0;                       ///< the first descriptor leaves the host; 0 when nothing was launched
  Ps end = 0;                         ///< the last completion has arrived
  uint32_t connections = 0;           ///< made for this call, before `start`
  uint32_t parts = 0;                 ///< ranks that have finished
  uint32_t group = 0;                 ///< number of the process group in this context, 0: the default one
  uint32_t root = 0;                  ///< group rank
  std::vector<uint32_t> members;      ///< global ranks, by group rank; of a send and receive: sender, receiver
  std::vector<CollectiveSpan> spans;  ///< of each of `members`, once it has finished
  /// What ran on each cube, for a checker: the module's view of the group and of the lane's call, and which elements of
  /// which block the lane carried. Empty when nothing was launched.
  ccl::Group ranks;
  std::vector<ccl::CollectiveShape> shapes;
  std::vector<Lane> lanes;
  uint64_t staged_bytes = 0;  ///< through staging buffers, because they lie otherwise in the tensors, over all ranks
  bool complete() const { return parts == world_size; }
};

/// One caller's part of a collective, as it is told to listeners once the call has been accepted.
struct CollectiveCall {
  ccl::Collective collective = ccl::Collective::AllReduce;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::Float32;
  std::optional<uint32_t> rank;                    ///< global; empty: the driver, for all ranks of the group
  std::vector<uint32_t> group;                     ///< global ranks, ascending
  uint64_t elements = 0;                           ///< that the caller hands in
  std::shared_ptr<const CollectiveRecord> record;  ///< of all ranks together; filled in while it runs
};

/// A collective under way, as torch.distributed.Work. Copies name the same one.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : m_state(std::move(state)) {}
  bool is_completed() const;
  /// Waits until this rank's part is done. \throws what went wrong with it
  void wait() const;
  /// Waits, then gives this rank's output tensors (all_reduce and broadcast: the tensor itself); none where it has
  /// none.
  std::vector<Tensor> result() const;
  const CollectiveRecord& record() const;

 private:
  std::shared_ptr<WorkState> m_state;
};

/// Steps of init_process_group, in order; see DistributedContext::before_step.
enum class InitStep : uint8_t { LoadConfig, ResolveModule, WorldSize, TopologyFacts, Install };

/// One of batch_isend_irecv.
struct P2POp {
  enum Kind : uint8_t { Isend, Irecv } kind = Isend;
  Tensor tensor;
  Peer peer{0};
  ProcessGroup group{};
  uint32_t tag = 0;
};

/// The methods follow torch.distributed in name, argument order and meaning. Every one of them takes a group; the ranks
/// of a group call the same collectives in the same order. A rank that is not in the group does nothing and gets a Work
/// that is completed, as in PyTorch. Calls that differ between ranks are a std::runtime_error that names both, before
/// anything is sent; so are input and output that overlap in memory. Views go as they are: their elements are sent or
/// replaced, and no others. From rank threads a call concerns the rank's tensors on its SIP; from the driver every
/// rank's, and the tensors have shards on every rank's SIP (`sips: all`).
class DistributedContext {
 public:
  DistributedContext();
  ~DistributedContext();
  DistributedContext(const DistributedContext&) = delete;
  DistributedContext& operator=(const DistributedContext&) = delete;

  /// Called by Context: the back-reference of D1.
  void attach(Context& context) { m_context = &context; }

  /// What a command line puts before the topology file's `ccl:` and before `defaults.algorithm`; empty: nothing.
  void set_ccl_file(std::string file) { m_ccl_file = std::move(file); }
  void set_algorithm(std::string algorithm) { m_algorithm = std::move(algorithm); }
  /// A module of the registry to run instead of the algorithm's, from the next init on; empty: the algorithm's.
  void set_module(std::string module) { m_module = std::move(module); }

  /// The first call installs; the first call of every other rank thread joins. `world_size` and `rank` are accepted and
  /// ignored. \throws std::invalid_argument for another backend or an impossible world, std::runtime_error when not
  /// bound to a Context, or called twice by one thread, ConfigError for ccl.yaml
  void init_process_group(const std::string& backend = "ahbm", std::optional<uint32_t> world_size = {},
                          std::optional<uint32_t> rank = {});
  /// Leaves the group; the last rank (or the driver, when no rank thread is in it) frees its queue pairs. Waits for the
  /// caller's collectives first. The default group takes all others with it. \throws std::invalid_argument for a group
  /// that was destroyed
  void destroy_process_group(const ProcessGroup& group = {});
  bool is_initialized() const;
  uint32_t get_world_size() const;
  std::string get_backend() const;
  /// Of the calling thread: its bound rank, 0 when it has none.
  uint32_t get_rank() const;
  RankMode rank_mode() const;
  /// Where ranks are PEs: that of the calling rank thread; its tensors lie on this PE. Else nothing.
  std::optional<PeLocation> own_pe() const;
  const CclSettings& settings() const;

  // --- groups
  /// Every rank of the default group calls it, members or not, with the same ranks (empty: all). They are sorted. Takes
  /// no simulated time: queue pairs are made on first use. \throws std::invalid_argument for a rank that is none or
  /// twice
  ProcessGroup new_group(std::vector<uint32_t> ranks = {});
  /// Of the calling thread in the group; -1 when it is not in it.
  int64_t get_rank(const ProcessGroup& group) const;
  int64_t get_world_size(const ProcessGroup& group) const;
  /// \throws std::invalid_argument when the rank is not in the group
  uint32_t get_group_rank(const ProcessGroup& group, uint32_t global_rank) const;
  uint32_t get_global_rank(const ProcessGroup& group, uint32_t group_rank) const;
  std::vector<uint32_t> get_process_group_ranks(const ProcessGroup& group = {}) const;
  /// Connections that the group has made, the neighbours at init included.
  size_t connections(const ProcessGroup& group = {}) const;
  /// The module of the group's algorithm; empty for `auto`. Calls that it does not do are run by others.
  std::string module_name(const ProcessGroup& group = {}) const;

  // --- collectives
  /// Reduces the ranks' logical tensors elementwise, in place. From a rank thread: this rank's tensor on its SIP. From
  /// the driver: a tensor with shards on every rank's SIP.
  /// \throws NotImplementedError for an op, dtype or topology that no algorithm of ccl.yaml does; std::runtime_error
  /// for a tensor that is not deployed or has no shards, calls that differ between ranks (both named), a failed group
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::Sum, bool async_op = false);
  Work all_reduce(const Tensor& tensor, std::string_view op, bool async_op = false);
  Work all_reduce(const Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op = false);
  Work broadcast(const Tensor& tensor, Peer src, const ProcessGroup& group = {}, bool async_op = false);
  /// The result is at `dst`; the others' tensors keep their values.
  Work reduce(const Tensor& tensor, Peer dst, ReduceOp op = ReduceOp::Sum, const ProcessGroup& group = {},
              bool async_op = false);
  /// `output` is the ranks' inputs one after another along `dim` (negative: from the end), or, with dim 0, anything of
  /// n times their elements, as PyTorch's stacked form.
  Work all_gather_into_tensor(const Tensor& output, const Tensor& input, const ProcessGroup& group = {},
                              bool async_op = false, int64_t dim = 0);
  /// One output per rank. All must have the input's number of elements.
  Work all_gather(const std::vector<Tensor>& outputs, const Tensor& input, const ProcessGroup& group = {},
                  bool async_op = false);
  Work all_gather(const Tensor& output, const Tensor& input, int64_t dim, const ProcessGroup& group = {},
                  bool async_op = false) {
    return all_gather_into_tensor(output, input, group, async_op, dim);
  }
  Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::Sum,
                             const ProcessGroup& group = {}, bool async_op = false, int64_t dim = 0);
  Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = ReduceOp::Sum,
                      const ProcessGroup& group = {}, bool async_op = false);
  Work reduce_scatter(const Tensor& output, const Tensor& input, int64_t dim, ReduceOp op = ReduceOp::Sum,
                      const ProcessGroup& group = {}, bool async_op = false) {
    return reduce_scatter_tensor(output, input, op, group, async_op, dim);
  }
  /// Rows of the first dimension; empty splits: equal ones.
  Work all_to_all_single(const Tensor& output, const Tensor& input, const std::vector<uint64_t>& output_splits = {},
                         const std::vector<uint64_t>& input_splits = {}, const ProcessGroup& group = {},
                         bool async_op = false);
  /// `gather_list` at dst only: one tensor per rank. From the driver: given, and used on dst's SIP.
  Work gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, Peer dst, const ProcessGroup& group = {},
              bool async_op = false);
  /// `scatter_list` at src only.
  Work scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list, Peer src, const ProcessGroup& group = {},
               bool async_op = false);

  // --- point to point. Sends and receives between two ranks pair up in the order of the calls, per tag; they are
  // outside of the sequence of the collectives. For rank threads only.
  void send(const Tensor& tensor, Peer dst, const ProcessGroup& group = {}, uint32_t tag = 0);
  /// Answers the global rank of the sender.
  uint32_t recv(const Tensor& tensor, Peer src, const ProcessGroup& group = {}, uint32_t tag = 0);
  Work isend(const Tensor& tensor, Peer dst, const ProcessGroup& group = {}, uint32_t tag = 0);
  Work irecv(const Tensor& tensor, Peer src, const ProcessGroup& group = {}, uint32_t tag = 0);
  /// All transfers of batches that meet one another leave together, as one kernel per rank, when every send and receive
  /// of these batches has met its other half. One that meets a plain send or receive goes on its own.
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops);

  // --- barriers
  /// Takes no simulated time (D6) and does not wait, unless ccl.yaml says `barrier: simulated`: then the ranks
  /// synchronise through the hardware. Ranks that call something else at this point of their sequence are an error.
  Work barrier(const ProcessGroup& group = {}, bool async_op = false);
  /// Waits until every rank of the group has called it. After `timeout` (simulated) the callers get a
  /// std::runtime_error that lists all ranks that have not; these have then missed it: their next call pairs with the
  /// others' next one.
  void monitored_barrier(const ProcessGroup& group = {}, Ps timeout = us(100));

  /// Binds a thread (default: the calling one) to a rank. spawn does this for its threads.
  void bind_rank(uint32_t rank);
  void bind_rank(const sc_core::sc_process_handle& thread, uint32_t rank);
  void unbind_rank(const sc_core::sc_process_handle& thread);
  bool is_bound(const sc_core::sc_process_handle& thread) const { return m_ranks.count(thread) != 0; }

  /// Called with each collective's record when its last rank has finished.
  std::function<void(const CollectiveRecord&)> on_collective;
  /// Told of every call of a collective, in the order of the calls of each rank. Barriers that take no time and point
  /// to point transfers are none. Answers a number for `remove_listener`.
  uint32_t add_listener(std::function<void(const CollectiveCall&)> listener);
  void remove_listener(uint32_t number) { m_listeners.erase(number); }
  /// Grows with every init_process_group that installs: groups of an earlier one are destroyed.
  uint64_t generation() const { return m_generation; }
  /// Called before each step of init; what it throws makes the step fail. For fault injection.
  std::function<void(InitStep)> before_step;

  // --- for Context
  /// Ends the group's running kernels and makes its collectives errors until it is destroyed.
  void mark_failed(const std::string& why);
  /// Waits for collectives that nobody waited for.
  void drain();
  void drain(const sc_core::sc_process_handle& thread);
  /// Ends the helper threads of asynchronous collectives.
  void end_helpers();
  /// Rows of asynchronous collectives that wait.
  std::vector<StallRow> helper_rows() const;
  /// A thread has ended: it is no member any more.
  void forget(const sc_core::sc_process_handle& thread);

 private:
  struct Call;
  friend struct Operation;
  friend class CollectivePlan;
  using GroupPtr = std::shared_ptr<GroupState>;
  using WorkPtr = std::shared_ptr<WorkState>;
  /// The default group. \throws std::runtime_error `Default process group has not been initialized...`
  GroupState& group() const;
  const GroupPtr& group_ptr(const ProcessGroup& group) const;
  void install();
  void teardown();
  void release(const GroupPtr& g);
  Context& context() const;
  Device& device() const;
  void check_usable(const GroupState& g) const;
  static std::string failed_text(const GroupState& g);
  void mark_failed(const GroupPtr& g, const std::string& why);

  // --- a call's way: begin, arrive, and perform by the caller or by a helper
  /// The caller's rank in the group; empty: the driver. `member` false: a rank that is not in the group.
  struct Caller {
    std::optional<uint32_t> rank;
    bool member = true;
  };
  Caller begin(const GroupPtr& g, const char* name) const;
  uint32_t group_rank(const GroupState& g, const Peer& peer, const char* name, const char* role) const;
  void check_tensor(const GroupState& g, const Caller& caller, const Tensor& tensor, const char* name,
                    std::optional<uint32_t> only_rank = {}) const;
  Work collective(const GroupPtr& g, const Caller& caller, Call call, bool async_op);
  void tell_listeners(const GroupState& g, const Caller& caller, const Call& call, const Operation& op) const;
  std::shared_ptr<Operation> arrive(GroupState& g, std::optional<uint32_t> rank, const Call& call);
  Work start(const GroupPtr& g, const WorkPtr& work, bool async_op);
  Work post(const GroupPtr& g, const Tensor& tensor, const Peer& peer, uint32_t tag, bool sends, bool async_op,
            const char* name);
  /// Pairs a send or receive with its other half, or lets it wait for that. Null: the caller is not in the group.
  WorkPtr pair_up(const GroupPtr& g, const Tensor& tensor, const Peer& peer, uint32_t tag, bool sends, const char* name,
                  const std::shared_ptr<BatchedTransfers>& batch);
  /// Lets the transfers of a batch leave when all are paired.
  static void leave_when_paired(GroupState& g, const std::shared_ptr<BatchedTransfers>& batch);
  void run(const GroupPtr& g, const WorkPtr& work);
  void perform(const GroupPtr& g, const WorkPtr& work);
  /// The last caller's part: connections, buffers, and the launches of all ranks.
  void lead(const GroupPtr& g, const WorkPtr& work);
  void launch(GroupState& g, Operation& op);
  void launch_batch(GroupState& g, const BatchedTransfers& batch);
  using Chooser = std::function<const ccl::AlgorithmModule&(ccl::Collective, const ccl::Group&,
                                                            const ccl::CollectiveShape&, double, std::string&)>;
  Chooser chooser(const GroupState& g) const;
  void note(GroupState& g, Operation& op, uint32_t rank, const Launch& launch, const std::vector<Tensor>& tensors);
  void start_helper(const GroupPtr& g, const WorkPtr& work);
  friend class Work;
  void settled(const WorkPtr& work);
  /// What a `module:` stands for; loads it when it is a shared object. Empty: nothing of that name.
  std::vector<const ccl::AlgorithmModule*> modules_of(const CclSettings& settings, const std::string& name) const;
  const ccl::AlgorithmModule& named_module(const CclSettings& settings) const;
  const ccl::AlgorithmModule& choose_module(const GroupState& g, ccl::CubeLayout layout, ReduceOp op,
                                            DType dtype) const;
  /// The algorithm of ccl.yaml when it can run this, else (`auto`, and for other collectives) the fastest by the closed
  /// forms of those that ccl.yaml names, else of all. `why` gets what was chosen from.
  const ccl::AlgorithmModule& choose_module(const GroupState& g, ccl::Collective collective, const ccl::Group& group,
                                            const ccl::CollectiveShape& shape, double bytes, std::string& why) const;

  Context* m_context = nullptr;
  std::string m_ccl_file;
  std::string m_algorithm, m_module;
  GroupPtr m_group;                          ///< the default one
  std::map<uint32_t, GroupPtr> m_subgroups;  ///< by number, until destroyed
  uint32_t m_last_group_number = 0;
  uint64_t m_generation = 0;
  std::map<uint32_t, std::function<void(const CollectiveCall&)>> m_listeners;
  uint32_t m_last_listener = 0;
  bool m_installing = false;
  std::unique_ptr<sc_core::sc_event> m_group_changed;
  std::map<sc_core::sc_process_handle, uint32_t> m_ranks;
  std::list<std::shared_ptr<WorkState>> m_outstanding;
};

}  // namespace ahbm::runtime::distributed
