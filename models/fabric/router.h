// The router of one cube in the mesh of its SIP.
#pragma once

#include <array>
#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/fabric/fabric_plan.h"
#include "models/fabric/router_part.h"
#include "models/tlm/sockets.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

/// Dimension-ordered (X first). Takes no time of its own: the links behind its outputs hold the resources, and a cube
/// link's latency includes the router. Sockets exist for the neighbours and attachments that there are.
class Router : public RouterPart {
 public:
  using In = InSocket<Router>;
  using Out = OutSocket;

  /// \param plan referenced
  Router(const sc_core::sc_module_name& name, const FabricPlan& plan, SipId sip, CubeId cube);

  In local_in;    ///< from the cube's crossbar
  Out local_out;  ///< to it
  In& cube_in() override { return local_in; }
  Out& cube_out() override { return local_out; }
  In& side_in(Side side) override { return *m_side_in[static_cast<size_t>(side)]; }     ///< \pre there is a neighbour
  Out& side_out(Side side) override { return *m_side_out[static_cast<size_t>(side)]; }  ///< \pre there is a neighbour
  In& fabric_in(uint32_t attachment) override;    ///< \pre the attachment is at this cube
  Out& fabric_out(uint32_t attachment) override;  ///< \pre the attachment is at this cube

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  tlm::tlm_fw_transport_if<>* next(Addr address, const Transit& t);
  std::unique_ptr<In> make_in(const std::string& socket_name);

  struct Attachment {
    uint32_t index = 0;
    std::unique_ptr<In> in;
    std::unique_ptr<Out> out;
  };
  const FabricPlan& m_plan;
  const SipId m_sip;
  const CubeId m_cube;
  std::array<std::unique_ptr<In>, 4> m_side_in;
  std::array<std::unique_ptr<Out>, 4> m_side_out;
  std::vector<Attachment> m_attachments;
};

}  // namespace ahbm::models
