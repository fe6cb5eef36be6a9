// Storage of a large memory of which little is used: address space on first write, pages when they are touched.
#pragma once

#include <cstdint>
#include <vector>

#include "models/memory/loan.h"

namespace ahbm::models {

/// Not a module and not thread safe. Bytes that were never written read as zero and cost nothing.
class SparseMemory {
 public:
  /// What large writes are for: bulk data is written around the host's caches, which it would only wash out.
  enum class Use : uint8_t { Scratch, Bulk };
  explicit SparseMemory(uint64_t bytes, Use use = Use::Scratch) : m_bytes(bytes), m_use(use) {}
  /// What is on loan is copied first.
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  uint64_t size() const { return m_bytes; }
  /// Whether anything was ever written.
  bool touched() const { return m_base != nullptr; }

  /// \pre offset + n <= size()
  /// \throws std::runtime_error when the host gives no address space (names the size and the host's reason)
  void write(uint64_t offset, const void* data, uint64_t n);
  /// \pre offset + n <= size()
  void read(uint64_t offset, void* data, uint64_t n) const;
  /// The storage itself, mapped if it was not; nothing is lent from then on. \throws as `write`
  uint8_t* data() { return m_handed_out ? m_base : hand_out(); }
  /// Everything back to zero, pages given back.
  void clear();

  /// Lends what a read of [offset, offset + n) would copy. False: it is to be copied (too short for a loan to pay,
  /// never written, somebody holds a pointer to the storage, or too much is on loan). \pre offset + n <= size();
  /// loan.borrower has nothing else on loan for loan.to
  bool lend(uint64_t offset, uint64_t n, Loan& loan);
  /// The borrower is done with what it borrowed for `to`.
  void end_loan(const Borrower& borrower, uint64_t to);
  uint32_t loans() const { return static_cast<uint32_t>(m_loans.size()); }

 private:
  static constexpr uint64_t kLargeWrite = 256 << 10;
  static constexpr uint64_t kStreamedWrite = 12 << 10;
  static constexpr uint64_t kLeastLoan = 1 << 10;
  static constexpr uint32_t kMostLoans = 64;  ///< they are searched one by one
  struct Lent {
    uint64_t begin, end;
    Borrower* borrower;
    uint64_t to;
  };
  uint8_t* map();
  uint8_t* hand_out();
  void prefer_huge_pages(uint64_t offset, uint64_t n);
  void settle_loans(uint64_t begin, uint64_t end);

  const uint64_t m_bytes;
  const Use m_use;
  bool m_handed_out = false;  ///< somebody may write without telling
  uint8_t* m_base = nullptr;
  std::vector<Lent> m_loans;
};

}  // namespace ahbm::models
