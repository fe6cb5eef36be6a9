#include "models/core/registers/register_block.h"

#include <algorithm>
#include <vector>

namespace ahbm {

namespace {

constexpr uint64_t low_bytes(uint32_t n) {
  return n >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * n)) - 1;
}

bool enabled(const RegAccessRequest& q, uint32_t i) {
  return q.byte_enables == nullptr || q.byte_enables[i % q.byte_enable_length] != 0;
}

/// The enabled bytes of bytes [first, first + n) of the access as a mask of n bytes.
uint64_t lane_mask(const RegAccessRequest& q, uint32_t first, uint32_t n) {
  if (q.byte_enables == nullptr) return low_bytes(n);
  uint64_t mask = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (enabled(q, first + i)) mask |= uint64_t{0xFF} << (8 * i);
  }
  return mask;
}

uint32_t words_for(const BlockLayout& layout) {
  return (layout.storage_bytes + 7u) / 8u;
}

}  // namespace

const char* to_string(RegStatus s) {
  switch (s) {
    case RegStatus::Ok:
      return "ok";
    case RegStatus::AddressError:
      return "address error";
    case RegStatus::BurstError:
      return "burst error";
    case RegStatus::CommandError:
      return "command error";
  }
  return "?";
}

RegisterBlock::RegisterBlock(const BlockLayout& layout, RegisterBehaviour* behaviour)
    : m_layout(&layout),
      m_behaviour(behaviour),
      m_words(std::make_unique<uint64_t[]>(words_for(layout) + layout.event_slots)) {
  reset();
}

void RegisterBlock::reset() {
  std::fill_n(m_words.get(), words_for(*m_layout) + m_layout->event_slots, 0);
  for (RegIndex i = 0; i < m_layout->count; ++i) store(m_layout->registers[i], m_layout->registers[i].reset);
  m_event_time = kNoTime;
}

void RegisterBlock::event(RegIndex reg, uint64_t mask, uint64_t v, Ps now) {
  const RegisterLayout& r = m_layout->registers[reg];
  mask &= r.field_mask;
  store(r, (load(r) & ~mask) | (v & mask));
  if (now == kNoTime || r.event_slot == kNoSlot) return;
  uint64_t* events = m_words.get() + words_for(*m_layout);
  if (now != m_event_time) {
    std::fill_n(events, m_layout->event_slots, 0);
    m_event_time = now;
  }
  events[r.event_slot] |= mask;
}

uint64_t RegisterBlock::event_bits(const RegisterLayout& r, Ps now) const {
  if (now == kNoTime || now != m_event_time || r.event_slot == kNoSlot) return 0;
  return m_words[words_for(*m_layout) + r.event_slot];
}

void RegisterBlock::write_word(const RegisterLayout& r, uint64_t data, uint64_t mask, Ps now) {
  const uint64_t old = load(r);
  // The written bytes go through every field's own policy; a field is never masked out before the merge, so what is not
  // written, or not writable, survives.
  const uint64_t plain = mask & (r.rw | r.wo);
  const uint64_t events = event_bits(r, now);
  uint64_t next = (old & ~plain) | (data & plain);
  next &= ~(data & mask & r.w1c & ~events);
  next |= data & mask & r.w1s & ~events;
  store(r, next);
  if (m_behaviour != nullptr) m_behaviour->on_write(r, old, next | (data & mask & r.pulse), mask);
}

uint64_t RegisterBlock::read_word(const RegisterLayout& r, uint64_t mask, Ps now) {
  const uint64_t stored = load(r);
  const uint64_t v = (m_behaviour != nullptr ? m_behaviour->on_read(r, stored) : stored) & r.readable;
  const uint64_t cleared = stored & mask & r.rc & ~event_bits(r, now);
  if (cleared != 0) store(r, load(r) & ~cleared);
  return v;
}

RegStatus RegisterBlock::check_beats(const RegisterLayout& r, const RegAccessRequest& q, uint32_t& beat) const {
  if (q.length == 0 || q.streaming_width == 0) return RegStatus::BurstError;
  if (q.byte_enables != nullptr && q.byte_enable_length == 0) return RegStatus::BurstError;
  beat = std::min(q.length, q.streaming_width);
  if (beat > m_layout->size - q.offset) return RegStatus::AddressError;
  if (beat != q.length && (!r.fifo || q.length % beat != 0)) return RegStatus::BurstError;
  if (beat > 8 || (beat & (beat - 1)) != 0) return RegStatus::BurstError;
  if ((q.offset & (beat - 1)) != 0 || q.offset - r.offset + beat > r.width_bytes) return RegStatus::BurstError;
  return RegStatus::Ok;
}

RegStatus RegisterBlock::fifo_write(const RegisterLayout& r, const RegAccessRequest& q) {
  if (m_behaviour == nullptr) return RegStatus::CommandError;
  if (q.byte_enables == nullptr) return m_behaviour->on_fifo_write(r, q.data, q.length);
  std::vector<uint8_t> bytes;
  bytes.reserve(q.length);
  for (uint32_t i = 0; i < q.length; ++i) {
    if (enabled(q, i)) bytes.push_back(q.data[i]);
  }
  if (bytes.empty()) return RegStatus::Ok;
  return m_behaviour->on_fifo_write(r, bytes.data(), static_cast<uint32_t>(bytes.size()));
}

RegStatus RegisterBlock::access(const RegAccessRequest& q) {
  if (q.offset >= m_layout->size) return RegStatus::AddressError;
  const RegisterLayout* r = m_layout->find(q.offset);
  if (r == nullptr) return RegStatus::AddressError;
  uint32_t beat = 0;
  if (const RegStatus s = check_beats(*r, q, beat); s != RegStatus::Ok) return s;
  const auto shift = static_cast<unsigned>(8 * (q.offset - r->offset));
  if (q.write) {
    if (r->writable == 0) return RegStatus::CommandError;
    if (r->fifo) return fifo_write(*r, q);
    const uint64_t mask = lane_mask(q, 0, beat) << shift;
    if (mask == 0) return RegStatus::Ok;
    uint64_t data = 0;
    std::memcpy(&data, q.data, beat);
    write_word(*r, data << shift, mask, q.now);
    return RegStatus::Ok;
  }
  for (uint32_t at = 0; at < q.length; at += beat) {
    const uint64_t mask = lane_mask(q, at, beat);
    if (mask == 0) continue;
    const uint64_t v = read_word(*r, mask << shift, q.now) >> shift;
    if (q.byte_enables == nullptr) {
      std::memcpy(q.data + at, &v, beat);
    } else {
      for (uint32_t i = 0; i < beat; ++i) {
        if (enabled(q, at + i)) q.data[at + i] = static_cast<uint8_t>(v >> (8 * i));
      }
    }
  }
  return RegStatus::Ok;
}

uint32_t RegisterBlock::debug_read(uint64_t offset, uint8_t* data, uint32_t length) const {
  if (offset >= m_layout->size) return 0;
  const auto n = static_cast<uint32_t>(std::min<uint64_t>(length, m_layout->size - offset));
  for (uint32_t i = 0; i < n;) {
    const RegisterLayout* r = m_layout->find(offset + i);
    if (r == nullptr) {
      data[i++] = 0;
      continue;
    }
    uint64_t v = load(*r);
    if (m_behaviour != nullptr) v = m_behaviour->peek(*r, v);
    v &= r->readable;
    for (uint64_t lane = offset + i - r->offset; lane < r->width_bytes && i < n; ++lane) {
      data[i++] = static_cast<uint8_t>(v >> (8 * lane));
    }
  }
  return n;
}

uint32_t RegisterBlock::debug_write(uint64_t offset, const uint8_t* data, uint32_t length) {
  if (offset >= m_layout->size) return 0;
  const auto n = static_cast<uint32_t>(std::min<uint64_t>(length, m_layout->size - offset));
  for (uint32_t i = 0; i < n;) {
    const RegisterLayout* r = m_layout->find(offset + i);
    if (r == nullptr) {
      ++i;
      continue;
    }
    uint64_t v = 0, mask = 0;
    for (uint64_t lane = offset + i - r->offset; lane < r->width_bytes && i < n; ++lane) {
      v |= uint64_t{data[i++]} << (8 * lane);
      mask |= uint64_t{0xFF} << (8 * lane);
    }
    if (r->fifo) continue;
    mask &= r->rw | r->w1c | r->w1s | r->rc;
    store(*r, (load(*r) & ~mask) | (v & mask));
  }
  return n;
}

}  // namespace ahbm
