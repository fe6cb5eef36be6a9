// The initiator's side of route grants: the first transaction to a window walks the sockets and collects the resources
// it reserves; later ones reserve along the collected route and call the target directly. Same times, same statistics.
#pragma once

#include <cstdint>
#include <vector>

#include "models/tlm/payload_pool.h"

namespace ahbm::models {

/// One granted route, kept by an initiator per target window it uses.
struct Route {
  std::vector<Hop*> forward;
  std::vector<Hop*> backward;
  tlm::tlm_fw_transport_if<>* target = nullptr;
  uint64_t begin = 1, end = 0;
  uint64_t epoch = 0;
  bool has_egress = false;
  Side egress = Side::E;

  bool covers(uint64_t address, uint64_t bytes, uint64_t now_epoch, const Transit& t) const {
    return target != nullptr && epoch == now_epoch && address >= begin && address + bytes <= end &&
           has_egress == t.has_egress && egress == t.egress;
  }
};

class RoutedInitiator {
 public:
  /// `first` is the initiator socket's forward interface; `route_epoch` grows when grants stop being valid.
  void bind(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch, bool grants) {
    m_first = first;
    m_route_epoch = route_epoch;
    m_grants = grants;
  }

  /// Sends `p` at the current time. Its transit says when head and tail enter the first socket; afterwards it says when
  /// the data is at the far end (write) or back here (read). The response status is the target's.
  void transport(PooledPayload& p, Route& route, Ps now) {
    Transit& t = p.transit.transit;
    if (m_grants) {
      if (route.covers(p.get_address(), p.get_data_length(), *m_route_epoch, t)) return follow(p, route, now);
      p.grant.clear_route();
      p.set_extension(&p.grant);
    }
    if (p.is_read()) t.wire_payload = 0;
    sc_core::sc_time delay = to_sc_time(t.tail - now);
    m_first->b_transport(p, delay);
    // A foreign module on the way moves the delay only.
    const Ps tail = now_ps() + delay.value();
    if (tail != t.tail) {
      t.head = std::max(t.head, std::min(tail, t.head + (tail > t.tail ? tail - t.tail : 0)));
      t.tail = tail;
    }
    if (m_grants) {
      p.clear_extension(&p.grant);
      if (p.is_response_ok() && p.grant.complete()) {
        route.forward = p.grant.forward;
        route.backward = p.grant.backward;
        route.target = p.grant.target;
        route.begin = p.grant.window_begin;
        route.end = p.grant.window_end;
        route.epoch = *m_route_epoch;
        route.has_egress = t.has_egress;
        route.egress = t.egress;
      }
    }
  }

 private:
  void follow(PooledPayload& p, const Route& route, Ps now) {
    Transit& t = p.transit.transit;
    const bool read = p.is_read();
    if (read) t.wire_payload = 0;
    IpcqNotify* notify = p.get_extension<IpcqNotify>();
    for (Hop* hop : route.forward) pass_forward(*hop, now, t, notify);
    sc_core::sc_time delay = to_sc_time(t.tail - now);
    route.target->b_transport(p, delay);
    if (read && p.is_response_ok()) {
      t.wire_payload = p.get_data_length();
      for (Hop* hop : route.backward) hop->pass(now, t);
    }
  }

  tlm::tlm_fw_transport_if<>* m_first = nullptr;
  const uint64_t* m_route_epoch = nullptr;
  bool m_grants = false;
};

}  // namespace ahbm::models
