// Installation of neighbour tables: which queue pairs and ring bytes of each PE serve a group's connections, and the
// register writes that set them up and take them down again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "ccl/algorithm.h"
#include "ccl/bus_access.h"
#include "ccl/topology_embedding.h"
#include "models/core/config/system_config.h"
#include "models/core/launch.h"

namespace ahbm::ccl {

/// One end of a connection as the hardware sees it.
struct QpEnd {
  PeLocation pe;
  QpId qp{};
  uint64_t ring_offset = 0;  ///< of its receive ring in its TCM
  uint32_t n_slots = 0;      ///< of that ring
  Egress egress = Egress::Any;
};

struct QpAssignment {
  QpEnd a, b;
  uint32_t slot_bytes = 0;  ///< of both rings, header included
};

/// Queue pairs and ring bytes of every PE of a machine, first fit, by group.
class QpAllocator {
 public:
  explicit QpAllocator(const SystemConfig& config);

  struct Grant {
    QpId qp{};
    uint64_t ring_offset = 0;
  };
  /// \throws std::runtime_error saying what is in use, and by which groups, when queue pairs or ring bytes run out;
  ///   nothing is taken then
  Grant allocate(const PeLocation& pe, uint64_t ring_bytes, uint32_t group);
  /// Gives back one queue pair and its ring; one that is not taken is fine.
  void free(const PeLocation& pe, QpId qp);
  /// Gives back everything of a group; a group without anything is fine.
  void free_group(uint32_t group);

  uint32_t queue_pairs_in_use(const PeLocation& pe) const;
  uint64_t ring_bytes_in_use(const PeLocation& pe) const;
  uint64_t queue_pairs_in_use() const;  ///< of the whole machine

 private:
  struct Use {
    uint64_t offset = 0, bytes = 0;
    uint32_t qp = 0, group = 0;
  };
  const std::vector<Use>& uses(const PeLocation& pe) const;
  [[noreturn]] void fail(const PeLocation& pe, uint64_t ring_bytes, const char* what) const;

  uint32_t m_queue_pairs;
  uint64_t m_ring_bytes;
  std::map<PeLocation, std::vector<Use>> m_pes;  ///< each in the order of the rings
};

/// Queue pairs and rings for all connections of a group, on PE 0 of each cube. The result is in their order.
/// \throws what QpAllocator::allocate throws; what was taken for them is then given back
std::vector<QpAssignment> assign_queue_pairs(QpAllocator& allocator, uint32_t group_id, const Group& group,
                                             const std::vector<Connection>& connections, const IpcqConfig& ipcq);

/// The link table of the launch on (rank, cube).
std::vector<launch::LinkEntry> link_table(const SystemConfig& config, const std::vector<Connection>& connections,
                                          const std::vector<QpAssignment>& assignments, uint32_t rank, uint32_t cube);

/// Writes the registers of all ends (with the reset epochs that the peers have now), then enables them, the receiving
/// end of each first. When a write fails, every
/// register written so far goes back to its reset value, and the error goes on to the caller.
/// \throws what BusAccess throws
void install(BusAccess& bus, const std::vector<QpAssignment>& assignments);

/// Disables the queue pairs and returns their registers to the reset values; goes on after a failed write and throws
/// the first error at the end.
void uninstall(BusAccess& bus, const std::vector<QpAssignment>& assignments);

}  // namespace ahbm::ccl
