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
class Hop {
 public:
  Hop() = default;
  Hop(const LinkParams& link, const Framing& framing) { configure(link, framing); }
  void configure(const LinkParams& link, const Framing& framing) {
    m_link = link;
    m_framing = framing;
    m_cost[0] = m_cost[1] = Cost{};
  }

  /// Moves `t` across: head_out = first free instant, tail_out = max(end of the reserved time, tail_in), then latency.
  void pass(Ps now, Transit& t) {
    const size_t channel = static_cast<size_t>(t.channel);
    Cost& cost = m_cost[channel];
    if (cost.payload != t.wire_payload) {
      cost.payload = t.wire_payload;
      cost.wire = m_framing.wire_bytes(t.wire_payload);
      cost.duration = transfer_ps(cost.wire, m_link.bytes_per_second);
    }
    const Calendar::Slot slot = m_calendar[channel].reserve(now, t.head, cost.duration);
    ++m_stats.transactions;
    m_stats.payload_bytes += t.wire_payload;
    m_stats.wire_bytes += cost.wire;
    if (t.channel == Channel::Data) {
      m_stats.busy += cost.duration;
      m_stats.waited += slot.begin - t.head;
    } else {
      m_stats.control_wire_bytes += cost.wire;
    }
    if (m_tap != nullptr) tell(t, slot, cost.wire);
    t.tail = std::max(slot.end, t.tail) + m_link.latency;
    t.head = slot.begin + m_link.latency;
  }

  const LinkParams& link() const { return m_link; }
  const Framing& framing() const { return m_framing; }
  const HopStats& stats() const { return m_stats; }
  const Calendar& calendar(Channel c) const { return m_calendar[static_cast<size_t>(c)]; }
  /// Every pass is told to `tap`, granted routes included; null: to nobody.
  /// Watching changes nothing about a hop.
  void observe(const observe::Tap* tap) const { m_tap = tap; }

 private:
  [[gnu::noinline, gnu::cold]] void tell(const Transit& t, const Calendar::Slot& slot, uint64_t wire) const {
    observe::Event e;
    e.kind = observe::EventKind::Transfer;
    e.control = t.channel == Channel::Control;
    e.begin = slot.begin;
    e.end = slot.end;
    e.bytes = t.wire_payload;
    e.wire_bytes = wire;
    m_tap->tell(e);
  }

  /// What a message of the last length cost: traffic comes in few lengths, and divisions are dear.
  struct Cost {
    uint64_t payload = ~uint64_t{0};
    uint64_t wire = 0;
    Ps duration = 0;
  };
  LinkParams m_link{1, 0};
  Framing m_framing;
  Cost m_cost[2];  ///< by channel
  Calendar m_calendar[2];
  HopStats m_stats;
  mutable const observe::Tap* m_tap = nullptr;
};

/// A machine resource without packet framing (TCM port, DMA channel, memory channel): bytes are bytes.
constexpr Framing kUnframed{1, 0};

}  // namespace ahbm::models
