// Operators of whole rows, lookups, attention and losses, against the host.
#include "models/core/errors.h"
#include "tests/operators/bench.h"
#include "tests/support/sim_test.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::SimTest;

class RowsTest : public SimTest {};

std::string name(const char* op, const Shape& shape, const DPPolicy& p) {
  return std::string(op) + " " + layout::to_string(shape) + " " + layout::to_string(p);
}

/// Replaces every line of the array along `dim` by f(line).
Array along(const Array& a, size_t dim, const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  Array out = a;
  Shape kept = a.shape;
  kept[dim] = 1;
  for_each(kept, [&](Shape i) {
    std::vector<double> line;
    for (uint64_t k = 0; k < a.shape[dim]; ++k) {
      i[dim] = k;
      line.push_back(a(i));
    }
    line = f(line);
    for (uint64_t k = 0; k < a.shape[dim]; ++k) {
      i[dim] = k;
      out.v[out.at(i)] = line[k];
    }
  });
  return out;
}
std::vector<double> softmax_of(std::vector<double> v) {
  double s = 0;
  for (double& x : v) s += x = std::exp(x);
  for (double& x : v) x /= s;
  return v;
}
std::vector<double> log_softmax_of(std::vector<double> v) {
  v = softmax_of(v);
  for (double& x : v) x = std::log(x);
  return v;
}
std::vector<double> cumsum_of(std::vector<double> v) {
  for (size_t i = 1; i < v.size(); ++i) v[i] += v[i - 1];
  return v;
}

TEST_F(RowsTest, SoftmaxAndCumsumAlongAnyDimension) {
  Machine m(tiny(1));
  run([&] {
    for (const Shape& shape : {Shape{6, 5, 7}, Shape{1, 33}, Shape{20}, Shape{3, 1}}) {
      const Array a = random(shape, 1);
      for (const DPPolicy& p : policies()) {
        const Tensor x = to_device(m.ctx, a, DType::Float32, p);
        for (size_t d = 0; d < shape.size(); ++d) {
          const auto dim = static_cast<int64_t>(d);
          expect_near(softmax(x, dim), along(a, d, softmax_of), name("softmax", shape, p));
          expect_near(log_softmax(x, dim), along(a, d, log_softmax_of), name("log_softmax", shape, p));
          expect_near(cumsum(x, dim), along(a, d, cumsum_of), name("cumsum", shape, p));
        }
      }
    }
    const Array big = random({2, 40000}, 2, DType::Float32, 0, 1);
    expect_near(softmax(to_device(m.ctx, big), 1), along(big, 1, softmax_of), "longer than a tile", 1e-5, 1e-12);
    expect_near(cumsum(to_device(m.ctx, big), 1), along(big, 1, cumsum_of), "longer than a tile", 1e-4);
    const Array tall = random({1, 40, 1000}, 3);
    expect_near(softmax(to_device(m.ctx, tall), 2), along(tall, 2, softmax_of), "spread", 1e-5, 1e-12);
    const Array h = random({9, 30}, 4, DType::BFloat16);
    expect_near(softmax(to_device(m.ctx, h, DType::BFloat16), 1), along(h, 1, softmax_of), "bf16", 0x1p-8, 1e-6);
    EXPECT_EQ(softmax(m.ctx.zeros({0, 3}), 1).shape(), (Shape{0, 3}));
    expect_same(softmax(m.ctx.full({}, 5), 0), Array({}, 1), "0-d");
    const double inf = std::numeric_limits<double>::infinity();
    Array masked({1, 3}, -inf);
    masked.v[1] = 2;
    expect_same(softmax(to_device(m.ctx, masked), 1), along(masked, 1, softmax_of), "masked");
    message_of<NotImplementedError>([&] { softmax(m.ctx.zeros({3}, DType::Int32), 0); });
  });
}

TEST_F(RowsTest, ArgumentsOfLongRowsAndTies) {
  Machine m(tiny(1));
  run([&] {
    Array a = random({2, 40000}, 5);
    a.v[30000] = a.v[12] = 5;
    a.v[40000 + 39999] = -7;
    const Tensor x = to_device(m.ctx, a);
    EXPECT_EQ(argmax(x, 1).to_host<int64_t>()[0], 12);
    EXPECT_EQ(argmin(x, 1).to_host<int64_t>()[1], 39999);
    EXPECT_EQ(argmin(x).to_host<int64_t>()[0], 79999);
    a.v[20000] = std::nan("");
    EXPECT_EQ(argmax(to_device(m.ctx, a), 1).to_host<int64_t>()[0], 20000);
  });
}

TEST_F(RowsTest, Normalisations) {
  Machine m(tiny(1));
  run([&] {
    for (const int64_t dims : {1, 2}) {
      const Array a = random({7, 4, 6}, 6);
      const Shape last(a.shape.end() - dims, a.shape.end());
      const Array w = random(last, 7), b = random(last, 8);
      const uint64_t n = w.size();
      for (const DPPolicy& p : policies()) {
        const auto expected = [&](bool centre, double epsilon, bool weight, bool bias) {
          Array out = a;
          for (size_t r = 0; r < a.size() / n; ++r) {
            double mean = 0, square = 0;
            for (size_t i = 0; i < n; ++i) mean += a.v[r * n + i] / static_cast<double>(n);
            if (!centre) mean = 0;
            for (size_t i = 0; i < n; ++i) square += std::pow(a.v[r * n + i] - mean, 2) / static_cast<double>(n);
            for (size_t i = 0; i < n; ++i) {
              out.v[r * n + i] =
                  (a.v[r * n + i] - mean) / std::sqrt(square + epsilon) * (weight ? w.v[i] : 1) + (bias ? b.v[i] : 0);
            }
          }
          return out;
        };
        const Tensor x = to_device(m.ctx, a, DType::Float32, p), wt = to_device(m.ctx, w, DType::Float32, p);
        expect_near(layer_norm(x, dims), expected(true, 1e-5, false, false), name("layer_norm", last, p));
        expect_near(layer_norm(x, dims, wt, to_device(m.ctx, b)), expected(true, 1e-5, true, true),
                    name("layer_norm", last, p));
        expect_near(rms_norm(x, dims, wt), expected(false, 0x1p-23, true, false), name("rms_norm", last, p));
      }
    }
  });
}

TEST_F(RowsTest, Lookups) {
  Machine m(tiny(1));
  run([&] {
    const Array table = random({11, 6}, 9);
    for (const DPPolicy& p : policies()) {
      const Tensor w = to_device(m.ctx, table, DType::Float32, p);
      for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{0}, Shape{2, 0, 3}}) {
        for (const DType t : {DType::Int64, DType::Int32}) {
          const Array index = random(shape, 10, t, 0, 11);
          Shape out = shape;
          out.push_back(6);
          expect_same(embedding(w, to_device(m.ctx, index, t, policy(CubePolicy::ColumnWise))),
                      make_array(out,
                                 [&](Shape i) {
                                   const uint64_t c = i.back();
                                   i.pop_back();
                                   return table({static_cast<uint64_t>(index(i)), c});
                                 }),
                      name("embedding", shape, p));
        }
      }
      const Array a = random({5, 7, 4}, 11);
      const Tensor x = to_device(m.ctx, a, DType::Float32, p);
      for (size_t d = 0; d < 3; ++d) {
        const Array index = random({9}, 12, DType::Int64, 0, static_cast<double>(a.shape[d]));
        Shape out = a.shape;
        out[d] = 9;
        expect_same(index_select(x, static_cast<int64_t>(d), to_device(m.ctx, index, DType::Int64)),
                    make_array(out,
                               [&](Shape i) {
                                 i[d] = static_cast<uint64_t>(index({i[d]}));
                                 return a(i);
                               }),
                    name("index_select", out, p));
        Shape few = a.shape;
        few[0] = 3;
        few[d] = 6;
        const Array at = random(few, 13, DType::Int64, 0, static_cast<double>(a.shape[d]));
        expect_same(gather(x, static_cast<int64_t>(d), to_device(m.ctx, at, DType::Int64, p)),
                    make_array(few,
                               [&](Shape i) {
                                 i[d] = static_cast<uint64_t>(at(i));
                                 return a(i);
                               }),
                    name("gather", few, p));
      }
    }
    const Array line = random({40000}, 14), index = random({50}, 15, DType::Int64, 0, 40000);
    expect_same(gather(to_device(m.ctx, line), 0, to_device(m.ctx, index, DType::Int64)),
                make_array({50}, [&](const Shape& i) { return line({static_cast<uint64_t>(index(i))}); }), "long row");
    message_of<NotImplementedError>([&] { embedding(m.ctx.zeros({3, 2}), m.ctx.zeros({3})); });
  });
}

TEST_F(RowsTest, AnIndexOutsideIsNamed) {
  Machine m(tiny(1));
  run([&] {
    const std::string text = message_of<std::runtime_error>([&] {
      embedding(m.ctx.zeros({3, 2}), m.ctx.full({4}, 3, DType::Int64)).to_host_bytes();
    });
    EXPECT_NE(text.find("index 3 is none of 0..2"), std::string::npos) << text;
  });
}

TEST_F(RowsTest, MaskedLookup) {
  Machine m(tiny(1));
  run([&] {
    const Array index = random({5, 3}, 16, DType::Int64, 0, 12), table = random({4, 6}, 17);
    const auto inside = [](double i) { return i >= 3 && i < 7; };
    for (const DPPolicy& p : policies()) {
      const ops::MaskedIndices masked = ops::mask_indices(m.ctx, to_device(m.ctx, index, DType::Int64, p), {3, 4});
      expect_same(masked.indices,
                  make_array(index.shape, [&](const Shape& i) { return inside(index(i)) ? index(i) - 3 : 0; }),
                  "indices");
      expect_same(masked.mask, make_array(index.shape, [&](const Shape& i) { return !inside(index(i)); }), "mask");
      const Tensor y = embedding(to_device(m.ctx, table, DType::Float32, p), masked.indices);
      ops::zero_masked(m.ctx, y, masked.mask);
      expect_same(y,
                  make_array({5, 3, 6},
                             [&](const Shape& i) {
                               const double at = index({i[0], i[1]});
                               return inside(at) ? table({static_cast<uint64_t>(at) - 3, i[2]}) : 0;
                             }),
                  name("zero_masked", {5, 3, 6}, p));
    }
  });
}

TEST_F(RowsTest, Triangles) {
  Machine m(tiny(1));
  run([&] {
    for (const Shape& shape : {Shape{9, 5}, Shape{4, 8}, Shape{3, 6, 7}, Shape{0, 3}}) {
      const Array a = random(shape, 18);
      const size_t n = shape.size();
      for (const DPPolicy& p : policies()) {
        const Tensor x = to_device(m.ctx, a, DType::Float32, p);
        expect_same(triu(x), make_array(shape, [&](const Shape& i) { return i[n - 1] >= i[n - 2] ? a(i) : 0; }),
                    name("triu", shape, p));
        expect_same(tril(x), make_array(shape, [&](const Shape& i) { return i[n - 1] <= i[n - 2] ? a(i) : 0; }),
                    name("tril", shape, p));
      }
    }
  });
}

TEST_F(RowsTest, CrossEntropy) {
  Machine m(tiny(1));
  run([&] {
    for (const Shape& shape : {Shape{9, 5}, Shape{3, 5, 4}, Shape{5}}) {
      const size_t dim = shape.size() == 1 ? 0 : 1;
      Shape batch = shape;
      batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(dim));
      const Array a = random(shape, 19), target = random(batch, 20, DType::Int64, 0, 5);
      const Array logs = along(a, dim, log_softmax_of);
      const Array losses = make_array(batch, [&](Shape i) {
        const auto c = static_cast<uint64_t>(target(i));
        i.insert(i.begin() + static_cast<std::ptrdiff_t>(dim), c);
        return -logs(i);
      });
      double sum = 0;
      for (const double x : losses.v) sum += x;
      for (const DPPolicy& p : policies()) {
        const Tensor x = to_device(m.ctx, a, DType::Float32, p), y = to_device(m.ctx, target, DType::Int64);
        expect_near(cross_entropy(x, y, dtensor::LossReduction::None), losses, name("cross_entropy", shape, p));
        expect_near(cross_entropy(x, y, dtensor::LossReduction::Sum), Array({}, sum), name("cross_entropy", shape, p));
        expect_near(cross_entropy(x, y), Array({}, sum / static_cast<double>(losses.size())),
                    name("cross_entropy", shape, p));
        // Class 2 is left out; then a value that is no class.
        for (const int64_t ignored : {2, -100}) {
          Array wanted = target, kept = losses;
          double rest = 0, count = 0;
          for (size_t i = 0; i < kept.v.size(); ++i) {
            if (wanted.v[i] != 2) count += 1;
            if (wanted.v[i] == 2) {
              wanted.v[i] = static_cast<double>(ignored);
              kept.v[i] = 0;
            }
            rest += kept.v[i];
          }
          const Tensor z = to_device(m.ctx, wanted, DType::Int64);
          const std::string what = name("cross_entropy with ignore_index", shape, p);
          expect_near(cross_entropy(x, z, dtensor::LossReduction::None, ignored), kept, what);
          expect_near(cross_entropy(x, z, dtensor::LossReduction::Sum, ignored), Array({}, rest), what);
          if (count > 0) {
            expect_near(cross_entropy(x, z, dtensor::LossReduction::Mean, ignored), Array({}, rest / count), what);
          }
        }
      }
    }
    const Array wide = random({2, 40000}, 21), target = random({2}, 22, DType::Int64, 0, 40000);
    const Array logs = along(wide, 1, log_softmax_of);
    expect_near(
        cross_entropy(to_device(m.ctx, wide), to_device(m.ctx, target, DType::Int64), dtensor::LossReduction::None),
        make_array({2},
                   [&](const Shape& i) {
                     return -logs({i[0], static_cast<uint64_t>(target(i))});
                   }),
        "wide");
  });
}

TEST_F(RowsTest, Attention) {
  Machine m(tiny(1));
  run([&] {
    for (const uint64_t kv_heads : {4u, 2u, 1u}) {
      const uint64_t heads = 4, length = 5, keys = 6, width = 8;
      const Array q = random({2, heads, length, width}, 23), k = random({2, kv_heads, keys, width}, 24),
                  v = random({2, kv_heads, keys, 3}, 25), mask = random({length, keys}, 26),
                  keep = random({2, 1, length, keys}, 27, DType::Bool, 0, 3);
      const auto expected = [&](bool causal, bool add, bool choose) {
        Array scores = make_array({2, heads, length, keys}, [&](const Shape& i) {
          double s = 0;
          for (uint64_t e = 0; e < width; ++e)
            s += q({i[0], i[1], i[2], e}) * k({i[0], i[1] / (heads / kv_heads), i[3], e});
          s /= std::sqrt(static_cast<double>(width));
          if (add) s += mask({i[2], i[3]});
          const bool hidden = (causal && i[3] > i[2]) || (choose && keep({i[0], 0, i[2], i[3]}) == 0);
          return hidden ? -std::numeric_limits<double>::infinity() : s;
        });
        const Array weights = along(scores, 3, softmax_of);
        return make_array({2, heads, length, 3}, [&](const Shape& i) {
          double s = 0;
          for (uint64_t j = 0; j < keys; ++j) {
            s += weights({i[0], i[1], i[2], j}) * v({i[0], i[1] / (heads / kv_heads), j, i[3]});
          }
          return s;
        });
      };
      for (const DPPolicy& p : policies()) {
        const Tensor a = to_device(m.ctx, q, DType::Float32, p), b = to_device(m.ctx, k, DType::Float32, p),
                     c = to_device(m.ctx, v, DType::Float32, p);
        expect_near(scaled_dot_product_attention(a, b, c), expected(false, false, false), name("sdpa", q.shape, p));
        expect_near(scaled_dot_product_attention(a, b, c, {}, true), expected(true, false, false),
                    name("causal", q.shape, p));
        expect_near(scaled_dot_product_attention(a, b, c, to_device(m.ctx, mask)), expected(false, true, false),
                    name("mask", q.shape, p));
        expect_near(scaled_dot_product_attention(a, b, c, to_device(m.ctx, keep, DType::Bool)),
                    expected(false, false, true), name("choice", q.shape, p));
      }
    }
  });
}

TEST_F(RowsTest, EveryOperatorOnOneCube) {
  Machine m(one_cube());
  run([&] {
    const Array a = random({9, 6}, 28), b = random({6, 5}, 29);
    expect_near(softmax(to_device(m.ctx, a), 0), along(a, 0, softmax_of), "softmax");
    double total = 0;
    for (const double x : a.v) total += x;
    expect_near(sum(to_device(m.ctx, a)), Array({}, total), "sum", 1e-5, 1e-5);
    expect_near(matmul(to_device(m.ctx, a), to_device(m.ctx, b)),
                make_array({9, 5},
                           [&](const Shape& i) {
                             double s = 0;
                             for (uint64_t k = 0; k < 6; ++k) s += a({i[0], k}) * b({k, i[1]});
                             return s;
                           }),
                "matmul", 1e-5, 1e-5);
    expect_same(t(to_device(m.ctx, a)), make_array({6, 9}, [&](const Shape& i) { return a({i[1], i[0]}); }), "t");
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
