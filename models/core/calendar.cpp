#include "models/core/calendar.h"

#include <algorithm>

namespace ahbm {

void Calendar::prune(Ps now) {
  while (m_head < m_busy.size() && m_busy[m_head].end <= now) ++m_head;
  if (m_head == m_busy.size()) {
    m_busy.clear();
    m_head = 0;
  } else if (m_head >= 32 && m_head * 2 >= m_busy.size()) {
    m_busy.erase(m_busy.begin(), m_busy.begin() + static_cast<std::ptrdiff_t>(m_head));
    m_head = 0;
  }
}

void Calendar::push_last(Ps now) {
  if (!m_busy.empty() && m_busy[m_head].end <= now) prune(now);
  m_busy.push_back(m_last);
}

void Calendar::join_earliest() {
  m_busy[m_head + 1].begin = m_busy[m_head].begin;
  ++m_head;
}

Calendar::Slot Calendar::reserve_among(Ps now, Ps earliest, Ps duration) {
  if (m_last.end <= now) {
    m_busy.clear();
    m_head = 0;
    m_last = {0, 0};
    if (duration != 0) m_last = {earliest, earliest + duration};
    return {earliest, earliest + duration};
  }
  if (duration == 0) {
    prune(now);
    return peek(earliest, 0);
  }
  if (!m_busy.empty() && m_busy[m_head].end <= now) prune(now);
  if (m_busy.empty() || earliest >= m_busy.back().end) {
    // Only the gap before the last interval is concerned.
    const bool touches = !m_busy.empty() && earliest == m_busy.back().end;
    const Ps begin = touches ? m_busy.back().begin : earliest;
    if (earliest + duration < m_last.begin) {
      if (touches) {
        m_busy.back().end = earliest + duration;
      } else {
        m_busy.push_back({begin, earliest + duration});
        if (size() > kMaxIntervals) join_earliest();
      }
      return {earliest, earliest + duration};
    }
    const Ps left = earliest + duration - m_last.begin;
    const Slot slot{earliest, left == 0 ? m_last.begin : m_last.end + left};
    m_last = {begin, m_last.end + left};
    if (touches) {
      m_busy.pop_back();
      if (m_head == m_busy.size()) {
        m_busy.clear();
        m_head = 0;
      }
    }
    return slot;
  }
  // Fill the gaps from `earliest` on, which lies before the end of the last interval. Every interval crossed merges
  // with the new one, since no gap is left between them.
  push_last(now);
  auto it = std::lower_bound(m_busy.begin() + static_cast<std::ptrdiff_t>(m_head), m_busy.end(), earliest,
                             [](const Interval& i, Ps t) { return i.end < t; });
  const auto first = it;
  Ps t = earliest;
  Ps merged_begin = earliest;
  if (it->begin <= earliest) {
    merged_begin = it->begin;
    t = it->end;
    ++it;
  }
  Slot slot{t, t};
  Ps left = duration;
  while (it != m_busy.end() && left != 0 && t + left >= it->begin) {
    left -= it->begin - t;
    slot.end = it->begin;  // where the transfer ends if nothing is left of it
    t = it->end;
    ++it;
  }
  if (left != 0) slot.end = t = t + left;
  // [merged_begin, t) is busy now, in the place of the intervals [first, it).
  if (first == it) {
    m_busy.insert(first, {merged_begin, t});
  } else {
    *first = {merged_begin, t};
    m_busy.erase(first + 1, it);
  }
  m_last = m_busy.back();
  m_busy.pop_back();
  if (size() > kMaxIntervals) join_earliest();
  if (m_head == m_busy.size()) {
    m_busy.clear();
    m_head = 0;
  }
  return slot;
}

Calendar::Slot Calendar::peek(Ps earliest, Ps duration) const {
  Ps t = earliest;
  Ps left = duration;
  Slot slot{t, t};
  bool started = false;
  for (size_t i = m_head; i <= m_busy.size(); ++i) {
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
