// Addresses in the host's memory that are about to be used. With thousands of busy PEs their state is in none of the
// host's caches, and one look-up waits for the other; fetched ahead they come together.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ahbm {

// A PE's state is fetched over some wake-ups of others before its own (models/pe/wake_queue.h), what stands behind an
// address a turn after the address:
//   turns  move engine           queue pair           DMA
//     8    vectors, parts        -                    object, its ports
//     7    states of moves       block                ports' second lines, route to the memory
//     6    moves that can go on  list of pairs        ports' intervals, lists of the route
//     5    their lanes           -                    hops of the route
//     4    lists of the routes   queue pair           their second lines
//     3    hops, targets         slot, lists          their intervals
//     2    hops' second lines    hops of the credit   -
//     1    hops' intervals       their second lines   -
//     0    -                     their intervals      -
constexpr uint32_t kFetchTurns = 8;

constexpr uintptr_t kHostLine = 64;  ///< bytes

/// Into the second-level cache: the first one waits for a dozen lines at most, and whoever asks for more stands still.
/// The empty asm statement keeps the call: to GCC, a function that does nothing but prefetch has no effect.
inline void fetch_line(const void* address) {
  __builtin_prefetch(address, 0, 2);
  __asm__ volatile("");
}
/// All lines of [begin, end).
inline void fetch_lines(const void* begin, const void* end) {
  const char* p = static_cast<const char*>(begin);
  for (p -= reinterpret_cast<uintptr_t>(p) % kHostLine; p < end; p += kHostLine) fetch_line(p);
}

/// Ranges of addresses of the host, up to kMax; beyond that they are left out. They need not stay valid.
class HostLines {
 public:
  void clear() { m_count = 0; }
  void add(const void* address) {  ///< null: nothing
    if (address != nullptr) add(address, static_cast<const char*>(address) + 1);
  }
  /// All lines of [begin, end).
  void add(const void* begin, const void* end) {
    uintptr_t first = reinterpret_cast<uintptr_t>(begin) / kHostLine;
    const uintptr_t past = (reinterpret_cast<uintptr_t>(end) + kHostLine - 1) / kHostLine;
    for (; first < past && m_count < kMax; first += kHostLine) {
      m_ranges[m_count++] = first * kHostLine | (std::min<uintptr_t>(past - first, kHostLine) - 1);
    }
  }
  void fetch() const {
    for (size_t i = 0; i < m_count; ++i) {
      const char* line = reinterpret_cast<const char*>(m_ranges[i] & ~(kHostLine - 1));
      for (uintptr_t n = m_ranges[i] % kHostLine + 1; n != 0; --n, line += kHostLine) fetch_line(line);
    }
  }

 private:
  static constexpr size_t kMax = 15;  // two lines themselves
  size_t m_count = 0;
  std::array<uintptr_t, kMax> m_ranges;  ///< the first line's address, and in its low bits how many follow it
};

}  // namespace ahbm
