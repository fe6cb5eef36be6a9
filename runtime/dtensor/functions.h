// Operators on distributed tensors. Each decides how it runs from the operands' specs, redistributes operands where it
// has to, runs the same operator on the local tensors, and wraps the result (`dispatch`). What an operator keeps,
// moves or refuses is documented in docs/dtensor.md; errors are those of runtime/layout/errors.h.
#pragma once

#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "runtime/dtensor/dtensor.h"

namespace ahbm::dtensor {

/// What may stand beside a distributed tensor: another one, a plain tensor (of one element, or under
/// ImplicitReplication), or a number.
class Operand {
 public:
  Operand(const DTensor& t) : m_value(t) {}  // NOLINT(google-explicit-constructor): operands are written as they are
  Operand(const Tensor& t) : m_value(t) {}   // NOLINT(google-explicit-constructor)
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Operand(T number) : m_value(static_cast<double>(number)) {}  // NOLINT(google-explicit-constructor)
  const DTensor* distributed() const { return std::get_if<DTensor>(&m_value); }
  const Tensor* plain() const { return std::get_if<Tensor>(&m_value); }
  const double* number() const { return std::get_if<double>(&m_value); }

 private:
  std::variant<DTensor, Tensor, double> m_value;
};
using Operands = std::vector<Operand>;

/// The way of every operator: decide, redistribute the inputs in order, run locally, wrap. Numbers are in `args`.
/// A rank outside the mesh gets empty results. \throws see errors.h; MeshMismatch, MixedTensor, ShapeMismatch,
///   ImplicitRedistribution for every operator
std::vector<DTensor> dispatch(Op op, const Operands& inputs, const OpArgs& args = {});
/// The decision that dispatch would carry out, for tools that show it.
std::shared_ptr<const OpDecision> decision_of(Op op, const Operands& inputs, const OpArgs& args = {});

// --- pointwise, one tensor
DTensor neg(const DTensor& x);
DTensor clone(const DTensor& x);
DTensor cast(const DTensor& x, DType dtype);
DTensor relu(const DTensor& x);
DTensor abs(const DTensor& x);
DTensor exp(const DTensor& x);
DTensor log(const DTensor& x);
DTensor sqrt(const DTensor& x);
DTensor rsqrt(const DTensor& x);
DTensor reciprocal(const DTensor& x);
DTensor tanh(const DTensor& x);
DTensor sigmoid(const DTensor& x);
DTensor silu(const DTensor& x);
DTensor gelu(const DTensor& x);  ///< by erf
DTensor square(const DTensor& x);
DTensor sin(const DTensor& x);
DTensor cos(const DTensor& x);
DTensor sign(const DTensor& x);
DTensor logical_not(const DTensor& x);

// --- pointwise, with broadcasting; at least one operand is distributed, at most one a number
DTensor add(const Operand& a, const Operand& b);
DTensor sub(const Operand& a, const Operand& b);
DTensor mul(const Operand& a, const Operand& b);
DTensor div(const Operand& a, const Operand& b);
DTensor pow(const DTensor& a, const Operand& b);
DTensor maximum(const Operand& a, const Operand& b);
DTensor minimum(const Operand& a, const Operand& b);
DTensor eq(const Operand& a, const Operand& b);
DTensor ne(const Operand& a, const Operand& b);
DTensor lt(const Operand& a, const Operand& b);
DTensor le(const Operand& a, const Operand& b);
DTensor gt(const Operand& a, const Operand& b);
DTensor ge(const Operand& a, const Operand& b);
DTensor logical_and(const Operand& a, const Operand& b);
DTensor logical_or(const Operand& a, const Operand& b);
DTensor where(const Operand& condition, const Operand& a, const Operand& b);
DTensor masked_fill(const DTensor& x, const Operand& mask, double value);

DTensor zeros_like(const DTensor& x);
DTensor ones_like(const DTensor& x);
DTensor full_like(const DTensor& x, double value);
DTensor empty_like(const DTensor& x);

inline DTensor operator-(const DTensor& x) {
  return neg(x);
}
inline DTensor operator+(const DTensor& a, const Operand& b) {
  return add(a, b);
}
inline DTensor operator-(const DTensor& a, const Operand& b) {
  return sub(a, b);
}
inline DTensor operator*(const DTensor& a, const Operand& b) {
  return mul(a, b);
}
inline DTensor operator/(const DTensor& a, const Operand& b) {
  return div(a, b);
}
inline DTensor operator+(double a, const DTensor& b) {
  return add(a, b);
}
inline DTensor operator-(double a, const DTensor& b) {
  return sub(a, b);
}
inline DTensor operator*(double a, const DTensor& b) {
  return mul(a, b);
}
inline DTensor operator/(double a, const DTensor& b) {
  return div(a, b);
}
inline DTensor operator+(const Tensor& a, const DTensor& b) {
  return add(a, b);
}
inline DTensor operator-(const Tensor& a, const DTensor& b) {
  return sub(a, b);
}
inline DTensor operator*(const Tensor& a, const DTensor& b) {
  return mul(a, b);
}
inline DTensor operator/(const Tensor& a, const DTensor& b) {
  return div(a, b);
}

// --- in place: the first operand's memory, and its placements or InplaceRedistribute. Answers the first operand.
/// Any unary operator in place. \throws std::invalid_argument for an operator that is not pointwise
const DTensor& inplace(Op op, const DTensor& x);
const DTensor& add_(const DTensor& x, const Operand& b);
const DTensor& sub_(const DTensor& x, const Operand& b);
const DTensor& mul_(const DTensor& x, const Operand& b);
const DTensor& div_(const DTensor& x, const Operand& b);
const DTensor& maximum_(const DTensor& x, const Operand& b);
const DTensor& minimum_(const DTensor& x, const Operand& b);
const DTensor& fill_(const DTensor& x, double value);
const DTensor& zero_(const DTensor& x);
const DTensor& copy_(const DTensor& x, const Operand& from);
inline const DTensor& relu_(const DTensor& x) {
  return inplace(Op::Relu, x);
}
inline const DTensor& neg_(const DTensor& x) {
  return inplace(Op::Neg, x);
}
inline const DTensor& exp_(const DTensor& x) {
  return inplace(Op::Exp, x);
}
inline const DTensor& sigmoid_(const DTensor& x) {
  return inplace(Op::Sigmoid, x);
}
inline const DTensor& operator+=(const DTensor& x, const Operand& b) {
  return add_(x, b);
}
inline const DTensor& operator-=(const DTensor& x, const Operand& b) {
  return sub_(x, b);
}
inline const DTensor& operator*=(const DTensor& x, const Operand& b) {
  return mul_(x, b);
}
inline const DTensor& operator/=(const DTensor& x, const Operand& b) {
  return div_(x, b);
}

// --- reductions; no dims: all of them
DTensor sum(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor mean(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor max(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor min(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor prod(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor all(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor any(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor norm(const DTensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
DTensor std_dev(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor var(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor logsumexp(const DTensor& x, const Dims& dims = {}, bool keepdim = false);
DTensor argmax(const DTensor& x, std::optional<int64_t> dim = std::nullopt, bool keepdim = false);
DTensor argmin(const DTensor& x, std::optional<int64_t> dim = std::nullopt, bool keepdim = false);
DTensor cumsum(const DTensor& x, int64_t dim);

// --- normalisations and losses
DTensor softmax(const DTensor& x, int64_t dim = -1);
DTensor log_softmax(const DTensor& x, int64_t dim = -1);
DTensor layer_norm(const DTensor& x, int64_t normalized_dims = 1, const DTensor& weight = {}, const DTensor& bias = {});
DTensor rms_norm(const DTensor& x, int64_t normalized_dims = 1, const DTensor& weight = {});
/// Logits [classes] or [batch, classes, ...], target of indices.
/// \param ignore_index  targets of this value, inside the classes or not, add nothing and do not count in the mean,
/// which
///   may then be over an uneven batch; the target is distributed
/// \throws UnevenMean
DTensor cross_entropy(const DTensor& logits, const Operand& target, LossReduction reduction = LossReduction::Mean,
                      std::optional<int64_t> ignore_index = {});
/// The classes stay cut: three small all_reduces. \throws UnsupportedMesh, ShardedDim
DTensor cross_entropy_loss_parallel(const DTensor& logits, const Operand& target,
                                    LossReduction reduction = LossReduction::Mean,
                                    std::optional<int64_t> ignore_index = {});

// --- contractions
DTensor mm(const DTensor& a, const DTensor& b);
DTensor bmm(const DTensor& a, const DTensor& b);
DTensor dot(const DTensor& a, const DTensor& b);
DTensor matmul(const DTensor& a, const DTensor& b);  ///< with torch's rules for 1-d and leading dimensions
DTensor addmm(const DTensor& bias, const DTensor& a, const DTensor& b);
DTensor baddbmm(const DTensor& bias, const DTensor& a, const DTensor& b);
/// x [..., in] times weight [out, in], transposed, plus bias [out].
DTensor linear(const DTensor& x, const DTensor& weight, const DTensor& bias = {});
/// [batch, heads, length, width]; fewer key heads than query heads are shared. `mask` is added to the scores.
DTensor scaled_dot_product_attention(const DTensor& query, const DTensor& key, const DTensor& value,
                                     bool causal = false, const DTensor& mask = {});

// --- structure
DTensor t(const DTensor& x);
DTensor transpose(const DTensor& x, int64_t dim0, int64_t dim1);
DTensor permute(const DTensor& x, const Dims& dims);
DTensor squeeze(const DTensor& x, std::optional<int64_t> dim = std::nullopt);
DTensor unsqueeze(const DTensor& x, int64_t dim);
DTensor expand(const DTensor& x, const Dims& sizes);
DTensor view(const DTensor& x, const Dims& sizes);
DTensor reshape(const DTensor& x, const Dims& sizes);
DTensor cat(const std::vector<DTensor>& xs, int64_t dim = 0);
DTensor stack(const std::vector<DTensor>& xs, int64_t dim = 0);
std::vector<DTensor> split(const DTensor& x, int64_t size, int64_t dim = 0);
std::vector<DTensor> split(const DTensor& x, const Dims& sizes, int64_t dim = 0);
std::vector<DTensor> chunk(const DTensor& x, int64_t chunks, int64_t dim = 0);
DTensor slice(const DTensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
DTensor select(const DTensor& x, int64_t dim, int64_t index);
std::vector<DTensor> unbind(const DTensor& x, int64_t dim = 0);
/// The same on every rank of the mesh; on a rank outside, true.
bool equal(const DTensor& a, const Operand& b);
DTensor gather(const DTensor& x, int64_t dim, const Operand& index);
DTensor index_select(const DTensor& x, int64_t dim, const Operand& index);
DTensor triu(const DTensor& x, int64_t diagonal = 0);
DTensor tril(const DTensor& x, int64_t diagonal = 0);

// --- lookup
/// Rows of weight [rows, width]. A weight cut by rows gives a MaskPartial: one all_reduce or reduce_scatter later.
DTensor embedding(const DTensor& weight, const Operand& indices);

}  // namespace ahbm::dtensor
