#include "ccl/algorithms/axis.h"

#include <algorithm>

#include "ccl/algorithms/lanes.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;
using tl::Move;

/// One way along an axis: data enters by `in` and leaves by `out`.
struct Flow {
  Dir in, out;
  bool up;
};

class Schedule {
 public:
  Schedule(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work)
      : m_axis(axis), m_work(work), m_flows{{axis.prev, axis.next, true}, {axis.next, axis.prev, false}} {
    for (const Range& b : work.blocks) m_longest = std::max(m_longest, aligned_chunk(b.count, axis.parts(), 0).count);
    if (axis.n > 1) {
      std::vector<Dir> dirs;
      for (Dir d : {axis.prev, axis.next}) {
        if (tl.has(d)) dirs.push_back(d);
      }
      m_plan = SlabPlan(tl, work.dtype, m_longest, axis.parts(), dirs, work.message_bytes);
    } else {
      m_plan.slab_elems = std::max<uint64_t>(1, m_longest);
      m_plan.slabs = m_longest == 0 ? 0 : 1;
    }
  }

  std::vector<Step> run(bool reduce, bool gather) {
    for (m_slab = 0; m_slab < m_plan.slabs; ++m_slab) {
      for (uint32_t d = m_axis.n - 1; d > 0 && reduce; --d) {
        for_parts([&](uint32_t part) {
          for (const Flow& flow : m_flows) towards_owner(flow, d, part);
        });
      }
      for_parts([&](uint32_t part) { at_owner(part, reduce, gather); });
      for (uint32_t d = 1; d < m_axis.n && gather; ++d) {
        for_parts([&](uint32_t part) {
          for (const Flow& flow : m_flows) from_owner(flow, d, part);
        });
      }
    }
    return std::move(m_steps);
  }

 private:
  template <typename F>
  void for_parts(F&& f) {
    for (uint32_t part = 0; part < m_axis.parts(); ++part) f(part);
  }
  /// The position `d` further on (negative: back); n when a line ends before.
  uint32_t away(uint32_t d, bool further) const {
    const uint32_t p = m_axis.position, n = m_axis.n;
    if (m_axis.kind == AxisKind::Line) return further ? std::min(n, p + d) : d <= p ? p - d : n;
    return (further ? p + d : p + n - d) % n;
  }
  Move move_for(uint32_t owner, uint32_t part, bool gather) const {
    const Range& block = m_work.blocks[owner];
    Range r = aligned_chunk(block.count, m_axis.parts(), part);
    r = m_plan.cut({block.begin + r.begin, r.count}, m_slab);
    const uint32_t item = item_bytes(m_work.dtype);
    Move m;
    m.local = m_work.input.at(r.begin, item);
    m.store = m_work.output.at(r.begin, item);
    m.count = r.count;
    m.dtype = m_work.dtype;
    m.op = m_work.op;
    m.piece_bytes = m_work.message_bytes;
    m.step = wire_step(((m_slab * 2 + gather) * m_axis.n + owner) * m_axis.parts() + part);
    return m;
  }
  void towards_owner(const Flow& flow, uint32_t d, uint32_t part) {
    const uint32_t owner = away(d, flow.up);
    if (owner == m_axis.n) return;
    const auto [before, after] = m_axis.reach(owner, part);
    const uint32_t reach = flow.up ? before : after;
    if (d > reach) return;
    Move m = move_for(owner, part, false);
    m.store = 0;
    if (d < reach) m.from = flow.in;
    m.to = flow.out;
    m_steps.push_back({m, false});
  }
  void at_owner(uint32_t part, bool reduce, bool gather) {
    const auto [before, after] = m_axis.reach(m_axis.position, part);
    Move m = move_for(m_axis.position, part, gather);
    if (reduce) m.divisor = m_work.divisor;
    // Sums that arrive carry the step of the reduction.
    if (reduce && gather) m.recv_step = move_for(m_axis.position, part, false).step;
    if (before != 0) {
      if (reduce) m.from.push(m_axis.prev);
      if (gather) m.to.push(m_axis.prev);
    }
    if (after != 0) {
      if (reduce) m.from.push(m_axis.next);
      if (gather) m.to.push(m_axis.next);
    }
    if (m.store == m.local && m.from.empty() && m.divisor == 1) m.store = 0;
    if (m.store == 0 && m.to.empty()) return;
    m_steps.push_back({m, false});
  }
  void from_owner(const Flow& flow, uint32_t d, uint32_t part) {
    const uint32_t owner = away(d, !flow.up);
    if (owner == m_axis.n) return;
    const auto [before, after] = m_axis.reach(owner, part);
    const uint32_t reach = flow.up ? after : before;
    if (d > reach) return;
    Move m = move_for(owner, part, true);
    m.local = 0;
    m.from = flow.in;
    if (d < reach) m.to = flow.out;
    m_steps.push_back({m, m_plan.store_first && d < reach});
  }

  const SipAxis& m_axis;
  const AxisWork& m_work;
  const Flow m_flows[2];
  uint64_t m_longest = 0, m_slab = 0;
  SlabPlan m_plan;
  std::vector<Step> m_steps;
};

}  // namespace

SipAxis::Reach SipAxis::reach(uint32_t owner, uint32_t part) const {
  switch (kind) {
    case AxisKind::Up:
      return {n - 1, 0};
    case AxisKind::Down:
      return {0, n - 1};
    case AxisKind::Line:
      return {owner, n - 1 - owner};
    case AxisKind::Both:
      break;
  }
  const uint32_t half = n / 2;
  return part == 0 ? Reach{half, n - 1 - half} : Reach{n - 1 - half, half};
}

void submit_in_turn(tl::Tl& tl, const std::vector<std::vector<Step>>& schedules) {
  size_t longest = 0;
  for (const auto& s : schedules) longest = std::max(longest, s.size());
  for (size_t i = 0; i < longest; ++i) {
    for (const auto& s : schedules) {
      if (i < s.size()) forward(tl, s[i].move, s[i].store_first);
    }
  }
}

std::vector<Step> reduce_scatter_steps(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work) {
  return Schedule(tl, axis, work).run(true, false);
}
std::vector<Step> all_gather_steps(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work) {
  return Schedule(tl, axis, work).run(false, true);
}
std::vector<Step> all_reduce_steps(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work) {
  AxisWork in_place = work;
  in_place.output = work.input;
  return Schedule(tl, axis, in_place).run(true, true);
}

std::vector<ReduceTree> axis_order_of_reduction(const SipAxis& axis, const std::vector<Range>& blocks) {
  std::vector<ReduceTree> trees;
  for (uint32_t owner = 0; owner < axis.n; ++owner) {
    for (uint32_t part = 0; part < axis.parts(); ++part) {
      const Range r = aligned_chunk(blocks[owner].count, axis.parts(), part);
      if (r.empty()) continue;
      ReduceTree tree{{blocks[owner].begin + r.begin, r.count}, {static_cast<int32_t>(owner)}};
      const auto [before, after] = axis.reach(owner, part);
      const auto side = [&](uint32_t ranks, uint32_t stride) {  // a chain, nearest first, joined to what is there
        for (uint32_t d = 1; d <= ranks; ++d) {
          tree.postfix.push_back(static_cast<int32_t>((owner + uint64_t{d} * stride) % axis.n));
        }
        tree.postfix.insert(tree.postfix.end(), ranks, ReduceTree::kCombine);
      };
      side(before, axis.n - 1);
      side(after, 1);
      trees.push_back(std::move(tree));
    }
  }
  return trees;
}

void append_axis_connections(const SipAxis& axis, const std::vector<uint32_t>& order, uint32_t cube,
                             std::vector<Connection>& out) {
  const auto n = static_cast<uint32_t>(order.size());
  const uint32_t links = n < 2 ? 0 : axis.kind == AxisKind::Line ? n - 1 : n;
  for (uint32_t p = 0; p < links; ++p) out.push_back({order[p], cube, axis.next, order[(p + 1) % n], cube, axis.prev});
}

}  // namespace ahbm::ccl
