// Register blocks as plain data. `ahbm_regen` writes these tables at build time from configs/registers/*.yaml (format
// and semantics: docs/registers.md); every instance of a block shares one table. Nothing here knows what a register
// does.
//
// For a block file pe.yaml the build makes `#include "ahbm/registers/pe.h"`, namespace `ahbm::regs::pe`, with
//   kLayout               the BlockLayout
//   CTRL, STATUS, ...     register indexes (an unscoped enum `Reg`); of an array NAME the first element has the index
//                         NAME (== NAME0), element i has NAME + i, and NAME_COUNT is their number
//   CTRL_RESET, ...       one Field per REGISTER_FIELD; of an array, of its first element (`.at(i)` for the others)
//   offset::CTRL, ...     byte offsets in the block (offset::NAME is the first element of an array)
#pragma once

#include <cstddef>
#include <cstdint>

namespace ahbm {

enum class RegAccess : uint8_t {
  RW,     ///< software reads and writes
  RO,     ///< software reads, hardware writes; writes change nothing
  WO,     ///< software writes, reads as 0
  W1C,    ///< a 1 written clears the bit, a 0 keeps it
  W1S,    ///< a 1 written sets the bit, a 0 keeps it
  RC,     ///< a read clears what it read; writes change nothing
  Pulse,  ///< a 1 written is an event for the hardware; never stored, reads as 0
};
constexpr const char* to_string(RegAccess a) {
  constexpr const char* kNames[] = {"RW", "RO", "WO", "W1C", "W1S", "RC", "pulse"};
  return kNames[static_cast<size_t>(a)];
}

using RegIndex = uint16_t;

struct FieldLayout {
  const char* name;
  uint8_t lsb;
  uint8_t width;  ///< bits, 1..64
  RegAccess access;
  uint64_t reset;  ///< of the field, right-aligned
  const char* doc;

  constexpr uint64_t mask() const { return (width >= 64 ? ~uint64_t{0} : ((uint64_t{1} << width) - 1)) << lsb; }
};

/// A field of one register, as a name that get/set take.
struct Field {
  RegIndex reg;
  uint8_t lsb;
  uint8_t width;

  constexpr uint64_t mask() const { return (width >= 64 ? ~uint64_t{0} : ((uint64_t{1} << width) - 1)) << lsb; }
  /// The value of the field in the register word `word`.
  constexpr uint64_t of(uint64_t word) const { return (word & mask()) >> lsb; }
  /// The field value `v` in its place; bits beyond the width are dropped.
  constexpr uint64_t place(uint64_t v) const { return (v << lsb) & mask(); }
  /// The same field of element i of a register array.
  constexpr Field at(size_t i) const { return {static_cast<RegIndex>(reg + i), lsb, width}; }
};

constexpr uint16_t kNoSlot = 0xFFFF;

struct RegisterLayout {
  const char* name;
  const char* doc;
  uint32_t offset;      ///< bytes, naturally aligned
  uint8_t width_bytes;  ///< 1, 2, 4 or 8
  bool fifo;            ///< every store goes to on_fifo_write; a streaming width below the length repeats the address
  RegIndex index;       ///< in declaration order; elements of an array follow each other
  uint16_t storage;     ///< byte offset in the instance's storage
  uint16_t event_slot;  ///< of the memory of simultaneous hardware events, or kNoSlot
  uint16_t field_count;
  const FieldLayout* fields;
  uint64_t reset;
  // One mask per policy; `field_mask` is their union, the rest of the word is unimplemented (reads 0, writes ignored).
  uint64_t rw, ro, wo, w1c, w1s, rc, pulse;
  uint64_t field_mask;
  uint64_t readable;  ///< not WO, not pulse
  uint64_t writable;  ///< not RO, not RC; 0: a write is a command error
};

struct BlockLayout {
  const char* name;
  const char* doc;
  uint64_t size;                    ///< bytes
  const RegisterLayout* registers;  ///< by RegIndex
  uint16_t count;
  uint16_t storage_bytes;  ///< of one instance
  uint16_t event_slots;
  const RegIndex* by_offset;  ///< indexes sorted by offset, for dumps
  // Which register an offset is in: entry offset >> lookup_shift holds its index, or kNoSlot for a hole.
  const uint16_t* lookup;
  uint32_t lookup_entries;
  uint8_t lookup_shift;

  /// The register that holds byte `offset`, or null: a hole or past the end.
  constexpr const RegisterLayout* find(uint64_t offset) const {
    const uint64_t entry = offset >> lookup_shift;
    if (entry >= lookup_entries || lookup[entry] == kNoSlot) return nullptr;
    return registers + lookup[entry];
  }
};

/// Builds a RegisterLayout with its masks. Used by the generated tables and by tests.
constexpr RegisterLayout make_register(const char* name, const char* doc, uint32_t offset, uint8_t width_bytes,
                                       bool fifo, RegIndex index, uint16_t storage, uint16_t event_slot,
                                       const FieldLayout* fields, uint16_t field_count) {
  RegisterLayout r{name, doc, offset, width_bytes, fifo, index, storage, event_slot, field_count, fields, 0,
                   0,    0,   0,      0,           0,    0,     0,       0,          0,           0};
  for (uint16_t i = 0; i < field_count; ++i) {
    const FieldLayout& f = fields[i];
    const uint64_t m = f.mask();
    switch (f.access) {
      case RegAccess::RW:
        r.rw |= m;
        break;
      case RegAccess::RO:
        r.ro |= m;
        break;
      case RegAccess::WO:
        r.wo |= m;
        break;
      case RegAccess::W1C:
        r.w1c |= m;
        break;
      case RegAccess::W1S:
        r.w1s |= m;
        break;
      case RegAccess::RC:
        r.rc |= m;
        break;
      case RegAccess::Pulse:
        r.pulse |= m;
        break;
    }
    r.field_mask |= m;
    r.reset |= (f.reset << f.lsb) & m;
  }
  r.readable = r.field_mask & ~(r.wo | r.pulse);
  r.writable = r.field_mask & ~(r.ro | r.rc);
  return r;
}

}  // namespace ahbm
