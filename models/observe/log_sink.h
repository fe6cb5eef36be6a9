// What happens in the machine as log lines.
#pragma once

#include <memory>
#include <unordered_map>

#include "models/observe/log.h"
#include "models/observe/tap.h"

namespace ahbm::observe {

/// warning: errors, failed kernels; info: kernels, resets, collectives; debug: messages, waits, queue pairs,
/// interrupts; trace: every transfer, memory access and register.
class LogSink : public Sink {
 public:
  explicit LogSink(LogRules rules) : m_rules(std::move(rules)) {}
  bool wants(const Point& point) override { return m_rules.level(point.path) != LogLevel::Off; }
  void on_event(const Point& point, const Event& event) override;
  uint64_t lines() const { return m_lines; }

 private:
  const LogRules m_rules;
  std::unordered_map<uint64_t, std::unique_ptr<Logger>> m_loggers;  ///< by point and type
  uint64_t m_lines = 0;
};

}  // namespace ahbm::observe
