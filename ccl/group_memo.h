// What modules lay over a group: rings, grids, trees. They are asked about one rank after the other, and laying takes
// as long as all their answers together.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
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
  explicit GroupMemo(Make make) : m_make(std::move(make)) {}

  /// \throws what making it throws
  std::shared_ptr<const T> of(const Group& group, uint32_t root = 0) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    for (const Entry& e : m_entries) {
      if (e.root == root && e.group == group) return e.value;
    }
    m_entries.push_front({group, root, std::make_shared<const T>(m_make(group, root))});
    if (m_entries.size() > kKept) m_entries.pop_back();
    return m_entries.front().value;
  }

 private:
  static constexpr size_t kKept = 4;  // a program's groups take turns; of a large one each value has megabytes
  struct Entry {
    Group group;
    uint32_t root;
    std::shared_ptr<const T> value;
  };
  const Make m_make;
  std::mutex m_mutex;
  std::deque<Entry> m_entries;
};

template <typename T, typename Make>
std::shared_ptr<GroupMemo<T>> group_memo(Make make) {
  return std::make_shared<GroupMemo<T>>(std::move(make));
}

}  // namespace ahbm::ccl
