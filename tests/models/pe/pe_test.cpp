// A PE and its queues on a bus of the test: bytes, times to the picosecond, error bits, launch and reset.
#include <gmock/gmock.h>

#include "models/core/ipcq_protocol.h"
#include "tests/models/pe/pe_bench.h"

namespace ahbm::test {
namespace {

namespace pe_regs = regs::pe;
using launch::Status;

constexpr tl::Dir kEast = tl::Dir::E, kWest = tl::Dir::W;

std::vector<uint8_t> floats(size_t n, float first, float step) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = first + step * static_cast<float>(i);
  std::vector<uint8_t> bytes(n * 4);
  std::memcpy(bytes.data(), v.data(), bytes.size());
  return bytes;
}

// args: address, count
void send_east(tl::Tl& t, const tl::Args& a) {
  t.send(tl::Dir::E, a.address(0), a.u64(1), DType::Float32, 3);
}
void recv_west(tl::Tl& t, const tl::Args& a) {
  t.recv(tl::Dir::W, a.address(0), a.u64(1), DType::Float32, 3);
}
void recv_reduce_west(tl::Tl& t, const tl::Args& a) {
  t.recv_reduce(tl::Dir::W, a.address(0), a.u64(1), DType::Float32, ReduceOp::Sum, 3);
}
void recv_slots_west(tl::Tl& t, const tl::Args& a) {
  for (uint64_t i = 0; i < a.u64(1); ++i) {
    tl::Slot s = t.recv_slot(tl::Dir::W, DType::Float32, 8, 3);
    float v;
    std::memcpy(&v, s.data(), 4);
    if (v != static_cast<float>(i * 8)) throw std::runtime_error("out of order");
    s.release();
    EXPECT_THROW(s.data(), tl::ProtocolError);
  }
}
void throws(tl::Tl&, const tl::Args&) {
  throw std::runtime_error("kernel says no");
}
void touches_hole(tl::Tl& t, const tl::Args& a) {
  t.load(a.address(0), 4, DType::Float32);
}
void waits_for_ever(tl::Tl& t, const tl::Args& a) {
  t.recv(tl::Dir::W, a.address(0), 8, DType::Float32, 1);
}

class PeTest : public SimTest {
 protected:
  void start(const SystemConfig& c = bench_config(), uint32_t pes = 2) {
    bench = std::make_unique<PeBench>(c, pes);
    for (const auto& [name, fn] : {std::pair{"send_east", &send_east},
                                   {"recv_west", &recv_west},
                                   {"recv_reduce_west", &recv_reduce_west},
                                   {"recv_slots_west", &recv_slots_west},
                                   {"throws", &throws},
                                   {"touches_hole", &touches_hole},
                                   {"waits_for_ever", &waits_for_ever}}) {
      bench->kernels.add(name, fn);
    }
  }
  void connect_pair(uint32_t slots, uint32_t slot_bytes) { bench->connect(0, 2, 0, 1, 7, 65536, slots, slot_bytes); }
  std::unique_ptr<PeBench> bench;
};

TEST_F(PeTest, IdentifiesItself) {
  start();
  run([&] {
    EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::ID), 0x4D424841u);
    EXPECT_EQ(pe_regs::LOCATION_FLAT_PE.of(bench->sfr<uint64_t>(1, pe_regs::offset::LOCATION)), 1u);
    EXPECT_EQ(pe_regs::CONFIG_QUEUE_PAIRS.of(bench->sfr<uint64_t>(1, pe_regs::offset::CONFIG)), 64u);
  });
}

TEST_F(PeTest, SfrAccessTakesItsLatency) {
  start();
  run([&] {
    const Outcome o = bench->host.read(pe_sfr_address(PeBench::location(0), pe_regs::offset::ID), 4);
    EXPECT_EQ(o.delay, ns(10));
  });
}

// 1,000 floats over slots of 128 bytes (24 floats each): 42 messages through rings of 4 slots wrap ten times.
TEST_F(PeTest, StreamsThroughASmallRing) {
  start();
  const uint64_t src = PeBench::kMemory + 0x1000, dst = PeBench::kMemory + 0x900000;
  bench->memory.poke(src, floats(1000, 1, 1));
  run([&] {
    connect_pair(4, 128);
    bench->launch(0, "send_east", {src, 1000}, {link(kEast, 2, 1, 4, 128)}, 0);
    bench->launch(1, "recv_west", {dst, 1000}, {link(kWest, 7, 0, 4, 128)}, 1);
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(0).status, 0);
    EXPECT_EQ(bench->completion(1).status, 0);
    EXPECT_EQ(bench->completion(1).flat_pe, 1u);
    EXPECT_EQ(bench->memory.peek(dst, 4000), floats(1000, 1, 1));
    EXPECT_EQ(bench->qp(0, 2, regs::qp::offset::CREDITS), 4u);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 0u);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::TAIL), 42u);
    EXPECT_EQ(bench->sfr<uint32_t>(0, pe_regs::offset::ERROR_COUNT), 0u);
  });
  EXPECT_EQ(bench->payloads.live(), 0u);
}

TEST_F(PeTest, ReducesIntoMemory) {
  start();
  const uint64_t src = PeBench::kMemory + 0x1000, dst = PeBench::kMemory + 0x900000;
  bench->memory.poke(src, floats(5000, 1, 1));
  bench->memory.poke(dst, floats(5000, 10, 2));
  run([&] {
    connect_pair(2, 4096);
    bench->launch(0, "send_east", {src, 5000}, {link(kEast, 2, 1, 2, 4096)}, 0);
    bench->launch(1, "recv_reduce_west", {dst, 5000}, {link(kWest, 7, 0, 2, 4096)}, 1);
    bench->wait_completions(2);
    EXPECT_EQ(bench->memory.peek(dst, 20000), floats(5000, 11, 3));
  });
}

// The closed form of one message: setup + TCM read + DMA channel + bus + TCM write + notify, largest busy once.
TEST_F(PeTest, OneMessageTakesItsClosedForm) {
  start();
  bench->bus.latency = ns(77);
  run([&] {
    connect_pair(4, 4096);
    const SystemConfig& c = bench->config;
    models::Pe& pe = *bench->pe[0];
    const models::SendSlot slot = pe.ipcq().take_send_slot(QpId{2}, 4096);
    const Ps t0 = now();
    models::Route route;
    const auto r = pe.dma().send(t0, slot, 65536, 4096, 4096, route);
    EXPECT_EQ(r.status, tlm::TLM_OK_RESPONSE);
    const Ps busy = transfer_ps(4096, c.pe.dma_bytes_per_second);  // slower than the TCM ports
    EXPECT_EQ(r.taken - t0, c.pe.dma_setup + c.pe.tcm_latency + busy);
    EXPECT_EQ(r.done - t0, c.pe.dma_setup + c.pe.tcm_latency + busy + ns(77) + c.pe.tcm_latency);
    const auto message = bench->pe[1]->ipcq().front(QpId{7});
    ASSERT_TRUE(message);
    EXPECT_EQ(message->ready, r.done + c.ipcq.notify_latency);
    EXPECT_EQ(message->bytes, 4096u);
  });
}

// The fused form and its two transactions, issued together by a foreign initiator, take effect at the same time.
TEST_F(PeTest, FusedNotifyEqualsPayloadThenNotify) {
  start(bench_config(), 3);
  bench->bus.latency = ns(31);
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 4, 4096);
    bench->connect(2, 1, 0, 1, 8, 131072, 4, 4096);
    const PeLocation to = PeBench::location(1);
    const Ps t0 = now();
    // Two transactions.
    bench->host.write(tcm_address(to, 131072), std::vector<uint8_t>(2048, 1));
    bench->host.write_value<uint64_t>(doorbell_address(to, QpId{8}, ipcq::kNotify), 2048);
    const Ps apart = bench->pe[1]->ipcq().front(QpId{8})->ready - t0;
    wait(10, sc_core::SC_US);
    // Fused.
    const Ps t1 = now();
    models::IpcqNotify notify;
    notify.qp = 7;
    notify.bytes = 2048;
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = tcm_address(to, 65536);
    a.data.assign(2048, 1);
    a.before = [&](tlm::tlm_generic_payload& p) {
      notify.doorbell.head = notify.doorbell.tail = now();
      notify.doorbell.wire_payload = 8;
      notify.doorbell.channel = models::Channel::Control;
      p.set_extension(&notify);
    };
    a.after = [&](tlm::tlm_generic_payload& p) { p.clear_extension(&notify); };
    EXPECT_TRUE(bench->host.transport(a).ok());
    EXPECT_EQ(bench->pe[1]->ipcq().front(QpId{7})->ready - t1, apart);
  });
}

TEST_F(PeTest, PushIsAFifoAtOneAddress) {
  start();
  run([&] {
    connect_pair(4, 256);
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = doorbell_address(PeBench::location(1), QpId{7}, ipcq::kPush);
    for (uint8_t i = 0; i < 48; ++i) a.data.push_back(i);
    a.streaming_width = 4;
    EXPECT_TRUE(bench->host.transport(a).ok());
    PeBench::check(
        bench->host.write_value<uint64_t>(doorbell_address(PeBench::location(1), QpId{7}, ipcq::kNotify), 48));
    wait(1, sc_core::SC_US);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::MSG_BYTES), 48u);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 1u);
    EXPECT_EQ(bench->host.read(tcm_address(PeBench::location(1), 65536), 48).data, a.data);
    // Looking at it through the debug path takes nothing away.
    Access dbg;
    dbg.address = qp_reg_address(PeBench::location(1), QpId{7}, 0);
    dbg.data.resize(0x60);
    std::vector<uint8_t> seen;
    EXPECT_EQ(bench->host.debug(dbg, seen), 0x60u);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 1u);
    // Software takes it and the credit goes back.
    bench->reg32(qp_reg_address(PeBench::location(1), QpId{7}, regs::qp::offset::RELEASE), 1);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 0u);
  });
}

struct BadDoorbell {
  const char* name;
  uint32_t qp;
  uint64_t offset, value;
  uint64_t bit;
  tlm::tlm_response_status status;
};

TEST_F(PeTest, EveryMisuseOfADoorbellLeavesATrace) {
  start();
  run([&] {
    connect_pair(1, 256);
    bench->sfr32(1, pe_regs::offset::IRQ_ENABLE, static_cast<uint32_t>(pe_regs::IRQ_ENABLE_ERROR.mask()));
    const BadDoorbell cases[] = {
        {"disabled QP", 3, ipcq::kNotify, 64, pe_regs::ERROR_BITS_QP_DISABLED.mask(), tlm::TLM_GENERIC_ERROR_RESPONSE},
        {"disabled QP credit", 3, ipcq::kCredit, 1, pe_regs::ERROR_BITS_QP_DISABLED.mask(),
         tlm::TLM_GENERIC_ERROR_RESPONSE},
        {"too long", 7, ipcq::kNotify, 257, pe_regs::ERROR_BITS_TOO_LONG.mask(), tlm::TLM_GENERIC_ERROR_RESPONSE},
        {"credit without a send", 7, ipcq::kCredit, 1, pe_regs::ERROR_BITS_OVERRUN.mask(),
         tlm::TLM_GENERIC_ERROR_RESPONSE},
        {"unknown QP", 64, ipcq::kNotify, 64, pe_regs::ERROR_BITS_UNKNOWN_QP.mask(), tlm::TLM_ADDRESS_ERROR_RESPONSE},
    };
    uint32_t errors = 0;
    for (const BadDoorbell& c : cases) {
      SCOPED_TRACE(c.name);
      const uint64_t at = doorbell_address(PeBench::location(1), QpId{c.qp}, c.offset);
      EXPECT_EQ(bench->host.write_value<uint64_t>(at, c.value).status, c.status);
      wait(sc_core::SC_ZERO_TIME);
      EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::ERROR_BITS), c.bit);
      EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::ERROR_COUNT), ++errors);
      EXPECT_TRUE(bench->irq[1]->read());
      wait(1, sc_core::SC_US);
      bench->sfr32(1, pe_regs::offset::ERROR_BITS, 0xFFFFFFFF);
      bench->sfr32(1, pe_regs::offset::IRQ_PENDING, 0xFFFFFFFF);
      wait(sc_core::SC_ZERO_TIME);
      EXPECT_FALSE(bench->irq[1]->read());
    }
    // Beyond the credits: the ring has one slot.
    const uint64_t notify = doorbell_address(PeBench::location(1), QpId{7}, ipcq::kNotify);
    EXPECT_TRUE(bench->host.write_value<uint64_t>(notify, 64).ok());
    EXPECT_EQ(bench->host.write_value<uint64_t>(notify, 64).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::ERROR_BITS), pe_regs::ERROR_BITS_OVERRUN.mask());
    wait(1, sc_core::SC_US);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 1u);
    // Registers of a QP that does not exist.
    EXPECT_EQ(bench->host.read(qp_reg_address(PeBench::location(1), QpId{64}, 0), 4).status,
              tlm::TLM_ADDRESS_ERROR_RESPONSE);
  });
}

TEST_F(PeTest, CreditsRunOutAndTheSenderWaits) {
  start();
  const uint64_t src = PeBench::kMemory + 0x1000;
  bench->memory.poke(src, floats(64, 0, 1));
  run([&] {
    connect_pair(2, 64);  // 8 floats a message
    bench->launch(0, "send_east", {src, 64}, {link(kEast, 2, 1, 2, 64)}, 0);
    wait(20, sc_core::SC_US);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 2u);
    EXPECT_EQ(bench->qp(0, 2, regs::qp::offset::CREDITS), 0u);
    EXPECT_THAT(bench->pe[0]->waiting_for(), ::testing::HasSubstr("a credit towards E (QP 2"));
    bench->launch(1, "recv_slots_west", {0, 8}, {link(kWest, 7, 0, 2, 64)}, 1);
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(0).status, 0);
    EXPECT_EQ(bench->completion(1).status, 0);
    EXPECT_EQ(bench->qp(0, 2, regs::qp::offset::CREDITS), 2u);
  });
}

TEST_F(PeTest, ErrorsOfKernelsBecomeErrorCompletions) {
  start();
  const uint64_t hole = addr::kGlobalBit | (uint64_t{1} << 42);
  bench->memory.next_status.clear();
  run([&] {
    bench->launch(0, "throws", {}, {}, 0);
    bench->wait_completions(1);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::KernelThrew));
    bench->launch(0, "no_such_kernel", {}, {}, 1);
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(1).status, static_cast<uint16_t>(Status::UnknownKernel));
    bench->launch(0, "touches_hole", {hole}, {}, 2);
    bench->wait_completions(3);
    EXPECT_EQ(bench->completion(2).status, static_cast<uint16_t>(Status::BadAddress));
    EXPECT_EQ(bench->sfr<uint64_t>(0, pe_regs::offset::FAULT_ADDR), hole);
    bench->launch(0, "send_east", {PeBench::kMemory, 8}, {}, 3);
    bench->wait_completions(4);
    EXPECT_EQ(bench->completion(3).status, static_cast<uint16_t>(Status::Protocol)) << "no such direction";
    bench->launch(0, "send_east", {PeBench::kMemory, 8}, {link(kEast, 2, 1, 2, 64)}, 4);
    bench->wait_completions(5);
    EXPECT_EQ(bench->completion(4).status, static_cast<uint16_t>(Status::Protocol)) << "QP 2 is disabled";
    EXPECT_NE(bench->sfr<uint32_t>(0, pe_regs::offset::ERROR_BITS) & pe_regs::ERROR_BITS_QP_DISABLED.mask(), 0u);
  });
}

TEST_F(PeTest, AFullLaunchQueueDelaysTheHost) {
  SystemConfig c = bench_config();
  c.pe.launch_queue_depth = 2;
  start(c);
  run([&] {
    const Ps t0 = now();
    for (uint32_t i = 0; i < 8; ++i) bench->launch(0, "throws", {}, {}, i);
    EXPECT_GT(now(), t0);
    bench->wait_completions(8);
    // In launch order.
    uint64_t last = 0;
    for (const Arrival& a : bench->memory.arrivals) {
      if (a.command != tlm::TLM_WRITE_COMMAND || a.address < PeBench::completion_address(0)) continue;
      EXPECT_GE(a.address, last);
      last = a.address;
    }
  });
}

TEST_F(PeTest, AbortAnswersTheRunningKernelAndTheQueue) {
  start();
  run([&] {
    connect_pair(2, 64);
    bench->launch(1, "waits_for_ever", {PeBench::kMemory}, {link(kWest, 7, 0, 2, 64)}, 0);
    bench->launch(1, "waits_for_ever", {PeBench::kMemory}, {link(kWest, 7, 0, 2, 64)}, 1);
    wait(10, sc_core::SC_US);
    EXPECT_THAT(bench->pe[1]->waiting_for(), ::testing::HasSubstr("a message from W (QP 7"));
    bench->sfr32(1, pe_regs::offset::CTRL, static_cast<uint32_t>(pe_regs::CTRL_ABORT.mask()));
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::Aborted));
    EXPECT_EQ(bench->completion(1).status, static_cast<uint16_t>(Status::Aborted));
    // The PE is usable afterwards.
    bench->launch(1, "throws", {}, {}, 2);
    bench->wait_completions(3);
    EXPECT_EQ(bench->completion(2).status, static_cast<uint16_t>(Status::KernelThrew));
  });
}

TEST_F(PeTest, ResetUnwindsEmptiesAndDropsWhatIsLate) {
  start();
  run([&] {
    connect_pair(2, 64);
    bench->sfr32(1, pe_regs::offset::IRQ_ENABLE, 0xF);
    bench->launch(1, "waits_for_ever", {PeBench::kMemory}, {link(kWest, 7, 0, 2, 64)}, 0);
    wait(10, sc_core::SC_US);
    bench->sfr32(1, pe_regs::offset::CTRL, static_cast<uint32_t>(pe_regs::CTRL_RESET.mask()));
    wait(10, sc_core::SC_US);
    EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::IRQ_ENABLE), 0u);
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::CTRL), 0u);
    const uint32_t status = bench->sfr<uint32_t>(1, pe_regs::offset::STATUS);
    EXPECT_EQ(pe_regs::STATUS_BUSY.of(status), 0u);
    EXPECT_EQ(pe_regs::STATUS_EPOCH.of(status), 1u);
    EXPECT_EQ(bench->completion(0).status, 0) << "nothing was written";
    EXPECT_TRUE(bench->host.write_value<uint64_t>(doorbell_address(PeBench::location(1), QpId{7}, 0), 64).ok());
    EXPECT_EQ(bench->sfr<uint64_t>(1, pe_regs::offset::STALE_DROPPED), 1u);
    EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::ERROR_COUNT), 0u);
  });
}

TEST_F(PeTest, AccessesDuringResetAnswerAnError) {
  start();
  run([&] {
    bench->rst_n.write(false);
    wait(1, sc_core::SC_NS);
    EXPECT_EQ(bench->host.read(pe_sfr_address(PeBench::location(0), 0), 4).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(bench->host.write(tcm_address(PeBench::location(0), 0), {1, 2, 3, 4}).status,
              tlm::TLM_GENERIC_ERROR_RESPONSE);
    bench->rst_n.write(true);
    wait(1, sc_core::SC_NS);
    EXPECT_EQ(bench->sfr<uint32_t>(0, pe_regs::offset::ID), 0x4D424841u);
    EXPECT_EQ(bench->host.read(tcm_address(PeBench::location(0), 0), 4).data, std::vector<uint8_t>(4, 0));
  });
}

TEST_F(PeTest, HolesAndEndsOfTheWindowAnswerAddressErrors) {
  start();
  run([&] {
    const uint64_t base = pe_base(PeBench::location(0));
    for (const uint64_t at :
         {base + (4u << 20), base + (4u << 20) - 2, base + 0x7FFFFC, base + addr::kPeQpRegs + 64 * 0x100}) {
      EXPECT_EQ(bench->host.read(at, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE) << std::hex << at;
    }
    EXPECT_EQ(bench->host.read(base + addr::kPeSfr + 0xFF00, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
  });
}

}  // namespace
}  // namespace ahbm::test
