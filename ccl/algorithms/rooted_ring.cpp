// Broadcast and reduce on a ring, pipelined message by message: half of the buffer goes each way round, from the root
// or to it. (n-1)L + S/(2B).
//
// Order of the reduction, with r the root's position: first half  x[r] + (x[r-1] + (x[r-2] + ... x[r+1])), second half
// x[r] + (x[r+1] + (x[r+2] + ... x[r-1])), modulo n.
#include <algorithm>

#include "ccl/algorithms/modules.h"
#include "ccl/detours.h"

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
  Move m = a.move(range.count, static_cast<uint16_t>(half));
  m.local = a.input + range.begin * a.item();
  m.store = a.output + range.begin * a.item();
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

/// B of a link without regard to credits.
double link_rate(const CostQuery& q, double links) {
  CostQuery whole = q;
  whole.bandwidth = shared_bandwidth(q);
  return link_bandwidth(whole, links);
}

/// The longest way round for the first message, and what follows it over the fullest link.
double routed_seconds(const CostQuery& q, bool reduce) {
  const uint32_t n = q.ranks, root = ring_order(*q.group).position(q.root);
  std::vector<Connection> ring;
  append_ring_connections(*q.group, 0, ring);
  std::vector<Flow> flows = flows_along(*q.group, ring);
  // The flow that a half makes its hop-th hop on, away from the root or to it; the last one is left out.
  const auto flow_of = [&](uint32_t half, uint32_t hop) {
    const uint32_t at = hop + reduce;
    return half == 0 ? 2 * ((root + at) % n) : 2 * ((root + 2 * n - 1 - at) % n) + 1;
  };
  for (const uint32_t half : {0, 1}) flows[flow_of(half, n - 1)].bytes = 0;
  const Detours::Ways ways = q.detours->of(flows);
  const double rate = link_rate(q, 2), message = first_message(q, q.bytes / 2);
  double longest = 0, slowest = 0;
  for (const uint32_t half : {0, 1}) {
    double way = 0;
    for (uint32_t hop = 0; hop + 1 < n; ++hop) {
      const uint32_t links = ways.links[flow_of(half, hop)];
      way += q.latency + (links - 1.0) * hop_seconds(q) + message / rate;
      slowest = std::max(slowest, transfer_seconds(q, q.bytes / 2, links) - message / rate);
    }
    longest = std::max(longest, way);
  }
  return longest + std::max(slowest, (ways.fullest * q.bytes / 2 - message) / rate);
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
  const RingMemo rings = lay_on_ring(m, std::string(to_string(collective)) + "_tree");
  m.rank_args = [rings](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const auto ring = rings->of(g);
    const uint32_t n = g.size();
    return std::vector<uint64_t>{shape.count, n, (ring->position(rank) + n - ring->position(shape.root)) % n};
  };
  m.traffic.asks = true;
  m.time = [collective](const CostQuery& q) {
    if (q.ranks < 2) return 0.0;
    if (q.detours != nullptr && q.group != nullptr) return routed_seconds(q, collective == Collective::Reduce);
    const double links = directions_shared(q) ? 1 : 2;
    const double rate = link_rate(q, links), message = first_message(q, q.bytes / 2);
    return (q.ranks - 1) * (q.latency + message / rate) +
           std::max(q.bytes / links / rate, transfer_seconds(q, q.bytes / 2)) - message / rate;
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
