// One stage of a transaction's way over the real sockets: what every module between an initiator and a target does.
#pragma once

#include <algorithm>
#include <tlm>

#include "models/tlm/extensions.h"

namespace ahbm::models {

/// Bytes of the address space that a transaction touches: a streaming width below the length repeats its first bytes.
inline uint64_t touched_bytes(const tlm::tlm_generic_payload& trans) {
  return std::min(trans.get_data_length(), trans.get_streaming_width());
}

/// Calls `next` with `delay` = arrival of the tail, and takes over its answer. A callee that keeps the Transit
/// extension has moved it already; for any other TLM-2.0 target the returned delay is when the access is done.
inline void call_next(tlm::tlm_fw_transport_if<>& next, tlm::tlm_generic_payload& trans, Transit& transit) {
  sc_core::sc_time delay = to_sc_time(transit.tail - now_ps());
  next.b_transport(trans, delay);
  const Ps done = now_ps() + delay.value();
  const bool has_data = trans.is_read() && trans.is_response_ok();
  if (done != transit.tail || (has_data && transit.wire_payload == 0)) {
    transit.head = transit.tail = done;
    if (has_data) transit.wire_payload = trans.get_data_length();
  }
}

/// Passes `out` (may be null), calls `next`, and brings the answer of a read back over `back` (may be null). An error
/// comes back as a header-only message. A route grant that is being collected gets both hops.
inline void walk(tlm::tlm_generic_payload& trans, Transit& transit, Hop* out, Hop* back,
                 tlm::tlm_fw_transport_if<>& next) {
  RouteGrant* const grant = transit.grant;
  if (out != nullptr) {
    pass_forward(*out, now_ps(), transit);
    if (grant != nullptr) grant->forward.push_back(out);
  }
  call_next(next, trans, transit);
  if (back != nullptr) {
    if (trans.is_read()) back->pass(now_ps(), transit);
    if (grant != nullptr) grant->backward.push_back(back);
  }
}

/// As `walk`, towards a module that may be foreign: it takes no part in route grants and must set a status.
inline void walk_foreign(tlm::tlm_generic_payload& trans, Transit& transit, Hop* out, Hop* back,
                         tlm::tlm_fw_transport_if<>& next) {
  if (transit.grant != nullptr) transit.grant->refused = true;
  trans.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  walk(trans, transit, out, back, next);
  if (trans.get_response_status() == tlm::TLM_INCOMPLETE_RESPONSE) {
    trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
  }
}

/// The status of an access that no module serves. Nothing else about the transaction changes.
inline void answer_hole(tlm::tlm_generic_payload& trans) {
  trans.set_dmi_allowed(false);
  trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
}

/// No direct memory across links. The range is the one address that was asked for: nothing is said about others.
inline bool refuse_dmi(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  dmi.init();
  dmi.allow_none();
  dmi.set_start_address(trans.get_address());
  dmi.set_end_address(trans.get_address());
  trans.set_dmi_allowed(false);
  return false;
}

/// The mistakes that a target refuses before it looks at the address: TLM_OK_RESPONSE when there is none.
/// \param moves_data false when the simulation moves no payload bytes, so that the data pointer may be null
inline tlm::tlm_response_status check_payload(const tlm::tlm_generic_payload& trans, bool moves_data) {
  if (trans.get_data_length() == 0 || trans.get_streaming_width() == 0) return tlm::TLM_BURST_ERROR_RESPONSE;
  if (trans.get_byte_enable_ptr() != nullptr && trans.get_byte_enable_length() == 0) {
    return tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE;
  }
  if (trans.get_data_ptr() == nullptr && moves_data) return tlm::TLM_GENERIC_ERROR_RESPONSE;
  return tlm::TLM_OK_RESPONSE;
}

}  // namespace ahbm::models
