// Operators on distributed tensors: chains against the same chain on one device, scopes, in-place forms, debug aids.
#include <gmock/gmock.h>

#include "runtime/dtensor/session.h"
#include "tests/dtensor/world.h"

namespace ahbm::dtensor::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using DispatchTest = SimTest;

/// One step of a chain: a matrix to a matrix of the same shape, on any mesh alike.
DTensor step(int64_t kind, const DTensor& x, const DTensor& w, const DTensor& b) {
  switch (kind) {
    case 0:
      return x + b;
    case 1:
      return x * 0.5 - 1.0;
    case 2:
      return relu(x);
    case 3:
      return matmul(x, w) * 0.25;
    case 4:
      return x - x.sum({1}, true) * 0.125;
    case 5:
      return softmax(x, 1) + softmax(x, 0);
    case 6:
      return x.t().t();
    case 7:
      return cat({slice(x, 0, 0, 2), slice(x, 0, 2, x.size(0))}, 0);
    case 8:
      return linear(x, w, b);
    case 9:
      return maximum(x, b) * x;
    case 10:
      return x.reshape({x.numel()}).reshape({x.size(0), x.size(1)});
    case 11:
      return x / (norm(x) + 1.0);
    case 12:
      return layer_norm(x, 1, b, b);
    default:
      return x - x.mean({0}, true);
  }
}

TEST_F(DispatchTest, ChainsOfOperatorsMeanWhatTheyMeanOnOneDevice) {
  World w(8);
  run([&] {
    for (uint32_t round = 0; round < 24; ++round) {
      w.on_ranks([&](uint32_t rank) {
        Random random(round);
        const std::vector<std::vector<uint32_t>> shapes = {{2}, {3}, {4}, {2, 2}, {2, 3}, {4, 2}, {2, 2, 2}};
        const auto& mesh_shape = shapes[static_cast<size_t>(random.below(static_cast<int64_t>(shapes.size())))];
        const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", mesh_shape);
        const DeviceMesh one(w.ctx, "sip", {1}, {0});
        const int64_t rows = 3 + random.below(5);
        const int64_t width = 3 + random.below(6);
        const auto make = [&](const Dims& shape, uint64_t seed) {
          const Placements p = random.placements(mesh.ndim(), shape.size(), {}, true);
          return std::make_pair(rand(shape, seed, mesh, p), rand(shape, seed, one, {Replicate{}}));
        };
        auto [x, x1] = make({rows, width}, round);
        const auto [m, m1] = make({width, width}, round + 100);
        const auto [b, b1] = make({width}, round + 200);
        std::string chain = "round " + std::to_string(round) + " on " + mesh.to_string() + ": " + x.to_string();
        for (int i = 0; i < 5; ++i) {
          const int64_t kind = random.below(14);
          chain += " " + std::to_string(kind);
          x = step(kind, x, m, b);
          x1 = step(kind, x1, m1, b1);
          ASSERT_EQ(x.shape(), x1.shape()) << chain;
        }
        const Tensor whole = x.full_tensor();
        if (rank != 0) return;
        const Array got = to_array(whole);
        const Array expected = to_array(x1.to_local());
        for (size_t i = 0; i < got.data.size(); ++i) {
          ASSERT_NEAR(got.data[i], expected.data[i], 1e-4 * std::abs(expected.data[i]) + 1e-5)
              << chain << ", element " << i << " on rank " << rank;
        }
      });
    }
  });
}

TEST_F(DispatchTest, PlainTensorsStandBesideDistributedOnesWhenTold) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor x = ones({4, 3}, mesh, {Shard{0}});
      const Tensor plain = to_tensor(w.ctx, {{3}, {1, 2, 3}});
      const Tensor one = to_tensor(w.ctx, {{1}, {5}});
      EXPECT_THAT(to_array((x + one).to_local()).data, testing::Each(6));
      EXPECT_THROW(x + plain, MixedTensor);
      {
        const ImplicitReplication scope(w.ctx);
        EXPECT_THAT(to_array((plain + x).to_local()).data, ElementsAre(2, 3, 4, 2, 3, 4));
      }
      EXPECT_THROW(x + plain, MixedTensor);
    });
  });
}

TEST_F(DispatchTest, ScopesConcernTheThreadThatMadeThem) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor x = ones({4, 4}, mesh, {Shard{0}});
      const DTensor y = ones({4, 4}, mesh, {Shard{1}});
      const DTensor z = ones({4, 4}, mesh, {Replicate{}});
      std::optional<ExplicitRedistribution> scope;
      if (rank == 0) scope.emplace(w.ctx);
      w.ctx.distributed.monitored_barrier();
      x + z;  // cutting moves nothing
      if (rank == 0) {
        EXPECT_THAT(message_of<ImplicitRedistribution>([&] { x + y; }), HasSubstr("all_to_all@0"));
        EXPECT_EQ(x.redistribute({Shard{1}}).placements()[0], Placement(Shard{1}));
        scope.reset();
      } else {
        x.redistribute({Shard{1}});
      }
      EXPECT_EQ((x + y).placements()[0], Placement(Shard{0}));
    });
  });
}

TEST_F(DispatchTest, InPlaceFormsKeepMemoryAndPlacementsOrRefuse) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor x = ones({4}, mesh, {Shard{0}});
      const DTensor alias = x;
      const auto handle = x.to_local().handle();
      x += ones({4}, mesh, {Replicate{}});
      x *= 3.0;
      relu_(x);
      EXPECT_EQ(x.to_local().handle(), handle);
      EXPECT_THAT(to_array(alias.to_local()).data, ElementsAre(6, 6));
      const DTensor p = from_local(to_tensor(w.ctx, {{2}, {1, double(rank)}}), mesh, {Partial{}});
      EXPECT_THROW(relu_(p), InplaceRedistribute);
      EXPECT_THROW(p += 1.0, InplaceRedistribute);
      fill_(p, 8);
      EXPECT_THAT(to_array(p.full_tensor()).data, ElementsAre(16, 16));
      copy_(p, from_local(to_tensor(w.ctx, {{2}, {2, 4}}), mesh));
      EXPECT_THAT(to_array(p.full_tensor()).data, ElementsAre(2, 4));
      zero_(p);
      EXPECT_THAT(to_array(p.full_tensor()).data, ElementsAre(0, 0));
    });
  });
}

TEST_F(DispatchTest, LookupsHaveMasksOfTheirOwn) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
      const Tensor indices = w.ctx.from_host<int64_t>({2, 3}, DType::Int64, {0, 5, 9, 10, 3, 9});
      const DTensor where = from_local(indices, mesh);
      const auto row = [](int64_t r, int64_t width, Array& out) {
        for (int64_t c = 0; c < width; ++c) out.data.push_back(static_cast<double>(r * width + c));
      };
      Array expected{{2, 3, 4}, {}};
      for (const int64_t r : {0, 5, 9, 10, 3, 9}) row(r, 4, expected);
      // Tables with an uneven number of rows, cut over one and both mesh dimensions; two lookups alive at once.
      const DTensor a =
          embedding(distribute_tensor(to_tensor(w.ctx, arange({11, 4})), mesh, {Shard{0}, Shard{0}}), where);
      const DTensor b =
          embedding(distribute_tensor(to_tensor(w.ctx, arange({13, 4})), mesh, {Shard{0}, Replicate{}}), where);
      EXPECT_EQ(a.masks().size(), 2u);
      EXPECT_EQ(b.masks().size(), 1u);
      expect_same(to_array(a.redistribute({Shard{1}, Replicate{}}).full_tensor()), expected, "a by reduce_scatter");
      expect_same(to_array(b.redistribute({b.placements()[0], Shard{0}}).full_tensor()), expected,
                  "b, cut while pending");
      expect_same(to_array(a.redistribute({Replicate{}, a.placements()[1]}).full_tensor()), expected, "a in two goes");
      expect_same(to_array(a.full_tensor()), expected, "a");
      expect_same(to_array(b.full_tensor()), expected, "b");
    });
  });
}

TEST_F(DispatchTest, APartialIsReducedBeforeItIsRead) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor p = from_local(to_tensor(w.ctx, {{}, {1.0 + rank}}), mesh, {Partial{}});
      EXPECT_EQ(p.item(), 3);
      EXPECT_THROW(ones({2}, mesh, {Shard{0}}).item(), ShapeMismatch);
      const DTensor integers = from_local(to_tensor(w.ctx, {{2}, {7, 3}}, DType::Int32), mesh);
      const DTensor pieces = from_local(to_tensor(w.ctx, {{2}, {1, double(rank)}}, DType::Int32), mesh, {Partial{}});
      // An integer's share is not divided.
      EXPECT_THAT(to_array((pieces + integers).full_tensor()).data, ElementsAre(9, 4));
      EXPECT_TRUE(equal(p, 3.0 * ones({}, mesh, {Replicate{}})));
      const DTensor x = distribute_tensor(to_tensor(w.ctx, arange({5})), mesh, {Shard{0}});
      EXPECT_TRUE(equal(x, x));
      EXPECT_FALSE(equal(x, x + distribute_tensor(to_tensor(w.ctx, {{5}, {0, 0, 0, 0, 1}}), mesh, {Shard{0}})));
    });
  });
}

TEST_F(DispatchTest, IntegersAddUpInInt64OverRanks) {
  World w(3);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {3});
      for (const DType t : {DType::Int8, DType::UInt8, DType::Bool, DType::Int64}) {
        const DTensor x = distribute_tensor(w.ctx.full({50, 4}, t == DType::Bool ? 1 : 100, t), mesh, {Shard{0}});
        const DTensor total = sum(x);
        EXPECT_EQ(total.dtype(), DType::Int64);
        EXPECT_EQ(total.placements(), Placements{Partial{}});
        EXPECT_EQ(total.item(), t == DType::Bool ? 200 : 20000);
        EXPECT_EQ(max(x).dtype(), t);
        EXPECT_EQ(max(x).item(), t == DType::Bool ? 1 : 100);
      }
      // Pieces of 100 that wrap in int8 are reduced before they are added up.
      const DTensor pieces = from_local(w.ctx.full({2}, 100, DType::Int8), mesh, {Partial{}});
      const CommDebugMode comm(w.ctx);
      EXPECT_EQ(sum(pieces).item(), 2 * 44);
      EXPECT_EQ(comm.total(), 1u);
    });
  });
}

TEST_F(DispatchTest, LossParallelEqualsTheGatheredLoss) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {4});
      for (const int64_t classes : {16, 13, 3}) {
        const DTensor logits = rand({6, classes}, 9, mesh, {Shard{1}}) * 8.0;
        const Tensor target = w.ctx.from_host<int64_t>({6}, DType::Int64, {0, 1, 2, 2, 1, 0});
        const DTensor where = from_local(target, mesh);
        for (const auto reduction : {LossReduction::None, LossReduction::Sum, LossReduction::Mean}) {
          const Array expected = to_array(cross_entropy(logits, where, reduction).full_tensor());
          const CommDebugMode comm(w.ctx);
          const DTensor got = cross_entropy_loss_parallel(logits, where, reduction);
          EXPECT_THAT(comm.sequence(), ElementsAre("all_reduce@0:max", "all_reduce@0", "all_reduce@0"));
          expect_same(to_array(got.to_local()), expected, std::to_string(classes) + " classes");
        }
      }
    });
  });
}

TEST_F(DispatchTest, IgnoredTargetsDoNotCountHoweverTheBatchIsCut) {
  World w(3);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {3});
      const Tensor target = w.ctx.from_host<int64_t>({7}, DType::Int64, {0, -100, 2, -100, 1, -100, -100});
      const Tensor logits = to_tensor(w.ctx, arange({7, 5}));  // every row alike but for a constant
      const double total = std::log(1 + std::exp(-1) + std::exp(-2) + std::exp(-3) + std::exp(-4));
      // The last rank has no target that counts.
      const double mean = total + (4.0 + 2.0 + 3.0) / 3;
      for (const Placement& p : {Placement(Shard{0}), Placement(Replicate{})}) {
        const DTensor x = distribute_tensor(logits, mesh, {p}), y = distribute_tensor(target, mesh, {p});
        expect_same(to_array(cross_entropy(x, y, LossReduction::Mean, -100).full_tensor()), {{}, {mean}}, "mean");
        expect_same(to_array(cross_entropy(x, y, LossReduction::Sum, -100).full_tensor()), {{}, {3 * mean}}, "sum");
        EXPECT_EQ(to_array(cross_entropy(x, y, LossReduction::None, -100).full_tensor()).data[1], 0);
      }
      const DTensor x = distribute_tensor(logits, mesh, {Shard{1}});
      const DTensor y = distribute_tensor(target, mesh, {Replicate{}});
      const CommDebugMode comm(w.ctx);
      expect_same(to_array(cross_entropy_loss_parallel(x, y, LossReduction::Mean, -100).to_local()), {{}, {mean}},
                  "parallel");
      EXPECT_EQ(comm.total(), 3u);
      EXPECT_THROW(cross_entropy(x, target, LossReduction::Mean, -100), MixedTensor);
    });
  });
}

TEST_F(DispatchTest, CommDebugModeNestsAndTellsWhatHappened) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
      const DTensor x = distribute_tensor(to_tensor(w.ctx, arange({4, 6})), mesh, {Shard{0}, Shard{1}});
      CommDebugMode outer(w.ctx);
      x.redistribute({Shard{0}, Replicate{}});
      {
        const CommDebugMode inner(w.ctx);
        const DTensor s = x.sum().redistribute({Replicate{}, Replicate{}});
        EXPECT_THAT(inner.sequence(), ElementsAre("all_reduce@0", "all_reduce@1"));
        EXPECT_EQ(inner.count("all_reduce"), 2u);
        EXPECT_EQ(inner.count("all_gather"), 0u);
        EXPECT_THAT(inner.elements(), ElementsAre(1, 1));
        EXPECT_EQ(s.to_local().to_host<float>()[0], 276);
      }
      EXPECT_THAT(outer.sequence(), ElementsAre("all_gather@1", "all_reduce@0", "all_reduce@1"));
      w.ctx.distributed.monitored_barrier();
      const CommEvent& e = outer.log()[0];
      EXPECT_EQ(e.rank, rank);
      EXPECT_EQ(e.group.size(), 2u);
      EXPECT_EQ(e.elements, 6);
      EXPECT_GT(e.start(), 0u);
      EXPECT_GT(e.end(), e.start());
      EXPECT_THAT(outer.text(), HasSubstr("all_gather@1"));
      outer.reset();
      EXPECT_THAT(outer.log(), IsEmpty());
      // A collective of nobody's operator counts, without a mesh dimension.
      w.ctx.distributed.all_reduce(to_tensor(w.ctx, {{1}, {1}}));
      EXPECT_THAT(outer.sequence(), ElementsAre("all_reduce@-1"));
    });
    // The driver's counts everybody.
    w.ctx.distributed.init_process_group();
    const CommDebugMode all(w.ctx);
    w.ctx.spawn([&](uint32_t) { w.ctx.distributed.all_reduce(to_tensor(w.ctx, {{1}, {1}})); }, 4);
    EXPECT_EQ(all.total(), 4u);
    w.ctx.distributed.destroy_process_group();
  });
}

TEST_F(DispatchTest, OperationsAreToldWithWhatIsInsideThem) {
  World w(2);
  run([&] {
    std::vector<OperationRecord> told;
    w.ctx.dtensor_session().on_operation = [&](const OperationRecord& r) {
      if (r.rank == 0) told.push_back(r);
    };
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor x = distribute_tensor(to_tensor(w.ctx, arange({4, 4})), mesh, {Shard{0}});
      matmul(x, x);
    });
    w.ctx.dtensor_session().on_operation = nullptr;
    ASSERT_EQ(told.size(), 3u);
    EXPECT_EQ(told[0].name, "distribute_tensor S0");
    EXPECT_EQ(told[1].name, "redistribute S0→R");
    EXPECT_EQ(told[2].name, "matmul");
    EXPECT_LE(told[2].begin, told[1].begin);
    EXPECT_GE(told[2].end, told[1].end);
    EXPECT_GT(told[1].end, told[1].begin);
  });
}

TEST_F(DispatchTest, ShardingAsText) {
  const MeshPtr mesh = MeshLayout::create({2, 2});
  const std::string text = visualize_sharding(DTensorSpec(mesh, {Shard{0}, Shard{1}}, {3, 4}, DType::Float32));
  EXPECT_THAT(text, HasSubstr("rows \\ cols  0-1  2-3\n"));
  EXPECT_THAT(text, HasSubstr("0-1          0    1\n"));
  EXPECT_THAT(text, HasSubstr("2-2          2    3\n"));
  EXPECT_THAT(visualize_sharding(DTensorSpec(mesh, {Replicate{}, Shard{0}}, {1}, DType::Float32)),
              testing::AllOf(HasSubstr("0-0   0,2"), HasSubstr("nothing on ranks 1, 3")));
  EXPECT_THROW(visualize_sharding(DTensorSpec(mesh, all_replicate(2), {1, 1, 1}, DType::Float32)), ShapeMismatch);
  const DTensorSpec spec(mesh, {Shard{0}, Shard{0}}, {5, 3}, DType::Float32);
  EXPECT_THAT(explain(plan_redistribute(spec, {Replicate{}, Shard{0}}), 1),
              testing::AllOf(HasSubstr("S0S0→S0R→RR→RS0"), HasSubstr("all_gather@1"), HasSubstr("[1, 3] -> [3, 3]"),
                             HasSubstr("6 elements over ranks 0,1"), HasSubstr("local")));
}

TEST_F(DispatchTest, DecisionsAreRememberedPerContext) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor x = ones({4}, mesh, {Shard{0}});
      for (int i = 0; i < 10; ++i) x* double(i % 2 + 1);
    });
    EXPECT_EQ(w.ctx.dtensor_session().engine().misses(), 2u);
    EXPECT_EQ(w.ctx.dtensor_session().engine().hits(), 18u);
  });
}

}  // namespace
}  // namespace ahbm::dtensor::test
