#include "models/memory/hbm_timing.h"

#include <algorithm>

namespace ahbm::models {

HbmTiming::HbmTiming(const HbmConfig& config)
    : m_bytes_per_second(config.bytes_per_second),
      m_interleave(config.interleave_bytes),
      m_latency(config.latency),
      m_block_duration(transfer_ps(uint64_t{config.interleave_bytes} * config.channels, config.bytes_per_second)),
      m_channels(config.channels) {}

/// share / (total / channels), rounded up once.
Ps HbmTiming::duration(uint64_t share) const {
  return transfer_ps(share * m_channels.size(), m_bytes_per_second);
}

uint64_t HbmTiming::share(uint32_t c, uint64_t offset, uint64_t bytes) const {
  if (bytes == 0) return 0;
  const auto n = static_cast<uint32_t>(m_channels.size());
  const uint64_t first = offset / m_interleave;
  const uint64_t last = (offset + bytes - 1) / m_interleave;
  const uint64_t blocks = last - first + 1;
  const uint64_t turn = (c + n - first % n) % n;  // this channel is the turn-th that the transfer meets
  if (turn >= blocks) return 0;
  uint64_t share = ((blocks - turn - 1) / n + 1) * m_interleave;
  if (turn == 0) share -= offset % m_interleave;
  if (c == last % n) share -= (last + 1) * m_interleave - (offset + bytes);
  return share;
}

HbmTiming::Span HbmTiming::reserve(Ps now, Ps earliest, uint64_t offset, uint64_t bytes, bool write) {
  const uint64_t blocks = (offset + bytes - 1) / m_interleave - offset / m_interleave + 1;
  const Span span = blocks >= m_channels.size() ? reserve_all(now, earliest, offset, bytes, write)
                                                : reserve_some(now, earliest, offset, bytes, write);
  m_stats.waited += span.first_begin - earliest;
  return span;
}

HbmTiming::Span HbmTiming::reserve_all(Ps now, Ps earliest, uint64_t offset, uint64_t bytes, bool write) {
  if (bytes != m_last_bytes) {
    m_last_bytes = bytes;
    m_last_duration = transfer_ps(bytes, m_bytes_per_second);
  }
  const Ps d = m_last_duration;
  m_stats.busy += d * m_channels.size();
  m_busy_together += d;
  if (m_apart && m_apart_until <= now) {
    m_apart = false;
    m_together = Calendar();
  }
  if (!m_apart) {
    const Calendar::Slot slot = m_together.reserve(now, earliest, d);
    if (m_tap != nullptr) {
      for (uint32_t c = 0; c < channels(); ++c) tell(c, slot, offset, bytes, write);
    }
    return {slot.begin, slot.end};
  }
  Span span;
  const uint64_t first = offset / m_interleave % channels();
  for (uint32_t c = 0; c < channels(); ++c) {
    const Calendar::Slot slot = m_channels[c].calendar.reserve(now, earliest, d);
    if (c == first) span.first_begin = slot.begin;
    span.end = std::max(span.end, slot.end);
    if (m_tap != nullptr) tell(c, slot, offset, bytes, write);
  }
  m_apart_until = std::max(m_apart_until, span.end);
  return span;
}

HbmTiming::Span HbmTiming::reserve_some(Ps now, Ps earliest, uint64_t offset, uint64_t bytes, bool write) {
  if (!m_apart) {
    m_apart = true;
    m_apart_until = m_together.end();
    for (ChannelState& channel : m_channels) channel.calendar = m_together;
  }
  const uint64_t first = offset / m_interleave;
  const uint64_t last = (offset + bytes - 1) / m_interleave;
  Span span;
  for (uint64_t block = first; block <= last; ++block) {
    uint64_t share = m_interleave;
    if (block == first) share -= offset % m_interleave;
    if (block == last) share -= (last + 1) * m_interleave - (offset + bytes);
    const Ps d = share == m_interleave ? m_block_duration : duration(share);
    const auto c = static_cast<uint32_t>(block % channels());
    const Calendar::Slot slot = m_channels[c].calendar.reserve(now, earliest, d);
    if (block == first) span.first_begin = slot.begin;
    span.end = std::max(span.end, slot.end);
    m_channels[c].busy += d;
    m_stats.busy += d;
    if (m_tap != nullptr) tell(c, slot, offset, bytes, write);
  }
  m_apart_until = std::max(m_apart_until, span.end);
  return span;
}

void HbmTiming::tell(uint32_t c, const Calendar::Slot& slot, uint64_t offset, uint64_t bytes, bool write) const {
  observe::Event e;
  e.kind = observe::EventKind::Access;
  e.write = write;
  e.index = c;
  e.begin = slot.begin;
  e.end = slot.end;
  e.bytes = share(c, offset, bytes);
  m_tap->tell(e);
}

void HbmTiming::write(Ps now, Transit& t, uint64_t offset, uint64_t bytes) {
  const Span span = reserve(now, t.head, offset, bytes, true);
  ++m_stats.writes;
  m_stats.bytes_written += bytes;
  t.head = span.first_begin + m_latency;
  t.tail = std::max(span.end, t.tail) + m_latency;
}

void HbmTiming::read(Ps now, Transit& t, uint64_t offset, uint64_t bytes) {
  const Span span = reserve(now, t.tail, offset, bytes, false);
  ++m_stats.reads;
  m_stats.bytes_read += bytes;
  t.head = span.first_begin + m_latency;
  t.tail = span.end + m_latency;
  t.wire_payload = bytes;
}

}  // namespace ahbm::models
