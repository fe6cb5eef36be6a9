// Ring all-reduce: reduce-scatter, then all-gather, each in n-1 steps to the next rank. 2(n-1)L + 2f S/B.
//
// Order of the reduction. Positions count around the ring. Chunk c starts at position c and is reduced on its way:
//   x[c+1] + x[c],  x[c+2] + (x[c+1] + x[c]),  ...,  x[c+n-1] + (...)
// all modulo n; the last of them, position c-1, owns the chunk, divides it (avg) and sends it round.
#include <utility>

#include "ccl/algorithms/lanes.h"
#include "ccl/algorithms/modules.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {

using tl::Dir;

void ring_all_reduce(tl::Tl& tl, const Lane& lane) {
  if (lane.n < 2 || lane.count == 0) return;
  const uint32_t n = lane.n, last = 2 * n - 2, item = item_bytes(lane.dtype);
  const Parts chunks({0, lane.count}, n);
  const SlabPlan plan(tl, lane.dtype, chunks[0].count, 1, {Dir::Next, Dir::Prev}, lane.message_bytes);

  // Step k receives what the previous rank sent in step k-1.
  const auto step_at = [&](const Range& part, uint64_t slab, uint32_t k) {
    const Addr here = lane.buffer + part.begin * item;
    tl::Move m;
    m.count = part.count;
    m.dtype = lane.dtype;
    m.op = lane.op;
    m.piece_bytes = lane.message_bytes;
    m.step = wire_step(slab * last + k);
    m.recv_step = wire_step(slab * last + k + (0xFFFF - 1));
    if (k > 0) m.from = Dir::Prev;
    if (k < last) m.to = Dir::Next;
    if (k < n) m.local = here;       // reduce
    if (k >= n - 1) m.store = here;  // the owner, and then everybody
    if (k == n - 1) m.divisor = lane.divisor();
    return Step{m, plan.store_first && k >= n && k < last};
  };
  uint64_t slab = 0;
  uint32_t k = 0;
  submit_steps(tl, [&](Step& out) {
    while (slab != plan.slabs) {
      const Range part = plan.cut(chunks[(lane.position + 2 * n - k) % n], slab);
      if (!part.empty()) out = step_at(part, slab, k);
      if (k++ == last) {
        k = 0;
        ++slab;
      }
      if (!part.empty()) return true;
    }
    return false;
  });
}

std::vector<ReduceTree> ring_order_of_reduction(uint64_t count, uint32_t n) {
  std::vector<ReduceTree> trees;
  for (uint32_t c = 0; c < n; ++c) {
    ReduceTree tree{aligned_chunk(count, n, c), {}};
    if (tree.range.empty()) continue;
    for (uint32_t i = n; i-- > 0;) tree.postfix.push_back(static_cast<int32_t>((c + i) % n));
    tree.postfix.insert(tree.postfix.end(), n - 1, ReduceTree::kCombine);
    trees.push_back(std::move(tree));
  }
  return trees;
}

namespace {
void ring_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  ring_all_reduce(tl, take_ring_lane(a, buffer, count));
}
}  // namespace

AlgorithmModule ring_module() {
  LaneModule lane = advising(ring_lane_module(), "mesh_2d runs on lines and rectangles without one");
  lane.time = [](const CostQuery& q) { return ring_all_reduce_seconds(q, AxisKind::Up); };
  lane.order = [](const Group& g, uint64_t count) {
    return name_leaves(ring_order_of_reduction(count, g.size()), ring_order(g).order);
  };
  AlgorithmModule m = sip_all_reduce_module_of<ring_lane>(lane);
  m.name = "ring";
  m.traffic.asks = true;
  m.kernel_name = "ccl_ring";
  m.doc = "ring reduce-scatter and all-gather: 2(n-1)L + 2(n-1)/n S/B";
  return m;
}

}  // namespace ahbm::ccl
