#include "platform/time_split.h"

#include <algorithm>

#include "models/system/system.h"

namespace ahbm::platform {

TimeSplit::TimeSplit(models::System& system) {
  for (const auto& link : system.sip_links()) m_links.insert(link->name());
}

bool TimeSplit::wants(const observe::Point& point) {
  return point.place == observe::Place::Pe || m_links.count(point.path) != 0;
}

void TimeSplit::on_event(const observe::Point& point, const observe::Event& event) {
  if (point.place == observe::Place::Pe) {
    if (event.kind == observe::EventKind::Kernel) m_kernels.emplace_back(event.begin, event.end);
    return;
  }
  if (event.kind != observe::EventKind::Transfer || event.control) return;
  if (!m_busy.empty() && event.begin >= m_busy.back().first && event.begin <= m_busy.back().second) {
    m_busy.back().second = std::max(m_busy.back().second, event.end);
  } else {
    m_busy.emplace_back(event.begin, event.end);
  }
}

TimeSplit::Parts TimeSplit::of(Ps begin, Ps end) const {
  Parts out;
  out.first_kernel = end;
  out.last_kernel = begin;
  for (const auto& [from, to] : m_kernels) {
    if (to <= begin || from >= end) continue;
    out.first_kernel = std::min(out.first_kernel, std::max(from, begin));
    out.last_kernel = std::max(out.last_kernel, std::min(to, end));
  }
  if (out.first_kernel >= out.last_kernel) {
    out.first_kernel = out.last_kernel = begin;
    out.host = end - begin;
    return out;
  }
  out.host = (end - begin) - (out.last_kernel - out.first_kernel);
  std::vector<std::pair<Ps, Ps>> busy = m_busy;
  std::sort(busy.begin(), busy.end());
  Ps covered = out.first_kernel;
  for (const auto& [from, to] : busy) {
    const Ps a = std::max(from, covered), b = std::min(to, out.last_kernel);
    if (a >= b) continue;
    out.links += b - a;
    covered = b;
  }
  out.between = out.last_kernel - out.first_kernel - out.links;
  return out;
}

void TimeSplit::forget() {
  m_busy.clear();
  m_kernels.clear();
}

}  // namespace ahbm::platform
