#include "models/ipcq/ipcq.h"

#include <algorithm>
#include <cstring>

#include "ahbm/registers/doorbell.h"
#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/ipcq_protocol.h"
#include "models/tlm/register_access.h"

namespace ahbm::models {

using namespace regs;

// The computed registers of one queue pair, and what writes to its registers do.
class Ipcq::QpBehaviour : public RegisterBehaviour {
 public:
  QpBehaviour(Ipcq& owner, uint32_t qp) : m_owner(owner), m_qp(qp) {}
  uint64_t peek(const RegisterLayout& reg, uint64_t stored) const override;
  void on_write(const RegisterLayout& reg, uint64_t old, uint64_t now, uint64_t written_mask) override;

 private:
  Ipcq& m_owner;
  uint32_t m_qp;
};

struct alignas(64) Ipcq::Qp {
  Qp(Ipcq& owner, uint32_t qp) : behaviour(owner, qp), block(qp::kLayout, &behaviour) {}
  QueuePair queue;
  QpStats stats;
  bool peer_is_ours = false;  ///< it is a PE of the machine
  Ps release_at = 0;          ///< latest time at which a slot given back so far is free
  Route route;
  QpBehaviour behaviour;
  RegisterBlock block;
};

class Ipcq::DoorbellBehaviour : public RegisterBehaviour {
 public:
  explicit DoorbellBehaviour(Ipcq& owner) : m_owner(owner), block(doorbell::kLayout, this) {}
  void on_write(const RegisterLayout& reg, uint64_t, uint64_t now, uint64_t) override {
    if (reg.index == doorbell::NOTIFY) {
      status = m_owner.notify(qp, doorbell::NOTIFY_BYTES.of(now), static_cast<uint32_t>(doorbell::NOTIFY_EPOCH.of(now)),
                              at, address);
    } else {
      status = m_owner.credit(qp, doorbell::CREDIT_SLOTS.of(now), static_cast<uint32_t>(doorbell::CREDIT_EPOCH.of(now)),
                              at, address);
    }
  }
  RegStatus on_fifo_write(const RegisterLayout&, const uint8_t* data, uint32_t bytes) override {
    Qp* q = m_owner.find(qp);
    if (q == nullptr || !q->queue.enabled()) {
      m_owner.m_parts.host->record_error(pe::ERROR_BITS_QP_DISABLED.mask(), address);
      status = tlm::TLM_GENERIC_ERROR_RESPONSE;
      return RegStatus::Ok;
    }
    const auto offset = q->queue.push(bytes);
    if (!offset) {
      m_owner.m_parts.host->record_error(pe::ERROR_BITS_TOO_LONG.mask(), address);
      status = tlm::TLM_GENERIC_ERROR_RESPONSE;
      return RegStatus::Ok;
    }
    std::memcpy(m_owner.m_parts.tcm->data(*offset, bytes), data, bytes);
    Transit t;
    t.head = t.tail = at;
    t.wire_payload = bytes;
    m_owner.m_parts.tcm->port().pass(now_ps(), t);
    q->queue.payload_arrived(t.tail);
    at = t.tail;
    return RegStatus::Ok;
  }

  Ipcq& m_owner;
  RegisterBlock block;
  uint32_t qp = 0;
  Ps at = 0;
  Addr address = 0;
  tlm::tlm_response_status status = tlm::TLM_OK_RESPONSE;
};

uint64_t Ipcq::QpBehaviour::peek(const RegisterLayout& reg, uint64_t stored) const {
  const Qp* q = m_owner.find(m_qp);
  if (q == nullptr) return stored;
  const QueuePair& queue = q->queue;
  const Ps now = now_ps();
  switch (reg.index) {
    case qp::STATUS:
      return qp::STATUS_ENABLED.place(queue.enabled()) | qp::STATUS_FULL.place(queue.credits(now) == 0) |
             qp::STATUS_EMPTY.place(queue.level(now) == 0);
    case qp::CREDITS:
      return queue.credits(now);
    case qp::LEVEL:
      return queue.level(now);
    case qp::HEAD:
      return queue.released();
    case qp::TAIL:
      return queue.released() + queue.level(now);
    case qp::SENT:
      return queue.sent();
    case qp::MSG_BYTES: {
      const auto message = queue.front();
      return message && message->ready <= now ? message->bytes : 0;
    }
    default:
      return stored;
  }
}

void Ipcq::QpBehaviour::on_write(const RegisterLayout& reg, uint64_t old, uint64_t now, uint64_t) {
  Qp& q = *m_owner.find(m_qp);
  switch (reg.index) {
    case qp::CTRL: {
      const bool was = qp::CTRL_ENABLE.of(old) != 0;
      const bool is = qp::CTRL_ENABLE.of(now) != 0;
      if (is && !was) m_owner.enable(m_qp);
      if (!is && was) {
        q.queue.disable();
        auto& enabled = m_owner.m_enabled;
        enabled.erase(std::remove(enabled.begin(), enabled.end(), m_qp), enabled.end());
        if (m_owner.m_tap != nullptr) m_owner.tell(observe::EventKind::QueueReset, m_qp, now_ps(), now_ps(), 0);
      }
      break;
    }
    case qp::RELEASE: {
      uint64_t n = qp::RELEASE_N.of(now);
      while (n-- > 0) {
        const auto message = q.queue.front();
        if (!message || message->ready > now_ps()) {
          m_owner.m_parts.host->record_error(pe::ERROR_BITS_OVERRUN.mask(),
                                             m_owner.m_parts.pe_base + addr::kPeQpRegs + m_qp * addr::kQpRegBytes);
          break;
        }
        m_owner.take(QpId{m_qp});
        m_owner.release(QpId{m_qp}, message->ticket, now_ps());
      }
      break;
    }
    case qp::SEND_BYTES:
      m_owner.m_parts.host->send_from_tcm(QpId{m_qp}, q.block.get(qp::SEND_SRC),
                                          static_cast<uint32_t>(qp::SEND_BYTES_N.of(now)));
      break;
    default:
      break;
  }
}

Ipcq::Ipcq(const sc_core::sc_module_name& name, const Parts& parts)
    : sc_core::sc_module(name), bus_in("bus_in"), m_parts(parts) {
  bus_in.register_b_transport(this, &Ipcq::b_transport);
  bus_in.register_transport_dbg(this, &Ipcq::transport_dbg);
}

Ipcq::~Ipcq() = default;

Ipcq::Qp& Ipcq::storage(uint32_t qp) {
  if (qp >= m_qps.size()) m_qps.resize(qp + 1);
  if (!m_qps[qp]) {
    m_qps[qp] = std::make_unique<Qp>(*this, qp);
    if (qp < m_past.size()) m_qps[qp]->stats = m_past[qp];
  }
  return *m_qps[qp];
}

void Ipcq::enable(uint32_t id) {
  Qp& q = *m_qps[id];
  QpConfig c;
  const uint64_t ctrl = q.block.get(qp::CTRL);
  c.irq_on_message = qp::CTRL_IRQ_ON_MESSAGE.of(ctrl) != 0;
  const uint64_t egress = qp::CTRL_EGRESS.of(ctrl);
  c.has_egress = egress >= 1 && egress <= 4;
  if (c.has_egress) c.egress = static_cast<Side>(egress - 1);
  c.peer_qp = static_cast<uint32_t>(q.block.get(qp::PEER_QP_QP));
  c.peer_epoch = static_cast<uint32_t>(q.block.get(qp::PEER_QP_EPOCH));
  c.peer_pe = q.block.get(qp::PEER_PE);
  c.peer_ring = q.block.get(qp::PEER_RING);
  c.peer_slots = static_cast<uint32_t>(q.block.get(qp::PEER_SLOTS));
  c.slot_bytes = static_cast<uint32_t>(q.block.get(qp::SLOT_BYTES));
  c.ring_offset = q.block.get(qp::RING);
  c.slots = static_cast<uint32_t>(q.block.get(qp::SLOTS));
  // A nonsensical entry stays disabled and is recorded: the registers come from software. One direction may be unused.
  constexpr uint32_t kMaxSlots = 65536;
  const bool sane = c.slot_bytes > ipcq::kHeaderBytes && c.slot_bytes % 8 == 0 && c.slots <= kMaxSlots &&
                    c.peer_slots <= kMaxSlots && c.slots + c.peer_slots > 0 && c.ring_offset % 8 == 0 &&
                    c.ring_offset <= m_parts.config->pe.tcm_bytes &&
                    uint64_t{c.slots} * c.slot_bytes <= m_parts.config->pe.tcm_bytes - c.ring_offset;
  if (!sane) {
    q.block.set(qp::CTRL_ENABLE, 0);
    m_parts.host->record_error(pe::ERROR_BITS_QP_DISABLED.mask(),
                               m_parts.pe_base + addr::kPeQpRegs + id * addr::kQpRegBytes);
    return;
  }
  q.route = Route();
  q.release_at = 0;
  q.queue.enable(c);
  const MapShape shape = m_parts.config->map_shape();
  q.peer_is_ours = decode(c.peer_pe + addr::kPeDoorbells, shape).region == Region::Doorbell &&
                   decode(c.peer_ring, shape).region == Region::Tcm;
  m_enabled.push_back(id);
  if (m_tap != nullptr) tell(observe::EventKind::QueueReset, id, now_ps(), now_ps(), c.peer_slots);
}

void Ipcq::tell(observe::EventKind kind, uint32_t qp, Ps begin, Ps end, uint64_t count, uint64_t number,
                uint64_t bytes) const {
  observe::Event e;
  e.kind = kind;
  e.begin = begin;
  e.end = end;
  e.index = qp;
  e.number = number;
  e.value = count;
  e.bytes = bytes;
  m_tap->tell(e);
}

void Ipcq::reset() {
  if (m_tap != nullptr) {
    for (const uint32_t id : m_enabled) tell(observe::EventKind::QueueReset, id, now_ps(), now_ps(), 0);
  }
  m_past = stats();
  m_qps.clear();
  m_enabled.clear();
}

std::vector<QpStats> Ipcq::stats() const {
  std::vector<QpStats> out = m_past;
  out.resize(std::max(m_past.size(), m_qps.size()));
  for (size_t i = 0; i < m_qps.size(); ++i) {
    if (m_qps[i]) out[i] = m_qps[i]->stats;
  }
  return out;
}

bool Ipcq::enabled(QpId qp) const {
  const Qp* q = find(value(qp));
  return q != nullptr && q->queue.enabled();
}

std::optional<Ps> Ipcq::credit_time(QpId qp) const {
  const Qp* q = find(value(qp));
  return q != nullptr ? q->queue.credit_time() : std::nullopt;
}

SendSlot Ipcq::take_send_slot(QpId qp, uint32_t message_bytes) {
  Qp* q = find(value(qp));
  if (q == nullptr || !q->queue.enabled()) {
    m_parts.host->record_error(pe::ERROR_BITS_QP_DISABLED.mask(),
                               m_parts.pe_base + addr::kPeQpRegs + value(qp) * addr::kQpRegBytes);
    return {};
  }
  if (message_bytes > q->queue.config().slot_bytes) {
    m_parts.host->record_error(pe::ERROR_BITS_TOO_LONG.mask(),
                               m_parts.pe_base + addr::kPeQpRegs + value(qp) * addr::kQpRegBytes);
    return {};
  }
  const QpConfig& c = q->queue.config();
  const SendSlot slot{q->queue.tail_address(), c.peer_qp, c.peer_epoch, c.has_egress, c.egress, value(qp),
                      q->queue.sent()};
  q->queue.take_credit();
  QpStats& stats = q->stats;
  ++stats.messages_sent;
  stats.bytes_sent += message_bytes;
  if (q->queue.sent() - q->queue.credited() == c.peer_slots) ++stats.credits_exhausted;
  m_parts.progress->note();
  return slot;
}

std::optional<QueuePair::Message> Ipcq::front(QpId qp) const {
  const Qp* q = find(value(qp));
  return q != nullptr ? q->queue.front() : std::nullopt;
}

void Ipcq::take(QpId qp) {
  Qp& q = *find(value(qp));
  const auto message = q.queue.front();
  QpStats& stats = q.stats;
  ++stats.messages_received;
  stats.bytes_received += message->bytes;
  if (m_tap != nullptr) {
    tell(observe::EventKind::Take, value(qp), message->ready, std::max(message->ready, now_ps()), 1, message->ticket,
         message->bytes);
  }
  q.queue.take();
}

void Ipcq::release(QpId qp, uint64_t ticket, Ps at) {
  Qp* q = find(value(qp));
  if (q == nullptr) return;
  // Slots go back in order: what was used up earlier waits for those before it.
  q->release_at = at = std::max({at, q->release_at, now_ps()});
  if (m_tap != nullptr) tell(observe::EventKind::Release, value(qp), at, at, 1, ticket);
  const uint32_t n = q->queue.release(ticket);
  if (n == 0) return;
  const QpConfig& c = q->queue.config();
  uint64_t word = n | (uint64_t{c.peer_epoch} << 32);
  PooledPayload& p = m_parts.payloads->acquire();
  p.set_command(tlm::TLM_WRITE_COMMAND);
  p.set_address(c.peer_pe + addr::kPeDoorbells + Addr{c.peer_qp} * addr::kDoorbellBytes + ipcq::kCredit);
  p.set_data_ptr(reinterpret_cast<uint8_t*>(&word));
  p.set_data_length(sizeof word);
  p.set_streaming_width(sizeof word);
  p.origin.flat_pe = m_parts.flat_pe;
  p.origin.launch_tag = 0;
  p.transit.transit = Transit{at, at, 8, Channel::Control, c.egress, c.has_egress};
  m_out.transport(p, q->route);
  if (!p.is_response_ok()) m_parts.host->record_error(pe::ERROR_BITS_BAD_ADDRESS.mask(), p.get_address());
  p.release();
}

bool Ipcq::reaches_pe(QpId qp) const {
  const Qp* q = find(value(qp));
  return q == nullptr || !q->queue.enabled() || q->peer_is_ours;  // a disabled one sends nothing
}

bool Ipcq::stale(uint32_t epoch) {
  if (epoch == (m_parts.host->epoch() & 0xFFFF)) return false;
  m_parts.host->count_stale();
  return true;
}

tlm::tlm_response_status Ipcq::notify(uint32_t id, uint64_t bytes, uint32_t epoch, Ps at, Addr address, Ps payload_at) {
  if (stale(epoch)) return tlm::TLM_OK_RESPONSE;
  Qp* q = find(id);
  const QpResult result =
      q != nullptr ? q->queue.notify(bytes, at, m_parts.config->ipcq.notify_latency, payload_at) : QpResult::Disabled;
  switch (result) {
    case QpResult::Ok: {
      m_parts.progress->note();
      m_parts.progress->note_until(q->queue.last_ready());
      q->stats.high_water = std::max(q->stats.high_water, q->queue.arrived() - q->queue.released());
      if (m_tap != nullptr) {
        tell(observe::EventKind::Message, id, q->queue.last_ready(), q->queue.last_ready(), 1, q->queue.arrived() - 1,
             bytes);
      }
      const auto front = q->queue.front();
      if (q->queue.config().irq_on_message) m_parts.host->message_interrupt(at);
      if (m_listener != nullptr && front) m_listener->on_message(QpId{id}, front->ready);
      return tlm::TLM_OK_RESPONSE;
    }
    case QpResult::Disabled:
      m_parts.host->record_error(pe::ERROR_BITS_QP_DISABLED.mask(), address);
      break;
    case QpResult::TooLong:
      m_parts.host->record_error(pe::ERROR_BITS_TOO_LONG.mask(), address);
      break;
    case QpResult::Overrun:
      m_parts.host->record_error(pe::ERROR_BITS_OVERRUN.mask(), address);
      break;
  }
  return tlm::TLM_GENERIC_ERROR_RESPONSE;
}

tlm::tlm_response_status Ipcq::credit(uint32_t id, uint64_t slots, uint32_t epoch, Ps at, Addr address) {
  if (stale(epoch)) return tlm::TLM_OK_RESPONSE;
  Qp* q = find(id);
  const QpResult result = q != nullptr ? q->queue.add_credits(slots, at) : QpResult::Disabled;
  if (result == QpResult::Ok) {
    m_parts.progress->note();
    m_parts.progress->note_until(at);
    if (m_tap != nullptr) tell(observe::EventKind::Credit, id, at, at, slots);
    if (m_listener != nullptr) m_listener->on_credit(QpId{id}, at);
    return tlm::TLM_OK_RESPONSE;
  }
  m_parts.host->record_error(
      result == QpResult::Disabled ? pe::ERROR_BITS_QP_DISABLED.mask() : pe::ERROR_BITS_OVERRUN.mask(), address);
  return tlm::TLM_GENERIC_ERROR_RESPONSE;
}

void Ipcq::name_touched(uint32_t qp, Use use, HostLines& lines) const {
  const Qp* q = find(qp);
  if (q == nullptr) return;
  if (use == Use::Send) bus_in.name_touched(lines);  // a credit comes over the bus, a message is delivered
  if (use == Use::Take) lines.add(static_cast<const IpcqPort*>(this));
  lines.add(&m_parts, &m_out);
  lines.add(&m_qps[qp]);
  lines.add(q, use == Use::Send ? static_cast<const void*>(&q->stats) : &q->peer_is_ours);
  q->queue.name_touched(use == Use::Send, lines);
}

void Ipcq::fetch(uint32_t turns) const {
  constexpr size_t kPairs = 8;  // a line; most PEs use few
  if (turns == 7) fetch_lines(&m_parts, &m_enabled);
  if (turns == 6) fetch_lines(m_qps.data(), m_qps.data() + std::min(m_qps.size(), kPairs));
}

void Ipcq::fetch(QpId qp, Use use, uint32_t turns, Ps at) const {
  const Qp* q = find(value(qp));
  if (q == nullptr) return;
  const bool sends = use == Use::Send;
  if (turns == 4) fetch_lines(q, sends ? static_cast<const void*>(&q->route) : &q->route.touched);
  if (turns == 3) q->queue.fetch(sends);
  if (sends) return;
  switch (turns) {
    case 3:
      q->route.fetch_lists(Route::Use::Write);
      break;
    case 2:
      q->route.fetch_hops(Route::Use::Write);
      break;
    case 1:
      q->route.fetch_second(Route::Use::Write, at);
      break;
    case 0:
      q->route.fetch_intervals(Route::Use::Write, at);
      break;
    default:
      break;
  }
}

QpResult Ipcq::would_take(uint32_t qp, uint32_t bytes) const {
  const Qp* q = find(qp);
  return q != nullptr ? q->queue.would_take(bytes) : QpResult::Disabled;
}

tlm::tlm_response_status Ipcq::deliver(uint32_t qp, uint32_t bytes, uint32_t epoch, Ps doorbell_at, Ps payload_at) {
  return notify(qp, bytes, epoch, doorbell_at, m_parts.pe_base + addr::kPeDoorbells + qp * addr::kDoorbellBytes,
                payload_at);
}

void Ipcq::payload_written(uint64_t tcm_offset, uint64_t bytes, Ps at) {
  for (uint32_t id : m_enabled) {
    QueuePair& queue = m_qps[id]->queue;
    const QpConfig& c = queue.config();
    if (c.slots == 0) continue;
    const uint64_t slot = c.ring_offset + queue.arrived() % c.slots * c.slot_bytes;
    if (tcm_offset < slot + c.slot_bytes && tcm_offset + bytes > slot) {
      queue.payload_arrived(at);
      return;
    }
  }
}

uint32_t Ipcq::credits(QpId qp) const {
  const Qp* q = find(value(qp));
  return q != nullptr ? q->queue.credits(now_ps()) : 0;
}

uint32_t Ipcq::level(QpId qp) const {
  const Qp* q = find(value(qp));
  return q != nullptr ? q->queue.level(now_ps()) : 0;
}

void Ipcq::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  const Addr local = trans.get_address() - m_parts.pe_base;
  if (local >= addr::kPeDoorbells) {
    const uint32_t qp = static_cast<uint32_t>((local - addr::kPeDoorbells) / addr::kDoorbellBytes);
    const Addr offset = local % addr::kDoorbellBytes;
    if (qp >= m_parts.config->ipcq.queue_pairs) {
      m_parts.host->record_error(pe::ERROR_BITS_UNKNOWN_QP.mask(), trans.get_address());
      trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
      return;
    }
    // The two that every message needs, without the register machinery.
    if (trans.is_write() && trans.get_data_length() == 8 && trans.get_byte_enable_ptr() == nullptr &&
        trans.get_streaming_width() >= 8 && offset <= ipcq::kCredit && offset % 8 == 0) {
      uint64_t word;
      std::memcpy(&word, trans.get_data_ptr(), 8);
      const auto low = static_cast<uint32_t>(word);
      const uint32_t epoch = word >> 32 & 0xFFFF;
      trans.set_response_status(offset == ipcq::kNotify ? notify(qp, low, epoch, transit->tail, trans.get_address())
                                                        : credit(qp, low, epoch, transit->tail, trans.get_address()));
      return;
    }
    if (!m_doorbell) m_doorbell = std::make_unique<DoorbellBehaviour>(*this);
    m_doorbell->qp = qp;
    m_doorbell->at = transit->tail;
    m_doorbell->address = trans.get_address();
    m_doorbell->status = tlm::TLM_OK_RESPONSE;
    const RegStatus status = access_registers(m_doorbell->block, offset, trans, transit->tail);
    trans.set_response_status(status == RegStatus::Ok ? m_doorbell->status : to_tlm(status));
    transit->head = transit->tail = std::max(transit->tail, m_doorbell->at);
    return;
  }
  const uint32_t qp = static_cast<uint32_t>((local - addr::kPeQpRegs) / addr::kQpRegBytes);
  const Addr offset = local % addr::kQpRegBytes;
  if (qp >= m_parts.config->ipcq.queue_pairs) {
    trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
    return;
  }
  if (trans.is_read() && find(qp) == nullptr) {
    RegisterBlock untouched(qp::kLayout);
    trans.set_response_status(to_tlm(access_registers(untouched, offset, trans, transit->tail)));
  } else {
    trans.set_response_status(to_tlm(access_registers(storage(qp).block, offset, trans, transit->tail)));
  }
  transit->shift(m_parts.config->pe.sfr_latency);
}

unsigned Ipcq::transport_dbg(tlm::tlm_generic_payload& trans) {
  const Addr local = trans.get_address() - m_parts.pe_base;
  if (local >= addr::kPeDoorbells) return 0;  // doorbells hold nothing, and a debug access must not ring them
  const uint32_t qp = static_cast<uint32_t>((local - addr::kPeQpRegs) / addr::kQpRegBytes);
  if (qp >= m_parts.config->ipcq.queue_pairs) return 0;
  const Addr offset = local % addr::kQpRegBytes;
  if (trans.is_read()) {
    if (const Qp* q = find(qp)) return q->block.debug_read(offset, trans.get_data_ptr(), trans.get_data_length());
    return RegisterBlock(qp::kLayout).debug_read(offset, trans.get_data_ptr(), trans.get_data_length());
  }
  return storage(qp).block.debug_write(offset, trans.get_data_ptr(), trans.get_data_length());
}

}  // namespace ahbm::models
