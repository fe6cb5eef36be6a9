// Sparse storage and the channel timing of an HBM stack.
#include <sys/resource.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "models/memory/hbm_timing.h"
#include "models/memory/sparse_memory.h"
#include "models/pe/tcm.h"
#include "tests/support/sim_test.h"

namespace ahbm::models {
namespace {

TEST(SparseMemory, UntouchedReadsAsZeroAndCostsNothing) {
  SparseMemory memory(uint64_t{12} << 30);
  uint64_t word = 1;
  memory.read(memory.size() - 8, &word, 8);
  EXPECT_EQ(word, 0u);
  EXPECT_FALSE(memory.touched());
  word = 0x1122334455667788;
  memory.write(memory.size() - 8, &word, 8);
  EXPECT_TRUE(memory.touched());
  uint64_t back = 0;
  memory.read(memory.size() - 8, &back, 8);
  EXPECT_EQ(back, word);
  memory.read(0, &back, 8);
  EXPECT_EQ(back, 0u);
  memory.clear();
  EXPECT_FALSE(memory.touched());
  memory.read(memory.size() - 8, &back, 8);
  EXPECT_EQ(back, 0u);
}

TEST(SparseMemory, AThousandStacksFit) {
  std::vector<std::unique_ptr<SparseMemory>> stacks;
  for (int i = 0; i < 1024; ++i) {
    stacks.push_back(std::make_unique<SparseMemory>(uint64_t{12} << 30));
    const int value = i;
    stacks.back()->write(uint64_t{5} << 30, &value, sizeof value);
  }
  for (int i = 0; i < 1024; ++i) {
    int value = -1;
    stacks[static_cast<size_t>(i)]->read(uint64_t{5} << 30, &value, sizeof value);
    EXPECT_EQ(value, i);
  }
}

TEST(SparseMemory, SaysWhatItCouldNotMap) {
  SparseMemory memory(uint64_t{1} << 60);
  const char byte = 1;
  try {
    memory.write(0, &byte, 1);
    FAIL() << "2^60 bytes were mapped";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("1152921504606846976"), std::string::npos) << e.what();
  }
}

/// A memory on which one reader has borrowed, with a place for every loan.
class Reader : public Borrower {
 public:
  explicit Reader(SparseMemory& memory) : m_memory(memory) {}
  bool borrow(uint64_t offset, uint64_t n, uint64_t to) {
    Loan loan;
    loan.borrower = this;
    loan.to = to;
    if (!m_memory.lend(offset, n, loan)) return false;
    EXPECT_EQ(loan.lender, &m_memory);
    EXPECT_EQ(loan.bytes, n);
    m_loans[to] = loan;
    return true;
  }
  void settle_loan(uint64_t to) override {
    const Loan loan = m_loans.at(to);
    settled[to].assign(loan.source, loan.source + loan.bytes);
    m_loans.erase(to);
    m_memory.end_loan(*this, to);
  }
  std::map<uint64_t, std::vector<uint8_t>> settled;

 private:
  SparseMemory& m_memory;
  std::map<uint64_t, Loan> m_loans;
};

TEST(SparseMemory, WhatIsOnLoanIsCopiedBeforeItChanges) {
  SparseMemory memory(1 << 20);
  std::vector<uint8_t> bytes(64 << 10, 1);
  memory.write(0, bytes.data(), bytes.size());
  Reader reader(memory);
  ASSERT_TRUE(reader.borrow(4096, 4096, 1));
  ASSERT_TRUE(reader.borrow(8192, 2048, 2));
  ASSERT_TRUE(reader.borrow(6000, 4096, 3));  // overlaps both
  const uint8_t two = 2;
  memory.write(4095, &two, 1);
  memory.write(10240, &two, 1);
  EXPECT_EQ(reader.settled.size(), 0u) << "before and behind all of them";
  memory.write(8192, &two, 1);
  EXPECT_EQ(memory.loans(), 1u);
  EXPECT_EQ(reader.settled[2], std::vector<uint8_t>(2048, 1));
  EXPECT_EQ(reader.settled[3], std::vector<uint8_t>(4096, 1));
  ASSERT_TRUE(reader.borrow(8192, 2048, 4));
  memory.end_loan(reader, 4);
  memory.write(8193, &two, 1);
  EXPECT_EQ(reader.settled.count(4), 0u);
  memory.clear();
  EXPECT_EQ(reader.settled[1], std::vector<uint8_t>(4096, 1));
  EXPECT_EQ(memory.loans(), 0u);
}

TEST(SparseMemory, LendsOnlyWhatItSeesChange) {
  SparseMemory memory(1 << 20);
  Reader here(memory);
  EXPECT_FALSE(here.borrow(0, 4096, 1)) << "nothing was ever written";
  const std::vector<uint8_t> bytes(64 << 10, 1);
  memory.write(0, bytes.data(), bytes.size());
  EXPECT_FALSE(here.borrow(0, 64, 1)) << "too short";
  uint64_t n = 0;
  while (n < 1000 && here.borrow(0, 4096, n)) ++n;
  EXPECT_EQ(n, memory.loans());
  EXPECT_EQ(n, 64u);
  EXPECT_NE(memory.data(), nullptr);
  EXPECT_EQ(memory.loans(), 0u) << "who has a pointer may write";
  EXPECT_EQ(here.settled.size(), 64u);
  EXPECT_FALSE(here.borrow(0, 4096, 1));
}

void with_loan(Tcm& tcm, SparseMemory& memory, uint64_t from, uint64_t to, uint64_t n) {
  Loan loan = tcm.ask_loan(to);
  EXPECT_TRUE(memory.lend(from, n, loan));
  tcm.take_loan(loan);
}

TEST(Tcm, EveryWayToTheBytesFindsWhatWasBorrowed) {
  SparseMemory memory(1 << 20);
  std::vector<uint8_t> bytes(32 << 10);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  memory.write(0, bytes.data(), bytes.size());
  const auto part = [&](uint64_t from, uint64_t n) { return std::vector<uint8_t>(&bytes[from], &bytes[from] + n); };
  Tcm tcm{PeConfig()};
  const auto at = [&](uint64_t to, uint64_t n) {
    const uint8_t* p = tcm.data(to, n);
    return std::vector<uint8_t>(p, p + n);
  };
  with_loan(tcm, memory, 100, 4096, 2048);
  with_loan(tcm, memory, 5000, 8192, 2048);
  EXPECT_EQ(tcm.loans(), 2u);
  tcm.data(0, 4096);
  tcm.data(4096 + 2048, 2048);
  tcm.data(8192 + 2048, 4096);
  EXPECT_EQ(tcm.loans(), 2u) << "nothing of these is on loan";
  EXPECT_EQ(at(4096 + 2047, 1), part(100 + 2047, 1));
  EXPECT_EQ(tcm.loans(), 1u);
  EXPECT_EQ(memory.loans(), 1u);
  EXPECT_EQ(at(4096, 2048), part(100, 2048));
  std::vector<uint8_t> back(2048);
  tcm.memory(8192, 2048).read(8192, back.data(), back.size());
  EXPECT_EQ(back, part(5000, 2048));
  // What is overwritten whole is never copied; a part of a loan is none.
  with_loan(tcm, memory, 300, 4096, 2048);
  EXPECT_EQ(tcm.end_loan(4096, 1024), nullptr);
  EXPECT_EQ(at(4096, 2048), part(300, 2048));
  with_loan(tcm, memory, 400, 4096, 2048);
  const uint8_t* borrowed = tcm.end_loan(4096, 2048);
  ASSERT_NE(borrowed, nullptr);
  EXPECT_EQ(std::vector<uint8_t>(borrowed, borrowed + 2048), part(400, 2048));
  EXPECT_EQ(at(4096, 2048), part(300, 2048)) << "the bytes of before";
  EXPECT_EQ(tcm.end_loan(4096, 2048), nullptr);
  EXPECT_EQ(tcm.loans() + memory.loans(), 0u);
}

TEST(Tcm, LoansEndWithEitherMemory) {
  auto memory = std::make_unique<SparseMemory>(1 << 20);
  const std::vector<uint8_t> bytes(32 << 10, 7);
  memory->write(0, bytes.data(), bytes.size());
  auto tcm = std::make_unique<Tcm>(PeConfig());
  with_loan(*tcm, *memory, 0, 4096, 2048);
  tcm.reset();
  EXPECT_EQ(memory->loans(), 0u);
  tcm = std::make_unique<Tcm>(PeConfig());
  with_loan(*tcm, *memory, 0, 4096, 2048);
  memory.reset();
  EXPECT_EQ(tcm->loans(), 0u);
  EXPECT_EQ(*tcm->data(4096, 2048), 7);
}

HbmConfig config(uint32_t channels, uint32_t interleave) {
  HbmConfig c;
  c.channels = channels;
  c.interleave_bytes = interleave;
  return c;
}

TEST(HbmTiming, SharesAddUpAndMatchAByteCount) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t channels = 1 + random() % 20;
    const uint32_t interleave = 1u << random() % 10;
    const HbmTiming timing(config(channels, interleave));
    const uint64_t offset = random() % 100000;
    const uint64_t bytes = 1 + random() % 20000;
    std::vector<uint64_t> expected(channels, 0);
    for (uint64_t b = 0; b < bytes; ++b) ++expected[(offset + b) / interleave % channels];
    for (uint32_t c = 0; c < channels; ++c) ASSERT_EQ(timing.share(c, offset, bytes), expected[c]);
  }
}

TEST(HbmTiming, AloneItTakesTheLargestShareOrAnEvenOne) {
  std::mt19937 random(5);
  int long_ones = 0;
  for (int i = 0; i < 2000; ++i) {
    const HbmConfig c = config(1 + random() % 20, 1u << random() % 10);
    HbmTiming timing(c);
    const uint64_t offset = random() % 100000;
    const uint64_t bytes = 1 + random() % 20000;
    uint64_t largest = 0;
    Ps total = 0;
    bool everywhere = true;
    for (uint32_t ch = 0; ch < c.channels; ++ch) {
      const uint64_t share = timing.share(ch, offset, bytes);
      largest = std::max(largest, share);
      total += transfer_ps(share * c.channels, c.bytes_per_second);
      everywhere = everywhere && share != 0;
    }
    Ps busy = transfer_ps(largest * c.channels, c.bytes_per_second);
    if (everywhere) {
      busy = transfer_ps(bytes, c.bytes_per_second);
      total = busy * c.channels;
      ++long_ones;
    }
    Transit w;
    w.head = 1000;
    w.tail = 1000;
    timing.write(0, w, offset, bytes);
    ASSERT_EQ(w.head, 1000 + c.latency);
    ASSERT_EQ(w.tail, 1000 + busy + c.latency);
    ASSERT_EQ(timing.stats().busy, total);
    Transit r;
    r.head = 10000000000;
    r.tail = 10000000500;
    timing.read(10000000000, r, offset, bytes);
    ASSERT_EQ(r.head, 10000000500 + c.latency);
    ASSERT_EQ(r.tail, 10000000500 + busy + c.latency);
    ASSERT_EQ(r.wire_payload, bytes);
    ASSERT_EQ(timing.stats().waited, 0u);
  }
  EXPECT_GT(long_ones, 500);
  EXPECT_LT(long_ones, 1990);
}

// Random long and short transfers, against calendars that are never joined.
TEST(HbmTiming, JoinedChannelsAreBusyAsSeparateOnesWouldBe) {
  std::mt19937 random(11);
  const HbmConfig c = config(8, 64);
  HbmTiming timing(c);
  std::vector<Calendar> channels(c.channels);
  std::vector<Ps> busy(c.channels, 0);
  Ps now = 0;
  for (int i = 0; i < 20000; ++i) {
    now += random() % 4 == 0 ? random() % 30000 : random() % 1500;  // idle now and then
    const uint64_t offset = random() % 4096;
    const uint64_t bytes = random() % 5 == 0 ? 1 + random() % 300 : 1024 + random() % 2000;
    const Ps earliest = now + random() % 5000;
    const bool everywhere = (offset + bytes - 1) / 64 - offset / 64 + 1 >= c.channels;
    Ps begin = 0, end = 0;
    for (uint32_t ch = 0; ch < c.channels; ++ch) {
      const uint64_t share = timing.share(ch, offset, bytes);
      if (share == 0) continue;
      const Ps d =
          everywhere ? transfer_ps(bytes, c.bytes_per_second) : transfer_ps(share * c.channels, c.bytes_per_second);
      const Calendar::Slot slot = channels[ch].reserve(now, earliest, d);
      busy[ch] += d;
      if (ch == offset / 64 % c.channels) begin = slot.begin;
      end = std::max(end, slot.end);
    }
    Transit t;
    t.head = t.tail = earliest;
    timing.write(now, t, offset, bytes);
    ASSERT_EQ(t.head, begin + c.latency) << i;
    ASSERT_EQ(t.tail, std::max(end, earliest) + c.latency) << i;
  }
  for (uint32_t ch = 0; ch < c.channels; ++ch) EXPECT_EQ(timing.channel_busy(ch), busy[ch]);
}

TEST(HbmTiming, ASlowMessageEndsWithItsTail) {
  HbmTiming timing(config(16, 256));
  Transit t;
  t.head = 0;
  t.tail = us(1);
  timing.write(0, t, 0, 4096);
  EXPECT_EQ(t.tail, us(1) + ns(90));
  EXPECT_EQ(t.head, ns(90));
}

TEST(HbmTiming, ChannelsAreIndependent) {
  HbmTiming timing(config(16, 256));
  Transit a, b, c;
  timing.write(0, a, 0, 256);
  timing.write(0, b, 256, 256);
  timing.write(0, c, 4096, 256);  // channel 0 again
  EXPECT_EQ(a.tail, ns(95));
  EXPECT_EQ(b.tail, ns(95));
  EXPECT_EQ(c.tail, ns(100));
}

}  // namespace
}  // namespace ahbm::models
