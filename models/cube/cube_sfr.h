// The SFR block of a cube: identification, reset of its PEs, and the collection of their interrupts.
#pragma once

#include <deque>
#include <systemc>
#include <tlm>

#include "models/core/registers/register_block.h"
#include "models/pe/pe.h"

namespace ahbm::models {

/// Registers: configs/registers/cube.yaml. An access takes the SFR latency; what a write does (reset, interrupt line)
/// happens when the access is done.
class CubeSfr : public sc_core::sc_module, private RegisterBehaviour {
 public:
  CubeSfr(const sc_core::sc_module_name& name, const SystemServices& services, SipId sip, CubeId cube);

  InSocket<CubeSfr> xbar_in;
  sc_core::sc_in<bool> rst_n;
  sc_core::sc_out<bool> irq_out;  ///< level: some enabled PE's line is high
  /// Driven by the PEs, each from whatever process accesses it: hence no check of the writer.
  std::deque<sc_core::sc_signal<bool, sc_core::SC_UNCHECKED_WRITERS>> pe_irq;
  sc_core::sc_signal<bool> pe_rst_n;  ///< low with rst_n and for one SFR latency (a delta at least) after CTRL.RESET

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  void on_write(const RegisterLayout& reg, uint64_t old, uint64_t now, uint64_t written_mask) override;
  void drive_reset();
  void collect_irq();
  void set_reset_values();

  const Addr m_base;
  const MapShape m_shape;
  const Ps m_latency;
  const uint32_t m_hbm_channels;
  uint64_t* const m_route_epoch;
  RegisterBlock m_registers;
  bool m_in_reset = false;
  bool m_pulse = false;  ///< CTRL.RESET is holding the PEs
  Ps m_access_done = 0;  ///< of the access that calls on_write
  sc_core::sc_event m_reset_request{"reset_request"}, m_reset_step{"reset_step"}, m_update{"update"};
};

}  // namespace ahbm::models
