// Timing of a PE's arithmetic: vector lanes and the MAC array. The numbers themselves are computed by ahbm::reduce and
// the tile operations; this decides when they are there.
#pragma once

#include <algorithm>

#include "models/core/calendar.h"
#include "models/core/config/system_config.h"

namespace ahbm::models {

/// What the executor asks of a compute model. Bind another one to change how long arithmetic takes.
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;
  /// When `elements` lane operations that may start at `ready` are done.
  virtual Ps vector(Ps now, Ps ready, uint64_t elements) = 0;
  /// When an m x n x k product whose operands are there at `ready` is done.
  virtual Ps macs(Ps now, Ps ready, uint64_t m, uint64_t n, uint64_t k) = 0;
};

class alignas(64) Compute : public ComputeModel {
 public:
  explicit Compute(const PeConfig& config) : m_config(config) {}

  Ps vector(Ps now, Ps ready, uint64_t elements) override {
    return use(m_vector, m_vector_busy, now, ready, ceil_div(elements, m_config.vector_lanes));
  }
  Ps macs(Ps now, Ps ready, uint64_t m, uint64_t n, uint64_t k) override {
    return use(m_macs, m_mac_busy, now, ready, ceil_div(m * n * k, m_config.macs_per_cycle));
  }
  Ps vector_busy() const { return m_vector_busy; }
  Ps mac_busy() const { return m_mac_busy; }

 private:
  Ps use(Calendar& unit, Ps& busy, Ps now, Ps ready, uint64_t cycles) {
    if (m_config.free_compute) return std::max(now, ready);
    const Ps duration = cycles_ps(cycles, m_config.hertz);
    busy += duration;
    return unit.reserve(now, std::max(now, ready), duration).end;
  }

  const PeConfig& m_config;
  Calendar m_vector;
  Ps m_vector_busy = 0;  // up to here a cache line
  Calendar m_macs;
  Ps m_mac_busy = 0;
};

}  // namespace ahbm::models
