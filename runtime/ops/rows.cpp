// Operators of whole rows: the dimension they look along is brought to the end, so that every PE has rows of its own.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {
namespace {

using kernels::Rows;

/// A tensor as rows: [kept..., n...], lying by rows, none of which is cut.
struct RowForm {
  Tensor tensor;
  Shape kept;  ///< dimensions in front, of the tensor as it lies
  uint64_t n = 1;
  Dims order;      ///< of the original dimensions; empty: as they were
  Shape permuted;  ///< the shape in that order
};

bool identity_order(const Dims& order) {
  return std::is_sorted(order.begin(), order.end());
}

/// Rows worth to be spread when the first dimension leaves most PEs without any.
bool worth_spreading(Context& context, const Tensor& t, const Shape& kept) {
  constexpr uint64_t kElements = 1 << 15;
  const DPPolicy p = t.policy();
  if (p.cube == CubePolicy::Replicate || p.pe == PePolicy::Replicate || kept.size() < 2) return false;
  const uint64_t pes = uint64_t{context.config().cubes()} * context.config().pes;
  return t.elements() >= kElements && kept.front() * 2 <= std::min(pes, layout::element_count(kept));
}

RowForm rows_of(Context& context, const Tensor& t, const Dims& dims) {
  RowForm f{t, {}, 1, {}, {}};
  const Shape& shape = t.shape();
  const Dims order = kept_first(shape.size(), dims);
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t extent = shape[static_cast<size_t>(order[i])];
    f.permuted.push_back(extent);
    if (i < shape.size() - dims.size()) {
      f.kept.push_back(extent);
    } else {
      f.n *= extent;
    }
  }
  if (!identity_order(order)) {
    f.order = order;
    f.tensor = permuted(context, t, order, by_rows(t.policy()), t.dtype());
  }
  if (f.kept.empty()) {
    f.kept = {1};
    f.tensor = reshaped(context, f.tensor, {1, f.n}, by_rows(t.policy()));
  } else if (worth_spreading(context, f.tensor, f.kept)) {
    f.kept = {layout::element_count(f.kept)};
    f.tensor = reshaped(context, f.tensor, {f.kept.front(), f.n}, rows_over_all());
  } else {
    f.tensor = lying_by_rows(context, f.tensor, t.dtype());
  }
  return f;
}

/// A result of the rows' shape back to the order of the original.
Tensor restored(const Call& call, const RowForm& f, const Tensor& y, Shape permuted_shape) {
  if (f.order.empty()) return reshaped(call.context, y, call.out().shape, call.policy);
  const Tensor whole = reshaped(call.context, y, permuted_shape, y.policy());
  Dims inverse(f.order.size(), 0);
  for (size_t i = 0; i < f.order.size(); ++i) inverse[static_cast<size_t>(f.order[i])] = static_cast<int64_t>(i);
  return permuted(call.context, whole, inverse, call.policy, call.out().dtype);
}

struct RowOperand {
  Tensor tensor;
  bool per_row = false;  ///< cut like the rows; otherwise all of it is read
};

/// One result of `cols` columns for every row; of shape [kept..., cols], or [kept...] for one column.
Tensor launch_rows(Context& context, Rows function, double p, const RowForm& f, uint64_t cols, DType dtype,
                   std::vector<RowOperand> operands, bool column) {
  Shape shape = f.kept;
  if (!column) shape.push_back(cols);
  Tensor out = make(context, shape, dtype, f.tensor.policy());
  const Placed from(context, f.tensor), to(context, out);
  std::vector<Placed> placed;
  for (RowOperand& o : operands) {
    if (!o.per_row) o.tensor = whole_for(context, o.tensor, to);
    placed.emplace_back(context, o.tensor);
  }
  KernelLaunch launch(context, "rows");
  for (const layout::Shard& s : to.layout().shards()) {
    if (s.elements == 0) continue;
    const uint64_t rows = s.elements / (column ? 1 : cols);
    std::vector<uint64_t>& args = launch.on(to.sip(), s.cube, s.pe);
    args = {static_cast<uint64_t>(function),
            tl::pack_f64(p),
            from.own(s.cube, s.pe).address,
            word(f.tensor.dtype()),
            to.own(s.cube, s.pe).address,
            word(dtype),
            rows,
            f.n,
            column ? 1 : cols,
            operands.size()};
    for (size_t i = 0; i < operands.size(); ++i) {
      const Region r = operands[i].per_row ? placed[i].own(s.cube, s.pe) : placed[i].blocks(s.cube, s.pe).front();
      args.insert(args.end(), {r.address, word(operands[i].tensor.dtype())});
    }
  }
  launch.reads(f.tensor, false);
  for (const RowOperand& o : operands) launch.reads(o.tensor, !o.per_row);
  launch.writes(out, true);
  launch.run();
  return out;
}

double epsilon(const Call& call) {
  if (call.args.value > 0) return call.args.value;
  if (call.op == Op::LayerNorm) return 1e-5;
  switch (call.in(0).dtype()) {
    case DType::Float16:
      return 0x1p-10;
    case DType::BFloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

Rows function_of(Op op) {
  switch (op) {
    case Op::Softmax:
      return Rows::Softmax;
    case Op::LogSoftmax:
      return Rows::LogSoftmax;
    case Op::LogSumExp:
      return Rows::LogSumExp;
    case Op::Cumsum:
      return Rows::Cumsum;
    case Op::ArgMax:
      return Rows::ArgMax;
    case Op::ArgMin:
      return Rows::ArgMin;
    case Op::LayerNorm:
      return Rows::LayerNorm;
    case Op::RmsNorm:
      return Rows::RmsNorm;
    default:
      break;
  }
  refuse(op, "is no operator of rows");
}

Dims dims_of(const Call& call) {
  const auto ndim = static_cast<int64_t>(call.in(0).shape().size());
  Dims dims;
  if (ndim == 0) return dims;
  if (call.op == Op::LayerNorm || call.op == Op::RmsNorm) {
    for (int64_t d = ndim - call.args.normalized_dims; d < ndim; ++d) dims.push_back(d);
  } else if (call.args.dim) {
    dims.push_back(*call.args.dim);
  } else if (call.args.dims) {
    dims = *call.args.dims;
  } else {
    for (int64_t d = 0; d < ndim; ++d) dims.push_back(d);
  }
  return dims;
}

void require_floating(const Call& call) {
  if (!is_floating(call.in(0).dtype())) {
    refuse(call.op, fmt::format("on {}: expected a floating type; cast first", to_string(call.in(0).dtype())));
  }
}

void require_index(Op op, const Tensor& index) {
  if (index.dtype() == DType::Int64 || index.dtype() == DType::Int32) return;
  refuse(op, fmt::format("indices of {}: expected int64 or int32", to_string(index.dtype())));
}

}  // namespace

Tensor run_rows(const Call& call) {
  const bool argument = call.op == Op::ArgMax || call.op == Op::ArgMin;
  if (!argument && call.op != Op::Cumsum) require_floating(call);
  if (call.in(0).elements() == 0) return make(call.context, call.out().shape, call.out().dtype, call.policy);
  const RowForm f = rows_of(call.context, call.in(0), dims_of(call));
  const Rows function = function_of(call.op);
  if (argument || call.op == Op::LogSumExp) {
    const Tensor y = launch_rows(call.context, function, 0, f, 1, call.out().dtype, {}, true);
    return reshaped(call.context, y, call.out().shape, call.policy);
  }
  std::vector<RowOperand> operands;
  for (size_t i = 1; i < call.inputs.size(); ++i) operands.push_back({call.in(i), false});
  const Tensor y =
      launch_rows(call.context, function, epsilon(call), f, f.n, call.out().dtype, std::move(operands), false);
  return restored(call, f, y, f.permuted);
}

Tensor run_loss(const Call& call) {
  require_floating(call);
  if (call.inputs.size() < 2) {
    throw std::invalid_argument(fmt::format("{}: 1 tensor, expected logits and a target", dtensor::to_string(call.op)));
  }
  const Tensor& target = call.in(1);
  require_index(call.op, target);
  const Tensor& logits = call.in(0);
  const int64_t dim = call.args.dim.value_or(logits.shape().size() == 1 ? 0 : 1);
  Tensor losses = make(call.context, target.shape(), DType::Float32, target.policy());
  if (logits.elements() != 0) {
    const RowForm f = rows_of(call.context, logits, {dim});
    const Tensor of_row = reshaped(call.context, target, f.kept, f.tensor.policy());
    losses = launch_rows(call.context, Rows::NegLogLikely, 0, f, 1, DType::Float32, {{of_row, true}}, true);
    losses = reshaped(call.context, losses, target.shape(), call.policy);
  }
  if (call.args.reduction == dtensor::LossReduction::None) {
    return brought(call.context, losses, call.policy, call.out().dtype);
  }
  const Op op = call.args.reduction == dtensor::LossReduction::Sum ? Op::Sum : Op::Mean;
  return brought(call.context, apply(call, op, {}, {losses}, {{}, DType::Float32}), call.policy, call.out().dtype);
}

Tensor run_gather(const Call& call) {
  const Tensor& x = call.in(0);
  const Tensor& index = call.in(1);
  require_index(call.op, index);
  if (index.elements() == 0) return make(call.context, call.out().shape, call.out().dtype, call.policy);
  if (x.shape().empty()) {
    return reshaped(call.context, relayout(call.context, x, call.policy), call.out().shape, call.policy);
  }
  const auto dim = static_cast<size_t>(call.args.dim.value_or(0));
  // Both with the dimension at the end and cut alike; of x only what the index reaches.
  const DPPolicy policy = by_rows(index.policy());
  const auto at_end = [&](const Tensor& t) {
    Shape extent = index.shape();
    extent[dim] = t.shape()[dim];
    const Dims order = kept_first(extent.size(), {static_cast<int64_t>(dim)});
    if (extent.size() == 1) return reshaped(call.context, t, {1, extent[0]}, policy);
    if (extent == t.shape() && identity_order(order)) return brought(call.context, t, policy, t.dtype());
    Box b;
    b.dst_begin = b.src_begin = Dims(extent.size(), 0);
    b.src_step = Dims(extent.size(), 1);
    for (const int64_t d : order) {
      b.extent.push_back(static_cast<int64_t>(extent[static_cast<size_t>(d)]));
      b.src_dim.push_back(static_cast<int>(d));
    }
    Tensor out = make(call.context, to_shape(b.extent), t.dtype(), policy);
    copy_boxes(call.context, out, t, {b});
    return out;
  };
  RowForm f{at_end(x), {}, x.shape()[dim], {}, {}};
  const Tensor indices = at_end(index);
  f.kept = indices.shape();
  f.kept.pop_back();
  const Dims order = kept_first(index.shape().size(), {static_cast<int64_t>(dim)});
  if (!identity_order(order)) f.order = order;
  const Tensor y =
      launch_rows(call.context, Rows::Gather, 0, f, indices.shape().back(), call.out().dtype, {{indices, true}}, false);
  return restored(call, f, y, indices.shape());
}

Tensor run_triangle(const Call& call) {
  const Tensor x = lying_by_rows(call.context, call.in(0), call.in(0).dtype());
  Tensor out = make(call.context, x.shape(), x.dtype(), x.policy());
  if (out.elements() == 0) return out;
  const Placed from = Placed::flat(call.context, x), to = Placed::flat(call.context, out);
  const uint64_t cols = x.shape().back(), rows = x.shape()[x.shape().size() - 2];
  KernelLaunch launch(call.context, "triangle");
  for (const layout::Shard& s : to.layout().shards()) {
    if (s.elements == 0) continue;
    const Region r = to.own(s.cube, s.pe);
    launch.on(to.sip(), s.cube, s.pe) = {call.op == Op::Triu ? uint64_t{1} : uint64_t{0},
                                         static_cast<uint64_t>(call.args.index),
                                         tl::pack_f64(call.args.value),
                                         word(x.dtype()),
                                         from.own(s.cube, s.pe).address,
                                         r.address,
                                         s.elements / cols,
                                         cols,
                                         rows,
                                         static_cast<uint64_t>(r.begin[0]) / cols};
  }
  launch.reads(x, false);
  launch.writes(out, true);
  launch.run();
  return relayout(call.context, out, call.policy);
}

namespace {

/// [indices, width] by rows, from a table [rows, width].
Tensor looked_up(const Call& call, const Tensor& table, const Tensor& index, const Shape& shape) {
  const Tensor rows = lying_by_rows(call.context, table, table.dtype());
  const DPPolicy policy = by_rows(call.policy);
  const Tensor indices = relayout(call.context, index, policy);
  Tensor out = make(call.context, shape, table.dtype(), policy);
  const Placed from(call.context, rows), at(call.context, indices), to(call.context, out);
  const uint64_t width = table.shape()[1];
  KernelLaunch launch(call.context, "lookup");
  for (const layout::Shard& s : to.layout().shards()) {
    if (s.elements == 0) continue;
    const std::vector<Region> blocks = from.blocks(s.cube, s.pe);
    std::vector<uint64_t>& args = launch.on(to.sip(), s.cube, s.pe);
    args = {word(table.dtype()),
            word(index.dtype()),
            width,
            at.own(s.cube, s.pe).address,
            s.elements / width,
            to.own(s.cube, s.pe).address,
            table.shape()[0],
            blocks.size()};
    for (const Region& b : blocks) args.insert(args.end(), {static_cast<uint64_t>(b.extent[0]), b.address});
  }
  launch.reads(rows, true);
  launch.reads(indices, false);
  launch.writes(out, true);
  launch.run();
  return out;
}

}  // namespace

Tensor run_lookup(const Call& call) {
  const Tensor& table = call.in(0);
  const Tensor& index = call.in(1);
  require_index(call.op, index);
  if (layout::element_count(call.out().shape) == 0) {
    return make(call.context, call.out().shape, call.out().dtype, call.policy);
  }
  if (call.op == Op::Embedding) {
    const Tensor indices = index.shape().empty() ? reshaped(call.context, index, {1}, by_rows(call.policy)) : index;
    Shape shape = indices.shape();
    shape.push_back(table.shape()[1]);
    return reshaped(call.context, looked_up(call, table, indices, shape), call.out().shape, call.policy);
  }
  // The dimension in front makes a table of what is left.
  if (table.shape().empty()) return reshaped(call.context, table, call.out().shape, call.policy);
  const auto dim = static_cast<size_t>(call.args.dim.value_or(0));
  Dims order{static_cast<int64_t>(dim)}, inverse;
  for (size_t d = 0; d < table.shape().size(); ++d) {
    if (d != dim) order.push_back(static_cast<int64_t>(d));
    inverse.push_back(static_cast<int64_t>(d < dim ? d + 1 : (d == dim ? 0 : d)));
  }
  const Tensor front = dim == 0 ? table : permuted(call.context, table, order, by_rows(table.policy()), table.dtype());
  const uint64_t width = layout::element_count(call.out().shape) / index.elements();
  const Tensor flat = reshaped(call.context, front, {table.shape()[dim], width}, by_rows(front.policy()));
  const Tensor found = looked_up(call, flat, index, {index.elements(), width});
  Shape shape = front.shape();
  shape[0] = index.elements();
  if (dim == 0) return reshaped(call.context, found, shape, call.policy);
  return permuted(call.context, reshaped(call.context, found, shape, found.policy()), inverse, call.policy,
                  table.dtype());
}

Tensor run_equal(const Call& call) {
  const Tensor& a = call.in(0);
  const Tensor& b = call.inputs.at(1);
  if (a.shape() != b.shape()) return filled(call.context, {}, 0, DType::Bool, call.policy);
  const Tensor same = apply(call, Op::Eq, {}, {a, b}, {a.shape(), DType::Bool});
  return apply(call, Op::All, {}, {same}, {{}, DType::Bool});
}

}  // namespace ahbm::runtime::ops
