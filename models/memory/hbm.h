// The memory stack of a cube as a TLM target.
#pragma once

#include <systemc>
#include <tlm>

#include "models/memory/hbm_timing.h"
#include "models/memory/sparse_memory.h"
#include "models/pe/pe.h"

namespace ahbm::models {

/// Serves the HBM window of one cube; addresses are global. Any length, alignment and byte enables; a streaming width
/// below the length is a burst error. Never waits, never gives DMI away.
class Hbm : public sc_core::sc_module {
 public:
  Hbm(const sc_core::sc_module_name& name, const SystemServices& services, SipId sip, CubeId cube);

  InSocket<Hbm> xbar_in;

  SparseMemory& memory() { return m_memory; }
  const HbmStats& stats() const { return m_timing.stats(); }
  const HbmTiming& timing() const { return m_timing; }
  void observe(const observe::Tap* tap) { m_timing.observe(tap); }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  tlm::tlm_response_status check(const tlm::tlm_generic_payload& trans) const;

  const Addr m_base;
  const bool m_functional;
  const bool m_fetched_ahead;
  const MapShape m_shape;
  HbmTiming m_timing;
  FaultInjector& m_faults;
  SparseMemory m_memory;
};

}  // namespace ahbm::models
