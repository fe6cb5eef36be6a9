// What `ahbm-vp all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `reduce`, `gather`, `scatter`
// and `sendrecv` run.
#pragma once

#include "ccl/algorithm.h"
#include "platform/cli/all_reduce.h"
#include "platform/machine.h"
#include "runtime/distributed/distributed.h"

namespace ahbm::platform {

/// Elaborates the job's machine (or those of its sweep), runs every size and reports it.
void run_collective(ccl::Collective collective, const AllReduceJob& job, AllReduceReport& report);

/// The process group that a job asks for, on a machine; to be called by the driver. \throws UsageError for groups,
/// roots and layouts that the machine, its ranks or the collective do not have
runtime::distributed::ProcessGroup start_group(ccl::Collective collective, const AllReduceJob& job, Machine& machine);

/// One line: platform, ranks and their mode, topology, layout.
std::string describe_run(const AllReduceJob& job, const Machine& machine,
                         const runtime::distributed::ProcessGroup& group);

/// Shared objects that ccl.yaml names are input. \throws UsageError when one of them is to be written
void require_modules_kept(const ObserveOptions& observe, const runtime::distributed::CclSettings& settings);

}  // namespace ahbm::platform
