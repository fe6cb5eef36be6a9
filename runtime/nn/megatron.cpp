#include "runtime/nn/megatron.h"

#include <fmt/format.h>

#include "runtime/ops/functions.h"

namespace ahbm::nn {

namespace ops = runtime::ops;

TensorParallelGroup tensor_parallel_group(const dtensor::DeviceMesh& mesh, bool sequence_parallel) {
  TensorParallelGroup out;
  out.context = &mesh.context();
  out.group = mesh.get_group();
  out.rank = mesh.get_local_rank();
  out.size = mesh.size();
  out.sequence_parallel = sequence_parallel;
  return out;
}

Tensor all_reduced(const TensorParallelGroup& tp, const Tensor& t) {
  if (tp.size > 1) tp.context->distributed.all_reduce(t, ReduceOp::Sum, tp.group);
  return t;
}

namespace {

Tensor first(const Tensor& t, size_t dim, uint64_t extent) {
  if (t.shape()[dim] == extent) return t;
  return runtime::slice(t, static_cast<int64_t>(dim), 0, static_cast<int64_t>(extent));
}

Tensor padded(const TensorParallelGroup& tp, const Tensor& t, size_t dim, uint64_t extent) {
  return t.shape()[dim] == extent ? t : ops::pad(*tp.context, t, dim, extent);
}

Tensor with_extent(const TensorParallelGroup& tp, const Tensor& like, size_t dim, uint64_t extent) {
  Shape shape = like.shape();
  shape[dim] = extent;
  return tp.context->empty(shape, like.dtype(), like.policy());
}

}  // namespace

Tensor gathered(const TensorParallelGroup& tp, const Tensor& part, size_t dim, uint64_t extent) {
  if (tp.size == 1) return part;
  const uint64_t chunk = ceil_div(extent, tp.size);
  const Tensor out = with_extent(tp, part, dim, chunk * tp.size);
  tp.context->distributed.all_gather_into_tensor(out, padded(tp, part, dim, chunk), tp.group, false,
                                                 static_cast<int64_t>(dim));
  return first(out, dim, extent);
}

Tensor reduce_scattered(const TensorParallelGroup& tp, const Tensor& t, size_t dim) {
  if (tp.size == 1) return t;
  const uint64_t extent = t.shape()[dim];
  const uint64_t chunk = ceil_div(extent, tp.size);
  const Tensor out = with_extent(tp, t, dim, chunk);
  tp.context->distributed.reduce_scatter_tensor(out, padded(tp, t, dim, chunk * tp.size), ReduceOp::Sum, tp.group,
                                                false, static_cast<int64_t>(dim));
  return first(out, dim, tp.part(extent).count);
}

// --- ColumnParallelLinear

ColumnParallelLinear::ColumnParallelLinear(const Builder& at, const TensorParallelGroup& tp, uint64_t in, uint64_t out,
                                           bool bias, bool gather_output)
    : m_tp(tp),
      m_out(out),
      m_gather(gather_output),
      m_weight(at.parameter("weight", {out, in}, linear_init(in), Cut{0, tp.part(out)})) {
  add_parameter("weight", m_weight);
  if (!bias) return;
  m_bias = at.parameter("bias", {out}, kBiasInit, Cut{0, tp.part(out)});
  add_parameter("bias", m_bias);
}

Value ColumnParallelLinear::forward(const Values& inputs) {
  const Value own = linear(inputs.at(0), m_weight, m_bias);
  if (!m_gather) return own;
  return gathered(m_tp, own.tensor(), own.tensor().shape().size() - 1, m_out);
}

// --- RowParallelLinear

RowParallelLinear::RowParallelLinear(const Builder& at, const TensorParallelGroup& tp, uint64_t in, uint64_t out,
                                     bool bias)
    : m_tp(tp), m_weight(at.parameter("weight", {out, in}, linear_init(in), Cut{1, tp.part(in)})) {
  add_parameter("weight", m_weight);
  if (!bias) return;
  m_bias = at.parameter("bias", {out}, kBiasInit);
  add_parameter("bias", m_bias);
}

Value RowParallelLinear::forward(const Values& inputs) {
  const Tensor products = linear(inputs.at(0), m_weight).tensor();
  const Value sum = m_tp.sequence_parallel ? reduce_scattered(m_tp, products, 1) : all_reduced(m_tp, products);
  return m_bias.defined() ? add(sum, m_bias) : sum;
}

// --- VocabParallelEmbedding

VocabParallelEmbedding::VocabParallelEmbedding(const Builder& at, const TensorParallelGroup& tp, uint64_t rows,
                                               uint64_t width, size_t sequence_dim)
    : m_tp(tp),
      m_rows(tp.part(rows)),
      m_sequence_dim(sequence_dim),
      m_weight(at.parameter("weight", {rows, width}, kTableInit, Cut{0, tp.part(rows)})) {
  add_parameter("weight", m_weight);
}

Value VocabParallelEmbedding::forward(const Values& inputs) {
  Context& context = *m_tp.context;
  const Tensor& indices = inputs.at(0).tensor();
  Tensor own;
  if (m_rows.empty()) {
    Shape shape = indices.shape();
    shape.push_back(m_weight.tensor().shape()[1]);
    own = ops::filled(context, shape, 0, m_weight.dtype(), m_weight.tensor().policy());
  } else {
    const ops::MaskedIndices masked = ops::mask_indices(context, indices, m_rows);
    own = embedding(m_weight, masked.indices).tensor();
    ops::zero_masked(context, own, masked.mask);
  }
  return m_tp.sequence_parallel ? reduce_scattered(m_tp, own, m_sequence_dim) : all_reduced(m_tp, own);
}

// --- loss

Tensor vocab_parallel_cross_entropy(const TensorParallelGroup& tp, const Tensor& logits, const Tensor& target,
                                    uint64_t classes) {
  Context& context = *tp.context;
  const Range own = tp.part(classes);
  const Tensor rows = runtime::reshape(logits, {-1, static_cast<int64_t>(own.count)});
  const Tensor wanted = runtime::reshape(target, {-1, 1});
  const auto reduce = [&](const Tensor& t, ReduceOp op) {
    if (tp.size > 1) context.distributed.all_reduce(t, op, tp.group);
  };
  const Tensor peak = runtime::max(rows, dtensor::Dims{1}, true);
  reduce(peak, ReduceOp::Max);
  const Tensor shifted = rows - peak;
  const Tensor total = runtime::sum(runtime::exp(shifted), dtensor::Dims{1}, true);
  reduce(total, ReduceOp::Sum);
  Tensor mine;
  if (own.empty()) {
    mine = ops::filled(context, wanted.shape(), 0, logits.dtype(), logits.policy());
  } else {
    const ops::MaskedIndices masked = ops::mask_indices(context, wanted, own);
    mine = runtime::gather(shifted, 1, masked.indices);
    ops::zero_masked(context, mine, masked.mask);
  }
  reduce(mine, ReduceOp::Sum);
  return runtime::mean(runtime::log(total) - mine);
}

// --- factory

LayerFactory::Made MegatronFactory::column(const Builder& at, uint64_t in, uint64_t out, bool bias) const {
  return std::make_unique<ColumnParallelLinear>(at, m_tp, in, out, bias);
}

LayerFactory::Made MegatronFactory::row(const Builder& at, uint64_t in, uint64_t out, bool bias) const {
  return std::make_unique<RowParallelLinear>(at, m_tp, in, out, bias);
}

LayerFactory::Made MegatronFactory::key_value(const Builder& at, uint64_t in, uint64_t heads, uint64_t width,
                                              bool bias) const {
  if (heads % m_tp.size == 0) return column(at, in, heads * width, bias);
  return LayerFactory::key_value(at, in, heads, width, bias);
}

LayerFactory::Made MegatronFactory::table(const Builder& at, uint64_t rows, uint64_t width, size_t sequence_dim) const {
  return std::make_unique<VocabParallelEmbedding>(at, m_tp, rows, width, sequence_dim);
}

LayerFactory::Made MegatronFactory::head(const Builder& at, uint64_t in, uint64_t out) const {
  return std::make_unique<ColumnParallelLinear>(at, m_tp, in, out, false, m_gather_logits);
}

void MegatronFactory::enter(Module& module) const {
  if (!m_tp.sequence_parallel) return;
  module.add_pre_hook([tp = m_tp, length = m_length](Values& inputs) {
    inputs.at(0) = gathered(tp, inputs.at(0).tensor(), 1, length);
  });
}

Range MegatronFactory::heads(uint64_t all) const {
  if (all % m_tp.size != 0) {
    throw std::invalid_argument(fmt::format("{} attention heads on {} ranks: expected a multiple", all, m_tp.size));
  }
  return m_tp.part(all);
}

}  // namespace ahbm::nn
