#include "runtime/nn/value.h"

#include <algorithm>

#include "runtime/ops/functions.h"

namespace ahbm::nn {

using dtensor::Op;
using dtensor::OpArgs;

bool Value::defined() const {
  return is_distributed() ? std::get<DTensor>(m_value).defined() : std::get<Tensor>(m_value).deployed();
}

const Tensor& Value::tensor() const {
  if (is_distributed())
    throw std::invalid_argument("a distributed tensor " + distributed().to_string() + ": expected a tensor of one SIP");
  return std::get<Tensor>(m_value);
}

const DTensor& Value::distributed() const {
  if (!is_distributed()) throw std::invalid_argument("a tensor of one SIP: expected a distributed one");
  return std::get<DTensor>(m_value);
}

const Tensor& Value::to_local() const {
  return is_distributed() ? distributed().to_local() : tensor();
}

Dims Value::shape() const {
  return is_distributed() ? distributed().shape() : dtensor::to_dims(tensor().shape());
}

int64_t Value::size(int64_t dim) const {
  const Dims sizes = shape();
  return sizes[static_cast<size_t>(dtensor::normalize_dim(dim, sizes.size()))];
}

DType Value::dtype() const {
  return is_distributed() ? distributed().dtype() : tensor().dtype();
}

runtime::Context& Value::context() const {
  return is_distributed() ? distributed().device_mesh().context() : tensor().handle()->context();
}

dtensor::Operand Value::operand() const {
  if (is_distributed()) return distributed();
  return tensor();
}

Value apply(Op op, const Values& inputs, const OpArgs& args) {
  const bool distributed = std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.is_distributed(); });
  dtensor::Operands operands;
  std::vector<Tensor> tensors;
  for (const Value& v : inputs) {
    if (!v.defined()) continue;
    if (distributed) {
      operands.push_back(v.operand());
    } else {
      tensors.push_back(v.tensor());
    }
  }
  if (distributed) return dtensor::dispatch(op, operands, args).front();
  return runtime::ops::call(op, tensors, args).front();
}

namespace {

OpArgs with_sizes(const Dims& sizes) {
  OpArgs args;
  args.sizes = sizes;
  return args;
}

OpArgs along(int64_t dim) {
  OpArgs args;
  args.dim = dim;
  return args;
}

}  // namespace

Value add(const Value& a, const Value& b) {
  return apply(Op::Add, {a, b});
}

Value gelu(const Value& x) {
  return apply(Op::Gelu, {x});
}

Value linear(const Value& x, const Value& weight, const Value& bias) {
  return apply(Op::Linear, {x, weight, bias});
}

Value embedding(const Value& table, const Value& indices) {
  return apply(Op::Embedding, {table, indices});
}

Value layer_norm(const Value& x, const Value& weight, const Value& bias) {
  return apply(Op::LayerNorm, {x, weight, bias});
}

Value rms_norm(const Value& x, const Value& weight) {
  return apply(Op::RmsNorm, {x, weight});
}

Value view(const Value& x, const Dims& sizes) {
  return apply(Op::View, {x}, with_sizes(sizes));
}

Value reshape(const Value& x, const Dims& sizes) {
  return apply(Op::Reshape, {x}, with_sizes(sizes));
}

Value transpose(const Value& x, int64_t dim0, int64_t dim1) {
  OpArgs args;
  args.dims = Dims{dim0, dim1};
  return apply(Op::Transpose, {x}, args);
}

Value slice(const Value& x, int64_t dim, int64_t start, int64_t end) {
  OpArgs args = along(dim);
  args.start = start;
  args.end = end;
  return apply(Op::Slice, {x}, args);
}

Value repeat_interleave(const Value& x, int64_t dim, int64_t times) {
  const auto at = static_cast<std::ptrdiff_t>(dtensor::normalize_dim(dim, x.shape().size()));
  Dims wide = x.shape();
  wide.insert(wide.begin() + at + 1, times);
  Dims merged = x.shape();
  merged[static_cast<size_t>(at)] *= times;
  return reshape(apply(Op::Expand, {apply(Op::Unsqueeze, {x}, along(at + 1))}, with_sizes(wide)), merged);
}

Value scaled_dot_product_attention(const Value& query, const Value& key, const Value& value, bool causal) {
  OpArgs args;
  args.causal = causal;
  return apply(Op::Sdpa, {query, key, value}, args);
}

Value cross_entropy(const Value& logits, const Value& target, bool parallel, std::optional<int64_t> ignore_index) {
  const Value rows = reshape(logits, {-1, logits.size(-1)});
  Value wanted = reshape(target, {-1});
  const auto mean = dtensor::LossReduction::Mean;
  if (!rows.is_distributed()) return runtime::cross_entropy(rows.tensor(), wanted.tensor(), mean, ignore_index);
  if (!wanted.is_distributed()) wanted = dtensor::from_local(wanted.tensor(), rows.distributed().device_mesh());
  const auto loss = parallel ? dtensor::cross_entropy_loss_parallel : dtensor::cross_entropy;
  return loss(rows.distributed(), wanted.distributed(), mean, ignore_index);
}

}  // namespace ahbm::nn
