// The operators' kernels on the twin, with argument blocks as their table describes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/tl/twin.h"
#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Addr kA = hbm_address(SipId{0}, CubeId{0}, 1 << 20);
constexpr Addr kB = hbm_address(SipId{0}, CubeId{1}, 1 << 20);
constexpr Addr kOut = hbm_address(SipId{0}, CubeId{0}, 8 << 20);

uint64_t word(DType t) {
  return static_cast<uint64_t>(t);
}
template <typename E>
uint64_t code(E e) {
  return static_cast<uint64_t>(e);
}

struct KernelsTest : testing::Test {
  KernelsTest() : twin(config()) {}
  static tl::TwinConfig config() {
    tl::TwinConfig c;
    c.shape.sips = c.shape.pes = 1;
    c.shape.cubes = 2;
    return c;
  }
  void put(Addr at, const std::vector<float>& v) { twin.write(at, v.data(), v.size() * sizeof(float)); }
  std::vector<float> get(Addr at, size_t n) {
    std::vector<float> v(n);
    twin.read(at, v.data(), n * sizeof(float));
    return v;
  }
  void run(tl::KernelFn kernel, std::vector<uint64_t> args) { twin.run({{0, kernel, std::move(args), {}}}); }
  std::string error_of(tl::KernelFn kernel, std::vector<uint64_t> args) {
    try {
      run(kernel, std::move(args));
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  }
  static std::vector<float> numbers(size_t n) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i);
    return v;
  }
  tl::Twin twin;
};
const uint64_t kF = word(DType::Float32);

TEST_F(KernelsTest, BoxesOfEveryKind) {
  put(kB, numbers(400));
  struct Case {
    const char* what;
    std::vector<uint64_t> dims;  // extent, from, to
    float (*expected)(uint64_t);
    uint64_t n;
  };
  const Case cases[] = {
      {"a run", {400, 1, 1}, [](uint64_t i) { return float(i); }, 400},
      {"rows of a wider one", {4, 20, 5, 5, 1, 1}, [](uint64_t i) { return float(i / 5 * 20 + i % 5); }, 20},
      {"transposed", {20, 1, 20, 20, 20, 1}, [](uint64_t i) { return float(i % 20 * 20 + i / 20); }, 400},
      {"repeated number", {37, 0, 1}, [](uint64_t) { return 0.0f; }, 37},
      {"repeated rows", {3, 0, 4, 4, 1, 1}, [](uint64_t i) { return float(i % 4); }, 12},
      {"repeated columns", {4, 1, 3, 3, 0, 1}, [](uint64_t i) { return float(i / 3); }, 12},
      {"repeated far columns", {4, 50, 3, 3, 0, 1}, [](uint64_t i) { return float(i / 3 * 50); }, 12},
      {"every third", {100, 3, 1}, [](uint64_t i) { return float(3 * i); }, 100},
      {"every third of rows", {5, 40, 10, 10, 3, 1}, [](uint64_t i) { return float(i / 10 * 40 + i % 10 * 3); }, 50},
      {"far apart", {20, 17, 1}, [](uint64_t i) { return float(17 * i); }, 20},
      {"three dimensions, the last first",
       {4, 1, 15, 5, 40, 3, 3, 10, 1},
       [](uint64_t i) { return float(i / 15 + i / 3 % 5 * 40 + i % 3 * 10); },
       60},
  };
  for (const Case& c : cases) {
    std::vector<uint64_t> args{kF, kF, 1, kB, kOut, c.dims.size() / 3};
    args.insert(args.end(), c.dims.begin(), c.dims.end());
    put(kOut, std::vector<float>(c.n, -1));
    run(copy_boxes_kernel, args);
    const std::vector<float> got = get(kOut, c.n);
    for (uint64_t i = 0; i < c.n; ++i) ASSERT_EQ(got[i], c.expected(i)) << c.what << " " << i;
  }
}

TEST_F(KernelsTest, BoxesThatInterleaveInTheResult) {
  put(kB, numbers(12));
  put(kOut, std::vector<float>(24, -1));
  // Two boxes: the even columns, and the odd ones.
  run(copy_boxes_kernel, {kF, kF, 2, kB, kOut, 1, 12, 1, 2, kB, kOut + 4, 1, 12, 0, 2});
  const std::vector<float> got = get(kOut, 24);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(got[2 * i], static_cast<float>(i));
    EXPECT_EQ(got[2 * i + 1], 0);
  }
}

TEST_F(KernelsTest, BoxesConvert) {
  put(kB, {1.5f, -2.7f, 300});
  run(copy_boxes_kernel, {kF, word(DType::Int8), 1, kB, kOut, 1, 3, 1, 1});
  int8_t out[3];
  twin.read(kOut, out, 3);
  EXPECT_THAT(out, ElementsAre(1, -2, 127));
}

TEST_F(KernelsTest, ElementwiseWithRowsColumnsAndNumbers) {
  put(kA, numbers(6));
  put(kB, {10, 20, 30});
  const auto call = [&](Elementwise f, std::vector<uint64_t> operands, double v = 0) {
    std::vector<uint64_t> args{code(f), kF, kOut, kF, 2, 3, tl::pack_f64(v), 0, operands.size() / 4};
    args.insert(args.end(), operands.begin(), operands.end());
    run(elementwise_kernel, args);
    return get(kOut, 6);
  };
  const Elementwise add = Elementwise::Binary + tl::Binary::Add;
  EXPECT_THAT(call(add, {kA, kF, 3, 1, kB, kF, 0, 1}), ElementsAre(10, 21, 32, 13, 24, 35));
  EXPECT_THAT(call(add, {kA, kF, 3, 1, kB, kF, 1, 0}), ElementsAre(10, 11, 12, 23, 24, 25));
  EXPECT_THAT(call(add, {kA, kF, 3, 1, kB, kF, 0, 0}), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_THAT(call(Elementwise::ValueBinary + tl::Binary::Sub, {kA, kF, 3, 1}, 5), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(error_of(elementwise_kernel, {9999, kF, kOut, kF, 1, 1, 0, 0, 1, kA, kF, 1, 1}), HasSubstr("9999"));
}

TEST_F(KernelsTest, ReduceRowsAndColumns) {
  put(kA, numbers(24));
  const auto call = [&](tl::Fold f, uint64_t a, uint64_t r, uint64_t b, Finish finish = Finish::None) {
    run(reduce_kernel,
        {code(Map::Identity), code(f), 0, code(finish), tl::pack_f64(double(r)), kA, kF, kOut, kF, a, r, b});
    return get(kOut, a * b);
  };
  EXPECT_THAT(call(tl::Fold::Sum, 2, 12, 1), ElementsAre(66, 210));
  EXPECT_THAT(call(tl::Fold::Sum, 1, 8, 3), ElementsAre(84, 92, 100));
  EXPECT_THAT(call(tl::Fold::Max, 2, 3, 4), ElementsAre(8, 9, 10, 11, 20, 21, 22, 23));
  EXPECT_THAT(call(tl::Fold::Sum, 2, 12, 1, Finish::Mean), ElementsAre(5.5f, 17.5f));
  run(combine_kernel,
      {code(tl::Fold::Sum), code(Finish::Root), 0, tl::pack_f64(2), kF, kOut, kF, 2, 3, kA, kA + 8, kA + 16});
  EXPECT_THAT(get(kOut, 2), ElementsAre(std::sqrt(6.0f), 3));
}

TEST_F(KernelsTest, MatmulOfSegmentsAndRuns) {
  // A 3 x 4 in two places, B 4 x 2 in two places.
  put(kA, numbers(8));
  put(kB, {8, 9, 10, 11});
  const Addr b0 = kA + 4096, b1 = kB + 4096;
  put(b0, {1, 2, 3, 4});
  put(b1, {5, 6, 7, 8});
  run(matmul_kernel, {kF,        kF, 0,  4,  2,  tl::pack_f64(2),
                      0,         kF, 2,  //
                      2,         2,  0,  kA, 0,  kOut,
                      2,         1,  2,  0,  kB, 0,
                      kOut + 16, 2,  //
                      2,         2,  b0, 2,  b1});
  EXPECT_THAT(get(kOut, 6), ElementsAre(68, 80, 196, 240, 324, 400));
  // B transposed: 2 x 4, a row in either place; a bias.
  put(b0, {1, 3, 5, 7});
  put(b1, {2, 4, 6, 8});
  const Addr bias = kA + 8192;
  put(bias, {1, -1});
  run(matmul_kernel, {kF, kF, 1, 4, 2, tl::pack_f64(1), bias, kF, 1, 2, 2, 0, kA, 0, kOut, 2, 2, 1, b0, 1, b1});
  EXPECT_THAT(get(kOut, 4), ElementsAre(35, 39, 99, 119));
}

TEST_F(KernelsTest, LookupAndTriangle) {
  put(kA, numbers(6));
  put(kB, {100, 101});
  const int64_t index[] = {3, 0, 2};
  twin.write(kA + 4096, index, sizeof index);
  run(lookup_kernel, {kF, word(DType::Int64), 2, kA + 4096, 3, kOut, 4, 2, 3, kA, 1, kB});
  EXPECT_THAT(get(kOut, 6), ElementsAre(100, 101, 0, 1, 4, 5));
  EXPECT_THAT(error_of(lookup_kernel, {kF, word(DType::Int64), 2, kA + 4096, 3, kOut, 3, 1, 3, kA}),
              HasSubstr("index 3 is none of 0..2"));
  // Rows 1 and 2 of a 3 x 3 matrix, then row 0 of the next.
  put(kA, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  run(triangle_kernel, {1, 0, tl::pack_f64(0), kF, kA, kOut, 3, 3, 3, 1});
  EXPECT_THAT(get(kOut, 9), ElementsAre(0, 2, 3, 0, 0, 6, 7, 8, 9));
}

TEST_F(KernelsTest, RowsOfAnIndexAndAScan) {
  put(kA, {3, 1, 2, 9, 8, 7});
  const int32_t index[] = {2, 0, 0, 1};
  twin.write(kB, index, sizeof index);
  run(rows_kernel, {code(Rows::Gather), 0, kA, kF, kOut, kF, 2, 3, 2, 1, kB, word(DType::Int32)});
  EXPECT_THAT(get(kOut, 4), ElementsAre(2, 3, 9, 8));
  run(rows_kernel, {code(Rows::Cumsum), 0, kA, kF, kOut, kF, 2, 3, 3, 0});
  EXPECT_THAT(get(kOut, 6), ElementsAre(3, 4, 6, 9, 17, 24));
  run(rows_kernel, {code(Rows::ArgMin), 0, kA, kF, kOut, word(DType::Int64), 2, 3, 1, 0});
  int64_t at[2];
  twin.read(kOut, at, sizeof at);
  EXPECT_THAT(at, ElementsAre(1, 2));
}

TEST_F(KernelsTest, TheRegistryKnowsThem) {
  tl::KernelRegistry r;
  register_operator_kernels(r);
  register_operator_kernels(r);  // the same again is fine
  for (const char* kernel :
       {"copy_boxes", "elementwise", "reduce", "combine", "rows", "triangle", "matmul", "lookup"}) {
    EXPECT_NE(r.find(kernel), nullptr) << kernel;
  }
}

}  // namespace
}  // namespace ahbm::kernels
