// Reads whose copy is put off. A reader that will soon combine what it reads with something else, and overwrite it,
// borrows the bytes: they stay in the memory that was read until somebody could see the difference.
#pragma once

#include <cstdint>

namespace ahbm::models {

class SparseMemory;

/// Who has borrowed bytes of a memory, and has a place for them.
class Borrower {
 public:
  virtual ~Borrower() = default;
  /// The memory is about to change (or to go): copies what it has lent for its place `to`, which ends the loan.
  virtual void settle_loan(uint64_t to) = 0;
};

/// Asked for by a read; the memory that grants it sets `lender` and `bytes` instead of copying anything. Whoever does
/// not know of it copies, as ever.
struct Loan {
  Borrower* borrower = nullptr;
  uint64_t to = 0;                  ///< the borrower's name for the place where the bytes belong; one loan per place
  SparseMemory* lender = nullptr;   ///< null: nothing was lent
  const uint8_t* source = nullptr;  ///< in the lender, valid until the loan ends
  uint64_t bytes = 0;
};

}  // namespace ahbm::models
