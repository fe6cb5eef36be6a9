// How a device mesh lies on the SIPs of a machine, as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/core/config/system_config.h"

namespace ahbm::platform {

/// `4x4`, `2x2x2`, `8`. \throws std::invalid_argument for anything else, naming it
std::vector<uint32_t> parse_mesh_shape(const std::string& text);

/// The process groups of every dimension of a mesh with ranks 0.. row-major (a rank is a SIP), which links a ring over
/// each group takes, how many of these rings meet on a link when all groups of the dimension communicate, and what that
/// makes of an all-reduce. \throws std::invalid_argument when the machine has fewer SIPs
std::string describe_mesh(const SystemConfig& config, const std::vector<uint32_t>& shape);

}  // namespace ahbm::platform
