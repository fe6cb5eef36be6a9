#include "runtime/hbm_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace ahbm::runtime {

HbmAllocator::HbmAllocator(std::string name, Addr base, uint64_t bytes) : m_name(std::move(name)), m_bytes(bytes) {
  if (bytes > 0) m_free.emplace(base, bytes);
}

Addr HbmAllocator::allocate(uint64_t bytes) {
  const uint64_t asked = std::max<uint64_t>(bytes, 1);
  // A size whose rounding would wrap is larger than any memory: the search below finds nothing for it.
  const uint64_t need = asked > m_bytes ? asked : ceil_div(asked, kAlignment) * kAlignment;
  const auto block =
      std::find_if(m_free.begin(), m_free.end(), [need](const auto& candidate) { return candidate.second >= need; });
  if (block == m_free.end()) {
    throw std::runtime_error(
        fmt::format("out of memory: {} bytes asked of {}, {} of {} bytes are free, the largest block has {}", bytes,
                    m_name, m_bytes - m_used, m_bytes, largest_free()));
  }
  const Addr address = block->first;
  const uint64_t rest = block->second - need;
  m_free.erase(block);
  if (rest > 0) m_free.emplace(address + need, rest);
  m_live.emplace(address, need);
  m_used += need;
  return address;
}

void HbmAllocator::free(Addr address) {
  const auto live = m_live.find(address);
  if (live == m_live.end()) {
    throw std::runtime_error(fmt::format(
        "free of {:#x} in {}: no allocation starts there (freed twice, or never allocated; {} allocations are live)",
        address, m_name, m_live.size()));
  }
  uint64_t bytes = live->second;
  m_used -= bytes;
  m_live.erase(live);

  auto next = m_free.lower_bound(address);
  if (next != m_free.end() && address + bytes == next->first) {
    bytes += next->second;
    next = m_free.erase(next);
  }
  if (next != m_free.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      previous->second += bytes;
      return;
    }
  }
  m_free.emplace(address, bytes);
}

uint64_t HbmAllocator::largest_free() const {
  uint64_t largest = 0;
  for (const auto& [start, bytes] : m_free) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace ahbm::runtime
