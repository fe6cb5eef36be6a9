// The launch convention as data: descriptor, argument block, completion.
#pragma once

#include <cstdint>
#include <type_traits>

#include "models/core/address_map.h"

namespace ahbm::launch {

/// One 64-byte write to LAUNCH of a PE (streaming width 8).
struct Descriptor {
  uint32_t kernel_id = 0;
  uint32_t arg_bytes = 0;       ///< size of the argument block
  Addr arg_address = 0;         ///< in memory that the PE reads
  uint64_t tag = 0;             ///< < 65,536; names the mailbox slot
  Addr completion_address = 0;  ///< 8-byte slot that the completion is written to
  uint32_t group = 0;           ///< communicator of a collective, 0 for a plain kernel
  uint32_t seq = 0;             ///< operation sequence number in that group
  uint64_t reserved[3] = {0, 0, 0};
};
static_assert(sizeof(Descriptor) == 64 && std::is_trivially_copyable<Descriptor>::value, "wire layout");

enum class Status : uint16_t {
  Ok = 0,
  UnknownKernel = 1,
  KernelThrew = 2,
  BadAddress = 3,  ///< see the PE's FAULT_ADDR
  Protocol = 4,    ///< a message that did not match what the kernel expected
  Aborted = 5,
  BadArguments = 6,
};
const char* to_string(Status s);

/// The 8-byte write that ends a launch.
struct Completion {
  uint16_t status = 0;
  uint16_t kernel_id = 0;
  uint32_t flat_pe = 0;
};
static_assert(sizeof(Completion) == 8, "wire layout");

/// Header of an argument block; then `n_args` 64-bit words, then `n_links` LinkEntry.
struct ArgHeader {
  uint32_t n_args = 0;
  uint32_t n_links = 0;
  uint32_t group = 0;
  uint32_t seq = 0;
  uint32_t program_rank = 0;  ///< rank of this SIP in the launch's group
  uint32_t program_ranks = 1;
  uint32_t program_cube = 0;  ///< index of this cube among the launched cubes of its SIP
  uint32_t program_cubes = 1;
  uint32_t program_pe = 0;
  uint32_t program_pes = 1;
};
static_assert(sizeof(ArgHeader) == 40, "wire layout");

/// One direction name of the communicator's table and the queue pair behind it.
struct LinkEntry {
  uint16_t dir = 0;  ///< tl::Dir
  uint16_t qp = 0;
  uint32_t peer_flat_pe = 0;
  uint32_t slot_bytes = 0;
  uint32_t n_slots = 0;
};
static_assert(sizeof(LinkEntry) == 16, "wire layout");

}  // namespace ahbm::launch
