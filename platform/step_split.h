// Where the time of a step of a rank went: a partition of the step, exact to the picosecond.
#pragma once

#include <utility>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/observe/tap.h"

namespace ahbm::platform {

/// A piece of simulated time, [first, second).
using Span = std::pair<Ps, Ps>;

struct StepParts {
  Ps collective = 0;  ///< a collective of the rank is under way
  Ps compute = 0;     ///< none is, and a PE of its SIP runs a kernel
  Ps host = 0;        ///< neither: launches and completions on their way, the host at work
  Ps total() const { return collective + compute + host; }
};

/// Notes when the PEs of every SIP run kernels.
class StepSplit : public observe::Sink {
 public:
  explicit StepSplit(const SystemConfig& config);

  bool wants(const observe::Point& point) override { return point.place == observe::Place::Pe; }
  void on_event(const observe::Point& point, const observe::Event& event) override;

  /// \param collectives  of the SIP's rank, in any order
  StepParts of(SipId sip, const Span& step, std::vector<Span> collectives) const;
  /// Drops everything that was told so far.
  void forget();

 private:
  uint32_t m_pes_per_sip;
  std::vector<std::vector<Span>> m_kernels;  ///< by SIP
};

}  // namespace ahbm::platform
