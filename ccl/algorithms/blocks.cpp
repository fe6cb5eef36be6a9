// Reduce-scatter and all-gather of ranks' blocks along one axis of the whole group, in three forms each:
//   *_ring                 one way round         (n-1)L + f S/B
//   *_ring_bidirectional   both ways             floor(n/2) L + f S/(2B)
//   *_line                 no wrap-around        (n-1)L + f S/B, farthest owner first; any group
// A rank's block is that of its position on the axis. Order of the reduction: axis.h, over ring or line positions.
#include <algorithm>

#include "ccl/algorithms/modules.h"
#include "ccl/group_memo.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

std::vector<uint32_t> order_of(const Group& g, AxisKind kind) {
  return kind == AxisKind::Line ? line_order(g) : ring_order(g).order;
}

std::vector<Range> blocks_of(const std::vector<uint32_t>& order, const CollectiveShape& shape) {
  const BlockRanges ranges(shape);
  std::vector<Range> blocks;
  for (const uint32_t rank : order) blocks.push_back(ranges.of(rank));
  return blocks;
}

/// Words: kind, position, blocks.
void block_kernel(tl::Tl& tl, const tl::Args& args, bool reduce) {
  ModuleArguments a(args);
  SipAxis axis;
  axis.kind = static_cast<AxisKind>(a.take());
  axis.position = a.take32();
  AxisWork work(a, take_parts(a));
  axis.n = static_cast<uint32_t>(work.blocks.size());
  if (a.op == ReduceOp::Avg) work.divisor = axis.n;
  const uint64_t own = work.blocks.at(axis.position).begin;
  work.input = {a.input, reduce ? 0 : own};
  work.output = {a.output, reduce ? own : 0};
  using Phases = AxisSchedule::Phases;
  submit_in_turn(tl, {AxisSchedule(tl, axis, work, reduce ? Phases::ReduceScatter : Phases::AllGather)});
}

void reduce_scatter_kernel(tl::Tl& tl, const tl::Args& args) {
  block_kernel(tl, args, true);
}
void all_gather_kernel(tl::Tl& tl, const tl::Args& args) {
  block_kernel(tl, args, false);
}

AlgorithmModule block_module(Collective collective, AxisKind kind, const char* form, const char* doc) {
  const bool reduce = collective == Collective::ReduceScatter;
  AlgorithmModule m;
  m.name = std::string(to_string(collective)) + "_" + form;
  m.kernel_name = std::string("ccl_") + to_string(collective);
  m.doc = doc;
  m.collective = collective;
  m.traffic.asks = true;
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded};
  m.kernel = reduce ? reduce_scatter_kernel : all_gather_kernel;
  m.refusal = [kind, m](const Group& g) -> std::string {
    if (kind == AxisKind::Line || g.size() < 2) return {};
    const std::string why = ring_order(g).refusal;
    return why.empty() ? why : why + "; " + to_string(m.collective) + "_line runs on any group";
  };
  const auto orders = group_memo<std::vector<uint32_t>>([kind](const Group& g, uint32_t) { return order_of(g, kind); });
  m.rank_args = [kind, orders](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const auto order = orders->of(g);
    const auto at = std::find(order->begin(), order->end(), rank) - order->begin();
    std::vector<uint64_t> words{static_cast<uint64_t>(kind), static_cast<uint64_t>(at)};
    put_ranges(blocks_of(*order, shape), words);
    return words;
  };
  m.connections = [kind](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    SipAxis axis;
    axis.kind = kind;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) append_axis_connections(axis, order_of(g, kind), cube, out);
    return out;
  };
  m.time = [kind, reduce](const CostQuery& q) {
    if (q.ranks < 2) return 0.0;
    AxisSet axes;
    axes.axis.kind = kind;
    axes.phases = reduce ? AxisSchedule::Phases::ReduceScatter : AxisSchedule::Phases::AllGather;
    if (q.detours != nullptr) axes.orders.push_back(order_of(*q.group, kind));
    const double block = q.bytes / q.ranks;
    if (q.detours == nullptr) return axis_seconds(q, kind, q.ranks, block, axes.phases);
    // A lane has a part of the whole buffer: the blocks of some ranks, or a part of one.
    AxisDetour detour = detour_of(q, axes);
    CostQuery own = q;
    own.lanes = std::max(1.0, q.lanes / q.ranks);
    detour.owners = own.lanes / q.lanes;
    const double seconds = axis_seconds(own, kind, q.ranks, block, axes.phases, 1, detour);
    if (kind != AxisKind::Line || !reduce || q.lanes < 2) return seconds;
    // All lanes have their blocks for the links of the line's ends at once: the last lane's for the farthest owner
    // comes after the other lanes' for all owners, and has the other links before it.
    const double carried = block * detour.load / q.bandwidth;
    const double first = first_message(own, block) * detour.load / q.bandwidth + q.latency;
    return seconds + std::max(0.0, q.ranks - 2.0) * std::min(carried, first);
  };
  if (reduce) {
    m.reduction_order = [kind](const Group& g, const CollectiveShape& shape) {
      SipAxis axis;
      axis.n = g.size();
      axis.kind = kind;
      const std::vector<uint32_t> order = order_of(g, kind);
      return name_leaves(axis_order_of_reduction(axis, Parts(blocks_of(order, shape))), order);
    };
  }
  return m;
}

}  // namespace

std::vector<AlgorithmModule> axis_block_modules() {
  std::vector<AlgorithmModule> out;
  for (const Collective c : {Collective::ReduceScatter, Collective::AllGather}) {
    out.push_back(block_module(c, AxisKind::Up, "ring", "one way round a ring: (n-1)L + f S/B"));
    out.push_back(
        block_module(c, AxisKind::Both, "ring_bidirectional", "both ways round a ring: floor(n/2)L + f S/(2B)"));
    out.push_back(block_module(c, AxisKind::Line, "line", "along a line, any group: (n-1)L + f S/B"));
  }
  return out;
}

}  // namespace ahbm::ccl
