// Runs the algorithm of the ccl.yaml on the command line and compares its time with its closed form.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <systemc>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/config/load_config.h"
#include "models/core/ipcq_protocol.h"
#include "models/system/system.h"
#include "runtime/context.h"

using namespace ahbm;

int sc_main(int argc, char* argv[]) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: own_algorithm <ccl.yaml>\n");
    return 2;
  }
  // [run]
  SystemConfig config = load_system_config(PLATFORMS "/peer_64B_50ns.yaml");
  config.ccl_file = argv[1];
  tl::KernelRegistry kernels;
  tl::register_builtin_kernels(kernels);
  models::System system("system", config, kernels);
  runtime::Device device(system);
  runtime::Context context(device);

  bool good = true;
  runtime::Driver driver([&] {
    context.distributed.init_process_group();
    for (const uint64_t bytes : {uint64_t{16} << 10, uint64_t{1} << 20, uint64_t{16} << 20}) {
      const uint64_t count = bytes / sizeof(float);
      runtime::distributed::CollectiveRecord record;
      std::vector<float> wrong(config.sips, 0);
      context.spawn(
          [&](uint32_t rank) {
            const runtime::Tensor x = context.full({count}, rank + 1.0);
            const auto work = context.distributed.all_reduce(x);
            const float want = static_cast<float>(config.sips * (config.sips + 1) / 2);
            for (const float v : x.to_host<float>()) wrong[rank] += v != want;
            if (rank == 0) record = work.record();
          },
          config.sips);
      // [run]
      // [time]
      ccl::CostQuery query;
      query.ranks = config.sips;
      query.bytes = static_cast<double>(bytes);
      query.latency = static_cast<double>(config.sip_link.latency) * 1e-12;
      query.bandwidth = static_cast<double>(config.sip_link.bytes_per_second);
      query.message_bytes =
          std::min(static_cast<double>(bytes), static_cast<double>(ipcq::payload_capacity(config.ipcq.sip.slot_bytes)));
      const double formula = context.algorithms().find(record.algorithm)->time(query) * 1e9;
      const double measured = static_cast<double>(record.end - record.start) / 1e3;
      // [time]
      double sum = 0;
      for (const float w : wrong) sum += w;
      std::printf("own_algorithm: %s, %8.0f bytes: %.1f ns, closed form %.1f ns, %.0f wrong\n",
                  record.algorithm.c_str(), query.bytes, measured, formula, sum);
      good = good && sum == 0 && std::abs(measured / formula - 1) < 0.05;
    }
    context.distributed.destroy_process_group();
  });
  sc_core::sc_start();
  driver.check();
  return good ? 0 : 1;
}
