// A hop against the calendar and the formulas that it stands for: what it keeps between passes must not show.
#include <gtest/gtest.h>

#include <random>

#include "models/tlm/transit.h"

namespace ahbm::test {
namespace {

using models::Channel;
using models::Framing;
using models::Hop;
using models::HopStats;
using models::Transit;

/// The same without anything kept.
struct PlainHop {
  LinkParams link;
  Framing framing;
  Calendar calendars[2];
  HopStats stats;
  void pass(Ps now, Transit& t) {
    const bool data = t.channel == Channel::Data;
    const uint64_t wire = framing.wire_bytes(t.wire_payload);
    const Ps duration = transfer_ps(wire, link.bytes_per_second);
    const Calendar::Slot slot = calendars[data ? 0 : 1].reserve(now, t.head, duration);
    ++stats.transactions;
    stats.payload_bytes += t.wire_payload;
    stats.wire_bytes += wire;
    (data ? stats.busy : stats.control_wire_bytes) += data ? duration : wire;
    if (data) stats.waited += slot.begin - t.head;
    t.tail = std::max(slot.end, t.tail) + link.latency;
    t.head = slot.begin + link.latency;
  }
};

void expect_equal(const HopStats& is, const HopStats& should) {
  EXPECT_EQ(is.transactions, should.transactions);
  EXPECT_EQ(is.payload_bytes, should.payload_bytes);
  EXPECT_EQ(is.wire_bytes, should.wire_bytes);
  EXPECT_EQ(is.control_wire_bytes, should.control_wire_bytes);
  EXPECT_EQ(is.busy, should.busy);
  EXPECT_EQ(is.waited, should.waited);
}

class HopTest : public testing::TestWithParam<Framing> {};

TEST_P(HopTest, KeptLengthsDoNotShow) {
  const std::vector<LinkParams> links{
      {64000000000, 50000}, {1000000, 0}, {16000000000000, 0}, {1000, 1}, {100000000000, ns(5000000)}};
  for (size_t l = 0; l < links.size(); ++l) {
    std::mt19937_64 random(l + 1);
    Hop hop(links[l], GetParam());
    PlainHop plain{links[l], GetParam(), {}, {}};
    const std::vector<uint64_t> lengths{16352, 32, 0, 16352, 32, 8, 1024, 65534, 65535, 1 << 20};
    const auto any = [&](uint64_t n) { return random() % n; };
    const observe::Tap none{observe::Point()};
    Ps now = 0;
    for (uint32_t i = 0; i < 4000; ++i) {
      Transit t;
      t.channel = any(3) == 0 ? Channel::Control : Channel::Data;
      // Long runs of few lengths, as moves make them, and any mixture.
      const uint64_t kinds = i / 1000 % 2 == 0 ? 3 : lengths.size();
      t.wire_payload = t.channel == Channel::Control && any(4) != 0 ? 8 : lengths[any(kinds)];
      t.head = now + (any(2) == 0 ? 0 : any(3000));
      t.tail = t.head + any(500);
      Transit expected = t;
      hop.pass(now, t);
      plain.pass(now, expected);
      ASSERT_EQ(t.head, expected.head) << i;
      ASSERT_EQ(t.tail, expected.tail) << i;
      if (any(100) == 0) expect_equal(hop.stats(), plain.stats);
      if (any(4) == 0) now += any(2000);
      if (any(500) == 0) hop.observe(any(2) == 0 ? &none : nullptr);
      if (any(1000) == 0) {
        plain.link = links[any(links.size())];
        hop.configure(plain.link, plain.framing);
      }
    }
    expect_equal(hop.stats(), plain.stats);
    EXPECT_GT(plain.stats.waited, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Framings, HopTest, testing::Values(Framing{1024, 16}, Framing{64, 4}, models::kUnframed));

}  // namespace
}  // namespace ahbm::test
