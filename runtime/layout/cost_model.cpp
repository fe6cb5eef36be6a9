#include "runtime/layout/cost_model.h"

namespace ahbm::dtensor {

double CostModel::compute_us(double /*macs*/, double /*bytes*/) const {
  return 0;
}

double RingCostModel::collective_us(CollectiveKind kind, const MeshLayout& mesh, uint32_t mesh_dim,
                                    double bytes) const {
  const double n = mesh.shape()[mesh_dim];
  bool far = false;
  if (m_constants.ranks_per_host != 0) {
    uint64_t inside = 1;
    for (uint32_t m = mesh_dim; m < mesh.ndim(); ++m) inside *= mesh.shape()[m];
    far = inside > m_constants.ranks_per_host;
  }
  const double hop = far ? m_constants.far_hop_us : m_constants.hop_us;
  const double bandwidth = m_constants.bytes_per_second * (far ? m_constants.far_bandwidth_factor : 1.0);
  const double hops = (kind == CollectiveKind::AllReduce ? 2 : 1) * (n - 1);
  const double extra = kind == CollectiveKind::AllToAll ? m_constants.all_to_all_extra_us : 0;
  return m_constants.base_us + hops * hop + bytes * hops / n / bandwidth * 1e6 + extra;
}

ChangeKind change_kind(const Placement& from, const Placement& to, uint32_t n) {
  if (from == to) return ChangeKind::Same;
  if (n == 1) return ChangeKind::Free;
  if (is_replicate(from)) return has_share(to) ? ChangeKind::Free : ChangeKind::Impossible;
  if (is_partial(to)) return ChangeKind::Impossible;
  if (is_partial(from)) return is_shard(to) ? ChangeKind::ReduceCut : ChangeKind::Reduce;
  if (is_replicate(to)) return ChangeKind::Gather;
  return shard_dim(from) == shard_dim(to) ? ChangeKind::GatherCut : ChangeKind::Exchange;
}

double change_cost(const CostModel& model, const MeshLayout& mesh, uint32_t mesh_dim, ChangeKind kind, double& bytes) {
  const uint32_t n = mesh.shape()[mesh_dim];
  switch (kind) {
    case ChangeKind::Same:
    case ChangeKind::Free:
      return 0;
    case ChangeKind::Impossible:
      return kInfiniteCost;
    case ChangeKind::Gather:
      bytes *= n;
      return model.collective_us(CollectiveKind::AllGather, mesh, mesh_dim, bytes);
    case ChangeKind::GatherCut:
      return model.collective_us(CollectiveKind::AllGather, mesh, mesh_dim, bytes * n);
    case ChangeKind::Exchange:
      return model.collective_us(CollectiveKind::AllToAll, mesh, mesh_dim, bytes);
    case ChangeKind::Reduce:
      return model.collective_us(CollectiveKind::AllReduce, mesh, mesh_dim, bytes);
    case ChangeKind::ReduceCut: {
      const double cost = model.collective_us(CollectiveKind::ReduceScatter, mesh, mesh_dim, bytes);
      bytes /= n;
      return cost;
    }
  }
  return kInfiniteCost;
}

double local_bytes(const DTensorSpec& spec) {
  return static_cast<double>(item_bytes(spec.dtype())) * static_cast<double>(spec.numel()) /
         static_cast<double>(spec.num_shards());
}

double redistribute_cost(const CostModel& model, const DTensorSpec& from, const Placements& to) {
  double bytes = local_bytes(from);
  double cost = 0;
  for (uint32_t m = 0; m < from.mesh()->ndim(); ++m) {
    cost +=
        change_cost(model, *from.mesh(), m, change_kind(from.placements()[m], to[m], from.mesh()->shape()[m]), bytes);
  }
  return cost;
}

}  // namespace ahbm::dtensor
