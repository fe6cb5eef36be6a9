// Data movement inside a SIP: every structural operator on every policy, against index arithmetic on the host.
#include "tests/operators/bench.h"
#include "tests/support/sim_test.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::SimTest;
using ops::Box;

class StructureTest : public SimTest {};

std::string name(const Shape& shape, const DPPolicy& p) {
  return layout::to_string(shape) + " " + layout::to_string(p);
}

TEST_F(StructureTest, RelayoutFromEveryPolicyToEveryOther) {
  Machine m(tiny(1));
  run([&] {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{5, 9}, Shape{3, 2, 5}, Shape{0, 4}, Shape{40, 130}}) {
      const Array a = random(shape, 1);
      for (const DPPolicy& from : policies()) {
        const Tensor t = to_device(m.ctx, a, DType::Float32, from);
        for (const DPPolicy& to : policies()) {
          const Tensor r = ops::relayout(m.ctx, t, to);
          EXPECT_EQ(r.policy(), to);
          expect_same(r, a, name(shape, from) + " to " + layout::to_string(to));
          if (to.cube == CubePolicy::Replicate && a.size() != 0) {
            EXPECT_EQ(r.piece_bytes(SipId{0}, CubeId{3}), t.to_host_bytes()) << layout::to_string(from);
          }
        }
      }
    }
  });
}

TEST_F(StructureTest, PermutationsOfEveryPolicy) {
  Machine m(tiny(1));
  run([&] {
    const Array a = random({6, 5, 9}, 2);
    for (const DPPolicy& p : policies()) {
      const Tensor x = to_device(m.ctx, a, DType::Float32, p);
      for (const Sizes& order : {Sizes{0, 2, 1}, Sizes{1, 0, 2}, Sizes{2, 1, 0}, Sizes{1, 2, 0}, Sizes{0, 1, 2}}) {
        const auto o = [&](size_t d) { return static_cast<size_t>(order[d]); };
        const Array expected = make_array({a.shape[o(0)], a.shape[o(1)], a.shape[o(2)]}, [&](const Shape& i) {
          Shape at(3);
          for (size_t d = 0; d < 3; ++d) at[o(d)] = i[d];
          return a(at);
        });
        expect_same(permute(x, order), expected, name(a.shape, p));
      }
      expect_same(transpose(x, 0, -1),
                  make_array({9, 5, 6},
                             [&](const Shape& i) {
                               return a({i[2], i[1], i[0]});
                             }),
                  name(a.shape, p));
    }
    // Larger than the tiles of a transposition.
    const Array big = random({150, 300}, 3, DType::BFloat16);
    expect_same(t(to_device(m.ctx, big, DType::BFloat16)),
                make_array({300, 150},
                           [&](const Shape& i) {
                             return big({i[1], i[0]});
                           }),
                "t");
    expect_same(transpose(to_device(m.ctx, random({2, 2}, 4)), 0, 0), random({2, 2}, 4), "transpose to itself");
  });
}

TEST_F(StructureTest, ShapesChangeWithOrWithoutACopy) {
  Machine m(tiny(1));
  run([&] {
    const Array a = random({8, 6, 4}, 5);
    for (const DPPolicy& p : policies()) {
      const Tensor x = to_device(m.ctx, a, DType::Float32, p);
      for (const Sizes& sizes : {Sizes{8, 24}, Sizes{48, 4}, Sizes{192}, Sizes{2, 4, 6, 4}, Sizes{8, 2, 3, 4},
                                 Sizes{3, 64}, Sizes{1, 8, 6, 4}, Sizes{8, 6, 4, 1}}) {
        Array expected = a;
        expected.shape = Shape(sizes.begin(), sizes.end());
        expect_same(view(x, sizes), expected, name(expected.shape, p));
      }
      Array u = a;
      u.shape = {8, 1, 6, 4};
      const Tensor y = unsqueeze(x, 1);
      expect_same(y, u, name(u.shape, p));
      expect_same(squeeze(y, 1), a, name(u.shape, p));
    }
    const Tensor rows = to_device(m.ctx, a);
    EXPECT_EQ(view(rows, {8, 24}).handle(), rows.handle()) << "the rows stay where they are";
    EXPECT_EQ(view(rows, {8, 2, 3, 4}).handle(), rows.handle());
    EXPECT_NE(view(rows, {2, 96}).handle(), rows.handle()) << "only two PEs hold something then";
    Array zero_d = random({1}, 6);
    zero_d.shape = {};
    expect_same(squeeze(to_device(m.ctx, random({1, 1}, 6))), zero_d, "squeeze to 0-d");
    expect_same(reshape(to_device(m.ctx, Array({0, 3})), {3, 0, 2}), Array({3, 0, 2}), "empty");
  });
}

TEST_F(StructureTest, PartsOfTensors) {
  Machine m(tiny(1));
  run([&] {
    const Array a = random({7, 10, 6}, 7);
    for (const DPPolicy& p : policies()) {
      const Tensor x = to_device(m.ctx, a, DType::Float32, p);
      for (size_t dim = 0; dim < 3; ++dim) {
        for (const int64_t step : {1, 2, 3, 9}) {
          Shape shape = a.shape;
          shape[dim] = (shape[dim] - 2 + static_cast<uint64_t>(step)) / static_cast<uint64_t>(step);
          const Array expected = make_array(shape, [&](Shape i) {
            i[dim] = 1 + i[dim] * static_cast<uint64_t>(step);
            return a(i);
          });
          expect_same(slice(x, static_cast<int64_t>(dim), 1, 1000, step), expected, name(shape, p));
        }
        Shape shape = a.shape;
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
        const std::vector<Tensor> rows = unbind(x, static_cast<int64_t>(dim));
        ASSERT_EQ(rows.size(), a.shape[dim]);
        for (const uint64_t k : {uint64_t{0}, a.shape[dim] - 1}) {
          const Array expected = make_array(shape, [&](Shape i) {
            i.insert(i.begin() + static_cast<std::ptrdiff_t>(dim), k);
            return a(i);
          });
          expect_same(select(x, static_cast<int64_t>(dim), static_cast<int64_t>(k)), expected, name(shape, p));
          expect_same(rows[k], expected, name(shape, p));
        }
        const std::vector<Tensor> parts = split(x, 4, static_cast<int64_t>(dim));
        uint64_t at = 0;
        for (const Tensor& part : parts) {
          expect_same(part,
                      make_array(part.shape(),
                                 [&](Shape i) {
                                   i[dim] += at;
                                   return a(i);
                                 }),
                      name(part.shape(), p));
          at += part.shape()[dim];
        }
        EXPECT_EQ(at, a.shape[dim]);
        expect_same(cat(parts, static_cast<int64_t>(dim)), a, "cat " + name(a.shape, p));
        expect_same(stack(rows, static_cast<int64_t>(dim)), a, "stack " + name(a.shape, p));
      }
    }
    EXPECT_EQ(chunk(to_device(m.ctx, a), 4, 1).size(), 4u);
    EXPECT_EQ(unbind(to_device(m.ctx, Array({0, 3})), 0).size(), 0u);
    message_of<std::logic_error>([&] { select(to_device(m.ctx, a), 0, 7); });
  });
}

TEST_F(StructureTest, ExpandPadTakeAndFilled) {
  Machine m(tiny(1));
  run([&] {
    for (const DPPolicy& p : policies()) {
      const Array a = random({5, 1, 4}, 8);
      const Tensor x = to_device(m.ctx, a, DType::Float32, p);
      expect_same(expand(x, {2, 5, 3, 4}),
                  make_array({2, 5, 3, 4},
                             [&](const Shape& i) {
                               return a({i[1], 0, i[3]});
                             }),
                  name(a.shape, p));
      expect_same(expand(to_device(m.ctx, random({5, 1}, 9), DType::Float32, p), {5, 300}),
                  make_array({5, 300},
                             [&](const Shape& i) {
                               return random({5, 1}, 9)({i[0], 0});
                             }),
                  name({5, 1}, p));
      expect_same(ops::pad(m.ctx, x, 0, 9), make_array({9, 1, 4}, [&](const Shape& i) { return i[0] < 5 ? a(i) : 0; }),
                  name(a.shape, p));
      expect_same(ops::pad(m.ctx, x, 2, 7), make_array({5, 1, 7}, [&](const Shape& i) { return i[2] < 4 ? a(i) : 0; }),
                  name(a.shape, p));
      expect_same(ops::take(m.ctx, x, 0, {{3, 2}, {0, 2}, {1, 0}}),
                  make_array({4, 1, 4},
                             [&](Shape i) {
                               i[0] = i[0] < 2 ? i[0] + 3 : i[0] - 2;
                               return a(i);
                             }),
                  name(a.shape, p));
      expect_same(ops::filled(m.ctx, {3, 5}, -2.5, DType::Float16, p), Array({3, 5}, -2.5), "filled");
      expect_same(ops::filled(m.ctx, {}, 7, DType::Int64, p), Array({}, 7), "filled");
    }
    message_of<std::invalid_argument>([&] { ops::pad(m.ctx, m.ctx.zeros({3}), 0, 2); });
  });
}

TEST_F(StructureTest, BoxesConvertAndAreChecked) {
  Machine m(tiny(1));
  run([&] {
    const Array a = random({9, 20}, 10, DType::BFloat16, -100, 100);
    const Tensor x = to_device(m.ctx, a, DType::BFloat16);
    for (const DType t : {DType::Float32, DType::Float16, DType::Int32, DType::Int64, DType::Bool, DType::BFloat16}) {
      const Tensor y = m.ctx.zeros({9, 20}, t, policy(CubePolicy::ColumnWise));
      ops::copy_boxes(m.ctx, y, x, {ops::box({4, 7}, {5, 1}, {2, 12})});
      expect_same(y,
                  make_array(a.shape,
                             [&](const Shape& i) {
                               const bool inside = i[0] >= 5 && i[1] >= 1 && i[1] < 8;
                               return inside ? rounded(t, a({i[0] - 3, i[1] + 11})) : 0;
                             }),
                  to_string(t));
    }
    const std::string text = message_of<std::out_of_range>([&] {
      ops::copy_boxes(m.ctx, x, x, {ops::box({4, 7}, {6, 0}, {0, 0})});
    });
    EXPECT_NE(text.find("[6, 0]"), std::string::npos) << text;
    EXPECT_NE(text.find("(9, 20)"), std::string::npos) << text;
  });
}

TEST_F(StructureTest, ManyDescriptorsGoInSeveralLaunches) {
  Machine m(one_cube());
  run([&] {
    const Array a = random({4000, 2}, 11);
    const Tensor x = to_device(m.ctx, a);
    const Tensor y = m.ctx.zeros({4000, 2});
    std::vector<Box> boxes;
    for (int64_t i = 0; i < 4000; ++i) boxes.push_back(ops::box({1, 2}, {i, 0}, {3999 - i, 0}));
    ops::copy_boxes(m.ctx, y, x, boxes);
    expect_same(y, make_array(a.shape, [&](const Shape& i) { return a({3999 - i[0], i[1]}); }), "reversed");
  });
}

TEST_F(StructureTest, ReadersOfOtherPesAreWaitedFor) {
  Machine m(tiny(1));
  run([&] {
    // What is read elsewhere must not be overwritten before it was read, and is read only when it was written.
    Tensor x = m.ctx.arange(0, 64).handle() ? m.ctx.arange(0, 64) : Tensor();
    for (int round = 0; round < 20; ++round) {
      const Tensor reversed = ops::take(m.ctx, x, 0, {{32, 32}, {0, 32}});
      ops::copy_boxes(m.ctx, x, reversed, {ops::box({64}, {0}, {0})});
    }
    expect_same(x, make_array({64}, [](const Shape& i) { return static_cast<double>(i[0]); }), "rotated");
  });
}

TEST_F(StructureTest, TimesWithoutData) {
  SystemConfig c = tiny(1);
  c.simulation.functional = false;
  Machine m(c);
  run([&] {
    const Ps before = ahbm::test::now();
    t(m.ctx.empty({64, 64}));
    m.ctx.synchronize();
    EXPECT_GT(ahbm::test::now(), before + ns(100));
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
