#include "models/memory/hbm_timing.h"

#include <algorithm>

namespace ahbm::models {

HbmTiming::HbmTiming(const HbmConfig& config)
    : m_bytes_per_second(config.bytes_per_second),
      m_interleave(config.interleave_bytes),
      m_latency(config.latency),
      m_channels(config.channels),
      m_more(duration(config.interleave_bytes)) {}

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
  const auto n = static_cast<uint32_t>(m_channels.size());
  const uint64_t first = offset / m_interleave;
  const uint64_t last = (offset + bytes - 1) / m_interleave;
  const uint64_t blocks = last - first + 1;
  const uint64_t rounds = blocks / n;
  const uint64_t extra = blocks % n;  // the first `extra` channels have one block more
  const auto touched = static_cast<uint32_t>(std::min<uint64_t>(blocks, n));
  const uint64_t head_missing = offset % m_interleave;
  const uint64_t tail_missing = (last + 1) * m_interleave - (offset + bytes);
  const uint64_t last_turn = (blocks - 1) % n;

  if (rounds != m_last_rounds) {
    m_last_rounds = rounds;
    m_more = duration((rounds + 1) * m_interleave);
    m_less = duration(rounds * m_interleave);
  }
  Span span;
  Ps busy = 0;
  auto c = static_cast<uint32_t>(first % n);
  for (uint32_t turn = 0; turn < touched; ++turn) {
    Ps d = turn < extra ? m_more : m_less;
    if ((turn == 0 && head_missing != 0) || (turn == last_turn && tail_missing != 0)) {
      uint64_t share = (turn < extra ? rounds + 1 : rounds) * m_interleave;
      if (turn == 0) share -= head_missing;
      if (turn == last_turn) share -= tail_missing;
      d = duration(share);
    }
    ChannelState& channel = m_channels[c];
    const Calendar::Slot slot = channel.calendar.reserve(now, earliest, d);
    if (turn == 0) span.first_begin = slot.begin;
    span.end = std::max(span.end, slot.end);
    busy += d;
    channel.busy += d;
    if (m_tap != nullptr) tell(c, slot, offset, bytes, write);
    if (++c == n) c = 0;
  }
  m_stats.busy += busy;
  m_stats.waited += span.first_begin - earliest;
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
