// Operators that move elements and change none: each result is made of boxes of the inputs.
#include <algorithm>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {
namespace {

size_t dim_of(const Call& call) {
  return static_cast<size_t>(call.args.dim.value_or(0));
}

/// The input's dimensions in the order of the result's.
Dims order_of(const Call& call) {
  if (call.args.dims) return *call.args.dims;
  Dims order;
  for (size_t d = call.in(0).shape().size(); d-- > 0;) order.push_back(static_cast<int64_t>(d));
  return order;
}

Tensor copied(const Call& call, const Tensor& t, size_t output, const std::vector<Box>& boxes) {
  Tensor out = make(call.context, call.outputs[output].shape, call.outputs[output].dtype, call.policy);
  copy_boxes(call.context, out, t, boxes);
  return out;
}

/// A box of the whole result whose dimensions are those of the input but `dim`, from `begin` on.
Box part(const Tensor& in, const Shape& out, size_t dim, int64_t begin, int64_t step) {
  Box b{to_dims(out), Dims(out.size(), 0), Dims(in.shape().size(), 0), {}, Dims(out.size(), 1)};
  const bool dropped = out.size() < in.shape().size();
  for (size_t d = 0; d < out.size(); ++d) b.src_dim.push_back(static_cast<int>(dropped && d >= dim ? d + 1 : d));
  b.src_begin[dim] = begin;
  if (!dropped) b.src_step[dim] = step;
  return b;
}

std::vector<Tensor> parts(const Call& call) {
  std::vector<Tensor> out;
  const size_t dim = dim_of(call);
  int64_t at = call.op == Op::Slice ? call.args.start : (call.op == Op::Select ? call.args.index : 0);
  const int64_t step = call.op == Op::Slice ? call.args.step : 1;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Shape& shape = call.outputs[i].shape;
    out.push_back(copied(call, call.in(0), i, {part(call.in(0), shape, dim, at, step)}));
    at += call.op == Op::Unbind ? 1 : static_cast<int64_t>(shape.size() > dim ? shape[dim] : 1);
  }
  return out;
}

Tensor joined(const Call& call) {
  Tensor out = make(call.context, call.out().shape, call.out().dtype, call.policy);
  const size_t dim = dim_of(call);
  int64_t at = 0;
  for (const Tensor& t : call.inputs) {
    const Dims in = to_dims(t.shape());
    Box b = box(in, Dims(in.size(), 0), Dims(in.size(), 0));
    if (call.op == Op::Stack) {
      b.extent.insert(b.extent.begin() + static_cast<std::ptrdiff_t>(dim), 1);
      b.dst_begin.push_back(0);
      b.src_step.push_back(1);
      b.src_dim.insert(b.src_dim.begin() + static_cast<std::ptrdiff_t>(dim), -1);
      for (size_t d = dim + 1; d < b.src_dim.size(); ++d) b.src_dim[d] = static_cast<int>(d) - 1;
    }
    b.dst_begin[dim] = at;
    at += b.extent[dim];
    copy_boxes(call.context, out, t, {b});
  }
  return out;
}

}  // namespace

std::vector<Tensor> run_structure(const Call& call) {
  const Tensor& in = call.in(0);
  switch (call.op) {
    case Op::Identity:
      return {in};
    case Op::Clone: {
      const Dims shape = to_dims(in.shape());
      return {copied(call, in, 0, {box(shape, Dims(shape.size(), 0), Dims(shape.size(), 0))})};
    }
    case Op::T:
    case Op::Transpose:
    case Op::Permute: {
      const Dims order = order_of(call);
      if (std::is_sorted(order.begin(), order.end())) return {relayout(call.context, in, call.policy)};
      return {permuted(call.context, in, order, call.policy, call.out().dtype)};
    }
    case Op::Squeeze:
    case Op::Unsqueeze:
    case Op::View:
    case Op::Reshape:
      return {reshaped(call.context, in, call.out().shape, call.policy)};
    case Op::Expand:
      return {broadcast(call.context, in, call.out().shape, call.policy, call.out().dtype)};
    case Op::Cat:
    case Op::Stack:
      return {joined(call)};
    default:
      return parts(call);
  }
}

}  // namespace ahbm::runtime::ops
