// The tightly coupled memory of a PE: storage and the port that DMA, crossbar and IPCQ traffic shares.
#pragma once

#include <vector>

#include "models/core/config/system_config.h"
#include "models/memory/loan.h"
#include "models/memory/sparse_memory.h"
#include "models/tlm/transit.h"

namespace ahbm::models {

/// What was loaded may still lie in the memory it came from (models/memory/loan.h): every way to the bytes asks for a
/// range, and what is on loan there is copied before anybody gets to see it.
class Tcm final : public Borrower {
 public:
  explicit Tcm(const PeConfig& config)
      : m_memory(config.tcm_bytes), m_port({config.tcm_bytes_per_second, config.tcm_latency}, kUnframed) {}
  ~Tcm() override { settle(0, m_memory.size()); }
  Tcm(const Tcm&) = delete;
  Tcm& operator=(const Tcm&) = delete;

  /// `bytes` at `offset`, to be read or written before anything else is borrowed for them.
  /// \pre offset + bytes <= size of the TCM
  uint8_t* data(uint64_t offset, uint64_t bytes) {
    settle(offset, bytes);
    return m_memory.data() + offset;
  }
  /// The storage, for an access to `bytes` at `offset` alone. \pre as `data`
  SparseMemory& memory(uint64_t offset, uint64_t bytes) {
    settle(offset, bytes);
    return m_memory;
  }
  Hop& port() { return m_port; }
  /// Asks the host for what every transfer looks at.
  void fetch() const {
    fetch_line(this);
    m_port.fetch();
  }

  /// A loan to ask for, of bytes that belong at `offset`, where nothing is on loan.
  Loan ask_loan(uint64_t offset);
  /// It was granted.
  void take_loan(const Loan& loan);
  /// The loan of the `bytes` at `offset` ends, as they will be overwritten whole: where they can be read until their
  /// lender is written. Null: they are here, as ever.
  const uint8_t* end_loan(uint64_t offset, uint64_t bytes) {
    return offset < m_loans_end ? end_one_of_loans(offset, bytes) : nullptr;
  }

  /// Where the `bytes` that belong at `offset` lie while they are on loan; null: they are here.
  const uint8_t* on_loan(uint64_t offset, uint64_t bytes) const {
    return offset < m_loans_end ? find_loan(offset, bytes) : nullptr;
  }

  void settle_loan(uint64_t offset) override;
  size_t loans() const { return m_loans.size(); }

 private:
  void settle(uint64_t offset, uint64_t bytes) {
    if (offset < m_loans_end && offset + bytes > m_loans_begin) settle_within(offset, offset + bytes);
  }
  void settle_within(uint64_t begin, uint64_t end);
  const uint8_t* end_one_of_loans(uint64_t offset, uint64_t bytes);
  const uint8_t* find_loan(uint64_t offset, uint64_t bytes) const;
  void forget_loan(size_t i);

  uint64_t m_loans_begin = ~uint64_t{0}, m_loans_end = 0;  ///< all of m_loans lie within
  SparseMemory m_memory;
  Hop m_port;
  std::vector<Loan> m_loans;
};

}  // namespace ahbm::models
