#include "platform/cli/size.h"

#include <fmt/core.h>

#include <charconv>

#include "platform/cli/command.h"

namespace ahbm::platform {

uint64_t parse_size(const std::string& option, const std::string& text) {
  const auto fail = [&](const char* why) {
    throw UsageError(fmt::format("{}: '{}' {}; expected a size like 4096, 1K or 64M", option, text, why));
  };
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [ptr, ec] = std::from_chars(text.data(), end, number);
  if (ec == std::errc::result_out_of_range) fail("is too large");
  if (ec != std::errc()) fail("is no size");
  std::string unit(ptr, end);
  if (!unit.empty() && unit.back() == 'B') {
    unit.pop_back();
    if (unit.size() == 2 && unit.back() == 'i') unit.pop_back();
  }
  unsigned shift = 0;
  if (unit == "K" || unit == "k") {
    shift = 10;
  } else if (unit == "M") {
    shift = 20;
  } else if (unit == "G") {
    shift = 30;
  } else if (unit == "T") {
    shift = 40;
  } else if (!unit.empty()) {
    fail("is no size");
  }
  if (number > UINT64_MAX >> shift) fail("is too large");
  return number << shift;
}

std::vector<uint64_t> size_range(uint64_t begin, uint64_t end, uint64_t factor) {
  if (end < begin) {
    throw UsageError(fmt::format("--maxbytes is {}, less than --minbytes, which is {}", end, begin));
  }
  if (begin == end) return {begin};
  if (factor < 2) throw UsageError(fmt::format("--stepfactor must be at least 2, got {}", factor));
  if (begin == 0)
    throw UsageError("--minbytes is 0, which no factor makes grow; give the same --maxbytes, or start at 1");
  std::vector<uint64_t> out;
  for (uint64_t bytes = begin; bytes <= end; bytes *= factor) {
    out.push_back(bytes);
    if (bytes > end / factor) break;
  }
  return out;
}

}  // namespace ahbm::platform
