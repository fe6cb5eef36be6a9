// The command `tune` without the machine: how fast every algorithm is at every size, and how right `algorithm: auto`
// is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "platform/cli/all_reduce.h"

namespace ahbm::platform {

/// What one size took by one algorithm.
struct TuneEntry {
  std::string algorithm;
  Ps time = 0;                    ///< simulated
  Ps closed_form = 0;             ///< with the platform's figures; what `auto` goes by
  std::optional<uint64_t> wrong;  ///< elements; unset: not checked
};

/// One size. The first entry is what `auto` chose.
struct TuneRow {
  uint64_t size_bytes = 0;
  std::vector<TuneEntry> entries;
  std::vector<std::string> refusals;  ///< why the others cannot run

  const TuneEntry& choice() const { return entries.front(); }
  const TuneEntry& best() const;  ///< the fastest one, simulated
  /// Where the choice is the fastest one: how much longer the next best takes. Else minus what would have been saved.
  /// Parts of 1; unset when there was nothing to choose.
  std::optional<double> margin() const;
  /// What a better choice would have saved is nothing, to a tenth of a percent.
  bool right() const;
};

class TuneReport {
 public:
  /// Opens the files. \throws UsageError when one cannot be written
  TuneReport(const AllReduceJob& job, Io& io);
  void header(const std::string& line);
  void progress(uint64_t size_bytes, const std::string& algorithm);
  void add(const TuneRow& row);
  /// Ends the table and writes the JSON file, with `error` when the run broke off. Answers the exit code.
  int finish(const std::exception* failure = nullptr);

 private:
  void clear_progress();

  const AllReduceJob& m_job;
  Io& m_io;
  OutputFile m_csv, m_json;
  std::vector<std::string> m_headers;
  std::vector<TuneRow> m_rows;
  std::vector<std::string> m_columns;  ///< algorithms, as the first size has them
  bool m_progress_shown = false;
};

constexpr const char* kTuneCsvHeader = "size_bytes,algorithm,time_us,closed_form_us,wrong,chosen,margin";

/// Runs every size of the job by every algorithm. \param collective  all_reduce, all_gather, ...
using TuneRunner = std::function<void(const std::string& collective, const AllReduceJob&, TuneReport&)>;
/// \param collectives  what `--collective` takes
Command tune_command(std::vector<std::string> collectives, TuneRunner runner);

}  // namespace ahbm::platform
