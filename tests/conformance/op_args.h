// The arguments of an operator of a case, as the layout library takes them.
#pragma once

#include "runtime/layout/strategy.h"
#include "tests/conformance/case.h"

namespace ahbm::conformance {

/// \throws CaseError for an argument that cannot be read
dtensor::OpArgs args_of(const YAML::Node& op);

}  // namespace ahbm::conformance
