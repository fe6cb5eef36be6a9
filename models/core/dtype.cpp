#include "models/core/dtype.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "models/core/errors.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ahbm {
namespace {

using Half = Eigen::half;
using BFloat16 = Eigen::bfloat16;

struct DTypeInfo {
  const char* name;
  uint32_t bytes;
  bool floating;
  bool arithmetic;
};
constexpr std::array<DTypeInfo, 8> kInfo{{
    {"float", 4, true, true},
    {"half", 2, true, true},
    {"bfloat16", 2, true, true},
    {"int32", 4, false, true},
    {"int8", 1, false, false},
    {"uint8", 1, false, false},
    {"int64", 8, false, false},
    {"bool", 1, false, false},
}};

const DTypeInfo& info(DType t) {
  const auto i = static_cast<size_t>(t);
  if (i >= kInfo.size()) throw std::invalid_argument(fmt::format("no dtype has the number {}", i));
  return kInfo[i];
}

[[noreturn]] void refuse(const char* what, DType t) {
  throw NotImplementedError(
      t == DType::Bool
          ? fmt::format("{} on bool: bools know sum, max (or), product and min (and)", what)
          : fmt::format("{} on {}: the machine computes on float, half, bfloat16 and int32 only", what, to_string(t)));
}

/// Device buffers carry no alignment beyond the element's, so maps are unaligned.
template <typename T>
using Vec = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>, Eigen::Unaligned>;
template <typename T>
using ConstVec = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>, Eigen::Unaligned>;

template <typename T>
Vec<T> vec(void* p, uint64_t n) {
  return {static_cast<T*>(p), static_cast<Eigen::Index>(n)};
}
template <typename T>
ConstVec<T> vec(const void* p, uint64_t n) {
  return {static_cast<const T*>(p), static_cast<Eigen::Index>(n)};
}

// Both prefer `a` when the arguments compare equal and pass on a NaN, whichever side it is on: the comparison is false
// for every NaN, and then `a != a` decides.
template <typename T>
T max_of(T a, T b) {
  return (a >= b || a != a) ? a : b;
}
template <typename T>
T min_of(T a, T b) {
  return (a <= b || a != a) ? a : b;
}

// Half-precision arrays are widened block by block, computed on in fp32 and rounded back. Eigen converts one element at
// a time unless all of the build is for a newer processor, hence these loops: bfloat16 is shifts and adds that the
// compiler vectorises, fp16 has instructions that are used where the processor offers them.

void widen(const uint8_t* in, float* out, uint64_t n, BFloat16) {
  for (uint64_t i = 0; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, in + 2 * i, sizeof h);
    const uint32_t word = static_cast<uint32_t>(h) << 16;
    std::memcpy(&out[i], &word, sizeof word);
  }
}

void narrow(const float* in, uint8_t* out, uint64_t n, BFloat16) {
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t u;
    std::memcpy(&u, &in[i], sizeof u);
    const uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16;
    const uint32_t quiet_nan = (u >> 16 & 0x8000) | 0x7FC0;
    const auto h = static_cast<uint16_t>((u & 0x7FFFFFFF) > 0x7F800000 ? quiet_nan : rounded);
    std::memcpy(out + 2 * i, &h, sizeof h);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void widen_f16c(const uint8_t* in, float* out, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i))));
  }
  for (; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, in + 2 * i, sizeof h);
    out[i] = _cvtsh_ss(h);
  }
}

__attribute__((target("avx,f16c"))) void narrow_f16c(const float* in, uint8_t* out, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) {
    const __m128i h = _mm_cvtps_ph(_mm_set_ss(in[i]), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(out + 2 * i, &h, sizeof(uint16_t));
  }
}

bool has_f16c() {
  static const bool kThere = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // clang 14's __builtin_cpu_supports does not know f16c
    return __builtin_cpu_supports("avx") != 0 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return kThere;
}
#endif

void widen(const uint8_t* in, float* out, uint64_t n, Half) {
#if defined(__x86_64__)
  if (has_f16c()) return widen_f16c(in, out, n);
#endif
  vec<float>(out, n) = vec<Half>(static_cast<const void*>(in), n).cast<float>();
}

void narrow(const float* in, uint8_t* out, uint64_t n, Half) {
#if defined(__x86_64__)
  if (has_f16c()) return narrow_f16c(in, out, n);
#endif
  vec<Half>(static_cast<void*>(out), n) = vec<float>(static_cast<const void*>(in), n).cast<Half>();
}

constexpr uint64_t kBlock = 1024;

/// fp32 and integers need no conversion. `Sum` is the type that sums and products are made in: unsigned for integers,
/// whose overflow wraps.
template <typename T, typename SumType>
void reduce_wide(ReduceOp op, void* dst, const void* a, const void* b, uint64_t n) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      vec<SumType>(dst, n) = vec<SumType>(a, n) + vec<SumType>(b, n);
      break;
    case ReduceOp::Product:
      vec<SumType>(dst, n) = vec<SumType>(a, n) * vec<SumType>(b, n);
      break;
    case ReduceOp::Max:
      vec<T>(dst, n) = vec<T>(a, n).binaryExpr(vec<T>(b, n), [](T p, T q) { return max_of(p, q); });
      break;
    case ReduceOp::Min:
      vec<T>(dst, n) = vec<T>(a, n).binaryExpr(vec<T>(b, n), [](T p, T q) { return min_of(p, q); });
      break;
  }
}

template <typename T>
void reduce_narrow(ReduceOp op, void* dst, const void* a, const void* b, uint64_t n) {
  alignas(64) float x[kBlock], y[kBlock];
  for (uint64_t at = 0; at < n; at += kBlock) {
    const uint64_t m = std::min(kBlock, n - at);
    widen(static_cast<const uint8_t*>(a) + 2 * at, x, m, T{});
    widen(static_cast<const uint8_t*>(b) + 2 * at, y, m, T{});
    reduce_wide<float, float>(op, x, x, y, m);
    narrow(x, static_cast<uint8_t*>(dst) + 2 * at, m, T{});
  }
}

/// f(block of floats as an Eigen array) in place on a half-precision array.
template <typename T, typename F>
void in_float(void* data, uint64_t n, F&& f) {
  alignas(64) float x[kBlock];
  for (uint64_t at = 0; at < n; at += kBlock) {
    const uint64_t m = std::min(kBlock, n - at);
    uint8_t* p = static_cast<uint8_t*>(data) + 2 * at;
    widen(p, x, m, T{});
    f(vec<float>(static_cast<void*>(x), m));
    narrow(x, p, m, T{});
  }
}

/// Truncates toward zero; what does not fit becomes the nearest limit, NaN becomes 0.
template <typename T>
T to_integer(double v) {
  if (std::isnan(v)) return 0;
  // The upper limit of int64 is no double: 2^63 is the first value that does not fit.
  if (v >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
  if (v <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(v);
}

/// double -> float so that a second rounding to a narrower type comes out as one rounding would: an inexact result
/// takes the neighbour with an odd last bit ("round to odd").
float to_float_odd(double v) {
  const auto f = static_cast<float>(v);
  if (static_cast<double>(f) == v || !std::isfinite(f)) return f;
  uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof bits);
  if (bits & 1) return f;
  const float limit = std::numeric_limits<float>::infinity();
  return std::nextafter(f, static_cast<double>(f) < v ? limit : -limit);
}

template <typename T>
T element_from(double v) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(v);
  else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return static_cast<T>(to_float_odd(v));
  else
    return to_integer<T>(v);
}

/// Integers truncate toward zero. A divisor beyond the type's range leaves 0, but for the one value that it can equal.
template <typename T>
void divide_integers(void* x, uint64_t n, uint64_t divisor) {
  constexpr auto kLimit = static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (divisor <= kLimit) {
    vec<T>(x, n) = vec<T>(x, n).unaryExpr([q = static_cast<T>(divisor)](T v) { return static_cast<T>(v / q); });
    return;
  }
  const bool reachable = std::is_signed_v<T> && divisor == kLimit + 1;
  const T lowest = std::numeric_limits<T>::min();
  vec<T>(x, n) = vec<T>(x, n).unaryExpr([&](T v) { return static_cast<T>(reachable && v == lowest ? -1 : 0); });
}

void reduce_bools(ReduceOp op, uint8_t* dst, const uint8_t* a, const uint8_t* b, uint64_t n) {
  if (op == ReduceOp::Sum || op == ReduceOp::Max) {
    for (uint64_t i = 0; i < n; ++i) dst[i] = (a[i] | b[i]) != 0;
  } else {
    for (uint64_t i = 0; i < n; ++i) dst[i] = (a[i] != 0) & (b[i] != 0);
  }
}

/// Calls f with a value of the element type. Bool is a byte of 0 or 1 and is told apart by the caller.
template <typename F>
auto dispatch(DType t, F&& f) {
  switch (t) {
    case DType::Float32:
      return f(float{});
    case DType::Float16:
      return f(Half{});
    case DType::BFloat16:
      return f(BFloat16{});
    case DType::Int32:
      return f(int32_t{});
    case DType::Int8:
      return f(int8_t{});
    case DType::UInt8:
    case DType::Bool:
      return f(uint8_t{});
    case DType::Int64:
      return f(int64_t{});
  }
  throw std::invalid_argument(fmt::format("no dtype has the number {}", static_cast<int>(t)));
}

}  // namespace

uint32_t item_bytes(DType dtype) {
  return info(dtype).bytes;
}
const char* to_string(DType dtype) {
  return info(dtype).name;
}
bool is_floating(DType dtype) {
  return info(dtype).floating;
}
bool has_arithmetic(DType dtype) {
  return info(dtype).arithmetic;
}
bool can_reduce(ReduceOp op, DType dtype) {
  return info(dtype).bytes != 0 && (dtype != DType::Bool || op != ReduceOp::Avg);
}

const char* to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Avg:
      return "avg";
    case ReduceOp::Max:
      return "max";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Product:
      return "product";
  }
  throw std::invalid_argument(fmt::format("no reduction has the number {}", static_cast<int>(op)));
}

std::optional<DType> parse_dtype(std::string_view name) {
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  static constexpr Alias kAliases[] = {
      {"float", DType::Float32},     {"float32", DType::Float32}, {"fp32", DType::Float32},
      {"half", DType::Float16},      {"float16", DType::Float16}, {"fp16", DType::Float16},
      {"bfloat16", DType::BFloat16}, {"bf16", DType::BFloat16},   {"int32", DType::Int32},
      {"int", DType::Int32},         {"int8", DType::Int8},       {"char", DType::Int8},
      {"uint8", DType::UInt8},       {"int64", DType::Int64},     {"long", DType::Int64},
      {"bool", DType::Bool},
  };
  for (const Alias& a : kAliases)
    if (a.name == name) return a.dtype;
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) {
  if (name == "sum") return ReduceOp::Sum;
  if (name == "avg" || name == "mean") return ReduceOp::Avg;
  if (name == "max") return ReduceOp::Max;
  if (name == "min") return ReduceOp::Min;
  if (name == "product" || name == "prod") return ReduceOp::Product;
  return std::nullopt;
}

void reduce(ReduceOp op, DType dtype, void* dst, const void* a, const void* b, uint64_t n) {
  switch (dtype) {
    case DType::Float32:
      return reduce_wide<float, float>(op, dst, a, b, n);
    case DType::Float16:
      return reduce_narrow<Half>(op, dst, a, b, n);
    case DType::BFloat16:
      return reduce_narrow<BFloat16>(op, dst, a, b, n);
    case DType::Int32:
      return reduce_wide<int32_t, uint32_t>(op, dst, a, b, n);
    case DType::Int8:
      return reduce_wide<int8_t, uint8_t>(op, dst, a, b, n);
    case DType::UInt8:
      return reduce_wide<uint8_t, uint8_t>(op, dst, a, b, n);
    case DType::Int64:
      return reduce_wide<int64_t, uint64_t>(op, dst, a, b, n);
    case DType::Bool:
      if (!can_reduce(op, dtype)) refuse(to_string(op), dtype);
      return reduce_bools(op, static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(a),
                          static_cast<const uint8_t*>(b), n);
  }
  refuse(to_string(op), dtype);
}

void divide(DType dtype, void* x, uint64_t n, uint64_t divisor) {
  if (divisor == 0) throw std::invalid_argument("divide: the divisor is 0");
  if (divisor == 1) return;
  const auto d = static_cast<float>(divisor);
  switch (dtype) {
    case DType::Float32:
      vec<float>(x, n) /= d;
      return;
    case DType::Float16:
      return in_float<Half>(x, n, [d](auto e) { e /= d; });
    case DType::BFloat16:
      return in_float<BFloat16>(x, n, [d](auto e) { e /= d; });
    case DType::Int32:
      return divide_integers<int32_t>(x, n, divisor);
    case DType::Int8:
      return divide_integers<int8_t>(x, n, divisor);
    case DType::UInt8:
      return divide_integers<uint8_t>(x, n, divisor);
    case DType::Int64:
      return divide_integers<int64_t>(x, n, divisor);
    default:
      refuse("divide", dtype);
  }
}

void scale(DType dtype, void* x, uint64_t n, double factor) {
  const auto f = static_cast<float>(factor);
  switch (dtype) {
    case DType::Float32:
      vec<float>(x, n) *= f;
      return;
    case DType::Float16:
      return in_float<Half>(x, n, [f](auto e) { e *= f; });
    case DType::BFloat16:
      return in_float<BFloat16>(x, n, [f](auto e) { e *= f; });
    case DType::Int32:
      vec<int32_t>(x, n) =
          vec<int32_t>(x, n).unaryExpr([factor](int32_t v) { return to_integer<int32_t>(v * factor); });
      return;
    default:
      refuse("scale", dtype);
  }
}

double load_element(DType dtype, const void* base, uint64_t index) {
  return dispatch(dtype, [&](auto tag) {
    using T = decltype(tag);
    T v;
    std::memcpy(&v, static_cast<const uint8_t*>(base) + index * sizeof(T), sizeof(T));
    return static_cast<double>(v);
  });
}

void store_element(DType dtype, void* base, uint64_t index, double v) {
  if (dtype == DType::Bool) v = v != 0.0;
  dispatch(dtype, [&](auto tag) {
    using T = decltype(tag);
    const T e = element_from<T>(v);
    std::memcpy(static_cast<uint8_t*>(base) + index * sizeof(T), &e, sizeof(T));
  });
}

void fill(DType dtype, void* base, uint64_t n, double v) {
  if (n == 0) return;
  if (dtype == DType::Bool) v = v != 0.0;
  dispatch(dtype, [&](auto tag) {
    using T = decltype(tag);
    vec<T>(base, n).setConstant(element_from<T>(v));
  });
}

}  // namespace ahbm
