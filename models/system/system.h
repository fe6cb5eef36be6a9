// The whole machine.
#pragma once

#include <memory>
#include <optional>
#include <systemc>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/progress.h"
#include "models/fabric/fabric_plan.h"
#include "models/fabric/link.h"
#include "models/fault/fault_injector.h"
#include "models/host/host_bridge.h"
#include "models/pe/pe.h"
#include "models/pe/wake_queue.h"
#include "models/sip/sip.h"
#include "models/system/parts.h"
#include "models/tl/kernel_registry.h"
#include "models/tlm/payload_pool.h"

namespace ahbm::models {

class SwitchCore;

/// Elaborates every SIP, cube and PE of `config` and joins them. `config` and `parts` are copied; `kernels` is
/// referenced, so kernels may be added until their first launch. `parts` puts the user's own blocks in the place of
/// shipped ones. \throws ConfigError when the time resolution is not 1 ps \throws
/// std::invalid_argument when a module of this name exists already or the name is not one (SystemC would rename
///         silently, and paths in configurations, logs and statistics would name another module)
class System : public sc_core::sc_module {
  // What the public members are built from.
  const SystemConfig m_config;
  tl::KernelRegistry& m_kernels;
  const SystemParts m_parts;
  Progress m_progress;
  uint64_t m_route_epoch = 0;
  PayloadPool m_payloads;
  FaultInjector m_faults;
  WakeQueue m_wakes;
  SystemServices m_services;
  const FabricPlan m_plan;

 public:
  System(const sc_core::sc_module_name& name, const SystemConfig& config, tl::KernelRegistry& kernels,
         SystemParts parts = {});
  ~System() override;

  const SystemConfig& config() const { return m_config; }
  const tl::KernelRegistry& kernels() const { return m_kernels; }
  tl::KernelRegistry& kernels() { return m_kernels; }
  const SipGraph& graph() const { return m_plan.graph(); }
  const FabricPlan& plan() const { return m_plan; }
  const SystemServices& services() const { return m_services; }
  Sip& sip(SipId id) { return *m_sips.at(id); }
  Pe& pe(const PeLocation& at) { return sip(at.sip).cube(at.cube).pe(at.pe); }
  /// Counts IPCQ, DMA, launch and compute activity: equal twice means that nothing began in between.
  uint64_t progress() const { return m_progress.count; }
  /// Latest end of all that has begun, credits on their way included: before it a stall cannot be told.
  Ps under_way_until() const { return m_progress.until; }
  /// From now on granted routes are walked again: call it after changing a link or putting a probe on a hop.
  void invalidate_routes() { ++m_route_epoch; }
  /// Arms a fault from now on, beside those of `SystemConfig::faults`; its `at` is an absolute simulated time. Answers
  /// its number. \throws std::invalid_argument for what this machine does not have
  size_t inject(const Fault& fault);
  /// What is armed and what has struck.
  const FaultInjector& faults() const { return m_faults; }
  /// Payloads of the machine's own transactions: `live()` is 0 whenever nothing is under way.
  const PayloadPool& payloads() const { return m_payloads; }
  /// Every directed link between SIPs (and the switch's core).
  const std::vector<std::unique_ptr<Link>>& sip_links() const { return m_links; }

  HostBridge host_bridge;
  /// Reset of each SIP, active low; initially high. Write to assert or release.
  sc_core::sc_vector<sc_core::sc_signal<bool, sc_core::SC_MANY_WRITERS>> sip_rst_n;

 private:
  void join_sips();
  std::vector<Link*> links_of(const Fault& fault);
  struct SipLink {
    SipId from{}, to{};
    std::optional<Side> side;  ///< of `from`; of `to` when that is the sender's peer
    Link* link = nullptr;
  };
  std::vector<SipLink> m_sip_links;

  IdVector<SipId, std::unique_ptr<Sip>> m_sips;
  std::unique_ptr<SwitchCore> m_switch;
  std::vector<std::unique_ptr<Link>> m_links;
};

}  // namespace ahbm::models
