// Times come from cumulative counts, rounded up once.
#include "models/core/time.h"

#include <gtest/gtest.h>

namespace ahbm {
namespace {

constexpr uint64_t kGiga = 1000000000;

TEST(Time, TransfersThatComeOutEven) {
  EXPECT_EQ(transfer_ps(0, kGiga), 0u);
  EXPECT_EQ(transfer_ps(1, kGiga), 1000u);
  EXPECT_EQ(transfer_ps(4096, 256 * kGiga), 16000u);
  EXPECT_EQ(transfer_ps(64, 64 * kGiga), 1000u);  // exactly 64 B/ns
  EXPECT_EQ(transfer_ps(uint64_t{64} << 20, 100 * kGiga), 671088640u);
}

TEST(Time, RoundingIsUpAndOnce) {
  EXPECT_EQ(transfer_ps(1, 768 * kGiga), 2u);  // 1.302 ps
  EXPECT_EQ(transfer_ps(3, 768 * kGiga), 4u);  // 3.906 ps, not three times 2
  EXPECT_EQ(transfer_ps(768, 768 * kGiga), 1000u);
  EXPECT_EQ(transfer_ps(256, 819200000000u), 313u);  // 312.5
  EXPECT_EQ(transfer_ps(512, 819200000000u), 625u);
  EXPECT_EQ(transfer_ps(1, 16000 * kGiga), 1u);  // never free
}

TEST(Time, CyclesAreCountedBeforeTheyAreConverted) {
  constexpr uint64_t kHertz = 1500000000;
  EXPECT_EQ(cycles_ps(1, kHertz), 667u);
  EXPECT_EQ(cycles_ps(3, kHertz), 2000u);
  EXPECT_EQ(cycles_ps(kHertz, kHertz), 1000000000000u);
  EXPECT_EQ(cycles_ps(1, 1200000000), 834u);
  EXPECT_EQ(cycles_ps(6, 1200000000), 5000u);
}

TEST(Time, NoOverflowInBetween) {
  // 2^60 bytes at 10^18 B/s: the product with 10^12 needs 100 bits.
  EXPECT_EQ(transfer_ps(uint64_t{1} << 60, 1000000000000000000u), 1152921504607u);
  EXPECT_EQ(transfer_ps(1, ~uint64_t{0}), 1u);
  EXPECT_EQ(transfer_ps(1, 1), 1000000000000u);
}

TEST(Time, SplittingABurstCostsAtMostOnePicosecondPerPiece) {
  for (uint64_t bytes : {1, 7, 64, 1000, 4097}) {
    for (uint64_t bandwidth : {3 * kGiga, 64 * kGiga, uint64_t{819200000000}}) {
      Ps sum = 0;
      for (uint64_t i = 0; i < 10; ++i) sum += transfer_ps(bytes, bandwidth);
      const Ps whole = transfer_ps(10 * bytes, bandwidth);
      EXPECT_GE(sum, whole);
      EXPECT_LE(sum, whole + 10);
    }
  }
}

TEST(Time, CeilDiv) {
  EXPECT_EQ(ceil_div(0, 5), 0u);
  EXPECT_EQ(ceil_div(1, 5), 1u);
  EXPECT_EQ(ceil_div(5, 5), 1u);
  EXPECT_EQ(ceil_div(6, 5), 2u);
  EXPECT_EQ(ceil_div(~uint64_t{0}, 2), uint64_t{1} << 63);  // a + b - 1 would overflow
}

TEST(Time, Units) {
  static_assert(ns(250) == 250000 && us(1) == 1000000);
  EXPECT_EQ(ns(1) * 1000, us(1));
}

}  // namespace
}  // namespace ahbm
