// Strong identifiers. Every index into the machine has a type of its own, so that a cube number cannot be passed where
// a PE number is expected; containers indexed by one are `IdVector`s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ahbm {

enum class SipId : uint32_t {};
enum class CubeId : uint32_t {};  ///< inside its SIP, row-major: cube = y * w + x
enum class PeId : uint32_t {};    ///< inside its cube
enum class RankId : uint32_t {};  ///< global rank
enum class QpId : uint32_t {};    ///< queue pair inside its PE

template <typename Id>
constexpr uint32_t value(Id id) {
  return static_cast<uint32_t>(id);
}

/// Where a PE sits in the machine.
struct PeLocation {
  SipId sip{};
  CubeId cube{};
  PeId pe{};

  friend constexpr bool operator==(const PeLocation& a, const PeLocation& b) {
    return a.sip == b.sip && a.cube == b.cube && a.pe == b.pe;
  }
  friend constexpr bool operator!=(const PeLocation& a, const PeLocation& b) { return !(a == b); }
  friend constexpr bool operator<(const PeLocation& a, const PeLocation& b) {
    if (a.sip != b.sip) return value(a.sip) < value(b.sip);
    if (a.cube != b.cube) return value(a.cube) < value(b.cube);
    return value(a.pe) < value(b.pe);
  }
};

/// A vector that is indexed by one kind of id only.
template <typename Id, typename T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(size_t n, const T& init = T()) : m_items(n, init) {}
  T& operator[](Id id) { return m_items[value(id)]; }
  const T& operator[](Id id) const { return m_items[value(id)]; }
  T& at(Id id) { return m_items.at(value(id)); }
  const T& at(Id id) const { return m_items.at(value(id)); }
  size_t size() const { return m_items.size(); }
  bool empty() const { return m_items.empty(); }
  void push_back(T item) { m_items.push_back(std::move(item)); }
  void resize(size_t n) { m_items.resize(n); }
  auto begin() { return m_items.begin(); }
  auto end() { return m_items.end(); }
  auto begin() const { return m_items.begin(); }
  auto end() const { return m_items.end(); }

 private:
  std::vector<T> m_items;
};

}  // namespace ahbm
