// Every resource reaches its bandwidth when it is asked for more, and flows that share nothing do not see each other.
#include <random>

#include "models/tlm/route.h"
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

class Contention : public SimTest {};

TEST_F(Contention, SipLinkReachesItsBandwidth) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 3);
  run([&] {
    const Way out = Way(m.config).xbar().port().sip_link().port().xbar();
    Ps last = 0;
    for (uint32_t i = 0; i < 100; ++i) last = from.write(hbm(1, 2, i * 16384), pattern(16384)).delay;
    EXPECT_EQ(last, out.latency() + m.config.hbm.latency + 100 * Ps{166400});
  });
}

TEST_F(Contention, CubeLinkReachesItsBandwidth) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Way out = Way(m.config).xbar().mesh(1).xbar();
    Ps last = 0;
    for (uint32_t i = 0; i < 100; ++i) last = from.write(hbm(0, 1, i * 16384), pattern(16384)).delay;
    EXPECT_EQ(last, out.latency() + m.config.hbm.latency + 100 * Ps{65000});
  });
}

TEST_F(Contention, CrossbarPortReachesItsBandwidth) {
  // Two cubes send 200 GB/s and more each into a crossbar port of 100 GB/s.
  Machine m(platform("tiny", {"noc.crossbar_bandwidth=100 GB/s"}));
  ScriptedInitiator& one = m.on_cube(0, 1);
  ScriptedInitiator& two = m.on_cube(0, 2);
  run([&] {
    const Way out = Way(m.config).xbar().mesh(1).xbar();
    Ps last = 0;
    for (uint32_t i = 0; i < 50; ++i) {
      last = std::max(last, one.write(hbm(0, 0, i * 16384), pattern(16384)).delay);
      last = std::max(last, two.write(hbm(0, 0, (50 + i) * 16384), pattern(16384)).delay);
    }
    EXPECT_EQ(last, out.latency() + m.config.hbm.latency + 100 * Ps{166400});
  });
}

TEST_F(Contention, HbmChannelReachesItsBandwidth) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Way out = Way(m.config).xbar();
    Ps last = 0;
    // All in channel 3: 256 bytes at 51.2 GB/s are 5 ns.
    for (uint32_t i = 0; i < 200; ++i) last = from.write(hbm(0, 0, 3 * 256 + i * 4096), pattern(256)).delay;
    EXPECT_EQ(last, out.latency() + m.config.hbm.latency + 200 * Ps{5000});
    // Meanwhile channel 4 is idle; only the crossbar port holds it up.
    const Ps port = 200 * transfer_ps(out.wire(256), m.config.noc.crossbar.bytes_per_second);
    EXPECT_LE(from.write(hbm(0, 0, 4 * 256), pattern(256)).delay, out.hbm_write(0, 256) + port);
  });
}

TEST_F(Contention, WholeHbmReachesItsBandwidth) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Way out = Way(m.config).xbar();
    Ps last = 0;
    for (uint32_t i = 0; i < 64; ++i) last = from.write(hbm(0, 0, i * 65536), pattern(65536)).delay;
    EXPECT_EQ(last, out.latency() + m.config.hbm.latency + 64 * Ps{80000});  // 64 KiB at 819.2 GB/s
    // Reads come back through the output port of who asked, 65536 + 1024 bytes at 1024 GB/s: less than the HBM takes.
    sc_core::wait(100, sc_core::SC_US);
    for (uint32_t i = 0; i < 64; ++i) last = from.read(hbm(0, 0, i * 65536), 65536).delay;
    EXPECT_EQ(last, out.latency() + out.busy(0) + m.config.hbm.latency + out.latency() + 64 * Ps{80000});
  });
}

TEST_F(Contention, HostLinkReachesItsBandwidthBothWays) {
  Machine m(platform("tiny"));
  run([&] {
    std::vector<uint8_t> data(16384);
    const Way down = Way(m.config).host_link().port().xbar();
    const Way up = Way(m.config).xbar().port().host_link();
    models::HostBridge::Timing w, r;
    for (uint32_t i = 0; i < 100; ++i) {
      w = m.system.host_bridge.write(hbm(0, 3, i * 16384), data.data(), 16384);
      EXPECT_EQ(w.sent, (i + 1) * Ps{260000});
    }
    EXPECT_EQ(w.done, down.latency() + m.config.hbm.latency + 100 * Ps{260000});
    sc_core::wait(100, sc_core::SC_US);
    const Ps start = now();
    for (uint32_t i = 0; i < 100; ++i) r = m.system.host_bridge.read(hbm(0, 3, i * 16384), data.data(), 16384);
    EXPECT_EQ(r.done - start, down.latency() + down.busy(0) + m.config.hbm.latency + up.latency() + 100 * Ps{260000});
  });
}

TEST_F(Contention, OppositeDirectionsDoNotMeet) {
  Machine m(platform("tiny"));
  ScriptedInitiator& left = m.on_cube(0, 3);
  ScriptedInitiator& right = m.on_cube(1, 2);
  run([&] {
    const Way out = Way(m.config).xbar().port().sip_link().port().xbar();
    for (uint32_t i = 1; i <= 20; ++i) {
      const Ps expected = out.latency() + m.config.hbm.latency + i * Ps{166400};
      EXPECT_EQ(left.write(hbm(1, 2, i * 16384), pattern(16384)).delay, expected);
      EXPECT_EQ(right.write(hbm(0, 3, i * 16384), pattern(16384)).delay, expected);
    }
  });
}

TEST_F(Contention, DataOfReadsSharesTheWayBackWithWrites) {
  Machine m(platform("tiny"));
  ScriptedInitiator& left = m.on_cube(0, 3);
  ScriptedInitiator& right = m.on_cube(1, 2);
  run([&] {
    const Way out = Way(m.config).xbar().port().sip_link().port().xbar();
    const Ps alone = left.read(hbm(1, 2, 0), 16384).delay;
    EXPECT_EQ(alone, out.hbm_read(0, 16384, out));
    sc_core::wait(100, sc_core::SC_US);
    // 1 MiB goes from right to left first: the data of the read waits for it, the request does not.
    const Ps busy = right.write(hbm(0, 3, 0), pattern(1 << 20)).delay;
    const Ps behind = left.read(hbm(1, 2, 0), 16384).delay;
    EXPECT_EQ(behind, busy - m.config.hbm.latency + Ps{166400});
    sc_core::wait(100, sc_core::SC_US);
    // The other way round: what is written from left to right does not delay the data, only the few bytes of request.
    left.write(hbm(1, 2, 0), pattern(16384));
    const Ps with_writes = left.read(hbm(1, 2, 65536), 16384).delay;
    EXPECT_GE(with_writes, alone);
    EXPECT_LE(with_writes, alone + 166400);
  });
}

TEST_F(Contention, ControlNeverQueuesBehindData) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 3);
  run([&] {
    const Way way = Way(m.config).xbar().port().sip_link().port().port();
    for (int i = 0; i < 10; ++i) from.write(hbm(1, 2, 0), pattern(1 << 20));
    // A foreign initiator's mailbox write is classified by its address.
    EXPECT_EQ(from.write_value(mailbox_address(SipId{1}, 5), uint64_t{0}).delay, way.latency() + way.busy(8) + ns(10));
    for (const auto& link : m.system.sip_links()) {
      if (std::string(link->basename()) == "link_sip0_E_sip1") {
        EXPECT_EQ(link->stats().control_wire_bytes, 24u);
      }
    }
  });
}

// Two flows cross one link; whichever is called first, neither ends later than alone plus the other's serialisation,
// and the later of both ends at the same time.
TEST_F(Contention, CallOrderShiftsByAtMostTheCompetitor) {
  Machine a(platform("tiny"), "a");
  Machine b(platform("tiny"), "b");
  struct Flow {
    uint32_t cube;
    uint64_t bytes;
  };
  const Flow flows[] = {{3, 16384}, {0, 4096}};
  ScriptedInitiator* in_a[] = {&a.on_cube(0, 3), &a.on_cube(0, 0)};
  ScriptedInitiator* in_b[] = {&b.on_cube(0, 3), &b.on_cube(0, 0)};
  run([&] {
    Ps ab[2], ba[2], alone[2];
    const auto send = [&](ScriptedInitiator& from, int i) {
      return from.write(hbm(1, 2, Addr(i) << 20), pattern(flows[i].bytes)).delay;
    };
    ab[0] = send(*in_a[0], 0);
    ab[1] = send(*in_a[1], 1);
    ba[1] = send(*in_b[1], 1);
    ba[0] = send(*in_b[0], 0);
    sc_core::wait(100, sc_core::SC_US);
    alone[0] = send(*in_a[0], 0);
    sc_core::wait(100, sc_core::SC_US);
    alone[1] = send(*in_a[1], 1);
    for (int i = 0; i < 2; ++i) {
      const Way w(a.config);
      const Ps competitor = transfer_ps(w.wire(flows[1 - i].bytes), a.config.sip_link.bytes_per_second);
      EXPECT_GE(ab[i], alone[i]);
      EXPECT_GE(ba[i], alone[i]);
      EXPECT_LE(ab[i], alone[i] + competitor);
      EXPECT_LE(ba[i], alone[i] + competitor);
    }
    // Different sources, same bottleneck: the total is conserved.
    EXPECT_NEAR(double(std::max(ab[0], ab[1])), double(std::max(ba[0], ba[1])), double(ns(12)));
  });
}

TEST_F(Contention, DisjointFlowsAreEqualInAnyOrder) {
  Machine a(platform("ring4"), "a");
  Machine b(platform("ring4"), "b");
  struct Flow {
    uint32_t sip, cube, to_sip, to_cube;
  };
  // No link, port or memory in common.
  const std::vector<Flow> flows = {{0, 0, 0, 1}, {0, 14, 0, 15}, {1, 11, 2, 8}, {3, 5, 3, 6}, {3, 11, 0, 8}};
  std::vector<ScriptedInitiator*> in_a, in_b;
  for (const Flow& f : flows) {
    in_a.push_back(&a.on_cube(f.sip, f.cube));
    in_b.push_back(&b.on_cube(f.sip, f.cube));
  }
  run([&] {
    std::vector<Ps> forth(flows.size()), back(flows.size());
    for (size_t i = 0; i < flows.size(); ++i) {
      forth[i] = in_a[i]->write(hbm(flows[i].to_sip, flows[i].to_cube, 0), pattern(16384)).delay;
    }
    for (size_t i = flows.size(); i-- > 0;) {
      back[i] = in_b[i]->write(hbm(flows[i].to_sip, flows[i].to_cube, 0), pattern(16384)).delay;
    }
    EXPECT_EQ(forth, back);
  });
}

// A send that reserves the far side of a long link ahead of time does not block what crosses there now.
TEST_F(Contention, ReservationAheadLeavesTheGapBefore) {
  Machine m(platform("ring4"));
  ScriptedInitiator& far = m.on_cube(0, 11);
  ScriptedInitiator& near = m.on_cube(1, 11);
  run([&] {
    far.write(hbm(2, 8, 0), pattern(16384));  // uses SIP 1's link E from about 250 ns on
    const Way out = Way(m.config).xbar().port().sip_link().port().xbar();
    EXPECT_EQ(near.write(hbm(2, 8, 65536), pattern(4096)).delay, out.hbm_write(65536, 4096));
  });
}

// ------------------------------------------------------------------------------------------------------ route grants

/// The initiator's side, with pooled payloads.
class GrantedInitiator : public sc_core::sc_module {
 public:
  GrantedInitiator(const sc_core::sc_module_name& name, models::System& system, SipId sip, CubeId cube, bool grants)
      : sc_core::sc_module(name), out("out"), m_system(system), m_grants(grants) {
    out.bind(system.sip(sip).cube(cube).spare_in);
    m_initiator.bind(out.get_interface(0), system.services().route_epoch, grants);
  }

  struct Result {
    Ps head, tail;
    tlm::tlm_response_status status;
    bool operator==(const Result& o) const { return head == o.head && tail == o.tail && status == o.status; }
  };
  Result access(bool write, Addr address, std::vector<uint8_t>& data, models::Channel channel = models::Channel::Data) {
    models::PooledPayload& p = m_pool.acquire();
    p.set_command(write ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
    p.set_address(address);
    p.set_data_ptr(data.data());
    p.set_data_length(static_cast<unsigned>(data.size()));
    p.set_streaming_width(static_cast<unsigned>(data.size()));
    models::Transit& t = p.transit.transit;
    t.head = t.tail = now();
    t.wire_payload = write ? data.size() : 0;
    t.channel = channel;
    models::Route& route = m_routes[address >> addr::kCubeShift];
    was_granted = route.covers(address, data.size(), *m_system.services().route_epoch, t);
    m_initiator.transport(p, route);
    const Result r{t.head, t.tail, p.get_response_status()};
    p.release();
    return r;
  }
  bool was_granted = false;
  tlm_utils::simple_initiator_socket<GrantedInitiator> out;

 private:
  models::System& m_system;
  const bool m_grants;
  models::PayloadPool m_pool;
  models::RoutedInitiator m_initiator;
  std::map<Addr, models::Route> m_routes;
};

TEST_F(Contention, GrantedRoutesTakeTheSameTimesAsTheWalk) {
  Machine walked(platform("ring4"), "walked");
  Machine granted(platform("ring4"), "granted");
  std::vector<std::unique_ptr<GrantedInitiator>> in_w, in_g;
  for (uint32_t i = 0; i < 8; ++i) {
    const SipId sip{i % 4};
    const CubeId cube{i * 5 % 16};
    in_w.push_back(
        std::make_unique<GrantedInitiator>(("w" + std::to_string(i)).c_str(), walked.system, sip, cube, false));
    in_g.push_back(
        std::make_unique<GrantedInitiator>(("g" + std::to_string(i)).c_str(), granted.system, sip, cube, true));
  }
  std::vector<models::CompletionEvent> completions_w, completions_g;
  walked.system.host_bridge.on_completion = [&](const auto& e) { completions_w.push_back(e); };
  granted.system.host_bridge.on_completion = [&](const auto& e) { completions_g.push_back(e); };
  run([&] {
    std::mt19937 random(7);
    uint32_t used = 0;
    for (int i = 0; i < 4000; ++i) {
      if (random() % 4 == 0) sc_core::wait(random() % 400, sc_core::SC_NS);
      const uint32_t who = random() % 8;
      const bool completion = random() % 16 == 0;
      const bool write = completion || random() % 2 == 0;
      const uint32_t sip = random() % 4;
      const Addr address =
          completion ? mailbox_address(SipId{sip}, random() % 65536) : hbm(sip, random() % 16, random() % (1 << 24));
      std::vector<uint8_t> data = pattern(completion ? 8 : 1 + random() % 20000, static_cast<uint8_t>(i));
      std::vector<uint8_t> copy = data;
      const auto channel = completion ? models::Channel::Control : models::Channel::Data;
      const auto w = in_w[who]->access(write, address, data, channel);
      const auto g = in_g[who]->access(write, address, copy, channel);
      ASSERT_EQ(w.status, tlm::TLM_OK_RESPONSE);
      ASSERT_EQ(w.tail, g.tail) << "access " << i;
      ASSERT_TRUE(w == g) << "access " << i;
      ASSERT_EQ(data, copy);
      used += in_g[who]->was_granted;
    }
    EXPECT_GT(used, 3000u);  // 8 initiators x 68 windows
    sc_core::wait(1, sc_core::SC_MS);
    ASSERT_EQ(completions_w.size(), completions_g.size());
    ASSERT_GT(completions_w.size(), 100u);
    for (size_t i = 0; i < completions_w.size(); ++i) EXPECT_EQ(completions_w[i].arrived, completions_g[i].arrived);
    for (size_t i = 0; i < walked.system.sip_links().size(); ++i) {
      const auto& x = walked.system.sip_links()[i]->stats();
      const auto& y = granted.system.sip_links()[i]->stats();
      EXPECT_EQ(x.transactions, y.transactions);
      EXPECT_EQ(x.wire_bytes, y.wire_bytes);
      EXPECT_EQ(x.busy, y.busy);
      EXPECT_EQ(x.waited, y.waited);
      EXPECT_GT(x.transactions, 0u);
    }
  });
}

// Foreign initiators hold no routes themselves; the ports that they are bound to do.
TEST_F(Contention, ForeignTrafficTakesTheSameTimesWithAndWithoutGrants) {
  Machine with(platform("ring4"), "with");
  Machine without(platform("ring4", {"simulation.route_grants=false"}), "without");
  std::vector<ScriptedInitiator*> a, b;
  for (uint32_t i = 0; i < 8; ++i) {
    a.push_back(&with.on_cube(i % 4, i * 3 % 16));
    b.push_back(&without.on_cube(i % 4, i * 3 % 16));
  }
  run([&] {
    std::mt19937 random(11);
    for (int i = 0; i < 3000; ++i) {
      if (random() % 3 == 0) sc_core::wait(random() % 500, sc_core::SC_NS);
      const uint32_t who = random() % 9;
      const Addr address = hbm(random() % 4, random() % 4, random() % (1 << 24));
      const uint32_t bytes = 1 + random() % 9000;
      const bool write = random() % 2 == 0;
      if (who == 8) {  // the host
        std::vector<uint8_t> data = pattern(bytes), copy = data;
        auto& ha = with.system.host_bridge;
        auto& hb = without.system.host_bridge;
        const auto x = write ? ha.write(address, data.data(), bytes) : ha.read(address, data.data(), bytes);
        const auto y = write ? hb.write(address, copy.data(), bytes) : hb.read(address, copy.data(), bytes);
        ASSERT_EQ(x.done, y.done) << "access " << i;
        ASSERT_EQ(x.sent, y.sent) << "access " << i;
        ASSERT_EQ(data, copy);
        continue;
      }
      const Outcome x = write ? a[who]->write(address, pattern(bytes)) : a[who]->read(address, bytes);
      const Outcome y = write ? b[who]->write(address, pattern(bytes)) : b[who]->read(address, bytes);
      ASSERT_TRUE(x.ok());
      ASSERT_EQ(x.delay, y.delay) << "access " << i;
      ASSERT_EQ(x.data, y.data);
    }
  });
}

TEST_F(Contention, ResetEndsGrants) {
  Machine m(platform("tiny"));
  GrantedInitiator from("from", m.system, SipId{0}, CubeId{0}, true);
  run([&] {
    std::vector<uint8_t> data(64);
    from.access(true, hbm(1, 0, 0), data);
    from.access(true, hbm(1, 0, 64), data);
    EXPECT_TRUE(from.was_granted);
    m.system.sip_rst_n[1].write(false);
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_EQ(from.access(true, hbm(1, 0, 0), data).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_FALSE(from.was_granted);
    m.system.sip_rst_n[1].write(true);
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_EQ(from.access(true, hbm(1, 0, 0), data).status, tlm::TLM_OK_RESPONSE);
    from.access(true, hbm(1, 0, 0), data);
    EXPECT_TRUE(from.was_granted);
    m.system.invalidate_routes();
    from.access(true, hbm(1, 0, 0), data);
    EXPECT_FALSE(from.was_granted);
  });
}

TEST_F(Contention, ForeignTargetsAndCubeRegistersGiveNoGrant) {
  Machine m(platform("tiny"));
  const Addr hole = cube_base(SipId{1}, CubeId{0}) + addr::kPeWindows + 9 * addr::kPeWindowBytes;
  ScriptedTarget target("target", hole, 0x1000);
  m.system.sip(SipId{1}).cube(CubeId{0}).spare_out.bind(target.in);
  GrantedInitiator from("from", m.system, SipId{0}, CubeId{0}, true);
  run([&] {
    std::vector<uint8_t> data(4);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(from.access(true, hole, data).status, tlm::TLM_OK_RESPONSE);
      EXPECT_FALSE(from.was_granted);
      EXPECT_EQ(from.access(false, cube_base(SipId{1}, CubeId{1}) + addr::kCubeSfr, data).status, tlm::TLM_OK_RESPONSE);
      EXPECT_FALSE(from.was_granted);
    }
    EXPECT_EQ(target.writes, 3u);
  });
}

}  // namespace
}  // namespace ahbm::test
