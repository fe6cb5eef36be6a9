#include "models/core/dtype.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "models/core/errors.h"

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
      fmt::format("{} on {}: the machine computes on float, half, bfloat16 and int32 only", what, to_string(t)));
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

/// What an element is computed in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;

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

template <typename T>
void reduce_narrow(ReduceOp op, void* dst, const void* a, const void* b, uint64_t n) {
  const auto x = vec<T>(a, n).template cast<float>();
  const auto y = vec<T>(b, n).template cast<float>();
  auto out = vec<T>(dst, n);
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      out = (x + y).template cast<T>();
      break;
    case ReduceOp::Product:
      out = (x * y).template cast<T>();
      break;
    case ReduceOp::Max:
      out = x.binaryExpr(y, [](float p, float q) { return max_of(p, q); }).template cast<T>();
      break;
    case ReduceOp::Min:
      out = x.binaryExpr(y, [](float p, float q) { return min_of(p, q); }).template cast<T>();
      break;
  }
}

/// fp32 and int32 need no conversion. `Sum` is the type that sums and products are made in: unsigned for integers,
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
    default:
      refuse(to_string(op), dtype);
  }
}

void divide(DType dtype, void* x, uint64_t n, uint64_t divisor) {
  if (divisor == 0) throw std::invalid_argument("divide: the divisor is 0");
  if (divisor == 1 && has_arithmetic(dtype)) return;
  const auto d = static_cast<float>(divisor);
  switch (dtype) {
    case DType::Float32:
      vec<float>(x, n) /= d;
      return;
    case DType::Float16:
      vec<Half>(x, n) = (vec<Half>(x, n).cast<float>() / d).cast<Half>();
      return;
    case DType::BFloat16:
      vec<BFloat16>(x, n) = (vec<BFloat16>(x, n).cast<float>() / d).cast<BFloat16>();
      return;
    case DType::Int32:
      // A divisor beyond 2^31 makes every int32 0, and so does 2^31 + 1, which keeps the quotient inside int64.
      vec<int32_t>(x, n) =
          vec<int32_t>(x, n).unaryExpr([q = static_cast<int64_t>(std::min<uint64_t>(divisor, (uint64_t{1} << 31) + 1))](
                                           int32_t v) { return static_cast<int32_t>(v / q); });
      return;
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
      vec<Half>(x, n) = (vec<Half>(x, n).cast<float>() * f).cast<Half>();
      return;
    case DType::BFloat16:
      vec<BFloat16>(x, n) = (vec<BFloat16>(x, n).cast<float>() * f).cast<BFloat16>();
      return;
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
