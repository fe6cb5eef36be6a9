#include "models/tl/framing.h"

#include <cstddef>
#include <cstring>

#include "models/core/errors.h"

namespace ahbm::tl {

ipcq::SlotHeader make_header(uint32_t group, uint32_t seq, uint16_t step, DType dtype, uint32_t bytes, uint32_t src_pe,
                             uint32_t message) {
  ipcq::SlotHeader h;
  h.group = group;
  h.seq = seq;
  h.step = step;
  h.dtype = static_cast<uint8_t>(dtype);
  h.bytes = bytes;
  h.src_pe = src_pe;
  h.message = message;
  return h;
}

std::string check_header(const ipcq::SlotHeader& received, const ipcq::SlotHeader& expected) {
  if (std::memcmp(&received, &expected, offsetof(ipcq::SlotHeader, reserved)) == 0) return {};  // nearly always
  std::string text;
  const auto compare = [&](const char* field, uint32_t got, uint32_t want, const std::string& got_name,
                           const std::string& want_name) {
    if (got == want) return;
    text += fmt::format("{}{} {} where {} was expected", text.empty() ? "" : ", ", field, got_name, want_name);
  };
  const auto number = [&](const char* field, uint32_t got, uint32_t want) {
    if (got != want) compare(field, got, want, fmt::format("{}", got), fmt::format("{}", want));
  };
  const auto dtype_name = [](uint8_t d) {
    return d <= static_cast<uint8_t>(DType::Bool) ? std::string(ahbm::to_string(static_cast<DType>(d)))
                                                  : fmt::format("#{}", d);
  };
  number("group", received.group, expected.group);
  number("operation", received.seq, expected.seq);
  number("step", received.step, expected.step);
  compare("dtype", received.dtype, expected.dtype, dtype_name(received.dtype), dtype_name(expected.dtype));
  number("payload bytes", received.bytes, expected.bytes);
  number("sender PE", received.src_pe, expected.src_pe);
  number("message of the move", received.message, expected.message);
  if (!text.empty()) text = fmt::format("message from PE {}: {}", received.src_pe, text);
  return text;
}

void check_move(const Move& move) {
  const auto fail = [&](const std::string& what) { throw ProtocolError(fmt::format("step {}: {}", move.step, what)); };
  if (move.local == 0 && move.from.empty()) fail("a move needs a local operand or a direction to receive from");
  if (move.store == 0 && move.to.empty()) fail("a move needs an address to store to or a direction to send to");
  for (const DirList* list : {&move.from, &move.to}) {
    for (size_t i = 0; i < list->size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if ((*list)[i] == (*list)[j]) fail(fmt::format("direction {} is listed twice", to_string((*list)[i])));
      }
    }
  }
  if (move.divisor == 0 || move.divisor > std::numeric_limits<uint32_t>::max()) {
    fail(fmt::format("the divisor is {}, not between 1 and 2^32 - 1", move.divisor));
  }
  if (move.local_last && (move.local == 0 || move.from.size() != 1)) {
    fail("local_last needs a local operand and exactly one direction to receive from");
  }
  const size_t operands = move.from.size() + (move.local != 0);
  if ((operands > 1 || move.divisor > 1) && !can_reduce(move.op, move.dtype)) {
    throw NotImplementedError(fmt::format("step {}: {} on {}: bools know sum, max (or), product and min (and)",
                                          move.step, ahbm::to_string(move.op), ahbm::to_string(move.dtype)));
  }
}

}  // namespace ahbm::tl
