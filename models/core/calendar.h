// Reservation of one resource (a link direction, a crossbar port, a memory channel, a DMA engine) ahead of time.
//
// A calendar holds the busy intervals that lie in the future. A reservation starts at the first free instant at or
// after the asked time and takes free time until its duration is used up, so it may be split around intervals that were
// reserved earlier: a send that reserves the far side of a long link ahead of time does not block what crosses there
// before it (a plain `busy_until` would). Total work is conserved, so call order can move a transfer by at most the
// duration of what competes with it, and transfers that do not overlap are the same in any order.
#pragma once

#include <cstddef>

#include "models/core/ring_buffer.h"
#include "models/core/time.h"

namespace ahbm {

class Calendar {
 public:
  struct Slot {
    Ps begin = 0;  ///< when the transfer starts to use the resource
    Ps end = 0;    ///< when it has used it for its whole duration; == begin for a duration of 0
  };

  /// Reserves `duration` at or after `earliest`. Everything that ended at or before `now` is forgotten.
  /// \pre now <= earliest
  Slot reserve(Ps now, Ps earliest, Ps duration) {
    // The common cases are inline: nothing is reserved after `earliest`, or only the interval that is going on then,
    // and the transfer follows it.
    if (earliest < m_last.begin || duration == 0) return reserve_among(now, earliest, duration);
    prune(now);
    if (earliest <= m_last.end) {
      const Ps begin = m_last.end;
      return {begin, m_last.end = begin + duration};
    }
    if (m_last.end > now) push_back(m_last);
    m_last = {earliest, earliest + duration};
    return {earliest, m_last.end};
  }

  /// What `reserve` would answer, without reserving.
  Slot peek(Ps earliest, Ps duration) const;

  /// When the latest interval ends.
  Ps end() const { return m_last.end; }

  /// Busy intervals held (diagnosis and the growth bound).
  size_t size() const { return m_busy.size() + (m_last.end > m_last.begin); }
  /// More intervals than this are never held: beyond it the earliest two are joined, which gives up the gap between
  /// them.
  static constexpr size_t kMaxIntervals = 4096;

 private:
  struct Interval {
    Ps begin, end;
  };
  void prune(Ps now) {
    while (!m_busy.empty() && m_busy.front().end <= now) m_busy.pop_front();
  }
  void push_back(const Interval& interval) {
    m_busy.push_back(interval);
    if (m_busy.size() >= kMaxIntervals) join_earliest();  // m_last is one more
  }
  void join_earliest();
  Slot fill_last_gap(Ps earliest, Ps duration);
  Slot reserve_among(Ps now, Ps earliest, Ps duration);
  uint32_t first_from(Ps earliest) const;

  Interval m_last{0, 0};        ///< the latest interval; begin == end: none
  RingBuffer<Interval> m_busy;  ///< what lies before m_last: sorted, disjoint, never touching
};

}  // namespace ahbm
