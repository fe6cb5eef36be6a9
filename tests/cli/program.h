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

/// AddressSanitizer notes on stderr, once, that it does not know a coroutine's stack: three lines that are not the
/// program's.
inline void drop_sanitizer_note(std::string& text) {
  const size_t begin = text.find("==WARNING: ASan is ignoring requested __asan_handle_no_return");
  if (begin == std::string::npos) return;
  size_t end = begin;
  for (int lines = 0; lines < 3 && end != std::string::npos; ++lines) end = text.find('\n', end + 1);
  const size_t line = text.rfind('\n', begin);
  const size_t from = line == std::string::npos ? 0 : line + 1;
  text.erase(from, end == std::string::npos ? end : end + 1 - from);
}

/// `ahbm-vp arguments`; `text` is standard output, or with `2>&1 >/dev/null` standard error.
inline ProgramResult run_program(const std::string& arguments) {
  ProgramResult r;
  FILE* pipe = popen((std::string(AHBM_VP_PROGRAM) + ' ' + arguments).c_str(), "r");
  if (pipe == nullptr) return r;
  std::array<char, 4096> buffer{};
  size_t n = 0;
  while ((n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) r.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  drop_sanitizer_note(r.text);
  if (WIFEXITED(status)) r.code = WEXITSTATUS(status);
  return r;
}

}  // namespace ahbm::platform::test
