// The router that joins a SIP's cube mesh, its SIP block, its host link and its links to other SIPs. It lies outside
// the cube mesh: what only passes through a SIP never enters a cube.
#pragma once

#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/fabric/fabric_plan.h"
#include "models/tlm/sockets.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

/// Takes no time of its own. The resources are the links behind its outputs and, towards the SIP block and the spare
/// socket, one hop each of the cube link's bandwidth and 0 ns.
class FabricRouter : public sc_core::sc_module {
 public:
  using In = InSocket<FabricRouter, int>;
  using Out = OutSocket;

  /// \param plan referenced
  FabricRouter(const sc_core::sc_module_name& name, const SystemConfig& config, const FabricPlan& plan, SipId sip);

  In host_in;   ///< the host link has been passed
  In block_in;  ///< from the SIP block (its management core)
  Out block_out;
  In spare_in;                  ///< a foreign initiator
  OptionalOutSocket spare_out;  ///< a foreign target: see SipBlock's holes

  In& mesh_in(uint32_t attachment) { return *m_mesh_in[attachment]; }
  Out& mesh_out(uint32_t attachment) { return *m_mesh_out[attachment]; }
  uint32_t attachments() const { return static_cast<uint32_t>(m_mesh_in.size()); }
  /// By index in SipGraph::ports of this SIP.
  Out& link_out(uint32_t port) { return *m_link_out[port]; }
  /// By index in FabricPlan::arrivals of this SIP.
  In& link_in(uint32_t arrival) { return *m_link_in[arrival]; }

  Hop& block_hop() { return m_block_hop; }
  Hop& spare_hop() { return m_spare_hop; }

 private:
  enum class Source : uint8_t { Host, Block, Spare, Elsewhere };
  struct Input {
    Source source;
    FabricEntry entry;
  };
  void b_transport(int id, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(int id, tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(int id, tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  tlm::tlm_fw_transport_if<>* next(const FabricStep& step);
  bool for_spare(const FabricStep& step, Addr address) const;
  template <typename Socket>
  void attach(Socket& socket, Source source, const FabricEntry& entry);

  const FabricPlan& m_plan;
  const SipId m_sip;
  Hop m_block_hop, m_spare_hop;
  std::vector<Input> m_inputs;  ///< by the tag of the socket
  std::vector<std::unique_ptr<In>> m_mesh_in, m_link_in;
  std::vector<std::unique_ptr<Out>> m_mesh_out, m_link_out;
};

}  // namespace ahbm::models
