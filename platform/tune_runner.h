// What `ahbm-vp tune` runs.
#pragma once

#include "ccl/algorithm.h"
#include "platform/cli/tune.h"

namespace ahbm::platform {

/// Runs every size of the job by `auto`, then by every other algorithm that auto could have chosen.
void run_tune(ccl::Collective collective, const AllReduceJob& job, TuneReport& report);

}  // namespace ahbm::platform
