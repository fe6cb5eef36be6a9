// The operators that cases name: which fields each has, and how it is called.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/dtensor/functions.h"
#include "tests/conformance/case.h"

namespace ahbm::conformance {

struct OpResult {
  std::vector<dtensor::DTensor> outputs;
  std::optional<bool> truth;  ///< of `equal`
};

struct OpCase {
  std::string name;
  YAML::Node node;

  DType input_dtype(size_t input) const;  ///< indices are Int64
  OpResult run(dtensor::Context& context, const dtensor::DeviceMesh& mesh,
               const std::vector<dtensor::DTensor>& inputs) const;
};

/// \throws CaseError for an operator or a field that does not exist
OpCase parse_op_case(const YAML::Node& node);

/// A transformer for counting collectives: token and position embedding, `layers` of attention and MLP with residual
/// connections and norms, and a head whose logits are gathered. Parameters are cut as in Megatron.
class TestModel {
 public:
  TestModel(const dtensor::DeviceMesh& mesh, uint32_t layers);
  dtensor::DTensor forward(bool seq_parallel) const;

 private:
  struct Layer {
    dtensor::DTensor query, key, value, out, up, down;
  };
  dtensor::DTensor attention(const Layer& layer, const dtensor::DTensor& x) const;
  dtensor::DTensor m_tokens, m_positions, m_token_table, m_position_table, m_head;
  std::vector<Layer> m_layers;
};

}  // namespace ahbm::conformance
