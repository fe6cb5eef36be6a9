// Simulated time as plain integers of picoseconds, and the two conversions that produce it. Times come from cumulative
// counts (bytes, cycles) rounded up once, never from sums of rounded pieces.
#pragma once

#include <cstdint>

namespace ahbm {

__extension__ typedef unsigned __int128 Uint128;  // -Wpedantic knows no 128-bit integers

using Ps = uint64_t;  ///< picoseconds; 2^64 ps are 213 days
/// A time that does not come.
constexpr Ps kNever = ~Ps{0};

constexpr Ps ns(uint64_t n) {
  return n * 1000;
}
constexpr Ps us(uint64_t n) {
  return n * 1000 * 1000;
}

/// ceil(bytes * 10^12 / bytes_per_second): the time `bytes` occupy a resource of that bandwidth.
/// \pre bytes_per_second > 0
constexpr Ps transfer_ps(uint64_t bytes, uint64_t bytes_per_second) {
  constexpr uint64_t kPsPerSecond = 1000000000000u;
  if (bytes <= (~uint64_t{0} - bytes_per_second) / kPsPerSecond) {  // a 64-bit division is several times cheaper
    return (bytes * kPsPerSecond + (bytes_per_second - 1)) / bytes_per_second;
  }
  const auto num = static_cast<Uint128>(bytes) * kPsPerSecond + (bytes_per_second - 1);
  return static_cast<Ps>(num / bytes_per_second);
}

/// ceil(cycles * 10^12 / hertz). \pre hertz > 0
constexpr Ps cycles_ps(uint64_t cycles, uint64_t hertz) {
  return transfer_ps(cycles, hertz);
}

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}

}  // namespace ahbm
