// The checks that every run has to pass: each is made to fail here.
#include "platform/run_checks.h"

#include <gmock/gmock.h>

#include "ahbm/registers/doorbell.h"
#include "ahbm/registers/qp.h"
#include "models/core/config/load_config.h"
#include "platform/machine.h"
#include "tests/support/sim_test.h"

namespace ahbm::platform {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

SystemConfig tiny() {
  return load_system_config("tiny");
}

class RunChecks : public ahbm::test::SimTest {};

TEST_F(RunChecks, GuardsTellAByteOnEitherSideOfABuffer) {
  Machine m(tiny());
  run([&] {
    models::HostBridge& bridge = m.system->host_bridge;
    runtime::DPPolicy rows;
    rows.cube = runtime::CubePolicy::RowWise;
    const auto broken_at = [&](auto address_of) {
      BufferGuards guards(*m.device, SipId{0});
      const runtime::Tensor t = m.context->empty({1001}, DType::Float32, rows);
      guards.enclose(t);
      const std::vector<uint8_t> inside(t.bytes(), 0xFF);
      t.upload(inside.data(), inside.size());
      EXPECT_EQ(guards.damage(), "") << "the buffers themselves may be written";
      const Addr address = address_of(*t.handle());
      uint8_t byte = 0;
      EXPECT_EQ(bridge.debug_read(address, &byte, 1), 1u);
      byte ^= 1;
      bridge.debug_write(address, &byte, 1);
      const std::string damage = guards.damage();
      byte ^= 1;
      bridge.debug_write(address, &byte, 1);
      EXPECT_EQ(guards.damage(), "");
      return damage;
    };
    const CubeId last{3};  // 1001 = 251 + 251 + 251 + 248
    EXPECT_THAT(broken_at([&](auto& h) { return h.cube_buffer(SipId{0}, last) - 1; }),
                HasSubstr("before sip0.cube3: the buffer of 992 bytes"));
    EXPECT_THAT(broken_at([&](auto& h) { return h.cube_buffer(SipId{0}, last) + 992; }),
                HasSubstr("behind sip0.cube3: the buffer of 992 bytes"));
    EXPECT_THAT(broken_at([&](auto& h) { return h.cube_buffer(SipId{0}, CubeId{0}) + 1004; }),
                HasSubstr("behind sip0.cube0: the buffer of 1004 bytes"));
    EXPECT_THAT(broken_at([&](auto& h) { return h.cube_buffer(SipId{0}, CubeId{0}) + 1024; }),
                HasSubstr("behind sip0.cube0"))
        << "behind the gap up to the next allocation";
    for (uint32_t c = 0; c < 4; ++c) EXPECT_EQ(m.device->allocator(SipId{0}, CubeId{c}).used(), 0u);
  });
}

TEST_F(RunChecks, QueuesAreCleanAfterACollectiveAndNotAfterAMessageThatNobodyTakes) {
  Machine m(tiny());
  run([&] {
    m.context->distributed.init_process_group();
    runtime::DPPolicy rows;
    rows.sips = runtime::SipScope::All;
    const runtime::Tensor t = m.context->ones({5000}, DType::Float32, rows);
    m.context->distributed.all_reduce(t);
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_EQ(unclean_queues(*m.device), "");
    // A message of nobody: its bytes in the slot at the tail, committed by the host.
    const PeLocation pe{SipId{1}, CubeId{0}, PeId{0}};
    const uint64_t message = 64;
    const auto timing = m.system->host_bridge.write(doorbell_address(pe, QpId{0}, regs::doorbell::offset::NOTIFY),
                                                    &message, sizeof message);
    ASSERT_EQ(timing.status, tlm::TLM_OK_RESPONSE);
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_THAT(unclean_queues(*m.device), StartsWith("sip"));
    EXPECT_THAT(unclean_queues(*m.device), HasSubstr("queue pair"));
  });
}

TEST_F(RunChecks, ARecordedErrorIsFound) {
  Machine m(tiny());
  run([&] {
    m.context->distributed.init_process_group();
    EXPECT_EQ(unclean_queues(*m.device), "");
    const uint64_t credits = 1;  // nothing was sent: one too many
    m.system->host_bridge.write(
        doorbell_address({SipId{0}, CubeId{2}, PeId{0}}, QpId{0}, regs::doorbell::offset::CREDIT), &credits, 8);
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_THAT(unclean_queues(*m.device), StartsWith("sip0.cube2.pe0: 1 errors recorded, ERROR_BITS 0x8"));
  });
}

TEST(Figures, NothingIsFasterThanTheLinks) {
  SystemConfig c = tiny();
  c.sips = 4;
  c.sip_w = 4;
  const SipGraph graph(c);
  const std::vector<SipId> group{SipId{0}, SipId{1}, SipId{2}, SipId{3}};
  const uint64_t bytes = 64 << 20;
  const Ps bound = graph.all_reduce_bound(bytes, group);
  EXPECT_EQ(bound, 503316480u);  // 2 * 3/4 * 64 MiB / 200 GB/s
  EXPECT_EQ(impossible_figures(graph, group, bytes, bound), "");
  EXPECT_THAT(impossible_figures(graph, group, bytes, bound - 1),
              HasSubstr("less than the lower bound of 503316480 ps"));
  EXPECT_THAT(impossible_figures(graph, group, bytes, 500'000'000),
              HasSubstr("a bus bandwidth of 201.327 GB/s, more than the 200.000 GB/s per rank"));
  // Small messages: the way across, two links of 250 ns, is what bounds them.
  EXPECT_EQ(impossible_figures(graph, group, 4, 500'000), "");
  EXPECT_THAT(impossible_figures(graph, group, 4, 499'999), HasSubstr("less than the lower bound of 500000 ps"));
  EXPECT_EQ(impossible_figures(graph, {SipId{0}}, bytes, 0), "") << "a world of one sends nothing";
  EXPECT_EQ(impossible_figures(graph, group, 0, 0), "");
}

}  // namespace
}  // namespace ahbm::platform
