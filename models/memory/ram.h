// A plain memory for the places of the SIP block: boot ROM (read-only) and firmware RAM.
#pragma once

#include <tlm_utils/simple_target_socket.h>
#include <systemc>
#include <tlm>

#include "models/core/address_map.h"
#include "models/core/time.h"
#include "models/memory/sparse_memory.h"

namespace ahbm::models {

/// At global addresses [base, base + bytes). Any length, alignment and byte enables; a streaming width below the length
/// is a burst error. One access costs `latency`, whatever its length and by whatever way: direct memory access carries
/// the same latency as a transaction, so that a core that uses it takes the same simulated time.
class Ram : public sc_core::sc_module {
 public:
  enum class Kind : uint8_t { ReadWrite, ReadOnly };
  Ram(const sc_core::sc_module_name& name, Addr base, uint64_t bytes, Ps latency = 0, Kind kind = Kind::ReadWrite);

  tlm_utils::simple_target_socket<Ram> in;

  /// Filled by a loader; debug writes work on a ROM too.
  SparseMemory& memory() { return m_memory; }
  /// Transactions served, direct accesses not among them.
  uint64_t accesses() const { return m_accesses; }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  bool inside(const tlm::tlm_generic_payload& trans) const;
  tlm::tlm_response_status check(const tlm::tlm_generic_payload& trans) const;

  const Addr m_base;
  const Ps m_latency;
  const Kind m_kind;
  SparseMemory m_memory;
  uint64_t m_accesses = 0;
};

}  // namespace ahbm::models
