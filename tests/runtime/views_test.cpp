// Strided views of tensors on the machine: what the host reads and writes through them, copies, and what collectives
// make of them beyond the matrix of collectives_test.cpp: dtypes, calls under way together, and what is refused.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include "runtime/ops/functions.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using distributed::P2POp;
using distributed::Work;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::vector<T> counted(uint64_t n, int from = 0) {
  std::vector<T> out(n);
  for (uint64_t i = 0; i < n; ++i) out[i] = static_cast<T>(from + static_cast<int>(i % 100));
  return out;
}

class ViewsTest : public GroupTest {
 protected:
  /// Everything that a view is a view of.
  template <typename T>
  static std::vector<T> base_of(const Tensor& view) {
    return Tensor(view.handle()->layout().shape(), view.dtype(), view.policy(), view.handle()).to_host<T>();
  }
};

TEST_F(ViewsTest, TheHostReadsAndWritesThroughThem) {
  Machine m(tiny(2));
  run([&] {
    for (const CubePolicy cube : {CubePolicy::RowWise, CubePolicy::ColumnWise, CubePolicy::Replicate}) {
      for (const PePolicy pe : {PePolicy::RowWise, PePolicy::ColumnWise, PePolicy::Replicate}) {
        SCOPED_TRACE(layout::to_string(policy(cube, pe)));
        const Tensor t = m.ctx.from_host({6, 4}, DType::Int32, counted<int32_t>(24), everywhere(policy(cube, pe)));
        const Tensor view = t.slice(0, 1, 6, 2).transpose(0, 1).narrow(0, 1, 2);
        EXPECT_EQ(view.shape(), (Shape{2, 3}));
        EXPECT_EQ(view.strides(), (std::vector<uint64_t>{1, 8}));
        EXPECT_EQ(view.storage_offset(), 5u);
        EXPECT_EQ(view.handle(), t.handle());
        EXPECT_THAT(view.to_host<int32_t>(SipId{1}), ElementsAre(5, 13, 21, 6, 14, 22));
        const Tensor own = view.contiguous();
        EXPECT_FALSE(own.is_view());
        EXPECT_NE(own.handle(), t.handle());
        EXPECT_EQ(own.policy(), t.policy());
        EXPECT_THAT(own.to_host<int32_t>(SipId{0}), ElementsAre(5, 13, 21, 6, 14, 22));

        view.upload<int32_t>(SipId{1}, {-1, -2, -3, -4, -5, -6});
        std::vector<int32_t> want = counted<int32_t>(24);
        EXPECT_EQ(t.to_host<int32_t>(SipId{0}), want);
        want[5] = -1, want[13] = -2, want[21] = -3, want[6] = -4, want[14] = -5, want[22] = -6;
        EXPECT_EQ(t.to_host<int32_t>(SipId{1}), want);
        if (cube == CubePolicy::Replicate) {
          EXPECT_EQ(t.piece<int32_t>(SipId{1}, CubeId{3}, PeId{1}), want);
          EXPECT_THAT(view.piece<int32_t>(SipId{1}, CubeId{3}, PeId{1}), ElementsAre(-1, -2, -3, -4, -5, -6));
        }
        view.copy_(own);
        EXPECT_EQ(t.to_host<int32_t>(SipId{1}), counted<int32_t>(24));
      }
    }
  });
}

TEST_F(ViewsTest, AllOfATensorInItsOrderIsTheTensor) {
  Machine m(tiny(2));
  run([&] {
    const Tensor t = m.ctx.ones({4, 6});
    EXPECT_FALSE(t.narrow(0, 0, 4).is_view());
    EXPECT_FALSE(t.transpose(0, 1).transpose(1, 0).is_view());
    EXPECT_TRUE(t.narrow(0, 1, 3).is_view());
    EXPECT_TRUE(t.narrow(0, 1, 3).is_contiguous());
    EXPECT_FALSE(t.narrow(1, 1, 3).is_contiguous());
    EXPECT_THAT(message_of<std::invalid_argument>([&] { t.narrow(1, 4, 3); }), HasSubstr("start 4 and length 3"));
  });
}

TEST_F(ViewsTest, CopiesGoBetweenLayoutsAndRefuseWhatOverlaps) {
  Machine m(tiny(2));
  run([&] {
    const Tensor a = m.ctx.from_host({6, 4}, DType::Float32, counted<float>(24), policy(CubePolicy::ColumnWise));
    const Tensor b = m.ctx.zeros({4, 6}, DType::Float32, policy(CubePolicy::Replicate));
    b.transpose(0, 1).copy_(a);
    std::vector<float> want(24);
    for (uint64_t i = 0; i < 24; ++i) want[i % 4 * 6 + i / 4] = static_cast<float>(i);
    for (uint32_t c = 0; c < 4; ++c) EXPECT_EQ(b.piece<float>(SipId{0}, CubeId{c}), want);
    EXPECT_THAT(message_of<std::runtime_error>([&] { a.narrow(0, 0, 3).copy_(a.narrow(0, 2, 3)); }),
                AllOf(HasSubstr("strides (4, 1) from 8"), HasSubstr("share their memory")));
    EXPECT_THAT(message_of<std::invalid_argument>([&] { a.copy_(b); }), HasSubstr("the same shape"));
    EXPECT_THAT(message_of<std::runtime_error>([&] {
                  a.narrow(0, 0, 1).expand({6, 4}).upload(want);
                }),
                HasSubstr("more than once"));
    const Tensor partial = m.ctx.zeros({6, 4}, DType::Float32, policy(CubePolicy::Partial));
    EXPECT_THAT(message_of<std::runtime_error>([&] { a.copy_(partial); }), HasSubstr("partial"));
  });
}

TEST_F(ViewsTest, OperatorsTakeThemAndKernelsSayThatTheyDoNot) {
  Machine m(tiny(2));
  run([&] {
    const Tensor t = m.ctx.from_host({2, 3}, DType::Float32, counted<float>(6));
    const Tensor sum = t.transpose(0, 1) + t.transpose(0, 1);
    EXPECT_THAT(sum.to_host<float>(), ElementsAre(0, 6, 2, 8, 4, 10));
    t.select(1, 2) += t.select(1, 0);
    EXPECT_THAT(t.to_host<float>(), ElementsAre(0, 1, 2, 3, 4, 8));
    EXPECT_THAT(message_of<std::invalid_argument>([&] {
                  m.ctx.launch("fill", {t.select(0, 1), 3, 0.0, DType::Float32});
                }),
                AllOf(HasSubstr("fill"), HasSubstr("strides (1) from 3")));
  });
}

/// An all_reduce of every third column, each element checked.
template <typename T>
void reduce_columns(Context& ctx, distributed::DistributedContext& d, uint32_t rank, DType dtype, const DPPolicy& p,
                    ReduceOp op) {
  const uint64_t rows = 40, cols = 9, n = rows * cols;
  const Tensor t = ctx.from_host({rows, cols}, dtype, counted<T>(n, static_cast<int>(rank)), p);
  d.all_reduce(t.slice(1, 1, 9, 3), op);
  std::vector<T> want = counted<T>(n, static_cast<int>(rank));
  for (uint64_t i = 0; i < n; ++i) {
    if (i % cols % 3 != 1) continue;
    int v = 0;
    for (uint32_t r = 0; r < 3; ++r) {
      const int brought = static_cast<int>(i % 100 + r);
      v = op == ReduceOp::Sum ? v + brought : std::max(v, brought);
    }
    want[i] = static_cast<T>(v);
  }
  EXPECT_EQ(t.to_host<T>(), want) << to_string(dtype) << " " << layout::to_string(p);
}

// Collectives 14, and 15: int8 wraps.
TEST_F(ViewsTest, AnAllReduceUpdatesTheViewInEveryDtype) {
  Machine m(tiny(3));
  on_ranks(m, [&](Distributed& d, uint32_t rank) {
    for (const DPPolicy& p : {policy(CubePolicy::RowWise), policy(CubePolicy::ColumnWise, PePolicy::Replicate),
                              policy(CubePolicy::Replicate), policy(CubePolicy::RowWise, PePolicy::RowWise, 1, 1)}) {
      reduce_columns<float>(m.ctx, d, rank, DType::Float32, p, ReduceOp::Sum);
      reduce_columns<int8_t>(m.ctx, d, rank, DType::Int8, p, ReduceOp::Sum);
      reduce_columns<int8_t>(m.ctx, d, rank, DType::Int8, p, ReduceOp::Max);
      reduce_columns<int64_t>(m.ctx, d, rank, DType::Int64, p, ReduceOp::Sum);
    }
  });
}

TEST_F(ViewsTest, WhatIsOnePieceOnEveryCubeGoesStraight) {
  Machine m(tiny(2));
  on_ranks(m, [&](Distributed& d, uint32_t) {
    const Tensor t = m.ctx.ones({64, 8});
    EXPECT_EQ(d.all_reduce(t.narrow(0, 20, 30)).record().staged_bytes, 0u);
    EXPECT_EQ(d.all_reduce(t.transpose(0, 1)).record().staged_bytes, 0u) << "the same elements in the same memory";
    EXPECT_EQ(d.all_reduce(t.narrow(1, 2, 3)).record().staged_bytes, 2 * 64 * 3 * sizeof(float));
    const std::vector<float> got = t.to_host<float>();
    for (uint64_t i = 0; i < got.size(); ++i) {
      const bool rows = i / 8 >= 20 && i / 8 < 50, cols = i % 8 >= 2 && i % 8 < 5;
      ASSERT_EQ(got[i], 2 * (rows ? 2 : 1) * (cols ? 2 : 1)) << i;
    }
  });
}

// Two views of one tensor that interleave, both on their way at once, and a kernel's worth of descriptors that takes
// several launches.
TEST_F(ViewsTest, AsynchronousCallsOnViewsOfOneTensor) {
  Machine m(tiny(2));
  on_ranks(m, [&](Distributed& d, uint32_t rank) {
    const Tensor t = m.ctx.from_host({30, 10}, DType::Int32, counted<int32_t>(300, static_cast<int>(rank)));
    const Tensor even = t.slice(1, 0, 10, 2), odd = t.slice(1, 1, 10, 2);
    const Work sum = d.all_reduce(even, ReduceOp::Sum, true);
    const Work copy = d.broadcast(odd, 1, {}, true);
    EXPECT_FALSE(sum.is_completed());
    EXPECT_EQ(copy.result().front().strides(), odd.strides());
    sum.wait();
    const std::vector<int32_t> got = t.to_host<int32_t>();
    for (int i = 0; i < 300; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], i % 2 == 0 ? 2 * (i % 100) + 1 : i % 100 + 1);

    const Tensor wide = m.ctx.from_host({3, 2000}, DType::Int8, counted<int8_t>(6000),
                                        policy(CubePolicy::RowWise, PePolicy::RowWise, 1));
    const Tensor tall = m.ctx.zeros({2000, 3}, DType::Int8, policy(CubePolicy::RowWise, PePolicy::RowWise, 1));
    const Work sent = d.isend(rank == 0 ? wide.transpose(0, 1) : tall, 1 - rank);
    const Tensor taken =
        rank == 0 ? m.ctx.ones({2000, 3}, DType::Int8) : m.ctx.ones({3, 2000}, DType::Int8).transpose(0, 1);
    d.recv(taken, 1 - rank);
    sent.wait();
    EXPECT_EQ(taken.to_host<int8_t>(), rank == 0 ? std::vector<int8_t>(6000) : wide.transpose(0, 1).to_host<int8_t>());
  });
}

TEST_F(ViewsTest, ABatchOfTransfersBetweenViewsOfOneTensor) {
  Machine m(tiny(3));
  on_ranks(m, [&](Distributed& d, uint32_t rank) {
    const uint32_t next = (rank + 1) % 3, prev = (rank + 2) % 3;
    const Tensor t = m.ctx.full({12, 3}, rank, DType::Int32);
    std::vector<P2POp> ops{{P2POp::Isend, t.select(1, 0), next},
                           {P2POp::Irecv, t.select(1, 1), prev},
                           {P2POp::Isend, t.select(1, 0), prev},
                           {P2POp::Irecv, t.select(1, 2), next}};
    for (const Work& w : d.batch_isend_irecv(ops)) w.wait();
    EXPECT_THAT(t.select(1, 0).to_host<int32_t>(), Each(static_cast<int32_t>(rank)));
    EXPECT_THAT(t.select(1, 1).to_host<int32_t>(), Each(static_cast<int32_t>(prev)));
    EXPECT_THAT(t.select(1, 2).to_host<int32_t>(), Each(static_cast<int32_t>(next)));
  });
}

TEST_F(ViewsTest, TheDriverCallsForAllRanks) {
  Machine m(tiny(3));
  in_group(m, [&](Distributed& d) {
    const Tensor t = m.ctx.ones({8, 4}, DType::Float32, everywhere());
    d.all_reduce(t.narrow(1, 1, 2));
    for (uint32_t s = 0; s < 3; ++s) {
      EXPECT_THAT(t.select(0, 5).to_host<float>(SipId{s}), ElementsAre(1, 3, 3, 1));
    }
  });
}

TEST_F(ViewsTest, RanksThatArePEsHaveThemToo) {
  SystemConfig config = tiny(2);
  config.ccl_file = testing::TempDir() + "/views_pe.yaml";
  std::ofstream(config.ccl_file) << "defaults: {algorithm: ring, rank: pe, world_size: 5}\n"
                                    "algorithms:\n  ring: {module: ring}\n";
  Machine m(config);
  on_ranks(m, [&](Distributed& d, uint32_t) {
    const Tensor t = m.ctx.ones({6, 4}, DType::Int32);
    d.all_reduce(t.select(1, 2));
    EXPECT_THAT(t.select(0, 3).to_host<int32_t>(), ElementsAre(1, 1, 5, 1));
    EXPECT_THAT(t.select(1, 2).contiguous().to_host<int32_t>(), Each(5));
  });
}

TEST_F(ViewsTest, OverlapIsRefusedBeforeAnythingIsSent) {
  Machine m(tiny(2));
  on_ranks(m, [&](Distributed& d, uint32_t rank) {
    const Tensor t = m.ctx.from_host({12, 2}, DType::Float32, counted<float>(24));
    const Tensor four = t.narrow(0, 0, 4);
    const auto refused = [&](auto call) { return message_of<std::runtime_error>(call); };
    EXPECT_THAT(refused([&] { d.all_gather_into_tensor(t.narrow(0, 3, 8), four); }),
                AllOf(HasSubstr("all_gather_into_tensor: an input (4, 2) float, strides (2, 1) from 0"),
                      HasSubstr("an output (8, 2) float, strides (2, 1) from 6"), HasSubstr("share their memory")));
    EXPECT_THAT(refused([&] { d.reduce_scatter_tensor(t.narrow(0, 7, 4), t.narrow(0, 0, 8)); }), HasSubstr("share"));
    EXPECT_THAT(refused([&] { d.all_to_all_single(t.narrow(0, 0, 6), t.narrow(0, 2, 6)); }), HasSubstr("share"));
    EXPECT_THAT(refused([&] { d.all_to_all_single(four, four); }), HasSubstr("share"));
    EXPECT_THAT(refused([&] {
                  d.all_gather({t.narrow(0, 4, 4), t.narrow(0, 6, 4)}, four);
                }),
                HasSubstr("outputs 0 and 1 share their memory"));
    EXPECT_THAT(refused([&] { d.all_gather({four, t.narrow(0, 4, 4)}, t.narrow(0, 3, 4)); }), HasSubstr("an input"));
    EXPECT_THAT(refused([&] {
                  d.all_reduce(t.narrow(0, 0, 1).expand({3, 2}));
                }),
                AllOf(HasSubstr("all_reduce: the output (3, 2) float, strides (0, 1) from 0"),
                      HasSubstr("more than once"), HasSubstr("contiguous()")));
    EXPECT_THAT(refused([&] { d.recv(t.narrow(0, 0, 1).expand({3, 2}), 1 - rank); }), HasSubstr("more than once"));
    const Tensor partial = m.ctx.ones({4, 4}, DType::Float32, policy(CubePolicy::Partial));
    EXPECT_THAT(message_of<NotImplementedError>([&] { d.all_reduce(partial.narrow(1, 0, 2)); }),
                AllOf(HasSubstr("strides (4, 1) from 0"), HasSubstr("cube=partial"), HasSubstr("all_reduce all of")));
    EXPECT_EQ(t.to_host<float>(), counted<float>(24));

    // What is apart is no overlap, nor is an input that is given more than once.
    d.all_gather_into_tensor(t.narrow(0, 4, 8), four);
    d.all_gather_into_tensor(t.narrow(0, 4, 8), t.select(0, 0).expand({4, 2}));
    EXPECT_THAT(t.select(1, 1).to_host<float>(), ElementsAre(1, 3, 5, 7, 1, 1, 1, 1, 1, 1, 1, 1));
  });
}

// A gather whose input is its part of the output; and a scatter whose output is its part of the input.
TEST_F(ViewsTest, GathersAndScattersInPlace) {
  Machine m(tiny(2));
  on_ranks(m, [&](Distributed& d, uint32_t rank) {
    const Tensor t = m.ctx.full({10, 3}, rank + 1, DType::Int32);
    const std::vector<Tensor> parts{t.narrow(0, 0, 5), t.narrow(0, 5, 5)};
    const std::vector<int32_t> one(15, 1), two(15, 2);
    d.all_gather_into_tensor(t, parts[rank]);
    EXPECT_EQ(parts[0].to_host<int32_t>(), one);
    EXPECT_EQ(parts[1].to_host<int32_t>(), two);
    const Tensor across = m.ctx.full({5, 4}, rank + 1, DType::Int32);
    d.all_gather(across, across.narrow(1, 2 * rank, 2), 1);
    EXPECT_THAT(across.select(0, 4).to_host<int32_t>(), ElementsAre(1, 1, 2, 2));
    const Tensor u = m.ctx.full({10, 3}, rank + 1, DType::Int32);
    const std::vector<Tensor> list{u.narrow(0, 0, 5), u.narrow(0, 5, 5)};
    d.all_gather(list, list[rank]);
    EXPECT_EQ(list[1 - rank].to_host<int32_t>(), rank == 0 ? two : one);
    d.scatter(list[0], rank == 0 ? list : std::vector<Tensor>{}, 0);
    EXPECT_EQ(list[0].to_host<int32_t>(), rank == 0 ? one : two);
    list[rank].upload(rank == 0 ? two : one);
    d.gather(list[1], rank == 1 ? list : std::vector<Tensor>{}, 1);
    EXPECT_EQ(list[1].to_host<int32_t>(), rank == 0 ? two : one);
  });
}

// A reshaped tensor is cut by its own shape, not by that in which it was made.
TEST_F(ViewsTest, ReshapedOutputsAreCutByTheirShape) {
  Machine m(tiny(2));
  on_ranks(m, [&](Distributed& d, uint32_t rank) {
    const DPPolicy one = policy(CubePolicy::RowWise, PePolicy::RowWise, 1, 1);
    const Tensor flat = m.ctx.zeros({2, 8}, DType::Int32, one);
    const Tensor out = reshape(flat, {4, 4});
    EXPECT_EQ(out.handle(), flat.handle());
    d.all_gather(out, m.ctx.full({4, 2}, rank + 1, DType::Int32, one), 1);
    EXPECT_THAT(out.select(0, 1).to_host<int32_t>(), ElementsAre(1, 1, 2, 2));
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
