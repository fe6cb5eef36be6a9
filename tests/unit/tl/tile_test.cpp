// Tiles, GEMM, built-in kernels and the registry, on the twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "models/core/errors.h"
#include "models/tl/builtin_kernels.h"
#include "models/tl/twin.h"

namespace ahbm::tl {
namespace {

using ::testing::HasSubstr;

constexpr Addr kBase = hbm_address(SipId{0}, CubeId{0}, 1 << 20);

/// One PE that runs a lambda without captures.
struct OnePe : ::testing::Test {
  OnePe() : twin(config()) {}
  static TwinConfig config() {
    TwinConfig c;
    c.shape.sips = c.shape.cubes = c.shape.pes = 1;
    return c;
  }
  void run(KernelFn kernel, std::vector<uint64_t> args = {}) { twin.run({{0, kernel, std::move(args), {}}}); }
  std::string error_of(KernelFn kernel, std::vector<uint64_t> args = {}) {
    try {
      run(kernel, std::move(args));
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  }
  void put(DType t, Addr at, const std::vector<double>& values) {
    std::vector<uint8_t> raw(values.size() * item_bytes(t));
    for (size_t i = 0; i < values.size(); ++i) store_element(t, raw.data(), i, values[i]);
    if (!raw.empty()) twin.write(at, raw.data(), raw.size());
  }
  std::vector<double> get(DType t, Addr at, uint64_t n) {
    std::vector<uint8_t> raw(n * item_bytes(t));
    if (n != 0) twin.read(at, raw.data(), raw.size());
    std::vector<double> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = load_element(t, raw.data(), i);
    return out;
  }
  Twin twin;
};

float value_at(const Tile& x, uint64_t i) {
  return static_cast<float>(load_element(x.dtype(), x.data(), i));
}

TEST_F(OnePe, StridedLoadAndStore) {
  std::vector<double> values(30);
  for (size_t i = 0; i < 30; ++i) values[i] = static_cast<double>(i);
  put(DType::Float32, kBase, values);
  run([](Tl& tl, const Args&) {
    const Tile x = tl.load(kBase + 4 * 2, 3, 4, 10, DType::Float32);
    EXPECT_EQ(x.rows(), 3u);
    EXPECT_EQ(x.cols(), 4u);
    EXPECT_EQ(value_at(x, 4), 12.0f);
    tl.store(kBase + 4096, x, 5);
  });
  EXPECT_EQ(get(DType::Float32, kBase + 4096, 14),
            (std::vector<double>{2, 3, 4, 5, 0, 12, 13, 14, 15, 0, 22, 23, 24, 25}));
}

TEST_F(OnePe, ElementwiseAndBroadcast) {
  run([](Tl& tl, const Args&) {
    const DType t = DType::Float32;
    Tile row = tl.full(1, 3, t, 2.0), column = tl.full(2, 1, t, 10.0), x = tl.full(2, 3, t, 5.0);
    EXPECT_EQ(value_at(tl.add(x, row), 5), 7.0f);
    EXPECT_EQ(value_at(tl.binary(Binary::Sub, x, column), 3), -5.0f);
    EXPECT_EQ(value_at(tl.mul(x, x), 0), 25.0f);
    EXPECT_EQ(value_at(tl.binary(Binary::Div, x, 2.0), 4), 2.5f);
    EXPECT_EQ(value_at(tl.maximum(x, column), 1), 10.0f);
    EXPECT_EQ(value_at(tl.exp(tl.zeros(1, 1, t)), 0), 1.0f);
    EXPECT_EQ(value_at(tl.sum_rows(x), 1), 15.0f);
    EXPECT_EQ(value_at(tl.max_rows(tl.add(x, row)), 0), 7.0f);
    EXPECT_FLOAT_EQ(value_at(tl.unary(Unary::Gelu, tl.full(1, 1, t, 1.0)), 0), 0.8413447f);
    EXPECT_FLOAT_EQ(value_at(tl.unary(Unary::Silu, tl.full(1, 1, t, 1.0)), 0), 0.7310586f);
    EXPECT_EQ(value_at(tl.unary(Unary::Relu, tl.full(1, 1, t, -1.0)), 0), 0.0f);
    EXPECT_TRUE(std::isnan(value_at(tl.unary(Unary::Relu, tl.full(1, 1, t, std::nan(""))), 0)));
  });
}

TEST_F(OnePe, NarrowTypesRoundPerOperationAndIntegersWrap) {
  run([](Tl& tl, const Args&) {
    const Tile b = tl.full(1, 5, DType::BFloat16, 256.0);
    EXPECT_EQ(value_at(tl.binary(Binary::Add, b, 1.0), 4), 256.0f);
    EXPECT_EQ(value_at(tl.cast(tl.full(1, 1, DType::Float32, 257.5), DType::BFloat16), 0), 258.0f);
    const Tile i = tl.full(1, 3, DType::Int32, 2147483647.0);
    EXPECT_EQ(load_element(DType::Int32, tl.binary(Binary::Add, i, 1.0).data(), 2), -2147483648.0);
    EXPECT_EQ(load_element(DType::Int32, tl.binary(Binary::Div, i, -2.0).data(), 0), -1073741823.0);
    EXPECT_EQ(load_element(DType::Int32, tl.cast(tl.full(1, 1, DType::Float32, -2.7), DType::Int32).data(), 0), -2.0);
    // A sum of rows is rounded once: 256 + 1 + 1 is 258, although 256 + 1 alone would be 256.
    Tile x = tl.full(1, 3, DType::BFloat16, 1.0);
    store_element(DType::BFloat16, const_cast<void*>(x.data()), 0, 256.0);
    EXPECT_EQ(value_at(tl.sum_rows(x), 0), 258.0f);
  });
}

TEST_F(OnePe, EveryIntegerTypeWraps) {
  run([](Tl& tl, const Args&) {
    const auto element = [](const Tile& x) { return load_element(x.dtype(), x.data(), 0); };
    const Tile small = tl.full(1, 40, DType::Int8, 100), byte = tl.full(1, 40, DType::UInt8, 200);
    EXPECT_EQ(element(tl.add(small, small)), -56);
    EXPECT_EQ(element(tl.mul(byte, byte)), 64);
    EXPECT_EQ(element(tl.binary(Binary::Mul, small, 2.0)), -56);
    EXPECT_EQ(element(tl.binary(Binary::Sub, byte, 201.0)), 255);
    EXPECT_EQ(element(tl.unary(Unary::Neg, byte)), 56);
    EXPECT_EQ(element(tl.unary(Unary::Abs, tl.full(1, 1, DType::Int8, -128))), -128);
    EXPECT_EQ(element(tl.fold(Fold::Sum, small)), 4000 % 256 - 256 * (4000 % 256 > 127));
    EXPECT_EQ(element(tl.fold(Fold::Max, byte)), 200);
    const int64_t large = (int64_t{1} << 62) + 3;
    Tile wide = tl.full(1, 2, DType::Int64, 0);
    std::memcpy(const_cast<void*>(wide.data()), &large, sizeof large);
    const Tile twice = tl.add(wide, wide);
    int64_t got = 0;
    std::memcpy(&got, twice.data(), sizeof got);
    EXPECT_EQ(got, std::numeric_limits<int64_t>::min() + 6);
    std::memcpy(&got, tl.binary(Binary::Sub, wide, 1.0).data(), sizeof got);
    EXPECT_EQ(got, large - 1);
    std::memcpy(&got, tl.fold(Fold::Max, wide).data(), sizeof got);
    EXPECT_EQ(got, large);
  });
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.add(tl.zeros(1, 1, DType::Bool), tl.zeros(1, 1, DType::Bool)); }),
              HasSubstr("add on bool"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.binary(Binary::Mul, tl.zeros(1, 1, DType::Int8), 0.5); }),
              HasSubstr("scale on int8"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.dot(tl.zeros(1, 1, DType::Int64), tl.zeros(1, 1, DType::Int64)); }),
              HasSubstr("dot on int64"));
}

TEST_F(OnePe, ErrorsNameShapesAndTypes) {
  EXPECT_THAT(
      error_of([](Tl& tl, const Args&) { tl.add(tl.zeros(2, 3, DType::Float32), tl.zeros(3, 2, DType::Float32)); }),
      HasSubstr("add of 2x3 and 3x2"));
  EXPECT_THAT(
      error_of([](Tl& tl, const Args&) { tl.mul(tl.zeros(1, 1, DType::Float32), tl.zeros(1, 1, DType::Int32)); }),
      HasSubstr("mul of float and int32"));
  EXPECT_THAT(
      error_of([](Tl& tl, const Args&) { tl.dot(tl.zeros(2, 3, DType::Float32), tl.zeros(2, 3, DType::Float32)); }),
      HasSubstr("dot of 2x3 and 2x3: the inner sizes differ"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.exp(tl.zeros(1, 1, DType::Int8)); }), HasSubstr("exp on int8"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.exp(tl.zeros(1, 1, DType::Int32)); }), HasSubstr("exp on int32"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.exp(Tile()); }), HasSubstr("exp of an empty tile"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.zeros(1024, 1024, DType::Float32); }),
              HasSubstr("a tile of 4194304 bytes does not fit: 0 of 1048576 bytes"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) {
                tl.binary(Binary::Div, tl.zeros(1, 2, DType::Int32), tl.zeros(1, 2, DType::Int32));
              }),
              HasSubstr("integer division by 0"));
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.load(kBase, 2, 4, 3, DType::Float32); }),
              HasSubstr("a row stride of 3 elements for rows of 4"));
}

TEST_F(OnePe, TcmIsGivenBackWithTheLastCopy) {
  run([](Tl& tl, const Args&) {
    for (int i = 0; i < 100; ++i) {
      Tile x = tl.zeros(1, 200000, DType::Float32);  // 800,000 of 1,048,576 bytes
      const Tile y = x;
      x = Tile();
      EXPECT_EQ(y.size(), 200000u);
    }
  });
}

TEST_F(OnePe, GemmOfEveryShape) {
  struct Shape {
    uint64_t m, n, k;
  };
  std::mt19937 rng(2);
  for (const Shape& s : {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{128, 128, 128}, Shape{130, 129, 257}, Shape{2, 3, 0}}) {
    for (DType t : {DType::Float32, DType::BFloat16, DType::Int32}) {
      const uint64_t lda = s.k + 1, ldb = s.n + 2, ldc = s.n + 3;
      std::vector<double> a(s.m * lda), b(s.k * ldb);
      for (double& v : a) v = static_cast<double>(rng() % 5) - 2;
      for (double& v : b) v = static_cast<double>(rng() % 5) - 2;
      const Addr at_b = kBase + (4 << 20), at_c = kBase + (8 << 20);
      put(t, kBase, a);
      put(t, at_b, b);
      put(t, at_c, std::vector<double>(s.m * ldc, 77));
      run(
          [](Tl& tl, const Args& x) {
            tl.gemm(x.u64(0), x.u64(1), x.u64(2), x.u64(3), x.u64(4), x.u64(5), x.u64(6), x.u64(7), x.u64(8),
                    static_cast<DType>(x.u64(9)));
          },
          {kBase, at_b, at_c, s.m, s.n, s.k, lda, ldb, ldc, static_cast<uint64_t>(t)});
      const auto c = get(t, at_c, s.m * ldc);
      for (uint64_t i = 0; i < s.m; ++i) {
        for (uint64_t j = 0; j < ldc; ++j) {
          double want = 77;  // between the rows nothing is written
          if (j < s.n) {
            want = 0;
            for (uint64_t p = 0; p < s.k; ++p) want += a[i * lda + p] * b[p * ldb + j];  // small integers: exact
          }
          ASSERT_EQ(c[i * ldc + j], want)
              << to_string(t) << " " << s.m << "x" << s.n << "x" << s.k << " " << i << " " << j;
        }
      }
    }
  }
}

TEST_F(OnePe, BuiltInKernelsOfAnyLength) {
  constexpr uint64_t kLarge = 1500000;  // 6 MB: more than the TCM
  for (uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{16384}, uint64_t{16385}, kLarge}) {
    const Addr a = kBase, b = kBase + (16 << 20), c = kBase + (32 << 20);
    const auto f32 = static_cast<uint64_t>(DType::Float32);
    run(fill_kernel, {a, n, pack_f64(1.5), f32});
    run(fill_kernel, {b, n, pack_f64(-0.25), f32});
    run(add_kernel, {a, b, c, n, f32});
    run(scale_kernel, {c, c, n, pack_f64(4.0), f32});
    run(copy_kernel, {c, a, n, f32});
    const auto got = get(DType::Float32, a, n + 1);
    for (uint64_t i = 0; i < n; ++i) ASSERT_EQ(got[i], 5.0) << i << " of " << n;
    EXPECT_EQ(got[n], 0.0);
  }
}

TEST_F(OnePe, BuiltInKernelsOfEveryDType) {
  for (DType t : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32, DType::Int8, DType::UInt8,
                  DType::Int64, DType::Bool}) {
    const auto word = static_cast<uint64_t>(t);
    run(fill_kernel, {kBase, 33, pack_f64(1.0), word});
    const Addr copy = kBase + 4096 * (1 + word);
    run(copy_kernel, {kBase, copy, 33, word});
    EXPECT_EQ(get(t, copy, 34), [] {
      std::vector<double> want(34, 1.0);
      want[33] = 0.0;
      return want;
    }());
    const std::string add = error_of(add_kernel, {kBase, kBase, kBase, 33, word});
    EXPECT_EQ(add.empty(), has_arithmetic(t)) << add;
    const std::string scale = error_of(scale_kernel, {kBase, kBase, 0, pack_f64(2), word});
    EXPECT_EQ(scale.empty(), has_arithmetic(t)) << scale;
  }
  EXPECT_THAT(error_of(fill_kernel, {kBase, 1, 0, 12}), HasSubstr("argument 3: 12 is not the number of a dtype"));
  EXPECT_THAT(error_of(fill_kernel, {kBase, 1}), HasSubstr("argument 3 asked for, but the launch has 2"));
}

TEST(KernelRegistry, NamesAndIds) {
  KernelRegistry r;
  register_builtin_kernels(r);
  register_builtin_kernels(r);  // the same again is fine
  ASSERT_EQ(r.entries().size(), 5u);
  EXPECT_EQ(r.find("fill")->id, 1u);
  EXPECT_EQ(r.find(4)->name, "scale");
  EXPECT_EQ(r.find(uint32_t{0}), nullptr);
  EXPECT_EQ(r.find(5)->name, "copy_blocks");
  EXPECT_EQ(r.find(6), nullptr);
  EXPECT_EQ(r.find("nothing"), nullptr);
  EXPECT_THROW(r.add("fill", copy_kernel), std::invalid_argument);
  EXPECT_THROW(r.add("", copy_kernel), std::invalid_argument);
  EXPECT_THROW(r.add("null", nullptr), std::invalid_argument);
}

TEST(Names, Directions) {
  EXPECT_EQ(to_string(Dir::N), "N");
  EXPECT_EQ(to_string(Dir::GlobalW), "GLOBAL_W");
  EXPECT_EQ(to_string(Dir::Next), "NEXT");
  EXPECT_EQ(to_string(peer_dir(5)), "PEER_5");
  EXPECT_EQ(to_string(static_cast<Dir>(40)), "DIR_40");
}

}  // namespace
}  // namespace ahbm::tl
