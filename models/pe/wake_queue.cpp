#include "models/pe/wake_queue.h"

#include <algorithm>

#include "models/tlm/extensions.h"

namespace ahbm::models {

WakeQueue::WakeQueue(Ps quantum) : m_quantum(quantum) {
  sc_core::sc_spawn_options options;
  options.spawn_method();
  options.dont_initialize();
  options.set_sensitivity(&m_tick);
  sc_core::sc_spawn([this] { run(); }, sc_core::sc_gen_unique_name("wake_queue"), &options);
}

void WakeQueue::enrol(Sleeper& sleeper) {
  if (sleeper.m_number != Sleeper::kUnknown) return;
  sleeper.m_number = static_cast<uint32_t>(m_sleepers.size());
  m_sleepers.push_back({&sleeper, nullptr, nullptr});
}

void WakeQueue::tell_approach(Sleeper& sleeper, const void* begin, const void* end, uint32_t crowd) {
  enrol(sleeper);
  Enrolled& enrolled = m_sleepers[sleeper.m_number];
  if (enrolled.begin == nullptr) ++m_told;
  enrolled.begin = begin;
  enrolled.end = end;
  m_tells = m_told > crowd;
}

void WakeQueue::approach() const {
  for (uint32_t i = 0; i < m_n_next; ++i) {
    const Enrolled& next = m_sleepers[m_next[i].who];
    if (next.begin == nullptr) continue;
    if (i + 1 <= kHorizon) {
      next.sleeper->on_approach(i + 1, m_next[i].at);
    } else {
      fetch_lines(next.begin, next.end);
    }
  }
}

void WakeQueue::insert(Entry entry) {
  uint32_t i = m_n_next;
  if (i == m_next.size()) {
    if (entry.later(m_next.back())) {
      push_heap(entry);
      return;
    }
    push_heap(m_next.back());
    --i;
  } else {
    ++m_n_next;
  }
  for (; i != 0 && m_next[i - 1].later(entry); --i) m_next[i] = m_next[i - 1];
  m_next[i] = entry;
}

void WakeQueue::push_heap(Entry entry) {
  size_t hole = m_heap.size();
  m_heap.push_back(entry);
  for (; hole != 0 && m_heap[(hole - 1) / 4].later(entry); hole = (hole - 1) / 4) m_heap[hole] = m_heap[(hole - 1) / 4];
  m_heap[hole] = entry;
}

/// Takes the first one off. \pre !m_heap.empty()
void WakeQueue::pop_heap() {
  const Entry last = m_heap.back();
  m_heap.pop_back();
  const size_t n = m_heap.size();
  if (n == 0) return;
  size_t hole = 0;
  for (;;) {
    const size_t first = 4 * hole + 1;
    if (first >= n) break;
    size_t least = first;
    for (size_t i = first + 1; i < std::min(first + 4, n); ++i) least = m_heap[least].later(m_heap[i]) ? i : least;
    if (!last.later(m_heap[least])) break;
    m_heap[hole] = m_heap[least];
    hole = least;
  }
  m_heap[hole] = last;
}

WakeQueue::Entry WakeQueue::take_first() {
  const Entry first = m_next.front();
  std::copy(m_next.begin() + 1, m_next.begin() + m_n_next, m_next.begin());
  if (m_heap.empty()) {
    --m_n_next;
  } else {
    m_next[m_n_next - 1] = m_heap.front();
    pop_heap();
  }
  return first;
}

void WakeQueue::wake(Sleeper& sleeper, Ps at) {
  if (sleeper.m_due <= at) return;
  enrol(sleeper);
  sleeper.m_due = at;
  const bool next = m_n_next == 0 || at < m_next.front().at;
  insert({at, sleeper.m_number});
  if (next && !m_running) tick_at(at);
}

void WakeQueue::tick_at(Ps at) {
  const Ps now = now_ps();
  m_tick.notify(to_sc_time(at > now ? at - now : 0));
}

/// Other processes act at their times: a reset, a host's thread or a clocked model finds PEs where they are then.
Ps WakeQueue::may_act_until() const {
  const Ps now = now_ps();
  if (m_quantum == 0) return now;
  const Ps free = sc_core::sc_time_to_pending_activity().value();  // 0: something else is runnable now
  return free == 0 ? now : now + std::min(m_quantum, free - 1);
}

void WakeQueue::run() {
  m_running = true;
  const Ps now = now_ps();
  while (m_n_next != 0 && m_next.front().at <= now) {
    const Entry due = take_first();
    const Enrolled& woken = m_sleepers[due.who];
    Sleeper& sleeper = *woken.sleeper;
    if (sleeper.m_due != due.at) continue;
    sleeper.m_due = kNever;
    if (m_tells) {
      if (woken.begin != nullptr) sleeper.on_approach(0, due.at);
      approach();
    }
    sleeper.on_wake();
  }
  m_running = false;
  if (m_n_next != 0) tick_at(m_next.front().at);
}

}  // namespace ahbm::models
