// The machine as text.
#pragma once

#include <string>

#include "models/core/config/system_config.h"

namespace ahbm::platform {

/// Drawing of the SIPs and of one SIP's cubes with link figures, what a cube and a PE hold, address ranges, and the
/// lower bound of an all-reduce. Ends with a line feed.
std::string describe_machine(const SystemConfig& config);

}  // namespace ahbm::platform
