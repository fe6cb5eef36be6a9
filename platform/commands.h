// Every command of ahbm-vp.
#pragma once

#include "platform/cli/command.h"

namespace ahbm::platform {

CommandTable commands();

}  // namespace ahbm::platform
