// One package: a mesh of cubes, the fabric router and the SIP block.
#pragma once

#include <memory>
#include <systemc>
#include <vector>

#include "models/cube/cube.h"
#include "models/fabric/fabric_plan.h"
#include "models/fabric/fabric_router.h"
#include "models/fabric/link.h"
#include "models/fabric/router.h"
#include "models/sip/sip_block.h"

namespace ahbm::models {

class Sip : public sc_core::sc_module {
 public:
  /// \param plan referenced
  Sip(const sc_core::sc_module_name& name, const SystemServices& services, const FabricPlan& plan, SipId id);
  ~Sip() override;

  sc_core::sc_in<bool> rst_n;  ///< of every cube and of the SIP block; traffic that passes through goes on
  FabricRouter fabric_router;
  SipBlock sip_block;
  /// One level line per cube, for an interrupt controller.
  sc_core::sc_vector<sc_core::sc_signal<bool>> cube_irq;

  SipId id() const { return m_id; }
  Cube& cube(CubeId cube_id) { return *m_cubes[cube_id]; }
  RouterPart& router(CubeId cube_id) { return *m_routers[cube_id]; }
  uint32_t cubes() const { return static_cast<uint32_t>(m_cubes.size()); }
  /// The link that leaves a cube by one side; null when there is no neighbour.
  Link* cube_link(CubeId from, Side side) { return m_cube_links[from][static_cast<size_t>(side)].get(); }
  Link& port_out(uint32_t attachment) { return *m_port_out[attachment]; }  ///< from the mesh to the fabric router
  Link& port_in(uint32_t attachment) { return *m_port_in[attachment]; }    ///< into the mesh

  /// For foreign modules; both may stay unbound. `spare_out` gets the accesses that fall into a hole of the SIP block.
  decltype(FabricRouter::spare_in)& spare_in = fabric_router.spare_in;
  decltype(FabricRouter::spare_out)& spare_out = fabric_router.spare_out;

 private:
  void join_cubes(const SystemServices& services, const FabricPlan& plan);
  void join_ports(const SystemServices& services, const FabricPlan& plan);

  const SipId m_id;
  IdVector<CubeId, std::unique_ptr<Cube>> m_cubes;
  IdVector<CubeId, std::unique_ptr<RouterPart>> m_routers;
  IdVector<CubeId, std::array<std::unique_ptr<Link>, 4>> m_cube_links;
  std::vector<std::unique_ptr<Link>> m_port_out, m_port_in;
};

}  // namespace ahbm::models
