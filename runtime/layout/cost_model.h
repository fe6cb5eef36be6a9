// What a redistribution is thought to cost: used to choose between the ways an operator can run. Looks at global
// metadata only, so every rank chooses alike.
#pragma once

#include <limits>

#include "runtime/layout/redistribute_plan.h"

namespace ahbm::dtensor {

constexpr double kInfiniteCost = std::numeric_limits<double>::infinity();

/// Time of one collective on a sub-group of a mesh dimension. Implement it to plug in another machine.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// Microseconds. `bytes`: for all_gather what every rank has afterwards, for the others what every rank puts in.
  /// Called for groups of at least two ranks.
  virtual double collective_us(CollectiveKind kind, const MeshLayout& mesh, uint32_t mesh_dim, double bytes) const = 0;
  /// Microseconds in which a rank does so many multiply-adds of matrices and reads and writes so many bytes. Looked at
  /// by who compares whole layouts; how an operator runs is chosen by its communication. 0: not known, as in PyTorch.
  virtual double compute_us(double macs, double bytes) const;
};

/// The constants PyTorch uses (ring algorithms, one kind of link inside a host and one between hosts).
class RingCostModel : public CostModel {
 public:
  struct Constants {
    double base_us = 6.6;
    double hop_us = 0.6;
    double far_hop_us = 2.7;
    double bytes_per_second = 87.7 * 1024 * 1024 * 1024;
    double far_bandwidth_factor = 0.22;
    /// An all_to_all costs this much more than an all_gather of the same bytes.
    double all_to_all_extra_us = 1.0;
    /// Ranks that share a host: a mesh dimension is far when it and those inside it hold more. 0: all of them.
    uint32_t ranks_per_host = 0;
  };
  RingCostModel() = default;
  explicit RingCostModel(const Constants& constants) : m_constants(constants) {}
  double collective_us(CollectiveKind kind, const MeshLayout& mesh, uint32_t mesh_dim, double bytes) const override;

 private:
  Constants m_constants;
};

/// What a change of placement on one mesh dimension asks of the cost model.
enum class ChangeKind : uint8_t { Same, Free, Impossible, Gather, GatherCut, Exchange, Reduce, ReduceCut };
/// Impossible: a shard to a Partial, one Partial to another, Replicate to what it has no share of. On one rank every
/// change is free, and so is every one from Replicate.
ChangeKind change_kind(const Placement& from, const Placement& to, uint32_t n);
/// Microseconds of such a change; `bytes` is what a rank holds before it and is updated to what it holds after.
double change_cost(const CostModel& model, const MeshLayout& mesh, uint32_t mesh_dim, ChangeKind kind, double& bytes);
/// Bytes a rank of this spec holds, as if every shard were even.
double local_bytes(const DTensorSpec& spec);
/// Sum of `change_cost` over the mesh dimensions, outermost first.
double redistribute_cost(const CostModel& model, const DTensorSpec& from, const Placements& to);

}  // namespace ahbm::dtensor
