#include "platform/step_split.h"

#include <algorithm>

namespace ahbm::platform {

namespace {

/// The union, cut to `window`, in order and without overlap.
std::vector<Span> merged(std::vector<Span> spans, const Span& window) {
  std::sort(spans.begin(), spans.end());
  std::vector<Span> out;
  for (auto [from, to] : spans) {
    from = std::max(from, window.first);
    to = std::min(to, window.second);
    if (from >= to) continue;
    if (!out.empty() && from <= out.back().second) {
      out.back().second = std::max(out.back().second, to);
    } else {
      out.emplace_back(from, to);
    }
  }
  return out;
}

Ps length(const std::vector<Span>& spans) {
  Ps out = 0;
  for (const auto& [from, to] : spans) out += to - from;
  return out;
}

}  // namespace

StepSplit::StepSplit(const SystemConfig& config) : m_pes_per_sip(config.cubes() * config.pes), m_kernels(config.sips) {}

void StepSplit::on_event(const observe::Point& point, const observe::Event& event) {
  if (event.kind != observe::EventKind::Kernel) return;
  std::vector<Span>& kernels = m_kernels.at(point.flat_pe / m_pes_per_sip);
  // PEs end in the order of the simulation and mostly together: one span for all that overlap.
  if (!kernels.empty() && event.begin <= kernels.back().second && event.begin >= kernels.back().first) {
    kernels.back().second = std::max(kernels.back().second, event.end);
  } else {
    kernels.emplace_back(event.begin, event.end);
  }
}

StepParts StepSplit::of(SipId sip, const Span& step, std::vector<Span> collectives) const {
  const std::vector<Span> communicating = merged(std::move(collectives), step);
  std::vector<Span> busy = m_kernels.at(value(sip));
  busy.insert(busy.end(), communicating.begin(), communicating.end());
  StepParts out;
  out.collective = length(communicating);
  out.compute = length(merged(std::move(busy), step)) - out.collective;
  out.host = step.second - step.first - out.collective - out.compute;
  return out;
}

void StepSplit::forget() {
  for (auto& kernels : m_kernels) kernels.clear();
}

}  // namespace ahbm::platform
