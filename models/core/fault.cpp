#include "models/core/fault.h"

#include <fmt/core.h>

#include "models/core/config/system_config.h"

namespace ahbm {

namespace {

std::string pe_name(const PeLocation& pe) {
  return fmt::format("sip{}.cube{}.pe{}", value(pe.sip), value(pe.cube), value(pe.pe));
}

std::string end_name(SipId sip) {
  return value(sip) == kSwitchSip ? std::string("switch") : fmt::format("sip{}", value(sip));
}

double in_ns(Ps t) {
  return static_cast<double>(t) / 1000.0;
}

}  // namespace

const char* to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::DropMessage:
      return "drop_message";
    case FaultKind::CorruptMessage:
      return "corrupt_message";
    case FaultKind::FailLink:
      return "fail_link";
    case FaultKind::StopPe:
      return "stop_pe";
    case FaultKind::AddressError:
      return "address_error";
  }
  return "?";
}

const char* to_string(MessagePart part) {
  return part == MessagePart::Header ? "header" : "payload";
}

const char* to_string(FaultAccess access) {
  switch (access) {
    case FaultAccess::Any:
      return "any";
    case FaultAccess::Read:
      return "read";
    case FaultAccess::Write:
      return "write";
  }
  return "?";
}

std::string describe(const Fault& f) {
  const std::string kind = to_string(f.kind);
  const std::string on_qp = f.qp ? fmt::format(" on QP {}", *f.qp) : std::string();
  switch (f.kind) {
    case FaultKind::DropMessage:
      return fmt::format("{}: message {} of {}{}", kind, f.message, pe_name(f.pe), on_qp);
    case FaultKind::CorruptMessage:
      return fmt::format("{}: {} of message {} of {}{}", kind, to_string(f.part), f.message, pe_name(f.pe), on_qp);
    case FaultKind::FailLink: {
      const std::string ends =
          f.between_cubes ? fmt::format("sip{}.cube{} {} cube{}", value(f.sip), value(f.from_cube),
                                        f.both_directions ? "<->" : "->", value(f.to_cube))
                          : fmt::format("{} {} {}{}", end_name(f.from), f.both_directions ? "<->" : "->",
                                        end_name(f.to), f.side ? fmt::format(" (side {})", to_string(*f.side)) : "");
      return fmt::format("{}: {} at {} ns", kind, ends, in_ns(f.at));
    }
    case FaultKind::StopPe:
      return fmt::format("{}: {} at {} ns", kind, pe_name(f.pe), in_ns(f.at));
    case FaultKind::AddressError:
      return fmt::format("{}: {} access to {:#x}..{:#x} from {} ns on", kind, to_string(f.access), f.address,
                         f.address + f.bytes - 1, in_ns(f.at));
  }
  return kind;
}

}  // namespace ahbm
