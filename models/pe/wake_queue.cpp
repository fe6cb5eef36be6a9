#include "models/pe/wake_queue.h"

#include <algorithm>

#include "models/core/config/system_config.h"
#include "models/tlm/extensions.h"

namespace ahbm::models {

WakeQueue::WakeQueue() {
  sc_core::sc_spawn_options options;
  options.spawn_method();
  options.dont_initialize();
  options.set_sensitivity(&m_tick);
  sc_core::sc_spawn([this] { run(); }, sc_core::sc_gen_unique_name("wake_queue"), &options);
}

void WakeQueue::enrol(Sleeper& sleeper) {
  if (sleeper.m_number != Sleeper::kUnknown) return;
  sleeper.m_number = static_cast<uint32_t>(m_sleepers.size());
  m_sleepers.push_back(&sleeper);
  m_touched.emplace_back();
}

void WakeQueue::set_touched(Sleeper& sleeper, const HostLines& lines) {
  enrol(sleeper);
  m_touched[sleeper.m_number] = lines;
}

/// The top of the heap comes next; one of those below it after that.
void WakeQueue::fetch_next() const {
  if (m_sleepers.size() <= SystemConfig::kPesInHostCaches) return;
  const size_t n = std::min<size_t>(m_heap.size(), 3);
  for (size_t i = 1; i < n; ++i) m_touched[m_heap[i].who].fetch();
  if (n != 0) m_sleepers[m_heap[0].who]->on_next();
}

void WakeQueue::wake(Sleeper& sleeper, Ps at) {
  if (sleeper.m_due <= at) return;
  enrol(sleeper);
  sleeper.m_due = at;
  const bool next = m_heap.empty() || at < m_heap.front().at;
  m_heap.push_back({at, sleeper.m_number});
  std::push_heap(m_heap.begin(), m_heap.end());
  if (next && !m_running) tick_at(at);
}

void WakeQueue::tick_at(Ps at) {
  const Ps now = now_ps();
  m_tick.notify(to_sc_time(at > now ? at - now : 0));
}

void WakeQueue::run() {
  m_running = true;
  const Ps now = now_ps();
  while (!m_heap.empty() && m_heap.front().at <= now) {
    const Entry due = m_heap.front();
    std::pop_heap(m_heap.begin(), m_heap.end());
    m_heap.pop_back();
    Sleeper& sleeper = *m_sleepers[due.who];
    if (sleeper.m_due != due.at) continue;
    sleeper.m_due = Sleeper::kNever;
    fetch_next();
    sleeper.on_wake();
  }
  m_running = false;
  if (!m_heap.empty()) tick_at(m_heap.front().at);
}

}  // namespace ahbm::models
