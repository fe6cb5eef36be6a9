// A generic payload as a register access, and a register block's answer as a TLM response.
#pragma once

#include <tlm>

#include "models/core/registers/register_block.h"

namespace ahbm::models {

constexpr tlm::tlm_response_status to_response(RegStatus s) {
  switch (s) {
    case RegStatus::Ok:
      return tlm::TLM_OK_RESPONSE;
    case RegStatus::AddressError:
      return tlm::TLM_ADDRESS_ERROR_RESPONSE;
    case RegStatus::BurstError:
      return tlm::TLM_BURST_ERROR_RESPONSE;
    case RegStatus::CommandError:
      return tlm::TLM_COMMAND_ERROR_RESPONSE;
  }
  return tlm::TLM_GENERIC_ERROR_RESPONSE;
}

/// One bus access at `offset` in the block, taking effect at `when`. Sets the response status and denies DMI.
inline void access_registers(RegisterBlock& block, tlm::tlm_generic_payload& trans, uint64_t offset, Ps when) {
  trans.set_dmi_allowed(false);
  if (trans.get_command() == tlm::TLM_IGNORE_COMMAND) {
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
    return;
  }
  if (trans.get_data_ptr() == nullptr) {
    trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return;
  }
  if (trans.get_byte_enable_ptr() != nullptr && trans.get_byte_enable_length() == 0) {
    trans.set_response_status(tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE);
    return;
  }
  RegAccessRequest request;
  request.write = trans.is_write();
  request.offset = offset;
  request.data = trans.get_data_ptr();
  request.length = trans.get_data_length();
  request.byte_enables = trans.get_byte_enable_ptr();
  request.byte_enable_length = trans.get_byte_enable_length();
  request.streaming_width = trans.get_streaming_width();
  request.now = when;
  trans.set_response_status(to_response(block.access(request)));
}

/// Debug transport: the bytes done (short past the end of the block).
inline unsigned debug_registers(RegisterBlock& block, tlm::tlm_generic_payload& trans, uint64_t offset) {
  trans.set_response_status(tlm::TLM_OK_RESPONSE);
  if (trans.get_data_ptr() == nullptr) return 0;
  if (trans.is_write()) return block.debug_write(offset, trans.get_data_ptr(), trans.get_data_length());
  if (trans.is_read()) return block.debug_read(offset, trans.get_data_ptr(), trans.get_data_length());
  return 0;
}

}  // namespace ahbm::models
