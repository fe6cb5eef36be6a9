// Runs an all-reduce on the twin and compares it with the reference: bit for bit, on every rank and cube, with guard
// bytes around every buffer. The twin itself checks that all queues are empty and all credits back.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ccl/algorithm.h"
#include "ccl/kernel_arguments.h"
#include "ccl/plan_check.h"
#include "ccl/reference.h"
#include "models/tl/twin.h"

namespace ahbm::ccl::test {

inline const Registry& builtin() {
  static const Registry kRegistry = [] {
    Registry r;
    register_builtin_algorithms(r);
    return r;
  }();
  return kRegistry;
}

inline Group make_group(uint32_t n, uint32_t cube_w = 1, uint32_t cube_h = 1, uint32_t n_cubes = 0,
                        SipTopology topology = SipTopology::Ring1d, uint32_t w = 0, uint32_t h = 1) {
  Group g;
  for (uint32_t r = 0; r < n; ++r) g.sips.push_back(SipId{r});
  g.n_cubes = n_cubes == 0 ? cube_w * cube_h : n_cubes;
  g.cube_w = cube_w;
  g.cube_h = cube_h;
  g.topology = topology;
  g.sip_w = w == 0 ? n : w;
  g.sip_h = h;
  g.machine_sips = n;
  return g;
}

struct Case {
  std::string algorithm = "ring";
  Group group;
  uint64_t count = 0;  ///< elements of a rank's tensor
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  CubeLayout layout = CubeLayout::Sharded;
  PlanQueues queues;
  uint32_t schedule = 0;

  std::string text() const {
    return fmt::format("{} n={} cubes={} of {}x{} count={} {} {} {} slots {}x{} / {}x{} schedule {}", algorithm,
                       group.size(), group.n_cubes, group.cube_w, group.cube_h, count, to_string(dtype), to_string(op),
                       to_string(layout), queues.sip.n_slots, queues.sip.slot_bytes, queues.cube.n_slots,
                       queues.cube.slot_bytes, schedule);
  }
};

constexpr size_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xA5;

inline std::vector<uint8_t> random_contribution(const Case& c, uint64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> real(-3, 3);
  std::vector<uint8_t> out(count * item_bytes(c.dtype));
  const bool order = c.op == ReduceOp::Max || c.op == ReduceOp::Min;
  for (uint64_t i = 0; i < count; ++i) {
    double v = is_floating(c.dtype) ? real(rng) : std::floor(real(rng) * 1e8);
    if (order && is_floating(c.dtype)) {
      const uint32_t dice = rng() % 16;
      if (dice < 4) v = dice % 2 == 0 ? 0.0 : -0.0;
      if (dice == 4) v = std::numeric_limits<double>::quiet_NaN();
    }
    store_element(c.dtype, out.data(), i, v);
  }
  return out;
}

inline void run_case(const Case& c) {
  SCOPED_TRACE(c.text());
  const AlgorithmModule* m = builtin().find(c.algorithm);
  ASSERT_NE(m, nullptr);
  const Group& g = c.group;
  ASSERT_EQ(m->refusal(g), "");
  const uint32_t n = g.size(), cubes = g.n_cubes;
  const uint64_t item = item_bytes(c.dtype);

  tl::TwinConfig config;
  config.shape.sips = n;
  config.shape.cubes = cubes;
  config.shape.pes = 1;
  config.schedule = c.schedule;
  tl::Twin twin(config);
  for (const Connection& k : m->connections(g, {})) {
    const RingShape& s = k.rank == k.peer_rank ? c.queues.cube : c.queues.sip;
    twin.connect(
        {k.rank * cubes + k.cube, k.dir, k.peer_rank * cubes + k.peer_cube, k.peer_dir, s.n_slots, s.slot_bytes});
  }

  const auto elements = [&](uint32_t cube) {
    return c.layout == CubeLayout::Sharded ? aligned_chunk(c.count, cubes, cube).count : c.count;
  };
  std::vector<std::vector<uint8_t>> input;  // rank * cubes + cube
  std::vector<tl::TwinLaunch> launches;
  const auto address = [&](uint32_t rank, uint32_t cube) {
    return hbm_address(SipId{rank}, CubeId{cube}, 4096 + kGuard + item * (rank + cube));
  };
  const std::vector<uint8_t> guard(kGuard, kGuardByte);
  for (uint32_t rank = 0; rank < n; ++rank) {
    for (uint32_t cube = 0; cube < cubes; ++cube) {
      const uint32_t seed = 1000 * rank + (c.layout == CubeLayout::Replicated ? 0 : cube) + 7;
      input.push_back(random_contribution(c, elements(cube), seed));
      const Addr at = address(rank, cube);
      twin.write(at - kGuard, guard.data(), kGuard);
      if (!input.back().empty()) twin.write(at, input.back().data(), input.back().size());
      twin.write(at + input.back().size(), guard.data(), kGuard);
      tl::TwinLaunch l;
      l.flat_pe = rank * cubes + cube;
      l.kernel = m->kernel;
      l.args = pack_arguments(*m, g, rank, at, elements(cube), c.dtype, c.op, c.layout);
      l.header.group = 5;
      l.header.seq = 9;
      l.header.program_rank = rank;
      l.header.program_ranks = n;
      l.header.program_cube = cube;
      l.header.program_cubes = cubes;
      launches.push_back(l);
    }
  }
  twin.run(launches);

  for (uint32_t cube = 0; cube < cubes; ++cube) {
    const uint64_t count = elements(cube);
    std::vector<const void*> contributions;
    for (uint32_t rank = 0; rank < n; ++rank) {
      for (uint32_t k = 0; k < (c.layout == CubeLayout::Partial ? cubes : 1); ++k) {
        contributions.push_back(input[rank * cubes + (c.layout == CubeLayout::Partial ? k : cube)].data());
      }
    }
    std::vector<uint8_t> expected(count * item);
    evaluate_reference(m->reduction_order(g, lane_shape(count, c.layout)), contributions, count, c.dtype, c.op,
                       c.op == ReduceOp::Avg ? n : 1, expected.data());
    for (uint32_t rank = 0; rank < n; ++rank) {
      SCOPED_TRACE(fmt::format("rank {} cube {}", rank, cube));
      std::vector<uint8_t> got(expected.size() + 2 * kGuard);
      twin.read(address(rank, cube) - kGuard, got.data(), got.size());
      std::vector<uint8_t> framed = guard;
      framed.insert(framed.end(), expected.begin(), expected.end());
      framed.insert(framed.end(), guard.begin(), guard.end());
      if (got == framed) continue;
      const auto at = std::mismatch(got.begin(), got.end(), framed.begin()).first - got.begin();
      FAIL() << "byte " << at - static_cast<long>(kGuard) << " of " << expected.size() << " differs";
    }
  }
}

}  // namespace ahbm::ccl::test
