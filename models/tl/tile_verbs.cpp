// Operations on tiles that compare, choose, rearrange and fold.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "models/tl/tile_storage.h"

namespace ahbm::tl {
namespace {

template <typename T>
const T* items(const Tile::Storage& s) {
  return reinterpret_cast<const T*>(s.data);
}
template <typename T>
T* items(Tile::Storage& s) {
  return reinterpret_cast<T*>(s.data);
}

std::string shape_text(const Tile::Storage& s) {
  return fmt::format("{}x{} {}", s.rows, s.cols, ahbm::to_string(s.dtype));
}

/// f is a template argument of the loop, so that the loop has no switch inside.
template <typename Body>
void with_compare(Compare f, Body&& body) {
  switch (f) {
    case Compare::Eq:
      return body([](auto a, auto b) { return a == b; });
    case Compare::Ne:
      return body([](auto a, auto b) { return a != b; });
    case Compare::Lt:
      return body([](auto a, auto b) { return a < b; });
    case Compare::Le:
      return body([](auto a, auto b) { return a <= b; });
    case Compare::Gt:
      return body([](auto a, auto b) { return a > b; });
    case Compare::Ge:
      return body([](auto a, auto b) { return a >= b; });
  }
}

/// Body(step, identity) with the operator on `Acc`, float or a wrapping int32 or int64.
template <typename Acc, typename Body>
void with_fold(Fold f, Body&& body) {
  constexpr bool kWraps = kInteger<Acc>;
  using Limits = std::numeric_limits<Acc>;
  const auto wrap = [](auto op) {
    return [op](Acc a, Acc b) {
      if constexpr (kWraps) {
        using Unsigned = std::make_unsigned_t<Acc>;
        return static_cast<Acc>(op(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
      } else {
        return op(a, b);
      }
    };
  };
  switch (f) {
    case Fold::Sum:
      return body(wrap([](auto a, auto b) { return a + b; }), Acc{0});
    case Fold::Prod:
      return body(wrap([](auto a, auto b) { return a * b; }), Acc{1});
    case Fold::Max:
      return body([](Acc a, Acc b) { return a >= b || a != a ? a : b; },
                  kWraps ? Limits::min() : static_cast<Acc>(-std::numeric_limits<float>::infinity()));
    case Fold::Min:
      return body([](Acc a, Acc b) { return a <= b || a != a ? a : b; },
                  kWraps ? Limits::max() : static_cast<Acc>(std::numeric_limits<float>::infinity()));
  }
}

}  // namespace

Tile Tl::compare(Compare f, const Tile& a, const Tile& b) {
  const Tile::Storage& x = storage(a, "compare");
  const Tile::Storage& y = storage(b, "compare");
  const bool row = y.rows == 1 && y.cols == x.cols;
  const bool column = y.cols == 1 && y.rows == x.rows;
  if (x.dtype != y.dtype || (!row && !column && (x.rows != y.rows || x.cols != y.cols))) {
    throw ProtocolError(fmt::format("compare of {} and {}: equal dtypes and shapes, a row or a column are expected",
                                    shape_text(x), shape_text(y)));
  }
  Tile out = make_tile(x.rows, x.cols, DType::Bool);
  Tile::Storage& s = *out.m_storage;
  if (functional() && s.bytes != 0) {
    const uint64_t row_stride = y.rows == 1 && x.rows != 1 ? 0 : y.cols;
    const uint64_t col_stride = y.cols == 1 && x.cols != 1 ? 0 : 1;
    dispatch_every(x.dtype, [&](auto tag) {
      using T = decltype(tag);
      with_compare(f, [&](auto holds) {
        for (uint64_t r = 0; r < x.rows; ++r) {
          const T* left = items<T>(x) + r * x.cols;
          const T* right = items<T>(y) + r * row_stride;
          uint8_t* to = s.data + r * x.cols;
          for (uint64_t c = 0; c < x.cols; ++c) to[c] = holds(left[c], right[c * col_stride]) ? 1 : 0;
        }
      });
    });
  }
  s.ready = vector_time(out.size(), std::max(x.ready, y.ready));
  return out;
}

Tile Tl::compare(Compare f, const Tile& a, double b) {
  const Tile::Storage& x = storage(a, "compare");
  Tile out = make_tile(x.rows, x.cols, DType::Bool);
  Tile::Storage& s = *out.m_storage;
  if (functional()) {
    dispatch_every(x.dtype, [&](auto tag) {
      using T = decltype(tag);
      T value{};
      store_element(x.dtype, &value, 0, b);
      with_compare(f, [&](auto holds) {
        const T* from = items<T>(x);
        for (uint64_t i = 0; i < s.bytes; ++i) s.data[i] = holds(from[i], value) ? 1 : 0;
      });
    });
  }
  s.ready = vector_time(out.size(), x.ready);
  return out;
}

Tile Tl::select(const Tile& mask, const Tile& a, const Tile& b) {
  const Tile::Storage& m = storage(mask, "select");
  const Tile::Storage& x = storage(a, "select");
  const Tile::Storage& y = storage(b, "select");
  const bool alike = x.dtype == y.dtype && x.rows == y.rows && x.cols == y.cols;
  if (!alike || m.dtype != DType::Bool || m.rows != x.rows || m.cols != x.cols) {
    throw ProtocolError(fmt::format("select by {} of {} and {}: a bool mask and equal shapes and dtypes are expected",
                                    shape_text(m), shape_text(x), shape_text(y)));
  }
  Tile out = make_tile(x.rows, x.cols, x.dtype);
  Tile::Storage& s = *out.m_storage;
  if (functional()) {
    dispatch_every(x.dtype, [&](auto tag) {
      using T = decltype(tag);
      for (uint64_t i = 0; i < m.bytes; ++i) items<T>(s)[i] = m.data[i] != 0 ? items<T>(x)[i] : items<T>(y)[i];
    });
  }
  s.ready = vector_time(out.size(), std::max({m.ready, x.ready, y.ready}));
  return out;
}

Tile Tl::strided(const Tile& x, uint64_t offset, uint64_t rows, uint64_t cols, uint64_t row_stride,
                 uint64_t col_stride) {
  const Tile::Storage& a = storage(x, "strided");
  if (rows != 0 && cols != 0 && offset + (rows - 1) * row_stride + (cols - 1) * col_stride >= a.rows * a.cols) {
    throw ProtocolError(fmt::format("strided: {}x{} elements from {} on with strides {} and {} in a tile of {}", rows,
                                    cols, offset, row_stride, col_stride, shape_text(a)));
  }
  Tile out = make_tile(rows, cols, a.dtype);
  Tile::Storage& s = *out.m_storage;
  if (functional()) {
    dispatch_every(a.dtype, [&](auto tag) {
      using T = decltype(tag);
      T* to = items<T>(s);
      for (uint64_t r = 0; r < rows; ++r) {
        const T* from = items<T>(a) + offset + r * row_stride;
        for (uint64_t c = 0; c < cols; ++c) *to++ = from[c * col_stride];
      }
    });
  }
  s.ready = vector_time(out.size(), a.ready);
  return out;
}

void Tl::place(const Tile& into, const Tile& x, uint64_t offset, uint64_t row_stride, uint64_t col_stride) {
  storage(into, "place");
  Tile::Storage& s = *into.m_storage;
  const Tile::Storage& a = storage(x, "place");
  if (a.bytes == 0) return;
  if (a.dtype != s.dtype || offset + (a.rows - 1) * row_stride + (a.cols - 1) * col_stride >= s.rows * s.cols) {
    throw ProtocolError(fmt::format("place: {} from {} on with strides {} and {} into a tile of {}", shape_text(a),
                                    offset, row_stride, col_stride, shape_text(s)));
  }
  if (functional()) {
    dispatch_every(a.dtype, [&](auto tag) {
      using T = decltype(tag);
      const T* from = items<T>(a);
      for (uint64_t r = 0; r < a.rows; ++r) {
        T* to = items<T>(s) + offset + r * row_stride;
        for (uint64_t c = 0; c < a.cols; ++c) to[c * col_stride] = *from++;
      }
    });
  }
  s.ready = vector_time(x.size(), std::max(s.ready, a.ready));
}

Tile Tl::take(const Tile& x, const Tile& index) {
  const Tile::Storage& a = storage(x, "take");
  const Tile::Storage& at = storage(index, "take");
  if (at.rows != a.rows || (at.dtype != DType::Int64 && at.dtype != DType::Int32)) {
    throw ProtocolError(fmt::format("take from {} by {}: int64 or int32 indices and equal rows are expected",
                                    shape_text(a), shape_text(at)));
  }
  Tile out = make_tile(a.rows, at.cols, a.dtype);
  Tile::Storage& s = *out.m_storage;
  if (functional()) {
    const uint64_t item = item_bytes(a.dtype);
    for (uint64_t i = 0; i < out.size(); ++i) {
      const int64_t c = at.dtype == DType::Int64 ? items<int64_t>(at)[i] : items<int32_t>(at)[i];
      if (c < 0 || static_cast<uint64_t>(c) >= a.cols) {
        throw std::out_of_range(fmt::format("index {} is none of 0..{}", c, static_cast<int64_t>(a.cols) - 1));
      }
      std::memcpy(s.data + i * item, a.data + (i / at.cols * a.cols + static_cast<uint64_t>(c)) * item, item);
    }
  }
  s.ready = vector_time(out.size(), std::max(a.ready, at.ready));
  return out;
}

Tile Tl::triangle(const Tile& x, bool upper, int64_t first_row, int64_t diagonal, double v) {
  const Tile::Storage& a = storage(x, "triangle");
  Tile out = make_tile(a.rows, a.cols, a.dtype);
  Tile::Storage& s = *out.m_storage;
  if (functional() && s.bytes != 0) {
    dispatch_every(a.dtype, [&](auto tag) {
      using T = decltype(tag);
      T outside{};
      store_element(a.dtype, &outside, 0, v);
      for (uint64_t i = 0; i < out.size(); ++i) {
        const int64_t row = first_row + static_cast<int64_t>(i / a.cols) + diagonal;
        const auto col = static_cast<int64_t>(i % a.cols);
        items<T>(s)[i] = (upper ? col >= row : col <= row) ? items<T>(a)[i] : outside;
      }
    });
  }
  s.ready = vector_time(out.size(), a.ready);
  return out;
}

Tile Tl::fold(Fold f, const Tile& x) {
  constexpr uint64_t kLanes = 32;
  const Tile::Storage& a = storage(x, "fold");
  Tile out = make_tile(a.rows, 1, a.dtype);
  Tile::Storage& s = *out.m_storage;
  dispatch_numbers("fold", a.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Acc = Wide<T>;
    if (!functional()) return;
    with_fold<Acc>(f, [&](auto step, Acc identity) {
      for (uint64_t r = 0; r < a.rows; ++r) {
        Acc lanes[kLanes];
        std::fill_n(lanes, kLanes, identity);
        const T* from = items<T>(a) + r * a.cols;
        uint64_t c = 0;
        for (; c + kLanes <= a.cols; c += kLanes) {
          for (uint64_t i = 0; i < kLanes; ++i) lanes[i] = step(lanes[i], Acc(from[c + i]));
        }
        for (; c < a.cols; ++c) lanes[c % kLanes] = step(lanes[c % kLanes], Acc(from[c]));
        for (uint64_t half = kLanes / 2; half != 0; half /= 2) {
          for (uint64_t i = 0; i < half; ++i) lanes[i] = step(lanes[i], lanes[i + half]);
        }
        items<T>(s)[r] = static_cast<T>(lanes[0]);
      }
    });
  });
  s.ready = vector_time(x.size(), a.ready);
  return out;
}

Tile Tl::fold_down(Fold f, const Tile& x) {
  const Tile::Storage& a = storage(x, "fold_down");
  Tile out = make_tile(1, a.cols, a.dtype);
  Tile::Storage& s = *out.m_storage;
  dispatch_numbers("fold_down", a.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Acc = Wide<T>;
    if (!functional()) return;
    with_fold<Acc>(f, [&](auto step, Acc identity) {
      std::vector<Acc> acc(a.cols, identity);
      for (uint64_t r = 0; r < a.rows; ++r) {
        const T* from = items<T>(a) + r * a.cols;
        for (uint64_t c = 0; c < a.cols; ++c) acc[c] = step(acc[c], Acc(from[c]));
      }
      for (uint64_t c = 0; c < a.cols; ++c) items<T>(s)[c] = static_cast<T>(acc[c]);
    });
  });
  s.ready = vector_time(x.size(), a.ready);
  return out;
}

Tile Tl::scan(const Tile& x) {
  const Tile::Storage& a = storage(x, "scan");
  Tile out = make_tile(a.rows, a.cols, a.dtype);
  Tile::Storage& s = *out.m_storage;
  dispatch_numbers("scan", a.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Acc = Wide<T>;
    if (!functional()) return;
    with_fold<Acc>(Fold::Sum, [&](auto step, Acc identity) {
      for (uint64_t r = 0; r < a.rows; ++r) {
        Acc sum = identity;
        for (uint64_t c = r * a.cols; c < (r + 1) * a.cols; ++c) {
          sum = step(sum, Acc(items<T>(a)[c]));
          items<T>(s)[c] = static_cast<T>(sum);
        }
      }
    });
  });
  s.ready = vector_time(x.size(), a.ready);
  return out;
}

Tile Tl::arg(Fold f, const Tile& x) {
  const Tile::Storage& a = storage(x, "arg");
  if (f != Fold::Max && f != Fold::Min) throw ProtocolError("arg: expected max or min");
  if (a.cols == 0) throw ProtocolError(fmt::format("arg of {} rows without columns", a.rows));
  Tile out = make_tile(a.rows, 1, DType::Int64);
  Tile::Storage& s = *out.m_storage;
  dispatch_numbers("arg", a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (!functional()) return;
    for (uint64_t r = 0; r < a.rows; ++r) {
      const T* from = items<T>(a) + r * a.cols;
      uint64_t best = 0;
      for (uint64_t c = 1; c < a.cols && from[best] == from[best]; ++c) {
        const bool better = f == Fold::Max ? from[c] > from[best] : from[c] < from[best];
        if (better || from[c] != from[c]) best = c;
      }
      items<int64_t>(s)[r] = static_cast<int64_t>(best);
    }
  });
  s.ready = vector_time(x.size(), a.ready);
  return out;
}

}  // namespace ahbm::tl
