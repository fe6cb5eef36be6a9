// The resources inside a PE reach their figures when a kernel asks for more: DMA channels and vector lanes.
#include "models/core/config/load_config.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::SimTest;

class Saturation : public SimTest {};

constexpr PeLocation kPe{SipId{0}, CubeId{0}, PeId{0}};

/// One run on the PE, from the descriptor's way out to the completion's arrival.
Ps time_of(Machine& m, const char* kernel, const std::vector<uint64_t>& args) {
  const Launch launch = m.ctx.launch_on(kernel, {kPe}, args);
  m.ctx.wait(launch);
  return launch->last_arrived() - launch->first_sent();
}

TEST_F(Saturation, DmaChannelsReachTheirBandwidthBothAtOnce) {
  Machine m(tiny(1));
  run([&] {
    const uint64_t bytes = 4 << 20;
    const Addr src = m.device.allocate(SipId{0}, CubeId{0}, 2 * bytes);
    const Addr dst = m.device.allocate(SipId{0}, CubeId{0}, 2 * bytes);
    const auto copy = [&](uint64_t n) {
      return time_of(m, "copy", {src, dst, n / 4, static_cast<uint64_t>(DType::Float32)});
    };
    const Ps once = copy(bytes);
    const Ps more = copy(2 * bytes) - once;                                            // what is paid once drops out
    const Ps channel = transfer_ps(bytes, m.device.config().pe.dma_bytes_per_second);  // in and out side by side
    EXPECT_GE(more, channel);
    EXPECT_LE(more, channel + channel / 50);
  });
}

/// (src, elements, times): multiplies a tile in the TCM again and again.
void multiply_often(tl::Tl& tl, const tl::Args& args) {
  tl::Tile x = tl.load(args.address(0), args.u64(1), DType::Float32);
  for (uint64_t i = 0; i < args.u64(2); ++i) x = tl.binary(tl::Binary::Mul, x, 1.0);
  tl.store(args.address(0), x);
}

TEST_F(Saturation, VectorLanesReachTheirRate) {
  Machine m(tiny(1), [](tl::KernelRegistry& kernels) { kernels.add("multiply_often", multiply_often); });
  run([&] {
    const uint64_t elements = 4096;
    const Addr src = m.device.allocate(SipId{0}, CubeId{0}, elements * 4);
    const Ps once = time_of(m, "multiply_often", {src, elements, 100});
    const Ps more = time_of(m, "multiply_often", {src, elements, 400}) - once;
    // 64 cycles of 64 lanes each time, at 1.5 GHz.
    const Ps lanes = cycles_ps(300 * (elements / 64), m.device.config().pe.hertz);
    EXPECT_EQ(lanes, us(64) / 5);
    EXPECT_GE(more, lanes);
    EXPECT_LE(more, lanes + 300);  // a cycle count is rounded up once per operation
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
