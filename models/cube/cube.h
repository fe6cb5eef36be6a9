// One HBM stack with compute: memory, PEs, SFR block and the crossbar between them.
#pragma once

#include <memory>
#include <systemc>

#include "models/cube/crossbar.h"
#include "models/cube/cube_sfr.h"
#include "models/memory/hbm.h"
#include "models/pe/pe.h"
#include "models/system/parts.h"

namespace ahbm::models {

class Cube : public sc_core::sc_module {
 public:
  /// \param plan referenced
  Cube(const sc_core::sc_module_name& name, const SystemServices& services, const FabricPlan& plan, SipId sip,
       CubeId cube);
  ~Cube() override;

  sc_core::sc_in<bool> rst_n;
  sc_core::sc_out<bool> irq_out;  ///< level, of all PEs

  Crossbar crossbar;
  CubeSfr sfr;
  /// The memory stack, unless the System was given another one (SystemParts::memory). \throws std::logic_error then
  Hbm& hbm();
  bool has_hbm() const { return m_hbm != nullptr; }
  Pe& pe(PeId id) { return *m_pes[id]; }
  uint32_t pes() const { return static_cast<uint32_t>(m_pes.size()); }

  /// For foreign modules; both may stay unbound. `spare_out` gets the accesses that fall into a hole of this cube.
  Crossbar::In& spare_in = crossbar.spare_in;
  OptionalOutSocket& spare_out = crossbar.spare_out;

 private:
  std::unique_ptr<Hbm> m_hbm;
  std::unique_ptr<MemoryPart> m_memory;  ///< in place of it
  IdVector<PeId, std::unique_ptr<Pe>> m_pes;
};

}  // namespace ahbm::models
