// Tile operations that compare, choose, rearrange and fold, on the twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/core/errors.h"
#include "models/tl/twin.h"

namespace ahbm::tl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Addr kIn = hbm_address(SipId{0}, CubeId{0}, 1 << 20);
constexpr Addr kOut = hbm_address(SipId{0}, CubeId{0}, 2 << 20);

struct TileVerbs : testing::Test {
  TileVerbs() : twin(config()) {}
  static TwinConfig config() {
    TwinConfig c;
    c.shape.sips = c.shape.cubes = c.shape.pes = 1;
    return c;
  }
  template <typename T>
  void put(Addr at, const std::vector<T>& v) {
    twin.write(at, v.data(), v.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> run(KernelFn kernel, size_t n, std::vector<uint64_t> args = {}) {
    twin.run({{0, kernel, std::move(args), {}}});
    std::vector<T> out(n);
    twin.read(kOut, out.data(), n * sizeof(T));
    return out;
  }
  std::string error_of(KernelFn kernel) {
    try {
      twin.run({{0, kernel, {}, {}}});
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  }
  Twin twin;
};
const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_F(TileVerbs, StridedTransposesRepeatsAndPicks) {
  put<float>(kIn, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(
      run<float>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.strided(tl.load(kIn, 2, 3, 3, DType::Float32), 0, 3, 2, 1, 3)); },
          6),
      ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(
      run<float>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.strided(tl.load(kIn, 6, DType::Float32), 1, 2, 3, 0, 2)); }, 6),
      ElementsAre(1, 3, 5, 1, 3, 5));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.strided(tl.load(kIn, 6, DType::Float32), 1, 2, 3, 1, 2); }),
              HasSubstr("2x3 elements from 1 on"));
}

TEST_F(TileVerbs, PlaceWritesBetween) {
  put<int32_t>(kIn, {1, 2, 3});
  EXPECT_THAT(run<int32_t>(
                  [](Tl& tl, const Args&) {
                    const Tile into = tl.zeros(1, 6, DType::Int32);
                    tl.place(into, tl.load(kIn, 3, DType::Int32), 1, 0, 2);
                    tl.store(kOut, into);
                  },
                  6),
              ElementsAre(0, 1, 0, 2, 0, 3));
}

TEST_F(TileVerbs, CompareSelectAndTake) {
  put<int64_t>(kIn, {int64_t{1} << 40, 2, 3, (int64_t{1} << 40) + 1});
  EXPECT_THAT(run<uint8_t>(
                  [](Tl& tl, const Args&) {
                    const Tile x = tl.load(kIn, 2, 2, 2, DType::Int64);
                    tl.store(kOut, tl.compare(Compare::Lt, x, tl.strided(x, 0, 2, 1, 3, 1)));
                  },
                  4),
              ElementsAre(0, 1, 1, 0));
  put<float>(kIn, {1, kNan, 3, 4});
  EXPECT_THAT(run<float>(
                  [](Tl& tl, const Args&) {
                    const Tile x = tl.load(kIn, 4, DType::Float32);
                    tl.store(kOut, tl.select(tl.compare(Compare::Ne, x, x), tl.full(1, 4, DType::Float32, -1), x));
                  },
                  4),
              ElementsAre(1, -1, 3, 4));
  put<float>(kIn, {5, 6, 7, 8});
  put<int32_t>(kIn + 64, {1, 1, 0, 1, 0, 0});
  EXPECT_THAT(run<float>(
                  [](Tl& tl, const Args&) {
                    tl.store(kOut,
                             tl.take(tl.load(kIn, 2, 2, 2, DType::Float32), tl.load(kIn + 64, 2, 3, 3, DType::Int32)));
                  },
                  6),
              ElementsAre(6, 6, 5, 8, 7, 7));
  EXPECT_THAT(
      error_of([](Tl& tl, const Args&) { tl.take(tl.load(kIn, 2, DType::Float32), tl.full(1, 1, DType::Int64, 2)); }),
      HasSubstr("index 2 is none of 0..1"));
}

TEST_F(TileVerbs, FoldsInTheDocumentedOrder) {
  // 33 columns: the last goes to lane 0 again; the halves of the lanes are added.
  std::vector<float> v(33);
  for (size_t i = 0; i < 33; ++i) v[i] = 1.0f / static_cast<float>(i + 1) * (i % 2 != 0 ? -1e7f : 1e7f);
  put(kIn, v);
  std::vector<float> lanes(v.begin(), v.begin() + 32);
  lanes[0] += v[32];
  for (size_t half = 16; half != 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  EXPECT_THAT(
      run<float>([](Tl& tl, const Args&) { tl.store(kOut, tl.fold(Fold::Sum, tl.load(kIn, 33, DType::Float32))); }, 1),
      ElementsAre(lanes[0]));
  put<float>(kIn, {1, 5, kNan, 4, 2, 0});
  EXPECT_THAT(
      run<float>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.fold_down(Fold::Max, tl.load(kIn, 3, 2, 2, DType::Float32))); },
          2),
      ElementsAre(testing::NanSensitiveFloatEq(kNan), 5));
  put<int32_t>(kIn, {1 << 30, 3, 4, 2});
  EXPECT_THAT(
      run<int32_t>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.fold(Fold::Prod, tl.load(kIn, 2, 2, 2, DType::Int32))); }, 2),
      ElementsAre(static_cast<int32_t>(uint32_t{3} << 30), 8));
  EXPECT_THAT(
      run<float>([](Tl& tl, const Args&) { tl.store(kOut, tl.fold(Fold::Min, tl.zeros(1, 0, DType::Float32))); }, 1),
      ElementsAre(std::numeric_limits<float>::infinity()));
}

TEST_F(TileVerbs, ScanArgAndTriangle) {
  put<float>(kIn, {1, 2, 3, 10, 10, 9});
  EXPECT_THAT(
      run<float>([](Tl& tl, const Args&) { tl.store(kOut, tl.scan(tl.load(kIn, 2, 3, 3, DType::Float32))); }, 6),
      ElementsAre(1, 3, 6, 10, 20, 29));
  EXPECT_THAT(
      run<int64_t>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.arg(Fold::Max, tl.load(kIn, 2, 3, 3, DType::Float32))); }, 2),
      ElementsAre(2, 0));
  EXPECT_THAT(run<float>(
                  [](Tl& tl, const Args&) {
                    tl.store(kOut, tl.triangle(tl.load(kIn, 2, 3, 3, DType::Float32), false, 0, 0, -1));
                  },
                  6),
              ElementsAre(1, -1, -1, 10, 10, -1));
  EXPECT_THAT(
      run<float>([](Tl& tl,
                    const Args&) { tl.store(kOut, tl.triangle(tl.load(kIn, 2, 3, 3, DType::Float32), true, 1, 1, 0)); },
                 6),
      ElementsAre(0, 0, 3, 0, 0, 0));
}

TEST_F(TileVerbs, NewFunctionsAndCasts) {
  put<float>(kIn, {2, -3, 0.5f});
  EXPECT_THAT(run<float>(
                  [](Tl& tl, const Args&) {
                    tl.store(kOut,
                             tl.binary(Binary::Pow, tl.unary(Unary::Square, tl.load(kIn, 3, DType::Float32)), 0.5));
                  },
                  3),
              ElementsAre(2, 3, 0.5f));
  EXPECT_THAT(
      run<float>([](Tl& tl, const Args&) { tl.store(kOut, tl.unary(Unary::Sign, tl.load(kIn, 3, DType::Float32))); },
                 3),
      ElementsAre(1, -1, 1));
  put<int32_t>(kIn, {3, -2});
  EXPECT_THAT(
      run<int32_t>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.binary(Binary::Pow, tl.load(kIn, 2, DType::Int32), 5)); }, 2),
      ElementsAre(243, -32));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.binary(Binary::Pow, tl.load(kIn, 2, DType::Int32), -1); }),
              HasSubstr("negative power"));
  // Halfway between two numbers of bf16: to the even one, in one rounding.
  put<float>(kIn, {1 + 0x1p-8f, 1 + 0x3p-8f});
  EXPECT_THAT(
      run<uint16_t>(
          [](Tl& tl, const Args&) { tl.store(kOut, tl.cast(tl.load(kIn, 2, DType::Float32), DType::BFloat16)); }, 2),
      ElementsAre(0x3F80, 0x3F82));
}

}  // namespace
}  // namespace ahbm::tl
