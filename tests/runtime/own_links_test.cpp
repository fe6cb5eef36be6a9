// Links with a model of their own under collectives: the numbers stay right, and the times are the model's.
#include <gmock/gmock.h>

#include <memory>

#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

class OwnLinks : public ahbm::test::SimTest {};

/// Sends every n-th data message twice, as a link does that has to repeat it; 0: none.
class Repeating : public models::LinkModel {
 public:
  explicit Repeating(uint64_t every) : m_every(every) {}
  void carry(Ps now, models::Hop& wire, models::Transit& t) override {
    const bool twice = t.channel == models::Channel::Data && m_every != 0 && ++m_messages % m_every == 0;
    if (twice) {
      models::Transit lost = t;
      wire.pass(now, lost);
      t.tail = std::max(t.tail, lost.tail);
    }
    wire.pass(now, t);
  }

 private:
  const uint64_t m_every;
  uint64_t m_messages = 0;
};

/// Time of an all-reduce whose result has been checked.
Ps all_reduce_time(Machine& m, uint64_t count) {
  auto& d = m.ctx.distributed;
  d.init_process_group();
  const uint32_t n = m.device.config().sips;
  distributed::CollectiveRecord record;
  m.ctx.spawn(
      [&](uint32_t rank) {
        const Tensor t = m.ctx.full({count}, rank + 1.0);
        record = d.all_reduce(t).record();
        EXPECT_THAT(t.to_host<float>(), testing::Each(static_cast<float>(n * (n + 1) / 2)));
      },
      n);
  d.destroy_process_group();
  return record.end - record.start;
}

TEST_F(OwnLinks, TheSameModelTakesTheSameTimeAndRepetitionTakesMore) {
  const auto with = [](uint64_t every) {
    models::SystemParts parts;
    parts.link = [every](const std::string&, const LinkParams&) { return std::make_unique<Repeating>(every); };
    return parts;
  };
  Machine shipped(tiny(3), nullptr, {}, "shipped"), same(tiny(3), nullptr, with(0), "same"),
      repeats(tiny(3), nullptr, with(4), "repeats");
  run([&] {
    const Ps time = all_reduce_time(shipped, 60000);
    EXPECT_EQ(all_reduce_time(same, 60000), time);
    EXPECT_GT(all_reduce_time(repeats, 60000), time);
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
