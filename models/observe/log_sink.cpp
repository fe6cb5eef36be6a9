#include "models/observe/log_sink.h"

#include <fmt/format.h>

namespace ahbm::observe {

namespace {

struct Kind {
  const char* type;
  LogLevel level;
};

Kind kind_of(const Event& e) {
  switch (e.kind) {
    case EventKind::Transfer:
      return {"/ahbm/fabric/link", LogLevel::Trace};
    case EventKind::Access:
      return {"/ahbm/memory/hbm", LogLevel::Trace};
    case EventKind::Kernel:
      return {"/ahbm/pe/executor", e.value == 0 ? LogLevel::Info : LogLevel::Warning};
    case EventKind::KernelStart:
    case EventKind::Region:
      return {"/ahbm/pe/executor", LogLevel::Info};
    case EventKind::Launch:
      return {"/ahbm/pe/executor", LogLevel::Debug};
    case EventKind::Send:
    case EventKind::Take:
    case EventKind::Release:
    case EventKind::Wait:
    case EventKind::Message:
    case EventKind::Credit:
    case EventKind::QueueReset:
      return {"/ahbm/pe/ipcq", LogLevel::Debug};
    case EventKind::Interrupt:
      return {"/ahbm/pe/interrupt", LogLevel::Debug};
    case EventKind::Error:
      return {"/ahbm/pe/sfr", LogLevel::Warning};
    case EventKind::Reset:
      return {"/ahbm/pe/sfr", LogLevel::Info};
    case EventKind::Register:
      return {"/ahbm/pe/sfr", LogLevel::Trace};
    case EventKind::Collective:
      return {"/ahbm/runtime/collective", LogLevel::Info};
    case EventKind::OperationStart:
      return {"/ahbm/runtime/operation", LogLevel::Trace};
    case EventKind::Operation:
      return {"/ahbm/runtime/operation", LogLevel::Debug};
  }
  return {"/ahbm", LogLevel::Trace};
}

std::string text_of(const Event& e) {
  switch (e.kind) {
    case EventKind::Transfer:
      return fmt::format("{} B ({} on the wire, {}) from {} to {} ps", e.bytes, e.wire_bytes,
                         e.control ? "control" : "data", e.begin, e.end);
    case EventKind::Access:
      return fmt::format("channel {} {} {} B from {} to {} ps", e.index, e.write ? "writes" : "reads", e.bytes, e.begin,
                         e.end);
    case EventKind::Launch:
      return e.value != 0 ? fmt::format("a descriptor arrives at {} ps", e.begin) : "a descriptor leaves the queue";
    case EventKind::KernelStart:
      return fmt::format("kernel {} starts (tag {}, group {}, seq {})", e.name, e.tag, e.group, e.seq);
    case EventKind::Kernel:
      return fmt::format("kernel {} ends after {} ps with status {} (tag {})", e.name, e.end - e.begin, e.value, e.tag);
    case EventKind::Region:
      return fmt::format("region {} ends after {} ps", e.name, e.end - e.begin);
    case EventKind::Send:
      return fmt::format("QP {} sends message {} of {} B to PE {} QP {}", e.index, e.number, e.bytes, e.peer_pe,
                         e.peer_qp);
    case EventKind::Take:
      return fmt::format("QP {}: message {} of {} B is taken, {} ps after it was there", e.index, e.number, e.bytes,
                         e.end - e.begin);
    case EventKind::Release:
      return fmt::format("QP {}: message {} is given back", e.index, e.number);
    case EventKind::Wait:
      if (e.wait == Wait::Launch) return fmt::format("had nothing to run for {} ps", e.end - e.begin);
      return fmt::format("QP {}: waited {} ps for a {}", e.index, e.end - e.begin,
                         e.wait == Wait::Credit ? "credit" : "message");
    case EventKind::Message:
      return fmt::format("QP {}: message {} of {} B counts from {} ps", e.index, e.number, e.bytes, e.begin);
    case EventKind::Credit:
      return fmt::format("QP {}: {} credits count from {} ps", e.index, e.value, e.begin);
    case EventKind::QueueReset:
      return e.value != 0 ? fmt::format("QP {} starts with {} credits", e.index, e.value)
                          : fmt::format("QP {} is empty and has no credits", e.index);
    case EventKind::Interrupt:
      return fmt::format("line is {}", e.value != 0 ? "high" : "low");
    case EventKind::Error:
      return fmt::format("error bits {:#x} at address {:#x}", e.value, e.address);
    case EventKind::Reset:
      return "reset";
    case EventKind::Register:
      return fmt::format("{} = {:#x} from {} ps", e.name, e.value, e.begin);
    case EventKind::Collective:
      return fmt::format("{} (group {}, seq {}) of {} B took {} ps", e.name, e.group, e.seq, e.bytes, e.end - e.begin);
    case EventKind::OperationStart:
      return fmt::format("an operation begins at {} ps", e.begin);
    case EventKind::Operation:
      return fmt::format("{} took {} ps", e.name, e.end - e.begin);
  }
  return "?";
}

}  // namespace

void LogSink::on_event(const Point& point, const Event& event) {
  if (event.initial) return;
  const Kind kind = kind_of(event);
  const uint64_t key = uint64_t{point.index} << 8 | static_cast<uint64_t>(event.kind);
  auto& logger = m_loggers[key];
  if (!logger) logger = std::make_unique<Logger>(kind.type, point.path, m_rules);
  if (!logger->on(kind.level)) return;
  ++m_lines;
  logger->write(kind.level, text_of(event));
}

}  // namespace ahbm::observe
