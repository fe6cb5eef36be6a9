// The SIP block: completion mailbox and the places of the management core and its devices.
#pragma once

#include <systemc>
#include <tlm>

#include "models/memory/sparse_memory.h"
#include "models/pe/pe.h"

namespace ahbm::models {

/// The mailbox has one 8-byte slot per launch tag. A write of a whole slot (anything else is a burst error) takes the
/// SFR latency and is forwarded over the host link on the control channel; slots read back (1, 2, 4 or 8 bytes,
/// naturally aligned). The other places are sockets: unbound, they are holes.
class SipBlock : public sc_core::sc_module {
 public:
  using PlaceOut = OptionalOutSocket;

  SipBlock(const sc_core::sc_module_name& name, const SystemServices& services, SipId sip);

  InSocket<SipBlock> fabric_in;
  OutSocket fabric_out;  ///< what the management core sends elsewhere
  OutSocket host_out;    ///< completions
  /// The management core: below 2^32 it sees this block, above that the global map.
  InSocket<SipBlock> management_cpu_in;
  // Devices see global addresses, whoever asks.
  PlaceOut boot_rom_out, timer_out, interrupt_controller_out, uart_out, firmware_ram_out;
  sc_core::sc_in<bool> rst_n;  ///< low: the mailbox is emptied and refuses accesses

  uint64_t completions() const { return m_completions; }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  void cpu_b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned cpu_transport_dbg(tlm::tlm_generic_payload& trans);
  bool cpu_get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  void on_reset();

  bool is_here(Addr address) const;
  void mailbox_access(tlm::tlm_generic_payload& trans, Transit& transit, Addr offset);
  void forward(const tlm::tlm_generic_payload& trans, Ps when);
  tlm::tlm_fw_transport_if<>* place(Region region);

  const Addr m_base;
  const MapShape m_shape;
  const SystemServices m_services;
  SparseMemory m_mailbox;
  uint64_t m_completions = 0;
  bool m_in_reset = false;
};

}  // namespace ahbm::models
