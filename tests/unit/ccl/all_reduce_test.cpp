// The built-in all-reduces on the twin, against the independent reference.
#include <cmath>

#include "tests/unit/ccl/harness.h"

namespace ahbm::ccl::test {
namespace {

const std::vector<std::string> kRings{"ring", "ring_bidirectional"};
const std::vector<uint32_t> kWorlds{1, 2, 3, 4, 5, 6, 7, 8, 9, 12};
const std::vector<ReduceOp> kOps{ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};
const std::vector<DType> kDTypes{DType::Float32, DType::Float16, DType::BFloat16, DType::Int32};

PlanQueues queues(uint32_t n_slots, uint32_t slot_bytes) {
  return {{n_slots, slot_bytes}, {n_slots, slot_bytes}, 64};
}

/// 0, 1, around the number of ranks, primes, and more than one slab.
std::vector<uint64_t> counts(uint32_t n) {
  return {0, 1, n - 1, n, n + 1, 2 * n + 1, 997};
}

// Every count on every world size, with the shipped queues.
TEST(AllReduce, EveryWorldAndCount) {
  for (const std::string& algorithm : kRings) {
    for (uint32_t n : kWorlds) {
      for (uint64_t count : counts(n)) {
        Case c;
        c.algorithm = algorithm;
        c.group = make_group(n);
        c.count = count;
        run_case(c);
      }
    }
  }
}

// Shallow queues and small slots: no cyclic wait, whatever the order of turns.
TEST(AllReduce, ShallowQueues) {
  for (const std::string& algorithm : kRings) {
    for (uint32_t n : {2u, 3u, 4u, 5u, 8u}) {
      for (uint32_t depth : {1u, 2u, 3u, 8u}) {
        for (uint32_t slot : {36u, 48u, 288u, 4096u}) {
          for (uint32_t schedule : {0u, 3u, 9u}) {
            Case c;
            c.algorithm = algorithm;
            c.group = make_group(n);
            c.count = slot < 64 ? 97 : 997;
            c.queues = queues(depth, slot);
            c.schedule = schedule;
            run_case(c);
          }
        }
      }
    }
  }
}

TEST(AllReduce, EveryOpAndDType) {
  for (const std::string& algorithm : kRings) {
    for (uint32_t n : {2u, 3u, 4u, 6u}) {
      for (ReduceOp op : kOps) {
        for (DType t : kDTypes) {
          Case c;
          c.algorithm = algorithm;
          c.group = make_group(n);
          c.count = 301;
          c.op = op;
          c.dtype = t;
          c.queues = queues(3, 130);  // 98 payload bytes: no multiple of 4
          run_case(c);
        }
      }
    }
  }
}

struct Mesh {
  uint32_t w, h, n;
};
const std::vector<Mesh> kMeshes{{1, 1, 1}, {2, 1, 2}, {1, 3, 3}, {2, 2, 4},  {3, 2, 6}, {4, 4, 16}, {4, 4, 1},
                                {4, 4, 3}, {4, 4, 5}, {4, 4, 7}, {4, 4, 10}, {3, 3, 8}, {2, 2, 3}};

TEST(AllReduce, ShardedAndReplicatedOverCubes) {
  for (const std::string& algorithm : kRings) {
    for (const Mesh& mesh : kMeshes) {
      for (CubeLayout layout : {CubeLayout::Sharded, CubeLayout::Replicated}) {
        for (uint32_t n : {1u, 2u, 3u, 4u}) {
          for (uint64_t count : {uint64_t{0}, uint64_t{3}, uint64_t{mesh.n}, uint64_t{997}}) {
            Case c;
            c.algorithm = algorithm;
            c.group = make_group(n, mesh.w, mesh.h, mesh.n);
            c.count = count;
            c.layout = layout;
            c.queues = queues(2, 160);
            run_case(c);
          }
        }
      }
    }
  }
}

TEST(AllReduce, PartialOverCubes) {
  for (const Mesh& mesh : kMeshes) {
    for (uint32_t n : {1u, 2u, 3u, 4u}) {
      for (uint64_t count : {0, 1, 997}) {
        for (uint32_t depth : {1u, 4u}) {
          Case c;
          c.algorithm = "intercube";
          c.group = make_group(n, mesh.w, mesh.h, mesh.n);
          c.count = count;
          c.layout = CubeLayout::Partial;
          c.queues = queues(depth, 160);
          c.op = n == 3 ? ReduceOp::Avg : ReduceOp::Sum;
          c.schedule = depth;
          run_case(c);
        }
      }
    }
  }
}

TEST(AllReduce, PartialEveryOpAndDType) {
  for (const char* algorithm : {"intercube", "intercube_mesh"}) {
    for (ReduceOp op : kOps) {
      for (DType t : kDTypes) {
        Case c;
        c.algorithm = algorithm;
        c.group = make_group(3, 2, 2);
        c.count = 211;
        c.layout = CubeLayout::Partial;
        c.op = op;
        c.dtype = t;
        run_case(c);
      }
    }
  }
}

TEST(AllReduce, PartialOverCubesOnGridsWithoutARing) {
  struct Grid {
    SipTopology topology;
    uint32_t w, h;
  };
  for (const Grid& grid :
       {Grid{SipTopology::Mesh2d, 3, 3}, Grid{SipTopology::Mesh2d, 3, 1}, Grid{SipTopology::Mesh2d, 1, 5},
        Grid{SipTopology::Mesh2d, 2, 2}, Grid{SipTopology::Torus2d, 3, 3}, Grid{SipTopology::Ring1d, 5, 1},
        Grid{SipTopology::Mesh2d, 1, 1}}) {
    for (const Mesh& mesh : kMeshes) {
      for (uint64_t count : {0, 1, 997}) {
        Case c;
        c.algorithm = "intercube_mesh";
        c.group = make_group(grid.w * grid.h, mesh.w, mesh.h, mesh.n, grid.topology, grid.w, grid.h);
        c.count = count;
        c.layout = CubeLayout::Partial;
        c.queues = queues(2, 160);
        c.op = count == 1 ? ReduceOp::Avg : ReduceOp::Sum;
        run_case(c);
      }
    }
  }
}

TEST(AllReduce, GridsRunOnTheirHamiltonianCycle) {
  struct Grid {
    SipTopology topology;
    uint32_t w, h;
  };
  for (const Grid& grid :
       {Grid{SipTopology::Torus2d, 3, 3}, Grid{SipTopology::Torus2d, 2, 2}, Grid{SipTopology::Mesh2d, 4, 3},
        Grid{SipTopology::Mesh2d, 2, 1}, Grid{SipTopology::Torus2d, 1, 4}}) {
    for (const std::string& algorithm : kRings) {
      Case c;
      c.algorithm = algorithm;
      c.group = make_group(grid.w * grid.h, 1, 1, 0, grid.topology, grid.w, grid.h);
      c.count = 500;
      run_case(c);
    }
  }
}

// The reference is no copy of the kernel: here is the plain sum, which every order gives for small integers.
TEST(AllReduce, ReferenceGivesThePlainSum) {
  for (const char* algorithm : {"ring", "ring_bidirectional", "intercube", "intercube_mesh"}) {
    const AlgorithmModule& m = *builtin().find(algorithm);
    const CubeLayout layout = *m.layouts.begin();
    const Group g = make_group(5, 3, 2, 4);
    const uint32_t contributions = layout == CubeLayout::Partial ? 20 : 5;
    std::vector<std::vector<int32_t>> data(contributions, std::vector<int32_t>(101));
    std::vector<int32_t> sum(101);
    std::vector<const void*> pointers;
    for (uint32_t k = 0; k < contributions; ++k) {
      for (uint32_t i = 0; i < 101; ++i) sum[i] += data[k][i] = static_cast<int32_t>((k + 1) * (i + 3));
      pointers.push_back(data[k].data());
    }
    std::vector<int32_t> got(101);
    evaluate_reference(m.reduction_order(g, lane_shape(101, layout)), pointers, 101, DType::Int32, ReduceOp::Sum, 1,
                       got.data());
    EXPECT_EQ(got, sum) << algorithm;
  }
}

// The order that ring_bidirectional.cpp documents, spelled out for four ranks and for three.
TEST(AllReduce, DocumentedOrderOfTheBidirectionalRing) {
  const auto order = builtin().find("ring_bidirectional")->reduction_order;
  constexpr int32_t kOp = ReduceTree::kCombine;
  const auto four = order(make_group(4), lane_shape(8, CubeLayout::Sharded));
  ASSERT_EQ(four.size(), 8u);  // four chunks of two halves of one element
  EXPECT_EQ(four[0].range, (Range{0, 1}));
  EXPECT_EQ(four[0].postfix, (std::vector<int32_t>{0, 3, 2, kOp, kOp, 1, kOp}));  // (x0 + (x3 + x2)) + x1
  EXPECT_EQ(four[1].range, (Range{1, 1}));
  EXPECT_EQ(four[1].postfix, (std::vector<int32_t>{0, 3, kOp, 1, 2, kOp, kOp}));  // (x0 + x3) + (x1 + x2)
  const auto three = order(make_group(3), lane_shape(3, CubeLayout::Sharded));
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1].postfix, (std::vector<int32_t>{1, 0, kOp, 2, kOp}));
}

TEST(AllReduce, DocumentedOrderOfTheRing) {
  const auto trees = builtin().find("ring")->reduction_order(make_group(3), lane_shape(3, CubeLayout::Sharded));
  ASSERT_EQ(trees.size(), 3u);
  constexpr int32_t kOp = ReduceTree::kCombine;
  EXPECT_EQ(trees[1].postfix, (std::vector<int32_t>{0, 2, 1, kOp, kOp}));  // x0 + (x2 + x1)
}

}  // namespace
}  // namespace ahbm::ccl::test
