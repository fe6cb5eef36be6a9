#include "models/observe/wave_sink.h"

#include <algorithm>

#include "models/core/path_glob.h"

namespace ahbm::observe {

namespace {
enum Kind : uint32_t {
  kBusy,
  kControlBusy,
  kChannel,
  kRunning,
  kLaunchQueue,
  kMessages,
  kCredits,
  kIrq,
  kRegister,
  kLine
};
constexpr size_t kMaxPending = 8192;
}  // namespace

WaveSink::WaveSink(const std::string& file, std::vector<std::string> patterns, std::function<Ps()> clock,
                   std::shared_ptr<OutputGate> gate)
    : m_vcd(file, std::move(gate)), m_patterns(std::move(patterns)), m_clock(std::move(clock)) {}

bool WaveSink::wants(const Point& point) {
  if (point.place == Place::Rank) return false;
  return m_patterns.empty() || std::any_of(m_patterns.begin(), m_patterns.end(), [&point](const std::string& pattern) {
           return may_select_below(pattern, point.path);
         });
}

VcdWriter::Signal WaveSink::numbered(const Point& point, uint32_t kind, uint32_t index, const char* before,
                                     const char* after, uint32_t width) {
  const uint64_t key = uint64_t{point.index} << 32 | uint64_t{kind} << 24 | index;
  const auto [it, made] = m_numbered.try_emplace(key, kNoSignal);
  if (made) {
    std::string scope = point.path, name = before;
    if (kind == kChannel || kind == kMessages || kind == kCredits) name += std::to_string(index) + after;
    if (kind == kRegister) scope += ".sfr";
    if (kind == kLine) {
      const size_t dot = scope.rfind('.');
      name = scope.substr(dot == std::string::npos ? 0 : dot + 1);
      scope = dot == std::string::npos ? "" : scope.substr(0, dot);
    }
    const bool selected =
        m_patterns.empty() ? kind != kRegister : path_selected(m_patterns, scope.empty() ? name : scope + '.' + name);
    if (selected) it->second = m_vcd.add(scope, name, width);
  }
  return it->second;
}

void WaveSink::pulse(VcdWriter::Signal s, Ps begin, Ps end) {
  if (s == kNoSignal || begin == end) return;
  m_vcd.change(s, begin, 1);
  m_vcd.change(s, end, -1);
}

void WaveSink::on_event(const Point& point, const Event& e) {
  switch (e.kind) {
    case EventKind::Transfer:
      pulse(e.control ? numbered(point, kControlBusy, 0, "control_busy", "", 1)
                      : numbered(point, kBusy, 0, "busy", "", 1),
            e.begin, e.end);
      break;
    case EventKind::Access:
      pulse(numbered(point, kChannel, e.index, "channel", "_busy", 1), e.begin, e.end);
      break;
    case EventKind::Launch:
      change(numbered(point, kLaunchQueue, 0, "launch_queue", "", 8), e.begin, e.value != 0 ? 1 : -1);
      break;
    case EventKind::KernelStart:
      set(numbered(point, kRunning, 0, "kernel_running", "", 1), e.begin, 1);
      break;
    case EventKind::Kernel:
      set(numbered(point, kRunning, 0, "kernel_running", "", 1), e.end, 0);
      break;
    case EventKind::Message:
      change(numbered(point, kMessages, e.index, "qp", "_messages", 16), e.begin, 1);
      break;
    case EventKind::Release:
      change(numbered(point, kMessages, e.index, "qp", "_messages", 16), e.end, -1);
      break;
    case EventKind::Send:
      change(numbered(point, kCredits, e.index, "qp", "_credits", 16), e.begin, -1);
      break;
    case EventKind::Credit:
      change(numbered(point, kCredits, e.index, "qp", "_credits", 16), e.begin, static_cast<int64_t>(e.value));
      break;
    case EventKind::QueueReset: {
      const auto messages = numbered(point, kMessages, e.index, "qp", "_messages", 16);
      const auto credits = numbered(point, kCredits, e.index, "qp", "_credits", 16);
      if (messages != kNoSignal) m_vcd.reset(messages, e.begin, 0);
      if (credits != kNoSignal) m_vcd.reset(credits, e.begin, e.value);
      break;
    }
    case EventKind::Reset:
      set(numbered(point, kRunning, 0, "kernel_running", "", 1), e.begin, 0);
      break;
    case EventKind::Interrupt:
      set(point.place == Place::Signal ? numbered(point, kLine, 0, "", "", 1) : numbered(point, kIrq, 0, "irq", "", 1),
          e.begin, e.value);
      break;
    case EventKind::Register:
      set(numbered(point, kRegister, e.index, e.name, "", 64), e.begin, e.value);
      break;
    default:
      return;
  }
  if (m_vcd.pending() > kMaxPending) m_vcd.advance(m_clock());
}

}  // namespace ahbm::observe
