// The part of a PE's TCM behind the rings: staging of moves and tiles of kernels. First fit, coalescing, plain class.
#pragma once

#include <cstdint>
#include <map>

namespace ahbm::models {

class Scratch {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr uint64_t kAlign = 64;

  Scratch(uint64_t begin, uint64_t end) : m_begin(begin), m_end(end) { reset(); }

  /// TCM offset, or kNone when nothing that large is free.
  uint64_t allocate(uint64_t bytes) {
    bytes = rounded(bytes);
    for (auto it = m_free.begin(); it != m_free.end(); ++it) {
      if (it->second < bytes) continue;
      const uint64_t at = it->first;
      const uint64_t left = it->second - bytes;
      m_free.erase(it);
      if (left != 0) m_free.emplace(at + bytes, left);
      m_used += bytes;
      return at;
    }
    return kNone;
  }
  void release(uint64_t at, uint64_t bytes) {
    bytes = rounded(bytes);
    m_used -= bytes;
    auto next = m_free.lower_bound(at);
    if (next != m_free.end() && at + bytes == next->first) {
      bytes += next->second;
      next = m_free.erase(next);
    }
    if (next != m_free.begin()) {
      auto prev = std::prev(next);
      if (prev->first + prev->second == at) {
        prev->second += bytes;
        return;
      }
    }
    m_free.emplace(at, bytes);
  }
  void reset() {
    m_free.clear();
    m_used = 0;
    if (m_end > m_begin) m_free.emplace(m_begin, m_end - m_begin);
  }
  uint64_t used() const { return m_used; }
  uint64_t capacity() const { return m_end - m_begin; }

 private:
  static uint64_t rounded(uint64_t bytes) { return bytes == 0 ? kAlign : (bytes + kAlign - 1) / kAlign * kAlign; }

  uint64_t m_begin, m_end;
  uint64_t m_used = 0;
  std::map<uint64_t, uint64_t> m_free;
};

}  // namespace ahbm::models
