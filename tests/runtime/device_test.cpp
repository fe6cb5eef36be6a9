// The machine as the host sees it: allocator, transfers, launches, tags, errors by name.
#include "runtime/device.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "ahbm/registers/pe.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::now;
using ahbm::test::SimTest;
using testing::HasSubstr;

TEST(HbmAllocator, FirstFitAlignedAndCoalescing) {
  HbmAllocator a("sip0.cube0", 0x1000, 4096);
  const Addr first = a.allocate(1);
  const Addr second = a.allocate(257);
  const Addr third = a.allocate(256);
  EXPECT_EQ(first, 0x1000u);
  EXPECT_EQ(second, 0x1100u);
  EXPECT_EQ(third, 0x1300u);  // 257 bytes take two units
  a.free(first);
  EXPECT_EQ(a.allocate(200), first);
  a.free(first);
  a.free(third);
  a.free(second);  // joins on both sides
  EXPECT_EQ(a.used(), 0u);
  EXPECT_EQ(a.largest_free(), 4096u);
  EXPECT_EQ(a.allocate(4096), 0x1000u);
}

TEST(HbmAllocator, OutOfMemoryNamesSizesAndCube) {
  HbmAllocator a("sip1.cube2", 0, 1024);
  a.allocate(256);
  const std::string text = message_of<std::runtime_error>([&] { a.allocate(1000); });
  EXPECT_THAT(text, HasSubstr("1000 bytes asked of sip1.cube2"));
  EXPECT_THAT(text, HasSubstr("768 of 1024 bytes are free"));
  message_of<std::runtime_error>([&] { a.allocate(UINT64_MAX); });
  EXPECT_EQ(a.used(), 256u);
}

TEST(HbmAllocator, DoubleFreeAndForeignAddressesAreErrors) {
  HbmAllocator a("sip0.cube0", 0, 1024);
  const Addr p = a.allocate(256);
  a.free(p);
  EXPECT_THAT(message_of<std::runtime_error>([&] { a.free(p); }), HasSubstr("freed twice"));
  EXPECT_THAT(message_of<std::runtime_error>([&] { a.free(64); }), HasSubstr("0x40"));
}

TEST(HbmAllocator, RandomOperationsNeverOverlapAndNothingIsLost) {
  HbmAllocator a("m", 0, 1 << 16);
  std::map<Addr, uint64_t> live;
  uint64_t state = 1;
  const auto next = [&state] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  for (int i = 0; i < 20000; ++i) {
    if (next() % 3 != 0 || live.empty()) {
      const uint64_t bytes = 1 + next() % 3000;
      Addr p = 0;
      try {
        p = a.allocate(bytes);
      } catch (const std::runtime_error&) {
        EXPECT_LT(a.largest_free(), ceil_div(bytes, 256) * 256);
        continue;
      }
      ASSERT_EQ(p % 256, 0u);
      const auto after = live.lower_bound(p);
      if (after != live.end()) {
        ASSERT_LE(p + bytes, after->first);
      }
      if (after != live.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, p);
      }
      live[p] = bytes;
    } else {
      auto it = live.begin();
      std::advance(it, next() % live.size());
      a.free(it->first);
      live.erase(it);
    }
  }
  for (const auto& [p, bytes] : live) a.free(p);
  EXPECT_EQ(a.largest_free(), 1u << 16);
}

class DeviceTest : public SimTest {};

TEST_F(DeviceTest, UploadAndDownloadMoveBytesAndTakeTheHostLinksTime) {
  Machine m(tiny(2));
  run([&] {
    std::vector<uint8_t> data(3 << 20);
    std::iota(data.begin(), data.end(), 0);
    const Addr p = m.device.allocate(SipId{1}, CubeId{2}, data.size());
    const Ps before = now();
    m.device.upload(p, data.data(), data.size());
    const Ps upload = now() - before;
    EXPECT_GE(upload, transfer_ps(data.size(), m.device.config().host_link.bytes_per_second));
    EXPECT_LE(upload, transfer_ps(data.size() * 11 / 10, m.device.config().host_link.bytes_per_second) + us(2));
    std::vector<uint8_t> back(data.size());
    m.device.download(p, back.data(), back.size());
    EXPECT_EQ(back, data);
    m.device.free(p);
  });
}

TEST_F(DeviceTest, UploadIntoAHoleNamesAddressAndResponse) {
  Machine m(tiny(1));
  run([&] {
    uint32_t word = 0;
    const Addr hole = hbm_address(SipId{0}, CubeId{0}, m.device.config().hbm.bytes);
    const std::string text = message_of<std::runtime_error>([&] { m.device.upload(hole, &word, sizeof word); });
    EXPECT_THAT(text, HasSubstr("TLM_ADDRESS_ERROR_RESPONSE"));
    EXPECT_THAT(text, HasSubstr("upload of 4 bytes"));
  });
}

TEST_F(DeviceTest, CallsOutsideASimulationProcessAreNamedErrors) {
  Machine m(tiny(1));
  uint32_t word = 0;
  EXPECT_THAT(message_of<std::runtime_error>([&] { m.device.upload(hbm_address(SipId{0}, CubeId{0}, 0), &word, 4); }),
              HasSubstr("upload outside a simulation process"));
  EXPECT_THAT(message_of<std::runtime_error>([&] { m.ctx.zeros({4}); }), HasSubstr("outside a simulation process"));
  EXPECT_THAT(message_of<std::runtime_error>([&] { m.ctx.spawn([](uint32_t) {}, 1); }),
              HasSubstr("spawn outside a simulation process"));
  run([] {});
}

TEST_F(DeviceTest, CallsFromAnotherOsThreadAreNamedErrors) {
  Machine m(tiny(1));
  run([&] {
    std::string text;
    std::thread other(
        [&] { text = message_of<std::runtime_error>([&] { m.device.allocate(SipId{0}, CubeId{0}, 4); }); });
    other.join();
    EXPECT_THAT(text, HasSubstr("another OS thread"));
  });
}

TEST_F(DeviceTest, OneDevicePerSystem) {
  Machine m(tiny(1));
  EXPECT_THAT(message_of<std::runtime_error>([&] { Device second(m.system); }), HasSubstr("has a Device already"));
  run([] {});
}

TEST_F(DeviceTest, KernelsRunOnEveryShardAndTagsAndArgumentBlocksComeBack) {
  Machine m(tiny(2));
  run([&] {
    Tensor x = m.ctx.arange(0, 100, 1, DType::Float32, everywhere());
    Tensor y = m.ctx.zeros({100}, DType::Float32, everywhere());
    uint64_t used = 0;
    for (uint32_t c = 0; c < 4; ++c) used += m.device.allocator(SipId{1}, CubeId{c}).used();
    const Launch launch = m.ctx.launch("scale", {x, y, elements_of(x), 3.0, DType::Float32});
    EXPECT_EQ(m.device.tags_in_use(), launch->pending_pes().size());
    m.ctx.wait(launch);
    EXPECT_GT(launch->last_arrived(), launch->first_sent());
    EXPECT_EQ(m.device.tags_in_use(), 0u);
    uint64_t after = 0;
    for (uint32_t c = 0; c < 4; ++c) after += m.device.allocator(SipId{1}, CubeId{c}).used();
    EXPECT_EQ(after, used);
    for (const SipId sip : {SipId{0}, SipId{1}}) {
      const std::vector<float> v = y.to_host<float>(sip);
      for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], 3.0f * static_cast<float>(i));
    }
  });
}

TEST_F(DeviceTest, UnknownKernelIsRefusedWithASuggestion) {
  Machine m(tiny(1));
  run([&] {
    Tensor x = m.ctx.zeros({4});
    const std::string text = message_of<std::invalid_argument>([&] { m.ctx.launch("scal", {x}); });
    EXPECT_THAT(text, HasSubstr("'scal' (did you mean 'scale'?)"));
    EXPECT_EQ(m.device.tags_in_use(), 0u);
  });
}

void throwing_kernel(tl::Tl& /*tl*/, const tl::Args& /*args*/) {
  throw std::runtime_error("no");
}

TEST_F(DeviceTest, FailedKernelNamesKernelPeStatusAndFaultAddress) {
  Machine m(tiny(2), [](tl::KernelRegistry& k) { k.add("throwing", throwing_kernel); });
  run([&] {
    const PeLocation pe{SipId{1}, CubeId{2}, PeId{1}};
    std::string text = message_of<std::runtime_error>([&] { m.ctx.wait(m.ctx.launch_on("throwing", {pe}, {})); });
    EXPECT_THAT(text, HasSubstr("kernel throwing failed on sip1.cube2.pe1"));
    EXPECT_THAT(text, HasSubstr(launch::to_string(launch::Status::KernelThrew)));

    const Addr hole = hbm_address(SipId{0}, CubeId{0}, m.device.config().hbm.bytes + 4096);
    text = message_of<std::runtime_error>([&] {
      m.ctx.wait(m.ctx.launch_on("fill", {pe}, {hole, 16, tl::pack_f64(1.0), uint64_t(DType::Float32)}));
    });
    EXPECT_THAT(text, HasSubstr(launch::to_string(launch::Status::BadAddress)));
    EXPECT_THAT(text, HasSubstr("FAULT_ADDR"));
    char address[32];
    snprintf(address, sizeof address, "%#llx", static_cast<unsigned long long>(hole));
    EXPECT_THAT(text, HasSubstr(address));
    EXPECT_EQ(m.device.tags_in_use(), 0u);
  });
}

TEST_F(DeviceTest, FullLaunchQueueDelaysTheHostAndLosesNothing) {
  Machine m(tiny(1));
  run([&] {
    const DPPolicy one = policy(CubePolicy::RowWise, PePolicy::RowWise, 1, 1);
    Tensor x = m.ctx.full({20000}, 1.0, DType::Int32, one);
    const uint32_t launches = 3 * m.device.config().pe.launch_queue_depth;
    std::vector<Launch> all;
    for (uint32_t i = 0; i < launches; ++i) {
      all.push_back(m.ctx.launch("add", {x, x, x, elements_of(x), DType::Int32}));
      if (i % 8 == 7) m.ctx.launch("scale", {x, x, elements_of(x), 0.00390625, DType::Int32});  // keeps 1 at 1
    }
    uint32_t pending = 0;
    for (const Launch& l : all) pending += l->completed() ? 0 : 1;
    EXPECT_LT(pending, launches);  // the host has been held up
    m.ctx.synchronize();
    EXPECT_THAT(x.to_host<int32_t>(), testing::Each(1));
  });
}

TEST_F(DeviceTest, OutOfMemoryInACubeNamesItAndLeavesNothingBehind) {
  Machine m(tiny(1));
  run([&] {
    const std::string text = message_of<std::runtime_error>(
        [&] { m.ctx.empty({uint64_t{1} << 29}, DType::Float32, policy(CubePolicy::RowWise)); });
    EXPECT_THAT(text, HasSubstr("out of memory"));
    EXPECT_THAT(text, HasSubstr("sip0.cube0"));
    for (uint32_t c = 0; c < 4; ++c) EXPECT_EQ(m.device.allocator(SipId{0}, CubeId{c}).used(), 0u);
  });
}

TEST_F(DeviceTest, DescriptorToAPeInResetIsAnErrorOfTheLaunch) {
  SystemConfig c = tiny(1);
  Machine m(c);
  run([&] {
    m.system.sip_rst_n[0].write(false);
    sc_core::wait(1, sc_core::SC_NS);
    const PeLocation pe{SipId{0}, CubeId{0}, PeId{0}};
    const Launch launch = m.ctx.launch_on("fill", {pe}, {0, 0, 0, 0});
    EXPECT_TRUE(launch->failed());
    m.system.sip_rst_n[0].write(true);
    sc_core::wait(1, sc_core::SC_NS);
    const std::string text = message_of<std::runtime_error>([&] { m.ctx.wait(launch); });
    EXPECT_THAT(text, HasSubstr("TLM_GENERIC_ERROR_RESPONSE"));
    EXPECT_EQ(m.device.tags_in_use(), 0u);
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
