#include "models/tl/kernel_registry.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ahbm::tl {

uint32_t KernelRegistry::add(std::string name, KernelFn fn) {
  if (name.empty()) throw std::invalid_argument("a kernel needs a name");
  if (fn == nullptr) throw std::invalid_argument(fmt::format("kernel '{}' has no function", name));
  if (const Entry* known = find(name)) {
    if (known->fn != fn) {
      throw std::invalid_argument(fmt::format("kernel name '{}' already stands for another function", name));
    }
    return known->id;
  }
  // A completion carries the id in 16 bits.
  if (m_entries.size() >= 0xFFFF) {
    throw std::invalid_argument(fmt::format("kernel '{}': a registry holds at most 65535 kernels", name));
  }
  const auto id = static_cast<uint32_t>(m_entries.size() + 1);
  m_by_name.emplace(name, m_entries.size());
  m_entries.push_back({std::move(name), id, fn});
  return id;
}

const KernelRegistry::Entry* KernelRegistry::find(std::string_view name) const {
  const auto it = m_by_name.find(std::string(name));
  return it == m_by_name.end() ? nullptr : &m_entries[it->second];
}

const KernelRegistry::Entry* KernelRegistry::find(uint32_t id) const {
  return id == 0 || id > m_entries.size() ? nullptr : &m_entries[id - 1];
}

}  // namespace ahbm::tl
