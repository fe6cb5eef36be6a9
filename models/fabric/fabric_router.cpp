#include "models/fabric/fabric_router.h"

#include <fmt/core.h>

#include "models/tlm/classify.h"

namespace ahbm::models {

FabricRouter::FabricRouter(const sc_core::sc_module_name& name, const SystemConfig& config, const FabricPlan& plan,
                           SipId sip)
    : sc_core::sc_module(name),
      host_in("host_in"),
      block_in("block_in"),
      block_out("block_out"),
      spare_in("spare_in", Binding::Optional),
      spare_out("spare_out"),
      m_plan(plan),
      m_sip(sip) {
  const Framing framing{config.noc.packet_bytes, config.noc.packet_header_bytes};
  const LinkParams local{config.noc.cube_link.bytes_per_second, 0};
  m_block_hop.configure(local, framing);
  m_spare_hop.configure(local, framing);
  attach(host_in, Source::Host, {});
  attach(block_in, Source::Block, {});
  attach(spare_in, Source::Spare, {});
  for (uint32_t a = 0; a < plan.mesh().attachments().size(); ++a) {
    m_mesh_in.push_back(std::make_unique<In>(fmt::format("mesh{}_in", a).c_str()));
    attach(*m_mesh_in.back(), Source::Elsewhere, plan.from_mesh(a));
    m_mesh_out.push_back(std::make_unique<Out>(fmt::format("mesh{}_out", a).c_str()));
  }
  for (uint32_t p = 0; p < plan.graph().ports(sip).size(); ++p) {
    m_link_out.push_back(std::make_unique<Out>(fmt::format("link{}_out", p).c_str()));
  }
  for (uint32_t a = 0; a < plan.arrivals(sip).size(); ++a) {
    m_link_in.push_back(std::make_unique<In>(fmt::format("link{}_in", a).c_str()));
    attach(*m_link_in.back(), Source::Elsewhere, plan.arrivals(sip)[a].entry);
  }
}

template <typename Socket>
void FabricRouter::attach(Socket& socket, Source source, const FabricEntry& entry) {
  const auto id = static_cast<int>(m_inputs.size());
  m_inputs.push_back({source, entry});
  socket.register_b_transport(this, &FabricRouter::b_transport, id);
  socket.register_transport_dbg(this, &FabricRouter::transport_dbg, id);
  socket.register_get_direct_mem_ptr(this, &FabricRouter::get_direct_mem_ptr, id);
}

tlm::tlm_fw_transport_if<>* FabricRouter::next(const FabricStep& step) {
  switch (step.to) {
    case FabricStep::To::SipBlock:
      return block_out.get_interface(0);
    case FabricStep::To::Mesh:
      return mesh_out(step.index).get_interface(0);
    case FabricStep::To::Link:
      return link_out(step.index).get_interface(0);
    case FabricStep::To::Nowhere:
      break;
  }
  return nullptr;
}

bool FabricRouter::for_spare(const FabricStep& step, Addr address) const {
  return step.to == FabricStep::To::SipBlock && spare_out.get_interface(0) != nullptr &&
         decode(address, m_plan.shape()).region == Region::Hole;
}

void FabricRouter::b_transport(int id, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_plan.shape(), *transit);
  const Input& in = m_inputs[static_cast<size_t>(id)];
  const FabricStep step = m_plan.fabric_step(m_sip, in.entry, trans.get_address(), *transit);
  Hop* back = in.source == Source::Block ? &m_block_hop : in.source == Source::Spare ? &m_spare_hop : nullptr;
  if (for_spare(step, trans.get_address())) {
    walk_foreign(trans, *transit, &m_spare_hop, back, *spare_out.get_interface(0));
    return;
  }
  tlm::tlm_fw_transport_if<>* to = next(step);
  if (to == nullptr) return answer_hole(trans);
  walk(trans, *transit, step.to == FabricStep::To::SipBlock ? &m_block_hop : nullptr, back, *to);
}

unsigned FabricRouter::transport_dbg(int id, tlm::tlm_generic_payload& trans) {
  const FabricStep step =
      m_plan.fabric_step(m_sip, m_inputs[static_cast<size_t>(id)].entry, trans.get_address(), Transit{});
  tlm::tlm_fw_transport_if<>* to = for_spare(step, trans.get_address()) ? spare_out.get_interface(0) : next(step);
  if (to == nullptr) {
    answer_hole(trans);
    return 0;
  }
  return to->transport_dbg(trans);
}

bool FabricRouter::get_direct_mem_ptr(int, tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
