// What a SIP needs of the router of a cube; `Router` is the shipped one.
#pragma once

#include <systemc>

#include "models/core/topology.h"
#include "models/tlm/sockets.h"

namespace ahbm::models {

/// All addresses are global; a router forwards b_transport and transport_dbg by address (FabricPlan::mesh_step says
/// where to) and refuses DMI.
class RouterPart : public sc_core::sc_module {
 public:
  ~RouterPart() override = default;
  virtual TargetSocket& cube_in() = 0;               ///< from the cube's crossbar
  virtual InitiatorSocket& cube_out() = 0;           ///< to it
  virtual TargetSocket& side_in(Side side) = 0;      ///< \pre there is a neighbour
  virtual InitiatorSocket& side_out(Side side) = 0;  ///< \pre there is a neighbour
  /// By index into MeshPlan::attachments(). \throws std::invalid_argument when it is not at this cube
  virtual TargetSocket& fabric_in(uint32_t attachment) = 0;
  virtual InitiatorSocket& fabric_out(uint32_t attachment) = 0;

 protected:
  explicit RouterPart(const sc_core::sc_module_name& name) : sc_core::sc_module(name) {}
};

}  // namespace ahbm::models
