// What a socket is called where any implementation of it will do.
#pragma once

#include <systemc>
#include <tlm>

namespace ahbm::models {

/// Every target and initiator socket of TLM-2.0 with the default protocol and width converts to these.
using TargetSocket = tlm::tlm_base_target_socket<32>;
using InitiatorSocket = tlm::tlm_base_initiator_socket<32>;

}  // namespace ahbm::models
