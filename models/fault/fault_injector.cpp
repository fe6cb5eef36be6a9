#include "models/fault/fault_injector.h"

#include <fmt/core.h>

#include <stdexcept>

namespace ahbm::models {

FaultInjector& FaultInjector::none() {
  static FaultInjector nobody;
  return nobody;
}

size_t FaultInjector::add(const Fault& fault) {
  if (this == &none()) throw std::logic_error("no faults can be added here: this module is not part of a System");
  m_faults.push_back(fault);
  m_seen.push_back(0);
  m_has_fired.push_back(false);
  m_over.push_back(false);
  switch (fault.kind) {
    case FaultKind::DropMessage:
    case FaultKind::CorruptMessage:
      m_messages = true;
      break;
    case FaultKind::StopPe:
      m_stops = true;
      break;
    case FaultKind::AddressError:
      m_addresses = true;
      break;
    case FaultKind::FailLink:
      break;  // the link knows by itself
  }
  return m_faults.size() - 1;
}

void FaultInjector::strike(size_t fault, Ps at, uint32_t group, uint32_t seq, bool silent) {
  if (m_has_fired[fault]) return;
  m_has_fired[fault] = true;
  m_fired.push_back({fault, at, group, seq, silent,
                     fmt::format("fault {} ({}) struck at {} ns", fault, describe(m_faults[fault]),
                                 static_cast<double>(at) / 1000.0)});
}

std::string FaultInjector::note() const {
  if (m_fired.empty()) return {};
  std::string out = " [injected: ";
  for (size_t i = 0; i < m_fired.size(); ++i) out += (i == 0 ? "" : "; ") + m_fired[i].text;
  return out + ']';
}

FaultInjector::Fate FaultInjector::on_message(const PeLocation& from, uint32_t qp, bool has_data, uint32_t group,
                                              uint32_t seq, Ps now) {
  Fate fate = Fate::Pass;
  for (size_t i = 0; i < m_faults.size(); ++i) {
    const Fault& f = m_faults[i];
    if (f.kind != FaultKind::DropMessage && f.kind != FaultKind::CorruptMessage) continue;
    if (f.pe != from || (f.qp && *f.qp != qp) || ++m_seen[i] != f.message) continue;
    const bool payload = f.kind == FaultKind::CorruptMessage && f.part == MessagePart::Payload;
    strike(i, now, group, seq, f.kind == FaultKind::CorruptMessage && (payload || !has_data));
    if (fate == Fate::Drop) continue;  // a lost message cannot be altered as well
    fate = f.kind == FaultKind::DropMessage ? Fate::Drop : payload ? Fate::CorruptPayload : Fate::CorruptHeader;
  }
  return fate;
}

bool FaultInjector::stopped(const PeLocation& pe, Ps now) {
  bool stopped = false;
  for (size_t i = 0; i < m_faults.size(); ++i) {
    const Fault& f = m_faults[i];
    if (f.kind != FaultKind::StopPe || f.pe != pe || m_over[i] || now < f.at) continue;
    strike(i, now);
    stopped = true;
  }
  return stopped;
}

void FaultInjector::revive(const PeLocation& pe, Ps now) {
  for (size_t i = 0; i < m_faults.size(); ++i) {
    const Fault& f = m_faults[i];
    if (f.kind == FaultKind::StopPe && f.pe == pe && now >= f.at) m_over[i] = true;
  }
}

bool FaultInjector::refuses(Addr address, uint64_t bytes, bool write, Ps now) {
  bool refused = false;
  for (size_t i = 0; i < m_faults.size(); ++i) {
    const Fault& f = m_faults[i];
    if (f.kind != FaultKind::AddressError || now < f.at) continue;
    if (f.access == (write ? FaultAccess::Read : FaultAccess::Write)) continue;
    if (address >= f.address + f.bytes || address + bytes <= f.address) continue;
    strike(i, now);
    refused = true;
  }
  return refused;
}

}  // namespace ahbm::models
