// Every topology elaborates, and every cube reaches every memory of the machine, debug and timed, over the shortest
// way.
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> sets;
};

class AnyToAny : public SimTest, public ::testing::WithParamInterface<Case> {};

/// Latency of a posted HBM write from the crossbar's spare socket, from the graphs alone.
Ps expected_latency(const SystemConfig& config, const SipGraph& graph, const CubeMesh& mesh, SipId sip, CubeId cube,
                    SipId to_sip, CubeId to_cube) {
  const Ps ends = 2 * config.noc.crossbar.latency + config.hbm.latency;
  if (sip == to_sip) {
    return cube == to_cube ? ends - config.noc.crossbar.latency
                           : ends + mesh.hops(cube, to_cube) * config.noc.cube_link.latency;
  }
  const auto path = graph.path(sip, to_sip);
  const auto& first = graph.ports(sip)[*graph.next_port(sip, to_sip)];
  const SipId before = path[path.size() - 2];
  const auto& last = graph.ports(before)[*graph.next_port(before, to_sip)];
  const bool sides = first.attachment != SipGraph::kNearestAttachment;
  const CubeId exit =
      sides ? mesh.attachments()[*mesh.attachment_on(first.side, cube)].cube : mesh.nearest_port_cube(cube);
  CubeId entry = mesh.nearest_port_cube(to_cube);
  if (sides) {
    uint32_t lane = mesh.lane_of(*mesh.attachment_on(first.side, cube));
    for (uint32_t a = 0; a < mesh.attachments().size(); ++a) {
      if (mesh.attachments()[a].side == last.peer_side && lane-- == 0) {
        entry = mesh.attachments()[a].cube;
        break;
      }
    }
  }
  return ends + (mesh.hops(cube, exit) + mesh.hops(entry, to_cube)) * config.noc.cube_link.latency +
         graph.hops(sip, to_sip) * config.sip_link.latency;
}

TEST_P(AnyToAny, DeliversOverTheShortestWay) {
  std::vector<std::string> sets = GetParam().sets;
  sets.insert(sets.begin(), {"cube.pes=1", "system.sips.count=4"});
  Machine m(platform("tiny", sets));
  const SipGraph graph(m.config);
  const CubeMesh mesh(m.config);
  std::vector<ScriptedInitiator*> from;
  for (uint32_t s = 0; s < m.config.sips; ++s) {
    for (uint32_t c = 0; c < m.config.cubes(); ++c) from.push_back(&m.on_cube(s, c));
  }
  run([&] {
    uint32_t who = 0;
    for (uint32_t s = 0; s < m.config.sips; ++s) {
      for (uint32_t c = 0; c < m.config.cubes(); ++c, ++who) {
        for (uint32_t d = 0; d < m.config.sips; ++d) {
          for (uint32_t e = 0; e < m.config.cubes(); ++e) {
            const Addr to = hbm(d, e, 8 * who);
            const uint64_t word = (uint64_t{s} << 48) | (uint64_t{c} << 32) | (d << 16) | e;
            sc_core::wait(10, sc_core::SC_US);
            const Outcome o = from[who]->write_value(to, word);
            ASSERT_TRUE(o.ok());
            const Ps latency = expected_latency(m.config, graph, mesh, SipId{s}, CubeId{c}, SipId{d}, CubeId{e});
            ASSERT_GE(o.delay, latency) << s << "." << c << " to " << d << "." << e;
            ASSERT_LE(o.delay, latency + 320) << s << "." << c << " to " << d << "." << e;  // 8 + 16 bytes at 100 GB/s
            uint64_t stored = 0;
            m.system.sip(SipId{d}).cube(CubeId{e}).hbm().memory().read(8 * who, &stored, 8);
            ASSERT_EQ(stored, word);
            ASSERT_EQ(from[who]->read_value<uint64_t>(to), word);
            Access a;
            a.address = to;
            a.data.resize(8);
            std::vector<uint8_t> data;
            ASSERT_EQ(from[who]->debug(a, data), 8u);
            uint64_t seen = 0;
            std::memcpy(&seen, data.data(), 8);
            ASSERT_EQ(seen, word);
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Topologies, AnyToAny,
    ::testing::Values(
        Case{"ring1", {"system.sips.count=1"}}, Case{"ring2", {"system.sips.count=2"}},
        Case{"ring2_double", {"system.sips.count=2", "system.sips.double_links=true"}},
        Case{"ring3", {"system.sips.count=3"}}, Case{"ring6", {"system.sips.count=6"}},
        Case{"torus2x2", {"system.sips.topology=torus_2d", "system.sips.w=2", "system.sips.h=2"}},
        Case{"torus2x2_double",
             {"system.sips.topology=torus_2d", "system.sips.w=2", "system.sips.h=2", "system.sips.double_links=true"}},
        Case{"torus3x3", {"system.sips.topology=torus_2d", "system.sips.count=9"}},
        Case{"torus1x4", {"system.sips.topology=torus_2d", "system.sips.w=1", "system.sips.h=4"}},
        Case{"torus4x1", {"system.sips.topology=torus_2d", "system.sips.w=4", "system.sips.h=1"}},
        Case{"mesh3x2", {"system.sips.topology=mesh_2d", "system.sips.count=6", "system.sips.w=3", "system.sips.h=2"}},
        Case{"mesh2x2_wide", {"system.sips.topology=mesh_2d", "sip.cube_mesh.w=3", "sip.cube_mesh.h=2"}},
        Case{"fully5", {"system.sips.topology=fully_connected", "system.sips.count=5"}},
        Case{"switch5", {"system.sips.topology=switch", "system.sips.count=5"}},
        Case{"one_cube", {"sip.cube_mesh.w=1", "sip.cube_mesh.h=1"}}),
    [](const auto& i) { return std::string(i.param.name); });

class Routing : public SimTest {};

TEST_F(Routing, SeveralCablesPerSide) {
  SystemConfig config = platform("tiny", {"system.sips.count=3"});
  // Two cables E and two W, at different cubes.
  config.sip_ports = {{Side::E, CubeId{1}}, {Side::E, CubeId{3}}, {Side::W, CubeId{0}}, {Side::W, CubeId{2}}};
  Machine m(config);
  ScriptedInitiator& upper = m.on_cube(0, 1);
  ScriptedInitiator& lower = m.on_cube(0, 3);
  run([&] {
    // Each takes the cable at its own cube and the lane stays: both reach their neighbours without meeting.
    const Way out = Way(m.config).xbar().port().sip_link().port().xbar();
    EXPECT_EQ(upper.write(hbm(1, 0, 0), pattern(16384)).delay, out.hbm_write(0, 16384));
    EXPECT_EQ(lower.write(hbm(1, 2, 0), pattern(16384)).delay, out.hbm_write(0, 16384));
    uint32_t used = 0;
    for (const auto& link : m.system.sip_links()) used += link->stats().transactions;
    EXPECT_EQ(used, 2u);
  });
}

TEST_F(Routing, AnAbsentDirectionCarriesWritesRoundAndRefusesReads) {
  SystemConfig config = platform("tiny", {"system.sips.count=3"});
  LinkOverride missing;
  missing.from = SipId{1};
  missing.to = SipId{0};
  missing.both_directions = false;
  missing.absent = true;
  config.link_overrides.push_back(missing);
  Machine m(config);
  ScriptedInitiator& zero = m.on_cube(0, 0);
  ScriptedInitiator& one = m.on_cube(1, 0);
  run([&] {
    const Ps forth = zero.write(hbm(1, 0, 0), pattern(8)).delay;
    sc_core::wait(10, sc_core::SC_US);
    const Ps back = one.write(hbm(0, 0, 0), pattern(8)).delay;  // 1 -> 2 -> 0
    EXPECT_GE(back, forth + m.config.sip_link.latency - ns(50));
    EXPECT_EQ(zero.read(hbm(1, 0, 0), 8).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_TRUE(one.read(hbm(2, 0, 0), 8).ok());
  });
}

TEST_F(Routing, SlowerLinkByOverride) {
  SystemConfig config = platform("tiny");
  LinkOverride slow;
  slow.from = SipId{0};
  slow.to = SipId{1};
  slow.both_directions = false;
  slow.bytes_per_second = 10000000000;
  slow.latency = ns(400);
  config.link_overrides.push_back(slow);
  Machine m(config);
  ScriptedInitiator& zero = m.on_cube(0, 3);
  ScriptedInitiator& one = m.on_cube(1, 2);
  run([&] {
    const Way out = Way(m.config).xbar().port().sip_link().port().xbar();
    EXPECT_EQ(one.write(hbm(0, 3, 0), pattern(16384)).delay, out.hbm_write(0, 16384));
    EXPECT_EQ(zero.write(hbm(1, 2, 0), pattern(16384)).delay,
              out.latency() + ns(150) + m.config.hbm.latency + 10 * Ps{166400});
  });
}

class Shipped : public SimTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Shipped, ElaboratesAndDelivers) {
  Machine m(platform(GetParam()));
  run([&] {
    const uint32_t last_sip = m.config.sips - 1;
    const uint32_t last_cube = m.config.cubes() - 1;
    uint64_t word = 0x0123456789ABCDEF;
    uint64_t back = 0;
    for (const Addr to : {hbm(0, 0, 0), hbm(last_sip, last_cube, m.config.hbm.bytes - 8)}) {
      EXPECT_EQ(m.system.host_bridge.write(to, &word, 8).status, tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(m.system.host_bridge.read(to, &back, 8).status, tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(back, word);
    }
    const PeLocation last{SipId{last_sip}, CubeId{last_cube}, PeId{m.config.pes - 1}};
    EXPECT_EQ(m.system.host_bridge.write(tcm_address(last, m.config.pe.tcm_bytes - 8), &word, 8).status,
              tlm::TLM_OK_RESPONSE);
    back = 0;
    EXPECT_EQ(m.system.host_bridge.read(tcm_address(last, m.config.pe.tcm_bytes - 8), &back, 8).status,
              tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(back, word);
  });
}

INSTANTIATE_TEST_SUITE_P(Platforms, Shipped,
                         ::testing::Values("single", "ring2", "ring4", "torus4x4", "mesh4x4", "tiny", "peer_64B_50ns"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace ahbm::test
