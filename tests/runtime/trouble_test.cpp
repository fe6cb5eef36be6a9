// What goes wrong ends in a report that names the cause, and leaves a machine on which the next group works.
#include <gmock/gmock.h>

#include <fstream>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/config/load_config.h"
#include "models/pe/executor.h"
#include "runtime/distributed/distributed.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::now;
using ahbm::test::SimTest;
using testing::Each;
using testing::HasSubstr;
namespace pe_regs = regs::pe;

constexpr uint32_t kSips = 3;
constexpr uint64_t kCount = 60000;  ///< floats: many messages per queue pair

/// \param quantum how far PEs run ahead of the simulated time
SystemConfig config(Ps quantum = 0) {
  SystemConfig c = tiny(kSips);
  c.simulation.stall_limit = us(50);
  c.simulation.pe_quantum = quantum;
  return c;
}

class TroubleTest : public SimTest {
 protected:
  static PeLocation pe0(uint32_t sip, uint32_t cube = 0) { return {SipId{sip}, CubeId{cube}, PeId{0}}; }

  /// An all-reduce by rank threads; answers what it throws, empty when it is right.
  static std::string all_reduce(Machine& m, const std::function<void()>& meanwhile = {}) {
    auto& d = m.ctx.distributed;
    std::string text;
    uint64_t wrong = 0;
    if (meanwhile) sc_core::sc_spawn(meanwhile);
    try {
      m.ctx.spawn(
          [&](uint32_t rank) {
            const Tensor t = m.ctx.full({kCount}, rank + 1.0);
            d.all_reduce(t);
            for (const float v : t.to_host<float>(SipId{rank})) wrong += v != 6.f;
          },
          kSips);
    } catch (const std::runtime_error& e) {
      text = e.what();
    }
    if (text.empty()) {
      EXPECT_EQ(wrong, 0u) << "wrong and not reported";
    }
    return text;
  }

  /// The machine is as new: nothing is left in a queue, and a group of the same machine reduces exactly.
  static void expect_works(Machine& m) {
    auto& d = m.ctx.distributed;
    d.destroy_process_group();
    EXPECT_FALSE(d.is_initialized());
    EXPECT_EQ(m.device.tags_in_use(), 0u);
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
    EXPECT_EQ(m.system.payloads().live(), 0u);
    EXPECT_EQ(m.system.host_bridge.transfers_under_way(), 0u);
    for (uint32_t s = 0; s < kSips; ++s) {
      for (uint32_t c = 0; c < 4; ++c) {
        EXPECT_EQ(m.device.allocator(SipId{s}, CubeId{c}).used(), 0u);
        EXPECT_EQ(m.system.pe(pe0(s, c)).executor().queued(), 0u);
        EXPECT_FALSE(m.system.pe(pe0(s, c)).executor().running());
        for (uint32_t q = 0; q < m.device.config().ipcq.queue_pairs; ++q) {
          uint32_t word = 0;
          m.system.host_bridge.debug_read(qp_reg_address(pe0(s, c), QpId{q}, regs::qp::offset::CTRL), &word, 4);
          EXPECT_EQ(word, 0u) << s << ' ' << c << ' ' << q;
        }
      }
    }
    d.init_process_group();
    EXPECT_EQ(all_reduce(m), "");
  }
};

class EveryFailure : public TroubleTest, public testing::WithParamInterface<Ps> {};
INSTANTIATE_TEST_SUITE_P(Quantum, EveryFailure, testing::Values(0, ns(20), ns(100)));

// Collectives 21, and the machine's own resets in the middle: ten rounds on one machine.
TEST_P(EveryFailure, InMidAllReduceLeavesAWorkingMachineTenTimes) {
  Machine m(config(GetParam()));
  run([&] {
    m.ctx.distributed.init_process_group();
    EXPECT_EQ(all_reduce(m), "");
    for (uint32_t round = 0; round < 10; ++round) {
      SCOPED_TRACE(round);
      const PeLocation victim = pe0(round % kSips, round % 4);
      const std::string text = all_reduce(m, [&m, victim, round] {
        while (!m.system.pe(victim).executor().running()) sc_core::wait(50, sc_core::SC_NS);
        sc_core::wait(models::to_sc_time(ns(800) + ns(137) * round));
        const auto write = [&](Addr at, uint32_t v) { m.system.host_bridge.write(at, &v, 1); };
        switch (round % 5) {
          case 0:
            write(pe_sfr_address(victim, pe_regs::offset::CTRL), static_cast<uint32_t>(pe_regs::CTRL_ABORT.mask()));
            break;
          case 1:
            write(pe_sfr_address(victim, pe_regs::offset::CTRL), static_cast<uint32_t>(pe_regs::CTRL_RESET.mask()));
            break;
          case 2:
            write(cube_base(victim.sip, victim.cube) + addr::kCubeSfr + 8, 1);
            break;
          case 3: {
            Fault stop;
            stop.kind = FaultKind::StopPe;
            stop.pe = victim;
            stop.at = now();
            m.system.inject(stop);
            break;
          }
          case 4:
            m.system.sip_rst_n[value(victim.sip)].write(false);
            sc_core::wait(5, sc_core::SC_US);
            m.system.sip_rst_n[value(victim.sip)].write(true);
            break;
        }
      });
      EXPECT_NE(text, "") << "the kernel ended before the trouble began";
      if (round % 5 == 0) {
        EXPECT_THAT(text, HasSubstr("aborted"));
      }
      if (round % 5 == 3) {
        EXPECT_THAT(text, HasSubstr("stop_pe"));
      }
      expect_works(m);
    }
  });
}

TEST_F(TroubleTest, AGroupMadeAfterAResetCarriesTheNewEpochs) {
  Machine m(config());
  run([&] {
    auto& d = m.ctx.distributed;
    for (uint32_t i = 0; i < 3; ++i) {
      const auto reset = static_cast<uint8_t>(pe_regs::CTRL_RESET.mask());
      m.system.host_bridge.write(pe_sfr_address(pe0(1), pe_regs::offset::CTRL), &reset, 1);
      sc_core::wait(5, sc_core::SC_US);
    }
    d.init_process_group();
    EXPECT_EQ(all_reduce(m), "");
    uint64_t stale = 1;
    m.system.host_bridge.debug_read(pe_sfr_address(pe0(1), pe_regs::offset::STALE_DROPPED), &stale, sizeof stale);
    EXPECT_EQ(stale, 0u);
    bool seen = false;
    for (uint32_t q = 0; q < 8; ++q) {
      uint32_t peer = 0;
      Addr base = 0;
      m.system.host_bridge.debug_read(qp_reg_address(pe0(0), QpId{q}, regs::qp::offset::PEER_QP), &peer, 4);
      m.system.host_bridge.debug_read(qp_reg_address(pe0(0), QpId{q}, regs::qp::offset::PEER_PE), &base, 8);
      if (base != pe_base(pe0(1))) continue;
      seen = true;
      EXPECT_EQ(regs::qp::PEER_QP_EPOCH.of(peer), 3u);
    }
    EXPECT_TRUE(seen);
  });
}

TEST_F(TroubleTest, MessagesOfAnOlderEpochAreDroppedAndCounted) {
  Machine m(config());
  run([&] {
    auto& d = m.ctx.distributed;
    d.init_process_group();
    EXPECT_EQ(all_reduce(m), "");
    const auto reset = static_cast<uint8_t>(pe_regs::CTRL_RESET.mask());
    m.system.host_bridge.write(pe_sfr_address(pe0(1), pe_regs::offset::CTRL), &reset, 1);
    sc_core::wait(5, sc_core::SC_US);
    EXPECT_NE(all_reduce(m), "");
    uint64_t stale = 0;
    m.system.host_bridge.debug_read(pe_sfr_address(pe0(1), pe_regs::offset::STALE_DROPPED), &stale, sizeof stale);
    EXPECT_GT(stale, 0u);
    expect_works(m);
  });
}

void throws_int(tl::Tl&, const tl::Args&) {
  throw 42;
}
void touches_null(tl::Tl& t, const tl::Args&) {
  t.load(0, 4, DType::Float32);
}

TEST_F(TroubleTest, KernelsThatFailAreNamedWithTheirAddress) {
  Machine m(config(), [](tl::KernelRegistry& k) {
    k.add("throws_int", throws_int);
    k.add("touches_null", touches_null);
  });
  run([&] {
    EXPECT_THAT(message_of<std::runtime_error>([&] { m.device.wait(m.ctx.launch_on("throws_int", {pe0(0)}, {})); }),
                testing::AllOf(HasSubstr("throws_int failed on sip0.cube0.pe0"), HasSubstr("kernel")));
    EXPECT_THAT(
        message_of<std::runtime_error>([&] { m.device.wait(m.ctx.launch_on("touches_null", {pe0(2, 1)}, {})); }),
        testing::AllOf(HasSubstr("sip2.cube1.pe0"), HasSubstr("FAULT_ADDR 0x0")));
  });
}

// --- injected faults

struct Case {
  const char* name;
  const char* yaml;
  std::vector<const char*> in_report;
};
void PrintTo(const Case& c, std::ostream* os) {
  *os << c.name;
}

class InjectedFaults : public TroubleTest, public testing::WithParamInterface<std::tuple<Case, Ps>> {};

TEST_P(InjectedFaults, AreNamedAndTheNextGroupWorks) {
  const Case& injected = std::get<Case>(GetParam());
  const Ps quantum = std::get<Ps>(GetParam());
  SystemConfig c = config(quantum);
  c.faults = parse_system_config(std::string("system: {sips: {count: 3}}\nsip: {cube_mesh: {w: 2, h: 2}}\n"
                                             "cube: {pes: 2}\nfaults:\n  - ") +
                                     injected.yaml + "\n",
                                 "faults.yaml")
                 .faults;
  ASSERT_EQ(c.faults.size(), 1u);
  Machine m(c);
  run([&] {
    auto& d = m.ctx.distributed;
    d.init_process_group();
    const std::string text = all_reduce(m);
    for (const char* part : injected.in_report) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(m.system.faults().fired().size(), 1u);
    if (c.faults[0].kind == FaultKind::FailLink || c.faults[0].kind == FaultKind::AddressError) return;  // they last
    expect_works(m);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, InjectedFaults,
    testing::Combine(
        testing::Values(Case{"drop",
                             "{kind: drop_message, sip: 0, cube: 0, pe: 0, message: 3}",
                             {"injected: fault 0 (drop_message: message 3 of sip0.cube0.pe0) struck at"}},
                        Case{"drop_of_a_queue_pair",
                             "{kind: drop_message, sip: 1, cube: 2, pe: 0, message: 2, qp: 3}",
                             {"drop_message: message 2 of sip1.cube2.pe0 on QP 3"}},
                        Case{"header",
                             "{kind: corrupt_message, sip: 2, cube: 1, pe: 0, message: 2}",
                             {"injected: fault 0 (corrupt_message: header of message 2 of sip2.cube1.pe0) struck at"}},
                        Case{"payload",
                             "{kind: corrupt_message, sip: 0, cube: 3, pe: 0, message: 4, part: payload}",
                             {"a message was altered on its way",
                              "corrupt_message: payload of message 4 of sip0.cube3.pe0"}},
                        Case{"link", "{kind: fail_link, from: 0, to: 1}", {"fail_link: sip0 <-> sip1 at 0 ns"}},
                        Case{"one_way",
                             "{kind: fail_link, from: 0, to: 1, side: E, both_directions: false, at: 1 ns}",
                             {"fail_link: sip0 -> sip1 (side E) at 1 ns"}},
                        Case{"cube_link",
                             "{kind: fail_link, sip: 0, from_cube: 1, to_cube: 3}",
                             {"fail_link: sip0.cube1 <-> cube3 at 0 ns"}},
                        Case{"stop",
                             "{kind: stop_pe, sip: 1, cube: 0, pe: 0}",
                             {"stalled at", "nothing: the PE is stopped", "stop_pe: sip1.cube0.pe0 at 0 ns"}},
                        Case{"address",
                             "{kind: address_error, sip: 0, cube: 0, offset: 4 KiB, bytes: 64 B, access: read}",
                             {"address_error: read access to 0x", "[injected: fault 0"}}),
        testing::Values(0, ns(20))),
    [](const auto& case_info) {
      return std::string(std::get<0>(case_info.param).name) + (std::get<1>(case_info.param) != 0 ? "_ahead" : "");
    });

TEST_F(TroubleTest, AFaultThatStrikesNothingChangesNothing) {
  SystemConfig c = config();
  Fault f;
  f.pe = {SipId{0}, CubeId{0}, PeId{1}};  // sends nothing
  c.faults = {f};
  Machine m(c);
  Ps with = 0;
  run([&] {
    m.ctx.distributed.init_process_group();
    m.ctx.distributed.on_collective = [&](const distributed::CollectiveRecord& r) { with = r.end - r.start; };
    EXPECT_EQ(all_reduce(m), "");
    EXPECT_TRUE(m.system.faults().fired().empty());
    EXPECT_EQ(m.system.faults().note(), "");
    f.pe.sip = SipId{9};
    EXPECT_THAT(message_of<std::invalid_argument>([&] { m.system.inject(f); }), HasSubstr("the machine has 3 SIPs"));
    Fault link;
    link.kind = FaultKind::FailLink;
    link.to = SipId{0};
    EXPECT_THAT(message_of<std::invalid_argument>([&] { m.system.inject(link); }), HasSubstr("no such link"));
  });
  EXPECT_GT(with, 0u);
}

TEST_F(TroubleTest, ACorruptionInATimingOnlyRunIsReportedToo) {
  SystemConfig c = config();
  c.simulation.functional = false;
  Fault f;
  f.kind = FaultKind::CorruptMessage;
  f.pe = pe0(1);
  c.faults = {f};
  Machine m(c);
  run([&] {
    m.ctx.distributed.init_process_group();
    EXPECT_THAT(message_of<std::runtime_error>([&] {
                  m.ctx.spawn([&](uint32_t) { m.ctx.distributed.all_reduce(m.ctx.empty({kCount})); }, kSips);
                }),
                HasSubstr("corrupt_message: header of message 1 of sip1.cube0.pe0"));
  });
}

// The leader is ended while it waits for room in a launch queue: what it has launched until then belongs to the group.
TEST_F(TroubleTest, ALeaderEndedAmongItsLaunchesLeavesNothing) {
  SystemConfig c = tiny(4);
  c.simulation.stall_limit = us(50);
  c.pe.launch_queue_depth = 2;
  Machine m(c);
  constexpr uint64_t kRows = 20000;  // unpacking the view takes more launches per PE than its queue holds
  run([&] {
    auto& d = m.ctx.distributed;
    const auto gather = [&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            const Tensor t =
                m.ctx.from_host({kRows, 2}, DType::Int32, std::vector<int32_t>(2 * kRows, static_cast<int>(rank)));
            const Tensor out = m.ctx.zeros({4 * kRows, 2}, DType::Int32, policy(CubePolicy::Replicate));
            d.all_gather_into_tensor(out.select(1, 0), t.select(1, 0), {}, true).wait();
            EXPECT_EQ(out.to_host<int32_t>(SipId{rank}).at(6 * kRows), 3);
          },
          4);
    };
    d.init_process_group();
    Fault drop;
    drop.kind = FaultKind::DropMessage;
    drop.message = 1;
    drop.pe = pe0(0);
    m.system.inject(drop);
    EXPECT_THAT(message_of<std::runtime_error>(gather), HasSubstr("drop_message"));
    d.destroy_process_group();
    EXPECT_EQ(m.device.tags_in_use(), 0u);
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t cube = 0; cube < 4; ++cube) {
        EXPECT_EQ(m.device.allocator(SipId{s}, CubeId{cube}).used(), 0u);
        EXPECT_FALSE(m.system.pe(pe0(s, cube)).executor().running());
      }
    }
    d.init_process_group();
    gather();
  });
}

TEST_F(TroubleTest, AFailedAsynchronousCollectiveGivesItsMemoryBack) {
  Machine m(config());
  run([&] {
    auto& d = m.ctx.distributed;
    for (int round = 0; round < 3; ++round) {
      d.init_process_group();
      EXPECT_THAT(message_of<std::runtime_error>([&] {
                    m.ctx.spawn(
                        [&](uint32_t rank) {
                          const Tensor t = m.ctx.ones({kCount});
                          if (rank == 1) throw std::runtime_error("rank 1 leaves");
                          d.all_reduce(t, ReduceOp::Sum, true).wait();
                        },
                        kSips);
                  }),
                  HasSubstr("rank 1 leaves"));
      d.destroy_process_group();
      sc_core::wait(1, sc_core::SC_US);
      for (uint32_t cube = 0; cube < 4; ++cube) {
        EXPECT_EQ(m.device.allocator(SipId{0}, CubeId{cube}).used(), 0u) << round;
      }
    }
  });
}

// A view of a tensor is copied by launches that belong to no group.
TEST_F(TroubleTest, ACopyThatItsPeNeverEndsIsGivenUpWithTheGroup) {
  Machine m(config());
  run([&] {
    auto& d = m.ctx.distributed;
    d.init_process_group();
    Fault stop;
    stop.kind = FaultKind::StopPe;
    stop.pe = pe0(1);
    m.system.inject(stop);
    EXPECT_THAT(message_of<std::runtime_error>([&] {
                  m.ctx.spawn([&](uint32_t) { m.ctx.zeros({64, 64}).transpose(0, 1).contiguous(); }, kSips);
                }),
                HasSubstr("stop_pe"));
    expect_works(m);
  });
}

// Kernels run on threads of the machine, not on children of the thread that launched first.
TEST_F(TroubleTest, ThePesOutliveTheThreadThatUsedThemFirst) {
  Machine m(config());
  run([&] {
    const auto fill = [&] {
      const Tensor t = m.ctx.ones({64});
      m.ctx.wait(m.ctx.launch("fill", {t, elements_of(t), 2.0, DType::Float32}));
      return t.to_host<float>().front();
    };
    bool filled = false;
    sc_core::sc_process_handle first = sc_core::sc_spawn([&] {
      EXPECT_EQ(fill(), 2.f);
      filled = true;
      sc_core::wait(1, sc_core::SC_SEC);
    });
    while (!filled) sc_core::wait(1, sc_core::SC_US);
    first.kill(sc_core::SC_INCLUDE_DESCENDANTS);
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_EQ(fill(), 2.f);
  });
}

TEST_F(TroubleTest, MegabytesOfArgumentsAreNoStall) {
  SystemConfig c = tiny(2);
  c.simulation.stall_limit = us(20);
  Machine m(c);
  run([&] {
    const Tensor t = m.ctx.zeros({20000, 2}, DType::Int32, policy(CubePolicy::Replicate));
    const Tensor column = t.select(1, 1);
    column.copy_(m.ctx.full({20000}, 7, DType::Int32, policy(CubePolicy::Replicate)));
    EXPECT_EQ(t.to_host<int32_t>().at(39999), 7);
  });
}

/// One part of the machine for which every step takes longer than the stall limit.
struct Slow {
  const char* name;
  void (*make)(SystemConfig&);
};
void PrintTo(const Slow& s, std::ostream* os) {
  *os << s.name;
}

class SlowMachines : public TroubleTest, public testing::WithParamInterface<Slow> {};

TEST_P(SlowMachines, AreNoStallButADeadlockOnThemIs) {
  SystemConfig c = config();
  GetParam().make(c);
  Machine m(c);
  run([&] {
    auto& d = m.ctx.distributed;
    d.init_process_group();
    EXPECT_EQ(all_reduce(m), "");
    const Ps begin = now();
    const std::string text = message_of<StallError>([&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            if (rank == 1) return;
            const Tensor t = m.ctx.empty({4});
            d.all_reduce(t);
          },
          kSips);
    });
    EXPECT_THAT(text, HasSubstr("rank 1"));
    // Nothing was sent, so nothing but the credits of the run before had to be waited for.
    EXPECT_LT(now() - begin, us(150) + c.sip_link.latency);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, SlowMachines,
    testing::Values(Slow{"sip_link_bandwidth", [](SystemConfig& c) { c.sip_link.bytes_per_second = 20000000; }},
                    Slow{"sip_link_latency", [](SystemConfig& c) { c.sip_link.latency = us(120); }},
                    Slow{"host_link_bandwidth", [](SystemConfig& c) { c.host_link.bytes_per_second = 1000000; }},
                    Slow{"host_link_latency", [](SystemConfig& c) { c.host_link.latency = us(120); }},
                    Slow{"host_link_latency_as_the_limit", [](SystemConfig& c) { c.host_link.latency = us(50); }},
                    Slow{"launch_dispatch", [](SystemConfig& c) { c.pe.launch_dispatch = us(120); }},
                    Slow{"clock", [](SystemConfig& c) { c.pe.hertz = 100000; }},
                    Slow{"hbm_latency", [](SystemConfig& c) { c.hbm.latency = us(120); }}),
    [](const auto& of) { return of.param.name; });

TEST_F(TroubleTest, AnUploadIsNamedByWhatItMoves) {
  SystemConfig c = tiny(1);
  c.host_link.latency = us(120);
  Machine m(c);
  run([&] {
    std::vector<StallRow> rows;
    sc_core::sc_spawn([&] {
      sc_core::wait(50, sc_core::SC_US);
      rows = m.device.stall_rows();
    });
    const std::vector<uint8_t> bytes(64);
    const Addr at = m.device.allocate(SipId{0}, CubeId{1}, bytes.size());
    m.device.upload(at, bytes.data(), bytes.size());
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].operation, "upload of 64 bytes");
    EXPECT_THAT(rows[0].waits_for, HasSubstr("the transfer to sip0.cube1"));
    EXPECT_TRUE(m.device.stall_rows().empty());
  });
}

TEST_F(TroubleTest, AForgedCompletionIsNotBelieved) {
  Machine m(config());
  run([&] {
    m.ctx.distributed.init_process_group();
    const std::string text = all_reduce(m, [&m] {
      for (uint32_t i = 0; i < 200; ++i) {
        const launch::Completion forged{0, 0xFFFF, 0};
        for (uint32_t s = 0; s < kSips; ++s) {
          m.system.host_bridge.write(mailbox_address(SipId{s}, i % 16), &forged, sizeof forged);
        }
        sc_core::wait(100, sc_core::SC_NS);
      }
    });
    EXPECT_EQ(text, "");
    EXPECT_GT(m.device.unexpected_completions(), 0u);
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
