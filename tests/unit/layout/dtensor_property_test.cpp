// Random meshes up to 3-d, uneven and empty shards, strided shards and every kind of Partial: local parts tile the
// tensor, and a plan carried out step by step ends in the target's layout.
#include <gtest/gtest.h>

#include <map>

#include "runtime/layout/errors.h"
#include "tests/unit/layout/simulated_ranks.h"

namespace ahbm::dtensor::test {
namespace {

TEST(LayoutProperty, PartsTileTheTensorExactly) {
  Random random(1);
  for (int round = 0; round < 600; ++round) {
    const MeshPtr mesh = random.mesh();
    const Dims shape = random.shape();
    const DTensorSpec spec(mesh, random.placements(mesh->ndim(), shape.size(), {}, true), shape, DType::Float32);
    SCOPED_TRACE(spec.to_string());
    // How many ranks hold an element: as many as there are copies.
    Array count = Array::zeros(shape);
    for (uint32_t r = 0; r < mesh->size(); ++r) {
      const auto mine = owned(spec, mesh->coordinate_at(r));
      const LocalPart part = local_part(spec, mesh->ranks()[r]);
      Dims sizes;
      for (const auto& m : mine) sizes.push_back(static_cast<int64_t>(m.size()));
      ASSERT_EQ(part.shape, sizes);
      for_each_index(sizes, [&](const Dims& i) {
        Dims global = i;
        for (size_t d = 0; d < i.size(); ++d) {
          global[d] = mine[d][static_cast<size_t>(i[d])];
          if (part.offset) {
            ASSERT_EQ(global[d], (*part.offset)[d] + i[d]);
          }
        }
        count.at(global) += 1;
      });
      if (part.offset) {
        for (size_t d = 0; d < shape.size(); ++d) {
          if (sizes[d] == 0) {
            ASSERT_EQ((*part.offset)[d], shape[d]);
          }
        }
      }
    }
    const auto copies = static_cast<double>(mesh->size() / spec.num_shards());
    for (const double n : count.data) ASSERT_EQ(n, copies);
  }
}

// The pieces of a Partial depend on the coordinates of its mesh dimensions only.
double piece_of(const DTensorSpec& spec, const Dims& index, const Coordinate& c) {
  double v = 1;
  for (size_t d = 0; d < index.size(); ++d) v = v * 5 + static_cast<double>(index[d]);
  for (size_t m = 0; m < c.size(); ++m) {
    if (is_partial(spec.placements()[m])) v += static_cast<double>((c[m] + 1) * (m + 2)) * (1 + static_cast<double>(m));
  }
  return std::fmod(v, 11) / 4 + 0.5;
}

// What the target's rank at c must hold: the source's pieces, reduced over the Partial dimensions that are gone.
double expected_at(const DTensorSpec& source, const Placements& target, const Dims& index, Coordinate c, size_t m = 0) {
  while (m < c.size() && (!is_partial(source.placements()[m]) || source.placements()[m] == target[m])) ++m;
  if (m == c.size()) return piece_of(source, index, c);
  std::vector<double> pieces;
  for (uint32_t i = 0; i < source.mesh()->shape()[m]; ++i) {
    c[m] = i;
    pieces.push_back(expected_at(source, target, index, c, m + 1));
  }
  return reduce(source.placements()[m], pieces);
}

TEST(LayoutProperty, PlansReachTheirTarget) {
  Random random(2);
  const std::vector<std::vector<Placement>> partials = {
      {},
      {Partial{ReduceOp::Sum}},
      {Partial{ReduceOp::Avg}},
      {Partial{ReduceOp::Sum}, Partial{ReduceOp::Avg}},
      {Partial{ReduceOp::Max}},
      {Partial{ReduceOp::Min}},
      {Partial{ReduceOp::Product}},
      {NormPartial{2}},
      {NormPartial{std::numeric_limits<double>::infinity()}},
  };
  uint64_t steps = 0;
  std::map<Transition, int> seen;
  for (int round = 0; round < 3000; ++round) {
    const MeshPtr mesh = random.mesh();
    const Dims shape = random.shape(3, 7);
    const auto& allowed = partials[static_cast<size_t>(random.below(static_cast<int64_t>(partials.size())))];
    const DTensorSpec source(mesh, random.placements(mesh->ndim(), shape.size(), allowed, true), shape, DType::Float32);
    Placements target = random.placements(mesh->ndim(), shape.size(), {}, true);
    for (size_t m = 0; m < target.size(); ++m) {
      if (is_partial(source.placements()[m]) && random.coin()) target[m] = source.placements()[m];
    }
    const RedistributePlan plan = plan_redistribute(source, target);
    SCOPED_TRACE(source.to_string() + ": " + trace(plan));
    const Distributed start = build(source, [&](const Dims& i, const Coordinate& c) { return piece_of(source, i, c); });
    const Distributed got = execute(plan, start);
    const Distributed want = build(source.with_placements(target), [&](const Dims& i, const Coordinate& c) {
      return expected_at(source, target, i, c);
    });
    for (uint32_t r = 0; r < mesh->size(); ++r) {
      ASSERT_EQ(got.local[r].shape, want.local[r].shape) << "at " << r;
      for (size_t e = 0; e < got.local[r].data.size(); ++e) {
        ASSERT_NEAR(got.local[r].data[e], want.local[r].data[e], 1e-6 * (1 + std::abs(want.local[r].data[e])))
            << "element " << e << " at " << r;
      }
    }
    if (source.placements() == target) {
      ASSERT_TRUE(plan.steps.empty());
    }
    for (const PlanStep& s : plan.steps) ++seen[s.transition];
    steps += plan.steps.size();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(steps, 5000U);
  for (const Transition t : {Transition::Keep, Transition::Cut, Transition::Gather, Transition::Exchange,
                             Transition::GatherCut, Transition::Reduce, Transition::ReduceCut}) {
    EXPECT_GT(seen[t], 50) << to_string(t);
  }
}

TEST(LayoutProperty, MergedStepsReachTheSameTarget) {
  Random random(5);
  const HasGroup everywhere = [](const std::vector<uint32_t>&) { return true; };
  const std::vector<Placement> kinds = {Partial{}, Partial{ReduceOp::Max}, NormPartial{2}, Shard{0}, Shard{0}};
  std::map<Transition, int> merged;
  for (int round = 0; round < 1500; ++round) {
    const MeshPtr mesh = random.mesh();
    Dims shape = random.shape(2, 4);
    for (int64_t& n : shape) n *= random.coin() ? 12 : 1;  // often even: only such shards merge
    const Placement& common = kinds[static_cast<size_t>(random.below(static_cast<int64_t>(kinds.size())))];
    Placements from = random.placements(mesh->ndim(), shape.size(), {}, true);
    for (Placement& p : from) p = random.below(5) == 0 ? p : common;
    const Placement end = random.coin() ? Placement(Replicate{}) : Placement(Shard{0});
    Placements to = all_replicate(mesh->ndim());
    for (Placement& p : to) p = random.below(5) == 0 ? p : end;
    const DTensorSpec source(mesh, from, shape, DType::Float32);
    const RedistributePlan plan = plan_redistribute(source, to);
    for (const MergedStep& m : merge_steps(plan, everywhere)) {
      if (m.count > 1) ++merged[plan.steps[m.first].transition];
    }
    SCOPED_TRACE(source.to_string() + ": " + trace(plan));
    const Distributed start = build(source, [&](const Dims& i, const Coordinate& c) { return piece_of(source, i, c); });
    const Distributed want = execute(plan, start);
    const Distributed got = execute(plan, start, everywhere);
    for (uint32_t r = 0; r < mesh->size(); ++r) {
      ASSERT_EQ(got.local[r].shape, want.local[r].shape) << "at " << r;
      for (size_t e = 0; e < got.local[r].data.size(); ++e) {
        ASSERT_NEAR(got.local[r].data[e], want.local[r].data[e], 1e-9 * (1 + std::abs(want.local[r].data[e])))
            << "element " << e << " at " << r;
      }
    }
    if (::testing::Test::HasFailure()) return;
  }
  for (const Transition t : {Transition::Gather, Transition::Reduce, Transition::ReduceCut}) {
    EXPECT_GT(merged[t], 30) << to_string(t);
  }
}

TEST(LayoutProperty, InternalPlansToPartialKeepTheValue) {
  Random random(3);
  const std::vector<Placement> kinds = {Partial{ReduceOp::Sum}, Partial{ReduceOp::Avg}, Partial{ReduceOp::Max},
                                        Partial{ReduceOp::Min}, NormPartial{2}};
  for (int round = 0; round < 800; ++round) {
    const MeshPtr mesh = random.mesh(2);
    const Dims shape = random.shape(2, 7);
    const Placement& to = kinds[static_cast<size_t>(random.below(5))];
    const Placement& from = kinds[static_cast<size_t>(random.below(5))];
    const DTensorSpec source(mesh, random.placements(mesh->ndim(), shape.size(), {from}, false), shape, DType::Float32);
    Placements target = source.placements();
    for (Placement& p : target) {
      if (!is_shard(p)) p = to;
    }
    const RedistributePlan plan = plan_redistribute(source, target, Legality::Internal);
    SCOPED_TRACE(source.to_string() + ": " + trace(plan));
    const Distributed start = build(source, [&](const Dims& i, const Coordinate& c) { return piece_of(source, i, c); });
    const Array before = full(start);
    const Array after = full(execute(plan, start));
    ASSERT_EQ(before.shape, after.shape);
    for (size_t e = 0; e < before.data.size(); ++e) ASSERT_NEAR(before.data[e], after.data[e], 1e-9);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(LayoutProperty, ShardOrderAndStridedPlacementsSayTheSame) {
  Random random(4);
  for (int round = 0; round < 500; ++round) {
    const MeshPtr mesh = random.mesh(3, 4);
    // A random order of a random part of the mesh for dimension 0, the rest for dimension 1.
    std::vector<uint32_t> first;
    std::vector<uint32_t> second;
    for (uint32_t m = 0; m < mesh->ndim(); ++m) {
      auto& list = random.coin() ? first : second;
      list.insert(list.begin() + random.below(static_cast<int64_t>(list.size()) + 1), m);
    }
    std::vector<ShardOrderEntry> order;
    if (!first.empty()) order.push_back({0, first});
    if (!second.empty()) order.push_back({1, second});
    const Placements placements = placements_of(*mesh, order);
    SCOPED_TRACE(mesh->to_string() + " " + to_string(placements));
    const auto back = shard_order(*mesh, placements);
    ASSERT_TRUE(back);
    // Sizes of 1 may stand anywhere; what is cut does not depend on it.
    EXPECT_EQ(placements_of(*mesh, *back), placements);
    // Cutting in the given order, by hand, gives what the strided placements own.
    const int64_t extent = 24 * 6;
    for (uint32_t r = 0; r < mesh->size(); ++r) {
      const Coordinate c = mesh->coordinate_at(r);
      Range held{0, static_cast<uint64_t>(extent)};
      for (const uint32_t m : first) {
        const Range part = torch_chunk(held.count, mesh->shape()[m], c[m]);
        held = {held.begin + part.begin, part.count};
      }
      EXPECT_EQ(positions(owned_along(*mesh, placements, {extent, extent}, 0, c)), positions({held}));
    }
  }
}

}  // namespace
}  // namespace ahbm::dtensor::test
