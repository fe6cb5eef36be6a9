// The cut-through state of a transaction and the resource that it reserves on its way. Plain classes: no SystemC.
//
// Time convention of every socket: the `delay` argument of b_transport is when the *tail* of the transaction is at the
// target (what any TLM-2.0 model expects); the `Transit` extension says how far the head runs before it. A transaction
// without it has head == tail. On return of a read, `delay` and `Transit` describe the data at the initiator's side; on
// return of a write, `delay` is when the target has taken it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "models/core/calendar.h"
#include "models/core/config/system_config.h"
#include "models/core/host_lines.h"
#include "models/core/time.h"
#include "models/observe/tap.h"

namespace ahbm::models {

struct RouteGrant;  // models/tlm/extensions.h
struct IpcqNotify;
struct Loan;  // models/memory/loan.h

enum class Channel : uint8_t { Data, Control };

/// A message on the move. Times are absolute.
struct Transit {
  Ps head = 0;
  Ps tail = 0;
  uint64_t wire_payload = 0;  ///< bytes before packet headers (an IPCQ header that is not on the wire is not counted)
  Channel channel = Channel::Data;
  Side egress = Side::E;
  bool has_egress = false;  ///< `egress` breaks ties between equally long ways

  // Extensions of the transaction, looked up once by the first module of ours (every look-up is a call).
  bool resolved = false;
  RouteGrant* grant = nullptr;
  IpcqNotify* notify = nullptr;
  // Along a granted route, where nobody but its target sees the data: a loan would do (of a read); the payload of a
  // message (a write with `notify`) lies there, and only its header at the data pointer.
  Loan* loan = nullptr;
  const uint8_t* payload = nullptr;

  void shift(Ps latency) {
    head += latency;
    tail += latency;
  }
};

/// How packets frame payload on links. A header-only message (payload 0) is one packet header.
struct Framing {
  uint32_t packet_bytes = 1024;
  uint32_t header_bytes = 16;
  uint64_t wire_bytes(uint64_t payload) const {
    return payload == 0 ? header_bytes : payload + ceil_div(payload, packet_bytes) * header_bytes;
  }
};

struct HopStats {
  uint64_t transactions = 0;
  uint64_t payload_bytes = 0;
  uint64_t wire_bytes = 0;
  uint64_t control_wire_bytes = 0;
  Ps busy = 0;    ///< data channel
  Ps waited = 0;  ///< sum of head delays by contention, data channel
};

/// One thing that a message reserves on its way: a link direction, a crossbar output, a TCM port, a DMA channel. Two
/// calendars: data and control (credits, doorbells and completions never queue behind data).
///
/// Laid out by cache line: a pass touches the first one as long as what it meets is the latest reservation. A message
/// and its doorbell cross five to ten of these, and a machine with a thousand busy PEs has more of them than its host
/// caches.
class alignas(64) Hop {
 public:
  Hop() = default;
  Hop(const LinkParams& link, const Framing& framing) { configure(link, framing); }
  void configure(const LinkParams& link, const Framing& framing) {
    settle();
    m_link = link;
    m_framing = framing;
    forget_lengths();
  }

  /// Moves `t` across: head_out = first free instant, tail_out = max(end of the reserved time, tail_in), then latency.
  void pass(Ps now, Transit& t) {
    if (t.channel == Channel::Data) {
      pass_as<Channel::Data>(now, t.head, t.tail, t.wire_payload);
    } else {
      pass_as<Channel::Control>(now, t.head, t.tail, t.wire_payload);
    }
  }
  /// `pass` for who knows the channel and keeps the times in registers.
  template <Channel kChannel>
  [[gnu::always_inline]] void pass_as(Ps now, Ps& head, Ps& tail, uint64_t payload) {
    const auto c = static_cast<size_t>(kChannel);
    Ps duration;
    if (!known_duration<kChannel>(payload, duration)) return pass_otherwise(kChannel, now, head, tail, payload);
    Calendar::Interval& last = m_last[c];
    Calendar::Slot slot;
    // What lies before the latest interval is only looked at when it matters, for it is in another line.
    if (head < last.begin || (head > last.end && last.end > now)) {
      slot = Calendar::reserve_in(last, m_busy[c], now, head, duration);
    } else {
      if (head > last.end) last.begin = last.end = head;
      slot.begin = last.end;
      slot.end = last.end += duration;
    }
    if (kChannel == Channel::Data && slot.begin != head) add_waited(slot.begin - head);
    tail = std::max(slot.end, tail) + m_latency;
    head = slot.begin + m_latency;
  }
  // Ahead of a pass at `at`, in three steps, since what has to be fetched next is known from what was fetched before:
  // the second line and the intervals behind it are only looked at while something is reserved later than that.
  void fetch() const { fetch_line(this); }
  void fetch_second(Ps at) const {
    if (m_last[0].end > at || m_last[1].end > at) fetch_line(&m_busy);
  }
  void fetch_intervals(Ps at) const {
    for (size_t c = 0; c < kChannels; ++c) {
      if (m_last[c].end > at) m_busy[c].fetch();
    }
  }

  LinkParams link() const { return m_link; }
  const Framing& framing() const { return m_framing; }
  HopStats stats() const {
    HopStats out = m_settled;
    add_kept(out);
    return out;
  }
  /// Every pass is told to `tap`, granted routes included; null: to nobody.
  /// Watching changes nothing about a hop.
  void observe(const observe::Tap* tap) {
    settle();
    m_tap = tap;
    forget_lengths();
  }

 private:
  static constexpr size_t kChannels = 2;
  // What messages of some lengths cost is kept, and how many pass is counted: traffic comes in few lengths, and
  // divisions are dear. Data comes in two (a move's last message is an odd one), with header-only requests in between.
  enum Kept : size_t { kData, kData2, kControl, kHeader };
  static constexpr size_t kLengths = 3, kKept = 4;  ///< those with a length of their own, all
  static constexpr uint16_t kNoPayload = 0xFFFF, kNoDuration = 0xFFFF;
  static constexpr uint32_t kNotShort = ~uint32_t{0};

  /// Of the usual length. A message without a payload is never that.
  template <Channel kChannel>
  bool known_duration(uint64_t payload, Ps& duration) {
    constexpr Kept kUsual = kChannel == Channel::Data ? kData : kControl;
    if (!kept(kUsual, payload)) return false;
    duration = m_duration[kUsual];
    return count(kUsual);
  }
  bool kept(Kept k, uint64_t payload) const { return m_payload[k] == payload && payload != kNoPayload; }
  bool count(Kept k) {
    if (++m_passes[k] == std::numeric_limits<uint8_t>::max()) settle();
    return true;
  }
  void add_waited(Ps time) {
    if (time >= kNotShort - m_waited) {
      settle();
      m_settled.waited += time;
    } else {
      m_waited += static_cast<uint32_t>(time);
    }
  }
  /// The next pass of every length looks at all that matters; a request is of one length.
  void forget_lengths() {
    // Without a short latency no length is kept, so that passes look no further.
    m_latency = static_cast<uint32_t>(m_tap != nullptr ? kNotShort : std::min<Ps>(m_link.latency, kNotShort));
    m_payload[kData] = m_payload[kData2] = m_payload[kControl] = kNoPayload;
    m_header_duration =
        static_cast<uint16_t>(keeps_lengths() ? std::min<Ps>(duration_of(0), kNoDuration) : kNoDuration);
  }
  bool keeps_lengths() const { return m_latency != kNotShort; }
  Ps duration_of(uint64_t payload) const { return transfer_ps(m_framing.wire_bytes(payload), m_link.bytes_per_second); }
  void add_kept(HopStats& out) const {
    out.waited += m_waited;
    for (size_t k = 0; k < kKept; ++k) {
      if (m_passes[k] == 0) continue;
      const uint64_t payload = k == kHeader ? 0 : m_payload[k];
      const Ps duration = k == kHeader ? m_header_duration : m_duration[k];
      add(out, k == kControl ? Channel::Control : Channel::Data, m_passes[k], payload, m_framing.wire_bytes(payload),
          duration);
    }
  }
  static void add(HopStats& out, Channel channel, uint64_t passes, uint64_t payload, uint64_t wire, Ps duration) {
    out.transactions += passes;
    out.payload_bytes += payload * passes;
    out.wire_bytes += wire * passes;
    if (channel == Channel::Data) {
      out.busy += duration * passes;
    } else {
      out.control_wire_bytes += wire * passes;
    }
  }
  void settle() {
    add_kept(m_settled);
    for (uint8_t& n : m_passes) n = 0;
    m_waited = 0;
  }
  /// Takes the place of what was kept as `k`; of data the older of two. False: it is watched, or too large for that.
  bool keep_length(Kept k, uint64_t payload) {
    if (!keeps_lengths() || payload == 0 || payload >= kNoPayload) return false;
    const Ps duration = duration_of(payload);
    if (duration == 0 || duration >= kNotShort) return false;
    settle();
    if (k == kData) {
      m_payload[kData2] = m_payload[kData];
      m_duration[kData2] = m_duration[kData];
    }
    m_payload[k] = static_cast<uint16_t>(payload);
    m_duration[k] = static_cast<uint32_t>(duration);
    return true;
  }
  /// One of another length than the last one.
  [[gnu::noinline]] void pass_otherwise(Channel channel, Ps now, Ps& head, Ps& tail, uint64_t payload) {
    const bool data = channel == Channel::Data;
    Kept k = data ? kData : kControl;
    if (data && payload == 0 && m_header_duration != kNoDuration) {
      k = kHeader;
    } else if (data && kept(kData2, payload)) {
      k = kData2;
    } else if (!keep_length(k, payload)) {
      return pass_rarely(channel, now, head, tail, payload);
    }
    count(k);
    const Ps duration = k == kHeader ? m_header_duration : m_duration[k];
    const auto c = static_cast<size_t>(channel);
    Calendar::Interval& last = m_last[c];
    const bool now_free = duration == 0 && last.end <= now;
    const Calendar::Slot slot =
        now_free ? Calendar::Slot{head, head} : Calendar::reserve_in(last, m_busy[c], now, head, duration);
    if (data && slot.begin != head) add_waited(slot.begin - head);
    tail = std::max(slot.end, tail) + m_latency;
    head = slot.begin + m_latency;
  }
  [[gnu::noinline, gnu::cold]] void pass_rarely(Channel channel, Ps now, Ps& head, Ps& tail, uint64_t payload) {
    const auto c = static_cast<size_t>(channel);
    const uint64_t wire = m_framing.wire_bytes(payload);
    const Ps duration = transfer_ps(wire, m_link.bytes_per_second);
    const Calendar::Slot slot = Calendar::reserve_in(m_last[c], m_busy[c], now, head, duration);
    add(m_settled, channel, 1, payload, wire, duration);
    if (channel == Channel::Data) m_settled.waited += slot.begin - head;
    if (m_tap != nullptr) {
      observe::Event e;
      e.kind = observe::EventKind::Transfer;
      e.control = channel == Channel::Control;
      e.begin = slot.begin;
      e.end = slot.end;
      e.bytes = payload;
      e.wire_bytes = wire;
      m_tap->tell(e);
    }
    tail = std::max(slot.end, tail) + m_link.latency;
    head = slot.begin + m_link.latency;
  }

  Calendar::Interval m_last[kChannels] = {};  ///< by channel: the calendars' latest intervals
  uint32_t m_duration[kLengths] = {};         ///< of a message of length m_payload
  uint16_t m_payload[kLengths] = {kNoPayload, kNoPayload, kNoPayload};
  uint16_t m_header_duration = kNoDuration;  ///< of a header-only message on the data channel
  uint32_t m_latency = kNotShort;            ///< m_link.latency, in the line that every pass touches; else kNotShort
  // Not yet in m_settled.
  uint32_t m_waited = 0;
  uint8_t m_passes[kKept] = {};

  Calendar::Intervals m_busy[kChannels];  ///< by channel: the intervals before the latest one
  LinkParams m_link{1, 0};

  HopStats m_settled;
  const observe::Tap* m_tap = nullptr;
  Framing m_framing;
};
static_assert(sizeof(Hop) == 192);

/// A machine resource without packet framing (TCM port, DMA channel, memory channel): bytes are bytes.
constexpr Framing kUnframed{1, 0};

}  // namespace ahbm::models
