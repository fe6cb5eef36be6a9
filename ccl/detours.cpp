#include "ccl/detours.h"

#include <algorithm>
#include <utility>

namespace ahbm::ccl {
namespace {

std::vector<SipId> way(const SipGraph& graph, const Flow& flow) {
  for (const SipGraph::Port& p : graph.ports(flow.from)) {
    if (p.peer == flow.to) return {flow.from, flow.to};
  }
  return graph.path(flow.from, flow.to, flow.side);
}

}  // namespace

bool Detours::possible(const SystemConfig& config, const Group& group) {
  const auto& links = config.link_overrides;
  return group.pes.empty() && std::any_of(links.begin(), links.end(), [](const LinkOverride& o) { return o.absent; });
}

SystemConfig Detours::whole(SystemConfig config) {
  for (LinkOverride& o : config.link_overrides) o.absent = false;
  return config;
}

Detours::Ways Detours::ways(const SipGraph& graph, const std::vector<Flow>& flows, const std::vector<Flow>& beside) {
  Ways out;
  std::map<std::pair<SipId, SipId>, double> load;
  const auto fill = [&](const Flow& flow) {
    const std::vector<SipId> path = way(graph, flow);
    for (size_t i = 1; i < path.size(); ++i) load[{path[i - 1], path[i]}] += flow.bytes;
    return path;
  };
  for (const Flow& flow : beside) fill(flow);
  std::vector<std::vector<SipId>> paths;
  for (const Flow& flow : flows) paths.push_back(fill(flow));
  for (const std::vector<SipId>& path : paths) {
    out.hops.push_back(static_cast<uint32_t>(path.size() - 1));
    for (size_t i = 1; i < path.size(); ++i) out.fullest = std::max(out.fullest, load[{path[i - 1], path[i]}]);
  }
  return out;
}

Detours::Cost Detours::of(const std::vector<Flow>& flows, const std::vector<Flow>& beside) const {
  Ways now = ways(m_now, flows, beside);
  const Ways before = ways(m_whole, flows, beside);
  Cost out;
  for (size_t i = 0; i < flows.size(); ++i) {
    out.hops.push_back(now.hops[i] > before.hops[i] ? now.hops[i] - before.hops[i] : 0);
  }
  if (before.fullest > 0) out.load = std::max(1.0, now.fullest / before.fullest);
  out.links = std::move(now.hops);
  out.fullest = now.fullest;
  return out;
}

}  // namespace ahbm::ccl
