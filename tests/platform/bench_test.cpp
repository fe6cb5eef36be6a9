// What `bench` measures with: the partition of a step's time, the comparison of numbers, and the host's reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "platform/bench_reference.h"
#include "platform/bench_runner.h"

namespace ahbm::platform {
namespace {

TEST(StepSplit, PartitionsAStepByWhatIsUnderWay) {
  SystemConfig config;
  config.sips = 2;
  config.cube_w = 2;
  config.cube_h = 1;
  config.pes = 2;
  StepSplit split(config);
  const auto kernel = [&](uint32_t pe, Ps begin, Ps end) {
    observe::Point point;
    point.place = observe::Place::Pe;
    point.flat_pe = pe;
    ASSERT_TRUE(split.wants(point));
    observe::Event event;
    event.kind = observe::EventKind::Kernel;
    event.begin = begin;
    event.end = end;
    split.on_event(point, event);
    event.kind = observe::EventKind::Wait;
    event.end += 1000;
    split.on_event(point, event);
  };
  kernel(0, 100, 200);
  kernel(3, 150, 220);
  kernel(1, 50, 120);    // told later, began earlier
  kernel(0, 300, 400);   // partly inside a collective
  kernel(2, 900, 2000);  // beyond the step
  kernel(4, 0, 5000);    // another SIP
  const StepParts parts = split.of(SipId{0}, {80, 1000}, {{350, 500}, {450, 600}});
  EXPECT_EQ(parts.collective, 250u);            // 350..600
  EXPECT_EQ(parts.compute, 140u + 50u + 100u);  // 80..220, 300..350, 900..1000
  EXPECT_EQ(parts.host, 920u - parts.collective - parts.compute);
  EXPECT_EQ(parts.total(), 920u);
  EXPECT_EQ(split.of(SipId{1}, {10, 20}, {}).compute, 10u);
  split.forget();
  EXPECT_EQ(split.of(SipId{1}, {10, 20}, {}).host, 10u);
}

TEST(RelativeError, IsOfTheLargestAndInfiniteForNonsense) {
  EXPECT_EQ(relative_error({}, {}), 0);
  EXPECT_DOUBLE_EQ(relative_error({1, -4.5}, {1, -4}), 0.125);
  EXPECT_DOUBLE_EQ(relative_error({0.25}, {0}), 0.25);
  EXPECT_TRUE(std::isinf(relative_error({1}, {1, 2})));
  EXPECT_TRUE(std::isinf(relative_error({std::nan("")}, {1})));
  EXPECT_TRUE(std::isinf(relative_error({std::numeric_limits<double>::infinity()}, {1})));
  EXPECT_LT(tolerance(DType::Float32), tolerance(DType::Float16));
  EXPECT_LT(tolerance(DType::Float16), tolerance(DType::BFloat16));
}

/// With one token there is nothing to attend to but itself, so the attention is two linear layers.
TEST(BenchReference, AttentionOfOneTokenIsItsValue) {
  BenchOptions o;
  o.bench = "tp_attention";
  o.hidden = 4;
  o.heads = o.kv_heads = 2;
  o.length = 1;
  o.batch = 3;
  const BenchReference reference(o);
  const Numbers x = reference.input();
  const Numbers y = reference.output();
  ASSERT_EQ(x.size(), 12u);
  ASSERT_EQ(y.size(), 12u);
  o.heads = o.kv_heads = 1;
  EXPECT_EQ(BenchReference(o).output(), y);
  o.seed = 2;
  EXPECT_NE(BenchReference(o).output(), y);
}

TEST(BenchReference, LossOfEqualLogitsIsTheLogarithmOfTheirNumber) {
  BenchOptions o;
  o.bench = "tp_transformer";
  o.vocabulary = 8;
  o.length = 5;
  o.batch = 2;
  const BenchReference reference(o);
  Numbers logits(80, 3.0);
  EXPECT_NEAR(reference.loss(logits, 1, 1), std::log(8.0), 1e-12);
  for (const int64_t t : reference.targets()) {
    EXPECT_GE(t, 0);
    EXPECT_LT(t, 8);
  }
  logits[static_cast<size_t>(reference.targets()[0])] += 100;
  EXPECT_NEAR(reference.loss(logits, 0, 1), std::log(8.0) * 4 / 5, 1e-12);
}

}  // namespace
}  // namespace ahbm::platform
