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
#include <utility>

#include "ccl/algorithms/modules.h"

namespace ahbm::ccl {

/// Words: n, position.
void bidirectional_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  SipAxis axis;
  axis.n = a.take32();
  axis.position = a.take32();
  AxisWork work(a, Parts({0, count}, axis.n));
  work.input = work.output = {buffer, 0};
  if (a.op == ReduceOp::Avg) work.divisor = axis.n;
  submit_in_turn(tl, {AxisSchedule(tl, axis, std::move(work), AxisSchedule::Phases::AllReduce)});
}

LaneModule bidirectional_lane_module() {
  LaneModule lane = ring_lane_module();
  lane.time = bidirectional_seconds;
  lane.order = [](const Group& g, uint64_t count) {
    SipAxis axis;
    axis.n = g.size();
    return name_leaves(axis_order_of_reduction(axis, Parts({0, count}, axis.n)), ring_order(g).order);
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
