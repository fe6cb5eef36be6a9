#include "runtime/random.h"

namespace ahbm::runtime {

namespace {

/// SplitMix64's output function over a counter: every index is independent of the others.
uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xD1342543DE82EF95ull + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

double random_value(DType dtype, uint64_t seed, uint64_t index) {
  const uint64_t bits = mix(seed, index);
  if (is_floating(dtype)) return static_cast<double>(bits >> 40) * 0x1p-24;
  switch (dtype) {
    case DType::Bool:
      return static_cast<double>(bits & 1);
    case DType::UInt8:
      return static_cast<double>(bits & 0xFF);
    default:
      return static_cast<double>(bits & 0xFF) - 128.0;
  }
}

void fill_random(DType dtype, uint64_t seed, uint64_t begin, uint64_t n, void* out) {
  if (dtype == DType::Float32) {
    auto* f = static_cast<float*>(out);
    // random_value's 24 bits, without the detour: large tensors are filled with it.
    for (uint64_t i = 0; i < n; ++i) f[i] = static_cast<float>(mix(seed, begin + i) >> 40) * 0x1p-24f;
    return;
  }
  for (uint64_t i = 0; i < n; ++i) store_element(dtype, out, i, random_value(dtype, seed, begin + i));
}

}  // namespace ahbm::runtime
