// Makes configured faults happen. The models ask at the place where a fault can strike; while none of its kind is armed
// that costs one branch. What has struck is kept, so that reports can name it. No SystemC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/core/fault.h"

namespace ahbm::models {

class FaultInjector {
 public:
  /// One for whoever has no faults: nothing can be added to it.
  static FaultInjector& none();

  FaultInjector() = default;
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  /// Arms a fault and answers its number. System::inject checks it against the machine and tells the links.
  size_t add(const Fault& fault);
  const std::vector<Fault>& faults() const { return m_faults; }

  /// A fault that has struck, once per fault.
  struct Fired {
    size_t fault = 0;
    Ps at = 0;
    uint32_t group = 0, seq = 0;  ///< of the launch that sent a message
    /// The bytes of a message were altered in a way that no header check finds: whoever launched the operation must be
    /// told, however well it ends.
    bool silent = false;
    std::string text;  ///< e.g. `fault 0 (drop_message: message 3 of sip0.cube1.pe0) struck at 1234.5 ns`
  };
  const std::vector<Fired>& fired() const { return m_fired; }
  /// Empty when nothing has struck; else ` [injected: ...; ...]`, to be appended to an error.
  std::string note() const;
  void strike(size_t fault, Ps at, uint32_t group = 0, uint32_t seq = 0, bool silent = false);

  // --- messages, asked by the sending DMA
  bool messages_armed() const { return m_messages; }
  enum class Fate : uint8_t { Pass, Drop, CorruptHeader, CorruptPayload };
  /// Counts one message. `has_data` false: the simulation moves no bytes, so that no check can find a corruption.
  Fate on_message(const PeLocation& from, uint32_t qp, bool has_data, uint32_t group, uint32_t seq, Ps now);

  // --- stopped PEs, asked by the executor
  bool stops_armed() const { return m_stops; }
  /// Whether this PE has stopped by `now`; a reset starts it again.
  bool stopped(const PeLocation& pe, Ps now);
  void revive(const PeLocation& pe, Ps now);

  // --- addresses, asked by the targets
  bool addresses_armed() const { return m_addresses; }
  bool refuses(Addr address, uint64_t bytes, bool write, Ps now);

 private:
  std::vector<Fault> m_faults;
  std::vector<uint64_t> m_seen;   ///< per fault: messages that matched
  std::vector<bool> m_has_fired;  ///< per fault
  std::vector<bool> m_over;       ///< per fault: a stop that a reset has ended
  std::vector<Fired> m_fired;
  bool m_messages = false, m_stops = false, m_addresses = false;
};

}  // namespace ahbm::models
