// Uncontended times of every kind of way, to the picosecond.
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

class Paths : public SimTest {};

const std::vector<uint64_t> kSizes = {1, 4, 64, 256, 1000, 1024, 1025, 4096, 16384, 65536 + 4};

TEST_F(Paths, SameCube) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  const Way out = Way(m.config).xbar();
  run([&] {
    // The defaults, by hand: 2 ns crossbar, 90 ns HBM, 16 + 16 bytes at 1024 GB/s or 4 bytes at 51.2 GB/s.
    EXPECT_EQ(from.write(hbm(0, 0, 0), pattern(4)).delay, ns(92) + 79);
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_EQ(from.read(hbm(0, 0, 0), 4).delay, ns(2) + 16 + ns(90) + ns(2) + 79);
    for (const uint64_t n : kSizes) {
      for (const Addr offset : {Addr{0}, Addr{0x1003}, m.config.hbm.bytes - n}) {
        SCOPED_TRACE(testing::Message() << n << " bytes at " << offset);
        sc_core::wait(10, sc_core::SC_US);
        EXPECT_EQ(from.write(hbm(0, 0, offset), pattern(n)).delay, out.hbm_write(offset, n));
        sc_core::wait(10, sc_core::SC_US);
        const Outcome o = from.read(hbm(0, 0, offset), n);
        EXPECT_EQ(o.delay, out.hbm_read(offset, n, out));
        EXPECT_EQ(o.data, pattern(n));
      }
    }
  });
}

TEST_F(Paths, AcrossTheCubeMesh) {
  Machine m(platform("ring4", {"system.sips.count=1"}));
  const CubeMesh mesh(m.config);
  ScriptedInitiator& from = m.on_cube(0, 5);
  run([&] {
    for (uint32_t to = 0; to < m.config.cubes(); ++to) {
      const uint32_t k = mesh.hops(CubeId{5}, CubeId{to});
      if (k == 0) continue;
      const Way out = Way(m.config).xbar().mesh(k).xbar();
      for (const uint64_t n : kSizes) {
        SCOPED_TRACE(testing::Message() << n << " bytes to cube " << to);
        sc_core::wait(10, sc_core::SC_US);
        EXPECT_EQ(from.write(hbm(0, to, 512), pattern(n)).delay, out.hbm_write(512, n));
        sc_core::wait(10, sc_core::SC_US);
        const Outcome o = from.read(hbm(0, to, 512), n);
        EXPECT_EQ(o.delay, out.hbm_read(512, n, out));
        EXPECT_EQ(o.data, pattern(n));
      }
    }
  });
}

TEST_F(Paths, AcrossOneSipLink) {
  // tiny: 2x2 cubes; E is at cube (1,1) = 3, W at cube (0,1) = 2. One cable joins E of SIP 0 and W of SIP 1.
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  ScriptedInitiator& back_from = m.on_cube(1, 1);
  run([&] {
    for (const uint64_t n : kSizes) {
      SCOPED_TRACE(testing::Message() << n << " bytes");
      // cube 0 to cube 3 is 2 hops; cube 2 to cube 1 is 2 hops.
      const Way out = Way(m.config).xbar().mesh(2).port().sip_link().port().mesh(2).xbar();
      sc_core::wait(100, sc_core::SC_US);
      EXPECT_EQ(from.write(hbm(1, 1, 0), pattern(n)).delay, out.hbm_write(0, n));
      sc_core::wait(100, sc_core::SC_US);
      const Outcome o = from.read(hbm(1, 1, 0), n);
      EXPECT_EQ(o.delay, out.hbm_read(0, n, out));
      EXPECT_EQ(o.data, pattern(n));
      sc_core::wait(100, sc_core::SC_US);
      // Back: cube 1 to cube 2 is 2 hops, then SIP 0 is entered at cube 3.
      const Way home = Way(m.config).xbar().mesh(2).port().sip_link().port().xbar();
      EXPECT_EQ(back_from.write(hbm(0, 3, 0), pattern(n)).delay, home.hbm_write(0, n));
    }
    // 2 + 4 + 4 + 250 + 4 + 4 + 2 + 90 ns and 16 KiB + 256 B at 100 GB/s.
    sc_core::wait(100, sc_core::SC_US);
    EXPECT_EQ(from.write(hbm(1, 1, 0), pattern(16384)).delay, ns(360) + 166400);
  });
}

TEST_F(Paths, ThroughASip) {
  Machine m(platform("ring4"));
  ScriptedInitiator& from = m.on_cube(0, 7);  // (3,1)
  const Addr to = hbm(2, 8, 0);               // (0,2)
  run([&] {
    // A tie: E by default. E is at cube (3,2) = 11, one hop S of cube 7; W at (0,2) = 8.
    const Way east = Way(m.config).xbar().mesh(1).port().sip_link().sip_link().port().xbar();
    EXPECT_EQ(from.write(to, pattern(4096)).delay, east.hbm_write(0, 4096));
    sc_core::wait(100, sc_core::SC_US);
    EXPECT_EQ(from.read(to, 4096).delay, east.hbm_read(0, 4096, east));
    for (const auto& link : m.system.sip_links()) {
      const std::string name = link->basename();
      const bool on_the_way = name == "link_sip0_E_sip1" || name == "link_sip1_E_sip2";
      const bool way_back = name == "link_sip2_W_sip1" || name == "link_sip1_W_sip0";
      EXPECT_EQ(link->stats().payload_bytes, on_the_way || way_back ? 4096u : 0u) << name;
      EXPECT_EQ(link->stats().transactions, on_the_way ? 2u : way_back ? 1u : 0u) << name;
    }
    // The SIP in the middle is passed without entering a cube.
    for (uint32_t a = 0; a < 4; ++a) {
      EXPECT_EQ(m.system.sip(SipId{1}).port_in(a).stats().transactions, 0u);
      EXPECT_EQ(m.system.sip(SipId{1}).port_out(a).stats().transactions, 0u);
    }
    sc_core::wait(100, sc_core::SC_US);
    // The hint takes the other way round: W is at cube 8, 3 + 1 hops; SIP 2 is entered at E (cube 11), 3 hops from 8.
    models::TransitExtension transit;
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = to;
    a.data = pattern(4096);
    transit.transit.head = transit.transit.tail = now();
    transit.transit.wire_payload = 4096;
    transit.transit.egress = Side::W;
    transit.transit.has_egress = true;
    a.before = [&](tlm::tlm_generic_payload& p) { p.set_extension(&transit); };
    a.after = [&](tlm::tlm_generic_payload& p) { p.clear_extension(&transit); };
    const Way west = Way(m.config).xbar().mesh(4).port().sip_link().sip_link().port().mesh(3).xbar();
    EXPECT_EQ(from.transport(a).delay, west.hbm_write(0, 4096));
    EXPECT_EQ(transit.transit.tail, now() + west.hbm_write(0, 4096));
  });
}

TEST_F(Paths, ThroughASwitch) {
  Machine m(platform("tiny", {"system.sips.topology=switch", "system.sips.count=3"}));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    // The nearest port of cube 0 in a 2x2 mesh: N (cube 1) and W (cube 2) are one hop away, the lower index wins; the
    // arriving message enters nearest to its cube: cube 3 has a port itself.
    const Way out = Way(m.config).xbar().mesh(1).port().sip_link().sip_link().port().xbar();
    EXPECT_EQ(from.write(hbm(2, 3, 0), pattern(16384)).delay, out.hbm_write(0, 16384));
    sc_core::wait(100, sc_core::SC_US);
    EXPECT_EQ(from.read(hbm(2, 3, 0), 16384).delay, out.hbm_read(0, 16384, out));
  });
}

TEST_F(Paths, FullyConnectedIsOneLinkAway) {
  Machine m(platform("tiny", {"system.sips.topology=fully_connected", "system.sips.count=5"}));
  ScriptedInitiator& from = m.on_cube(4, 3);
  run([&] {
    for (uint32_t s = 0; s < 4; ++s) {
      sc_core::wait(100, sc_core::SC_US);
      const Way out = Way(m.config).xbar().port().sip_link().port().mesh(1).xbar();
      EXPECT_EQ(from.write(hbm(s, 0, 0), pattern(1024)).delay, out.hbm_write(0, 1024)) << s;
    }
  });
}

TEST_F(Paths, HostToHbm) {
  Machine m(platform("tiny"));
  run([&] {
    for (const uint64_t n : kSizes) {
      SCOPED_TRACE(testing::Message() << n << " bytes");
      // Cube 0 has no port; the nearest is one hop away.
      const Way out = Way(m.config).host_link().port().mesh(1).xbar();
      const Way back = Way(m.config).xbar().mesh(1).port().host_link();
      std::vector<uint8_t> data = pattern(n);
      sc_core::wait(100, sc_core::SC_US);
      auto t = m.system.host_bridge.write(hbm(1, 0, 0), data.data(), n);
      EXPECT_EQ(t.status, tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(t.sent, now() + transfer_ps(out.wire(n), m.config.host_link.bytes_per_second));
      EXPECT_EQ(t.done, now() + out.hbm_write(0, n));
      sc_core::wait(100, sc_core::SC_US);
      std::vector<uint8_t> read(n);
      t = m.system.host_bridge.read(hbm(1, 0, 0), read.data(), n);
      EXPECT_EQ(t.status, tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(t.sent, now() + transfer_ps(out.wire(0), m.config.host_link.bytes_per_second));
      EXPECT_EQ(t.done, now() + out.hbm_read(0, n, back));
      EXPECT_EQ(read, data);
    }
  });
}

TEST_F(Paths, ForeignInitiatorOnTheHost) {
  Machine m(platform("tiny"));
  ScriptedInitiator host("host_initiator");
  host.out.bind(m.system.host_bridge.spare_in);
  run([&] {
    const Way out = Way(m.config).host_link().port().xbar();
    const Way back = Way(m.config).xbar().port().host_link();
    EXPECT_EQ(host.write(hbm(1, 3, 0), pattern(4096)).delay, out.hbm_write(0, 4096));
    sc_core::wait(100, sc_core::SC_US);
    EXPECT_EQ(host.read(hbm(1, 3, 0), 4096).delay, out.hbm_read(0, 4096, back));
  });
}

TEST_F(Paths, FromTheSpareSocketOfASip) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_sip(0);
  run([&] {
    const Way out = Way(m.config).port().mesh(1).xbar();
    const Way back = Way(m.config).xbar().mesh(1).port().port();
    EXPECT_EQ(from.write(hbm(0, 0, 0), pattern(4096)).delay, out.hbm_write(0, 4096));
    sc_core::wait(100, sc_core::SC_US);
    EXPECT_EQ(from.read(hbm(0, 0, 0), 4096).delay, out.hbm_read(0, 4096, back));
  });
}

TEST_F(Paths, CompletionReachesTheHost) {
  Machine m(platform("tiny"));
  std::vector<models::CompletionEvent> events;
  std::vector<Ps> at;
  m.system.host_bridge.on_completion = [&](const models::CompletionEvent& e) {
    events.push_back(e);
    at.push_back(now());
  };
  ScriptedInitiator& near = m.on_cube(1, 3);
  ScriptedInitiator& far = m.on_cube(0, 0);
  run([&] {
    sc_core::wait(1, sc_core::SC_US);
    const Ps start = now();
    // The far one is called first and arrives last. Mailbox writes are on the control channel: 8 + 16 bytes.
    const Way far_way = Way(m.config).xbar().mesh(2).port().sip_link().port();
    const Way near_way = Way(m.config).xbar().port().port();
    const Ps up = transfer_ps(24, m.config.host_link.bytes_per_second) + m.config.host_link.latency;
    const launch::Completion c{3, 7, 11};
    const Outcome o = far.write_value(mailbox_address(SipId{1}, 65535), c);
    EXPECT_TRUE(o.ok());
    EXPECT_EQ(o.delay, far_way.latency() + far_way.busy(8) + ns(10));
    EXPECT_TRUE(near.write_value(mailbox_address(SipId{1}, 0), launch::Completion{0, 1, 2}).ok());
    sc_core::wait(10, sc_core::SC_US);
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].tag, 0u);
    EXPECT_EQ(events[0].arrived, start + near_way.latency() + near_way.busy(8) + ns(10) + up);
    EXPECT_EQ(events[1].tag, 65535u);
    EXPECT_EQ(events[1].sip, SipId{1});
    EXPECT_EQ(events[1].completion.status, 3u);
    EXPECT_EQ(events[1].completion.kernel_id, 7u);
    EXPECT_EQ(events[1].completion.flat_pe, 11u);
    EXPECT_EQ(events[1].arrived, start + o.delay + up);
    EXPECT_EQ(at[0], events[0].arrived);
    EXPECT_EQ(at[1], events[1].arrived);
    // The slot reads back, by the host too, without sending anything again.
    launch::Completion back;
    EXPECT_EQ(m.system.host_bridge.read(mailbox_address(SipId{1}, 65535), &back, 8).status, tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(back.flat_pe, 11u);
    EXPECT_EQ(m.system.host_bridge.debug_read(mailbox_address(SipId{1}, 65535), &back, 8), 8u);
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_EQ(events.size(), 2u);
    EXPECT_EQ(m.system.host_bridge.link_up(SipId{1}).control_wire_bytes, 48u);
  });
}

TEST_F(Paths, CubeRegistersTakeTheSfrLatency) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 1);
  run([&] {
    const Addr sfr = cube_base(SipId{0}, CubeId{0}) + addr::kCubeSfr;
    const Way out = Way(m.config).xbar().mesh(1).xbar();
    const Outcome o = from.read(sfr, 4);
    EXPECT_TRUE(o.ok());
    EXPECT_EQ(o.data, (std::vector<uint8_t>{'C', 'U', 'B', 'E'}));
    EXPECT_EQ(o.delay, out.latency() + out.busy(0) + ns(10) + out.latency() + out.busy(4));
  });
}

TEST_F(Paths, PeerPlatformIsTheLinkAlone) {
  Machine m(platform("peer_64B_50ns"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    // 64 bytes per nanosecond, 50 ns, no headers.
    EXPECT_EQ(from.write(hbm(1, 0, 0), pattern(6400)).delay, ns(150));
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_EQ(from.write(hbm(4, 0, 0), pattern(6400)).delay, ns(300));
  });
}

TEST_F(Paths, AnnotatedDelayOfAForeignInitiatorMovesTheWholeTransfer) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Way out = Way(m.config).xbar();
    EXPECT_EQ(from.write(hbm(0, 0, 0), pattern(4096), ns(777)).delay, ns(777) + out.hbm_write(0, 4096));
  });
}

TEST_F(Paths, ForeignTargetOnASpareSocket) {
  Machine m(platform("tiny"));
  const Addr hole = cube_base(SipId{1}, CubeId{1}) + addr::kPeWindows + 200 * addr::kPeWindowBytes;
  ScriptedTarget target("target", hole, 0x10000, ns(33));
  m.system.sip(SipId{1}).cube(CubeId{1}).spare_out.bind(target.in);
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Way out = Way(m.config).xbar().mesh(2).port().sip_link().port().mesh(2).xbar();
    const Outcome w = from.write(hole + 64, pattern(4096));
    EXPECT_TRUE(w.ok());
    EXPECT_EQ(w.delay, out.latency() + out.busy(4096) + ns(33));
    sc_core::wait(100, sc_core::SC_US);
    const Outcome r = from.read(hole + 64, 4096);
    EXPECT_TRUE(r.ok());
    EXPECT_EQ(r.data, pattern(4096));
    EXPECT_EQ(r.delay, out.latency() + out.busy(0) + ns(33) + out.latency() + out.busy(4096));
    // What the target refuses comes back as it is, a hole of the cube elsewhere too.
    EXPECT_EQ(from.write(hole + 0x10000, pattern(4)).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    std::vector<uint8_t> data;
    Access a;
    a.address = hole + 64;
    a.data.resize(16);
    EXPECT_EQ(from.debug(a, data), 16u);
    EXPECT_EQ(data, pattern(16));
  });
}

// A target that waits instead of annotating: its time counts once, and the data of a read starts after it.
struct WaitingTarget : sc_core::sc_module {
  explicit WaitingTarget(const sc_core::sc_module_name& name) : sc_core::sc_module(name), in("in") {
    in.register_b_transport(this, &WaitingTarget::b_transport);
  }
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    sc_core::wait(delay + sc_core::sc_time(50, sc_core::SC_NS));
    delay = sc_core::SC_ZERO_TIME;
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
  }
  tlm_utils::simple_target_socket<WaitingTarget> in;
};

TEST_F(Paths, ForeignTargetThatWaits) {
  Machine m(platform("tiny"));
  WaitingTarget target("target");
  m.system.sip(SipId{1}).spare_out.bind(target.in);
  ScriptedInitiator& from = m.on_cube(0, 0);
  const Addr hole = sip_block_base(SipId{1}) + 0x40000000;
  run([&] {
    const Way out = Way(m.config).xbar().mesh(2).port().sip_link().port();
    const Ps start = now();
    const Outcome w = from.write(hole, pattern(4096));
    EXPECT_TRUE(w.ok());
    EXPECT_EQ(now() + w.delay - start, out.latency() + out.busy(4096) + ns(50));
    sc_core::wait(100, sc_core::SC_US);
    const Ps again = now();
    const Outcome r = from.read(hole, 4096);
    EXPECT_TRUE(r.ok());
    EXPECT_EQ(now() + r.delay - again, out.latency() + out.busy(0) + ns(50) + out.latency() + out.busy(4096));
  });
}

}  // namespace
}  // namespace ahbm::test
