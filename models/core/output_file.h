// Files that a run writes, which keep what they hold while the run may still be refused.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace ahbm {

class OutputFile;

/// Decides for all output files of a command at once. They are opened, so that one that cannot be written is found
/// early, but not changed; what is written to them waits in memory until it is known that the run goes on.
class OutputGate {
 public:
  /// \param most_held  bytes that may wait; what is more is taken for a run that goes on
  explicit OutputGate(size_t most_held = size_t{16} << 20) : m_most_held(most_held) {}
  /// Undecided means refused.
  ~OutputGate() { refuse(); }
  OutputGate(const OutputGate&) = delete;
  OutputGate& operator=(const OutputGate&) = delete;

  /// The files get what was written and will be. Nothing when it is decided already.
  /// \throws std::runtime_error when a file that is closed already could not be written completely (names it)
  void accept();
  /// The files stay what they were, those that were not there are not there. Nothing when it is decided already.
  void refuse();

 private:
  friend class OutputFile;
  struct File;
  enum class State { Open, Accepted, Refused };

  const size_t m_most_held;
  size_t m_held = 0;
  State m_state = State::Open;
  std::vector<std::shared_ptr<File>> m_files;
};

/// An output stream as std::ofstream is one.
class OutputFile : public std::ostream {
 public:
  OutputFile() : std::ostream(nullptr) {}
  /// As `open`.
  explicit OutputFile(const std::string& name, std::shared_ptr<OutputGate> gate = {});
  ~OutputFile() override;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Sets failbit when the file cannot be written. \param gate  null: the file is emptied at once
  void open(const std::string& name, std::shared_ptr<OutputGate> gate = {});
  bool is_open() const;
  /// Sets failbit when the file could not be written completely, as far as that is known.
  void close();

 private:
  std::shared_ptr<OutputGate> m_gate;
  std::shared_ptr<OutputGate::File> m_file;
};

}  // namespace ahbm
