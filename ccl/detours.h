// The ways that messages between SIPs take where links are absent, against those on the whole fabric.
#pragma once

#include <map>
#include <optional>
#include <utility>
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

class Detours {
 public:
  explicit Detours(const SystemConfig& config) : m_now(config), m_whole(whole(config)) {}

  /// Whether links are absent, and matter to the group.
  static bool possible(const SystemConfig& config, const Group& group);

  struct Cost {
    std::vector<uint32_t> hops;   ///< that each flow's way gains
    double load = 1;              ///< of the fullest link that they use
    std::vector<uint32_t> links;  ///< on each flow's way
    double fullest = 0;           ///< bytes on that link
  };
  /// \param beside  other flows that are under way at the same time
  Cost of(const std::vector<Flow>& flows, const std::vector<Flow>& beside = {}) const;

 private:
  struct Ways {
    std::vector<uint32_t> hops;
    double fullest = 0;  ///< bytes on one link
  };
  static SystemConfig whole(SystemConfig config);
  static Ways ways(const SipGraph& graph, const std::vector<Flow>& flows, const std::vector<Flow>& beside);

  SipGraph m_now, m_whole;
};

}  // namespace ahbm::ccl
