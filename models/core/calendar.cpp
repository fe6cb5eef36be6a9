#include "models/core/calendar.h"

namespace ahbm {

void Calendar::join_earliest() {
  m_busy[1].begin = m_busy.front().begin;
  m_busy.pop_front();
}

/// Only the gap before the last interval is concerned.
Calendar::Slot Calendar::fill_last_gap(Ps earliest, Ps duration) {
  const bool touches = !m_busy.empty() && earliest == m_busy.back().end;
  if (earliest + duration < m_last.begin) {
    if (touches) {
      m_busy.back().end = earliest + duration;
    } else {
      push_back({earliest, earliest + duration});
    }
    return {earliest, earliest + duration};
  }
  const Ps left = earliest + duration - m_last.begin;
  const Slot slot{earliest, left == 0 ? m_last.begin : m_last.end + left};
  m_last = {touches ? m_busy.back().begin : earliest, m_last.end + left};
  if (touches) m_busy.pop_back();
  return slot;
}

Calendar::Slot Calendar::reserve_among(Ps now, Ps earliest, Ps duration) {
  prune(now);
  if (m_last.end <= now) {
    m_last = duration != 0 ? Interval{earliest, earliest + duration} : Interval{0, 0};
    return {earliest, earliest + duration};
  }
  if (duration == 0) return peek(earliest, 0);
  if (m_busy.empty() || earliest >= m_busy.back().end) return fill_last_gap(earliest, duration);
  // Fill the gaps from `earliest` on, which lies before the end of the last but one. Every interval crossed merges
  // with the new one, since no gap is left between them.
  const uint32_t first = first_from(earliest);
  Interval& met = m_busy[first];
  if (earliest + duration < met.begin) {
    m_busy.insert(first, {earliest, earliest + duration});
    if (m_busy.size() >= kMaxIntervals) join_earliest();
    return {earliest, earliest + duration};
  }
  uint32_t next = first;
  Ps t = earliest;
  Ps begin = earliest;
  if (met.begin <= earliest) {
    begin = met.begin;
    t = met.end;
    ++next;
    if (t + duration < (next != m_busy.size() ? m_busy[next] : m_last).begin) {
      met.end = t + duration;
      return {t, met.end};
    }
  }
  Slot slot{t, t};
  Ps left = duration;
  const auto cross = [&](const Interval& busy) {
    if (left == 0 || t + left < busy.begin) return false;
    left -= busy.begin - t;
    slot.end = busy.begin;  // where the transfer ends if nothing is left of it
    t = busy.end;
    return true;
  };
  while (next != m_busy.size() && cross(m_busy[next])) ++next;
  const bool crossed_last = next == m_busy.size() && cross(m_last);
  if (left != 0) slot.end = t = t + left;
  // [begin, t) is busy now, in the place of the intervals [first, next).
  if (crossed_last) {
    m_last = {begin, t};
    m_busy.truncate(first);
  } else {
    m_busy[first] = {begin, t};
    m_busy.erase(first + 1, next - first - 1);
  }
  return slot;
}

/// The first interval that does not end before `earliest`. \pre m_busy.back() does not
/// Traffic asks for times near the latest ones (what goes far) or near the earliest ones (what begins here).
uint32_t Calendar::first_from(Ps earliest) const {
  uint32_t first = 0, end = m_busy.size() - 1;
  const uint32_t half = end / 2;
  if (m_busy[half].end < earliest) {
    first = half + 1;
    for (uint32_t steps = 0; steps < 8; ++steps, --end) {
      if (end == first || m_busy[end - 1].end < earliest) return end;
    }
  } else {
    end = half;
    for (uint32_t steps = 0; steps < 8; ++steps, ++first) {
      if (first == end || m_busy[first].end >= earliest) return first;
    }
  }
  while (first != end) {
    const uint32_t middle = first + (end - first) / 2;
    if (m_busy[middle].end < earliest) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

Calendar::Slot Calendar::peek(Ps earliest, Ps duration) const {
  Ps t = earliest;
  Ps left = duration;
  Slot slot{t, t};
  bool started = false;
  for (uint32_t i = 0; i <= m_busy.size(); ++i) {
    const Interval& b = i < m_busy.size() ? m_busy[i] : m_last;
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
