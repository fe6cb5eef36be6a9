#include <fmt/format.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/kernels/arguments.h"
#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {
namespace {

using tl::Tile;

struct Operand {
  Addr address = 0;
  DType dtype = DType::Float32;
  uint64_t row_stride = 0, col_stride = 0;
};

/// rows x cols of the operand from (r, c) on, in `dtype`.
Tile fetch(tl::Tl& tl, const Operand& o, uint64_t r, uint64_t c, uint64_t rows, uint64_t cols, DType dtype) {
  const Addr at = o.address + (r * o.row_stride + c * o.col_stride) * item_bytes(o.dtype);
  if (o.row_stride > 1 || (o.row_stride == 1 && o.col_stride == 1)) {
    return as_dtype(tl, tl.load(at, rows, cols, o.row_stride, o.dtype), dtype);
  }
  // Converted before it is repeated.
  const Tile x =
      as_dtype(tl, tl.load(at, o.row_stride == 1 ? rows : 1, o.col_stride == 1 ? cols : 1, 1, o.dtype), dtype);
  return tl.strided(x, 0, rows, cols, o.row_stride == 1 ? 1 : 0, o.col_stride);
}

struct Function {
  Elementwise f;
  double value, value2;

  template <typename E>
  bool is(Elementwise family, E& member) const {
    const auto code = static_cast<uint16_t>(f), base = static_cast<uint16_t>(family);
    if (code < base || code >= base + 0x100) return false;
    member = static_cast<E>(code - base);
    return true;
  }

  Tile operator()(tl::Tl& tl, const std::vector<Tile>& x) const {
    tl::Unary unary{};
    tl::Binary binary{};
    tl::Compare compare{};
    if (f == Elementwise::Copy) return x.at(0);
    if (is(Elementwise::Unary, unary)) return tl.unary(unary, x.at(0));
    if (is(Elementwise::Binary, binary)) return tl.binary(binary, x.at(0), x.at(1));
    if (is(Elementwise::BinaryValue, binary)) return tl.binary(binary, x.at(0), value);
    if (is(Elementwise::ValueBinary, binary)) {
      return tl.binary(binary, tl.full(x.at(0).rows(), x.at(0).cols(), x.at(0).dtype(), value), x.at(0));
    }
    if (is(Elementwise::Compare, compare)) return tl.compare(compare, x.at(0), x.at(1));
    if (is(Elementwise::CompareValue, compare)) return tl.compare(compare, x.at(0), value);
    return choose(tl, x);
  }

  Tile choose(tl::Tl& tl, const std::vector<Tile>& x) const {
    const Tile& a = x.at(0);
    const auto constant = [&](double v) { return tl.full(a.rows(), a.cols(), a.dtype(), v); };
    switch (f) {
      case Elementwise::Where:
        return tl.select(a, x.at(1), x.at(2));
      case Elementwise::MaskedFill:
        return tl.select(x.at(1), constant(value), a);
      case Elementwise::LogicalAnd:
      case Elementwise::LogicalOr: {
        const Tile p = tl.compare(tl::Compare::Ne, a, 0.0), q = tl.compare(tl::Compare::Ne, x.at(1), 0.0);
        return f == Elementwise::LogicalAnd ? tl.select(p, q, p) : tl.select(p, p, q);
      }
      case Elementwise::InRange:
      case Elementwise::NotInRange: {
        const Tile low = tl.compare(tl::Compare::Lt, a, value), high = tl.compare(tl::Compare::Ge, a, value2);
        const Tile outside = tl.select(low, low, high);
        if (f == Elementwise::NotInRange) return outside;
        return tl.select(outside, constant(0), tl.binary(tl::Binary::Sub, a, value));
      }
      default:
        break;
    }
    throw std::invalid_argument(fmt::format("elementwise: no function has the number {}", static_cast<int>(f)));
  }

  /// The dtype of an operand as the function takes it.
  DType operand_dtype(size_t i, DType compute) const {
    if ((f == Elementwise::Where && i == 0) || (f == Elementwise::MaskedFill && i == 1)) return DType::Bool;
    return compute;
  }
};

}  // namespace

void elementwise_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  const auto f = in.as<Elementwise>();
  const DType compute = in.dtype();
  const Addr dst = in.u64();
  const DType dst_dtype = in.dtype();
  uint64_t rows = in.u64(), cols = in.u64();
  const double value = in.f64(), value2 = in.f64();
  const Function function{f, value, value2};
  std::vector<Operand> operands(in.u64());
  DType widest = item_bytes(dst_dtype) > item_bytes(compute) ? dst_dtype : compute;
  bool flat = true;
  for (Operand& o : operands) {
    o.address = in.u64();
    o.dtype = in.dtype();
    o.row_stride = in.u64();
    o.col_stride = in.u64();
    if (item_bytes(o.dtype) > item_bytes(widest)) widest = o.dtype;
    flat = flat && ((o.row_stride == cols && o.col_stride == 1) || (o.row_stride == 0 && o.col_stride == 0));
  }
  if (rows == 0 || cols == 0) return;
  if (flat) {  // one long row
    for (Operand& o : operands) o.row_stride *= rows;
    cols *= rows;
    rows = 1;
  }
  const uint64_t tile = tile_elements(widest);
  const uint64_t width = std::min(cols, tile), height = std::min(rows, std::max<uint64_t>(1, tile / width));
  const auto load = [&](uint64_t r, uint64_t c) {
    std::vector<Tile> x;
    for (size_t i = 0; i < operands.size(); ++i) {
      x.push_back(fetch(tl, operands[i], r, c, std::min(height, rows - r), std::min(width, cols - c),
                        function.operand_dtype(i, compute)));
    }
    return x;
  };
  // The next tiles stream in while this one is computed.
  std::vector<Tile> next = load(0, 0);
  for (uint64_t r = 0; r < rows; r += height) {
    for (uint64_t c = 0; c < cols; c += width) {
      const std::vector<Tile> x = std::exchange(next, {});
      const bool more_cols = c + width < cols, more_rows = r + height < rows;
      if (more_cols || more_rows) next = load(more_cols ? r : r + height, more_cols ? c + width : 0);
      tl.store(dst + (r * cols + c) * item_bytes(dst_dtype), as_dtype(tl, function(tl, x), dst_dtype), cols);
    }
  }
}

}  // namespace ahbm::kernels
