// What flows through a model: a tensor of one SIP, or a distributed one. Modules are written once against it; whether
// an operator runs on one SIP or on a mesh is decided by what their parameters and inputs are.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "runtime/dtensor/functions.h"

namespace ahbm::nn {

using dtensor::Dims;
using dtensor::DTensor;
using runtime::Tensor;

class Value {
 public:
  Value() = default;
  Value(Tensor t) : m_value(std::move(t)) {}   // NOLINT(google-explicit-constructor): results are passed on as they are
  Value(DTensor t) : m_value(std::move(t)) {}  // NOLINT(google-explicit-constructor)

  bool defined() const;
  bool is_distributed() const { return std::holds_alternative<DTensor>(m_value); }
  /// \throws std::invalid_argument when it is the other kind
  const Tensor& tensor() const;
  const DTensor& distributed() const;
  /// The tensor itself, or this rank's part.
  const Tensor& to_local() const;
  Dims shape() const;  ///< global
  int64_t size(int64_t dim) const;
  DType dtype() const;
  runtime::Context& context() const;  ///< \pre defined()
  dtensor::Operand operand() const;

 private:
  std::variant<Tensor, DTensor> m_value;
};
using Values = std::vector<Value>;

/// Runs an operator: on the mesh when an input is distributed, else on the calling thread's SIP. Inputs that are not
/// defined are left out. \throws what dispatch and ops::call throw; MixedTensor for a mixture
Value apply(dtensor::Op op, const Values& inputs, const dtensor::OpArgs& args = {});

Value add(const Value& a, const Value& b);
Value gelu(const Value& x);  ///< by erf
Value linear(const Value& x, const Value& weight, const Value& bias = {});
Value embedding(const Value& table, const Value& indices);
Value layer_norm(const Value& x, const Value& weight, const Value& bias = {});
Value rms_norm(const Value& x, const Value& weight);
Value view(const Value& x, const Dims& sizes);
Value reshape(const Value& x, const Dims& sizes);
Value transpose(const Value& x, int64_t dim0, int64_t dim1);
Value slice(const Value& x, int64_t dim, int64_t start, int64_t end);
/// Every index of `dim` `times` times in a row.
Value repeat_interleave(const Value& x, int64_t dim, int64_t times);
Value scaled_dot_product_attention(const Value& query, const Value& key, const Value& value, bool causal);
/// Mean over all tokens. Logits [..., classes], target of the leading sizes. \param parallel  loss parallel: the
/// classes of distributed logits stay cut. \throws UnsupportedMesh, ShardedDim, UnevenMean
/// \param ignore_index  targets of this value do not count
Value cross_entropy(const Value& logits, const Value& target, bool parallel = false,
                    std::optional<int64_t> ignore_index = {});

}  // namespace ahbm::nn
