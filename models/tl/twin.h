// The in-memory twin of the machine: many PEs in one process, without SystemC and without time. The same kernels run on
// it as on the platform, with the same queue pairs: rings of bounded size, credits, message headers, order per queue.
//
// Each launched kernel has an OS thread of its own, but only one of them runs at a time, and who runs next does not
// depend on the host: a run is repeatable. When no kernel can go on the run ends with a table of who waits for what.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/core/address_map.h"
#include "models/core/launch.h"
#include "models/tl/framing.h"
#include "models/tl/tl.h"

namespace ahbm::tl {

struct TwinConfig {
  MapShape shape{1, 1, 1, addr::kHbmMaxBytes, addr::kTcmMaxBytes, addr::kMaxQps};
  uint64_t tile_bytes = 1 << 20;   ///< TCM for tiles and held slots of each PE
  uint32_t max_moves = kMaxMoves;  ///< in flight on a PE before a submit blocks
  /// Other values change the order in which runnable kernels and moves get their turn, within what the rules allow.
  uint32_t schedule = 0;
};

/// A queue pair between two PEs (flat indices) and the names under which their kernels know it.
struct TwinConnection {
  uint32_t pe_a = 0;
  Dir dir_a = Dir::None;
  uint32_t pe_b = 0;
  Dir dir_b = Dir::None;
  uint32_t n_slots = 4;        ///< of either ring
  uint32_t slot_bytes = 4096;  ///< header included
};

struct TwinLaunch {
  uint32_t flat_pe = 0;
  KernelFn kernel = nullptr;
  std::vector<uint64_t> args;
  launch::ArgHeader header;  ///< n_args and n_links are filled in
};

/// What crossed one direction of a PE.
struct TwinTraffic {
  uint64_t messages_sent = 0;
  uint64_t payload_bytes_sent = 0;
};

/// A run that cannot go on; what() has one line per kernel.
class DeadlockError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Twin {
 public:
  explicit Twin(const TwinConfig& config);
  ~Twin();
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  /// \throws std::invalid_argument for a PE outside of the machine, a name that is taken, a ring without room
  void connect(const TwinConnection& connection);

  /// Host access to the HBM of any cube. \throws FaultError outside of it
  void write(Addr address, const void* data, size_t bytes);
  void read(Addr address, void* data, size_t bytes) const;

  /// Runs the kernels to their end, all at once (at most one per PE).
  /// \throws DeadlockError; what a kernel threw, as ProtocolError, FaultError or std::runtime_error with the PE named;
  ///   std::logic_error when messages or credits are left over at the end. After an error all queues are empty again
  void run(const std::vector<TwinLaunch>& launches);

  TwinTraffic traffic(uint32_t flat_pe, Dir dir) const;  ///< since construction

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

}  // namespace ahbm::tl
