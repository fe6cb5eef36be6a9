#include "models/cube/cube.h"

#include <fmt/core.h>

#include <stdexcept>

#include "models/observe/probe.h"

namespace ahbm::models {

Cube::Cube(const sc_core::sc_module_name& name, const SystemServices& services, const FabricPlan& plan, SipId sip,
           CubeId cube)
    : sc_core::sc_module(name),
      rst_n("rst_n"),
      irq_out("irq_out"),
      crossbar("crossbar", services, plan, sip, cube),
      sfr("sfr", services, sip, cube) {
  if (services.parts != nullptr && services.parts->memory) {
    m_memory = services.parts->memory("hbm", sip, cube, *services.config);
  }
  if (m_memory != nullptr) {
    observe::join(services.probes, crossbar.hbm_out, m_memory->bus());
  } else {
    m_hbm = std::make_unique<Hbm>("hbm", services, sip, cube);
    observe::join(services.probes, crossbar.hbm_out, m_hbm->xbar_in);
  }
  observe::join(services.probes, crossbar.sfr_out, sfr.xbar_in);
  crossbar.rst_n.bind(rst_n);
  sfr.rst_n.bind(rst_n);
  sfr.irq_out.bind(irq_out);
  for (uint32_t p = 0; p < services.config->pes; ++p) {
    const PeId id{p};
    m_pes.push_back(std::make_unique<Pe>(fmt::format("pe{}", p).c_str(), services, PeLocation{sip, cube, id}));
    Pe& pe = *m_pes[id];
    observe::join(services.probes, pe.xbar_out, crossbar.pe_in(id));
    observe::join(services.probes, crossbar.pe_out(id), pe.xbar_in);
    pe.rst_n.bind(sfr.pe_rst_n);
    pe.irq_out.bind(sfr.pe_irq[p]);
  }
}

Cube::~Cube() = default;

Hbm& Cube::hbm() {
  if (m_hbm == nullptr) {
    throw std::logic_error(fmt::format("{}: the memory is not the shipped Hbm but one of SystemParts::memory", name()));
  }
  return *m_hbm;
}

}  // namespace ahbm::models
