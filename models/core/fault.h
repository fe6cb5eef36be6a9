// Faults that a user wants to see: what breaks, where and when. Plain data; models/fault/fault_injector.h makes them
// happen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/core/address_map.h"
#include "models/core/ids.h"
#include "models/core/time.h"

namespace ahbm {

enum class Side : uint8_t;

enum class FaultKind : uint8_t { DropMessage, CorruptMessage, FailLink, StopPe, AddressError };
const char* to_string(FaultKind kind);  ///< drop_message, corrupt_message, fail_link, stop_pe, address_error

enum class MessagePart : uint8_t { Header, Payload };
const char* to_string(MessagePart part);  ///< header, payload

enum class FaultAccess : uint8_t { Any, Read, Write };
const char* to_string(FaultAccess access);  ///< any, read, write

/// One fault. Which members count depends on the kind.
struct Fault {
  FaultKind kind = FaultKind::DropMessage;

  /// DropMessage, CorruptMessage: the sender. StopPe: the PE that stops.
  PeLocation pe{};
  std::optional<uint32_t> qp;              ///< only messages of this queue pair of the sender
  uint64_t message = 1;                    ///< which of those messages, counted from 1
  MessagePart part = MessagePart::Header;  ///< CorruptMessage

  /// FailLink: between two SIPs (SipId{kSwitchSip}: the core of a switch), or between two neighbouring cubes of `sip`.
  SipId from{}, to{};
  std::optional<Side> side;  ///< of `from`; all cables between the two when unset
  bool between_cubes = false;
  SipId sip{};
  CubeId from_cube{}, to_cube{};
  bool both_directions = true;

  /// AddressError: global addresses [address, address + bytes), in the HBM of a cube or the window of a PE.
  Addr address = 0;
  uint64_t bytes = 0;
  FaultAccess access = FaultAccess::Any;

  /// FailLink, StopPe, AddressError: from this simulated time on.
  Ps at = 0;
};

/// One line, e.g. `drop_message: message 3 of sip0.cube1.pe0 on QP 2`.
std::string describe(const Fault& fault);

}  // namespace ahbm
