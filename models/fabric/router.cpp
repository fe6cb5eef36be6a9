#include "models/fabric/router.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "models/tlm/classify.h"

namespace ahbm::models {

namespace {
constexpr Side kSides[] = {Side::N, Side::S, Side::E, Side::W};
constexpr const char* kSideNames[] = {"n", "s", "e", "w"};
}  // namespace

Router::Router(const sc_core::sc_module_name& name, const FabricPlan& plan, SipId sip, CubeId cube)
    : RouterPart(name), local_in("local_in"), local_out("local_out"), m_plan(plan), m_sip(sip), m_cube(cube) {
  local_in.register_b_transport(this, &Router::b_transport);
  local_in.register_transport_dbg(this, &Router::transport_dbg);
  local_in.register_get_direct_mem_ptr(this, &Router::get_direct_mem_ptr);
  for (const Side side : kSides) {
    if (!plan.mesh().neighbour(cube, side)) continue;
    const auto i = static_cast<size_t>(side);
    m_side_in[i] = make_in(fmt::format("{}_in", kSideNames[i]));
    m_side_out[i] = std::make_unique<Out>(fmt::format("{}_out", kSideNames[i]).c_str());
  }
  const auto& attachments = plan.mesh().attachments();
  for (uint32_t a = 0; a < attachments.size(); ++a) {
    if (attachments[a].cube != cube) continue;
    m_attachments.push_back(
        {a, make_in(fmt::format("fabric{}_in", a)), std::make_unique<Out>(fmt::format("fabric{}_out", a).c_str())});
  }
}

std::unique_ptr<Router::In> Router::make_in(const std::string& socket_name) {
  auto in = std::make_unique<In>(socket_name.c_str());
  in->register_b_transport(this, &Router::b_transport);
  in->register_transport_dbg(this, &Router::transport_dbg);
  in->register_get_direct_mem_ptr(this, &Router::get_direct_mem_ptr);
  return in;
}

Router::In& Router::fabric_in(uint32_t attachment) {
  for (Attachment& a : m_attachments) {
    if (a.index == attachment) return *a.in;
  }
  throw std::invalid_argument(fmt::format("{}: attachment {} is not at this cube", this->name(), attachment));
}

Router::Out& Router::fabric_out(uint32_t attachment) {
  for (Attachment& a : m_attachments) {
    if (a.index == attachment) return *a.out;
  }
  throw std::invalid_argument(fmt::format("{}: attachment {} is not at this cube", this->name(), attachment));
}

tlm::tlm_fw_transport_if<>* Router::next(Addr address, const Transit& t) {
  const MeshStep step = m_plan.mesh_step(m_sip, m_cube, address, t);
  switch (step.to) {
    case MeshStep::To::Local:
      return local_out.get_interface(0);
    case MeshStep::To::Neighbour:
      return side_out(step.side).get_interface(0);
    case MeshStep::To::Fabric:
      return fabric_out(step.attachment).get_interface(0);
    case MeshStep::To::Nowhere:
      break;
  }
  return nullptr;
}

void Router::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_plan.shape(), *transit);
  tlm::tlm_fw_transport_if<>* to = next(trans.get_address(), *transit);
  if (to == nullptr) return answer_hole(trans);
  walk(trans, *transit, nullptr, nullptr, *to);
}

unsigned Router::transport_dbg(tlm::tlm_generic_payload& trans) {
  tlm::tlm_fw_transport_if<>* to = next(trans.get_address(), Transit{});
  if (to == nullptr) {
    answer_hole(trans);
    return 0;
  }
  return to->transport_dbg(trans);
}

bool Router::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
