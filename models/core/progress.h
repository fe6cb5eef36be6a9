// What the detection of stalls looks at.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/core/time.h"

namespace ahbm {

/// Everything keeps calendars and knows its end when it begins: a transfer that takes longer than the stall limit shows
/// in `until`, though nothing is counted meanwhile.
struct Progress {
  uint64_t count = 0;  ///< grows with IPCQ, DMA, launch and compute activity
  Ps until = 0;        ///< latest end of what has begun

  void note() { ++count; }
  void note_until(Ps end) { until = std::max(until, end); }
};

}  // namespace ahbm
