#include "models/memory/hbm.h"

#include "models/fault/fault_injector.h"
#include "models/memory/memory_access.h"
#include "models/tlm/classify.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

Hbm::Hbm(const sc_core::sc_module_name& name, const SystemServices& services, SipId sip, CubeId cube)
    : sc_core::sc_module(name),
      xbar_in("xbar_in"),
      m_base(hbm_address(sip, cube, 0)),
      m_functional(services.config->simulation.functional),
      m_fetched_ahead(services.config->outgrows_host_caches()),
      m_shape(services.config->map_shape()),
      m_timing(services.config->hbm),
      m_faults(services.faults != nullptr ? *services.faults : FaultInjector::none()),
      m_memory(services.config->hbm.bytes, SparseMemory::Use::Bulk) {
  xbar_in.register_b_transport(this, &Hbm::b_transport);
  xbar_in.register_transport_dbg(this, &Hbm::transport_dbg);
  xbar_in.register_get_direct_mem_ptr(this, &Hbm::get_direct_mem_ptr);
}

tlm::tlm_response_status Hbm::check(const tlm::tlm_generic_payload& trans) const {
  const auto status = check_payload(trans, m_functional);
  if (status != tlm::TLM_OK_RESPONSE) return status;
  const uint64_t offset = trans.get_address() - m_base;  // wraps to something huge below the window
  if (offset >= m_memory.size() || touched_bytes(trans) > m_memory.size() - offset) {
    return tlm::TLM_ADDRESS_ERROR_RESPONSE;
  }
  return trans.get_streaming_width() < trans.get_data_length() ? tlm::TLM_BURST_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE;
}

void Hbm::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_shape, *transit);
  trans.set_dmi_allowed(false);
  auto status = check(trans);
  if (m_faults.addresses_armed() &&
      m_faults.refuses(trans.get_address(), touched_bytes(trans), trans.is_write(), now_ps())) {
    status = tlm::TLM_GENERIC_ERROR_RESPONSE;
  }
  trans.set_response_status(status);
  if (status != tlm::TLM_OK_RESPONSE) return;

  if (RouteGrant* grant = transit->grant) {
    grant->target = &xbar_in.get_base_interface();
    grant->window_begin = m_base;
    grant->window_end = m_base + m_memory.size();
    if (m_fetched_ahead) {
      xbar_in.name_touched(grant->touched);
      grant->touched.add(&m_base, &m_memory + 1);
    }
  }
  const uint64_t offset = trans.get_address() - m_base;
  if (trans.is_write()) {
    m_timing.write(now_ps(), *transit, offset, trans.get_data_length());
  } else if (trans.is_read()) {
    m_timing.read(now_ps(), *transit, offset, trans.get_data_length());
  }
  // Without a data pointer (the simulation moves no payload bytes) only time passes. What carries data is kept even
  // then, so that argument blocks reach their kernels.
  if (trans.get_data_ptr() == nullptr) return;
  Loan* const loan = transit->loan;
  const bool lent = loan != nullptr && trans.is_read() && trans.get_byte_enable_ptr() == nullptr &&
                    m_memory.lend(offset, trans.get_data_length(), *loan);
  if (!lent) move_bytes(m_memory, trans, offset);
}

unsigned Hbm::transport_dbg(tlm::tlm_generic_payload& trans) {
  return move_debug_bytes(m_memory, trans, trans.get_address() - m_base);
}

bool Hbm::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
