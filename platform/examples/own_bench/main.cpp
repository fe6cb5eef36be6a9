// A bench in C++, shaped as a training script: rank threads with tensors, a kernel, an all-reduce.
#include <cstdio>
#include <cstdlib>
#include <systemc>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/config/load_config.h"
#include "models/system/system.h"
#include "models/tl/kernel_registry.h"
#include "runtime/context.h"

using namespace ahbm;
namespace dist = ahbm::runtime::distributed;

int sc_main(int argc, char* argv[]) {
  // [machine]
  const SystemConfig config = load_system_config(argc > 1 ? argv[1] : PLATFORMS "/ring4.yaml");
  tl::KernelRegistry kernels;
  ccl::Registry algorithms;
  tl::register_builtin_kernels(kernels);
  ccl::register_builtin_algorithms(algorithms);
  for (const auto& [name, module] : algorithms.modules()) kernels.add(module.kernel_name, module.kernel);
  models::System system("system", config, kernels);
  runtime::Device device(system);
  runtime::Context torch(device, &algorithms);
  // [machine]

  // [bench]
  uint64_t wrong = 0;
  const auto worker = [&](uint32_t rank) {
    torch.distributed.init_process_group("ahbm");
    const uint32_t world = torch.distributed.get_world_size();
    for (const uint64_t count : {uint64_t{1} << 10, uint64_t{1} << 16, uint64_t{1} << 20}) {
      // Gradients, one shard per PE, scaled where they lie.
      const runtime::Tensor gradient = torch.full({count}, rank + 1.0);
      torch.wait(torch.launch("scale", {gradient, gradient, runtime::elements_of(gradient), 0.5, DType::Float32}));

      const dist::Work work = torch.distributed.all_reduce(gradient, ReduceOp::Sum);

      const float want = 0.25f * static_cast<float>(world * (world + 1));
      for (const float v : gradient.to_host<float>()) wrong += v != want;
      torch.distributed.barrier();
      if (rank == 0) {
        const dist::CollectiveRecord& record = work.record();
        const double ns = static_cast<double>(record.end - record.start) / 1e3;
        std::printf("own_bench: %9llu bytes, %s: %10.1f ns, %6.2f GB/s\n",
                    static_cast<unsigned long long>(record.bytes), record.algorithm.c_str(), ns,
                    static_cast<double>(record.bytes) / ns);
      }
    }
    torch.distributed.destroy_process_group();
  };
  runtime::Driver driver([&] { runtime::mp::spawn(torch, worker, config.sips); });
  sc_core::sc_start();
  driver.check();
  // [bench]
  std::printf("own_bench: %llu wrong\n", static_cast<unsigned long long>(wrong));
  std::fflush(stdout);
  // Taking a large module tree down takes longer than building it: the operating system does that.
  std::_Exit(wrong == 0 ? 0 : 1);
}
