#include "runtime/dtensor/redistribute.h"

#include <algorithm>
#include <cmath>

#include "runtime/dtensor/session.h"
#include "runtime/ops/execute.h"

namespace ahbm::dtensor {

using runtime::distributed::ProcessGroup;
using runtime::distributed::Work;
namespace ops = runtime::ops;

namespace {

Tensor apply(Context& context, Op op, const Tensor& in, double value = 0, bool inplace = false) {
  OpArgs args;
  args.value = value;
  args.inplace = inplace;
  return ops::execute(context, op, args, {in}, {{in.shape(), in.dtype()}}).front();
}

/// One step of a plan on one rank. A collective moves equal blocks between the members of a group, in the order of
/// their ranks; the mesh may order them otherwise, parts may be short or lie in several pieces. Where none of this is
/// so the tensors themselves go to the collective. Otherwise blocks are packed into a tensor with one more dimension in
/// front, the member, and unpacked from one.
class Step {
 public:
  Step(const DeviceMesh& mesh, const RedistributePlan& plan, const MergedStep& merged, const DPPolicy& policy)
      : m_context(mesh.context()),
        m_step(plan.steps[merged.first]),
        m_info(step_on_rank(plan, merged, *mesh.get_coordinate())),
        m_policy(policy) {
    if (merged.count > 1) {
      m_group = mesh.session().group(m_info.group);
    } else if (communicates()) {
      m_group = mesh.get_group(m_step.mesh_dim);
    }
    RankList sorted = m_info.group;
    std::sort(sorted.begin(), sorted.end());
    for (const uint32_t rank : m_info.group) {
      m_slot.push_back(std::lower_bound(sorted.begin(), sorted.end(), rank) - sorted.begin());
    }
    m_in_order = std::is_sorted(m_slot.begin(), m_slot.end());
  }

  bool communicates() const { return m_step.collective != CollectiveKind::None; }

  Part run(Part part) { return start(std::move(part), false)(); }

  /// `async_op`: of the collective, if there is one.
  Finish start(Part part, bool async_op) {
    // Marks go with the entries as they lie now; a pending sum of zeroes needs none.
    const bool moves = m_step.transition != Transition::Keep && m_step.transition != Transition::MaskIndices;
    if (moves && !part.masks.empty()) part = without_masked(std::move(part));
    switch (m_step.transition) {
      case Transition::Keep:
        return done(std::move(part));
      case Transition::Cut:
        return done(cut(part.tensor));
      case Transition::Gather:
      case Transition::GatherCut:
        return gather(part.tensor, async_op);
      case Transition::Exchange:
        return exchange(part.tensor, async_op);
      case Transition::Reduce:
        return reduce(std::move(part), async_op);
      case Transition::ReduceCut:
        return reduce_cut(std::move(part), async_op);
      case Transition::Divide:
      case Transition::ScaleNorm:
        return done(share_of(m_context, std::move(part), m_step.to, n(), m_info.group_rank));
      case Transition::MaskIndices:
        return done(mask(std::move(part)));
    }
    throw std::logic_error("redistribute: a step of no kind");
  }

 private:
  uint32_t n() const { return static_cast<uint32_t>(m_slot.size()); }
  Tensor make(const Dims& shape, DType dtype) const { return m_context.empty(to_shape(shape), dtype, m_policy); }

  static Finish done(Part part) {
    return [part = std::move(part)] { return part; };
  }
  static Finish done(Tensor tensor) { return done(Part{std::move(tensor), {}, true}); }

  std::vector<Range> from_ranges(uint32_t member) const {
    return owned_ranges(m_step.from, static_cast<uint64_t>(m_info.from_extent), n(), member);
  }
  std::vector<Range> to_ranges(uint32_t member) const {
    return owned_ranges(m_step.to, static_cast<uint64_t>(m_info.to_extent), n(), member);
  }
  /// Whether the members' parts of the collected (the cut) dimension are equal blocks in the group's order.
  bool from_is_plain() const {
    return m_in_order && std::holds_alternative<Shard>(m_step.from) && m_info.from_extent == m_info.from_chunk * n();
  }
  bool to_is_plain() const {
    return m_in_order && std::holds_alternative<Shard>(m_step.to) && m_info.to_extent == m_info.to_chunk * n();
  }
  /// The shape of one member's block, with the members in front.
  Dims stacked(const Dims& block) const {
    Dims out{n()};
    out.insert(out.end(), block.begin(), block.end());
    return out;
  }

  Tensor cut(const Tensor& t) const {
    return ops::take(m_context, t, static_cast<size_t>(m_info.to_dim), to_ranges(m_info.group_rank));
  }

  /// Block `m_slot[j]` holds the part of `to_dim` that member j shall have.
  Tensor pack(const Tensor& t, const Dims& block) const {
    const Tensor out = make(stacked(block), t.dtype());
    std::vector<ops::Box> boxes;
    for (uint32_t j = 0; j < n(); ++j) {
      int64_t at = 0;
      for (const Range& r : to_ranges(j)) {
        ops::Box box = between_block_and_tensor(m_slot[j], to_dims(t.shape()));
        box.extent[to() + 1] = static_cast<int64_t>(r.count);
        box.dst_begin[to() + 1] = at;
        box.src_begin[to()] = static_cast<int64_t>(r.begin);
        at += static_cast<int64_t>(r.count);
        add(boxes, std::move(box));
      }
    }
    ops::copy_boxes(m_context, out, t, boxes);
    return out;
  }
  /// A box of `shape` that goes from the tensor into block `slot`.
  static ops::Box between_block_and_tensor(int64_t slot, const Dims& shape) {
    ops::Box box;
    box.extent = {1};
    box.extent.insert(box.extent.end(), shape.begin(), shape.end());
    box.dst_begin.assign(shape.size() + 1, 0);
    box.dst_begin[0] = slot;
    box.src_begin.assign(shape.size(), 0);
    box.src_dim = {-1};
    for (size_t d = 0; d < shape.size(); ++d) box.src_dim.push_back(static_cast<int>(d));
    box.src_step.assign(shape.size() + 1, 1);
    return box;
  }

  /// Puts the parts of `from_dim` in the blocks together; the result has `shape`.
  Tensor unpack(const Tensor& blocks, const Dims& shape) const {
    Tensor out = make(shape, blocks.dtype());
    std::vector<ops::Box> boxes;
    for (uint32_t j = 0; j < n(); ++j) {
      int64_t at = 0;
      for (const Range& r : from_ranges(j)) {
        ops::Box box;
        box.extent = shape;
        box.extent[from()] = static_cast<int64_t>(r.count);
        box.dst_begin.assign(shape.size(), 0);
        box.dst_begin[from()] = static_cast<int64_t>(r.begin);
        box.src_begin.assign(shape.size() + 1, 0);
        box.src_begin[0] = static_cast<int64_t>(m_slot[j]);
        box.src_begin[from() + 1] = at;
        for (size_t d = 0; d < shape.size(); ++d) box.src_dim.push_back(static_cast<int>(d) + 1);
        box.src_step.assign(shape.size(), 1);
        at += static_cast<int64_t>(r.count);
        add(boxes, std::move(box));
      }
    }
    ops::copy_boxes(m_context, out, blocks, boxes);
    return out;
  }
  static void add(std::vector<ops::Box>& boxes, ops::Box box) {
    if (numel(box.extent) > 0) boxes.push_back(std::move(box));
  }

  Finish gather(const Tensor& t, bool async_op) const {
    const Tensor send =
        m_info.before[from()] == m_info.from_chunk
            ? t
            : cut_padded(m_context, t, m_info.from_dim, {{0, t.shape()[from()]}}, m_info.from_chunk, m_policy);
    const bool plain = from_is_plain();
    const Tensor got = make(plain ? m_info.recv_shape : stacked(m_info.send_shape), t.dtype());
    const Work work =
        m_context.distributed.all_gather_into_tensor(got, send, m_group, async_op, plain ? m_info.from_dim : 0);
    return [step = *this, work, got, plain] {
      work.wait();
      Dims whole = step.m_info.before;
      whole[step.from()] = step.m_info.from_extent;
      Tensor out = plain ? got : step.unpack(got, whole);
      if (step.m_step.transition == Transition::GatherCut) out = step.cut(out);
      return Part{out, {}, true};
    };
  }

  Finish exchange(const Tensor& t, bool async_op) const {
    Dims block = m_info.before;
    block[from()] = m_info.from_chunk;
    block[to()] = m_info.to_chunk;
    const bool full = m_info.before[from()] == m_info.from_chunk;
    const Tensor send = full && to() == 0 && to_is_plain() ? t : pack(t, block);
    const bool plain = from() == 0 && from_is_plain() && to_is_plain();
    const Tensor got = make(plain ? m_info.recv_shape : stacked(block), t.dtype());
    const Work work = m_context.distributed.all_to_all_single(got, send, {}, {}, m_group, async_op);
    return [step = *this, work, got, plain] {
      work.wait();
      return Part{plain ? got : step.unpack(got, step.m_info.after), {}, true};
    };
  }

  Part without_masked(Part part) const {
    part = owned(m_context, std::move(part));
    for (const Tensor& m : part.masks) ops::zero_masked(m_context, part.tensor, m);
    part.masks.clear();
    return part;
  }

  /// What goes into the reduction, in memory of its own if `need_own`.
  Tensor pieces(Part part, bool need_own) const {
    if (powers()) {
      part.tensor = apply(m_context, Op::PowScalar, apply(m_context, Op::Abs, part.tensor), exponent());
      part.owned = true;
    }
    return (need_own ? owned(m_context, std::move(part)) : part).tensor;
  }
  /// Of a norm that is not pending as a plain sum, maximum or minimum.
  bool powers() const {
    const auto* norm = std::get_if<NormPartial>(&m_step.from);
    return norm != nullptr && std::isfinite(norm->p) && norm->p != 0 && norm->p != 1;
  }
  double exponent() const { return std::get<NormPartial>(m_step.from).p; }
  Part reduced(Tensor t) const {
    if (powers()) t = apply(m_context, Op::PowScalar, t, 1 / exponent());
    return {std::move(t), {}, true};
  }

  Finish reduce(Part part, bool async_op) const {
    const Tensor value = pieces(std::move(part), true);
    const Work work = m_context.distributed.all_reduce(value, m_step.reduce_op, m_group, async_op);
    return [step = *this, work, value] {
      work.wait();
      return step.reduced(value);
    };
  }

  Finish reduce_cut(Part part, bool async_op) const {
    Tensor value = pieces(std::move(part), false);
    const bool plain = to_is_plain();
    if (!plain) {
      value = pack(value, m_info.recv_shape);
    }
    const Tensor got = make(m_info.recv_shape, value.dtype());
    const Work work = m_context.distributed.reduce_scatter_tensor(got, value, m_step.reduce_op, m_group, async_op,
                                                                  plain ? m_info.to_dim : 0);
    return [step = *this, work, got] {
      work.wait();
      Part out = step.reduced(got);
      const auto count = static_cast<uint64_t>(step.m_info.after[step.to()]);
      if (count != got.shape()[step.to()]) {
        out.tensor = ops::take(step.m_context, out.tensor, step.to(), {{0, count}});
      }
      return out;
    };
  }

  Part mask(Part part) const {
    ops::MaskedIndices masked = ops::mask_indices(m_context, part.tensor, m_info.rows);
    part.tensor = std::move(masked.indices);
    part.masks.push_back(std::move(masked.mask));
    part.owned = true;
    return part;
  }

  size_t from() const { return static_cast<size_t>(m_info.from_dim); }
  size_t to() const { return static_cast<size_t>(m_info.to_dim); }

  Context& m_context;
  PlanStep m_step;
  StepOnRank m_info;
  DPPolicy m_policy;
  ProcessGroup m_group;            ///< of a step that communicates
  SmallVector<int64_t, 8> m_slot;  ///< of each member in mesh order: its place in the group
  bool m_in_order = true;
};

}  // namespace

Tensor cut_padded(Context& context, const Tensor& t, int dim, const std::vector<Range>& ranges, int64_t chunk,
                  const DPPolicy& policy) {
  const auto d = static_cast<size_t>(dim);
  Dims shape = to_dims(t.shape());
  std::vector<ops::Box> boxes;
  int64_t at = 0;
  for (const Range& r : ranges) {
    Dims extent = shape;
    extent[d] = static_cast<int64_t>(r.count);
    Dims dst(shape.size(), 0);
    Dims src(shape.size(), 0);
    dst[d] = at;
    src[d] = static_cast<int64_t>(r.begin);
    at += extent[d];
    if (numel(extent) > 0) boxes.push_back(ops::box(extent, dst, src));
  }
  shape[d] = chunk;
  Tensor out = context.empty(to_shape(shape), t.dtype(), policy);
  if (!boxes.empty()) ops::copy_boxes(context, out, t, boxes);
  return out;
}

Part owned(Context& context, Part part) {
  if (!part.owned) part.tensor = apply(context, Op::Clone, part.tensor);
  part.owned = true;
  return part;
}

Part share_of(Context& context, Part part, const Placement& to, uint32_t n, uint32_t position) {
  double divisor = n;
  if (const auto* norm = std::get_if<NormPartial>(&to)) {
    divisor = std::isinf(norm->p) ? 1 : std::pow(n, 1 / norm->p);
  } else if (!is_partial(to, ReduceOp::Sum)) {
    divisor = 1;
  }
  if (divisor == 1) return part;
  if (is_floating(part.tensor.dtype())) return {apply(context, Op::DivScalar, part.tensor, divisor), {}, true};
  // Integers are not divided without rest: the first rank keeps the value.
  if (position == 0) return part;
  return {apply(context, Op::ZerosLike, part.tensor), {}, true};
}

Tensor nothing_of(Context& context, const DTensorSpec& spec) {
  if (spec.ndim() == 0) return context.zeros({}, spec.dtype());
  return context.empty({0}, spec.dtype());
}

Part redistribute_part(const DeviceMesh& mesh, const RedistributePlan& plan, Part part, const DPPolicy& policy) {
  const NamedOperation operation(mesh.session(), [&] { return "redistribute " + trace(plan); });
  const AtWork at_work(mesh.session(), mesh.layout());
  for (const MergedStep& s : mesh.session().steps_of(plan)) part = Step(mesh, plan, s, policy).run(std::move(part));
  return part;
}

Finish start_redistribute(const DeviceMesh& mesh, const RedistributePlan& plan, Part part, const DPPolicy& policy) {
  const NamedOperation operation(mesh.session(), [&] { return "redistribute " + trace(plan); });
  const AtWork at_work(mesh.session(), mesh.layout());
  std::vector<MergedStep> steps = mesh.session().steps_of(plan);
  size_t last = steps.size();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (plan.steps[steps[i].first].collective != CollectiveKind::None) last = i;
  }
  for (size_t i = 0; i < last; ++i) part = Step(mesh, plan, steps[i], policy).run(std::move(part));
  if (last == steps.size()) return [part = std::move(part)] { return part; };
  Finish collective = Step(mesh, plan, steps[last], policy).start(std::move(part), true);
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  return [mesh, plan, policy, rest = std::move(steps), collective = std::move(collective)] {
    Part out = collective();
    for (const MergedStep& s : rest) out = Step(mesh, plan, s, policy).run(std::move(out));
    return out;
  };
}

}  // namespace ahbm::dtensor
