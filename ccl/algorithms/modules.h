// The built-in modules and what they have in common.
#pragma once

#include <functional>
#include <vector>

#include "ccl/algorithm.h"
#include "ccl/algorithms/lanes.h"

namespace ahbm::ccl {

AlgorithmModule ring_module();
AlgorithmModule ring_bidirectional_module();
AlgorithmModule intercube_module();

using LaneAllReduce = void (*)(tl::Tl&, const Lane&);
/// (count, n) -> trees over ring positions.
using LaneOrder = std::vector<ReduceTree> (*)(uint64_t count, uint32_t n);

/// The kernel of an algorithm between SIPs. Sharded: every cube reduces its shard with the same cube of the other SIPs.
/// Replicated: cube c reduces slice c of the buffer, then the slices are gathered inside the SIP.
void sip_ring_kernel(tl::Tl& tl, const tl::Args& args, LaneAllReduce all_reduce);
AlgorithmModule sip_ring_module_base();

template <LaneAllReduce kAllReduce>
AlgorithmModule sip_ring_module() {
  AlgorithmModule m = sip_ring_module_base();
  m.kernel = [](tl::Tl& tl, const tl::Args& args) { sip_ring_kernel(tl, args, kAllReduce); };
  return m;
}

/// Appends the Next/Prev connections of one cube's lane.
void append_ring_connections(const Group& group, uint32_t cube, std::vector<Connection>& out);

/// The lane's order for a whole rank: positions become ranks, and for Replicated there is a lane per slice.
std::vector<ReduceTree> lanes_order_of_reduction(const Group& group, uint64_t count, CubeLayout layout,
                                                 LaneOrder lane_order);

/// Seconds of the bidirectional ring between SIPs; where both directions share a cable or an uplink, they share its
/// bandwidth.
double bidirectional_seconds(const CostQuery& q);
/// Seconds of the gather inside a SIP that the replicated layout ends with; 0 for the others.
double gather_seconds(const CostQuery& q);

}  // namespace ahbm::ccl
