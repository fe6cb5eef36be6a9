#include "ccl/algorithms/axis.h"

#include <algorithm>
#include <utility>

namespace ahbm::ccl {

using tl::Dir;
using tl::Move;

AxisSchedule::AxisSchedule(const tl::Tl& tl, const SipAxis& axis, AxisWork work, Phases phases)
    : m_axis(axis),
      m_work(std::move(work)),
      m_phases(phases),
      m_flows{{axis.prev, axis.next, true}, {axis.next, axis.prev, false}} {
  const uint32_t farthest = axis.kind == AxisKind::Both ? axis.n / 2 : axis.n - 1;
  m_first_round = axis.n - 1 - (reduces() ? farthest : 0);
  m_end_round = axis.n + (gathers() ? farthest : 0);
  if (phases == Phases::AllReduce) m_work.output = m_work.input;
  const uint64_t longest = aligned_chunk(m_work.blocks.longest(), axis.parts(), 0).count;
  if (axis.n > 1) {
    std::vector<Dir> dirs;
    for (Dir d : {axis.prev, axis.next}) {
      if (tl.has(d)) dirs.push_back(d);
    }
    m_plan = SlabPlan(tl, m_work.dtype, longest, axis.parts(), dirs, m_work.message_bytes);
  } else {
    m_plan.slab_elems = std::max<uint64_t>(1, longest);
    m_plan.slabs = longest == 0 ? 0 : 1;
  }
  m_round = m_first_round;
}

bool AxisSchedule::next(Step& out) {
  while (m_slab != m_plan.slabs) {
    const bool found = fill_in(out);
    advance();
    if (found) return true;
  }
  return false;
}

void AxisSchedule::advance() {
  if (m_round != m_axis.n - 1 && ++m_flow != 2) return;
  m_flow = 0;
  if (++m_part != m_axis.parts()) return;
  m_part = 0;
  if (++m_round != m_end_round) return;
  m_round = m_first_round;
  ++m_slab;
}

bool AxisSchedule::fill_in(Step& out) const {
  const uint32_t owner_round = m_axis.n - 1;
  if (m_round < owner_round) return towards_owner(out, m_flows[m_flow], owner_round - m_round);
  if (m_round == owner_round) return at_owner(out);
  return from_owner(out, m_flows[m_flow], m_round - owner_round);
}

uint32_t AxisSchedule::away(uint32_t d, bool further) const {
  const uint32_t p = m_axis.position, n = m_axis.n;
  if (m_axis.kind == AxisKind::Line) return further ? std::min(n, p + d) : d <= p ? p - d : n;
  return (further ? p + d : p + n - d) % n;
}

Range AxisSchedule::part_of(uint32_t owner) const {
  const Range block = m_work.blocks[owner];
  if (block.empty() || m_axis.parts() == 1) return m_plan.cut(block, m_slab);
  const Range r = aligned_chunk(block.count, m_axis.parts(), m_part);
  return m_plan.cut({block.begin + r.begin, r.count}, m_slab);
}

Move AxisSchedule::move_for(uint32_t owner, const Range& r, bool gather) const {
  const uint32_t item = item_bytes(m_work.dtype);
  Move m;
  m.local = m_work.input.at(r.begin, item);
  m.store = m_work.output.at(r.begin, item);
  m.count = r.count;
  m.dtype = m_work.dtype;
  m.op = m_work.op;
  m.piece_bytes = m_work.message_bytes;
  m.step = wire_step(((m_slab * 2 + gather) * m_axis.n + owner) * m_axis.parts() + m_part);
  return m;
}

bool AxisSchedule::towards_owner(Step& out, const Flow& flow, uint32_t d) const {
  const uint32_t owner = away(d, flow.up);
  if (owner == m_axis.n) return false;
  const auto [before, after] = m_axis.reach(owner, m_part);
  const uint32_t reach = flow.up ? before : after;
  if (d > reach) return false;
  const Range part = part_of(owner);
  if (part.empty()) return pass_over(out);
  Move m = move_for(owner, part, false);
  m.store = 0;
  if (d < reach) m.from = flow.in;
  m.to = flow.out;
  out = {m, false};
  return true;
}

bool AxisSchedule::at_owner(Step& out) const {
  const auto [before, after] = m_axis.reach(m_axis.position, m_part);
  const Range part = part_of(m_axis.position);
  Move m = move_for(m_axis.position, part, gathers());
  if (reduces()) m.divisor = m_work.divisor;
  // Sums that arrive carry the step of the reduction.
  if (m_phases == Phases::AllReduce) m.recv_step = move_for(m_axis.position, part, false).step;
  if (before != 0) {
    if (reduces()) m.from.push(m_axis.prev);
    if (gathers()) m.to.push(m_axis.prev);
  }
  if (after != 0) {
    if (reduces()) m.from.push(m_axis.next);
    if (gathers()) m.to.push(m_axis.next);
  }
  if (m.store == m.local && m.from.empty() && m.divisor == 1) m.store = 0;
  if (m.store == 0 && m.to.empty()) return false;
  out = {m, false};
  return true;
}

bool AxisSchedule::from_owner(Step& out, const Flow& flow, uint32_t d) const {
  const uint32_t owner = away(d, !flow.up);
  if (owner == m_axis.n) return false;
  const auto [before, after] = m_axis.reach(owner, m_part);
  const uint32_t reach = flow.up ? after : before;
  if (d > reach) return false;
  const Range part = part_of(owner);
  if (part.empty()) return pass_over(out);
  Move m = move_for(owner, part, true);
  m.local = 0;
  m.from = flow.in;
  if (d < reach) m.to = flow.out;
  out = {m, m_plan.store_first && d < reach};
  return true;
}

void submit_in_turn(tl::Tl& tl, std::vector<AxisSchedule> schedules) {
  size_t turn = 0;
  submit_steps(tl, [&](Step& out) {
    for (size_t tried = 0; tried < schedules.size(); ++tried) {
      const bool found = schedules[turn].next(out);
      turn = turn + 1 == schedules.size() ? 0 : turn + 1;
      if (found) return true;
    }
    return false;
  });
}

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

std::vector<ReduceTree> axis_order_of_reduction(const SipAxis& axis, const Parts& blocks) {
  std::vector<ReduceTree> trees;
  for (uint32_t owner = 0; owner < axis.n; ++owner) {
    for (uint32_t part = 0; part < axis.parts(); ++part) {
      const Range r = Parts(blocks[owner], axis.parts())[part];
      if (r.empty()) continue;
      ReduceTree tree{r, {static_cast<int32_t>(owner)}};
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
  for (uint32_t p = 0; p < axis.links(n); ++p)
    out.push_back({order[p], cube, axis.next, order[(p + 1) % n], cube, axis.prev});
}

}  // namespace ahbm::ccl
