#include "models/pe/move_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "models/core/ipcq_protocol.h"
#include "models/tl/framing.h"

namespace ahbm::models {

void MoveEngine::begin(const launch::ArgHeader& header, const std::vector<launch::LinkEntry>& links, uint32_t flat_pe) {
  m_header = header;
  m_flat_pe = flat_pe;
  m_lanes.clear();
  for (const launch::LinkEntry& link : links) {
    m_lanes.emplace_back();
    m_lanes.back().qp = QpId{link.qp};
    m_lanes.back().link = link;
  }
  for (auto& state : m_pool) {
    if (state->handle == 0) continue;
    state->handle = 0;
    m_free.push_back(state.get());
  }
  m_listed.clear();
  m_first_handle += m_done.size();
  m_done.clear();
  m_in_flight = 0;
  m_stored_by = 0;
  m_parts.scratch->reset();
}

size_t MoveEngine::lane_index(tl::Dir dir) const {
  for (size_t i = 0; i < m_lanes.size(); ++i) {
    if (m_lanes[i].link.dir == static_cast<uint16_t>(dir)) return i;
  }
  throw tl::ProtocolError(fmt::format("PE {} has no neighbour in direction {}", m_flat_pe, tl::to_string(dir)));
}

MoveEngine::MoveState& MoveEngine::acquire_state() {
  if (m_free.empty()) {
    m_pool.push_back(std::make_unique<MoveState>());
    m_pool.back()->ring.resize(kWindow);
    m_free.push_back(m_pool.back().get());
  }
  MoveState& m = *m_free.back();
  m_free.pop_back();
  m.opened = m.loaded = m.computed = m.settled = m.stored = m.retired = 0;
  for (int i = 0; i < 4; ++i) m.received[i] = m.sent[i] = 0;
  m.listed = false;
  return m;
}

void MoveEngine::list(MoveState* m) {
  if (m->listed) return;
  m->listed = true;
  m_listed.push_back(m);
}

tl::Handle MoveEngine::submit(const tl::Move& move, Ps now) {
  (void)now;
  tl::check_move(move);
  const tl::Handle handle = m_first_handle + m_done.size();
  m_done.push_back(move.count == 0);
  if (move.count == 0) {
    while (!m_done.empty() && m_done.front()) {
      m_done.pop_front();
      ++m_first_handle;
    }
    return handle;
  }
  MoveState& m = acquire_state();
  m.move = move;
  m.handle = handle;
  m.item = item_bytes(move.dtype);
  const uint32_t bytes = tl::piece_bytes(move, [this](tl::Dir d) { return m_lanes[lane_index(d)].link.slot_bytes; });
  m.piece_elems = bytes / m.item;
  m.pieces = static_cast<uint32_t>(ceil_div(move.count, m.piece_elems));
  m.computes = move.local != 0 || move.from.size() > 1 || move.divisor > 1;
  bool head = move.from.empty() && move.to.empty();
  for (size_t i = 0; i < move.from.size(); ++i) {
    m.from[i] = static_cast<uint16_t>(lane_index(move.from[i]));
    auto& queue = m_lanes[m.from[i]].receiving;
    queue.push_back(&m);
    head = head || queue.front() == &m;
  }
  for (size_t i = 0; i < move.to.size(); ++i) {
    m.to[i] = static_cast<uint16_t>(lane_index(move.to[i]));
    auto& queue = m_lanes[m.to[i]].sending;
    queue.push_back(&m);
    head = head || queue.front() == &m;
  }
  if (head) list(&m);
  ++m_in_flight;
  return handle;
}

bool MoveEngine::done(tl::Handle handle) const {
  if (handle < m_first_handle) return true;
  const size_t i = handle - m_first_handle;
  return i < m_done.size() && m_done[i];
}

bool MoveEngine::lane_idle(tl::Dir dir) const {
  return m_lanes[lane_index(dir)].receiving.empty();
}

bool MoveEngine::wants_message(QpId qp) const {
  for (const Lane& lane : m_lanes) {
    if (lane.qp == qp) return lane.wants_message;
  }
  return false;
}

bool MoveEngine::wants_credit(QpId qp) const {
  for (const Lane& lane : m_lanes) {
    if (lane.qp == qp) return lane.wants_credit;
  }
  return false;
}

std::optional<Ps> MoveEngine::progress(Ps now) {
  m_next_wake.reset();
  for (Lane& lane : m_lanes) lane.wants_message = lane.wants_credit = false;
  do {
    m_ripple = false;
    bool finished = false;
    for (size_t i = 0; i < m_listed.size(); ++i) {  // grows while lanes move on
      MoveState& m = *m_listed[i];
      advance(m, now);
      if (m.retired == m.pieces) {
        finish(m);
        finished = true;
      }
    }
    if (finished) {
      m_listed.erase(
          std::remove_if(m_listed.begin(), m_listed.end(), [](const MoveState* m) { return m->retired == m->pieces; }),
          m_listed.end());
    }
  } while (m_ripple && m_listed.size() > 1);
  return m_next_wake;
}

void MoveEngine::advance(MoveState& m, Ps now) {
  // In the order of a piece's life, so that one pass takes it as far as it can go. Only a retired piece opens the
  // window for earlier stages again.
  do {
    advance_loads(m, now);
    advance_receives(m, now);
    advance_computes(m, now);
    advance_settles(m, now);
    advance_sends(m, now);
    advance_stores(m, now);
  } while (advance_retires(m, now) && m.retired < m.pieces);
}

uint32_t MoveEngine::piece_count(const MoveState& m, uint32_t i) const {
  const uint64_t begin = uint64_t{i} * m.piece_elems;
  return static_cast<uint32_t>(std::min<uint64_t>(m.piece_elems, m.move.count - begin));
}

bool MoveEngine::open(MoveState& m, uint32_t i) {
  while (m.opened <= i) {
    if (m.opened >= m.retired + kWindow) return false;
    Piece& p = m.piece(m.opened);
    p = Piece();
    p.count = piece_count(m, m.opened);
    ++m.opened;
  }
  return true;
}

bool MoveEngine::stage(MoveState& m, Piece& p) {
  if (p.stage != Scratch::kNone) return true;
  const uint64_t bytes = ipcq::kHeaderBytes + uint64_t{m.piece_elems} * m.item;
  p.stage = m_parts.scratch->allocate(bytes);
  if (p.stage != Scratch::kNone) return true;
  if (m_parts.scratch->used() == 0) {
    throw tl::ProtocolError(fmt::format("PE {}: a piece of {} bytes does not fit the {} bytes of TCM behind the rings",
                                        m_flat_pe, bytes, m_parts.scratch->capacity()));
  }
  return false;
}

uint8_t* MoveEngine::accumulator(const MoveState& m, const Piece& p) const {
  return m_parts.tcm->data(m.computes ? p.stage : p.slot_offset[0]);
}

uint8_t* MoveEngine::payload(uint8_t* slot) const {
  return m_parts.config->simulation.functional ? slot + ipcq::kHeaderBytes : nullptr;
}

void MoveEngine::advance_loads(MoveState& m, Ps now) {
  if (m.move.local == 0) return;
  while (m.loaded < m.pieces && open(m, m.loaded)) {
    Piece& p = m.piece(m.loaded);
    if (m_parts.dma->in_free() > now) {
      wake_at(m_parts.dma->in_free());
      break;
    }
    if (!stage(m, p)) break;
    const Addr src = m.move.local + piece_offset(m, m.loaded);
    const Dma::Result r = m_parts.dma->read(now, src, payload(m_parts.tcm->data(p.stage)), uint64_t{p.count} * m.item);
    if (r.status != tlm::TLM_OK_RESPONSE) fault("load", src, r.status);
    p.load_ready = r.done;
    ++m.loaded;
  }
}

void MoveEngine::advance_receives(MoveState& m, Ps now) {
  for (size_t s = 0; s < m.move.from.size(); ++s) {
    Lane& lane = m_lanes[m.from[s]];
    while (m.received[s] < m.pieces && lane.receiving.front() == &m && open(m, m.received[s])) {
      const auto message = m_parts.ipcq->front(lane.qp);
      if (!message) {
        lane.wants_message = true;
        break;
      }
      if (message->ready > now) {
        wake_at(message->ready);
        break;
      }
      Piece& p = m.piece(m.received[s]);
      const uint32_t bytes = p.count * m.item;
      if (m_parts.config->simulation.functional) {
        ipcq::SlotHeader header;
        std::memcpy(&header, m_parts.tcm->data(message->tcm_offset), sizeof header);
        const ipcq::SlotHeader expected = tl::make_header(m_header.group, m_header.seq, tl::received_step(m.move),
                                                          m.move.dtype, bytes, lane.link.peer_flat_pe);
        const std::string mismatch = tl::check_header(header, expected);
        if (!mismatch.empty()) {
          throw tl::ProtocolError(fmt::format("PE {} direction {} (QP {}): {}", m_flat_pe,
                                              tl::to_string(m.move.from[s]), value(lane.qp), mismatch));
        }
      }
      m_parts.ipcq->take(lane.qp);
      p.tickets[s] = message->ticket;
      p.slot_offset[s] = message->tcm_offset;
      p.slots_held = true;
      ++m_stats.messages_received;
      ++*m_parts.progress;
      if (++m.received[s] == m.pieces) {
        lane.receiving.pop_front();
        if (!lane.receiving.empty()) list(lane.receiving.front());
        m_ripple = true;
        break;
      }
    }
  }
}

void MoveEngine::advance_computes(MoveState& m, Ps now) {
  while (m.computed < m.pieces) {
    const uint32_t i = m.computed;
    if (m.move.local != 0 && m.loaded <= i) break;
    bool all = true;
    for (size_t s = 0; s < m.move.from.size(); ++s) all = all && m.received[s] > i;
    if (!all) break;
    Piece& p = m.piece(i);
    if (p.load_ready > now) {
      wake_at(p.load_ready);
      break;
    }
    p.acc_ready = now;
    if (m.computes) {
      if (!stage(m, p)) break;
      const bool functional = m_parts.config->simulation.functional;
      uint8_t* acc = m_parts.tcm->data(p.stage) + ipcq::kHeaderBytes;
      const uint8_t* left = m.move.local != 0 ? acc : nullptr;
      uint32_t passes = 0;
      for (size_t s = 0; s < m.move.from.size(); ++s) {
        const uint8_t* slot = m_parts.tcm->data(p.slot_offset[s]) + ipcq::kHeaderBytes;
        if (left == nullptr) {
          left = slot;
          continue;
        }
        const auto [a, b] = m.move.local_last ? std::pair{slot, left} : std::pair{left, slot};
        if (functional) reduce(m.move.op, m.move.dtype, acc, a, b, p.count);
        left = acc;
        ++passes;
      }
      if (m.move.divisor > 1) {
        if (functional) {
          if (left != acc) std::memcpy(acc, left, uint64_t{p.count} * m.item);
          divide(m.move.dtype, acc, p.count, m.move.divisor);
        }
        ++passes;
      }
      if (passes != 0) p.acc_ready = m_parts.compute->vector(now, now, uint64_t{passes} * p.count);
    }
    ++m.computed;
    ++*m_parts.progress;
  }
}

void MoveEngine::advance_settles(MoveState& m, Ps now) {
  // Slots that were reduced into the staging area are free as soon as the lanes have read them.
  while (m.settled < m.computed) {
    Piece& p = m.piece(m.settled);
    if (p.acc_ready > now) {
      wake_at(p.acc_ready);
      break;
    }
    if (m.computes) release_slots(m, p);
    ++m.settled;
  }
}

bool MoveEngine::output_may_leave(MoveState& m, uint32_t i, Ps now) {
  if (i >= m.settled) return false;
  if (m_parts.dma->out_free() > now) {
    wake_at(m_parts.dma->out_free());
    return false;
  }
  return true;
}

void MoveEngine::advance_sends(MoveState& m, Ps now) {
  for (size_t d = 0; d < m.move.to.size(); ++d) {
    Lane& lane = m_lanes[m.to[d]];
    while (m.sent[d] < m.pieces && lane.sending.front() == &m && output_may_leave(m, m.sent[d], now)) {
      const auto credit = m_parts.ipcq->credit_time(lane.qp);
      if (!credit) {
        if (!m_parts.ipcq->enabled(lane.qp)) {
          // The queue hardware records a send to a disabled queue pair; nothing would ever wake this move.
          m_parts.ipcq->take_send_slot(lane.qp, 0);
          throw tl::ProtocolError(fmt::format("PE {}: send in direction {} to the disabled QP {}", m_flat_pe,
                                              tl::to_string(m.move.to[d]), value(lane.qp)));
        }
        lane.wants_credit = true;
        break;
      }
      if (*credit > now) {
        wake_at(*credit);
        break;
      }
      Piece& p = m.piece(m.sent[d]);
      uint8_t* data = accumulator(m, p);
      const uint32_t payload = p.count * m.item;
      const uint32_t bytes = ipcq::kHeaderBytes + payload;
      const SendSlot slot = m_parts.ipcq->take_send_slot(lane.qp, bytes);
      const bool functional = m_parts.config->simulation.functional;
      if (functional) {
        const ipcq::SlotHeader header =
            tl::make_header(m_header.group, m_header.seq, m.move.step, m.move.dtype, payload, m_flat_pe);
        std::memcpy(data, &header, sizeof header);
      }
      const uint32_t wire = m_parts.config->ipcq.header_on_wire ? bytes : payload;
      const Dma::Result r = m_parts.dma->send(now, slot, functional ? data : nullptr, bytes, wire, lane.route);
      if (r.status != tlm::TLM_OK_RESPONSE) fault("send", slot.address, r.status);
      p.taken = std::max(p.taken, r.taken);
      ++m_stats.messages_sent;
      m_stats.bytes_sent += bytes;
      if (++m.sent[d] == m.pieces) {
        lane.sending.pop_front();
        if (!lane.sending.empty()) list(lane.sending.front());
        m_ripple = true;
        break;
      }
    }
  }
}

void MoveEngine::advance_stores(MoveState& m, Ps now) {
  if (m.move.store == 0) return;
  while (m.stored < m.pieces && output_may_leave(m, m.stored, now)) {
    Piece& p = m.piece(m.stored);
    const Addr dst = m.move.store + piece_offset(m, m.stored);
    const Dma::Result r = m_parts.dma->write(now, dst, payload(accumulator(m, p)), uint64_t{p.count} * m.item);
    if (r.status != tlm::TLM_OK_RESPONSE) fault("store", dst, r.status);
    p.taken = std::max(p.taken, r.taken);
    m_stored_by = std::max(m_stored_by, r.done);
    ++m.stored;
  }
}

bool MoveEngine::advance_retires(MoveState& m, Ps now) {
  bool any = false;
  while (m.retired < m.settled) {
    const uint32_t i = m.retired;
    bool out = m.move.store == 0 || m.stored > i;
    for (size_t d = 0; d < m.move.to.size(); ++d) out = out && m.sent[d] > i;
    if (!out) break;
    Piece& p = m.piece(i);
    if (p.taken > now) {
      wake_at(p.taken);
      break;
    }
    release_slots(m, p);
    if (p.stage != Scratch::kNone) {
      m_parts.scratch->release(p.stage, ipcq::kHeaderBytes + uint64_t{m.piece_elems} * m.item);
      p.stage = Scratch::kNone;
      m_ripple = true;  // somebody may have waited for the room
    }
    ++m.retired;
    any = true;
  }
  return any;
}

void MoveEngine::release_slots(MoveState& m, Piece& p) {
  if (!p.slots_held) return;
  for (size_t s = 0; s < m.move.from.size(); ++s) m_parts.ipcq->release(m_lanes[m.from[s]].qp, p.tickets[s]);
  p.slots_held = false;
}

void MoveEngine::finish(MoveState& m) {
  m_done[m.handle - m_first_handle] = true;
  while (!m_done.empty() && m_done.front()) {
    m_done.pop_front();
    ++m_first_handle;
  }
  m.handle = 0;
  --m_in_flight;
  m_free.push_back(&m);
}

void MoveEngine::fault(const char* what, Addr address, tlm::tlm_response_status status) {
  tlm::tlm_generic_payload text;
  text.set_response_status(status);
  throw tl::FaultError(
      fmt::format("PE {}: {} at 0x{:x} answered {}", m_flat_pe, what, address, text.get_response_string()), address);
}

std::string MoveEngine::waiting_for(Ps now) const {
  std::string out;
  for (const MoveState* m : m_listed) {
    if (m->retired == m->pieces) continue;
    std::string why;
    for (size_t s = 0; s < m->move.from.size(); ++s) {
      const Lane& lane = m_lanes[m->from[s]];
      if (m->received[s] >= m->pieces) continue;
      if (lane.receiving.front() == m && !m_parts.ipcq->front(lane.qp)) {
        why += fmt::format("{}a message from {} (QP {}, piece {}/{})", why.empty() ? "" : ", ",
                           tl::to_string(m->move.from[s]), value(lane.qp), m->received[s], m->pieces);
      }
    }
    for (size_t d = 0; d < m->move.to.size(); ++d) {
      const Lane& lane = m_lanes[m->to[d]];
      if (m->sent[d] >= m->settled) continue;
      if (lane.sending.front() == m && !m_parts.ipcq->credit_time(lane.qp)) {
        why += fmt::format("{}a credit towards {} (QP {}, credits {}, piece {}/{})", why.empty() ? "" : ", ",
                           tl::to_string(m->move.to[d]), value(lane.qp), m_parts.ipcq->credits(lane.qp), m->sent[d],
                           m->pieces);
      }
    }
    if (why.empty()) continue;
    out += fmt::format("{}step {} waits for {}", out.empty() ? "" : "; ", m->move.step, why);
  }
  (void)now;
  return out;
}

}  // namespace ahbm::models
