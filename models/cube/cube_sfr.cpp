#include "models/cube/cube_sfr.h"

#include <ahbm/registers/cube.h>
#include <fmt/core.h>

#include "models/tlm/classify.h"
#include "models/tlm/process_macro.h"
#include "models/tlm/register_access.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

CubeSfr::CubeSfr(const sc_core::sc_module_name& name, const SystemServices& services, SipId sip, CubeId cube)
    : sc_core::sc_module(name),
      xbar_in("xbar_in"),
      rst_n("rst_n"),
      irq_out("irq_out"),
      pe_rst_n("pe_rst_n", true),
      m_base(cube_base(sip, cube) + addr::kCubeSfr),
      m_shape(services.config->map_shape()),
      m_latency(services.config->pe.sfr_latency),
      m_hbm_channels(services.config->hbm.channels),
      m_route_epoch(services.route_epoch),
      m_registers(regs::cube::kLayout, this) {
  for (uint32_t p = 0; p < services.config->pes; ++p) pe_irq.emplace_back(fmt::format("pe_irq_{}", p).c_str());
  set_reset_values();
  xbar_in.register_b_transport(this, &CubeSfr::b_transport);
  xbar_in.register_transport_dbg(this, &CubeSfr::transport_dbg);
  xbar_in.register_get_direct_mem_ptr(this, &CubeSfr::get_direct_mem_ptr);
  AHBM_HAS_PROCESS(CubeSfr);
  SC_METHOD(drive_reset);
  sensitive << rst_n << m_reset_request << m_reset_step;
  SC_METHOD(collect_irq);
  for (auto& line : pe_irq) sensitive << line;
  sensitive << m_update;
}

void CubeSfr::set_reset_values() {
  m_registers.reset();
  m_registers.set(regs::cube::CONFIG_PES, m_shape.pes);
  m_registers.set(regs::cube::CONFIG_HBM_CHANNELS, m_hbm_channels);
}

void CubeSfr::drive_reset() {
  const bool in_reset = !rst_n.read();
  if (in_reset && !m_in_reset) {
    set_reset_values();
    m_update.notify(sc_core::SC_ZERO_TIME);
  }
  m_in_reset = in_reset;
  if (m_pulse) {
    // The hold time of a CTRL.RESET is over, unless rst_n changed meanwhile; the PEs are released with the later one.
    if (m_reset_step.triggered()) m_pulse = false;
  } else if (m_reset_request.triggered()) {
    m_pulse = true;
    ++*m_route_epoch;  // routes to PEs in reset must be refused there, whatever is granted
    m_reset_step.notify(to_sc_time(m_latency));
  }
  pe_rst_n.write(!in_reset && !m_pulse);
}

void CubeSfr::collect_irq() {
  bool line = false;
  for (uint32_t word = 0; word < regs::cube::IRQ_PENDING_COUNT; ++word) {
    uint64_t pending = 0;
    for (uint32_t bit = 0; bit < 64 && word * 64 + bit < pe_irq.size(); ++bit) {
      if (pe_irq[word * 64 + bit].read()) pending |= uint64_t{1} << bit;
    }
    m_registers.set(static_cast<RegIndex>(regs::cube::IRQ_PENDING + word), pending);
    line = line || (pending & m_registers.get(static_cast<RegIndex>(regs::cube::IRQ_ENABLE + word))) != 0;
  }
  irq_out.write(line);
}

void CubeSfr::on_write(const RegisterLayout& reg, uint64_t, uint64_t now, uint64_t) {
  const sc_core::sc_time when = to_sc_time(m_access_done - now_ps());
  if (reg.index == regs::cube::CTRL) {
    if ((now & regs::cube::CTRL_RESET.mask()) != 0) m_reset_request.notify(when);
  } else {
    m_update.notify(when);
  }
}

void CubeSfr::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_shape, *transit);
  if (m_in_reset) {
    trans.set_dmi_allowed(false);
    trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return;
  }
  if (const auto grant = trans.get_extension<RouteGrant>()) grant->refused = true;  // too rare to be worth one
  m_access_done = transit->tail + m_latency;
  trans.set_dmi_allowed(false);
  trans.set_response_status(to_tlm(access_registers(m_registers, trans.get_address() - m_base, trans, m_access_done)));
  if (!trans.is_response_ok()) return;
  transit->head = transit->tail = m_access_done;
  if (trans.is_read()) transit->wire_payload = trans.get_data_length();
}

unsigned CubeSfr::transport_dbg(tlm::tlm_generic_payload& trans) {
  return debug_registers(m_registers, trans.get_address() - m_base, trans);
}

bool CubeSfr::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
