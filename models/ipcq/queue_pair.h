// One queue pair as a plain class: credits towards the peer, messages from it. No SystemC: times come in as arguments.
//
// Under loose timing a message or a credit is known before its time has come, so every slot carries the time from which
// it counts. Counts "now" look at those times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "models/core/address_map.h"
#include "models/core/config/system_config.h"
#include "models/core/host_lines.h"
#include "models/core/time.h"

namespace ahbm::models {

/// What the QP registers hold (configs/registers/qp.yaml).
struct QpConfig {
  Addr peer_pe = 0;
  Addr peer_ring = 0;
  uint64_t ring_offset = 0;  ///< in the TCM
  uint32_t peer_qp = 0;
  uint32_t peer_epoch = 0;
  uint32_t peer_slots = 0;
  uint32_t slot_bytes = 0;
  uint32_t slots = 0;
  bool irq_on_message = false;
  bool has_egress = false;
  Side egress = Side::E;
};

enum class QpResult : uint8_t { Ok, Disabled, TooLong, Overrun };

class QueuePair {
 public:
  /// Empties the receive ring and takes all credits of the peer. \pre counts and sizes are sane (see Ipcq)
  void enable(const QpConfig& config);
  void disable();
  bool enabled() const { return m_enabled; }
  const QpConfig& config() const { return m_config; }

  // --- towards the peer
  /// When the slot at the tail is (or will be) free; nothing when no credit for it is known yet.
  std::optional<Ps> credit_time() const {
    if (!m_enabled || m_sent - m_credited >= m_config.peer_slots) return std::nullopt;
    return m_credit_at[m_send_slot];
  }
  uint32_t credits(Ps now) const;
  /// In the peer's ring.
  Addr tail_address() const { return m_config.peer_ring + uint64_t{m_send_slot} * m_config.slot_bytes; }
  void take_credit() {  ///< \pre credit_time()
    ++m_sent;
    step(m_send_slot, m_config.peer_slots);
  }
  QpResult add_credits(uint64_t n, Ps at);
  uint64_t sent() const { return m_sent; }
  uint64_t credited() const { return m_credited; }

  // --- from the peer
  /// Bytes of the payload write into the slot at the tail are all there at `at`.
  void payload_arrived(Ps at);
  /// Appends to the slot at the tail; returns its TCM offset, or nothing when the bytes do not fit or no slot is free.
  std::optional<uint64_t> push(uint32_t bytes);
  /// What `notify` would answer.
  QpResult would_take(uint64_t bytes) const;
  /// Commits `bytes` at the tail, visible from max(at, payload) + latency on.
  /// \param payload_at  of a payload that comes with it, as by payload_arrived
  QpResult notify(uint64_t bytes, Ps at, Ps latency, Ps payload_at = 0);
  struct Message {
    uint64_t ticket = 0;      ///< number since enable
    uint64_t tcm_offset = 0;  ///< of the slot, header first
    uint32_t bytes = 0;       ///< header + payload
    Ps ready = 0;
  };
  /// The oldest message that nobody took; nothing when none is known.
  std::optional<Message> front() const {
    if (!m_enabled || m_taken == m_arrived) return std::nullopt;
    const RxSlot& slot = m_rx[m_take_slot];
    return Message{m_taken, m_config.ring_offset + uint64_t{m_take_slot} * m_config.slot_bytes, slot.bytes, slot.ready};
  }
  void take() {  ///< \pre front()
    ++m_taken;
    step(m_take_slot, m_config.slots);
  }
  /// Gives a taken message back; returns the credits to send now (slots are given back in order).
  uint32_t release(uint64_t ticket);
  uint32_t level(Ps now) const;  ///< messages visible and not yet released
  uint64_t arrived() const { return m_arrived; }
  Ps last_ready() const { return m_last_ready; }  ///< when the newest message counts
  uint64_t taken() const { return m_taken; }
  uint64_t released() const { return m_released; }
  /// What a credit (for who sends), else a message touches besides this object. Of long rings the beginning.
  void name_touched(bool send, HostLines& lines) const {
    constexpr uint32_t kSlots = 16;
    if (!m_enabled) return;  // there are no slots
    if (send) {
      lines.add(m_credit_at.get(), m_credit_at.get() + std::min(m_config.peer_slots, kSlots));
    } else {
      lines.add(m_rx.get(), m_rx.get() + std::min(m_config.slots, kSlots));
    }
  }
  /// Asks the host for the slot that is sent to, or else taken, next.
  void fetch(bool send) const {
    if (!m_enabled) return;
    fetch_line(send ? static_cast<const void*>(&m_credit_at[m_send_slot]) : &m_rx[m_take_slot]);
  }
  bool clean() const { return m_arrived == m_released && m_credited == m_sent; }

 private:
  struct RxSlot {
    Ps ready = 0;
    uint32_t bytes = 0;
    bool released = false;
  };
  static void step(uint32_t& slot, uint32_t slots) { slot = slot + 1 == slots ? 0 : slot + 1; }

  // Three cache lines where it begins with one: what both sides need, what a message that comes in touches, what one
  // that leaves and its credit do. The *_slot say where the counts stand, modulo the ring: divisions are dear.
  QpConfig m_config;
  uint32_t m_send_slot = 0, m_credit_slot = 0;
  bool m_enabled = false;

  std::unique_ptr<RxSlot[]> m_rx;
  // Apart: two counts that are read as one right after one of them was written wait for the host's stores before that.
  uint64_t m_taken = 0;
  Ps m_payload_at = 0;
  uint64_t m_released = 0;
  Ps m_last_ready = 0;
  uint32_t m_arrive_slot = 0, m_take_slot = 0, m_release_slot = 0;
  uint32_t m_pushed = 0;  ///< bytes in the slot at the tail, of a message that is not complete
  uint64_t m_arrived = 0;

  uint64_t m_sent = 0, m_credited = 0;
  std::unique_ptr<Ps[]> m_credit_at;  ///< per peer slot: when the credit for its last use arrives
};

}  // namespace ahbm::models
