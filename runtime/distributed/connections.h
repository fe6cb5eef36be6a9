// The queue pairs of one process group: the neighbour connections made at init, and those made on first use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/launch.h"
#include "runtime/device.h"

namespace ahbm::runtime::distributed {

/// Direction names and queue pairs of one algorithm on one set of cubes, per (rank, cube).
class LinkTable {
 public:
  explicit LinkTable(uint32_t cubes) : m_cubes(cubes) {}
  const std::vector<launch::LinkEntry>& of(uint32_t rank, uint32_t cube) const {
    static const std::vector<launch::LinkEntry> kNone;
    const auto it = m_entries.find(index(rank, cube));
    return it == m_entries.end() ? kNone : it->second;
  }
  void add(uint32_t rank, uint32_t cube, const launch::LinkEntry& entry) {
    m_entries[index(rank, cube)].push_back(entry);
  }
  /// CollectiveShape::message_bytes: 0 while all rings between SIPs have as many slots of one size.
  uint32_t message_bytes() const { return m_alike ? 0 : m_smallest; }
  void note_ring_between_sips(uint32_t slots, uint32_t payload) {
    const bool first = m_slots == 0;
    m_alike = first || (m_alike && slots == m_slots && payload == m_smallest);
    m_slots = slots;
    m_smallest = first ? payload : std::min(m_smallest, payload);
  }

 private:
  uint64_t index(uint32_t rank, uint32_t cube) const { return uint64_t{rank} * m_cubes + cube; }

  bool m_alike = true;
  uint32_t m_slots = 0, m_smallest = 0;  ///< of the ring noted last; payload of the smallest slot
  uint32_t m_cubes;
  std::unordered_map<uint64_t, std::vector<launch::LinkEntry>> m_entries;  ///< of those that have some
};

class Connections {
 public:
  Connections(Device& device, uint32_t group);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// The neighbour connections of PE 0 of every cube of every SIP. All or nothing: when a write fails, what was written
  /// returns to its reset values and the queue pairs are free again.
  void install_neighbours();

  /// Takes the queue pairs that an algorithm lacks for a call (of which root, peer and the zeros among its counts
  /// matter); takes no simulated time. Answers why there is no room, empty when there was.
  std::string reserve(const ccl::AlgorithmModule& module, const ccl::Group& group, const ccl::CollectiveShape& shape);

  /// The table of an algorithm for a call, as of `reserve`; missing connections are made now. `made` grows by their
  /// number. \throws std::runtime_error when queue pairs or ring bytes run out
  const LinkTable& table(const ccl::AlgorithmModule& module, const ccl::Group& group, const ccl::CollectiveShape& shape,
                         uint32_t& made);

  /// Connections that are installed.
  size_t size() const;

  /// Disables every queue pair of the group and gives it back.
  void release();

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

}  // namespace ahbm::runtime::distributed
