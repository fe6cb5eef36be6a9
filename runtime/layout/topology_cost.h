// What collectives of a mesh cost on the links of a machine's own topology, ranks being SIPs.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "models/core/topology.h"
#include "runtime/layout/cost_model.h"

namespace ahbm::dtensor {

/// What one-way rings over some groups of SIPs, all at once, ask of the links.
struct RingLoad {
  uint32_t longest_step = 0;  ///< links between neighbours of a ring
  uint32_t busiest_link = 0;  ///< rings that one directed link carries
};
/// \throws std::runtime_error when there is no way between two of a group
RingLoad ring_load(const SipGraph& graph, const std::vector<RankList>& groups);

/// Rings over the real links: a strided group pays for the links between its members and shares them with the groups
/// beside it. Parallel cables count as one. Same on every rank: it looks at the configuration and the mesh only.
class TopologyCostModel : public CostModel {
 public:
  explicit TopologyCostModel(const SystemConfig& config);
  /// \throws std::invalid_argument for a mesh with ranks that are no SIPs
  double collective_us(CollectiveKind kind, const MeshLayout& mesh, uint32_t mesh_dim, double bytes) const override;
  /// All PEs of a SIP share the work evenly: the longer of their multiply-adds and of their DMA.
  double compute_us(double macs, double bytes) const override;

 private:
  const RingLoad& load_of(const MeshLayout& mesh, uint32_t mesh_dim) const;

  SipGraph m_graph;
  LinkParams m_link;
  double m_base_us;                      ///< of a collective that sends nothing: descriptor there, completion back
  double m_macs_per_us, m_bytes_per_us;  ///< of a SIP
  mutable std::map<std::tuple<std::vector<uint32_t>, RankList, uint32_t>, RingLoad> m_loads;
};

}  // namespace ahbm::dtensor
