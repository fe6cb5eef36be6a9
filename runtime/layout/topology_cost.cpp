#include "runtime/layout/topology_cost.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ahbm::dtensor {

RingLoad ring_load(const SipGraph& graph, const std::vector<RankList>& groups) {
  RingLoad out;
  std::map<std::pair<SipId, SipId>, uint32_t> rings;
  for (const RankList& group : groups) {
    if (group.size() < 2) continue;
    for (size_t i = 0; i < group.size(); ++i) {
      const SipId from{group[i]}, to{group[(i + 1) % group.size()]};
      const std::vector<SipId> path = graph.path(from, to);
      for (size_t k = 0; k + 1 < path.size(); ++k) {
        out.busiest_link = std::max(out.busiest_link, ++rings[{path[k], path[k + 1]}]);
      }
      out.longest_step = std::max(out.longest_step, graph.hops(from, to));
    }
  }
  return out;
}

TopologyCostModel::TopologyCostModel(const SystemConfig& config)
    : m_graph(config),
      m_link(config.sip_link),
      m_base_us(static_cast<double>(2 * config.host_link.latency + config.pe.launch_dispatch) / 1e6) {
  const double pes = static_cast<double>(config.cubes()) * config.pes;
  m_macs_per_us = config.pe.free_compute ? kInfiniteCost
                                         : pes * config.pe.macs_per_cycle * static_cast<double>(config.pe.hertz) / 1e6;
  m_bytes_per_us = pes * static_cast<double>(config.pe.dma_bytes_per_second) / 1e6;
}

double TopologyCostModel::compute_us(double macs, double bytes) const {
  return std::max(macs / m_macs_per_us, bytes / m_bytes_per_us);
}

const RingLoad& TopologyCostModel::load_of(const MeshLayout& mesh, uint32_t mesh_dim) const {
  const auto [it, made] = m_loads.try_emplace({mesh.shape(), mesh.ranks(), mesh_dim});
  if (made) {
    for (const uint32_t rank : mesh.ranks()) {
      if (rank < m_graph.sips()) continue;
      m_loads.erase(it);
      throw std::invalid_argument("mesh " + mesh.to_string() + " has rank " + std::to_string(rank) +
                                  ", but the machine has SIPs 0.." + std::to_string(m_graph.sips() - 1));
    }
    it->second = ring_load(m_graph, mesh.groups(mesh_dim));
  }
  return it->second;
}

double TopologyCostModel::collective_us(CollectiveKind kind, const MeshLayout& mesh, uint32_t mesh_dim,
                                        double bytes) const {
  const double n = mesh.shape()[mesh_dim];
  const RingLoad& load = load_of(mesh, mesh_dim);
  const double steps = (kind == CollectiveKind::AllReduce ? 2 : 1) * (n - 1);
  const double latency_us = static_cast<double>(load.longest_step * m_link.latency) / 1e6;
  // What goes to every other member travels a quarter of the ring on average, both ways taken.
  const double distance = kind == CollectiveKind::AllToAll ? std::max(1.0, n / 4) : 1;
  const double on_link = bytes * steps / n * distance * load.busiest_link;
  return m_base_us + steps * latency_us + on_link / static_cast<double>(m_link.bytes_per_second) * 1e6;
}

}  // namespace ahbm::dtensor
