#include "models/tlm/process_check.h"

#include <fmt/core.h>

#include "models/tlm/extensions.h"

namespace ahbm::models {

namespace {

/// Null when the caller may wait.
const char* forbidden_kind() {
  const sc_core::sc_process_handle self = sc_core::sc_get_current_process_handle();
  if (!self.valid()) {
    return sc_core::sc_start_of_simulation_invoked() ? "no process (outside of the simulation)"
                                                     : "no process (before sc_start)";
  }
  return self.proc_kind() == sc_core::SC_METHOD_PROC_ ? "a method process" : nullptr;
}

std::string running_process() {
  const sc_core::sc_process_handle self = sc_core::sc_get_current_process_handle();
  return self.valid() ? std::string(self.name()) : std::string("sc_main or elaboration");
}

}  // namespace

void require_thread(const std::string& initiator_name, const std::string& target_name, Addr address) {
  const char* kind = forbidden_kind();
  if (kind == nullptr) return;
  const std::string text = fmt::format(
      "b_transport from {} to {}, address {:#x}: the target waits, so it must be called from a thread process, not "
      "from {}",
      initiator_name, target_name, address, kind);
  SC_REPORT_ERROR("/ahbm/tlm/process", text.c_str());
}

void require_thread(tlm::tlm_generic_payload& trans, const std::string& target_name) {
  if (forbidden_kind() == nullptr) return;
  const auto origin = trans.get_extension<Origin>();
  const std::string initiator = origin != nullptr && origin->flat_pe != 0xFFFFFFFF
                                    ? fmt::format("PE {} ({})", origin->flat_pe, running_process())
                                    : running_process();
  require_thread(initiator, target_name, trans.get_address());
}

}  // namespace ahbm::models
