// Internal to tl: what a tile is made of, and the loops over element types that its operations share.
#pragma once

#include <fmt/format.h>

#include <Eigen/Core>
#include <type_traits>

#include "models/core/errors.h"
#include "models/tl/tl.h"

namespace ahbm::tl {

struct Tile::Storage {
  Storage(Tl& owner, uint64_t n_rows, uint64_t n_cols, DType t)
      : tl(owner), rows(n_rows), cols(n_cols), bytes(n_rows * n_cols * item_bytes(t)), dtype(t) {
    if (bytes != 0) data = tl.tcm_alloc(bytes);
  }
  ~Storage() {
    if (data != nullptr) tl.tcm_free(data, bytes);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Tl& tl;
  uint64_t rows, cols, bytes;
  DType dtype;
  uint8_t* data = nullptr;
  uint64_t ready = 0;  ///< the implementation's stamp from which on the values are there
};

/// Calls f with a value of the element type, for the dtypes that matrices are multiplied in.
template <typename F>
void dispatch_arithmetic(const char* what, DType t, F&& f) {
  switch (t) {
    case DType::Float32:
      return f(float{});
    case DType::Float16:
      return f(Eigen::half{});
    case DType::BFloat16:
      return f(Eigen::bfloat16{});
    case DType::Int32:
      return f(int32_t{});
    default:
      break;
  }
  throw NotImplementedError(
      fmt::format("{} on {}: the machine computes on float, half, bfloat16 and int32", what, ahbm::to_string(t)));
}

/// The same for the dtypes that the vector unit computes on: all but bools.
template <typename F>
void dispatch_numbers(const char* what, DType t, F&& f) {
  switch (t) {
    case DType::Int8:
      return f(int8_t{});
    case DType::UInt8:
      return f(uint8_t{});
    case DType::Int64:
      return f(int64_t{});
    case DType::Bool:
      throw NotImplementedError(fmt::format("{} on bool: expected a number type", what));
    default:
      return dispatch_arithmetic(what, t, f);
  }
}

/// The same for every dtype that is stored; a Bool is a uint8_t.
template <typename F>
void dispatch_every(DType t, F&& f) {
  switch (t) {
    case DType::Float32:
      return f(float{});
    case DType::Float16:
      return f(Eigen::half{});
    case DType::BFloat16:
      return f(Eigen::bfloat16{});
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
}

template <typename T>
constexpr bool kInteger = std::is_integral_v<T>;
/// The type in which one operation on T is made; integers wrap, so they are taken as unsigned where it matters.
template <typename T>
using Wide = std::conditional_t<kInteger<T>, std::conditional_t<sizeof(T) == 8, int64_t, int32_t>, float>;
template <typename T>
constexpr DType kWideType = kInteger<T> ? (sizeof(T) == 8 ? DType::Int64 : DType::Int32) : DType::Float32;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
auto matrix(const uint8_t* p, uint64_t rows, uint64_t cols) {
  return Eigen::Map<const Matrix<T>>(reinterpret_cast<const T*>(p), static_cast<Eigen::Index>(rows),
                                     static_cast<Eigen::Index>(cols));
}
template <typename T>
auto matrix(uint8_t* p, uint64_t rows, uint64_t cols) {
  return Eigen::Map<Matrix<T>>(reinterpret_cast<T*>(p), static_cast<Eigen::Index>(rows),
                               static_cast<Eigen::Index>(cols));
}

}  // namespace ahbm::tl
