// Waves of what happens in the machine: link occupancy, queue levels, interrupts, registers. Kernel-free.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/observe/tap.h"
#include "models/observe/vcd_writer.h"

namespace ahbm::observe {

/// Signals, each below the path of what it belongs to:
///   busy, control_busy               link, port: a transfer is under way on that channel
///   channelN_busy                    memory
///   kernel_running, launch_queue     PE
///   qpN_messages, qpN_credits        PE: messages in the receive ring (visible, not given back), credits of the peer
///   irq                              PE: its interrupt line
///   sfr.NAME                         PE: a register
///   the path itself                  an interrupt or reset line
class WaveSink : public Sink {
 public:
  /// \param patterns  of signals (models/core/path_glob.h); none: everything but registers
  /// \param clock     the simulated time
  /// \param gate      null: the file is emptied at once
  /// \throws std::runtime_error when the file cannot be opened
  WaveSink(const std::string& file, std::vector<std::string> patterns, std::function<Ps()> clock,
           std::shared_ptr<OutputGate> gate = {});

  bool wants(const Point& point) override;
  void on_event(const Point& point, const Event& event) override;
  void finish() { m_vcd.finish(m_clock()); }
  const VcdWriter& writer() const { return m_vcd; }

 private:
  static constexpr uint32_t kNoSignal = ~uint32_t{0};
  /// kNoSignal when it is not selected.
  VcdWriter::Signal numbered(const Point& point, uint32_t kind, uint32_t index, const char* before, const char* after,
                             uint32_t width);
  void pulse(VcdWriter::Signal s, Ps begin, Ps end);
  void set(VcdWriter::Signal s, Ps at, uint64_t v) {
    if (s != kNoSignal) m_vcd.set(s, at, v);
  }
  void change(VcdWriter::Signal s, Ps at, int64_t v) {
    if (s != kNoSignal) m_vcd.change(s, at, v);
  }

  VcdWriter m_vcd;
  std::vector<std::string> m_patterns;
  std::function<Ps()> m_clock;
  std::unordered_map<uint64_t, VcdWriter::Signal> m_numbered;  ///< by point, kind and index
};

}  // namespace ahbm::observe
