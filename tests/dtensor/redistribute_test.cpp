// Redistribution on the machine against the plans' meaning on plain arrays, and what must hold around it.
#include <gmock/gmock.h>

#include "tests/dtensor/world.h"

namespace ahbm::dtensor::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using RedistributeTest = SimTest;

/// Meshes of up to three dimensions with ranks of a world in any order.
DeviceMesh random_mesh(World& w, Random& random) {
  static const std::vector<std::vector<uint32_t>> kShapes = {{2},    {3},    {4},       {6},    {8},       {2, 2},
                                                             {2, 3}, {3, 2}, {2, 2, 2}, {4, 2}, {1, 3, 2}, {2, 1, 3}};
  const auto& shape = kShapes[static_cast<size_t>(random.below(static_cast<int64_t>(kShapes.size())))];
  uint32_t n = 1;
  for (const uint32_t s : shape) n *= s;
  RankList all;
  for (uint32_t r = 0; r < w.ranks; ++r) all.push_back(r);
  if (random.coin()) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[static_cast<size_t>(random.below(int64_t(i)))]);
  }
  all.resize(n);
  return DeviceMesh(w.ctx, "sip", shape, all);
}

/// What a Partial may be so that its pieces stay small and exact.
const std::vector<Placement>& some_partials(Random& random) {
  static const std::vector<std::vector<Placement>> kKinds = {{Partial{}},
                                                             {Partial{ReduceOp::Max}},
                                                             {Partial{ReduceOp::Min}},
                                                             {Partial{ReduceOp::Product}},
                                                             {Partial{ReduceOp::Avg}, Partial{}},
                                                             {NormPartial{2}},
                                                             {NormPartial{INFINITY}}};
  return kKinds[static_cast<size_t>(random.below(static_cast<int64_t>(kKinds.size())))];
}

Distributed random_tensor(const DeviceMesh& mesh, Random& random) {
  const Dims shape = random.shape(3, 7);
  const Placements placements = random.placements(mesh.ndim(), shape.size(), some_partials(random), true);
  const DTensorSpec spec(mesh.layout_ptr(), placements, shape, DType::Float32);
  return build(spec, [&](const Dims& i, const Coordinate& c) {
    double v = 1;
    for (const int64_t x : i) v = v * 3 + static_cast<double>(x);
    // Pieces depend on the coordinates of Partial mesh dimensions only.
    for (size_t m = 0; m < c.size(); ++m) {
      if (is_partial(placements[m])) v = std::fmod(v * 7 + c[m] * 5, 11) + 1;
    }
    return std::fmod(v, 13) + 1;
  });
}

TEST_F(RedistributeTest, AnyPlacementsToAnyOthersMeanWhatThePlanSays) {
  World w(8);
  run([&] {
    for (uint32_t round = 0; round < 60; ++round) {
      w.on_ranks([&](uint32_t rank) {
        Random random(round);
        for (int i = 0; i < 3; ++i) {
          const DeviceMesh mesh = random_mesh(w, random);
          const Distributed source = random_tensor(mesh, random);
          Placements target = random.placements(mesh.ndim(), source.spec.ndim(), {}, true);
          for (size_t m = 0; m < target.size(); ++m) {
            if (is_partial(source.spec.placements()[m]) && random.below(4) == 0)
              target[m] = source.spec.placements()[m];
          }
          const RedistributePlan plan = plan_redistribute(source.spec, target);
          const std::string where = "round " + std::to_string(round) + " rank " + std::to_string(rank) + ": " +
                                    source.spec.to_string() + " " + trace(plan);
          const auto position = mesh.layout().index_of(rank);
          const Distributed expected = execute(plan, source);
          const DTensor in = put(w.ctx, mesh, source);
          const CommDebugMode comm(w.ctx);
          const DTensor out = in.redistribute(target);
          EXPECT_EQ(out.placements(), target) << where;
          if (!position) {
            EXPECT_EQ(comm.total(), 0u) << where;
            continue;
          }
          EXPECT_EQ(comm.sequence(), collective_sequence(plan)) << where;
          expect_same(to_array(out.to_local()), expected.local[*position], where);
          // The source keeps its value.
          expect_same(to_array(in.to_local()), source.local[*position], where);
        }
      });
    }
  });
}

/// Flattens every two and more dimensions of a mesh.
void flatten_all(const DeviceMesh& mesh) {
  for (uint32_t mask = 1; mask < 1u << mesh.ndim(); ++mask) {
    std::vector<std::string> names;
    for (uint32_t d = 0; d < mesh.ndim(); ++d) {
      if ((mask >> d & 1) != 0) names.push_back(mesh.names()[d]);
    }
    if (names.size() > 1) mesh.slice(names).flatten();
  }
}
const HasGroup kEverywhere = [](const std::vector<uint32_t>&) { return true; };

TEST_F(RedistributeTest, StepsAreMergedOnFlattenedGroups) {
  World w(8);
  run([&] {
    uint64_t merged_away = 0;
    for (uint32_t round = 0; round < 80; ++round) {
      w.on_ranks([&](uint32_t rank) {
        Random random(3000 + round);
        const DeviceMesh plain = random_mesh(w, random);
        std::vector<std::string> names{"a", "b", "c"};
        names.resize(plain.ndim());
        const DeviceMesh mesh(w.ctx, "sip", plain.shape(), plain.ranks(), names);
        Dims shape = random.shape(2, 3);
        for (int64_t& n : shape) n *= 4;  // mostly even: only such shards merge
        const std::vector<Placement>& partials = some_partials(random);
        // Few kinds, so that neighbours often are alike.
        const Placement common = random.coin() ? partials[0] : Placement(Shard{0});
        Placements from = random.placements(mesh.ndim(), shape.size(), {}, false);
        for (Placement& p : from) p = random.below(4) == 0 ? p : common;
        Placements to =
            is_partial(common) && random.coin() ? Placements(mesh.ndim(), Shard{0}) : all_replicate(mesh.ndim());
        const DTensorSpec spec(mesh.layout_ptr(), from, shape, DType::Float32);
        const Distributed source = build(spec, [&](const Dims& i, const Coordinate& c) {
          double v = 1;
          for (const int64_t x : i) v = v * 3 + static_cast<double>(x);
          for (size_t m = 0; m < c.size(); ++m) v = is_partial(from[m]) ? std::fmod(v * 7 + c[m] * 5, 11) + 1 : v;
          return std::fmod(v, 13) + 1;
        });
        const RedistributePlan plan = plan_redistribute(spec, to);
        const std::string where = "round " + std::to_string(round) + " " + spec.to_string() + " " + trace(plan);
        const DTensor in = put(w.ctx, mesh, source);
        const auto position = mesh.layout().index_of(rank);
        for (const bool flat : {false, true}) {
          if (flat) flatten_all(mesh);
          RedistributeOptions options;
          options.async_op = random.coin();
          const CommDebugMode comm(w.ctx);
          const DTensor out = in.redistribute(to, options);
          if (!position) {
            EXPECT_EQ(comm.total(), 0u) << where;
            continue;
          }
          EXPECT_EQ(comm.sequence(), collective_sequence(plan, flat ? kEverywhere : nullptr)) << where;
          expect_same(to_array(out.to_local()), execute(plan, source).local[*position], where);
        }
        if (rank == mesh.ranks().front()) merged_away += plan.steps.size() - merge_steps(plan, kEverywhere).size();
      });
    }
    EXPECT_GT(merged_away, 20u);
  });
}

TEST_F(RedistributeTest, ARankMergesFromItsOwnFlattenOn) {
  World w(4);
  run([&] {
    w.ctx.distributed.init_process_group();
    // One mesh for all: what one rank has flattened already, another may not have come to yet.
    const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2}, {"a", "b"});
    w.ctx.spawn(
        [&](uint32_t rank) {
          const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({8})), mesh, {Shard{0}, Shard{0}});
          const CommDebugMode comm(w.ctx);
          if (rank > 1) sc_core::wait(10, sc_core::SC_US);
          RedistributeOptions async;
          async.async_op = true;
          const DTensor before = t.redistribute(all_replicate(2), async);
          mesh.flatten();
          const DTensor after = t.redistribute(all_replicate(2));
          expect_same(to_array(before.to_local()), arange({8}), "before");
          expect_same(to_array(after.to_local()), arange({8}), "after");
          EXPECT_THAT(comm.sequence(), ElementsAre("all_gather@1", "all_gather@0", "all_gather@0+1"));
          EXPECT_THAT(comm.text(), HasSubstr("all_gather@0+1"));
        },
        4);
    w.ctx.distributed.destroy_process_group();
  });
}

TEST_F(RedistributeTest, OperatorsMergeTheirRedistributionsToo) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2}, {"a", "b"});
      mesh.flatten();
      const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({8, 8})), mesh, {Shard{1}, Shard{1}});
      const DTensor u = distribute_tensor(to_tensor(w.ctx, arange({8, 8})), mesh, {Shard{0}, Shard{0}});
      const CommDebugMode comm(w.ctx);
      const DTensor y = relu(matmul(t, u));
      EXPECT_THAT(comm.sequence(), ElementsAre("all_reduce@0+1"));
      EXPECT_THAT(explain(plan_redistribute(u.spec(), all_replicate(2)), 1, kEverywhere),
                  HasSubstr("0+1:S(0)->R  gather  all_gather@0+1  [2, 8] -> [8, 8]  16 elements over ranks 0,1,2,3"));
    });
  });
}

TEST_F(RedistributeTest, RoundTripsComeBack) {
  World w(8);
  run([&] {
    for (uint32_t round = 0; round < 20; ++round) {
      w.on_ranks([&](uint32_t rank) {
        Random random(1000 + round);
        const DeviceMesh mesh = random_mesh(w, random);
        const Dims shape = random.shape(3, 7);
        const Placements home = random.placements(mesh.ndim(), shape.size(), {}, true);
        DTensor t = distribute_tensor(to_tensor(w.ctx, arange(shape)), mesh, home);
        if (!mesh.get_coordinate()) return;
        const Array before = to_array(t.to_local());
        std::string way = t.to_string();
        for (int i = 0; i < 4; ++i) {
          t = t.redistribute(random.placements(mesh.ndim(), shape.size(), {}, true));
          way += " " + to_string(t.placements());
        }
        expect_same(to_array(t.full_tensor()), arange(shape), way);
        expect_same(to_array(t.redistribute(home).to_local()), before, way + " rank " + std::to_string(rank));
      });
    }
  });
}

TEST_F(RedistributeTest, CubesAndPoliciesDoNotMatterForTheValues) {
  World w(4, 2);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh(w.ctx, "sip", {2, 2}, {3, 0, 2, 1});
      using runtime::CubePolicy;
      using runtime::PePolicy;
      for (const CubePolicy cube : {CubePolicy::RowWise, CubePolicy::ColumnWise, CubePolicy::Replicate}) {
        for (const PePolicy pe : {PePolicy::RowWise, PePolicy::ColumnWise, PePolicy::Replicate}) {
          const DPPolicy policy = runtime::test::policy(cube, pe);
          Random random(7);
          for (int i = 0; i < 6; ++i) {
            const Distributed source = random_tensor(mesh, random);
            const Placements target = random.placements(2, source.spec.ndim(), {}, true);
            const RedistributePlan plan = plan_redistribute(source.spec, target);
            const Distributed expected = execute(plan, source);
            const DTensor out = put(w.ctx, mesh, source, policy).redistribute(target);
            const std::string where = layout::to_string(policy) + " " + trace(plan) + " rank " + std::to_string(rank);
            EXPECT_EQ(out.policy(), policy) << where;
            expect_same(to_array(out.to_local()), expected.local[*mesh.layout().index_of(rank)], where);
          }
        }
      }
      DPPolicy columns;
      columns.cube = CubePolicy::ColumnWise;
      RedistributeOptions options;
      options.policy = columns;
      const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({5, 6})), mesh, {Shard{0}, Replicate{}});
      const DTensor moved = t.redistribute({Replicate{}, Replicate{}}, options);
      EXPECT_EQ(moved.policy(), columns);
      expect_same(to_array(moved.to_local()), arange({5, 6}), "another policy");
    });
  });
}

TEST_F(RedistributeTest, AsynchronousOnesAreWaitedForAtFirstUse) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {4});
      RedistributeOptions async;
      async.async_op = true;
      const DTensor a = distribute_tensor(to_tensor(w.ctx, arange({6, 4})), mesh, {Shard{0}});
      const DTensor b = from_local(to_tensor(w.ctx, {{3}, {1, 2, double(rank)}}), mesh, {Partial{}});
      const DTensor whole = a.redistribute({Replicate{}}, async);
      const DTensor sum = b.redistribute({Replicate{}}, async);
      const DTensor turned = a.redistribute({Shard{1}}, async);
      EXPECT_TRUE(whole.pending());
      EXPECT_TRUE(sum.pending());
      expect_same(
          to_array((turned + 1.0).full_tensor()),
          [] {
            Array out = arange({6, 4});
            for (double& v : out.data) v += 1;
            return out;
          }(),
          "turned");
      expect_same(to_array(sum.to_local()), {{3}, {4, 8, 6}}, "sum");
      expect_same(to_array(whole.to_local()), arange({6, 4}), "whole");
      EXPECT_FALSE(whole.pending());
    });
  });
}

TEST_F(RedistributeTest, RefusalsComeBeforeAnyCollective) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({4})), mesh, {Shard{0}});
      const CommDebugMode comm(w.ctx);
      EXPECT_THAT(message_of<IllegalRedistribute>([&] { t.redistribute({Partial{}}); }), HasSubstr("P(sum)"));
      EXPECT_THAT(message_of<PlacementsLengthMismatch>([&] { t.redistribute({Shard{0}, Shard{0}}); }), HasSubstr("2"));
      EXPECT_THAT(message_of<DimOutOfRange>([&] { t.redistribute({Shard{1}}); }), HasSubstr("1"));
      EXPECT_THAT(message_of<MeshMismatch>([&] {
                    t.redistribute(DeviceMesh(w.ctx, "sip", {2}, {1, 0}), {Replicate{}});
                  }),
                  HasSubstr("same mesh"));
      EXPECT_THAT(message_of<UnsupportedPlacement>([&] { zeros({4}, mesh, {Partial{}}); }), HasSubstr("P(sum)"));
      EXPECT_THAT(message_of<std::invalid_argument>([&] {
                    DistributeOptions options;
                    options.src_data_rank = 2;
                    distribute_tensor(to_tensor(w.ctx, arange({4})), mesh, {Shard{0}}, options);
                  }),
                  HasSubstr("src_data_rank 2"));
      EXPECT_THAT(message_of<ForwardOnly>([&] { t.requires_grad_(); }), HasSubstr("forward-only"));
      EXPECT_THAT(message_of<ForwardOnly>([&] { t.backward(); }), HasSubstr("forward-only"));
      EXPECT_EQ(comm.total(), 0u);
      EXPECT_EQ(t.redistribute({Shard{0}}).to_local().handle(), t.to_local().handle());
    });
  });
}

TEST_F(RedistributeTest, DistributeTakesTheSourceRanksTensor) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh(w.ctx, "sip", {2, 2}, {2, 0, 3, 1});
      Array mine = arange({3, 5});
      for (double& v : mine.data) v += 100 * rank;
      const Tensor tensor = to_tensor(w.ctx, mine);
      for (const uint32_t src : {0u, 1u}) {
        DistributeOptions options;
        options.src_data_rank = src;
        // Mesh position (src, src) is where the data comes from.
        Array expected = arange({3, 5});
        for (double& v : expected.data) v += 100 * (src == 0 ? 2 : 1);
        for (const Placements& p : {Placements{Shard{0}, Shard{1}}, Placements{Shard{1}, Replicate{}},
                                    Placements{Replicate{}, Replicate{}}, Placements{StridedShard{0, 2}, Shard{0}}}) {
          const DTensor t = distribute_tensor(tensor, mesh, p, options);
          expect_same(to_array(t.full_tensor()), expected, to_string(p));
        }
      }
      expect_same(to_array(tensor), mine, "the tensor that was distributed");
      DistributeOptions alone;
      alone.src_data_rank.reset();
      const CommDebugMode comm(w.ctx);
      const DTensor cut = distribute_tensor(tensor, mesh, {Shard{0}, Replicate{}}, alone);
      EXPECT_EQ(comm.total(), 0u);
      EXPECT_EQ(cut.to_local().to_host<float>()[0], mine.data[(*mesh.get_coordinate())[0] * 10]);
      DistributeOptions partial;
      partial.allow_partial = true;
      const DTensor shares = distribute_tensor(tensor, mesh, {Partial{}, Partial{ReduceOp::Avg}}, partial);
      Array first = arange({3, 5});
      for (double& v : first.data) v += 200;
      expect_same(to_array(shares.full_tensor()), first, "shares");
    });
  });
}

TEST_F(RedistributeTest, FromLocalChecksWhenAsked) {
  World w(2);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2});
      FromLocalOptions check;
      check.run_check = true;
      const DTensor same = from_local(to_tensor(w.ctx, {{2}, {1.0 + rank, 2}}), mesh, {Replicate{}}, check);
      EXPECT_THAT(same.to_local().to_host<float>(), ElementsAre(1, 2));
      const Tensor uneven = to_tensor(w.ctx, arange({2 + rank}));
      EXPECT_THAT(message_of<MetadataMismatch>([&] { from_local(uneven, mesh, {Shard{0}}, check); }),
                  HasSubstr("rank 1"));
      FromLocalOptions with_shape;
      with_shape.shape = Dims{5};
      with_shape.stride = Dims{1};
      EXPECT_THROW(from_local(to_tensor(w.ctx, arange({rank == 0 ? 2 : 4})), mesh, {Shard{0}}, with_shape),
                   LocalShapeMismatch);
      with_shape.stride.reset();
      EXPECT_THROW(from_local(uneven, mesh, {Shard{0}}, with_shape), ShapeStrideTogether);
    });
  });
}

TEST_F(RedistributeTest, RandomTensorsDoNotDependOnHowTheyAreCut) {
  World w(6);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 3});
      const Array whole = to_array(w.ctx.rand({7, 5}, 42));
      for (const Placements& p : {Placements{Shard{0}, Shard{1}}, Placements{Shard{0}, Shard{0}},
                                  Placements{StridedShard{0, 3}, Shard{0}}, Placements{Replicate{}, Shard{1}}}) {
        expect_same(to_array(rand({7, 5}, 42, mesh, p).full_tensor()), whole, to_string(p));
      }
      expect_same(to_array(full({3}, 2.5, mesh, {Shard{0}, Replicate{}}).full_tensor()), {{3}, {2.5, 2.5, 2.5}},
                  "full");
      EXPECT_EQ(empty({7, 5}, mesh, {Shard{0}, Shard{1}}).shape(), (Dims{7, 5}));
    });
  });
}

TEST_F(RedistributeTest, ThousandsOfOperationsLeaveNothing) {
  World w(4);
  run([&] {
    const uint64_t memory = w.device.allocator(SipId{0}, CubeId{0}).used();
    const uint64_t queue_pairs = w.device.queue_pairs().queue_pairs_in_use();
    uint64_t after_first = 0;
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
      const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({5, 6})), mesh, {Shard{0}, Shard{1}});
      for (int i = 0; i < 400; ++i) {
        const DeviceMesh again = init_device_mesh(w.ctx, "sip", {2, 2});
        DTensor x = t.redistribute({Shard{1}, Replicate{}});
        x = x + x;
        x = x.redistribute({Shard{1}, Shard{0}}).redistribute({Replicate{}, Replicate{}});
        w.ctx.synchronize();
        w.ctx.distributed.barrier();
        if (rank == 0 && i == 0) after_first = w.device.queue_pairs().queue_pairs_in_use();
      }
    });
    EXPECT_GT(after_first, queue_pairs);
    EXPECT_EQ(w.device.allocator(SipId{0}, CubeId{0}).used(), memory);
    EXPECT_EQ(w.device.queue_pairs().queue_pairs_in_use(), queue_pairs);
    EXPECT_EQ(w.device.tags_in_use(), 0u);
  });
}

TEST_F(RedistributeTest, TwoRunsAreBitIdentical) {
  std::vector<std::vector<uint8_t>> results;
  std::vector<Ps> times;
  World w(4);
  run([&] {
    for (int i = 0; i < 2; ++i) {
      w.on_ranks([&](uint32_t rank) {
        const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
        const Ps begin = ahbm::test::now();
        const DTensor x = rand({7, 9}, 3, mesh, {Shard{0}, Shard{1}});
        const DTensor y = rand({9, 5}, 4, mesh, {Shard{0}, Replicate{}});
        const DTensor z = matmul(x, y).redistribute({Replicate{}, Shard{0}});
        const Tensor all = z.full_tensor();
        w.ctx.synchronize();
        w.ctx.distributed.monitored_barrier();
        if (rank == 0) times.push_back(ahbm::test::now() - begin);
        if (rank == 0) results.push_back(all.to_host_bytes());
      });
    }
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(times[0], times[1]);
}

}  // namespace
}  // namespace ahbm::dtensor::test
