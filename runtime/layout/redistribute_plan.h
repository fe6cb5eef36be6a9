// Which steps turn one list of placements into another, and what each rank hands to the collective of each step.
//
// A plan depends on global metadata only, so every rank computes the same one and no rank waits for a collective that
// another skips. The parts that do differ between ranks (local shapes, padding) come from `step_on_rank`.
//
// The plan is greedy: if the source is sharded, mesh dimensions are first walked from the innermost out, because a
// nested shard was cut from the outer one and has to be undone before it; then from the outermost in, because chunks
// nest left to right.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/layout/dtensor_spec.h"

namespace ahbm::dtensor {

enum class CollectiveKind : uint8_t { None, AllGather, AllReduce, ReduceScatter, AllToAll, Broadcast, Scatter };
const char* to_string(CollectiveKind kind);  ///< none, all_gather, ...

/// What happens to the local tensor in a step.
enum class Transition : uint8_t {
  Keep,         ///< nothing: one rank, or a value that is its own share (Replicate to Partial(max), say)
  Cut,          ///< keep the own part of a replicated dimension
  Gather,       ///< collect the parts of a dimension
  Exchange,     ///< give away parts of one dimension, collect those of another
  GatherCut,    ///< gather, then keep another part of the same dimension (plain <-> strided)
  Reduce,       ///< reduce the pieces
  ReduceCut,    ///< reduce the pieces and keep the own part
  Divide,       ///< Replicate to Partial(sum): this rank's share
  ScaleNorm,    ///< Replicate to NormPartial(p): x / n^(1/p)
  MaskIndices,  ///< Replicate to MaskPartial: shift indices into the own rows, mask the others
};
const char* to_string(Transition t);

struct PlanStep {
  uint32_t mesh_dim = 0;
  Placement from;
  Placement to;
  Transition transition = Transition::Keep;
  CollectiveKind collective = CollectiveKind::None;
  ReduceOp reduce_op = ReduceOp::Sum;  ///< of a reducing collective
};

struct RedistributePlan {
  MeshPtr mesh;
  Dims shape;  ///< global
  Placements source;
  Placements target;
  SmallVector<PlanStep, 4> steps;

  uint32_t collectives() const;
  Placements before(size_t step) const;  ///< placements that step `step` starts from
};

enum class Legality : uint8_t {
  User,     ///< redistribute(): a Partial target must be the source's own
  Internal  ///< the dispatcher's: Replicate to Partial too, Partial to another Partial by way of Replicate
};

/// The target as redistribute() takes it: normalised, checked.
/// \throws PlacementsLengthMismatch, DimOutOfRange, MixedPartial, IllegalRedistribute
Placements check_redistribute(const DTensorSpec& source, const Placements& target);

/// \pre `target` is normalised
/// \throws IllegalRedistribute (User), UnsupportedTransition (a shard to a Partial; Replicate to Partial(product) or
///   NormPartial(0))
RedistributePlan plan_redistribute(const DTensorSpec& source, const Placements& target,
                                   Legality legality = Legality::User);

/// Neighbouring steps of one plan that one collective on a flattened group does.
struct MergedStep {
  size_t first = 0;  ///< index into the plan's steps
  size_t count = 1;
  std::vector<uint32_t> mesh_dims;  ///< ascending; one entry for a step on its own
};
/// Whether the ranks have a group over these mesh dimensions (ascending); the same answer on every rank.
using HasGroup = std::function<bool(const std::vector<uint32_t>&)>;
/// Merges neighbours of equal kind and operator (and, with shards, equal tensor dimension); those that gather or cut
/// only where the dimension divides evenly, because nested uneven parts are not the parts of the flattened group.
/// \param has_group  empty: there is none, and every step stands on its own
std::vector<MergedStep> merge_steps(const RedistributePlan& plan, const HasGroup& has_group);

/// One step as one rank carries it out. Buffers of a collective are equal on all ranks of its group: short parts are
/// padded at their end, and the tail is dropped afterwards.
struct StepOnRank {
  RankList group;  ///< in mesh order
  uint32_t group_rank = 0;
  Dims before;              ///< local shape
  Dims after;               ///< local shape
  Dims send_shape;          ///< handed to the collective; empty without one
  Dims recv_shape;          ///< got from it
  int from_dim = -1;        ///< tensor dimension whose parts are collected
  int to_dim = -1;          ///< tensor dimension that is cut
  int64_t from_extent = 0;  ///< of `from_dim`, over this group
  int64_t to_extent = 0;    ///< of `to_dim`, over this group
  int64_t from_chunk = 0;   ///< padded part of `from_dim` per rank
  int64_t to_chunk = 0;     ///< padded part of `to_dim` per rank
  int64_t send_elements = 0;
  Range rows;  ///< MaskIndices: the rows of the table this rank holds, in its outer part's numbering
};
/// \pre `coordinate` is inside the mesh
StepOnRank step_on_rank(const RedistributePlan& plan, const MergedStep& step, const Coordinate& coordinate);
StepOnRank step_on_rank(const RedistributePlan& plan, size_t step, const Coordinate& coordinate);

/// e.g. `1:S(0)->R`
std::string to_string(const PlanStep& step);
/// e.g. `S0S0→S0R→RR`
std::string trace(const RedistributePlan& plan);
/// kind@mesh_dim[:reduce_op] of the collectives, in order; the op is left out for sum.
/// A merged step's dimensions are joined by +.
std::vector<std::string> collective_sequence(const RedistributePlan& plan, const HasGroup& has_group = nullptr);
std::string collective_string(CollectiveKind kind, uint32_t mesh_dim, ReduceOp op);
std::string collective_string(CollectiveKind kind, const std::vector<uint32_t>& mesh_dims, ReduceOp op);
/// Mesh dimensions as texts have them: 0, or 0+2 of a flattened group.
std::string mesh_dims_string(const std::vector<uint32_t>& mesh_dims);

}  // namespace ahbm::dtensor
