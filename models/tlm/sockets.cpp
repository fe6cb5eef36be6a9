#include "models/tlm/sockets.h"

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace ahbm::models {
namespace {

void report(const std::string& text) {
  SC_REPORT_ERROR("/ahbm/socket", text.c_str());
}

std::string generated(const sc_core::sc_object& socket, const char* what) {
  return fmt::format("{}_{}_0", socket.basename(), what);
}

struct CalledBackByNobody final : tlm::tlm_bw_transport_if<> {
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload&, tlm::tlm_phase&, sc_core::sc_time&) override {
    return tlm::TLM_ACCEPTED;
  }
  void invalidate_direct_mem_ptr(sc_dt::uint64, sc_dt::uint64) override {}
};

}  // namespace

void bind_sockets(InitiatorSocket& from, TargetSocket& to) {
  from.get_base_port()(to.get_base_interface());
  if (auto* ours = dynamic_cast<InSocketBase*>(&to); ours != nullptr && ours->m_back == nullptr) {
    const bool expects_nothing =
        dynamic_cast<OutSocket*>(&from) != nullptr || dynamic_cast<OptionalOutSocket*>(&from) != nullptr;
    if (expects_nothing) return ours->take_initiator();
  }
  to.get_base_port()(from.get_base_interface());
}

void bind_to_caller(TargetSocket& to) {
  static CalledBackByNobody nobody;
  if (auto* ours = dynamic_cast<InSocketBase*>(&to)) return ours->take_initiator();
  to.get_base_port()(nobody);
}

InSocketBase::InSocketBase(const char* name, Binding binding) : sc_core::sc_export<Forward>(name), m_binding(binding) {}

InSocketBase::~InSocketBase() = default;

void InSocketBase::take_initiator() {
  if (m_taken || m_back != nullptr)
    report(fmt::format("{}: a second initiator socket is bound to it; it takes one", name()));
  m_taken = true;
}

template <sc_core::sc_port_policy kPolicy>
void InSocketBase::make_way_back() {
  AHBM_SIBLINGS_OF(*this);
  m_back = std::make_shared<sc_core::sc_port<Backward, 1, kPolicy>>(generated(*this, "port").c_str());
}

sc_core::sc_port_b<tlm::tlm_bw_transport_if<>>& InSocketBase::get_base_port() {
  if (m_back != nullptr) return *m_back;
  if (m_taken) report(fmt::format("{}: a second initiator socket is bound to it; it takes one", name()));
  if (m_binding == Binding::Required) {
    make_way_back<sc_core::SC_ONE_OR_MORE_BOUND>();
  } else {
    make_way_back<sc_core::SC_ZERO_OR_MORE_BOUND>();
  }
  return *m_back;
}

const sc_core::sc_port_b<tlm::tlm_bw_transport_if<>>& InSocketBase::get_base_port() const {
  return const_cast<InSocketBase*>(this)->get_base_port();
}

/// What a port's policy does where there is one.
void InSocketBase::end_of_elaboration() {
  if (m_binding == Binding::Optional || m_taken || m_back != nullptr) return;
  report(fmt::format("{}: no initiator socket is bound to it", name()));
}

void InSocketBase::refuse(const char* call) const {
  const std::string text =
      fmt::format("{}: {} is not served here; b_transport, transport_dbg and get_direct_mem_ptr are", name(), call);
  report(text);
  throw std::logic_error(text);  // where reports of errors do not throw
}

template <sc_core::sc_port_policy kPolicy>
OutSocketOf<kPolicy>::OutSocketOf(const char* name) : Port(name), m_called_back(*this) {}

template <sc_core::sc_port_policy kPolicy>
OutSocketOf<kPolicy>::~OutSocketOf() = default;

template <sc_core::sc_port_policy kPolicy>
sc_core::sc_export<tlm::tlm_bw_transport_if<>>& OutSocketOf<kPolicy>::get_base_export() {
  if (!m_export) {
    AHBM_SIBLINGS_OF(*this);
    m_export = std::make_unique<sc_core::sc_export<Backward>>(generated(*this, "export").c_str());
    m_export->bind(m_called_back);
  }
  return *m_export;
}

template <sc_core::sc_port_policy kPolicy>
const sc_core::sc_export<tlm::tlm_bw_transport_if<>>& OutSocketOf<kPolicy>::get_base_export() const {
  return const_cast<OutSocketOf*>(this)->get_base_export();
}

template <sc_core::sc_port_policy kPolicy>
tlm::tlm_sync_enum OutSocketOf<kPolicy>::CalledBack::nb_transport_bw(tlm::tlm_generic_payload&, tlm::tlm_phase&,
                                                                     sc_core::sc_time&) {
  report(fmt::format("{}: nb_transport_bw is not served here: it calls b_transport only", m_socket.name()));
  return tlm::TLM_COMPLETED;
}

template class OutSocketOf<sc_core::SC_ONE_OR_MORE_BOUND>;
template class OutSocketOf<sc_core::SC_ZERO_OR_MORE_BOUND>;

}  // namespace ahbm::models
