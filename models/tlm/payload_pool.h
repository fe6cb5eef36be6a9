// Pooled generic payloads with their extensions built in: no allocation per transaction.
#pragma once

#include <memory>
#include <tlm>
#include <vector>

#include "models/tlm/extensions.h"

namespace ahbm::models {

/// A payload that carries its extensions as members. `TransitExtension` and `Origin` are always attached; `notify` and
/// `grant` while they are needed, by who needs them; `trace` until the payload returns to its pool.
class PooledPayload : public tlm::tlm_generic_payload {
 public:
  explicit PooledPayload(tlm::tlm_mm_interface* mm) : tlm::tlm_generic_payload(mm) {
    set_extension(&transit);
    set_extension(&origin);
  }
  ~PooledPayload() override {
    // The extensions are members: detach them, or the base class would free them.
    clear_extension(&transit);
    clear_extension(&origin);
    detach();
  }
  void detach() {
    clear_extension(&notify);
    clear_extension(&grant);
    clear_extension(&trace);
  }

  TransitExtension transit;
  Origin origin;
  IpcqNotify notify;
  RouteGrant grant;
  Trace trace;
};

/// Owns payloads; grows on demand and never shrinks. `live` counts those handed out and not yet returned.
class PayloadPool : public tlm::tlm_mm_interface {
 public:
  PayloadPool() = default;
  PayloadPool(const PayloadPool&) = delete;
  PayloadPool& operator=(const PayloadPool&) = delete;

  /// A payload with reference count 1; `release()` returns it. Address, data, length, byte enables and status are
  /// reset.
  PooledPayload& acquire() {
    if (m_free.empty()) {
      m_all.push_back(std::make_unique<PooledPayload>(this));
      m_free.push_back(m_all.back().get());
    }
    PooledPayload& p = *m_free.back();
    m_free.pop_back();
    p.acquire();
    p.set_byte_enable_ptr(nullptr);
    p.set_byte_enable_length(0);
    p.set_dmi_allowed(false);
    p.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
    p.transit.transit = Transit{};
    return p;
  }
  void free(tlm::tlm_generic_payload* p) override {
    auto* payload = static_cast<PooledPayload*>(p);
    if (payload->get_extension<Trace>() != nullptr) payload->clear_extension(&payload->trace);
    m_free.push_back(payload);
  }
  size_t size() const { return m_all.size(); }
  size_t live() const { return m_all.size() - m_free.size(); }

 private:
  std::vector<std::unique_ptr<PooledPayload>> m_all;
  std::vector<PooledPayload*> m_free;
};

}  // namespace ahbm::models
