// One direction of a cable: the resource that messages reserve, between two sockets.
#pragma once

#include <tlm_utils/passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>
#include <systemc>
#include <tlm>

#include "models/tlm/walk.h"

namespace ahbm::models {

/// Between neighbouring cubes, between a cube router and its SIP's fabric router, between SIPs. The data of a read
/// comes back through the link of the other direction (`set_way_back`); where there is none (a cable with one direction
/// absent) reads are refused with TLM_GENERIC_ERROR_RESPONSE.
class Link : public sc_core::sc_module {
 public:
  Link(const sc_core::sc_module_name& name, const LinkParams& params, const Framing& framing);

  tlm_utils::passthrough_target_socket<Link> link_in;
  tlm_utils::simple_initiator_socket<Link> link_out;

  /// \pre before the first transaction
  void set_way_back(Hop& hop) { m_back = &hop; }
  Hop& hop() { return m_hop; }
  const HopStats& stats() const { return m_hop.stats(); }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);

  Hop m_hop;
  Hop* m_back = nullptr;
};

/// The two directions of one cable.
inline void join_directions(Link& one, Link& other) {
  one.set_way_back(other.hop());
  other.set_way_back(one.hop());
}

}  // namespace ahbm::models
