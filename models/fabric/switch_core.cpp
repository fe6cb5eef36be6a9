#include "models/fabric/switch_core.h"

#include <fmt/core.h>

namespace ahbm::models {

SwitchCore::SwitchCore(const sc_core::sc_module_name& name, const FabricPlan& plan)
    : sc_core::sc_module(name), m_plan(plan) {
  const SipGraph& graph = plan.graph();
  for (uint32_t s = 0; s < graph.sips(); ++s) {
    std::unique_ptr<In> in;
    std::unique_ptr<Out> out;
    if (!graph.ports(SipId{s}).empty()) {
      in = std::make_unique<In>(fmt::format("sip{}_in", s).c_str());
      in->register_b_transport(this, &SwitchCore::b_transport);
      in->register_transport_dbg(this, &SwitchCore::transport_dbg);
      in->register_get_direct_mem_ptr(this, &SwitchCore::get_direct_mem_ptr);
    }
    if (graph.switch_downlinks()[s].bytes_per_second != 0) {
      out = std::make_unique<Out>(fmt::format("sip{}_out", s).c_str());
    }
    m_in.push_back(std::move(in));
    m_out.push_back(std::move(out));
  }
}

tlm::tlm_fw_transport_if<>* SwitchCore::next(Addr address) {
  const auto place = m_plan.place(address);
  return place && m_out[place->sip] ? m_out[place->sip]->get_interface(0) : nullptr;
}

void SwitchCore::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  tlm::tlm_fw_transport_if<>* to = next(trans.get_address());
  if (to == nullptr) return answer_hole(trans);
  walk(trans, *transit, nullptr, nullptr, *to);
}

unsigned SwitchCore::transport_dbg(tlm::tlm_generic_payload& trans) {
  tlm::tlm_fw_transport_if<>* to = next(trans.get_address());
  if (to == nullptr) {
    answer_hole(trans);
    return 0;
  }
  return to->transport_dbg(trans);
}

bool SwitchCore::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

}  // namespace ahbm::models
