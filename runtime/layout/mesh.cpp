#include "runtime/layout/mesh.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "runtime/layout/errors.h"

namespace ahbm::dtensor {

struct MeshLayout::Root {
  std::string device;
  std::vector<uint32_t> shape;
  RankList ranks;
  std::vector<std::string> names;
  std::map<std::string, std::vector<uint32_t>> flattened;
};

namespace {

std::string list_string(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

std::string shape_string(const std::vector<uint32_t>& shape) {
  return to_string(Dims(shape.begin(), shape.end()));
}

// Every sub-group along `dims`: positions of a row-major array, the other dimensions row-major outside.
std::vector<std::vector<uint32_t>> positions_along(const std::vector<uint32_t>& shape,
                                                   const std::vector<uint32_t>& dims) {
  std::vector<uint32_t> stride(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) stride[i - 1] = stride[i] * shape[i];
  const auto offsets = [&](const std::vector<uint32_t>& over) {
    std::vector<uint32_t> out{0};
    for (const uint32_t d : over) {
      std::vector<uint32_t> next;
      next.reserve(out.size() * shape[d]);
      for (const uint32_t base : out) {
        for (uint32_t i = 0; i < shape[d]; ++i) next.push_back(base + i * stride[d]);
      }
      out = std::move(next);
    }
    return out;
  };
  std::vector<uint32_t> rest;
  for (uint32_t d = 0; d < shape.size(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) rest.push_back(d);
  }
  const std::vector<uint32_t> inner = offsets(dims);
  std::vector<std::vector<uint32_t>> out;
  for (const uint32_t base : offsets(rest)) {
    out.emplace_back();
    for (const uint32_t i : inner) out.back().push_back(base + i);
  }
  return out;
}

}  // namespace

std::shared_ptr<MeshLayout> MeshLayout::build(std::vector<uint32_t> shape, RankList ranks,
                                              std::vector<std::string> names, std::string device, uint32_t world_size) {
  if (device.empty() || !std::all_of(device.begin(), device.end(), [](unsigned char c) { return std::isalpha(c); })) {
    throw MeshError("mesh device '" + device + "': expected letters only, e.g. sip");
  }
  uint64_t product = 1;
  for (const uint32_t n : shape) {
    if (n == 0) throw MeshError("mesh shape " + shape_string(shape) + ": expected every size >= 1");
    product *= n;
    if (product > UINT32_MAX) throw MeshError("mesh shape " + shape_string(shape) + " has more than 2^32 - 1 ranks");
  }
  if (shape.empty()) throw MeshError("a mesh needs at least one dimension");
  if (product != ranks.size()) {
    throw MeshError("mesh shape " + shape_string(shape) + " with " + std::to_string(ranks.size()) +
                    " ranks: expected " + std::to_string(product));
  }
  if (world_size != 0 && ranks.size() > world_size) {
    throw MeshError("a mesh of " + std::to_string(ranks.size()) + " ranks in a world of " + std::to_string(world_size) +
                    ": expected at most that many");
  }
  if (!names.empty() && names.size() != shape.size()) {
    throw MeshError(std::to_string(names.size()) + " mesh dimension names (" + list_string(names) + ") for " +
                    std::to_string(shape.size()) + " dimensions: expected one each");
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) throw MeshError("mesh dimension " + std::to_string(i) + " has an empty name");
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw MeshError("mesh dimension name '" + names[i] + "' is used twice: expected distinct names");
    }
  }

  struct Access : MeshLayout {};
  auto mesh = std::make_shared<Access>();
  for (uint32_t i = 0; i < ranks.size(); ++i) mesh->m_positions.emplace_back(ranks[i], i);
  std::sort(mesh->m_positions.begin(), mesh->m_positions.end());
  for (size_t i = 0; i < mesh->m_positions.size(); ++i) {
    const uint32_t rank = mesh->m_positions[i].first;
    if (i > 0 && rank == mesh->m_positions[i - 1].first) {
      throw MeshError("rank " + std::to_string(rank) + " is in the mesh twice: expected each at most once");
    }
    if (world_size != 0 && rank >= world_size) {
      throw MeshError("rank " + std::to_string(rank) + " in a mesh of a world of " + std::to_string(world_size) +
                      ": expected ranks below that");
    }
  }
  mesh->m_group_of.assign(shape.size(), std::vector<uint32_t>(ranks.size()));
  for (uint32_t d = 0; d < shape.size(); ++d) {
    mesh->m_groups.emplace_back();
    for (const auto& positions : positions_along(shape, {d})) {
      const auto id = static_cast<uint32_t>(mesh->m_groups[d].size());
      RankList group;
      for (const uint32_t p : positions) {
        mesh->m_group_of[d][p] = id;
        group.push_back(ranks[p]);
      }
      mesh->m_groups[d].push_back(std::move(group));
    }
  }
  size_t h = hash_mix(0, std::hash<std::string>()(device));
  for (const uint32_t n : shape) h = hash_mix(h, n);
  for (const uint32_t r : ranks) h = hash_mix(h, r);
  for (const std::string& n : names) h = hash_mix(h, std::hash<std::string>()(n));
  mesh->m_hash = h;
  mesh->m_device = std::move(device);
  mesh->m_shape = std::move(shape);
  mesh->m_ranks = std::move(ranks);
  mesh->m_names = std::move(names);
  return mesh;
}

MeshPtr MeshLayout::from_ranks(std::vector<uint32_t> shape, RankList ranks, std::vector<std::string> names,
                               std::string device, uint32_t world_size) {
  auto mesh = build(std::move(shape), std::move(ranks), std::move(names), std::move(device), world_size);
  mesh->m_root = std::make_shared<Root>(Root{mesh->m_device, mesh->m_shape, mesh->m_ranks, mesh->m_names, {}});
  for (uint32_t d = 0; d < mesh->ndim(); ++d) mesh->m_root_dims.push_back({d});
  return mesh;
}

MeshPtr MeshLayout::create(std::vector<uint32_t> shape, std::vector<std::string> names, std::string device,
                           uint32_t world_size) {
  uint64_t product = 1;
  for (const uint32_t n : shape) {
    product *= n;
    if (product > (uint64_t{1} << 24)) {
      throw MeshError("mesh shape " + shape_string(shape) + ": expected at most 2^24 ranks");
    }
  }
  if (world_size != 0 && product > world_size) {
    throw MeshError("a mesh of " + std::to_string(product) + " ranks in a world of " + std::to_string(world_size) +
                    ": expected at most that many");
  }
  RankList ranks(product);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return from_ranks(std::move(shape), std::move(ranks), std::move(names), std::move(device), world_size);
}

uint32_t MeshLayout::size(uint32_t dim) const {
  return m_shape[pick_dim(dim, "size")];
}

std::optional<uint32_t> MeshLayout::index_of(uint32_t rank) const {
  const auto it = std::lower_bound(m_positions.begin(), m_positions.end(), std::make_pair(rank, 0U));
  if (it == m_positions.end() || it->first != rank) return std::nullopt;
  return it->second;
}

Coordinate MeshLayout::coordinate_at(uint32_t index) const {
  Coordinate c(m_shape.size(), 0);
  for (size_t d = m_shape.size(); d-- > 0;) {
    c[d] = index % m_shape[d];
    index /= m_shape[d];
  }
  return c;
}

std::optional<Coordinate> MeshLayout::coordinate(uint32_t rank) const {
  const auto index = index_of(rank);
  if (!index) return std::nullopt;
  return coordinate_at(*index);
}

uint32_t MeshLayout::rank_at(const Coordinate& c) const {
  uint32_t index = 0;
  for (size_t d = 0; d < m_shape.size(); ++d) index = index * m_shape[d] + c.at(d);
  return m_ranks.at(index);
}

uint32_t MeshLayout::pick_dim(std::optional<uint32_t> dim, const char* what) const {
  if (!dim) {
    if (ndim() == 1) return 0;
    throw MeshError(std::string(what) + " of a " + std::to_string(ndim()) +
                    "-d mesh: expected a mesh dimension (it may be left out on a 1-d mesh only)");
  }
  if (*dim >= ndim()) {
    throw MeshError(std::string(what) + ": mesh dimension " + std::to_string(*dim) + " of a " + std::to_string(ndim()) +
                    "-d mesh, expected 0.." + std::to_string(ndim() - 1));
  }
  return *dim;
}

uint32_t MeshLayout::dim_index(const std::string& name) const {
  if (m_names.empty()) throw MeshError("mesh dimension '" + name + "': the mesh has no dimension names");
  const auto it = std::find(m_names.begin(), m_names.end(), name);
  if (it == m_names.end()) {
    throw MeshKeyError("no mesh dimension '" + name + "': expected one of " + list_string(m_names));
  }
  return static_cast<uint32_t>(it - m_names.begin());
}

uint32_t MeshLayout::local_rank(uint32_t rank, std::optional<uint32_t> dim) const {
  const uint32_t d = pick_dim(dim, "local rank");
  const auto c = coordinate(rank);
  if (!c) throw MeshError("rank " + std::to_string(rank) + " is not in mesh " + to_string());
  return (*c)[d];
}

const RankList& MeshLayout::group(uint32_t rank, std::optional<uint32_t> dim) const {
  const uint32_t d = pick_dim(dim, "group");
  const auto index = index_of(rank);
  if (!index) throw MeshError("rank " + std::to_string(rank) + " is not in mesh " + to_string());
  return m_groups[d][m_group_of[d][*index]];
}

const std::vector<RankList>& MeshLayout::groups(uint32_t dim) const {
  return m_groups[pick_dim(dim, "groups")];
}

std::vector<RankList> MeshLayout::groups(const std::vector<uint32_t>& dims) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    pick_dim(dims[i], "groups");
    if (i > 0 && dims[i] <= dims[i - 1]) throw MeshError("mesh dimensions of a group must ascend");
  }
  std::vector<RankList> out;
  for (const auto& positions : positions_along(m_shape, dims)) {
    out.emplace_back();
    for (const uint32_t p : positions) out.back().push_back(m_ranks[p]);
  }
  return out;
}

std::vector<uint32_t> MeshLayout::root_dims(const std::string& name) const {
  if (m_names.empty()) throw MeshError("mesh dimension '" + name + "': the mesh has no dimension names");
  const auto it = std::find(m_names.begin(), m_names.end(), name);
  if (it != m_names.end()) return m_root_dims[static_cast<size_t>(it - m_names.begin())];
  const auto flat = m_root->flattened.find(name);
  if (flat == m_root->flattened.end()) {
    throw MeshKeyError("no mesh dimension '" + name + "': expected one of " + list_string(m_names));
  }
  // A flattened name is known to the root and to every part of it that has all of its dimensions.
  for (const uint32_t d : flat->second) {
    const bool ours = std::any_of(m_root_dims.begin(), m_root_dims.end(), [&](const std::vector<uint32_t>& dims) {
      return std::find(dims.begin(), dims.end(), d) != dims.end();
    });
    if (!ours) {
      throw MeshKeyError("mesh dimension '" + name + "' is not part of this mesh: expected one of " +
                         list_string(m_names));
    }
  }
  return flat->second;
}

MeshPtr MeshLayout::sub_mesh(const std::vector<std::vector<uint32_t>>& dims, std::vector<std::string> names,
                             uint32_t rank) const {
  const auto it = std::find(m_root->ranks.begin(), m_root->ranks.end(), rank);
  if (it == m_root->ranks.end() || !contains(rank)) {
    throw MeshError("rank " + std::to_string(rank) + " is not in mesh " + to_string());
  }
  const auto position = static_cast<uint32_t>(it - m_root->ranks.begin());
  std::vector<uint32_t> all;
  std::vector<uint32_t> shape;
  for (const auto& group : dims) {
    uint32_t extent = 1;
    for (const uint32_t d : group) {
      all.push_back(d);
      extent *= m_root->shape[d];
    }
    shape.push_back(extent);
  }
  for (const auto& positions : positions_along(m_root->shape, all)) {
    if (std::find(positions.begin(), positions.end(), position) == positions.end()) continue;
    RankList ranks;
    for (const uint32_t p : positions) ranks.push_back(m_root->ranks[p]);
    auto mesh = build(std::move(shape), std::move(ranks), std::move(names), m_device, 0);
    mesh->m_root = m_root;
    mesh->m_root_dims = dims;
    return mesh;
  }
  throw MeshError("rank " + std::to_string(rank) + " is not in mesh " + to_string());
}

MeshPtr MeshLayout::slice(const std::vector<std::string>& names, uint32_t rank) const {
  if (m_names.empty()) throw MeshError("slicing [" + list_string(names) + "]: the mesh has no dimension names");
  if (names.empty()) throw MeshKeyError("slicing a mesh: expected at least one of " + list_string(m_names));
  std::vector<std::vector<uint32_t>> dims;
  for (const std::string& name : names) {
    dims.push_back(root_dims(name));
    if (dims.size() > 1 && dims.back().front() <= dims[dims.size() - 2].back()) {
      throw MeshKeyError("slicing [" + list_string(names) + "] of a mesh (" + list_string(m_names) +
                         "): expected the names in mesh order, each dimension once");
    }
  }
  if (names == m_names) return shared_from_this();
  return sub_mesh(dims, names, rank);
}

MeshPtr MeshLayout::flatten(const std::vector<std::string>& names, uint32_t rank, std::string name) const {
  const MeshPtr part = slice(names, rank);
  if (name.empty()) {
    for (const std::string& n : names) name += (name.empty() ? "" : "_") + n;
  }
  std::vector<uint32_t> dims;
  for (const auto& group : part->m_root_dims) dims.insert(dims.end(), group.begin(), group.end());
  const auto clash = std::find(m_root->names.begin(), m_root->names.end(), name);
  if (clash != m_root->names.end()) {
    // Flattening one dimension to its own name changes nothing.
    if (dims.size() == 1 && dims[0] == static_cast<uint32_t>(clash - m_root->names.begin())) return part;
    throw MeshError("flattened mesh dimension '" + name + "' has the name of a dimension: expected another name than " +
                    list_string(m_root->names));
  }
  const auto [known, inserted] = m_root->flattened.emplace(name, dims);
  if (!inserted && known->second != dims) {
    throw MeshError("flattened mesh dimension '" + name + "' exists over other dimensions: expected a new name");
  }
  return sub_mesh({dims}, {name}, rank);
}

MeshPtr MeshLayout::flatten(std::string name) const {
  if (m_names.empty()) throw MeshError("flattening a mesh: it has no dimension names");
  return flatten(m_names, m_ranks.front(), std::move(name));
}

bool operator==(const MeshLayout& a, const MeshLayout& b) {
  return &a == &b || (a.m_hash == b.m_hash && a.m_shape == b.m_shape && a.m_ranks == b.m_ranks &&
                      a.m_device == b.m_device && a.m_names == b.m_names);
}

std::string MeshLayout::to_string() const {
  std::string out = m_device + shape_string(m_shape);
  if (!m_names.empty()) out += " (" + list_string(m_names) + ")";
  return out;
}

}  // namespace ahbm::dtensor
