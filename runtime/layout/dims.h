// Sizes, strides and dimension lists of tensors as the layout algebra sees them: signed 64-bit numbers in a vector that
// stays on the stack for the usual ranks.
#pragma once

// GCC 12 does not see the size check in front of small_vector's memmove once all of it is inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Warray-bounds"
#endif
#include <boost/container/small_vector.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstddef>
#include <cstdint>
#include <string>

namespace ahbm::dtensor {

template <typename T, size_t N>
using SmallVector = boost::container::small_vector<T, N>;
using Dims = SmallVector<int64_t, 6>;

/// Product of the sizes; 1 for a 0-d tensor. \throws ShapeMismatch for a negative size or a product over 63 bits
int64_t numel(const Dims& shape);
/// Row-major strides; a size of 0 counts as 1, as torch does.
Dims contiguous_stride(const Dims& shape);
std::string to_string(const Dims& dims);  ///< [2, 3], []

/// Mixes `value` into a running hash.
inline size_t hash_mix(size_t seed, size_t value) {
  uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return static_cast<size_t>(x);
}
inline size_t hash_of(const Dims& dims, size_t seed = 0) {
  size_t h = hash_mix(seed, dims.size());
  for (const int64_t d : dims) h = hash_mix(h, static_cast<size_t>(d));
  return h;
}

/// `dim` counted from the front. \throws DimOutOfRange when it is not in [-ndim, ndim); `what` names the argument
int normalize_dim(int64_t dim, size_t ndim, const char* what = "dim");

}  // namespace ahbm::dtensor
