// Pointwise operators: the result's PEs compute their own shards from operands that lie like the result. What is
// broadcast is read as one row, one column or one number where the layout allows it, and repeated in memory elsewhere.
#include <fmt/format.h>

#include <cmath>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {
namespace {

using kernels::Elementwise;
using tl::Binary;
using tl::Unary;

Elementwise function_of(Op op) {
  switch (op) {
    case Op::Neg:
      return Elementwise::Unary + Unary::Neg;
    case Op::Relu:
      return Elementwise::Unary + Unary::Relu;
    case Op::Abs:
      return Elementwise::Unary + Unary::Abs;
    case Op::Exp:
      return Elementwise::Unary + Unary::Exp;
    case Op::Log:
      return Elementwise::Unary + Unary::Log;
    case Op::Sqrt:
      return Elementwise::Unary + Unary::Sqrt;
    case Op::Rsqrt:
      return Elementwise::Unary + Unary::Rsqrt;
    case Op::Reciprocal:
      return Elementwise::Unary + Unary::Reciprocal;
    case Op::Tanh:
      return Elementwise::Unary + Unary::Tanh;
    case Op::Sigmoid:
      return Elementwise::Unary + Unary::Sigmoid;
    case Op::Silu:
      return Elementwise::Unary + Unary::Silu;
    case Op::Gelu:
      return Elementwise::Unary + Unary::Gelu;
    case Op::Square:
      return Elementwise::Unary + Unary::Square;
    case Op::Sin:
      return Elementwise::Unary + Unary::Sin;
    case Op::Cos:
      return Elementwise::Unary + Unary::Cos;
    case Op::Sign:
      return Elementwise::Unary + Unary::Sign;
    case Op::LogicalNot:
      return Elementwise::CompareValue + tl::Compare::Eq;
    case Op::AddScalar:
      return Elementwise::BinaryValue + Binary::Add;
    case Op::SubScalar:
      return Elementwise::BinaryValue + Binary::Sub;
    case Op::RsubScalar:
      return Elementwise::ValueBinary + Binary::Sub;
    case Op::MulScalar:
      return Elementwise::BinaryValue + Binary::Mul;
    case Op::DivScalar:
      return Elementwise::BinaryValue + Binary::Div;
    case Op::RdivScalar:
      return Elementwise::ValueBinary + Binary::Div;
    case Op::PowScalar:
      return Elementwise::BinaryValue + Binary::Pow;
    case Op::MaximumScalar:
      return Elementwise::BinaryValue + Binary::Max;
    case Op::MinimumScalar:
      return Elementwise::BinaryValue + Binary::Min;
    case Op::EqScalar:
      return Elementwise::CompareValue + tl::Compare::Eq;
    case Op::NeScalar:
      return Elementwise::CompareValue + tl::Compare::Ne;
    case Op::LtScalar:
      return Elementwise::CompareValue + tl::Compare::Lt;
    case Op::LeScalar:
      return Elementwise::CompareValue + tl::Compare::Le;
    case Op::GtScalar:
      return Elementwise::CompareValue + tl::Compare::Gt;
    case Op::GeScalar:
      return Elementwise::CompareValue + tl::Compare::Ge;
    case Op::MaskedFill:
      return Elementwise::MaskedFill;
    case Op::Add:
      return Elementwise::Binary + Binary::Add;
    case Op::Sub:
      return Elementwise::Binary + Binary::Sub;
    case Op::Mul:
      return Elementwise::Binary + Binary::Mul;
    case Op::Div:
      return Elementwise::Binary + Binary::Div;
    case Op::Pow:
      return Elementwise::Binary + Binary::Pow;
    case Op::Maximum:
      return Elementwise::Binary + Binary::Max;
    case Op::Minimum:
      return Elementwise::Binary + Binary::Min;
    case Op::Eq:
      return Elementwise::Compare + tl::Compare::Eq;
    case Op::Ne:
      return Elementwise::Compare + tl::Compare::Ne;
    case Op::Lt:
      return Elementwise::Compare + tl::Compare::Lt;
    case Op::Le:
      return Elementwise::Compare + tl::Compare::Le;
    case Op::Gt:
      return Elementwise::Compare + tl::Compare::Gt;
    case Op::Ge:
      return Elementwise::Compare + tl::Compare::Ge;
    case Op::LogicalAnd:
      return Elementwise::LogicalAnd;
    case Op::LogicalOr:
      return Elementwise::LogicalOr;
    case Op::Where:
      return Elementwise::Where;
    default:
      break;
  }
  refuse(op, "is no pointwise operator");
}

bool integers_do(Op op) {
  switch (op) {
    case Op::Exp:
    case Op::Log:
    case Op::Sqrt:
    case Op::Rsqrt:
    case Op::Reciprocal:
    case Op::Tanh:
    case Op::Sigmoid:
    case Op::Silu:
    case Op::Gelu:
    case Op::Sin:
    case Op::Cos:
    case Op::Div:
    case Op::DivScalar:
    case Op::RdivScalar:
      return false;
    default:
      return true;
  }
}

bool takes_value(Op op) {
  return (op >= Op::AddScalar && op <= Op::MinimumScalar);
}
bool compares_value(Op op) {
  return op >= Op::EqScalar && op <= Op::GeScalar;
}
bool takes_every_dtype(Op op) {
  return (op >= Op::Eq && op <= Op::LogicalOr) || op == Op::LogicalNot || op == Op::Where || op == Op::MaskedFill;
}

/// The dtype in which the operator is computed. \throws NotImplementedError where there is none
DType compute_dtype(const Call& call) {
  const Op op = call.op;
  if (op == Op::Where) return call.out().dtype;
  DType t = call.in(0).dtype();
  if (op == Op::MaskedFill) return t;
  for (const Tensor& in : call.inputs) t = dtensor::promote(t, in.dtype());
  const double limit = t == DType::Int64 || t == DType::Bool ? 0x1p53 : 0x1p31;
  const bool whole = std::trunc(call.args.value) == call.args.value && std::fabs(call.args.value) < limit;
  if (compares_value(op)) {
    if (t == DType::Bool) return whole ? DType::Int32 : DType::Float32;
    return is_floating(t) || whole ? t : DType::Float32;
  }
  if (takes_every_dtype(op)) return t;
  if (!is_floating(t) && !call.args.inplace) t = dtensor::promote(t, call.out().dtype);
  if (is_floating(call.out().dtype) && !is_floating(t)) t = call.out().dtype;
  if (is_floating(t)) {
    if (!is_floating(call.out().dtype)) {
      refuse(op, fmt::format("a result of {} into {}: expected a floating type; cast the operands", to_string(t),
                             to_string(call.out().dtype)));
    }
    return t;
  }
  if (!integers_do(op)) refuse(op, fmt::format("on {}: expected a floating type; cast first", to_string(t)));
  if (takes_value(op) && !whole) {
    refuse(op, fmt::format("{} on {}: expected a whole number; cast first", call.args.value, to_string(t)));
  }
  if (op == Op::PowScalar && call.args.value < 0) {
    refuse(op, fmt::format("{} on {}: expected a power of at least 0; cast first", call.args.value, to_string(t)));
  }
  if (t != DType::Bool) return t;
  if (op == Op::Sub || op == Op::Neg || op == Op::SubScalar || op == Op::RsubScalar) {
    refuse(op, "on bool: expected a number type; use logical_not or cast first");
  }
  return DType::Int32;  // what is not 0 then is true: a sum of bools is an "or", a product an "and"
}

bool same_place(const Tensor& t, const Tensor& out) {
  DPPolicy p = t.policy();
  p.sips = out.policy().sips;
  return p == out.policy();
}

struct Source {
  Tensor tensor;
  std::unique_ptr<Placed> placed;
  uint64_t row_stride = 0, col_stride = 0;  ///< 1 in row_stride and 1 in col_stride: as the result
  bool full() const { return row_stride == 1 && col_stride == 1; }
  bool column() const { return row_stride == 1 && col_stride == 0; }
};

class Pointwise {
 public:
  Pointwise(Context& context, Tensor out, bool fresh)
      : m_context(context), m_out(std::move(out)), m_placed(context, m_out), m_fresh(fresh) {}

  void add(const Tensor& t, DType compute) {
    Source s{t, nullptr, 1, 1};
    const bool aliased = !m_fresh && t.handle() == m_out.handle();
    if (t.elements() == 1 && m_out.elements() != 1 && !aliased) {
      s.row_stride = s.col_stride = 0;
    } else if (t.shape() == m_out.shape()) {
      if (!same_place(t, m_out)) s.tensor = brought(m_context, t, m_out.policy(), compute);
    } else if (aliased || !(as_row(s) || as_column(s))) {
      s = {broadcast(m_context, t, m_out.shape(), m_out.policy(), compute), nullptr, 1, 1};
    }
    s.placed = std::make_unique<Placed>(m_context, s.tensor);
    m_sources.push_back(std::move(s));
  }

  void launch(Elementwise f, DType compute, double value, double value2 = 0) {
    KernelLaunch launch(m_context, "elementwise");
    bool elsewhere = false;
    for (const layout::Shard& shard : m_placed.layout().shards()) {
      if (shard.elements == 0) continue;
      const uint64_t cols = m_cols == 0 ? shard.elements : m_cols;
      std::vector<uint64_t>& args = launch.on(m_placed.sip(), shard.cube, shard.pe);
      args = {static_cast<uint64_t>(f), word(compute),         m_placed.own(shard.cube, shard.pe).address,
              word(m_out.dtype()),      shard.elements / cols, cols,
              tl::pack_f64(value),      tl::pack_f64(value2),  m_sources.size()};
      for (const Source& s : m_sources) {
        const Placed& p = *s.placed;
        const Region from =
            s.full() || s.column() ? p.own(shard.cube, shard.pe) : p.blocks(shard.cube, shard.pe).front();
        const uint64_t bytes = static_cast<uint64_t>(count(from.extent)) * item_bytes(s.tensor.dtype());
        elsewhere = elsewhere || !p.is_own(shard.cube, shard.pe, from.address, bytes);
        args.insert(args.end(), {from.address, word(s.tensor.dtype()), s.full() ? cols : s.row_stride, s.col_stride});
      }
    }
    for (const Source& s : m_sources) launch.reads(s.tensor, elsewhere && !s.full());
    launch.writes(m_out, m_fresh);
    launch.run();
  }

 private:
  /// The result seen as rows x cols must have the same cols for every operand.
  bool fix_cols(uint64_t cols) {
    if (m_cols != 0 && m_cols != cols) return false;
    m_cols = cols;
    return true;
  }

  /// The last dimensions of the result, repeated along the others: every PE reads all of it from its own cube.
  bool as_row(Source& s) {
    const Shape& out = m_out.shape();
    Shape in = s.tensor.shape();
    while (!in.empty() && in.front() == 1) in.erase(in.begin());
    if (!m_placed.by_rows() || in.size() >= out.size() || !std::equal(in.rbegin(), in.rend(), out.rbegin()))
      return false;
    if (!fix_cols(s.tensor.elements())) return false;
    s.tensor = whole_for(m_context, s.tensor, m_placed);
    s.row_stride = 0;
    return true;
  }

  /// A number for each of the result's leading positions: cut like the result.
  bool as_column(Source& s) {
    const Shape& out = m_out.shape();
    const Shape& in = s.tensor.shape();
    if (!m_placed.by_rows() || in.size() != out.size() || in.front() != out.front()) return false;
    size_t d = in.size();
    uint64_t cols = 1;
    for (; d > 0 && in[d - 1] == 1; --d) cols *= out[d - 1];
    if (!std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(d), out.begin()) || !fix_cols(cols)) {
      return false;
    }
    if (!same_place(s.tensor, m_out)) s.tensor = brought(m_context, s.tensor, m_out.policy(), s.tensor.dtype());
    s.col_stride = 0;
    return true;
  }

  Context& m_context;
  Tensor m_out;
  Placed m_placed;
  bool m_fresh;
  uint64_t m_cols = 0;  ///< 0: no operand cares
  std::vector<Source> m_sources;
};

Tensor fill(const Call& call, double v) {
  const Tensor& t = call.in(0);
  if (t.elements() == 0) return t;
  t.handle()->wait_readers();
  KernelLaunch launch(call.context, "fill");
  const Placed placed(call.context, t);
  for (const layout::Shard& s : placed.layout().shards()) {
    if (s.elements == 0) continue;
    launch.on(placed.sip(), s.cube, s.pe) = {placed.own(s.cube, s.pe).address, s.elements, tl::pack_f64(v),
                                             word(t.dtype())};
  }
  launch.writes(t, false);
  launch.run();
  return t;
}

Tensor copy_into(const Call& call) {
  const Tensor& to = call.in(0);
  Tensor from = call.in(1);
  if (to.handle() == from.handle()) {
    if (to.shape() == from.shape()) return to;
    from = broadcast(call.context, from, to.shape(), to.policy(), to.dtype());
    if (from.handle() == to.handle()) return to;
  }
  copy_boxes(call.context, to, from, {broadcast_box(to.shape(), from.shape())});
  return to;
}

}  // namespace

Tensor run_pointwise(const Call& call) {
  if (call.op == Op::Fill || call.op == Op::Zero) return fill(call, call.op == Op::Zero ? 0 : call.args.value);
  if (call.op == Op::Copy) return copy_into(call);
  if (call.op == Op::Cast) return brought(call.context, call.in(0), call.policy, call.out().dtype);
  const Elementwise f = function_of(call.op);
  const DType compute = compute_dtype(call);
  const bool inplace = call.args.inplace;
  const Tensor out = inplace ? call.in(0) : make(call.context, call.out().shape, call.out().dtype, call.policy);
  if (out.elements() == 0) return out;
  Pointwise work(call.context, out, !inplace);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool mask = (call.op == Op::Where && i == 0) || (call.op == Op::MaskedFill && i == 1);
    work.add(call.in(i), mask ? DType::Bool : compute);
  }
  work.launch(f, compute, call.op == Op::LogicalNot ? 0 : call.args.value);
  return out;
}

MaskedIndices mask_indices(Context& context, const Tensor& indices, const Range& rows) {
  if (indices.dtype() != DType::Int64 && indices.dtype() != DType::Int32) {
    throw NotImplementedError(fmt::format("indices of {}, expected int64 or int32", to_string(indices.dtype())));
  }
  MaskedIndices out{make(context, indices.shape(), indices.dtype(), indices.policy()),
                    make(context, indices.shape(), DType::Bool, indices.policy())};
  if (indices.elements() == 0) return out;
  const auto begin = static_cast<double>(rows.begin), end = static_cast<double>(rows.end());
  for (const auto& [tensor, f] : {std::pair{out.indices, Elementwise::InRange}, {out.mask, Elementwise::NotInRange}}) {
    Pointwise work(context, tensor, true);
    work.add(indices, DType::Int32);
    work.launch(f, DType::Int32, begin, end);
  }
  return out;
}

void zero_masked(Context& context, const Tensor& t, const Tensor& mask) {
  Shape shape = mask.shape();
  if (shape.size() > t.shape().size() || !std::equal(shape.begin(), shape.end(), t.shape().begin())) {
    throw std::invalid_argument(fmt::format("zero_masked: a mask of {} for {}, expected its leading dimensions",
                                            layout::to_string(shape), layout::to_string(t.shape())));
  }
  if (t.elements() == 0) return;
  shape.resize(t.shape().size(), 1);
  Pointwise work(context, t, false);
  work.add(t, t.dtype());
  work.add(reshaped(context, mask, shape, t.policy()), DType::Bool);
  work.launch(Elementwise::MaskedFill, t.dtype(), 0);
}

}  // namespace ahbm::runtime::ops
