// The initiator's side of route grants: the first transaction to a window walks the sockets and collects the resources
// it reserves; later ones reserve along the collected route and call the target directly. Same times, same statistics.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "models/core/address_map.h"
#include "models/tlm/payload_pool.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

/// Hops that are passed one after the other.
struct HopList {
  Hop* const* first;
  size_t count;
  Hop* const* begin() const { return first; }
  Hop* const* end() const { return first + count; }
};

/// One granted route, kept by an initiator per target window it uses. A cache line, one more for its hops, and two
/// for what the target touches.
struct alignas(64) Route {
  tlm::tlm_fw_transport_if<>* target = nullptr;
  uint64_t begin_address = 1, end_address = 0;
  uint64_t epoch = 0;
  std::unique_ptr<Hop*[]> hops;  ///< forward, then backward
  uint32_t n_forward = 0, n_backward = 0;
  bool has_egress = false;
  bool gathers = false;  ///< as RouteGrant
  Side egress = Side::E;
  alignas(64) HostLines touched;

  HopList forward() const { return {hops.get(), n_forward}; }
  HopList all_hops() const { return {hops.get(), size_t{n_forward} + n_backward}; }
  HopList backward() const { return {hops.get() + n_forward, n_backward}; }

  // Ahead of a transaction at `at`, one step after the other. Only a read comes back.
  enum class Use : uint8_t { Write, Read };
  HopList used_hops(Use use) const { return use == Use::Read ? all_hops() : forward(); }
  void fetch_lists(Use use) const {
    fetch_lines(hops.get(), used_hops(use).end());
    fetch_lines(&touched, &touched + 1);
  }
  void fetch_hops(Use use) const {
    for (const Hop* hop : used_hops(use)) hop->fetch();
    touched.fetch();
  }
  void fetch_second(Use use, Ps at) const {
    for (const Hop* hop : used_hops(use)) hop->fetch_second(at);
  }
  void fetch_intervals(Use use, Ps at) const {
    for (const Hop* hop : used_hops(use)) hop->fetch_intervals(at);
  }

  bool granted(uint64_t now_epoch) const { return target != nullptr && epoch == now_epoch; }
  bool covers(uint64_t address, uint64_t bytes) const {
    return address >= begin_address && address + bytes <= end_address;
  }
  bool covers(uint64_t address, uint64_t bytes, uint64_t now_epoch, const Transit& t) const {
    return granted(now_epoch) && covers(address, bytes) && has_egress == t.has_egress && egress == t.egress;
  }
  void take(const RouteGrant& grant, uint64_t now_epoch, const Transit& t) {
    n_forward = static_cast<uint32_t>(grant.forward.size());
    n_backward = static_cast<uint32_t>(grant.backward.size());
    hops = std::make_unique<Hop*[]>(size_t{n_forward} + n_backward);
    std::copy(grant.backward.begin(), grant.backward.end(),
              std::copy(grant.forward.begin(), grant.forward.end(), hops.get()));
    target = grant.target;
    gathers = grant.gathers;
    begin_address = grant.window_begin;
    end_address = grant.window_end;
    epoch = now_epoch;
    has_egress = t.has_egress;
    egress = t.egress;
    touched = grant.touched;
  }
};

/// The routes of one initiator by what they lead to: the memory of a cube, the window of a PE, a SIP block.
class RouteCache {
 public:
  /// The one used last; null: none.
  const Route* last() const { return m_last; }
  Route& to(Addr address) {
    const bool pe_window = (address & (addr::kCubeBytes - 1)) >= addr::kPeWindows;
    const uint64_t window = pe_window ? (address / addr::kPeWindowBytes) << 1 | 1 : (address >> addr::kCubeShift) << 1;
    if (window != m_last_window) {
      m_last = &m_routes[window];  // references into an unordered_map stay valid
      m_last_window = window;
    }
    return *m_last;
  }

 private:
  Route* m_last = nullptr;
  uint64_t m_last_window = ~uint64_t{0};
  std::unordered_map<uint64_t, Route> m_routes;
};

/// Takes `t` over `hops`, as pass_forward does one by one. The times stay in registers.
template <Channel kChannel>
void pass_hops(HopList hops, Ps now, Transit& t) {
  Ps head = t.head, tail = t.tail;
  for (Hop* hop : hops) hop->pass_as<kChannel>(now, head, tail, t.wire_payload);
  t.head = head;
  t.tail = tail;
}
/// The same for a message and the doorbell of its fused NOTIFY. The channels of a hop share nothing but its figures, so
/// the host can reserve both at the same time.
inline void pass_hops_with_doorbell(HopList hops, Ps now, Transit& t, Transit& doorbell) {
  Ps head = t.head, tail = t.tail, bell_head = doorbell.head, bell_tail = doorbell.tail;
  for (Hop* hop : hops) {
    hop->pass_as<Channel::Data>(now, head, tail, t.wire_payload);
    hop->pass_as<Channel::Control>(now, bell_head, bell_tail, doorbell.wire_payload);
  }
  t.head = head;
  t.tail = tail;
  doorbell.head = bell_head;
  doorbell.tail = bell_tail;
}
inline void pass_hops(HopList hops, Ps now, Transit& t) {
  if (t.channel == Channel::Control) return pass_hops<Channel::Control>(hops, now, t);
  if (t.notify != nullptr) return pass_hops_with_doorbell(hops, now, t, t.notify->doorbell);
  pass_hops<Channel::Data>(hops, now, t);
}

/// Carries `trans` along `route` if that still covers it: reserves every hop, calls the target, brings read data back.
inline bool follow_route(tlm::tlm_generic_payload& trans, Transit& t, const Route& route, uint64_t epoch) {
  if (!route.covers(trans.get_address(), trans.get_data_length(), epoch, t)) return false;
  pass_hops(route.forward(), now_ps(), t);
  call_next(*route.target, trans, t);
  if (trans.is_read()) {
    // An error comes back as a header-only message.
    t.wire_payload = trans.is_response_ok() ? trans.get_data_length() : 0;
    for (Hop* hop : route.backward()) hop->pass(now_ps(), t);
  }
  return true;
}

/// While it lives, `trans` collects a grant on its way; `finish` keeps it.
class GrantCollector {
 public:
  GrantCollector(tlm::tlm_generic_payload& trans, Transit& t, RouteGrant& grant)
      : m_trans(trans), m_transit(t), m_grant(grant) {
    m_grant.clear_route();
    m_trans.set_extension(&m_grant);
    m_transit.grant = &m_grant;
  }
  ~GrantCollector() {
    m_transit.grant = nullptr;
    m_trans.clear_extension(&m_grant);
  }
  GrantCollector(const GrantCollector&) = delete;
  GrantCollector& operator=(const GrantCollector&) = delete;
  void finish(Route& route, uint64_t epoch) {
    if (m_trans.is_response_ok() && m_grant.complete()) route.take(m_grant, epoch, m_transit);
  }

 private:
  tlm::tlm_generic_payload& m_trans;
  Transit& m_transit;
  RouteGrant& m_grant;
};

/// Sends `trans` at the current time to `first`, or along `route` when that is still granted; collects a grant
/// otherwise. `t` is its transit: on entry it says when head and tail enter the first socket, afterwards when the data
/// is at the far end (write) or back here (read).
inline void transport_routed(tlm::tlm_generic_payload& trans, Transit& t, tlm::tlm_fw_transport_if<>& first,
                             Route& route, uint64_t epoch, RouteGrant& grant) {
  if (trans.is_read()) t.wire_payload = 0;
  if (follow_route(trans, t, route, epoch)) return;
  GrantCollector collector(trans, t, grant);
  call_next(first, trans, t);
  collector.finish(route, epoch);
}

class RoutedInitiator {
 public:
  /// `first` is the initiator socket's forward interface; `route_epoch` grows when grants stop being valid.
  void bind(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch, bool grants) {
    m_first = first;
    m_route_epoch = route_epoch;
    m_grants = grants;
  }

  /// `transport` along `route` reserves and calls a target of ours; otherwise it walks over the sockets.
  bool granted(const Route& route) const { return m_grants && route.granted(*m_route_epoch); }

  /// `transport` will take `p` along `route` as it stands.
  bool follows(const Route& route, const PooledPayload& p) const {
    return m_grants && route.covers(p.get_address(), p.get_data_length(), *m_route_epoch, p.transit.transit);
  }

  /// Sends `p` (see transport_routed). The response status is the target's.
  void transport(PooledPayload& p, Route& route) {
    Transit& t = p.transit.transit;
    t.resolved = true;
    if (m_grants) {
      transport_routed(p, t, *m_first, route, *m_route_epoch, p.grant);
      return;
    }
    if (p.is_read()) t.wire_payload = 0;
    call_next(*m_first, p, t);
  }

 private:
  tlm::tlm_fw_transport_if<>* m_first = nullptr;
  const uint64_t* m_route_epoch = nullptr;
  bool m_grants = false;
};

}  // namespace ahbm::models
