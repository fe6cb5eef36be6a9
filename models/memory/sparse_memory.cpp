#include "models/memory/sparse_memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ahbm::models {

namespace {

/// memcpy that leaves the host's caches alone. Spares reading what is overwritten whole, too.
void copy_around_caches(uint8_t* to, const uint8_t* from, uint64_t n) {
#ifdef __SSE2__
  constexpr uint64_t kLine = 64;
  const uint64_t head = std::min<uint64_t>(n, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head, from += head, n -= head;
  for (; n >= kLine; n -= kLine, to += kLine, from += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* line = reinterpret_cast<__m128i*>(to);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(line + i, _mm_loadu_si128(source + i));
  }
  _mm_sfence();
#endif
  std::memcpy(to, from, n);
}

}  // namespace

SparseMemory::~SparseMemory() {
  clear();
}

void SparseMemory::clear() {
  settle_loans(0, m_bytes);
  if (m_base != nullptr) munmap(m_base, m_bytes);
  m_base = nullptr;
  m_handed_out = false;
}

uint8_t* SparseMemory::hand_out() {
  settle_loans(0, m_bytes);
  map();
  m_handed_out = m_base != nullptr;
  return m_base;
}

uint8_t* SparseMemory::map() {
  if (m_base != nullptr || m_bytes == 0) return m_base;
  void* p = mmap(nullptr, m_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    throw std::runtime_error(
        fmt::format("cannot map {} bytes of modelled memory: {} (address space limit? see ulimit -v)", m_bytes,
                    std::strerror(errno)));
  }
  // A machine has thousands of memories of which little is written: one huge page each would fill the host.
  madvise(p, m_bytes, MADV_NOHUGEPAGE);
  m_base = static_cast<uint8_t*>(p);
  return m_base;
}

void SparseMemory::write(uint64_t offset, const void* data_in, uint64_t n) {
  if (n == 0) return;
  settle_loans(offset, offset + n);
  uint8_t* base = map();
  if (n >= kLargeWrite) prefer_huge_pages(offset, n);
  if (m_use == Use::Bulk && n >= kStreamedWrite) {
    copy_around_caches(base + offset, static_cast<const uint8_t*>(data_in), n);
  } else {
    std::memcpy(base + offset, data_in, n);
  }
}

void SparseMemory::prefer_huge_pages(uint64_t offset, uint64_t n) {
  // Outwards to whole huge pages: bulk data will fill them, and the host walks far fewer page tables.
  constexpr uint64_t kHuge = 2 << 20;
  const auto at = reinterpret_cast<uintptr_t>(m_base) + offset;
  const uintptr_t begin = std::max(at / kHuge * kHuge, reinterpret_cast<uintptr_t>(m_base));
  const uintptr_t end = std::min((at + n + kHuge - 1) / kHuge * kHuge, reinterpret_cast<uintptr_t>(m_base) + m_bytes);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a hint: nothing depends on it
}

void SparseMemory::read(uint64_t offset, void* data_out, uint64_t n) const {
  if (n == 0) return;
  if (m_base == nullptr) {
    std::memset(data_out, 0, n);
  } else {
    std::memcpy(data_out, m_base + offset, n);
  }
}

bool SparseMemory::lend(uint64_t offset, uint64_t n, Loan& loan) {
  if (n < kLeastLoan || m_base == nullptr || m_handed_out || m_loans.size() >= kMostLoans) return false;
  m_loans.push_back({offset, offset + n, loan.borrower, loan.to});
  loan.lender = this;
  loan.source = m_base + offset;
  loan.bytes = n;
  return true;
}

void SparseMemory::end_loan(const Borrower& borrower, uint64_t to) {
  for (size_t i = m_loans.size(); i-- > 0;) {
    if (m_loans[i].borrower != &borrower || m_loans[i].to != to) continue;
    m_loans[i] = m_loans.back();
    m_loans.pop_back();
    return;
  }
}

void SparseMemory::settle_loans(uint64_t begin, uint64_t end) {
  for (size_t i = m_loans.size(); i-- > 0;) {
    const Lent lent = m_loans[i];
    if (lent.begin < end && begin < lent.end) lent.borrower->settle_loan(lent.to);  // which ends it
  }
}

}  // namespace ahbm::models
