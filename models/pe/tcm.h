// The tightly coupled memory of a PE: storage and the port that DMA, crossbar and IPCQ traffic shares.
#pragma once

#include "models/core/config/system_config.h"
#include "models/memory/sparse_memory.h"
#include "models/tlm/transit.h"

namespace ahbm::models {

class Tcm {
 public:
  explicit Tcm(const PeConfig& config)
      : m_memory(config.tcm_bytes), m_port({config.tcm_bytes_per_second, config.tcm_latency}, kUnframed) {}

  uint8_t* data(uint64_t offset) { return m_memory.data() + offset; }
  SparseMemory& memory() { return m_memory; }
  Hop& port() { return m_port; }
  /// Asks the host for what every transfer looks at.
  void fetch() const {
    fetch_line(this);
    m_port.fetch();
  }

 private:
  SparseMemory m_memory;
  Hop m_port;
};

}  // namespace ahbm::models
