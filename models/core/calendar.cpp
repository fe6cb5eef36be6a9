#include "models/core/calendar.h"

#include <algorithm>

namespace ahbm {

void Calendar::prune(Ps now) {
  while (m_head < m_busy.size() && m_busy[m_head].end <= now) ++m_head;
  if (m_head == m_busy.size()) {
    m_busy.clear();
    m_head = 0;
  } else if (m_head >= 32 && m_head * 2 >= m_busy.size()) {
    compact();
  }
}

void Calendar::compact() {
  m_busy.erase(m_busy.begin(), m_busy.begin() + static_cast<std::ptrdiff_t>(m_head));
  m_head = 0;
}

Calendar::Slot Calendar::reserve(Ps now, Ps earliest, Ps duration) {
  prune(now);
  if (duration == 0) return peek(earliest, 0);
  // The common case: nothing lies ahead of the asked time.
  if (m_busy.empty() || earliest >= m_busy.back().end) {
    if (!m_busy.empty() && earliest == m_busy.back().end) {
      m_busy.back().end = earliest + duration;
    } else {
      m_busy.push_back({earliest, earliest + duration});
      if (size() > kMaxIntervals) {
        m_busy[m_head + 1].begin = m_busy[m_head].begin;
        ++m_head;
      }
    }
    return {earliest, earliest + duration};
  }
  // Fill the gaps from `earliest` on. Every interval crossed merges with the new one, since no gap is left between.
  auto it = std::lower_bound(m_busy.begin() + static_cast<std::ptrdiff_t>(m_head), m_busy.end(), earliest,
                             [](const Interval& i, Ps t) { return i.end < t; });
  Ps t = earliest;
  auto first = it;
  Ps merged_begin = earliest;
  if (it != m_busy.end() && it->begin <= earliest) {
    merged_begin = it->begin;
    t = it->end;
    ++it;
  }
  Slot slot{t, t};
  Ps left = duration;
  while (it != m_busy.end() && t + left >= it->begin) {
    left -= it->begin - t;
    t = it->end;
    ++it;
    if (left == 0) break;
  }
  // `left` == 0 exactly at the start of an interval: the transfer ended there, the intervals only touch.
  if (left == 0) {
    slot.end = (it - 1)->begin;
    *first = {merged_begin, (it - 1)->end};
  } else {
    slot.end = t + left;
    const Interval merged{merged_begin, slot.end};
    if (first == it) {
      m_busy.insert(first, merged);
      if (size() > kMaxIntervals) {
        m_busy[m_head + 1].begin = m_busy[m_head].begin;
        ++m_head;
      }
      return slot;
    }
    *first = merged;
  }
  m_busy.erase(first + 1, it);
  return slot;
}

Calendar::Slot Calendar::peek(Ps earliest, Ps duration) const {
  Ps t = earliest;
  Ps left = duration;
  Slot slot{t, t};
  bool started = false;
  for (size_t i = m_head; i < m_busy.size(); ++i) {
    const Interval& b = m_busy[i];
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
