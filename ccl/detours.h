// The ways that messages between SIPs take, where they are longer than a link or share one: on absent links' detours,
// and between members of a group that are no neighbours.
#pragma once

#include <optional>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/config/system_config.h"
#include "models/core/topology.h"

namespace ahbm::ccl {

/// Data from one SIP to another.
struct Flow {
  SipId from{}, to{};
  std::optional<Side> side;  ///< where it leaves if ways are equally long
  double bytes = 1;          ///< in any unit
};

/// Along the connections of a lane: of each what goes to its peer and, where it is used both ways, what comes back.
std::vector<Flow> flows_along(const Group& group, const std::vector<Connection>& connections, bool both_ways = true);

class Detours {
 public:
  explicit Detours(const SystemConfig& config);

  /// Whether links are absent, or the group is a part of a grid, so that its connections may be routed, and matter.
  static bool possible(const SystemConfig& config, const Group& group);

  struct Ways {
    std::vector<uint32_t> links;  ///< on each flow's way
    std::vector<double> carried;  ///< bytes on the fullest link of each flow's way
    double fullest = 0;           ///< and of all
    double alone = 0;             ///< the same if every two SIPs that exchange something had a link of their own
  };
  /// \param beside  other flows that are under way at the same time
  Ways of(const std::vector<Flow>& flows, const std::vector<Flow>& beside = {}) const;
  /// On the fabric as it would be without absent links.
  Ways on_whole_fabric(const std::vector<Flow>& flows, const std::vector<Flow>& beside = {}) const;

 private:
  const SipTopology m_topology;
  const GridRoutes m_routes;
  std::optional<SipGraph> m_graph;  ///< where links are absent
};

}  // namespace ahbm::ccl
