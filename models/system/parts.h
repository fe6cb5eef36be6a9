// Own blocks in the place of shipped ones: what a System is told to build differently.
#pragma once

#include <functional>
#include <memory>

#include "models/core/config/system_config.h"
#include "models/fabric/fabric_plan.h"
#include "models/fabric/link.h"
#include "models/fabric/router_part.h"
#include "models/ipcq/ipcq.h"
#include "models/pe/compute.h"
#include "models/pe/sfr_block.h"
#include "models/tlm/sockets.h"

namespace ahbm::observe {
class ProbeSet;
}

namespace ahbm::models {

/// A memory stack. Answers b_transport and transport_dbg for the HBM window of its cube at global addresses, sets a
/// status, and reads and writes no data where the data pointer is null (a timing-only simulation). `delay` is when the
/// last byte of a write is here; what is added to it is the time that the access takes.
class MemoryPart {
 public:
  virtual ~MemoryPart() = default;
  virtual TargetSocket& bus() = 0;
};

/// Factories, called once per instance during elaboration, inside the module that the part belongs to: a part that is
/// an sc_module takes `name`, so that its path is that of the shipped one. An empty factory, or one that returns null,
/// means the shipped part.
struct SystemParts {
  std::function<std::unique_ptr<ComputeModel>(const PeLocation& pe, const PeConfig& config)> compute;
  std::function<std::unique_ptr<IpcqPart>(const char* name, const PeLocation& pe, const Ipcq::Parts& around)> ipcq;
  std::function<std::unique_ptr<SfrPart>(const char* name, const PeLocation& pe, const SystemConfig& config,
                                         SfrHost& host)>
      sfr;
  std::function<std::unique_ptr<MemoryPart>(const char* name, SipId sip, CubeId cube, const SystemConfig& config)>
      memory;
  std::function<std::unique_ptr<RouterPart>(const char* name, SipId sip, CubeId cube, const FabricPlan& plan)> router;
  /// Of every direction of every cable inside and between SIPs (not of the host's).
  LinkFactory link;
  bool any() const { return compute || ipcq || sfr || memory || router || link; }

  /// Recorders to splice between sockets (models/observe/probe.h); must outlive the System. Null: none.
  observe::ProbeSet* probes = nullptr;
};

}  // namespace ahbm::models
