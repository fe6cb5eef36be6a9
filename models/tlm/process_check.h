// b_transport into a target that waits is legal from a thread process only. The kernel's own error (E519) names neither
// the initiator nor the target nor the address, so every target that waits asks here first.
#pragma once

#include <string>
#include <tlm>

#include "models/core/address_map.h"

namespace ahbm::models {

/// Reports an SC_ERROR of type `/ahbm/tlm/process` (which throws, unless the user changed the report actions) when the
/// caller is not a thread process. Call it before wait(), with the names as they appear in the hierarchy.
void require_thread(const std::string& initiator_name, const std::string& target_name, Addr address);

/// The same with the best name there is for the initiator of `trans`: the PE of its Origin, else the running process.
void require_thread(tlm::tlm_generic_payload& trans, const std::string& target_name);

}  // namespace ahbm::models
