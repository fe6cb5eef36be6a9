// All-reduce in both directions of a ring at once: 2 ceil((n-1)/2) L + f S/B.
//
// Position o owns chunk o. Partial sums flow to it from both sides, and the result flows back to both sides. With an
// even n the position opposite of the owner could be on either side: the chunk's first half (of torch.chunk's two)
// counts it among the `before` ones, whose sums travel towards Next, the second half among the `after` ones.
//
// Order of the reduction, modulo n, with b = before and a = after (b + a = n-1; n odd: b = a; n even: b = n/2 in the
// first half, a = n/2 in the second):
//   P = x[o-1] + (x[o-2] + ( ... + x[o-b]))     Q = x[o+1] + (x[o+2] + ( ... + x[o+a]))
//   result = (x[o] + P) + Q, divided by n (avg);  a side without ranks (n = 2) is left out
#include "ccl/algorithms/lanes.h"
#include "ccl/algorithms/modules.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;

/// One way round. Data of `kFlows[0]` enters by Prev and leaves by Next.
struct Flow {
  Dir in, out;
  bool up;
};
constexpr Flow kFlows[2] = {{Dir::Prev, Dir::Next, true}, {Dir::Next, Dir::Prev, false}};

}  // namespace

void bidirectional_all_reduce(tl::Tl& tl, const Lane& lane) {
  if (lane.n < 2 || lane.count == 0) return;
  const uint32_t n = lane.n, half = n / 2, parts = n % 2 == 0 ? 2 : 1, item = item_bytes(lane.dtype);
  const Parts chunks({0, lane.count}, n);
  const SlabPlan plan(tl, lane.dtype, aligned_chunk(chunks[0].count, parts, 0).count, parts, {Dir::Next, Dir::Prev},
                      lane.message_bytes);
  const uint32_t steps = 2 * half + 1;

  // Step k < half: towards the owner half-k away. Step half: at the owner. Step half+j: from the owner j away.
  // False: nothing flows this way, or no elements do.
  const auto fill_in = [&](Step& out, uint64_t slab, uint32_t k, uint32_t part, const Flow& flow) {
    const uint32_t before = part == 0 ? half : n - 1 - half, after = n - 1 - before;
    const auto part_of = [&](uint32_t owner) {
      const Range chunk = chunks[owner % n];
      if (chunk.empty() || parts == 1) return plan.cut(chunk, slab);
      const Range r = aligned_chunk(chunk.count, parts, part);
      return plan.cut({chunk.begin + r.begin, r.count}, slab);
    };
    const auto move_for = [&](const Range& r) {
      tl::Move m;
      m.local = m.store = lane.buffer + r.begin * item;
      m.count = r.count;
      m.dtype = lane.dtype;
      m.op = lane.op;
      m.piece_bytes = lane.message_bytes;
      m.step = wire_step((slab * steps + k) * parts + part);
      m.recv_step = wire_step((slab * steps + k) * parts + part + (0xFFFF - parts));
      return m;
    };
    if (k == half) {
      if (!flow.up) return false;  // one move for both
      const Range own = part_of(lane.position);
      if (own.empty()) return false;
      tl::Move m = move_for(own);
      m.divisor = lane.divisor();
      if (before != 0) m.from.push(Dir::Prev), m.to.push(Dir::Prev);
      if (after != 0) m.from.push(Dir::Next), m.to.push(Dir::Next);
      out = {m, false};
      return true;
    }
    const bool gather = k > half;
    const uint32_t distance = gather ? k - half : half - k;
    const uint32_t reach = flow.up != gather ? before : after;  // ranks that this flow brings together, or serves
    if (distance > reach) return false;
    const Range passing = part_of(flow.up != gather ? lane.position + distance : lane.position + n - distance);
    if (passing.empty()) return false;
    tl::Move m = move_for(passing);
    if (gather || distance < reach) m.from = flow.in;
    if (!gather || distance < reach) m.to = flow.out;
    (gather ? m.local : m.store) = 0;
    out = {m, plan.store_first && gather && !m.to.empty()};
    return true;
  };

  uint64_t slab = 0;
  uint32_t k = 0, part = 0, flow = 0;
  const auto advance = [&] {
    if (++flow != 2) return;
    flow = 0;
    if (++part != parts) return;
    part = 0;
    if (++k != steps) return;
    k = 0;
    ++slab;
  };
  submit_steps(tl, [&](Step& out) {
    while (slab != plan.slabs) {
      const bool found = fill_in(out, slab, k, part, kFlows[flow]);
      advance();
      if (found) return true;
    }
    return false;
  });
}

std::vector<ReduceTree> bidirectional_order_of_reduction(uint64_t count, uint32_t n) {
  std::vector<ReduceTree> trees;
  const uint32_t parts = n % 2 == 0 ? 2 : 1;
  for (uint32_t owner = 0; owner < n; ++owner) {
    const Range chunk = aligned_chunk(count, n, owner);
    for (uint32_t part = 0; part < parts; ++part) {
      const Range r = aligned_chunk(chunk.count, parts, part);
      if (r.empty()) continue;
      const uint32_t before = part == 0 ? n / 2 : (n - 1) / 2;
      ReduceTree tree{{chunk.begin + r.begin, r.count}, {static_cast<int32_t>(owner)}};
      const auto side = [&](uint32_t ranks, uint32_t stride) {  // a chain, nearest first, joined to what is there
        for (uint32_t d = 1; d <= ranks; ++d) tree.postfix.push_back(static_cast<int32_t>((owner + d * stride) % n));
        tree.postfix.insert(tree.postfix.end(), ranks, ReduceTree::kCombine);
      };
      side(before, n - 1);
      side(n - 1 - before, 1);
      trees.push_back(tree);
    }
  }
  return trees;
}

namespace {
void bidirectional_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  bidirectional_all_reduce(tl, take_ring_lane(a, buffer, count));
}
}  // namespace

LaneModule bidirectional_lane_module() {
  LaneModule lane = ring_lane_module();
  lane.time = bidirectional_seconds;
  lane.order = [](const Group& g, uint64_t count) {
    return name_leaves(bidirectional_order_of_reduction(count, g.size()), ring_order(g).order);
  };
  return lane;
}

AlgorithmModule ring_bidirectional_module() {
  AlgorithmModule m = sip_all_reduce_module_of<bidirectional_lane>(
      advising(bidirectional_lane_module(), "mesh_2d runs on lines and rectangles without one"));
  m.name = "ring_bidirectional";
  m.traffic.asks = true;
  m.kernel_name = "ccl_ring_bidirectional";
  m.doc = "both directions of a ring at once: 2 ceil((n-1)/2) L + (n-1)/n S/B";
  return m;
}

}  // namespace ahbm::ccl
