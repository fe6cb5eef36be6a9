// A named subset of all_reduce on the default machine: 4 SIPs of 4 x 4 cubes with 4 PEs. Contributions are small
// integers, whose reductions are exact in every dtype and order, so the reference here is a plain loop; the documented
// order is what AllReduceMatrix compares with.
#include <gmock/gmock.h>

#include <algorithm>

#include "models/core/config/load_config.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::SimTest;

struct Case {
  const char* name;
  const char* algorithm;
  CubePolicy cube;
  PePolicy pe;
  DType dtype;
  ReduceOp op;
  uint64_t count;
};

/// Element i of what cube `piece` (of a partial tensor) of a rank brings.
double brought(uint32_t rank, uint64_t piece, uint64_t i) {
  const uint64_t mixed = (i + 1) * 2654435761u + rank * 40503u + piece * 97u;
  return static_cast<double>((mixed >> 7) % 5) - 2;
}

class Ring4 : public SimTest, public testing::WithParamInterface<Case> {};

TEST_P(Ring4, EveryRankHoldsTheResult) {
  const Case c = GetParam();
  const SystemConfig config = load_system_config("ring4");
  Machine m(config);
  const uint32_t world = 4;
  const uint64_t pieces = c.cube == CubePolicy::Partial ? config.cubes() : 1;
  std::vector<uint8_t> want(c.count * item_bytes(c.dtype));
  for (uint64_t i = 0; i < c.count; ++i) {
    double v = brought(0, 0, i);
    for (uint32_t r = 0; r < world; ++r) {
      for (uint64_t p = 0; p < pieces; ++p) {
        if (r == 0 && p == 0) continue;
        const double x = brought(r, p, i);
        v = c.op == ReduceOp::Max ? std::max(v, x) : c.op == ReduceOp::Min ? std::min(v, x) : v + x;
      }
    }
    store_element(c.dtype, want.data(), i, c.op == ReduceOp::Avg ? v / world : v);
  }
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_algorithm(c.algorithm);
    d.init_process_group();
    m.ctx.spawn(
        [&](uint32_t rank) {
          std::vector<uint8_t> host(c.count * pieces * item_bytes(c.dtype));
          for (uint64_t i = 0; i < c.count * pieces; ++i) {
            store_element(c.dtype, host.data(), i, brought(rank, i / c.count, i % c.count));
          }
          const Tensor t = m.ctx.from_host({c.count}, c.dtype, host.data(), host.size(), policy(c.cube, c.pe));
          const auto record = d.all_reduce(t, c.op).record();
          EXPECT_GT(record.end, record.start);
          EXPECT_EQ(t.to_host_bytes() == want, true) << "rank " << rank;
          if (c.cube == CubePolicy::RowWise) return;
          for (uint32_t k = 0; k < config.cubes(); ++k) {
            EXPECT_EQ(t.piece_bytes(SipId{rank}, CubeId{k}) == want, true) << "rank " << rank << " cube " << k;
          }
        },
        world);
    d.destroy_process_group();
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
    EXPECT_EQ(m.device.tags_in_use(), 0u);
  });
}

constexpr uint64_t kFloats64K = (64 << 10) / 4;
INSTANTIATE_TEST_SUITE_P(Subset, Ring4,
                         testing::Values(Case{"sharded_fp32_sum_64KiB", "ring_bidirectional", CubePolicy::RowWise,
                                              PePolicy::RowWise, DType::Float32, ReduceOp::Sum, kFloats64K},
                                         Case{"sharded_fp32_sum_1MiB_ring", "ring", CubePolicy::RowWise,
                                              PePolicy::RowWise, DType::Float32, ReduceOp::Sum, 16 * kFloats64K},
                                         Case{"sharded_fp32_avg_4MiB", "ring_bidirectional", CubePolicy::RowWise,
                                              PePolicy::RowWise, DType::Float32, ReduceOp::Avg, 64 * kFloats64K},
                                         Case{"sharded_bf16_sum_65537", "ring_bidirectional", CubePolicy::RowWise,
                                              PePolicy::RowWise, DType::BFloat16, ReduceOp::Sum, 65537},
                                         Case{"sharded_int32_max_1000", "ring", CubePolicy::RowWise, PePolicy::RowWise,
                                              DType::Int32, ReduceOp::Max, 1000},
                                         Case{"sharded_fp32_min_3", "ring_bidirectional", CubePolicy::RowWise,
                                              PePolicy::RowWise, DType::Float32, ReduceOp::Min, 3},
                                         Case{"replicated_fp32_sum_64KiB", "ring_bidirectional", CubePolicy::Replicate,
                                              PePolicy::RowWise, DType::Float32, ReduceOp::Sum, kFloats64K},
                                         Case{"replicated_fp16_max_65537_ring", "ring", CubePolicy::Replicate,
                                              PePolicy::Replicate, DType::Float16, ReduceOp::Max, 65537},
                                         Case{"partial_fp32_sum_64KiB", "ring_bidirectional", CubePolicy::Partial,
                                              PePolicy::RowWise, DType::Float32, ReduceOp::Sum, kFloats64K},
                                         Case{"partial_int32_sum_65537", "ring_bidirectional", CubePolicy::Partial,
                                              PePolicy::RowWise, DType::Int32, ReduceOp::Sum, 65537}),
                         [](const testing::TestParamInfo<Case>& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace ahbm::runtime::test
