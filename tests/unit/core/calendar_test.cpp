// The reservation calendar against a reference that marks every picosecond.
#include "models/core/calendar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ahbm {
namespace {

/// Takes free picoseconds one by one.
class Reference {
 public:
  Calendar::Slot reserve(Ps earliest, Ps duration) {
    Ps t = earliest;
    while (busy(t)) ++t;
    Calendar::Slot slot{t, t};
    for (Ps left = duration; left > 0; ++t) {
      if (busy(t)) continue;
      mark(t);
      --left;
      slot.end = t + 1;
    }
    return slot;
  }
  bool busy(Ps t) const { return t < m_busy.size() && m_busy[t]; }
  /// Busy intervals that end after `now`.
  size_t intervals(Ps now) const {
    size_t n = 0;
    for (Ps t = 0; t < m_busy.size(); ++t) n += m_busy[t] && !busy(t + 1) && t + 1 > now;
    return n;
  }

 private:
  void mark(Ps t) {
    if (t >= m_busy.size()) m_busy.resize(t + 1);
    m_busy[t] = true;
  }
  std::vector<bool> m_busy;
};

void expect_slot(const Calendar::Slot& slot, Ps begin, Ps end) {
  EXPECT_EQ(slot.begin, begin);
  EXPECT_EQ(slot.end, end);
}

TEST(Calendar, BackToBackTransfersQueue) {
  Calendar c;
  expect_slot(c.reserve(0, 10, 5), 10, 15);
  expect_slot(c.reserve(0, 10, 5), 15, 20);
  expect_slot(c.reserve(0, 20, 5), 20, 25);
  EXPECT_EQ(c.size(0), 1u);  // touching intervals are one
}

TEST(Calendar, AReservationAheadDoesNotBlockWhatComesBefore) {
  Calendar c;
  expect_slot(c.reserve(0, ns(250), ns(40)), ns(250), ns(290));
  expect_slot(c.reserve(0, ns(10), ns(40)), ns(10), ns(50));
  EXPECT_EQ(c.size(0), 2u);
}

TEST(Calendar, ALongTransferIsSplitAroundShortOnes) {
  Calendar c;
  c.reserve(0, 100, 10);
  c.reserve(0, 200, 10);
  expect_slot(c.reserve(0, 50, 200), 50, 270);
  EXPECT_EQ(c.size(0), 1u);
}

TEST(Calendar, AGapIsFilledExactly) {
  Calendar c;
  c.reserve(0, 0, 10);
  c.reserve(0, 20, 10);
  EXPECT_EQ(c.size(0), 2u);
  expect_slot(c.reserve(0, 0, 10), 10, 20);  // ends where the second begins: not after it
  EXPECT_EQ(c.size(0), 1u);
  expect_slot(c.reserve(0, 0, 1), 30, 31);
}

TEST(Calendar, TouchingOnEitherSideMerges) {
  Calendar before, after;
  before.reserve(0, 20, 10);
  expect_slot(before.reserve(0, 15, 5), 15, 20);
  EXPECT_EQ(before.size(0), 1u);
  after.reserve(0, 20, 10);
  after.reserve(0, 100, 1);
  expect_slot(after.reserve(0, 30, 5), 30, 35);
  EXPECT_EQ(after.size(0), 2u);
}

TEST(Calendar, AStartInsideABusyIntervalMovesToItsEnd) {
  Calendar c;
  c.reserve(0, 10, 10);
  c.reserve(0, 25, 10);
  expect_slot(c.reserve(0, 15, 8), 20, 38);
}

TEST(Calendar, ZeroDurationTakesNothing) {
  Calendar c;
  expect_slot(c.reserve(0, 7, 0), 7, 7);
  EXPECT_EQ(c.size(0), 0u);
  c.reserve(0, 10, 10);
  expect_slot(c.reserve(0, 12, 0), 20, 20);  // it cannot pass while the resource is busy
  expect_slot(c.reserve(0, 10, 0), 20, 20);
  expect_slot(c.reserve(0, 9, 0), 9, 9);
  expect_slot(c.reserve(0, 20, 0), 20, 20);
  EXPECT_EQ(c.size(0), 1u);
}

TEST(Calendar, ThePastIsForgotten) {
  Calendar c;
  for (Ps t = 0; t < 1000; t += 10) c.reserve(0, t, 5);
  EXPECT_EQ(c.size(0), 100u);
  c.reserve(500, 500, 0);
  EXPECT_EQ(c.size(500), 50u);
  expect_slot(c.reserve(501, 501, 5), 505, 510);  // the interval that is going on is kept
  c.reserve(2000, 2000, 1);
  EXPECT_EQ(c.size(2000), 1u);
}

TEST(Calendar, PeekAnswersWhatReserveWill) {
  std::mt19937 random(1);
  Calendar c;
  for (int i = 0; i < 5000; ++i) {
    const Ps earliest = random() % 20000, duration = random() % 40;
    const Calendar::Slot expected = c.peek(earliest, duration);
    const Calendar::Slot got = c.reserve(0, earliest, duration);
    ASSERT_EQ(got.begin, expected.begin) << i;
    ASSERT_EQ(got.end, expected.end) << i;
  }
}

struct Traffic {
  uint32_t span, longest, ahead;
};
class CalendarTraffic : public ::testing::TestWithParam<Traffic> {};

TEST_P(CalendarTraffic, MatchesTheReference) {
  const Traffic p = GetParam();
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Calendar c;
    Reference reference;
    Ps now = 0;
    for (int i = 0; i < 600; ++i) {
      if (random() % 4 == 0) now += random() % p.span;
      const Ps earliest = now + (random() % 3 == 0 ? 0 : random() % p.ahead);
      const Ps duration = random() % 10 == 0 ? random() % p.longest : random() % 4;
      const Calendar::Slot expected = reference.reserve(earliest, duration);
      const Calendar::Slot got = c.reserve(now, earliest, duration);
      ASSERT_EQ(got.begin, expected.begin) << "seed " << seed << " step " << i;
      ASSERT_EQ(got.end, expected.end) << "seed " << seed << " step " << i;
      if (i % 50 == 0) {
        ASSERT_EQ(c.size(now), reference.intervals(now)) << "seed " << seed << " step " << i;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, CalendarTraffic,
                         ::testing::Values(Traffic{3, 20, 50}, Traffic{10, 40, 400}, Traffic{40, 10, 1000},
                                           Traffic{1, 200, 300}, Traffic{100, 5, 20}));

TEST(Calendar, DisjointTransfersAreTheSameInAnyOrder) {
  std::mt19937 random(7);
  struct Transfer {
    Ps earliest, duration;
  };
  std::vector<Transfer> transfers;
  Ps t = 0;
  for (int i = 0; i < 200; ++i) {
    t += random() % 3;  // some touch
    const Ps duration = random() % 50;
    transfers.push_back({t, duration});
    t += duration;
  }
  for (int round = 0; round < 50; ++round) {
    std::shuffle(transfers.begin(), transfers.end(), random);
    Calendar c;
    for (const Transfer& x : transfers) {
      const Calendar::Slot slot = c.reserve(0, x.earliest, x.duration);
      if (x.duration == 0) continue;  // may stand at an end that is another's begin
      ASSERT_EQ(slot.begin, x.earliest);
      ASSERT_EQ(slot.end, x.earliest + x.duration);
    }
  }
}

TEST(Calendar, WorkIsConservedInAnyOrder) {
  // Whatever the order of calls, the resource is busy at the same instants.
  std::mt19937 random(11);
  std::vector<std::pair<Ps, Ps>> transfers;
  for (int i = 0; i < 60; ++i) transfers.emplace_back(random() % 500, random() % 20);
  std::vector<bool> first;
  for (int round = 0; round < 30; ++round) {
    std::shuffle(transfers.begin(), transfers.end(), random);
    Calendar c;
    for (const auto& [earliest, duration] : transfers) c.reserve(0, earliest, duration);
    std::vector<bool> busy;
    for (Ps t = 0; t < 2000; ++t) busy.push_back(c.peek(t, 0).begin != t);
    if (round == 0) first = busy;
    ASSERT_EQ(busy, first);
  }
}

/// Two resources in a row, as `Hop::pass` reserves them, without latency.
struct Flow {
  Ps head = 0, tail = 0;
  void pass(Calendar& c, Ps duration) {
    const Calendar::Slot slot = c.reserve(0, head, duration);
    head = slot.begin;
    tail = std::max(slot.end, tail);
  }
};

TEST(Calendar, TwoCrossingFlowsInBothOrders) {
  // One crosses x then y, the other y then x. The order of the calls moves each by at most the other's serialisation.
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const Ps start_a = random() % 100, start_b = random() % 100, busy_a = 1 + random() % 60, busy_b = 1 + random() % 60;
    Flow a[2], b[2];
    for (int order = 0; order < 2; ++order) {
      Calendar x, y;
      a[order].head = a[order].tail = start_a;
      b[order].head = b[order].tail = start_b;
      const auto go_a = [&] {
        a[order].pass(x, busy_a);
        a[order].pass(y, busy_a);
      };
      const auto go_b = [&] {
        b[order].pass(y, busy_b);
        b[order].pass(x, busy_b);
      };
      order == 0 ? go_a() : go_b();
      order == 0 ? go_b() : go_a();
    }
    const auto apart = [](Ps p, Ps q) { return p > q ? p - q : q - p; };
    ASSERT_LE(apart(a[0].tail, a[1].tail), busy_b) << i;
    ASSERT_LE(apart(b[0].tail, b[1].tail), busy_a) << i;
    if (start_a + busy_a <= start_b || start_b + busy_b <= start_a) {
      ASSERT_EQ(a[0].tail, start_a + busy_a);
      ASSERT_EQ(a[1].tail, start_a + busy_a);
      ASSERT_EQ(b[0].tail, start_b + busy_b);
      ASSERT_EQ(b[1].tail, start_b + busy_b);
    }
  }
}

TEST(Calendar, GrowthIsBounded) {
  Calendar c;
  const Ps n = 3 * Calendar::kMaxIntervals;
  for (Ps i = 0; i < n; ++i) {
    expect_slot(c.reserve(0, i * 10, 4), i * 10, i * 10 + 4);
    ASSERT_LE(c.size(0), Calendar::kMaxIntervals);
  }
  EXPECT_EQ(c.size(0), Calendar::kMaxIntervals);
  // The earliest gaps are given up, the late ones are kept.
  const Ps joined_end = (n - Calendar::kMaxIntervals) * 10 + 4;
  expect_slot(c.reserve(0, 5, 1), joined_end, joined_end + 1);
  expect_slot(c.reserve(0, (n - 2) * 10, 6), (n - 2) * 10 + 4, (n - 2) * 10 + 10);
}

TEST(Calendar, GrowthIsBoundedForInsertionsAnywhere) {
  std::mt19937 random(5);
  Calendar c;
  uint64_t work = 0;
  for (int i = 0; i < 20000; ++i) {
    const Ps earliest = (random() % 1000000) * 10;
    const Calendar::Slot slot = c.reserve(0, earliest, 3);
    work += 3;
    ASSERT_GE(slot.begin, earliest);
    ASSERT_GE(slot.end, slot.begin + 3);
    ASSERT_LE(c.size(0), Calendar::kMaxIntervals);
  }
  EXPECT_EQ(c.size(0), Calendar::kMaxIntervals);
  // Time moves on: everything is forgotten, and the calendar works as new.
  expect_slot(c.reserve(us(100), us(100), 3), us(100), us(100) + 3);
  EXPECT_EQ(c.size(us(100)), 1u);
}

}  // namespace
}  // namespace ahbm
