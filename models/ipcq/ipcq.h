// The IPCQ block of one PE: queue pairs behind QP registers and doorbell pages.
#pragma once

#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/core/progress.h"
#include "models/core/registers/register_block.h"
#include "models/ipcq/ipcq_port.h"
#include "models/pe/tcm.h"
#include "models/tlm/route.h"
#include "models/tlm/sockets.h"

namespace ahbm::models {

/// One queue pair since the beginning of the simulation: resets and new connections do not clear it.
struct QpStats {
  uint64_t messages_sent = 0, messages_received = 0;
  uint64_t bytes_sent = 0, bytes_received = 0;  ///< headers included
  uint64_t credits_exhausted = 0;               ///< sends that took the last credit
  uint64_t high_water = 0;                      ///< most slots of the receive ring in use at once
};

class Ipcq : public sc_core::sc_module, public IpcqPart {
 public:
  struct Parts {
    const SystemConfig* config;
    PayloadPool* payloads;
    Tcm* tcm;
    IpcqHost* host;
    uint32_t flat_pe;
    Addr pe_base;
    Progress* progress;
  };
  Ipcq(const sc_core::sc_module_name& name, const Parts& parts);
  ~Ipcq() override;

  /// QP registers and doorbell pages, at global addresses of this PE's window.
  InSocket<Ipcq> bus_in;

  TargetSocket& bus() override { return bus_in; }
  void bind_out(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch) override {
    m_out.bind(first, route_epoch, m_parts.config->simulation.route_grants);
  }

  void set_listener(IpcqListener* listener) override { m_listener = listener; }
  bool enabled(QpId qp) const override;
  std::optional<Ps> credit_time(QpId qp) const override;
  SendSlot take_send_slot(QpId qp, uint32_t message_bytes) override;
  std::optional<QueuePair::Message> front(QpId qp) const override;
  void take(QpId qp) override;
  void release(QpId qp, uint64_t ticket, Ps at) override;
  bool reaches_pe(QpId qp) const override;
  QpResult would_take(uint32_t qp, uint32_t bytes) const override;
  tlm::tlm_response_status deliver(uint32_t qp, uint32_t bytes, uint32_t epoch, Ps doorbell_at, Ps payload_at) override;
  void name_touched(uint32_t qp, Use use, HostLines& lines) const override;
  void fetch(uint32_t turns) const override;
  void fetch(QpId qp, Use use, uint32_t turns, Ps at) const override;
  void payload_written(uint64_t tcm_offset, uint64_t bytes, Ps at) override;
  void reset() override;
  uint32_t credits(QpId qp) const override;
  uint32_t level(QpId qp) const override;
  void observe(const observe::Tap* tap) override { m_tap = tap; }
  /// By queue pair, up to the last one that was ever used.
  std::vector<QpStats> stats() const;

 private:
  struct Qp;
  class QpBehaviour;
  class DoorbellBehaviour;

  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  Qp* find(uint32_t qp) const { return qp < m_qps.size() ? m_qps[qp].get() : nullptr; }
  Qp& storage(uint32_t qp);
  tlm::tlm_response_status notify(uint32_t qp, uint64_t bytes, uint32_t epoch, Ps at, Addr address, Ps payload_at = 0);
  tlm::tlm_response_status credit(uint32_t qp, uint64_t slots, uint32_t epoch, Ps at, Addr address);
  bool stale(uint32_t epoch);
  void enable(uint32_t qp);
  void tell(observe::EventKind kind, uint32_t qp, Ps begin, Ps end, uint64_t count, uint64_t number = 0,
            uint64_t bytes = 0) const;

  // What every message needs comes first, in two cache lines.
  alignas(64) Parts m_parts;
  std::vector<std::unique_ptr<Qp>> m_qps;  ///< grows to what is used; storage on first touch
  IpcqListener* m_listener = nullptr;
  const observe::Tap* m_tap = nullptr;
  RoutedInitiator m_out;
  std::vector<uint32_t> m_enabled;  ///< QPs that are enabled
  std::unique_ptr<DoorbellBehaviour> m_doorbell;
  std::vector<QpStats> m_past;  ///< of queue pairs before the last reset
};

}  // namespace ahbm::models
