// What a program of the machine holds: tensors, launches, rank threads and `distributed`. Several Contexts may share
// one Device; each has a rank registry and process groups of its own.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ccl/algorithm.h"
#include "runtime/device.h"
#include "runtime/distributed/distributed.h"
#include "runtime/tensor.h"

namespace ahbm::dtensor {
class Session;
}

namespace ahbm::runtime {

/// The number of elements of a tensor's shard on the launched PE, as a kernel argument.
struct ElementsOf {
  Tensor tensor;
};
inline ElementsOf elements_of(Tensor t) {
  return {std::move(t)};
}

/// One word of a kernel's arguments: a tensor stands for the address of its shard on the launched PE.
class KernelArg {
 public:
  KernelArg(Tensor t) : m_value(std::move(t)) {}      // NOLINT(google-explicit-constructor): argument lists read
  KernelArg(ElementsOf e) : m_value(std::move(e)) {}  // NOLINT(google-explicit-constructor)
  KernelArg(double v) : m_value(tl::pack_f64(v)) {}   // NOLINT(google-explicit-constructor)
  KernelArg(DType t) : m_value(uint64_t(t)) {}        // NOLINT(google-explicit-constructor)
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  KernelArg(T v) : m_value(static_cast<uint64_t>(v)) {}  // NOLINT(google-explicit-constructor)

  const std::variant<uint64_t, Tensor, ElementsOf>& value() const { return m_value; }

 private:
  std::variant<uint64_t, Tensor, ElementsOf> m_value;
};

/// An exception of a rank thread as the spawner sees it: the type of the original (or the nearest standard one), its
/// text prefixed with rank and simulated time; the original itself is `original`.
struct RankFailure {
  uint32_t rank = 0;
  Ps time = 0;
  std::exception_ptr original;
  virtual ~RankFailure() = default;
};

class Context {
 public:
  /// \param algorithms  null: the built-in ones. Referenced; modules of shared objects that ccl.yaml names are added.
  explicit Context(Device& device, ccl::Registry* algorithms = nullptr);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device() { return m_device; }
  const SystemConfig& config() const { return m_device.config(); }
  const ccl::Registry& algorithms() const { return *m_algorithms; }
  ccl::Registry& algorithms() { return *m_algorithms; }

  // --- which SIP
  /// Binds the calling thread to a SIP. \throws std::invalid_argument when there is no such SIP
  void set_device(uint32_t sip);
  /// The calling thread's SIP: as bound, else its rank; the driver's is 0.
  uint32_t current_device() const;

  // --- tensors, on the calling thread's device or, with `sips: all`, on every SIP. Of a partial tensor the pieces of
  // the cubes count as one tensor of shape (cubes, *shape). All but `empty` take simulated time.
  Tensor empty(const Shape& shape, DType dtype = DType::Float32, const DPPolicy& policy = {});
  Tensor full(const Shape& shape, double value, DType dtype = DType::Float32, const DPPolicy& policy = {});
  Tensor zeros(const Shape& shape, DType dtype = DType::Float32, const DPPolicy& policy = {}) {
    return full(shape, 0.0, dtype, policy);
  }
  Tensor ones(const Shape& shape, DType dtype = DType::Float32, const DPPolicy& policy = {}) {
    return full(shape, 1.0, dtype, policy);
  }
  /// start, start + step, ... while below `end` (above it when step < 0), as a vector.
  /// \throws std::invalid_argument when step is 0 or leads away from `end`
  Tensor arange(double start, double end, double step = 1.0, DType dtype = DType::Float32, const DPPolicy& policy = {});
  /// Element i is runtime::random_value(dtype, seed, i).
  Tensor rand(const Shape& shape, uint64_t seed, DType dtype = DType::Float32, const DPPolicy& policy = {});
  Tensor from_host(const Shape& shape, DType dtype, const void* data, uint64_t bytes, const DPPolicy& policy = {});
  template <typename T>
  Tensor from_host(const Shape& shape, DType dtype, const std::vector<T>& data, const DPPolicy& policy = {}) {
    Tensor t = empty(shape, dtype, policy);
    t.upload(data);
    return t;
  }

  // --- kernels
  /// Launches `kernel` on every PE that holds a non-empty shard of the first tensor among `args`; every other tensor
  /// must have shards on the same PEs. Returns when the host has sent the descriptors.
  /// \throws std::invalid_argument for an unknown kernel, no tensor, or tensors that lie on different PEs
  Launch launch(const std::string& kernel, const std::vector<KernelArg>& args);
  /// Launches on the named PEs with plain words.
  Launch launch_on(const std::string& kernel, const std::vector<PeLocation>& pes, const std::vector<uint64_t>& args);
  /// Launches with arguments of each PE's own; nobody is told that tensors are in use.
  Launch launch_each(LaunchRequest request);
  void wait(const Launch& launch) { m_device.wait(launch); }
  /// Waits for everything that the calling thread has launched, collectives included; the driver waits for everybody's.
  void synchronize();

  // --- threads
  /// Runs fn(rank) for rank 0..nprocs-1 as SystemC thread processes, each bound to its rank, and waits for all of them
  /// and for what they launched. When one throws, or the simulation stalls, the others are ended and the exception is
  /// thrown here (see RankFailure); process groups of this context count as failed then.
  void spawn(const std::function<void(uint32_t)>& fn, uint32_t nprocs);

  distributed::DistributedContext distributed;

  /// What distributed tensors remember between calls: decisions, plans, process groups of meshes, scopes.
  dtensor::Session& dtensor_session();

 private:
  friend class distributed::DistributedContext;
  struct Spawned;
  std::vector<SipId> sips_of(const DPPolicy& policy) const;
  void note_launch(const Launch& launch);

  Device& m_device;
  std::unique_ptr<ccl::Registry> m_own_algorithms;
  ccl::Registry* m_algorithms;
  std::map<sc_core::sc_process_handle, uint32_t> m_devices;
  std::vector<std::pair<sc_core::sc_process_handle, Launch>> m_launches;
  std::unique_ptr<dtensor::Session> m_dtensor_session;
  std::shared_ptr<Context*> m_self;  ///< dies with the context: for tensors, which may outlive it
};

namespace mp {
/// torch.multiprocessing.spawn.
inline void spawn(Context& context, const std::function<void(uint32_t)>& fn, uint32_t nprocs) {
  context.spawn(fn, nprocs);
}
}  // namespace mp

/// A driver process for programs with an sc_main of their own. The constructor spawns it; `sc_start` is the caller's.
///
///   Driver driver([&] { ... });
///   sc_core::sc_start();
///   driver.check();
class Driver {
 public:
  explicit Driver(std::function<void()> fn, const char* name = "driver");
  bool done() const { return m_state->done; }
  /// Rethrows what the driver threw. \throws StallError when it has not returned
  void check() const;

 private:
  struct State {
    std::function<void()> fn;
    bool done = false;
    std::exception_ptr error;
  };
  std::shared_ptr<State> m_state;
};
inline Driver run_driver(std::function<void()> fn) {
  return Driver(std::move(fn));
}

}  // namespace ahbm::runtime
