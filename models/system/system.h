// The whole machine.
#pragma once

#include <memory>
#include <systemc>

#include "models/core/config/system_config.h"
#include "models/host/host_bridge.h"
#include "models/tl/kernel_registry.h"

namespace ahbm::models {

class Sip;
class SwitchCore;

/// Elaborates every SIP, cube and PE of `config` and joins them. Both arguments are copied or must outlive the System
/// (`config` is copied; `kernels` is referenced, so kernels may be added until their first launch).
/// \throws ConfigError when the time resolution is not 1 ps
class System : public sc_core::sc_module {
 public:
  System(const sc_core::sc_module_name& name, const SystemConfig& config, const tl::KernelRegistry& kernels);
  ~System() override;

  const SystemConfig& config() const { return m_config; }
  const tl::KernelRegistry& kernels() const { return m_kernels; }
  Sip& sip(SipId id) { return *m_sips[id]; }
  /// Counts IPCQ, DMA, launch and compute activity: equal twice means nothing moved in between.
  uint64_t progress() const { return m_progress; }

  HostBridge host_bridge;

 private:
  const SystemConfig m_config;
  const tl::KernelRegistry& m_kernels;
  uint64_t m_progress = 0;
  IdVector<SipId, std::unique_ptr<Sip>> m_sips;
  std::unique_ptr<SwitchCore> m_switch;
};

}  // namespace ahbm::models
