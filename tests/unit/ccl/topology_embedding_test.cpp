#include "ccl/topology_embedding.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "ccl/group_memo.h"

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

TEST(RingOrder, EgressOfManyEndsIsThatOfEach) {
  for (const SipTopology t : {SipTopology::Ring1d, SipTopology::Torus2d, SipTopology::Mesh2d, SipTopology::Switch}) {
    const Group g = make_group(15, 1, 1, 0, t, 5, 3);
    RingEgress egress(g);
    for (uint32_t r = 0; r < g.size(); ++r) {
      for (const tl::Dir dir : {tl::Dir::Next, tl::Dir::Prev, tl::Dir::GlobalE, tl::Dir::N}) {
        EXPECT_EQ(egress.of(r, dir), ring_egress(g, r, dir)) << to_string(t) << " rank " << r;
      }
    }
  }
}

/// What `tree_order` is to give, by looking at every pair of ranks: in the order of their distance from the root, each
/// gets as its parent the nearest rank that is in the tree and has less than four children; of several the one with the
/// shortest way to the root, then that of the root's branch with the fewest ranks, then the one that came first.
TreeOrder tree_by_all_pairs(const Group& g, uint32_t root) {
  const uint32_t n = g.size();
  TreeOrder tree;
  tree.parent.assign(n, root);
  tree.children.resize(n);
  std::vector<uint32_t> order(n), depth(n), branch(n, root), load(n), placed{root};
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return sip_hops(g, root, a) < sip_hops(g, root, b); });
  for (const uint32_t r : order) {
    if (r == root) continue;
    uint32_t best = root;
    std::tuple<uint32_t, uint32_t, uint32_t> least{~0u, 0, 0};
    for (const uint32_t p : placed) {
      if (tree.children[p].size() == 4) continue;
      const uint32_t hops = sip_hops(g, p, r);
      const std::tuple<uint32_t, uint32_t, uint32_t> cost{hops, depth[p] + hops, p == root ? 0 : load[branch[p]]};
      if (cost < least) least = cost, best = p;
    }
    tree.parent[r] = best;
    tree.children[best].push_back(r);
    branch[r] = best == root ? r : branch[best];
    ++load[branch[r]];
    depth[r] = std::get<1>(least);
    tree.depth = std::max(tree.depth, depth[r]);
    placed.push_back(r);
  }
  return tree;
}

void expect_tree_by_all_pairs(const Group& g, uint32_t root) {
  const TreeOrder got = tree_order(g, root), want = tree_by_all_pairs(g, root);
  std::vector<uint32_t> sips;
  for (const SipId s : g.sips) sips.push_back(value(s));
  SCOPED_TRACE(fmt::format("SIPs {} of a {} {}x{} of {}, root {}", fmt::join(sips, ","), to_string(g.topology), g.sip_w,
                           g.sip_h, g.machine_sips, root));
  EXPECT_EQ(got.parent, want.parent);
  EXPECT_EQ(got.children, want.children);
  EXPECT_EQ(got.depth, want.depth);
}

TEST(TreeOrder, OfWholeMachinesIsTheOneByAllPairs) {
  for (const SipTopology t : {SipTopology::Ring1d, SipTopology::Torus2d, SipTopology::Mesh2d}) {
    for (const auto& [w, h] : {std::pair{1u, 1u},
                               {2u, 1u},
                               {1u, 2u},
                               {3u, 1u},
                               {2u, 2u},
                               {1u, 7u},
                               {4u, 4u},
                               {5u, 3u},
                               {2u, 8u},
                               {8u, 6u}}) {
      const bool ring = t == SipTopology::Ring1d;
      const Group g = make_group(w * h, 1, 1, 0, t, ring ? w * h : w, ring ? 1 : h);
      for (uint32_t root = 0; root < g.size(); ++root) expect_tree_by_all_pairs(g, root);
    }
  }
}

TEST(TreeOrder, OfRandomGroupsIsTheOneByAllPairs) {
  std::mt19937 rng(20);
  for (uint32_t i = 0; i < 3000; ++i) {
    const auto t = std::array{SipTopology::Ring1d, SipTopology::Torus2d, SipTopology::Mesh2d}[i % 3];
    const uint32_t w = 1 + rng() % 9, h = t == SipTopology::Ring1d ? 1 : 1 + rng() % 9, machine = w * h;
    // One in eight lies partly outside of the fabric, or on few of its SIPs, several ranks on each.
    const bool outside = rng() % 8 == 0, crowded = rng() % 8 == 0;
    std::vector<uint32_t> sips(machine);
    std::iota(sips.begin(), sips.end(), 0);
    std::shuffle(sips.begin(), sips.end(), rng);
    sips.resize(1 + rng() % machine);
    Group g = make_group(static_cast<uint32_t>(sips.size()), 1, 1, 0, t, w, h);
    g.machine_sips = outside ? 1 : machine;
    for (size_t r = 0; r < sips.size(); ++r) {
      g.sips[r] = SipId{crowded ? sips[r % (1 + sips.size() / 8)] : sips[r] + (outside ? machine / 2 : 0)};
    }
    expect_tree_by_all_pairs(g, static_cast<uint32_t>(rng() % g.size()));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(GroupMemo, MakesOncePerGroupAndRoot) {
  uint32_t made = 0;
  GroupMemo<uint32_t> memo([&](const Group& g, uint32_t root) {
    ++made;
    return g.size() * 100 + root;
  });
  const Group a = make_group(8);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const Group equal = a;  // by content: callers pass copies
    EXPECT_EQ(*memo.of(equal, 3), 803u);
  }
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(*memo.of(a, 4), 804u);
  EXPECT_EQ(made, 2u);
  // Every field tells groups apart.
  std::vector<Group> others(10, a);
  std::swap(others[0].sips[1], others[0].sips[2]);
  others[1].cube_w = 2;
  others[2].cube_h = 2;
  others[3].n_cubes = 2;
  others[4].topology = SipTopology::Mesh2d;
  others[5].sip_w = 4;
  others[6].sip_h = 2;
  others[7].machine_sips = 16;
  others[8].double_links = true;
  others[9].pes.resize(8);
  for (const Group& g : others) {
    made = 0;
    memo.of(a, 3);
    memo.of(g, 3);
    EXPECT_GE(made, 1u) << &g - others.data();
  }
}

TEST(GroupMemo, KeepsAFewAndWhatIsInUse) {
  uint32_t made = 0;
  GroupMemo<uint32_t> memo([&](const Group&, uint32_t root) {
    ++made;
    return root;
  });
  const Group g = make_group(2);
  const auto first = memo.of(g, 0);
  for (uint32_t root = 1; root < 100; ++root) memo.of(g, root);
  EXPECT_EQ(made, 100u);
  EXPECT_EQ(*first, 0u);
  memo.of(g, 99);
  EXPECT_EQ(made, 100u);
  memo.of(g, 0);
  EXPECT_EQ(made, 101u);
  // What is asked for again stays, whoever comes.
  for (uint32_t root = 200; root < 250; ++root) {
    memo.of(g, root);
    memo.of(g, 0);
  }
  EXPECT_EQ(made, 151u);
}

/// Laid anew for every rank these took minutes: here the time limit of the test is the check.
TEST(Modules, GiveTheWordsOfLargeGroupsInTime) {
  const Group g = make_group(4096, 1, 1, 0, SipTopology::Torus2d, 64, 64);
  for (const auto& [name, m] : builtin().modules()) {
    // Of the others the words themselves grow with the square of the ranks, as do their messages.
    const bool many_words = m.collective == Collective::AllToAll || m.collective == Collective::AllGather ||
                            m.collective == Collective::ReduceScatter;
    if (many_words || !m.refusal(g).empty()) continue;
    CollectiveShape shape;
    shape.count = 1;
    shape.root = 77;
    if (m.layouts.count(shape.layout) == 0) shape.layout = *m.layouts.begin();
    size_t words = 0;
    for (uint32_t r = 0; r < g.size(); ++r) words += m.rank_args(g, shape, r).size();
    EXPECT_GE(words, g.size()) << name;
  }
}

TEST(Modules, DirectRefusesMorePeersThanQueuePairs) {
  const AlgorithmModule& direct = *builtin().find("direct");
  for (const SipTopology t : {SipTopology::FullyConnected, SipTopology::Switch}) {
    EXPECT_EQ(direct.refusal(make_group(1025, 1, 1, 0, t)), "");
    EXPECT_THAT(direct.refusal(make_group(1026, 1, 1, 0, t)), HasSubstr("1025 peers are more than the 1024 queue"));
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
