// The built-in modules and what they have in common.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ccl/algorithm.h"
#include "ccl/algorithms/axis.h"
#include "ccl/algorithms/lanes.h"
#include "ccl/group_memo.h"
#include "ccl/kernel_arguments.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {

AlgorithmModule ring_module();
AlgorithmModule ring_bidirectional_module();
std::vector<AlgorithmModule> intercube_modules();        ///< intercube, intercube_mesh
std::vector<AlgorithmModule> grid_all_reduce_modules();  ///< torus_2d, mesh_2d and their forms with fewer colours
std::vector<AlgorithmModule>
pairwise_all_reduce_modules();                       ///< halving_doubling, recursive_doubling, double_binary_tree
std::vector<AlgorithmModule> direct_modules();       ///< direct, reduce_scatter_direct, all_gather_direct
std::vector<AlgorithmModule> axis_block_modules();   ///< reduce_scatter_*, all_gather_*
std::vector<AlgorithmModule> rooted_ring_modules();  ///< broadcast_ring, reduce_ring
std::vector<AlgorithmModule> tree_modules();         ///< broadcast_tree, reduce_tree, gather_tree, scatter_tree
std::vector<AlgorithmModule> peer_modules();         ///< all_to_all_direct, *_ring, send_recv, barrier_dissemination
AlgorithmModule all_to_all_grid_module();

/// Every dtype, every operator.
void allow_everything(AlgorithmModule& m);

/// What one lane of an all-reduce does, in place on `buffer`; the words that are left in `a` are its own.
using LaneAllReduce = void (*)(tl::Tl&, ModuleArguments& a, Addr buffer, uint64_t count);

/// The kernel of an all-reduce between SIPs. Sharded: every cube reduces its shard with the same cube of the other
/// SIPs. Replicated: cube c reduces slice c of the buffer, then the slices are gathered inside the SIP.
void sip_all_reduce_kernel(tl::Tl& tl, const tl::Args& args, LaneAllReduce all_reduce);

/// What makes an all-reduce between SIPs out of a lane's.
struct LaneModule {
  std::function<std::string(const Group&)> refusal;
  std::function<std::vector<uint64_t>(const Group&, uint32_t rank)> words;
  /// The lane's connections, on one cube.
  std::function<void(const Group&, uint32_t cube, std::vector<Connection>&)> connections;
  /// Seconds between the SIPs.
  std::function<double(const CostQuery&)> time;
  /// Trees over ranks for `count` elements of a lane.
  std::function<std::vector<ReduceTree>(const Group&, uint64_t count)> order;
  bool needs_scratch = false;  ///< as much as the lane's buffer
};
AlgorithmModule sip_all_reduce_module(const LaneModule& lane);

template <LaneAllReduce kAllReduce>
AlgorithmModule sip_all_reduce_module_of(const LaneModule& lane) {
  AlgorithmModule m = sip_all_reduce_module(lane);
  m.kernel = [](tl::Tl& tl, const tl::Args& args) { sip_all_reduce_kernel(tl, args, kAllReduce); };
  return m;
}

/// The words and connections of the ring of a group: its size, a rank's position.
LaneModule ring_lane_module();
/// That of both directions of a ring at once, with its closed form and order of reduction, and what a lane of it does.
LaneModule bidirectional_lane_module();
/// `lane` with refusals that go on with what runs there instead.
LaneModule advising(LaneModule lane, const char* advice);
void bidirectional_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count);
/// Those of mesh_2d, and what a lane of it does.
LaneModule mesh_lane_module();
void grid_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count);
/// The rows, or columns, of a grid: names of their directions (n and position are not set), and the ranks of each.
SipAxis grid_axis(bool x, AxisKind kind);
std::vector<std::vector<uint32_t>> lines_of(const GridOrder& grid, bool rows);
void append_ring_connections(const Group& group, uint32_t cube, std::vector<Connection>& out);
using RingMemo = std::shared_ptr<GroupMemo<RingOrder>>;
RingMemo ring_memo();
/// The refusal, which goes on with the name of what runs on any group, and the connections of a module on the ring of a
/// group, and these rings.
RingMemo lay_on_ring(AlgorithmModule& m, const std::string& instead);

/// Trees over positions become trees over the ranks at them.
std::vector<ReduceTree> name_leaves(std::vector<ReduceTree> trees, const std::vector<uint32_t>& ranks);
/// The lane's order for a whole rank: for Replicated there is a lane per slice.
std::vector<ReduceTree> lanes_order_of_reduction(
    const Group& group, uint64_t count, CubeLayout layout,
    const std::function<std::vector<ReduceTree>(const Group&, uint64_t)>& lane_order);

/// The ranges of the blocks of ranks among all blocks, for many ranks: CollectiveShape::block_begin adds up the counts
/// anew for each. The shape stays the caller's.
class BlockRanges {
 public:
  explicit BlockRanges(const CollectiveShape& shape);
  Range of(uint32_t rank) const;

 private:
  const CollectiveShape& m_shape;
  std::vector<uint64_t> m_begin;  ///< of each rank's, where they differ in length
};

/// Ranges as argument words, short when they are equal parts one after the other, and back.
void put_ranges(const std::vector<Range>& ranges, std::vector<uint64_t>& words);
Parts take_parts(ModuleArguments& a);
/// The blocks of an all-to-all, even or not: as argument words (count, number of counts, the counts) and back, and the
/// longest of them.
void put_blocks(const CollectiveShape& shape, std::vector<uint64_t>& words);
CollectiveShape take_blocks(ModuleArguments& a);
uint64_t longest_block(const CollectiveShape& shape);

/// Whether both directions of a ring of these ranks are the same cable or uplink, and so share its bandwidth.
bool directions_shared(const CostQuery& q);
/// Axes that are at work at once, all of a kind: axis.h's positions are the ranks of each order.
struct AxisSet {
  SipAxis axis;  ///< n and position do not count
  std::vector<std::vector<uint32_t>> orders;
  double block = 1;  ///< bytes that a position owns
  AxisSchedule::Phases phases = AxisSchedule::Phases::AllReduce;
};
/// What they meet where their connections are routed, against one hop on a link of its own for each.
struct AxisDetour {
  double load = 1;    ///< of the fullest link; less than 1 where two ways lead to the same SIP
  double way = 0;     ///< hops that the longest way of a phase gains, an all-reduce's two together the mean of both
  uint32_t hop = 0;   ///< that the longest connection gains
  uint32_t turn = 0;  ///< that the connection gains whose credits take longest, all in all,
  double share = 1;   ///< and the part that it carries of what the fullest does
  double owners = 1;  ///< part of the owners whose blocks one lane's connection carries
};
/// \param beside  other axes that are at work at the same time
AxisDetour detour_of(const CostQuery& q, const AxisSet& axes, const AxisSet& beside = {});

/// Seconds along an axis (axis.h) of n ranks, each of which owns a block of `block` bytes, all lanes together: of a
/// reduce-scatter or an all-gather, or with `all_reduce` of both in one run.
/// \param colours  so many axes are at work at once, on other links
///
/// Slabs follow one another. In every step of a slab a link carries it once; and a step cannot begin before the first
/// message of the step before has come. So a step takes max(slab / B, message / B + L), and only what comes last waits
/// for its latency. In small slots results wait longer, for the slots that other results hold: of k messages of a slab
/// in m slots, m - k go on per L. Without slots and messages, that is where slabs are nothing and blocks are messages,
/// these are the forms of docs/collectives.md.
///
/// Where connections are routed, what comes last has gone the longest detour, and all detours along the way are in its
/// steps. A connection passes on no more messages than it has slots in its own round trip.
double axis_seconds(const CostQuery& q, AxisKind kind, uint32_t n, double block, AxisSchedule::Phases work,
                    uint32_t colours = 1, const AxisDetour& detour = {});
/// What a hop beyond the first adds; a platform whose links are not known has the latency of a message there.
inline double hop_seconds(const CostQuery& q) {
  return q.hop_latency > 0 ? q.hop_latency : q.latency;
}
/// B of a link that connections share: where one waits for credits, the others go on.
inline double shared_bandwidth(const CostQuery& q) {
  return q.wire_bandwidth > 0 ? q.wire_bandwidth : q.bandwidth;
}
/// Seconds that a connection over so many links, whose credits come back the same way, needs for so many bytes: what
/// its slots hold at once, a round trip for everything before the last of that.
double transfer_seconds(const CostQuery& q, double bytes, double links = 1);
/// Seconds that the messages of a connection take at least: it passes on no more than it has slots in a round trip.
/// \param message_bytes  of all lanes together  \param way  latency of a message
double credit_seconds(const CostQuery& q, double messages, double message_bytes, double way);
/// Seconds of an all-reduce on the ring of a group.
double ring_all_reduce_seconds(const CostQuery& q, AxisKind kind);
/// Seconds of the bidirectional ring between SIPs.
double bidirectional_seconds(const CostQuery& q);
/// What a phase adds that reads from memory what the one before has stored, in pieces of `bytes` of all lanes together.
double turn_seconds(const CostQuery& q, double bytes);
/// Of `bytes` of all lanes together those of a lane's first message, which whoever passes it on has to have; 0 when
/// messages are unknown.
double first_message(const CostQuery& q, double bytes);
/// Seconds of the gather inside a SIP that the replicated layout ends with; 0 for the others.
double gather_seconds(const CostQuery& q);

}  // namespace ahbm::ccl
