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
  m_lane_dirs.clear();
  m_lane_of_qp.assign(m_lane_of_qp.size(), -1);
  m_starved = false;
  for (const launch::LinkEntry& link : links) {
    m_lanes.emplace_back();
    m_lanes.back().qp = QpId{link.qp};
    m_lanes.back().link = link;
    m_lane_dirs.push_back(link.dir);
    if (link.qp >= m_lane_of_qp.size()) m_lane_of_qp.resize(link.qp + 1, -1);
    m_lane_of_qp[link.qp] = static_cast<int16_t>(m_lanes.size() - 1);
  }
  m_read.clear();
  m_free.clear();
  m_free_states.clear();
  for (auto& block : m_queued) free_block(block.get());
  for (uint32_t i = 0; i < m_states.size() * kBlock; ++i) m_free_states.push_back(static_cast<uint16_t>(i));
  m_listed.clear();
  m_listed.reserve(16);  // its address is passed on
  m_first_handle += m_done.size();
  m_done.clear();
  m_in_flight = m_unissued = 0;
  m_stored_by = 0;
  m_spares.clear();
  m_result_spares.clear();
  m_parts.scratch->reset();
}

size_t MoveEngine::lane_index(tl::Dir dir) const {
  for (size_t i = 0; i < m_lane_dirs.size(); ++i) {
    if (m_lane_dirs[i] == static_cast<uint16_t>(dir)) return i;
  }
  throw tl::ProtocolError(fmt::format("PE {} has no neighbour in direction {}", m_flat_pe, tl::to_string(dir)));
}

void MoveEngine::free_block(QueuedMove* block) {
  for (uint32_t i = 0; i < kBlock; ++i) m_free.push_back(&block[i]);
}

MoveEngine::QueuedMove& MoveEngine::acquire_queued() {
  if (m_free.empty()) {
    m_queued.push_back(std::make_unique<QueuedMove[]>(kBlock));
    free_block(m_queued.back().get());
  }
  QueuedMove& q = *m_free.back();
  m_free.pop_back();
  return q;
}

MoveEngine::MoveState& MoveEngine::start(QueuedMove& q) {
  if (q.state != kNoState) return state(q);
  if (m_free_states.empty()) {
    const auto first = static_cast<uint32_t>(m_states.size()) * kBlock;
    if (first + kBlock > kNoState) throw tl::ProtocolError(fmt::format("PE {}: {} moves under way", m_flat_pe, first));
    m_states.push_back(std::make_unique<MoveState[]>(kBlock));
    for (uint32_t i = 0; i < kBlock; ++i) m_free_states.push_back(static_cast<uint16_t>(first + i));
  }
  q.state = m_free_states.back();
  m_free_states.pop_back();
  MoveState& m = state(q);
  m.move = &q;
  m.item = static_cast<uint8_t>(item_bytes(q.dtype));
  m.pieces = static_cast<uint32_t>(ceil_div(q.count, q.piece_elems));
  if (m.pieces > 1 && m.ring == nullptr) m.ring = std::make_unique<Piece[]>(kWindow);
  m.computes = q.local != 0 || q.n_from > 1 || q.divisor > 1;
  m.opened = m.loaded = m.computed = m.stored = m.retired = 0;
  for (int i = 0; i < 4; ++i) m.received[i] = m.sent[i] = 0;
  m.drained = false;
  m.dirty = true;
  m.next_time = m.lazy_time = kNever;
  m_listed.push_back(&m);
  return m;
}

void MoveEngine::pass_on(RingBuffer<QueuedMove*>& queue, MoveState*& front) {
  queue.pop_front();
  front = nullptr;
  if (queue.empty()) return;
  front = &start(*queue.front());
  front->dirty = m_ripple = true;
}

MoveEngine::QueuedMove& MoveEngine::check_in(const tl::Move& move) {
  tl::check_move(move);
  const uint32_t bytes = tl::piece_bytes(move, [this](tl::Dir d) { return m_lanes[lane_index(d)].link.slot_bytes; });
  QueuedMove& q = acquire_queued();
  q.local = move.local;
  q.store = move.store;
  q.count = move.count;
  q.divisor = static_cast<uint32_t>(move.divisor);
  q.piece_elems = bytes / item_bytes(move.dtype);
  q.step = move.step;
  q.recv_step = tl::received_step(move);
  q.state = kNoState;
  q.dtype = move.dtype;
  q.op = move.op;
  q.n_from = move.from.size() & 7;
  q.n_to = move.to.size() & 7;
  q.local_last = move.local_last;
  for (size_t i = 0; i < move.from.size(); ++i) q.from[i] = static_cast<uint16_t>(lane_index(move.from[i]));
  for (size_t i = 0; i < move.to.size(); ++i) q.to[i] = static_cast<uint16_t>(lane_index(move.to[i]));
  return q;
}

tl::Handle MoveEngine::queue_up(QueuedMove& q) {
  const tl::Handle handle = m_first_handle + m_done.size();
  m_done.push_back(false);
  q.handle = static_cast<uint32_t>(handle);
  for (size_t i = 0; i < q.n_from; ++i) {
    Lane& lane = m_lanes[q.from[i]];
    lane.receiving.push_back(&q);
    if (lane.receiving.size() == 1) lane.receiver = &start(q);
  }
  for (size_t i = 0; i < q.n_to; ++i) {
    Lane& lane = m_lanes[q.to[i]];
    lane.sending.push_back(&q);
    if (lane.sending.size() == 1) lane.sender = &start(q);
  }
  if (q.n_from == 0 && q.n_to == 0) start(q);
  m_ripple = m_ripple || q.state != kNoState;
  ++m_in_flight;
  ++m_unissued;
  return handle;
}

tl::Handle MoveEngine::submit(const tl::Move& move) {
  if (move.count != 0) return queue_up(check_in(move));
  tl::check_move(move);
  const tl::Handle handle = m_first_handle + m_done.size();
  m_done.push_back(true);
  forget_done();
  return handle;
}

bool MoveEngine::read_ahead(const tl::MoveSource& next) {
  if (m_parts.config->outgrows_host_caches()) {
    const size_t n = std::min<size_t>(m_free.size(), kReadAhead);
    for (size_t i = m_free.size() - n; i < m_free.size(); ++i) fetch_line(m_free[i]);
  }
  while (m_read.size() < kReadAhead) {
    const tl::Move* move = next();
    if (move == nullptr) return false;
    if (move->count != 0) {
      m_read.push_back(&check_in(*move));
    } else {
      tl::check_move(*move);
    }
  }
  return true;
}

void MoveEngine::submit_read() {
  queue_up(*m_read.front());
  m_read.pop_front();
}

void MoveEngine::drop_read() {
  for (; !m_read.empty(); m_read.pop_front()) m_free.push_back(m_read.front());
}

bool MoveEngine::done(tl::Handle handle) const {
  if (handle < m_first_handle) return true;
  const auto i = static_cast<uint32_t>(handle - m_first_handle);
  return i < m_done.size() && m_done[i];
}

bool MoveEngine::lane_idle(tl::Dir dir) const {
  return m_lanes[lane_index(dir)].receiving.empty();
}

Ps MoveEngine::message_came(QpId qp, Ps ready, Ps now) {
  Lane* lane = lane_of(qp);
  if (lane == nullptr || lane->receiver == nullptr) return kNever;
  MoveState& m = *lane->receiver;
  if (ready > now) {
    wake_at(m, ready);
  } else {
    m.dirty = m_ripple = true;
  }
  return ready;
}

void MoveEngine::name_touched(QpId qp, IpcqPort::Use use, HostLines& lines) const {
  const Lane* lane = lane_of(qp);
  if (lane == nullptr) return;
  lines.add(&m_lanes, &m_lane_dirs);
  lines.add(&m_lane_of_qp[value(qp)]);
  lines.add(lane, use == IpcqPort::Use::Send ? static_cast<const void*>(&lane->qp) : &lane->message_since);
}

void MoveEngine::fetch(uint32_t turns, Ps at, Ps until) const {
  static_assert(kFetchTurns == 8);
  m_parts.dma->fetch(turns, at);
  switch (turns) {
    case 8:
      fetch_line(m_listed.data());
      fetch_line(m_lane_dirs.data());
      if (!m_free.empty()) fetch_line(&m_free.back());
      if (!m_free_states.empty()) fetch_line(&m_free_states.back());
      fetch_line(m_states.data());
      if (!m_spares.empty()) fetch_line(&m_spares.back());
      m_done.fetch();
      m_read.fetch();
      fetch_line(m_parts.ipcq);
      fetch_line(m_parts.compute);
      m_parts.tcm->fetch();
      return;
    case 7:
      for (const MoveState* m : m_listed) fetch_line(m);
      if (!m_free_states.empty()) {
        const uint32_t state = m_free_states.back();
        const MoveState& m = m_states[state / kBlock][state % kBlock];
        fetch_lines(&m, &m + 1);
      }
      if (!m_read.empty()) fetch_line(m_read.front());
      m_parts.ipcq->fetch(turns);
      return;
    case 6:
      m_parts.ipcq->fetch(turns);
      if (!m_read.empty()) {
        const QueuedMove& q = *m_read.front();
        for (size_t s = 0; s < q.n_from; ++s) fetch_line(&m_lanes[q.from[s]]);
        for (size_t d = 0; d < q.n_to; ++d) fetch_line(&m_lanes[q.to[d]]);
      }
      for (const MoveState* m : m_listed) {
        if (goes_on(*m, until)) {
          fetch_lines(m, m + 1);
          fetch_line(m->move);
        } else if (m->lazy_time <= until) {
          fetch_line(&m->single);
          fetch_line(m->move);
        }
      }
      return;
    default:
      for (const MoveState* m : m_listed) {
        if (goes_on(*m, until)) fetch_for(*m->move, turns, at);
      }
  }
}

void MoveEngine::fetch_for(const QueuedMove& q, uint32_t turns, Ps at) const {
  for (size_t s = 0; s < q.n_from; ++s) {
    const Lane& lane = m_lanes[q.from[s]];
    if (turns == 5) {
      fetch_lines(&lane, &lane.route);
      continue;
    }
    if (turns == 4) lane.receiving.fetch();
    if (turns == 3 && lane.receiving.size() > 1) fetch_line(lane.receiving[1]);
    m_parts.ipcq->fetch(lane.qp, IpcqPort::Use::Take, turns, at);
  }
  for (size_t d = 0; d < q.n_to; ++d) {
    const Lane& lane = m_lanes[q.to[d]];
    switch (turns) {
      case 5:
        fetch_lines(&lane, &lane.route.touched);
        continue;
      case 4:
        lane.sending.fetch();
        lane.route.fetch_lists(Route::Use::Write);
        break;
      case 3:
        if (lane.sending.size() > 1) fetch_line(lane.sending[1]);
        lane.route.fetch_hops(Route::Use::Write);
        break;
      case 2:
        lane.route.fetch_second(Route::Use::Write, at);
        break;
      case 1:
        lane.route.fetch_intervals(Route::Use::Write, at);
        break;
      default:
        break;
    }
    m_parts.ipcq->fetch(lane.qp, IpcqPort::Use::Send, turns, at);
  }
}

Ps MoveEngine::credit_came(QpId qp, Ps at) {
  Lane* lane = lane_of(qp);
  if (lane == nullptr || lane->sender == nullptr || lane->credit_since == kNotWaiting) return kNever;
  const Ps when = std::max(at, lane->credit_since);
  wake_at(*lane->sender, when);
  return when;
}

Ps MoveEngine::progress(Ps now, tl::Handle awaited, Caller caller) {
  m_may_wait = caller == Caller::Thread;
  m_needs_thread = false;
  do {
    m_ripple = false;
    bool finished = false;
    for (size_t i = 0; i < m_listed.size(); ++i) {  // grows while lanes move on
      MoveState& m = *m_listed[i];
      if (m.retired == m.pieces) continue;  // already finished when an earlier call failed
      if (!goes_on(m, now) && m.lazy_time > now) continue;
      advance(m, now);
      if (m.retired == m.pieces) {
        finish(m);
        finished = true;
      }
    }
    if (finished) forget_finished();
  } while (m_ripple);
  const bool awaits_one = awaited != kNobody && awaited != kEverybody;
  const auto awaited_low = static_cast<uint32_t>(awaited);
  Ps next = kNever;
  Ps all_done = 0;  // when the last move is, or never if one waits for something from outside
  for (const MoveState* m : m_listed) {
    if (m->retired == m->pieces) continue;
    next = std::min(next, m->next_time);
    if (m_starved || (awaits_one && awaited_low == m->move->handle)) next = std::min(next, m->lazy_time);
    all_done = std::max(all_done, m->lazy_time);
  }
  if (awaited == kEverybody && all_done != 0) next = std::min(next, all_done);
  return next;
}

void MoveEngine::advance(MoveState& m, Ps now) {
  m.dirty = false;
  m.next_time = m.lazy_time = kNever;
  if (m.drained) {
    advance_retires(m, now);
    return;
  }
  // In the order of a piece's life, so that one pass takes it as far as it can go. Only a computed or a retired piece
  // lets earlier stages begin with further ones.
  for (bool again = true; again;) {
    const uint32_t computed = m.computed;
    advance_loads(m, now);
    advance_receives(m, now);
    advance_computes(m, now);
    advance_sends(m, now);
    advance_stores(m, now);
    again = (advance_retires(m, now) || m.computed != computed) && m.computed < m.pieces;
  }
  // Left undone for want of a thread: not over when that comes.
  if (m_needs_thread) m.dirty = true;
  if (m.computed == m.pieces && issued(m, m.pieces - 1)) {
    m.drained = true;
    --m_unissued;
  }
}

uint32_t MoveEngine::piece_count(const MoveState& m, uint32_t i) const {
  const uint64_t begin = uint64_t{i} * m.move->piece_elems;
  return static_cast<uint32_t>(std::min<uint64_t>(m.move->piece_elems, m.move->count - begin));
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
  if (p.stage != kUnstaged) return true;
  const uint64_t bytes = stage_bytes(m);
  if (bytes == m_spare_bytes && !m_spares.empty()) {
    p.stage = static_cast<uint32_t>(m_spares.back());  // the one used last: its lines are still near
    m_spares.pop_back();
    return true;
  }
  uint64_t at = m_parts.scratch->allocate(bytes);
  if (at == Scratch::kNone && bytes == m_spare_bytes && !m_result_spares.empty()) {
    at = m_result_spares.back();
    m_result_spares.pop_back();
  }
  if (at == Scratch::kNone && give_back_spares()) at = m_parts.scratch->allocate(bytes);
  if (at != Scratch::kNone) {
    p.stage = static_cast<uint32_t>(at);
    return true;
  }
  m_starved = true;
  if (m_parts.scratch->used() == 0) {
    throw tl::ProtocolError(fmt::format("PE {}: a piece of {} bytes does not fit the {} bytes of TCM behind the rings",
                                        m_flat_pe, bytes, m_parts.scratch->capacity()));
  }
  return false;
}

/// What was loaded is combined into the place of an earlier result, if one is free, and gives its own place back: it
/// was borrowed, mostly, and nothing lies there. The same whether it was or not, so that no time depends on it.
void MoveEngine::stage_result(const MoveState& m, Piece& p) {
  if (m_result_spares.empty() || stage_bytes(m) != m_spare_bytes) return;
  m_spares.push_back(p.stage);
  p.stage = static_cast<uint32_t>(m_result_spares.back());
  m_result_spares.pop_back();
}

void MoveEngine::unstage(const MoveState& m, const Piece& p) {
  const uint64_t bytes = stage_bytes(m);
  if (m_functional && !combines(m)) {  // what was sent as it lay in its memory is not needed here any more
    m_parts.tcm->end_loan(p.stage + ipcq::kHeaderBytes, uint64_t{p.count} * m.item);
  }
  if (m_spares.empty() && m_result_spares.empty()) m_spare_bytes = bytes;
  if (bytes == m_spare_bytes) {
    (m.move->local != 0 && combines(m) ? m_result_spares : m_spares).push_back(p.stage);
  } else {
    m_parts.scratch->release(p.stage, bytes);
  }
}

bool MoveEngine::give_back_spares() {
  const bool any = !m_spares.empty() || !m_result_spares.empty();
  for (std::vector<uint64_t>* spares : {&m_spares, &m_result_spares}) {
    for (const uint64_t at : *spares) m_parts.scratch->release(at, m_spare_bytes);
    spares->clear();
  }
  return any;
}

uint8_t* MoveEngine::payload(uint8_t* slot) const {
  return m_functional ? slot + ipcq::kHeaderBytes : nullptr;
}

void MoveEngine::advance_loads(MoveState& m, Ps now) {
  if (m.move->local == 0) return;
  // Far enough ahead to cover the memory's latency, and no further: what is staged early has left the caches of the
  // host when it is needed.
  const uint32_t ahead = std::max<uint32_t>(2, kLoadAheadBytes / (m.move->piece_elems * m.item));
  while (m.loaded < m.pieces && m.loaded < m.computed + ahead && open(m, m.loaded)) {
    Piece& p = m.piece(m.loaded);
    if (m_parts.dma->in_free() > now) {
      wake_at(m, m_parts.dma->in_free());
      break;
    }
    if (!stage(m, p)) break;
    const Addr src = m.move->local + piece_offset(m, m.loaded);
    if (!allowed(m, m_parts.dma->reaches_memory(src, uint64_t{p.count} * m.item), now, now)) break;
    // What is loaded is combined with something and overwritten then, or only sent: it need not be copied for that.
    const uint64_t bytes = uint64_t{p.count} * m.item;
    Loan loan;
    if (m_functional) {
      m_parts.tcm->end_loan(p.stage + ipcq::kHeaderBytes, bytes);
      loan = m_parts.tcm->ask_loan(p.stage + ipcq::kHeaderBytes);
    }
    uint8_t* const to = payload(m_parts.tcm->data(p.stage, ipcq::kHeaderBytes + bytes));
    const Dma::Result r = m_parts.dma->read(now, src, to, bytes, loan.borrower != nullptr ? &loan : nullptr);
    if (loan.lender != nullptr) m_parts.tcm->take_loan(loan);
    if (r.status != tlm::TLM_OK_RESPONSE) fault("load", src, r.status);
    p.load_ready = r.done;
    ++m.loaded;
  }
}

void MoveEngine::advance_receives(MoveState& m, Ps now) {
  for (size_t s = 0; s < m.move->n_from; ++s) {
    Lane& lane = m_lanes[m.move->from[s]];
    while (m.received[s] < m.pieces && lane.receiver == &m && open(m, m.received[s])) {
      const auto message = m_parts.ipcq->front(lane.qp);
      if (!message) {
        lane.message_since = std::min(lane.message_since, now);
        break;
      }
      if (message->ready > now) {
        lane.message_since = std::min(lane.message_since, now);
        wake_at(m, message->ready);
        break;
      }
      Piece& p = m.piece(m.received[s]);
      const uint32_t bytes = p.count * m.item;
      if (m_functional) {
        ipcq::SlotHeader header;
        std::memcpy(&header, m_parts.tcm->data(message->tcm_offset, sizeof header), sizeof header);
        const ipcq::SlotHeader expected = tl::make_header(m_header.group, m_header.seq, m.move->recv_step,
                                                          m.move->dtype, bytes, lane.link.peer_flat_pe, m.received[s]);
        const std::string mismatch = tl::check_header(header, expected);
        if (!mismatch.empty()) {
          throw tl::ProtocolError(fmt::format("PE {} direction {} (QP {}): {}", m_flat_pe,
                                              tl::to_string(dir_of(m.move->from[s])), value(lane.qp), mismatch));
        }
      }
      if (lane.message_since != kNotWaiting) end_wait(lane.message_since, now, observe::Wait::Message, lane.qp);
      m_parts.ipcq->take(lane.qp);
      if (m.received[s] == 0) m.first_ticket[s] = message->ticket;
      p.slot_offset[s] = static_cast<uint32_t>(message->tcm_offset);
      p.slots_held = true;
      ++m_stats.messages_received;
      m_parts.progress->note();
      if (++m.received[s] == m.pieces) {
        pass_on(lane.receiving, lane.receiver);
        break;
      }
    }
  }
}

void MoveEngine::advance_computes(MoveState& m, Ps now) {
  while (m.computed < m.pieces) {
    const uint32_t i = m.computed;
    if (m.move->local != 0 && m.loaded <= i) break;
    bool all = true;
    for (size_t s = 0; s < m.move->n_from; ++s) all = all && m.received[s] > i;
    if (!all) break;
    Piece& p = m.piece(i);
    if (p.load_ready > now) {
      wake_at(m, p.load_ready);
      break;
    }
    p.acc_ready = now;
    if (m.computes) {
      if (!may_release(m, p, now) || !stage(m, p)) break;
      const uint64_t bytes = uint64_t{p.count} * m.item;
      const uint8_t* left = nullptr;
      if (m.move->local != 0 && combines(m)) {
        const uint64_t loaded = p.stage;
        if (m_functional) left = m_parts.tcm->end_loan(loaded + ipcq::kHeaderBytes, bytes);
        stage_result(m, p);
        if (left == nullptr) left = m_parts.tcm->data(loaded, ipcq::kHeaderBytes + bytes) + ipcq::kHeaderBytes;
      }
      uint8_t* const acc =
          m_parts.tcm->data(p.stage, combines(m) ? ipcq::kHeaderBytes + bytes : 0) + ipcq::kHeaderBytes;
      uint32_t passes = 0;
      for (size_t s = 0; s < m.move->n_from; ++s) {
        const uint8_t* slot = m_parts.tcm->data(p.slot_offset[s], ipcq::kHeaderBytes + bytes) + ipcq::kHeaderBytes;
        if (left == nullptr) {
          left = slot;
          continue;
        }
        const auto [a, b] = m.move->local_last ? std::pair{slot, left} : std::pair{left, slot};
        if (m_functional) reduce(m.move->op, m.move->dtype, acc, a, b, p.count);
        left = acc;
        ++passes;
      }
      if (m.move->divisor > 1) {
        if (m_functional) {
          if (left != acc) std::memcpy(acc, left, bytes);
          divide(m.move->dtype, acc, p.count, m.move->divisor);
        }
        ++passes;
      }
      if (passes != 0) p.acc_ready = m_parts.compute->vector(now, now, uint64_t{passes} * p.count);
      release_slots(m, i, p.acc_ready);
    }
    p.taken = p.acc_ready;
    ++m.computed;
    m_parts.progress->note();
    m_parts.progress->note_until(p.acc_ready);
  }
}

bool MoveEngine::may_release(MoveState& m, const Piece& p, Ps now) {
  if (m_may_wait || !p.slots_held) return true;
  for (size_t s = 0; s < m.move->n_from; ++s) {
    if (!allowed(m, m_parts.ipcq->reaches_pe(m_lanes[m.move->from[s]].qp), now, now)) return false;
  }
  return true;
}

/// When a transfer that reads the result of piece `i` can begin, as far as the piece and the DMA are concerned: it may
/// be issued ahead of that time, since everything on its way keeps a calendar. kNever: not known yet, or the DMA has
/// no place for it, or it may end at something that is not ours and would not know what to do with the future.
Ps MoveEngine::output_start(MoveState& m, uint32_t i, Ps now) {
  if (i >= m.computed) return kNever;
  const Ps ready = std::max(now, m.piece(i).acc_ready);
  if (m_parts.dma->out_free() > ready) {
    wake_at(m, m_parts.dma->out_free());
    return kNever;
  }
  return ready;
}

void MoveEngine::advance_sends(MoveState& m, Ps now) {
  for (size_t d = 0; d < m.move->n_to; ++d) {
    Lane& lane = m_lanes[m.move->to[d]];
    while (m.sent[d] < m.pieces && lane.sender == &m) {
      const Ps ready = output_start(m, m.sent[d], now);
      if (ready == kNever) break;
      const auto credit = m_parts.ipcq->credit_time(lane.qp);
      if (!credit) {
        if (!m_parts.ipcq->enabled(lane.qp)) {
          // The queue hardware records a send to a disabled queue pair; nothing would ever wake this move.
          m_parts.ipcq->take_send_slot(lane.qp, 0);
          throw tl::ProtocolError(fmt::format("PE {}: send in direction {} to the disabled QP {}", m_flat_pe,
                                              tl::to_string(dir_of(m.move->to[d])), value(lane.qp)));
        }
        lane.credit_since = std::min(lane.credit_since, ready);
        break;
      }
      if (*credit > ready) lane.credit_since = std::min(lane.credit_since, ready);
      const Ps start = std::max(ready, *credit);
      Piece& p = m.piece(m.sent[d]);
      const uint64_t result = accumulator(m, p);
      const uint32_t payload = p.count * m.item;
      const uint32_t bytes = ipcq::kHeaderBytes + payload;
      if (!may_release(m, p, now) || !allowed(m, m_parts.ipcq->reaches_pe(lane.qp), start, now)) break;
      if (lane.credit_since != kNotWaiting) end_wait(lane.credit_since, start, observe::Wait::Credit, lane.qp);
      const SendSlot slot = m_parts.ipcq->take_send_slot(lane.qp, bytes);
      if (slot.address == 0) {
        throw tl::ProtocolError(fmt::format("PE {}: QP {} of direction {} refused a message of {} bytes", m_flat_pe,
                                            value(lane.qp), tl::to_string(dir_of(m.move->to[d])), bytes));
      }
      if (m_functional) {
        const ipcq::SlotHeader header =
            tl::make_header(m_header.group, m_header.seq, m.move->step, m.move->dtype, payload, m_flat_pe, m.sent[d]);
        std::memcpy(m_parts.tcm->data(result, sizeof header), &header, sizeof header);
      }
      const uint32_t wire = m_parts.config->ipcq.header_on_wire ? bytes : payload;
      const Dma::Result r = m_parts.dma->send(start, slot, result, bytes, wire, lane.route, m_functional);
      if (r.status != tlm::TLM_OK_RESPONSE) fault("send", slot.address, r.status);
      if (m_tap != nullptr) tell_send(lane, slot, start, r.taken, bytes);
      p.taken = std::max(p.taken, r.taken);
      ++m_stats.messages_sent;
      m_stats.bytes_sent += bytes;
      ++m.sent[d];
      if (p.slots_held) used_up(m, m.sent[d] - 1);
      if (m.sent[d] == m.pieces) {
        pass_on(lane.sending, lane.sender);
        break;
      }
    }
  }
}

void MoveEngine::end_wait(Ps& since, Ps now, observe::Wait what, QpId qp) {
  const Ps begin = since;
  since = kNotWaiting;
  if (begin >= now) return;
  const bool credit = what == observe::Wait::Credit;
  (credit ? m_stats.waited_credit : m_stats.waited_message) += now - begin;
  ++(credit ? m_stats.credit_waits : m_stats.message_waits);
  if (m_tap == nullptr) return;
  observe::Event e;
  e.kind = observe::EventKind::Wait;
  e.wait = what;
  e.begin = begin;
  e.end = now;
  e.index = value(qp);
  m_tap->tell(e);
}

void MoveEngine::tell_send(const Lane& lane, const SendSlot& slot, Ps now, Ps taken, uint32_t bytes) const {
  observe::Event e;
  e.kind = observe::EventKind::Send;
  e.begin = now;
  e.end = taken;
  e.bytes = bytes;
  e.index = value(lane.qp);
  e.peer_pe = lane.link.peer_flat_pe;
  e.peer_qp = slot.peer_qp;
  e.number = slot.number;
  m_tap->tell(e);
}

void MoveEngine::advance_stores(MoveState& m, Ps now) {
  if (m.move->store == 0) return;
  while (m.stored < m.pieces) {
    const Ps start = output_start(m, m.stored, now);
    if (start == kNever) break;
    Piece& p = m.piece(m.stored);
    const Addr dst = m.move->store + piece_offset(m, m.stored);
    const bool ours = m_parts.dma->reaches_memory(dst, uint64_t{p.count} * m.item);
    if (!may_release(m, p, now) || !allowed(m, ours, start, now)) break;
    const uint64_t bytes = uint64_t{p.count} * m.item;
    uint8_t* const result = payload(m_parts.tcm->data(accumulator(m, p), ipcq::kHeaderBytes + bytes));
    const Dma::Result r = m_parts.dma->write(start, dst, result, bytes);
    if (r.status != tlm::TLM_OK_RESPONSE) fault("store", dst, r.status);
    p.taken = std::max(p.taken, r.taken);
    m_stored_by = std::max(m_stored_by, r.done);
    ++m.stored;
    if (p.slots_held) used_up(m, m.stored - 1);
  }
}

bool MoveEngine::issued(const MoveState& m, uint32_t i) {
  bool out = m.move->store == 0 || m.stored > i;
  for (size_t d = 0; d < m.move->n_to; ++d) out = out && m.sent[d] > i;
  return out;
}

void MoveEngine::used_up(MoveState& m, uint32_t i) {
  // A forwarded slot goes back with the last transfer that reads it. That transfer is under way, so it is known when it
  // will be done, and the credit is issued with it, to leave then.
  if (issued(m, i)) release_slots(m, i, m.piece(i).taken);
}

bool MoveEngine::advance_retires(MoveState& m, Ps now) {
  bool any = false;
  while (m.retired < m.computed) {
    const uint32_t i = m.retired;
    if (!m.drained && !issued(m, i)) break;
    Piece& p = m.piece(i);
    if (p.taken > now) {
      // Nobody needs to be woken for that, unless the move has no window left for further pieces.
      const bool window_full = m.opened == i + kWindow && m.opened < m.pieces;
      (window_full ? m.next_time : m.lazy_time) = std::min(window_full ? m.next_time : m.lazy_time, p.taken);
      break;
    }
    if (p.stage != kUnstaged) {
      unstage(m, p);
      p.stage = kUnstaged;
      if (m_starved) {
        m_starved = false;
        m_ripple = true;
        for (MoveState* other : m_listed) other->dirty = true;
      }
    }
    ++m.retired;
    any = true;
  }
  return any;
}

void MoveEngine::release_slots(MoveState& m, uint32_t i, Ps at) {
  Piece& p = m.piece(i);
  if (!p.slots_held) return;
  for (size_t s = 0; s < m.move->n_from; ++s) {
    m_parts.ipcq->release(m_lanes[m.move->from[s]].qp, m.first_ticket[s] + i, at);
  }
  p.slots_held = false;
}

void MoveEngine::forget_done() {
  for (; !m_done.empty() && m_done.front(); ++m_first_handle) m_done.pop_front();
}

void MoveEngine::finish(MoveState& m) {
  m_done[m.move->handle - static_cast<uint32_t>(m_first_handle)] = true;
  forget_done();
  --m_in_flight;
}

/// Only here, where nobody walks over m_listed, do finished moves give their place to others.
void MoveEngine::forget_finished() {
  size_t kept = 0;
  for (MoveState* m : m_listed) {
    if (m->retired == m->pieces) {
      m_free_states.push_back(m->move->state);
      m_free.push_back(m->move);
    } else {
      m_listed[kept++] = m;
    }
  }
  m_listed.resize(kept);
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
    for (size_t s = 0; s < m->move->n_from; ++s) {
      const Lane& lane = m_lanes[m->move->from[s]];
      if (m->received[s] >= m->pieces) continue;
      if (lane.receiver == m && !m_parts.ipcq->front(lane.qp)) {
        why += fmt::format("{}a message from {} (QP {}, piece {}/{})", why.empty() ? "" : ", ",
                           tl::to_string(dir_of(m->move->from[s])), value(lane.qp), m->received[s], m->pieces);
      }
    }
    for (size_t d = 0; d < m->move->n_to; ++d) {
      const Lane& lane = m_lanes[m->move->to[d]];
      if (m->sent[d] >= m->computed) continue;
      if (lane.sender == m && !m_parts.ipcq->credit_time(lane.qp)) {
        why += fmt::format("{}a credit towards {} (QP {}, credits {}, piece {}/{})", why.empty() ? "" : ", ",
                           tl::to_string(dir_of(m->move->to[d])), value(lane.qp), m_parts.ipcq->credits(lane.qp),
                           m->sent[d], m->pieces);
      }
    }
    if (why.empty()) continue;
    out += fmt::format("{}step {} waits for {}", out.empty() ? "" : "; ", m->move->step, why);
  }
  (void)now;
  return out;
}

}  // namespace ahbm::models
