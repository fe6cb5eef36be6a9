// First-fit allocator of one memory range, with coalescing. Plain: no SystemC; the memory itself is elsewhere.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "models/core/address_map.h"
#include "models/core/time.h"

namespace ahbm::runtime {

class HbmAllocator {
 public:
  static constexpr uint64_t kAlignment = 256;

  /// \param name  for messages, e.g. `sip0.cube3`
  HbmAllocator(std::string name, Addr base, uint64_t bytes);

  /// The address of `bytes` bytes, rounded up to the alignment (0 counts as 1).
  /// \throws std::runtime_error (out of memory) naming the memory, the size asked, free bytes and the largest free
  /// block
  Addr allocate(uint64_t bytes);
  /// \throws std::runtime_error when `address` is not the start of a live allocation (double free included)
  void free(Addr address);

  const std::string& name() const { return m_name; }
  uint64_t capacity() const { return m_bytes; }
  uint64_t used() const { return m_used; }
  size_t allocations() const { return m_live.size(); }
  uint64_t largest_free() const;

 private:
  std::string m_name;
  uint64_t m_bytes;
  uint64_t m_used = 0;
  std::map<Addr, uint64_t> m_free;  ///< start -> bytes; neighbours never touch
  std::map<Addr, uint64_t> m_live;
};

}  // namespace ahbm::runtime
