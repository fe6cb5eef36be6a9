// A logical grid of ranks with a process group per row of every dimension: torch's DeviceMesh on this machine, where a
// rank is a SIP.
//
// Every rank of the world makes the same meshes in the same order, members or not, because process groups are made by
// all. Groups are kept per context and by their set of ranks: equal meshes, slices and meshes made again share them. A
// dimension over the whole world uses the default group.
//
// A rank outside the mesh has no coordinate and no group (MeshError says so); it may hold DTensors of the mesh, which
// are empty there, and calls the same operators, which do nothing.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/distributed/distributed.h"
#include "runtime/layout/mesh.h"

namespace ahbm::dtensor {

class Session;

/// A mesh dimension by index or by name.
class MeshDim {
 public:
  MeshDim(uint32_t index) : m_index(index) {}             // NOLINT(google-explicit-constructor)
  MeshDim(int index) : m_index(index) {}                  // NOLINT(google-explicit-constructor)
  MeshDim(std::string name) : m_name(std::move(name)) {}  // NOLINT(google-explicit-constructor)
  MeshDim(const char* name) : m_name(name) {}             // NOLINT(google-explicit-constructor)
  /// \throws MeshError also for an index that is negative or too large, MeshKeyError for a name that is none
  uint32_t in(const MeshLayout& mesh) const;

 private:
  int64_t m_index = 0;
  std::string m_name;
};

/// Copies name the same mesh. Made by all ranks of the world alike, or by the driver for all of them.
class DeviceMesh {
 public:
  DeviceMesh() = default;
  /// Any ranks, row-major in `shape`; need not cover the world.
  /// \throws MeshError; std::runtime_error before init_process_group
  DeviceMesh(runtime::Context& context, std::string device_type, std::vector<uint32_t> shape, RankList ranks,
             std::vector<std::string> names = {});

  explicit operator bool() const { return m_state != nullptr; }
  runtime::Context& context() const;
  Session& session() const;
  const MeshLayout& layout() const { return *layout_ptr(); }
  const MeshPtr& layout_ptr() const;
  uint32_t ndim() const { return layout().ndim(); }
  const std::vector<uint32_t>& shape() const { return layout().shape(); }
  const RankList& ranks() const { return layout().ranks(); }
  const std::vector<std::string>& names() const { return layout().names(); }
  uint32_t size() const { return layout().size(); }
  uint32_t size(const MeshDim& dim) const { return layout().size(dim.in(layout())); }

  /// The calling thread's rank in the world.
  uint32_t get_rank() const;
  /// Nothing outside the mesh.
  std::optional<Coordinate> get_coordinate() const { return layout().coordinate(get_rank()); }
  /// \throws MeshError outside the mesh, or without `dim` on an n-d mesh
  uint32_t get_local_rank(const std::optional<MeshDim>& dim = std::nullopt) const;
  /// This rank's group along `dim`. Its ranks are sorted, unlike `layout().group`. \throws like get_local_rank
  runtime::distributed::ProcessGroup get_group(const std::optional<MeshDim>& dim = std::nullopt) const;
  /// One per dimension. \throws MeshError outside the mesh
  std::vector<runtime::distributed::ProcessGroup> get_all_groups() const;

  /// The part along these dimensions that holds this rank (for a rank outside: the mesh's first rank), with the groups
  /// that are there already. \throws MeshError, MeshKeyError
  DeviceMesh operator[](std::string_view name) const { return slice({std::string(name)}); }
  DeviceMesh operator[](std::initializer_list<const char*> names) const { return slice({names.begin(), names.end()}); }
  DeviceMesh slice(const std::vector<std::string>& names) const;
  /// A 1-d mesh over all dimensions, row-major; `mesh[{"dp", "cp"}].flatten()`. Its name (default: joined by "_") can
  /// be sliced from the mesh then. Makes the groups of every remaining coordinate: all ranks call it. From then on
  /// redistributions may do in one collective of such a group what takes one per dimension without. \throws MeshError
  DeviceMesh flatten(const std::string& name = "") const;

  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);
  friend bool operator!=(const DeviceMesh& a, const DeviceMesh& b) { return !(a == b); }
  std::string to_string() const { return layout().to_string(); }

 private:
  struct State;
  explicit DeviceMesh(std::shared_ptr<const State> state) : m_state(std::move(state)) {}
  static std::shared_ptr<State> make_state(runtime::Context& context, MeshPtr layout);
  /// This rank, or a member in its stead.
  uint32_t member_rank() const;

  std::shared_ptr<const State> m_state;
};

/// Ranks 0 .. product-1, row-major. \param device_type  letters only: "sip" \throws MeshError
DeviceMesh init_device_mesh(runtime::Context& context, const std::string& device_type, std::vector<uint32_t> shape,
                            std::vector<std::string> names = {});

}  // namespace ahbm::dtensor
