// The plan check accepts the built-in algorithms and finds what is wrong with broken ones.
#include "ccl/plan_check.h"

#include <gmock/gmock.h>

#include "models/core/errors.h"
#include "tests/unit/ccl/harness.h"

namespace ahbm::ccl::test {
namespace {

using ::testing::HasSubstr;
using tl::Dir;

PlanQueues depth(uint32_t n_slots, uint32_t slot_bytes = 160) {
  return {{n_slots, slot_bytes}, {n_slots, slot_bytes}, 64};
}

TEST(PlanCheck, BuiltInAlgorithmsAreSound) {
  for (const auto& [name, m] : builtin().modules()) {
    if (m.collective != Collective::AllReduce) continue;
    for (uint32_t n : {1u, 2u, 3u, 4u, 5u, 8u, 9u, 12u}) {
      for (uint32_t slots : {1u, 2u, 3u, 4u, 8u}) {
        for (uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{n}, uint64_t{1009}}) {
          for (CubeLayout layout : m.layouts) {
            Group g = make_group(n, 3, 2, n % 3 == 0 ? 5 : n % 3 == 1 ? 6 : 2);
            if (!m.refusal(g).empty()) g.topology = SipTopology::FullyConnected;
            const PlanReport r = check_plan(m, g, count, layout, DType::Float32, depth(slots));
            EXPECT_EQ(r.problem, "") << name << " n=" << n << " slots=" << slots << " count=" << count << " "
                                     << to_string(layout);
          }
        }
      }
    }
  }
}

// f S per rank and direction of the ring, both phases together 2 f S: nothing crosses a SIP link twice.
TEST(PlanCheck, BytesBetweenSipsAreMinimal) {
  for (const char* name : {"ring", "ring_bidirectional"}) {
    for (uint32_t n : {2u, 3u, 4u, 8u}) {
      for (CubeLayout layout : {CubeLayout::Sharded, CubeLayout::Replicated}) {
        constexpr uint64_t kCount = 64 * 27;
        const PlanReport r = check_plan(*builtin().find(name), make_group(n, 2, 2), kCount, layout);
        ASSERT_EQ(r.problem, "");
        const uint64_t lanes = layout == CubeLayout::Sharded ? 4 : 1;
        EXPECT_EQ(r.sip_payload_bytes, lanes * 2 * (n - 1) * kCount * 4) << name << " n=" << n;
      }
    }
  }
  // Partial: one all-reduce of the whole buffer; in the mesh, up and down every edge of a tree once.
  const PlanReport r = check_plan(*builtin().find("intercube"), make_group(3, 4, 4), 300, CubeLayout::Partial);
  EXPECT_EQ(r.sip_payload_bytes, 2u * 2 * 300 * 4);
  EXPECT_EQ(r.cube_payload_bytes, 3u * 2 * 15 * 300 * 4);
}

// An all-gather that sends nothing twice gives every cube the n-1 slices it lacks.
TEST(PlanCheck, ReplicatedGatherIsMinimal) {
  for (uint32_t cubes : {2u, 3u, 4u, 5u, 7u, 9u, 16u}) {
    const PlanReport r =
        check_plan(*builtin().find("ring"), make_group(2, 4, 4, cubes), 1680 * 3, CubeLayout::Replicated);
    ASSERT_EQ(r.problem, "");
    uint64_t expected = 0;
    for (const Range& slice : chunks(1680 * 3, cubes)) expected += 2 * (cubes - 1) * slice.count * 4;
    EXPECT_EQ(r.cube_payload_bytes, expected) << cubes;
  }
}

TEST(PlanCheck, RefusalIsAProblem) {
  const Group g = make_group(9, 1, 1, 0, SipTopology::Mesh2d, 3, 3);
  EXPECT_THAT(check_plan(*builtin().find("ring"), g, 10, CubeLayout::Sharded).problem, HasSubstr("Hamiltonian"));
}

/// The ring's module with another kernel.
AlgorithmModule broken(tl::KernelFn kernel) {
  AlgorithmModule m = *builtin().find("ring");
  m.rank_args = nullptr;
  m.kernel_args = builtin_kernel_args;
  m.kernel = kernel;
  return m;
}

std::string problem_of(tl::KernelFn kernel, uint32_t n = 2, uint32_t slots = 4) {
  return check_plan(broken(kernel), make_group(n), 100, CubeLayout::Sharded, DType::Float32, depth(slots)).problem;
}

TEST(PlanCheck, FindsAMissingContribution) {
  EXPECT_THAT(problem_of([](tl::Tl&, const tl::Args&) {}), HasSubstr("lacks contribution 1"));
}

TEST(PlanCheck, FindsADoubleContribution) {
  EXPECT_THAT(problem_of([](tl::Tl& tl, const tl::Args& args) {
                const auto a = unpack_arguments(args);
                tl.isend(Dir::Next, a.buffer, a.n_elem, a.dtype);
                tl.isend(Dir::Prev, a.buffer, a.n_elem, a.dtype);
                tl.recv_reduce({Dir::Prev, Dir::Next}, a.buffer, a.n_elem, a.dtype, a.op);
              }),
              HasSubstr("counted twice"));
}

TEST(PlanCheck, FindsAMissingDivision) {
  EXPECT_THAT(problem_of([](tl::Tl& tl, const tl::Args& args) {
                const auto a = unpack_arguments(args);
                tl.isend(Dir::Next, a.buffer, a.n_elem, a.dtype);
                tl.recv_reduce(Dir::Prev, a.buffer, a.n_elem, a.dtype, a.op);
              }),
              HasSubstr("is divided by 1 where 2 is expected"));
}

TEST(PlanCheck, FindsACyclicWaitForTheGivenDepth) {
  const auto everybody_sends_first = [](tl::Tl& tl, const tl::Args& args) {
    const auto a = unpack_arguments(args);
    tl.send(Dir::Next, a.buffer, a.n_elem, a.dtype);
    tl::Move m;
    m.from = Dir::Prev;
    m.local = m.store = a.buffer;
    m.count = a.n_elem;
    m.divisor = 2;
    tl.submit(m);
  };
  EXPECT_EQ(problem_of(everybody_sends_first, 2, 4), "");  // 100 floats fit four slots of 32
  EXPECT_THAT(problem_of(everybody_sends_first, 2, 3), HasSubstr("cyclic wait"));
  EXPECT_THAT(problem_of(everybody_sends_first, 2, 3), HasSubstr("rank 1 cube 0 step 0 piece 3/4 waits for a credit of "
                                                                 "NEXT (0 of 3)"));
}

TEST(PlanCheck, FindsMessagesThatDoNotMatch) {
  EXPECT_THAT(problem_of([](tl::Tl& tl, const tl::Args& args) {
                const auto a = unpack_arguments(args);
                tl.isend(Dir::Next, a.buffer, a.n_elem, a.dtype, 3);
                tl.recv_reduce(Dir::Prev, a.buffer, a.n_elem, a.dtype, a.op, 4);
              }),
              HasSubstr("step 3 where 4 was expected"));
}

TEST(PlanCheck, FindsUnreceivedMessagesAndForeignElements) {
  EXPECT_THAT(problem_of([](tl::Tl& tl, const tl::Args& args) {
                const auto a = unpack_arguments(args);
                tl.isend(Dir::Next, a.buffer, 1, a.dtype);
              }),
              HasSubstr("1 messages from PREV are received by no move"));
  EXPECT_THAT(problem_of([](tl::Tl& tl, const tl::Args& args) {
                const auto a = unpack_arguments(args);
                tl.isend(Dir::Next, a.at(50), 51, a.dtype);
              }),
              HasSubstr("outside of its buffer of 100"));
}

/// An all-gather of one rank, of 10 elements, with another kernel.
std::string gather_problem(tl::KernelFn kernel) {
  AlgorithmModule m = *builtin().find("all_gather_line");
  m.kernel = kernel;
  return check_plan(m, make_group(1), lane_shape(10), false).problem;
}

TEST(PlanCheck, FindsElementsThatAreMissingMisplacedOrOverwritten) {
  EXPECT_EQ(gather_problem([](tl::Tl& tl, const tl::Args& args) {
              const ModuleArguments a(args);
              tl.copy(a.input, a.output, 10, a.dtype);
            }),
            "");
  EXPECT_THAT(gather_problem([](tl::Tl& tl, const tl::Args& args) {
                const ModuleArguments a(args);
                tl.copy(a.input, a.output, 9, a.dtype);
              }),
              HasSubstr("rank 0 cube 0 element 9 lacks contribution 0"));
  EXPECT_THAT(gather_problem([](tl::Tl& tl, const tl::Args& args) {
                const ModuleArguments a(args);
                tl.copy(a.input, a.output + 4 * a.item(), 6, a.dtype);
                tl.copy(a.input, a.output, 4, a.dtype);
              }),
              HasSubstr("element 4 is another element of its contribution, -4 further on"));
  EXPECT_THAT(gather_problem([](tl::Tl& tl, const tl::Args& args) {
                const ModuleArguments a(args);
                tl.copy(a.input, a.output, 10, a.dtype);
                tl.wait_all();
                tl.copy(a.output, a.input + a.item(), 3, a.dtype);
              }),
              HasSubstr("has changed element 1 of its input"));
}

TEST(PlanCheck, RefusesTiles) {
  EXPECT_THROW(problem_of([](tl::Tl& tl, const tl::Args&) { tl.zeros(1, 1, DType::Float32); }), NotImplementedError);
}

}  // namespace
}  // namespace ahbm::ccl::test
