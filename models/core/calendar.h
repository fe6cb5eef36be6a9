// Reservation of one resource (a link direction, a crossbar port, a memory channel, a DMA engine) ahead of time.
//
// A calendar holds the busy intervals that lie in the future, and some that are over. A reservation starts at the first
// free instant at or after the asked time and takes free time until its duration is used up, so it may be split around
// intervals that were reserved earlier: a send that reserves the far side of a long link ahead of time does not block
// what crosses there before it (a plain `busy_until` would). Total work is conserved, so call order can move a transfer
// by at most the duration of what competes with it, and transfers that do not overlap are the same in any order.
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

  struct Interval {
    Ps begin, end;
  };
  using Intervals = RingBuffer<Interval, 8>;

  /// Reserves `duration` at or after `earliest`. What ended at or before `now` may be forgotten.
  /// \pre now <= earliest
  Slot reserve(Ps now, Ps earliest, Ps duration) { return reserve_in(m_last, m_busy, now, earliest, duration); }

  /// What `reserve` would answer, without reserving.
  Slot peek(Ps earliest, Ps duration) const { return peek_in(m_last, m_busy, earliest, duration); }

  /// `reserve` for who keeps the parts of a calendar apart: the latest interval (begin == end: none), and those before
  /// it.
  static Slot reserve_in(Interval& last, Intervals& busy, Ps now, Ps earliest, Ps duration) {
    // The common cases are inline: nothing is reserved after `earliest`, or only the interval that is going on then,
    // and the transfer follows it.
    if (earliest < last.begin || duration == 0) return reserve_among(last, busy, now, earliest, duration);
    if (earliest <= last.end) {
      const Ps begin = last.end;
      return {begin, last.end = begin + duration};
    }
    if (last.end > now) push_back(busy, last, now);
    last = {earliest, earliest + duration};
    return {earliest, last.end};
  }

  /// When the latest interval ends.
  Ps end() const { return m_last.end; }

  /// Busy intervals held that end after `now` (diagnosis and the growth bound).
  size_t size(Ps now) const {
    size_t n = m_last.end > m_last.begin && m_last.end > now;
    for (uint32_t i = 0; i < m_busy.size(); ++i) n += m_busy[i].end > now;
    return n;
  }
  /// More intervals than this are never held: beyond it the earliest two are joined, which gives up the gap between
  /// them.
  static constexpr size_t kMaxIntervals = 4096;

 private:
  static void push_back(Intervals& busy, const Interval& interval, Ps now) {
    if (interval.begin <= now) {
      busy.restart();  // the others end before: nobody has to look at them, which the host would have to fetch
    } else {
      make_room(busy, now);
    }
    busy.push_back(interval);
    bound(busy);
  }
  /// What is over may stay (nothing asks for times before `now`) until there is no room for another interval.
  static void make_room(Intervals& busy, Ps now) {
    if (busy.full() || busy.size() + 1 >= kMaxIntervals) forget_over(busy, now);
  }
  static void forget_over(Intervals& busy, Ps now);
  static void bound(Intervals& busy) {
    if (busy.size() >= kMaxIntervals) join_earliest(busy);  // the latest is one more
  }
  static void join_earliest(Intervals& busy);
  static Slot fill_last_gap(Interval& last, Intervals& busy, Ps now, Ps earliest, Ps duration);
  static Slot reserve_among(Interval& last, Intervals& busy, Ps now, Ps earliest, Ps duration);
  static Slot peek_in(const Interval& last, const Intervals& busy, Ps earliest, Ps duration);
  static uint32_t first_from(const Intervals& busy, Ps earliest);

  Interval m_last{0, 0};  ///< the latest interval; begin == end: none
  Intervals m_busy;       ///< what lies before m_last, in part over: sorted, disjoint, never touching
};

}  // namespace ahbm
