// Ring all-reduce: reduce-scatter, then all-gather, each in n-1 steps to the next rank. 2(n-1)L + 2f S/B.
//
// Order of the reduction. Positions count around the ring. Chunk c starts at position c and is reduced on its way:
//   x[c+1] + x[c],  x[c+2] + (x[c+1] + x[c]),  ...,  x[c+n-1] + (...)
// all modulo n; the last of them, position c-1, owns the chunk, divides it (avg) and sends it round.
#include <utility>

#include "ccl/algorithms/lanes.h"
#include "ccl/algorithms/modules.h"

namespace ahbm::ccl {

namespace {

using tl::Dir;

/// Words: n, position.
void ring_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  const uint32_t n = a.take32(), position = a.take32();
  if (n < 2 || count == 0) return;
  const uint32_t last = 2 * n - 2;
  const Parts chunks({0, count}, n);
  const SlabPlan plan(tl, a.dtype, chunks[0].count, 1, {Dir::Next, Dir::Prev}, a.message_bytes);

  // Step k receives what the previous rank sent in step k-1.
  const auto step_at = [&](const Range& part, uint64_t slab, uint32_t k) {
    const Addr here = buffer + part.begin * a.item();
    tl::Move m = a.move(part.count, wire_step(slab * last + k));
    m.recv_step = wire_step(slab * last + k + (0xFFFF - 1));
    if (k > 0) m.from = Dir::Prev;
    if (k < last) m.to = Dir::Next;
    if (k < n) m.local = here;       // reduce
    if (k >= n - 1) m.store = here;  // the owner, and then everybody
    if (k == n - 1 && a.op == ReduceOp::Avg) m.divisor = n;
    return Step{m, plan.store_first && k >= n && k < last};
  };
  uint64_t slab = 0;
  uint32_t k = 0;
  submit_steps(tl, [&](Step& out) {
    while (slab != plan.slabs) {
      const Range part = plan.cut(chunks[(position + 2 * n - k) % n], slab);
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
