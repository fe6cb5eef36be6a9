// Functions of whole rows. Rows that fit are taken several at once and stay in the TCM; longer ones pass by in pieces,
// once per thing that has to be known of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "runtime/kernels/arguments.h"
#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {
namespace {

using tl::Binary;
using tl::Compare;
using tl::Fold;
using tl::Tile;
using tl::Unary;

struct Operand {
  Addr address = 0;
  DType dtype = DType::Float32;
};

struct Shape {
  uint64_t rows = 0, cols = 0, out_cols = 0;
};

class RowFunction {
 public:
  RowFunction(tl::Tl& tl, const tl::Args& args) : m_tl(tl) {
    ArgReader in(args);
    m_function = in.as<Rows>();
    m_p = in.f64();
    m_src = in.u64();
    m_src_dtype = in.dtype();
    m_dst = in.u64();
    m_dst_dtype = in.dtype();
    m_shape.rows = in.u64();
    m_shape.cols = in.u64();
    m_shape.out_cols = in.u64();
    m_operands.resize(in.u64());
    for (Operand& o : m_operands) {
      o.address = in.u64();
      o.dtype = in.dtype();
    }
    m_acc = accumulator(m_src_dtype);
    const uint64_t tile = tile_elements(m_src_dtype, m_dst_dtype, m_acc);
    m_width = std::max<uint64_t>(1, std::min(m_shape.cols, tile));
    m_height = std::max<uint64_t>(1, tile / std::max(m_width, std::min(m_shape.out_cols, tile)));
  }

  void run() {
    for (m_row = 0; m_row < m_shape.rows; m_row += m_height) {
      m_rows = std::min(m_height, m_shape.rows - m_row);
      m_only = Tile();
      block();
    }
  }

 private:
  void block() {
    switch (m_function) {
      case Rows::Softmax:
      case Rows::LogSoftmax:
        return softmax();
      case Rows::LogSumExp:
        return put(0, log_sum_exp());
      case Rows::Cumsum:
        return cumsum();
      case Rows::ArgMax:
        return put(0, argument(Fold::Max));
      case Rows::ArgMin:
        return put(0, argument(Fold::Min));
      case Rows::LayerNorm:
      case Rows::RmsNorm:
        return normalise();
      case Rows::NegLogLikely: {
        const Tile lse = log_sum_exp();
        return put(0, m_tl.binary(Binary::Sub, lse, m_tl.cast(picked(0, 1, 1), m_acc)));
      }
      case Rows::Gather:
        return gather();
    }
    throw std::invalid_argument(fmt::format("rows: no function has the number {}", static_cast<int>(m_function)));
  }

  // --- pieces of the block's rows
  template <typename Body>
  void pieces(Body&& body) {
    for (uint64_t c = 0; c < m_shape.cols; c += m_width) body(c, std::min(m_width, m_shape.cols - c));
  }
  Tile raw(uint64_t c, uint64_t n) {
    return m_tl.load(m_src + (m_row * m_shape.cols + c) * item_bytes(m_src_dtype), m_rows, n, m_shape.cols,
                     m_src_dtype);
  }
  /// In fp32 or int32; kept when it is all there is.
  Tile piece(uint64_t c, uint64_t n) {
    if (m_only) return m_only;
    const Tile x = as_dtype(m_tl, raw(c, n), m_acc);
    if (n == m_shape.cols) m_only = x;
    return x;
  }
  void put(uint64_t c, const Tile& x) {
    m_tl.store(m_dst + (m_row * m_shape.out_cols + c) * item_bytes(m_dst_dtype), as_dtype(m_tl, x, m_dst_dtype),
               m_shape.out_cols);
  }
  Tile merged(Binary f, const Tile& acc, const Tile& x) { return acc ? m_tl.binary(f, acc, x) : x; }

  // --- what is known of a row
  /// The largest element, or 0 when that is infinite: what the exponentials are taken relative to.
  Tile shift() {
    Tile largest;
    pieces([&](uint64_t c, uint64_t n) { largest = merged(Binary::Max, largest, m_tl.fold(Fold::Max, piece(c, n))); });
    const Tile infinite =
        m_tl.compare(Compare::Eq, m_tl.unary(Unary::Abs, largest), std::numeric_limits<double>::infinity());
    return m_tl.select(infinite, m_tl.zeros(m_rows, 1, m_acc), largest);
  }
  Tile exponentials(const Tile& shift, uint64_t c, uint64_t n) {
    return m_tl.exp(m_tl.binary(Binary::Sub, piece(c, n), shift));
  }
  Tile sum_of_exponentials(const Tile& shift) {
    Tile sum;
    pieces([&](uint64_t c, uint64_t n) {
      sum = merged(Binary::Add, sum, m_tl.fold(Fold::Sum, exponentials(shift, c, n)));
    });
    return sum;
  }
  Tile log_sum_exp() {
    const Tile m = shift();
    return m_tl.add(m_tl.unary(Unary::Log, sum_of_exponentials(m)), m);
  }

  void softmax() {
    const Tile m = shift();
    Tile sum = sum_of_exponentials(m);
    const bool log = m_function == Rows::LogSoftmax;
    if (log) sum = m_tl.unary(Unary::Log, sum);
    pieces([&](uint64_t c, uint64_t n) {
      const Tile x = log ? m_tl.binary(Binary::Sub, piece(c, n), m) : exponentials(m, c, n);
      put(c, m_tl.binary(log ? Binary::Sub : Binary::Div, x, sum));
    });
  }

  void normalise() {
    const auto count = static_cast<double>(m_shape.cols);
    Tile mean;
    if (m_function == Rows::LayerNorm) {
      pieces([&](uint64_t c, uint64_t n) { mean = merged(Binary::Add, mean, m_tl.fold(Fold::Sum, piece(c, n))); });
      mean = m_tl.binary(Binary::Div, mean, count);
    }
    const auto centred = [&](uint64_t c, uint64_t n) {
      return mean ? m_tl.binary(Binary::Sub, piece(c, n), mean) : piece(c, n);
    };
    Tile squares;
    pieces([&](uint64_t c, uint64_t n) {
      squares = merged(Binary::Add, squares, m_tl.fold(Fold::Sum, m_tl.unary(Unary::Square, centred(c, n))));
    });
    const Tile scale =
        m_tl.unary(Unary::Rsqrt, m_tl.binary(Binary::Add, m_tl.binary(Binary::Div, squares, count), m_p));
    pieces([&](uint64_t c, uint64_t n) {
      Tile y = m_tl.mul(centred(c, n), scale);
      for (size_t i = 0; i < m_operands.size(); ++i) {
        const Operand& o = m_operands[i];
        const Tile row = as_dtype(m_tl, m_tl.load(o.address + c * item_bytes(o.dtype), n, o.dtype), m_acc);
        y = m_tl.binary(i == 0 ? Binary::Mul : Binary::Add, y, row);
      }
      put(c, y);
    });
  }

  void cumsum() {
    Tile carry;
    pieces([&](uint64_t c, uint64_t n) {
      Tile y = m_tl.scan(piece(c, n));
      if (carry) y = m_tl.add(y, carry);
      carry = m_tl.strided(y, n - 1, m_rows, 1, n, 1);
      put(c, y);
    });
  }

  Tile argument(Fold f) {
    Tile best, index;
    pieces([&](uint64_t c, uint64_t n) {
      const Tile x = piece(c, n);
      const Tile at = m_tl.arg(f, x);
      const Tile value = m_tl.take(x, at);
      const Tile place = m_tl.binary(Binary::Add, m_tl.cast(at, DType::Int32), static_cast<double>(c));
      if (!best) {
        best = value;
        index = place;
        return;
      }
      // A NaN is better than every number, and the first one the best.
      const Tile nan = m_tl.compare(Compare::Ne, value, value), had = m_tl.compare(Compare::Ne, best, best);
      const Tile more = m_tl.compare(f == Fold::Max ? Compare::Gt : Compare::Lt, value, best);
      const Tile better = m_tl.select(had, m_tl.compare(Compare::Ne, had, had), m_tl.select(nan, nan, more));
      best = m_tl.select(better, value, best);
      index = m_tl.select(better, place, index);
    });
    return index;
  }

  // --- elements named by an index
  /// [rows, n] of the rows' elements that columns c.. of the index operand (of `stride` columns) name.
  Tile picked(uint64_t c, uint64_t n, uint64_t stride) {
    const Operand& o = m_operands.at(0);
    const Tile index = m_tl.load(o.address + (m_row * stride + c) * item_bytes(o.dtype), m_rows, n, stride, o.dtype);
    check(index);
    if (m_shape.cols == m_width) return m_tl.take(raw(0, m_shape.cols), index);
    const Tile at = m_tl.cast(index, DType::Int32);
    const Tile none = m_tl.zeros(m_rows, n, DType::Int32);
    Tile out = m_tl.zeros(m_rows, n, m_src_dtype);
    pieces([&](uint64_t begin, uint64_t width) {
      const auto from = static_cast<double>(begin), to = static_cast<double>(begin + width);
      const Tile below = m_tl.compare(Compare::Lt, at, from);
      const Tile outside = m_tl.select(below, below, m_tl.compare(Compare::Ge, at, to));
      const Tile local = m_tl.select(outside, none, m_tl.binary(Binary::Sub, at, from));
      out = m_tl.select(outside, out, m_tl.take(raw(begin, width), local));
    });
    return out;
  }
  void gather() {
    const uint64_t width = std::min(m_shape.out_cols, tile_elements(m_src_dtype, DType::Int64));
    for (uint64_t c = 0; c < m_shape.out_cols; c += width) {
      const uint64_t n = std::min(width, m_shape.out_cols - c);
      put(c, picked(c, n, m_shape.out_cols));
    }
  }
  void check(const Tile& index) const {
    if (!m_tl.functional()) return;
    for (uint64_t i = 0; i < index.size(); ++i) {
      const double v = load_element(index.dtype(), index.data(), i);
      if (v >= 0 && v < static_cast<double>(m_shape.cols)) continue;
      throw std::out_of_range(fmt::format("index {} is none of 0..{}", v, static_cast<int64_t>(m_shape.cols) - 1));
    }
  }

  tl::Tl& m_tl;
  Rows m_function{};
  double m_p = 0;
  Addr m_src = 0, m_dst = 0;
  DType m_src_dtype = DType::Float32, m_dst_dtype = DType::Float32, m_acc = DType::Float32;
  Shape m_shape;
  std::vector<Operand> m_operands;
  uint64_t m_width = 1, m_height = 1;
  uint64_t m_row = 0, m_rows = 0;
  Tile m_only;
};

}  // namespace

void rows_kernel(tl::Tl& tl, const tl::Args& args) {
  RowFunction(tl, args).run();
}

void triangle_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  const bool upper = in.u64() != 0;
  const int64_t diagonal = in.i64();
  const double fill = in.f64();
  const DType t = in.dtype();
  const Addr src = in.u64(), dst = in.u64();
  const uint64_t rows = in.u64(), cols = in.u64(), matrix_rows = in.u64(), first = in.u64();
  if (cols == 0) return;
  const uint64_t height = std::max<uint64_t>(1, tile_elements(t) / cols);
  for (uint64_t r = 0; r < rows;) {
    const uint64_t in_matrix = (first + r) % matrix_rows;
    const uint64_t n = std::min({height, rows - r, matrix_rows - in_matrix});
    const Addr at = r * cols * item_bytes(t);
    const Tile x = tl.load(src + at, n, cols, cols, t);
    tl.store(dst + at, tl.triangle(x, upper, static_cast<int64_t>(in_matrix), diagonal, fill));
    r += n;
  }
}

void lookup_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  const DType t = in.dtype(), index_dtype = in.dtype();
  const uint64_t width = in.u64();
  const Addr indices = in.u64();
  const uint64_t n = in.u64();
  const Addr dst = in.u64();
  const uint64_t table_rows = in.u64();
  struct Run {
    uint64_t begin, rows;
    Addr address;
  };
  std::vector<Run> runs(in.u64());
  uint64_t row = 0;
  for (Run& r : runs) {
    r.begin = row;
    r.rows = in.u64();
    r.address = in.u64();
    row += r.rows;
  }
  const uint64_t bytes = width * item_bytes(t);
  if (bytes == 0) return;
  const uint64_t step = tile_elements(index_dtype);
  for (uint64_t at = 0; at < n; at += step) {
    const uint64_t m = std::min(step, n - at);
    const Tile index = tl.load(indices + at * item_bytes(index_dtype), m, index_dtype);
    for (uint64_t i = 0; i < m; ++i) {
      // Without data every row is as good as another.
      const double v = tl.functional() ? load_element(index_dtype, index.data(), i)
                                       : static_cast<double>((at + i) % std::max<uint64_t>(1, table_rows));
      if (!(v >= 0 && v < static_cast<double>(table_rows))) {
        throw std::out_of_range(fmt::format("index {} is none of 0..{}", v, static_cast<int64_t>(table_rows) - 1));
      }
      const auto wanted = static_cast<uint64_t>(v);
      const auto run =
          std::upper_bound(runs.begin(), runs.end(), wanted, [](uint64_t w, const Run& r) { return w < r.begin; }) - 1;
      tl::Move move;  // rows stream from wherever they lie; the kernel's end waits for them
      move.local = run->address + (wanted - run->begin) * bytes;
      move.store = dst + (at + i) * bytes;
      move.count = width;
      move.dtype = t;
      tl.submit(move);
    }
  }
}

}  // namespace ahbm::kernels
