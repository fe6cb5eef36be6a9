#include "models/fabric/link.h"

#include <fmt/core.h>

#include <stdexcept>

namespace ahbm::models {

Link::Link(const sc_core::sc_module_name& name, const LinkParams& params, const Framing& framing,
           const LinkFactory& own)
    : sc_core::sc_module(name), link_in("link_in"), link_out("link_out"), m_hop(params, framing) {
  link_in.register_b_transport(this, &Link::b_transport);
  link_in.register_transport_dbg(this, &Link::transport_dbg);
  link_in.register_get_direct_mem_ptr(this, &Link::get_direct_mem_ptr);
  if (own) m_own = own(this->name(), params);
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
  if (m_own != nullptr || (m_back != nullptr && m_back->m_own != nullptr)) return walk_own(trans, *transit);
  walk(trans, *transit, &m_hop, m_back != nullptr ? &m_back->m_hop : nullptr, *link_out.get_interface(0));
}

void Link::walk_own(tlm::tlm_generic_payload& trans, Transit& transit) {
  if (transit.grant != nullptr) transit.grant->refused = true;  // a granted route knows hops only
  pass(transit);
  if (transit.notify != nullptr) pass(transit.notify->doorbell);
  call_next(*link_out.get_interface(0), trans, transit);
  if (m_back != nullptr && trans.is_read()) m_back->pass(transit);
}

void Link::pass(Transit& t) {
  if (m_own == nullptr) return m_hop.pass(now_ps(), t);
  const Ps head = t.head, tail = t.tail;
  m_own->carry(now_ps(), m_hop, t);
  if (t.head < head || t.tail < tail || t.tail < t.head) {
    throw std::logic_error(
        fmt::format("{}: its LinkModel moved a message from head {} ps, tail {} ps to head {} ps, tail {} ps; expected "
                    "no time earlier than before and the tail not before the head",
                    name(), head, tail, t.head, t.tail));
  }
}

unsigned Link::transport_dbg(tlm::tlm_generic_payload& trans) {
  return link_out->transport_dbg(trans);
}

bool Link::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
