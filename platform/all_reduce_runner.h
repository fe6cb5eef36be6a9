// What `ahbm-vp all_reduce` runs: rank threads on a simulated machine, checked bit for bit.
#pragma once

#include "platform/cli/all_reduce.h"

namespace ahbm::platform {

/// Elaborates the job's machine, runs every size and reports it.
void run_all_reduce(const AllReduceJob& job, AllReduceReport& report);

}  // namespace ahbm::platform
