// How neighbour tables are written: register reads and writes at machine addresses. The runtime implements it with TLM
// through the host bridge, tests with a map.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/core/address_map.h"

namespace ahbm::ccl {

class BusAccess {
 public:
  virtual ~BusAccess() = default;
  /// \throws std::runtime_error naming the address and the response when the machine refuses
  virtual void write(Addr address, const void* data, size_t bytes) = 0;
  virtual void read(Addr address, void* data, size_t bytes) = 0;
  /// As `read`, without side effects and, where the machine can do it, without simulated time.
  virtual void peek(Addr address, void* data, size_t bytes) { read(address, data, bytes); }

  void write32(Addr address, uint32_t v) { write(address, &v, sizeof v); }
  void write64(Addr address, uint64_t v) { write(address, &v, sizeof v); }
  uint32_t read32(Addr address) {
    uint32_t v = 0;
    read(address, &v, sizeof v);
    return v;
  }
};

}  // namespace ahbm::ccl
