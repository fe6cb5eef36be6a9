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
/// last share is. Alone it takes latency + the largest share at the bandwidth of one channel (total / channels).
class HbmTiming {
 public:
  explicit HbmTiming(const HbmConfig& config);

  /// A posted write whose message is `t`: the channels start with its head, and it is done (`t.tail`) when the message
  /// is there, every share is written and the latency is over. \pre bytes > 0
  void write(Ps now, Transit& t, uint64_t offset, uint64_t bytes);
  /// A read whose request is `t`: starts when the whole request is there; on return `t` is the data message.
  void read(Ps now, Transit& t, uint64_t offset, uint64_t bytes);

  const HbmStats& stats() const { return m_stats; }
  const Calendar& channel(uint32_t c) const { return m_channels[c].calendar; }
  uint32_t channels() const { return static_cast<uint32_t>(m_channels.size()); }
  Ps channel_busy(uint32_t c) const { return m_channels[c].busy; }
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
  void tell(uint32_t c, const Calendar::Slot& slot, uint64_t offset, uint64_t bytes, bool write) const;
  Ps duration(uint64_t share) const;

  const uint64_t m_bytes_per_second;
  const uint32_t m_interleave;
  const Ps m_latency;
  struct ChannelState {
    Calendar calendar;
    Ps busy = 0;
  };
  std::vector<ChannelState> m_channels;
  // What a whole transfer of one length and one alignment took of a channel: nearly all have the same, and divisions
  // are dear.
  uint64_t m_last_rounds = 0;
  Ps m_more = 0, m_less = 0;  ///< shares of m_last_rounds + 1 and m_last_rounds blocks
  const observe::Tap* m_tap = nullptr;
  HbmStats m_stats;
};

}  // namespace ahbm::models
