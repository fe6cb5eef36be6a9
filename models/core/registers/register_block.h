// One instance of a register block: plain words behind the bus rules of docs/registers.md. Kernel-free: an sc_module
// translates its payload into a RegAccessRequest and the RegStatus into a TLM response.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "models/core/registers/register_layout.h"
#include "models/core/time.h"

namespace ahbm {

enum class RegStatus : uint8_t {
  Ok,
  AddressError,  ///< no register there, or across the block's end
  BurstError,    ///< crosses registers, odd width, misaligned, streaming width not allowed
  CommandError,  ///< write to a register without a writable field
};
const char* to_string(RegStatus s);

constexpr Ps kNoTime = ~Ps{0};
constexpr uint32_t kNoStreaming = ~uint32_t{0};

/// One bus access, as in a TLM generic payload.
struct RegAccessRequest {
  bool write = false;
  uint64_t offset = 0;      ///< in the block
  uint8_t* data = nullptr;  ///< `length` bytes; only read when `write`
  uint32_t length = 0;
  const uint8_t* byte_enables = nullptr;  ///< null: all; 0 is off; repeats after byte_enable_length bytes
  uint32_t byte_enable_length = 0;
  uint32_t streaming_width = kNoStreaming;  ///< 0 is illegal, as in TLM-2.0
  Ps now = kNoTime;  ///< when the access takes effect; needed only for "a hardware event wins" (see `raise`)
};

/// What a block does beyond storing words. Called after the bus rules have passed. Callbacks may use the block's
/// hardware side (get, set, raise, ...) on any register.
struct RegisterBehaviour {
  virtual ~RegisterBehaviour() = default;

  /// The value of a register now, without side effects: computed registers override this. Used by debug reads, and by
  /// bus reads unless on_read is overridden.
  virtual uint64_t peek(const RegisterLayout& reg, uint64_t stored) const {
    (void)reg;
    return stored;
  }
  /// A bus read (once per beat). WO and pulse fields are masked off afterwards, RC bits that were read are cleared in
  /// the storage afterwards.
  virtual uint64_t on_read(const RegisterLayout& reg, uint64_t stored) { return peek(reg, stored); }
  /// After a bus write. `old` and `now` are the words before and after; `now` also holds the pulse bits that were
  /// written as 1, which the storage does not keep. `written_mask` has the bits of the bytes that were written.
  virtual void on_write(const RegisterLayout& reg, uint64_t old, uint64_t now, uint64_t written_mask) {
    (void)reg, (void)old, (void)now, (void)written_mask;
  }
  /// A store to a fifo register: the enabled bytes of all beats in order, in one call, so that it can be taken or
  /// refused as a whole. Returns anything but Ok to refuse it; nothing may have changed then. A refusal is the default.
  virtual RegStatus on_fifo_write(const RegisterLayout& reg, const uint8_t* data, uint32_t bytes) {
    (void)reg, (void)data, (void)bytes;
    return RegStatus::CommandError;
  }
};

class RegisterBlock {
 public:
  /// The layout and the behaviour are referenced and must outlive the block. Starts with reset values.
  explicit RegisterBlock(const BlockLayout& layout, RegisterBehaviour* behaviour = nullptr);

  const BlockLayout& layout() const { return *m_layout; }
  void set_behaviour(RegisterBehaviour* behaviour) { m_behaviour = behaviour; }

  /// One bus access with its side effects. On anything but Ok nothing has changed and no data was written.
  RegStatus access(const RegAccessRequest& request);

  /// Debug access: no side effects, may cross registers; returns the bytes inside the block. Holes read as 0. A debug
  /// write replaces the stored bits of RW, W1C, W1S and RC fields and leaves everything else, so it neither clears nor
  /// triggers.
  uint32_t debug_read(uint64_t offset, uint8_t* data, uint32_t length) const;
  uint32_t debug_write(uint64_t offset, const uint8_t* data, uint32_t length);

  // The hardware side: no callbacks. \pre reg < layout().count
  uint64_t get(RegIndex reg) const { return load(m_layout->registers[reg]); }
  /// Unimplemented bits are dropped.
  void set(RegIndex reg, uint64_t v) {
    const RegisterLayout& r = m_layout->registers[reg];
    store(r, v & r.field_mask);
  }
  uint64_t get(Field f) const { return f.of(get(f.reg)); }
  void set(Field f, uint64_t v) { set(f.reg, (get(f.reg) & ~f.mask()) | f.place(v)); }
  /// Adds to a register, modulo its width: counters.
  void add(RegIndex reg, uint64_t n) { set(reg, get(reg) + n); }

  /// A hardware event at time `now` sets (clears) bits. Software that clears (sets) the same W1C, RC or W1S bits with
  /// an access at that very time, before or after this call, does not undo it: the event wins. With kNoTime the order
  /// of the calls decides.
  void raise(RegIndex reg, uint64_t mask, Ps now = kNoTime) { event(reg, mask, mask, now); }
  void clear_bits(RegIndex reg, uint64_t mask, Ps now = kNoTime) { event(reg, mask, 0, now); }
  void set_bits(RegIndex reg, uint64_t mask, Ps now = kNoTime) { raise(reg, mask, now); }
  void raise(Field f, Ps now = kNoTime) { raise(f.reg, f.mask(), now); }

  /// Every register to its reset value; no callbacks. Simultaneous events are forgotten too.
  void reset();

 private:
  uint64_t load(const RegisterLayout& r) const {
    uint64_t v = 0;
    const uint8_t* at = reinterpret_cast<const uint8_t*>(m_words.get()) + r.storage;
    switch (r.width_bytes) {
      case 1:
        std::memcpy(&v, at, 1);
        break;
      case 2:
        std::memcpy(&v, at, 2);
        break;
      case 4:
        std::memcpy(&v, at, 4);
        break;
      default:
        std::memcpy(&v, at, 8);
        break;
    }
    return v;
  }
  void store(const RegisterLayout& r, uint64_t v) {
    uint8_t* at = reinterpret_cast<uint8_t*>(m_words.get()) + r.storage;
    switch (r.width_bytes) {
      case 1:
        std::memcpy(at, &v, 1);
        break;
      case 2:
        std::memcpy(at, &v, 2);
        break;
      case 4:
        std::memcpy(at, &v, 4);
        break;
      default:
        std::memcpy(at, &v, 8);
        break;
    }
  }
  void event(RegIndex reg, uint64_t mask, uint64_t v, Ps now);
  uint64_t event_bits(const RegisterLayout& r, Ps now) const;
  RegStatus check_beats(const RegisterLayout& r, const RegAccessRequest& q, uint32_t& beat) const;
  void write_word(const RegisterLayout& r, uint64_t data, uint64_t mask, Ps now);
  uint64_t read_word(const RegisterLayout& r, uint64_t mask, Ps now);
  RegStatus fifo_write(const RegisterLayout& r, const RegAccessRequest& q);

  const BlockLayout* m_layout;
  RegisterBehaviour* m_behaviour;
  std::unique_ptr<uint64_t[]> m_words;  ///< the packed registers, then one word of event bits per event slot
  Ps m_event_time = kNoTime;            ///< of the event bits held
};

}  // namespace ahbm
