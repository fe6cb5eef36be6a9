// Operators that compute, on every policy and dtype, against sums in double on the host.
#include <gmock/gmock.h>

#include "models/core/errors.h"
#include "tests/operators/bench.h"
#include "tests/support/sim_test.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::SimTest;
using testing::HasSubstr;

class ComputeTest : public SimTest {};

const double kInf = std::numeric_limits<double>::infinity();

std::string name(const std::string& op, const Shape& shape, const DPPolicy& p) {
  return op + " " + layout::to_string(shape) + " " + layout::to_string(p);
}
Array mapped(const Array& a, const std::function<double(double)>& f) {
  Array out = a;
  for (double& x : out.v) x = f(x);
  return out;
}
/// Element of an operand that is broadcast to the position.
double at(const Array& a, const Shape& position) {
  Shape own(position.end() - static_cast<std::ptrdiff_t>(a.shape.size()), position.end());
  for (size_t d = 0; d < own.size(); ++d) own[d] = a.shape[d] == 1 ? 0 : own[d];
  return a(own);
}

TEST_F(ComputeTest, UnaryFunctions) {
  Machine m(tiny(1));
  run([&] {
    struct Case {
      const char* name;
      Tensor (*f)(const Tensor&);
      double (*expected)(double);
      double low;
    };
    const Case cases[] = {
        {"exp", exp, [](double x) { return std::exp(x); }, -3},
        {"log", log, [](double x) { return std::log(x); }, 0.1},
        {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.1},
        {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.1},
        {"reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.1},
        {"sin", sin, [](double x) { return std::sin(x); }, -3},
        {"cos", cos, [](double x) { return std::cos(x); }, -3},
        {"tanh", tanh, [](double x) { return std::tanh(x); }, -3},
        {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -3},
        {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, -3},
        {"gelu", gelu, [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }, -3},
        {"relu", relu, [](double x) { return std::max(x, 0.0); }, -3},
        {"abs", abs, [](double x) { return std::fabs(x); }, -3},
        {"square", square, [](double x) { return x * x; }, -3},
        {"sign", sign, [](double x) { return double((x > 0) - (x < 0)); }, -3},
        {"neg", [](const Tensor& x) { return -x; }, [](double x) { return -x; }, -3},
    };
    for (const Case& c : cases) {
      const Array a = random({5, 7}, 1, DType::Float32, c.low, 3);
      for (const DPPolicy& p :
           {policy(CubePolicy::RowWise), policy(CubePolicy::ColumnWise), policy(CubePolicy::Replicate)}) {
        expect_near(c.f(to_device(m.ctx, a, DType::Float32, p)), mapped(a, c.expected), name(c.name, a.shape, p));
      }
      const Array h = random({33}, 2, DType::BFloat16, c.low, 3);
      expect_near(c.f(to_device(m.ctx, h, DType::BFloat16)), mapped(h, c.expected), c.name, 0x1p-8, 0x1p-9);
      expect_same(c.f(to_device(m.ctx, Array({0, 3}))), Array({0, 3}), c.name);
    }
    const Array i = random({40}, 3, DType::Int32, -9, 9);
    expect_same(-to_device(m.ctx, i, DType::Int32), mapped(i, [](double x) { return -x; }), "neg");
    expect_same(square(to_device(m.ctx, i, DType::Int32)), mapped(i, [](double x) { return x * x; }), "square");
    const std::string text = message_of<NotImplementedError>([&] { exp(to_device(m.ctx, i, DType::Int32)); });
    EXPECT_EQ(text, "exp: on int32: expected a floating type; cast first");
    EXPECT_THAT(message_of<NotImplementedError>([&] { -m.ctx.zeros({2}, DType::Bool); }), HasSubstr("on bool"));
  });
}

TEST_F(ComputeTest, BinaryFunctionsBroadcastOnEveryPolicy) {
  Machine m(tiny(1));
  run([&] {
    const std::vector<std::pair<Shape, Shape>> shapes = {{{6, 5, 4}, {6, 5, 4}},
                                                         {{6, 5, 4}, {4}},
                                                         {{6, 5, 4}, {5, 4}},
                                                         {{6, 5, 4}, {6, 1, 1}},
                                                         {{6, 5, 4}, {6, 5, 1}},
                                                         {{6, 5, 4}, {1, 5, 1}},
                                                         {{6, 5, 4}, {}},
                                                         {{4}, {6, 5, 4}},
                                                         {{6, 1}, {1, 7}},
                                                         {{1, 1}, {3}},
                                                         {{}, {}},
                                                         {{0, 4}, {4}},
                                                         {{1, 300}, {40, 1}},
                                                         {{40, 300}, {300}},
                                                         {{2, 1, 3}, {4, 1}}};
    for (const auto& [sa, sb] : shapes) {
      const Array a = random(sa, 4), b = random(sb, 5);
      Shape out(std::max(sa.size(), sb.size()), 1);
      for (size_t d = 0; d < out.size(); ++d) {
        const uint64_t x = d < sa.size() ? sa[sa.size() - 1 - d] : 1, y = d < sb.size() ? sb[sb.size() - 1 - d] : 1;
        out[out.size() - 1 - d] = x == 1 ? y : x;
      }
      for (const DPPolicy& p : policies()) {
        for (const DPPolicy& q :
             {p, policy(CubePolicy::RowWise), policy(CubePolicy::ColumnWise, PePolicy::Replicate)}) {
          const Tensor x = to_device(m.ctx, a, DType::Float32, p), y = to_device(m.ctx, b, DType::Float32, q);
          const Tensor r = x - y;
          expect_near(r, make_array(out, [&](const Shape& i) { return at(a, i) - at(b, i); }),
                      name("sub", sb, p) + " " + layout::to_string(q));
          EXPECT_EQ(r.policy(), x.policy());
        }
      }
    }
  });
}

TEST_F(ComputeTest, BinaryFunctionsOnDtypes) {
  Machine m(tiny(1));
  run([&] {
    const Array a = random({9, 6}, 6, DType::Int32, 1, 9), b = random({9, 6}, 7, DType::Int32, 1, 5);
    for (const DType t : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32}) {
      const Tensor x = to_device(m.ctx, a, t), y = to_device(m.ctx, b, t);
      const auto check = [&](const char* what, const Tensor& got, const std::function<double(double, double)>& f) {
        EXPECT_EQ(got.dtype(), t);
        const double tolerance = t == DType::Float32 ? 1e-6 : 0x1p-8;
        expect_near(got, make_array(a.shape, [&](const Shape& i) { return f(a(i), b(i)); }),
                    std::string(what) + " " + to_string(t), is_floating(t) ? tolerance : 0);
      };
      check("add", x + y, [](double p, double q) { return p + q; });
      check("mul", x * y, [](double p, double q) { return p * q; });
      check("maximum", maximum(x, y), [](double p, double q) { return std::max(p, q); });
      check("minimum", minimum(x, y), [](double p, double q) { return std::min(p, q); });
      check("pow", pow(x, y), [](double p, double q) { return std::pow(p, q); });
      check("add 2", x + 2.0, [](double p, double) { return p + 2; });
      check("3 -", 3.0 - x, [](double p, double) { return 3 - p; });
      check("pow 2", pow(x, 2.0), [](double p, double) { return p * p; });
      check("minimum 4", minimum(x, 4), [](double p, double) { return std::min(p, 4.0); });
      if (!is_floating(t)) continue;
      check("div", x / y, [](double p, double q) { return p / q; });
      check("div 4", x / 4.0, [](double p, double) { return p / 4; });
      check("1 /", 1.0 / x, [](double p, double) { return 1 / p; });
    }
    // Mixed dtypes are promoted.
    const Tensor mixed = to_device(m.ctx, a, DType::BFloat16) + to_device(m.ctx, b, DType::Float32);
    EXPECT_EQ(mixed.dtype(), DType::Float32);
    expect_near(mixed, make_array(a.shape, [&](const Shape& i) { return a(i) + b(i); }), "mixed");
    EXPECT_EQ((to_device(m.ctx, a, DType::Int32) * to_device(m.ctx, b)).dtype(), DType::Float32);
    const Tensor whole = to_device(m.ctx, a, DType::Int32);
    message_of<NotImplementedError>([&] { whole / whole; });
    message_of<NotImplementedError>([&] { whole + 0.5; });
    message_of<NotImplementedError>([&] { pow(whole, -1.0); });
  });
}

TEST_F(ComputeTest, ComparisonsAndChoices) {
  Machine m(tiny(1));
  run([&] {
    for (const DType t : {DType::Float32, DType::Int32, DType::Int64, DType::BFloat16, DType::UInt8}) {
      const Array a = random({7, 5}, 8, t, 0, 4), b = random({7, 5}, 9, t, 0, 4);
      const Tensor x = to_device(m.ctx, a, t), y = to_device(m.ctx, b, t, policy(CubePolicy::ColumnWise));
      const auto check = [&](const char* what, const Tensor& got, const std::function<double(double, double)>& f) {
        EXPECT_EQ(got.dtype(), DType::Bool);
        expect_same(got, make_array(a.shape, [&](const Shape& i) { return f(a(i), b(i)); }), what);
      };
      check("eq", x == y, [](double p, double q) { return p == q; });
      check("ne", x != y, [](double p, double q) { return p != q; });
      check("lt", x < y, [](double p, double q) { return p < q; });
      check("ge", x >= y, [](double p, double q) { return p >= q; });
      check("gt 1.5", x > 1.5, [](double p, double) { return p > 1.5; });
      check("le 2", x <= 2, [](double p, double) { return p <= 2; });
      check("and", logical_and(x, y), [](double p, double q) { return p != 0 && q != 0; });
      check("or", logical_or(x, y), [](double p, double q) { return p != 0 || q != 0; });
      check("not", logical_not(x), [](double p, double) { return p == 0; });
      expect_same(where(x < y, x, y), make_array(a.shape, [&](const Shape& i) { return std::min(a(i), b(i)); }),
                  "where");
      expect_same(masked_fill(x, x == y, 3),
                  make_array(a.shape, [&](const Shape& i) { return a(i) == b(i) ? 3 : a(i); }), "masked_fill");
      EXPECT_TRUE(equal(x, to_device(m.ctx, a, t, policy(CubePolicy::Replicate))));
      EXPECT_FALSE(equal(x, y));
    }
    EXPECT_FALSE(equal(m.ctx.zeros({3}), m.ctx.zeros({4})));
    EXPECT_TRUE(equal(m.ctx.zeros({0}), m.ctx.zeros({0})));
  });
}

TEST_F(ComputeTest, InPlace) {
  Machine m(tiny(1));
  run([&] {
    for (const DPPolicy& p : policies()) {
      const Array a = random({6, 5}, 10), b = random({5}, 11);
      const Tensor x = to_device(m.ctx, a, DType::Float32, p);
      const auto* handle = x.handle().get();
      x += to_device(m.ctx, b);
      x *= 2;
      EXPECT_EQ(x.handle().get(), handle);
      expect_near(x, make_array(a.shape, [&](const Shape& i) { return (a(i) + b({i[1]})) * 2; }),
                  name("+=", a.shape, p));
      x -= x;
      expect_same(x, Array(a.shape), "x -= x");
      copy_(x, to_device(m.ctx, b, DType::Float32, policy(CubePolicy::ColumnWise)));
      expect_same(x, make_array(a.shape, [&](const Shape& i) { return b({i[1]}); }), name("copy_", a.shape, p));
      fill_(x, 3);
      expect_same(x, Array(a.shape, 3), "fill_");
      zero_(x);
      expect_same(x, Array(a.shape, 0), "zero_");
      expect_same(full_like(x, 4), Array(a.shape, 4), "full_like");
      expect_same(ones_like(x), Array(a.shape, 1), "ones_like");
      EXPECT_EQ(empty_like(x).shape(), a.shape);
      expect_same(cast(to_device(m.ctx, a, DType::Float32, p), DType::Int32),
                  mapped(a, [](double v) { return std::trunc(v); }), "cast");
    }
    const auto row = [](std::vector<double> v) {
      Array out({v.size()});
      out.v = std::move(v);
      return out;
    };
    const Array wide = row({300, -200, 4294967301, 200});
    const Tensor integers = to_device(m.ctx, wide, DType::Int64);
    expect_same(cast(integers, DType::Int8), row({44, 56, 5, -56}), "int64 to int8 wraps");
    expect_same(cast(integers, DType::UInt8), row({44, 56, 5, 200}), "int64 to uint8 wraps");
    expect_same(cast(integers, DType::Int32), row({300, -200, 5, 200}), "int64 to int32 wraps");
    // A view that shares the memory, added to itself in another order of broadcasting.
    const Array a = random({8, 8}, 12);
    const Tensor x = to_device(m.ctx, a);
    x += t(x);
    expect_near(x, make_array(a.shape, [&](const Shape& i) { return a(i) + a({i[1], i[0]}); }), "x += x.t()");
  });
}

/// Calls f(rest, elements) for every position that a reduction leaves (with reduced extents as 1).
Array reduce(const Array& a, const Sizes& dims, bool keepdim,
             const std::function<double(const std::vector<double>&)>& f) {
  Shape kept = a.shape, reduced = a.shape, out;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const bool gone = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    (gone ? kept : reduced)[d] = 1;
    if (!gone) out.push_back(a.shape[d]);
    if (gone && keepdim) out.push_back(1);
  }
  Array result(out);
  size_t n = 0;
  for_each(kept, [&](const Shape& k) {
    std::vector<double> elements;
    for_each(reduced, [&](const Shape& r) {
      Shape i(k.size());
      for (size_t d = 0; d < i.size(); ++d) i[d] = k[d] + r[d];
      elements.push_back(a(i));
    });
    result.v[n++] = f(elements);
  });
  return result;
}
double total(const std::vector<double>& v) {
  double s = 0;
  for (const double x : v) s += x;
  return s;
}
double variance(const std::vector<double>& v) {
  const double mean = total(v) / static_cast<double>(v.size());
  double s = 0;
  for (const double x : v) s += (x - mean) * (x - mean);
  return s / (static_cast<double>(v.size()) - 1);
}

TEST_F(ComputeTest, ReductionsOverAnyDimensions) {
  Machine m(tiny(1));
  run([&] {
    const std::vector<std::pair<Shape, std::vector<Sizes>>> cases = {
        {{6, 5, 7}, {{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}}},
        {{1, 33}, {{0}, {1}, {0, 1}}},
        {{50}, {{0}}},
        {{}, {{}}},
        {{3, 1, 4, 2}, {{1, 3}, {0, 3}}},
    };
    for (const auto& one : cases) {
      const Shape& shape = one.first;  // no structured binding: a lambda below takes it
      const Array a = random(shape, 13);
      for (const DPPolicy& p : policies()) {
        const Tensor x = to_device(m.ctx, a, DType::Float32, p);
        for (const Sizes& dims : one.second) {
          for (const bool keep : {false, true}) {
            const std::string what = name("over " + dtensor::to_string(dims), shape, p);
            expect_near(sum(x, dims, keep), reduce(a, dims, keep, total), "sum " + what);
            const auto largest = [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); };
            expect_same(max(x, dims, keep), reduce(a, dims, keep, largest), "max " + what);
            expect_same(argmax(x, dims.size() == 1 ? std::optional<int64_t>(dims[0]) : std::nullopt, keep),
                        reduce(a, dims.size() == 1 || shape.empty() ? dims : [&] {
                          Sizes every;
                          for (size_t d = 0; d < shape.size(); ++d) every.push_back(static_cast<int64_t>(d));
                          return every;
                        }(), keep, [](const std::vector<double>& v) {
                          return static_cast<double>(std::max_element(v.begin(), v.end()) - v.begin());
                        }), "argmax " + what);
          }
          const std::string what = name("over " + dtensor::to_string(dims), shape, p);
          expect_near(mean(x, dims),
                      reduce(a, dims, false,
                             [](const std::vector<double>& v) { return total(v) / static_cast<double>(v.size()); }),
                      "mean " + what);
          expect_same(min(x, dims),
                      reduce(a, dims, false,
                             [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }),
                      "min " + what);
          expect_near(norm(x, 2, dims),
                      reduce(a, dims, false,
                             [](const std::vector<double>& v) {
                               double s = 0;
                               for (const double e : v) s += e * e;
                               return std::sqrt(s);
                             }),
                      "norm " + what);
          expect_near(var(x, dims), reduce(a, dims, false, variance), "var " + what);
          expect_near(std(x, dims),
                      reduce(a, dims, false, [](const std::vector<double>& v) { return std::sqrt(variance(v)); }),
                      "std " + what);
          expect_near(logsumexp(x, dims),
                      reduce(a, dims, false,
                             [](const std::vector<double>& v) {
                               double s = 0;
                               for (const double e : v) s += std::exp(e);
                               return std::log(s);
                             }),
                      "logsumexp " + what);
        }
      }
    }
  });
}

TEST_F(ComputeTest, OtherReductions) {
  Machine m(tiny(1));
  run([&] {
    const Array a = random({4, 30}, 14, DType::Float32, 0.5, 1.5);
    const Tensor x = to_device(m.ctx, a);
    expect_near(prod(x, Sizes{1}),
                reduce(a, {1}, false,
                       [](const std::vector<double>& v) {
                         double s = 1;
                         for (const double e : v) s *= e;
                         return s;
                       }),
                "prod");
    for (const double p : {0.0, 1.0, 3.0, kInf, -kInf}) {
      expect_near(norm(-1.0 * x, p, Sizes{0}),
                  reduce(a, {0}, false,
                         [p](const std::vector<double>& v) {
                           if (p == 0) return static_cast<double>(v.size());
                           if (std::isinf(p))
                             return p > 0 ? *std::max_element(v.begin(), v.end())
                                          : *std::min_element(v.begin(), v.end());
                           double s = 0;
                           for (const double e : v) s += std::pow(e, p);
                           return std::pow(s, 1 / p);
                         }),
                  "norm " + std::to_string(p));
    }
    const Array b = random({5, 3}, 15, DType::Bool, 0, 2);
    for (const DType t : {DType::Bool, DType::Int64, DType::Float32}) {
      const Tensor y = to_device(m.ctx, b, t);
      expect_same(
          all(y, Sizes{0}),
          reduce(b, {0}, false, [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }),
          "all");
      expect_same(
          any(y, Sizes{1}, true),
          reduce(b, {1}, true, [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }),
          "any");
    }
    // No elements.
    const Tensor none = m.ctx.zeros({3, 0});
    expect_same(sum(none, Sizes{1}), Array({3}, 0), "sum of nothing");
    expect_same(prod(none), Array({}, 1), "prod of nothing");
    expect_same(max(none, Sizes{1}), Array({3}, -kInf), "max of nothing");
    expect_same(min(none, Sizes{1}), Array({3}, kInf), "min of nothing");
    expect_same(all(none), Array({}, 1), "all of nothing");
    expect_same(mean(none), Array({}, std::nan("")), "mean of nothing");
    EXPECT_EQ(sum(none, Sizes{0}).shape(), (Shape{0}));
    message_of<std::invalid_argument>([&] { argmax(none, 1); });
    // int32, and a sum that rounds once.
    const Array i = random({40, 6}, 16, DType::Int32, -50, 50);
    expect_same(sum(to_device(m.ctx, i, DType::Int32), Sizes{0}), reduce(i, {0}, false, total), "int sum");
    expect_same(sum(m.ctx.ones({1000}, DType::BFloat16)), Array({}, 1000), "bf16 sum");
    message_of<NotImplementedError>([&] { mean(to_device(m.ctx, i, DType::Int32)); });
    // Longer than any tile, in one row and in many parts.
    const Array big = random({3, 40000}, 17, DType::Float32, 0, 1);
    expect_near(sum(to_device(m.ctx, big)), reduce(big, {0, 1}, false, total), "big sum");
    expect_near(sum(to_device(m.ctx, big), Sizes{1}), reduce(big, {1}, false, total), "big rows");
    expect_near(sum(to_device(m.ctx, big), Sizes{0}), reduce(big, {0}, false, total), "big columns");
  });
}

Array matmul_of(const Array& a, const Array& b) {
  const size_t na = a.shape.size(), nb = b.shape.size();
  const uint64_t rows = a.shape[na - 2], k = a.shape[na - 1], cols = b.shape[nb - 1];
  Shape shape(std::max(na, nb), 1);
  for (size_t d = 2; d < shape.size(); ++d) {
    const uint64_t x = d < na ? a.shape[na - 1 - d] : 1, y = d < nb ? b.shape[nb - 1 - d] : 1;
    shape[shape.size() - 1 - d] = x == 1 ? y : x;
  }
  shape[shape.size() - 2] = rows;
  shape[shape.size() - 1] = cols;
  return make_array(shape, [&](const Shape& i) {
    double s = 0;
    for (uint64_t q = 0; q < k; ++q) {
      Shape x = i, y = i;
      x[x.size() - 1] = q;
      y[y.size() - 2] = q;
      s += at(a, x) * at(b, y);
    }
    return s;
  });
}

TEST_F(ComputeTest, MatmulsOnEveryPolicy) {
  Machine m(tiny(1));
  run([&] {
    const std::vector<std::pair<Shape, Shape>> shapes = {
        {{5, 7}, {7, 3}},    {{1, 40}, {40, 130}},   {{33, 1}, {1, 9}},         {{4, 0}, {0, 6}},
        {{2, 6, 5}, {5, 4}}, {{3, 4, 5}, {3, 5, 2}}, {{2, 1, 3, 4}, {5, 4, 2}}, {{3, 4}, {2, 4, 5}},
        {{0, 4}, {4, 5}},    {{1, 3, 4}, {6, 4, 5}}};
    for (const auto& [sa, sb] : shapes) {
      const Array a = random(sa, 18), b = random(sb, 19);
      const Array expected = matmul_of(a, b);
      for (const DPPolicy& p : policies()) {
        for (const DPPolicy& q :
             {p, policy(CubePolicy::RowWise), policy(CubePolicy::ColumnWise, PePolicy::ColumnWise)}) {
          const Tensor c = matmul(to_device(m.ctx, a, DType::Float32, p), to_device(m.ctx, b, DType::Float32, q));
          expect_near(c, expected, name("matmul " + layout::to_string(sa), sb, p) + " " + layout::to_string(q), 1e-5,
                      1e-5);
        }
      }
    }
  });
}

TEST_F(ComputeTest, MatmulsAroundTileEdgesAndDtypes) {
  Machine m(tiny(1));
  run([&] {
    for (const auto& [rows, k, cols] :
         {std::array<uint64_t, 3>{129, 257, 130}, {128, 128, 128}, {300, 100, 1}, {7, 1000, 300}}) {
      const Array a = random({rows, k}, 20), b = random({k, cols}, 21);
      expect_near(mm(to_device(m.ctx, a), to_device(m.ctx, b)), matmul_of(a, b), "mm", 1e-5, 1e-4);
      const Array w = make_array({cols, k}, [&](const Shape& i) { return b({i[1], i[0]}); });
      expect_near(linear(to_device(m.ctx, a), to_device(m.ctx, w)), matmul_of(a, b), "linear", 1e-5, 1e-4);
    }
    for (const DType t : {DType::Float16, DType::BFloat16, DType::Int32}) {
      const Array a = random({9, 20}, 22, t, -4, 4), b = random({20, 8}, 23, t, -4, 4);
      const Tensor c = mm(to_device(m.ctx, a, t), to_device(m.ctx, b, t));
      EXPECT_EQ(c.dtype(), t);
      expect_near(c, matmul_of(a, b), to_string(t), t == DType::Int32 ? 0 : 0x1p-8, t == DType::Int32 ? 0 : 1e-3);
    }
    const Array v = random({20}, 24), w = random({20}, 25), a = random({6, 20}, 26);
    double d = 0;
    for (size_t i = 0; i < 20; ++i) d += v.v[i] * w.v[i];
    expect_near(dot(to_device(m.ctx, v), to_device(m.ctx, w)), Array({}, d), "dot", 1e-5, 1e-5);
    expect_near(matmul(to_device(m.ctx, a), to_device(m.ctx, v)),
                make_array({6},
                           [&](const Shape& i) {
                             double s = 0;
                             for (uint64_t k = 0; k < 20; ++k) s += a({i[0], k}) * v.v[k];
                             return s;
                           }),
                "matrix x vector", 1e-5, 1e-5);
    message_of<NotImplementedError>([&] { mm(m.ctx.zeros({2, 2}, DType::Int64), m.ctx.zeros({2, 2}, DType::Int64)); });
  });
}

TEST_F(ComputeTest, Biases) {
  Machine m(tiny(1));
  run([&] {
    const Array x = random({2, 9, 6}, 27), w = random({5, 6}, 28), b = random({5}, 29);
    const Array wt = make_array({6, 5}, [&](const Shape& i) { return w({i[1], i[0]}); });
    for (const DPPolicy& p : policies()) {
      Array expected = matmul_of(x, wt);
      expected = make_array(expected.shape, [&](const Shape& i) { return expected(i) + b({i[2]}); });
      expect_near(linear(to_device(m.ctx, x, DType::Float32, p), to_device(m.ctx, w, DType::Float32, p),
                         to_device(m.ctx, b, DType::Float32, p)),
                  expected, name("linear", x.shape, p));
      const Array a = random({9, 6}, 30), full = random({9, 5}, 31), column = random({9, 1}, 32);
      for (const Array& bias : {b, full, column}) {
        const Array product = matmul_of(a, wt);
        expect_near(addmm(to_device(m.ctx, bias, DType::Float32, p), to_device(m.ctx, a), to_device(m.ctx, wt)),
                    make_array(product.shape, [&](const Shape& i) { return product(i) + at(bias, i); }),
                    name("addmm", bias.shape, p));
      }
      const Array batch = random({2, 6, 5}, 33);
      const Array product = matmul_of(x, batch);
      expect_near(baddbmm(to_device(m.ctx, full, DType::Float32, p), to_device(m.ctx, x), to_device(m.ctx, batch)),
                  make_array(product.shape, [&](const Shape& i) { return product(i) + at(full, i); }), "baddbmm");
    }
    expect_near(addmm(to_device(m.ctx, b), m.ctx.zeros({4, 0}), m.ctx.zeros({0, 5})),
                make_array({4, 5}, [&](const Shape& i) { return b({i[1]}); }), "nothing to multiply");
  });
}

TEST_F(ComputeTest, RunsAreBitIdenticalAndCostTime) {
  Machine m(tiny(1));
  run([&] {
    const Tensor a = m.ctx.rand({200, 150}, 1), b = m.ctx.rand({150, 90}, 2);
    const Ps start = ahbm::test::now();
    const std::vector<uint8_t> first = sum(matmul(a, b), Sizes{0}).to_host_bytes();
    const Ps once = ahbm::test::now() - start;
    EXPECT_EQ(sum(matmul(a, b), Sizes{0}).to_host_bytes(), first);
    const Ps again = ahbm::test::now();
    matmul(a, m.ctx.rand({150, 900}, 2)).to_host_bytes();
    EXPECT_GT(ahbm::test::now() - again, once);
  });
}

// --- integers and bools

/// What `t` keeps of a whole number: it wraps.
double wrapped(DType t, int64_t v) {
  switch (t) {
    case DType::Int8:
      return static_cast<int8_t>(v);
    case DType::UInt8:
      return static_cast<uint8_t>(v);
    case DType::Int32:
      return static_cast<int32_t>(v);
    default:
      return static_cast<double>(v);
  }
}

TEST_F(ComputeTest, IntegersOfEveryWidthWrap) {
  Machine m(tiny(1));
  run([&] {
    for (const DType t : {DType::Int8, DType::UInt8, DType::Int32, DType::Int64}) {
      const double low = t == DType::UInt8 ? 0 : -100;
      const Array a = random({7, 9}, 51, t, low, 100), b = random({7, 9}, 52, t, low, 100);
      const std::pair<const char*, std::function<int64_t(int64_t, int64_t)>> functions[] = {
          {"add", [](int64_t x, int64_t y) { return x + y; }},
          {"sub", [](int64_t x, int64_t y) { return x - y; }},
          {"mul", [](int64_t x, int64_t y) { return x * y; }},
          {"max", [](int64_t x, int64_t y) { return std::max(x, y); }},
          {"min", [](int64_t x, int64_t y) { return std::min(x, y); }}};
      for (const DPPolicy& p : policies()) {
        const Tensor x = to_device(m.ctx, a, t, p), y = to_device(m.ctx, b, t);
        const Tensor got[] = {x + y, x - y, x * y, maximum(x, y), minimum(x, y)};
        for (size_t f = 0; f < 5; ++f) {
          Array wanted = a;
          for (size_t i = 0; i < a.v.size(); ++i) {
            wanted.v[i] = wrapped(t, functions[f].second(static_cast<int64_t>(a.v[i]), static_cast<int64_t>(b.v[i])));
          }
          EXPECT_EQ(got[f].dtype(), t);
          expect_same(got[f], wanted, std::string(functions[f].first) + " of " + to_string(t));
        }
        const auto with = [&](const std::function<int64_t(int64_t)>& f) {
          return mapped(a, [&](double v) { return wrapped(t, f(static_cast<int64_t>(v))); });
        };
        expect_same(x * 3.0, with([](int64_t v) { return v * 3; }), "times a number");
        expect_same(x + 100.0, with([](int64_t v) { return v + 100; }), "plus a number");
        expect_same(square(x), with([](int64_t v) { return v * v; }), "square");
        expect_same(-x, with([](int64_t v) { return -v; }), "neg");
        expect_same(pow(x, 3.0), with([](int64_t v) { return v * v * v; }), "pow");
      }
      message_of<NotImplementedError>([&] { to_device(m.ctx, a, t) * 0.5; });
      message_of<NotImplementedError>([&] { exp(to_device(m.ctx, a, t)); });
    }
    // More than a double holds.
    const int64_t large = (int64_t{1} << 60) + 1;
    const Tensor x = m.ctx.from_host<int64_t>({2}, DType::Int64, {large, -large});
    EXPECT_EQ((x + x).to_host<int64_t>(), (std::vector<int64_t>{2 * large, -2 * large}));
    EXPECT_EQ((x * 3.0).to_host<int64_t>(), (std::vector<int64_t>{3 * large, -3 * large}));
    EXPECT_EQ(max(x).to_host<int64_t>().front(), large);
    EXPECT_EQ(sum(x + x).to_host<int64_t>().front(), 0);
  });
}

TEST_F(ComputeTest, ReductionsOfIntegersAndBools) {
  Machine m(tiny(1));
  run([&] {
    const auto total = [](const std::vector<double>& v) {
      double out = 0;
      for (const double x : v) out += x;
      return out;
    };
    for (const DType t : {DType::Int8, DType::UInt8, DType::Int64, DType::Bool}) {
      const bool truth = t == DType::Bool;
      const Array a = random({24, 31}, 53, t, truth || t == DType::UInt8 ? 0 : -90, truth ? 2 : 90);
      for (const DPPolicy& p : policies()) {
        const Tensor x = to_device(m.ctx, a, t, p);
        for (const Sizes& dims : {Sizes{0}, Sizes{1}, Sizes{0, 1}}) {
          const std::string what = name("integers", a.shape, p) + to_string(t);
          EXPECT_EQ(sum(x, dims).dtype(), DType::Int64);
          expect_same(sum(x, dims), reduce(a, {dims.begin(), dims.end()}, false, total), what);
          EXPECT_EQ(max(x, dims).dtype(), t);
          expect_same(max(x, dims),
                      reduce(a, {dims.begin(), dims.end()}, false,
                             [](const auto& v) { return *std::max_element(v.begin(), v.end()); }),
                      what);
          expect_same(min(x, dims),
                      reduce(a, {dims.begin(), dims.end()}, false,
                             [](const auto& v) { return *std::min_element(v.begin(), v.end()); }),
                      what);
        }
        EXPECT_EQ(cumsum(x, 1).dtype(), DType::Int64);
        EXPECT_EQ(argmax(x, 1).dtype(), DType::Int64);
      }
    }
    // Sums that the narrow type does not hold.
    EXPECT_EQ(sum(m.ctx.full({300}, 127, DType::Int8)).to_host<int64_t>().front(), 38100);
    EXPECT_EQ(prod(m.ctx.full({5}, 100, DType::UInt8)).to_host<int64_t>().front(), 10000000000);
    EXPECT_EQ(cumsum(m.ctx.full({3}, 200, DType::UInt8), 0).to_host<int64_t>(), (std::vector<int64_t>{200, 400, 600}));
    const Array a = random({9}, 54, DType::Bool, 0, 2), b = random({9}, 55, DType::Bool, 0, 2);
    const Tensor x = to_device(m.ctx, a, DType::Bool), y = to_device(m.ctx, b, DType::Bool);
    Array either = a, both = a;
    for (size_t i = 0; i < a.v.size(); ++i) {
      either.v[i] = a.v[i] + b.v[i] > 0;
      both.v[i] = a.v[i] * b.v[i];
    }
    EXPECT_EQ((x + y).dtype(), DType::Bool);
    expect_same(x + y, either, "or");
    expect_same(x * y, both, "and");
    expect_same(maximum(x, y), either, "maximum");
    EXPECT_EQ((x + 2.0).dtype(), DType::Int64);
    expect_same(x + 2.0, mapped(a, [](double v) { return v + 2; }), "a number");
    EXPECT_THAT(message_of<NotImplementedError>([&] { x - y; }), HasSubstr("use logical_not"));
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
