// Reductions. Every PE folds what it holds; where the cut dimension is reduced, the PEs of the result then fold those
// parts in the order of cubes and PEs. The order depends on shape and policy alone, so that runs are bit-identical.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {
namespace {

using kernels::Finish;
using kernels::Map;
using tl::Fold;

struct Plan {
  Map map = Map::Identity;
  Fold fold = Fold::Sum;
  double p = 2;
  Finish finish = Finish::None;
  double count = 1;
};

Plan plan_of(const Call& call, uint64_t reduced) {
  Plan plan;
  plan.count = static_cast<double>(reduced);
  switch (call.op) {
    case Op::Mean:
      plan.finish = Finish::Mean;
      break;
    case Op::Max:
      plan.fold = Fold::Max;
      break;
    case Op::Min:
      plan.fold = Fold::Min;
      break;
    case Op::Prod:
      plan.fold = Fold::Prod;
      break;
    case Op::All:
    case Op::Any:
      plan.map = Map::NonZero;
      plan.fold = call.op == Op::All ? Fold::Min : Fold::Max;
      plan.finish = Finish::NonZero;
      break;
    case Op::Norm:
      plan.map = Map::Power;
      plan.p = call.args.p;
      if (std::isinf(plan.p)) {
        plan.fold = plan.p > 0 ? Fold::Max : Fold::Min;
      } else if (plan.p != 0 && plan.p != 1) {
        plan.finish = Finish::Root;
      }
      break;
    default:
      break;
  }
  return plan;
}

/// What a reduction of no elements gives.
double identity(const Call& call) {
  const DType t = call.out().dtype;
  const auto limit = [&](double infinity) { return rounded_limit(t, infinity); };
  switch (call.op) {
    case Op::Mean:
    case Op::Var:
    case Op::Std:
      return std::numeric_limits<double>::quiet_NaN();
    case Op::Max:
    case Op::LogSumExp:
      return limit(-std::numeric_limits<double>::infinity());
    case Op::Min:
      return limit(std::numeric_limits<double>::infinity());
    case Op::Norm:
      return call.args.p < 0 ? limit(std::numeric_limits<double>::infinity()) : 0;
    case Op::Prod:
    case Op::All:
      return 1;
    default:
      return 0;
  }
}

/// A tensor [a, r, b] of which r goes.
struct Middle {
  Tensor tensor;
  uint64_t a = 1, r = 1, b = 1;
};

Middle middle_of(const Call& call, const Dims& dims) {
  Middle m{call.in(0)};
  const Shape& shape = m.tensor.shape();
  const bool together = dims.empty() || dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool gone = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    const bool before = !dims.empty() && (!together || static_cast<int64_t>(d) < dims.front());
    (gone ? m.r : (before || dims.empty() ? m.a : m.b)) *= shape[d];
  }
  if (!together) {
    m.tensor =
        permuted(call.context, m.tensor, kept_first(shape.size(), dims), by_rows(m.tensor.policy()), m.tensor.dtype());
  } else if (!Placed(call.context, m.tensor).by_rows()) {
    m.tensor = relayout(call.context, m.tensor, by_rows(m.tensor.policy()));
  }
  return m;
}

class Reducer {
 public:
  Reducer(const Call& call, const Plan& plan, Middle middle)
      : m_call(call), m_plan(plan), m_middle(std::move(middle)), m_placed(call.context, m_middle.tensor) {}

  /// The first dimension stays: every PE has all of what it needs.
  Tensor local(const Shape& shape) {
    Tensor out = make(m_call.context, shape, m_call.out().dtype, m_middle.tensor.policy());
    const Placed to(m_call.context, out);
    KernelLaunch launch(m_call.context, "reduce");
    for (const layout::Shard& s : m_placed.layout().shards()) {
      if (s.elements == 0) continue;
      reduce(launch, s, s.elements / (m_middle.r * m_middle.b), m_middle.r, m_plan.finish, out,
             to.own(s.cube, s.pe).address);
    }
    launch.reads(m_middle.tensor, false);
    launch.writes(out, true);
    launch.run();
    return out;
  }

  /// The first dimension goes: parts of every PE, then those together, into `shape` by rows.
  Tensor over_pes(const Shape& shape) {
    const layout::Layout& l = m_placed.layout();
    const uint64_t cubes = l.replicated_over_cubes() ? 1 : l.cubes(), pes = l.replicated_over_pes() ? 1 : l.pes();
    const DPPolicy policy = by_rows(m_middle.tensor.policy());
    const Tensor parts =
        make(m_call.context, {cubes * pes, m_middle.b}, kernels::accumulator(m_middle.tensor.dtype()), policy);
    const Placed at(m_call.context, parts);
    KernelLaunch launch(m_call.context, "reduce");
    for (const layout::Shard& s : l.shards()) {
      if (s.elements == 0) continue;
      reduce(launch, s, 1, s.elements / m_middle.b, Finish::None, parts, at.own(s.cube, s.pe).address);
    }
    launch.reads(m_middle.tensor, false);
    launch.writes(parts, true);
    launch.run();
    return combine(parts, at, shape);
  }

 private:
  void reduce(KernelLaunch& launch, const layout::Shard& s, uint64_t a, uint64_t r, Finish finish, const Tensor& out,
              Addr dst) const {
    launch.on(m_placed.sip(), s.cube, s.pe) = {static_cast<uint64_t>(m_plan.map),
                                               static_cast<uint64_t>(m_plan.fold),
                                               tl::pack_f64(m_plan.p),
                                               static_cast<uint64_t>(finish),
                                               tl::pack_f64(m_plan.count),
                                               m_placed.own(s.cube, s.pe).address,
                                               word(m_middle.tensor.dtype()),
                                               dst,
                                               word(out.dtype()),
                                               a,
                                               r,
                                               m_middle.b};
  }

  Tensor combine(const Tensor& parts, const Placed& at, const Shape& shape) const {
    const layout::Layout& l = m_placed.layout();
    Tensor out = make(m_call.context, shape, m_call.out().dtype, by_rows(m_call.policy));
    const Placed to = Placed::flat(m_call.context, out);
    KernelLaunch launch(m_call.context, "combine");
    bool elsewhere = false;
    for (const layout::Shard& s : to.layout().shards()) {
      if (s.elements == 0) continue;
      const Region range = to.own(s.cube, s.pe);
      std::vector<uint64_t>& args = launch.on(to.sip(), s.cube, s.pe);
      args = {static_cast<uint64_t>(m_plan.fold),
              static_cast<uint64_t>(m_plan.finish),
              tl::pack_f64(m_plan.count),
              tl::pack_f64(m_plan.p),
              word(parts.dtype()),
              range.address,
              word(out.dtype()),
              s.elements,
              0};
      const size_t count_at = args.size() - 1;
      for (const layout::Shard& part : l.shards()) {
        if (part.elements == 0) continue;
        if (l.replicated_over_cubes() && value(part.cube) != value(s.cube) % l.cubes()) continue;
        if (l.replicated_over_pes() && value(part.pe) != value(s.pe) % l.pes()) continue;
        const Addr from =
            at.own(part.cube, part.pe).address + static_cast<uint64_t>(range.begin[0]) * item_bytes(parts.dtype());
        args.push_back(from);
        ++args[count_at];
        elsewhere = elsewhere || !at.is_own(s.cube, s.pe, from, s.elements * item_bytes(parts.dtype()));
      }
    }
    launch.reads(parts, elsewhere);
    launch.writes(out, true);
    launch.run();
    return out;
  }

  const Call& m_call;
  Plan m_plan;
  Middle m_middle;
  Placed m_placed;
};

Tensor folded(const Call& call, const Plan& plan, const Dims& dims) {
  Middle middle = middle_of(call, dims);
  const bool first_goes = middle.a == 1 && !dims.empty() && (dims.front() == 0);
  if (!first_goes) {
    Shape kept;
    for (size_t d = 0; d < call.in(0).shape().size(); ++d) {
      if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end())
        kept.push_back(call.in(0).shape()[d]);
    }
    return reshaped(call.context, Reducer(call, plan, std::move(middle)).local(kept), call.out().shape, call.policy);
  }
  return relayout(call.context, Reducer(call, plan, std::move(middle)).over_pes(call.out().shape), call.policy);
}

/// Squares of distances to the mean, in fp32, over n - 1.
Tensor variance(const Call& call, const Dims& dims, uint64_t reduced) {
  OpArgs args;
  args.dims = dims;
  args.keepdim = true;
  Shape kept = call.in(0).shape();
  for (const int64_t d : dims) kept[static_cast<size_t>(d)] = 1;
  const Tensor mean = apply(call, Op::Mean, args, {call.in(0)}, {kept, DType::Float32});
  const Tensor distance = apply(call, Op::Sub, {}, {call.in(0), mean}, {call.in(0).shape(), DType::Float32});
  Plan plan;
  plan.map = Map::Power;
  plan.finish = call.op == Op::Std ? Finish::RootMean : Finish::Mean;
  plan.count = static_cast<double>(reduced) - 1;
  const std::vector<Tensor> inputs{distance};
  return folded({call.context, Op::Sum, call.args, inputs, call.outputs, call.policy}, plan, dims);
}

}  // namespace

Dims kept_first(size_t ndim, const Dims& dims) {
  Dims order;
  for (size_t d = 0; d < ndim; ++d) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) {
      order.push_back(static_cast<int64_t>(d));
    }
  }
  order.insert(order.end(), dims.begin(), dims.end());
  return order;
}

double rounded_limit(DType t, double v) {
  uint8_t raw[8];
  store_element(t, raw, 0, v);
  return load_element(t, raw, 0);
}

Tensor run_reduction(const Call& call) {
  if (call.op == Op::Cumsum) return run_rows(call);
  const Tensor& in = call.in(0);
  const bool truth = call.op == Op::All || call.op == Op::Any;
  const bool floating = call.op == Op::Mean || call.op == Op::Norm || call.op == Op::Var || call.op == Op::Std ||
                        call.op == Op::LogSumExp;
  if (floating && !is_floating(in.dtype())) {
    refuse(call.op, fmt::format("on {}: expected a floating type; cast first", to_string(in.dtype())));
  }
  Dims dims;
  if (call.args.dims) {
    dims = *call.args.dims;
  } else if (call.args.dim && !in.shape().empty()) {
    dims = {*call.args.dim};
  } else {
    for (size_t d = 0; d < in.shape().size(); ++d) dims.push_back(static_cast<int64_t>(d));
  }
  uint64_t reduced = 1;
  for (const int64_t d : dims) reduced *= in.shape().at(static_cast<size_t>(d));
  const bool argument = call.op == Op::ArgMax || call.op == Op::ArgMin;
  if (argument && reduced == 0) {
    throw std::invalid_argument(fmt::format("{} over dimensions {} of {}: expected at least one element",
                                            dtensor::to_string(call.op), dtensor::to_string(dims),
                                            layout::to_string(in.shape())));
  }
  if (call.out().dtype != in.dtype() && call.out().dtype == DType::Bool && !truth) {
    refuse(call.op, "into bool");
  }
  if (layout::element_count(call.out().shape) == 0) {
    return make(call.context, call.out().shape, call.out().dtype, call.policy);
  }
  if (reduced == 0) return filled(call.context, call.out().shape, identity(call), call.out().dtype, call.policy);
  if (argument || call.op == Op::LogSumExp) return run_rows(call);
  if (call.op == Op::Var || call.op == Op::Std) return variance(call, dims, reduced);
  return folded(call, plan_of(call, reduced), dims);
}

}  // namespace ahbm::runtime::ops
