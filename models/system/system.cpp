#include "models/system/system.h"

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "models/core/errors.h"
#include "models/fabric/switch_core.h"
#include "models/observe/probe.h"

namespace ahbm::models {

namespace {

/// Runs before anything else of a System is built. Passes the configuration through.
const SystemConfig& checked(const sc_core::sc_module& module, const sc_core::sc_module_name& name,
                            const SystemConfig& config) {
  if (sc_core::sc_get_time_resolution() != sc_core::sc_time(1, sc_core::SC_PS)) {
    throw ConfigError(
        fmt::format("the time resolution is {}, but AHBM-VP needs exactly 1 ps (do not call "
                    "sc_set_time_resolution, or call it with 1 ps)",
                    sc_core::sc_get_time_resolution().to_string()));
  }
  const std::string wanted = static_cast<const char*>(name);
  if (wanted != module.basename()) {
    throw std::invalid_argument(fmt::format(
        "a System cannot be named '{}': {}", wanted,
        wanted.find_first_of(". \t\n") != std::string::npos
            ? "a name has no dots and no blanks"
            : fmt::format("the name is taken already (SystemC would call this one '{}')", module.basename())));
  }
  return config;
}

std::string link_name(const SipGraph& graph, SipId from, uint32_t port) {
  const SipGraph::Port& p = graph.ports(from)[port];
  if (p.peer == SipGraph::kSwitchCore) return fmt::format("link_sip{}_switch", value(from));
  if (p.attachment == SipGraph::kNearestAttachment) return fmt::format("link_sip{}_sip{}", value(from), value(p.peer));
  const std::string lane = p.lane == 0 ? "" : fmt::format("_lane{}", p.lane);
  return fmt::format("link_sip{}_{}_sip{}{}", value(from), to_string(p.side), value(p.peer), lane);
}

}  // namespace

System::System(const sc_core::sc_module_name& name, const SystemConfig& config, tl::KernelRegistry& kernels,
               SystemParts parts)
    : sc_core::sc_module(name),
      m_config(checked(*this, name, config)),
      m_kernels(kernels),
      m_parts(std::move(parts)),
      m_wakes(m_config.simulation.pe_quantum),
      m_services{&m_config, &m_kernels, &m_payloads, &m_progress, &m_route_epoch, &m_parts},
      m_plan(m_config),
      host_bridge("host_bridge", m_config),
      sip_rst_n("sip_rst_n", m_config.sips, [](const char* signal_name, size_t) {
        return new sc_core::sc_signal<bool, sc_core::SC_MANY_WRITERS>(signal_name, true);
      }) {
  m_services.faults = &m_faults;
  m_services.wakes = &m_wakes;
  m_services.probes = m_parts.probes;
  if (m_config.simulation.route_grants) host_bridge.grant_routes(&m_route_epoch);
  for (uint32_t s = 0; s < m_config.sips; ++s) {
    const SipId id{s};
    m_sips.push_back(std::make_unique<Sip>(fmt::format("sip{}", s).c_str(), m_services, m_plan, id));
    Sip& sip = *m_sips[id];
    sip.rst_n.bind(sip_rst_n[s]);
    observe::join(m_services.probes, host_bridge.sip_out(id), sip.fabric_router.host_in);
    observe::join(m_services.probes, sip.sip_block.host_out, host_bridge.sip_in(id));
  }
  join_sips();
  for (const Fault& f : m_config.faults) inject(f);
}

System::~System() = default;

void System::join_sips() {
  const SipGraph& graph = m_plan.graph();
  const Framing framing{m_config.noc.packet_bytes, m_config.noc.packet_header_bytes};
  if (m_config.topology == SipTopology::Switch) m_switch = std::make_unique<SwitchCore>("switch_core", m_plan);

  // By sender and port; the core's links come last.
  IdVector<SipId, std::vector<Link*>> from(m_config.sips);
  IdVector<SipId, Link*> down(m_config.sips, nullptr);
  for (uint32_t s = 0; s < m_config.sips; ++s) {
    const auto& ports = graph.ports(SipId{s});
    for (uint32_t p = 0; p < ports.size(); ++p) {
      m_links.push_back(
          std::make_unique<Link>(link_name(graph, SipId{s}, p).c_str(), ports[p].link, framing, m_parts.link));
      Link& link = *m_links.back();
      observe::join(m_services.probes, m_sips[SipId{s}]->fabric_router.link_out(p), link.link_in);
      if (ports[p].peer == SipGraph::kSwitchCore)
        observe::join(m_services.probes, link.link_out, m_switch->sip_in(SipId{s}));
      from[SipId{s}].push_back(&link);
      const bool sided = m_config.topology != SipTopology::FullyConnected && m_config.topology != SipTopology::Switch;
      m_sip_links.push_back(
          {SipId{s}, ports[p].peer, sided ? std::optional<Side>(ports[p].side) : std::nullopt, &link});
    }
  }
  for (uint32_t s = 0; s < m_config.sips; ++s) {
    const SipId to{s};
    const auto& arrivals = m_plan.arrivals(to);
    for (uint32_t a = 0; a < arrivals.size(); ++a) {
      FabricRouter::In& in = m_sips[to]->fabric_router.link_in(a);
      if (arrivals[a].from != SipGraph::kSwitchCore) {
        observe::join(m_services.probes, from[arrivals[a].from][arrivals[a].port]->link_out, in);
        continue;
      }
      m_links.push_back(
          std::make_unique<Link>(fmt::format("link_switch_sip{}", s).c_str(), arrivals[a].link, framing, m_parts.link));
      observe::join(m_services.probes, m_switch->sip_out(to), m_links.back()->link_in);
      observe::join(m_services.probes, m_links.back()->link_out, in);
      down[to] = m_links.back().get();
      m_sip_links.push_back({SipGraph::kSwitchCore, to, std::nullopt, down[to]});
    }
  }
  // The data of reads comes back over the other direction of the same cable.
  for (uint32_t s = 0; s < m_config.sips; ++s) {
    const auto& ports = graph.ports(SipId{s});
    for (uint32_t p = 0; p < ports.size(); ++p) {
      Link* back = nullptr;
      if (ports[p].peer == SipGraph::kSwitchCore) {
        back = down[SipId{s}];
      } else if (ports[p].peer_port != SipGraph::kNoPort) {
        back = from[ports[p].peer][ports[p].peer_port];
      }
      if (back == nullptr) continue;
      from[SipId{s}][p]->set_way_back(*back);
      if (back == down[SipId{s}]) back->set_way_back(*from[SipId{s}][p]);
    }
  }
}

std::vector<Link*> System::links_of(const Fault& f) {
  std::vector<Link*> out;
  if (f.between_cubes) {
    if (value(f.sip) >= m_config.sips) return out;
    Sip& sip = *m_sips[f.sip];
    const auto add = [&](CubeId from, CubeId to) {
      if (value(from) >= m_config.cubes()) return;
      for (const Side side : {Side::N, Side::S, Side::E, Side::W}) {
        if (m_plan.mesh().neighbour(from, side) == to) out.push_back(sip.cube_link(from, side));
      }
    };
    add(f.from_cube, f.to_cube);
    if (f.both_directions) add(f.to_cube, f.from_cube);
    return out;
  }
  for (const SipLink& l : m_sip_links) {
    const bool there = l.from == f.from && l.to == f.to && (!f.side || l.side == f.side);
    // The way back of a cable on a side arrives on the opposite one.
    const bool back = f.both_directions && l.from == f.to && l.to == f.from && (!f.side || l.side == opposite(*f.side));
    if (there || back) out.push_back(l.link);
  }
  return out;
}

size_t System::inject(const Fault& fault) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(fmt::format("fault {}: {}", describe(fault), why));
  };
  std::vector<Link*> links;
  switch (fault.kind) {
    case FaultKind::FailLink:
      links = links_of(fault);
      if (links.empty()) refuse("the machine has no such link");
      break;
    case FaultKind::AddressError:
      if (fault.bytes == 0) refuse("the range is empty");
      if (!m_plan.place(fault.address)) refuse("the range is not in this machine");
      break;
    default:
      if (value(fault.pe.sip) >= m_config.sips || value(fault.pe.cube) >= m_config.cubes() ||
          value(fault.pe.pe) >= m_config.pes) {
        refuse(fmt::format("the machine has {} SIPs of {} cubes of {} PEs", m_config.sips, m_config.cubes(),
                           m_config.pes));
      }
      if (fault.message == 0) refuse("messages are counted from 1");
  }
  const size_t number = m_faults.add(fault);
  for (Link* link : links) link->fail(fault.at, m_faults, number);
  if (!links.empty()) invalidate_routes();
  return number;
}

}  // namespace ahbm::models
