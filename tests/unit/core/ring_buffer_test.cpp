// The ring buffer against std::deque.
#include "models/core/ring_buffer.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace ahbm {
namespace {

TEST(RingBuffer, DoesWhatADequeDoes) {
  std::mt19937 random(1);
  RingBuffer<int> ring;
  std::deque<int> expected;
  for (int i = 0; i < 20000; ++i) {
    const auto at = static_cast<uint32_t>(random() % (expected.size() + 1));
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        ring.push_back(i);
        expected.push_back(i);
        break;
      case 3:
        ring.insert(at, i);
        expected.insert(expected.begin() + at, i);
        break;
      case 4:
        if (expected.empty()) break;
        ring.pop_front();
        expected.pop_front();
        break;
      case 5:
        if (expected.empty()) break;
        ring.pop_back();
        expected.pop_back();
        break;
      case 6: {
        const auto n = static_cast<uint32_t>(random() % (expected.size() - at + 1) % 4);
        ring.erase(at, n);
        expected.erase(expected.begin() + at, expected.begin() + at + n);
        break;
      }
      case 7:
        if (random() % 50 != 0) break;
        ring.truncate(at);
        expected.resize(at);
        break;
    }
    ASSERT_EQ(ring.size(), expected.size()) << i;
    ASSERT_EQ(ring.empty(), expected.empty()) << i;
    for (uint32_t j = 0; j < ring.size(); ++j) ASSERT_EQ(ring[j], expected[j]) << i;
    if (ring.empty()) continue;
    ASSERT_EQ(ring.front(), expected.front());
    ASSERT_EQ(ring.back(), expected.back());
  }
  ring.clear();
  EXPECT_TRUE(ring.empty());
  ring.push_back(1);
  const int* first = &ring.front();
  while (!ring.full()) ring.push_back(2);
  ring.restart();
  EXPECT_TRUE(ring.empty());
  ring.push_back(3);
  EXPECT_EQ(ring.front(), 3);
  EXPECT_EQ(ring.size(), 1u);
  while (!ring.full()) ring.push_back(4);
  EXPECT_GE(&ring.back(), &ring.front());  // nothing wraps, and the memory is the one there was
  EXPECT_LE(&ring.front(), first);
}

}  // namespace
}  // namespace ahbm
