// The options of every command that simulates which say what to write down about the run: statistics, trace, waves,
// log, recorded transactions.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "models/core/time.h"

namespace ahbm::platform {

struct ObserveOptions {
  std::string stats_file;  ///< empty: none; CSV or YAML by its extension
  bool stats_csv = false;
  std::string trace_file;
  std::vector<std::string> trace_filters;
  Ps trace_from = 0, trace_to = ~Ps{0};
  std::string vcd_file;
  std::vector<std::string> vcd_select;
  std::vector<std::string> log_rules;
  struct Record {
    std::string path, file;
  };
  std::vector<Record> records;
  struct File {
    std::string option, name;
  };
  std::vector<File> files;  ///< all that the command writes, those of --csv and --json too

  /// Input stays as it is. \param reader  what reads the file, as "-c" \throws UsageError when it is among `files`
  void require_kept(const std::string& input, const std::string& reader) const;

  bool any() const {
    return !stats_file.empty() || !trace_file.empty() || !vcd_file.empty() || !log_rules.empty() || !records.empty();
  }
};

boost::program_options::options_description observe_options();

/// \throws UsageError for a filter without its file, a window that is empty, an extension that says no format, a file
/// that is to be written twice
ObserveOptions parse_observe_options(const boost::program_options::variables_map& values);

}  // namespace ahbm::platform
