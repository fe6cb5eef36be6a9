// What a PE tells: kernels, regions, messages, waits, registers, interrupts, errors; and its statistics.
#include <gmock/gmock.h>

#include <algorithm>

#include "models/observe/chrome_trace.h"
#include "models/observe/wave_sink.h"
#include "tests/models/observe/files.h"
#include "tests/models/pe/pe_bench.h"

namespace ahbm::test {
namespace {

using observe::Event;
using observe::EventKind;
using observe::Point;
using observe::Tap;
using observe::Wait;
using observe::test::ScratchFile;
using observe::test::TraceFile;
using ::testing::HasSubstr;

void send_east(tl::Tl& t, const tl::Args& a) {
  const auto outer = t.region("everything");
  {
    const auto inner = t.region("send it");
    t.send(tl::Dir::E, a.address(0), a.u64(1), DType::Float32, 3);
  }
}
void recv_west(tl::Tl& t, const tl::Args& a) {
  t.recv(tl::Dir::W, a.address(0), a.u64(1), DType::Float32, 3);
}
void touches_hole(tl::Tl& t, const tl::Args& a) {
  t.load(a.address(0), 4, DType::Float32);
}

struct Recorded {
  Event event;
  std::string name;
};
class Collector : public observe::Sink {
 public:
  bool wants(const Point&) override { return true; }
  void on_event(const Point& point, const Event& e) override { events[point.flat_pe].push_back({e, e.name}); }
  std::vector<Event> of(uint32_t pe, EventKind kind) const {
    std::vector<Event> out;
    for (const auto& r : events[pe]) {
      if (r.event.kind == kind) out.push_back(r.event);
    }
    return out;
  }
  std::vector<std::string> names(uint32_t pe, EventKind kind) const {
    std::vector<std::string> out;
    for (const auto& r : events[pe]) {
      if (r.event.kind == kind) out.push_back(r.name);
    }
    return out;
  }
  std::vector<Recorded> events[2];
};

class ObservedPe : public SimTest {
 protected:
  // 1,000 floats over slots of 128 bytes (24 floats each): 42 messages through a ring of 4.
  static constexpr uint64_t kMessages = 42;
  void start() {
    bench = std::make_unique<PeBench>(bench_config(), 2);
    bench->kernels.add("send_east", &send_east);
    bench->kernels.add("recv_west", &recv_west);
    bench->kernels.add("touches_hole", &touches_hole);
    for (uint32_t p = 0; p < 2; ++p) {
      Point point;
      point.path = bench->pe[p]->name();
      point.place = observe::Place::Pe;
      point.flat_pe = p;
      point.index = p;
      taps.push_back(std::make_unique<Tap>(point));
    }
  }
  void watch(observe::Sink& sink) {
    for (uint32_t p = 0; p < 2; ++p) {
      ASSERT_TRUE(sink.wants(taps[p]->point()));
      taps[p]->add(&sink);
      bench->pe[p]->observe(taps[p].get());
    }
  }
  void stream() {
    bench->memory.poke(PeBench::kMemory + 0x1000, std::vector<uint8_t>(4000, 0));
    bench->connect(0, 2, 0, 1, 7, 65536, 4, 128);
    bench->launch(1, "recv_west", {PeBench::kMemory + 0x900000, 1000}, {link(tl::Dir::W, 7, 0, 4, 128)}, 1);
    sc_core::wait(sc_core::sc_time(2, sc_core::SC_US));
    bench->launch(0, "send_east", {PeBench::kMemory + 0x1000, 1000}, {link(tl::Dir::E, 2, 1, 4, 128)}, 0);
    bench->wait_completions(2);
  }
  std::vector<std::unique_ptr<Tap>> taps;
  std::unique_ptr<PeBench> bench;
};

TEST_F(ObservedPe, TellsKernelsMessagesAndWaits) {
  start();
  Collector seen;
  run([&] {
    watch(seen);
    stream();
  });
  ASSERT_EQ(seen.of(0, EventKind::Kernel).size(), 1u);
  EXPECT_EQ(seen.names(0, EventKind::Kernel), std::vector<std::string>{"send_east"});
  EXPECT_EQ(seen.names(0, EventKind::Region), (std::vector<std::string>{"send it", "everything"}));
  const auto sends = seen.of(0, EventKind::Send);
  const auto takes = seen.of(1, EventKind::Take);
  ASSERT_EQ(sends.size(), kMessages);
  ASSERT_EQ(takes.size(), kMessages);
  EXPECT_EQ(seen.of(1, EventKind::Release).size(), kMessages);
  EXPECT_EQ(seen.of(1, EventKind::Message).size(), kMessages);
  for (uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(sends[i].number, i);
    EXPECT_EQ(takes[i].number, i);
    EXPECT_EQ(sends[i].bytes, takes[i].bytes);
    EXPECT_EQ(sends[i].peer_pe, 1u);
    EXPECT_EQ(sends[i].peer_qp, 7u);
    EXPECT_LT(sends[i].begin, takes[i].end);
  }
  // The sums of what was told are the statistics.
  Ps message = 0, credit = 0;
  for (uint32_t p = 0; p < 2; ++p) {
    for (const Event& e : seen.of(p, EventKind::Wait)) {
      if (e.wait == Wait::Message) message += e.end - e.begin;
      if (e.wait == Wait::Credit) credit += e.end - e.begin;
    }
  }
  EXPECT_EQ(message, bench->pe[1]->executor().move_stats().waited_message);
  EXPECT_EQ(credit, bench->pe[0]->executor().move_stats().waited_credit);
  // The receiver started 2 us before the sender and had nothing to do for nearly all of that.
  EXPECT_GT(message, us(1));
  EXPECT_LT(message, us(10));
  EXPECT_GT(bench->pe[1]->executor().move_stats().message_waits, 0u);
}

TEST_F(ObservedPe, QueueStatisticsSurviveResetAndCountEveryMessage) {
  start();
  run([&] {
    stream();
    bench->sfr32(0, regs::pe::offset::CTRL, regs::pe::CTRL_RESET.mask());
    sc_core::wait(sc_core::sc_time(1, sc_core::SC_US));
  });
  const models::QpStats sender = dynamic_cast<models::Ipcq&>(bench->pe[0]->ipcq()).stats().at(2);
  const models::QpStats receiver = dynamic_cast<models::Ipcq&>(bench->pe[1]->ipcq()).stats().at(7);
  EXPECT_EQ(sender.messages_sent, kMessages);
  EXPECT_EQ(sender.bytes_sent, kMessages * 32 + 4000);
  EXPECT_EQ(receiver.messages_received, kMessages);
  EXPECT_EQ(receiver.bytes_received, sender.bytes_sent);
  EXPECT_GE(receiver.high_water, 1u);
  EXPECT_LE(receiver.high_water, 4u);
  EXPECT_EQ(sender.messages_received + receiver.messages_sent, 0u);
}

TEST_F(ObservedPe, LaunchQueueHighWaterAndTimes) {
  start();
  run([&] {
    bench->connect(0, 2, 0, 1, 7, 65536, 4, 128);
    // The first waits for a message that comes late; two more pile up behind it.
    bench->launch(1, "recv_west", {PeBench::kMemory + 0x900000, 24}, {link(tl::Dir::W, 7, 0, 4, 128)}, 1);
    sc_core::wait(sc_core::sc_time(1, sc_core::SC_US));
    bench->launch(1, "nothing", {}, {}, 2);
    bench->launch(1, "nothing", {}, {}, 3);
    sc_core::wait(sc_core::sc_time(5, sc_core::SC_US));
    bench->launch(0, "send_east", {PeBench::kMemory + 0x1000, 24}, {link(tl::Dir::E, 2, 1, 4, 128)}, 0);
    bench->wait_completions(4);
    sc_core::wait(sc_core::sc_time(9, sc_core::SC_US));
    bench->launch(1, "nothing", {}, {}, 4);
    bench->wait_completions(5);
  });
  const auto& stats = bench->pe[1]->executor().stats();
  EXPECT_EQ(stats.kernels, 4u);
  EXPECT_EQ(stats.failed, 3u) << "there is no kernel of that name";
  EXPECT_EQ(stats.queue_high_water, 2u);
  EXPECT_GT(stats.queued, us(10)) << "two descriptors, more than 5 us each";
  EXPECT_GT(stats.idle, us(9) - ns(200));
  EXPECT_LT(stats.idle, us(11));
}

TEST_F(ObservedPe, TellsErrorsRegistersAndInterrupts) {
  start();
  Collector seen;
  run([&] {
    bench->sfr32(0, regs::pe::offset::IRQ_ENABLE, 0xFFFFFFFF);
    watch(seen);
    bench->launch(0, "touches_hole", {PeBench::kMemory + (uint64_t{1} << 40)}, {}, 0);
    bench->wait_completions(1);
    sc_core::wait(sc_core::sc_time(1, sc_core::SC_US));
  });
  ASSERT_EQ(seen.of(0, EventKind::Error).size(), 1u);
  EXPECT_EQ(seen.of(0, EventKind::Error)[0].address, PeBench::kMemory + (uint64_t{1} << 40));
  EXPECT_EQ(seen.of(0, EventKind::Error)[0].value, regs::pe::ERROR_BITS_BAD_ADDRESS.mask());
  ASSERT_EQ(seen.of(0, EventKind::Interrupt).size(), 1u);
  EXPECT_EQ(seen.of(0, EventKind::Interrupt)[0].value, 1u);
  EXPECT_THAT(seen.names(0, EventKind::Register), ::testing::Contains("ERROR_COUNT"));
  EXPECT_THAT(seen.names(0, EventKind::Register), ::testing::Contains("FAULT_ADDR"));
  ASSERT_EQ(seen.of(0, EventKind::Kernel).size(), 1u);
  EXPECT_EQ(seen.of(0, EventKind::Kernel)[0].value, static_cast<uint64_t>(launch::Status::BadAddress));
}

TEST_F(ObservedPe, TraceHasAnArrowPerMessageAndNothingOverlaps) {
  start();
  const ScratchFile file("pe.json");
  observe::ChromeTrace trace({file.path(), {}, 0, ~Ps{0}});
  run([&] {
    watch(trace);
    stream();
  });
  trace.finish();
  const TraceFile read(file.text());
  read.expect_laminar();
  EXPECT_EQ(read.flows.size(), kMessages);
  for (const auto& f : read.flows) {
    EXPECT_LT(f.from_ts, f.to_ts);
    EXPECT_TRUE(read.covered(f.from_pid, f.from_tid, f.from_ts, "send"));
    EXPECT_TRUE(read.covered(f.to_pid, f.to_tid, f.to_ts, "receive"));
  }
  EXPECT_EQ(read.slice("send it").tid, read.slice("send_east").tid) << "regions lie below their kernel";
  uint64_t bytes = 0;
  for (const auto& s : read.slices) {
    if (s.name == "send") bytes += s.args.at("bytes").get<uint64_t>();
  }
  EXPECT_EQ(bytes, kMessages * 32 + 4000);
}

TEST_F(ObservedPe, QueueLevelsAndRegistersAsWaves) {
  start();
  const ScratchFile file("pe.vcd");
  {
    observe::WaveSink waves(file.path(), {"*_messages", "*_credits", "*.sfr.KERNELS", "*.kernel_running"},
                            &models::now_ps);
    run([&] {
      watch(waves);
      stream();
      sc_core::wait(sc_core::sc_time(1, sc_core::SC_US));
    });
    for (uint32_t p = 0; p < 2; ++p) bench->pe[p]->observe(nullptr);
    waves.finish();
    EXPECT_GT(waves.writer().changes(), 2 * kMessages);
  }
  const std::string text = file.text();
  EXPECT_THAT(text, HasSubstr(" qp7_messages [15:0] $end"));
  EXPECT_THAT(text, HasSubstr(" qp2_credits [15:0] $end"));
  EXPECT_THAT(text, HasSubstr(" KERNELS [63:0] $end"));
  EXPECT_THAT(text, HasSubstr(" kernel_running $end"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("launch_queue")));
  // Everything was given back: the last value of the level is 0, that of the credits 4.
  const auto last = [&text](const std::string& name) {
    const size_t var = text.rfind("$var", text.find(' ' + name + ' '));
    std::istringstream in(text.substr(var));
    std::string word, id;
    in >> word >> word >> word >> id;
    const size_t at = text.rfind(' ' + id + '\n');
    return text.substr(text.rfind('\n', at) + 1, at - text.rfind('\n', at) - 1);
  };
  EXPECT_EQ(last("qp7_messages"), "b0");
  EXPECT_EQ(last("qp2_credits"), "b100");
}

}  // namespace
}  // namespace ahbm::test
