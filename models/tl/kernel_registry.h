// Kernels by name. A registry is an object that the platform builds and hands to its System; nothing registers itself.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "models/tl/tl.h"

namespace ahbm::tl {

class KernelRegistry {
 public:
  struct Entry {
    std::string name;
    uint32_t id = 0;
    KernelFn fn = nullptr;
  };

  /// Ids count from 1 in the order of registration. The same name with the same function again is fine.
  /// \throws std::invalid_argument when the name is empty or stands for another function already
  uint32_t add(std::string name, KernelFn fn);
  const Entry* find(std::string_view name) const;
  const Entry* find(uint32_t id) const;
  const std::deque<Entry>& entries() const { return m_entries; }

 private:
  std::deque<Entry> m_entries;  ///< a pointer to an entry stays good while others are added
  std::unordered_map<std::string, size_t> m_by_name;
};

/// fill, copy, add, scale, copy_blocks. Arguments: models/tl/builtin_kernels.h.
void register_builtin_kernels(KernelRegistry& registry);

}  // namespace ahbm::tl
