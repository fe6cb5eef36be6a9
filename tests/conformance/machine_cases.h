// Cases that rank threads run on a simulated machine: kinds op, mesh and model_counts.
#pragma once

#include "runtime/context.h"
#include "tests/conformance/case.h"

namespace ahbm::conformance {

/// How many ranks the case's world has. \throws CaseError for an unknown kind or field
uint32_t world_of(const YAML::Node& node);

/// Runs a case on a machine with that many SIPs. From the driver thread.
void run_machine_case(runtime::Context& context, const YAML::Node& node, Verdict& verdict);

}  // namespace ahbm::conformance
