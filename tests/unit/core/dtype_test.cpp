#include "models/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "models/core/errors.h"

namespace ahbm {
namespace {

constexpr DType kAll[] = {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32,
                          DType::Int8,    DType::UInt8,   DType::Int64,    DType::Bool};
constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
T reduced(ReduceOp op, DType t, T a, T b) {
  T out{};
  reduce(op, t, &out, &a, &b, 1);
  return out;
}

uint16_t bits16(DType t, double v) {
  uint16_t out = 0;
  store_element(t, &out, 0, v);
  return out;
}

// Rounding to bfloat16 done by hand: the reference for the library's.
uint16_t bf16_of(float f) {
  uint32_t u = 0;
  std::memcpy(&u, &f, sizeof u);
  return static_cast<uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

TEST(DType, NamesParseBack) {
  for (DType t : kAll) EXPECT_EQ(parse_dtype(to_string(t)), t);
  for (ReduceOp op : kOps) EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  EXPECT_EQ(parse_dtype("fp32"), DType::Float32);
  EXPECT_EQ(parse_dtype("bf16"), DType::BFloat16);
  EXPECT_EQ(parse_dtype("int"), DType::Int32);
  EXPECT_EQ(parse_dtype("fp8"), std::nullopt);
  EXPECT_EQ(parse_reduce_op("mean"), ReduceOp::Avg);
  EXPECT_EQ(parse_reduce_op("prod"), ReduceOp::Product);
  EXPECT_EQ(parse_reduce_op("xor"), std::nullopt);
}

TEST(DType, SizesAndKinds) {
  const uint32_t bytes[] = {4, 2, 2, 4, 1, 1, 8, 1};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(item_bytes(kAll[i]), bytes[i]);
    EXPECT_EQ(is_floating(kAll[i]), i < 3);
    EXPECT_EQ(has_arithmetic(kAll[i]), i < 4);
  }
}

TEST(DType, EveryOperatorButAnAverageOfBools) {
  int64_t x = 4;
  for (DType t : kAll) {
    for (ReduceOp op : kOps) EXPECT_EQ(can_reduce(op, t), t != DType::Bool || op != ReduceOp::Avg);
  }
  EXPECT_THROW(reduce(ReduceOp::Avg, DType::Bool, &x, &x, &x, 1), NotImplementedError);
  EXPECT_THROW(divide(DType::Bool, &x, 1, 2), NotImplementedError);
  for (DType t : {DType::Int8, DType::UInt8, DType::Int64, DType::Bool}) {
    EXPECT_THROW(scale(t, &x, 1, 2.0), NotImplementedError);
  }
  EXPECT_EQ(x, 4);
}

template <typename T>
T reduced_as(ReduceOp op, DType t, T a, T b) {
  reduce(op, t, &a, &a, &b, 1);
  return a;
}
template <typename T>
T divided_as(DType t, T a, uint64_t divisor) {
  divide(t, &a, 1, divisor);
  return a;
}

TEST(DType, SmallAndLargeIntegersWrapAndTruncate) {
  EXPECT_EQ(reduced_as<int8_t>(ReduceOp::Sum, DType::Int8, 120, 100), static_cast<int8_t>(220));
  EXPECT_EQ(reduced_as<int8_t>(ReduceOp::Product, DType::Int8, -100, 3), static_cast<int8_t>(-300));
  EXPECT_EQ(reduced_as<int8_t>(ReduceOp::Max, DType::Int8, -1, 1), 1);
  EXPECT_EQ(reduced_as<uint8_t>(ReduceOp::Sum, DType::UInt8, 200, 100), 44);
  EXPECT_EQ(reduced_as<uint8_t>(ReduceOp::Max, DType::UInt8, 255, 1), 255);
  EXPECT_EQ(reduced_as<uint8_t>(ReduceOp::Min, DType::UInt8, 255, 1), 1);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(reduced_as<int64_t>(ReduceOp::Sum, DType::Int64, kMax, 1), kMin);
  EXPECT_EQ(reduced_as<int64_t>(ReduceOp::Product, DType::Int64, int64_t{1} << 40, 1 << 20), int64_t{1} << 60);
  EXPECT_EQ(reduced_as<int64_t>(ReduceOp::Min, DType::Int64, kMin, kMax), kMin);
  EXPECT_EQ(divided_as<int8_t>(DType::Int8, -7, 2), -3);
  EXPECT_EQ(divided_as<int8_t>(DType::Int8, -128, 128), -1);
  EXPECT_EQ(divided_as<int8_t>(DType::Int8, -128, 129), 0);
  EXPECT_EQ(divided_as<uint8_t>(DType::UInt8, 255, 2), 127);
  EXPECT_EQ(divided_as<uint8_t>(DType::UInt8, 255, 256), 0);
  EXPECT_EQ(divided_as<int64_t>(DType::Int64, -9, 4), -2);
  EXPECT_EQ(divided_as<int64_t>(DType::Int64, kMin, uint64_t{1} << 63), -1);
  EXPECT_EQ(divided_as<int64_t>(DType::Int64, kMin, ~uint64_t{0}), 0);
}

TEST(DType, BoolsAreOrAndAnd) {
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product}) {
    const bool any = op == ReduceOp::Sum || op == ReduceOp::Max;
    for (const uint8_t a : {0, 1, 2}) {
      for (const uint8_t b : {0, 1, 128}) {
        const bool want = any ? a != 0 || b != 0 : a != 0 && b != 0;
        EXPECT_EQ(reduced_as<uint8_t>(op, DType::Bool, a, b), want) << to_string(op) << int{a} << int{b};
      }
    }
  }
}

TEST(DType, IntegersWrap) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max(), kMin = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(reduced(ReduceOp::Sum, DType::Int32, kMax, 1), kMin);
  EXPECT_EQ(reduced(ReduceOp::Product, DType::Int32, 65536, 65537), 65536);
  EXPECT_EQ(reduced(ReduceOp::Max, DType::Int32, kMin, -1), -1);
  EXPECT_EQ(reduced(ReduceOp::Min, DType::Int32, kMin, kMax), kMin);
}

TEST(DType, MaxAndMinPropagateNan) {
  for (ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    EXPECT_TRUE(std::isnan(reduced(op, DType::Float32, kNan, 1.0f)));
    EXPECT_TRUE(std::isnan(reduced(op, DType::Float32, 1.0f, kNan)));
    for (DType t : {DType::Float16, DType::BFloat16}) {
      const uint16_t nan = bits16(t, kNan), one = bits16(t, 1);
      for (uint16_t r : {reduced(op, t, nan, one), reduced(op, t, one, nan)}) {
        EXPECT_TRUE(std::isnan(load_element(t, &r, 0)));
      }
    }
  }
}

TEST(DType, MaxAndMinKeepTheFirstOfEqualZeros) {
  for (ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    EXPECT_TRUE(std::signbit(reduced(op, DType::Float32, -0.0f, 0.0f)));
    EXPECT_FALSE(std::signbit(reduced(op, DType::Float32, 0.0f, -0.0f)));
    for (DType t : {DType::Float16, DType::BFloat16}) {
      EXPECT_EQ(reduced<uint16_t>(op, t, 0x8000, 0x0000), 0x8000);
      EXPECT_EQ(reduced<uint16_t>(op, t, 0x0000, 0x8000), 0x0000);
    }
  }
}

// The same element gives the same bits at any place of any length: vector bodies and tails agree.
TEST(DType, ResultDoesNotDependOnThePlace) {
  std::mt19937 rng(3);
  for (DType t : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32}) {
    const uint32_t item = item_bytes(t);
    for (ReduceOp op : kOps) {
      constexpr uint64_t kN = 67;
      std::vector<uint8_t> a((kN + 1) * item), b((kN + 1) * item), all((kN + 1) * item), one(item);
      for (uint64_t i = 0; i < kN; ++i) {
        const double special[] = {0.0, -0.0, kNan, 1e30, -3.0};
        store_element(t, a.data() + item, i, i % 7 < 5 ? special[i % 7] : static_cast<double>(rng() % 1000) - 500.25);
        store_element(t, b.data() + item, i, i % 11 < 5 ? special[i % 11] : static_cast<double>(rng() % 1000) - 500.25);
      }
      reduce(op, t, all.data() + item, a.data() + item, b.data() + item, kN);  // aligned to the element only
      for (uint64_t i = 0; i < kN; ++i) {
        reduce(op, t, one.data(), a.data() + item + i * item, b.data() + item + i * item, 1);
        EXPECT_EQ(std::memcmp(one.data(), all.data() + item + i * item, item), 0)
            << to_string(t) << " " << to_string(op) << " element " << i;
      }
      reduce(op, t, a.data() + item, a.data() + item, b.data() + item, kN);  // in place
      EXPECT_EQ(std::memcmp(a.data() + item, all.data() + item, kN * item), 0) << to_string(t) << " " << to_string(op);
    }
  }
}

TEST(DType, BFloat16RoundsEveryAddition) {
  // 256 + 1 is a tie in bfloat16 and goes to the even 256; 258 + 1 goes up to 260.
  const auto sum = [](double a, double b) {
    const uint16_t x = bits16(DType::BFloat16, a), y = bits16(DType::BFloat16, b);
    const uint16_t r = reduced(ReduceOp::Sum, DType::BFloat16, x, y);
    return load_element(DType::BFloat16, &r, 0);
  };
  EXPECT_EQ(sum(256, 1), 256);
  EXPECT_EQ(sum(258, 1), 260);
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) {
    const uint32_t word = rng();
    float f = 0;
    std::memcpy(&f, &word, sizeof f);
    if (!std::isfinite(f)) continue;
    EXPECT_EQ(bits16(DType::BFloat16, f), bf16_of(f)) << f;
  }
}

TEST(DType, Float16Values) {
  EXPECT_EQ(bits16(DType::Float16, 1.0), 0x3C00);
  EXPECT_EQ(bits16(DType::Float16, 65504), 0x7BFF);
  EXPECT_EQ(bits16(DType::Float16, 65520), 0x7C00);  // the tie above the largest value rounds to infinity
  EXPECT_EQ(bits16(DType::Float16, std::ldexp(1.0, -24)), 0x0001);
  EXPECT_EQ(bits16(DType::Float16, std::ldexp(1.0, -25)), 0x0000);
  EXPECT_EQ(bits16(DType::Float16, 2049), 0x6800);  // tie to the even 2048
  for (uint32_t u = 0; u < 0x10000; ++u) {
    const auto w = static_cast<uint16_t>(u);
    const double v = load_element(DType::Float16, &w, 0);
    if (std::isnan(v)) continue;
    EXPECT_EQ(bits16(DType::Float16, v), w);
  }
}

// A double is rounded once, not first to float: just above a tie goes up although the float is the tie.
TEST(DType, DoubleIsRoundedOnce) {
  EXPECT_EQ(bits16(DType::Float16, 2049 + 1e-9), 0x6801);
  EXPECT_EQ(bits16(DType::BFloat16, 257 + 1e-9), bf16_of(258));
  EXPECT_EQ(bits16(DType::BFloat16, 257 - 1e-9), bf16_of(256));
  EXPECT_EQ(bits16(DType::BFloat16, -257 - 1e-9), bf16_of(-258));
}

TEST(DType, DivideTruncatesIntegersAndRoundsOnce) {
  int32_t x[] = {7, -7, 2147483647, std::numeric_limits<int32_t>::min()};
  divide(DType::Int32, x, 4, 2);
  EXPECT_EQ(x[0], 3);
  EXPECT_EQ(x[1], -3);
  EXPECT_EQ(x[2], 1073741823);
  EXPECT_EQ(x[3], -1073741824);
  divide(DType::Int32, x, 4, uint64_t{1} << 40);
  EXPECT_EQ(x[3], 0);
  float f = 1.0f;
  divide(DType::Float32, &f, 1, 3);
  EXPECT_EQ(f, 1.0f / 3.0f);
  uint16_t h = bits16(DType::BFloat16, 10);
  divide(DType::BFloat16, &h, 1, 3);
  EXPECT_EQ(h, bf16_of(10.0f / 3.0f));
  EXPECT_THROW(divide(DType::Float32, &f, 1, 0), std::invalid_argument);
}

TEST(DType, ScaleLimitsIntegers) {
  int32_t x[] = {7, -7, 2000000000};
  scale(DType::Int32, x, 3, 1.5);
  EXPECT_EQ(x[0], 10);
  EXPECT_EQ(x[1], -10);
  EXPECT_EQ(x[2], std::numeric_limits<int32_t>::max());
  float f = 3;
  scale(DType::Float32, &f, 1, 0.1);
  EXPECT_EQ(f, 3 * 0.1f);
}

TEST(DType, ElementsOfEveryType) {
  for (DType t : kAll) {
    std::vector<uint8_t> data(5 * item_bytes(t), 0xFF);
    fill(t, data.data(), 5, 0.0);
    store_element(t, data.data(), 3, 1.0);
    for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(load_element(t, data.data(), i), i == 3 ? 1.0 : 0.0);
    fill(t, data.data(), 0, 1.0);
    EXPECT_EQ(load_element(t, data.data(), 0), 0.0);
  }
  int8_t i8 = 0;
  store_element(DType::Int8, &i8, 0, 300.0);
  EXPECT_EQ(i8, 127);
  store_element(DType::Int8, &i8, 0, -2.9);
  EXPECT_EQ(i8, -2);
  store_element(DType::Int8, &i8, 0, kNan);
  EXPECT_EQ(i8, 0);
  uint8_t u8 = 0;
  store_element(DType::UInt8, &u8, 0, -1.0);
  EXPECT_EQ(u8, 0);
  store_element(DType::Bool, &u8, 0, 0.25);
  EXPECT_EQ(u8, 1);
  int64_t i64 = 0;
  store_element(DType::Int64, &i64, 0, 1e30);
  EXPECT_EQ(i64, std::numeric_limits<int64_t>::max());
  store_element(DType::Int64, &i64, 0, -1e30);
  EXPECT_EQ(i64, std::numeric_limits<int64_t>::min());
}

// What the loops do over a whole array is what rounding one element through double does.
TEST(DType, HalfPrecisionSumsEqualTheRoundedDouble) {
  std::mt19937 rng(5);
  for (DType t : {DType::Float16, DType::BFloat16}) {
    constexpr uint64_t kN = 3001;
    std::vector<uint16_t> a(kN), b(kN), sum(kN), product(kN), halved(kN);
    for (uint64_t i = 0; i < kN; ++i) {
      a[i] = bits16(t, (static_cast<double>(rng() % 20001) - 10000) / 7);
      b[i] = bits16(t, (static_cast<double>(rng() % 20001) - 10000) / 11);
    }
    reduce(ReduceOp::Sum, t, sum.data(), a.data(), b.data(), kN);
    reduce(ReduceOp::Product, t, product.data(), a.data(), b.data(), kN);
    halved = a;
    divide(t, halved.data(), kN, 3);
    for (uint64_t i = 0; i < kN; ++i) {
      const double x = load_element(t, a.data(), i), y = load_element(t, b.data(), i);
      ASSERT_EQ(sum[i], bits16(t, static_cast<float>(x + y))) << x << " + " << y;
      ASSERT_EQ(product[i], bits16(t, static_cast<float>(x * y))) << x << " * " << y;
      ASSERT_EQ(halved[i], bits16(t, static_cast<float>(x) / 3.0f)) << x << " / 3";
    }
  }
}

TEST(DType, ZeroElementsTouchNothing) {
  for (DType t : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32}) {
    reduce(ReduceOp::Sum, t, nullptr, nullptr, nullptr, 0);
    divide(t, nullptr, 0, 3);
    scale(t, nullptr, 0, 3);
  }
}

}  // namespace
}  // namespace ahbm
