#include "models/fabric/link.h"

namespace ahbm::models {

Link::Link(const sc_core::sc_module_name& name, const LinkParams& params, const Framing& framing)
    : sc_core::sc_module(name), link_in("link_in"), link_out("link_out"), m_hop(params, framing) {
  link_in.register_b_transport(this, &Link::b_transport);
  link_in.register_transport_dbg(this, &Link::transport_dbg);
  link_in.register_get_direct_mem_ptr(this, &Link::get_direct_mem_ptr);
}

bool Link::broken(Ps at) const {
  bool any = false;
  for (const Failure& f : m_failures) {
    if (at < f.at) continue;
    f.faults->strike(f.fault, at);
    any = true;
  }
  return any;
}

void Link::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (m_back == nullptr) {
    // A granted route is good for reads too, and this one is not.
    if (transit->grant != nullptr) transit->grant->refused = true;
    if (trans.is_read()) {
      trans.set_dmi_allowed(false);
      trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
      return;
    }
  }
  if (!m_failures.empty() || (m_back != nullptr && !m_back->m_failures.empty())) {
    if (transit->grant != nullptr) transit->grant->refused = true;  // a granted route does not ask here
    if (broken(transit->tail) || (trans.is_read() && m_back->broken(transit->tail))) {
      trans.set_dmi_allowed(false);
      trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
      return;
    }
  }
  walk(trans, *transit, &m_hop, m_back != nullptr ? &m_back->m_hop : nullptr, *link_out.get_interface(0));
}

unsigned Link::transport_dbg(tlm::tlm_generic_payload& trans) {
  return link_out->transport_dbg(trans);
}

bool Link::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
