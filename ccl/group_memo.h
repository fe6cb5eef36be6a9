// What modules lay over a group: rings, grids, trees. They are asked about one rank after the other, and laying takes
// as long as all their answers together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "ccl/algorithm.h"

namespace ahbm::ccl {

/// Values of the groups (and roots) that were asked for last. The functions of a module share one.
template <typename T>
class GroupMemo {
 public:
  using Make = std::function<T(const Group&, uint32_t root)>;
  /// A program's groups take turns; what has megabytes for a large one keeps fewer than that.
  static constexpr size_t kKept = 4;
  explicit GroupMemo(Make make, size_t kept = kKept) : m_make(std::move(make)), m_kept(kept) {}

  /// \throws what making it throws
  std::shared_ptr<const T> of(const Group& group, uint32_t root = 0) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    const auto known = std::find_if(m_entries.begin(), m_entries.end(),
                                    [&](const Entry& e) { return e.root == root && e.group == group; });
    if (known != m_entries.end()) {
      m_entries.splice(m_entries.begin(), m_entries, known);
      return known->value;
    }
    m_entries.push_front({group, root, std::make_shared<const T>(m_make(group, root))});
    if (m_entries.size() > m_kept) m_entries.pop_back();
    return m_entries.front().value;
  }

 private:
  struct Entry {
    Group group;
    uint32_t root;
    std::shared_ptr<const T> value;
  };
  const Make m_make;
  const size_t m_kept;
  std::mutex m_mutex;
  std::list<Entry> m_entries;  ///< the one asked for last first
};

template <typename T, typename Make>
std::shared_ptr<GroupMemo<T>> group_memo(Make make, size_t kept = GroupMemo<T>::kKept) {
  return std::make_shared<GroupMemo<T>>(std::move(make), kept);
}

}  // namespace ahbm::ccl
