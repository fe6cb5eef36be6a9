// What a PE needs of its SFR block; `SfrBlock` is the shipped one.
#pragma once

#include <cstdint>

#include "models/core/address_map.h"
#include "models/core/registers/register_layout.h"
#include "models/observe/tap.h"
#include "models/tlm/sockets.h"

namespace ahbm::models {

class SfrPart {
 public:
  virtual ~SfrPart() = default;
  /// The SFRs at their global addresses.
  virtual TargetSocket& bus() = 0;
  /// An error of the hardware or of a guest: sticky bit, counter, FAULT_ADDR, interrupt.
  virtual void record_error(uint32_t error_bits, Addr address) = 0;
  /// Causes: field masks of IRQ_PENDING.
  virtual void raise_interrupt(uint32_t causes) = 0;
  virtual void count(RegIndex counter, uint64_t n = 1) = 0;
  /// Grows with every reset.
  virtual uint32_t epoch() const = 0;
  /// Registers to their reset values; the epoch counts on.
  virtual void reset() = 0;
  /// What the registers do is told to `tap` (null: to nobody). A part that tells nothing leaves this alone.
  virtual void observe(const observe::Tap* tap) { (void)tap; }
};

}  // namespace ahbm::models
