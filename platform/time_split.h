// Where the time of a collective went, from what the machine tells: a partition of its time, exact to the picosecond.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/observe/tap.h"

namespace ahbm::models {
class System;
}

namespace ahbm::platform {

class TimeSplit : public observe::Sink {
 public:
  explicit TimeSplit(models::System& system);

  bool wants(const observe::Point& point) override;
  void on_event(const observe::Point& point, const observe::Event& event) override;

  struct Parts {
    Ps host = 0;                           ///< before the first kernel starts and after the last one ends
    Ps links = 0;                          ///< between those, while at least one link between SIPs carries data
    Ps between = 0;                        ///< and while none does
    Ps first_kernel = 0, last_kernel = 0;  ///< the instants
  };
  /// Of [begin, end).
  Parts of(Ps begin, Ps end) const;
  /// Drops everything that was told so far.
  void forget();

 private:
  std::set<std::string> m_links;  ///< paths of the links between SIPs
  std::vector<std::pair<Ps, Ps>> m_busy, m_kernels;
};

}  // namespace ahbm::platform
