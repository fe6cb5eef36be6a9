// How blocks are cut out of a tensor, against the definition element by element; and values per rank.
#include "runtime/distributed/lane_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "runtime/distributed/process_group.h"

namespace ahbm::runtime::distributed::test {
namespace {

/// Block and element of every logical element.
std::vector<std::pair<uint32_t, uint64_t>> elements_of(uint64_t outer, const std::vector<uint64_t>& parts) {
  std::vector<std::pair<uint32_t, uint64_t>> out;
  std::vector<uint64_t> next(parts.size());
  for (uint64_t line = 0; line < outer; ++line) {
    for (uint32_t b = 0; b < parts.size(); ++b) {
      for (uint64_t i = 0; i < parts[b]; ++i) out.emplace_back(b, next[b]++);
    }
  }
  return out;
}

TEST(BlockCut, FindsBlocksAlsoAmongEmptyOnes) {
  std::mt19937 rng(3);
  for (int i = 0; i < 500; ++i) {
    const uint64_t outer = 1 + rng() % 3;
    std::vector<uint64_t> parts(1 + rng() % 7);
    for (uint64_t& p : parts) p = rng() % 2 == 0 ? 0 : rng() % 5;
    if (i % 5 == 0) std::fill(parts.begin() + 1, parts.end(), 0);  // one has everything
    const auto expected = elements_of(outer, parts);
    const BlockCut cut(outer, parts);
    EXPECT_EQ(cut.row() * outer, expected.size());
    if (expected.empty()) continue;

    const uint64_t begin = rng() % expected.size(), count = 1 + rng() % (expected.size() - begin);
    uint64_t at = begin;
    cut.for_each_block(begin, count, [&](const LaneRun& run) {
      for (uint64_t e = 0; e < run.count; ++e, ++at) {
        ASSERT_LT(at, expected.size());
        EXPECT_EQ(expected[at], std::pair(run.block, run.element + e)) << "logical element " << at;
      }
    });
    EXPECT_EQ(at, begin + count);

    for (uint32_t b = 0; b < parts.size(); ++b) {
      EXPECT_EQ(cut.elements(b), outer * parts[b]);
      uint64_t seen = 0;
      cut.for_each_logical({b, 0, cut.elements(b)}, [&](uint64_t element, uint64_t logical, uint64_t n) {
        EXPECT_EQ(element, seen);
        for (uint64_t e = 0; e < n; ++e) EXPECT_EQ(expected.at(logical + e), std::pair(b, element + e));
        seen += n;
      });
      EXPECT_EQ(seen, cut.elements(b));
    }
  }
}

TEST(PerRank, OfAllAndOfTwo) {
  PerRank<int> values;
  EXPECT_FALSE(values.has(0));
  values.assign_all(5);
  for (uint32_t r = 0; r < 5; ++r) values[r] = static_cast<int>(10 * r);
  EXPECT_EQ(values[4], 40);
  EXPECT_FALSE(values.has(5));
  for (const auto& [a, b] : {std::pair{0u, 1u}, {0u, 7u}, {1u, 2u}, {3u, 9u}}) {
    values.assign({a, b});
    EXPECT_EQ(values.values().size(), 2u);
    values[a] = 1;
    values[b] = 2;
    EXPECT_EQ(values.values(), (std::vector<int>{1, 2}));
    for (uint32_t r = 0; r < 12; ++r) EXPECT_EQ(values.has(r), r == a || r == b) << r;
  }
}

}  // namespace
}  // namespace ahbm::runtime::distributed::test
