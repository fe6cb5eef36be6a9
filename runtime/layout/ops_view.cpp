// view and reshape: which shards a change of shape can carry along without moving data.
#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {
namespace {

Dims resolve_sizes(const RuleContext& ctx, const Dims& in, const Dims& wanted) {
  Dims out = wanted;
  int64_t known = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == -1) {
      if (open) throw ShapeMismatch(about(ctx, to_string(wanted) + " has two sizes of -1: expected at most one"));
      open = i;
    } else if (out[i] < 0) {
      throw ShapeMismatch(
          about(ctx, "size " + std::to_string(out[i]) + " in " + to_string(wanted) + ": expected >= 0, or -1 once"));
    } else {
      known *= out[i];
    }
  }
  const int64_t n = numel(in);
  if (open) {
    if (known == 0 || n % known != 0) {
      throw ShapeMismatch(about(ctx, to_string(in) + " to " + to_string(wanted) + ": " + std::to_string(n) +
                                         " elements, expected a multiple of " + std::to_string(known)));
    }
    out[*open] = n / known;
  } else if (known != n) {
    throw ShapeMismatch(about(ctx, to_string(in) + " to " + to_string(wanted) + ": " + std::to_string(n) +
                                       " elements, expected " + std::to_string(known)));
  }
  return out;
}

// What becomes of a cut input dimension.
struct Carried {
  int out = -1;             // the output dimension that is cut instead; -1: none can be
  int64_t divisor_of = 0;   // this size, if not 0, must divide evenly by the number of parts,
  int64_t divisor_of2 = 0;  // and this one
  bool whole = false;       // one dimension to one of the same size: strided shards go along too
};

// Cuts both shapes into the smallest blocks of equal product.
SmallVector<Carried, 6> carry(const Dims& in, const Dims& out) {
  SmallVector<Carried, 6> result(in.size());
  if (numel(in) == 0) {
    // Products say nothing: only what is equal from the left is known to be the same.
    for (size_t d = 0; d < in.size() && d < out.size() && in[d] == out[d]; ++d) {
      result[d].out = static_cast<int>(d);
      result[d].whole = true;
    }
    return result;
  }
  size_t i = 0;
  size_t j = 0;
  while (i < in.size() || j < out.size()) {
    int64_t from = i < in.size() ? in[i] : 1;
    int64_t to = j < out.size() ? out[j] : 1;
    if (from == 1 && to == 1) {
      // Two sizes of 1 side by side are the same dimension; one without a partner comes or goes.
      if (i < in.size() && j < out.size()) {
        result[i].out = static_cast<int>(j);
        result[i].whole = true;
      }
      i += i < in.size() ? 1 : 0;
      j += j < out.size() ? 1 : 0;
      continue;
    }
    if (from == 1) {
      ++i;
      continue;
    }
    if (to == 1) {
      ++j;
      continue;
    }
    const size_t in_first = i++;
    const size_t out_first = j++;
    size_t in_count = 1;
    size_t out_count = 1;
    while (from != to) {
      if (from < to) {
        if (in[i] != 1) ++in_count;
        from *= in[i++];
      } else {
        if (out[j] != 1) ++out_count;
        to *= out[j++];
      }
    }
    Carried& c = result[in_first];
    c.out = static_cast<int>(out_first);
    c.whole = in_count == 1 && out_count == 1;
    if (in_count > 1) c.divisor_of = in[in_first];
    if (out_count > 1) c.divisor_of2 = out[out_first];
  }
  return result;
}

}  // namespace

OpDecision decide_view(RuleContext& ctx) {
  expect_inputs(ctx, 1, 1);
  const DTensorSpec& in = ctx.in(0);
  Dims shape = resolve_sizes(ctx, in.shape(), ctx.args.sizes);
  const SmallVector<Carried, 6> carried = carry(in.shape(), shape);

  Placements target = in.placements();
  Placements out = in.placements();
  for (size_t m = 0; m < target.size(); ++m) {
    const Placement& p = in.placements()[m];
    bool survives = true;
    if (std::holds_alternative<MaskPartial>(p)) {
      survives = false;  // the mask has the old shape
    } else if (is_shard(p)) {
      const Carried& c = carried[static_cast<size_t>(shard_dim(p))];
      // The parts of all mesh dimensions together: nested shards must divide as one.
      int64_t parts = 1;
      for (size_t k = 0; k < target.size(); ++k) {
        if (is_shard(in.placements()[k], shard_dim(p))) parts *= ctx.mesh->shape()[k];
      }
      survives =
          c.out >= 0 &&
          (c.whole || (std::holds_alternative<Shard>(p) && c.divisor_of % parts == 0 && c.divisor_of2 % parts == 0));
      if (survives) out[m] = with_dim(p, c.out);
    }
    if (survives) continue;
    if (ctx.op == Op::View && is_shard(p)) {
      throw IllegalView(about(ctx, to_string(in.shape()) + " as " + to_string(in.placements()) + " on " +
                                       ctx.mesh->to_string() + " to " + to_string(shape) + ": " + to_string(p) +
                                       " cannot be kept without moving data; expected the cut dimension to be the "
                                       "leftmost of those merged or split and to divide evenly, or use reshape"));
    }
    target[m] = Replicate{};
    out[m] = Replicate{};
  }
  ctx.args.sizes = shape;
  OpDecision decision = make_decision(ctx, {target});
  add_output(decision, ctx, std::move(out), std::move(shape), in.dtype());
  return decision;
}

}  // namespace ahbm::dtensor
