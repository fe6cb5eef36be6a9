// The bytes of a TLM transaction and a memory: the one place that honours byte enables.
#pragma once

#include <algorithm>
#include <tlm>

#include "models/memory/sparse_memory.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

/// Moves the enabled bytes of a read or a write; other commands move nothing. The caller has checked the access.
/// \pre a data pointer, offset + length <= memory.size(), and a byte enable length when there are byte enables
inline void move_bytes(SparseMemory& memory, tlm::tlm_generic_payload& trans, uint64_t offset) {
  unsigned char* data = trans.get_data_ptr();
  const auto move = [&](uint64_t at, uint64_t n) {
    if (trans.is_write()) {
      memory.write(offset + at, data + at, n);
    } else if (trans.is_read()) {
      memory.read(offset + at, data + at, n);
    }
  };
  const unsigned char* enables = trans.get_byte_enable_ptr();
  if (enables == nullptr) {
    move(0, trans.get_data_length());
    return;
  }
  for (uint64_t i = 0; i < trans.get_data_length(); ++i) {
    if (enables[i % trans.get_byte_enable_length()] != TLM_BYTE_DISABLED) move(i, 1);
  }
}

/// transport_dbg of a memory: every byte, enabled or not, up to the memory's end. Answers their number; what begins
/// outside or has no data pointer is answered as a hole.
inline unsigned move_debug_bytes(SparseMemory& memory, tlm::tlm_generic_payload& trans, uint64_t offset) {
  if (offset >= memory.size() || trans.get_data_ptr() == nullptr) {
    answer_hole(trans);
    return 0;
  }
  const uint64_t n = std::min<uint64_t>(trans.get_data_length(), memory.size() - offset);
  if (trans.is_write()) {
    memory.write(offset, trans.get_data_ptr(), n);
  } else if (trans.is_read()) {
    memory.read(offset, trans.get_data_ptr(), n);
  }
  trans.set_response_status(tlm::TLM_OK_RESPONSE);
  return static_cast<unsigned>(n);
}

}  // namespace ahbm::models
