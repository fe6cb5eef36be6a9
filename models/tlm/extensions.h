// The TLM extensions of the platform. All may be absent: every target behaves sensibly without them.
#pragma once

#include <cstring>
#include <tlm>
#include <type_traits>
#include <vector>

#include "models/core/host_lines.h"
#include "models/tlm/transit.h"

namespace ahbm::models {

/// Cut-through state (see transit.h).
struct TransitExtension : tlm::tlm_extension<TransitExtension> {
  Transit transit;
  tlm::tlm_extension_base* clone() const override {
    auto* copy = new TransitExtension;
    copy->copy_from(*this);
    return copy;
  }
  void copy_from(const tlm::tlm_extension_base& o) override {
    transit = static_cast<const TransitExtension&>(o).transit;
    transit.resolved = false;  // the copy's payload has extensions of its own
    transit.grant = nullptr;
    transit.notify = nullptr;
    transit.loan = nullptr;
    transit.payload = nullptr;
  }
};

/// On a payload write: the NOTIFY that commits it, fused into the same transaction. The same time as a NOTIFY write
/// that is issued together with the payload.
struct IpcqNotify : tlm::tlm_extension<IpcqNotify> {
  uint32_t qp = 0;     ///< the receiver's queue pair
  uint32_t bytes = 0;  ///< header + payload
  uint32_t epoch = 0;  ///< sender's view of the receiver's reset epoch
  Transit doorbell;    ///< the NOTIFY's own way on the control channel
  tlm::tlm_extension_base* clone() const override { return new IpcqNotify(*this); }
  void copy_from(const tlm::tlm_extension_base& o) override { *this = static_cast<const IpcqNotify&>(o); }
};

/// Who issued it.
struct Origin : tlm::tlm_extension<Origin> {
  uint32_t flat_pe = 0xFFFFFFFF;  ///< 0xFFFFFFFF: not a PE
  uint32_t launch_tag = 0;
  tlm::tlm_extension_base* clone() const override { return new Origin(*this); }
  void copy_from(const tlm::tlm_extension_base& o) override { *this = static_cast<const Origin&>(o); }
};

/// Collected while a transaction walks the sockets: what to reserve on the way there and back, and the target at the
/// end. As DMI for memory: with a complete grant, later transactions reserve along `forward` and call `target`
/// directly.
struct RouteGrant : tlm::tlm_extension<RouteGrant> {
  std::vector<Hop*> forward;
  std::vector<Hop*> backward;                    ///< for the data of reads, in the order they are passed
  tlm::tlm_fw_transport_if<>* target = nullptr;  ///< set by the target; null: nobody granted
  uint64_t window_begin = 0, window_end = 0;     ///< global addresses [begin, end) that the route is valid for
  bool refused = false;                          ///< somebody on the way does not take part
  bool gathers = false;                          ///< the target knows Transit::payload
  HostLines touched;                             ///< of the target, optional
  void clear_route() {
    forward.clear();
    backward.clear();
    target = nullptr;
    window_begin = window_end = 0;
    refused = gathers = false;
    touched.clear();
  }
  bool complete() const { return !refused && target != nullptr; }
  tlm::tlm_extension_base* clone() const override { return new RouteGrant(*this); }
  void copy_from(const tlm::tlm_extension_base& o) override { *this = static_cast<const RouteGrant&>(o); }
};

/// Present while a recorder or trace wants to follow a transaction.
struct Trace : tlm::tlm_extension<Trace> {
  uint64_t flow = 0;
  tlm::tlm_extension_base* clone() const override { return new Trace(*this); }
  void copy_from(const tlm::tlm_extension_base& o) override { *this = static_cast<const Trace&>(o); }
};

/// Current simulated time. Reads the context directly: sc_time_stamp() is two calls into the library, and every hop
/// asks. \pre some module exists (the context does)
inline Ps now_ps() {
  return sc_core::sc_curr_simcontext->time_stamp().value();
}
/// sc_time::from_value without the call into the library where sc_time is nothing but its count.
inline sc_core::sc_time to_sc_time(Ps t) {
  if constexpr (std::is_standard_layout<sc_core::sc_time>::value && sizeof(sc_core::sc_time) == sizeof(Ps)) {
    sc_core::sc_time out;
    std::memcpy(static_cast<void*>(&out), &t, sizeof t);
    return out;
  } else {
    return sc_core::sc_time::from_value(t);
  }
}

/// Gives our modules the Transit of a transaction: the extension, or one on the stack for a foreign initiator that
/// knows nothing of it. On destruction `delay` is brought up to date (delay = tail - now).
class TransitScope {
 public:
  TransitScope(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) : m_trans(trans), m_delay(delay) {
    m_ext = trans.get_extension<TransitExtension>();
    if (m_ext == nullptr) {
      m_ext = &m_local;
      trans.set_extension(m_ext);
      m_local.transit.head = m_local.transit.tail = now_ps() + delay.value();
      m_local.transit.wire_payload = trans.is_read() ? 0 : trans.get_data_length();
    }
    Transit& t = m_ext->transit;
    if (!t.resolved) {
      t.grant = trans.get_extension<RouteGrant>();
      t.notify = trans.get_extension<IpcqNotify>();
      t.resolved = true;
    }
  }
  ~TransitScope() {
    m_delay = to_sc_time(m_ext->transit.tail - now_ps());
    if (m_ext == &m_local) m_trans.clear_extension(m_ext);
  }
  TransitScope(const TransitScope&) = delete;
  TransitScope& operator=(const TransitScope&) = delete;
  Transit& operator*() { return m_ext->transit; }
  Transit* operator->() { return &m_ext->transit; }
  bool foreign() const { return m_ext == &m_local; }

 private:
  tlm::tlm_generic_payload& m_trans;
  sc_core::sc_time& m_delay;
  TransitExtension* m_ext;
  TransitExtension m_local;
};

/// One forward hop of a transaction: reserves `hop` for the payload and, for a fused NOTIFY, for the doorbell.
inline void pass_forward(Hop& hop, Ps now, Transit& transit) {
  hop.pass(now, transit);
  if (transit.notify != nullptr) hop.pass(now, transit.notify->doorbell);
}

}  // namespace ahbm::models
