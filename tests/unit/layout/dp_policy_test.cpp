// What a DPPolicy makes of a shape: shards, their ranges and places, and the way to each shard's buffer and back.
#include "runtime/layout/dp_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace ahbm::layout {
namespace {

DPPolicy policy(CubePolicy cube, PePolicy pe, uint32_t num_cubes = 0, uint32_t num_pes = 0) {
  DPPolicy p;
  p.cube = cube;
  p.pe = pe;
  p.num_cubes = num_cubes;
  p.num_pes = num_pes;
  return p;
}

std::vector<uint64_t> counts(const Layout& l) {
  std::vector<uint64_t> out;
  for (const Shard& s : l.shards()) out.push_back(s.elements);
  return out;
}

std::vector<int32_t> iota(uint64_t n) {
  std::vector<int32_t> v(n);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

std::vector<int32_t> packed(const Layout& l, const Shard& s, const std::vector<int32_t>& logical) {
  std::vector<int32_t> out(s.elements, -1);
  l.pack(s, logical.data(), out.data());
  return out;
}

TEST(DpPolicy, RowsFollowTorchChunkWithShortAndEmptyParts) {
  const Layout l({5, 10}, DType::Int32, policy(CubePolicy::RowWise, PePolicy::RowWise, 0, 1), 4, 2);
  EXPECT_THAT(counts(l), testing::ElementsAre(20, 20, 10, 0));
  EXPECT_EQ(l.shards()[2].rows, (Range{4, 1}));
  EXPECT_EQ(l.shards()[3].rows, (Range{5, 0}));
  EXPECT_EQ(l.shards()[0].cols, (Range{0, 10}));
  EXPECT_EQ(l.occupied_cubes(), 3u);
}

TEST(DpPolicy, CubesCutTheTensorAndPesCutTheirCubesPart) {
  const Layout l({4, 6}, DType::Int32, policy(CubePolicy::RowWise, PePolicy::ColumnWise), 2, 3);
  ASSERT_EQ(l.shards().size(), 6u);
  const Shard& s = l.shard(CubeId{1}, PeId{2});
  EXPECT_EQ(s.rows, (Range{2, 2}));
  EXPECT_EQ(s.cols, (Range{4, 2}));
  EXPECT_EQ(s.offset, 8u);  // behind two shards of 2 x 2
  EXPECT_EQ(l.cube_elements(CubeId{1}), 12u);
  EXPECT_THAT(packed(l, s, iota(24)), testing::ElementsAre(16, 17, 22, 23));
}

TEST(DpPolicy, SameDimensionCutTwice) {
  const Layout l({7}, DType::Int32, policy(CubePolicy::RowWise, PePolicy::RowWise), 2, 2);
  EXPECT_THAT(counts(l), testing::ElementsAre(2, 2, 2, 1));  // 4 + 3, then 2 + 2 and 2 + 1
  EXPECT_THAT(packed(l, l.shards()[3], iota(7)), testing::ElementsAre(6));
}

TEST(DpPolicy, ColumnWiseOfOneDimensionIsRowWise) {
  const Layout rows({9}, DType::Int32, policy(CubePolicy::RowWise, PePolicy::RowWise), 4, 2);
  const Layout cols({9}, DType::Int32, policy(CubePolicy::ColumnWise, PePolicy::ColumnWise), 4, 2);
  EXPECT_EQ(counts(rows), counts(cols));
  for (size_t i = 0; i < rows.shards().size(); ++i) {
    EXPECT_EQ(packed(rows, rows.shards()[i], iota(9)), packed(cols, cols.shards()[i], iota(9)));
  }
}

TEST(DpPolicy, ScalarLiesOnTheFirstPe) {
  const Layout l({}, DType::Int32, policy(CubePolicy::RowWise, PePolicy::RowWise), 2, 2);
  EXPECT_EQ(l.elements(), 1u);
  EXPECT_THAT(counts(l), testing::ElementsAre(1, 0, 0, 0));
}

TEST(DpPolicy, ZeroExtentsGiveEmptyShardsOnly) {
  for (const Shape& shape : {Shape{0}, Shape{1, 0, 2}, Shape{3, 0}, Shape{0, 5}}) {
    const Layout l(shape, DType::Int32, policy(CubePolicy::ColumnWise, PePolicy::Replicate), 4, 2);
    EXPECT_EQ(l.elements(), 0u) << to_string(shape);
    EXPECT_EQ(l.shards().size(), 8u);
    EXPECT_THAT(counts(l), testing::Each(0u));
    EXPECT_EQ(l.occupied_cubes(), 0u);
  }
}

TEST(DpPolicy, MiddleDimensionsStayWhole) {
  const Layout l({2, 3, 5}, DType::Int32, policy(CubePolicy::RowWise, PePolicy::ColumnWise), 2, 2);
  EXPECT_THAT(counts(l), testing::ElementsAre(9, 6, 9, 6));  // columns 3 + 2 of 5
  EXPECT_THAT(packed(l, l.shards()[3], iota(30)), testing::ElementsAre(18, 19, 23, 24, 28, 29));
}

TEST(DpPolicy, ReplicatedAndPartialGiveEveryCubeTheWhole) {
  for (const CubePolicy cube : {CubePolicy::Replicate, CubePolicy::Partial}) {
    const Layout l({3, 4}, DType::Float32, policy(cube, PePolicy::RowWise, 3, 2), 4, 4);
    EXPECT_EQ(l.shards().size(), 6u);
    EXPECT_THAT(counts(l), testing::ElementsAre(8, 4, 8, 4, 8, 4));
    EXPECT_EQ(l.replicated_over_cubes(), cube == CubePolicy::Replicate);
    EXPECT_EQ(l.partial_over_cubes(), cube == CubePolicy::Partial);
  }
}

TEST(DpPolicy, CopiesOnPesCountAsOneCopyForTheCube) {
  const Layout l({6}, DType::Float32, policy(CubePolicy::RowWise, PePolicy::Replicate), 2, 3);
  EXPECT_EQ(l.cube_elements(CubeId{0}), 9u);
  EXPECT_EQ(l.cube_logical_elements(CubeId{0}), 3u);
  EXPECT_EQ(l.shard(CubeId{1}, PeId{2}).offset, 6u);
}

TEST(DpPolicy, PackThenUnpackRestoresEveryElementForEveryShapeAndPolicy) {
  const std::vector<Shape> shapes = {{}, {1}, {13}, {997}, {5, 10}, {1, 7}, {7, 1}, {3, 4, 5}, {2, 1, 3, 6}, {6, 256}};
  for (const Shape& shape : shapes) {
    for (const CubePolicy cube : {CubePolicy::Replicate, CubePolicy::RowWise, CubePolicy::ColumnWise}) {
      for (const PePolicy pe : {PePolicy::Replicate, PePolicy::RowWise, PePolicy::ColumnWise}) {
        const Layout l(shape, DType::Int32, policy(cube, pe), 4, 3);
        const std::vector<int32_t> logical = iota(l.elements());
        std::vector<int32_t> back(l.elements(), -1);
        std::vector<uint32_t> holders(l.elements(), 0);
        for (const Shard& s : l.shards()) {
          const std::vector<int32_t> buffer = packed(l, s, logical);
          EXPECT_THAT(buffer, testing::Each(testing::Ge(0)));
          for (const int32_t e : buffer) ++holders[static_cast<size_t>(e)];
          l.unpack(s, buffer.data(), back.data());
        }
        const uint32_t copies = (cube == CubePolicy::Replicate ? 4u : 1u) * (pe == PePolicy::Replicate ? 3u : 1u);
        EXPECT_EQ(back, logical) << to_string(shape) << " " << to_string(l.policy());
        EXPECT_THAT(holders, testing::Each(copies)) << to_string(shape) << " " << to_string(l.policy());
      }
    }
  }
}

TEST(DpPolicy, MoreCubesOrPesThanThereAreIsRefusedByName) {
  try {
    const Layout l({4}, DType::Float32, policy(CubePolicy::RowWise, PePolicy::RowWise, 5), 4, 2);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("num_cubes is 5, expected 1..4"));
  }
  EXPECT_THROW(Layout({4}, DType::Float32, policy(CubePolicy::RowWise, PePolicy::RowWise, 0, 3), 4, 2),
               std::invalid_argument);
}

TEST(DpPolicy, ShapesBeyondTheAddressSpaceAreRefused) {
  EXPECT_THROW(element_count({uint64_t{1} << 40, uint64_t{1} << 40}), std::invalid_argument);
  EXPECT_EQ(element_count({uint64_t{1} << 40, uint64_t{1} << 40, 0}), 0u);
}

TEST(DpPolicy, WordsParseBackAndUnknownOnesAreNamed) {
  EXPECT_EQ(parse_cube_policy("partial"), CubePolicy::Partial);
  EXPECT_EQ(parse_pe_policy("column_wise"), PePolicy::ColumnWise);
  EXPECT_THROW(parse_pe_policy("partial"), std::invalid_argument);
  EXPECT_THROW(parse_cube_policy("rowwise"), std::invalid_argument);
  EXPECT_EQ(to_string(policy(CubePolicy::Replicate, PePolicy::RowWise, 2)), "cube=replicate pe=row_wise num_cubes=2");
  EXPECT_EQ(to_string(Shape{5}), "(5,)");
  EXPECT_EQ(to_string(Shape{2, 3}), "(2, 3)");
}

}  // namespace
}  // namespace ahbm::layout
