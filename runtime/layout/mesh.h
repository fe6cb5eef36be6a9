// The metadata of a DeviceMesh: which rank sits at which coordinate, the sub-group of every mesh dimension, slicing and
// flattening by name. No communication: whoever owns process groups makes one per group listed here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/layout/dims.h"

namespace ahbm::dtensor {

class MeshLayout;
using MeshPtr = std::shared_ptr<const MeshLayout>;
using Coordinate = SmallVector<uint32_t, 4>;
using RankList = std::vector<uint32_t>;

class MeshLayout : public std::enable_shared_from_this<MeshLayout> {
 public:
  /// Ranks 0 .. product-1, row-major.
  /// \throws MeshError for a size below 1, names that repeat, are empty or do not count as many as the dimensions, a
  ///   device that is more than letters, more ranks than `world_size` (0: not checked)
  static MeshPtr create(std::vector<uint32_t> shape, std::vector<std::string> names = {}, std::string device = "sip",
                        uint32_t world_size = 0);
  /// Any ranks, row-major in `shape`; need not cover the world.
  /// \throws MeshError also for a rank that repeats or is not in the world
  static MeshPtr from_ranks(std::vector<uint32_t> shape, RankList ranks, std::vector<std::string> names = {},
                            std::string device = "sip", uint32_t world_size = 0);

  const std::string& device() const { return m_device; }
  const std::vector<uint32_t>& shape() const { return m_shape; }
  const RankList& ranks() const { return m_ranks; }
  const std::vector<std::string>& names() const { return m_names; }  ///< empty for a mesh without names
  uint32_t ndim() const { return static_cast<uint32_t>(m_shape.size()); }
  uint32_t size() const { return static_cast<uint32_t>(m_ranks.size()); }
  /// \throws MeshError when there is no such dimension
  uint32_t size(uint32_t dim) const;

  bool contains(uint32_t rank) const { return index_of(rank).has_value(); }
  /// Position in `ranks()`.
  std::optional<uint32_t> index_of(uint32_t rank) const;
  /// Nothing for a rank outside the mesh.
  std::optional<Coordinate> coordinate(uint32_t rank) const;
  Coordinate coordinate_at(uint32_t index) const;  ///< \pre index < size()
  uint32_t rank_at(const Coordinate& c) const;

  /// Index of a dimension by name. \throws MeshError for a mesh without names, MeshKeyError for an unknown name
  uint32_t dim_index(const std::string& name) const;
  /// Coordinate of `rank` on `dim`. \throws MeshError without `dim` on an n-d mesh, for a bad dim or a rank outside
  uint32_t local_rank(uint32_t rank, std::optional<uint32_t> dim = std::nullopt) const;
  /// The sub-group of `rank` along `dim`, in mesh order. \throws like local_rank
  const RankList& group(uint32_t rank, std::optional<uint32_t> dim = std::nullopt) const;
  /// All sub-groups along `dim`, in the order in which every rank has to create them.
  const std::vector<RankList>& groups(uint32_t dim) const;
  /// Sub-groups along several dimensions taken as one, row-major in ascending order; `dims` must ascend.
  std::vector<RankList> groups(const std::vector<uint32_t>& dims) const;

  /// The part of the mesh along the named dimensions (or flattened names) that holds `rank`. All names: the mesh
  /// itself. \throws MeshError without names or for a rank outside; MeshKeyError for an unknown name, a repetition, or
  /// names
  ///   that are not in ascending order
  MeshPtr slice(const std::vector<std::string>& names, uint32_t rank) const;
  /// A 1-d mesh over the named dimensions that holds `rank`; its name (default: joined by "_") can be sliced and used
  /// as a dimension from then on, here and in every mesh sliced from the same root. Idempotent.
  /// \throws MeshError when the name is a dimension's, or was given to other dimensions; else like slice
  MeshPtr flatten(const std::vector<std::string>& names, uint32_t rank, std::string name = "") const;
  /// All dimensions of this mesh as one.
  MeshPtr flatten(std::string name = "") const;

  size_t hash() const { return m_hash; }
  friend bool operator==(const MeshLayout& a, const MeshLayout& b);
  friend bool operator!=(const MeshLayout& a, const MeshLayout& b) { return !(a == b); }
  std::string to_string() const;  ///< sip[2, 4] (dp, tp)

 private:
  struct Root;
  MeshLayout() = default;
  static std::shared_ptr<MeshLayout> build(std::vector<uint32_t> shape, RankList ranks, std::vector<std::string> names,
                                           std::string device, uint32_t world_size);
  std::vector<uint32_t> root_dims(const std::string& name) const;
  MeshPtr sub_mesh(const std::vector<std::vector<uint32_t>>& dims, std::vector<std::string> names, uint32_t rank) const;
  uint32_t pick_dim(std::optional<uint32_t> dim, const char* what) const;

  std::string m_device;
  std::vector<uint32_t> m_shape;
  RankList m_ranks;
  std::vector<std::string> m_names;
  std::vector<std::vector<RankList>> m_groups;             // [dim][group]
  std::vector<std::vector<uint32_t>> m_group_of;           // [dim][position in m_ranks]
  std::vector<std::pair<uint32_t, uint32_t>> m_positions;  // (rank, position), sorted
  std::shared_ptr<Root> m_root;                            // what this mesh was sliced from
  std::vector<std::vector<uint32_t>> m_root_dims;          // the root's dimensions behind each of ours
  size_t m_hash = 0;
};

inline bool same_mesh(const MeshPtr& a, const MeshPtr& b) {
  return a == b || (a && b && *a == *b);
}

}  // namespace ahbm::dtensor
