// The two ways this product cuts an extent into parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
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

/// Ranges one after the other: the parts of aligned_chunk, or each as it is. Of the former nothing is kept per part and
/// one division is made for all: of a thousand ranks each asks for a part of a thousand with every message, and the
/// host's caches have better to hold.
class Parts {
 public:
  Parts() = default;
  explicit Parts(std::vector<Range> ranges) : m_size(ranges.size()), m_ranges(std::move(ranges)) {}
  Parts(const Range& whole, uint64_t parts)  ///< \pre parts > 0
      : m_size(parts), m_whole(whole), m_each(aligned_chunk(whole.count, parts, 0).count) {}

  uint64_t size() const { return m_size; }
  /// \pre i < size()
  Range operator[](uint64_t i) const {
    if (!m_ranges.empty()) return m_ranges[i];
    const uint64_t begin = std::min(m_whole.count, m_each * i);
    return {m_whole.begin + begin, std::min(m_whole.count - begin, m_each)};
  }
  /// \throws std::out_of_range
  Range at(uint64_t i) const {
    if (i >= m_size) throw std::out_of_range("part " + std::to_string(i) + " of " + std::to_string(m_size));
    return (*this)[i];
  }
  uint64_t longest() const {
    uint64_t out = m_each;
    for (const Range& r : m_ranges) out = std::max(out, r.count);
    return out;
  }

 private:
  uint64_t m_size = 0;
  Range m_whole;
  uint64_t m_each = 0;
  std::vector<Range> m_ranges;  ///< empty: by the rule
};

}  // namespace ahbm
