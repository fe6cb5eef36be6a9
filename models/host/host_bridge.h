// The runtime's only door into the machine: one initiator and one target socket per SIP.
#pragma once

#include <functional>
#include <systemc>
#include <tlm>

#include "models/core/config/system_config.h"
#include "models/core/launch.h"
#include "models/tlm/extensions.h"
#include "models/tlm/payload_pool.h"

namespace ahbm::models {

/// What arrived in the mailbox of a SIP and was forwarded over the host link.
struct CompletionEvent {
  SipId sip{};
  uint32_t tag = 0;
  launch::Completion completion;
  Ps arrived = 0;  ///< at the host
};

class HostBridge : public sc_core::sc_module {
 public:
  HostBridge(const sc_core::sc_module_name& name, const SystemConfig& config);
  ~HostBridge() override;

  /// When a transfer has left the host and when it is done at the other end. Absolute times.
  struct Timing {
    Ps sent = 0;  ///< the host link has taken the last byte
    Ps done = 0;  ///< write: the target has it; read: the data is here
    tlm::tlm_response_status status = tlm::TLM_INCOMPLETE_RESPONSE;
  };

  /// One transaction through SIP `address names`'s socket, issued at the current time; does not wait. `streaming_width`
  /// 0 means `bytes`. With the simulation's `functional` off, data may be null.
  Timing write(Addr address, const void* data, uint64_t bytes, uint32_t streaming_width = 0);
  Timing read(Addr address, void* data, uint64_t bytes);
  /// Debug transport: no time, no side effects. Returns the bytes done.
  uint64_t debug_write(Addr address, const void* data, uint64_t bytes);
  uint64_t debug_read(Addr address, void* data, uint64_t bytes);

  /// Called at the simulated time at which a completion is here (from a method process).
  std::function<void(const CompletionEvent&)> on_completion;

  struct Impl;
  Impl& impl() { return *m_impl; }

 private:
  std::unique_ptr<Impl> m_impl;
};

}  // namespace ahbm::models
