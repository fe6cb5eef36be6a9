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
/// Laid out by cache line: a pass touches the line of its channel, and the one of the figures only when it had to wait.
/// Messages cross ten of these each, and a machine with a thousand busy PEs has more of them than its host caches.
class alignas(64) Hop {
 public:
  Hop() = default;
  Hop(const LinkParams& link, const Framing& framing) { configure(link, framing); }
  void configure(const LinkParams& link, const Framing& framing) {
    settle();
    m_bytes_per_second = link.bytes_per_second;
    m_framing = framing;
    for (Lane& lane : m_lanes) {
      lane.payload = kNoPayload;
      lane.latency = link.latency;
    }
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
    Lane& lane = m_lanes[static_cast<size_t>(kChannel)];
    if (lane.payload != payload) {
      if (m_tap != nullptr || payload >= kNoPayload) return pass_rarely(kChannel, now, head, tail, payload);
      change_length(lane, payload);
    }
    if (++lane.passes == kManyPasses) settle();
    const Calendar::Slot slot = lane.calendar.reserve(now, head, lane.duration);
    if (kChannel == Channel::Data && slot.begin != head) m_waited += slot.begin - head;
    tail = std::max(slot.end, tail) + lane.latency;
    head = slot.begin + lane.latency;
  }
  LinkParams link() const { return {m_bytes_per_second, m_lanes[0].latency}; }
  const Framing& framing() const { return m_framing; }
  HopStats stats() const {
    HopStats out = m_settled;
    for (const Channel c : {Channel::Data, Channel::Control}) add_passes(out, c);
    out.waited = m_waited;
    return out;
  }
  const Calendar& calendar(Channel c) const { return m_lanes[static_cast<size_t>(c)].calendar; }
  /// Every pass is told to `tap`, granted routes included; null: to nobody.
  /// Watching changes nothing about a hop.
  void observe(const observe::Tap* tap) {
    settle();
    for (Lane& lane : m_lanes) lane.payload = kNoPayload;  // so that the next pass looks
    m_tap = tap;
  }

 private:
  static constexpr uint32_t kNoPayload = ~uint32_t{0};
  static constexpr uint32_t kManyPasses = 1u << 30;

  /// A channel, and what a message of the last length costs on it: traffic comes in few lengths, and divisions are
  /// dear.
  struct Lane {
    Calendar calendar;
    uint32_t payload = kNoPayload;
    uint32_t passes = 0;  ///< of this length, not yet in m_settled
    Ps duration = 0;
    Ps latency = 0;
  };
  static_assert(sizeof(Lane) == 64);

  void add_passes(HopStats& out, Channel channel) const {
    const Lane& lane = m_lanes[static_cast<size_t>(channel)];
    if (lane.passes == 0) return;
    const uint64_t wire = m_framing.wire_bytes(lane.payload) * lane.passes;
    out.transactions += lane.passes;
    out.payload_bytes += uint64_t{lane.payload} * lane.passes;
    out.wire_bytes += wire;
    if (channel == Channel::Data) {
      out.busy += lane.duration * lane.passes;
    } else {
      out.control_wire_bytes += wire;
    }
  }
  void settle() {
    for (const Channel c : {Channel::Data, Channel::Control}) {
      add_passes(m_settled, c);
      m_lanes[static_cast<size_t>(c)].passes = 0;
    }
  }
  [[gnu::noinline]] void change_length(Lane& lane, uint64_t payload) {
    settle();
    lane.payload = static_cast<uint32_t>(payload);
    lane.duration = transfer_ps(m_framing.wire_bytes(payload), m_bytes_per_second);
  }
  /// A pass that is watched, or of a length that the lane does not keep.
  [[gnu::noinline, gnu::cold]] void pass_rarely(Channel channel, Ps now, Ps& head, Ps& tail, uint64_t payload) {
    Lane& lane = m_lanes[static_cast<size_t>(channel)];
    const uint64_t wire = m_framing.wire_bytes(payload);
    const Ps duration = transfer_ps(wire, m_bytes_per_second);
    const Calendar::Slot slot = lane.calendar.reserve(now, head, duration);
    ++m_settled.transactions;
    m_settled.payload_bytes += payload;
    m_settled.wire_bytes += wire;
    if (channel == Channel::Data) {
      m_settled.busy += duration;
      m_waited += slot.begin - head;
    } else {
      m_settled.control_wire_bytes += wire;
    }
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
    tail = std::max(slot.end, tail) + lane.latency;
    head = slot.begin + lane.latency;
  }

  Lane m_lanes[2];  ///< by channel, a cache line each
  Ps m_waited = 0;
  uint64_t m_bytes_per_second = 1;
  const observe::Tap* m_tap = nullptr;
  Framing m_framing;
  HopStats m_settled;
};

/// A machine resource without packet framing (TCM port, DMA channel, memory channel): bytes are bytes.
constexpr Framing kUnframed{1, 0};

}  // namespace ahbm::models
