#include "ccl/detours.h"

#include <algorithm>
#include <unordered_map>

#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

bool is_grid(SipTopology t) {
  return t != SipTopology::FullyConnected && t != SipTopology::Switch;
}

bool links_absent(const SystemConfig& config) {
  const auto& links = config.link_overrides;
  return std::any_of(links.begin(), links.end(), [](const LinkOverride& o) { return o.absent; });
}

/// Bytes from one SIP to another.
class Load {
 public:
  /// Stays where it is.
  double& of(SipId from, SipId to) { return m_bytes[uint64_t{value(from)} << 32 | value(to)]; }

 private:
  std::unordered_map<uint64_t, double> m_bytes;
};

/// `way` calls its second argument with both ends of every link on a flow's way.
template <typename Way>
Detours::Ways ways(const Way& way, const std::vector<Flow>& flows, const std::vector<Flow>& beside) {
  Detours::Ways out;
  Load load, pairs;
  const auto fill = [&](const Flow& flow, const auto& seen) {
    way(flow, [&](SipId from, SipId to) {
      double& link = load.of(from, to);
      link += flow.bytes;
      seen(link);
    });
    return pairs.of(flow.from, flow.to) += flow.bytes;
  };
  for (const Flow& flow : beside) fill(flow, [](const double&) {});
  std::vector<const double*> links;  // of all ways, one after the other
  for (const Flow& flow : flows) {
    const size_t before = links.size();
    out.alone = std::max(out.alone, fill(flow, [&](const double& link) { links.push_back(&link); }));
    out.links.push_back(static_cast<uint32_t>(links.size() - before));
  }
  auto link = links.begin();
  for (const uint32_t n : out.links) {
    double most = 0;
    for (const auto end = link + n; link != end; ++link) most = std::max(most, **link);
    out.carried.push_back(most);
    out.fullest = std::max(out.fullest, most);
  }
  return out;
}

}  // namespace

std::vector<Flow> flows_along(const Group& group, const std::vector<Connection>& connections, bool both_ways) {
  std::vector<Flow> out;
  RingEgress egress(group);
  for (const Connection& c : connections) {
    const SipId here = group.sips[c.rank], there = group.sips[c.peer_rank];
    out.push_back({here, there, side_of(egress.of(c.rank, c.dir))});
    if (both_ways) out.push_back({there, here, side_of(egress.of(c.peer_rank, c.peer_dir))});
  }
  return out;
}

Detours::Detours(const SystemConfig& config) : m_topology(config.topology), m_routes(config) {
  if (links_absent(config)) m_graph.emplace(config);
}

bool Detours::possible(const SystemConfig& config, const Group& group) {
  // Through a switch there is one way only.
  if (!group.pes.empty() || group.topology == SipTopology::Switch) return false;
  return links_absent(config) || (is_grid(group.topology) && group.size() < config.sips);
}

Detours::Ways Detours::of(const std::vector<Flow>& flows, const std::vector<Flow>& beside) const {
  if (!m_graph) return on_whole_fabric(flows, beside);
  const auto way = [this](const Flow& flow, const auto& link) {
    for (const SipGraph::Port& p : m_graph->ports(flow.from)) {
      if (p.peer != flow.to) continue;
      link(flow.from, flow.to);
      return;
    }
    const std::vector<SipId> path = m_graph->path(flow.from, flow.to, flow.side);
    for (size_t i = 1; i < path.size(); ++i) link(path[i - 1], path[i]);
  };
  return ways(way, flows, beside);
}

Detours::Ways Detours::on_whole_fabric(const std::vector<Flow>& flows, const std::vector<Flow>& beside) const {
  const auto way = [this](const Flow& flow, const auto& link) {
    if (!is_grid(m_topology)) {
      link(flow.from, flow.to);
      return;
    }
    for (SipId at = flow.from; at != flow.to;) {
      const SipId next = *m_routes.neighbour(at, *m_routes.next_side(at, flow.to, flow.side));
      link(at, next);
      at = next;
    }
  };
  return ways(way, flows, beside);
}

}  // namespace ahbm::ccl
