// A processing element: SFR block, Ipcq, TCM, DMA, compute and the executor of launched kernels.
#pragma once

#include <memory>
#include <string>
#include <systemc>
#include <tlm>

#include "models/core/config/system_config.h"
#include "models/core/progress.h"
#include "models/tl/kernel_registry.h"
#include "models/tlm/extensions.h"
#include "models/tlm/payload_pool.h"
#include "models/tlm/sockets.h"

namespace ahbm::observe {
class ProbeSet;
}

namespace ahbm::models {

struct SystemParts;
class FaultInjector;
class WakeQueue;

/// What every module of one System shares: configuration, kernels, payloads and what stall detection looks at.
struct SystemServices {
  const SystemConfig* config = nullptr;
  const tl::KernelRegistry* kernels = nullptr;
  PayloadPool* payloads = nullptr;
  Progress* progress = nullptr;
  uint64_t* route_epoch = nullptr;      ///< grows whenever granted routes stop being valid
  const SystemParts* parts = nullptr;   ///< in place of shipped ones (models/system/parts.h); null: none
  FaultInjector* faults = nullptr;      ///< null: none can happen
  WakeQueue* wakes = nullptr;           ///< of all PEs; null: each has its own
  observe::ProbeSet* probes = nullptr;  ///< recorders between sockets (models/observe/probe.h); null: none
};

class Dma;
class ComputeModel;
class Executor;
class IpcqPart;
class SfrPart;
class Tcm;

class Pe : public sc_core::sc_module {
 public:
  Pe(const sc_core::sc_module_name& name, const SystemServices& services, const PeLocation& location);
  ~Pe() override;

  InSocket<Pe> xbar_in;  ///< the PE window: addresses are global, as everywhere
  OutSocket xbar_out;    ///< DMA, doorbells and completions leave here
  sc_core::sc_in<bool> rst_n;
  sc_core::sc_out<bool> irq_out;  ///< level

  const PeLocation& location() const;

  /// What the running kernel waits for, for reports; empty when it does not wait.
  std::string waiting_for() const;
  const Executor& executor() const;
  /// Whether a kernel was ever launched here. Before that there is no executor, and `executor()` makes one.
  bool launched() const;
  Dma& dma();
  ComputeModel& compute();
  IpcqPart& ipcq();
  SfrPart& sfr();
  Tcm& tcm();
  /// What this PE does is told to `tap`; null: to nobody. The tap must outlive that.
  void observe(const observe::Tap* tap);

 private:
  void end_of_elaboration() override;
  void on_line();
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);

  struct Impl;
  struct Inbox;
  std::unique_ptr<Impl> m_impl;
};

}  // namespace ahbm::models
