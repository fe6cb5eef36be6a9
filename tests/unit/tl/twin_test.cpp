// The twin's queues: order, credits, checks of headers, deadlock, errors.
#include "models/tl/twin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "models/core/errors.h"
#include "models/tl/framing.h"

namespace ahbm::tl {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kN = 300;

TwinConfig machine(uint32_t sips) {
  TwinConfig c;
  c.shape.sips = sips;
  c.shape.cubes = 1;
  c.shape.pes = 1;
  return c;
}

Addr buffer(uint32_t sip, uint64_t element = 0) {
  return hbm_address(SipId{sip}, CubeId{0}, 8192 + 4 * element);
}

/// Two PEs; E of 0 is W of 1. Slots of eight floats.
struct Pair : ::testing::Test {
  Pair() : twin(machine(2)) { twin.connect({0, Dir::E, 1, Dir::W, 2, 64}); }

  void fill(uint32_t sip, float start) {
    std::vector<float> v(kN);
    std::iota(v.begin(), v.end(), start);
    twin.write(buffer(sip), v.data(), v.size() * 4);
  }
  float at(uint32_t sip, uint64_t element) {
    float f = 0;
    twin.read(buffer(sip, element), &f, 4);
    return f;
  }
  /// Runs `kernel` on both PEs; it tells them apart by flat_pe().
  void run(KernelFn kernel) { twin.run({{0, kernel, {}, {}}, {1, kernel, {}, {}}}); }
  std::string error_of(KernelFn kernel) {
    try {
      run(kernel);
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  }

  Twin twin;
};

TEST_F(Pair, SendAndReceiveInPieces) {
  fill(0, 1);
  run([](Tl& tl, const Args&) {
    if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), kN, DType::Float32, 3);
    if (tl.flat_pe() == 1) tl.recv(Dir::W, buffer(1), kN, DType::Float32, 3);
  });
  for (uint64_t i : {uint64_t{0}, uint64_t{7}, uint64_t{8}, kN - 1}) EXPECT_EQ(at(1, i), 1.0f + static_cast<float>(i));
  EXPECT_EQ(at(1, kN), 0.0f);
  EXPECT_EQ(twin.traffic(0, Dir::E).messages_sent, 38u);  // ceil(300 / 8)
  EXPECT_EQ(twin.traffic(0, Dir::E).payload_bytes_sent, kN * 4);
}

TEST_F(Pair, FusedVerbs) {
  fill(0, 0);
  fill(1, 1000);
  run([](Tl& tl, const Args&) {
    const DType t = DType::Float32;
    if (tl.flat_pe() == 0) {
      tl.isend(Dir::E, buffer(0), kN, t, 1);  // not waited for: the answers need the slots
      tl.recv_reduce(Dir::E, buffer(0), kN, t, ReduceOp::Max, 1);
    } else {
      tl.recv_reduce_copy_send(Dir::W, Dir::W, buffer(1), kN, t, ReduceOp::Sum, 1);
    }
  });
  EXPECT_EQ(at(1, 5), 5.0f + 1005.0f);
  EXPECT_EQ(at(0, 5), 1010.0f);
}

TEST_F(Pair, DivisorAndLocalCopy) {
  fill(0, 3);
  run([](Tl& tl, const Args&) {
    if (tl.flat_pe() != 0) return;
    Move m;
    m.local = buffer(0);
    m.store = buffer(0, 1000);
    m.count = kN;
    m.divisor = 2;
    tl.wait(tl.submit(m));
    tl.copy(buffer(0, 1000), buffer(0, 2000), kN, DType::Float32);
  });
  EXPECT_EQ(at(0, 1000), 1.5f);
  EXPECT_EQ(at(0, 2000 + kN - 1), (3.0f + kN - 1) / 2);
}

TEST(CheckMove, Divisors) {
  Move m;
  m.local = buffer(0);
  m.store = buffer(0, 1000);
  for (const uint64_t good : {uint64_t{1}, uint64_t{0xFFFFFFFF}}) {
    m.divisor = good;
    EXPECT_NO_THROW(tl::check_move(m));
  }
  for (const uint64_t bad : {uint64_t{0}, uint64_t{1} << 32}) {
    m.divisor = bad;
    EXPECT_THROW(tl::check_move(m), tl::ProtocolError) << bad;
  }
}

TEST_F(Pair, MovesFromASource) {
  fill(0, 3);
  run([](Tl& tl, const Args&) {
    Move m;
    m.count = 1;
    tl.submit_all([&, i = 0]() mutable -> const Move* {
      if (i == 40) return nullptr;
      m.local = tl.flat_pe() == 0 ? buffer(0, i) : 0;
      m.store = tl.flat_pe() == 0 ? 0 : buffer(1, i);
      (tl.flat_pe() == 0 ? m.to : m.from) = tl.flat_pe() == 0 ? Dir::E : Dir::W;
      m.step = static_cast<uint16_t>(i++);
      return &m;
    });
  });
  for (int i = 0; i < 40; ++i) EXPECT_EQ(at(1, i), 3.0f + static_cast<float>(i));
  EXPECT_EQ(twin.traffic(0, Dir::E).messages_sent, 40u);
}

TEST_F(Pair, EmptyMovesSendNothing) {
  run([](Tl& tl, const Args&) {
    if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), 0, DType::Float32);
    if (tl.flat_pe() == 1) tl.recv(Dir::W, buffer(1), 0, DType::Float32);
  });
  EXPECT_EQ(twin.traffic(0, Dir::E).messages_sent, 0u);
}

// An isend without credit must not keep other moves from going on.
TEST_F(Pair, BlockedSendLeavesOtherMovesAlone) {
  fill(0, 0);
  run([](Tl& tl, const Args&) {
    const DType t = DType::Float32;
    if (tl.flat_pe() == 0) {
      tl.isend(Dir::E, buffer(0), kN, t, 1);  // has credit for two of its 38 pieces
      tl.copy(buffer(0), buffer(0, 1000), kN, t);
      tl.send(Dir::E, buffer(0), 1, t, 2);
    } else {
      tl.recv(Dir::W, buffer(1), kN, t, 1);
      tl.recv(Dir::W, buffer(1, 1000), 1, t, 2);
    }
  });
  EXPECT_EQ(at(0, 1000 + kN - 1), static_cast<float>(kN - 1));
}

TEST_F(Pair, SlotsAreReadOnlyViewsAndComeBackInOrder) {
  fill(0, 10);
  run([](Tl& tl, const Args&) {
    const DType t = DType::Float32;
    if (tl.flat_pe() == 0) {
      for (uint16_t i = 0; i < 4; ++i) tl.isend(Dir::E, buffer(0, 8 * i), 8, t, i);
      return;
    }
    Slot first = tl.recv_slot(Dir::W, t, 8, 0);
    Slot second = tl.recv_slot(Dir::W, t, 8, 1);
    second.release();  // younger than `first`: no credit goes back yet
    const float v = static_cast<const float*>(first.data())[7];
    EXPECT_EQ(v, 17.0f);
    EXPECT_EQ(first.bytes(), 32u);
    Slot moved = std::move(first);
    moved.release();
    EXPECT_THROW(moved.data(), ProtocolError);
    EXPECT_THROW(first.data(), ProtocolError);  // NOLINT(bugprone-use-after-move): what is tested
    tl.recv(Dir::W, buffer(1), 8, t, 2);
    tl.recv(Dir::W, buffer(1), 8, t, 3);
  });
  EXPECT_EQ(at(1, 0), 34.0f);
}

TEST_F(Pair, MismatchesNameBothSides) {
  const auto differing = [this](KernelFn kernel) { return error_of(kernel); };
  EXPECT_THAT(differing([](Tl& tl, const Args&) {
                if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), 4, DType::Float32, 6);
                if (tl.flat_pe() == 1) tl.recv(Dir::W, buffer(1), 4, DType::Float32, 7);
              }),
              AllOf(HasSubstr("PE 1 (sip1.cube0.pe0)"), HasSubstr("direction W"),
                    HasSubstr("message from PE 0: step 6 where 7 was expected")));
  EXPECT_THAT(differing([](Tl& tl, const Args&) {
                if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), 4, DType::Float32);
                if (tl.flat_pe() == 1) tl.recv(Dir::W, buffer(1), 4, DType::Int32);
              }),
              HasSubstr("dtype float where int32 was expected"));
  EXPECT_THAT(differing([](Tl& tl, const Args&) {
                if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), 4, DType::Float32);
                if (tl.flat_pe() == 1) tl.recv(Dir::W, buffer(1), 5, DType::Float32);
              }),
              HasSubstr("payload bytes 16 where 20 was expected"));
  launch::ArgHeader later;
  later.seq = 12;
  const KernelFn exchange = [](Tl& tl, const Args&) {
    if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), 4, DType::Float32);
    if (tl.flat_pe() == 1) tl.recv(Dir::W, buffer(1), 4, DType::Float32);
  };
  try {
    twin.run({{0, exchange, {}, later}, {1, exchange, {}, {}}});
    FAIL();
  } catch (const ProtocolError& e) {
    EXPECT_THAT(e.what(), HasSubstr("operation 12 where 0 was expected"));
  }
  run(exchange);  // after an error the queues are empty and everything works
}

TEST_F(Pair, DeadlockIsATable) {
  const std::string text = error_of([](Tl& tl, const Args&) {
    if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), kN, DType::Float32, 4);
    if (tl.flat_pe() == 1) tl.send(Dir::W, buffer(1), kN, DType::Float32, 5);
  });
  EXPECT_THAT(text, HasSubstr("deadlock"));
  EXPECT_THAT(text,
              HasSubstr("PE 0 (sip0.cube0.pe0): wait for move 1; move 1 step 4 piece 2/38 waits for a credit of E "
                        "(0 of 2)"));
  EXPECT_THAT(text,
              HasSubstr("PE 1 (sip1.cube0.pe0): wait for move 1; move 1 step 5 piece 2/38 waits for a credit of W "
                        "(0 of 2)"));
  EXPECT_THROW(run([](Tl& tl, const Args&) {
                 if (tl.flat_pe() == 0) tl.recv(Dir::E, buffer(0), 1, DType::Float32);
               }),
               DeadlockError);
}

TEST_F(Pair, LeftoverMessagesAreAnError) {
  EXPECT_THAT(error_of([](Tl& tl, const Args&) {
                if (tl.flat_pe() == 0) tl.send(Dir::E, buffer(0), 1, DType::Float32);
              }),
              AllOf(HasSubstr("PE 1"), HasSubstr("1 messages nobody received")));
}

TEST_F(Pair, KernelExceptionsNameThePe) {
  const std::string text = error_of([](Tl& tl, const Args& args) {
    if (tl.flat_pe() == 1) args.u64(2);
    if (tl.flat_pe() == 0) tl.recv(Dir::E, buffer(0), 1, DType::Float32);  // is unwound
  });
  EXPECT_EQ(text, "PE 1 (sip1.cube0.pe0): kernel argument 2 asked for, but the launch has 0");
  EXPECT_THROW(run([](Tl& tl, const Args&) { tl.copy(buffer(7), buffer(0), 1, DType::Float32); }), FaultError);
  EXPECT_THAT(error_of([](Tl& tl, const Args&) { tl.peer(Dir::N); }), HasSubstr("no neighbour in direction N; it has"));
}

TEST_F(Pair, MovesAreChecked) {
  const auto text = [](Move m) {
    try {
      check_move(m);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  Move m;
  m.count = 1;
  EXPECT_THAT(text(m), HasSubstr("local operand or a direction to receive from"));
  m.local = 64;
  EXPECT_THAT(text(m), HasSubstr("address to store to or a direction to send to"));
  m.to = {Dir::E, Dir::E};
  EXPECT_THAT(text(m), HasSubstr("E is listed twice"));
  m.to = Dir::E;
  m.from = Dir::W;
  m.dtype = DType::Bool;
  EXPECT_EQ(text(m), "");
  m.op = ReduceOp::Avg;
  EXPECT_THAT(text(m), HasSubstr("avg on bool"));
  m.dtype = DType::Int8;
  EXPECT_EQ(text(m), "");
  m.local_last = true;
  EXPECT_EQ(text(m), "");
  m.from = {Dir::W, Dir::N};
  EXPECT_THAT(text(m), HasSubstr("exactly one direction"));
}

TEST(Framing, PiecesFitTheSmallestSlot) {
  Move m;
  m.from = Dir::W;
  m.to = Dir::E;
  m.dtype = DType::Float32;
  const auto slots = [](uint32_t w, uint32_t e) { return [w, e](Dir d) { return d == Dir::W ? w : e; }; };
  EXPECT_EQ(piece_bytes(m, slots(100, 200)), 68u);
  EXPECT_EQ(piece_bytes(m, slots(200, 99)), 64u);  // 67 rounded down to whole elements
  m.piece_bytes = 50;
  EXPECT_EQ(piece_bytes(m, slots(100, 200)), 48u);
  m.piece_bytes = 69;
  EXPECT_THROW(piece_bytes(m, slots(100, 200)), ProtocolError);
  m.piece_bytes = 0;
  EXPECT_THROW(piece_bytes(m, slots(35, 200)), ProtocolError);
  EXPECT_THROW(piece_bytes(m, slots(8, 200)), ProtocolError);
  Move local;
  EXPECT_EQ(piece_bytes(local, slots(0, 0)), kLocalPieceBytes);
  local.piece_bytes = 1 << 20;
  EXPECT_EQ(piece_bytes(local, slots(0, 0)), 1u << 20);
}

TEST(Twin, RefusesNonsense) {
  Twin twin(machine(2));
  EXPECT_THROW(twin.connect({0, Dir::E, 2, Dir::W, 2, 64}), std::invalid_argument);
  EXPECT_THROW(twin.connect({0, Dir::E, 1, Dir::W, 0, 64}), std::invalid_argument);
  EXPECT_THROW(twin.connect({0, Dir::E, 1, Dir::W, 2, 32}), std::invalid_argument);
  twin.connect({0, Dir::E, 1, Dir::W, 2, 64});
  EXPECT_THROW(twin.connect({0, Dir::E, 1, Dir::N, 2, 64}), std::invalid_argument);
  const KernelFn nothing = [](Tl&, const Args&) {};
  EXPECT_THROW(twin.run({{0, nothing, {}, {}}, {0, nothing, {}, {}}}), std::invalid_argument);
  EXPECT_THROW(twin.run({{9, nothing, {}, {}}}), std::invalid_argument);
  twin.run({});
}

}  // namespace
}  // namespace ahbm::tl
