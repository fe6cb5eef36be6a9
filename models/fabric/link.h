// One direction of a cable: the resource that messages reserve, between two sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/fault/fault_injector.h"
#include "models/tlm/sockets.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

/// How messages cross one direction of a cable, in the place of `Hop::pass`.
class LinkModel {
 public:
  virtual ~LinkModel() = default;
  /// Moves `t` across: its head and tail (absolute times, ps) from the entry to the exit, neither to an earlier time
  /// nor the head behind the tail. A message has `t.wire_payload` bytes before framing (0: a header), on `t.channel`;
  /// credits and notifications come as messages of their own on the control channel. Called in the order of the calls,
  /// so messages may be in the future of `now`.
  /// \param wire  the shipped resource of this direction: what passes it is in statistics, traces and waves
  virtual void carry(Ps now, Hop& wire, Transit& t) = 0;
};

/// \param path  of the link's module, as in statistics. Null: the shipped behaviour
using LinkFactory = std::function<std::unique_ptr<LinkModel>(const std::string& path, const LinkParams& params)>;

/// Between neighbouring cubes, between a cube router and its SIP's fabric router, between SIPs. The data of a read
/// comes back through the link of the other direction (`set_way_back`); where there is none (a cable with one direction
/// absent) reads are refused with TLM_GENERIC_ERROR_RESPONSE. No route is granted over a link with a model of its own.
class Link : public sc_core::sc_module {
 public:
  Link(const sc_core::sc_module_name& name, const LinkParams& params, const Framing& framing,
       const LinkFactory& own = {});

  InSocket<Link> link_in;
  OutSocket link_out;

  /// \pre before the first transaction
  void set_way_back(Link& link) { m_back = &link; }
  /// From `at` on, what enters this direction is lost: TLM_GENERIC_ERROR_RESPONSE. Reads need both directions of a
  /// cable. The caller invalidates granted routes; no route over this link is granted any more.
  void fail(Ps at, FaultInjector& faults, size_t fault) { m_failures.push_back({at, &faults, fault}); }
  Hop& hop() { return m_hop; }
  HopStats stats() const { return m_hop.stats(); }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  void walk_own(tlm::tlm_generic_payload& trans, Transit& transit);
  void pass(Transit& t);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);

  Hop m_hop;
  std::unique_ptr<LinkModel> m_own;
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
