#include "models/core/topology.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>

namespace ahbm {

namespace {

constexpr uint16_t kFar = 0xFFFF;  // 8192 SIPs at most, so no distance comes near

/// Parameters of one direction, or nothing when it is absent. Later overrides win key by key.
struct LinkRules {
  const SystemConfig& config;

  std::optional<LinkParams> resolve(SipId from, std::optional<Side> from_side, SipId to,
                                    std::optional<Side> to_side) const {
    LinkParams link = config.sip_link;
    bool absent = false;
    for (const LinkOverride& o : config.link_overrides) {
      const bool forward = o.from == from && o.to == to && (!o.side || o.side == from_side);
      const bool backward = o.both_directions && o.from == to && o.to == from && (!o.side || o.side == to_side);
      if (!forward && !backward) continue;
      absent = o.absent;
      if (o.bytes_per_second) link.bytes_per_second = *o.bytes_per_second;
      if (o.latency) link.latency = *o.latency;
    }
    if (absent) return std::nullopt;
    return link;
  }
};

constexpr Side kPortOrder[] = {Side::E, Side::W, Side::N, Side::S};

std::vector<uint32_t> attachments_of(const SystemConfig& config, Side side) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < config.sip_ports.size(); ++i) {
    if (config.sip_ports[i].side == side) out.push_back(i);
  }
  return out;
}

uint32_t distance(uint32_t a, uint32_t b) {
  return a < b ? b - a : a - b;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------- GridRoutes

bool GridRoutes::wraps(uint32_t extent) const {
  if (m_topology == SipTopology::Mesh2d) return false;
  return extent > 2 || (extent == 2 && m_double_links);
}

std::optional<SipId> GridRoutes::neighbour(SipId sip, Side side) const {
  const uint32_t x = value(sip) % m_w;
  const uint32_t y = value(sip) / m_w;
  const bool horizontal = side == Side::E || side == Side::W;
  const uint32_t extent = horizontal ? m_w : m_h;
  const uint32_t at = horizontal ? x : y;
  const bool up = side == Side::E || side == Side::S;
  const bool at_edge = up ? at + 1 == extent : at == 0;
  if (extent < 2 || (at_edge && !wraps(extent))) return std::nullopt;
  const uint32_t to = up ? (at + 1) % extent : (at + extent - 1) % extent;
  return horizontal ? SipId{y * m_w + to} : SipId{to * m_w + x};
}

GridRoutes::Axis GridRoutes::axis(uint32_t from, uint32_t to, uint32_t extent) const {
  Axis a;
  a.distance = static_cast<int32_t>(to) - static_cast<int32_t>(from);
  if (!wraps(extent) || a.distance == 0) return a;
  const auto n = static_cast<int32_t>(extent);
  const int32_t up = (a.distance + n) % n;  // steps in the positive direction
  a.tie = up * 2 == n;
  a.distance = up * 2 <= n ? up : up - n;
  return a;
}

std::optional<Side> GridRoutes::next_side(SipId here, SipId dest, std::optional<Side> egress_hint) const {
  const Axis x = axis(value(here) % m_w, value(dest) % m_w, m_w);
  if (x.distance != 0) {
    if (x.tie && egress_hint == Side::W) return Side::W;
    return x.distance > 0 ? Side::E : Side::W;
  }
  const Axis y = axis(value(here) / m_w, value(dest) / m_w, m_h);
  if (y.distance != 0) {
    if (y.tie && egress_hint == Side::N) return Side::N;
    return y.distance > 0 ? Side::S : Side::N;
  }
  return std::nullopt;
}

// --------------------------------------------------------------------------------------------------------- SipGraph

SipGraph::SipGraph(const SystemConfig& config)
    : m_sips(config.sips),
      m_topology(config.topology),
      m_w(config.sip_w),
      m_h(config.sip_h),
      m_routes(config),
      m_ports(config.sips) {
  for (const LinkOverride& o : config.link_overrides) {
    m_irregular = m_irregular || o.absent;
    m_uniform_latency = m_uniform_latency && !o.latency;
  }
  switch (m_topology) {
    case SipTopology::FullyConnected:
      build_full(config);
      break;
    case SipTopology::Switch:
      build_switch(config);
      break;
    default:
      build_grid(config);
  }
}

bool SipGraph::is_grid() const {
  return m_topology != SipTopology::FullyConnected && m_topology != SipTopology::Switch;
}

std::optional<SipId> SipGraph::neighbour(SipId sip, Side side) const {
  for (const Port& p : m_ports[sip]) {
    if (is_grid() && p.side == side) return p.peer;
  }
  return std::nullopt;
}

void SipGraph::build_grid(const SystemConfig& config) {
  const LinkRules rules{config};
  for (uint32_t s = 0; s < m_sips; ++s) {
    for (const Side side : kPortOrder) {
      const auto peer = m_routes.neighbour(SipId{s}, side);
      if (!peer) continue;
      const auto link = rules.resolve(SipId{s}, side, *peer, opposite(side));
      if (!link) continue;
      const std::vector<uint32_t> attachments = attachments_of(config, side);
      for (uint32_t lane = 0; lane < attachments.size(); ++lane) {
        Port p;
        p.side = side;
        p.lane = lane;
        p.peer = *peer;
        p.peer_side = opposite(side);
        p.attachment = attachments[lane];
        p.link = *link;
        m_ports[SipId{s}].push_back(p);
      }
    }
  }
  // The index of the port at the other end. When only this direction exists, there is none: the receiving end is then
  // known by its side and lane alone.
  for (uint32_t s = 0; s < m_sips; ++s) {
    for (Port& p : m_ports[SipId{s}]) {
      const std::vector<Port>& theirs = m_ports[p.peer];
      const auto it = std::find_if(theirs.begin(), theirs.end(),
                                   [&](const Port& q) { return q.side == p.peer_side && q.lane == p.lane; });
      p.peer_port = it == theirs.end() ? kNoPort : static_cast<uint32_t>(it - theirs.begin());
    }
  }
}

void SipGraph::build_full(const SystemConfig& config) {
  const LinkRules rules{config};
  for (uint32_t s = 0; s < m_sips; ++s) {
    auto& ports = m_ports[SipId{s}];
    ports.reserve(m_sips - 1);
    for (uint32_t d = 0; d < m_sips; ++d) {
      if (d == s) continue;
      const auto link = config.link_overrides.empty() ? std::optional<LinkParams>(config.sip_link)
                                                      : rules.resolve(SipId{s}, std::nullopt, SipId{d}, std::nullopt);
      if (!link) continue;
      Port p;
      p.peer = SipId{d};
      p.link = *link;
      ports.push_back(p);
    }
  }
  for (uint32_t s = 0; s < m_sips; ++s) {
    for (Port& p : m_ports[SipId{s}]) {
      const auto& theirs = m_ports[p.peer];
      const auto it = std::lower_bound(theirs.begin(), theirs.end(), s,
                                       [](const Port& q, uint32_t sip) { return value(q.peer) < sip; });
      const bool found = it != theirs.end() && value(it->peer) == s;
      p.peer_port = found ? static_cast<uint32_t>(it - theirs.begin()) : kNoPort;
    }
  }
}

void SipGraph::build_switch(const SystemConfig& config) {
  const LinkRules rules{config};
  m_downlinks.assign(m_sips, LinkParams{});
  for (uint32_t s = 0; s < m_sips; ++s) {
    if (const auto up = rules.resolve(SipId{s}, std::nullopt, kSwitchCore, std::nullopt)) {
      Port p;
      p.peer = kSwitchCore;
      p.peer_port = s;
      p.link = *up;
      m_ports[SipId{s}].push_back(p);
    }
    if (const auto down = rules.resolve(kSwitchCore, std::nullopt, SipId{s}, std::nullopt)) m_downlinks[s] = *down;
  }
}

std::optional<uint32_t> SipGraph::port_on(SipId sip, Side side, uint32_t lane) const {
  if (!is_grid()) return std::nullopt;
  const auto& ports = m_ports[sip];
  uint32_t first = 0;
  uint32_t count = 0;
  for (uint32_t i = 0; i < ports.size(); ++i) {
    if (ports[i].side != side) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return std::nullopt;
  return first + lane % count;
}

const std::vector<uint16_t>& SipGraph::distances_to(SipId dest) const {
  if (m_distances.empty()) m_distances.resize(m_sips);
  std::vector<uint16_t>& dist = m_distances[value(dest)];
  if (!dist.empty()) return dist;
  // Breadth first over the reversed links. Reversing costs one pass, which only machines with absent links pay.
  std::vector<std::vector<uint32_t>> sources(m_sips);
  for (uint32_t s = 0; s < m_sips; ++s) {
    for (const Port& p : m_ports[SipId{s}]) sources[value(p.peer)].push_back(s);
  }
  dist.assign(m_sips, kFar);
  dist[value(dest)] = 0;
  std::queue<uint32_t> todo;
  todo.push(value(dest));
  while (!todo.empty()) {
    const uint32_t at = todo.front();
    todo.pop();
    for (const uint32_t s : sources[at]) {
      if (dist[s] != kFar) continue;
      dist[s] = static_cast<uint16_t>(dist[at] + 1);
      todo.push(s);
    }
  }
  return dist;
}

std::optional<uint32_t> SipGraph::next_port(SipId here, SipId dest, std::optional<Side> egress_hint,
                                            uint32_t lane) const {
  if (here == dest) return std::nullopt;
  const auto& ports = m_ports[here];
  if (m_topology == SipTopology::Switch) {
    const bool down = m_downlinks[value(dest)].bytes_per_second != 0;
    return ports.empty() || !down ? std::nullopt : std::optional<uint32_t>(0);
  }
  if (!m_irregular) {
    if (m_topology == SipTopology::FullyConnected) return value(dest) < value(here) ? value(dest) : value(dest) - 1;
    const auto side = m_routes.next_side(here, dest, egress_hint);
    return side ? port_on(here, *side, lane) : std::nullopt;
  }

  const std::vector<uint16_t>& dist = distances_to(dest);
  if (dist[value(here)] == kFar) return std::nullopt;
  const auto nearer = [&](const Port& p) { return dist[value(p.peer)] + 1 == dist[value(here)]; };
  const auto first = std::find_if(ports.begin(), ports.end(), nearer);
  if (!is_grid()) return static_cast<uint32_t>(first - ports.begin());
  for (const auto& wanted : {egress_hint, m_routes.next_side(here, dest, egress_hint)}) {
    if (!wanted) continue;
    const auto port = port_on(here, *wanted, lane);
    if (port && nearer(ports[*port])) return port;
  }
  return port_on(here, first->side, lane);
}

std::vector<SipId> SipGraph::path(SipId from, SipId to, std::optional<Side> egress_hint) const {
  std::vector<SipId> out{from};
  while (out.back() != to) {
    const auto port = next_port(out.back(), to, egress_hint);
    if (!port) throw std::runtime_error(fmt::format("no way from sip {} to sip {}", value(from), value(to)));
    const SipId peer = m_ports[out.back()][*port].peer;
    out.push_back(peer == kSwitchCore ? to : peer);
  }
  return out;
}

uint32_t SipGraph::hops(SipId from, SipId to) const {
  const auto links = static_cast<uint32_t>(path(from, to).size() - 1);
  return m_topology == SipTopology::Switch ? links * 2 : links;
}

std::vector<std::pair<SipId, SipId>> SipGraph::unreachable() const {
  std::vector<std::pair<SipId, SipId>> out;
  if (m_sips < 2 || !m_irregular) return out;
  if (m_topology == SipTopology::Switch) {
    for (uint32_t s = 0; s < m_sips; ++s) {
      const SipId other{s == 0 ? 1u : 0u};
      if (m_ports[SipId{s}].empty()) {
        out.emplace_back(SipId{s}, other);
      } else if (m_downlinks[s].bytes_per_second == 0) {
        out.emplace_back(other, SipId{s});
      }
    }
    return out;
  }
  // Every SIP reaches every other exactly when all reach SIP 0 and SIP 0 reaches all.
  const std::vector<uint16_t>& to_zero = distances_to(SipId{0});
  std::vector<bool> seen(m_sips, false);
  std::vector<uint32_t> todo{0};
  seen[0] = true;
  while (!todo.empty()) {
    const uint32_t at = todo.back();
    todo.pop_back();
    for (const Port& p : m_ports[SipId{at}]) {
      if (!seen[value(p.peer)]) {
        seen[value(p.peer)] = true;
        todo.push_back(value(p.peer));
      }
    }
  }
  for (uint32_t s = 1; s < m_sips; ++s) {
    if (to_zero[s] == kFar) {
      out.emplace_back(SipId{s}, SipId{0});
    } else if (!seen[s]) {
      out.emplace_back(SipId{0}, SipId{s});
    }
  }
  return out;
}

uint32_t SipGraph::diameter_hops() const {
  if (m_sips < 2) return 0;
  if (m_topology == SipTopology::Switch) return 2;
  if (!m_irregular) {
    if (m_topology == SipTopology::FullyConnected) return 1;
    const auto longest = [this](uint32_t extent) { return m_routes.wraps(extent) ? extent / 2 : extent - 1; };
    return longest(m_w) + longest(m_h);
  }
  uint32_t diameter = 0;
  for (uint32_t d = 0; d < m_sips; ++d) {
    for (const uint16_t hop_count : distances_to(SipId{d})) {
      if (hop_count != kFar) diameter = std::max<uint32_t>(diameter, hop_count);
    }
  }
  return diameter;
}

std::vector<Ps> SipGraph::latencies_from(SipId from) const {
  std::vector<Ps> best(m_sips, std::numeric_limits<Ps>::max());
  using Entry = std::pair<Ps, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> todo;
  best[value(from)] = 0;
  todo.emplace(0, value(from));
  while (!todo.empty()) {
    const auto [at_latency, at] = todo.top();
    todo.pop();
    if (at_latency != best[at]) continue;
    for (const Port& p : m_ports[SipId{at}]) {
      const auto relax = [&, base = at_latency](uint32_t to, Ps latency) {
        if (base + latency >= best[to]) return;
        best[to] = base + latency;
        todo.emplace(best[to], to);
      };
      if (p.peer != kSwitchCore) {
        relax(value(p.peer), p.link.latency);
      } else if (at == value(from)) {
        for (uint32_t d = 0; d < m_sips; ++d) {
          if (m_downlinks[d].bytes_per_second != 0) relax(d, p.link.latency + m_downlinks[d].latency);
        }
      }
    }
  }
  return best;
}

Ps SipGraph::diameter_latency(const std::vector<SipId>& group) const {
  if (group.size() < 2) return 0;
  const bool whole_machine = group.size() == m_sips;
  if (whole_machine && m_uniform_latency && !m_irregular) {
    const auto& ports = m_ports[SipId{0}];
    return ports.empty() ? 0 : diameter_hops() * ports[0].link.latency;
  }
  Ps diameter = 0;
  for (const SipId from : group) {
    const std::vector<Ps> best = latencies_from(from);
    for (const SipId to : group) {
      if (best[value(to)] != std::numeric_limits<Ps>::max()) diameter = std::max(diameter, best[value(to)]);
    }
  }
  return diameter;
}

std::vector<SipGraph::DirectedLink> SipGraph::directed_links() const {
  std::vector<DirectedLink> out;
  for (uint32_t s = 0; s < m_sips; ++s) {
    const auto& ports = m_ports[SipId{s}];
    for (uint32_t i = 0; i < ports.size(); ++i) out.push_back({SipId{s}, ports[i].peer, i, ports[i].link});
  }
  for (uint32_t s = 0; s < m_downlinks.size(); ++s) {
    if (m_downlinks[s].bytes_per_second != 0) out.push_back({kSwitchCore, SipId{s}, s, m_downlinks[s]});
  }
  return out;
}

Ps SipGraph::all_reduce_bound(uint64_t bytes) const {
  std::vector<SipId> all(m_sips);
  for (uint32_t s = 0; s < m_sips; ++s) all[s] = SipId{s};
  return all_reduce_bound(bytes, all);
}

Ps SipGraph::all_reduce_bound(uint64_t bytes, const std::vector<SipId>& group) const {
  if (group.size() < 2 || bytes == 0) return 0;
  Uint128 total = 0;
  IdVector<SipId, Uint128> out_of(m_sips, 0);
  IdVector<SipId, Uint128> into(m_sips, 0);
  for (const DirectedLink& l : directed_links()) {
    if (l.from != kSwitchCore) {
      total += l.link.bytes_per_second;
      out_of[l.from] += l.link.bytes_per_second;
    }
    if (l.to != kSwitchCore) into[l.to] += l.link.bytes_per_second;
  }
  Uint128 poorest = std::min(out_of[group[0]], into[group[0]]);
  for (const SipId s : group) poorest = std::min({poorest, out_of[s], into[s]});
  if (total == 0 || poorest == 0) return 0;  // a group that cannot talk at all; loading refuses it
  const Uint128 picoseconds = static_cast<Uint128>(bytes) * 1000000000000u;
  const auto by_total = static_cast<Ps>(picoseconds * 2 * (group.size() - 1) / total);
  const auto by_poorest = static_cast<Ps>(picoseconds / poorest);
  return std::max({by_total, by_poorest, diameter_latency(group)});
}

// --------------------------------------------------------------------------------------------------------- CubeMesh

CubeMesh::CubeMesh(const SystemConfig& config)
    : m_w(config.cube_w), m_h(config.cube_h), m_attachments(config.sip_ports) {}

std::optional<CubeId> CubeMesh::neighbour(CubeId cube, Side side) const {
  const uint32_t x = value(cube) % m_w;
  const uint32_t y = value(cube) / m_w;
  switch (side) {
    case Side::N:
      return y == 0 ? std::nullopt : std::optional<CubeId>(CubeId{value(cube) - m_w});
    case Side::S:
      return y + 1 == m_h ? std::nullopt : std::optional<CubeId>(CubeId{value(cube) + m_w});
    case Side::E:
      return x + 1 == m_w ? std::nullopt : std::optional<CubeId>(CubeId{value(cube) + 1});
    default:
      return x == 0 ? std::nullopt : std::optional<CubeId>(CubeId{value(cube) - 1});
  }
}

std::optional<Side> CubeMesh::next_side(CubeId here, CubeId dest) const {
  const uint32_t x = value(here) % m_w;
  const uint32_t to_x = value(dest) % m_w;
  if (x != to_x) return to_x > x ? Side::E : Side::W;
  const uint32_t y = value(here) / m_w;
  const uint32_t to_y = value(dest) / m_w;
  if (y != to_y) return to_y > y ? Side::S : Side::N;
  return std::nullopt;
}

CubeId CubeMesh::next_cube(CubeId here, CubeId dest) const {
  const auto side = next_side(here, dest);
  return side ? *neighbour(here, *side) : dest;
}

uint32_t CubeMesh::hops(CubeId from, CubeId to) const {
  return distance(value(from) % m_w, value(to) % m_w) + distance(value(from) / m_w, value(to) / m_w);
}

uint32_t CubeMesh::nearest_attachment(CubeId cube) const {
  uint32_t best = 0;
  for (uint32_t i = 1; i < m_attachments.size(); ++i) {
    if (hops(cube, m_attachments[i].cube) < hops(cube, m_attachments[best].cube)) best = i;
  }
  return best;
}

std::optional<uint32_t> CubeMesh::attachment_on(Side side, CubeId cube) const {
  std::optional<uint32_t> best;
  for (uint32_t i = 0; i < m_attachments.size(); ++i) {
    if (m_attachments[i].side != side) continue;
    if (!best || hops(cube, m_attachments[i].cube) < hops(cube, m_attachments[*best].cube)) best = i;
  }
  return best;
}

uint32_t CubeMesh::lane_of(uint32_t attachment) const {
  uint32_t lane = 0;
  for (uint32_t i = 0; i < attachment; ++i) lane += m_attachments[i].side == m_attachments[attachment].side;
  return lane;
}

}  // namespace ahbm
