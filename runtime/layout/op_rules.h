// Internal to the layout library: what the rule files of the operator families share.
#pragma once

#include <string>
#include <vector>

#include "runtime/layout/errors.h"
#include "runtime/layout/strategy.h"

namespace ahbm::dtensor {

/// A call with every input as a spec; `args` is normalised by the rule and ends up in the decision.
struct RuleContext {
  Op op;
  MeshPtr mesh;
  const CostModel& cost;
  SmallVector<DTensorSpec, 4> inputs;
  OpArgs args;

  size_t mesh_ndim() const { return mesh->ndim(); }
  const DTensorSpec& in(size_t i) const { return inputs[i]; }
};

OpDecision decide_pointwise(RuleContext& ctx);
OpDecision decide_like(RuleContext& ctx);
OpDecision decide_reduction(RuleContext& ctx);
OpDecision decide_normalisation(RuleContext& ctx);
OpDecision decide_matmul(RuleContext& ctx);
OpDecision decide_structure(RuleContext& ctx);
OpDecision decide_view(RuleContext& ctx);
OpDecision decide_embedding(RuleContext& ctx);

/// `what` of the operator in front of an error's text: "mm: ..."
std::string about(const RuleContext& ctx, const std::string& text);
/// \throws std::invalid_argument unless there are min..max inputs
void expect_inputs(const RuleContext& ctx, size_t min, size_t max);

/// A decision with these input placements and an output of each shape.
OpDecision make_decision(RuleContext& ctx, const SmallVector<Placements, 3>& required);
void add_output(OpDecision& decision, const RuleContext& ctx, Placements placements, Dims shape, DType dtype);

/// The input's placements with Replicate wherever `replace` says so.
template <typename Predicate>
Placements replicate_where(const Placements& ps, Predicate replace) {
  Placements out = ps;
  for (Placement& p : out) {
    if (replace(p)) p = Replicate{};
  }
  return out;
}
/// Moves every shard by `map` (old dimension to new).
template <typename Map>
Placements map_shards(const Placements& ps, Map map) {
  Placements out = ps;
  for (Placement& p : out) {
    if (is_shard(p)) p = with_dim(p, map(shard_dim(p)));
  }
  return out;
}
bool is_sharded(const DTensorSpec& spec, int dim);
/// Whether everything that cuts `dim` leaves equal parts.
bool is_even(const DTensorSpec& spec, int dim);

/// One way to run an operator on one mesh dimension: the output's placement and every input's.
struct StrategyRow {
  Placement output;
  SmallVector<Placement, 3> inputs;
  bool any_extent = false;  ///< may leave ranks without a part
};
struct Strategy {
  Placements output;
  SmallVector<Placements, 3> inputs;
};
/// The best product of rows over the mesh dimensions. Rows in order of preference, the first all-Replicate.
Strategy pick_strategy(const RuleContext& ctx, const std::vector<StrategyRow>& rows);
/// The best of candidate placements that all inputs share. \pre not empty
Placements pick_shared(const RuleContext& ctx, const std::vector<Placements>& candidates);

}  // namespace ahbm::dtensor
