// Framing of moves: how a move is cut into messages and what their headers say. Every implementation of `Tl` uses these
// functions, so that both ends of a connection agree whatever they run on.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "models/core/ipcq_protocol.h"
#include "models/tl/tl.h"

namespace ahbm::tl {

/// Bytes that a move without a queue pair handles at a time, unless it says otherwise.
constexpr uint32_t kLocalPieceBytes = 16 << 10;

/// Moves that a PE has in flight before a submit blocks, on every implementation.
constexpr uint32_t kMaxMoves = 16;

/// Payload bytes of every message of a move but the last, a multiple of the item size: `Move::piece_bytes` if set, else
/// the capacity of the smallest slot among its directions. `slot_bytes(Dir)` gives a direction's slot size, header
/// included, and throws for an unknown direction.
/// \throws ProtocolError when not even one element fits, or the wish of the move exceeds a slot
template <typename SlotBytes>
uint32_t piece_bytes(const Move& move, SlotBytes&& slot_bytes) {
  const uint32_t item = item_bytes(move.dtype);
  uint32_t capacity = std::numeric_limits<uint32_t>::max();
  Dir smallest = Dir::None;
  const auto narrow = [&](Dir dir) {
    const uint32_t slot = slot_bytes(dir);
    const uint32_t room = slot < ipcq::kHeaderBytes ? 0 : ipcq::payload_capacity(slot);
    if (room >= capacity) return;
    capacity = room;
    smallest = dir;
  };
  for (Dir dir : move.from) narrow(dir);
  for (Dir dir : move.to) narrow(dir);
  if (smallest == Dir::None) capacity = std::max(move.piece_bytes, kLocalPieceBytes);
  if (move.piece_bytes > capacity) {
    throw ProtocolError(fmt::format("step {}: messages of {} bytes asked for, but a slot of direction {} holds {}",
                                    move.step, move.piece_bytes, to_string(smallest), capacity));
  }
  const uint32_t wish = move.piece_bytes != 0 ? move.piece_bytes : capacity;
  const uint32_t bytes = wish / item * item;
  if (bytes == 0) {
    throw ProtocolError(fmt::format("step {}: a message of {} bytes (direction {}) holds no {} of {} bytes", move.step,
                                    wish, to_string(smallest), ahbm::to_string(move.dtype), item));
  }
  return bytes;
}

/// The step that the messages a move receives must carry.
inline uint16_t received_step(const Move& move) {
  return move.recv_step == 0xFFFF ? move.step : move.recv_step;
}

/// \param bytes payload of this message  \param src_pe flat index of the sender  \param message its number in the move
ipcq::SlotHeader make_header(uint32_t group, uint32_t seq, uint16_t step, DType dtype, uint32_t bytes, uint32_t src_pe,
                             uint32_t message = 0);

/// Empty when a received header is the expected one; else every field that differs, with both sides' values.
std::string check_header(const ipcq::SlotHeader& received, const ipcq::SlotHeader& expected);

/// \throws ProtocolError when a move neither has an operand nor a source, or neither a place nor a destination, or
/// names
///   a direction twice on one side, or a divisor that is 0 or above 2^32 - 1, or asks for arithmetic that the dtype
///   does not have
void check_move(const Move& move);

}  // namespace ahbm::tl
