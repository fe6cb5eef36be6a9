// Lower bounds of collectives, against the definition rank by rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "models/core/config/load_config.h"
#include "models/core/topology.h"
#include "platform/measurement.h"

namespace ahbm::platform::test {
namespace {

using ccl::Collective;

uint64_t bandwidth(const SipGraph& graph, SipId sip, bool in) {
  uint64_t sum = 0;
  for (const SipGraph::DirectedLink& l : graph.directed_links()) {
    if ((in ? l.to : l.from) == sip) sum += l.link.bytes_per_second;
  }
  return sum;
}

/// Of the ways of least latency between all ends, by relaxing every link until nothing changes.
Ps latency(const SipGraph& graph, SipId from, SipId to) {
  std::map<SipId, Ps> least{{from, 0}};
  for (bool changed = true; changed;) {
    changed = false;
    for (const SipGraph::DirectedLink& l : graph.directed_links()) {
      const auto at = least.find(l.from);
      if (at == least.end()) continue;
      const Ps there = at->second + l.link.latency;
      const auto [it, is_new] = least.emplace(l.to, there);
      if (!is_new && it->second <= there) continue;
      it->second = there;
      changed = true;
    }
  }
  const auto way = least.find(to);
  return way == least.end() ? 0 : way->second;
}

Ps bound_by_all_pairs(const SipGraph& graph, Collective c, uint64_t bytes, const std::vector<SipId>& group,
                      uint32_t root) {
  const auto n = static_cast<uint32_t>(group.size());
  const auto size = static_cast<double>(bytes), f = (n - 1.0) / n;
  const auto over = [&](double each, SipId sip, bool in) {
    const uint64_t b = bandwidth(graph, sip, in);
    return b == 0 ? 0 : static_cast<Ps>(each * 1e12 / static_cast<double>(b));
  };
  Ps out = 0;
  for (uint32_t r = 0; r < n; ++r) {
    const Ps from_root = latency(graph, group[root], group[r]);
    const Ps to_root = latency(graph, group[r], group[root]);
    switch (c) {
      case Collective::Broadcast:
        out = std::max({out, from_root, r == root ? 0 : over(size, group[r], true)});
        break;
      case Collective::Reduce:
        out = std::max({out, to_root, r == root ? 0 : over(size, group[r], false)});
        break;
      case Collective::Gather:
        out = std::max({out, to_root, over(size * f, group[root], true)});
        break;
      case Collective::Scatter:
        out = std::max({out, from_root, over(size * f, group[root], false)});
        break;
      case Collective::AllToAll:
        out = std::max(
            {out, over(size * f, group[r], true), over(size * f, group[r], false), graph.diameter_latency(group)});
        break;
      default:
        out = std::max({out, over(size, group[r], false), latency(graph, group[r], group[(r + 1) % n])});
        break;
    }
  }
  return out;
}

// What goes one way is not bounded by a link that is slow the other way.
TEST(CollectiveBound, OfOneWayIsThatOfTheWayThatIsTaken) {
  SystemConfig config = load_system_config("ring2");
  LinkOverride slow;
  slow.from = SipId{1};
  slow.to = SipId{0};
  slow.both_directions = false;
  slow.latency = us(5);
  config.link_overrides.push_back(slow);
  const SipGraph graph(config);
  const std::vector<SipId> both{SipId{0}, SipId{1}};
  for (const Collective c : {Collective::Broadcast, Collective::Scatter}) {
    EXPECT_LT(collective_bound(graph, c, 4, both, 0), us(5)) << ccl::to_string(c);
    EXPECT_GE(collective_bound(graph, c, 4, both, 1), us(5)) << ccl::to_string(c);
  }
  for (const Collective c : {Collective::Reduce, Collective::Gather}) {
    EXPECT_GE(collective_bound(graph, c, 4, both, 0), us(5)) << ccl::to_string(c);
    EXPECT_LT(collective_bound(graph, c, 4, both, 1), us(5)) << ccl::to_string(c);
  }
  // A sends to B and B to A: the slow way is one of them.
  EXPECT_GE(collective_bound(graph, Collective::SendRecv, 4, both, 0), us(5));
}

TEST(CollectiveBound, IsThatOfEveryRank) {
  std::mt19937 rng(5);
  for (const SipTopology t : {SipTopology::Ring1d, SipTopology::Torus2d, SipTopology::Mesh2d,
                              SipTopology::FullyConnected, SipTopology::Switch}) {
    for (int i = 0; i < 8; ++i) {
      SystemConfig config = load_system_config("torus4x4");  // it has ports on all sides
      const bool grid = t == SipTopology::Torus2d || t == SipTopology::Mesh2d;
      config.topology = t;
      config.sip_w = grid ? 4 : 9;
      config.sip_h = grid ? 3 : 1;
      config.sips = config.sip_w * config.sip_h;
      // Slower links, and on every other machine one that is absent.
      const std::vector<SipGraph::DirectedLink> links = SipGraph(config).directed_links();
      for (int k = 0; k < 4; ++k) {
        const SipGraph::DirectedLink& l = links[rng() % links.size()];
        LinkOverride o;
        o.from = l.from;
        o.to = l.to;
        o.both_directions = k % 2 == 0;
        o.latency = l.link.latency + rng() % 90000;
        o.bytes_per_second = l.link.bytes_per_second / (1 + rng() % 3);
        o.absent = k == 0 && i % 2 == 1;
        config.link_overrides.push_back(o);
      }
      const SipGraph graph(config);
      std::vector<SipId> group;
      for (uint32_t s = 0; s < config.sips; ++s) group.push_back(SipId{s});
      std::shuffle(group.begin(), group.end(), rng);
      group.resize(2 + rng() % (config.sips - 1));
      const auto root = static_cast<uint32_t>(rng() % group.size());
      for (const Collective c : {Collective::Broadcast, Collective::Reduce, Collective::Gather, Collective::Scatter,
                                 Collective::AllToAll, Collective::SendRecv}) {
        for (const uint64_t bytes : {uint64_t{4}, uint64_t{1} << 20}) {
          EXPECT_EQ(collective_bound(graph, c, bytes, group, root), bound_by_all_pairs(graph, c, bytes, group, root))
              << to_string(t) << " " << ccl::to_string(c) << " of " << bytes << " bytes, machine " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ahbm::platform::test
