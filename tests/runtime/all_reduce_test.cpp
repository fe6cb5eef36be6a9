// all_reduce end to end: results bit for bit against the documented order, over worlds, layouts, ops, dtypes and
// counts.
#include <gmock/gmock.h>

#include "ccl/reference.h"
#include "runtime/random.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::SimTest;

struct Layouts {
  const char* name;
  CubePolicy cube;
  PePolicy pe;
  const char* algorithm;
};
const Layouts kLayouts[] = {
    {"sharded_ring", CubePolicy::RowWise, PePolicy::RowWise, "ring"},
    {"sharded_bidirectional", CubePolicy::RowWise, PePolicy::RowWise, "ring_bidirectional"},
    {"replicated_ring", CubePolicy::Replicate, PePolicy::RowWise, "ring"},
    {"replicated_bidirectional", CubePolicy::Replicate, PePolicy::Replicate, "ring_bidirectional"},
    {"partial", CubePolicy::Partial, PePolicy::RowWise, "ring_bidirectional"},
};

/// What every rank must hold: the logical tensor.
std::vector<uint8_t> expected(const ccl::AlgorithmModule& module, const layout::Layout& l, ccl::CubeLayout layout,
                              const ccl::Group& group, const std::vector<std::vector<uint8_t>>& host, DType dtype,
                              ReduceOp op) {
  const uint64_t item = item_bytes(dtype);
  const uint64_t count = l.elements();
  const uint64_t divisor = op == ReduceOp::Avg ? group.size() : 1;
  std::vector<uint8_t> out(count * item);
  if (layout != ccl::CubeLayout::Sharded) {
    const uint32_t pieces = layout == ccl::CubeLayout::Partial ? group.n_cubes : 1;
    std::vector<const void*> contributions;
    for (const auto& rank : host) {
      for (uint32_t c = 0; c < pieces; ++c) contributions.push_back(rank.data() + c * count * item);
    }
    ccl::evaluate_reference(module.reduction_order(group, ccl::lane_shape(count, layout)), contributions, count, dtype,
                            op, divisor, out.data());
    return out;
  }
  for (uint32_t c = 0; c < l.cubes(); ++c) {
    const uint64_t n = l.cube_elements(CubeId{c});
    if (n == 0) continue;
    const uint64_t offset = l.shard(CubeId{c}, PeId{0}).rows.begin * item;  // one dimension: a cube's part is a range
    std::vector<const void*> contributions;
    for (const auto& rank : host) contributions.push_back(rank.data() + offset);
    ccl::evaluate_reference(module.reduction_order(group, ccl::lane_shape(n, layout)), contributions, n, dtype, op,
                            divisor, out.data() + offset);
  }
  return out;
}

/// Values that no order of reduction leaves exact, without overflow of a product.
std::vector<uint8_t> contribution(DType dtype, uint64_t seed, uint64_t n) {
  std::vector<uint8_t> out(n * item_bytes(dtype));
  for (uint64_t i = 0; i < n; ++i) {
    const double v = random_value(dtype, seed, i);
    store_element(dtype, out.data(), i, is_floating(dtype) ? v * 2 - 0.75 : v);
  }
  return out;
}

using Param = std::tuple<uint32_t, size_t>;
class AllReduceMatrix : public SimTest, public testing::WithParamInterface<Param> {};

TEST_P(AllReduceMatrix, EqualsTheDocumentedOrderBitForBit) {
  const auto [world, layout_index] = GetParam();
  const Layouts& chosen = kLayouts[layout_index];
  Machine m(tiny(world));
  m.ctx.distributed.set_algorithm(chosen.algorithm);
  run([&, world = world] {
    m.ctx.distributed.init_process_group();
    const DPPolicy p = policy(chosen.cube, chosen.pe);
    for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product}) {
        for (const uint64_t count : {0, 1, 3, 1000, 65537}) {
          // The largest count once per dtype: it is about pieces and wrap-around, not about arithmetic.
          if (count == 65537 && op != ReduceOp::Sum && op != ReduceOp::Avg) continue;
          SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << to_string(op) << " " << count);
          const uint64_t pieces = chosen.cube == CubePolicy::Partial ? 4 : 1;
          std::vector<std::vector<uint8_t>> host(world), result(world);
          for (uint32_t r = 0; r < world; ++r) host[r] = contribution(dtype, 100 + r, count * pieces);
          m.ctx.spawn(
              [&](uint32_t rank) {
                const Tensor t = m.ctx.from_host({count}, dtype, host[rank].data(), host[rank].size(), p);
                m.ctx.distributed.all_reduce(t, op);
                result[rank] = t.to_host_bytes();
                const layout::Layout& l = t.handle()->layout();
                if (l.replicated_over_cubes() && count > 0) {
                  for (uint32_t c = 0; c < l.cubes(); ++c) {
                    for (uint32_t pe = 0; pe < (l.replicated_over_pes() ? l.pes() : 1u); ++pe) {
                      EXPECT_EQ(t.piece_bytes(SipId{rank}, CubeId{c}, PeId{pe}), result[rank])
                          << "cube " << c << " pe " << pe;
                    }
                  }
                }
              },
              world);

          const layout::Layout l({count}, dtype, p, 4, 2);
          ccl::Group group;
          for (uint32_t r = 0; r < world; ++r) group.sips.push_back(SipId{r});
          group.n_cubes = std::max(1u, l.occupied_cubes());
          if (group.n_cubes > 1) group.cube_w = group.cube_h = 2;
          group.sip_w = group.machine_sips = world;
          const auto kind = chosen.cube == CubePolicy::Partial     ? ccl::CubeLayout::Partial
                            : chosen.cube == CubePolicy::Replicate ? ccl::CubeLayout::Replicated
                                                                   : ccl::CubeLayout::Sharded;
          const ccl::AlgorithmModule& module =
              *m.algorithms.find(kind == ccl::CubeLayout::Partial ? "intercube" : chosen.algorithm);
          const std::vector<uint8_t> want = expected(module, l, kind, group, host, dtype, op);
          for (uint32_t r = 0; r < world; ++r) ASSERT_EQ(result[r], want) << "rank " << r;
        }
      }
    }
    m.ctx.distributed.destroy_process_group();
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
    EXPECT_EQ(m.device.tags_in_use(), 0u);
    for (uint32_t s = 0; s < world; ++s) {
      for (uint32_t c = 0; c < 4; ++c) EXPECT_EQ(m.device.allocator(SipId{s}, CubeId{c}).used(), 0u);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllReduceMatrix,
                         testing::Combine(testing::Values(1u, 2u, 3u, 4u, 8u),
                                          testing::Range<size_t>(0, std::size(kLayouts))),
                         [](const testing::TestParamInfo<Param>& p) {
                           return "world" + std::to_string(std::get<0>(p.param)) + "_" +
                                  kLayouts[std::get<1>(p.param)].name;
                         });

}  // namespace
}  // namespace ahbm::runtime::test
