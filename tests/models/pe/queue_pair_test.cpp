// The queue pair as a plain class: order, credits, wrap-around and every refusal.
#include "models/ipcq/queue_pair.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace ahbm::models {
namespace {

QpConfig config(uint32_t peer_slots, uint32_t slots, uint32_t slot_bytes = 256) {
  QpConfig c;
  c.peer_ring = 0x1000;
  c.peer_slots = peer_slots;
  c.slots = slots;
  c.slot_bytes = slot_bytes;
  c.ring_offset = 0x4000;
  return c;
}

TEST(QueuePair, DisabledRefusesEverything) {
  QueuePair q;
  EXPECT_FALSE(q.credit_time());
  EXPECT_EQ(q.credits(0), 0u);
  EXPECT_FALSE(q.front());
  EXPECT_EQ(q.notify(64, 0, 0), QpResult::Disabled);
  EXPECT_EQ(q.add_credits(1, 0), QpResult::Disabled);
  EXPECT_FALSE(q.push(8));
}

TEST(QueuePair, TailAddressWrapsAndCreditsRunOut) {
  QueuePair q;
  q.enable(config(3, 2));
  for (int lap = 0; lap < 4; ++lap) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(q.credit_time());
      EXPECT_EQ(q.tail_address(), 0x1000u + 256u * i);
      q.take_credit();
    }
    EXPECT_FALSE(q.credit_time());
    EXPECT_EQ(q.credits(1000), 0u);
    EXPECT_EQ(q.add_credits(3, 500 * (lap + 1)), QpResult::Ok);
  }
}

TEST(QueuePair, ACreditCountsFromItsTimeOn) {
  QueuePair q;
  q.enable(config(1, 1));
  q.take_credit();
  EXPECT_EQ(q.add_credits(1, 700), QpResult::Ok);
  ASSERT_TRUE(q.credit_time());
  EXPECT_EQ(*q.credit_time(), 700u);
  EXPECT_EQ(q.credits(699), 0u);
  EXPECT_EQ(q.credits(700), 1u);
}

TEST(QueuePair, MoreCreditsThanSentAreAnOverrun) {
  QueuePair q;
  q.enable(config(4, 4));
  EXPECT_EQ(q.add_credits(1, 0), QpResult::Overrun);
  q.take_credit();
  EXPECT_EQ(q.add_credits(2, 0), QpResult::Overrun);
  EXPECT_EQ(q.add_credits(0, 0), QpResult::Overrun);
  EXPECT_EQ(q.credited(), 0u);
  EXPECT_EQ(q.add_credits(1, 0), QpResult::Ok);
}

TEST(QueuePair, NotifyTakesEffectAtTheLaterOfDoorbellAndPayload) {
  QueuePair q;
  q.enable(config(4, 4));
  q.payload_arrived(900);
  EXPECT_EQ(q.notify(40, 300, 4000), QpResult::Ok);
  EXPECT_EQ(q.front()->ready, 4900u);
  q.payload_arrived(1000);
  EXPECT_EQ(q.notify(40, 6000, 4000), QpResult::Ok);
  q.take();
  EXPECT_EQ(q.front()->ready, 10000u);
  // A message never overtakes an earlier one of its queue pair.
  EXPECT_EQ(q.notify(40, 10, 0), QpResult::Ok);
  q.take();
  EXPECT_EQ(q.front()->ready, 10000u);
  EXPECT_EQ(q.level(4899), 0u);
  EXPECT_EQ(q.level(4900), 1u);
  EXPECT_EQ(q.level(10000), 3u);
}

TEST(QueuePair, RefusesLengthsBeyondASlotAndBelowAHeader) {
  QueuePair q;
  q.enable(config(2, 2, 256));
  EXPECT_EQ(q.notify(257, 0, 0), QpResult::TooLong);
  EXPECT_EQ(q.notify(31, 0, 0), QpResult::TooLong);
  EXPECT_EQ(q.notify(0, 0, 0), QpResult::TooLong);
  EXPECT_EQ(q.arrived(), 0u);
  EXPECT_EQ(q.notify(256, 0, 0), QpResult::Ok);
  EXPECT_EQ(q.notify(32, 0, 0), QpResult::Ok);
  EXPECT_EQ(q.notify(32, 0, 0), QpResult::Overrun);
  EXPECT_EQ(q.arrived(), 2u);
}

TEST(QueuePair, SlotsAreGivenBackInOrder) {
  QueuePair q;
  q.enable(config(4, 4));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(q.notify(40, 0, 0), QpResult::Ok);
  for (int i = 0; i < 3; ++i) q.take();
  EXPECT_EQ(q.release(2), 0u);
  EXPECT_EQ(q.release(1), 0u);
  EXPECT_EQ(q.release(0), 3u);
  EXPECT_EQ(q.release(0), 0u) << "a second release of one slot returns nothing";
  EXPECT_EQ(q.release(7), 0u) << "a slot that was never taken";
}

TEST(QueuePair, PushAppendsAtTheTailUpToTheSlot) {
  QueuePair q;
  q.enable(config(2, 2, 64));
  EXPECT_EQ(*q.push(8), 0x4000u);
  EXPECT_EQ(*q.push(40), 0x4008u);
  EXPECT_FALSE(q.push(17));
  EXPECT_EQ(*q.push(16), 0x4030u);
  EXPECT_EQ(q.notify(64, 0, 0), QpResult::Ok);
  EXPECT_EQ(*q.push(8), 0x4040u);
}

// Two ends joined by a wire of random delay against two plain deques: nothing lost, reordered or overwritten.
TEST(QueuePair, MillionRandomOperationsAgainstAReference) {
  std::mt19937_64 rng(7);
  for (const uint32_t depth : {1u, 2u, 8u}) {
    QueuePair sender, receiver;
    sender.enable(config(depth, depth));
    receiver.enable(config(depth, depth));
    struct Sent {
      uint32_t bytes;
      uint64_t slot;
    };
    std::deque<Sent> reference;
    std::deque<uint64_t> taken;
    Ps now = 0, doorbell = 0;
    uint64_t sent = 0;
    for (int i = 0; i < 333334; ++i) {
      now += rng() % 50;
      switch (rng() % 3) {
        case 0: {
          const auto credit = sender.credit_time();
          ASSERT_EQ(credit.has_value(), reference.size() + taken.size() < depth);
          if (!credit || *credit > now) break;
          const uint32_t bytes = 32 + rng() % 225;
          reference.push_back({bytes, (sender.tail_address() - 0x1000) / 256});
          sender.take_credit();
          doorbell = std::max(doorbell, now + rng() % 1000);
          receiver.payload_arrived(now + rng() % 1000);
          ASSERT_EQ(receiver.notify(bytes, doorbell, 4), QpResult::Ok);
          ++sent;
          break;
        }
        case 1: {
          const auto message = receiver.front();
          ASSERT_EQ(message.has_value(), !reference.empty());
          if (!message || message->ready > now) break;
          ASSERT_EQ(message->bytes, reference.front().bytes);
          ASSERT_EQ(message->tcm_offset, 0x4000u + reference.front().slot * 256);
          reference.pop_front();
          receiver.take();
          taken.push_back(message->ticket);
          break;
        }
        default: {
          if (taken.empty()) break;
          const size_t pick = rng() % taken.size();
          const uint64_t ticket = taken[pick];
          const uint32_t before = static_cast<uint32_t>(receiver.released());
          const uint32_t n = receiver.release(ticket);
          ASSERT_EQ(n, receiver.released() - before);
          if (pick != 0) {
            ASSERT_EQ(n, 0u);
            // Given back out of order: stays on the reference until the oldest follows.
            while (!taken.empty()) {
              const uint32_t more = receiver.release(taken.front());
              taken.pop_front();
              if (more == 0) continue;
              ASSERT_EQ(sender.add_credits(more, now + rng() % 500), QpResult::Ok);
            }
          } else {
            taken.pop_front();
            ASSERT_EQ(sender.add_credits(n, now + rng() % 500), QpResult::Ok);
          }
          break;
        }
      }
    }
    EXPECT_GT(sent, 1000u);
    EXPECT_EQ(receiver.arrived(), sent);
  }
}

}  // namespace
}  // namespace ahbm::models
