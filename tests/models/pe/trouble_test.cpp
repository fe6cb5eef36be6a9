// Reset, abort and faults of one PE: what waits at it, what comes late, what it must not overwrite.
#include <gmock/gmock.h>

#include "models/core/ipcq_protocol.h"
#include "models/fault/fault_injector.h"
#include "tests/models/pe/pe_bench.h"

namespace ahbm::test {
namespace {

namespace pe_regs = regs::pe;
using launch::Status;

constexpr tl::Dir kEast = tl::Dir::E, kWest = tl::Dir::W;

void ends_well(tl::Tl&, const tl::Args&) {}
void waits_for_ever(tl::Tl& t, const tl::Args& a) {
  t.recv(tl::Dir::W, a.address(0), 8, DType::Float32, 1);
}
void swallows_everything(tl::Tl& t, const tl::Args& a) {
  for (int i = 0; i < 3; ++i) {
    try {
      t.recv(tl::Dir::W, a.address(0), 8, DType::Float32, 1);
    } catch (const sc_core::sc_unwind_exception&) {
      throw;
    } catch (...) {
    }
  }
}
void throws_int(tl::Tl&, const tl::Args&) {
  throw 42;
}
void send_east(tl::Tl& t, const tl::Args& a) {
  t.send(tl::Dir::E, a.address(0), a.u64(1), DType::Float32, 3);
}
void recv_west(tl::Tl& t, const tl::Args& a) {
  t.recv(tl::Dir::W, a.address(0), a.u64(1), DType::Float32, 3);
}

class PeTrouble : public SimTest {
 protected:
  void start(const SystemConfig& c = bench_config()) {
    bench = std::make_unique<PeBench>(c, 2);
    bench->kernels.add("ends_well", ends_well);
    bench->kernels.add("waits_for_ever", waits_for_ever);
    bench->kernels.add("swallows_everything", swallows_everything);
    bench->kernels.add("throws_int", throws_int);
    bench->kernels.add("send_east", send_east);
    bench->kernels.add("recv_west", recv_west);
  }
  void wait_forever_on(uint32_t pe, uint32_t tag, const char* kernel = "waits_for_ever") {
    bench->launch(pe, kernel, {PeBench::kMemory}, {link(kWest, 7, 0, 2, 64)}, tag);
  }
  void ctrl(uint32_t pe, uint64_t word) { bench->sfr32(pe, pe_regs::offset::CTRL, static_cast<uint32_t>(word)); }
  static void pause(unsigned microseconds) { sc_core::wait(microseconds, sc_core::SC_US); }
  std::unique_ptr<PeBench> bench;
};

TEST_F(PeTrouble, AHostThatWaitsAtAFullQueueIsLetGoByAResetWithAnError) {
  SystemConfig c = bench_config();
  c.pe.launch_queue_depth = 2;
  start(c);
  for (const bool by_pin : {false, true}) {
    run([&] {
      bench->connect(0, 2, 0, 1, 7, 65536, 2, 64);
      for (uint32_t i = 0; i < 3; ++i) wait_forever_on(1, i);
      tlm::tlm_response_status answer = tlm::TLM_INCOMPLETE_RESPONSE;
      sc_core::sc_spawn([&] {
        launch::Descriptor d;
        d.kernel_id = bench->kernels.find("ends_well")->id;
        answer = bench->post(1, d).status;
      });
      pause(20);
      EXPECT_EQ(answer, tlm::TLM_INCOMPLETE_RESPONSE) << "it should wait";
      if (by_pin) {
        bench->rst_n.write(false);
      } else {
        ctrl(1, pe_regs::CTRL_RESET.mask());
      }
      pause(5);
      EXPECT_EQ(answer, tlm::TLM_GENERIC_ERROR_RESPONSE);
      bench->rst_n.write(true);
      pause(5);
      EXPECT_EQ(bench->pe[1]->executor().queued(), 0u);
      EXPECT_FALSE(bench->pe[1]->executor().running());
      EXPECT_EQ(bench->payloads.live(), 0u);
    });
  }
  EXPECT_EQ(bench->completion(0).flat_pe, 0u) << "nobody was told";
}

TEST_F(PeTrouble, WhatIsLaunchedAfterAnAbortOrAResetRuns) {
  start();
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 2, 64);
    wait_forever_on(1, 0);
    pause(5);
    ctrl(1, pe_regs::CTRL_ABORT.mask());
    sc_core::wait(15, sc_core::SC_NS);  // the abort has been seen, its completion not yet written
    bench->launch(1, "ends_well", {}, {}, 1);
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::Aborted));
    EXPECT_EQ(bench->completion(1).status, static_cast<uint16_t>(Status::Ok));

    // A descriptor that is on its way when the reset comes is forgotten, and the next one runs as itself.
    wait_forever_on(1, 2);
    ctrl(1, pe_regs::CTRL_RESET.mask());
    pause(1);
    bench->launch(1, "ends_well", {}, {}, 3);
    bench->wait_completions(3);
    EXPECT_EQ(bench->completion(3).status, static_cast<uint16_t>(Status::Ok));
    EXPECT_EQ(bench->completion(3).kernel_id, bench->kernels.find("ends_well")->id);
    EXPECT_EQ(bench->completion(2).kernel_id, 0u) << "nobody was told";
  });
}

TEST_F(PeTrouble, AbortAndResetReachAKernelThatCatchesEverything) {
  start();
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 2, 64);
    wait_forever_on(1, 0, "swallows_everything");
    pause(5);
    ctrl(1, pe_regs::CTRL_ABORT.mask());
    bench->wait_completions(1);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::Aborted));
    wait_forever_on(1, 1, "swallows_everything");
    pause(5);
    ctrl(1, pe_regs::CTRL_RESET.mask());
    pause(5);
    EXPECT_FALSE(bench->pe[1]->executor().running());
    bench->launch(1, "throws_int", {}, {}, 2);
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(2).status, static_cast<uint16_t>(Status::KernelThrew));
  });
}

TEST_F(PeTrouble, AWholeDescriptorDoesNotSufferFromWordsBeforeIt) {
  start();
  run([&] {
    const Addr at = pe_sfr_address(PeBench::location(0), pe_regs::offset::LAUNCH);
    EXPECT_TRUE(bench->host.write_value<uint64_t>(at, 0xDEAD).ok());
    bench->launch(0, "ends_well", {}, {}, 0);
    bench->wait_completions(1);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::Ok));
    EXPECT_EQ(bench->sfr<uint32_t>(0, pe_regs::offset::ERROR_COUNT), 1u) << "the words were not dropped in silence";
  });
}

TEST_F(PeTrouble, ARefusedMessageOverwritesNothing) {
  start();
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 2, 64);
    const Addr ring = tcm_address(PeBench::location(1), 65536);
    const auto send = [&](uint32_t bytes, uint8_t fill, uint32_t qp = 7) {
      models::IpcqNotify notify;
      Access a;
      a.command = tlm::TLM_WRITE_COMMAND;
      a.address = ring;
      a.data.assign(bytes, fill);
      notify.qp = qp;
      notify.bytes = bytes;
      a.before = [&](tlm::tlm_generic_payload& p) { p.set_extension(&notify); };
      a.after = [&](tlm::tlm_generic_payload& p) { p.clear_extension(&notify); };
      return bench->host.transport(a).status;
    };
    EXPECT_EQ(send(96, 9), tlm::TLM_GENERIC_ERROR_RESPONSE) << "longer than a slot";
    EXPECT_EQ(send(64, 9, 8), tlm::TLM_GENERIC_ERROR_RESPONSE) << "a queue pair that is off";
    EXPECT_EQ(bench->host.read(ring, 128).data, std::vector<uint8_t>(128, 0));
    EXPECT_EQ(send(64, 1), tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(send(64, 2), tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(send(64, 3), tlm::TLM_GENERIC_ERROR_RESPONSE) << "no slot is free";
    EXPECT_EQ(bench->host.read(ring, 64).data, std::vector<uint8_t>(64, 2));
    const uint32_t bits = bench->sfr<uint32_t>(1, pe_regs::offset::ERROR_BITS);
    EXPECT_EQ(bits, pe_regs::ERROR_BITS_TOO_LONG.mask() | pe_regs::ERROR_BITS_QP_DISABLED.mask() |
                        pe_regs::ERROR_BITS_OVERRUN.mask());
    EXPECT_EQ(bench->sfr<uint32_t>(1, pe_regs::offset::ERROR_COUNT), 3u);
  });
}

TEST_F(PeTrouble, AMessageBeyondTheHardwaresSlotIsRefusedAtTheSender) {
  start();
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 2, 64);
    // The kernel's table says 128, the registers say 64.
    bench->launch(0, "send_east", {PeBench::kMemory, 16}, {link(kEast, 2, 1, 2, 128)}, 0);
    bench->wait_completions(1);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::Protocol));
    EXPECT_EQ(bench->sfr<uint32_t>(0, pe_regs::offset::ERROR_BITS) & pe_regs::ERROR_BITS_TOO_LONG.mask(),
              pe_regs::ERROR_BITS_TOO_LONG.mask());
    EXPECT_EQ(bench->qp(0, 2, regs::qp::offset::CREDITS), 2u) << "no credit was taken";
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 0u);
  });
}

TEST_F(PeTrouble, AMessageTwiceIsNoticedInTheMiddleOfAMove) {
  start();
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 2, 64);
    bench->memory.latency = ns(5);
    bench->launch(0, "send_east", {PeBench::kMemory, 80}, {link(kEast, 2, 1, 2, 64)}, 0);
    pause(5);  // both slots are full, nobody reads
    EXPECT_EQ(bench->qp(1, 7, regs::qp::offset::LEVEL), 2u);
    // Gives the first message away, so that the kernel would take the second for it.
    bench->reg32(qp_reg_address(PeBench::location(1), QpId{7}, regs::qp::offset::RELEASE), 1);
    bench->launch(1, "recv_west", {PeBench::kMemory + 4096, 80}, {link(kWest, 7, 0, 2, 64)}, 1);
    pause(50);
    EXPECT_EQ(bench->completion(1).status, static_cast<uint16_t>(Status::Protocol));
    EXPECT_THAT(bench->pe[1]->executor().last_error(),
                ::testing::HasSubstr("message of the move 1 where 0 was expected"));
  });
}

TEST_F(PeTrouble, ResetFromTheStartAndAgainAtOnce) {
  start();
  bench->rst_n.write(false);
  run([&] {
    sc_core::wait(sc_core::SC_ZERO_TIME);
    EXPECT_EQ(bench->host.read(pe_sfr_address(PeBench::location(0), 0), 4).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    pause(1);
    bench->rst_n.write(true);
    sc_core::wait(sc_core::SC_ZERO_TIME);
    const uint32_t epoch =
        static_cast<uint32_t>(pe_regs::STATUS_EPOCH.of(bench->sfr<uint32_t>(0, pe_regs::offset::STATUS)));
    bench->launch(0, "ends_well", {}, {}, 0);
    bench->wait_completions(1);
    for (int i = 0; i < 3; ++i) {
      bench->rst_n.write(false);
      sc_core::wait(sc_core::SC_ZERO_TIME);
      bench->rst_n.write(true);
      sc_core::wait(sc_core::SC_ZERO_TIME);
    }
    sc_core::wait(sc_core::SC_ZERO_TIME);
    EXPECT_EQ(pe_regs::STATUS_EPOCH.of(bench->sfr<uint32_t>(0, pe_regs::offset::STATUS)), epoch + 3);
    bench->launch(0, "ends_well", {}, {}, 1);
    bench->wait_completions(2);
    EXPECT_EQ(bench->completion(1).status, static_cast<uint16_t>(Status::Ok));
  });
}

TEST_F(PeTrouble, ErrorsRaiseAnInterruptThatSoftwareClears) {
  start();
  run([&] {
    bench->sfr32(0, pe_regs::offset::IRQ_ENABLE, static_cast<uint32_t>(pe_regs::IRQ_ENABLE_ERROR.mask()));
    pause(1);
    EXPECT_FALSE(bench->irq[0]->read());
    bench->launch(0, "throws_int", {}, {}, 0);
    bench->wait_completions(1);
    pause(1);
    EXPECT_TRUE(bench->irq[0]->read());
    // Clearing another cause keeps the level; clearing the cause lowers it.
    bench->sfr32(0, pe_regs::offset::IRQ_PENDING, static_cast<uint32_t>(pe_regs::IRQ_PENDING_DONE.mask()));
    pause(1);
    EXPECT_TRUE(bench->irq[0]->read());
    bench->sfr32(0, pe_regs::offset::IRQ_PENDING, static_cast<uint32_t>(pe_regs::IRQ_PENDING_ERROR.mask()));
    pause(1);
    EXPECT_FALSE(bench->irq[0]->read());
    EXPECT_NE(bench->sfr<uint32_t>(0, pe_regs::offset::ERROR_BITS), 0u) << "the sticky bit stays";
  });
}

}  // namespace
}  // namespace ahbm::test
