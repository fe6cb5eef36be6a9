// The IPCQ convention as data: what a slot holds and what a doorbell page offers. Hardware transports the header, the
// `tl` layer writes and checks it; firmware and RTL use the same layout.
#pragma once

#include <cstdint>
#include <type_traits>

#include "models/core/address_map.h"

namespace ahbm::ipcq {

/// First 32 bytes of every slot, little-endian.
struct SlotHeader {
  uint32_t group = 0;  ///< communicator
  uint32_t seq = 0;    ///< operation sequence number inside the group
  uint16_t step = 0;   ///< the algorithm's own step
  uint8_t dtype = 0;   ///< ahbm::DType
  uint8_t flags = 0;
  uint32_t bytes = 0;    ///< payload bytes behind the header
  uint32_t src_pe = 0;   ///< flat PE index of the sender
  uint32_t message = 0;  ///< number of this message among those of its move, from 0
  uint32_t reserved[2] = {0, 0};
};
static_assert(sizeof(SlotHeader) == 32 && std::is_trivially_copyable<SlotHeader>::value, "wire layout");

constexpr uint32_t kHeaderBytes = sizeof(SlotHeader);

// Offsets inside a queue pair's doorbell page.
constexpr Addr kNotify = 0x00;  ///< WO, 8 bytes: header + payload bytes of the message at the tail; commits it
constexpr Addr kCredit = 0x08;  ///< WO, 8 bytes: slots given back
constexpr Addr kPush = 0x10;    ///< WO fifo: a store appends its bytes to the slot at the tail

constexpr uint32_t payload_capacity(uint32_t slot_bytes) {
  return slot_bytes - kHeaderBytes;
}

}  // namespace ahbm::ipcq
