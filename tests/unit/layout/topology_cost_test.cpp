#include <gtest/gtest.h>

#include "runtime/layout/strategy.h"
#include "runtime/layout/topology_cost.h"

namespace ahbm::dtensor {
namespace {

SystemConfig torus() {
  SystemConfig c;
  c.sips = 16;
  c.topology = SipTopology::Torus2d;
  c.sip_w = c.sip_h = 4;
  c.sip_ports = {{Side::E, CubeId{11}}, {Side::W, CubeId{8}}, {Side::N, CubeId{2}}, {Side::S, CubeId{14}}};
  return c;
}
SystemConfig ring(uint32_t sips) {
  SystemConfig c = torus();
  c.sips = c.sip_w = sips;
  c.sip_h = 1;
  c.topology = SipTopology::Ring1d;
  return c;
}

TEST(TopologyCost, StridedGroupsOfARingShareLinks) {
  const MeshPtr mesh = MeshLayout::create({4, 4});
  const SipGraph line(ring(16));
  EXPECT_EQ(ring_load(line, mesh->groups(0)).longest_step, 4u);
  EXPECT_EQ(ring_load(line, mesh->groups(0)).busiest_link, 4u);
  EXPECT_EQ(ring_load(line, mesh->groups(1)).longest_step, 3u) << "back from the last to the first";
  const SipGraph grid(torus());
  for (uint32_t d = 0; d < 2; ++d) {
    EXPECT_EQ(ring_load(grid, mesh->groups(d)).longest_step, 1u);
    EXPECT_EQ(ring_load(grid, mesh->groups(d)).busiest_link, 1u);
  }
}

TEST(TopologyCost, CostsFollowTheLinks) {
  const MeshPtr mesh = MeshLayout::create({4, 4});
  const TopologyCostModel on_ring(ring(16)), on_torus(torus());
  constexpr double kBytes = 1 << 20;
  const auto cost = [&](const CostModel& model, CollectiveKind kind, uint32_t dim, double bytes) {
    return model.collective_us(kind, *mesh, dim, bytes);
  };
  EXPECT_EQ(cost(on_torus, CollectiveKind::AllGather, 0, kBytes), cost(on_torus, CollectiveKind::AllGather, 1, kBytes));
  // Launch and completion over the host link, three steps of one link, three quarters of the bytes.
  EXPECT_NEAR(cost(on_torus, CollectiveKind::AllGather, 0, kBytes), 1.3 + 3 * 0.25 + 0.75 * kBytes / 1e5, 1e-9);
  EXPECT_NEAR(cost(on_ring, CollectiveKind::AllGather, 0, kBytes), 1.3 + 3 * 1.0 + 4 * 0.75 * kBytes / 1e5, 1e-9);
  EXPECT_GT(cost(on_torus, CollectiveKind::AllReduce, 0, 0), cost(on_torus, CollectiveKind::ReduceScatter, 0, 0));
  EXPECT_THROW(TopologyCostModel(ring(4)).collective_us(CollectiveKind::AllGather, *mesh, 0, 1), std::invalid_argument);
}

TEST(TopologyCost, OperatorsTakeTimeByTheirParts) {
  const SystemConfig config = ring(4);
  const double macs_per_us = config.cubes() * config.pes * config.pe.macs_per_cycle * config.pe.hertz / 1e6;
  const double bytes_per_us = config.cubes() * config.pes * config.pe.dma_bytes_per_second / 1e6;
  const TopologyCostModel model(config);
  EXPECT_DOUBLE_EQ(model.compute_us(1e9, 0), 1e9 / macs_per_us);
  EXPECT_DOUBLE_EQ(model.compute_us(0, 1e9), 1e9 / bytes_per_us);
  EXPECT_EQ(RingCostModel().compute_us(1e9, 1e9), 0);
  SystemConfig free = config;
  free.pe.free_compute = true;
  EXPECT_EQ(TopologyCostModel(free).compute_us(1e9, 0), 0);

  // Whole, by rows, by columns and over a cut depth: a quarter of the work, but not of the bytes.
  StrategyEngine engine;
  const MeshPtr mesh = MeshLayout::create({4});
  constexpr int64_t kSize = 4096;
  const auto cost = [&](const Placement& a, const Placement& b) {
    const DTensorSpec left(mesh, {a}, {kSize, kSize}, DType::Float32), right(mesh, {b}, {kSize, kSize}, DType::Float32);
    return compute_cost(model, *engine.decide({Op::Mm, {OpInput(left), OpInput(right)}, {}}));
  };
  const double whole = double(kSize) * kSize * kSize / macs_per_us;
  EXPECT_GT(whole, 3.0 * kSize * kSize * 4 / bytes_per_us) << "bound by the arithmetic";
  EXPECT_DOUBLE_EQ(cost(Replicate{}, Replicate{}), whole);
  EXPECT_DOUBLE_EQ(cost(Shard{0}, Replicate{}), whole / 4);
  EXPECT_DOUBLE_EQ(cost(Replicate{}, Shard{1}), whole / 4);
  EXPECT_DOUBLE_EQ(cost(Shard{1}, Shard{0}), whole / 4);
}

// Decisions can be made with it.
TEST(TopologyCost, StrategiesChooseByIt) {
  StrategyEngine engine(std::make_shared<TopologyCostModel>(ring(16)));
  const MeshPtr mesh = MeshLayout::create({4, 4});
  const DTensorSpec a(mesh, {Shard{0}, Replicate{}}, {256, 256}, DType::Float32);
  const DTensorSpec b(mesh, {Shard{1}, Replicate{}}, {256, 256}, DType::Float32);
  const auto decision = engine.decide({Op::Mm, {OpInput(a), OpInput(b)}, {}});
  EXPECT_GT(decision->cost_us, 0);
  EXPECT_EQ(decision->collectives(), 1u);
}

}  // namespace
}  // namespace ahbm::dtensor
