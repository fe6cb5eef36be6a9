// Message sizes as nccl-tests take them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ahbm::platform {

/// `4096`, `1K`, `64M`, `2G`, `1T`: powers of 1024; an `iB` or `B` behind the letter changes nothing.
/// \throws UsageError naming `option` and the text
uint64_t parse_size(const std::string& option, const std::string& text);

/// begin, begin * factor, ... up to and including end; just begin when they are equal.
/// \throws UsageError when end < begin, factor < 2 or begin is 0 in a real range
std::vector<uint64_t> size_range(uint64_t begin, uint64_t end, uint64_t factor);

}  // namespace ahbm::platform
