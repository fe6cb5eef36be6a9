#include "runtime/ops/functions.h"

#include "runtime/ops/ignore_index.h"
#include "runtime/ops/internal.h"

namespace ahbm::runtime {

using dtensor::Op;
using dtensor::OpArgs;

namespace ops {

std::vector<Tensor> call(Op op, const std::vector<Tensor>& inputs, const OpArgs& args,
                         const std::optional<DPPolicy>& policy) {
  if (inputs.empty()) {
    throw std::invalid_argument(std::string(dtensor::to_string(op)) + ": no tensors, expected at least one");
  }
  // The rules are those of a mesh of this rank alone.
  static const dtensor::MeshPtr kAlone = dtensor::MeshLayout::create({1});
  static const dtensor::RingCostModel kCost;
  std::vector<dtensor::DTensorSpec> specs;
  specs.reserve(inputs.size());
  dtensor::OpCall wanted{op, {}, args};
  for (const Tensor& t : inputs) {
    t.checked_handle();
    specs.emplace_back(kAlone, dtensor::Placements{dtensor::Replicate{}}, to_dims(t.shape()), t.dtype());
    wanted.inputs.emplace_back(specs.back());
  }
  const dtensor::OpDecision decision = dtensor::decide(wanted, kCost);
  if (decision.constant) {
    return {filled(inputs.front().handle()->context(), {}, *decision.constant ? 1 : 0, DType::Bool, rows_over_all())};
  }
  std::vector<OpOutput> outputs;
  for (const dtensor::DTensorSpec& spec : decision.outputs) outputs.push_back({to_shape(spec.shape()), spec.dtype()});
  if (op == Op::Equal) outputs.push_back({{}, DType::Bool});
  if (outputs.empty()) return {};
  return execute(inputs.front().handle()->context(), op, decision.args, inputs, outputs, policy);
}

}  // namespace ops

namespace {

Tensor one(Op op, const std::vector<Tensor>& inputs, const OpArgs& args = {}) {
  return ops::call(op, inputs, args).front();
}
Tensor with_value(Op op, const Tensor& a, double value) {
  OpArgs args;
  args.value = value;
  return one(op, {a}, args);
}
const Tensor& in_place(Op op, const Tensor& a, const std::vector<Tensor>& others, double value = 0) {
  OpArgs args;
  args.inplace = true;
  args.value = value;
  std::vector<Tensor> inputs{a};
  inputs.insert(inputs.end(), others.begin(), others.end());
  ops::call(op, inputs, args);
  return a;
}
Tensor reduced(Op op, const Tensor& a, const OptionalDims& dims, bool keepdim, double p = 2) {
  OpArgs args;
  args.dims = dims;
  args.keepdim = keepdim;
  args.p = p;
  return one(op, {a}, args);
}
OpArgs along(int64_t dim) {
  OpArgs args;
  args.dim = dim;
  return args;
}
OpArgs with_sizes(const Sizes& sizes) {
  OpArgs args;
  args.sizes = sizes;
  return args;
}
/// Without the operands that are not deployed.
std::vector<Tensor> given(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) {
    if (t.deployed()) out.push_back(t);
  }
  return out;
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) {
  return one(Op::Add, {a, b});
}
Tensor operator+(const Tensor& a, double b) {
  return with_value(Op::AddScalar, a, b);
}
Tensor operator+(double a, const Tensor& b) {
  return with_value(Op::AddScalar, b, a);
}
const Tensor& operator+=(const Tensor& a, const Tensor& b) {
  return in_place(Op::Add, a, {b});
}
const Tensor& operator+=(const Tensor& a, double b) {
  return in_place(Op::AddScalar, a, {}, b);
}
Tensor operator-(const Tensor& a, const Tensor& b) {
  return one(Op::Sub, {a, b});
}
Tensor operator-(const Tensor& a, double b) {
  return with_value(Op::SubScalar, a, b);
}
Tensor operator-(double a, const Tensor& b) {
  return with_value(Op::RsubScalar, b, a);
}
const Tensor& operator-=(const Tensor& a, const Tensor& b) {
  return in_place(Op::Sub, a, {b});
}
const Tensor& operator-=(const Tensor& a, double b) {
  return in_place(Op::SubScalar, a, {}, b);
}
Tensor operator*(const Tensor& a, const Tensor& b) {
  return one(Op::Mul, {a, b});
}
Tensor operator*(const Tensor& a, double b) {
  return with_value(Op::MulScalar, a, b);
}
Tensor operator*(double a, const Tensor& b) {
  return with_value(Op::MulScalar, b, a);
}
const Tensor& operator*=(const Tensor& a, const Tensor& b) {
  return in_place(Op::Mul, a, {b});
}
const Tensor& operator*=(const Tensor& a, double b) {
  return in_place(Op::MulScalar, a, {}, b);
}
Tensor operator/(const Tensor& a, const Tensor& b) {
  return one(Op::Div, {a, b});
}
Tensor operator/(const Tensor& a, double b) {
  return with_value(Op::DivScalar, a, b);
}
Tensor operator/(double a, const Tensor& b) {
  return with_value(Op::RdivScalar, b, a);
}
const Tensor& operator/=(const Tensor& a, const Tensor& b) {
  return in_place(Op::Div, a, {b});
}
const Tensor& operator/=(const Tensor& a, double b) {
  return in_place(Op::DivScalar, a, {}, b);
}
Tensor operator-(const Tensor& a) {
  return one(Op::Neg, {a});
}
Tensor operator==(const Tensor& a, const Tensor& b) {
  return one(Op::Eq, {a, b});
}
Tensor operator==(const Tensor& a, double b) {
  return with_value(Op::EqScalar, a, b);
}
Tensor operator!=(const Tensor& a, const Tensor& b) {
  return one(Op::Ne, {a, b});
}
Tensor operator!=(const Tensor& a, double b) {
  return with_value(Op::NeScalar, a, b);
}
Tensor operator<(const Tensor& a, const Tensor& b) {
  return one(Op::Lt, {a, b});
}
Tensor operator<(const Tensor& a, double b) {
  return with_value(Op::LtScalar, a, b);
}
Tensor operator<=(const Tensor& a, const Tensor& b) {
  return one(Op::Le, {a, b});
}
Tensor operator<=(const Tensor& a, double b) {
  return with_value(Op::LeScalar, a, b);
}
Tensor operator>(const Tensor& a, const Tensor& b) {
  return one(Op::Gt, {a, b});
}
Tensor operator>(const Tensor& a, double b) {
  return with_value(Op::GtScalar, a, b);
}
Tensor operator>=(const Tensor& a, const Tensor& b) {
  return one(Op::Ge, {a, b});
}
Tensor operator>=(const Tensor& a, double b) {
  return with_value(Op::GeScalar, a, b);
}

Tensor abs(const Tensor& a) {
  return one(Op::Abs, {a});
}

Tensor exp(const Tensor& a) {
  return one(Op::Exp, {a});
}

Tensor log(const Tensor& a) {
  return one(Op::Log, {a});
}

Tensor sqrt(const Tensor& a) {
  return one(Op::Sqrt, {a});
}

Tensor rsqrt(const Tensor& a) {
  return one(Op::Rsqrt, {a});
}

Tensor reciprocal(const Tensor& a) {
  return one(Op::Reciprocal, {a});
}

Tensor sin(const Tensor& a) {
  return one(Op::Sin, {a});
}

Tensor cos(const Tensor& a) {
  return one(Op::Cos, {a});
}

Tensor tanh(const Tensor& a) {
  return one(Op::Tanh, {a});
}

Tensor sigmoid(const Tensor& a) {
  return one(Op::Sigmoid, {a});
}

Tensor relu(const Tensor& a) {
  return one(Op::Relu, {a});
}

Tensor silu(const Tensor& a) {
  return one(Op::Silu, {a});
}

Tensor gelu(const Tensor& a) {
  return one(Op::Gelu, {a});
}

Tensor square(const Tensor& a) {
  return one(Op::Square, {a});
}

Tensor sign(const Tensor& a) {
  return one(Op::Sign, {a});
}

Tensor logical_not(const Tensor& a) {
  return one(Op::LogicalNot, {a});
}

Tensor clone(const Tensor& a) {
  return one(Op::Clone, {a});
}

Tensor zeros_like(const Tensor& a) {
  return one(Op::ZerosLike, {a});
}

Tensor ones_like(const Tensor& a) {
  return one(Op::OnesLike, {a});
}

Tensor empty_like(const Tensor& a) {
  return one(Op::EmptyLike, {a});
}

Tensor triu(const Tensor& a) {
  return one(Op::Triu, {a});
}

Tensor tril(const Tensor& a) {
  return one(Op::Tril, {a});
}

Tensor t(const Tensor& a) {
  return one(Op::T, {a});
}

Tensor pow(const Tensor& a, const Tensor& b) {
  return one(Op::Pow, {a, b});
}
Tensor pow(const Tensor& a, double b) {
  return with_value(Op::PowScalar, a, b);
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  return one(Op::Maximum, {a, b});
}
Tensor maximum(const Tensor& a, double b) {
  return with_value(Op::MaximumScalar, a, b);
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  return one(Op::Minimum, {a, b});
}
Tensor minimum(const Tensor& a, double b) {
  return with_value(Op::MinimumScalar, a, b);
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return one(Op::LogicalAnd, {a, b});
}

Tensor logical_or(const Tensor& a, const Tensor& b) {
  return one(Op::LogicalOr, {a, b});
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  return one(Op::Matmul, {a, b});
}

Tensor mm(const Tensor& a, const Tensor& b) {
  return one(Op::Mm, {a, b});
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  return one(Op::Bmm, {a, b});
}

Tensor dot(const Tensor& a, const Tensor& b) {
  return one(Op::Dot, {a, b});
}

Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  return one(Op::Addmm, {bias, a, b});
}

Tensor baddbmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  return one(Op::Baddbmm, {bias, a, b});
}

Tensor sum(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Sum, a, dims, keepdim);
}

Tensor mean(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Mean, a, dims, keepdim);
}

Tensor max(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Max, a, dims, keepdim);
}

Tensor min(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Min, a, dims, keepdim);
}

Tensor prod(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Prod, a, dims, keepdim);
}

Tensor all(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::All, a, dims, keepdim);
}

Tensor any(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Any, a, dims, keepdim);
}

Tensor var(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Var, a, dims, keepdim);
}

Tensor std(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Std, a, dims, keepdim);
}

Tensor logsumexp(const Tensor& a, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::LogSumExp, a, dims, keepdim);
}

Tensor norm(const Tensor& a, double p, const OptionalDims& dims, bool keepdim) {
  return reduced(Op::Norm, a, dims, keepdim, p);
}

Tensor argmax(const Tensor& a, std::optional<int64_t> dim, bool keepdim) {
  return reduced(Op::ArgMax, a, dim ? OptionalDims(Sizes{*dim}) : OptionalDims(), keepdim);
}

Tensor argmin(const Tensor& a, std::optional<int64_t> dim, bool keepdim) {
  return reduced(Op::ArgMin, a, dim ? OptionalDims(Sizes{*dim}) : OptionalDims(), keepdim);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return one(Op::Where, {condition, a, b});
}

Tensor masked_fill(const Tensor& a, const Tensor& mask, double value) {
  OpArgs args;
  args.value = value;
  return one(Op::MaskedFill, {a, mask}, args);
}

Tensor cast(const Tensor& a, DType dtype) {
  OpArgs args;
  args.dtype = dtype;
  return one(Op::Cast, {a}, args);
}

const Tensor& fill_(const Tensor& a, double value) {
  return in_place(Op::Fill, a, {}, value);
}

const Tensor& zero_(const Tensor& a) {
  return in_place(Op::Zero, a, {});
}

const Tensor& copy_(const Tensor& a, const Tensor& from) {
  return in_place(Op::Copy, a, {from});
}

Tensor full_like(const Tensor& a, double value) {
  return with_value(Op::FullLike, a, value);
}

bool equal(const Tensor& a, const Tensor& b) {
  return one(Op::Equal, {a, b}).to_host_bytes().front() != 0;
}

Tensor layer_norm(const Tensor& a, int64_t dims, const Tensor& weight, const Tensor& bias) {
  if (bias.deployed() && !weight.deployed()) {
    throw std::invalid_argument("layer_norm: a bias without a weight, expected both or a weight alone");
  }
  OpArgs args;
  args.normalized_dims = dims;
  return one(Op::LayerNorm, given({a, weight, bias}), args);
}

Tensor rms_norm(const Tensor& a, int64_t dims, const Tensor& weight) {
  OpArgs args;
  args.normalized_dims = dims;
  return one(Op::RmsNorm, given({a, weight}), args);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, dtensor::LossReduction reduction,
                     std::optional<int64_t> ignore_index) {
  if (ignore_index) {
    return ops::ignoring(target, target == static_cast<double>(*ignore_index), reduction, [&](const Tensor& inside) {
      return cross_entropy(logits, inside, dtensor::LossReduction::None);
    });
  }
  OpArgs args;
  args.reduction = reduction;
  return one(Op::CrossEntropy, {logits, target}, args);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return one(Op::Linear, given({x, weight, bias}));
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    bool causal) {
  OpArgs args;
  args.causal = causal;
  return one(Op::Sdpa, given({q, k, v, mask}), args);
}

Tensor transpose(const Tensor& a, int64_t dim0, int64_t dim1) {
  OpArgs args;
  args.dims = Sizes{dim0, dim1};
  return one(Op::Transpose, {a}, args);
}

Tensor permute(const Tensor& a, const Sizes& dims) {
  OpArgs args;
  args.dims = dims;
  return one(Op::Permute, {a}, args);
}

Tensor squeeze(const Tensor& a, std::optional<int64_t> dim) {
  OpArgs args;
  args.dim = dim;
  return one(Op::Squeeze, {a}, args);
}

Tensor unsqueeze(const Tensor& a, int64_t dim) {
  return one(Op::Unsqueeze, {a}, along(dim));
}

Tensor view(const Tensor& a, const Sizes& sizes) {
  return one(Op::View, {a}, with_sizes(sizes));
}

Tensor reshape(const Tensor& a, const Sizes& sizes) {
  return one(Op::Reshape, {a}, with_sizes(sizes));
}

Tensor expand(const Tensor& a, const Sizes& sizes) {
  return one(Op::Expand, {a}, with_sizes(sizes));
}

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  return one(Op::Cat, tensors, along(dim));
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  return one(Op::Stack, tensors, along(dim));
}

std::vector<Tensor> split(const Tensor& a, int64_t size, int64_t dim) {
  return split(a, Sizes{size}, dim);
}

std::vector<Tensor> split(const Tensor& a, const Sizes& sizes, int64_t dim) {
  OpArgs args = along(dim);
  args.sizes = sizes;
  return ops::call(Op::Split, {a}, args);
}

std::vector<Tensor> chunk(const Tensor& a, int64_t chunks, int64_t dim) {
  OpArgs args = along(dim);
  args.index = chunks;
  return ops::call(Op::Chunk, {a}, args);
}

Tensor slice(const Tensor& a, int64_t dim, int64_t start, int64_t end, int64_t step) {
  OpArgs args = along(dim);
  args.start = start;
  args.end = end;
  args.step = step;
  return one(Op::Slice, {a}, args);
}

Tensor select(const Tensor& a, int64_t dim, int64_t index) {
  OpArgs args = along(dim);
  args.index = index;
  return one(Op::Select, {a}, args);
}

std::vector<Tensor> unbind(const Tensor& a, int64_t dim) {
  return ops::call(Op::Unbind, {a}, along(dim));
}

Tensor cumsum(const Tensor& a, int64_t dim) {
  return one(Op::Cumsum, {a}, along(dim));
}

Tensor softmax(const Tensor& a, int64_t dim) {
  return one(Op::Softmax, {a}, along(dim));
}

Tensor log_softmax(const Tensor& a, int64_t dim) {
  return one(Op::LogSoftmax, {a}, along(dim));
}

Tensor gather(const Tensor& a, int64_t dim, const Tensor& index) {
  return one(Op::Gather, {a, index}, along(dim));
}

Tensor index_select(const Tensor& a, int64_t dim, const Tensor& index) {
  return one(Op::IndexSelect, {a, index}, along(dim));
}

Tensor embedding(const Tensor& table, const Tensor& indices) {
  return one(Op::Embedding, {table, indices});
}

}  // namespace ahbm::runtime
