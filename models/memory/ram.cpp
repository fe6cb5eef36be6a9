#include "models/memory/ram.h"

#include "models/memory/memory_access.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

Ram::Ram(const sc_core::sc_module_name& name, Addr base, uint64_t bytes, Ps latency, Kind kind)
    : sc_core::sc_module(name), in("in"), m_base(base), m_latency(latency), m_kind(kind), m_memory(bytes) {
  in.register_b_transport(this, &Ram::b_transport);
  in.register_transport_dbg(this, &Ram::transport_dbg);
  in.register_get_direct_mem_ptr(this, &Ram::get_direct_mem_ptr);
}

bool Ram::inside(const tlm::tlm_generic_payload& trans) const {
  const Addr address = trans.get_address();
  return address >= m_base && address - m_base < m_memory.size();
}

tlm::tlm_response_status Ram::check(const tlm::tlm_generic_payload& trans) const {
  const auto mistake = check_payload(trans, true);
  if (mistake != tlm::TLM_OK_RESPONSE) return mistake;
  if (!inside(trans) || touched_bytes(trans) > m_memory.size() - (trans.get_address() - m_base)) {
    return tlm::TLM_ADDRESS_ERROR_RESPONSE;
  }
  if (trans.get_streaming_width() < trans.get_data_length()) return tlm::TLM_BURST_ERROR_RESPONSE;
  return trans.is_write() && m_kind == Kind::ReadOnly ? tlm::TLM_COMMAND_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE;
}

void Ram::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit->grant != nullptr) transit->grant->refused = true;
  ++m_accesses;
  trans.set_response_status(check(trans));
  trans.set_dmi_allowed(trans.is_response_ok());
  if (!trans.is_response_ok()) return;
  move_bytes(m_memory, trans, trans.get_address() - m_base);
  // Data follows the last byte of the request.
  transit->tail += m_latency;
  transit->head = transit->tail;
  if (trans.is_read()) transit->wire_payload = trans.get_data_length();
}

unsigned Ram::transport_dbg(tlm::tlm_generic_payload& trans) {
  return move_debug_bytes(m_memory, trans, trans.get_address() - m_base);
}

bool Ram::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  if (!inside(trans)) return refuse_dmi(trans, dmi);
  dmi.init();
  dmi.set_dmi_ptr(m_memory.data());
  dmi.set_start_address(m_base);
  dmi.set_end_address(m_base + m_memory.size() - 1);
  dmi.set_read_latency(to_sc_time(m_latency));
  dmi.set_write_latency(to_sc_time(m_latency));
  if (m_kind == Kind::ReadOnly) {
    dmi.allow_read();
  } else {
    dmi.allow_read_write();
  }
  return !(trans.is_write() && m_kind == Kind::ReadOnly);
}

}  // namespace ahbm::models
