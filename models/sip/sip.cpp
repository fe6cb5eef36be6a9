#include "models/sip/sip.h"

#include <fmt/core.h>

#include "models/observe/probe.h"

namespace ahbm::models {

namespace {
std::unique_ptr<RouterPart> make_router(const char* name, const SystemServices& services, const FabricPlan& plan,
                                        SipId sip, CubeId cube) {
  std::unique_ptr<RouterPart> own;
  if (services.parts != nullptr && services.parts->router) own = services.parts->router(name, sip, cube, plan);
  return own != nullptr ? std::move(own) : std::make_unique<Router>(name, plan, sip, cube);
}

LinkFactory own_links(const SystemServices& services) {
  return services.parts != nullptr ? services.parts->link : LinkFactory{};
}
}  // namespace

Sip::Sip(const sc_core::sc_module_name& name, const SystemServices& services, const FabricPlan& plan, SipId id)
    : sc_core::sc_module(name),
      rst_n("rst_n"),
      fabric_router("fabric_router", *services.config, plan, id),
      sip_block("sip_block", services, id),
      cube_irq("cube_irq", services.config->cubes()),
      m_id(id) {
  const SystemConfig& config = *services.config;
  observe::join(services.probes, fabric_router.block_out, sip_block.fabric_in);
  observe::join(services.probes, sip_block.fabric_out, fabric_router.block_in);
  sip_block.rst_n.bind(rst_n);
  for (uint32_t c = 0; c < config.cubes(); ++c) {
    const CubeId cube_id{c};
    m_cubes.push_back(std::make_unique<Cube>(fmt::format("cube{}", c).c_str(), services, plan, id, cube_id));
    m_routers.push_back(make_router(fmt::format("router{}", c).c_str(), services, plan, id, cube_id));
    Cube& cube = *m_cubes[cube_id];
    cube.rst_n.bind(rst_n);
    cube.irq_out.bind(cube_irq[c]);
    observe::join(services.probes, cube.crossbar.mesh_out, m_routers[cube_id]->cube_in());
    observe::join(services.probes, m_routers[cube_id]->cube_out(), cube.crossbar.mesh_in);
  }
  join_cubes(services, plan);
  join_ports(services, plan);
}

Sip::~Sip() = default;

void Sip::join_cubes(const SystemServices& services, const FabricPlan& plan) {
  const SystemConfig& config = *services.config;
  const Framing framing{config.noc.packet_bytes, config.noc.packet_header_bytes};
  const LinkFactory own = own_links(services);
  m_cube_links.resize(config.cubes());
  for (uint32_t c = 0; c < config.cubes(); ++c) {
    for (const Side side : {Side::N, Side::S, Side::E, Side::W}) {
      const auto peer = plan.mesh().neighbour(CubeId{c}, side);
      if (!peer) continue;
      auto link = std::make_unique<Link>(fmt::format("link_cube{}_cube{}", c, value(*peer)).c_str(),
                                         config.noc.cube_link, framing, own);
      observe::join(services.probes, m_routers[CubeId{c}]->side_out(side), link->link_in);
      observe::join(services.probes, link->link_out, m_routers[*peer]->side_in(opposite(side)));
      m_cube_links[CubeId{c}][static_cast<size_t>(side)] = std::move(link);
    }
  }
  for (uint32_t c = 0; c < config.cubes(); ++c) {
    for (const Side side : {Side::E, Side::S}) {
      const auto peer = plan.mesh().neighbour(CubeId{c}, side);
      if (peer) join_directions(*cube_link(CubeId{c}, side), *cube_link(*peer, opposite(side)));
    }
  }
}

void Sip::join_ports(const SystemServices& services, const FabricPlan& plan) {
  const SystemConfig& config = *services.config;
  const Framing framing{config.noc.packet_bytes, config.noc.packet_header_bytes};
  const LinkParams port{config.noc.cube_link.bytes_per_second, 0};
  const LinkFactory own = own_links(services);
  const auto& attachments = plan.mesh().attachments();
  for (uint32_t a = 0; a < attachments.size(); ++a) {
    RouterPart& router = *m_routers[attachments[a].cube];
    m_port_out.push_back(std::make_unique<Link>(fmt::format("port{}_out", a).c_str(), port, framing, own));
    m_port_in.push_back(std::make_unique<Link>(fmt::format("port{}_in", a).c_str(), port, framing, own));
    observe::join(services.probes, router.fabric_out(a), m_port_out[a]->link_in);
    observe::join(services.probes, m_port_out[a]->link_out, fabric_router.mesh_in(a));
    observe::join(services.probes, fabric_router.mesh_out(a), m_port_in[a]->link_in);
    observe::join(services.probes, m_port_in[a]->link_out, router.fabric_in(a));
    join_directions(*m_port_out[a], *m_port_in[a]);
  }
}

}  // namespace ahbm::models
