// Two machines in one simulation: the same all-reduce at the same time on links of different speed.
#include <cstdio>
#include <memory>
#include <string>
#include <systemc>

#include "ccl/algorithm.h"
#include "models/core/config/load_config.h"
#include "models/system/system.h"
#include "runtime/context.h"

using namespace ahbm;

// [machine]
// Names are paths: this one's modules are <name>.sip0 and so on.
struct Machine {
  Machine(const char* name, const SystemConfig& config, tl::KernelRegistry& kernels, ccl::Registry& algorithms)
      : system(name, config, kernels), device(system), context(device, &algorithms) {}

  models::System system;
  runtime::Device device;
  runtime::Context context;
};
// [machine]

int sc_main(int, char**) {
  tl::KernelRegistry kernels;
  ccl::Registry algorithms;
  tl::register_builtin_kernels(kernels);
  ccl::register_builtin_algorithms(algorithms);
  for (const auto& [name, module] : algorithms.modules()) kernels.add(module.kernel_name, module.kernel);

  // [two]
  Machine fast("fast", load_system_config(PLATFORMS "/tiny.yaml"), kernels, algorithms);
  Machine slow("slow", load_system_config(PLATFORMS "/tiny.yaml", {"sip_link.bandwidth=10 GB/s"}), kernels, algorithms);

  double microseconds[2] = {};
  uint64_t wrong = 0;
  const auto bench = [&](Machine& m, double& time) {
    m.context.distributed.init_process_group();
    m.context.spawn(
        [&](uint32_t rank) {
          const runtime::Tensor x = m.context.full({1 << 16}, rank + 1.0);
          const auto work = m.context.distributed.all_reduce(x);
          for (const float v : x.to_host<float>()) wrong += v != 3.0f;
          m.context.distributed.barrier();
          if (rank == 0) time = static_cast<double>(work.record().end - work.record().start) / 1e6;
        },
        m.system.config().sips);
    m.context.distributed.destroy_process_group();
  };
  // One driver each: they run side by side.
  runtime::Driver first([&] { bench(fast, microseconds[0]); }, "first");
  runtime::Driver second([&] { bench(slow, microseconds[1]); }, "second");
  sc_core::sc_start();
  first.check();
  second.check();
  // [two]
  std::printf("two_systems: fast %.3f us, slow %.3f us, %llu wrong\n", microseconds[0], microseconds[1],
              static_cast<unsigned long long>(wrong));
  return wrong == 0 && microseconds[0] < microseconds[1] ? 0 : 1;
}
