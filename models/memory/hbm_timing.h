// When an HBM stack is busy: the address interleave over its channels and one calendar per channel. Kernel-free.
#pragma once

#include <vector>

#include "models/core/calendar.h"
#include "models/core/config/system_config.h"
#include "models/observe/tap.h"
#include "models/tlm/transit.h"

namespace ahbm::models {

struct HbmStats {
  uint64_t reads = 0, writes = 0;
  uint64_t bytes_read = 0, bytes_written = 0;
  Ps busy = 0;    ///< summed over channels
  Ps waited = 0;  ///< sum over transfers of the delay of the first byte by contention
};

/// A transfer reserves on every channel that it touches the time for its share of the bytes there; it is done when the
/// last share is. One that touches all channels shares its bytes evenly: the memory controller fills the odd block of a
/// long transfer with those of the next. Alone a short transfer takes latency + the largest share at the bandwidth of
/// one channel (total / channels), a long one latency + bytes at the whole bandwidth.
class HbmTiming {
 public:
  explicit HbmTiming(const HbmConfig& config);

  /// A posted write whose message is `t`: the channels start with its head, and it is done (`t.tail`) when the message
  /// is there, every share is written and the latency is over. \pre bytes > 0
  void write(Ps now, Transit& t, uint64_t offset, uint64_t bytes);
  /// A read whose request is `t`: starts when the whole request is there; on return `t` is the data message.
  void read(Ps now, Transit& t, uint64_t offset, uint64_t bytes);

  const HbmStats& stats() const { return m_stats; }
  uint32_t channels() const { return static_cast<uint32_t>(m_channels.size()); }
  Ps channel_busy(uint32_t c) const { return m_busy_together + m_channels[c].busy; }
  /// What every channel does is told to `tap`; null: to nobody.
  void observe(const observe::Tap* tap) { m_tap = tap; }
  /// Bytes of [offset, offset + bytes) that lie in channel `c`.
  uint64_t share(uint32_t c, uint64_t offset, uint64_t bytes) const;

 private:
  struct Span {
    Ps first_begin = 0;  ///< the channel of the first byte starts
    Ps end = 0;          ///< the last channel is done
  };
  Span reserve(Ps now, Ps earliest, uint64_t offset, uint64_t bytes, bool write);
  Span reserve_all(Ps now, Ps earliest, uint64_t offset, uint64_t bytes, bool write);
  Span reserve_some(Ps now, Ps earliest, uint64_t offset, uint64_t bytes, bool write);
  void tell(uint32_t c, const Calendar::Slot& slot, uint64_t offset, uint64_t bytes, bool write) const;
  Ps duration(uint64_t share) const;

  const uint64_t m_bytes_per_second;
  const uint32_t m_interleave;
  const Ps m_latency;
  struct ChannelState {
    Calendar calendar;
    Ps busy = 0;
  };
  // As long as only transfers of all channels come, one calendar says when each of them is busy.
  bool m_apart = false;  ///< the channels have calendars of their own, until the last of them has run out
  Calendar m_together;
  Ps m_busy_together = 0;
  Ps m_apart_until = 0;
  uint64_t m_last_bytes = 0;  ///< nearly all transfers have one length, and divisions are dear
  Ps m_last_duration = 0;
  Ps m_block_duration = 0;
  std::vector<ChannelState> m_channels;
  const observe::Tap* m_tap = nullptr;
  HbmStats m_stats;
};

}  // namespace ahbm::models
