// Reservation of one resource (a link direction, a crossbar port, a memory channel, a DMA engine) ahead of time.
//
// A calendar holds the busy intervals that lie in the future. A reservation starts at the first free instant at or
// after the asked time and takes free time until its duration is used up, so it may be split around intervals that were
// reserved earlier: a send that reserves the far side of a long link ahead of time does not block what crosses there
// before it (a plain `busy_until` would). Total work is conserved, so call order can move a transfer by at most the
// duration of what competes with it, and transfers that do not overlap are the same in any order.
#pragma once

#include <cstddef>
#include <vector>

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
    // The common cases touch nothing but this object: nothing is reserved after `earliest`, or only the interval that
    // is going on then, and the transfer follows it.
    if (earliest >= m_last.begin && duration != 0) {
      const bool joins = earliest <= m_last.end && m_last.end > m_last.begin;
      const Ps begin = joins ? m_last.end : earliest;
      const Slot slot{begin, begin + duration};
      if (joins) {
        m_last.end = slot.end;
        if (!m_busy.empty()) prune(now);
      } else if (m_last.end > now && m_last.end > m_last.begin) {
        push_last(now);
        m_last = {slot.begin, slot.end};
        if (size() > kMaxIntervals) join_earliest();
      } else {
        if (!m_busy.empty()) prune(now);  // what lies before a passed interval has passed too
        m_last = {slot.begin, slot.end};
      }
      return slot;
    }
    return reserve_among(now, earliest, duration);
  }

  /// What `reserve` would answer, without reserving.
  Slot peek(Ps earliest, Ps duration) const;

  /// Busy intervals held (diagnosis and the growth bound).
  size_t size() const { return m_busy.size() - m_head + (m_last.end > m_last.begin); }
  /// More intervals than this are never held: beyond it the earliest two are joined, which gives up the gap between
  /// them.
  static constexpr size_t kMaxIntervals = 4096;

 private:
  struct Interval {
    Ps begin, end;
  };
  void prune(Ps now);
  void push_last(Ps now);
  void join_earliest();
  Slot reserve_among(Ps now, Ps earliest, Ps duration);

  Interval m_last{0, 0};         ///< the latest interval; begin == end: none
  size_t m_head = 0;             ///< [0, m_head) of m_busy is dead
  std::vector<Interval> m_busy;  ///< what lies before m_last: sorted, disjoint, never touching
};

}  // namespace ahbm
