// The runtime's only door into the machine: one initiator and one target socket per SIP.
#pragma once

#include <functional>
#include <memory>
#include <systemc>
#include <tlm>

#include "models/core/config/system_config.h"
#include "models/core/launch.h"
#include "models/tlm/extensions.h"
#include "models/tlm/payload_pool.h"
#include "models/tlm/sockets.h"

namespace ahbm::models {

/// What arrived in the mailbox of a SIP and was forwarded over the host link.
struct CompletionEvent {
  SipId sip{};
  uint32_t tag = 0;
  launch::Completion completion;
  Ps arrived = 0;  ///< at the host
};

/// Holds the host link of every SIP, both directions. Nothing here waits by itself.
class HostBridge : public sc_core::sc_module {
 public:
  using Out = OutSocket;
  using In = InSocket<HostBridge, int>;

  /// `config` is not kept.
  HostBridge(const sc_core::sc_module_name& name, const SystemConfig& config);
  ~HostBridge() override;

  /// Lets transfers follow granted routes; `route_epoch` grows whenever they stop being valid.
  void grant_routes(const uint64_t* route_epoch);

  Out& sip_out(SipId sip);  ///< to the SIP's fabric router
  In& sip_in(SipId sip);    ///< completions from the SIP block
  /// A foreign initiator on the host's side: reaches the whole machine over the host link of the SIP it addresses. May
  /// stay unbound.
  InSocket<HostBridge> spare_in;

  /// When a transfer has left the host and when it is done at the other end. Absolute times.
  struct Timing {
    Ps sent = 0;  ///< the host link has taken the last byte
    Ps done = 0;  ///< write: the target has it; read: the data is here
    tlm::tlm_response_status status = tlm::TLM_INCOMPLETE_RESPONSE;
  };

  /// One transaction through the socket of the SIP that `address` names, issued at the current time; does not wait
  /// (a target that must, as a full launch queue, needs the caller to be a thread process). `streaming_width` 0 means
  /// `bytes`. With the simulation's `functional` off, data may be null. An address of no SIP answers
  /// TLM_ADDRESS_ERROR_RESPONSE at once; `bytes` 0 is done at once; at most 4 GiB - 1 are moved by one call.
  Timing write(Addr address, const void* data, uint64_t bytes, uint32_t streaming_width = 0);
  Timing read(Addr address, void* data, uint64_t bytes);
  /// Debug transport: no time, no side effects; also before the simulation has started. Returns the bytes done.
  uint64_t debug_write(Addr address, const void* data, uint64_t bytes);
  uint64_t debug_read(Addr address, void* data, uint64_t bytes);

  /// Called at the simulated time at which a completion is here, in the order of arrival (from a method process).
  std::function<void(const CompletionEvent&)> on_completion;

  size_t transfers_under_way() const;
  HopStats link_down(SipId sip) const;  ///< host to SIP
  HopStats link_up(SipId sip) const;
  Hop& hop_down(SipId sip);
  Hop& hop_up(SipId sip);

  struct Impl;
  Impl& impl() { return *m_impl; }

 private:
  void spare_b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned spare_transport_dbg(tlm::tlm_generic_payload& trans);
  bool spare_get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  void completion_b_transport(int sip, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  void deliver();

  std::unique_ptr<Impl> m_impl;
};

}  // namespace ahbm::models
