// What `ahbm-vp all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `reduce`, `gather`, `scatter` and `sendrecv`
// run: rank threads on a simulated machine, checked bit for bit.
#pragma once

#include "ccl/algorithm.h"
#include "models/core/topology.h"
#include "platform/cli/all_reduce.h"

namespace ahbm::platform {

/// Elaborates the job's machine, runs every size and reports it.
void run_collective(ccl::Collective collective, const AllReduceJob& job, AllReduceReport& report);

/// What no algorithm can undercut for `bytes` (as nccl-tests counts them) over the SIPs of `group`: the bytes that a
/// rank has to send or receive over the bandwidth of its links, and the latency of the longest way that a message has
/// to go. \param root  index into `group`
Ps collective_bound(const SipGraph& graph, ccl::Collective collective, uint64_t bytes, const std::vector<SipId>& group,
                    uint32_t root);

/// busbw / algbw of nccl-tests.
double bus_factor(ccl::Collective collective, uint32_t ranks);

}  // namespace ahbm::platform
