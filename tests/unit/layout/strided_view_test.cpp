// Views as PyTorch makes them: sizes, strides and offsets by hand, and the elements that they show against plain loops.
#include "runtime/layout/strided_view.h"

#include <gmock/gmock.h>

#include <limits>
#include <stdexcept>

namespace ahbm::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Places = std::vector<uint64_t>;

/// The elements of the base in the order of the view, by its runs.
Places shown(const StridedView& v) {
  Places out;
  v.for_each_run([&](uint64_t element, uint64_t base, uint64_t count) {
    EXPECT_EQ(element, out.size());
    EXPECT_GT(count, 0u);
    for (uint64_t i = 0; i < count; ++i) out.push_back(base + i);
  });
  return out;
}

/// The same by the definition of strides.
Places by_strides(const StridedView& v) {
  Places out;
  for (uint64_t i = 0; i < v.elements(); ++i) {
    uint64_t rest = i, at = v.offset();
    for (size_t d = v.shape().size(); d-- != 0;) {
      at += rest % v.shape()[d] * v.strides()[d];
      rest /= v.shape()[d];
    }
    out.push_back(at);
  }
  return out;
}

TEST(StridedView, MakesPyTorchsSizesStridesAndOffsets) {
  const StridedView all({4, 3, 2});
  EXPECT_THAT(all.strides(), ElementsAre(6, 2, 1));
  EXPECT_TRUE(all.is_all_of({4, 3, 2}));
  const StridedView v = all.slice(0, 1, 100, 2).transpose(0, -1).select(1, -1);
  EXPECT_THAT(v.shape(), ElementsAre(2, 2));
  EXPECT_THAT(v.strides(), ElementsAre(1, 12));
  EXPECT_EQ(v.offset(), 6u + 4u);
  EXPECT_THAT(shown(v), ElementsAre(10, 22, 11, 23));
  EXPECT_FALSE(v.is_contiguous());
  EXPECT_EQ(to_string(v), "strides (1, 12) from 10");
  EXPECT_THAT(shown(all.narrow(0, -1, 1).narrow(1, 1, 1)), ElementsAre(20, 21));
  EXPECT_THAT(shown(StridedView(Shape{}).expand({3})), ElementsAre(0, 0, 0));
}

TEST(StridedView, RunsAreTheElementsOfTheStrides) {
  const StridedView all({5, 4, 3});
  for (const StridedView& v : {all, all.narrow(1, 1, 2), all.narrow(0, 2, 0), all.select(2, 1), all.slice(2, 0, 3, 2),
                               all.permute({2, 0, 1}), all.permute({1, 0, 2}).narrow(2, 1, 2),
                               all.select(0, 3).expand({2, 4, 3}), all.narrow(1, 0, 1).expand({5, 4, 3})}) {
    EXPECT_EQ(shown(v), by_strides(v)) << to_string(v.shape()) << " " << to_string(v);
  }
  size_t runs = 0;
  all.narrow(0, 1, 3).for_each_run([&](uint64_t, uint64_t, uint64_t) { ++runs; });
  EXPECT_EQ(runs, 1u) << "whole rows follow one another";
  EXPECT_THAT(shown(all.slice(0, 4, 1)), IsEmpty());
}

TEST(StridedView, KnowsWhatOverlaps) {
  const StridedView all({4, 6});
  EXPECT_TRUE(overlap(all.narrow(1, 0, 3), all.narrow(1, 2, 3)));
  EXPECT_FALSE(overlap(all.narrow(1, 0, 3), all.narrow(1, 3, 3)));
  EXPECT_FALSE(overlap(all.slice(1, 0, 6, 2), all.slice(1, 1, 6, 2))) << "they interleave";
  EXPECT_TRUE(overlap(all.slice(1, 0, 6, 2), all.slice(1, 0, 6, 3)));
  EXPECT_TRUE(overlap(all.transpose(0, 1).select(0, 5), all.select(0, 0)));
  EXPECT_FALSE(overlap(all.narrow(0, 0, 0), all));
  EXPECT_TRUE(all.narrow(0, 0, 1).expand({4, 6}).overlaps_itself());
  EXPECT_FALSE(all.slice(1, 0, 6, 2).transpose(0, 1).overlaps_itself());
  EXPECT_FALSE(all.narrow(0, 0, 1).expand({2, 1, 6}).narrow(0, 0, 1).overlaps_itself());
}

template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(StridedView, AStepBeyondTheEndTakesTheFirst) {
  const StridedView all({5, 3});
  EXPECT_EQ(all.slice(0, 0, 5, std::numeric_limits<int64_t>::max()).shape(), (Shape{1, 3}));
  EXPECT_EQ(all.slice(0, 5, 5, 2).shape(), (Shape{0, 3}));
  EXPECT_EQ(all.slice(0, 4, 1).shape(), (Shape{0, 3}));
}

TEST(StridedView, RefusesByName) {
  const StridedView all({4, 6});
  EXPECT_THAT(refusal([&] { all.narrow(1, 4, 3); }),
              HasSubstr("narrow: start 4 and length 3 in dim 1 of a tensor (4, 6)"));
  EXPECT_THAT(refusal([&] { all.narrow(0, 0, ~uint64_t{0}); }), HasSubstr("expected a range of its 4"));
  EXPECT_THAT(refusal([&] { all.select(2, 0); }), HasSubstr("select: dim 2 of a tensor (4, 6), expected -2 to 1"));
  EXPECT_THAT(refusal([&] { all.select(0, 4); }), HasSubstr("index 4"));
  EXPECT_THAT(refusal([&] { StridedView(Shape{}).select(0, 0); }), HasSubstr("which has none"));
  EXPECT_THAT(refusal([&] { all.slice(0, 0, 4, 0); }), HasSubstr("step 0"));
  EXPECT_THAT(refusal([&] { all.permute({0, 0}); }), HasSubstr("permute: dims (0, 0)"));
  EXPECT_THAT(refusal([&] { all.permute({0}); }), HasSubstr("each of its 2 once"));
  EXPECT_THAT(refusal([&] { all.expand({8, 6}); }), HasSubstr("expand: a tensor (4, 6) to (8, 6)"));
  EXPECT_THAT(refusal([&] { all.expand({6}); }), HasSubstr("expand"));
}

}  // namespace
}  // namespace ahbm::layout
