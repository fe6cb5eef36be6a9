#include "models/ipcq/queue_pair.h"

#include <algorithm>

#include "models/core/ipcq_protocol.h"

namespace ahbm::models {

void QueuePair::enable(const QpConfig& config) {
  *this = QueuePair();
  m_config = config;
  m_enabled = true;
  m_credit_at = std::make_unique<Ps[]>(config.peer_slots);
  m_rx = std::make_unique<RxSlot[]>(config.slots);
}

void QueuePair::disable() {
  const QpConfig config = m_config;
  *this = QueuePair();
  m_config = config;
}

uint32_t QueuePair::credits(Ps now) const {
  if (!m_enabled) return 0;
  // Slots that were never used, and those whose credit has arrived by now. Credits arrive in order.
  uint32_t n = 0;
  for (uint64_t s = m_sent; s < m_credited + m_config.peer_slots; ++s) {
    if (m_credit_at[s % m_config.peer_slots] > now) break;
    ++n;
  }
  return n;
}

QpResult QueuePair::add_credits(uint64_t n, Ps at) {
  if (!m_enabled) return QpResult::Disabled;
  if (n == 0 || n > m_sent - m_credited) return QpResult::Overrun;
  for (uint64_t i = 0; i < n; ++i) {
    m_credit_at[m_credit_slot] = at;
    step(m_credit_slot, m_config.peer_slots);
  }
  m_credited += n;
  return QpResult::Ok;
}

void QueuePair::payload_arrived(Ps at) {
  m_payload_at = std::max(m_payload_at, at);
}

std::optional<uint64_t> QueuePair::push(uint32_t bytes) {
  if (!m_enabled || m_arrived - m_released >= m_config.slots || m_pushed + bytes > m_config.slot_bytes) {
    return std::nullopt;
  }
  const uint64_t at = m_config.ring_offset + uint64_t{m_arrive_slot} * m_config.slot_bytes + m_pushed;
  m_pushed += bytes;
  return at;
}

QpResult QueuePair::would_take(uint64_t bytes) const {
  if (!m_enabled) return QpResult::Disabled;
  if (bytes < ipcq::kHeaderBytes || bytes > m_config.slot_bytes) return QpResult::TooLong;
  if (m_arrived - m_released >= m_config.slots) return QpResult::Overrun;
  return QpResult::Ok;
}

QpResult QueuePair::notify(uint64_t bytes, Ps at, Ps latency, Ps payload_at) {
  if (const QpResult refused = would_take(bytes); refused != QpResult::Ok) return refused;
  RxSlot& slot = m_rx[m_arrive_slot];
  m_last_ready = std::max(m_last_ready, std::max({at, payload_at, m_payload_at}) + latency);
  slot = {m_last_ready, static_cast<uint32_t>(bytes), false};
  ++m_arrived;
  step(m_arrive_slot, m_config.slots);
  m_payload_at = 0;
  m_pushed = 0;
  return QpResult::Ok;
}

uint32_t QueuePair::release(uint64_t ticket) {
  if (!m_enabled || ticket >= m_taken || ticket < m_released) return 0;
  const uint64_t slot = m_release_slot + (ticket - m_released);
  m_rx[slot < m_config.slots ? slot : slot - m_config.slots].released = true;
  uint32_t n = 0;
  while (m_released < m_taken && m_rx[m_release_slot].released) {
    m_rx[m_release_slot].released = false;
    step(m_release_slot, m_config.slots);
    ++m_released;
    ++n;
  }
  return n;
}

uint32_t QueuePair::level(Ps now) const {
  uint32_t n = 0;
  for (uint64_t i = m_released; i < m_arrived; ++i) {
    if (m_rx[i % m_config.slots].ready > now) break;
    ++n;
  }
  return n;
}

}  // namespace ahbm::models
