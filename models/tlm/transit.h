// The cut-through state of a transaction and the resource that it reserves on its way. Plain classes: no SystemC.
//
// Time convention of every socket: the `delay` argument of b_transport is when the *tail* of the transaction is at the
// target (what any TLM-2.0 model expects); the `Transit` extension says how far the head runs before it. A transaction
// without it has head == tail. On return of a read, `delay` and `Transit` describe the data at the initiator's side; on
// return of a write, `delay` is when the target has taken it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "models/core/calendar.h"
#include "models/core/config/system_config.h"
#include "models/core/time.h"
#include "models/observe/tap.h"

namespace ahbm::models {

struct RouteGrant;  // models/tlm/extensions.h
struct IpcqNotify;

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
    m_latency = static_cast<uint32_t>(std::min<Ps>(link.latency, kNotShort));
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
  void pass_as(Ps now, Ps& head, Ps& tail, uint64_t payload) {
    const auto c = static_cast<size_t>(kChannel);
    if (m_payload[c] != payload && !keep_length(c, payload)) return pass_rarely(kChannel, now, head, tail, payload);
    if (++m_passes[c] == kManyPasses) settle();
    Calendar::Interval& last = m_last[c];
    Calendar::Slot slot;
    // What lies before the latest interval is only looked at when it matters, for it is in another line.
    if (head < last.begin || (head > last.end && last.end > now)) {
      slot = Calendar::reserve_in(last, m_busy[c], now, head, m_duration[c]);
    } else {
      if (head > last.end) last.begin = last.end = head;
      slot.begin = last.end;
      slot.end = last.end += m_duration[c];
    }
    if (kChannel == Channel::Data && slot.begin != head) m_settled.waited += slot.begin - head;
    tail = std::max(slot.end, tail) + m_latency;
    head = slot.begin + m_latency;
  }
  LinkParams link() const { return m_link; }
  const Framing& framing() const { return m_framing; }
  HopStats stats() const {
    HopStats out = m_settled;
    for (size_t c = 0; c < kChannels; ++c) add_passes(out, c);
    return out;
  }
  /// Every pass is told to `tap`, granted routes included; null: to nobody.
  /// Watching changes nothing about a hop.
  void observe(const observe::Tap* tap) {
    settle();
    forget_lengths();  // so that the next pass looks
    m_tap = tap;
  }

 private:
  static constexpr size_t kChannels = 2;
  static constexpr uint16_t kNoPayload = 0xFFFF;
  static constexpr uint32_t kNotShort = ~uint32_t{0};
  static constexpr uint32_t kManyPasses = 1u << 30;

  void forget_lengths() { m_payload[0] = m_payload[1] = kNoPayload; }
  void add_passes(HopStats& out, size_t c) const {
    if (m_passes[c] != 0) add(out, c, m_passes[c], m_payload[c], m_wire[c], m_duration[c]);
  }
  static void add(HopStats& out, size_t c, uint64_t passes, uint64_t payload, uint64_t wire, Ps duration) {
    out.transactions += passes;
    out.payload_bytes += payload * passes;
    out.wire_bytes += wire * passes;
    if (c == static_cast<size_t>(Channel::Data)) {
      out.busy += duration * passes;
    } else {
      out.control_wire_bytes += wire * passes;
    }
  }
  void settle() {
    for (size_t c = 0; c < kChannels; ++c) {
      add_passes(m_settled, c);
      m_passes[c] = 0;
    }
  }
  /// What a message of this length costs is kept: traffic comes in few lengths, and divisions are dear. False: it is
  /// watched, or too large for that.
  [[gnu::noinline]] bool keep_length(size_t c, uint64_t payload) {
    if (m_tap != nullptr || payload >= kNoPayload || m_latency == kNotShort) return false;
    const uint64_t wire = m_framing.wire_bytes(payload);
    const Ps duration = transfer_ps(wire, m_link.bytes_per_second);
    if (duration == 0 || duration >= kNotShort || wire >= kNotShort) return false;
    add_passes(m_settled, c);
    m_passes[c] = 0;
    m_payload[c] = static_cast<uint16_t>(payload);
    m_wire[c] = static_cast<uint32_t>(wire);
    m_duration[c] = static_cast<uint32_t>(duration);
    return true;
  }
  [[gnu::noinline, gnu::cold]] void pass_rarely(Channel channel, Ps now, Ps& head, Ps& tail, uint64_t payload) {
    const auto c = static_cast<size_t>(channel);
    const uint64_t wire = m_framing.wire_bytes(payload);
    const Ps duration = transfer_ps(wire, m_link.bytes_per_second);
    const Calendar::Slot slot = Calendar::reserve_in(m_last[c], m_busy[c], now, head, duration);
    add(m_settled, c, 1, payload, wire, duration);
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

  // All of these by channel.
  Calendar::Interval m_last[kChannels] = {};  ///< the calendars' latest intervals
  uint32_t m_passes[kChannels] = {};          ///< of length m_payload, not yet in m_settled
  uint32_t m_duration[kChannels] = {};        ///< of a message of length m_payload
  uint32_t m_wire[kChannels] = {};            ///< its bytes on the wire
  uint16_t m_payload[kChannels] = {kNoPayload, kNoPayload};
  uint32_t m_latency = 0;

  Calendar::Intervals m_busy[kChannels];  ///< the intervals before the latest one
  LinkParams m_link{1, 0};

  HopStats m_settled;
  const observe::Tap* m_tap = nullptr;
  Framing m_framing;
};
static_assert(sizeof(Hop) == 192);

/// A machine resource without packet framing (TCM port, DMA channel, memory channel): bytes are bytes.
constexpr Framing kUnframed{1, 0};

}  // namespace ahbm::models
