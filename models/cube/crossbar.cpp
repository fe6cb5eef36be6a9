#include "models/cube/crossbar.h"

#include <fmt/core.h>

#include "models/tlm/classify.h"
#include "models/tlm/process_macro.h"

namespace ahbm::models {

Crossbar::Crossbar(const sc_core::sc_module_name& name, const SystemServices& services, const FabricPlan& plan,
                   SipId sip, CubeId cube)
    : sc_core::sc_module(name),
      mesh_in("mesh_in"),
      mesh_out("mesh_out"),
      hbm_out("hbm_out"),
      sfr_out("sfr_out"),
      spare_in("spare_in", Binding::Optional),
      spare_out("spare_out"),
      rst_n("rst_n"),
      m_plan(plan),
      m_sip(sip),
      m_cube(cube),
      m_route_epoch(services.route_epoch),
      m_grants(services.config->simulation.route_grants) {
  const SystemConfig& config = *services.config;
  const Framing framing{config.noc.packet_bytes, config.noc.packet_header_bytes};
  m_hops = std::vector<Hop>(Port::FixedCount + config.pes);
  for (Hop& hop : m_hops) hop.configure(config.noc.crossbar, framing);
  attach(mesh_in, Port::Mesh);
  attach(spare_in, Port::Spare);
  for (uint32_t p = 0; p < config.pes; ++p) {
    m_pe_in.push_back(std::make_unique<In>(fmt::format("pe{}_in", p).c_str()));
    attach(*m_pe_in[PeId{p}], Port::FixedCount + p);
    m_pe_out.push_back(std::make_unique<Out>(fmt::format("pe{}_out", p).c_str()));
  }
  AHBM_HAS_PROCESS(Crossbar);
  SC_METHOD(on_reset);
  sensitive << rst_n;
}

template <typename Socket>
void Crossbar::attach(Socket& socket, uint32_t port) {
  const int id = static_cast<int>(port);
  socket.register_b_transport(this, &Crossbar::b_transport, id);
  socket.register_transport_dbg(this, &Crossbar::transport_dbg, id);
  socket.register_get_direct_mem_ptr(this, &Crossbar::get_direct_mem_ptr, id);
}

void Crossbar::on_reset() {
  const bool in_reset = !rst_n.read();
  // Granted routes go past this check, so they must be walked again.
  if (in_reset && !m_in_reset) ++*m_route_epoch;
  m_in_reset = in_reset;
}

Crossbar::Target Crossbar::local_target(const Decoded& d) {
  switch (d.region) {
    case Region::Hbm:
      return {Port::Hbm, hbm_out.get_interface(0)};
    case Region::CubeSfr:
      return {Port::Sfr, sfr_out.get_interface(0)};
    case Region::Tcm:
    case Region::PeSfr:
    case Region::QpRegs:
    case Region::Doorbell:
      return {Port::FixedCount + value(d.pe), m_pe_out[d.pe]->get_interface(0)};
    default:
      return {Port::Spare, spare_out.get_interface(0)};
  }
}

void Crossbar::b_transport(int port, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) {
    classify_foreign(trans, m_plan.shape(), *transit);
    if (port == Port::Spare && m_grants) {
      // A foreign initiator holds no routes: its port does.
      if (!m_spare_routes) m_spare_routes = std::make_unique<RouteCache>();
      Route& route = m_spare_routes->to(trans.get_address());
      if (follow_route(trans, *transit, route, *m_route_epoch)) return;
      RouteGrant grant;
      GrantCollector collector(trans, *transit, grant);
      forward(port, trans, *transit);
      collector.finish(route, *m_route_epoch);
      return;
    }
  }
  forward(port, trans, *transit);
}

void Crossbar::forward(int port, tlm::tlm_generic_payload& trans, Transit& transit) {
  const auto place = m_plan.place(trans.get_address());
  if (!place) return answer_hole(trans);
  Hop* back = &m_hops[static_cast<size_t>(port)];
  if (!is_here(*place)) {
    if (port == Port::Mesh) return answer_hole(trans);
    walk(trans, transit, &m_hops[Port::Mesh], back, *mesh_out.get_interface(0));
    return;
  }
  if (m_in_reset) {
    trans.set_dmi_allowed(false);
    trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return;
  }
  const Decoded d = decode(trans.get_address(), m_plan.shape());
  const Target target = local_target(d);
  if (target.socket == nullptr) return answer_hole(trans);
  if (target.port == Port::Spare) {
    walk_foreign(trans, transit, &m_hops[Port::Spare], back, *target.socket);
    return;
  }
  if (!fits(d, touched_bytes(trans))) return answer_hole(trans);
  walk(trans, transit, &m_hops[target.port], back, *target.socket);
}

unsigned Crossbar::transport_dbg(int port, tlm::tlm_generic_payload& trans) {
  const auto place = m_plan.place(trans.get_address());
  if (place && !is_here(*place) && port != Port::Mesh) return mesh_out->transport_dbg(trans);
  if (place && is_here(*place)) {
    const Target target = local_target(decode(trans.get_address(), m_plan.shape()));
    if (target.socket != nullptr) return target.socket->transport_dbg(trans);
  }
  answer_hole(trans);
  return 0;
}

bool Crossbar::get_direct_mem_ptr(int, tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
