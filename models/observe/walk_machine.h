// Every place of a System that can be watched, with its hierarchical path.
#pragma once

#include <functional>

#include "models/observe/tap.h"
#include "models/system/system.h"

namespace ahbm::models {
class Executor;
class Ipcq;
}  // namespace ahbm::models

namespace ahbm::observe {

/// What a walk hands out. Paths are those of the sc_objects; what is a plain class inside a module has the module's
/// path and a member name (`...pe0.dma.out`).
struct MachineVisitor {
  /// A link direction (Place::Link: between SIPs, in the mesh, to the host) or a port of a block (Place::Port).
  std::function<void(const std::string& path, Place place, models::Hop& hop)> hop;
  std::function<void(const std::string& path, models::Hbm& hbm)> memory;
  std::function<void(const std::string& path, models::Pe& pe, uint32_t flat_pe)> pe;
  std::function<void(const std::string& path, models::SipBlock& block)> sip_block;
  std::function<void(const std::string& path, sc_core::sc_signal_in_if<bool>& line)> line;
};

/// Calls every member that is set, SIP by SIP, always in the same order.
void walk_machine(models::System& system, const MachineVisitor& visitor);

}  // namespace ahbm::observe
