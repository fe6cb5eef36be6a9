// Quantities with units, in one place: '819.2 GB/s', '64 B/ns', '250 ns', '1.5 GHz', '16 KiB'.
//
// A quantity is a decimal number, blanks (or none) and a unit. Decimal prefixes are powers of 1000 (GB/s = 10^9 bytes
// per second), KiB, MiB, GiB, TiB are powers of 1024. The arithmetic is on integers: what cannot be held as a whole
// number of the base unit is refused instead of rounded, so a value means exactly what is written.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "models/core/time.h"

namespace ahbm::units {

/// What is wrong with a quantity, without a position. The message names the text and what was expected.
class QuantityError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// All four \throw QuantityError: no number, negative, NaN or infinite, no unit, unknown unit, unit of another kind,
// more digits than the base unit can hold, overflow. Zero is legal for sizes and times only.
uint64_t parse_bytes(std::string_view text);      ///< bytes
uint64_t parse_bandwidth(std::string_view text);  ///< bytes per second, > 0
uint64_t parse_frequency(std::string_view text);  ///< hertz, > 0
Ps parse_time(std::string_view text);             ///< picoseconds

// The shortest exact notation; parsing it gives the value back.
std::string format_bytes(uint64_t bytes);
std::string format_bandwidth(uint64_t bytes_per_second);
std::string format_frequency(uint64_t hertz);
std::string format_time(Ps time);

}  // namespace ahbm::units
