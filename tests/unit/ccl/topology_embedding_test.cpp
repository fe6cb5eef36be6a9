#include "ccl/topology_embedding.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/ccl/harness.h"

namespace ahbm::ccl::test {
namespace {

using ::testing::HasSubstr;

bool neighbours(SipTopology t, uint32_t w, uint32_t h, uint32_t a, uint32_t b) {
  const auto apart = [t](uint32_t p, uint32_t q, uint32_t extent) {
    const uint32_t d = p < q ? q - p : p - q;
    return t == SipTopology::Torus2d ? std::min(d, extent - d) : d;
  };
  return apart(a % w, b % w, w) + apart(a / w, b / w, h) == 1;
}

TEST(RingOrder, HamiltonianCycleExistsIffItShould) {
  for (SipTopology t : {SipTopology::Torus2d, SipTopology::Mesh2d}) {
    for (uint32_t w = 1; w <= 8; ++w) {
      for (uint32_t h = 1; h <= 8; ++h) {
        SCOPED_TRACE(fmt::format("{} {}x{}", static_cast<int>(t), w, h));
        const RingOrder ring = ring_order(t, w, h, w * h);
        const bool torus = t == SipTopology::Torus2d;
        const bool exists = w * h <= 2 || (torus ? true : w >= 2 && h >= 2 && w * h % 2 == 0);
        EXPECT_EQ(ring.refusal.empty(), exists) << ring.refusal;
        if (!exists) {
          EXPECT_TRUE(ring.order.empty());
          continue;
        }
        const std::set<uint32_t> all(ring.order.begin(), ring.order.end());
        EXPECT_EQ(all.size(), w * h);
        EXPECT_EQ(*all.rbegin(), w * h - 1);
        for (uint32_t p = 0; p < w * h && w * h > 1; ++p) {
          EXPECT_TRUE(neighbours(t, w, h, ring.order[p], ring.order[(p + 1) % (w * h)]))
              << ring.order[p] << " -> " << ring.order[(p + 1) % (w * h)];
        }
      }
    }
  }
}

TEST(RingOrder, NaturalOrderElsewhere) {
  for (SipTopology t : {SipTopology::Ring1d, SipTopology::FullyConnected, SipTopology::Switch}) {
    EXPECT_EQ(ring_order(t, 5, 1, 5).order, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  }
}

TEST(RingOrder, SubsetsOfAGrid) {
  // Two rows of a 3x3 torus: the wrap of the columns is gone, that of the rows is not.
  const RingOrder rows = ring_order(SipTopology::Torus2d, 3, 3, 6);
  EXPECT_EQ(rows.order.size(), 6u);
  EXPECT_EQ(ring_order(SipTopology::Torus2d, 4, 4, 4).order.size(), 4u);  // one row closes by its wrap
  EXPECT_THAT(ring_order(SipTopology::Mesh2d, 4, 4, 4).refusal, HasSubstr("a line of 4"));
  EXPECT_THAT(ring_order(SipTopology::Mesh2d, 4, 4, 7).refusal, HasSubstr("7 ranks are no whole rows"));
  EXPECT_EQ(ring_order(SipTopology::Mesh2d, 4, 4, 2).order.size(), 2u);
  EXPECT_THAT(ring_order(SipTopology::Mesh2d, 2, 2, 6).refusal, HasSubstr("do not fit"));
  Group g = make_group(4, 1, 1, 0, SipTopology::Mesh2d, 2, 2);
  std::swap(g.sips[1], g.sips[2]);
  EXPECT_EQ(ring_order(g).order, (std::vector<uint32_t>{0, 2, 3, 1}));  // SIPs 0, 1, 3, 2
}

TEST(RingOrder, EgressNamesTheSideOfTheNeighbour) {
  EXPECT_EQ(ring_egress(make_group(2), 0, tl::Dir::Next), Egress::E);
  EXPECT_EQ(ring_egress(make_group(2), 0, tl::Dir::Prev), Egress::W);
  EXPECT_EQ(ring_egress(make_group(4), 0, tl::Dir::N), Egress::Any);
  for (const auto& [w, h] : {std::pair{4u, 4u}, std::pair{3u, 3u}, std::pair{5u, 3u}, std::pair{2u, 3u}}) {
    const Group g = make_group(w * h, 1, 1, 0, SipTopology::Torus2d, w, h);
    const RingOrder ring = ring_order(g);
    for (uint32_t p = 0; p < w * h; ++p) {
      const uint32_t from = ring.order[p], to = ring.order[(p + 1) % (w * h)];
      uint32_t x = from % w, y = from / w;
      switch (ring_egress(g, from, tl::Dir::Next)) {
        case Egress::E:
          x = (x + 1) % w;
          break;
        case Egress::W:
          x = (x + w - 1) % w;
          break;
        case Egress::S:
          y = (y + 1) % h;
          break;
        case Egress::N:
          y = (y + h - 1) % h;
          break;
        case Egress::Any:
          FAIL() << from << " -> " << to;
      }
      EXPECT_EQ(y * w + x, to) << w << "x" << h << " from " << from;
    }
  }
}

TEST(Modules, DescribeThemselves) {
  Registry r;
  register_builtin_algorithms(r);
  EXPECT_THROW(register_builtin_algorithms(r), std::invalid_argument);
  AlgorithmModule nameless = *builtin().find("ring");
  nameless.name.clear();
  EXPECT_THROW(r.add(nameless), std::invalid_argument);
  AlgorithmModule without = *builtin().find("ring");
  without.name = "other";
  without.reduction_order = nullptr;
  EXPECT_THROW(r.add(without), std::invalid_argument);
  EXPECT_EQ(r.find("tree"), nullptr);
}

TEST(Modules, ClosedFormsAtTheFiguresOfTheSpecification) {
  // 1 MiB, 64 B/ns, 50 ns.
  const Group g8 = make_group(8);
  CostQuery q;
  q.ranks = 8;
  q.bytes = 1 << 20;
  q.latency = 50e-9;
  q.bandwidth = 64e9;
  q.group = &g8;
  EXPECT_NEAR(builtin().find("ring_bidirectional")->time(q) * 1e9, 14736, 0.5);
  EXPECT_NEAR(builtin().find("ring")->time(q) * 1e9, 14 * 50 + 2 * 7.0 / 8 * 16384, 0.5);
  // Two ranks on one cable: both directions share it, and the two algorithms are equal.
  const Group g2 = make_group(2);
  q.ranks = 2;
  q.group = &g2;
  EXPECT_NEAR(builtin().find("ring_bidirectional")->time(q) * 1e9, 100 + 16384, 0.5);
  EXPECT_NEAR(builtin().find("ring")->time(q) * 1e9, 100 + 16384, 0.5);
  q.ranks = 1;
  EXPECT_EQ(builtin().find("ring")->time(q), 0);
  EXPECT_EQ(builtin().find("ring_bidirectional")->time(q), 0);
}

TEST(KernelArguments, PackAndUnpack) {
  const Group g = make_group(6, 4, 2, 8, SipTopology::Mesh2d, 3, 2);
  AlgorithmModule module = *builtin().find("ring");
  module.rank_args = nullptr;
  module.kernel_args = builtin_kernel_args;
  const auto words = pack_arguments(module, g, 4, 0x1000, 77, DType::BFloat16, ReduceOp::Min, CubeLayout::Replicated);
  EXPECT_EQ(words, (std::vector<uint64_t>{0x1000, 6, 77, 4, 2, 4, 2, 3, 2, 2, 3, 1}));
  const CollectiveArguments a = unpack_arguments(tl::Args(words));
  EXPECT_EQ(a.sip_rank, 4u);
  EXPECT_EQ(a.n_elem, 77u);
  EXPECT_EQ(a.dtype, DType::BFloat16);
  EXPECT_EQ(a.op, ReduceOp::Min);
  EXPECT_EQ(a.layout, CubeLayout::Replicated);
  EXPECT_EQ(a.at(3), 0x1006u);
  auto bad = words;
  bad[9] = 99;
  EXPECT_THROW(unpack_arguments(tl::Args(bad)), std::invalid_argument);
  bad = words;
  bad[5] = 6;
  EXPECT_THROW(unpack_arguments(tl::Args(bad)), std::invalid_argument);
  bad.pop_back();
  EXPECT_THROW(unpack_arguments(tl::Args(bad)), std::invalid_argument);
}

TEST(Reference, RefusesMalformedOrders) {
  float x[4] = {1, 2, 3, 4}, out[4];
  const std::vector<const void*> two{x, x};
  constexpr int32_t kOp = ReduceTree::kCombine;
  const auto run = [&](std::vector<ReduceTree> order) {
    evaluate_reference(order, two, 4, DType::Float32, ReduceOp::Sum, 1, out);
  };
  run({{{0, 4}, {0, 1, kOp}}});
  EXPECT_EQ(out[3], 8);
  EXPECT_THROW(run({{{0, 3}, {0, 1, kOp}}}), std::invalid_argument);                         // an element short
  EXPECT_THROW(run({{{0, 3}, {0, 1, kOp}}, {{2, 2}, {0, 1, kOp}}}), std::invalid_argument);  // one twice
  EXPECT_THROW(run({{{0, 4}, {0, 0, kOp}}}), std::invalid_argument);                         // a contribution twice
  EXPECT_THROW(run({{{0, 4}, {0}}}), std::invalid_argument);                                 // one missing
  EXPECT_THROW(run({{{0, 4}, {0, 1}}}), std::invalid_argument);                              // not combined
  EXPECT_THROW(run({{{0, 4}, {0, kOp, 1}}}), std::invalid_argument);                         // no operands
  EXPECT_THROW(run({{{0, 4}, {0, 2, kOp}}}), std::invalid_argument);                         // unknown
}

}  // namespace
}  // namespace ahbm::ccl::test
