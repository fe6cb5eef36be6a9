#include "models/observe/log.h"

#include <fmt/format.h>

#include <stdexcept>
#include <systemc>

#include "models/core/path_glob.h"
#include "models/core/suggest.h"

namespace ahbm::observe {

const char* to_string(LogLevel level) {
  switch (level) {
    case LogLevel::Off:
      return "off";
    case LogLevel::Error:
      return "error";
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Info:
      return "info";
    case LogLevel::Debug:
      return "debug";
    case LogLevel::Trace:
      return "trace";
  }
  return "?";
}

LogRules LogRules::parse(const std::vector<std::string>& rules) {
  LogRules out;
  for (const std::string& rule : rules) {
    const size_t equals = rule.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      throw std::invalid_argument(
          fmt::format("'{}' is no log rule; expected PATTERN=LEVEL, for example system.sip0.*=debug", rule));
    }
    const std::string level = rule.substr(equals + 1);
    bool found = false;
    std::vector<std::string> known;
    for (const LogLevel l :
         {LogLevel::Off, LogLevel::Error, LogLevel::Warning, LogLevel::Info, LogLevel::Debug, LogLevel::Trace}) {
      known.emplace_back(to_string(l));
      if (level != known.back()) continue;
      out.m_rules.push_back({rule.substr(0, equals), l});
      found = true;
    }
    if (!found) {
      throw std::invalid_argument(
          fmt::format("'{}': '{}' is no log level; expected off, error, warning, info, debug or trace{}", rule, level,
                      did_you_mean(level, known)));
    }
  }
  return out;
}

LogLevel LogRules::level(std::string_view path) const {
  for (auto rule = m_rules.rbegin(); rule != m_rules.rend(); ++rule) {
    if (path_selected(rule->pattern, path)) return rule->level;
  }
  return LogLevel::Off;
}

void Logger::write(LogLevel level, const std::string& text) const {
  const bool grave = level == LogLevel::Error || level == LogLevel::Warning;
  const std::string message = m_path + ": " + text;
  // The level per path has decided already: the verbosity of SC_REPORT must not hide it again.
  if (grave) {
    sc_core::sc_report_handler::report(sc_core::SC_WARNING, m_type.c_str(), message.c_str(), __FILE__, __LINE__);
  } else {
    sc_core::sc_report_handler::report(sc_core::SC_INFO, m_type.c_str(), message.c_str(), sc_core::SC_NONE, __FILE__,
                                       __LINE__);
  }
}

}  // namespace ahbm::observe
