// The command `all_reduce`, and those of the other collectives, without the machine: options, the points that are
// measured, and the table, CSV and JSON that are written. What runs a point is handed in as an `AllReduceRunner`.
#pragma once

#include <chrono>
#include <functional>
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

/// How a rank's tensor lies on the cubes of its SIP.
enum class TensorLayout : uint8_t { Sharded, Replicated, Partial };
const char* to_string(TensorLayout layout);

struct AllReduceOptions {
  std::string command = "all_reduce";
  std::vector<uint32_t> group;  ///< ranks; empty: all
  uint32_t root = 0;            ///< group rank
  bool blocking = true;         ///< false: started with async_op and waited for
  bool explain = false;         ///< a table below the table: where the time of every size went
  bool topology_sweep = false;  ///< the same on every SIP topology with the platform's number of SIPs
  ConfigSource config;
  std::vector<uint64_t> sizes;  ///< bytes of a rank's logical tensor, multiples of the element
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  TensorLayout layout = TensorLayout::Sharded;
  std::optional<uint32_t> cubes;         ///< all cubes of a SIP when unset
  std::optional<std::string> algorithm;  ///< the one of ccl.yaml when unset
  std::optional<std::string> ccl_file;
  bool check = true;
  uint32_t repeat = 1;              ///< rows per size
  std::string csv_file, json_file;  ///< empty: none
  ObserveOptions observe;
  bool quiet = false;
  bool help = false;  ///< everything else is then unset
};

/// \throws UsageError
AllReduceOptions parse_all_reduce_options(const Arguments& arguments, const std::string& command = "all_reduce");

/// Where the time of a measurement went. host + links + between is the time.
struct Explanation {
  Ps closed_form = 0;          ///< of the algorithm, with the platform's figures
  Ps host = 0;                 ///< launch and completion: no kernel has started, or all have ended
  Ps links = 0;                ///< kernels run, and a SIP link carries data
  Ps between = 0;              ///< kernels run, and no SIP link does: latency, per-message overhead, arithmetic, copies
  Ps reduction = 0;            ///< of the PE whose vector unit was busy longest; overlaps with the others
  uint64_t staged_bytes = 0;   ///< repacked, as they lie otherwise in the tensors than in the messages
  std::string selection = "";  ///< what `auto` chose from
};

/// One measurement.
struct AllReduceRow {
  uint64_t size_bytes = 0;
  uint64_t count = 0;  ///< elements
  DType dtype = DType::Float32;
  std::optional<ReduceOp> op = ReduceOp::Sum;  ///< unset: nothing is reduced
  std::string algorithm;
  uint32_t ranks = 1;
  Ps time = 0;                    ///< simulated, first descriptor leaving to last completion arriving
  std::optional<uint64_t> wrong;  ///< elements that differ from the reference over all ranks; unset: not checked
  Ps bound = 0;                   ///< SipGraph::all_reduce_bound
  double wall_ms = 0;
  std::optional<double> bus_factor;  ///< busbw / algbw; unset: that of an all-reduce
  std::string topology = "";         ///< of a sweep
  std::optional<Explanation> explain;

  double algbw_gbps() const;  ///< size / time; 0 for no time
  double busbw_gbps() const;  ///< algbw * bus_factor, 2(n-1)/n of an all-reduce
  double efficiency() const;  ///< bound / time; 0 for no time
};

/// What a runner is given.
struct AllReduceJob {
  AllReduceOptions options;
  SystemConfig config;
  std::vector<SystemConfig> sweep;  ///< one per topology; empty when it is no sweep
  std::shared_ptr<OutputGate> outputs = std::make_shared<OutputGate>();  ///< accepted with the first row
};

/// Where a runner reports. The table appears line by line, the CSV file too; the JSON file is written by `finish`.
class AllReduceReport {
 public:
  /// Opens the files. \throws UsageError when one cannot be written
  AllReduceReport(const AllReduceJob& job, Io& io);

  /// A line above the table, e.g. ranks and their mode, the algorithm chosen.
  void header(const std::string& line);
  /// Says on a terminal what is about to run.
  void progress(uint64_t size_bytes);
  void add(const AllReduceRow& row);
  /// A line below the table.
  void footer(const std::string& line) { m_footers.push_back(line); }
  /// Ends the table and writes the JSON file, with `error` when the run broke off. Answers the exit code.
  int finish(const std::exception* failure = nullptr);

  const std::vector<AllReduceRow>& rows() const { return m_rows; }

 private:
  void clear_progress();
  void print_columns();

  const AllReduceJob& m_job;
  Io& m_io;
  OutputFile m_csv, m_json;
  std::vector<std::string> m_headers, m_footers;
  std::vector<AllReduceRow> m_rows;
  bool m_columns_printed = false;
  bool m_progress_shown = false;
};

/// Runs every size of the job `repeat` times in order and reports each. Throws UsageError or ConfigError for bad input
/// that only the runtime can see, anything else for a failed run.
using AllReduceRunner = std::function<void(const AllReduceJob&, AllReduceReport&)>;

Command all_reduce_command(AllReduceRunner runner);
/// A command of the same options, table and files for another collective.
Command collective_command(const std::string& name, AllReduceRunner runner);

/// The options of all_reduce, for commands that add to them.
boost::program_options::options_description all_reduce_options();
/// \throws UsageError for options that say nothing to this collective (by its command's name)
void require_meaning(const boost::program_options::variables_map& values, const std::string& collective);
AllReduceOptions read_all_reduce_options(const boost::program_options::variables_map& values,
                                         const std::string& command);
/// Loads the platform and checks what the options ask of it. \throws UsageError, ConfigError
AllReduceJob make_job(AllReduceOptions options);

// The formats, for tests and other writers.
constexpr const char* kAllReduceCsvHeader =
    "size_bytes,count,type,redop,algorithm,time_us,algbw_gbps,busbw_gbps,wrong,bound_us,efficiency,wall_ms";
/// Further columns of a sweep, and with --explain.
constexpr const char* kSweepCsvHeader = ",topology";
constexpr const char* kExplainCsvHeader = ",closed_form_us,host_us,links_us,between_us,reduction_us,staged_bytes";
std::string csv_line(const AllReduceRow& row);
std::string table_columns();  ///< two comment lines
std::string table_line(const AllReduceRow& row);
/// The table of --explain; nothing when no row has one. Lines without line feeds.
std::vector<std::string> explain_table(const std::vector<AllReduceRow>& rows);
std::string microseconds(Ps time);  ///< with six decimals, exactly
/// Output files of a command. \throws UsageError when one cannot be opened; std::runtime_error when it is incomplete
void open_for_writing(OutputFile& file, const char* option, const std::string& name,
                      const std::shared_ptr<OutputGate>& gate);
/// The JSON file: where none is yet, a run that is refused says why.
void open_document(OutputFile& file, const std::string& name, const std::shared_ptr<OutputGate>& gate);
void close_written(OutputFile& file, const std::string& name);
/// {"command", "version", "config", "notes", "results", "error"?, "stall"?}; `config` loads again as a topology file.
/// \param failure  what ended the run, or null; of a stall the rows of the report are written too
std::string json_document(const AllReduceJob& job, const std::vector<std::string>& notes,
                          const std::vector<AllReduceRow>& rows, const std::exception* failure);

}  // namespace ahbm::platform
