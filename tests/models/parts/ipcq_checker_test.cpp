// The checker of the IPCQ convention: silent on what our own PEs do, and each rule on the traffic that breaks it.
#include "models/ipcq/ipcq_checker.h"

#include "tests/models/pe/pe_bench.h"

namespace ahbm::test {
namespace {

using models::IpcqRule;
using models::IpcqStub;
namespace reg = regs::qp::offset;

constexpr QpId kQp{2};
constexpr uint32_t kSlots = 3, kSlotBytes = 256;
constexpr uint64_t kRing = 0x4000;

/// One PE behind a checker. Its peer is the stub; what the PE sends ends in the memory of the bench.
struct CheckedPe {
  explicit CheckedPe(bool outgoing = true)
      : config(bench_config()),
        bus("bus", 3, 1),
        host("host"),
        stub("stub"),
        memory("memory", addr::kGlobalBit, uint64_t{1} << 34),
        checker("checker", config, self) {
    services.config = &config;
    services.kernels = &kernels;
    services.payloads = &payloads;
    services.progress = &progress;
    services.route_epoch = &route_epoch;
    pe = std::make_unique<models::Pe>("pe0", services, self);
    bus.to_memory.bind(memory.in);
    host.out.bind(*bus.in[0]);
    stub.out.bind(*bus.in[1]);
    bus.to_pe[0]->bind(checker.bus_in);
    checker.pe_out.bind(pe->xbar_in);
    if (outgoing) {
      pe->xbar_out.bind(checker.pe_in);
      checker.bus_out.bind(*bus.in[2]);
    } else {
      pe->xbar_out.bind(*bus.in[2]);
    }
    pe->rst_n(rst_n);
    pe->irq_out(irq);
    target.pe = self;
    target.qp = kQp;
    target.ring = kRing;
    target.slots = kSlots;
    target.slot_bytes = kSlotBytes;
  }
  void connect() {
    const auto at = [&](uint32_t offset) { return qp_reg_address(self, kQp, offset); };
    EXPECT_TRUE(host.write_value<uint32_t>(at(reg::PEER_QP), 9).ok());
    EXPECT_TRUE(host.write_value<uint64_t>(at(reg::PEER_PE), pe_base(peer)).ok());
    EXPECT_TRUE(host.write_value<uint64_t>(at(reg::PEER_RING), tcm_address(peer, 0x8000)).ok());
    EXPECT_TRUE(host.write_value<uint32_t>(at(reg::PEER_SLOTS), 2).ok());
    EXPECT_TRUE(host.write_value<uint32_t>(at(reg::SLOT_BYTES), kSlotBytes).ok());
    EXPECT_TRUE(host.write_value<uint64_t>(at(reg::RING), kRing).ok());
    EXPECT_TRUE(host.write_value<uint32_t>(at(reg::SLOTS), kSlots).ok());
    EXPECT_TRUE(host.write_value<uint32_t>(at(reg::CTRL), 1).ok());
  }
  bool send(size_t payload) { return stub.send(target, {}, std::vector<uint8_t>(payload, 7)) == tlm::TLM_OK_RESPONSE; }
  void release(uint32_t n) { EXPECT_TRUE(host.write_value<uint32_t>(qp_reg_address(self, kQp, reg::RELEASE), n).ok()); }
  /// The rules that were broken since the last call.
  std::vector<IpcqRule> broken() {
    std::vector<IpcqRule> out;
    for (; m_seen < checker.violations().size(); ++m_seen) out.push_back(checker.violations()[m_seen].rule);
    return out;
  }

  const PeLocation self{SipId{0}, CubeId{0}, PeId{0}}, peer{SipId{0}, CubeId{0}, PeId{1}};
  SystemConfig config;
  tl::KernelRegistry kernels;
  models::PayloadPool payloads;
  Progress progress;
  uint64_t route_epoch = 0;
  models::SystemServices services;
  TestBus bus;
  ScriptedInitiator host;
  IpcqStub stub;
  ScriptedTarget memory;
  models::IpcqChecker checker;
  sc_core::sc_signal<bool> rst_n{"rst_n", true}, irq{"irq"};
  std::unique_ptr<models::Pe> pe;
  IpcqStub::Target target;

 private:
  size_t m_seen = 0;
};

using Rules = std::vector<IpcqRule>;

TEST_F(SimTest, RightTrafficBreaksNoRule) {
  CheckedPe b;
  run([&] {
    b.connect();
    for (int round = 0; round < 5; ++round) {
      for (uint32_t i = 0; i < kSlots; ++i) EXPECT_TRUE(b.send(16 + 32 * i));
      EXPECT_EQ(b.checker.rules().waiting(kQp), kSlots);
      sc_core::wait(1, sc_core::SC_US);
      b.release(kSlots);
      EXPECT_EQ(b.checker.rules().waiting(kQp), 0u);  // the credits were seen on their way out
    }
    // The PE's own sends, by registers, and their credits.
    const auto at = [&](uint32_t offset) { return qp_reg_address(b.self, kQp, offset); };
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(b.host.write_value<uint64_t>(at(reg::SEND_SRC), 0).ok());
      EXPECT_TRUE(b.host.write_value<uint32_t>(at(reg::SEND_BYTES), 64).ok());
      EXPECT_EQ(b.checker.rules().under_way(kQp), 1u);
      sc_core::wait(1, sc_core::SC_US);
      EXPECT_EQ(b.stub.credit(b.target, 1), tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(b.checker.rules().under_way(kQp), 0u);
    }
    EXPECT_EQ(b.broken(), Rules{});
  });
}

TEST_F(SimTest, NotifyRules) {
  CheckedPe b;
  run([&] {
    b.connect();
    b.stub.notify(b.target, 64);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::NotifyNoPayload});
    b.stub.notify(b.target, 31);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::NotifyTooShort});
    b.stub.notify(b.target, kSlotBytes + 1);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::NotifyTooLong});
    ipcq::SlotHeader header;
    header.bytes = 8;
    std::vector<uint8_t> message(64);
    std::memcpy(message.data(), &header, sizeof header);
    b.stub.write_payload(b.target, message);
    b.stub.notify(b.target, 64);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::HeaderMismatch});
    EXPECT_NE(b.checker.violations().back().text.find("32 + 8"), std::string::npos);
  });
}

TEST_F(SimTest, ARingThatIsFull) {
  CheckedPe b;
  run([&] {
    b.connect();
    for (uint32_t i = 0; i < kSlots; ++i) EXPECT_TRUE(b.send(8));
    EXPECT_EQ(b.broken(), Rules{});
    b.stub.write_payload(b.target, std::vector<uint8_t>(40));
    b.stub.notify(b.target, 40);
    b.stub.push(b.target, std::vector<uint8_t>(8));
    EXPECT_EQ(b.broken(), (Rules{IpcqRule::RingFull, IpcqRule::RingFull, IpcqRule::RingFull}));
    sc_core::wait(1, sc_core::SC_US);
    b.release(1);
    EXPECT_TRUE(b.send(8));
    EXPECT_EQ(b.broken(), Rules{});
  });
}

TEST_F(SimTest, SlotsPushesAndPages) {
  CheckedPe b;
  run([&] {
    b.connect();
    b.host.write(tcm_address(b.self, kRing + kSlotBytes), std::vector<uint8_t>(32));
    EXPECT_EQ(b.broken(), Rules{IpcqRule::WrongSlot});
    b.host.write(tcm_address(b.self, kRing + kSlotBytes * kSlots), std::vector<uint8_t>(32));  // behind the ring
    EXPECT_EQ(b.broken(), Rules{});
    b.stub.push(b.target, std::vector<uint8_t>(kSlotBytes));
    EXPECT_EQ(b.broken(), Rules{});
    b.stub.push(b.target, std::vector<uint8_t>(8));
    EXPECT_EQ(b.broken(), Rules{IpcqRule::PushTooLong});
    IpcqStub::Target other = b.target;
    other.qp = QpId{5};
    b.stub.notify(other, 64);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::DisabledQp});
    other.qp = QpId{b.config.ipcq.queue_pairs};
    b.stub.credit(other, 1);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::UnknownQp});
  });
}

TEST_F(SimTest, CreditsThatNobodyOwes) {
  CheckedPe b;
  run([&] {
    b.connect();
    b.stub.credit(b.target, 1);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::CreditBeyondSent});
    b.stub.credit(b.target, 0);
    EXPECT_EQ(b.broken(), Rules{IpcqRule::CreditZero});
  });
}

TEST(IpcqRules, WhatAPeMustNotSend) {
  // Traffic of a PE that our own would not produce.
  std::vector<IpcqRule> seen;
  models::IpcqRules::Shape shape;
  const PeLocation self{SipId{0}, CubeId{0}, PeId{0}}, peer{SipId{0}, CubeId{0}, PeId{1}};
  shape.pe_base = pe_base(self);
  models::IpcqRules rules(shape, [&](const models::IpcqViolation& v) { seen.push_back(v.rule); });
  const auto write = [&](bool to_pe, Addr address, uint64_t value, uint64_t bytes) {
    models::IpcqRules::Access a;
    a.address = address;
    a.data = reinterpret_cast<const uint8_t*>(&value);
    a.bytes = bytes;
    if (to_pe) {
      rules.to_pe(a);
    } else {
      rules.from_pe(a);
    }
  };
  const auto at = [&](uint32_t offset) { return qp_reg_address(self, kQp, offset); };
  write(true, at(reg::PEER_QP), 9, 4);
  write(true, at(reg::PEER_PE), pe_base(peer), 8);
  write(true, at(reg::PEER_SLOTS), 2, 4);
  write(true, at(reg::SLOT_BYTES), kSlotBytes, 4);
  write(true, at(reg::SLOTS), kSlots, 4);
  write(true, at(reg::CTRL), 1, 4);
  const Addr notify = doorbell_address(peer, QpId{9}, ipcq::kNotify);
  const Addr credit = doorbell_address(peer, QpId{9}, ipcq::kCredit);
  write(false, notify, 64, 8);
  write(false, notify, 64, 8);
  EXPECT_EQ(seen, Rules{});
  write(false, notify, 64, 8);
  EXPECT_EQ(seen, Rules{IpcqRule::SendBeyondCredit});
  write(false, credit, 1, 8);
  EXPECT_EQ(seen, (Rules{IpcqRule::SendBeyondCredit, IpcqRule::CreditNotOwed}));
  rules.reset();
  write(true, doorbell_address(self, kQp, ipcq::kNotify), 64, 8);
  EXPECT_EQ(seen.back(), IpcqRule::DisabledQp);
}

TEST_F(SimTest, WithoutTheOutgoingSideReleasesCount) {
  CheckedPe b(false);
  run([&] {
    b.connect();
    for (uint32_t i = 0; i < kSlots; ++i) EXPECT_TRUE(b.send(8));
    sc_core::wait(1, sc_core::SC_US);
    b.release(2);
    EXPECT_EQ(b.checker.rules().waiting(kQp), 1u);
    EXPECT_TRUE(b.send(8));
    EXPECT_EQ(b.broken(), Rules{});
  });
}

TEST_F(SimTest, TheCheckerTakesNoTime) {
  CheckedPe b;
  run([&] {
    b.connect();
    const Outcome o = b.host.read(qp_reg_address(b.self, kQp, reg::LEVEL), 4);
    EXPECT_EQ(o.delay, b.config.pe.sfr_latency);
  });
}

}  // namespace
}  // namespace ahbm::test
