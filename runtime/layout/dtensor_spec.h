// What every rank knows of a distributed tensor: mesh, placements, global shape, stride and dtype; and where the part
// of each rank lies in the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/core/chunk.h"
#include "models/core/dtype.h"
#include "runtime/layout/dims.h"
#include "runtime/layout/mesh.h"
#include "runtime/layout/placement.h"

namespace ahbm::dtensor {

/// Immutable; the hash is taken once.
class DTensorSpec {
 public:
  DTensorSpec() = default;
  /// Row-major unless `stride` is given. Placements are normalised.
  /// \throws PlacementsLengthMismatch, DimOutOfRange, MixedPartial, ShapeMismatch
  DTensorSpec(MeshPtr mesh, const Placements& placements, Dims shape, DType dtype,
              std::optional<Dims> stride = std::nullopt);

  /// A tensor on no mesh: shape and dtype only.
  static DTensorSpec plain(Dims shape, DType dtype);

  const MeshPtr& mesh() const { return m_mesh; }  ///< null for a plain tensor
  const Placements& placements() const { return m_placements; }
  const Dims& shape() const { return m_shape; }
  const Dims& stride() const { return m_stride; }
  DType dtype() const { return m_dtype; }
  size_t ndim() const { return m_shape.size(); }
  int64_t numel() const { return m_numel; }
  /// Product of the mesh sizes that cut the tensor.
  uint64_t num_shards() const { return m_num_shards; }
  bool is_replicated() const { return m_replicated; }
  bool has_partial() const { return m_partial; }

  DTensorSpec with_placements(const Placements& placements) const;
  /// For placements that are normalised already: no check.
  DTensorSpec with_checked_placements(Placements placements) const;

  size_t hash() const { return m_hash; }
  friend bool operator==(const DTensorSpec& a, const DTensorSpec& b);
  friend bool operator!=(const DTensorSpec& a, const DTensorSpec& b) { return !(a == b); }
  std::string to_string() const;  ///< float [8, 4] on sip[2, 2] as [S(0), R]

 private:
  void finish();

  MeshPtr m_mesh;
  Placements m_placements;
  Dims m_shape;
  Dims m_stride;
  DType m_dtype = DType::Float32;
  int64_t m_numel = 1;
  uint64_t m_num_shards = 1;
  bool m_replicated = true;
  bool m_partial = false;
  size_t m_hash = 0;
};

/// Shape of what the rank at `coordinate` holds: placements applied left to right, each to the extent the ones before
/// left over.
Dims local_shape(const MeshLayout& mesh, const Placements& placements, const Dims& shape, const Coordinate& coordinate);
/// Of a rank; outside the mesh [0], or [] for a 0-d tensor.
Dims local_shape(const DTensorSpec& spec, uint32_t rank);

struct LocalPart {
  Dims shape;
  /// Where the part begins in the whole. An empty part begins at the dimension's size. Nothing when a strided shard
  /// leaves the part in several pieces.
  std::optional<Dims> offset;
};
/// Shape and offset of a rank's part; offset [] outside the mesh.
LocalPart local_part(const DTensorSpec& spec, uint32_t rank);
/// The global indices along tensor dimension `dim` that the rank at `coordinate` holds, as ranges in local order.
std::vector<Range> owned_along(const MeshLayout& mesh, const Placements& placements, const Dims& shape, int dim,
                               const Coordinate& coordinate);

/// The global shape and stride behind equal local tensors (from_local without a shape).
struct GlobalInfo {
  Dims shape;
  Dims stride;
};
/// \throws PlacementsLengthMismatch, DimOutOfRange, MixedPartial
GlobalInfo global_info(const MeshLayout& mesh, const Placements& placements, const Dims& local_shape,
                       const Dims& local_stride);

/// The spec of from_local: with `shape` and `stride` the local tensor of `rank` is checked against its chunk, without
/// them every rank is taken to hold an equal part.
/// \throws ShapeStrideTogether, LocalShapeMismatch, PlacementsLengthMismatch, DimOutOfRange, MixedPartial
DTensorSpec spec_from_local(MeshPtr mesh, const Placements& placements, const Dims& local_shape,
                            const Dims& local_stride, DType dtype, uint32_t rank,
                            const std::optional<Dims>& shape = std::nullopt,
                            const std::optional<Dims>& stride = std::nullopt);

/// The other way to write plain and strided shards: per tensor dimension, the mesh dimensions in the order in which
/// they cut it.
struct ShardOrderEntry {
  int tensor_dim = 0;
  std::vector<uint32_t> mesh_dims;
  friend bool operator==(const ShardOrderEntry& a, const ShardOrderEntry& b) {
    return a.tensor_dim == b.tensor_dim && a.mesh_dims == b.mesh_dims;
  }
};
/// Nothing when a split factor is no product of later mesh dimensions (such shards come from views).
std::optional<std::vector<ShardOrderEntry>> shard_order(const MeshLayout& mesh, const Placements& placements);
/// Shards in this order on the named mesh dimensions, Replicate on the rest.
/// \throws MeshError for a mesh dimension that does not exist or is named twice
Placements placements_of(const MeshLayout& mesh, const std::vector<ShardOrderEntry>& order);

/// What distribute_tensor does per mesh dimension, outermost first.
struct DistributeStep {
  enum class Action : uint8_t {
    Scatter,            ///< padded chunks from group rank `src`
    Broadcast,          ///< from group rank `src`
    BroadcastAndDivide  ///< broadcast, then each rank keeps its share of a Partial
  };
  uint32_t mesh_dim = 0;
  Action action = Action::Broadcast;
};
/// \param allow_partial  the newer rule: the value is divided instead of refused
/// \throws UnsupportedPlacement for a Partial otherwise; what DTensorSpec throws
std::vector<DistributeStep> plan_distribute(const DTensorSpec& target, bool allow_partial);

}  // namespace ahbm::dtensor
