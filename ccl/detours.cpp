#include "ccl/detours.h"

#include <algorithm>
#include <utility>

namespace ahbm::ccl {
namespace {

bool is_grid(SipTopology t) {
  return t != SipTopology::FullyConnected && t != SipTopology::Switch;
}

bool links_absent(const SystemConfig& config) {
  const auto& links = config.link_overrides;
  return std::any_of(links.begin(), links.end(), [](const LinkOverride& o) { return o.absent; });
}

/// Bytes from one SIP to another, in a table that is probed: forms of large groups ask a hundred thousand times.
class Load {
 public:
  /// An index that stays.
  uint32_t index(SipId from, SipId to) {
    if (2 * (m_bytes.size() + 1) > m_slots.size()) grow();
    Slot& slot = find(uint64_t{value(from)} << 32 | value(to));
    if (slot.index == kNone) {
      slot = {uint64_t{value(from)} << 32 | value(to), static_cast<uint32_t>(m_bytes.size())};
      m_bytes.push_back(0);
    }
    return slot.index;
  }
  double& operator[](uint32_t index) { return m_bytes[index]; }

 private:
  static constexpr uint32_t kNone = ~0u;
  struct Slot {
    uint64_t ends = 0;
    uint32_t index = kNone;
  };
  Slot& find(uint64_t ends) {
    size_t at = (ends * 0x9E3779B97F4A7C15) >> 32;
    while (m_slots[at &= m_slots.size() - 1].index != kNone && m_slots[at].ends != ends) ++at;
    return m_slots[at];
  }
  void grow() {
    const std::vector<Slot> before =
        std::exchange(m_slots, std::vector<Slot>(std::max<size_t>(32, 2 * m_slots.size())));
    for (const Slot& slot : before) {
      if (slot.index != kNone) find(slot.ends) = slot;
    }
  }
  std::vector<Slot> m_slots;
  std::vector<double> m_bytes;
};

/// `way` calls its second argument with both ends of every link on a flow's way.
template <typename Way>
Detours::Ways ways(const Way& way, const std::vector<Flow>& flows, const std::vector<Flow>& beside) {
  Detours::Ways out;
  Load load, pairs;
  const auto fill = [&](const Flow& flow, const auto& seen) {
    way(flow, [&](SipId from, SipId to) {
      const uint32_t link = load.index(from, to);
      load[link] += flow.bytes;
      seen(link);
    });
    double& pair = pairs[pairs.index(flow.from, flow.to)];
    pair += flow.bytes;
    return pair;
  };
  for (const Flow& flow : beside) fill(flow, [](uint32_t) {});
  std::vector<uint32_t> links;  // of all ways, one after the other
  for (const Flow& flow : flows) {
    const size_t before = links.size();
    out.alone = std::max(out.alone, fill(flow, [&](uint32_t link) { links.push_back(link); }));
    out.links.push_back(static_cast<uint32_t>(links.size() - before));
  }
  auto link = links.begin();
  for (const uint32_t n : out.links) {
    double most = 0;
    for (const auto end = link + n; link != end; ++link) most = std::max(most, load[*link]);
    out.carried.push_back(most);
    out.fullest = std::max(out.fullest, most);
  }
  return out;
}

}  // namespace

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
