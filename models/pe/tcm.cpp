#include "models/pe/tcm.h"

#include <algorithm>
#include <cstring>

namespace ahbm::models {

Loan Tcm::ask_loan(uint64_t offset) {
  Loan loan;
  loan.borrower = this;
  loan.to = offset;
  return loan;
}

void Tcm::take_loan(const Loan& loan) {
  m_loans.push_back(loan);
  m_loans_begin = std::min(m_loans_begin, loan.to);
  m_loans_end = std::max(m_loans_end, loan.to + loan.bytes);
}

const uint8_t* Tcm::end_one_of_loans(uint64_t offset, uint64_t bytes) {
  for (size_t i = 0; i < m_loans.size(); ++i) {
    const Loan loan = m_loans[i];
    if (loan.to != offset) continue;
    if (loan.bytes != bytes) break;
    loan.lender->end_loan(*this, offset);
    forget_loan(i);
    return loan.source;
  }
  settle(offset, bytes);
  return nullptr;
}

const uint8_t* Tcm::find_loan(uint64_t offset, uint64_t bytes) const {
  for (const Loan& loan : m_loans) {
    if (loan.to == offset && loan.bytes == bytes) return loan.source;
  }
  return nullptr;
}

void Tcm::settle_loan(uint64_t offset) {
  for (size_t i = 0; i < m_loans.size(); ++i) {
    const Loan loan = m_loans[i];
    if (loan.to != offset) continue;
    std::memcpy(m_memory.data() + offset, loan.source, loan.bytes);
    loan.lender->end_loan(*this, offset);
    forget_loan(i);
    return;
  }
}

void Tcm::settle_within(uint64_t begin, uint64_t end) {
  for (size_t i = m_loans.size(); i-- > 0;) {
    const Loan& loan = m_loans[i];
    if (loan.to < end && begin < loan.to + loan.bytes) settle_loan(loan.to);
  }
}

void Tcm::forget_loan(size_t i) {
  m_loans[i] = m_loans.back();
  m_loans.pop_back();
  if (!m_loans.empty()) return;
  m_loans_begin = ~uint64_t{0};
  m_loans_end = 0;
}

}  // namespace ahbm::models
