// Addresses in the host's memory that are about to be used. With thousands of busy PEs their state is in none of the
// host's caches, and one look-up waits for the other; fetched ahead they come together.
#pragma once

#include <array>
#include <cstddef>

namespace ahbm {

class HostLines {
 public:
  static constexpr size_t kMax = 15;
  void clear() { m_count = 0; }
  /// Beyond kMax they are left out. The address need not stay valid.
  void add(const void* address) {
    if (m_count < kMax) m_lines[m_count++] = address;
  }
  void fetch() const {
    for (size_t i = 0; i < m_count; ++i) __builtin_prefetch(m_lines[i]);
  }

 private:
  size_t m_count = 0;
  std::array<const void*, kMax> m_lines{};
};

}  // namespace ahbm
