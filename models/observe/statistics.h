// The counters of a machine as a list of figures with units.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "models/system/system.h"

namespace ahbm::observe {

/// One figure. Times are in ps, sizes in B, utilisations are parts of 1, everything else counts.
struct Stat {
  std::string path;
  std::string name;
  double ratio = 0;    ///< the value when `unit` is "1"
  uint64_t count = 0;  ///< the value otherwise
  const char* unit = "";
  /// As the writers print it: whole numbers exactly, ratios with six decimals.
  std::string text() const;
};

/// Calls `visit` for every figure since time 0, block by block in the order of the hierarchy.
void visit_statistics(models::System& system, const std::function<void(const Stat&)>& visit);
std::vector<Stat> collect_statistics(models::System& system);

/// A map of paths to maps of names to [value, unit], after `time: [.., ps]`.
void write_statistics_yaml(models::System& system, std::ostream& out);
/// Columns path,name,value,unit.
void write_statistics_csv(models::System& system, std::ostream& out);

/// The links with the longest busy time on their data channel, busiest first; idle ones never.
struct LinkLoad {
  std::string path;
  uint64_t wire_bytes = 0;
  Ps busy = 0;
  Ps waited = 0;
  double utilisation = 0;
};
std::vector<LinkLoad> busiest_links(models::System& system, size_t n);

/// What the PEs waited for in kernels (messages, credits: summed over their queue pairs) and between them (launches).
struct PeWaits {
  std::string path;
  Ps message = 0, credit = 0, launch = 0;
};
struct WaitSummary {
  PeWaits total;               ///< over all PEs; `path` is empty
  std::vector<PeWaits> worst;  ///< by message + credit, longest first; those that waited for neither never
};
WaitSummary waits(models::System& system, size_t n);

}  // namespace ahbm::observe
