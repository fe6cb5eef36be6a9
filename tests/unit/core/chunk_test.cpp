// The chunk rules against their definitions, written out independently.
#include "models/core/chunk.h"

#include <gtest/gtest.h>

namespace ahbm {
namespace {

TEST(TorchChunk, KnownCuts) {
  // torch.chunk of 10 in 4: 3, 3, 3, 1; of 5 in 4: 2, 2, 1 and an empty one; of 0: all empty.
  const Range ten[] = {{0, 3}, {3, 3}, {6, 3}, {9, 1}};
  const Range five[] = {{0, 2}, {2, 2}, {4, 1}, {5, 0}};
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(torch_chunk(10, 4, i), ten[i]) << i;
    EXPECT_EQ(torch_chunk(5, 4, i), five[i]) << i;
    EXPECT_EQ(torch_chunk(0, 4, i), (Range{0, 0})) << i;
  }
  EXPECT_EQ(torch_chunk(6, 6, 5), (Range{5, 1}));
  EXPECT_EQ(torch_chunk(7, 1, 0), (Range{0, 7}));
}

TEST(TorchChunk, FullPartsThenOneShortThenEmptyOnes) {
  for (uint64_t length = 0; length <= 70; ++length) {
    for (uint64_t parts = 1; parts <= 20; ++parts) {
      uint64_t at = 0;
      const uint64_t full = length / parts + (length % parts != 0 ? 1 : 0);
      for (uint64_t i = 0; i < parts; ++i) {
        const Range r = torch_chunk(length, parts, i);
        ASSERT_EQ(r.begin, at);
        ASSERT_EQ(r.count, length - at < full ? length - at : full);
        at += r.count;
      }
      ASSERT_EQ(at, length);
    }
  }
}

TEST(AlignedChunk, CoversEverythingOnceAtAlignedBegins) {
  for (uint64_t count : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 65537}) {
    for (uint64_t parts = 1; parts <= 17; ++parts) {
      for (uint64_t align : {1, 2, 3, 4, 16, 64}) {
        uint64_t at = 0;
        for (uint64_t i = 0; i < parts; ++i) {
          const Range r = aligned_chunk(count, parts, i, align);
          ASSERT_EQ(r.begin, at);
          ASSERT_TRUE(r.begin % align == 0 || r.empty()) << count << "/" << parts << " align " << align;
          at = r.end();
        }
        ASSERT_EQ(at, count) << parts << " align " << align;
      }
    }
  }
}

TEST(AlignedChunk, WithoutAlignmentIsTorchChunk) {
  for (uint64_t count = 0; count < 100; ++count) {
    for (uint64_t i = 0; i < 7; ++i) EXPECT_EQ(aligned_chunk(count, 7, i), torch_chunk(count, 7, i));
  }
}

TEST(AlignedChunk, RoundsThePartUpNotTheCount) {
  // 10 elements in 3 parts aligned to 4: c = 4, so 4, 4, 2.
  EXPECT_EQ(chunks(10, 3, 4), (std::vector<Range>{{0, 4}, {4, 4}, {8, 2}}));
  // 3 elements in 3 parts aligned to 4: all in the first.
  EXPECT_EQ(chunks(3, 3, 4), (std::vector<Range>{{0, 3}, {3, 0}, {3, 0}}));
}

TEST(Parts, ByTheRuleAreThePartsOfAlignedChunk) {
  for (uint64_t count : {0, 1, 2, 3, 7, 8, 63, 64, 1000}) {
    for (uint64_t n = 1; n <= 17; ++n) {
      const Parts parts({100, count}, n);
      ASSERT_EQ(parts.size(), n);
      EXPECT_EQ(parts.longest(), aligned_chunk(count, n, 0).count);
      for (uint64_t i = 0; i < n; ++i) {
        const Range r = aligned_chunk(count, n, i);
        EXPECT_EQ(parts[i], (Range{100 + r.begin, r.count})) << count << "/" << n << " part " << i;
      }
      EXPECT_THROW(parts.at(n), std::out_of_range);
    }
  }
}

TEST(Parts, AsTheyAre) {
  const Parts parts({{4, 2}, {6, 0}, {6, 5}});
  EXPECT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts.longest(), 5u);
  EXPECT_EQ(parts.at(2), (Range{6, 5}));
  EXPECT_THROW(parts.at(3), std::out_of_range);
  EXPECT_EQ(Parts().size(), 0u);
  EXPECT_EQ(Parts().longest(), 0u);
}

TEST(AlignedChunk, LargeCounts) {
  const uint64_t count = (uint64_t{1} << 40) + 1;
  EXPECT_EQ(torch_chunk(count, 64, 63).end(), count);
  EXPECT_EQ(chunks(count, 3, 256).back().end(), count);
}

}  // namespace
}  // namespace ahbm
