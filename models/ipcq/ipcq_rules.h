// The IPCQ convention as rules over the traffic of one PE: what a sender, a receiver and a bridge to RTL must keep to.
// A plain class, without SystemC; IpcqChecker feeds it from sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/core/address_map.h"
#include "models/core/ids.h"
#include "models/core/time.h"

namespace ahbm::models {

enum class IpcqRule : uint8_t {
  UnknownQp,         ///< a doorbell page beyond the PE's queue pairs
  DisabledQp,        ///< a doorbell or a payload for a queue pair that is not enabled
  NotifyTooShort,    ///< NOTIFY of less than a header
  NotifyTooLong,     ///< NOTIFY of more than a slot
  NotifyNoPayload,   ///< NOTIFY of bytes that were not written to the slot at the tail before
  HeaderMismatch,    ///< the header's own count of payload bytes is not that of NOTIFY
  RingFull,          ///< NOTIFY, PUSH or payload while every slot is taken
  WrongSlot,         ///< payload into a slot that is not the one at the tail, or across its end
  PushTooLong,       ///< PUSH beyond the end of the slot
  CreditZero,        ///< CREDIT of no slots
  CreditBeyondSent,  ///< CREDIT of more slots than messages are under way
  SendBeyondCredit,  ///< the PE sends although the peer has no free slot
  CreditNotOwed,     ///< the PE gives back more slots than messages have arrived
};
const char* to_string(IpcqRule rule);

struct IpcqViolation {
  Ps at = 0;
  QpId qp{};
  IpcqRule rule{};
  std::string text;  ///< with figures: what was seen and what was allowed
};

/// State per queue pair, learned from the writes to the QP registers. Feed it every access to the PE's window (`to_pe`)
/// and, where it can be watched, every access that leaves the PE (`from_pe`): without those the slots that the PE gives
/// back are known only from writes to RELEASE, and the rules about what the PE itself does are not checked.
/// A violation does not change the state: the hardware ignores what is refused, so later rules stay meaningful.
class IpcqRules {
 public:
  struct Shape {
    Addr pe_base = 0;
    uint64_t tcm_bytes = 4 << 20;
    uint32_t queue_pairs = 64;
    bool sees_outgoing = true;
  };
  IpcqRules(const Shape& shape, std::function<void(const IpcqViolation&)> report)
      : m_shape(shape), m_report(std::move(report)) {}

  struct Access {
    Ps at = 0;
    Addr address = 0;
    const uint8_t* data = nullptr;  ///< null when the simulation moves no bytes
    uint64_t bytes = 0;
    /// A fused NOTIFY goes with this payload.
    bool fused = false;
    uint32_t fused_qp = 0, fused_bytes = 0;
  };
  void to_pe(const Access& write);
  void from_pe(const Access& write);
  /// The PE was reset: every queue pair is disabled.
  void reset() { m_qps.clear(); }

  /// For the end of a test: messages in the ring that were not given back, and sent ones whose credit has not come.
  uint32_t waiting(QpId qp) const;
  uint32_t under_way(QpId qp) const;

 private:
  struct Qp {
    // registers
    uint32_t peer_qp = 0, peer_slots = 0, slot_bytes = 0, slots = 0;
    Addr peer_pe = 0, peer_ring = 0;
    uint64_t ring = 0;
    bool enabled = false;
    // traffic
    uint64_t arrived = 0, given_back = 0, sent = 0, credited = 0;
    uint64_t written = 0;  ///< bytes of the slot at the tail that have been written from its start
    uint32_t claimed = 0;  ///< payload bytes that its header announces
    bool has_header = false;
  };
  void violate(const Access& a, uint32_t qp, IpcqRule rule, std::string text);
  void register_write(const Access& a);
  void doorbell(const Access& a);
  void payload(const Access& a);
  void notify(const Access& a, uint32_t qp, uint64_t bytes);
  void append(Qp& q, const Access& a, uint64_t offset, uint64_t bytes);
  bool full(const Qp& q) const { return q.arrived - q.given_back >= q.slots; }

  const Shape m_shape;
  std::function<void(const IpcqViolation&)> m_report;
  std::map<uint32_t, Qp> m_qps;
};

}  // namespace ahbm::models
