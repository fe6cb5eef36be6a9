// A generic payload as an access to a register block, and the block's answer as a TLM response.
#pragma once

#include <tlm>

#include "models/core/registers/register_block.h"

namespace ahbm::models {

constexpr tlm::tlm_response_status to_tlm(RegStatus s) {
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

/// One bus access at `offset` in the block, taking effect at `when`. Byte enables without a length and accesses without
/// data are burst errors; TLM_IGNORE_COMMAND does nothing.
inline RegStatus access_registers(RegisterBlock& block, uint64_t offset, const tlm::tlm_generic_payload& trans,
                                  Ps when) {
  if (trans.get_command() == tlm::TLM_IGNORE_COMMAND) return RegStatus::Ok;
  if (trans.get_data_ptr() == nullptr) return RegStatus::BurstError;
  if (trans.get_byte_enable_ptr() != nullptr && trans.get_byte_enable_length() == 0) return RegStatus::BurstError;
  RegAccessRequest request;
  request.write = trans.is_write();
  request.offset = offset;
  request.data = trans.get_data_ptr();
  request.length = trans.get_data_length();
  request.byte_enables = trans.get_byte_enable_ptr();
  request.byte_enable_length = trans.get_byte_enable_length();
  request.streaming_width = trans.get_streaming_width();
  request.now = when;
  return block.access(request);
}

/// Debug transport at `offset` in the block: the bytes done, fewer past its end.
inline unsigned debug_registers(RegisterBlock& block, uint64_t offset, tlm::tlm_generic_payload& trans) {
  trans.set_response_status(tlm::TLM_OK_RESPONSE);
  if (trans.get_data_ptr() == nullptr) return 0;
  if (trans.is_write()) return block.debug_write(offset, trans.get_data_ptr(), trans.get_data_length());
  if (trans.is_read()) return block.debug_read(offset, trans.get_data_ptr(), trans.get_data_length());
  return 0;
}

}  // namespace ahbm::models
