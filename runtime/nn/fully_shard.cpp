#include "runtime/nn/fully_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "runtime/ops/functions.h"

namespace ahbm::nn {

using dtensor::DeviceMesh;
using dtensor::Placement;
using dtensor::Placements;

namespace ops = runtime::ops;

namespace {

/// A parameter of a unit.
struct Item {
  Value* where = nullptr;
  DeviceMesh tensor_mesh;     ///< of a parameter that tensor parallelism has cut
  dtensor::DTensorSpec spec;  ///< there
  runtime::Shape shape;       ///< what a rank computes with
  uint64_t chunk = 0;         ///< rows of a shard, padding included
  Value resting;              ///< the shard
  uint64_t row() const { return shape[0] == 0 ? 0 : layout::element_count(shape) / shape[0]; }
};

/// What one call has taken: gathered and dropped together.
class Unit {
 public:
  Unit(Module& module, const DeviceMesh& mesh)
      : m_context(mesh.context()),
        m_mesh(mesh),
        m_group(mesh.get_group(0)),
        m_n(mesh.size(0)),
        m_me(mesh.get_local_rank(0)),
        m_data(mesh.ndim() == 1
                   ? mesh
                   : DeviceMesh(m_context, mesh.layout().device(), {m_n}, mesh.layout().group(mesh.get_rank(), 0))) {
    for (const auto& [path, value] : module.parameters()) {
      if (value->is_distributed() &&
          (value->distributed().device_mesh() == mesh || value->distributed().device_mesh() == m_data)) {
        continue;
      }
      take(path, *value);
    }
    if (m_items.empty()) {
      throw std::invalid_argument(
          fmt::format("fully_shard of a {}: it has no parameters that are not sharded yet", module.kind()));
    }
  }

  /// Gathers every parameter: one all_gather.
  void unshard() {
    if (m_n == 1) {
      for (const Item& i : m_items) put(i, i.resting.to_local());
      return;
    }
    std::vector<Tensor> parts;
    for (const Item& i : m_items) {
      const Tensor& own = i.resting.to_local();
      const Tensor even = own.shape()[0] == i.chunk ? own : ops::pad(m_context, own, 0, i.chunk);
      parts.push_back(runtime::reshape(even, {static_cast<int64_t>(i.chunk * i.row())}));
    }
    const Tensor mine = parts.size() == 1 ? parts.front() : runtime::cat(parts);
    Tensor all = m_context.empty({m_n * mine.elements()}, mine.dtype(), mine.policy());
    m_context.distributed.all_gather_into_tensor(all, mine, m_group);
    all = runtime::reshape(all, {int64_t{m_n}, static_cast<int64_t>(mine.elements())});
    uint64_t at = 0;
    for (const Item& i : m_items) {
      const uint64_t end = at + i.chunk * i.row();
      const Tensor rows = runtime::slice(all, 1, static_cast<int64_t>(at), static_cast<int64_t>(end));
      at = end;
      dtensor::Dims whole = dtensor::to_dims(i.shape);
      whole[0] = static_cast<int64_t>(m_n * i.chunk);
      const Tensor padded = runtime::reshape(rows, whole);
      put(i, padded.shape() == i.shape ? padded : runtime::slice(padded, 0, 0, static_cast<int64_t>(i.shape[0])));
    }
  }

  void reshard() {
    for (const Item& i : m_items) *i.where = i.resting;
  }

 private:
  void take(const std::string& path, Value& value) {
    Item item;
    item.where = &value;
    Placements placements{dtensor::Shard{0}};
    if (value.is_distributed()) {
      item.tensor_mesh = value.distributed().device_mesh();
      item.spec = value.distributed().spec();
      placements = resting_placements(path, item);
    } else if (m_mesh.ndim() == 2) {
      placements.push_back(dtensor::Replicate{});
    }
    const Tensor local = value.to_local();
    if (!m_items.empty() && local.dtype() != m_items.front().resting.dtype()) {
      throw std::invalid_argument(fmt::format("fully_shard: '{}' is {}, parameters before it {}: expected one dtype",
                                              path, to_string(local.dtype()),
                                              to_string(m_items.front().resting.dtype())));
    }
    item.shape = local.shape();
    if (item.shape.empty()) throw std::invalid_argument(fmt::format("fully_shard: '{}' is a number", path));
    item.chunk = ceil_div(item.shape[0], m_n);
    const Tensor own = ops::take(m_context, local, 0, {torch_chunk(item.shape[0], m_n, m_me)});
    const dtensor::DTensorSpec spec(m_mesh.layout_ptr(), placements, value.shape(), local.dtype());
    if (is_layout_of_shards(spec)) {
      item.resting = DTensor(m_mesh, spec, own);
    } else {
      // No placements say how uneven parts of uneven parts lie: a shard of what this rank's tensor part is.
      item.resting = DTensor(
          m_data,
          dtensor::DTensorSpec(m_data.layout_ptr(), {dtensor::Shard{0}}, dtensor::to_dims(item.shape), local.dtype()),
          own);
    }
    value = item.resting;
    m_items.push_back(std::move(item));
  }

  /// Tensor parallelism came first: where both dimensions cut the rows, the data dimension's shard is a strided one.
  Placements resting_placements(const std::string& path, const Item& item) const {
    if (m_mesh.ndim() != 2 || item.tensor_mesh.ndim() != 1 ||
        item.tensor_mesh.ranks() != m_mesh.layout().group(m_mesh.get_rank(), 1)) {
      throw dtensor::MeshMismatch(
          fmt::format("fully_shard: '{}' is distributed over {}, expected the second dimension "
                      "of {}",
                      path, item.tensor_mesh.to_string(), m_mesh.to_string()));
    }
    const Placement& tensor = item.spec.placements()[0];
    Placement data = dtensor::Shard{0};
    if (dtensor::is_shard(tensor, 0)) data = dtensor::StridedShard{0, m_mesh.size(1)};
    return {data, tensor};
  }

  /// Whether every rank's shard is the one that the placements say.
  bool is_layout_of_shards(const dtensor::DTensorSpec& spec) const {
    const dtensor::RankList& ranks = m_mesh.ranks();
    return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
      const auto c = *m_mesh.layout().coordinate(rank);
      auto rows = static_cast<uint64_t>(spec.shape()[0]);
      if (m_mesh.ndim() == 2 && dtensor::is_shard(spec.placements()[1], 0)) {
        rows = dtensor::owned_count(spec.placements()[1], rows, m_mesh.size(1), c[1]);
      }
      return static_cast<int64_t>(torch_chunk(rows, m_n, c[0]).count) == local_shape(spec, rank)[0];
    });
  }

  void put(const Item& item, const Tensor& whole) const {
    if (item.tensor_mesh) {
      *item.where = DTensor(item.tensor_mesh, item.spec, whole);
    } else {
      *item.where = whole;
    }
  }

  runtime::Context& m_context;
  DeviceMesh m_mesh;
  runtime::distributed::ProcessGroup m_group;
  uint32_t m_n, m_me;
  DeviceMesh m_data;  ///< the data dimension alone
  std::vector<Item> m_items;
};

}  // namespace

void fully_shard(Module& module, const DeviceMesh& mesh) {
  if (mesh.ndim() > 2) {
    throw dtensor::UnsupportedMesh(
        fmt::format("fully_shard on {}: expected 1 dimension (data), or 2 (data, tensor)", mesh.to_string()));
  }
  const auto unit = std::make_shared<Unit>(module, mesh);
  module.add_pre_hook([unit](Values&) { unit->unshard(); });
  module.add_post_hook([unit](Value&) { unit->reshard(); });
}

}  // namespace ahbm::nn
