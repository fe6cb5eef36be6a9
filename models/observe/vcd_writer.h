// Writes a value change dump from events, in any order within what is still to come. Kernel-free.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "models/core/output_file.h"
#include "models/core/time.h"

namespace ahbm::observe {

/// Values may be told for times ahead of the simulation; `advance` says up to when all is known, and what lies before
/// goes to disk. So memory holds what is ahead, not what is over. Signals may be added at any time: the header, which
/// must come first in the file, is written by `finish`, the changes wait in FILE.part until then.
///
/// The file always has a signal `simulating` that falls at the end: without any change after time 0 some readers refuse
/// a file.
class VcdWriter {
 public:
  using Signal = uint32_t;

  /// \param gate  null: the file is emptied at once
  /// \throws std::runtime_error when a file cannot be opened (names it)
  explicit VcdWriter(const std::string& file, std::shared_ptr<OutputGate> gate = {});
  ~VcdWriter();
  VcdWriter(const VcdWriter&) = delete;
  VcdWriter& operator=(const VcdWriter&) = delete;

  /// `scope` is a hierarchy path: every dot begins a scope. In `name` and in the scopes everything but letters, digits
  /// and '_' becomes '_' (waveform viewers read brackets as bit ranges and stop at blanks), and a name that its scope
  /// has already gets a number. \param width bits, 1 to 64
  Signal add(const std::string& scope, const std::string& name, uint32_t width);
  /// As it is in the file, with its scopes.
  const std::string& full_name(Signal s) const { return m_signals[s].full_name; }

  void set(Signal s, Ps at, uint64_t value) { push(s, at, static_cast<int64_t>(value), true); }
  /// Several transfers or messages share a signal: it is their sum. A signal of one bit shows whether it is positive.
  void change(Signal s, Ps at, int64_t delta) { push(s, at, delta, false); }
  /// As `set`, and what was told for later than `at` is forgotten.
  void reset(Signal s, Ps at, uint64_t value);

  /// Nothing will be told for times before `now` any more.
  void advance(Ps now);
  /// Writes what is left, up to `end`. \throws std::runtime_error when the file could not be written completely
  void finish(Ps end);

  size_t pending() const { return m_pending.size(); }
  uint64_t changes() const { return m_changes; }  ///< written, initial values not counted

 private:
  struct SignalState {
    std::string scope, name, full_name, id;
    uint32_t width = 1;
    uint32_t generation = 0;
    int64_t value = 0;
    uint64_t shown = 0;
    bool touched = false;
  };
  struct Change {
    Ps at;
    uint64_t order;
    Signal signal;
    uint32_t generation;
    int64_t value;
    bool absolute;
    bool operator<(const Change& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  void push(Signal s, Ps at, int64_t value, bool absolute);
  void write_until(Ps end);
  void write_instant(Ps at);
  void write_header(std::ostream& out) const;
  static uint64_t visible(const SignalState& s);
  static std::string value_text(const SignalState& s, uint64_t v);

  std::string m_file, m_part;
  OutputFile m_out;
  std::ofstream m_changes_out;
  std::vector<SignalState> m_signals;
  std::set<std::string> m_names;
  std::priority_queue<Change> m_pending;
  std::vector<Signal> m_touched;
  uint64_t m_order = 0, m_changes = 0;
  Ps m_written = 0;  ///< nothing can change before this any more
  Signal m_simulating = 0;
  bool m_open = true;
};

/// `text` with only letters, digits and '_'; never empty.
std::string vcd_identifier(const std::string& text);

}  // namespace ahbm::observe
