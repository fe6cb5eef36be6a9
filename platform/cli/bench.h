// The command `bench` without the machine: its options, and the table, CSV and JSON that it writes. What runs is handed
// in as a `BenchRunner`.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/dtype.h"
#include "models/core/output_file.h"
#include "platform/cli/command.h"
#include "platform/cli/observe_options.h"

namespace ahbm::platform {

struct BenchOptions {
  std::string bench;  ///< tp_mlp, tp_attention, tp_transformer, sequence_parallel, fsdp_tp
  ConfigSource config;
  uint32_t data = 1, tensor = 1;  ///< ranks of the two mesh dimensions
  uint64_t hidden = 512, heads = 8, kv_heads = 8, inner = 2048;
  uint64_t layers = 2, vocabulary = 1024, length = 256, batch = 1;
  uint64_t seed = 1;
  DType dtype = DType::Float32;
  uint32_t steps = 1;
  bool bias = true;
  bool loss_parallel = false;
  bool rms_norm = false;
  bool check = true;
  bool topology_cost = false;       ///< operators choose by the machine's links, not by PyTorch's constants
  bool sweep = false;               ///< the layouts of one layer instead of the two styles
  std::string csv_file, json_file;  ///< empty: none
  bool quiet = false;
  bool help = false;  ///< everything else is then unset
  ObserveOptions observe;

  bool sequence_parallel() const { return bench == "sequence_parallel"; }
  bool has_model() const { return bench != "tp_mlp" && bench != "tp_attention"; }
  uint32_t ranks() const { return data * tensor; }
};

/// \throws UsageError; ConfigError for the platform, which says how many ranks there are
BenchOptions parse_bench_options(const std::string& bench, const Arguments& arguments);

/// One step of one style.
struct BenchRow {
  std::string style;  ///< single, megatron, dtensor; of a sweep the layouts
  uint32_t step = 0;
  Ps time = 0, compute = 0, collective = 0, host = 0;  ///< simulated; the parts are means over the ranks
  std::map<std::string, uint32_t> collectives;         ///< that each rank issues
  uint64_t bytes = 0;                                  ///< that rank 0 hands in to them, padding included
  std::optional<double> error;         ///< largest difference from the host's numbers, of their largest; unset: not
                                       ///< checked
  std::optional<double> single_error;  ///< from the run on one SIP
  std::optional<double> estimate_us;   ///< of a sweep: what the cost model says of the communication
  bool wrong = false;
};

struct BenchJob {
  BenchOptions options;
  SystemConfig config;
  std::shared_ptr<OutputGate> outputs = std::make_shared<OutputGate>();  ///< accepted with the first row
};

/// Where a runner reports. The table appears line by line, the CSV file too; the JSON file is written by `finish`.
class BenchReport {
 public:
  /// Opens the files. \throws UsageError when one cannot be written
  BenchReport(const BenchJob& job, Io& io);
  void header(const std::string& line);
  void add(const BenchRow& row);
  /// A line below the table. \param failure  the run is wrong because of it
  void footer(const std::string& line, bool failure = false);
  /// Ends the table and writes the JSON file. Answers the exit code. \param failure  what ended the run, or null
  int finish(const std::exception* failure = nullptr);
  const std::vector<BenchRow>& rows() const { return m_rows; }

 private:
  void print(const std::string& line);

  const BenchJob& m_job;
  Io& m_io;
  OutputFile m_csv, m_json;
  std::vector<std::string> m_headers, m_footers;
  std::vector<BenchRow> m_rows;
  bool m_failed = false;
};

using BenchRunner = std::function<void(const BenchJob&, BenchReport&)>;
Command bench_command(BenchRunner runner);

constexpr const char* kBenchCsvHeader =
    "bench,style,step,time_us,compute_us,collective_us,host_us,all_reduce,all_gather,reduce_scatter,all_to_all,bytes,"
    "error,single_error,estimate_us,wrong";
std::string bench_csv_line(const std::string& bench, const BenchRow& row);
/// all_reduce 2 + all_gather 1; none
std::string collectives_text(const std::map<std::string, uint32_t>& counts);

}  // namespace ahbm::platform
