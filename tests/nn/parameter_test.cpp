// Values of parameters: the same wherever and however cut, in range, rounded to the dtype.
#include <gtest/gtest.h>

#include "runtime/nn/builder.h"

namespace ahbm::nn::test {
namespace {

TEST(ParameterValues, PartsAreThoseOfTheWhole) {
  const Shape shape{5, 3, 4};
  const Init init{0.5, 0.25};
  const auto whole = parameter_values(7, "a.weight", shape, init, DType::Float32);
  ASSERT_EQ(whole.size(), 60u);
  for (size_t dim = 0; dim < 3; ++dim) {
    const Range range{1, 2};
    const auto part = parameter_values(7, "a.weight", shape, init, DType::Float32, Cut{dim, range});
    Shape own = shape;
    own[dim] = 2;
    ASSERT_EQ(part.size(), layout::element_count(own));
    for (uint64_t i = 0; i < part.size(); ++i) {
      uint64_t at[3] = {i / (own[1] * own[2]), i / own[2] % own[1], i % own[2]};
      at[dim] += range.begin;
      EXPECT_EQ(part[i], whole[(at[0] * 3 + at[1]) * 4 + at[2]]) << "dim " << dim << " element " << i;
    }
  }
  EXPECT_TRUE(parameter_values(7, "a", {4, 0}, init, DType::Float32).empty());
  EXPECT_THROW(parameter_values(7, "a", shape, init, DType::Float32, Cut{0, {4, 2}}), std::out_of_range);
  EXPECT_THROW(parameter_values(7, "a", shape, init, DType::Float32, Cut{3, {0, 1}}), std::out_of_range);
}

TEST(ParameterValues, DependOnSeedAndNameAndStayInRange) {
  const auto values = [](uint64_t seed, const char* name, DType dtype = DType::Float32) {
    return parameter_values(seed, name, {100}, {1, 0.5}, dtype);
  };
  EXPECT_EQ(values(1, "a"), values(1, "a"));
  EXPECT_NE(values(1, "a"), values(2, "a"));
  EXPECT_NE(values(1, "a"), values(1, "b"));
  for (const double v : values(1, "a")) {
    EXPECT_GE(v, 0.5);
    EXPECT_LE(v, 1.5);
  }
  for (const double v : values(1, "a", DType::BFloat16)) {
    uint16_t bits = 0;
    store_element(DType::BFloat16, &bits, 0, v);
    EXPECT_EQ(load_element(DType::BFloat16, &bits, 0), v);
  }
}

}  // namespace
}  // namespace ahbm::nn::test
