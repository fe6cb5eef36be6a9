#include "models/observe/probe.h"

#include <fmt/format.h>

#include <stdexcept>

#include "models/tlm/walk.h"

namespace ahbm::observe {

const char* to_string(tlm::tlm_command command) {
  switch (command) {
    case tlm::TLM_READ_COMMAND:
      return "read";
    case tlm::TLM_WRITE_COMMAND:
      return "write";
    default:
      return "ignore";
  }
}

std::string to_string(tlm::tlm_response_status status) {
  switch (status) {
    case tlm::TLM_OK_RESPONSE:
      return "OK";
    case tlm::TLM_INCOMPLETE_RESPONSE:
      return "INCOMPLETE";
    case tlm::TLM_GENERIC_ERROR_RESPONSE:
      return "GENERIC_ERROR";
    case tlm::TLM_ADDRESS_ERROR_RESPONSE:
      return "ADDRESS_ERROR";
    case tlm::TLM_COMMAND_ERROR_RESPONSE:
      return "COMMAND_ERROR";
    case tlm::TLM_BURST_ERROR_RESPONSE:
      return "BURST_ERROR";
    case tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE:
      return "BYTE_ENABLE_ERROR";
  }
  return "?";
}

Probe::Probe(const sc_core::sc_module_name& name) : sc_core::sc_module(name), in("in"), out("out") {
  in.register_b_transport(this, &Probe::b_transport);
  in.register_transport_dbg(this, &Probe::transport_dbg);
  in.register_get_direct_mem_ptr(this, &Probe::get_direct_mem_ptr);
}

void Probe::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  using models::now_ps;
  // A granted route would go past this probe.
  if (auto* grant = trans.get_extension<models::RouteGrant>()) grant->refused = true;
  ++m_transactions;
  if (!on_transaction) {
    out->b_transport(trans, delay);
    trans.set_dmi_allowed(false);
    return;
  }
  Transaction t;
  t.time = now_ps() + delay.value();
  t.command = trans.get_command();
  t.address = trans.get_address();
  t.length = trans.get_data_length();
  if (const auto* origin = trans.get_extension<models::Origin>(); origin != nullptr && origin->flat_pe != 0xFFFFFFFF) {
    t.initiator = fmt::format("pe {}", origin->flat_pe);
  } else {
    const sc_core::sc_process_handle process = sc_core::sc_get_current_process_handle();
    t.initiator = process.valid() ? process.name() : "elaboration";
  }
  out->b_transport(trans, delay);
  trans.set_dmi_allowed(false);
  t.status = trans.get_response_status();
  const Ps done = now_ps() + delay.value();
  t.latency = done > t.time ? done - t.time : 0;
  on_transaction(t);
}

unsigned Probe::transport_dbg(tlm::tlm_generic_payload& trans) {
  return out->transport_dbg(trans);
}

bool Probe::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return models::refuse_dmi(trans, dmi);
}

CsvRecorder::CsvRecorder(const std::string& file, std::shared_ptr<OutputGate> gate)
    : m_file(file), m_out(file, std::move(gate)) {
  if (!m_out) throw std::runtime_error(fmt::format("the record file '{}' cannot be written", m_file));
  m_out << "time_ps,initiator,command,address,length,status,latency_ps\n";
}

void CsvRecorder::write(const Transaction& t) {
  m_out << fmt::format("{},{},{},{:#x},{},{},{}\n", t.time, t.initiator, to_string(t.command), t.address, t.length,
                       to_string(t.status), t.latency);
}

void CsvRecorder::finish() {
  if (!m_out.is_open()) return;
  m_out.close();
  if (!m_out) throw std::runtime_error(fmt::format("the record file '{}' could not be written completely", m_file));
}

void ProbeSet::add(std::string path, std::function<void(const Transaction&)> on_transaction) {
  if (sc_core::sc_get_status() >= sc_core::SC_END_OF_ELABORATION) {
    throw std::logic_error(fmt::format(
        "a probe at '{}' comes too late: sockets are bound during elaboration only; expected it to be asked "
        "for before the System is built",
        path));
  }
  m_requests.push_back({std::move(path), std::move(on_transaction), false});
}

std::vector<std::string> ProbeSet::unmatched() const {
  std::vector<std::string> out;
  for (const Request& r : m_requests) {
    if (!r.matched) out.push_back(r.path);
  }
  return out;
}

uint64_t ProbeSet::transactions() const {
  uint64_t n = 0;
  for (const auto& p : m_probes) n += p->transactions();
  return n;
}

void ProbeSet::join(models::InitiatorSocket& from, models::TargetSocket& to) {
  const std::string target = to.get_base_export().name();
  const std::string initiator = from.get_base_port().name();
  const std::string module = target.substr(0, target.rfind('.'));
  std::vector<std::function<void(const Transaction&)>> who;
  for (Request& r : m_requests) {
    if (r.path != initiator && r.path != target && r.path != module) continue;
    r.matched = true;
    who.push_back(r.on_transaction);
  }
  if (who.empty()) {
    models::bind_sockets(from, to);
    return;
  }
  m_probes.push_back(std::make_unique<Probe>(sc_core::sc_gen_unique_name("probe")));
  Probe& probe = *m_probes.back();
  probe.on_transaction = [who](const Transaction& t) {
    for (const auto& f : who) f(t);
  };
  models::bind_sockets(from, probe.in);
  probe.out.bind(to);
}

}  // namespace ahbm::observe
