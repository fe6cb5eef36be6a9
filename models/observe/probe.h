// A passive recorder of TLM transactions that can be spliced between any two sockets.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/core/output_file.h"
#include "models/core/time.h"
#include "models/tlm/sockets.h"

namespace ahbm::observe {

/// One b_transport call, as it passed the probe.
struct Transaction {
  Ps time = 0;            ///< when its tail is at the probe
  std::string initiator;  ///< `pe N` (flat number) when it says who it is, else the name of the process that calls
  tlm::tlm_command command = tlm::TLM_IGNORE_COMMAND;
  uint64_t address = 0;
  uint32_t length = 0;
  tlm::tlm_response_status status = tlm::TLM_INCOMPLETE_RESPONSE;
  Ps latency = 0;  ///< until it is done (a posted write: at the target; a read: until the data is back here)
};
const char* to_string(tlm::tlm_command command);
/// As TLM-2.0 calls it, without the TLM_ and _RESPONSE around it.
std::string to_string(tlm::tlm_response_status status);

/// Bind the initiator to `in` and `out` to the target. Takes no time and changes nothing about what passes, but no
/// route is granted and no DMI given through it, so it sees every transaction. Debug transport passes unrecorded.
class Probe : public sc_core::sc_module {
 public:
  explicit Probe(const sc_core::sc_module_name& name);

  models::InSocket<Probe> in;
  models::OutSocket out;

  /// Called after each transaction.
  std::function<void(const Transaction&)> on_transaction;
  uint64_t transactions() const { return m_transactions; }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);

  uint64_t m_transactions = 0;
};

/// Writes transactions as CSV: time_ps,initiator,command,address,length,status,latency_ps
class CsvRecorder {
 public:
  /// \param gate  null: the file is emptied at once
  /// \throws std::runtime_error when the file cannot be opened (names it)
  explicit CsvRecorder(const std::string& file, std::shared_ptr<OutputGate> gate = {});
  void write(const Transaction& t);
  /// \throws std::runtime_error when the file could not be written completely
  void finish();

 private:
  std::string m_file;
  OutputFile m_out;
};

/// Probes that are asked for by path before a System is built (SystemParts::probes). A path names a socket, or a
/// module: then everything that arrives at its target sockets is recorded. Sockets are bound during elaboration and not
/// anew, so a probe cannot be put into a machine that stands.
class ProbeSet {
 public:
  /// Calls `on_transaction` for everything that passes at `path` in Systems that are built afterwards.
  /// \throws std::logic_error once elaboration has ended
  void add(std::string path, std::function<void(const Transaction&)> on_transaction);
  /// Paths that no socket of what was built since they were added has.
  std::vector<std::string> unmatched() const;
  uint64_t transactions() const;

  /// For whoever joins sockets: binds `from` to `to`, with a probe between them where one is asked for. The probe is a
  /// child of the module under construction.
  void join(models::InitiatorSocket& from, models::TargetSocket& to);

 private:
  struct Request {
    std::string path;
    std::function<void(const Transaction&)> on_transaction;
    bool matched = false;
  };
  std::vector<Request> m_requests;
  std::deque<std::unique_ptr<Probe>> m_probes;
};

/// Binds them, through `probes` when there are any.
inline void join(ProbeSet* probes, models::InitiatorSocket& from, models::TargetSocket& to) {
  if (probes == nullptr) {
    models::bind_sockets(from, to);
  } else {
    probes->join(from, to);
  }
}

}  // namespace ahbm::observe
