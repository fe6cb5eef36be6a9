// Values that depend on a seed and a global index only, so that any part of a random tensor can be made anywhere.
#pragma once

#include <cstdint>

#include "models/core/dtype.h"

namespace ahbm::runtime {

/// Floating types: uniform over multiples of 2^-24 in [0, 1), rounded to the dtype. Integers: uniform in [-128, 127]
/// ([0, 255] for uint8). Bool: 0 or 1.
double random_value(DType dtype, uint64_t seed, uint64_t index);

/// Elements [begin, begin + n) of that sequence.
void fill_random(DType dtype, uint64_t seed, uint64_t begin, uint64_t n, void* out);

}  // namespace ahbm::runtime
