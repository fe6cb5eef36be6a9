// Where an algorithm runs: rings, grids and trees over the ranks of a group, laid along the links of the SIP fabric.
// Groups are any SIPs in any order. Where consecutive ranks are no neighbours, the connection is routed.
#pragma once

#include <cstdint>
#include <optional>
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

/// The ring of a group.
///  * ring_1d, fully_connected, switch: the ranks in the order of their SIPs, so that every link of a ring_1d carries
///  the
///    data of one ring step.
///  * torus_2d, mesh_2d: groups that are whole rectangles of the grid (`grid_order`) take the Hamiltonian cycle of
///  their
///    rectangle, with the refusals of the other overload; others snake through the rows, with routed connections.
RingOrder ring_order(const Group& group);

/// The ranks in an order whose consecutive ones are near each other: by SIP, on a grid the rows in turn to the right
/// and to the left. For whole rectangles all are neighbours.
std::vector<uint32_t> line_order(const Group& group);

/// A group as a rectangle: the ranks whose SIPs lie in w columns and h rows, which may be any columns and rows.
struct GridOrder {
  uint32_t w = 0, h = 0;
  bool wraps_x = false, wraps_y = false;  ///< whether a row, a column is a ring
  std::vector<uint32_t> order;            ///< order[y * w + x] is a rank; empty when the group is no rectangle
  std::string refusal;

  uint32_t position(uint32_t rank) const;
};
/// ring_1d, fully_connected and switch count as one row. One that is a ring there wraps; a mesh_2d never does.
GridOrder grid_order(const Group& group);

/// Links between two SIPs on the shortest way of an intact fabric; a switch counts 2.
uint32_t sip_hops(const Group& group, uint32_t rank_a, uint32_t rank_b);

/// A spanning tree with shortest ways to the root wherever neighbours allow it, balanced over the root's links.
struct TreeOrder {
  std::vector<uint32_t> parent;                 ///< of each rank; the root's is itself
  std::vector<std::vector<uint32_t>> children;  ///< of each rank, at most 4
  uint32_t depth = 0;                           ///< links on the longest way
};
TreeOrder tree_order(const Group& group, uint32_t root);

/// Side that a ring's message leaves a SIP by, for the EGRESS hint: E and W on a ring_1d, the side of the neighbour on
/// a grid, none for other topologies and for ranks that are no neighbours. The directions GLOBAL_N, S, E, W are sides
/// themselves.
enum class Egress : uint8_t { Any = 0, N = 1, S = 2, E = 3, W = 4 };
Egress ring_egress(const Group& group, uint32_t rank, tl::Dir dir);
std::optional<Side> side_of(Egress egress);

/// `ring_egress` for many ends of a group: lays its ring once, when the first one asks for it.
class RingEgress {
 public:
  explicit RingEgress(const Group& group) : m_group(group) {}
  Egress of(uint32_t rank, tl::Dir dir);

 private:
  const Group& m_group;
  std::optional<std::vector<uint32_t>> m_ring;
  std::vector<uint32_t> m_position;  ///< of each rank
};

}  // namespace ahbm::ccl
