// An own model of a PE's arithmetic in the place of the shipped one. Two machines run the same kernel: they differ in
// time only.
#include <cstdio>
#include <memory>
#include <string>
#include <systemc>
#include <vector>

#include "models/core/config/load_config.h"
#include "models/pe/compute.h"
#include "models/system/system.h"
#include "runtime/context.h"

using namespace ahbm;

// [compute]
// A scalar machine: one element per cycle, one multiply-accumulate per cycle, and both share one unit.
class ScalarCompute : public models::ComputeModel {
 public:
  explicit ScalarCompute(const PeConfig& config) : m_hertz(config.hertz) {}

  Ps vector(Ps now, Ps ready, uint64_t elements) override { return use(now, ready, elements); }
  Ps macs(Ps now, Ps ready, uint64_t m, uint64_t n, uint64_t k) override { return use(now, ready, m * n * k); }

 private:
  Ps use(Ps now, Ps ready, uint64_t cycles) {
    return m_unit.reserve(now, std::max(now, ready), cycles_ps(cycles, m_hertz)).end;
  }
  const uint64_t m_hertz;
  Calendar m_unit;
};
// [compute]

void exponential(tl::Tl& tl, const tl::Args& args) {
  tl.store(args.address(0), tl.exp(tl.load(args.address(0), args.u64(1), DType::Float32)));
}

int sc_main(int, char**) {
  constexpr uint64_t kElements = 4096;
  const SystemConfig config = load_system_config(PLATFORMS "/single.yaml");
  tl::KernelRegistry kernels;
  kernels.add("exponential", exponential);

  // [parts]
  models::SystemParts parts;
  parts.compute = [](const PeLocation&, const PeConfig& pe) { return std::make_unique<ScalarCompute>(pe); };
  models::System shipped("shipped", config, kernels);
  models::System own("own", config, kernels, parts);
  // [parts]

  struct Outcome {
    std::vector<float> values;
    Ps time = 0;
  };
  const auto run = [&](models::System& system) {
    runtime::Device device(system);
    runtime::Context context(device);
    runtime::DPPolicy one_pe;
    one_pe.num_cubes = one_pe.num_pes = 1;
    const runtime::Tensor x = context.full({kElements}, 0.25, DType::Float32, one_pe);
    const runtime::Launch launch = context.launch("exponential", {x, kElements});
    context.wait(launch);
    return Outcome{x.to_host<float>(), launch->last_arrived() - launch->first_sent()};
  };
  Outcome a, b;
  runtime::Driver driver([&] {
    a = run(shipped);
    b = run(own);
  });
  sc_core::sc_start();
  driver.check();

  // Nothing else runs, so the machines differ by exactly what one pass over the elements takes.
  const Ps difference =
      cycles_ps(kElements, config.pe.hertz) - cycles_ps(kElements / config.pe.vector_lanes, config.pe.hertz);
  std::printf("own_compute: shipped %.3f us, own %.3f us, expected difference %.3f us\n",
              static_cast<double>(a.time) / 1e6, static_cast<double>(b.time) / 1e6,
              static_cast<double>(difference) / 1e6);
  return a.values == b.values && b.time - a.time == difference ? 0 : 1;
}
