// Reset with requests before, during and after it, on the way over six hops.
#include <gmock/gmock.h>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/ipcq_protocol.h"
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

namespace qp = regs::qp::offset;

class ResetTest : public SimTest {
 protected:
  // Cube 0 to cube 15 of a 4 x 4 mesh: six hops.
  static constexpr PeLocation kTarget{SipId{0}, CubeId{15}, PeId{0}};
  static constexpr uint32_t kQp = 3, kSlots = 4, kSlotBytes = 4096;

  static void enable(ScriptedInitiator& from) {
    const auto at = [](Addr offset) { return qp_reg_address(kTarget, QpId{kQp}, offset); };
    EXPECT_TRUE(from.write_value(at(qp::SLOT_BYTES), kSlotBytes).ok());
    EXPECT_TRUE(from.write_value(at(qp::SLOTS), kSlots).ok());
    EXPECT_TRUE(from.write_value(at(qp::CTRL), uint32_t{1}).ok());
  }
  /// A message of a whole slot with its NOTIFY; slot and epoch as the sender believes them.
  static Outcome send(ScriptedInitiator& from, uint32_t slot, uint32_t epoch) {
    models::IpcqNotify notify;
    notify.qp = kQp;
    notify.bytes = kSlotBytes;
    notify.epoch = epoch;
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = tcm_address(kTarget, Addr{slot} * kSlotBytes);
    a.data = pattern(kSlotBytes, static_cast<uint8_t>(slot + 1));
    a.before = [&](tlm::tlm_generic_payload& p) {
      notify.doorbell.head = notify.doorbell.tail = now();
      notify.doorbell.wire_payload = 8;
      notify.doorbell.channel = models::Channel::Control;
      p.set_extension(&notify);
    };
    a.after = [&](tlm::tlm_generic_payload& p) { p.clear_extension(&notify); };
    return from.transport(a);
  }
  template <typename T>
  static T peek(Machine& m, Addr at) {
    T v{};
    EXPECT_EQ(m.system.host_bridge.debug_read(at, &v, sizeof v), sizeof v);
    return v;
  }
  static uint64_t stale(Machine& m) {
    return peek<uint64_t>(m, pe_sfr_address(kTarget, regs::pe::offset::STALE_DROPPED));
  }
  static uint32_t level(Machine& m) { return peek<uint32_t>(m, qp_reg_address(kTarget, QpId{kQp}, qp::LEVEL)); }
};

class SixHops : public ResetTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(RouteGrants, SixHops, ::testing::Bool());

TEST_P(SixHops, ResetInTheMiddleOfATransfer) {
  SystemConfig c = platform("ring4");
  c.simulation.route_grants = GetParam();
  c.pes_in_host_caches = 0;  // fetches ahead, which must not stumble over what a reset took away
  Machine m(c);
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    enable(from);
    ScriptedInitiator::wait_for(send(from, 0, 0));
    sc_core::wait(10, sc_core::SC_NS);
    EXPECT_EQ(level(m), 1u) << "before";

    // On its way: head and tail are between the cubes when the PE is reset.
    const Outcome on_the_way = send(from, 1, 0);
    EXPECT_TRUE(on_the_way.ok());
    EXPECT_GT(on_the_way.delay, ns(6 * 4));
    sc_core::wait(sc_core::sc_time::from_value(on_the_way.delay / 2));
    m.system.sip_rst_n[0].write(false);
    sc_core::wait(1, sc_core::SC_NS);

    // During.
    EXPECT_EQ(send(from, 2, 0).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.write_value(doorbell_address(kTarget, QpId{kQp}, ipcq::kNotify), uint64_t{64}).status,
              tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(pe_sfr_address(kTarget, 0), 4).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    m.system.sip_rst_n[0].write(true);
    sc_core::wait(1, sc_core::SC_US);

    // After: the ring is empty, late messages are dropped and counted, those of the new epoch come through.
    EXPECT_EQ(level(m), 0u);
    EXPECT_EQ(peek<uint32_t>(m, qp_reg_address(kTarget, QpId{kQp}, qp::CTRL)), 0u);
    EXPECT_TRUE(send(from, 2, 0).ok());
    EXPECT_EQ(stale(m), 1u);
    EXPECT_TRUE(from.write_value(doorbell_address(kTarget, QpId{kQp}, ipcq::kCredit), uint64_t{1}).ok());
    EXPECT_EQ(stale(m), 2u);
    enable(from);
    ScriptedInitiator::wait_for(send(from, 0, 1));
    sc_core::wait(10, sc_core::SC_NS);
    EXPECT_EQ(level(m), 1u);
    EXPECT_EQ(peek<uint64_t>(m, qp_reg_address(kTarget, QpId{kQp}, qp::TAIL)), 1u);
    EXPECT_EQ(peek<uint32_t>(m, pe_sfr_address(kTarget, regs::pe::offset::ERROR_BITS)), 0u);
    EXPECT_EQ(m.system.payloads().live(), 0u);
    EXPECT_EQ(from.live(), 0u);
  });
}

TEST_F(ResetTest, OfEverythingFromTheStart) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  for (uint32_t s = 0; s < 2; ++s) m.system.sip_rst_n[s].write(false);
  run([&] {
    const PeLocation pe{SipId{1}, CubeId{2}, PeId{1}};
    sc_core::wait(sc_core::SC_ZERO_TIME);
    sc_core::wait(1, sc_core::SC_PS);
    EXPECT_EQ(from.write_value(pe_sfr_address(pe, regs::pe::offset::SCRATCH), uint64_t{5}).status,
              tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(mailbox_address(SipId{1}, 0), 8).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    for (uint32_t s = 0; s < 2; ++s) m.system.sip_rst_n[s].write(true);
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_EQ(from.read_value<uint64_t>(pe_sfr_address(pe, regs::pe::offset::SCRATCH)), 0u);
    EXPECT_TRUE(from.write_value(pe_sfr_address(pe, regs::pe::offset::SCRATCH), uint64_t{5}).ok());
    EXPECT_EQ(from.read_value<uint64_t>(pe_sfr_address(pe, regs::pe::offset::SCRATCH)), 5u);
  });
}

TEST_F(ResetTest, ErrorInterruptsGoFromThePeToTheSip) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  models::Sip& sip = m.system.sip(SipId{1});
  run([&] {
    const PeLocation pe{SipId{1}, CubeId{3}, PeId{0}};
    EXPECT_TRUE(from.write_value(pe_sfr_address(pe, regs::pe::offset::IRQ_ENABLE),
                                 static_cast<uint32_t>(regs::pe::IRQ_ENABLE_ERROR.mask()))
                    .ok());
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_FALSE(sip.cube_irq[3].read());
    // A NOTIFY for a queue pair that is off.
    const Addr doorbell = doorbell_address(pe, QpId{9}, ipcq::kNotify);
    EXPECT_EQ(from.write_value(doorbell, uint64_t{64}).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_TRUE(sip.cube_irq[3].read());
    EXPECT_EQ(from.read_value<uint64_t>(pe_sfr_address(pe, regs::pe::offset::FAULT_ADDR)), doorbell);
    m.system.sip_rst_n[1].write(false);
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_FALSE(sip.cube_irq[3].read());
    m.system.sip_rst_n[1].write(true);
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_FALSE(sip.cube_irq[3].read());
  });
}

TEST_F(ResetTest, AFailedLinkRefusesFromItsTimeOnAlongGrantedRoutesToo) {
  Machine m(platform("ring4"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    for (int i = 0; i < 3; ++i) ScriptedInitiator::wait_for(from.write(hbm(0, 3, 0), pattern(64)));  // granted by now
    Fault f;
    f.kind = FaultKind::FailLink;
    f.between_cubes = true;
    f.from_cube = CubeId{1};
    f.to_cube = CubeId{2};
    f.at = now() + us(1);
    m.system.inject(f);
    EXPECT_TRUE(from.write(hbm(0, 3, 0), pattern(64)).ok());
    sc_core::wait(2, sc_core::SC_US);
    EXPECT_EQ(from.write(hbm(0, 3, 0), pattern(64, 7)).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(hbm(0, 3, 0), 64).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_TRUE(from.write(hbm(0, 1, 0), pattern(64)).ok()) << "before the link";
    EXPECT_TRUE(from.write(hbm(0, 12, 0), pattern(64)).ok()) << "another way";
    ASSERT_EQ(m.system.faults().fired().size(), 1u);
    EXPECT_THAT(m.system.faults().note(), ::testing::HasSubstr("fail_link: sip0.cube1 <-> cube2"));
  });
}

}  // namespace
}  // namespace ahbm::test
