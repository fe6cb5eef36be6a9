// The bytes of a TLM transaction and a memory: the one place that honours byte enables.
#pragma once

#include <tlm>

#include "models/memory/sparse_memory.h"

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

}  // namespace ahbm::models
