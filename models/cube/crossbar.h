// The local crossbar of a cube: every PE, the HBM, the cube's SFRs, the mesh and one spare pair of sockets.
#pragma once

#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/fabric/fabric_plan.h"
#include "models/pe/pe.h"
#include "models/tlm/route.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

/// One resource per output port. The data of a read comes back through the output port of who asked.
class Crossbar : public sc_core::sc_module {
 public:
  using In = InSocket<Crossbar, int>;
  using Out = OutSocket;

  /// \param plan referenced
  Crossbar(const sc_core::sc_module_name& name, const SystemServices& services, const FabricPlan& plan, SipId sip,
           CubeId cube);

  In& pe_in(PeId pe) { return *m_pe_in[pe]; }
  Out& pe_out(PeId pe) { return *m_pe_out[pe]; }
  In mesh_in;
  Out mesh_out;
  Out hbm_out;
  Out sfr_out;
  In spare_in;                  ///< a foreign initiator; may stay unbound
  OptionalOutSocket spare_out;  ///< gets what falls into a hole of this cube; may stay unbound
  sc_core::sc_in<bool> rst_n;   ///< low: accesses to this cube answer TLM_GENERIC_ERROR_RESPONSE

  struct Port {
    enum Fixed : uint32_t { Mesh, Spare, Hbm, Sfr, FixedCount };
  };
  Hop& pe_hop(PeId pe) { return m_hops[Port::FixedCount + value(pe)]; }
  Hop& port_hop(Port::Fixed port) { return m_hops[port]; }

 private:
  void b_transport(int port, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  void forward(int port, tlm::tlm_generic_payload& trans, Transit& transit);
  unsigned transport_dbg(int port, tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(int port, tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  void on_reset();
  template <typename Socket>
  void attach(Socket& socket, uint32_t port);
  bool is_here(const FabricPlan::Place& place) const { return place.sip == m_sip && place.cube == value(m_cube); }
  /// The output port for an address of this cube and the socket behind it (null: none).
  struct Target {
    uint32_t port = Port::Spare;
    tlm::tlm_fw_transport_if<>* socket = nullptr;
  };
  Target local_target(const Decoded& d);

  const FabricPlan& m_plan;
  const SipId m_sip;
  const CubeId m_cube;
  uint64_t* const m_route_epoch;
  const bool m_grants;
  std::unique_ptr<RouteCache> m_spare_routes;  ///< of the foreign initiator on `spare_in`
  bool m_in_reset = false;
  std::vector<Hop> m_hops;  ///< by output port: the fixed ones, then the PEs
  IdVector<PeId, std::unique_ptr<In>> m_pe_in;
  IdVector<PeId, std::unique_ptr<Out>> m_pe_out;
};

}  // namespace ahbm::models
