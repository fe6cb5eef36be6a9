// Sparse storage and the channel timing of an HBM stack.
#include <sys/resource.h>

#include <numeric>
#include <random>

#include "models/memory/hbm_timing.h"
#include "models/memory/sparse_memory.h"
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
