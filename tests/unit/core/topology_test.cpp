// Neighbours, routes and bounds of every SIP topology, and the mesh of cubes.
#include "models/core/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "models/core/config/load_config.h"

namespace ahbm {
namespace {

SystemConfig machine(const std::string& topology, uint32_t count, std::vector<std::string> sets = {}) {
  sets.insert(sets.begin(), {"system.sips.count=" + std::to_string(count), "system.sips.topology=" + topology});
  return parse_system_config("sip_link: {bandwidth: 64 B/ns, latency: 50 ns}\n", "t.yaml", sets);
}

std::vector<uint32_t> route(const SipGraph& g, uint32_t from, uint32_t to, std::optional<Side> hint = std::nullopt) {
  std::vector<uint32_t> out;
  for (const SipId s : g.path(SipId{from}, SipId{to}, hint)) out.push_back(value(s));
  return out;
}

using Route = std::vector<uint32_t>;

/// Every port has its counterpart, which points back.
void expect_paired(const SipGraph& g) {
  for (uint32_t s = 0; s < g.sips(); ++s) {
    const auto& ports = g.ports(SipId{s});
    for (uint32_t i = 0; i < ports.size(); ++i) {
      ASSERT_LT(value(ports[i].peer), g.sips());
      const auto& theirs = g.ports(ports[i].peer);
      ASSERT_LT(ports[i].peer_port, theirs.size());
      EXPECT_EQ(theirs[ports[i].peer_port].peer, SipId{s});
      EXPECT_EQ(theirs[ports[i].peer_port].peer_port, i);
    }
  }
}

TEST(SipGraph, RingGoesTheShortWayAndTiesEast) {
  const SipGraph g(machine("ring_1d", 6));
  expect_paired(g);
  EXPECT_EQ(route(g, 0, 2), (Route{0, 1, 2}));
  EXPECT_EQ(route(g, 0, 4), (Route{0, 5, 4}));
  EXPECT_EQ(route(g, 5, 1), (Route{5, 0, 1}));
  EXPECT_EQ(route(g, 1, 4), (Route{1, 2, 3, 4}));
  EXPECT_EQ(route(g, 1, 4, Side::W), (Route{1, 0, 5, 4}));
  EXPECT_EQ(route(g, 1, 3, Side::W), (Route{1, 2, 3})) << "a hint breaks ties only";
  EXPECT_EQ(g.next_port(SipId{3}, SipId{3}), std::nullopt);
  EXPECT_EQ(g.diameter_hops(), 3u);
  EXPECT_EQ(g.directed_links().size(), 12u);
}

TEST(SipGraph, RingOfTwoHasOneCableUnlessTwoAreDeclared) {
  const SipGraph one(machine("ring_1d", 2));
  expect_paired(one);
  ASSERT_EQ(one.ports(SipId{0}).size(), 1u);
  EXPECT_EQ(one.ports(SipId{0})[0].side, Side::E);
  ASSERT_EQ(one.ports(SipId{1}).size(), 1u);
  EXPECT_EQ(one.ports(SipId{1})[0].side, Side::W);
  EXPECT_EQ(one.next_port(SipId{1}, SipId{0}, Side::E), 0u) << "the only cable, whatever the hint";

  const SipGraph two(machine("ring_1d", 2, {"system.sips.double_links=true"}));
  expect_paired(two);
  ASSERT_EQ(two.ports(SipId{0}).size(), 2u);
  EXPECT_EQ(two.ports(SipId{0})[*two.next_port(SipId{0}, SipId{1})].side, Side::E);
  EXPECT_EQ(two.ports(SipId{0})[*two.next_port(SipId{0}, SipId{1}, Side::W)].side, Side::W);
  EXPECT_EQ(two.ports(SipId{0})[0].peer_side, Side::W);
  EXPECT_EQ(two.neighbour(SipId{1}, Side::E), SipId{0});
}

TEST(SipGraph, TorusDimensionsOfOneAndTwo) {
  // {w, h} -> directed links. A dimension of 2 counts once, a dimension of 1 not at all.
  const struct {
    uint32_t w, h;
    size_t links, doubled;
    uint32_t diameter;
  } cases[] = {{1, 1, 0, 0, 0}, {2, 2, 8, 16, 2}, {2, 3, 18, 24, 2}, {1, 4, 8, 8, 2}, {4, 1, 8, 8, 2}, {1, 2, 2, 4, 1}};
  for (const auto& c : cases) {
    for (const bool twice : {false, true}) {
      const SipGraph g(machine("torus_2d", c.w * c.h,
                               {"system.sips.w=" + std::to_string(c.w), "system.sips.h=" + std::to_string(c.h),
                                std::string("system.sips.double_links=") + (twice ? "true" : "false")}));
      expect_paired(g);
      EXPECT_EQ(g.directed_links().size(), twice ? c.doubled : c.links) << c.w << "x" << c.h << " " << twice;
      EXPECT_EQ(g.diameter_hops(), c.diameter) << c.w << "x" << c.h;
      for (uint32_t a = 0; a < g.sips(); ++a) {
        for (uint32_t b = 0; b < g.sips(); ++b) EXPECT_LE(g.hops(SipId{a}, SipId{b}), c.diameter);
      }
    }
  }
}

TEST(SipGraph, TorusIsXThenYWithTheShortWrap) {
  const SipGraph g(machine("torus_2d", 16));
  expect_paired(g);
  EXPECT_EQ(route(g, 0, 15), (Route{0, 3, 15}));
  EXPECT_EQ(route(g, 0, 10), (Route{0, 1, 2, 6, 10})) << "both dimensions tie: E, then S";
  EXPECT_EQ(route(g, 0, 10, Side::W), (Route{0, 3, 2, 6, 10}));
  EXPECT_EQ(route(g, 0, 8, Side::N), (Route{0, 12, 8}));
  EXPECT_EQ(route(g, 5, 7), (Route{5, 6, 7}));
  EXPECT_EQ(g.diameter_hops(), 4u);
}

TEST(SipGraph, MeshDoesNotWrap) {
  const SipGraph g(machine("mesh_2d_no_wrap", 16));
  expect_paired(g);
  EXPECT_EQ(g.topology(), SipTopology::Mesh2d);
  EXPECT_EQ(route(g, 3, 12), (Route{3, 2, 1, 0, 4, 8, 12}));
  EXPECT_EQ(g.ports(SipId{0}).size(), 2u);
  EXPECT_EQ(g.ports(SipId{5}).size(), 4u);
  EXPECT_FALSE(g.neighbour(SipId{0}, Side::W));
  EXPECT_FALSE(g.neighbour(SipId{0}, Side::N));
  EXPECT_EQ(g.neighbour(SipId{0}, Side::S), SipId{4});
  EXPECT_EQ(g.diameter_hops(), 6u);
  EXPECT_EQ(g.directed_links().size(), 48u);
}

TEST(SipGraph, FullyConnectedIsDirect) {
  const SipGraph g(machine("fully_connected", 5));
  expect_paired(g);
  EXPECT_EQ(g.ports(SipId{2}).size(), 4u);
  EXPECT_EQ(g.ports(SipId{2})[0].attachment, SipGraph::kNearestAttachment);
  for (uint32_t a = 0; a < 5; ++a) {
    for (uint32_t b = 0; b < 5; ++b) {
      if (a != b) {
        EXPECT_EQ(g.ports(SipId{a})[*g.next_port(SipId{a}, SipId{b})].peer, SipId{b});
      }
    }
  }
  EXPECT_EQ(g.diameter_hops(), 1u);
  EXPECT_EQ(g.directed_links().size(), 20u);
}

TEST(SipGraph, SwitchCountsUplinkAndDownlink) {
  const SipGraph g(machine("switch", 4));
  EXPECT_EQ(g.ports(SipId{1}).size(), 1u);
  EXPECT_EQ(g.ports(SipId{1})[0].peer, SipGraph::kSwitchCore);
  EXPECT_EQ(g.switch_downlinks().size(), 4u);
  EXPECT_EQ(route(g, 1, 3), (Route{1, 3}));
  EXPECT_EQ(g.hops(SipId{1}, SipId{3}), 2u);
  EXPECT_EQ(g.diameter_hops(), 2u);
  EXPECT_EQ(g.diameter_latency({SipId{0}, SipId{1}, SipId{2}, SipId{3}}), ns(100));
  EXPECT_EQ(g.directed_links().size(), 8u);
}

TEST(SipGraph, OneSipHasNoLinks) {
  for (const char* topology : {"ring_1d", "torus_2d", "mesh_2d", "fully_connected", "switch"}) {
    const SipGraph g(machine(topology, 1));
    EXPECT_TRUE(g.unreachable().empty());
    EXPECT_EQ(g.diameter_hops(), 0u) << topology;
    EXPECT_EQ(g.all_reduce_bound(1 << 20), 0u) << topology;
  }
}

TEST(SipGraph, RegularRoutesAreShortest) {
  // Against breadth first search over the ports, for every pair.
  for (const auto& [topology, n] : {std::pair{"ring_1d", 7}, std::pair{"torus_2d", 25}, std::pair{"mesh_2d", 25},
                                    std::pair{"torus_2d", 16}, std::pair{"fully_connected", 6}}) {
    const SipGraph g(machine(topology, static_cast<uint32_t>(n)));
    for (uint32_t from = 0; from < g.sips(); ++from) {
      std::vector<uint32_t> dist(g.sips(), 99), todo{from};
      dist[from] = 0;
      for (size_t i = 0; i < todo.size(); ++i) {
        for (const auto& p : g.ports(SipId{todo[i]})) {
          if (dist[value(p.peer)] != 99) continue;
          dist[value(p.peer)] = dist[todo[i]] + 1;
          todo.push_back(value(p.peer));
        }
      }
      for (uint32_t to = 0; to < g.sips(); ++to) {
        EXPECT_EQ(g.hops(SipId{from}, SipId{to}), dist[to]) << topology << ' ' << from << "->" << to;
      }
      EXPECT_LE(*std::max_element(dist.begin(), dist.end()), g.diameter_hops());
    }
  }
}

TEST(SipGraph, AbsentLinksAreRoutedAround) {
  const SipGraph ring(machine("ring_1d", 6, {"sip_link.overrides=[{from: 0, to: 1, absent: true}]"}));
  EXPECT_EQ(route(ring, 0, 1), (Route{0, 5, 4, 3, 2, 1}));
  EXPECT_EQ(route(ring, 0, 4), (Route{0, 5, 4}));
  EXPECT_EQ(ring.diameter_hops(), 5u);

  const SipGraph mesh(machine("mesh_2d", 9, {"sip_link.overrides=[{from: 4, to: 5, absent: true}]"}));
  EXPECT_EQ(route(mesh, 4, 5), (Route{4, 1, 2, 5})) << "deterministic: N has a lower port than S";
  EXPECT_EQ(route(mesh, 4, 5, Side::S), (Route{4, 7, 8, 5})) << "the hint chooses between equal ways";
  EXPECT_EQ(route(mesh, 3, 5), (Route{3, 4, 1, 2, 5})) << "E, the regular way, as long as it leads nearer";
  EXPECT_EQ(route(mesh, 0, 2), (Route{0, 1, 2})) << "the regular way where it is still shortest";
}

TEST(SipGraph, OneDirectionCanBeAbsent) {
  const SipGraph g(
      machine("ring_1d", 4, {"sip_link.overrides=[{from: 1, to: 2, both_directions: false, absent: true}]"}));
  EXPECT_EQ(route(g, 1, 2), (Route{1, 0, 3, 2}));
  EXPECT_EQ(route(g, 2, 1), (Route{2, 1}));
  EXPECT_TRUE(g.unreachable().empty());
  EXPECT_EQ(g.ports(SipId{2})[*g.next_port(SipId{2}, SipId{1})].peer_port, SipGraph::kNoPort);
}

TEST(SipGraph, OneCableOfTwoCanBeAbsent) {
  const SipGraph g(machine(
      "ring_1d", 2, {"system.sips.double_links=true", "sip_link.overrides=[{from: 0, to: 1, side: W, absent: true}]"}));
  expect_paired(g);
  ASSERT_EQ(g.ports(SipId{0}).size(), 1u);
  EXPECT_EQ(g.ports(SipId{0})[0].side, Side::E);
  ASSERT_EQ(g.ports(SipId{1}).size(), 1u);
  EXPECT_EQ(g.ports(SipId{1})[0].side, Side::W);
}

TEST(SipGraph, ParallelCablesByLane) {
  const SipGraph g(machine(
      "ring_1d", 4, {"sip.ports=[{side: E, cube: 3}, {side: E, cube: 11}, {side: W, cube: 0}, {side: W, cube: 8}]"}));
  expect_paired(g);
  ASSERT_EQ(g.ports(SipId{0}).size(), 4u);
  const auto& lane0 = g.ports(SipId{0})[*g.next_port(SipId{0}, SipId{1}, std::nullopt, 0)];
  const auto& lane1 = g.ports(SipId{0})[*g.next_port(SipId{0}, SipId{1}, std::nullopt, 1)];
  EXPECT_EQ(lane0.attachment, 0u);
  EXPECT_EQ(lane1.attachment, 1u);
  EXPECT_EQ(g.ports(lane1.peer)[lane1.peer_port].attachment, 3u);
  EXPECT_EQ(g.next_port(SipId{0}, SipId{1}, std::nullopt, 2), g.next_port(SipId{0}, SipId{1}, std::nullopt, 0));
  EXPECT_EQ(g.directed_links().size(), 16u);
}

TEST(SipGraph, OverridesChangeTheFigures) {
  const SipGraph g(machine("ring_1d", 4,
                           {"sip_link.overrides=[{from: 0, to: 1, bandwidth: 16 B/ns}, "
                            "{from: 2, to: 3, both_directions: false, latency: 90 ns}]"}));
  const auto link = [&g](uint32_t from, uint32_t to) {
    return g.ports(SipId{from})[*g.next_port(SipId{from}, SipId{to})].link;
  };
  EXPECT_EQ(link(0, 1).bytes_per_second, 16000000000u);
  EXPECT_EQ(link(1, 0).bytes_per_second, 16000000000u);
  EXPECT_EQ(link(0, 1).latency, ns(50));
  EXPECT_EQ(link(2, 3).latency, ns(90));
  EXPECT_EQ(link(3, 2).latency, ns(50));
  // 1 -> 3 over 2 takes 140 ns, over 0 100 ns; 2 -> 3 takes 90.
  EXPECT_EQ(g.diameter_latency({SipId{0}, SipId{1}, SipId{2}, SipId{3}}), ns(100));
  EXPECT_EQ(g.diameter_latency({SipId{2}, SipId{3}}), ns(90));
}

TEST(SipGraph, BoundsOfTheComparisonPlatform) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(SipGraph(machine("ring_1d", 8)).all_reduce_bound(kMiB), ns(14336));
  EXPECT_EQ(SipGraph(machine("torus_2d", 16)).all_reduce_bound(kMiB), ns(7680));
  EXPECT_EQ(SipGraph(machine("mesh_2d", 16)).all_reduce_bound(kMiB), ns(10240));
  // The poorest node decides on a mesh whose corners have two links; latency decides for little data.
  EXPECT_EQ(SipGraph(machine("ring_1d", 8)).all_reduce_bound(64), ns(200));
  // 2 ranks, one cable: S / B.
  EXPECT_EQ(SipGraph(machine("ring_1d", 2)).all_reduce_bound(kMiB), ns(16384));
  // A switch: every byte crosses an uplink, 2(n-1)S / (nB).
  EXPECT_EQ(SipGraph(machine("switch", 4)).all_reduce_bound(kMiB), ns(24576));
  const SipGraph ring(machine("ring_1d", 8));
  EXPECT_EQ(ring.all_reduce_bound(kMiB, {SipId{0}}), 0u);
  EXPECT_EQ(ring.all_reduce_bound(0), 0u);
  EXPECT_EQ(ring.all_reduce_bound(64, {SipId{0}, SipId{1}}), ns(50));
}

TEST(SipGraph, LargeMachinesStaySmall) {
  const SipGraph g(machine("ring_1d", 8192));
  EXPECT_EQ(g.diameter_hops(), 4096u);
  EXPECT_EQ(g.ports(SipId{8191})[*g.next_port(SipId{8191}, SipId{0})].peer, SipId{0});
  EXPECT_EQ(g.hops(SipId{0}, SipId{8000}), 192u);
}

TEST(CubeMesh, XyRoutingAndNeighbours) {
  const CubeMesh mesh(parse_system_config("sip: {cube_mesh: {w: 4, h: 3}}", "t.yaml"));
  EXPECT_EQ(mesh.cubes(), 12u);
  EXPECT_EQ(mesh.neighbour(CubeId{0}, Side::N), std::nullopt);
  EXPECT_EQ(mesh.neighbour(CubeId{0}, Side::W), std::nullopt);
  EXPECT_EQ(mesh.neighbour(CubeId{3}, Side::E), std::nullopt);
  EXPECT_EQ(mesh.neighbour(CubeId{11}, Side::S), std::nullopt);
  EXPECT_EQ(mesh.neighbour(CubeId{5}, Side::N), CubeId{1});
  EXPECT_EQ(mesh.neighbour(CubeId{5}, Side::S), CubeId{9});
  EXPECT_EQ(mesh.neighbour(CubeId{5}, Side::E), CubeId{6});
  EXPECT_EQ(mesh.neighbour(CubeId{5}, Side::W), CubeId{4});
  EXPECT_EQ(mesh.next_cube(CubeId{0}, CubeId{10}), CubeId{1});
  EXPECT_EQ(mesh.next_cube(CubeId{2}, CubeId{10}), CubeId{6});
  EXPECT_EQ(mesh.next_cube(CubeId{10}, CubeId{10}), CubeId{10});
  EXPECT_EQ(mesh.next_side(CubeId{10}, CubeId{10}), std::nullopt);
  EXPECT_EQ(mesh.next_side(CubeId{10}, CubeId{1}), Side::W);
  EXPECT_EQ(mesh.diameter(), 5u);
  for (uint32_t a = 0; a < 12; ++a) {
    for (uint32_t b = 0; b < 12; ++b) {
      uint32_t steps = 0;
      for (CubeId at{a}; at != CubeId{b}; at = mesh.next_cube(at, CubeId{b})) ++steps;
      EXPECT_EQ(steps, mesh.hops(CubeId{a}, CubeId{b}));
    }
  }
}

TEST(CubeMesh, DefaultPortsAndTheNearest) {
  const SystemConfig c = parse_system_config("sip: {cube_mesh: {w: 4, h: 4}}", "t.yaml");
  const CubeMesh mesh(c);
  const auto port = [&](Side side) { return mesh.attachments()[*mesh.attachment_on(side, CubeId{0})].cube; };
  EXPECT_EQ(port(Side::E), CubeId{11});  // (3, 2)
  EXPECT_EQ(port(Side::W), CubeId{8});   // (0, 2)
  EXPECT_EQ(port(Side::N), CubeId{2});   // (2, 0)
  EXPECT_EQ(port(Side::S), CubeId{14});  // (2, 3)
  EXPECT_EQ(mesh.nearest_port_cube(CubeId{0}), CubeId{8}) << "W and N are two hops away: the lower index";
  EXPECT_EQ(mesh.nearest_port_cube(CubeId{1}), CubeId{2});
  EXPECT_EQ(mesh.nearest_port_cube(CubeId{15}), CubeId{11}) << "E and S are one hop away: the lower index";
  EXPECT_EQ(mesh.nearest_port_cube(CubeId{14}), CubeId{14});
}

TEST(CubeMesh, SeveralPortsOnASide) {
  const CubeMesh mesh(parse_system_config(
      "sip: {ports: [{side: E, cube: 3}, {side: E, cube: 15}, {side: W, cube: 0}, {side: W, cube: 12}]}", "t.yaml"));
  EXPECT_EQ(mesh.attachments().size(), 6u) << "N and S keep their defaults";
  EXPECT_EQ(mesh.attachment_on(Side::E, CubeId{2}), 0u);
  EXPECT_EQ(mesh.attachment_on(Side::E, CubeId{11}), 1u);
  EXPECT_EQ(mesh.lane_of(0), 0u);
  EXPECT_EQ(mesh.lane_of(1), 1u);
  EXPECT_EQ(mesh.lane_of(3), 1u);
}

}  // namespace
}  // namespace ahbm
