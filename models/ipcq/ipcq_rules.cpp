#include "models/ipcq/ipcq_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/ipcq_protocol.h"

namespace ahbm::models {

namespace {
uint64_t word(const IpcqRules::Access& a) {
  uint64_t v = 0;
  if (a.data != nullptr) std::memcpy(&v, a.data, std::min<uint64_t>(a.bytes, sizeof v));
  return v;
}
}  // namespace

const char* to_string(IpcqRule rule) {
  static constexpr const char* kNames[] = {
      "unknown QP",         "disabled QP",        "NOTIFY too short", "NOTIFY too long", "NOTIFY without payload",
      "header mismatch",    "ring full",          "wrong slot",       "PUSH too long",   "CREDIT of nothing",
      "CREDIT beyond sent", "send beyond credit", "CREDIT not owed"};
  return kNames[static_cast<size_t>(rule)];
}

void IpcqRules::violate(const Access& a, uint32_t qp, IpcqRule rule, std::string text) {
  m_report({a.at, QpId{qp}, rule, fmt::format("{}: QP {}: {}", to_string(rule), qp, text)});
}

uint32_t IpcqRules::waiting(QpId qp) const {
  const auto it = m_qps.find(value(qp));
  return it == m_qps.end() ? 0 : static_cast<uint32_t>(it->second.arrived - it->second.given_back);
}

uint32_t IpcqRules::under_way(QpId qp) const {
  const auto it = m_qps.find(value(qp));
  return it == m_qps.end() ? 0 : static_cast<uint32_t>(it->second.sent - it->second.credited);
}

void IpcqRules::to_pe(const Access& a) {
  const uint64_t local = a.address - m_shape.pe_base;
  if (local >= addr::kPeWindowBytes) return;
  if (local >= addr::kPeDoorbells) {
    doorbell(a);
  } else if (local >= addr::kPeQpRegs) {
    register_write(a);
  } else if (local == addr::kPeSfr + regs::pe::offset::CTRL) {
    if (regs::pe::CTRL_RESET.of(word(a)) != 0) reset();
  } else if (local < m_shape.tcm_bytes) {
    payload(a);
  }
}

void IpcqRules::register_write(const Access& a) {
  namespace reg = regs::qp::offset;
  const uint64_t at = a.address - m_shape.pe_base - addr::kPeQpRegs;
  const auto id = static_cast<uint32_t>(at / addr::kQpRegBytes);
  if (id >= m_shape.queue_pairs) return;
  Qp& q = m_qps[id];
  const uint64_t v = word(a);
  switch (at % addr::kQpRegBytes) {
    case reg::PEER_QP:
      q.peer_qp = static_cast<uint32_t>(regs::qp::PEER_QP_QP.of(v));
      break;
    case reg::PEER_PE:
      q.peer_pe = v;
      break;
    case reg::PEER_RING:
      q.peer_ring = v;
      break;
    case reg::PEER_SLOTS:
      q.peer_slots = static_cast<uint32_t>(v);
      break;
    case reg::SLOT_BYTES:
      q.slot_bytes = static_cast<uint32_t>(v);
      break;
    case reg::RING:
      q.ring = v;
      break;
    case reg::SLOTS:
      q.slots = static_cast<uint32_t>(v);
      break;
    case reg::CTRL: {
      const bool enable = regs::qp::CTRL_ENABLE.of(v) != 0;
      if (enable && !q.enabled) {
        q.arrived = q.given_back = q.sent = q.credited = q.written = 0;
        q.has_header = false;
      }
      q.enabled = enable;
      break;
    }
    case reg::RELEASE:
      // Where outgoing traffic is seen, the CREDIT that this causes is counted instead.
      if (!m_shape.sees_outgoing) {
        q.given_back += std::min<uint64_t>(regs::qp::RELEASE_N.of(v), q.arrived - q.given_back);
      }
      break;
    case reg::SEND_BYTES:
      if (!m_shape.sees_outgoing) ++q.sent;
      break;
    default:
      break;
  }
}

void IpcqRules::doorbell(const Access& a) {
  const uint64_t at = a.address - m_shape.pe_base - addr::kPeDoorbells;
  const auto id = static_cast<uint32_t>(at / addr::kDoorbellBytes);
  const Addr offset = at % addr::kDoorbellBytes;
  if (id >= m_shape.queue_pairs) {
    violate(a, id, IpcqRule::UnknownQp, fmt::format("the PE has {}", m_shape.queue_pairs));
    return;
  }
  const auto it = m_qps.find(id);
  if (it == m_qps.end() || !it->second.enabled) {
    violate(a, id, IpcqRule::DisabledQp, "a doorbell");
    return;
  }
  Qp& q = it->second;
  if (offset == ipcq::kNotify) {
    if (a.data != nullptr) notify(a, id, static_cast<uint32_t>(word(a)));
  } else if (offset == ipcq::kCredit) {
    const uint64_t n = static_cast<uint32_t>(word(a));
    // The PE's own sends are seen only where its outgoing traffic or its registers are.
    if (n == 0) {
      violate(a, id, IpcqRule::CreditZero, "CREDIT of 0 slots");
    } else if (n > q.sent - q.credited) {
      violate(a, id, IpcqRule::CreditBeyondSent,
              fmt::format("CREDIT of {} slots, {} messages are under way", n, q.sent - q.credited));
    } else {
      q.credited += n;
    }
  } else if (offset == ipcq::kPush) {
    if (full(q)) {
      violate(a, id, IpcqRule::RingFull, fmt::format("PUSH while all {} slots are taken", q.slots));
    } else if (q.written + a.bytes > q.slot_bytes) {
      violate(a, id, IpcqRule::PushTooLong,
              fmt::format("PUSH of {} bytes behind {} in a slot of {}", a.bytes, q.written, q.slot_bytes));
    } else {
      append(q, a, q.written, a.bytes);
    }
  }
}

void IpcqRules::append(Qp& q, const Access& a, uint64_t offset, uint64_t bytes) {
  if (offset == 0 && bytes >= ipcq::kHeaderBytes && a.data != nullptr) {
    ipcq::SlotHeader header;
    std::memcpy(&header, a.data, sizeof header);
    q.claimed = header.bytes;
    q.has_header = true;
  }
  // Payload may be written in pieces, in any order of whole messages: what counts is that it reaches far enough.
  q.written = std::max(q.written, offset + bytes);
}

void IpcqRules::payload(const Access& a) {
  const uint64_t local = a.address - m_shape.pe_base;
  for (auto& [id, q] : m_qps) {
    if (!q.enabled || q.slots == 0) continue;
    const uint64_t ring_bytes = uint64_t{q.slots} * q.slot_bytes;
    if (local >= q.ring + ring_bytes || local + a.bytes <= q.ring) continue;
    const uint64_t tail = q.ring + q.arrived % q.slots * q.slot_bytes;
    if (full(q)) {
      violate(a, id, IpcqRule::RingFull,
              fmt::format("{} bytes at TCM 0x{:x} while all {} slots are taken", a.bytes, local, q.slots));
    } else if (local < tail || local + a.bytes > tail + q.slot_bytes) {
      violate(a, id, IpcqRule::WrongSlot,
              fmt::format("{} bytes at TCM 0x{:x}, the slot at the tail is 0x{:x} to 0x{:x}", a.bytes, local, tail,
                          tail + q.slot_bytes));
    } else {
      append(q, a, local - tail, a.bytes);
    }
    break;
  }
  if (!a.fused) return;
  const auto it = m_qps.find(a.fused_qp);
  if (it == m_qps.end() || !it->second.enabled) {
    violate(a, a.fused_qp, IpcqRule::DisabledQp, "a payload with NOTIFY");
    return;
  }
  notify(a, a.fused_qp, a.fused_bytes);
}

void IpcqRules::notify(const Access& a, uint32_t id, uint64_t bytes) {
  Qp& q = m_qps[id];
  if (bytes < ipcq::kHeaderBytes) {
    violate(a, id, IpcqRule::NotifyTooShort,
            fmt::format("NOTIFY of {} bytes, a header alone has {}", bytes, ipcq::kHeaderBytes));
    return;
  }
  if (bytes > q.slot_bytes) {
    violate(a, id, IpcqRule::NotifyTooLong, fmt::format("NOTIFY of {} bytes in a slot of {}", bytes, q.slot_bytes));
    return;
  }
  if (full(q)) {
    violate(a, id, IpcqRule::RingFull, fmt::format("NOTIFY while all {} slots are taken", q.slots));
    return;
  }
  if (q.written < bytes) {
    violate(a, id, IpcqRule::NotifyNoPayload,
            fmt::format("NOTIFY of {} bytes, {} are in the slot at the tail", bytes, q.written));
  } else if (q.has_header && q.claimed != bytes - ipcq::kHeaderBytes) {
    violate(a, id, IpcqRule::HeaderMismatch,
            fmt::format("NOTIFY of {} bytes, the header says {} + {}", bytes, ipcq::kHeaderBytes, q.claimed));
  }
  ++q.arrived;  // the hardware takes it
  q.written = 0;
  q.has_header = false;
}

void IpcqRules::from_pe(const Access& a) {
  for (auto& [id, q] : m_qps) {
    if (!q.enabled) continue;
    const Addr page = q.peer_pe + addr::kPeDoorbells + Addr{q.peer_qp} * addr::kDoorbellBytes;
    const bool sends = a.fused ? a.fused_qp == q.peer_qp && a.address >= q.peer_ring &&
                                     a.address < q.peer_ring + uint64_t{q.peer_slots} * q.slot_bytes
                               : a.address == page + ipcq::kNotify;
    if (sends) {
      if (q.sent - q.credited >= q.peer_slots) {
        violate(a, id, IpcqRule::SendBeyondCredit,
                fmt::format("message {} while all {} slots of the peer are taken", q.sent, q.peer_slots));
      } else {
        ++q.sent;
      }
      return;
    }
    if (!a.fused && a.address == page + ipcq::kCredit) {
      const uint64_t n = static_cast<uint32_t>(word(a));
      if (n > q.arrived - q.given_back) {
        violate(a, id, IpcqRule::CreditNotOwed,
                fmt::format("CREDIT of {} slots, {} messages are there", n, q.arrived - q.given_back));
      } else {
        q.given_back += n;
      }
      return;
    }
  }
}

}  // namespace ahbm::models
