// Addresses in the host's memory that are about to be used. With thousands of busy PEs their state is in none of the
// host's caches, and one look-up waits for the other; fetched ahead they come together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ahbm {

inline void fetch_line(const void* address) {
  __builtin_prefetch(address);
}

/// Up to kMax of them; beyond that they are left out. The addresses need not stay valid.
template <size_t kMax>
class HostLineList {
 public:
  void clear() { m_count = 0; }
  bool empty() const { return m_count == 0; }
  void add(const void* address) {
    if (m_count < kMax) m_lines[m_count++] = address;
  }
  /// All lines of [begin, end).
  void add(const void* begin, const void* end) {
    const char* p = static_cast<const char*>(begin);
    for (p -= reinterpret_cast<uintptr_t>(p) % kLine; p < end; p += kLine) add(p);
  }
  template <size_t kOther>
  void add(const HostLineList<kOther>& other) {
    for (const void* line : other) add(line);
  }
  void fetch() const {
    for (const void* line : *this) fetch_line(line);
  }
  const void* const* begin() const { return m_lines.data(); }
  const void* const* end() const { return m_lines.data() + m_count; }

 private:
  static constexpr size_t kLine = 64;
  size_t m_count = 0;
  std::array<const void*, kMax> m_lines;
};

using HostLines = HostLineList<23>;  ///< three lines themselves

}  // namespace ahbm
