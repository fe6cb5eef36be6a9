// `torch.distributed` of this machine: process groups, rank registry, collectives. Decisions D1-D8 of ADR-0047;
// exception types: ValueError is std::invalid_argument, RuntimeError std::runtime_error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/errors.h"
#include "runtime/distributed/ccl_config.h"
#include "runtime/tensor.h"

namespace ahbm::runtime {
class Context;
}

namespace ahbm::runtime::distributed {

/// One collective as it ran, over all ranks. Complete when every rank's part is.
struct CollectiveRecord {
  ccl::Collective collective = ccl::Collective::AllReduce;
  uint32_t seq = 0;
  std::string algorithm;  ///< the module that ran
  uint32_t world_size = 1;
  uint64_t count = 0;  ///< elements of a rank's logical tensor
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  ccl::CubeLayout layout = ccl::CubeLayout::Sharded;
  uint64_t bytes = 0;        ///< of a rank's logical tensor
  Ps start = 0;              ///< the first descriptor leaves the host; 0 when nothing was launched
  Ps end = 0;                ///< the last completion has arrived
  uint32_t connections = 0;  ///< made for this call, before `start`
  uint32_t parts = 0;        ///< ranks that have finished
  bool complete() const { return parts == world_size; }
};

struct WorkState;

/// A collective under way, as torch.distributed.Work. Copies name the same one.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : m_state(std::move(state)) {}
  bool is_completed() const;
  /// Waits until this rank's part is done. \throws what went wrong with it
  void wait() const;
  const CollectiveRecord& record() const;

 private:
  std::shared_ptr<WorkState> m_state;
};

/// Steps of init_process_group, in order; see DistributedContext::before_step.
enum class InitStep : uint8_t { LoadConfig, ResolveModule, WorldSize, TopologyFacts, Install };

struct ProcessGroup;
struct Operation;

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

  /// The first call installs; the first call of every other rank thread joins. `world_size` and `rank` are accepted and
  /// ignored. \throws std::invalid_argument for another backend or an impossible world, std::runtime_error when not
  /// bound to a Context, or called twice by one thread, ConfigError for ccl.yaml
  void init_process_group(const std::string& backend = "ahbm", std::optional<uint32_t> world_size = {},
                          std::optional<uint32_t> rank = {});
  /// Leaves the group; the last rank (or the driver, when no rank thread is in it) frees its queue pairs. Waits for the
  /// caller's collectives first.
  void destroy_process_group();
  bool is_initialized() const;
  uint32_t get_world_size() const;
  std::string get_backend() const;
  /// Of the calling thread: its bound rank, 0 when it has none.
  uint32_t get_rank() const;
  RankMode rank_mode() const;
  const CclSettings& settings() const;

  /// Reduces the ranks' logical tensors elementwise, in place. From a rank thread: this rank's tensor on its SIP. From
  /// the driver: a tensor with shards on every rank's SIP.
  /// \throws NotImplementedError for an op, dtype or topology that no algorithm of ccl.yaml does; std::runtime_error
  /// for a tensor that is not deployed or has no shards, calls that differ between ranks (both named), a failed group
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::Sum, bool async_op = false);
  Work all_reduce(const Tensor& tensor, std::string_view op, bool async_op = false);
  /// Takes no simulated time (D6). Ranks that call something else at this point of their sequence are an error.
  void barrier();

  /// Binds a thread (default: the calling one) to a rank. spawn does this for its threads.
  void bind_rank(uint32_t rank);
  void bind_rank(const sc_core::sc_process_handle& thread, uint32_t rank);
  void unbind_rank(const sc_core::sc_process_handle& thread);
  bool is_bound(const sc_core::sc_process_handle& thread) const { return m_ranks.count(thread) != 0; }

  /// Called with each collective's record when its last rank has finished.
  std::function<void(const CollectiveRecord&)> on_collective;
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
  ProcessGroup& group() const;  ///< \throws std::runtime_error `Default process group has not been initialized...`
  void install();
  void teardown();
  Context& context() const;
  Device& device() const;
  void check_usable(const ProcessGroup& g) const;
  std::shared_ptr<Operation> arrive(ProcessGroup& g, std::optional<uint32_t> rank, const Call& call);
  void prepare(ProcessGroup& g, Operation& op);
  void run(const std::shared_ptr<ProcessGroup>& g, const std::shared_ptr<WorkState>& work);
  void perform(const std::shared_ptr<ProcessGroup>& g, const std::shared_ptr<WorkState>& work);
  friend class Work;
  void settled(const std::shared_ptr<WorkState>& work);
  std::vector<Launch> launch(ProcessGroup& g, const Operation& op, const WorkState& work);
  void start_helper(const std::shared_ptr<ProcessGroup>& g, const std::shared_ptr<WorkState>& work);
  /// What a `module:` stands for; loads it when it is a shared object. Empty: nothing of that name.
  std::vector<const ccl::AlgorithmModule*> modules_of(const CclSettings& settings, const std::string& name) const;
  const ccl::AlgorithmModule& named_module(const CclSettings& settings) const;
  const ccl::AlgorithmModule& choose_module(const ProcessGroup& g, ccl::CubeLayout layout, ReduceOp op,
                                            DType dtype) const;

  Context* m_context = nullptr;
  std::string m_ccl_file;
  std::string m_algorithm;
  std::shared_ptr<ProcessGroup> m_group;
  bool m_installing = false;
  std::unique_ptr<sc_core::sc_event> m_group_changed;
  std::map<sc_core::sc_process_handle, uint32_t> m_ranks;
  std::vector<std::shared_ptr<WorkState>> m_outstanding;
};

}  // namespace ahbm::runtime::distributed
