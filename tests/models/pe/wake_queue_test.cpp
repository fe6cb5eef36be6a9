// The wake queue against a plain list of what is due, and what it tells sleepers ahead of their turns.
#include "models/pe/wake_queue.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "tests/support/sim_test.h"

namespace ahbm::test {
namespace {

using models::WakeQueue;

struct Woken {
  Ps at;
  size_t who;
  bool operator==(const Woken& o) const { return at == o.at && who == o.who; }
};

/// What sleepers ask for, from the same random numbers whoever wakes them: some ask again, some wake others, also
/// earlier than these have asked for.
class Script {
 public:
  Script(uint32_t seed, size_t sleepers) : m_random(seed), m_sleepers(sleepers) {}
  template <typename Wake>
  void begin(const Wake& wake) {
    for (size_t i = 0; i < m_sleepers; ++i) wake(i, m_random() % 50);
  }
  template <typename Wake>
  void on_wake(Ps now, const Wake& wake) {
    if (++m_woken > 5000) return;
    for (uint32_t n = m_random() % 3 + (m_woken % 2); n != 0; --n) {
      const size_t who = m_random() % m_sleepers;
      const Ps range = m_random() % 4 == 0 ? 200 : 5;
      wake(who, now + m_random() % range);
    }
  }

 private:
  std::mt19937 m_random;
  size_t m_sleepers, m_woken = 0;
};

/// The earliest first; at one instant in the order in which the sleepers first asked.
std::vector<Woken> expected(uint32_t seed, size_t sleepers) {
  constexpr Ps kNever = ~Ps{0};
  Script script(seed, sleepers);
  std::vector<Ps> due(sleepers, kNever);
  const auto wake = [&](size_t who, Ps at) { due[who] = std::min(due[who], at); };
  script.begin(wake);
  std::vector<Woken> out;
  for (;;) {
    const auto next = std::min_element(due.begin(), due.end());
    if (*next == kNever) return out;
    out.push_back({*next, static_cast<size_t>(next - due.begin())});
    *next = kNever;
    script.on_wake(out.back().at, wake);
  }
}

struct Approach {
  uint32_t turns;
  Ps at;
};
struct Sleeper : WakeQueue::Sleeper {
  void on_wake() override { woken(); }
  void on_approach(uint32_t turns, Ps at) override { approaches.push_back({turns, at}); }
  std::function<void()> woken = [] {};
  std::vector<Approach> approaches;
};

class WakeQueueTest : public SimTest {
 protected:
  std::vector<Woken> woken(uint32_t seed, size_t n, bool told) {
    WakeQueue queue;
    Script script(seed, n);
    std::vector<Woken> out;
    std::vector<Sleeper> sleepers(n);
    const Ps begin = now();
    const auto wake = [&](size_t who, Ps at) { queue.wake(sleepers[who], begin + at); };
    for (size_t i = 0; i < n; ++i) {
      if (told) queue.tell_approach(sleepers[i], &sleepers[i], &sleepers[i] + 1, 0);
      sleepers[i].woken = [&, i] {
        out.push_back({now() - begin, i});
        script.on_wake(now() - begin, wake);
        // A call that was overtaken by an earlier one is told as well.
        const auto& told_of = sleepers[i].approaches;
        const auto last =
            std::find_if(told_of.rbegin(), told_of.rend(), [](const Approach& a) { return a.turns == 0; });
        EXPECT_EQ(last != told_of.rend(), told);
        if (last != told_of.rend()) {
          EXPECT_EQ(last->at, now());
        }
      };
    }
    script.begin(wake);
    advance(us(1));
    return out;
  }
};

TEST_F(WakeQueueTest, WakesInOrder) {
  for (const size_t sleepers : {1u, 3u, 8u, 9u, 40u}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const std::vector<Woken> want = expected(seed, sleepers);
      ASSERT_GT(want.size(), sleepers);
      ASSERT_EQ(woken(seed, sleepers, false), want) << sleepers << " sleepers, seed " << seed;
      ASSERT_EQ(woken(seed, sleepers, true), want) << sleepers << " sleepers, seed " << seed;
    }
  }
}

TEST_F(WakeQueueTest, TellsThatATurnComesNear) {
  constexpr uint32_t kSleepers = 2 * WakeQueue::kHorizon;
  WakeQueue queue;
  std::vector<Sleeper> sleepers(kSleepers);
  for (uint32_t i = 0; i < kSleepers; ++i) {
    // Of every four one is not told.
    if (i % 4 != 3) queue.tell_approach(sleepers[i], &sleepers[i], &sleepers[i] + 1, 0);
    queue.wake(sleepers[i], ns(10 + i));
  }
  advance(us(1));
  for (uint32_t i = 0; i < kSleepers; ++i) {
    const std::vector<Approach>& got = sleepers[i].approaches;
    if (i % 4 == 3) {
      EXPECT_TRUE(got.empty());
      continue;
    }
    // A turn less with every wake-up before it: the first ones have seen fewer.
    const uint32_t turns = std::min(i, WakeQueue::kHorizon);
    ASSERT_EQ(got.size(), turns + 1) << i;
    for (uint32_t k = 0; k <= turns; ++k) {
      EXPECT_EQ(got[k].turns, turns - k) << i;
      EXPECT_EQ(got[k].at, ns(10 + i)) << i;
    }
  }
}

TEST_F(WakeQueueTest, TellsNobodyBeforeThereIsACrowd) {
  WakeQueue queue;
  std::vector<Sleeper> sleepers(4);
  const auto tell_and_wake = [&](uint32_t i) {
    for (int again = 0; again < 2; ++again) {
      queue.tell_approach(sleepers[i], &sleepers[i], &sleepers[i] + 1, 3);
    }
    queue.wake(sleepers[i], now() + ns(10));
  };
  for (uint32_t i = 0; i < 3; ++i) tell_and_wake(i);
  advance(us(1));
  for (const Sleeper& s : sleepers) EXPECT_TRUE(s.approaches.empty());
  for (uint32_t i = 0; i < 4; ++i) tell_and_wake(i);
  advance(us(1));
  for (const Sleeper& s : sleepers) EXPECT_FALSE(s.approaches.empty());
}

TEST_F(WakeQueueTest, ActsAtItsTimeWithoutAQuantum) {
  WakeQueue queue;
  Sleeper sleeper;
  Ps until = 0;
  sleeper.woken = [&] { until = queue.may_act_until(); };
  queue.wake(sleeper, ns(10));
  advance(us(1));
  EXPECT_EQ(until, ns(10));
}

TEST_F(WakeQueueTest, MayActAheadUntilSomethingElseHappens) {
  WakeQueue queue(ns(20));
  Sleeper sleeper;
  Sleeper other;
  sc_core::sc_event event;
  std::vector<Ps> ahead;
  const auto look = [&] { ahead.push_back(queue.may_act_until() - now()); };
  sleeper.woken = [&] {
    look();
    event.notify(7, sc_core::SC_NS);
    look();
    event.notify(40, sc_core::SC_NS);  // cancelled by the earlier one
    look();
    event.cancel();
    event.notify(40, sc_core::SC_NS);
    look();
    event.cancel();
    event.notify(sc_core::SC_ZERO_TIME);  // at this very time
    look();
    event.cancel();
    queue.wake(other, now() + ns(1));  // wake-ups do not count
    look();
  };
  queue.wake(sleeper, ns(10));
  advance(us(1));
  EXPECT_EQ(ahead, (std::vector<Ps>{ns(20), ns(7) - 1, ns(7) - 1, ns(20), 0, ns(20)}));
}

}  // namespace
}  // namespace ahbm::test
