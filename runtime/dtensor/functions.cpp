#include "runtime/dtensor/functions.h"

#include <fmt/format.h>

#include "runtime/ops/ignore_index.h"

namespace ahbm::dtensor {

namespace {

DTensor one(Op op, const Operands& inputs, const OpArgs& args = {}) {
  return dispatch(op, inputs, args).front();
}

OpArgs at_dim(int64_t dim) {
  OpArgs args;
  args.dim = dim;
  return args;
}
OpArgs with_value(double value) {
  OpArgs args;
  args.value = value;
  return args;
}
OpArgs with_sizes(const Dims& sizes) {
  OpArgs args;
  args.sizes = sizes;
  return args;
}
OpArgs over(const Dims& dims, bool keepdim) {
  OpArgs args;
  if (!dims.empty()) args.dims = dims;
  args.keepdim = keepdim;
  return args;
}

/// Forms of a binary operator: on tensors, with a number on the right, and with a number on the left.
struct Binary {
  Op tensors;
  std::optional<Op> number_right;
  std::optional<Op> number_left;
};

DTensor binary(const Binary& form, const Operand& a, const Operand& b, bool inplace = false) {
  OpArgs args;
  args.inplace = inplace;
  if (a.number() == nullptr && b.number() == nullptr) return one(form.tensors, {a, b}, args);
  const Operand& tensor = a.number() == nullptr ? a : b;
  const std::optional<Op> op = a.number() == nullptr ? form.number_right : form.number_left;
  if (tensor.number() != nullptr || !op) {
    throw std::invalid_argument(fmt::format("{}: {}: expected {}", to_string(form.tensors),
                                            tensor.number() != nullptr ? "two numbers" : "a number as operand",
                                            tensor.number() != nullptr ? "at least one tensor" : "tensors"));
  }
  args.value = a.number() == nullptr ? *b.number() : *a.number();
  return one(*op, {tensor}, args);
}

constexpr Binary kAdd{Op::Add, Op::AddScalar, Op::AddScalar};
constexpr Binary kSub{Op::Sub, Op::SubScalar, Op::RsubScalar};
constexpr Binary kMul{Op::Mul, Op::MulScalar, Op::MulScalar};
constexpr Binary kDiv{Op::Div, Op::DivScalar, Op::RdivScalar};
constexpr Binary kMaximum{Op::Maximum, Op::MaximumScalar, Op::MaximumScalar};
constexpr Binary kMinimum{Op::Minimum, Op::MinimumScalar, Op::MinimumScalar};

const DTensor& into(const Binary& form, const DTensor& x, const Operand& b) {
  binary(form, x, b, true);
  return x;
}

/// With optional tensors at the end.
Operands operands(std::initializer_list<DTensor> tensors) {
  Operands out;
  for (const DTensor& t : tensors) {
    if (t.defined()) out.emplace_back(t);
  }
  return out;
}

}  // namespace

DTensor neg(const DTensor& x) {
  return one(Op::Neg, {x});
}
DTensor clone(const DTensor& x) {
  return one(Op::Clone, {x});
}
DTensor cast(const DTensor& x, DType dtype) {
  OpArgs args;
  args.dtype = dtype;
  return one(Op::Cast, {x}, args);
}
DTensor relu(const DTensor& x) {
  return one(Op::Relu, {x});
}
DTensor abs(const DTensor& x) {
  return one(Op::Abs, {x});
}
DTensor exp(const DTensor& x) {
  return one(Op::Exp, {x});
}
DTensor log(const DTensor& x) {
  return one(Op::Log, {x});
}
DTensor sqrt(const DTensor& x) {
  return one(Op::Sqrt, {x});
}
DTensor rsqrt(const DTensor& x) {
  return one(Op::Rsqrt, {x});
}
DTensor reciprocal(const DTensor& x) {
  return one(Op::Reciprocal, {x});
}
DTensor tanh(const DTensor& x) {
  return one(Op::Tanh, {x});
}
DTensor sigmoid(const DTensor& x) {
  return one(Op::Sigmoid, {x});
}
DTensor silu(const DTensor& x) {
  return one(Op::Silu, {x});
}
DTensor gelu(const DTensor& x) {
  return one(Op::Gelu, {x});
}
DTensor square(const DTensor& x) {
  return one(Op::Square, {x});
}
DTensor sin(const DTensor& x) {
  return one(Op::Sin, {x});
}
DTensor cos(const DTensor& x) {
  return one(Op::Cos, {x});
}
DTensor sign(const DTensor& x) {
  return one(Op::Sign, {x});
}
DTensor logical_not(const DTensor& x) {
  return one(Op::LogicalNot, {x});
}

DTensor add(const Operand& a, const Operand& b) {
  return binary(kAdd, a, b);
}
DTensor sub(const Operand& a, const Operand& b) {
  return binary(kSub, a, b);
}
DTensor mul(const Operand& a, const Operand& b) {
  return binary(kMul, a, b);
}
DTensor div(const Operand& a, const Operand& b) {
  return binary(kDiv, a, b);
}
DTensor pow(const DTensor& a, const Operand& b) {
  return binary({Op::Pow, Op::PowScalar, std::nullopt}, a, b);
}
DTensor maximum(const Operand& a, const Operand& b) {
  return binary(kMaximum, a, b);
}
DTensor minimum(const Operand& a, const Operand& b) {
  return binary(kMinimum, a, b);
}
DTensor eq(const Operand& a, const Operand& b) {
  return binary({Op::Eq, Op::EqScalar, Op::EqScalar}, a, b);
}
DTensor ne(const Operand& a, const Operand& b) {
  return binary({Op::Ne, Op::NeScalar, Op::NeScalar}, a, b);
}
DTensor lt(const Operand& a, const Operand& b) {
  return binary({Op::Lt, Op::LtScalar, Op::GtScalar}, a, b);
}
DTensor le(const Operand& a, const Operand& b) {
  return binary({Op::Le, Op::LeScalar, Op::GeScalar}, a, b);
}
DTensor gt(const Operand& a, const Operand& b) {
  return binary({Op::Gt, Op::GtScalar, Op::LtScalar}, a, b);
}
DTensor ge(const Operand& a, const Operand& b) {
  return binary({Op::Ge, Op::GeScalar, Op::LeScalar}, a, b);
}
DTensor logical_and(const Operand& a, const Operand& b) {
  return one(Op::LogicalAnd, {a, b});
}
DTensor logical_or(const Operand& a, const Operand& b) {
  return one(Op::LogicalOr, {a, b});
}
DTensor where(const Operand& condition, const Operand& a, const Operand& b) {
  return one(Op::Where, {condition, a, b});
}
DTensor masked_fill(const DTensor& x, const Operand& mask, double value) {
  return one(Op::MaskedFill, {x, mask}, with_value(value));
}

DTensor zeros_like(const DTensor& x) {
  return one(Op::ZerosLike, {x});
}
DTensor ones_like(const DTensor& x) {
  return one(Op::OnesLike, {x});
}
DTensor full_like(const DTensor& x, double value) {
  return one(Op::FullLike, {x}, with_value(value));
}
DTensor empty_like(const DTensor& x) {
  return one(Op::EmptyLike, {x});
}

const DTensor& inplace(Op op, const DTensor& x) {
  if (op > Op::LogicalNot) {
    throw std::invalid_argument(fmt::format("inplace {}: expected a pointwise operator of one tensor", to_string(op)));
  }
  OpArgs args;
  args.inplace = true;
  one(op, {x}, args);
  return x;
}
const DTensor& add_(const DTensor& x, const Operand& b) {
  return into(kAdd, x, b);
}
const DTensor& sub_(const DTensor& x, const Operand& b) {
  return into(kSub, x, b);
}
const DTensor& mul_(const DTensor& x, const Operand& b) {
  return into(kMul, x, b);
}
const DTensor& div_(const DTensor& x, const Operand& b) {
  return into(kDiv, x, b);
}
const DTensor& maximum_(const DTensor& x, const Operand& b) {
  return into(kMaximum, x, b);
}
const DTensor& minimum_(const DTensor& x, const Operand& b) {
  return into(kMinimum, x, b);
}
const DTensor& fill_(const DTensor& x, double value) {
  OpArgs args = with_value(value);
  args.inplace = true;
  one(Op::Fill, {x}, args);
  return x;
}
const DTensor& zero_(const DTensor& x) {
  OpArgs args;
  args.inplace = true;
  one(Op::Zero, {x}, args);
  return x;
}
const DTensor& copy_(const DTensor& x, const Operand& from) {
  OpArgs args;
  args.inplace = true;
  one(Op::Copy, {x, from}, args);
  return x;
}

DTensor sum(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Sum, {x}, over(dims, keepdim));
}
DTensor mean(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Mean, {x}, over(dims, keepdim));
}
DTensor max(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Max, {x}, over(dims, keepdim));
}
DTensor min(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Min, {x}, over(dims, keepdim));
}
DTensor prod(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Prod, {x}, over(dims, keepdim));
}
DTensor all(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::All, {x}, over(dims, keepdim));
}
DTensor any(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Any, {x}, over(dims, keepdim));
}
DTensor norm(const DTensor& x, double p, const Dims& dims, bool keepdim) {
  OpArgs args = over(dims, keepdim);
  args.p = p;
  return one(Op::Norm, {x}, args);
}
DTensor std_dev(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Std, {x}, over(dims, keepdim));
}
DTensor var(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::Var, {x}, over(dims, keepdim));
}
DTensor logsumexp(const DTensor& x, const Dims& dims, bool keepdim) {
  return one(Op::LogSumExp, {x}, over(dims, keepdim));
}
DTensor argmax(const DTensor& x, std::optional<int64_t> dim, bool keepdim) {
  return one(Op::ArgMax, {x}, over(dim ? Dims{*dim} : Dims{}, keepdim));
}
DTensor argmin(const DTensor& x, std::optional<int64_t> dim, bool keepdim) {
  return one(Op::ArgMin, {x}, over(dim ? Dims{*dim} : Dims{}, keepdim));
}
DTensor cumsum(const DTensor& x, int64_t dim) {
  return one(Op::Cumsum, {x}, at_dim(dim));
}

DTensor softmax(const DTensor& x, int64_t dim) {
  return one(Op::Softmax, {x}, at_dim(dim));
}
DTensor log_softmax(const DTensor& x, int64_t dim) {
  return one(Op::LogSoftmax, {x}, at_dim(dim));
}
DTensor layer_norm(const DTensor& x, int64_t normalized_dims, const DTensor& weight, const DTensor& bias) {
  if (bias.defined() && !weight.defined()) throw std::invalid_argument("layer_norm: a bias takes a weight");
  OpArgs args;
  args.normalized_dims = normalized_dims;
  return one(Op::LayerNorm, operands({x, weight, bias}), args);
}
DTensor rms_norm(const DTensor& x, int64_t normalized_dims, const DTensor& weight) {
  OpArgs args;
  args.normalized_dims = normalized_dims;
  return one(Op::RmsNorm, operands({x, weight}), args);
}
namespace {

DTensor loss(Op op, const DTensor& logits, const Operand& target, LossReduction reduction,
             const std::optional<int64_t>& ignore_index) {
  OpArgs args;
  args.reduction = ignore_index ? LossReduction::None : reduction;
  if (!ignore_index) return one(op, {logits, target}, args);
  decision_of(op, {logits, target}, args);  // what is wrong is said before anything is sent
  if (target.distributed() == nullptr) {
    throw MixedTensor(fmt::format("{}: a plain target with ignore_index: distribute it", to_string(op)));
  }
  const DTensor& wanted = *target.distributed();
  return runtime::ops::ignoring(wanted, eq(wanted, static_cast<double>(*ignore_index)), reduction,
                                [&](const DTensor& inside) {
                                  return one(op, {logits, inside}, args);
                                });
}

}  // namespace

DTensor cross_entropy(const DTensor& logits, const Operand& target, LossReduction reduction,
                      std::optional<int64_t> ignore_index) {
  return loss(Op::CrossEntropy, logits, target, reduction, ignore_index);
}
DTensor cross_entropy_loss_parallel(const DTensor& logits, const Operand& target, LossReduction reduction,
                                    std::optional<int64_t> ignore_index) {
  return loss(Op::CrossEntropyLossParallel, logits, target, reduction, ignore_index);
}

DTensor mm(const DTensor& a, const DTensor& b) {
  return one(Op::Mm, {a, b});
}
DTensor bmm(const DTensor& a, const DTensor& b) {
  return one(Op::Bmm, {a, b});
}
DTensor dot(const DTensor& a, const DTensor& b) {
  return one(Op::Dot, {a, b});
}
DTensor matmul(const DTensor& a, const DTensor& b) {
  return one(Op::Matmul, {a, b});
}
DTensor addmm(const DTensor& bias, const DTensor& a, const DTensor& b) {
  return one(Op::Addmm, {bias, a, b});
}
DTensor baddbmm(const DTensor& bias, const DTensor& a, const DTensor& b) {
  return one(Op::Baddbmm, {bias, a, b});
}
DTensor linear(const DTensor& x, const DTensor& weight, const DTensor& bias) {
  return one(Op::Linear, operands({x, weight, bias}));
}
DTensor scaled_dot_product_attention(const DTensor& query, const DTensor& key, const DTensor& value, bool causal,
                                     const DTensor& mask) {
  OpArgs args;
  args.causal = causal;
  return one(Op::Sdpa, operands({query, key, value, mask}), args);
}

DTensor t(const DTensor& x) {
  return one(Op::T, {x});
}
DTensor transpose(const DTensor& x, int64_t dim0, int64_t dim1) {
  OpArgs args;
  args.dims = Dims{dim0, dim1};
  return one(Op::Transpose, {x}, args);
}
DTensor permute(const DTensor& x, const Dims& dims) {
  OpArgs args;
  args.dims = dims;
  return one(Op::Permute, {x}, args);
}
DTensor squeeze(const DTensor& x, std::optional<int64_t> dim) {
  OpArgs args;
  args.dim = dim;
  return one(Op::Squeeze, {x}, args);
}
DTensor unsqueeze(const DTensor& x, int64_t dim) {
  return one(Op::Unsqueeze, {x}, at_dim(dim));
}
DTensor expand(const DTensor& x, const Dims& sizes) {
  return one(Op::Expand, {x}, with_sizes(sizes));
}
DTensor view(const DTensor& x, const Dims& sizes) {
  return one(Op::View, {x}, with_sizes(sizes));
}
DTensor reshape(const DTensor& x, const Dims& sizes) {
  return one(Op::Reshape, {x}, with_sizes(sizes));
}
DTensor cat(const std::vector<DTensor>& xs, int64_t dim) {
  return one(Op::Cat, Operands(xs.begin(), xs.end()), at_dim(dim));
}
DTensor stack(const std::vector<DTensor>& xs, int64_t dim) {
  return one(Op::Stack, Operands(xs.begin(), xs.end()), at_dim(dim));
}
std::vector<DTensor> split(const DTensor& x, int64_t size, int64_t dim) {
  return split(x, Dims{size}, dim);
}
std::vector<DTensor> split(const DTensor& x, const Dims& sizes, int64_t dim) {
  OpArgs args = with_sizes(sizes);
  args.dim = dim;
  return dispatch(Op::Split, {x}, args);
}
std::vector<DTensor> chunk(const DTensor& x, int64_t chunks, int64_t dim) {
  OpArgs args = at_dim(dim);
  args.index = chunks;
  return dispatch(Op::Chunk, {x}, args);
}
DTensor slice(const DTensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  OpArgs args = at_dim(dim);
  args.start = start;
  args.end = end;
  args.step = step;
  return one(Op::Slice, {x}, args);
}
DTensor select(const DTensor& x, int64_t dim, int64_t index) {
  OpArgs args = at_dim(dim);
  args.index = index;
  return one(Op::Select, {x}, args);
}
std::vector<DTensor> unbind(const DTensor& x, int64_t dim) {
  return dispatch(Op::Unbind, {x}, at_dim(dim));
}
DTensor gather(const DTensor& x, int64_t dim, const Operand& index) {
  return one(Op::Gather, {x, index}, at_dim(dim));
}
DTensor index_select(const DTensor& x, int64_t dim, const Operand& index) {
  return one(Op::IndexSelect, {x, index}, at_dim(dim));
}
DTensor triu(const DTensor& x, int64_t diagonal) {
  OpArgs args;
  args.index = diagonal;
  return one(Op::Triu, {x}, args);
}
DTensor tril(const DTensor& x, int64_t diagonal) {
  OpArgs args;
  args.index = diagonal;
  return one(Op::Tril, {x}, args);
}

DTensor embedding(const DTensor& weight, const Operand& indices) {
  return one(Op::Embedding, {weight, indices});
}

}  // namespace ahbm::dtensor
