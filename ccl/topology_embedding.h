// Where an algorithm's ring runs: an order of the ranks in which consecutive ones, and the last and the first, are
// neighbours on the SIP fabric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/config/system_config.h"

namespace ahbm::ccl {

/// `order[p]` is the rank at position p of the ring; empty when there is none, and then `refusal` says why.
struct RingOrder {
  std::vector<uint32_t> order;
  std::string refusal;

  /// Position of a rank. \throws std::out_of_range for a rank outside of the ring
  uint32_t position(uint32_t rank) const;
};

/// The ring of `n` ranks, which are the first n SIPs of the grid (sip = y * w + x).
///  * ring_1d, fully_connected, switch: the natural order.
///  * torus_2d, mesh_2d: a Hamiltonian cycle. On a mesh it exists iff w * h is even and both are at least 2; a torus
///  with
///    w, h >= 2 always has one. A grid of one row or column is a ring (torus) or a line (mesh), which closes for 2
///    ranks only. Fewer ranks than the grid has must be whole rows, or at most 2.
RingOrder ring_order(SipTopology topology, uint32_t w, uint32_t h, uint32_t n);

/// The ring of a group. Groups on a grid must hold its first SIPs in order, unless they are of one or two.
RingOrder ring_order(const Group& group);

/// Side that a ring's message leaves a SIP by, for the EGRESS hint: E and W on a ring_1d, the side of the neighbour on
/// a grid, none for other topologies and for ranks that are no neighbours.
enum class Egress : uint8_t { Any = 0, N = 1, S = 2, E = 3, W = 4 };
Egress ring_egress(const Group& group, uint32_t rank, tl::Dir dir);

}  // namespace ahbm::ccl
