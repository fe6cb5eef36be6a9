#include "ccl/algorithms/modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "ccl/algorithms/cube_mesh.h"
#include "ccl/detours.h"

namespace ahbm::ccl {

using tl::Axis;
using tl::Dir;

void allow_everything(AlgorithmModule& m) {
  m.ops = {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};
  m.dtypes = {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32,
              DType::Int8,    DType::UInt8,   DType::Int64,    DType::Bool};
}

void sip_all_reduce_kernel(tl::Tl& tl, const tl::Args& args, LaneAllReduce all_reduce) {
  ModuleArguments a(args);
  if (a.layout == CubeLayout::Partial) {
    throw std::invalid_argument(
        "an all-reduce between SIPs reduces no partial sums of cubes: use the algorithm intercube or intercube_mesh");
  }
  const uint64_t count = a.take();
  const uint32_t cube_w = a.take32();
  if (tl.num_programs(Axis::Sip) == 1 || count == 0) return;
  if (a.layout == CubeLayout::Sharded) {
    all_reduce(tl, a, a.output, count);
    return;
  }
  const CubeShape shape(cube_w, tl.num_programs(Axis::Cube));
  const uint32_t cube = tl.program_id(Axis::Cube);
  const Range slice = aligned_chunk(count, shape.n, cube);
  all_reduce(tl, a, a.output + slice.begin * a.item(), slice.count);
  tl.wait_all();
  gather_slices(tl, shape, cube, {a.output, count, a.dtype, a.op});
}

AlgorithmModule sip_all_reduce_module(const LaneModule& lane) {
  AlgorithmModule m;
  m.collective = Collective::AllReduce;
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded, CubeLayout::Replicated};
  m.traffic.passes = 2;
  m.refusal = lane.refusal;
  m.rank_args = [words = lane.words](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    std::vector<uint64_t> out{shape.count, g.cube_w};
    const std::vector<uint64_t> own = words(g, rank);
    out.insert(out.end(), own.begin(), own.end());
    return out;
  };
  m.connections = [connections = lane.connections](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    append_mesh_connections(g, out);
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) connections(g, cube, out);
    return out;
  };
  m.time = [time = lane.time](const CostQuery& q) { return (q.ranks < 2 ? 0 : time(q)) + gather_seconds(q); };
  m.reduction_order = [order = lane.order](const Group& g, const CollectiveShape& shape) {
    return lanes_order_of_reduction(g, shape.count, shape.layout, order);
  };
  if (lane.needs_scratch) {
    m.scratch_bytes = [](const Group&, const CollectiveShape& shape) { return shape.count * item_bytes(shape.dtype); };
  }
  return m;
}

LaneModule advising(LaneModule lane, const char* advice) {
  lane.refusal = [why_not = std::move(lane.refusal), advice](const Group& g) {
    const std::string why = why_not(g);
    return why.empty() ? why : fmt::format("{}; {}", why, advice);
  };
  return lane;
}

LaneModule ring_lane_module() {
  LaneModule lane;
  const RingMemo rings = ring_memo();
  lane.refusal = [rings](const Group& g) { return rings->of(g)->refusal; };
  lane.words = [rings](const Group& g, uint32_t rank) {
    return std::vector<uint64_t>{g.size(), rings->of(g)->position(rank)};
  };
  lane.connections = append_ring_connections;
  return lane;
}

RingMemo ring_memo() {
  return group_memo<RingOrder>([](const Group& g, uint32_t) { return ring_order(g); });
}

RingMemo lay_on_ring(AlgorithmModule& m, const std::string& instead) {
  RingMemo rings = ring_memo();
  m.refusal = [rings, instead](const Group& g) {
    const std::string why = rings->of(g)->refusal;
    return why.empty() ? why : why + "; " + instead + " runs on any group";
  };
  m.connections = [](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) append_ring_connections(g, cube, out);
    return out;
  };
  return rings;
}

void append_ring_connections(const Group& group, uint32_t cube, std::vector<Connection>& out) {
  const RingOrder ring = ring_order(group);
  if (!ring.refusal.empty()) throw std::invalid_argument(ring.refusal);
  append_axis_connections(SipAxis{}, ring.order, cube, out);
}

std::vector<ReduceTree> name_leaves(std::vector<ReduceTree> trees, const std::vector<uint32_t>& ranks) {
  for (ReduceTree& tree : trees) {
    for (int32_t& leaf : tree.postfix) {
      if (leaf >= 0) leaf = static_cast<int32_t>(ranks[static_cast<size_t>(leaf)]);
    }
  }
  return trees;
}

std::vector<ReduceTree> lanes_order_of_reduction(
    const Group& group, uint64_t count, CubeLayout layout,
    const std::function<std::vector<ReduceTree>(const Group&, uint64_t)>& lane_order) {
  if (layout == CubeLayout::Partial && group.n_cubes > 1) {
    throw std::invalid_argument(
        "no order of reduction for partial sums of cubes: use the algorithm intercube or intercube_mesh");
  }
  const uint32_t lanes = layout == CubeLayout::Replicated ? group.n_cubes : 1;
  std::vector<ReduceTree> out;
  for (const Range& slice : chunks(count, lanes)) {
    for (ReduceTree& tree : lane_order(group, slice.count)) {
      tree.range.begin += slice.begin;
      out.push_back(std::move(tree));
    }
  }
  return out;
}

BlockRanges::BlockRanges(const CollectiveShape& shape) : m_shape(shape) {
  uint64_t begin = 0;
  for (const uint64_t n : shape.counts) {
    m_begin.push_back(begin);
    begin += n;
  }
}

Range BlockRanges::of(uint32_t rank) const {
  if (m_begin.empty()) return {rank * m_shape.count, m_shape.count};
  return {m_begin[rank], m_shape.counts[rank]};
}

void put_blocks(const CollectiveShape& shape, std::vector<uint64_t>& words) {
  words.push_back(shape.count);
  words.push_back(shape.counts.size());
  words.insert(words.end(), shape.counts.begin(), shape.counts.end());
}

CollectiveShape take_blocks(ModuleArguments& a) {
  CollectiveShape out;
  out.count = a.take();
  for (uint64_t k = a.take(); k > 0; --k) out.counts.push_back(a.take());
  return out;
}

uint64_t longest_block(const CollectiveShape& shape) {
  return shape.counts.empty() ? shape.count : *std::max_element(shape.counts.begin(), shape.counts.end());
}

void put_ranges(const std::vector<Range>& ranges, std::vector<uint64_t>& words) {
  const uint64_t each = ranges.empty() ? 0 : ranges[0].count;
  bool regular = true;
  for (size_t i = 0; i < ranges.size(); ++i) regular = regular && ranges[i] == Range{i * each, each};
  words.insert(words.end(), {ranges.size(), regular});
  if (regular) {
    words.push_back(each);
    return;
  }
  for (const Range& r : ranges) words.insert(words.end(), {r.begin, r.count});
}

Parts take_parts(ModuleArguments& a) {
  const uint64_t n = a.take(), regular = a.take();
  if (regular != 0) {
    const uint64_t each = a.take();
    return n == 0 ? Parts() : Parts({0, n * each}, n);
  }
  std::vector<Range> out;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t begin = a.take();
    out.push_back({begin, a.take()});
  }
  return Parts(std::move(out));
}

bool directions_shared(const CostQuery& q) {
  return q.group != nullptr && (q.group->topology == SipTopology::Switch || (q.ranks == 2 && !q.group->double_links));
}

namespace {

/// Blocks that a connection of an axis carries towards Next, and towards Prev.
std::pair<double, double> blocks_carried(AxisKind kind, AxisSchedule::Phases phases, size_t n, size_t connection) {
  const auto all = static_cast<double>(n - 1), below = static_cast<double>(connection + 1), above = all + 1 - below;
  switch (kind) {
    case AxisKind::Up:
      return {all, 0};
    case AxisKind::Down:
      return {0, all};
    case AxisKind::Both:
      return {all / 2, all / 2};
    default:
      break;
  }
  // Sums go to the owners above and below, results come from those below and above.
  if (phases == AxisSchedule::Phases::ReduceScatter) return {above, below};
  if (phases == AxisSchedule::Phases::AllGather) return {below, above};
  return {all + 1, all + 1};
}

/// Flows along a set of axes; of each connection the one towards Next, then the one towards Prev.
std::vector<Flow> flows_of(const Group& g, const AxisSet& axes) {
  std::vector<Connection> connections;
  for (const std::vector<uint32_t>& order : axes.orders) append_axis_connections(axes.axis, order, 0, connections);
  std::vector<Flow> out = flows_along(g, connections);
  auto flow = out.begin();
  for (const std::vector<uint32_t>& order : axes.orders) {
    for (size_t p = 0; p < axes.axis.links(order.size()); ++p) {
      const auto [up, down] = blocks_carried(axes.axis.kind, axes.phases, order.size(), p);
      (flow++)->bytes = up * axes.block;
      (flow++)->bytes = down * axes.block;
    }
  }
  return out;
}

/// What the ways to and from the owner gain that gain the most. \param up, down  gains of every connection
double longest_way(const AxisSet& axes, size_t n, const std::vector<uint32_t>& up, const std::vector<uint32_t>& down) {
  const bool line = axes.axis.kind == AxisKind::Line;
  // Sums up to every connection, twice round.
  const auto sums = [](const std::vector<uint32_t>& gains) {
    std::vector<uint32_t> out{0};
    for (size_t i = 0; i < 2 * gains.size(); ++i) out.push_back(out.back() + gains[i % gains.size()]);
    return out;
  };
  const std::vector<uint32_t> up_to = sums(up), down_to = sums(down);
  const auto sum = [](const std::vector<uint32_t>& to, size_t first, size_t length) {
    return to[first + length] - to[first];
  };
  double most = 0;
  for (size_t owner = 0; owner < n; ++owner) {
    const size_t reach = axes.axis.kind == AxisKind::Both ? n / 2 : n - 1;
    const size_t before = line ? owner : reach, after = line ? n - 1 - owner : reach;
    const size_t begin = line ? 0 : (owner + n - before) % n;
    const double to = std::max(sum(up_to, begin, before), sum(down_to, owner, after));
    const double from = std::max(sum(up_to, owner, after), sum(down_to, begin, before));
    switch (axes.phases) {
      case AxisSchedule::Phases::ReduceScatter:
        most = std::max(most, to);
        break;
      case AxisSchedule::Phases::AllGather:
        most = std::max(most, from);
        break;
      default:
        most = std::max(most, (to + from) / 2);
    }
  }
  return most;
}

}  // namespace

AxisDetour detour_of(const CostQuery& q, const AxisSet& axes, const AxisSet& beside) {
  AxisDetour out;
  if (q.detours == nullptr || q.group == nullptr) return out;
  const AxisKind kind = axes.axis.kind;
  const Detours::Ways ways = q.detours->of(flows_of(*q.group, axes), flows_of(*q.group, beside));
  if (ways.alone > 0) out.load = ways.fullest / ways.alone;
  double slowest = 0, most = 0;  // round trips of all that a connection carries; blocks
  const auto waits = [&](double blocks, uint32_t hops) {
    most = std::max(most, blocks);
    const double turns = blocks * (q.latency + hops * hop_seconds(q));
    if (turns <= slowest) return;
    slowest = turns;
    out.turn = hops;
    out.share = blocks;
  };
  auto links_on_way = ways.links.begin();
  for (const std::vector<uint32_t>& order : axes.orders) {
    const size_t n = order.size(), links = axes.axis.links(n);
    std::vector<uint32_t> up, down;
    for (size_t p = 0; p < links; ++p) {
      up.push_back(kind == AxisKind::Down ? 0 : links_on_way[0] - 1);
      down.push_back(kind == AxisKind::Up ? 0 : links_on_way[1] - 1);
      links_on_way += 2;
      out.hop = std::max({out.hop, up.back(), down.back()});
      const auto [above, below] = blocks_carried(kind, axes.phases, n, p);
      waits(above, up.back());
      waits(below, down.back());
    }
    if (links != 0) out.way = std::max(out.way, longest_way(axes, n, up, down));
  }
  out.share = most > 0 ? out.share / most : 1;
  return out;
}

double axis_seconds(const CostQuery& whole, AxisKind kind, uint32_t n, double block, AxisSchedule::Phases work,
                    uint32_t colours, const AxisDetour& detour) {
  if (n < 2) return 0;
  const bool all_reduce = work == AxisSchedule::Phases::AllReduce;
  CostQuery q = whole;
  q.bandwidth = std::min(std::max(1.0, 1 / detour.load) * q.bandwidth, shared_bandwidth(whole) / detour.load);
  const bool both = kind == AxisKind::Both;
  // Both ways at once, which the ranks inside a line go as well: through a switch they share every rank's one link.
  const bool switched = q.group != nullptr && q.group->topology == SipTopology::Switch;
  const bool line_shared = kind == AxisKind::Line && n > 2 && switched;
  const bool shared = line_shared || (both && (switched || (n == 2 && (q.group == nullptr || !q.group->double_links))));
  const double links = both && !shared ? 2 : 1, rate = link_bandwidth(q, links * colours);
  CostQuery whole_link = q;
  whole_link.bandwidth = shared_bandwidth(whole) / detour.load;
  const double steps = both ? n / 2 : n - 1, phases = all_reduce ? 2 : 1;
  const double further = hop_seconds(q);
  const double latency = q.latency + detour.way * further / steps, longest = q.latency + detour.hop * further;
  if (q.slots == 0 || q.message_bytes == 0) {
    return phases * (steps * latency + (line_shared ? 2 : 1) * (n - 1) * block / links / rate);
  }

  const double parts = both && n % 2 == 0 ? 2 : 1, part = block / parts, message = q.message_bytes * q.lanes;
  const double slab = message * std::max(1.0, std::floor((q.slots - 1) / parts));
  // A lane goes on when its own message has come; the other lanes' follow on the link.
  const double wire = link_bandwidth(whole_link, links * colours);
  const auto first = [&](double bytes) { return std::min(bytes, message) / q.lanes / wire + latency; };
  const auto carried = [&](double bytes) { return bytes / (shared ? wire / 2 : wire); };
  // Slab after slab waits for credits. Both ways on one link have connections of their own: one's credits do not keep
  // the other waiting.
  const double paced = shared ? std::min(2 * rate, wire) / 2 : rate;
  // A result keeps its slot until it is passed on, a sum does not: of results as many go on as slots are left, and the
  // next ones when credits for these have come back. The first ones find the slots that sums, or nobody, had before.
  const bool passes_on = kind != AxisKind::Line && work != AxisSchedule::Phases::ReduceScatter && steps > 1;
  const auto held_seconds = [&](double bytes, double step, double sent, bool follows) {
    const double messages = parts * std::ceil(bytes / message);
    if (!passes_on || q.slots <= messages) return 0.0;
    const double held = messages / (q.slots - messages) * latency;
    const double more = (steps - 2) * std::max(0.0, held - step) + std::max(0.0, held / parts - sent);
    return follows && !all_reduce ? more : std::max(0.0, more - latency);
  };
  // What a slab ends with, the next one begins right behind.
  const auto slab_seconds = [&](double bytes, double sent, bool follows) {
    const double step = std::max(parts * sent, first(bytes)), half = std::max(sent, first(bytes));
    // Along a line a link carries the sums of some blocks and the results of the others.
    if (kind == AxisKind::Line) return (all_reduce ? n - 1 : n - 2) * half + sent;
    return phases * (steps - 1) * step + (phases - 1) * half + sent + held_seconds(bytes, step, sent, follows);
  };
  const double whole_slabs = std::floor(part / slab), rest = part - whole_slabs * slab, last = rest > 0 ? rest : slab;
  double seconds = rest > 0 ? slab_seconds(rest, carried(rest), whole_slabs > 0) : 0;
  if (whole_slabs > 0) {
    seconds += slab_seconds(slab, slab / paced, false) + (whole_slabs - 1) * slab_seconds(slab, slab / paced, true);
  }
  seconds += std::max(q.latency, first(last) - carried(last));
  // What a detour adds to the last message is hidden where steps wait for messages that came by it.
  const double all_steps = kind == AxisKind::Line ? n - 2 + phases : phases * steps;
  seconds += std::max(0.0, longest - q.latency - all_steps * std::max(0.0, first(last) - carried(last)));
  // Of the two halves of an even ring's blocks the one that comes later goes first on one of the ways, so that the
  // owner gets them in one order from both sides: that way is idle meanwhile.
  if (parts == 2 && steps > 1) seconds += std::min(carried(last), q.latency);
  if (kind == AxisKind::Line && all_reduce) {
    // The steps of a link's sums and results come one after the other, and so do their credits.
    const double turn = 2 * latency + std::min(part, message) / q.lanes / wire;
    const double step = std::max(first(part), std::ceil(std::min(part, slab) / message) / q.slots * turn);
    seconds = std::max(seconds + (n - 2) * first(part), 2 * first(part) + 2 * (n - 2) * step);
  }
  // The first message that no earlier credit lets go has the rest of its way before it.
  const double owners = kind == AxisKind::Line ? n - 2 + phases : phases * (n - 1) / (both ? 2 : 1);
  const double of_step = parts * std::max(1.0, std::ceil(part / message));
  const double messages = owners * detour.share * detour.owners * of_step;
  const double waits = std::max(0.0, std::floor((messages - 1) / q.slots));
  const double after = std::max(0.0, all_steps - std::floor(waits * q.slots / of_step) - 1);
  const double sent = std::min(part, message) / q.lanes / wire, step = sent + q.latency;
  const double way = q.latency + detour.turn * further;
  if (waits > 0) seconds = std::max(seconds, waits * (2 * way + sent) + way + after * step);
  return seconds;
}

double transfer_seconds(const CostQuery& q, double bytes, double links) {
  const double rate = shared_bandwidth(q), window = q.lanes * q.slots * q.message_bytes;
  const bool limited = q.bandwidth < rate;
  if (window <= 0 || (links <= 1 && !limited)) return bytes / q.bandwidth;
  const double neighbour = limited ? window / q.bandwidth : 2 * q.latency + q.message_bytes / rate;
  const double round_trip = neighbour + 2 * (links - 1) * hop_seconds(q);
  if (round_trip <= window / rate) return bytes / rate;
  const double rounds = std::max(0.0, std::ceil(bytes / window) - 1);
  return rounds * round_trip + (bytes - rounds * window) / rate;
}

double credit_seconds(const CostQuery& q, double messages, double message_bytes, double way) {
  if (q.slots <= 0 || messages <= 0) return 0;
  const double sent = message_bytes / q.lanes / shared_bandwidth(q);
  return way + sent + (2 * way + sent) * std::floor((messages - 1) / q.slots);
}

double ring_all_reduce_seconds(const CostQuery& q, AxisKind kind) {
  AxisSet ring;
  ring.axis.kind = kind;
  if (q.detours != nullptr && q.group != nullptr) ring.orders.push_back(ring_order(*q.group).order);
  return axis_seconds(q, kind, q.ranks, q.bytes / q.ranks, ring.phases, 1, detour_of(q, ring));
}

double bidirectional_seconds(const CostQuery& q) {
  return ring_all_reduce_seconds(q, AxisKind::Both);
}

double turn_seconds(const CostQuery& q, double bytes) {
  const double each = bytes / q.lanes;
  return q.memory_latency + (q.message_bytes > 0 ? std::min(each, q.message_bytes) : each) * q.byte_seconds;
}

double first_message(const CostQuery& q, double bytes) {
  return std::min(bytes / q.lanes, q.message_bytes);
}

double gather_seconds(const CostQuery& q) {
  if (q.layout != CubeLayout::Replicated || q.group == nullptr || q.group->n_cubes < 2 || q.ranks < 2) return 0;
  const CubeShape s(q.group->cube_w, q.group->n_cubes);
  const double cubes = s.n;
  return (s.w - 1 + s.rows() - 1) * q.cube_latency + (cubes - 1) / cubes * q.bytes / q.cube_bandwidth;
}

}  // namespace ahbm::ccl
