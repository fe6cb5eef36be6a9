// One front over SC_REPORT: message types such as /ahbm/pe/ipcq, a level per hierarchy path, quiet unless asked.
//
//   const LogRules rules = LogRules::parse({"system.sip0.*=debug"});
//   Logger log("/ahbm/my/block", name(), rules);
//   if (log.on(LogLevel::Debug)) log.write(LogLevel::Debug, fmt::format("..."));   // off: one branch
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ahbm::observe {

enum class LogLevel : uint8_t { Off, Error, Warning, Info, Debug, Trace };
const char* to_string(LogLevel level);

/// Which path logs how much. Later rules win; a path that no rule selects is off.
class LogRules {
 public:
  /// Each `PATTERN=LEVEL` (models/core/path_glob.h; off, error, warning, info, debug, trace).
  /// \throws std::invalid_argument naming the rule and what was expected
  static LogRules parse(const std::vector<std::string>& rules);
  LogLevel level(std::string_view path) const;

 private:
  struct Rule {
    std::string pattern;
    LogLevel level;
  };
  std::vector<Rule> m_rules;
};

/// What one block says, under one message type. Error and Warning are SC_WARNING reports, the rest SC_INFO: a log line
/// never ends a simulation. The text that SC_REPORT gets is `path: text`.
class Logger {
 public:
  Logger(std::string type, std::string path, const LogRules& rules)
      : m_type(std::move(type)), m_path(std::move(path)), m_level(rules.level(m_path)) {}
  bool on(LogLevel level) const { return level <= m_level; }
  /// \pre on(level)
  void write(LogLevel level, const std::string& text) const;
  const std::string& path() const { return m_path; }
  void set_level(LogLevel level) { m_level = level; }

 private:
  std::string m_type, m_path;
  LogLevel m_level;
};

}  // namespace ahbm::observe
