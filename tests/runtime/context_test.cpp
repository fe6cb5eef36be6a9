// Tensors, launches from contexts, rank threads: placement, values, exceptions and stalls.
#include "runtime/context.h"

#include <gmock/gmock.h>

#include <numeric>

#include "runtime/random.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::now;
using ahbm::test::SimTest;
using testing::ElementsAre;
using testing::HasSubstr;

class ContextTest : public SimTest {};

TEST_F(ContextTest, FactoriesGiveWhatTheySay) {
  Machine m(tiny(1));
  run([&] {
    EXPECT_THAT(m.ctx.zeros({2, 3}).to_host<float>(), ElementsAre(0, 0, 0, 0, 0, 0));
    EXPECT_THAT(m.ctx.ones({3}, DType::Int32).to_host<int32_t>(), ElementsAre(1, 1, 1));
    EXPECT_THAT(m.ctx.full({2}, -7, DType::Int64).to_host<int64_t>(), ElementsAre(-7, -7));
    EXPECT_THAT(m.ctx.arange(1, 2, 0.25).to_host<float>(), ElementsAre(1, 1.25f, 1.5f, 1.75f));
    EXPECT_THAT(m.ctx.arange(3, 0, -1, DType::Int8).to_host<int8_t>(), ElementsAre(3, 2, 1));
    EXPECT_THAT(m.ctx.arange(3, 3).to_host<float>(), ElementsAre());
    EXPECT_THAT(m.ctx.full({}, 4).to_host<float>(), ElementsAre(4));
    EXPECT_EQ(m.ctx.zeros({1, 0, 2}).to_host<float>().size(), 0u);
    message_of<std::invalid_argument>([&] { m.ctx.arange(0, 1, 0); });
    message_of<std::invalid_argument>([&] { m.ctx.arange(0, 1, -1); });
  });
}

TEST_F(ContextTest, RandDependsOnSeedAndGlobalIndexOnly) {
  Machine m(tiny(2));
  run([&] {
    const std::vector<float> a = m.ctx.rand({33}, 7).to_host<float>();
    const std::vector<float> b = m.ctx.rand({33}, 7, DType::Float32, policy(CubePolicy::Replicate)).to_host<float>();
    const std::vector<float> c = m.ctx.rand({33}, 8).to_host<float>();
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], static_cast<float>(random_value(DType::Float32, 7, i)));
    // A partial tensor's pieces are one tensor of shape (cubes, *shape).
    const Tensor p = m.ctx.rand({5}, 7, DType::Float32, policy(CubePolicy::Partial));
    EXPECT_EQ(p.piece<float>(SipId{0}, CubeId{2}), std::vector<float>(a.begin() + 10, a.begin() + 15));
  });
}

TEST_F(ContextTest, HostDataComesBackForEveryPolicyAndDtype) {
  Machine m(tiny(1));
  run([&] {
    for (const CubePolicy cube : {CubePolicy::Replicate, CubePolicy::RowWise, CubePolicy::ColumnWise}) {
      for (const PePolicy pe : {PePolicy::Replicate, PePolicy::RowWise, PePolicy::ColumnWise}) {
        for (const Shape& shape : {Shape{7, 5}, Shape{3}, Shape{2, 3, 4}}) {
          std::vector<uint16_t> data(layout::element_count(shape));
          std::iota(data.begin(), data.end(), 100);
          const Tensor t = m.ctx.from_host(shape, DType::BFloat16, data, policy(cube, pe));
          EXPECT_EQ(t.to_host<uint16_t>(), data) << layout::to_string(t.policy());
        }
      }
    }
    message_of<std::invalid_argument>([&] { m.ctx.from_host({2}, DType::Float32, std::vector<float>{1}); });
    message_of<std::invalid_argument>([&] { m.ctx.from_host({1}, DType::Float32, std::vector<double>{1}); });
  });
}

TEST_F(ContextTest, ShardsSayWhereTheBytesAre) {
  Machine m(tiny(2));
  run([&] {
    m.ctx.set_device(1);
    const Tensor t = m.ctx.arange(0, 10, 1, DType::Int32);
    const auto& shards = t.handle()->shards();
    ASSERT_EQ(shards.size(), 8u);  // 4 cubes of 2 PEs; cubes hold 3, 3, 3, 1
    EXPECT_EQ(shards[0].sip, SipId{1});
    EXPECT_EQ(shards[0].bytes, 8u);
    EXPECT_EQ(shards[1].address, shards[0].address + 8);
    EXPECT_EQ(shards[7].bytes, 0u);
    int32_t value = 0;
    m.device.download(shards[2].address, &value, sizeof value);
    EXPECT_EQ(value, 3);
  });
}

TEST_F(ContextTest, CopiesShareAndTheLastOneFrees) {
  Machine m(tiny(1));
  run([&] {
    const auto used = [&] { return m.device.allocator(SipId{0}, CubeId{0}).used(); };
    const uint64_t before = used();
    {
      Tensor a = m.ctx.zeros({1000});
      Tensor b = a;
      EXPECT_GT(used(), before);
      a = Tensor();
      EXPECT_GT(used(), before);
      b.upload(std::vector<float>(1000, 2.f));
    }
    EXPECT_EQ(used(), before);
    // A tensor that goes while a kernel writes to it is freed at the completion.
    Launch launch;
    {
      Tensor a = m.ctx.zeros({1000});
      launch = m.ctx.launch("fill", {a, elements_of(a), 1.0, DType::Float32});
    }
    EXPECT_GT(used(), before);
    m.ctx.wait(launch);
    EXPECT_EQ(used(), before);
  });
}

TEST_F(ContextTest, ReadingWaitsForTheKernelsThatWrite) {
  Machine m(tiny(1));
  run([&] {
    Tensor a = m.ctx.zeros({1 << 16});
    m.ctx.launch("fill", {a, elements_of(a), 5.0, DType::Float32});
    EXPECT_THAT(a.to_host<float>(), testing::Each(5.f));
  });
}

TEST_F(ContextTest, PartialTensorsAreReadPieceByPiece) {
  Machine m(tiny(1));
  run([&] {
    const Tensor t =
        m.ctx.from_host({2}, DType::Int32, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}, policy(CubePolicy::Partial));
    EXPECT_THAT(t.piece<int32_t>(SipId{0}, CubeId{3}), ElementsAre(7, 8));
    EXPECT_THAT(message_of<std::runtime_error>([&] { t.to_host<int32_t>(); }), HasSubstr("partial sums on 4 cubes"));
    EXPECT_THAT(message_of<std::invalid_argument>([&] {
                  t.upload(std::vector<int32_t>{1, 2});
                }),
                HasSubstr("8 bytes given, expected 32"));
  });
}

TEST_F(ContextTest, UndeployedTensorsAndForeignPesAreRefused) {
  Machine m(tiny(2));
  run([&] {
    EXPECT_THAT(message_of<std::runtime_error>([&] { Tensor({3}, DType::Float32).to_host<float>(); }),
                HasSubstr("not deployed"));
    const Tensor none({3}, DType::Float32, {}, std::make_shared<TensorHandle>(m.device));
    EXPECT_THAT(message_of<std::runtime_error>([&] { none.to_host<float>(); }), HasSubstr("no shards"));
    const Tensor a = m.ctx.zeros({8});
    m.ctx.set_device(1);
    const Tensor b = m.ctx.zeros({8});
    EXPECT_THAT(message_of<std::invalid_argument>([&] {
                  m.ctx.launch("copy", {a, b, elements_of(a), DType::Float32});
                }),
                HasSubstr("no shard on sip0.cube0.pe0"));
    message_of<std::invalid_argument>([&] { m.ctx.set_device(2); });
    EXPECT_EQ(m.ctx.current_device(), 1u);
  });
}

TEST_F(ContextTest, SpawnRunsEveryRankOnItsSipAndJoins) {
  Machine m(tiny(3));
  run([&] {
    std::vector<uint32_t> ranks, devices;
    m.ctx.spawn(
        [&](uint32_t rank) {
          EXPECT_EQ(m.ctx.distributed.get_rank(), rank);
          const Tensor t = m.ctx.full({4}, rank);
          EXPECT_EQ(t.handle()->sips().front(), SipId{rank});
          ranks.push_back(rank);
          devices.push_back(m.ctx.current_device());
        },
        3);
    EXPECT_THAT(ranks, testing::UnorderedElementsAre(0, 1, 2));
    EXPECT_THAT(devices, testing::UnorderedElementsAre(0, 1, 2));
    EXPECT_EQ(m.ctx.distributed.get_rank(), 0u);
    message_of<std::invalid_argument>([&] { m.ctx.spawn([](uint32_t) {}, 0); });
  });
}

TEST_F(ContextTest, SpawnWaitsForWhatNobodyWaitedFor) {
  Machine m(tiny(2));
  run([&] {
    std::vector<Launch> launches(2);
    m.ctx.spawn(
        [&](uint32_t rank) {
          Tensor t = m.ctx.zeros({1 << 16});
          launches[rank] = m.ctx.launch("fill", {t, elements_of(t), 1.0, DType::Float32});
        },
        2);
    EXPECT_TRUE(launches[0]->completed());
    EXPECT_TRUE(launches[1]->completed());
  });
}

struct Odd : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_F(ContextTest, AThrowingRankEndsTheRunWithRankTimeAndType) {
  Machine m(tiny(3));
  run([&] {
    bool other_went_on = false;
    struct Unwound {
      int& count;
      ~Unwound() { ++count; }
    };
    int unwound = 0;
    const auto ranks = [&](uint32_t rank) {
      const Unwound guard{unwound};
      sc_core::wait(100, sc_core::SC_NS);
      if (rank == 1) throw std::out_of_range("index 9");
      sc_core::wait(100, sc_core::SC_NS);
      other_went_on = true;
    };
    const Ps start = now();
    try {
      m.ctx.spawn(ranks, 3);
      FAIL() << "nothing was thrown";
    } catch (const std::out_of_range& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1 at "));
      EXPECT_THAT(e.what(), HasSubstr("index 9"));
      const auto* failure = dynamic_cast<const RankFailure*>(&e);
      ASSERT_NE(failure, nullptr);
      EXPECT_EQ(failure->rank, 1u);
      EXPECT_EQ(failure->time, start + ns(100));
    }
    EXPECT_EQ(unwound, 3);
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_FALSE(other_went_on);

    // A type of the user's own arrives as its nearest standard one, with the original beside it.
    try {
      m.ctx.spawn([](uint32_t) { throw Odd("odd"); }, 1);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      const auto* failure = dynamic_cast<const RankFailure*>(&e);
      ASSERT_NE(failure, nullptr);
      EXPECT_THROW(std::rethrow_exception(failure->original), Odd);
    }
    // And the context still works.
    m.ctx.spawn([&](uint32_t) { EXPECT_THAT(m.ctx.ones({2}).to_host<float>(), ElementsAre(1, 1)); }, 2);
  });
}

TEST_F(ContextTest, ARankThatWaitsForeverIsReportedAfterTheStallLimit) {
  SystemConfig c = tiny(2);
  c.simulation.stall_limit = us(50);
  Machine m(c);
  run([&] {
    sc_core::sc_event never;
    const Ps start = now();
    const std::string text = message_of<StallError>([&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            if (rank == 1) sc_core::wait(never);
          },
          2);
    });
    EXPECT_THAT(text, HasSubstr("rank 1"));
    EXPECT_THAT(text, HasSubstr("something outside the runtime"));
    EXPECT_THAT(text, testing::Not(HasSubstr("rank 0")));
    EXPECT_GE(now() - start, us(50));
    EXPECT_LE(now() - start, us(150));
  });
}

TEST_F(ContextTest, RanksThatEndTogetherAreNoStall) {
  Machine m(tiny(4));
  run([&] {
    // One rank ends, and one that another wakes in that delta cycle ends in the next: before the spawner has looked, in
    // one of the two orders.
    for (const uint32_t first : {1u, 2u}) {
      const Ps begin = now();
      sc_core::sc_event go;
      m.ctx.spawn(
          [&](uint32_t rank) {
            if (rank == 0) {
              sc_core::wait(1, sc_core::SC_US);
            } else if (rank == 3) {
              sc_core::wait(go);
            } else {
              sc_core::wait(10, sc_core::SC_NS);
              if (rank != first) go.notify(sc_core::SC_ZERO_TIME);
              if (rank != first) sc_core::wait(100, sc_core::SC_NS);
            }
          },
          4);
      EXPECT_EQ(now() - begin, us(1));
    }
  });
}

TEST_F(ContextTest, AKernelThatNeverEndsIsReportedByPe) {
  SystemConfig c = tiny(1);
  c.simulation.stall_limit = us(50);
  Machine m(c, [](tl::KernelRegistry& k) {
    k.add("forever", [](tl::Tl&, const tl::Args&) {
      sc_core::sc_event never;
      sc_core::wait(never);
    });
  });
  run([&] {
    const PeLocation pe{SipId{0}, CubeId{3}, PeId{1}};
    const Launch launch = m.ctx.launch_on("forever", {pe}, {});
    const std::string text = message_of<StallError>([&] { m.ctx.wait(launch); });
    EXPECT_THAT(text, HasSubstr("driver"));
    EXPECT_THAT(text, HasSubstr("sip0.cube3.pe1"));
    EXPECT_THAT(text, HasSubstr("kernel forever"));
  });
}

TEST_F(ContextTest, TwoContextsShareTheMachineButNoRanks) {
  Machine m(tiny(2));
  Context other(m.device);
  run([&] {
    m.ctx.distributed.bind_rank(1);
    EXPECT_EQ(m.ctx.distributed.get_rank(), 1u);
    EXPECT_EQ(other.distributed.get_rank(), 0u);
    const Tensor a = m.ctx.ones({4});
    const Tensor b = other.zeros({4});
    EXPECT_EQ(a.handle()->sips().front(), SipId{1});
    EXPECT_EQ(b.handle()->sips().front(), SipId{0});
  });
}

TEST_F(ContextTest, DriverCarriesItsExceptionAndKnowsWhenItIsNotDone) {
  Machine m(tiny(1));
  Driver good([&] { m.ctx.zeros({4}); });
  Driver bad([] { throw std::invalid_argument("this"); });
  sc_core::sc_event never;
  Driver stuck([&] { sc_core::wait(never); });
  run([] { sc_core::wait(1, sc_core::SC_MS); });
  EXPECT_TRUE(good.done());
  good.check();
  EXPECT_THROW(bad.check(), std::invalid_argument);
  EXPECT_THROW(stuck.check(), StallError);
}

TEST_F(ContextTest, WithoutPayloadTheTimesAreTheSame) {
  SystemConfig c = tiny(1);
  c.simulation.functional = false;
  Machine m(c);
  run([&] {
    Tensor t = m.ctx.rand({100000}, 1);
    m.ctx.wait(m.ctx.launch("scale", {t, t, elements_of(t), 2.0, DType::Float32}));
    EXPECT_GT(now(), us(1));
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
