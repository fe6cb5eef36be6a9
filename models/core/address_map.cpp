#include "models/core/address_map.h"

#include <fmt/core.h>

namespace ahbm {

namespace {

Decoded decode_sip_block(SipId sip, Addr at) {
  struct Entry {
    Region region;
    Addr base;
    Addr bytes;
  };
  static constexpr Entry kEntries[] = {
      {Region::BootRom, addr::kBootRom, addr::kBootRomBytes},
      {Region::Timer, addr::kTimer, addr::kTimerBytes},
      {Region::InterruptController, addr::kInterruptController, addr::kInterruptControllerBytes},
      {Region::Uart, addr::kUart, addr::kUartBytes},
      {Region::Mailbox, addr::kMailbox, addr::kMailboxBytes},
      {Region::FirmwareRam, addr::kFirmwareRam, addr::kFirmwareRamBytes},
  };
  Decoded d;
  d.sip = sip;
  d.cube = CubeId{addr::kSipBlock};
  for (const Entry& e : kEntries) {
    if (at >= e.base && at - e.base < e.bytes) {
      d.region = e.region;
      d.offset = at - e.base;
      d.room = e.bytes - d.offset;
      return d;
    }
  }
  return {};
}

Decoded decode_pe_window(Decoded d, Addr at, const MapShape& shape) {
  if (at < shape.tcm_bytes) {
    d.region = Region::Tcm;
    d.offset = at - addr::kPeTcm;
    d.room = shape.tcm_bytes - d.offset;
  } else if (at >= addr::kPeSfr && at - addr::kPeSfr < addr::kPeSfrBytes) {
    d.region = Region::PeSfr;
    d.offset = at - addr::kPeSfr;
    d.room = addr::kPeSfrBytes - d.offset;
  } else if (at >= addr::kPeQpRegs && at - addr::kPeQpRegs < addr::kMaxQps * addr::kQpRegBytes) {
    const Addr rel = at - addr::kPeQpRegs;
    d.region = Region::QpRegs;
    d.qp = QpId{static_cast<uint32_t>(rel / addr::kQpRegBytes)};
    d.offset = rel % addr::kQpRegBytes;
    d.room = addr::kQpRegBytes - d.offset;
  } else if (at >= addr::kPeDoorbells && at - addr::kPeDoorbells < addr::kMaxQps * addr::kDoorbellBytes) {
    const Addr rel = at - addr::kPeDoorbells;
    d.region = Region::Doorbell;
    d.qp = QpId{static_cast<uint32_t>(rel / addr::kDoorbellBytes)};
    d.offset = rel % addr::kDoorbellBytes;
    d.room = addr::kDoorbellBytes - d.offset;
  } else {
    return {};
  }
  return d;
}

}  // namespace

Decoded decode(Addr address, const MapShape& shape) {
  // The global bit is the topmost one that the map defines; anything above is not an address of this machine.
  if (address >> 55 != 1) return {};
  const auto sip = static_cast<uint32_t>(address >> addr::kSipShift) & (addr::kMaxSips - 1);
  if (sip >= shape.sips) return {};
  const auto cube = static_cast<uint32_t>(address >> addr::kCubeShift) & 0xFF;
  const Addr at = address & (addr::kCubeBytes - 1);
  if (cube == addr::kSipBlock) return decode_sip_block(SipId{sip}, at);
  if (cube >= shape.cubes) return {};

  Decoded d;
  d.sip = SipId{sip};
  d.cube = CubeId{cube};
  if (at < addr::kPeWindows) {
    if (at >= shape.hbm_bytes) return {};
    d.region = Region::Hbm;
    d.offset = at;
    d.room = shape.hbm_bytes - at;
    return d;
  }
  if (at >= addr::kCubeSfr) {
    if (at - addr::kCubeSfr >= addr::kCubeSfrBytes) return {};
    d.region = Region::CubeSfr;
    d.offset = at - addr::kCubeSfr;
    d.room = addr::kCubeSfrBytes - d.offset;
    return d;
  }
  const auto pe = static_cast<uint32_t>((at - addr::kPeWindows) / addr::kPeWindowBytes);
  if (pe >= shape.pes) return {};
  d.pe = PeId{pe};
  return decode_pe_window(d, (at - addr::kPeWindows) % addr::kPeWindowBytes, shape);
}

Decoded decode_boot_view(Addr address, SipId own_sip, const MapShape& shape) {
  if (address >> 32 == 0) return decode_sip_block(own_sip, address);
  return decode(address, shape);
}

bool fits(const Decoded& d, uint64_t length) {
  return d.region != Region::Hole && (length == 0 ? 1 : length) <= d.room;
}

const char* to_string(Region region) {
  switch (region) {
    case Region::Hole:
      return "hole";
    case Region::Hbm:
      return "hbm";
    case Region::Tcm:
      return "tcm";
    case Region::PeSfr:
      return "sfr";
    case Region::QpRegs:
      return "qp registers";
    case Region::Doorbell:
      return "doorbell";
    case Region::CubeSfr:
      return "cube sfr";
    case Region::BootRom:
      return "boot rom";
    case Region::Timer:
      return "timer";
    case Region::InterruptController:
      return "interrupt controller";
    case Region::Uart:
      return "uart";
    case Region::Mailbox:
      return "mailbox";
    case Region::FirmwareRam:
      return "firmware ram";
  }
  return "?";
}

std::string describe(const Decoded& d) {
  switch (d.region) {
    case Region::Hole:
      return "a hole of the address map";
    case Region::Hbm:
    case Region::CubeSfr:
      return fmt::format("sip{}.cube{} {} + {:#x}", value(d.sip), value(d.cube), to_string(d.region), d.offset);
    case Region::Tcm:
    case Region::PeSfr:
      return fmt::format("sip{}.cube{}.pe{} {} + {:#x}", value(d.sip), value(d.cube), value(d.pe), to_string(d.region),
                         d.offset);
    case Region::QpRegs:
    case Region::Doorbell:
      return fmt::format("sip{}.cube{}.pe{} {} {} {} + {:#x}", value(d.sip), value(d.cube), value(d.pe),
                         d.region == Region::Doorbell ? "doorbell" : "registers", "qp", value(d.qp), d.offset);
    default:
      return fmt::format("sip{} {} + {:#x}", value(d.sip), to_string(d.region), d.offset);
  }
}

}  // namespace ahbm
