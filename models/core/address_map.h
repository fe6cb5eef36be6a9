// The 64-bit address map, the same for firmware, RTL, kernels and the host: one plain decode function, and the
// functions that build addresses. Layout and limits: docs/address-map.md.
#pragma once

#include <cstdint>
#include <string>

#include "models/core/ids.h"

namespace ahbm {

using Addr = uint64_t;

namespace addr {

constexpr Addr kGlobalBit = Addr{1} << 55;
constexpr unsigned kSipShift = 42;
constexpr uint32_t kMaxSips = 8192;
constexpr unsigned kCubeShift = 34;
constexpr uint32_t kMaxCubes = 255;  ///< cube numbers 0..254
constexpr uint32_t kSipBlock = 255;  ///< the cube field of an address in the SIP block
constexpr Addr kCubeBytes = Addr{1} << kCubeShift;

// Inside a cube.
constexpr Addr kHbmMaxBytes = Addr{12} << 30;
constexpr Addr kPeWindows = 0x300000000;
constexpr Addr kPeWindowBytes = 16 << 20;
constexpr uint32_t kMaxPes = 255;
constexpr Addr kCubeSfr = 0x3FF000000;
constexpr Addr kCubeSfrBytes = 64 << 10;

// Inside a PE window.
constexpr Addr kPeTcm = 0x000000;
constexpr Addr kTcmMaxBytes = 8 << 20;
constexpr Addr kPeSfr = 0x800000;
constexpr Addr kPeSfrBytes = 64 << 10;  ///< the PE's own registers; QP registers follow
constexpr Addr kPeQpRegs = 0x810000;
constexpr Addr kQpRegBytes = 0x100;
constexpr Addr kPeDoorbells = 0xC00000;
constexpr Addr kDoorbellBytes = 0x1000;
constexpr uint32_t kMaxQps = 1024;

// Inside the SIP block.
constexpr Addr kBootRom = 0x00000000, kBootRomBytes = 64 << 10;
constexpr Addr kTimer = 0x02000000, kTimerBytes = 64 << 10;
constexpr Addr kInterruptController = 0x0C000000, kInterruptControllerBytes = 64 << 20;
constexpr Addr kUart = 0x10000000, kUartBytes = 4 << 10;
constexpr Addr kMailbox = 0x11000000, kMailboxBytes = 512 << 10;
constexpr Addr kFirmwareRam = 0x80000000, kFirmwareRamBytes = 16 << 20;
constexpr uint32_t kMailboxTags = 65536;  ///< one 8-byte slot per launch tag

}  // namespace addr

enum class Region : uint8_t {
  Hole,
  Hbm,
  Tcm,
  PeSfr,     ///< identification, control, launch, counters
  QpRegs,    ///< registers of one queue pair; `qp` says which, `offset` is inside its 256 bytes
  Doorbell,  ///< page of one queue pair; `offset` is inside its 4 KiB
  CubeSfr,
  BootRom,
  Timer,
  InterruptController,
  Uart,
  Mailbox,
  FirmwareRam,
};

/// What an address means. `offset` is inside the region, `room` is how many bytes are left in it from there.
struct Decoded {
  Region region = Region::Hole;
  SipId sip{};
  CubeId cube{};
  PeId pe{};
  QpId qp{};
  Addr offset = 0;
  Addr room = 0;
};

/// The sizes that decide where a machine has holes. Defaults are the widest that the map allows.
struct MapShape {
  uint32_t sips = addr::kMaxSips;
  uint32_t cubes = addr::kMaxCubes;
  uint32_t pes = addr::kMaxPes;
  Addr hbm_bytes = addr::kHbmMaxBytes;
  Addr tcm_bytes = addr::kTcmMaxBytes;
  uint32_t queue_pairs = addr::kMaxQps;  ///< pages and registers beyond still decode, see `decode`
};

/// Decodes a global address. QP registers and doorbell pages decode up to the map's limit of 1,024 whatever
/// `queue_pairs` says: the PE answers those beyond its own number with an address error and, for doorbells, records it.
/// Everything with bit 55 clear is a hole here; the boot view of the ManagementCpu is `decode_boot_view`.
Decoded decode(Addr address, const MapShape& shape);

/// The view of a SIP's own management core: below 2^32 its SIP block, else as `decode`.
Decoded decode_boot_view(Addr address, SipId own_sip, const MapShape& shape);

/// True when [address, address + length) lies in one region (length 0 counts as 1).
bool fits(const Decoded& d, uint64_t length);

constexpr Addr cube_base(SipId sip, CubeId cube) {
  return addr::kGlobalBit | (Addr{value(sip)} << addr::kSipShift) | (Addr{value(cube)} << addr::kCubeShift);
}
constexpr Addr sip_block_base(SipId sip) {
  return cube_base(sip, CubeId{addr::kSipBlock});
}
constexpr Addr hbm_address(SipId sip, CubeId cube, Addr offset) {
  return cube_base(sip, cube) + offset;
}
constexpr Addr pe_base(const PeLocation& pe) {
  return cube_base(pe.sip, pe.cube) + addr::kPeWindows + Addr{value(pe.pe)} * addr::kPeWindowBytes;
}
constexpr Addr tcm_address(const PeLocation& pe, Addr offset) {
  return pe_base(pe) + addr::kPeTcm + offset;
}
constexpr Addr pe_sfr_address(const PeLocation& pe, Addr offset) {
  return pe_base(pe) + addr::kPeSfr + offset;
}
constexpr Addr qp_reg_address(const PeLocation& pe, QpId qp, Addr offset) {
  return pe_base(pe) + addr::kPeQpRegs + Addr{value(qp)} * addr::kQpRegBytes + offset;
}
constexpr Addr doorbell_address(const PeLocation& pe, QpId qp, Addr offset) {
  return pe_base(pe) + addr::kPeDoorbells + Addr{value(qp)} * addr::kDoorbellBytes + offset;
}
constexpr Addr mailbox_address(SipId sip, uint32_t tag) {
  return sip_block_base(sip) + addr::kMailbox + Addr{tag} * 8;
}

const char* to_string(Region region);
std::string describe(const Decoded& d);  ///< e.g. `sip1.cube3.pe0 doorbell qp 5 + 0x8`

}  // namespace ahbm
