// What a guest may do to registers and memories of a whole machine, through its sockets from another SIP.
#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/ipcq_protocol.h"
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

constexpr PeLocation kPe{SipId{0}, CubeId{1}, PeId{1}};

class GuestAccess : public SimTest {
 protected:
  GuestAccess() : m(platform("tiny")), from(m.on_cube(1, 2)) {}

  Outcome store(Addr address, const std::vector<uint8_t>& data, const std::vector<uint8_t>& enables = {},
                uint32_t streaming_width = 0) {
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = address;
    a.data = data;
    a.byte_enables = enables;
    a.streaming_width = streaming_width;
    const Outcome o = from.transport(a);
    ScriptedInitiator::wait_for(o);
    return o;
  }

  Machine m;
  ScriptedInitiator& from;
};

// T01, T02, T10: only the enabled bytes change, each at its own offset, in a register and in memories.
TEST_F(GuestAccess, SparseStrobesTouchTheirBytesOnly) {
  run([&] {
    for (const Addr at : {pe_sfr_address(kPe, regs::pe::offset::SCRATCH), tcm_address(kPe, 64), hbm(0, 1, 64)}) {
      SCOPED_TRACE(at);
      ASSERT_TRUE(store(at, {0x44, 0x33, 0x22, 0x11}).ok());
      EXPECT_TRUE(store(at, {0xEF, 0xBE, 0xAD, 0xDE}, {0, 0, 0xFF, 0}).ok());
      EXPECT_EQ(from.read_value<uint32_t>(at), 0x11AD3344u);
      EXPECT_TRUE(store(at, {1, 2, 3, 4}, {0xFF, 0, 0xFF, 0}).ok());
      EXPECT_EQ(from.read_value<uint32_t>(at), 0x11033301u);
      EXPECT_TRUE(store(at, {5, 6, 7, 8}, {0, 0xFF, 0, 0xFF}).ok());
      EXPECT_EQ(from.read_value<uint32_t>(at), 0x08030601u);
      EXPECT_TRUE(store(at + 3, {0xAA}).ok());
      EXPECT_EQ(from.read_value<uint32_t>(at), 0xAA030601u);
    }
  });
}

// T07: a register that is no fifo refuses a streaming width below the length, and nothing happens.
TEST_F(GuestAccess, StreamingToAPlainRegisterChangesNothing) {
  run([&] {
    const Addr at = pe_sfr_address(kPe, regs::pe::offset::SCRATCH);
    ASSERT_TRUE(store(at, {1, 2, 3, 4, 5, 6, 7, 8}).ok());
    EXPECT_EQ(store(at, {9, 9, 9, 9, 9, 9, 9, 9}, {}, 4).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.read_value<uint64_t>(at), 0x0807060504030201u);
    // As do accesses that no register takes: two registers at once, an odd width, a bad alignment.
    const Addr pending = pe_sfr_address(kPe, regs::pe::offset::IRQ_PENDING);
    EXPECT_EQ(store(pending, std::vector<uint8_t>(8, 0xFF)).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(store(at, {1, 2, 3}).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(store(at + 1, {1, 2}).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.read_value<uint32_t>(pe_sfr_address(kPe, regs::pe::offset::IRQ_ENABLE)), 0u);
    EXPECT_EQ(from.read_value<uint64_t>(at), 0x0807060504030201u);
    EXPECT_EQ(store(pe_sfr_address(kPe, regs::pe::offset::ID), {1, 2, 3, 4}).status, tlm::TLM_COMMAND_ERROR_RESPONSE);
  });
}

// T14: the address of a ring in two halves with partial strobes, in both orders.
TEST_F(GuestAccess, WideQueuePairRegisterInTwoHalves) {
  run([&] {
    const Addr at = qp_reg_address(kPe, QpId{5}, regs::qp::offset::PEER_RING);
    for (const bool low_first : {true, false}) {
      ASSERT_TRUE(store(at, std::vector<uint8_t>(8, 0x11)).ok());
      for (int i = 0; i < 2; ++i) {
        if (low_first == (i == 0)) {
          EXPECT_TRUE(store(at, {0xDD, 0xCC, 0xBB, 0xAA}, {0xFF, 0xFF, 0, 0xFF}).ok());
        } else {
          EXPECT_TRUE(store(at + 4, {0x88, 0x77, 0x66, 0x55}, {0, 0xFF, 0xFF, 0}).ok());
        }
      }
      EXPECT_EQ(from.read_value<uint64_t>(at), 0x11667711AA11CCDDu);
    }
  });
}

// T19: a request that was refused for want of a free slot goes through when it is made again, and so does the next.
TEST_F(GuestAccess, ARefusedNotifyCanBeMadeAgain) {
  run([&] {
    const auto reg = [&](Addr offset, uint32_t v) {
      const auto* p = reinterpret_cast<const uint8_t*>(&v);
      ASSERT_TRUE(store(qp_reg_address(kPe, QpId{3}, offset), {p, p + 4}).ok()) << offset;
    };
    const auto level = [&] { return from.read_value<uint32_t>(qp_reg_address(kPe, QpId{3}, regs::qp::offset::LEVEL)); };
    // Its peer is another queue pair of the same PE, so that credits have somewhere to go.
    const Addr base = pe_base(kPe);
    for (const uint32_t qp : {3u, 4u}) {
      const auto set = [&](Addr offset, uint64_t v, size_t bytes) {
        const auto* p = reinterpret_cast<const uint8_t*>(&v);
        ASSERT_TRUE(store(qp_reg_address(kPe, QpId{qp}, offset), {p, p + bytes}).ok()) << offset;
      };
      const uint64_t own = 4096 * qp, other = 4096 * (7 - qp);
      set(regs::qp::offset::PEER_QP, 7 - qp, 4);
      set(regs::qp::offset::PEER_PE, base, 8);
      set(regs::qp::offset::PEER_RING, tcm_address(kPe, other), 8);
      set(regs::qp::offset::PEER_SLOTS, 1, 4);
      set(regs::qp::offset::SLOT_BYTES, 256, 4);
      set(regs::qp::offset::RING, own, 8);
      set(regs::qp::offset::SLOTS, 1, 4);
      set(regs::qp::offset::CTRL, regs::qp::CTRL_ENABLE.place(1), 4);
    }
    const Addr notify = doorbell_address(kPe, QpId{3}, ipcq::kNotify);
    const auto ring = [&] { return from.write_value<uint64_t>(notify, 64); };
    const auto settle = [] { sc_core::wait(1, sc_core::SC_US); };
    EXPECT_TRUE(ring().ok());
    settle();
    EXPECT_EQ(ring().status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    settle();
    EXPECT_EQ(level(), 1u) << "the refused one left nothing";
    reg(regs::qp::offset::RELEASE, 1);
    settle();
    EXPECT_EQ(level(), 0u);
    EXPECT_TRUE(ring().ok());
    settle();
    reg(regs::qp::offset::RELEASE, 1);
    settle();
    EXPECT_TRUE(ring().ok());
    settle();
    EXPECT_EQ(level(), 1u);
    EXPECT_EQ(from.read_value<uint64_t>(qp_reg_address(kPe, QpId{3}, regs::qp::offset::TAIL)), 3u);
  });
}

TEST_F(GuestAccess, TcmPortReachesItsBandwidth) {
  ScriptedInitiator& near = m.on_cube(0, 1);
  run([&] {
    const Way way = Way(m.config).xbar();
    Ps last = 0;
    for (uint32_t i = 0; i < 40; ++i) last = near.write(tcm_address(kPe, i * 65536), pattern(65536)).delay;
    // 64 KiB at 768 GB/s; the crossbar port takes 66,560 bytes at 1024 GB/s, which is less.
    EXPECT_EQ(last, way.latency() + m.config.pe.tcm_latency + 40 * Ps{85334});
  });
}

}  // namespace
}  // namespace ahbm::test
