// One direction of a cable: the resource that messages reserve, between two sockets.
#pragma once

#include <tlm_utils/passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/fault/fault_injector.h"
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
  void set_way_back(Link& link) { m_back = &link; }
  /// From `at` on, what enters this direction is lost: TLM_GENERIC_ERROR_RESPONSE. Reads need both directions of a
  /// cable. The caller invalidates granted routes; no route over this link is granted any more.
  void fail(Ps at, FaultInjector& faults, size_t fault) { m_failures.push_back({at, &faults, fault}); }
  Hop& hop() { return m_hop; }
  HopStats stats() const { return m_hop.stats(); }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);

  Hop m_hop;
  struct Failure {
    Ps at;
    FaultInjector* faults;
    size_t fault;
  };
  bool broken(Ps at) const;

  Link* m_back = nullptr;
  std::vector<Failure> m_failures;
};

/// The two directions of one cable.
inline void join_directions(Link& one, Link& other) {
  one.set_way_back(other);
  other.set_way_back(one);
}

}  // namespace ahbm::models
