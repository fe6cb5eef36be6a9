// Table lookup.
#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {

OpDecision decide_embedding(RuleContext& ctx) {
  expect_inputs(ctx, 2, 2);
  const DTensorSpec& weight = ctx.in(0);
  const DTensorSpec& indices = ctx.in(1);
  if (weight.ndim() != 2) {
    throw ShapeMismatch(about(ctx, "a table of shape " + to_string(weight.shape()) + ": expected [rows, width]"));
  }
  std::vector<StrategyRow> rows;
  rows.push_back({Replicate{}, {Replicate{}, Replicate{}}});
  rows.push_back({Shard{static_cast<int>(indices.ndim())}, {Shard{1}, Replicate{}}});
  // Rows cut over the ranks, some maybe without any: each looks up its own, the rest is masked.
  const MaskPartial mask{weight.shape(), 0};
  rows.push_back({mask, {Shard{0}, mask}, true});
  for (int d = 0; d < static_cast<int>(indices.ndim()); ++d) rows.push_back({Shard{d}, {Replicate{}, Shard{d}}});
  Strategy chosen = pick_strategy(ctx, rows);
  Dims shape = indices.shape();
  shape.push_back(weight.shape()[1]);
  OpDecision decision = make_decision(ctx, chosen.inputs);
  add_output(decision, ctx, std::move(chosen.output), std::move(shape), weight.dtype());
  return decision;
}

}  // namespace ahbm::dtensor
