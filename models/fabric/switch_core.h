// The core of the switch topology: non-blocking, no time of its own. Up- and downlinks hold the resources.
#pragma once

#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/fabric/fabric_plan.h"
#include "models/tlm/sockets.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

class SwitchCore : public sc_core::sc_module {
 public:
  using In = InSocket<SwitchCore>;
  using Out = OutSocket;

  /// \param plan referenced. Sockets exist for the links that do.
  SwitchCore(const sc_core::sc_module_name& name, const FabricPlan& plan);

  In& sip_in(SipId sip) { return *m_in[sip]; }     ///< \pre the SIP has an uplink
  Out& sip_out(SipId sip) { return *m_out[sip]; }  ///< \pre the SIP has a downlink

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  tlm::tlm_fw_transport_if<>* next(Addr address);

  const FabricPlan& m_plan;
  IdVector<SipId, std::unique_ptr<In>> m_in;
  IdVector<SipId, std::unique_ptr<Out>> m_out;
};

}  // namespace ahbm::models
