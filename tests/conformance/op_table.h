// The operators that cases name: which fields each has, and how it is called.
#pragma once

#include <cstdint>
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
  size_t max_inputs = SIZE_MAX;  ///< of what is no operator by itself; operators count their inputs themselves

  DType input_dtype(size_t input) const;  ///< indices are Int64
  OpResult run(dtensor::Context& context, const dtensor::DeviceMesh& mesh,
               const std::vector<dtensor::DTensor>& inputs) const;
};

/// \throws CaseError for an operator or a field that does not exist
OpCase parse_op_case(const YAML::Node& node);

}  // namespace ahbm::conformance
