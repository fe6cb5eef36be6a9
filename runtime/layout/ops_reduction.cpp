// Reductions, and the operators that need a whole dimension on every rank.
#include <algorithm>

#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {
namespace {

// Which Partial a reduction over a sharded dimension leaves; nothing for those that need the dimension whole.
std::optional<Placement> pending(const RuleContext& ctx) {
  switch (ctx.op) {
    case Op::Sum:
    case Op::Any:
      return Partial{ReduceOp::Sum};
    case Op::Mean:
      return Partial{ReduceOp::Avg};
    case Op::Max:
      return Partial{ReduceOp::Max};
    case Op::Min:
      return Partial{ReduceOp::Min};
    case Op::Prod:
    case Op::All:
      return Partial{ReduceOp::Product};
    case Op::Norm:
      return NormPartial{ctx.args.p};
    default:
      return std::nullopt;
  }
}

/// Integers and bools are added up and multiplied in int64.
DType widened(DType t) {
  return is_floating(t) ? t : DType::Int64;
}

DType result_dtype(const RuleContext& ctx) {
  switch (ctx.op) {
    case Op::Sum:
    case Op::Prod:
    case Op::Cumsum:
      return widened(ctx.in(0).dtype());
    case Op::All:
    case Op::Any:
      return DType::Bool;
    case Op::ArgMax:
    case Op::ArgMin:
      return DType::Int64;
    default:
      return ctx.in(0).dtype();
  }
}

Dims reduced_dims(RuleContext& ctx) {
  const size_t ndim = ctx.in(0).ndim();
  Dims out;
  const bool all = !ctx.args.dims && !ctx.args.dim;
  if (ctx.args.dims) {
    for (const int64_t d : *ctx.args.dims) {
      const int normal = normalize_dim(d, ndim);
      if (std::find(out.begin(), out.end(), normal) != out.end()) {
        throw DimOutOfRange(about(ctx, "dimension " + std::to_string(d) + " is named twice in " +
                                           to_string(*ctx.args.dims) + ": expected each at most once"));
      }
      out.push_back(normal);
    }
  } else if (ctx.args.dim) {
    // A 0-d tensor may be reduced over its imagined dimension.
    if (ndim == 0 && (*ctx.args.dim == 0 || *ctx.args.dim == -1)) return out;
    out.push_back(normalize_dim(*ctx.args.dim, ndim));
  }
  if (all || (ctx.args.dims && ctx.args.dims->empty())) {
    out.clear();
    for (size_t d = 0; d < ndim; ++d) out.push_back(static_cast<int64_t>(d));
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool contains(const Dims& dims, int d) {
  return d >= 0 && std::find(dims.begin(), dims.end(), d) != dims.end();
}

OpDecision decide_cumsum(RuleContext& ctx) {
  const DTensorSpec& in = ctx.in(0);
  if (!ctx.args.dim) throw std::invalid_argument(about(ctx, "expected a dim"));
  const int dim =
      in.ndim() == 0 && (*ctx.args.dim == 0 || *ctx.args.dim == -1) ? 0 : normalize_dim(*ctx.args.dim, in.ndim());
  ctx.args.dim = dim;
  Placements target =
      replicate_where(in.placements(), [&](const Placement& p) { return is_partial(p) || is_shard(p, dim); });
  OpDecision decision = make_decision(ctx, {target});
  add_output(decision, ctx, std::move(target), in.shape(), result_dtype(ctx));
  return decision;
}

}  // namespace

OpDecision decide_reduction(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  if (ctx.op == Op::Cumsum) return decide_cumsum(ctx);
  const DTensorSpec& in = ctx.in(0);
  const Dims dims = reduced_dims(ctx);
  const std::optional<Placement> left = pending(ctx);

  bool keep = left.has_value();
  for (const Placement& p : in.placements()) {
    // A pending reduction may stay only if it is the same one; norms and bool-or do not go through sums of pieces.
    // Nor do pieces that wrap in a narrower type.
    const bool widens = result_dtype(ctx) != in.dtype() && (ctx.op == Op::Sum || ctx.op == Op::Prod);
    if (is_partial(p)) keep = keep && ctx.op != Op::Norm && ctx.op != Op::Any && !widens && p == *left;
  }
  if (ctx.op == Op::Mean) {
    for (const int64_t d : dims) {
      keep = keep && (!is_sharded(in, static_cast<int>(d)) || is_even(in, static_cast<int>(d)));
    }
  }
  if (keep && is_partial(*left)) {
    // What it would leave must commute with what is pending already.
    Placements check = in.placements();
    for (Placement& p : check) {
      if (contains(dims, shard_dim(p))) p = *left;
    }
    keep = partials_commute(check);
  }
  const Placements target = keep ? in.placements() : replicate_where(in.placements(), [&](const Placement& p) {
    return is_partial(p) || contains(dims, shard_dim(p));
  });

  Placements out = target;
  for (Placement& p : out) {
    if (!is_shard(p)) continue;
    const int d = shard_dim(p);
    if (contains(dims, d)) {
      p = *left;
    } else if (!ctx.args.keepdim) {
      const auto below = std::count_if(dims.begin(), dims.end(), [d](int64_t r) { return r < d; });
      p = with_dim(p, d - static_cast<int>(below));
    }
  }
  Dims shape;
  for (size_t d = 0; d < in.ndim(); ++d) {
    if (!contains(dims, static_cast<int>(d))) {
      shape.push_back(in.shape()[d]);
    } else if (ctx.args.keepdim) {
      shape.push_back(1);
    }
  }
  ctx.args.dims = dims;
  ctx.args.dim.reset();
  OpDecision decision = make_decision(ctx, {target});
  add_output(decision, ctx, std::move(out), std::move(shape), result_dtype(ctx));
  return decision;
}

namespace {

OpDecision decide_softmax(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const int64_t wanted = ctx.args.dim.value_or(-1);
  const int dim = in.ndim() == 0 && (wanted == 0 || wanted == -1) ? 0 : normalize_dim(wanted, in.ndim());
  ctx.args.dim = dim;
  Placements target =
      replicate_where(in.placements(), [&](const Placement& p) { return is_partial(p) || is_shard(p, dim); });
  OpDecision decision = make_decision(ctx, {target});
  add_output(decision, ctx, std::move(target), in.shape(), in.dtype());
  return decision;
}

OpDecision decide_layer_norm(RuleContext& ctx) {
  expect_inputs(ctx, 1, 3);
  const DTensorSpec& in = ctx.in(0);
  const int64_t last = ctx.args.normalized_dims;
  if (last < 1 || last > static_cast<int64_t>(in.ndim())) {
    throw ShapeMismatch(about(ctx, "normalising the last " + std::to_string(last) + " dimensions of " +
                                       to_string(in.shape()) + ": expected 1.." + std::to_string(in.ndim())));
  }
  const auto first = static_cast<int>(static_cast<int64_t>(in.ndim()) - last);
  const Dims normalized(in.shape().begin() + first, in.shape().end());
  Placements target =
      replicate_where(in.placements(), [&](const Placement& p) { return is_partial(p) || shard_dim(p) >= first; });
  SmallVector<Placements, 3> required{target};
  for (size_t i = 1; i < ctx.inputs.size(); ++i) {
    if (ctx.in(i).shape() != normalized) {
      throw ShapeMismatch(about(
          ctx, "weight or bias of shape " + to_string(ctx.in(i).shape()) + ": expected " + to_string(normalized)));
    }
    required.push_back(all_replicate(ctx.mesh_ndim()));
  }
  OpDecision decision = make_decision(ctx, required);
  add_output(decision, ctx, std::move(target), in.shape(), in.dtype());
  return decision;
}

struct LossShape {
  int class_dim = 0;
  Dims batch;  // the shape without the classes
};

LossShape check_loss(const RuleContext& ctx) {
  const DTensorSpec& logits = ctx.in(0);
  if (logits.ndim() == 0)
    throw ShapeMismatch(about(ctx, "logits of shape []: expected [classes] or [batch, classes, ...]"));
  LossShape out;
  out.class_dim = logits.ndim() == 1 ? 0 : 1;
  for (size_t d = 0; d < logits.ndim(); ++d) {
    if (static_cast<int>(d) != out.class_dim) out.batch.push_back(logits.shape()[d]);
  }
  if (ctx.inputs.size() > 1 && ctx.in(1).shape() != out.batch) {
    throw ShapeMismatch(about(ctx, "target of shape " + to_string(ctx.in(1).shape()) + " for logits " +
                                       to_string(logits.shape()) + ": expected " + to_string(out.batch)));
  }
  return out;
}

OpDecision decide_cross_entropy(RuleContext& ctx) {
  expect_inputs(ctx, 1, 2);
  const DTensorSpec& logits = ctx.in(0);
  const LossShape loss = check_loss(ctx);
  ctx.args.dim = loss.class_dim;
  Placements target = replicate_where(logits.placements(),
                                      [&](const Placement& p) { return is_partial(p) || is_shard(p, loss.class_dim); });
  const auto without_class = [&](int d) { return d > loss.class_dim ? d - 1 : d; };
  const DTensorSpec cut = logits.with_checked_placements(target);
  if (ctx.args.reduction == LossReduction::Mean) {
    for (size_t d = 0; d < logits.ndim(); ++d) {
      if (is_sharded(cut, static_cast<int>(d)) && !is_even(cut, static_cast<int>(d))) {
        throw UnevenMean(about(ctx, "the mean over a batch of " + std::to_string(logits.shape()[d]) + " cut as " +
                                        to_string(target) + " on " + ctx.mesh->to_string() +
                                        ": expected equal parts; use reduction sum, or redistribute"));
      }
    }
  }
  Placements out = map_shards(target, without_class);
  SmallVector<Placements, 3> required{target};
  if (ctx.inputs.size() > 1) required.push_back(out);
  Dims shape = loss.batch;
  if (ctx.args.reduction != LossReduction::None) {
    shape.clear();
    for (Placement& p : out) {
      if (is_shard(p)) p = Partial{ctx.args.reduction == LossReduction::Sum ? ReduceOp::Sum : ReduceOp::Avg};
    }
  }
  OpDecision decision = make_decision(ctx, required);
  add_output(decision, ctx, std::move(out), std::move(shape), logits.dtype());
  return decision;
}

// The classes stay cut: the maximum, the sum of exponentials and the target's logit are reduced instead of gathering.
OpDecision decide_loss_parallel(RuleContext& ctx) {
  expect_inputs(ctx, 1, 2);
  const DTensorSpec& logits = ctx.in(0);
  if (ctx.mesh->ndim() != 1) {
    throw UnsupportedMesh(
        about(ctx, "a " + std::to_string(ctx.mesh->ndim()) + "-d mesh: expected a 1-d one; slice it by name first"));
  }
  const LossShape loss = check_loss(ctx);
  if (!is_shard(logits.placements()[0], loss.class_dim)) {
    throw ShardedDim(about(ctx, "logits as " + to_string(logits.placements()) + ": expected the classes sharded, [S(" +
                                    std::to_string(loss.class_dim) + ")]"));
  }
  ctx.args.dim = loss.class_dim;
  SmallVector<Placements, 3> required{logits.placements()};
  if (ctx.inputs.size() > 1) required.push_back(all_replicate(1));
  OpDecision decision = make_decision(ctx, required);
  if (ctx.mesh->size() > 1) {
    const int64_t tokens = numel(loss.batch);
    decision.inner = {{CollectiveKind::AllReduce, 0, ReduceOp::Max, tokens},
                      {CollectiveKind::AllReduce, 0, ReduceOp::Sum, tokens},
                      {CollectiveKind::AllReduce, 0, ReduceOp::Sum, tokens}};
  }
  add_output(decision, ctx, all_replicate(1), ctx.args.reduction == LossReduction::None ? loss.batch : Dims{},
             logits.dtype());
  return decision;
}

}  // namespace

OpDecision decide_normalisation(RuleContext& ctx) {
  switch (ctx.op) {
    case Op::Softmax:
    case Op::LogSoftmax:
      return decide_softmax(ctx);
    case Op::LayerNorm:
    case Op::RmsNorm:
      return decide_layer_norm(ctx);
    case Op::CrossEntropyLossParallel:
      return decide_loss_parallel(ctx);
    default:
      return decide_cross_entropy(ctx);
  }
}

}  // namespace ahbm::dtensor
