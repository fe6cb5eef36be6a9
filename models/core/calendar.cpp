#include "models/core/calendar.h"

namespace ahbm {

void Calendar::forget_over(Intervals& busy, Ps now) {
  while (!busy.empty() && busy.front().end <= now) busy.pop_front();
}

void Calendar::join_earliest(Intervals& busy) {
  busy[1].begin = busy.front().begin;
  busy.pop_front();
}

/// Only the gap before the last interval is concerned.
Calendar::Slot Calendar::fill_last_gap(Interval& last, Intervals& busy, Ps now, Ps earliest, Ps duration) {
  const bool touches = !busy.empty() && earliest == busy.back().end;
  if (earliest + duration < last.begin) {
    if (touches) {
      busy.back().end = earliest + duration;
    } else {
      push_back(busy, {earliest, earliest + duration}, now);
    }
    return {earliest, earliest + duration};
  }
  const Ps left = earliest + duration - last.begin;
  const Slot slot{earliest, left == 0 ? last.begin : last.end + left};
  last = {touches ? busy.back().begin : earliest, last.end + left};
  if (touches) busy.pop_back();
  return slot;
}

Calendar::Slot Calendar::reserve_among(Interval& last, Intervals& busy, Ps now, Ps earliest, Ps duration) {
  if (last.end <= now) {
    last = duration != 0 ? Interval{earliest, earliest + duration} : Interval{0, 0};
    return {earliest, earliest + duration};
  }
  if (duration == 0) return peek_in(last, busy, earliest, 0);
  if (busy.empty() || earliest >= busy.back().end) return fill_last_gap(last, busy, now, earliest, duration);
  // Fill the gaps from `earliest` on, which lies before the end of the last but one. Every interval crossed merges
  // with the new one, since no gap is left between them.
  make_room(busy, now);
  const uint32_t first = first_from(busy, earliest);
  Interval& met = busy[first];
  if (earliest + duration < met.begin) {
    busy.insert(first, {earliest, earliest + duration});
    bound(busy);
    return {earliest, earliest + duration};
  }
  uint32_t next = first;
  Ps t = earliest;
  Ps begin = earliest;
  if (met.begin <= earliest) {
    begin = met.begin;
    t = met.end;
    ++next;
    if (t + duration < (next != busy.size() ? busy[next] : last).begin) {
      met.end = t + duration;
      return {t, met.end};
    }
  }
  Slot slot{t, t};
  Ps left = duration;
  const auto cross = [&](const Interval& interval) {
    if (left == 0 || t + left < interval.begin) return false;
    left -= interval.begin - t;
    slot.end = interval.begin;  // where the transfer ends if nothing is left of it
    t = interval.end;
    return true;
  };
  while (next != busy.size() && cross(busy[next])) ++next;
  const bool crossed_last = next == busy.size() && cross(last);
  if (left != 0) slot.end = t = t + left;
  // [begin, t) is busy now, in the place of the intervals [first, next).
  if (crossed_last) {
    last = {begin, t};
    busy.truncate(first);
  } else {
    busy[first] = {begin, t};
    busy.erase(first + 1, next - first - 1);
  }
  return slot;
}

/// The first interval that does not end before `earliest`. \pre busy.back() does not
/// Most traffic asks for times near the latest ones.
uint32_t Calendar::first_from(const Intervals& busy, Ps earliest) {
  uint32_t first = 0, end = busy.size() - 1;
  for (uint32_t steps = 0; steps < 8; ++steps, --end) {
    if (end == 0 || busy[end - 1].end < earliest) return end;
  }
  while (first != end) {
    const uint32_t middle = first + (end - first) / 2;
    if (busy[middle].end < earliest) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

Calendar::Slot Calendar::peek_in(const Interval& last, const Intervals& busy, Ps earliest, Ps duration) {
  Ps t = earliest;
  Ps left = duration;
  Slot slot{t, t};
  bool started = false;
  for (uint32_t i = 0; i <= busy.size(); ++i) {
    const Interval& b = i < busy.size() ? busy[i] : last;
    if (b.end <= t) continue;
    if (b.begin > t) {
      if (!started) {
        slot.begin = t;
        started = true;
      }
      if (left <= b.begin - t) {
        slot.end = t + left;
        return slot;
      }
      left -= b.begin - t;
    }
    t = b.end;
  }
  if (!started) slot.begin = t;
  slot.end = t + left;
  return slot;
}

}  // namespace ahbm
