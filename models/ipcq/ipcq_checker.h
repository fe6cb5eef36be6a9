// The IPCQ convention for those who build a part of it: a passive checker to splice in front of a PE (ours, or a bridge
// to RTL), and a stub that speaks the protocol from the other side. The layout of slots and doorbells is
// models/core/ipcq_protocol.h; the rules are models/ipcq/ipcq_rules.h.
#pragma once

#include <tlm_utils/passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>
#include <cstring>
#include <functional>
#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/ipcq_protocol.h"
#include "models/ipcq/ipcq_rules.h"
#include "models/tlm/extensions.h"

namespace ahbm::models {

/// Sits between the bus and a PE, in both directions, and changes nothing: neither times nor payloads. Bind `bus_in`
/// and `pe_out` in the way of the PE window, `pe_in` and `bus_out` in the way of what the PE sends; the second pair may
/// stay unbound. Routes that go past it are walked, never granted, so that it sees everything. An access that was
/// answered with an error counts all the same: it is what the initiator did.
class IpcqChecker : public sc_core::sc_module {
 public:
  IpcqChecker(const sc_core::sc_module_name& name, const SystemConfig& config, const PeLocation& pe)
      : sc_core::sc_module(name), bus_in("bus_in"), pe_out("pe_out"), pe_in("pe_in"), bus_out("bus_out") {
    m_shape.pe_base = pe_base(pe);
    m_shape.tcm_bytes = config.pe.tcm_bytes;
    m_shape.queue_pairs = config.ipcq.queue_pairs;
    bus_in.register_b_transport(this, &IpcqChecker::to_pe);
    bus_in.register_transport_dbg(this, &IpcqChecker::to_pe_dbg);
    pe_in.register_b_transport(this, &IpcqChecker::from_pe);
    pe_in.register_transport_dbg(this, &IpcqChecker::from_pe_dbg);
  }

  tlm_utils::passthrough_target_socket<IpcqChecker> bus_in;
  tlm_utils::simple_initiator_socket<IpcqChecker> pe_out;
  tlm_utils::passthrough_target_socket_optional<IpcqChecker> pe_in;
  tlm_utils::simple_initiator_socket_optional<IpcqChecker> bus_out;

  /// Called with each violation as it is seen.
  std::function<void(const IpcqViolation&)> on_violation;
  const std::vector<IpcqViolation>& violations() const { return m_violations; }
  /// Only after elaboration: which rules are checked depends on what is bound.
  const IpcqRules& rules() const { return *m_rules; }
  /// Call it when the PE is reset by its pin; CTRL.RESET is seen.
  void reset() { m_rules->reset(); }

 private:
  void end_of_elaboration() override {
    m_shape.sees_outgoing = bus_out.size() > 0;
    m_rules = std::make_unique<IpcqRules>(m_shape, [this](const IpcqViolation& v) {
      m_violations.push_back(v);
      if (on_violation) on_violation(v);
    });
  }
  static IpcqRules::Access access(const tlm::tlm_generic_payload& trans, const sc_core::sc_time& delay) {
    IpcqRules::Access a;
    a.at = now_ps() + delay.value();
    a.address = trans.get_address();
    a.data = trans.get_data_ptr();
    a.bytes = trans.get_data_length();
    if (const auto* notify = trans.get_extension<IpcqNotify>()) {
      a.fused = true;
      a.fused_qp = notify->qp;
      a.fused_bytes = notify->bytes;
    }
    return a;
  }
  static void stay_in_the_way(tlm::tlm_generic_payload& trans) {
    if (auto* grant = trans.get_extension<RouteGrant>()) grant->refused = true;
  }
  // What the PE sends in answer to a write (a credit, say) leaves inside the call: looked at before it.
  void to_pe(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    stay_in_the_way(trans);
    if (trans.is_write()) m_rules->to_pe(access(trans, delay));
    pe_out->b_transport(trans, delay);
  }
  void from_pe(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    stay_in_the_way(trans);
    if (trans.is_write()) m_rules->from_pe(access(trans, delay));
    bus_out->b_transport(trans, delay);
  }
  unsigned to_pe_dbg(tlm::tlm_generic_payload& trans) { return pe_out->transport_dbg(trans); }
  unsigned from_pe_dbg(tlm::tlm_generic_payload& trans) { return bus_out->transport_dbg(trans); }

  IpcqRules::Shape m_shape;
  std::unique_ptr<IpcqRules> m_rules;
  std::vector<IpcqViolation> m_violations;
};

/// The other side of a queue pair, in place of a PE: an initiator that sends messages and gives credits back. `epoch`
/// is the reset epoch of the PE that it talks to. Every call is one or two transactions, issued at the current time; it
/// returns the worst response.
class IpcqStub : public sc_core::sc_module {
 public:
  struct Target {
    PeLocation pe;
    QpId qp{};
    uint64_t ring = 0;  ///< TCM offset of its receive ring
    uint32_t slots = 1;
    uint32_t slot_bytes = 0;
    uint32_t epoch = 0;
  };
  explicit IpcqStub(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
  tlm_utils::simple_initiator_socket<IpcqStub> out;

  /// Header and payload into the slot at the tail, then NOTIFY. Does not look at credits: that is the caller's choice.
  tlm::tlm_response_status send(const Target& to, ipcq::SlotHeader header, const std::vector<uint8_t>& payload) {
    header.bytes = static_cast<uint32_t>(payload.size());
    std::vector<uint8_t> message(sizeof header + payload.size());
    std::memcpy(message.data(), &header, sizeof header);
    if (!payload.empty()) std::memcpy(message.data() + sizeof header, payload.data(), payload.size());
    const tlm::tlm_response_status status = write_payload(to, message);
    if (status != tlm::TLM_OK_RESPONSE) return status;
    return notify(to, static_cast<uint32_t>(message.size()));
  }
  tlm::tlm_response_status write_payload(const Target& to, std::vector<uint8_t> bytes) {
    return write(tcm_address(to.pe, to.ring + m_sent % to.slots * to.slot_bytes), bytes.data(), bytes.size());
  }
  tlm::tlm_response_status notify(const Target& to, uint32_t bytes) {
    const tlm::tlm_response_status status = doorbell(to, ipcq::kNotify, bytes);
    if (status == tlm::TLM_OK_RESPONSE) ++m_sent;
    return status;
  }
  tlm::tlm_response_status credit(const Target& to, uint32_t slots) { return doorbell(to, ipcq::kCredit, slots); }
  tlm::tlm_response_status push(const Target& to, std::vector<uint8_t> bytes) {
    return write(doorbell_address(to.pe, to.qp, ipcq::kPush), bytes.data(), bytes.size(), 8);
  }
  uint64_t sent() const { return m_sent; }

 private:
  tlm::tlm_response_status doorbell(const Target& to, Addr offset, uint32_t n) {
    uint64_t word = n | uint64_t{to.epoch & 0xFFFF} << 32;
    return write(doorbell_address(to.pe, to.qp, offset), &word, sizeof word);
  }
  tlm::tlm_response_status write(Addr address, void* data, size_t bytes, unsigned streaming_width = 0) {
    tlm::tlm_generic_payload trans;
    trans.set_command(tlm::TLM_WRITE_COMMAND);
    trans.set_address(address);
    trans.set_data_ptr(static_cast<unsigned char*>(data));
    trans.set_data_length(static_cast<unsigned>(bytes));
    trans.set_streaming_width(streaming_width != 0 ? streaming_width : static_cast<unsigned>(bytes));
    sc_core::sc_time delay;
    out->b_transport(trans, delay);
    return trans.get_response_status();
  }
  uint64_t m_sent = 0;
};

}  // namespace ahbm::models
