// Pointwise operators: one operand is followed, the others are brought to it.
#include <cmath>

#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {
namespace {

// What a pending reduction may stay pending through.
enum class Linearity : uint8_t {
  None,
  Linear,       // f(a + b) = f(a) + f(b), one tensor
  Additive,     // the others must carry the same Partial
  Product,      // the others must be replicated
  Quotient,     // the same, and only the dividend may be pending
  KeepsMax,     // maximum
  KeepsMin,     // minimum
  Monotone,     // a cast between floating types: any reduction by value
  AnyReduction  // the values are taken as they are
};

struct Traits {
  size_t min_inputs = 1;
  size_t max_inputs = 1;
  Linearity linearity = Linearity::None;
  bool truth = false;  // yields Bool
};

Traits traits_of(Op op) {
  switch (op) {
    case Op::Neg:
      return {1, 1, Linearity::Linear};
    case Op::Clone:
      return {1, 1, Linearity::AnyReduction};
    case Op::Cast:
      return {1, 1, Linearity::Monotone};
    case Op::Fill:
    case Op::Zero:
      return {1, 1, Linearity::AnyReduction};
    case Op::MulScalar:
    case Op::DivScalar:
      return {1, 1, Linearity::Linear};
    case Op::LogicalNot:
    case Op::EqScalar:
    case Op::NeScalar:
    case Op::LtScalar:
    case Op::LeScalar:
    case Op::GtScalar:
    case Op::GeScalar:
      return {1, 1, Linearity::None, true};
    case Op::MaskedFill:
      return {2, 2, Linearity::None};
    case Op::Add:
    case Op::Sub:
      return {2, 2, Linearity::Additive};
    case Op::Mul:
      return {2, 2, Linearity::Product};
    case Op::Div:
      return {2, 2, Linearity::Quotient};
    case Op::Maximum:
      return {2, 2, Linearity::KeepsMax};
    case Op::Minimum:
      return {2, 2, Linearity::KeepsMin};
    case Op::Pow:
      return {2, 2, Linearity::None};
    case Op::Eq:
    case Op::Ne:
    case Op::Lt:
    case Op::Le:
    case Op::Gt:
    case Op::Ge:
    case Op::LogicalAnd:
    case Op::LogicalOr:
      return {2, 2, Linearity::None, true};
    case Op::Copy:
      return {2, 2, Linearity::AnyReduction};
    case Op::Where:
      return {3, 3, Linearity::None};
    default:
      return {1, 1, Linearity::None};
  }
}

Dims broadcast_shape(const RuleContext& ctx) {
  size_t ndim = 0;
  for (const DTensorSpec& in : ctx.inputs) ndim = std::max(ndim, in.ndim());
  Dims out(ndim, 1);
  for (const DTensorSpec& in : ctx.inputs) {
    const size_t shift = ndim - in.ndim();
    for (size_t d = 0; d < in.ndim(); ++d) {
      const int64_t size = in.shape()[d];
      int64_t& common = out[d + shift];
      if (size == common || size == 1) continue;
      if (common != 1) {
        std::string shapes;
        for (const DTensorSpec& each : ctx.inputs) shapes += (shapes.empty() ? "" : ", ") + to_string(each.shape());
        throw ShapeMismatch(about(ctx, "shapes " + shapes + " do not broadcast: sizes " + std::to_string(common) +
                                           " and " + std::to_string(size) + ", expected equal or 1"));
      }
      common = size;
    }
  }
  return out;
}

size_t followed_input(const RuleContext& ctx) {
  if (ctx.args.inplace) return 0;
  size_t best = 0;
  for (size_t i = 1; i < ctx.inputs.size(); ++i) {
    const DTensorSpec& a = ctx.in(i);
    const DTensorSpec& b = ctx.in(best);
    if (a.num_shards() > b.num_shards() || (a.num_shards() == b.num_shards() && a.ndim() > b.ndim())) best = i;
  }
  return best;
}

bool keeps(const RuleContext& ctx, Linearity linearity, size_t followed, const Placement& p) {
  if (std::holds_alternative<MaskPartial>(p)) return false;
  if (std::holds_alternative<NormPartial>(p)) {
    if (ctx.op == Op::Clone || ctx.op == Op::Fill || ctx.op == Op::Zero) return true;
    return (ctx.op == Op::MulScalar || ctx.op == Op::DivScalar) && ctx.args.value >= 0;
  }
  const bool linear = is_linear_partial(p);
  switch (linearity) {
    case Linearity::None:
      return false;
    // A quotient of integers is rounded piece by piece.
    case Linearity::Linear:
      return linear && (ctx.op != Op::DivScalar || is_floating(ctx.in(0).dtype()));
    case Linearity::Additive:
    case Linearity::Product:
      return linear;
    case Linearity::Quotient:
      return linear && followed == 0 && is_floating(ctx.in(0).dtype());
    case Linearity::KeepsMax:
      return is_partial(p, ReduceOp::Max);
    case Linearity::KeepsMin:
      return is_partial(p, ReduceOp::Min);
    case Linearity::Monotone: {
      const DType to = ctx.args.dtype.value_or(ctx.in(0).dtype());
      const bool rounds = is_floating(ctx.in(0).dtype()) && !is_floating(to);
      return to != DType::Bool && (!rounds || is_partial(p, ReduceOp::Max) || is_partial(p, ReduceOp::Min));
    }
    case Linearity::AnyReduction:
      return true;
  }
  return false;
}

}  // namespace

OpDecision decide_pointwise(RuleContext& ctx) {
  const Traits traits = traits_of(ctx.op);
  expect_inputs(ctx, traits.min_inputs, traits.max_inputs);
  if (ctx.op == Op::Fill || ctx.op == Op::Zero || ctx.op == Op::Copy) ctx.args.inplace = true;
  const Dims shape = broadcast_shape(ctx);
  const size_t followed = followed_input(ctx);
  const DTensorSpec& leader = ctx.in(followed);
  if (ctx.args.inplace && shape != leader.shape()) {
    throw ShapeMismatch(about(ctx, "the result has shape " + to_string(shape) + " but the operand it goes to " +
                                       to_string(leader.shape()) + ": expected equal shapes"));
  }

  Placements out = leader.placements();
  const auto lead_shift = static_cast<int>(shape.size() - leader.ndim());
  for (Placement& p : out) {
    if (is_shard(p)) {
      // A dimension of size 1 that is broadcast cannot stay cut.
      const auto d = static_cast<size_t>(shard_dim(p));
      if (leader.shape()[d] != shape[d + static_cast<size_t>(lead_shift)]) {
        p = Replicate{};
      } else {
        p = with_dim(p, shard_dim(p) + lead_shift);
      }
    } else if (is_partial(p) && !keeps(ctx, traits.linearity, followed, p)) {
      p = Replicate{};
    }
  }
  const bool partial_for_all = traits.linearity != Linearity::Product && traits.linearity != Linearity::Quotient;
  // A shard cannot become a Partial, nor anything a product: where an operand would have to, the pending reduction is
  // done first.
  if (partial_for_all) {
    for (size_t i = 0; i < ctx.inputs.size(); ++i) {
      if (i == followed) continue;
      for (size_t m = 0; m < out.size(); ++m) {
        const Placement& p = ctx.in(i).placements()[m];
        const bool reachable = p == out[m] || (!is_shard(p) && has_share(out[m]));
        if (is_partial(out[m]) && !reachable && ctx.mesh->shape()[m] > 1) out[m] = Replicate{};
      }
    }
  }
  if (ctx.args.inplace && out != leader.placements()) {
    throw InplaceRedistribute(about(ctx, "the operand would have to change from " + to_string(leader.placements()) +
                                             " to " + to_string(out) +
                                             ": expected an operator that keeps its "
                                             "placements; use the form that is not in place"));
  }

  SmallVector<Placements, 3> required;
  for (const DTensorSpec& in : ctx.inputs) {
    const bool leads = &in == &leader;
    const auto shift = static_cast<int>(shape.size() - in.ndim());
    Placements target = out;
    for (Placement& p : target) {
      if (is_shard(p)) {
        const int d = shard_dim(p) - shift;
        const bool whole = d >= 0 && in.shape()[static_cast<size_t>(d)] == shape[static_cast<size_t>(d + shift)];
        p = whole ? with_dim(p, d) : Placement(Replicate{});
      } else if (is_partial(p) && !leads && !partial_for_all) {
        p = Replicate{};
      }
    }
    required.push_back(std::move(target));
  }

  DType dtype = leader.dtype();
  if (traits.truth) {
    dtype = DType::Bool;
  } else if (ctx.args.inplace) {
    dtype = ctx.in(0).dtype();
  } else if (ctx.op == Op::Cast) {
    dtype = ctx.args.dtype.value_or(dtype);
  } else if (ctx.op == Op::Where) {
    dtype = promote(ctx.in(1).dtype(), ctx.in(2).dtype());
  } else if (ctx.op == Op::MaskedFill) {
    dtype = ctx.in(0).dtype();
  } else {
    dtype = ctx.in(0).dtype();
    for (const DTensorSpec& in : ctx.inputs) dtype = promote(dtype, in.dtype());
    const bool number = ctx.op >= Op::AddScalar && ctx.op <= Op::MinimumScalar;
    if (number && dtype == DType::Bool) dtype = DType::Int64;
  }
  OpDecision decision = make_decision(ctx, required);
  add_output(decision, ctx, std::move(out), shape, dtype);
  return decision;
}

OpDecision decide_like(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  OpDecision decision = make_decision(ctx, {in.placements()});
  add_output(decision, ctx, replicate_where(in.placements(), [](const Placement& p) { return is_partial(p); }),
             in.shape(), ctx.args.dtype.value_or(in.dtype()));
  return decision;
}

}  // namespace ahbm::dtensor
