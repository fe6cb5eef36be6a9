// What operators have to do with the machine: whose SIP, time without data, what is given back, ranks side by side.
#include "models/core/errors.h"
#include "tests/operators/bench.h"
#include "tests/support/sim_test.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::now;
using ahbm::test::SimTest;

class OperatorMachineTest : public SimTest {};

/// A bit of everything; returns how long it took.
Ps run_all(Context& ctx) {
  const Ps start = now();
  const Tensor x = ctx.rand({12, 20}, 1), y = ctx.rand({20, 9}, 2), bias = ctx.rand({9}, 3);
  const Tensor index = ctx.zeros({5}, DType::Int64), target = ctx.zeros({12}, DType::Int64);
  const Tensor q = ctx.rand({1, 2, 6, 8}, 4);
  const std::vector<Tensor> results = {matmul(x, y),
                                       addmm(bias, x, y),
                                       softmax(x, 0),
                                       layer_norm(x),
                                       t(x),
                                       sum(x),
                                       argmax(x, 0),
                                       cumsum(x, 1),
                                       var(x, Sizes{0}),
                                       embedding(x, index),
                                       index_select(x, 1, index),
                                       cross_entropy(x, target),
                                       triu(x),
                                       slice(x, 1, 0, 20, 3),
                                       cat({x, x}, 1),
                                       stack({x, x}, 2),
                                       scaled_dot_product_attention(q, q, q, {}, true),
                                       where(x > 0.5, x, -x),
                                       cast(x, DType::Int32),
                                       any(x > 2, Sizes{1}),
                                       expand(unsqueeze(bias, 0), {4, 9})};
  ctx.synchronize();
  return now() - start;
}

TEST_F(OperatorMachineTest, RunsWithoutData) {
  SystemConfig c = tiny(1);
  c.simulation.functional = false;
  Machine m(c);
  run([&] { EXPECT_GT(run_all(m.ctx), us(10)); });
}

TEST_F(OperatorMachineTest, TensorsOfAnotherSipAreRefused) {
  Machine m(tiny(2));
  run([&] {
    m.ctx.set_device(1);
    const Tensor there = m.ctx.ones({4});
    m.ctx.set_device(0);
    const Tensor here = m.ctx.ones({4});
    EXPECT_EQ(message_of<std::invalid_argument>([&] { here + there; }),
              "tensor (4,) lies on sip1, expected sip0, this thread's");
    // Of a tensor on every SIP each thread takes its own.
    const Tensor both = m.ctx.ones({4}, DType::Float32, everywhere());
    const Tensor two = both + both;
    EXPECT_EQ(two.handle()->sips(), std::vector<SipId>{SipId{0}});
    expect_same(two, Array({4}, 2), "own SIP");
    const std::string text =
        message_of<std::invalid_argument>([&] { here + m.ctx.ones({4}, DType::Float32, policy(CubePolicy::Partial)); });
    EXPECT_NE(text.find("all_reduce it first"), std::string::npos) << text;
    message_of<std::runtime_error>([&] { here + Tensor({4}, DType::Float32); });
  });
}

TEST_F(OperatorMachineTest, RanksWorkSideBySide) {
  Machine m(tiny(4));
  run([&] {
    mp::spawn(
        m.ctx,
        [&](uint32_t rank) {
          const Array a = random({10, 12}, rank), b = random({12, 7}, rank + 10);
          Array expected = make_array({10, 7}, [&](const Shape& i) {
            double s = 0;
            for (uint64_t k = 0; k < 12; ++k) s += a({i[0], k}) * b({k, i[1]});
            return s;
          });
          for (int i = 0; i < 3; ++i) {
            const Tensor c = matmul(to_device(m.ctx, a), to_device(m.ctx, b));
            EXPECT_EQ(c.handle()->sips().front(), SipId{rank});
            expect_near(t(t(c)), expected, "rank " + std::to_string(rank), 1e-5, 1e-5);
          }
        },
        4);
  });
}

TEST_F(OperatorMachineTest, MemoryAndTagsComeBack) {
  Machine m(tiny(1));
  run([&] {
    const auto used = [&] {
      uint64_t n = 0;
      for (uint32_t c = 0; c < 4; ++c) n += m.device.allocator(SipId{0}, CubeId{c}).used();
      return n;
    };
    run_all(m.ctx);
    const uint64_t before = used();
    for (int i = 0; i < 30; ++i) run_all(m.ctx);
    EXPECT_EQ(used(), before);
    EXPECT_EQ(m.device.tags_in_use(), 0u);
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
