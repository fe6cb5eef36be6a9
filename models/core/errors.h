// The exception types of the public interface beyond the standard ones. std::invalid_argument is what the Python
// surface calls ValueError, std::runtime_error is RuntimeError.
#pragma once

#include <stdexcept>
#include <string>

namespace ahbm {

/// Something this build refuses to do. Never replaced by a silent fallback.
class NotImplementedError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// One or several mistakes in configuration input; what() lists every one on its own line as `file:line:column: text`.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ahbm
