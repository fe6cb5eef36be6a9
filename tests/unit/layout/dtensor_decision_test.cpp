// Decisions carried out on simulated ranks against the same operator on the whole tensors: whatever placements come in,
// the redistributions and the local operator together must give the value, and every part must have its announced
// shape.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "runtime/layout/errors.h"
#include "runtime/layout/strategy.h"
#include "tests/unit/layout/simulated_ranks.h"

namespace ahbm::dtensor::test {
namespace {

using LocalOp = std::function<Array(const std::vector<Array>&, const Dims& out_shape)>;

double broadcast_at(const Array& a, const Dims& index) {
  Dims i;
  const size_t shift = index.size() - a.shape.size();
  for (size_t d = 0; d < a.shape.size(); ++d) i.push_back(a.shape[d] == 1 ? 0 : index[d + shift]);
  return a.at(i);
}

LocalOp pointwise(std::function<double(double, double)> f) {
  return [f](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    for_each_index(
        out, [&](const Dims& i) { y.at(i) = f(broadcast_at(in[0], i), in.size() > 1 ? broadcast_at(in[1], i) : 0); });
    return y;
  };
}

// Dimensions `dims` folded with f from `start`; Mean divides by the local count.
LocalOp reduction(const Dims& dims, bool keepdim, double start, std::function<double(double, double)> f,
                  std::function<double(double, double)> finish) {
  return [=](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    for (double& v : y.data) v = start;
    double count = 1;
    for (const int64_t d : dims) count *= static_cast<double>(in[0].shape[static_cast<size_t>(d)]);
    for_each_index(in[0].shape, [&](const Dims& i) {
      Dims to;
      for (size_t d = 0; d < i.size(); ++d) {
        if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end()) {
          to.push_back(i[d]);
        } else if (keepdim) {
          to.push_back(0);
        }
      }
      y.at(to) = f(y.at(to), in[0].at(i));
    });
    for (double& v : y.data) v = finish(v, count);
    return y;
  };
}

// [bias +] a @ b with leading dimensions broadcast.
LocalOp matmul(bool transposed, int bias) {
  return [=](const std::vector<Array>& in, const Dims& out) {
    const Array& a = in[bias == 0 ? 1 : 0];
    const Array& b = in[bias == 0 ? 2 : 1];
    Array y = Array::zeros(out);
    const int64_t inner = a.shape.back();
    const size_t nb = b.shape.size();
    for_each_index(out, [&](const Dims& i) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k) {
        Dims ia(i.begin(), i.end());
        ia.back() = k;
        Dims ib;
        const size_t shift = i.size() - nb;
        for (size_t d = 0; d + 2 < nb; ++d) ib.push_back(i[d + shift]);
        ib.push_back(transposed ? i.back() : k);
        ib.push_back(transposed ? k : i.back());
        sum += broadcast_at(a, ia) * broadcast_at(b, ib);
      }
      if (bias >= 0) sum += broadcast_at(in[static_cast<size_t>(bias)], i);
      y.at(i) = sum;
    });
    return y;
  };
}

LocalOp concatenate(int dim) {
  return [dim](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    int64_t base = 0;
    for (const Array& a : in) {
      for_each_index(a.shape, [&](const Dims& i) {
        Dims to = i;
        to[static_cast<size_t>(dim)] += base;
        y.at(to) = a.at(i);
      });
      base += a.shape[static_cast<size_t>(dim)];
    }
    return y;
  };
}

LocalOp stacked(int dim) {
  return [dim](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    for (size_t n = 0; n < in.size(); ++n) {
      for_each_index(in[n].shape, [&](const Dims& i) {
        Dims to = i;
        to.insert(to.begin() + dim, static_cast<int64_t>(n));
        y.at(to) = in[n].at(i);
      });
    }
    return y;
  };
}

LocalOp permuted(const Dims& order) {
  return [order](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    for_each_index(out, [&](const Dims& i) {
      Dims from = i;
      for (size_t d = 0; d < i.size(); ++d) from[static_cast<size_t>(order[d])] = i[d];
      y.at(i) = in[0].at(from);
    });
    return y;
  };
}

// The same elements under another shape.
Array reshaped(const std::vector<Array>& in, const Dims& out) {
  EXPECT_EQ(numel(in[0].shape), numel(out));
  return {out, in[0].data};
}

LocalOp sliced(int dim, int64_t start, int64_t step) {
  return [=](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    for_each_index(out, [&](const Dims& i) {
      Dims from = i;
      from[static_cast<size_t>(dim)] = start + step * i[static_cast<size_t>(dim)];
      y.at(i) = in[0].at(from);
    });
    return y;
  };
}

LocalOp softmax(int dim) {
  return [dim](const std::vector<Array>& in, const Dims& out) {
    Array y = Array::zeros(out);
    for_each_index(out, [&](const Dims& i) {
      double sum = 0;
      Dims at = i;
      for (int64_t k = 0; k < out[static_cast<size_t>(dim)]; ++k) {
        at[static_cast<size_t>(dim)] = k;
        sum += std::exp(in[0].at(at));
      }
      y.at(i) = std::exp(in[0].at(i)) / sum;
    });
    return y;
  };
}

LocalOp cumulated(int dim) {
  return [dim](const std::vector<Array>& in, const Dims& out) {
    Array y = in[0];
    for_each_index(out, [&](const Dims& i) {
      if (i[static_cast<size_t>(dim)] == 0) return;
      Dims before = i;
      --before[static_cast<size_t>(dim)];
      y.at(i) += y.at(before);
    });
    return y;
  };
}

struct Scenario {
  Op op = Op::Add;
  OpArgs args;
  std::vector<Dims> shapes;
  LocalOp run;
};

Scenario draw(Random& random) {
  Scenario s;
  const auto size = [&] { return 1 + random.below(9); };
  const Dims shape = {size(), size(), size()};
  Dims unary(shape.begin(), shape.begin() + 1 + random.below(3));
  const auto any_dim = static_cast<int>(random.below(static_cast<int64_t>(unary.size())));
  const auto keep = [](double v, double) { return v; };
  s.shapes = {unary};
  switch (random.below(22)) {
    case 0:
    case 1:
    case 2: {
      const Op ops[] = {Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Maximum, Op::Minimum};
      const int64_t pick = random.below(6);
      s.op = ops[pick];
      Dims other = shape;
      for (int64_t& n : other) n = random.below(4) == 0 ? 1 : n;
      other.erase(other.begin(), other.begin() + random.below(3));
      s.shapes = random.coin() ? std::vector<Dims>{shape, other} : std::vector<Dims>{other, shape};
      s.run = pointwise([pick](double a, double b) {
        switch (pick) {
          case 0:
            return a + b;
          case 1:
            return a - b;
          case 2:
            return a * b;
          case 3:
            return a / b;
          case 4:
            return std::max(a, b);
          default:
            return std::min(a, b);
        }
      });
      break;
    }
    case 3:
      s.op = Op::Neg;
      s.run = pointwise([](double a, double) { return -a; });
      break;
    case 4:
      s.op = Op::Square;
      s.run = pointwise([](double a, double) { return a * a; });
      break;
    case 5:
      s.op = Op::AddScalar;
      s.args.value = 3;
      s.run = pointwise([](double a, double) { return a + 3; });
      break;
    case 6: {
      const double by = random.coin() ? 2 : -5;
      s.op = Op::MulScalar;
      s.args.value = by;
      s.run = pointwise([by](double a, double) { return a * by; });
      break;
    }
    case 7:
    case 8:
    case 9: {
      Dims dims;
      for (size_t d = 0; d < unary.size(); ++d) {
        if (random.coin()) dims.push_back(static_cast<int64_t>(d));
      }
      if (dims.empty()) dims.push_back(0);
      s.args.dims = dims;
      s.args.keepdim = random.coin();
      const auto add = [](double a, double b) { return a + b; };
      switch (random.below(6)) {
        case 0:
          s.op = Op::Sum;
          s.run = reduction(dims, s.args.keepdim, 0, add, keep);
          break;
        case 1:
          s.op = Op::Mean;
          s.run = reduction(dims, s.args.keepdim, 0, add, [](double v, double n) { return v / n; });
          break;
        case 2:
          s.op = Op::Max;
          s.run = reduction(
              dims, s.args.keepdim, -1e300, [](double a, double b) { return std::max(a, b); }, keep);
          break;
        case 3:
          s.op = Op::Min;
          s.run = reduction(
              dims, s.args.keepdim, 1e300, [](double a, double b) { return std::min(a, b); }, keep);
          break;
        case 4:
          s.op = Op::Prod;
          s.run = reduction(
              dims, s.args.keepdim, 1, [](double a, double b) { return a * b; }, keep);
          break;
        default:
          s.op = Op::Norm;
          s.run = reduction(
              dims, s.args.keepdim, 0, [](double a, double b) { return a + b * b; },
              [](double v, double) { return std::sqrt(v); });
          break;
      }
      break;
    }
    case 10:
    case 11:
      s.op = Op::Mm;
      s.args.linear_partials = random.coin();
      s.shapes = {{shape[0], shape[1]}, {shape[1], shape[2]}};
      s.run = matmul(false, -1);
      break;
    case 12: {
      s.op = Op::Matmul;
      s.shapes = {{size(), shape[0], shape[1]}, {shape[1], shape[2]}};
      if (random.coin()) s.shapes[1].insert(s.shapes[1].begin(), random.coin() ? 1 : s.shapes[0][0]);
      s.run = matmul(false, -1);
      break;
    }
    case 13:
      s.op = Op::Linear;
      s.shapes = {{size(), shape[0], shape[1]}, {shape[2], shape[1]}, {shape[2]}};
      s.run = matmul(true, 2);
      break;
    case 14: {
      s.op = Op::Addmm;
      const Dims biases[] = {{shape[2]}, {1, shape[2]}, {shape[0], 1}, {shape[0], shape[2]}};
      s.shapes = {biases[random.below(4)], {shape[0], shape[1]}, {shape[1], shape[2]}};
      s.run = matmul(false, 0);
      break;
    }
    case 15: {
      s.op = Op::Cat;
      s.args.dim = any_dim;
      Dims other = unary;
      other[static_cast<size_t>(any_dim)] = size();
      s.shapes = {unary, other, unary};
      s.run = concatenate(any_dim);
      break;
    }
    case 16:
      s.op = Op::Stack;
      s.args.dim = any_dim;
      s.shapes = {unary, unary, unary};
      s.run = stacked(any_dim);
      break;
    case 17: {
      Dims order;
      for (size_t d = 0; d < unary.size(); ++d) {
        order.insert(order.begin() + random.below(static_cast<int64_t>(d) + 1), static_cast<int64_t>(d));
      }
      s.op = Op::Permute;
      s.args.dims = order;
      s.run = permuted(order);
      break;
    }
    case 18: {
      // Factors dealt out to both shapes, with ones in between.
      const int64_t factors[] = {2, 3, 4, 2, 5};
      const auto cut = [&] {
        Dims out{1};
        for (const int64_t f : factors) {
          const int64_t what = random.below(3);
          if (what == 0) {
            out.push_back(f);
          } else {
            out.back() *= f;
          }
          if (random.below(5) == 0) out.push_back(1);
        }
        return out;
      };
      s.op = Op::Reshape;
      s.shapes = {cut()};
      s.args.sizes = cut();
      if (random.coin()) s.args.sizes[0] = -1;
      s.run = reshaped;
      break;
    }
    case 19:
      s.op = Op::Softmax;
      s.args.dim = any_dim;
      s.run = softmax(any_dim);
      break;
    case 20: {
      const int64_t extent = unary[static_cast<size_t>(any_dim)];
      s.op = Op::Slice;
      s.args.dim = any_dim - static_cast<int64_t>(unary.size());
      s.args.start = random.below(extent);
      s.args.step = 1 + random.below(2);
      s.run = sliced(any_dim, s.args.start, s.args.step);
      break;
    }
    default:
      s.op = Op::Cumsum;
      s.args.dim = any_dim;
      s.run = cumulated(any_dim);
      break;
  }
  return s;
}

TEST(Decisions, GiveTheSingleDeviceValue) {
  Random random(7);
  StrategyEngine engine;
  const std::vector<std::vector<Placement>> partials = {{},
                                                        {Partial{ReduceOp::Sum}},
                                                        {Partial{ReduceOp::Avg}},
                                                        {Partial{ReduceOp::Sum}, Partial{ReduceOp::Avg}},
                                                        {Partial{ReduceOp::Max}},
                                                        {Partial{ReduceOp::Product}},
                                                        {NormPartial{2}}};
  std::map<Op, int> drawn;
  std::map<Op, int> kept_partial;
  int moved = 0;
  for (int round = 0; round < 3000; ++round) {
    const Scenario s = draw(random);
    const MeshPtr mesh = random.mesh(random.below(4) == 0 ? 3 : 2, 3);
    std::vector<Distributed> inputs;
    OpCall call{s.op, {}, s.args};
    inputs.reserve(s.shapes.size());
    std::string text = to_string(s.op);
    for (const Dims& shape : s.shapes) {
      const auto& kinds = partials[static_cast<size_t>(random.below(static_cast<int64_t>(partials.size())))];
      // A third without shards: there the Partial rules decide.
      const size_t cuttable = random.below(3) == 0 ? 0 : shape.size();
      const Placements placements = random.placements(mesh->ndim(), cuttable, kinds, random.below(4) == 0);
      const DTensorSpec spec(mesh, placements, shape, DType::Float32);
      const auto salt = static_cast<double>(random.below(7));
      inputs.push_back(build(spec, [&](const Dims& i, const Coordinate& c) {
        double v = salt;
        for (const int64_t x : i) v = v * 3 + static_cast<double>(x);
        for (size_t m = 0; m < c.size(); ++m)
          v += is_partial(spec.placements()[m]) ? (2.0 + static_cast<double>(m)) * c[m] : 0;
        return std::fmod(v, 7) / 4 + 0.5;
      }));
      text += " " + spec.to_string();
    }
    for (const Distributed& d : inputs) call.inputs.emplace_back(d.spec);
    SCOPED_TRACE(text);
    const auto decision = engine.decide(call);
    ASSERT_EQ(decision->outputs.size(), 1U);
    const DTensorSpec& out_spec = decision->outputs[0];
    SCOPED_TRACE("gives " + out_spec.to_string());
    ++drawn[s.op];
    kept_partial[s.op] += out_spec.has_partial() ? 1 : 0;

    std::vector<Array> whole;
    for (const Distributed& d : inputs) whole.push_back(full(d));
    const Array expected = s.run(whole, out_spec.shape());

    std::vector<Distributed> ready;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ready.push_back(execute(decision->inputs[i].plan, inputs[i]));
      EXPECT_EQ(ready.back().spec, decision->inputs[i].required);
      moved += decision->inputs[i].redistribute ? 1 : 0;
    }
    Distributed out{out_spec, {}};
    for (uint32_t r = 0; r < mesh->size(); ++r) {
      std::vector<Array> local;
      for (const Distributed& d : ready) local.push_back(d.local[r]);
      const Dims shape = local_shape(out_spec, mesh->ranks()[r]);
      out.local.push_back(decision->alias ? local[0] : s.run(local, shape));
      ASSERT_EQ(out.local.back().shape, shape);
    }
    const Array got = full(out);
    ASSERT_EQ(got.shape, expected.shape);
    for (size_t e = 0; e < got.data.size(); ++e) {
      ASSERT_NEAR(got.data[e], expected.data[e], 1e-7 * (1 + std::abs(expected.data[e]))) << "element " << e;
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(drawn.size(), 27U);
  EXPECT_GT(moved, 1000);
  for (const Op op : {Op::Add, Op::Mul, Op::Sum, Op::Mm, Op::Cat, Op::Stack, Op::Reshape, Op::Permute, Op::Neg}) {
    EXPECT_GT(kept_partial[op], 5) << to_string(op);
  }
}

TEST(Decisions, VocabularyParallelLookupMasksNestedRows) {
  // Rows cut over both mesh dimensions, uneven: each step masks what is outside its own rows.
  const MeshPtr mesh = MeshLayout::create({2, 3});
  const DTensorSpec table(mesh, {Shard{0}, Shard{0}}, {7, 2}, DType::Float32);
  const DTensorSpec indices(mesh, all_replicate(2), {7}, DType::Int64);
  const OpDecision d = decide({Op::Embedding, {table, indices}, {}}, RingCostModel());
  EXPECT_EQ(to_string(d.outputs[0].placements()), "[MP(7x2,0), MP(7x2,0)]");
  EXPECT_EQ(d.collectives(), 0U);
  std::vector<int> owners(7, 0);
  for (uint32_t r = 0; r < mesh->size(); ++r) {
    const Coordinate c = mesh->coordinate_at(r);
    const auto mine = positions(owned_along(*mesh, table.placements(), table.shape(), 0, c));
    for (int64_t index = 0; index < 7; ++index) {
      int64_t at = index;
      bool masked = false;
      for (size_t s = 0; s < d.inputs[1].plan.steps.size(); ++s) {
        const Range rows = step_on_rank(d.inputs[1].plan, s, c).rows;
        const bool outside = at < static_cast<int64_t>(rows.begin) || at >= static_cast<int64_t>(rows.end());
        masked = masked || outside;
        at = outside ? 0 : at - static_cast<int64_t>(rows.begin);
      }
      if (masked) continue;
      ++owners[static_cast<size_t>(index)];
      ASSERT_LT(at, static_cast<int64_t>(mine.size()));
      EXPECT_EQ(mine[static_cast<size_t>(at)], index);
    }
  }
  EXPECT_EQ(owners, std::vector<int>(7, 1));
}

std::string error_of(const OpCall& call) {
  try {
    decide(call, RingCostModel());
  } catch (const LayoutError& e) {
    return e.kind();
  }
  return "none";
}

TEST(Decisions, RefusalsNameTheirKind) {
  const MeshPtr mesh = MeshLayout::create({4});
  const MeshPtr reversed = MeshLayout::from_ranks({4}, {3, 2, 1, 0});
  const DTensorSpec s0(mesh, {Shard{0}}, {8, 4}, DType::Float32);
  const DTensorSpec p(mesh, {Partial{}}, {8, 4}, DType::Float32);
  const DTensorSpec other(reversed, {Shard{0}}, {8, 4}, DType::Float32);
  const DTensorSpec flat(mesh, {Replicate{}}, {}, DType::Float32);
  OpArgs inplace;
  inplace.inplace = true;
  EXPECT_EQ(error_of({Op::Add, {s0, other}, {}}), "MeshMismatch");
  EXPECT_EQ(error_of({Op::Relu, {p}, inplace}), "InplaceRedistribute");
  EXPECT_EQ(error_of({Op::Neg, {p}, inplace}), "none");
  EXPECT_EQ(error_of({Op::Fill, {p}, inplace}), "none");
  EXPECT_EQ(error_of({Op::Add, {p, s0}, inplace}), "InplaceRedistribute");
  EXPECT_EQ(error_of({Op::Add, {s0, p}, inplace}), "none");
  EXPECT_EQ(error_of({Op::Add, {flat, s0}, inplace}), "ShapeMismatch");
  EXPECT_EQ(error_of({Op::Mm, {s0, s0}, {}}), "ShapeMismatch");
  OpArgs dim;
  dim.dim = 2;
  EXPECT_EQ(error_of({Op::Softmax, {s0}, dim}), "DimOutOfRange");
  EXPECT_EQ(error_of({Op::CrossEntropyLossParallel, {s0}, {}}), "ShardedDim");
  const MeshPtr two = MeshLayout::create({2, 2});
  const DTensorSpec two_d(two, {Shard{1}, Replicate{}}, {8, 4}, DType::Float32);
  EXPECT_EQ(error_of({Op::CrossEntropyLossParallel, {two_d}, {}}), "UnsupportedMesh");
  OpArgs implicit;
  EXPECT_EQ(error_of({Op::Add, {OpInput(s0), OpInput(Dims{8, 4}, DType::Float32)}, implicit}), "MixedTensor");
  implicit.implicit_replication = true;
  EXPECT_EQ(error_of({Op::Add, {OpInput(s0), OpInput(Dims{8, 4}, DType::Float32)}, implicit}), "none");
  // The classes of the Python surface.
  EXPECT_THROW(decide({Op::Softmax, {s0}, dim}, RingCostModel()), std::out_of_range);
  EXPECT_THROW(decide({Op::Mm, {s0, s0}, {}}, RingCostModel()), std::runtime_error);
  EXPECT_THROW(decide({Op::Mm, {s0}, {}}, RingCostModel()), std::invalid_argument);
}

TEST(Decisions, IntegersAreNotDividedPieceByPiece) {
  const MeshPtr mesh = MeshLayout::create({4});
  const DTensorSpec ints(mesh, {Partial{}}, {8}, DType::Int32);
  const DTensorSpec floats(mesh, {Partial{}}, {8}, DType::Float32);
  OpArgs half;
  half.value = 2;
  EXPECT_EQ(decide({Op::DivScalar, {ints}, half}, RingCostModel()).collectives(), 1U);
  EXPECT_EQ(decide({Op::DivScalar, {floats}, half}, RingCostModel()).collectives(), 0U);
  OpArgs to_int;
  to_int.dtype = DType::Int32;
  EXPECT_EQ(decide({Op::Cast, {floats}, to_int}, RingCostModel()).collectives(), 1U);
}

TEST(StrategyEngine, RemembersByEveryArgument) {
  StrategyEngine engine;
  const MeshPtr mesh = MeshLayout::create({2});
  const MeshPtr same = MeshLayout::create({2});
  const DTensorSpec norm(mesh, {NormPartial{2}}, {1}, DType::Float32);
  const DTensorSpec equal_norm(same, {NormPartial{2}}, {1}, DType::Float32);
  OpArgs two;
  two.value = 2;
  OpArgs minus;
  minus.value = -5;
  const auto a = engine.decide({Op::MulScalar, {norm}, two});
  EXPECT_EQ(a->collectives(), 0U);
  EXPECT_EQ(engine.decide({Op::MulScalar, {equal_norm}, two}), a);
  EXPECT_EQ(engine.decide({Op::MulScalar, {norm}, minus})->collectives(), 1U);
  EXPECT_EQ(engine.hits(), 1U);
  EXPECT_EQ(engine.misses(), 2U);
  const DTensorSpec shards(mesh, {Shard{0}}, {5, 3}, DType::Float32);
  const auto plan = engine.plan(shards, {Replicate{}});
  EXPECT_EQ(engine.plan(shards, {Replicate{}}), plan);
  EXPECT_EQ(plan->collectives(), 1U);
  engine.clear();
  EXPECT_NE(engine.decide({Op::MulScalar, {norm}, two}), a);
}

// A machine on which moving anything but an all_to_all is dear.
class CheapExchange : public CostModel {
 public:
  double collective_us(CollectiveKind kind, const MeshLayout&, uint32_t, double) const override {
    return kind == CollectiveKind::AllToAll ? 1 : 1000;
  }
};

TEST(StrategyEngine, TheCostModelDecides) {
  const MeshPtr mesh = MeshLayout::create({4});
  const DTensorSpec a(mesh, {Shard{0}}, {12, 8}, DType::Float32);
  const DTensorSpec b(mesh, {Shard{0}}, {8, 16}, DType::Float32);
  StrategyEngine engine;
  EXPECT_EQ(engine.decide({Op::Mm, {a, b}, {}})->collective_sequence(), std::vector<std::string>{"all_gather@0"});
  engine.set_cost_model(std::make_shared<CheapExchange>());
  const auto d = engine.decide({Op::Mm, {a, b}, {}});
  EXPECT_EQ(d->collective_sequence(), std::vector<std::string>{"all_to_all@0"});
  EXPECT_EQ(to_string(d->outputs[0].placements()), "[P(sum)]");
  EXPECT_EQ(d->cost_us, 1);
}

TEST(CostModel, DefaultsAreTheRingConstants) {
  const MeshPtr mesh = MeshLayout::create({2, 4});
  const RingCostModel model;
  const double bytes = 87.7 * 1024 * 1024 * 1024;  // one second of the link
  EXPECT_DOUBLE_EQ(model.collective_us(CollectiveKind::AllGather, *mesh, 1, bytes), 6.6 + 3 * 0.6 + 0.75e6);
  EXPECT_DOUBLE_EQ(model.collective_us(CollectiveKind::AllReduce, *mesh, 1, bytes), 6.6 + 6 * 0.6 + 1.5e6);
  EXPECT_DOUBLE_EQ(model.collective_us(CollectiveKind::AllToAll, *mesh, 0, 0), 6.6 + 0.6 + 1.0);
  RingCostModel::Constants two_hosts;
  two_hosts.ranks_per_host = 4;
  EXPECT_DOUBLE_EQ(RingCostModel(two_hosts).collective_us(CollectiveKind::AllGather, *mesh, 0, 0), 6.6 + 2.7);
  EXPECT_DOUBLE_EQ(RingCostModel(two_hosts).collective_us(CollectiveKind::AllGather, *mesh, 1, 0), 6.6 + 3 * 0.6);
  const DTensorSpec s(mesh, {Shard{0}, Partial{}}, {16}, DType::Float32);
  EXPECT_EQ(redistribute_cost(model, s, {Partial{}, Replicate{}}), kInfiniteCost);
  EXPECT_EQ(redistribute_cost(model, s, {Shard{0}, Partial{}}), 0);
}

}  // namespace
}  // namespace ahbm::dtensor::test
