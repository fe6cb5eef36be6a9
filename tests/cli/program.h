// Runs the program as a user does: through a shell.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace ahbm::platform::test {

struct ProgramResult {
  int code = -1;  ///< exit code; -1 when it ended by a signal or did not start
  std::string text;
};

/// `ahbm-vp arguments`; `text` is standard output, or with `2>&1 >/dev/null` standard error.
inline ProgramResult run_program(const std::string& arguments) {
  ProgramResult r;
  FILE* pipe = popen((std::string(AHBM_VP_PROGRAM) + ' ' + arguments).c_str(), "r");
  if (pipe == nullptr) return r;
  std::array<char, 4096> buffer{};
  size_t n = 0;
  while ((n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) r.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) r.code = WEXITSTATUS(status);
  return r;
}

}  // namespace ahbm::platform::test
