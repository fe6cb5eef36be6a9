// Moves from a source (Tl::submit_all): as a loop over submit, to the picosecond, and its errors.
#include <gmock/gmock.h>

#include "tests/models/pe/pe_bench.h"

namespace ahbm::test {
namespace {

using launch::Status;
using testing::HasSubstr;
using tl::Dir;
using tl::Move;

constexpr uint64_t kIn = PeBench::kMemory, kOut = PeBench::kMemory + 0x100000;
constexpr uint64_t kItems = 24;  // of a move: three messages, the last one shorter than the others

/// Move i of a sequence that sends east or receives from the west; every fifth has no elements.
Move move_at(uint64_t i, bool sends) {
  Move m;
  m.count = i % 5 == 4 ? 0 : kItems;
  m.step = static_cast<uint16_t>(i);
  if (sends) {
    m.local = kIn + i * kItems * 4;
    m.to = Dir::E;
  } else {
    m.store = kOut + i * kItems * 4;
    m.from = Dir::W;
  }
  return m;
}
void by_loop(tl::Tl& t, uint64_t n, bool sends) {
  for (uint64_t i = 0; i < n; ++i) t.submit(move_at(i, sends));
}
void by_source(tl::Tl& t, uint64_t n, bool sends) {
  Move m;
  t.submit_all([&, i = uint64_t{0}]() mutable -> const Move* {
    if (i == n) return nullptr;
    m = move_at(i++, sends);
    return &m;
  });
}
void loop_sends(tl::Tl& t, const tl::Args& a) {
  by_loop(t, a.u64(0), true);
}
void loop_receives(tl::Tl& t, const tl::Args& a) {
  by_loop(t, a.u64(0), false);
}
void source_sends(tl::Tl& t, const tl::Args& a) {
  by_source(t, a.u64(0), true);
}
void source_receives(tl::Tl& t, const tl::Args& a) {
  by_source(t, a.u64(0), false);
}
void source_waits(tl::Tl& t, const tl::Args&) {
  t.submit_all([&]() -> const Move* {
    t.wait_all();
    return nullptr;
  });
}
/// A source that submits by itself, after two moves; the kernel goes on.
void source_nests(tl::Tl& t, const tl::Args&) {
  Move m;
  const auto next = [&, i = uint64_t{0}]() mutable -> const Move* {
    if (i == 2) t.submit_all([]() -> const Move* { return nullptr; });
    m = move_at(i++, true);
    return &m;
  };
  EXPECT_THROW(t.submit_all(next), tl::ProtocolError);
  EXPECT_THROW(t.submit_all([&]() -> const Move* {
    t.submit(move_at(0, true));
    return nullptr;
  }),
               tl::ProtocolError);
  t.submit(move_at(2, true));
}
/// Submits three moves before its source fails, and goes on after that.
void source_fails(tl::Tl& t, const tl::Args& a) {
  Move m;
  const auto next = [&, i = uint64_t{0}]() mutable -> const Move* {
    if (i == 3 && a.u64(0) == 0) throw std::out_of_range("the source is broken");
    m = move_at(i, true);
    if (i++ == 3) m.to = Dir::N;  // where nobody is
    return &m;
  };
  try {
    t.submit_all(next);
  } catch (const std::out_of_range&) {
    if (a.u64(0) != 0) throw;
  } catch (const tl::ProtocolError& e) {
    if (a.u64(0) == 0 || std::string(e.what()).find("direction N") == std::string::npos) throw;
  }
  t.submit(move_at(3, true));
}

class SubmitAll : public SimTest {
 protected:
  void start(bool fetches_ahead = true, Ps quantum = 0) {
    SystemConfig config = bench_config();
    config.simulation.pe_quantum = quantum;
    if (!fetches_ahead) config.pes_in_host_caches = SystemConfig::kPesInHostCaches;
    bench = std::make_unique<PeBench>(config, 2);
    bench->bus.latency = 100000;
    bench->kernels.add("loop_sends", loop_sends);
    bench->kernels.add("loop_receives", loop_receives);
    bench->kernels.add("source_sends", source_sends);
    bench->kernels.add("source_receives", source_receives);
    bench->kernels.add("source_waits", source_waits);
    bench->kernels.add("source_fails", source_fails);
    bench->kernels.add("source_nests", source_nests);
  }
  /// Runs a sender on PE 0 and a receiver on PE 1; how long that takes.
  Ps pair(const char* sender, const char* receiver, const std::vector<uint64_t>& args, uint64_t moves, uint32_t slots) {
    bench->memory.poke(kOut, std::vector<uint8_t>(moves * kItems * 4));
    const Ps begin = now();
    bench->launch(1, receiver, {moves}, {link(Dir::W, 3, 0, slots, kSlotBytes)}, m_tag++);
    bench->launch(0, sender, args, {link(Dir::E, 2, 1, slots, kSlotBytes)}, m_tag++);
    const Ps end = bench->wait_completions(m_tag);
    for (uint32_t tag : {m_tag - 2, m_tag - 1}) EXPECT_EQ(bench->completion(tag).status, 0) << tag;
    for (uint64_t i = 0; i < moves; ++i) {
      const uint64_t at = i * kItems * 4;
      const std::vector<uint8_t> want =
          i % 5 == 4 ? std::vector<uint8_t>(kItems * 4) : bench->memory.peek(kIn + at, kItems * 4);
      EXPECT_EQ(bench->memory.peek(kOut + at, kItems * 4), want) << "move " << i;
    }
    return end - begin;
  }

  /// Of 100 moves, on any machine.
  static constexpr Ps time_of_hundred(uint32_t slots) { return slots == 1 ? 62088727 : 10648126; }

  static constexpr uint32_t kSlotBytes = 32 + 40;
  std::unique_ptr<PeBench> bench;
  uint32_t m_tag = 0;
};

TEST_F(SubmitAll, TakesTheTimeOfALoop) {
  start();
  std::vector<uint8_t> in(200 * kItems * 4);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 251);
  bench->memory.poke(kIn, in);
  run([&] {
    for (const uint32_t slots : {1u, 2u, 8u}) {
      bench->connect(0, 2, 0, 1, 3, 0, slots, kSlotBytes);
      for (const uint64_t moves : {0u, 1u, 7u, 8u, 9u, 16u, 17u, 25u, 100u}) {
        const Ps loop = pair("loop_sends", "loop_receives", {moves}, moves, slots);
        EXPECT_EQ(pair("source_sends", "source_receives", {moves}, moves, slots), loop) << moves << " x " << slots;
        EXPECT_EQ(pair("source_sends", "loop_receives", {moves}, moves, slots), loop) << moves << " x " << slots;
        if (moves == 100 && slots != 2) {
          EXPECT_EQ(loop, time_of_hundred(slots));
        }
      }
      for (const auto& [p, q] : {std::pair{0u, 2u}, std::pair{1u, 3u}}) {
        bench->reg32(qp_reg_address(PeBench::location(p), QpId{q}, regs::qp::offset::CTRL), 0);
      }
    }
  });
}

// As above, but nothing is fetched ahead.
TEST_F(SubmitAll, TakesTheSameTimeOnASmallMachine) {
  start(false);
  ASSERT_FALSE(bench->config.outgrows_host_caches());
  std::vector<uint8_t> in(100 * kItems * 4);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 251);
  bench->memory.poke(kIn, in);
  run([&] {
    for (const uint32_t slots : {1u, 8u}) {
      bench->connect(0, 2, 0, 1, 3, 0, slots, kSlotBytes);
      const Ps loop = pair("loop_sends", "loop_receives", {100}, 100, slots);
      EXPECT_EQ(pair("source_sends", "source_receives", {100}, 100, slots), loop);
      EXPECT_EQ(loop, time_of_hundred(slots));
      for (const auto& [p, q] : {std::pair{0u, 2u}, std::pair{1u, 3u}}) {
        bench->reg32(qp_reg_address(PeBench::location(p), QpId{q}, regs::qp::offset::CTRL), 0);
      }
    }
  });
}

// PEs that run ahead: nothing on this bus depends on the order of calls, so every time is the same.
TEST_F(SubmitAll, TakesTheSameTimeAheadOfTime) {
  std::vector<uint8_t> in(100 * kItems * 4);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 251);
  start(true, ns(90));  // less than the bus takes
  bench->memory.poke(kIn, in);
  run([&] {
    for (const uint32_t slots : {1u, 8u}) {
      bench->connect(0, 2, 0, 1, 3, 0, slots, kSlotBytes);
      EXPECT_EQ(pair("loop_sends", "loop_receives", {100}, 100, slots), time_of_hundred(slots));
      EXPECT_EQ(pair("source_sends", "source_receives", {100}, 100, slots), time_of_hundred(slots));
      for (const auto& [p, q] : {std::pair{0u, 2u}, std::pair{1u, 3u}}) {
        bench->reg32(qp_reg_address(PeBench::location(p), QpId{q}, regs::qp::offset::CTRL), 0);
      }
    }
  });
}

TEST_F(SubmitAll, WhatComesBeforeAnErrorIsSubmitted) {
  start();
  bench->memory.poke(kIn, std::vector<uint8_t>(4 * kItems * 4, 0x3F));
  run([&] {
    bench->connect(0, 2, 0, 1, 3, 0, 2, kSlotBytes);
    pair("source_fails", "loop_receives", {0}, 4, 2);
    pair("source_fails", "source_receives", {1}, 4, 2);
  });
}

TEST_F(SubmitAll, ASourceMustNotSubmit) {
  start();
  bench->memory.poke(kIn, std::vector<uint8_t>(3 * kItems * 4, 0x3F));
  run([&] {
    bench->connect(0, 2, 0, 1, 3, 0, 2, kSlotBytes);
    pair("source_nests", "loop_receives", {}, 3, 2);
  });
}

TEST_F(SubmitAll, ASourceMustNotWait) {
  start();
  run([&] {
    bench->launch(0, "source_waits", {}, {}, m_tag++);
    bench->wait_completions(m_tag);
    EXPECT_EQ(bench->completion(0).status, static_cast<uint16_t>(Status::Protocol));
    EXPECT_THAT(bench->pe[0]->executor().last_error(), HasSubstr("must not use the machine"));
    bench->connect(0, 2, 0, 1, 3, 0, 2, kSlotBytes);
    pair("source_sends", "source_receives", {9}, 9, 2);
  });
}

}  // namespace
}  // namespace ahbm::test
