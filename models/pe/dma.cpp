#include "models/pe/dma.h"

#include "models/core/ipcq_protocol.h"
#include "models/fault/fault_injector.h"

namespace ahbm::models {

Dma::Dma(const SystemConfig& config, PayloadPool& payloads, Tcm& tcm, uint32_t flat_pe, Progress& progress,
         FaultInjector& faults)
    : m_config(config),
      m_payloads(payloads),
      m_tcm(tcm),
      m_flat_pe(flat_pe),
      m_progress(progress),
      m_faults(faults),
      m_out_done(std::make_unique<Ps[]>(config.pe.dma_outstanding)),
      m_in_done(std::make_unique<Ps[]>(config.pe.dma_outstanding)),
      m_out({config.pe.dma_bytes_per_second, 0}, kUnframed),
      m_in({config.pe.dma_bytes_per_second, 0}, kUnframed) {}

PooledPayload& Dma::prepare(tlm::tlm_command command, Addr address, uint8_t* data, uint64_t bytes) {
  PooledPayload& p = m_payloads.acquire();
  p.set_command(command);
  p.set_address(address);
  p.set_data_ptr(data);
  p.set_data_length(static_cast<unsigned>(bytes));
  p.set_streaming_width(static_cast<unsigned>(bytes));
  p.origin.flat_pe = m_flat_pe;
  p.origin.launch_tag = m_tag;
  m_progress.note();
  return p;
}

bool Dma::reaches_memory(Addr address, uint64_t bytes) {
  const Route& route = m_routes.to(address);
  if (m_initiator.granted(route) && route.covers(address, bytes)) return true;
  const Decoded d = decode(address, m_config.map_shape());
  return (d.region == Region::Hbm || d.region == Region::Tcm) && fits(d, bytes);
}

Dma::Result Dma::write(Ps start, Addr dst, const uint8_t* src, uint64_t bytes) {
  PooledPayload& p = prepare(tlm::TLM_WRITE_COMMAND, dst, const_cast<uint8_t*>(src), bytes);
  Transit& t = p.transit.transit;
  t.head = t.tail = start + m_config.pe.dma_setup;
  t.wire_payload = bytes;
  const Ps now = now_ps();
  m_tcm.port().pass(now, t);
  m_out.pass(now, t);
  Result r;
  r.taken = t.tail;
  m_initiator.transport(p, m_routes.to(dst));
  r.done = t.tail;
  m_progress.note_until(r.done);
  r.status = p.get_response_status();
  p.release();
  ++m_out_stats.transfers;
  m_out_stats.bytes += bytes;
  m_out_done[m_out_next] = r.taken;
  step(m_out_next);
  return r;
}

bool Dma::strike(const SendSlot& slot, const uint8_t*& data, uint32_t bytes, Ps now) {
  const auto fate = m_faults.on_message(m_config.pe_location(m_flat_pe), slot.qp, data != nullptr, m_group, m_seq, now);
  if (fate == FaultInjector::Fate::Drop) return true;
  if (fate == FaultInjector::Fate::Pass || data == nullptr) return false;
  m_altered.assign(data, data + bytes);
  const bool payload = fate == FaultInjector::Fate::CorruptPayload && bytes > ipcq::kHeaderBytes;
  const size_t at = payload ? ipcq::kHeaderBytes + (bytes - ipcq::kHeaderBytes) / 2 : offsetof(ipcq::SlotHeader, seq);
  m_altered[at] ^= 0x5A;
  data = m_altered.data();
  return false;
}

Dma::Result Dma::send(Ps start, const SendSlot& slot, uint64_t tcm_offset, uint32_t bytes, uint32_t wire_bytes,
                      Route& route, bool moves_bytes) {
  PooledPayload& p = prepare(tlm::TLM_WRITE_COMMAND, slot.address, nullptr, bytes);
  Transit& t = p.transit.transit;
  t.head = t.tail = start + m_config.pe.dma_setup;
  t.wire_payload = wire_bytes;
  t.has_egress = slot.has_egress;
  t.egress = slot.egress;
  p.notify.qp = slot.peer_qp;
  p.notify.bytes = bytes;
  p.notify.epoch = slot.peer_epoch;
  // Along a granted route only a PE of ours looks, at the transit.
  const bool walks = !m_initiator.follows(route, p);
  const bool faults = m_faults.messages_armed();
  const uint8_t* data = nullptr;
  if (moves_bytes) {
    constexpr uint32_t kHeader = ipcq::kHeaderBytes;
    const bool into_tcm = (slot.address & (addr::kPeWindowBytes - 1)) + bytes <= m_config.pe.tcm_bytes;
    const bool gathers = !walks && route.gathers && into_tcm && !faults && bytes > kHeader;
    if (gathers) t.payload = m_tcm.on_loan(tcm_offset + kHeader, bytes - kHeader);
    data = m_tcm.data(tcm_offset, t.payload != nullptr ? kHeader : bytes);
  }
  const bool lost = faults && strike(slot, data, bytes, start);
  p.set_data_ptr(const_cast<uint8_t*>(data));
  const Ps now = now_ps();
  m_tcm.port().pass(now, t);
  m_out.pass(now, t);
  // The NOTIFY leaves together with the head of the payload.
  p.notify.doorbell = Transit{t.head, t.head, 8, Channel::Control, slot.egress, slot.has_egress};
  t.notify = &p.notify;
  if (walks) p.set_extension(&p.notify);
  Result r;
  r.taken = t.tail;
  if (lost) {
    p.set_response_status(tlm::TLM_OK_RESPONSE);
  } else {
    m_initiator.transport(p, route);
  }
  r.done = t.tail;
  m_progress.note_until(r.done);
  r.status = p.get_response_status();
  if (walks) p.clear_extension(&p.notify);
  t.notify = nullptr;
  t.payload = nullptr;
  p.release();
  ++m_out_stats.transfers;
  m_out_stats.bytes += bytes;
  m_out_done[m_out_next] = r.taken;
  step(m_out_next);
  return r;
}

void Dma::fetch(uint32_t turns, Ps at) const {
  static_assert(kFetchTurns == 8);
  const Route* const route = turns < 8 ? m_routes.last() : nullptr;
  switch (turns) {
    case 8:  // nothing of this object has been fetched yet
      fetch_lines(this, &m_out);
      m_out.fetch();
      m_in.fetch();
      fetch_line(&m_out_stats);
      return;
    case 7:
      for (const Hop* hop : {&m_out, &m_in, static_cast<const Hop*>(&m_tcm.port())}) hop->fetch_second(at);
      fetch_line(&m_out_done[m_out_next]);
      fetch_line(&m_in_done[m_in_next]);
      if (route != nullptr) fetch_line(route);
      return;
    case 6:
      for (const Hop* hop : {&m_out, &m_in, static_cast<const Hop*>(&m_tcm.port())}) hop->fetch_intervals(at);
      if (route != nullptr) route->fetch_lists(Route::Use::Read);
      return;
    case 5:
      if (route != nullptr) route->fetch_hops(Route::Use::Read);
      return;
    case 4:
      if (route != nullptr) route->fetch_second(Route::Use::Read, at);
      return;
    case 3:
      if (route != nullptr) route->fetch_intervals(Route::Use::Read, at);
      return;
    default:
      return;
  }
}

Dma::Result Dma::read(Ps now, Addr src, uint8_t* dst, uint64_t bytes, Loan* loan) {
  PooledPayload& p = prepare(tlm::TLM_READ_COMMAND, src, dst, bytes);
  Transit& t = p.transit.transit;
  t.head = t.tail = now + m_config.pe.dma_setup;
  Route& route = m_routes.to(src);
  if (loan != nullptr && m_initiator.follows(route, p)) t.loan = loan;
  m_initiator.transport(p, route);
  t.loan = nullptr;
  Result r;
  r.status = p.get_response_status();
  if (r.status == tlm::TLM_OK_RESPONSE) {
    t.wire_payload = bytes;
    m_in.pass(now, t);
    m_tcm.port().pass(now, t);
  }
  r.taken = r.done = t.tail;
  m_progress.note_until(r.done);
  p.release();
  ++m_in_stats.transfers;
  m_in_stats.bytes += bytes;
  m_in_done[m_in_next] = r.done;
  step(m_in_next);
  return r;
}

}  // namespace ahbm::models
