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
  Slot reserve(Ps now, Ps earliest, Ps duration);

  /// What `reserve` would answer, without reserving.
  Slot peek(Ps earliest, Ps duration) const;

  /// Busy intervals held (diagnosis and the growth bound).
  size_t size() const { return m_busy.size() - m_head; }
  /// More intervals than this are never held: beyond it the earliest two are joined, which gives up the gap between
  /// them.
  static constexpr size_t kMaxIntervals = 4096;

 private:
  struct Interval {
    Ps begin, end;
  };
  void prune(Ps now);
  void compact();

  std::vector<Interval> m_busy;  ///< sorted, disjoint, never touching; [0, m_head) is dead
  size_t m_head = 0;
};

}  // namespace ahbm
