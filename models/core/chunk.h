// The two ways this product cuts an extent into parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/core/time.h"

namespace ahbm {

struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
  uint64_t end() const { return begin + count; }
  bool empty() const { return count == 0; }
  friend bool operator==(const Range& a, const Range& b) { return a.begin == b.begin && a.count == b.count; }
};

/// torch.chunk's rule: c = ceil(length / parts), part i holds [min(length, c*i), min(length, c*(i+1))). Leading parts
/// are full, at most one is short, the rest are empty (their begin is `length`). \pre parts > 0, i < parts
inline Range torch_chunk(uint64_t length, uint64_t parts, uint64_t i) {
  const uint64_t c = ceil_div(length, parts);
  const uint64_t begin = std::min(length, c * i);
  return {begin, std::min(length, c * (i + 1)) - begin};
}

/// Part i of `count` elements cut for a collective: like torch_chunk with c rounded up to a multiple of `align`.
/// \pre parts > 0, i < parts, align > 0
inline Range aligned_chunk(uint64_t count, uint64_t parts, uint64_t i, uint64_t align = 1) {
  const uint64_t c = ceil_div(ceil_div(count, parts), align) * align;
  const uint64_t begin = std::min(count, c * i);
  return {begin, std::min(count, c * (i + 1)) - begin};
}

inline std::vector<Range> chunks(uint64_t count, uint64_t parts, uint64_t align = 1) {
  std::vector<Range> out(parts);
  for (uint64_t i = 0; i < parts; ++i) out[i] = aligned_chunk(count, parts, i, align);
  return out;
}

}  // namespace ahbm
