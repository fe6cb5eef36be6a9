// Broadcast and reduce on a ring, pipelined message by message: half of the buffer goes each way round, from the root
// or to it. (n-1)L + S/(2B).
//
// Order of the reduction, with r the root's position: first half  x[r] + (x[r-1] + (x[r-2] + ... x[r+1])), second half
// x[r] + (x[r+1] + (x[r+2] + ... x[r-1])), modulo n.
#include <algorithm>

#include "ccl/algorithms/modules.h"
#include "ccl/detours.h"
#include "ccl/group_memo.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;
using tl::Move;

/// Words: count, n, distance from the root towards Next.
struct RootedRing {
  explicit RootedRing(ModuleArguments& a) : count(a.take()), n(a.take32()), distance(a.take32()) {}
  uint64_t count;
  uint32_t n, distance;
};

/// The half of the buffer that travels towards Next (0) or Prev (1).
Move half_of(const ModuleArguments& a, const RootedRing& r, uint32_t half) {
  const Range range = aligned_chunk(r.count, 2, half);
  Move m;
  m.local = a.input + range.begin * a.item();
  m.store = a.output + range.begin * a.item();
  m.count = range.count;
  m.dtype = a.dtype;
  m.op = a.op;
  m.piece_bytes = a.message_bytes;
  m.step = static_cast<uint16_t>(half);
  return m;
}

constexpr Dir kBehind[2] = {Dir::Prev, Dir::Next}, kAhead[2] = {Dir::Next, Dir::Prev};

void broadcast_ring_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  a.input = a.output;
  const RootedRing r(a);
  if (r.n < 2) return;
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t hops = half == 0 ? r.distance : (r.n - r.distance) % r.n;  // from the root
    Move m = half_of(a, r, half);
    if (m.count == 0) continue;
    (hops == 0 ? m.store : m.local) = 0;
    if (hops != 0) m.from = kBehind[half];
    if (hops + 1 < r.n) m.to = kAhead[half];
    tl.submit(m);
  }
}

void reduce_ring_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const RootedRing r(a);
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t hops = half == 0 ? (r.n - r.distance) % r.n : r.distance;  // to the root
    Move m = half_of(a, r, half);
    if (m.count == 0) continue;
    if (hops + 1 < r.n) m.from = kBehind[half];
    if (hops != 0) {
      m.to = kAhead[half];
      m.store = 0;
    } else {
      if (a.op == ReduceOp::Avg) m.divisor = r.n;
      if (r.n < 2 && m.local == m.store) continue;
    }
    tl.submit(m);
  }
}

/// The longest way round for the first message, and what follows it over the fullest link. The root is rank 0.
double routed_seconds(const CostQuery& q, bool reduce) {
  const Group& g = *q.group;
  const std::vector<uint32_t> order = ring_order(g).order;
  const uint32_t n = q.ranks;
  const auto root = static_cast<uint32_t>(std::find(order.begin(), order.end(), 0) - order.begin());
  RingEgress egress(g);
  std::vector<Flow> flows;  // all of the half that goes towards Next, then of the other one
  for (const Dir ahead : kAhead) {
    const uint32_t step = ahead == Dir::Next ? 1 : n - 1;
    for (uint32_t hop = 0; hop + 1 < n; ++hop) {
      const uint32_t from = order[(root + (hop + reduce) * step) % n],
                     to = order[(root + (hop + reduce + 1) * step) % n];
      flows.push_back({g.sips[from], g.sips[to], side_of(egress.of(from, ahead)), 1});
    }
  }
  const Detours::Ways ways = q.detours->of(flows);
  const double rate = link_bandwidth(q, 2), message = first_message(q, q.bytes / 2);
  const double follows = q.bytes / 2 - message;
  double longest = 0, slowest = follows / rate;
  for (const uint32_t links : ways.links) slowest = std::max(slowest, transfer_seconds(q, follows, links));
  for (auto links = ways.links.begin(); links != ways.links.end();) {
    double way = 0;
    for (uint32_t hop = 0; hop + 1 < n; ++hop) way += q.latency + (*links++ - 1.0) * hop_seconds(q) + message / rate;
    longest = std::max(longest, way);
  }
  CostQuery shared = q;
  shared.bandwidth = shared_bandwidth(q);
  return longest + std::max(slowest, (ways.fullest * q.bytes / 2 - message) / link_bandwidth(shared, 2));
}

AlgorithmModule rooted_ring_module(Collective collective) {
  AlgorithmModule m;
  m.name = std::string(to_string(collective)) + "_ring";
  m.kernel_name = "ccl_" + m.name;
  m.doc = "half each way round a ring: (n-1)L + S/(2B)";
  m.collective = collective;
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded};
  m.kernel = collective == Collective::Reduce ? reduce_ring_kernel : broadcast_ring_kernel;
  const auto rings = group_memo<RingOrder>([](const Group& g, uint32_t) { return ring_order(g); });
  m.refusal = [collective, rings](const Group& g) {
    const std::string why = rings->of(g)->refusal;
    return why.empty() ? why : why + "; " + to_string(collective) + "_tree runs on any group";
  };
  m.rank_args = [rings](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const auto ring = rings->of(g);
    const uint32_t n = g.size();
    return std::vector<uint64_t>{shape.count, n, (ring->position(rank) + n - ring->position(shape.root)) % n};
  };
  m.connections = [](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) append_ring_connections(g, cube, out);
    return out;
  };
  m.traffic.asks = true;
  m.time = [collective](const CostQuery& q) {
    if (q.ranks < 2) return 0.0;
    if (q.detours != nullptr && q.group != nullptr) return routed_seconds(q, collective == Collective::Reduce);
    const double links = directions_shared(q) ? 1 : 2;
    const double rate = link_bandwidth(q, links), message = first_message(q, q.bytes / 2);
    return (q.ranks - 1) * (q.latency + message / rate) + (q.bytes / links - message) / rate;
  };
  if (reduces(collective)) {
    m.reduction_order = [](const Group& g, const CollectiveShape& shape) {
      const RingOrder ring = ring_order(g);
      const uint32_t n = g.size(), root = ring.position(shape.root);
      std::vector<ReduceTree> trees;
      for (uint32_t half = 0; half < 2; ++half) {
        ReduceTree tree{aligned_chunk(shape.count, 2, half), {}};
        for (uint32_t d = 0; d < n; ++d) {
          tree.postfix.push_back(static_cast<int32_t>(ring.order[(root + (half == 0 ? n - d : d)) % n]));
        }
        tree.postfix.insert(tree.postfix.end(), n - 1, ReduceTree::kCombine);
        if (!tree.range.empty()) trees.push_back(std::move(tree));
      }
      return trees;
    };
  }
  return m;
}

}  // namespace

std::vector<AlgorithmModule> rooted_ring_modules() {
  return {rooted_ring_module(Collective::Broadcast), rooted_ring_module(Collective::Reduce)};
}

}  // namespace ahbm::ccl
