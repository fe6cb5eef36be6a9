// Operators that move dimensions around, cut tensors up or put them together.
#include <algorithm>

#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {
namespace {

// A mask belongs to the shape it was made for: the lookup is finished before the shape changes.
bool is_mask(const Placement& p) {
  return std::holds_alternative<MaskPartial>(p);
}

Placements without_masks(const Placements& ps) {
  return replicate_where(ps, is_mask);
}

int required_dim(const RuleContext& ctx, size_t ndim) {
  if (!ctx.args.dim) throw std::invalid_argument(about(ctx, "expected a dim"));
  return normalize_dim(*ctx.args.dim, ndim);
}

OpDecision unary(RuleContext& ctx, const Placements& target, Placements out, Dims shape) {
  const DType dtype = ctx.in(0).dtype();
  OpDecision decision = make_decision(ctx, {target});
  add_output(decision, ctx, std::move(out), std::move(shape), dtype);
  return decision;
}

OpDecision decide_permute(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const size_t ndim = in.ndim();
  Dims order;
  if (ctx.op == Op::T) {
    if (ndim > 2) {
      throw ShapeMismatch(about(ctx, "a tensor of shape " + to_string(in.shape()) + ": expected at most 2 dimensions"));
    }
    for (size_t d = ndim; d-- > 0;) order.push_back(static_cast<int64_t>(d));
  } else if (ctx.op == Op::Transpose) {
    if (!ctx.args.dims || ctx.args.dims->size() != 2) throw std::invalid_argument(about(ctx, "expected two dims"));
    for (size_t d = 0; d < ndim; ++d) order.push_back(static_cast<int64_t>(d));
    if (ndim > 0) {
      std::swap(order[static_cast<size_t>(normalize_dim((*ctx.args.dims)[0], ndim))],
                order[static_cast<size_t>(normalize_dim((*ctx.args.dims)[1], ndim))]);
    }
  } else {
    if (!ctx.args.dims) throw std::invalid_argument(about(ctx, "expected dims"));
    SmallVector<bool, 6> seen(ndim, false);
    for (const int64_t d : *ctx.args.dims) {
      const auto normal = static_cast<size_t>(normalize_dim(d, ndim));
      if (seen[normal]) {
        throw DimOutOfRange(about(ctx, to_string(*ctx.args.dims) + " names dimension " + std::to_string(normal) +
                                           " twice: expected each of " + std::to_string(ndim) + " once"));
      }
      seen[normal] = true;
      order.push_back(static_cast<int64_t>(normal));
    }
    if (order.size() != ndim) {
      throw DimOutOfRange(about(ctx, to_string(*ctx.args.dims) + " for a tensor of shape " + to_string(in.shape()) +
                                         ": expected each of " + std::to_string(ndim) + " dimensions once"));
    }
  }
  Dims shape(ndim, 0);
  SmallVector<int, 6> goes_to(ndim, 0);
  for (size_t j = 0; j < ndim; ++j) {
    shape[j] = in.shape()[static_cast<size_t>(order[j])];
    goes_to[static_cast<size_t>(order[j])] = static_cast<int>(j);
  }
  ctx.args.dims = order;
  const Placements target = without_masks(in.placements());
  return unary(ctx, target, map_shards(target, [&](int d) { return goes_to[static_cast<size_t>(d)]; }),
               std::move(shape));
}

OpDecision decide_unsqueeze(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const int dim = required_dim(ctx, in.ndim() + 1);
  ctx.args.dim = dim;
  Dims shape = in.shape();
  shape.insert(shape.begin() + dim, 1);
  const Placements target = without_masks(in.placements());
  return unary(ctx, target, map_shards(target, [&](int d) { return d >= dim ? d + 1 : d; }), std::move(shape));
}

OpDecision decide_squeeze(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  // The global size decides, never the local one.
  SmallVector<bool, 6> removed(in.ndim(), false);
  Dims dims;
  if (ctx.args.dim && in.ndim() > 0) dims.push_back(normalize_dim(*ctx.args.dim, in.ndim()));
  if (!ctx.args.dim) {
    for (size_t d = 0; d < in.ndim(); ++d) dims.push_back(static_cast<int64_t>(d));
  }
  Dims gone;
  for (const int64_t d : dims) {
    if (in.shape()[static_cast<size_t>(d)] != 1) continue;
    removed[static_cast<size_t>(d)] = true;
    gone.push_back(d);
  }
  ctx.args.dims = gone;
  if (gone.empty()) {
    OpDecision decision = unary(ctx, in.placements(), in.placements(), in.shape());
    decision.alias = true;
    return decision;
  }
  Dims shape;
  SmallVector<int, 6> goes_to(in.ndim(), 0);
  for (size_t d = 0; d < in.ndim(); ++d) {
    goes_to[d] = static_cast<int>(shape.size());
    if (!removed[d]) shape.push_back(in.shape()[d]);
  }
  const Placements target = replicate_where(in.placements(), [&](const Placement& p) {
    return is_mask(p) || (is_shard(p) && removed[static_cast<size_t>(shard_dim(p))]);
  });
  return unary(ctx, target, map_shards(target, [&](int d) { return goes_to[static_cast<size_t>(d)]; }),
               std::move(shape));
}

OpDecision decide_expand(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  Dims shape = ctx.args.sizes;
  if (shape.size() < in.ndim()) {
    throw ShapeMismatch(about(ctx, to_string(in.shape()) + " to " + to_string(shape) + ": expected at least " +
                                       std::to_string(in.ndim()) + " sizes"));
  }
  const auto shift = static_cast<int>(shape.size() - in.ndim());
  SmallVector<bool, 6> stretched(in.ndim(), false);
  for (size_t j = 0; j < shape.size(); ++j) {
    const int d = static_cast<int>(j) - shift;
    const int64_t size = d < 0 ? 1 : in.shape()[static_cast<size_t>(d)];
    if (shape[j] == -1 && d >= 0) shape[j] = size;
    if (shape[j] < 0 || (d >= 0 && size != 1 && shape[j] != size)) {
      throw ShapeMismatch(about(ctx, to_string(in.shape()) + " to " + to_string(ctx.args.sizes) + ": size " +
                                         std::to_string(shape[j]) + ", expected " +
                                         (size == 1 ? std::string(">= 0") : std::to_string(size))));
    }
    if (d >= 0 && shape[j] != size) stretched[static_cast<size_t>(d)] = true;
  }
  ctx.args.sizes = shape;
  const Placements target = replicate_where(in.placements(), [&](const Placement& p) {
    return is_mask(p) || (is_shard(p) && stretched[static_cast<size_t>(shard_dim(p))]);
  });
  return unary(ctx, target, map_shards(target, [&](int d) { return d + shift; }), std::move(shape));
}

OpDecision decide_cat(RuleContext& ctx) {
  expect_inputs(ctx, 1, SIZE_MAX);
  const DTensorSpec& first = ctx.in(0);
  const int dim = required_dim(ctx, first.ndim());
  ctx.args.dim = dim;
  Dims shape = first.shape();
  DType dtype = first.dtype();
  int64_t total = 0;
  for (const DTensorSpec& in : ctx.inputs) {
    Dims rest = in.shape();
    if (rest.size() == shape.size()) {
      total += rest[static_cast<size_t>(dim)];
      rest[static_cast<size_t>(dim)] = first.shape()[static_cast<size_t>(dim)];
    }
    if (rest != first.shape()) {
      throw ShapeMismatch(about(ctx, "shapes " + to_string(first.shape()) + " and " + to_string(in.shape()) +
                                         ": expected them to differ in dimension " + std::to_string(dim) + " only"));
    }
    dtype = promote(dtype, in.dtype());
  }
  shape[static_cast<size_t>(dim)] = total;
  std::vector<Placements> candidates;
  for (const DTensorSpec& in : ctx.inputs) {
    candidates.push_back(
        replicate_where(in.placements(), [&](const Placement& p) { return is_mask(p) || is_shard(p, dim); }));
  }
  const Placements shared = pick_shared(ctx, candidates);
  OpDecision decision = make_decision(ctx, SmallVector<Placements, 3>(ctx.inputs.size(), shared));
  add_output(decision, ctx, shared, std::move(shape), dtype);
  return decision;
}

Placement merge(const Placement& current, const Placement& next) {
  if (current == next) return current;
  if (is_partial(current)) {
    if (is_shard(next)) return next;
    return is_partial(next) ? Placement(Replicate{}) : current;
  }
  if (is_shard(current)) return is_shard(next) ? Placement(Replicate{}) : current;
  return next;
}

OpDecision decide_stack(RuleContext& ctx) {
  expect_inputs(ctx, 1, SIZE_MAX);
  const DTensorSpec& first = ctx.in(0);
  const int dim = required_dim(ctx, first.ndim() + 1);
  ctx.args.dim = dim;
  Placements shared = without_masks(first.placements());
  DType dtype = first.dtype();
  for (const DTensorSpec& in : ctx.inputs) {
    if (in.shape() != first.shape()) {
      throw ShapeMismatch(
          about(ctx, "shapes " + to_string(first.shape()) + " and " + to_string(in.shape()) + ": expected equal ones"));
    }
    const Placements clean = without_masks(in.placements());
    for (size_t m = 0; m < shared.size(); ++m) shared[m] = merge(shared[m], clean[m]);
    dtype = promote(dtype, in.dtype());
  }
  // The priorities look at two inputs at a time; what no input can become is reduced after all.
  for (size_t m = 0; m < shared.size(); ++m) {
    if (!is_partial(shared[m])) continue;
    for (const DTensorSpec& in : ctx.inputs) {
      const Placement& p = in.placements()[m];
      if (is_shard(p) || (is_partial(p) && !(p == shared[m])) || (is_replicate(p) && !has_share(shared[m]))) {
        shared[m] = Replicate{};
        break;
      }
    }
  }
  if (!partials_commute(shared)) {
    shared = replicate_where(shared, [](const Placement& p) { return is_partial(p); });
  }
  Dims shape = first.shape();
  shape.insert(shape.begin() + dim, static_cast<int64_t>(ctx.inputs.size()));
  OpDecision decision = make_decision(ctx, SmallVector<Placements, 3>(ctx.inputs.size(), shared));
  add_output(decision, ctx, map_shards(shared, [&](int d) { return d >= dim ? d + 1 : d; }), std::move(shape), dtype);
  return decision;
}

// The input with dimension `dim` whole on every rank.
Placements whole_along(const DTensorSpec& in, int dim) {
  return replicate_where(in.placements(), [&](const Placement& p) { return is_mask(p) || is_shard(p, dim); });
}

OpDecision decide_split(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const int dim = ctx.args.dim ? required_dim(ctx, in.ndim()) : normalize_dim(0, in.ndim());
  ctx.args.dim = dim;
  const int64_t extent = in.shape()[static_cast<size_t>(dim)];
  Dims sizes = ctx.args.sizes;
  if (ctx.op == Op::Chunk) {
    if (ctx.args.index < 1) {
      throw std::invalid_argument(about(ctx, std::to_string(ctx.args.index) + " chunks, expected >= 1"));
    }
    const auto c = static_cast<int64_t>(ceil_div(static_cast<uint64_t>(extent), static_cast<uint64_t>(ctx.args.index)));
    // An empty extent still gives as many chunks as were asked for.
    if (c == 0) {
      sizes = Dims(static_cast<size_t>(ctx.args.index), 0);
    } else {
      sizes = {c};
    }
  }
  if (sizes.empty()) throw std::invalid_argument(about(ctx, "expected a size, or sizes"));
  if (sizes.size() == 1 && sizes[0] == extent) {
    // one part
  } else if (sizes.size() == 1) {
    const int64_t each = sizes[0];
    if (each < 1) throw ShapeMismatch(about(ctx, "parts of " + std::to_string(each) + ", expected >= 1"));
    sizes.clear();
    for (int64_t at = 0; at < extent; at += each) sizes.push_back(std::min(each, extent - at));
    if (sizes.empty()) sizes.push_back(0);
  }
  int64_t total = 0;
  for (const int64_t s : sizes) {
    if (s < 0) throw ShapeMismatch(about(ctx, "part of size " + std::to_string(s) + ", expected >= 0"));
    total += s;
  }
  if (total != extent) {
    throw ShapeMismatch(about(ctx, "parts " + to_string(sizes) + " of dimension " + std::to_string(dim) + " of " +
                                       to_string(in.shape()) + ": expected a sum of " + std::to_string(extent)));
  }
  ctx.args.sizes = sizes;
  const Placements target = whole_along(in, dim);
  OpDecision decision = make_decision(ctx, {target});
  for (const int64_t s : sizes) {
    Dims shape = in.shape();
    shape[static_cast<size_t>(dim)] = s;
    add_output(decision, ctx, target, std::move(shape), in.dtype());
  }
  return decision;
}

OpDecision decide_slice(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const int dim = ctx.args.dim ? required_dim(ctx, in.ndim()) : normalize_dim(0, in.ndim());
  ctx.args.dim = dim;
  const int64_t extent = in.shape()[static_cast<size_t>(dim)];
  if (ctx.args.step < 1) {
    throw std::invalid_argument(about(ctx, "step " + std::to_string(ctx.args.step) + ", expected >= 1"));
  }
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent); };
  ctx.args.start = clamp(ctx.args.start);
  ctx.args.end = std::max(clamp(ctx.args.end), ctx.args.start);
  if (ctx.args.start == 0 && ctx.args.end == extent && ctx.args.step == 1) {
    OpDecision decision = unary(ctx, in.placements(), in.placements(), in.shape());
    decision.alias = true;
    return decision;
  }
  Dims shape = in.shape();
  shape[static_cast<size_t>(dim)] = static_cast<int64_t>(
      ceil_div(static_cast<uint64_t>(ctx.args.end - ctx.args.start), static_cast<uint64_t>(ctx.args.step)));
  const Placements target = whole_along(in, dim);
  return unary(ctx, target, target, std::move(shape));
}

Placements without_dim(const Placements& ps, int dim) {
  return map_shards(ps, [&](int d) { return d > dim ? d - 1 : d; });
}

OpDecision decide_select(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const int dim = required_dim(ctx, in.ndim());
  ctx.args.dim = dim;
  const int64_t extent = in.shape()[static_cast<size_t>(dim)];
  if (ctx.args.index < -extent || ctx.args.index >= extent) {
    throw DimOutOfRange(about(ctx, "index " + std::to_string(ctx.args.index) + " of dimension " + std::to_string(dim) +
                                       " of " + to_string(in.shape()) + ": expected " + std::to_string(-extent) + ".." +
                                       std::to_string(extent - 1)));
  }
  if (ctx.args.index < 0) ctx.args.index += extent;
  Dims shape = in.shape();
  shape.erase(shape.begin() + dim);
  const Placements target = whole_along(in, dim);
  return unary(ctx, target, without_dim(target, dim), std::move(shape));
}

OpDecision decide_unbind(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  const int dim = ctx.args.dim ? required_dim(ctx, in.ndim()) : normalize_dim(0, in.ndim());
  ctx.args.dim = dim;
  if (is_sharded(in, dim)) {
    throw ShardedDim(about(ctx, "dimension " + std::to_string(dim) + " of a tensor as " + to_string(in.placements()) +
                                    " is cut: expected a whole one; redistribute first"));
  }
  Dims shape = in.shape();
  shape.erase(shape.begin() + dim);
  const Placements target = whole_along(in, dim);
  const Placements out = without_dim(target, dim);
  OpDecision decision = make_decision(ctx, {target});
  for (int64_t i = 0; i < in.shape()[static_cast<size_t>(dim)]; ++i) add_output(decision, ctx, out, shape, in.dtype());
  return decision;
}

OpDecision decide_equal(RuleContext& ctx) {
  expect_inputs(ctx, 2, 2);
  const DTensorSpec& a = ctx.in(0);
  const DTensorSpec& b = ctx.in(1);
  OpDecision decision;
  if (a.shape() != b.shape()) {
    // No element is looked at, so nothing has to move.
    decision = make_decision(ctx, {a.placements(), b.placements()});
    decision.constant = false;
    return decision;
  }
  const DTensorSpec& leader = b.num_shards() > a.num_shards() ? b : a;
  const Placements shared = replicate_where(leader.placements(), [](const Placement& p) { return is_partial(p); });
  decision = make_decision(ctx, {shared, shared});
  decision.and_over_ranks = true;
  return decision;
}

OpDecision decide_gather(RuleContext& ctx) {
  expect_inputs(ctx, 2, 2);
  const DTensorSpec& in = ctx.in(0);
  const DTensorSpec& index = ctx.in(1);
  const int dim = required_dim(ctx, in.ndim());
  ctx.args.dim = dim;
  bool fits = index.ndim() == in.ndim();
  for (size_t d = 0; fits && d < in.ndim(); ++d) {
    fits = static_cast<int>(d) == dim || index.shape()[d] <= in.shape()[d];
  }
  if (!fits) {
    throw ShapeMismatch(about(ctx, "index of shape " + to_string(index.shape()) + " into " + to_string(in.shape()) +
                                       ": expected as many dimensions, none larger but dimension " +
                                       std::to_string(dim)));
  }
  std::vector<StrategyRow> rows;
  rows.push_back({Replicate{}, {Replicate{}, Replicate{}}});
  if (index.shape()[static_cast<size_t>(dim)] == 1) {
    const MaskPartial mask{in.shape(), dim};
    rows.push_back({mask, {Shard{dim}, mask}, true});
  }
  rows.push_back({Shard{dim}, {Replicate{}, Shard{dim}}});
  for (int d = 0; d < static_cast<int>(in.ndim()); ++d) {
    // Equal extents, or the parts of index and input would not be the same.
    const auto at = static_cast<size_t>(d);
    if (d != dim && index.shape()[at] == in.shape()[at]) rows.push_back({Shard{d}, {Shard{d}, Shard{d}}});
  }
  Strategy chosen = pick_strategy(ctx, rows);
  OpDecision decision = make_decision(ctx, chosen.inputs);
  add_output(decision, ctx, std::move(chosen.output), index.shape(), in.dtype());
  return decision;
}

OpDecision decide_index_select(RuleContext& ctx) {
  expect_inputs(ctx, 2, 2);
  const DTensorSpec& in = ctx.in(0);
  const DTensorSpec& index = ctx.in(1);
  const int dim = required_dim(ctx, in.ndim());
  ctx.args.dim = dim;
  if (index.ndim() != 1) {
    throw ShapeMismatch(about(ctx, "index of shape " + to_string(index.shape()) + ": expected one dimension"));
  }
  std::vector<StrategyRow> rows;
  rows.push_back({Replicate{}, {Replicate{}, Replicate{}}});
  rows.push_back({Shard{dim}, {Replicate{}, Shard{0}}});
  for (int d = 0; d < static_cast<int>(in.ndim()); ++d) {
    if (d != dim) rows.push_back({Shard{d}, {Shard{d}, Replicate{}}});
  }
  Strategy chosen = pick_strategy(ctx, rows);
  Dims shape = in.shape();
  shape[static_cast<size_t>(dim)] = index.shape()[0];
  OpDecision decision = make_decision(ctx, chosen.inputs);
  add_output(decision, ctx, std::move(chosen.output), std::move(shape), in.dtype());
  return decision;
}

OpDecision decide_triangle(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  if (in.ndim() < 2) {
    throw ShapeMismatch(about(ctx, "a tensor of shape " + to_string(in.shape()) + ": expected at least 2 dimensions"));
  }
  const Placements target = all_replicate(ctx.mesh_ndim());
  return unary(ctx, target, target, in.shape());
}

}  // namespace

OpDecision decide_structure(RuleContext& ctx) {
  switch (ctx.op) {
    case Op::Identity: {
      expect_inputs(ctx, 1, 1);
      OpDecision decision = unary(ctx, ctx.in(0).placements(), ctx.in(0).placements(), ctx.in(0).shape());
      decision.alias = true;
      return decision;
    }
    case Op::T:
    case Op::Transpose:
    case Op::Permute:
      return decide_permute(ctx);
    case Op::Squeeze:
      return decide_squeeze(ctx);
    case Op::Unsqueeze:
      return decide_unsqueeze(ctx);
    case Op::Expand:
      return decide_expand(ctx);
    case Op::Cat:
      return decide_cat(ctx);
    case Op::Stack:
      return decide_stack(ctx);
    case Op::Split:
    case Op::Chunk:
      return decide_split(ctx);
    case Op::Slice:
      return decide_slice(ctx);
    case Op::Select:
      return decide_select(ctx);
    case Op::Unbind:
      return decide_unbind(ctx);
    case Op::Equal:
      return decide_equal(ctx);
    case Op::Gather:
      return decide_gather(ctx);
    case Op::IndexSelect:
      return decide_index_select(ctx);
    default:
      return decide_triangle(ctx);
  }
}

}  // namespace ahbm::dtensor
