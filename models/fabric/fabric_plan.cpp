#include "models/fabric/fabric_plan.h"

namespace ahbm::models {

FabricPlan::FabricPlan(const SystemConfig& config)
    : m_graph(config), m_mesh(config), m_shape(config.map_shape()), m_arrivals(config.sips) {
  const uint32_t cubes = m_mesh.cubes();
  m_nearest.reserve(cubes);
  for (uint32_t c = 0; c < cubes; ++c) m_nearest.push_back(m_mesh.nearest_attachment(CubeId{c}));
  m_on_side.reserve(size_t{4} * cubes);
  for (const Side side : {Side::N, Side::S, Side::E, Side::W}) {
    for (uint32_t c = 0; c < cubes; ++c) m_on_side.push_back(m_mesh.attachment_on(side, CubeId{c}));
  }
  for (uint32_t s = 0; s < m_graph.sips(); ++s) {
    const auto& ports = m_graph.ports(SipId{s});
    for (uint32_t p = 0; p < ports.size(); ++p) {
      if (ports[p].peer == SipGraph::kSwitchCore) continue;
      m_arrivals[ports[p].peer].push_back({SipId{s}, p, from_link(ports[p]), ports[p].link});
    }
  }
  for (uint32_t s = 0; s < m_graph.switch_downlinks().size(); ++s) {
    const LinkParams& down = m_graph.switch_downlinks()[s];
    if (down.bytes_per_second != 0) m_arrivals[SipId{s}].push_back({SipGraph::kSwitchCore, s, {}, down});
  }
}

MeshStep FabricPlan::mesh_step(SipId sip, CubeId here, Addr address, const Transit& t) const {
  const auto to = place(address);
  if (!to) return {};
  CubeId towards{to->cube};
  std::optional<uint32_t> exit;
  if (to->sip != sip) {
    const auto port = m_graph.next_port(sip, to->sip, hint(t));
    if (!port) return {};
    const SipGraph::Port& p = m_graph.ports(sip)[*port];
    exit = p.attachment == SipGraph::kNearestAttachment
               ? m_nearest[value(here)]
               : m_on_side[static_cast<size_t>(p.side) * m_mesh.cubes() + value(here)];
  } else if (to->cube == addr::kSipBlock) {
    exit = m_nearest[value(here)];
  }
  if (exit) towards = m_mesh.attachments()[*exit].cube;
  const auto side = m_mesh.next_side(here, towards);
  if (side) return {MeshStep::To::Neighbour, *side, 0};
  if (exit) return {MeshStep::To::Fabric, {}, *exit};
  return {MeshStep::To::Local, {}, 0};
}

FabricStep FabricPlan::fabric_step(SipId sip, const FabricEntry& from, Addr address, const Transit& t) const {
  const auto to = place(address);
  if (!to) return {};
  if (to->sip != sip) {
    const auto port = m_graph.next_port(sip, to->sip, hint(t), from.lane);
    if (!port) return {};
    return {FabricStep::To::Link, *port};
  }
  if (to->cube == addr::kSipBlock) return {FabricStep::To::SipBlock, 0};
  return {FabricStep::To::Mesh,
          from.attachment == SipGraph::kNearestAttachment ? m_nearest[to->cube] : from.attachment};
}

FabricEntry FabricPlan::from_link(const SipGraph::Port& port) const {
  if (port.attachment == SipGraph::kNearestAttachment) return {SipGraph::kNearestAttachment, port.lane};
  uint32_t lanes = 0;
  const auto& attachments = m_mesh.attachments();
  for (uint32_t a = 0; a < attachments.size(); ++a) {
    if (attachments[a].side == port.peer_side && lanes++ == port.lane) return {a, port.lane};
  }
  // The far side has fewer cables than this one: what arrives there without a port enters nearest to its cube.
  return {SipGraph::kNearestAttachment, port.lane};
}

}  // namespace ahbm::models
