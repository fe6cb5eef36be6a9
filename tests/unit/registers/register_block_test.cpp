// Bus rules and field policies of a register block, on the test block of zoo.yaml and on the shipped blocks.
#include "models/core/registers/register_block.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "ahbm/registers/cube.h"
#include "ahbm/registers/doorbell.h"
#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "ahbm/registers/zoo.h"

namespace ahbm {
namespace {

namespace zoo = regs::zoo;
using Bytes = std::vector<uint8_t>;

struct Recorder : RegisterBehaviour {
  struct Write {
    RegIndex reg;
    uint64_t old, now, mask;
  };
  std::vector<Write> writes;
  Bytes fifo;
  std::vector<uint32_t> fifo_calls;
  RegStatus fifo_answer = RegStatus::Ok;
  uint32_t pops = 0;

  void on_write(const RegisterLayout& reg, uint64_t old, uint64_t now, uint64_t mask) override {
    writes.push_back({reg.index, old, now, mask});
  }
  RegStatus on_fifo_write(const RegisterLayout& reg, const uint8_t* data, uint32_t bytes) override {
    EXPECT_EQ(reg.index, zoo::PUSH);
    if (fifo_answer == RegStatus::Ok) fifo.insert(fifo.end(), data, data + bytes);
    fifo_calls.push_back(bytes);
    return fifo_answer;
  }
  uint64_t peek(const RegisterLayout& reg, uint64_t stored) const override {
    return reg.index == zoo::POP ? 0x1000 + pops : stored;
  }
  uint64_t on_read(const RegisterLayout& reg, uint64_t stored) override {
    const uint64_t v = peek(reg, stored);
    if (reg.index == zoo::POP) ++pops;
    return v;
  }
};

struct Zoo : ::testing::Test {
  Recorder recorder;
  RegisterBlock block{zoo::kLayout, &recorder};

  RegStatus write(uint64_t offset, Bytes data, Bytes enables = {}, uint32_t streaming_width = kNoStreaming,
                  Ps now = kNoTime) {
    RegAccessRequest q;
    q.write = true;
    q.offset = offset;
    q.data = data.data();
    q.length = static_cast<uint32_t>(data.size());
    q.byte_enables = enables.empty() ? nullptr : enables.data();
    q.byte_enable_length = static_cast<uint32_t>(enables.size());
    q.streaming_width = streaming_width;
    q.now = now;
    return block.access(q);
  }
  RegStatus write32(uint64_t offset, uint32_t v, Bytes enables = {}, Ps now = kNoTime) {
    return write(offset, le(v, 4), enables, kNoStreaming, now);
  }
  RegStatus read(uint64_t offset, Bytes& data, Bytes enables = {}, uint32_t streaming_width = kNoStreaming,
                 Ps now = kNoTime) {
    RegAccessRequest q;
    q.offset = offset;
    q.data = data.data();
    q.length = static_cast<uint32_t>(data.size());
    q.byte_enables = enables.empty() ? nullptr : enables.data();
    q.byte_enable_length = static_cast<uint32_t>(enables.size());
    q.streaming_width = streaming_width;
    q.now = now;
    return block.access(q);
  }
  uint32_t read32(uint64_t offset, Ps now = kNoTime) {
    Bytes data(4, 0xEE);
    EXPECT_EQ(read(offset, data, {}, kNoStreaming, now), RegStatus::Ok);
    return static_cast<uint32_t>(from_le(data));
  }
  static Bytes le(uint64_t v, size_t n) {
    Bytes out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(v >> (8 * i));
    return out;
  }
  static uint64_t from_le(const Bytes& b) {
    uint64_t v = 0;
    for (size_t i = 0; i < b.size(); ++i) v |= uint64_t{b[i]} << (8 * i);
    return v;
  }
  Bytes image() const {
    Bytes out(zoo::kLayout.size);
    EXPECT_EQ(block.debug_read(0, out.data(), static_cast<uint32_t>(out.size())), out.size());
    return out;
  }
};

TEST_F(Zoo, ResetValues) {
  EXPECT_EQ(block.get(zoo::MIXED), 0x050F3412u);
  EXPECT_EQ(block.get(zoo::WORD), 0x11223344u);
  EXPECT_EQ(block.get(zoo::IDENT), 0xDEADBEEFu);
  block.set(zoo::WORD, 1);
  block.set(zoo::MIXED, 0);
  block.reset();
  EXPECT_EQ(block.get(zoo::WORD), 0x11223344u);
  EXPECT_EQ(block.get(zoo::MIXED), 0x050F3412u);
  EXPECT_EQ(block.get(zoo::LAST), 0x1A57u);
  EXPECT_TRUE(recorder.writes.empty());
}

TEST_F(Zoo, HardwareSideKnowsFieldsAndArrays) {
  block.set(zoo::MIXED_W1S, 0x1A);
  EXPECT_EQ(block.get(zoo::MIXED_W1S), 0xAu);  // bits beyond the field are dropped
  EXPECT_EQ(block.get(zoo::MIXED), 0x05AF3412u);
  block.set(zoo::MIXED, ~uint64_t{0});
  EXPECT_EQ(block.get(zoo::MIXED), 0x7FFFFFFFu);  // bit 31 is unimplemented
  static_assert(zoo::EVEN_COUNT == 4 && zoo::EVEN == zoo::EVEN0);
  for (RegIndex i = 0; i < zoo::EVEN_COUNT; ++i) {
    block.set(zoo::EVEN_LOW.at(i), i + 1u);
    EXPECT_EQ(read32(zoo::offset::EVEN + 8u * i), i + 1u);
    EXPECT_EQ(zoo::kLayout.registers[zoo::ODD + i].offset, 0x24u + 8u * i);
  }
  block.add(zoo::WORD, 0xFFFFFFFF);
  EXPECT_EQ(block.get(zoo::WORD), 0x11223343u);
}

TEST_F(Zoo, OneWriteGoesThroughEveryPolicy) {
  EXPECT_EQ(write32(0, 0xFFF9A5FF), RegStatus::Ok);
  // RW all ones; RO kept; W1C keeps bits written 0 (0xF & ~0x9); W1S sets all; RC kept; WO stored; pulse not stored.
  EXPECT_EQ(block.get(zoo::MIXED), 0x65F634FFu);
  ASSERT_EQ(recorder.writes.size(), 1u);
  EXPECT_EQ(recorder.writes[0].reg, zoo::MIXED);
  EXPECT_EQ(recorder.writes[0].old, 0x050F3412u);
  EXPECT_EQ(recorder.writes[0].now, 0x75F634FFu);  // with the pulse
  EXPECT_EQ(recorder.writes[0].mask, 0xFFFFFFFFu);
  EXPECT_EQ(read32(0), 0x05F634FFu);              // WO and pulse read as 0
  EXPECT_EQ(block.get(zoo::MIXED), 0x60F634FFu);  // the read cleared RC
}

TEST_F(Zoo, ReadClearTakesOnlyTheBytesRead) {
  block.set(zoo::SEEN, 0xFFFFFFFF);
  Bytes one(1);
  EXPECT_EQ(read(0x1A, one), RegStatus::Ok);
  EXPECT_EQ(one[0], 0xFF);
  EXPECT_EQ(block.get(zoo::SEEN), 0xFF00FFFFu);
  Bytes four(4, 0xEE);
  EXPECT_EQ(read(0x18, four, {0xFF, 0, 0, 0}), RegStatus::Ok);
  EXPECT_EQ(four, (Bytes{0xFF, 0xEE, 0xEE, 0xEE}));  // disabled lanes are not touched
  EXPECT_EQ(block.get(zoo::SEEN), 0xFF00FF00u);
  four.assign(4, 0xEE);
  EXPECT_EQ(read(0x18, four, {0}), RegStatus::Ok);  // nothing enabled
  EXPECT_EQ(block.get(zoo::SEEN), 0xFF00FF00u);
  EXPECT_EQ(write32(0x18, 0), RegStatus::CommandError);  // RC is read-only to writes
}

// T01: a lane whose strobe is off keeps its byte.
TEST_F(Zoo, ByteEnablesMergePerByte) {
  EXPECT_EQ(write32(4, 0xDEADBEEF, {0, 0, 0xFF, 0}), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::WORD), 0x11AD3344u);
  EXPECT_EQ(recorder.writes.at(0).mask, 0x00FF0000u);
  EXPECT_EQ(write32(4, 0x01020304, {0, 0xFF}), RegStatus::Ok);  // repeats
  EXPECT_EQ(block.get(zoo::WORD), 0x01AD0344u);
}

// T02, register part: sparse strobes land at their own offsets, for every pattern.
TEST_F(Zoo, EveryStrobePattern) {
  for (unsigned pattern = 0; pattern < 16; ++pattern) {
    block.set(zoo::WORD, 0x11223344);
    recorder.writes.clear();
    Bytes enables(4);
    uint32_t mask = 0;
    for (unsigned i = 0; i < 4; ++i) {
      enables[i] = (pattern >> i & 1) != 0 ? 0xFF : 0;
      mask |= (pattern >> i & 1) != 0 ? 0xFFu << (8 * i) : 0u;
    }
    EXPECT_EQ(write32(4, 0xA1B2C3D4, enables), RegStatus::Ok);
    EXPECT_EQ(block.get(zoo::WORD), (0x11223344u & ~mask) | (0xA1B2C3D4u & mask)) << pattern;
    EXPECT_EQ(recorder.writes.size(), pattern == 0 ? 0u : 1u);  // nothing written, nobody told
  }
}

// T09: the permission of a byte is that of its fields; unimplemented bytes are ignored, not refused.
TEST_F(Zoo, ByteWritesToImplementedAndUnimplementedBytes) {
  EXPECT_EQ(write(0x40, {0x5A}), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::SMALL), 0x5Au);
  for (uint64_t lane : {1, 2, 3}) EXPECT_EQ(write(0x40 + lane, {0xFF}), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::SMALL), 0x5Au);
  EXPECT_EQ(read32(0x40), 0x5Au);
}

// T10: a byte store at offset 3 reaches bits 31:24, and so for every lane and width.
TEST_F(Zoo, NarrowWritesInsideARegister) {
  EXPECT_EQ(write(7, {0xAA}), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::WORD), 0xAA223344u);
  EXPECT_EQ(write(6, {0x01, 0x02}), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::WORD), 0x02013344u);
  Bytes two(2);
  EXPECT_EQ(read(6, two), RegStatus::Ok);
  EXPECT_EQ(two, (Bytes{0x01, 0x02}));
}

// T14: a 64-bit register written as two halves with partial strobes, in both orders.
TEST_F(Zoo, WideRegisterInTwoHalves) {
  for (bool low_first : {true, false}) {
    block.set(zoo::WIDE, 0x1111111122222222);
    const auto low = [&] { EXPECT_EQ(write32(0x10, 0xAABBCCDD, {0xFF, 0xFF, 0, 0xFF}), RegStatus::Ok); };
    const auto high = [&] { EXPECT_EQ(write32(0x14, 0x55667788, {0, 0xFF, 0xFF, 0}), RegStatus::Ok); };
    low_first ? low() : high();
    low_first ? high() : low();
    EXPECT_EQ(block.get(zoo::WIDE), 0x11667711AA22CCDDu) << low_first;
  }
  RegisterBlock qp(regs::qp::kLayout);
  RegAccessRequest q;
  q.write = true;
  for (bool low_first : {true, false}) {
    qp.set(regs::qp::PEER_RING, 0);
    for (int i = 0; i < 2; ++i) {
      const bool low = low_first == (i == 0);
      Bytes data = low ? Bytes{1, 2, 3, 4} : Bytes{5, 6, 7, 8};
      q.offset = regs::qp::offset::PEER_RING + (low ? 0 : 4);
      q.data = data.data();
      q.length = 4;
      EXPECT_EQ(qp.access(q), RegStatus::Ok);
    }
    EXPECT_EQ(qp.get(regs::qp::PEER_RING), 0x0807060504030201u);
  }
}

// T15: a byte write to a mixed register leaves the read-only and the other fields alone.
TEST_F(Zoo, ReadOnlyFieldsOfAMixedRegisterSurvive) {
  EXPECT_EQ(write(0, {0x77}), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::MIXED), 0x050F3477u);
  EXPECT_EQ(write(1, {0xFF}), RegStatus::Ok);  // only read-only fields in this byte: ignored, not refused
  EXPECT_EQ(block.get(zoo::MIXED), 0x050F3477u);
  EXPECT_EQ(write32(0, 0), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::MIXED), 0x050F3400u);
}

TEST_F(Zoo, OnlyAllReadOnlyRegistersRefuseWrites) {
  const Bytes before = image();
  EXPECT_EQ(write32(8, 0), RegStatus::CommandError);
  EXPECT_EQ(write(9, {0}), RegStatus::CommandError);
  EXPECT_EQ(write(0x50, {0, 0, 0, 0}), RegStatus::CommandError);
  EXPECT_EQ(image(), before);
  EXPECT_TRUE(recorder.writes.empty());
  EXPECT_EQ(read32(8), 0xDEADBEEFu);
}

TEST_F(Zoo, WriteOnlyReadsAsZero) {
  EXPECT_EQ(write32(0x1C, 0xC0FFEE), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::KEY), 0xC0FFEEu);
  EXPECT_EQ(read32(0x1C), 0u);
}

TEST_F(Zoo, IllegalShapesAreBurstErrorsAndChangeNothing) {
  const Bytes before = image();
  const auto refused = [&](uint64_t offset, size_t n) {
    EXPECT_EQ(write(offset, Bytes(n, 0xFF)), RegStatus::BurstError) << offset << " " << n;
    Bytes data(n, 0xEE);
    EXPECT_EQ(read(offset, data), RegStatus::BurstError) << offset << " " << n;
    EXPECT_EQ(data, Bytes(n, 0xEE));
  };
  refused(0, 8);     // crosses MIXED and WORD
  refused(4, 3);     // odd width
  refused(5, 2);     // misaligned
  refused(6, 4);     // misaligned and crossing
  refused(4, 16);    // wider than any register
  refused(0x0C, 2);  // crosses from a register into a hole
  refused(0x0C, 4);
  refused(0x14, 8);  // inside WIDE, past its end
  refused(0x10, 5);
  refused(0x48, 16);  // a fifo too, without a streaming width
  refused(4, 0);
  EXPECT_EQ(write(4, Bytes(4, 0xFF), {}, 2), RegStatus::BurstError);  // streaming width on a plain register
  EXPECT_EQ(write(4, Bytes(4, 0xFF), {}, 0), RegStatus::BurstError);
  EXPECT_EQ(write(4, Bytes(4, 0xFF), {}, 4), RegStatus::Ok);
  block.set(zoo::WORD, 0x11223344);
  recorder.writes.clear();
  EXPECT_EQ(write(4, Bytes(4, 0xFF), {}, 100), RegStatus::Ok);  // wider than the data: no streaming
  block.set(zoo::WORD, 0x11223344);
  recorder.writes.clear();
  RegAccessRequest q;  // enables without a length
  Bytes data(4, 0xFF);
  const uint8_t enable = 0xFF;
  q.write = true;
  q.offset = 4;
  q.data = data.data();
  q.length = 4;
  q.byte_enables = &enable;
  EXPECT_EQ(block.access(q), RegStatus::BurstError);
  EXPECT_EQ(image(), before);
  EXPECT_TRUE(recorder.writes.empty());
  EXPECT_TRUE(recorder.fifo_calls.empty());
}

TEST_F(Zoo, HolesAndTheEndAreAddressErrors) {
  const Bytes before = image();
  Bytes data(4, 0xEE);
  for (uint64_t offset : {0x0D, 0x44, 0x47, 0x54, 0x60, 0x78, 0x80, 0x1000}) {
    EXPECT_EQ(write(offset, {1}), RegStatus::AddressError) << offset;
    EXPECT_EQ(read(offset, data), RegStatus::AddressError) << offset;
  }
  EXPECT_EQ(read(~uint64_t{0}, data), RegStatus::AddressError);
  EXPECT_EQ(write(0x7C, Bytes(8, 1)), RegStatus::AddressError);  // across the end of the block
  EXPECT_EQ(read32(0x7C), 0x1A57u);
  EXPECT_EQ(data, Bytes(4, 0xEE));
  EXPECT_EQ(image(), before);
}

// T07: a streaming width below the length repeats the address on fifo registers, and only there.
TEST_F(Zoo, FifoTakesBeatsInOrder) {
  Bytes data(16);
  for (uint8_t i = 0; i < 16; ++i) data[i] = i;
  EXPECT_EQ(write(0x48, data, {}, 4), RegStatus::Ok);
  EXPECT_EQ(recorder.fifo, data);
  EXPECT_EQ(recorder.fifo_calls, (std::vector<uint32_t>{16}));
  EXPECT_EQ(write(0x48, {0x10, 0x11}), RegStatus::Ok);  // a narrow store appends what it stores
  EXPECT_EQ(write(0x4C, {0x12, 0x13, 0x14, 0x15}), RegStatus::Ok);
  EXPECT_EQ(recorder.fifo.size(), 22u);
  EXPECT_EQ(recorder.fifo.back(), 0x15);
  EXPECT_EQ(write(0x48, {1, 2, 3, 4}, {0xFF, 0, 0xFF, 0}), RegStatus::Ok);  // so do strobes
  EXPECT_EQ((Bytes{recorder.fifo.end() - 2, recorder.fifo.end()}), (Bytes{1, 3}));
  EXPECT_EQ(write(0x48, {1, 2, 3, 4}, {0}), RegStatus::Ok);
  EXPECT_EQ(recorder.fifo_calls.size(), 4u);
  // A 64-byte write with a streaming width of 8 may reach past the block's end with its data, not with its addresses.
  EXPECT_EQ(write(0x48, Bytes(64, 7), {}, 8), RegStatus::Ok);
  EXPECT_EQ(recorder.fifo_calls.back(), 64u);
}

TEST_F(Zoo, FifoRefusals) {
  for (uint32_t width : {3u, 5u, 12u}) EXPECT_EQ(write(0x48, Bytes(60, 1), {}, width), RegStatus::BurstError) << width;
  EXPECT_EQ(write(0x48, Bytes(32, 1), {}, 16), RegStatus::BurstError);
  EXPECT_EQ(write(0x48, Bytes(14, 1), {}, 4), RegStatus::BurstError);  // an unfinished beat
  EXPECT_EQ(write(0x4A, Bytes(16, 1), {}, 4), RegStatus::BurstError);
  EXPECT_EQ(write(0x4C, Bytes(16, 1), {}, 8), RegStatus::BurstError);
  EXPECT_TRUE(recorder.fifo_calls.empty());
  recorder.fifo_answer = RegStatus::BurstError;  // the behaviour refuses: its answer is the access's
  EXPECT_EQ(write(0x48, Bytes(8, 1)), RegStatus::BurstError);
  RegisterBlock bare(zoo::kLayout);  // nothing behind it: never silence
  RegAccessRequest q;
  Bytes data(8);
  q.write = true;
  q.offset = 0x48;
  q.data = data.data();
  q.length = 8;
  EXPECT_EQ(bare.access(q), RegStatus::CommandError);
}

TEST_F(Zoo, FifoReadsPopOncePerBeat) {
  Bytes data(12);
  EXPECT_EQ(read(0x50, data, {}, 4), RegStatus::Ok);
  EXPECT_EQ(data, (Bytes{0, 0x10, 0, 0, 1, 0x10, 0, 0, 2, 0x10, 0, 0}));
  EXPECT_EQ(recorder.pops, 3u);
  Bytes seen(4);
  EXPECT_EQ(block.debug_read(0x50, seen.data(), 4), 4u);
  EXPECT_EQ(from_le(seen), 0x1003u);
  EXPECT_EQ(recorder.pops, 3u);  // debug has no side effects
}

// T12: an event and a clear of another bit, and of the same bit, at the same time and in both orders.
TEST_F(Zoo, HardwareEventWinsOverSimultaneousClear) {
  constexpr uint64_t kBit0 = 1u << 16, kBit1 = 1u << 17;
  const Ps t = ns(100);
  for (bool event_first : {true, false}) {
    for (uint64_t cleared : {kBit0, kBit1, kBit0 | kBit1}) {
      block.reset();
      block.set(zoo::MIXED_W1C, 0b10);
      const auto event = [&] { block.raise(zoo::MIXED, kBit0, t); };
      const auto clear = [&] { EXPECT_EQ(write32(0, static_cast<uint32_t>(cleared), {}, t), RegStatus::Ok); };
      event_first ? event() : clear();
      event_first ? clear() : event();
      EXPECT_EQ(block.get(zoo::MIXED_W1C), (cleared & kBit1) != 0 ? 0b01u : 0b11u) << event_first << " " << cleared;
    }
  }
  // Later it clears as usual, and so does an access that does not say when it is.
  EXPECT_EQ(write32(0, kBit0, {}, t + 1), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::MIXED_W1C) & 1, 0u);
  block.raise(zoo::MIXED, kBit0, t);
  EXPECT_EQ(write32(0, kBit0), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::MIXED_W1C) & 1, 0u);
}

TEST_F(Zoo, HardwareEventWinsForReadClearAndWriteSet) {
  const Ps t = ns(7);
  block.set(zoo::SEEN, 0b11);
  block.raise(zoo::SEEN, 0b01, t);
  EXPECT_EQ(read32(0x18, t), 0b11u);
  EXPECT_EQ(block.get(zoo::SEEN), 0b01u);  // the event is kept for the next read
  EXPECT_EQ(read32(0x18, t + 1), 0b01u);
  EXPECT_EQ(block.get(zoo::SEEN), 0u);

  block.set(zoo::ODD1, 0b1);
  block.clear_bits(zoo::ODD1, 0b1, t);  // hardware takes the request at the time that software sets it again
  EXPECT_EQ(write32(0x2C, 0b11, {}, t), RegStatus::Ok);
  EXPECT_EQ(block.get(zoo::ODD1), 0b10u);
}

TEST_F(Zoo, EventsOfAnOlderTimeAreForgotten) {
  block.raise(zoo::SEEN, 0b1, ns(1));
  block.raise(zoo::MIXED, 1u << 16, ns(2));
  EXPECT_EQ(read32(0x18, ns(2)), 0b1u);
  EXPECT_EQ(block.get(zoo::SEEN), 0u);
  block.raise(zoo::SEEN, 0b1, ns(3));
  block.reset();
  block.set(zoo::SEEN, 0b1);
  EXPECT_EQ(read32(0x18, ns(3)), 0b1u);
  EXPECT_EQ(block.get(zoo::SEEN), 0u);
}

TEST_F(Zoo, DebugCrossesRegistersAndHasNoSideEffects) {
  Bytes data(0x20);
  EXPECT_EQ(block.debug_read(2, data.data(), 0x20), 0x20u);
  EXPECT_EQ((Bytes{data.begin(), data.begin() + 6}), (Bytes{0x0F, 0x05, 0x44, 0x33, 0x22, 0x11}));
  EXPECT_EQ(data[0x0D - 2], 0);                              // a hole
  EXPECT_EQ(block.get(zoo::MIXED), 0x050F3412u);             // RC not cleared
  EXPECT_EQ(block.debug_read(0x7E, data.data(), 0x20), 2u);  // the short count
  EXPECT_EQ(block.debug_read(0x80, data.data(), 1), 0u);
  EXPECT_EQ(block.debug_write(0x7E, data.data(), 0x20), 2u);
  EXPECT_EQ(block.debug_write(0x80, data.data(), 1), 0u);

  const Bytes ones(0x7C, 0xFF);
  EXPECT_EQ(block.debug_write(0, ones.data(), 0x7C), 0x7Cu);
  EXPECT_EQ(block.get(zoo::MIXED), 0x0FFF34FFu);  // RW, W1C, W1S, RC replaced; RO, WO and pulse left
  EXPECT_EQ(block.get(zoo::IDENT), 0xDEADBEEFu);
  EXPECT_EQ(block.get(zoo::WIDE), ~uint64_t{0});
  EXPECT_TRUE(recorder.writes.empty());
  EXPECT_TRUE(recorder.fifo_calls.empty());
}

/// Random accesses of every shape against a model that goes bit by bit.
TEST_F(Zoo, RandomAccessesMatchABitwiseModel) {
  std::mt19937 random(20240611);
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  struct Bit {
    RegAccess access;
    bool v;
  };
  // One entry per bit of the block that is in a field, fifos excluded.
  std::vector<std::array<bool, 8>> implemented(0x80);
  std::vector<std::array<Bit, 8>> model(0x80);
  std::vector<const RegisterLayout*> owner(0x80, nullptr);
  for (RegIndex r = 0; r < zoo::kLayout.count; ++r) {
    const RegisterLayout& reg = zoo::kLayout.registers[r];
    for (unsigned b = 0; b < reg.width_bytes; ++b) owner[reg.offset + b] = &reg;
    for (unsigned f = 0; f < reg.field_count; ++f) {
      for (unsigned bit = reg.fields[f].lsb; bit < reg.fields[f].lsb + reg.fields[f].width; ++bit) {
        implemented[reg.offset + bit / 8][bit % 8] = true;
        model[reg.offset + bit / 8][bit % 8] = {reg.fields[f].access, (reg.reset >> bit & 1) != 0};
      }
    }
  }
  int ok = 0;
  for (int n = 0; n < 200000; ++n) {
    const uint32_t offset = pick(0x84);
    const uint32_t length = pick(5) == 0 ? pick(20) : 1u << pick(4);
    if (offset < 0x80 && owner[offset] != nullptr && owner[offset]->fifo) continue;
    Bytes data(length);
    for (uint8_t& d : data) d = static_cast<uint8_t>(random());
    Bytes enables(pick(3) == 0 ? 1 + pick(8) : 0);
    for (uint8_t& e : enables) e = pick(2) != 0 ? 0xFF : 0;
    const bool is_write = pick(2) != 0;

    RegStatus expected = RegStatus::Ok;
    const bool power = length == 1 || length == 2 || length == 4 || length == 8;
    if (offset >= 0x80 || owner[offset] == nullptr || (length > 0x80 - offset && length > 0)) {
      expected = RegStatus::AddressError;
    } else if (!power || offset % length != 0 || offset + length > owner[offset]->offset + owner[offset]->width_bytes) {
      expected = RegStatus::BurstError;
    } else if (is_write && (owner[offset] == &zoo::kLayout.registers[zoo::IDENT] ||
                            owner[offset] == &zoo::kLayout.registers[zoo::SEEN])) {
      expected = RegStatus::CommandError;
    }
    const Bytes sent = data;
    ASSERT_EQ(is_write ? write(offset, data, enables) : read(offset, data, enables), expected)
        << offset << " " << length << " " << is_write;
    if (expected != RegStatus::Ok) {
      ASSERT_EQ(data, sent);
      continue;
    }
    ++ok;
    for (uint32_t i = 0; i < length; ++i) {
      if (!enables.empty() && enables[i % enables.size()] == 0) {
        ASSERT_EQ(data[i], sent[i]);
        continue;
      }
      for (unsigned bit = 0; bit < 8; ++bit) {
        Bit& m = model[offset + i][bit];
        const bool d = (sent[i] >> bit & 1) != 0;
        const bool in_field = implemented[offset + i][bit];
        if (is_write) {
          if (!in_field) continue;
          if (m.access == RegAccess::RW || m.access == RegAccess::WO) m.v = d;
          if (m.access == RegAccess::W1C && d) m.v = false;
          if (m.access == RegAccess::W1S && d) m.v = true;
        } else {
          const bool visible = in_field && m.access != RegAccess::WO && m.access != RegAccess::Pulse && m.v;
          ASSERT_EQ((data[i] >> bit & 1) != 0, visible) << offset + i << " bit " << bit;
          if (in_field && m.access == RegAccess::RC) m.v = false;
        }
      }
    }
    if (pick(20) == 0) {  // hardware sets what software only clears
      block.set(zoo::SEEN, 0xFFFFFFFF);
      for (unsigned b = 0; b < 4; ++b) {
        for (unsigned bit = 0; bit < 8; ++bit) model[0x18 + b][bit].v = true;
      }
    }
  }
  EXPECT_GT(ok, 30000);
}

TEST(ShippedBlocks, EveryRegisterIsFoundAtEveryByteAndNowhereElse) {
  for (const BlockLayout* b :
       {&regs::pe::kLayout, &regs::qp::kLayout, &regs::doorbell::kLayout, &regs::cube::kLayout, &regs::zoo::kLayout}) {
    std::vector<const RegisterLayout*> owner(b->size, nullptr);
    uint64_t stored = 0;
    for (RegIndex i = 0; i < b->count; ++i) {
      const RegisterLayout& r = b->registers[i];
      EXPECT_EQ(r.index, i);
      EXPECT_EQ(r.storage % r.width_bytes, 0u);
      EXPECT_LE(r.storage + r.width_bytes, b->storage_bytes);
      stored += r.width_bytes;
      for (unsigned byte = 0; byte < r.width_bytes; ++byte) owner.at(r.offset + byte) = &r;
      if (i != 0) {
        EXPECT_LT(b->registers[b->by_offset[i - 1]].offset, b->registers[b->by_offset[i]].offset);
      }
    }
    EXPECT_EQ(stored, b->storage_bytes);
    for (uint64_t offset = 0; offset < b->size + 64; ++offset) {
      const RegisterLayout* found = b->find(offset);
      EXPECT_EQ(found, offset < b->size ? owner[offset] : nullptr) << b->name << " " << offset;
    }
  }
}

TEST(ShippedBlocks, AgreeWithTheSeamHeaders) {
  EXPECT_EQ(regs::pe::kLayout.size, 64u << 10);
  EXPECT_EQ(regs::qp::kLayout.size, 0x100u);
  EXPECT_EQ(regs::doorbell::kLayout.size, 0x1000u);
  EXPECT_EQ(regs::doorbell::offset::NOTIFY, 0x00u);
  EXPECT_EQ(regs::doorbell::offset::CREDIT, 0x08u);
  EXPECT_EQ(regs::doorbell::offset::PUSH, 0x10u);
  EXPECT_TRUE(regs::doorbell::kLayout.registers[regs::doorbell::PUSH].fifo);
  EXPECT_TRUE(regs::pe::kLayout.registers[regs::pe::LAUNCH].fifo);
  RegisterBlock pe(regs::pe::kLayout);
  EXPECT_EQ(pe.get(regs::pe::ID), 0x4D424841u);
  EXPECT_EQ(regs::pe::VERSION_MAJOR.of(pe.get(regs::pe::VERSION)), 1u);
}

}  // namespace
}  // namespace ahbm
