#include "ccl/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "ccl/detours.h"
#include "models/core/ipcq_protocol.h"
#include "models/core/topology.h"

namespace ahbm::ccl {
namespace {

/// What new connections shrink to before anything is refused.
constexpr RingShape kShrunk{2, 1 << 10};

double seconds_of(Ps t) {
  return static_cast<double>(t) * 1e-12;
}

/// The slowest link between two members of the group, or between one and a switch.
LinkParams slowest_link(const SystemConfig& config, const Group& group) {
  LinkParams out = config.sip_link;
  if (config.link_overrides.empty() || !group.pes.empty()) return out;
  std::vector<bool> member(config.sips);
  for (const SipId s : group.sips) member.at(value(s)) = true;
  const auto inside = [&](SipId s) { return s == SipGraph::kSwitchCore || member.at(value(s)); };
  for (const auto& link : SipGraph(config).directed_links()) {
    if (!inside(link.from) || !inside(link.to) || link.link.bytes_per_second == 0) continue;
    out.bytes_per_second = std::min(out.bytes_per_second, link.link.bytes_per_second);
    out.latency = std::max(out.latency, link.link.latency);
  }
  return out;
}

/// Where every cube uses the attachment that is nearest to it, its lane shares cube links and that attachment with
/// other lanes: what all lanes together get when all send, or receive, at once. 0: no limit.
double mesh_bandwidth(const SystemConfig& config, const Group& group, uint32_t lanes) {
  const bool nearest = group.topology == SipTopology::FullyConnected || group.topology == SipTopology::Switch;
  if (!nearest || !group.pes.empty() || config.sip_ports.empty() || lanes > config.cubes()) return 0;
  const CubeMesh mesh(config);
  uint32_t fullest = 0;
  const auto count = [&](std::map<std::pair<CubeId, CubeId>, uint32_t>& load, CubeId from, CubeId to) {
    for (CubeId at = from; at != to;) {
      const CubeId next = mesh.next_cube(at, to);
      fullest = std::max(fullest, ++load[{at, next}]);
      at = next;
    }
  };
  std::map<std::pair<CubeId, CubeId>, uint32_t> out, in;
  std::vector<uint32_t> attached(mesh.attachments().size());
  for (uint32_t c = 0; c < lanes; ++c) {
    const uint32_t attachment = mesh.nearest_attachment(CubeId{c});
    fullest = std::max(fullest, ++attached[attachment]);
    count(out, CubeId{c}, mesh.attachments()[attachment].cube);
    count(in, mesh.attachments()[attachment].cube, CubeId{c});
  }
  return static_cast<double>(config.noc.cube_link.bytes_per_second) * lanes / fullest;
}

/// Largest number of queue pairs that a module needs on one PE. Lanes are alike.
uint32_t queue_pairs_per_pe(const AlgorithmModule& module, const Group& group, const CollectiveShape& shape) {
  std::vector<uint32_t> ends(size_t{group.size()} * group.n_cubes);
  const auto end = [&](uint32_t rank, uint32_t cube) -> uint32_t& {
    return ends.at(size_t{rank} * group.n_cubes + cube);
  };
  uint32_t most = 0;
  for (const Connection& c : connections_of(module, group, shape)) {
    most = std::max({most, ++end(c.rank, c.cube), ++end(c.peer_rank, c.peer_cube)});
  }
  return most;
}

struct Added {
  double load = 1;    ///< of the fullest link
  uint32_t hops = 0;  ///< that the longest detour adds
};
/// What all of a module's connections, at work at once and alike, meet where links are absent.
Added added_by(const Detours& detours, const AlgorithmModule& m, const Group& group, const CollectiveShape& shape) {
  std::vector<Connection> lane;  // all are alike
  for (const Connection& c : m.connections(group, shape)) {
    if (c.rank != c.peer_rank && c.cube == 0) lane.push_back(c);
  }
  const std::vector<Flow> flows = flows_along(group, lane, !m.traffic.one_way);
  const Detours::Ways now = detours.of(flows), before = detours.on_whole_fabric(flows);
  Added out;
  for (size_t i = 0; i < flows.size(); ++i) {
    if (now.links[i] > before.links[i]) out.hops = std::max(out.hops, now.links[i] - before.links[i]);
  }
  if (!m.traffic.in_turn && before.fullest > 0) out.load = std::max(1.0, now.fullest / before.fullest);
  return out;
}

/// \param detours  null where every connection is one hop on a link
double seconds_of(const AlgorithmModule& m, const Group& group, const CollectiveShape& shape, CostQuery q,
                  const Detours* detours) {
  if (detours == nullptr) return m.time(q);
  q.detours = detours;
  if (m.traffic.asks) return m.time(q);
  const Added added = added_by(*detours, m, group, shape);
  q.bandwidth /= added.load;
  return m.time(q) + m.traffic.passes * added.hops * q.hop_latency;
}

bool has_room(const SystemConfig& config, uint32_t pairs, const RingShape& ring) {
  return uint64_t{pairs} * ring.n_slots * ring.slot_bytes <= config.ipcq.ring_bytes;
}

/// What the queues of so many connections on a PE are like.
const RingShape& queues_of(const SystemConfig& config, uint32_t pairs) {
  return has_room(config, pairs, config.ipcq.sip) ? config.ipcq.sip : kShrunk;
}

std::string why_not(const AlgorithmModule& m, const Group& group, const CollectiveShape& shape) {
  if (m.layouts.count(shape.layout) == 0) {
    return fmt::format("{} runs on {} tensors only", m.name, to_string(*m.layouts.begin()));
  }
  if (m.dtypes.count(shape.dtype) == 0) return fmt::format("{} does not know {}", m.name, to_string(shape.dtype));
  if (reduces(m.collective) && (m.ops.count(shape.op) == 0 || !can_reduce(shape.op, shape.dtype))) {
    return fmt::format("{} does not know {} of {}", m.name, to_string(shape.op), to_string(shape.dtype));
  }
  return m.refusal(group);
}

Candidate candidate(const AlgorithmModule& m, const Group& group, const CollectiveShape& shape, double bytes,
                    const SystemConfig& config, const Detours* detours) {
  Candidate out{&m, 0, why_not(m, group, shape)};
  if (!out.refusal.empty()) return out;
  const uint32_t pairs = queue_pairs_per_pe(m, group, shape);
  if (pairs > config.ipcq.queue_pairs || !has_room(config, pairs, kShrunk)) {
    out.refusal = fmt::format("{} needs {} queue pairs on a PE, which has {} and {} bytes of rings", m.name, pairs,
                              config.ipcq.queue_pairs, config.ipcq.ring_bytes);
    return out;
  }
  out.seconds =
      seconds_of(m, group, shape, platform_figures(config, group, shape, bytes, queues_of(config, pairs)), detours);
  return out;
}

/// Those that fit first.
void fastest_first(std::vector<Candidate>& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    return a.refusal.empty() && a.seconds < b.seconds;
  });
}

}  // namespace

CostQuery platform_figures(const SystemConfig& config, const Group& group, const CollectiveShape& shape, double bytes,
                           const RingShape& ring) {
  CostQuery q;
  q.ranks = group.size();
  q.bytes = bytes;
  q.group = &group;
  q.layout = shape.layout;
  q.root = shape.root;
  q.cube_latency = seconds_of(config.noc.cube_link.latency);
  q.cube_bandwidth = static_cast<double>(config.noc.cube_link.bytes_per_second);

  const double lanes = std::max(1u, shape.layout == CubeLayout::Partial ? 1 : group.n_cubes);
  const uint32_t capacity = ring.slot_bytes > ipcq::kHeaderBytes ? ipcq::payload_capacity(ring.slot_bytes) : 1;
  q.message_bytes = shape.message_bytes != 0 ? std::min(shape.message_bytes, capacity) : capacity;
  const double slot = q.message_bytes + (config.ipcq.header_on_wire ? ipcq::kHeaderBytes : 0);
  const double packets = std::ceil(slot / config.noc.packet_bytes);
  const double wire = slot + packets * config.noc.packet_header_bytes;

  const LinkParams link = slowest_link(config, group);
  const auto link_rate = static_cast<double>(link.bytes_per_second);
  // From the cubes' PEs to the port and back: half of the mesh on either side.
  const double mesh = (config.cube_w + config.cube_h) / 2.0 * q.cube_latency * (lanes > 1 ? 1 : 0.5);
  const double ends = seconds_of(config.pe.dma_setup + 2 * config.noc.crossbar.latency + config.pe.tcm_latency +
                                 config.ipcq.notify_latency);
  // Through a switch a message takes a link up and one down.
  const Ps way = (group.topology == SipTopology::Switch ? 2 : 1) * link.latency;
  q.latency = seconds_of(way) + mesh + ends;

  const double round_trip = 2 * seconds_of(way) + 2 * mesh + ends + wire / link_rate;
  const double credits = lanes * ring.n_slots * q.message_bytes / round_trip;
  q.wire_bandwidth = link_rate * q.message_bytes / wire;
  q.bandwidth = std::min(q.wire_bandwidth, credits);

  double node = static_cast<double>(config.pe.dma_bytes_per_second);
  if (!config.pe.free_compute) {
    const double vector = static_cast<double>(config.pe.hertz) * config.pe.vector_lanes * item_bytes(shape.dtype);
    node = std::min(node, vector);
  }
  q.node_bandwidth = lanes * node;
  q.mesh_bandwidth = mesh_bandwidth(config, group, static_cast<uint32_t>(lanes)) * q.message_bytes / wire;
  q.lanes = lanes;
  q.slots = ring.n_slots;
  q.hop_latency = seconds_of(link.latency);
  q.byte_seconds = 2.0 / static_cast<double>(config.pe.dma_bytes_per_second) + (config.pe.free_compute ? 0 : 1 / node);
  q.memory_latency = 2 * seconds_of(config.hbm.latency + config.pe.dma_setup);
  return q;
}

CostQuery platform_figures(const SystemConfig& config, const Group& group, const CollectiveShape& shape, double bytes) {
  return platform_figures(config, group, shape, bytes, config.ipcq.sip);
}

double closed_form(const AlgorithmModule& module, const SystemConfig& config, const Group& group,
                   const CollectiveShape& shape, double bytes) {
  const RingShape& queues = queues_of(config, queue_pairs_per_pe(module, group, shape));
  const CostQuery q = platform_figures(config, group, shape, bytes, queues);
  if (!Detours::possible(config, group)) return module.time(q);
  const Detours detours(config);
  return seconds_of(module, group, shape, q, &detours);
}

const std::vector<Candidate>* SelectionMemo::find(Collective collective, const Group& group,
                                                  const CollectiveShape& shape, double bytes, bool all) const {
  for (const Call& c : m_calls) {
    if (c.collective == collective && c.bytes == bytes && c.all == all && c.shape == shape && c.group == group) {
      return &c.candidates;
    }
  }
  return nullptr;
}

void SelectionMemo::keep(Collective collective, const Group& group, const CollectiveShape& shape, double bytes,
                         bool all, std::vector<Candidate> candidates) {
  Call call{collective, group, shape, bytes, all, std::move(candidates)};
  if (m_calls.size() < kCalls) {
    m_calls.push_back(std::move(call));
    return;
  }
  m_calls[m_oldest] = std::move(call);
  m_oldest = (m_oldest + 1) % kCalls;
}

Selection select_algorithm(const Registry& registry, Collective collective, const Group& group,
                           const CollectiveShape& shape, double bytes, const SystemConfig& config,
                           const std::set<const AlgorithmModule*>& preferred, const RoomFor& no_room,
                           SelectionMemo* memo) {
  Selection out;
  std::string lack;
  std::optional<Detours> detours;
  const auto candidates_of = [&](bool all) {
    if (memo != nullptr) {
      if (const std::vector<Candidate>* known = memo->find(collective, group, shape, bytes, all)) return *known;
    }
    if (!detours && Detours::possible(config, group)) detours.emplace(config);
    std::vector<Candidate> found;
    for (const auto& [name, m] : registry.modules()) {
      if (m.collective != collective || (preferred.count(&m) != 0) == all) continue;
      found.push_back(candidate(m, group, shape, bytes, config, detours ? &*detours : nullptr));
    }
    if (memo != nullptr) memo->keep(collective, group, shape, bytes, all, found);
    return found;
  };
  for (const bool all : {false, true}) {
    for (Candidate& c : candidates_of(all)) out.candidates.push_back(std::move(c));
    fastest_first(out.candidates);
    while (no_room && !out.candidates.empty() && out.candidates[0].refusal.empty()) {
      Candidate& best = out.candidates[0];
      const std::string why = no_room(*best.module);
      if (why.empty()) break;
      best.refusal = fmt::format("{} has no room: {}", best.module->name, why);
      out.no_room.push_back(best.module->name);
      if (lack.empty()) lack = why;
      fastest_first(out.candidates);
    }
    if (!out.candidates.empty() && out.candidates[0].refusal.empty()) break;
  }
  const std::string what = fmt::format("{} of {:.0f} bytes on {} ranks of a {}", to_string(collective), bytes,
                                       group.size(), to_string(group.topology));
  const std::string no_room_for = fmt::format("no room for {}: {}", fmt::join(out.no_room, ", "), lack);
  if (out.candidates.empty() || !out.candidates[0].refusal.empty()) {
    if (!out.no_room.empty()) {
      out.text = fmt::format("no algorithm does {}; {}", what, no_room_for);
      return out;
    }
    out.text = fmt::format("no algorithm does {}", what);
    for (const Candidate& c : out.candidates) out.text += fmt::format("; {}", c.refusal);
    return out;
  }
  const Candidate& best = out.candidates[0];
  out.module = best.module;
  out.text = fmt::format("{} for {}: {:.3f} us", best.module->name, what, best.seconds * 1e6);
  if (out.candidates.size() > 1 && out.candidates[1].refusal.empty()) {
    out.text += fmt::format("; next: {}, {:.3f} us", out.candidates[1].module->name, out.candidates[1].seconds * 1e6);
  }
  if (!out.no_room.empty()) out.text += "; " + no_room_for;
  return out;
}

std::string refusal_of(const Registry& registry, const AlgorithmModule& module, const Group& group,
                       const CollectiveShape& shape, const SystemConfig& config) {
  const Candidate asked = candidate(module, group, shape, 0, config, nullptr);
  if (asked.refusal.empty()) return {};
  std::vector<std::string> fitting;
  for (const auto& [name, m] : registry.modules()) {
    if (m.collective != module.collective || &m == &module) continue;
    if (candidate(m, group, shape, 0, config, nullptr).refusal.empty()) fitting.push_back(name);
  }
  return fmt::format("{} cannot run here: {}; algorithms that fit: {}", module.name, asked.refusal,
                     fitting.empty() ? "none" : fmt::format("{}", fmt::join(fitting, ", ")));
}

}  // namespace ahbm::ccl
