#include "platform/cli/all_reduce.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "models/core/suggest.h"
#include "platform/cli/run_document.h"
#include "platform/cli/size.h"

namespace ahbm::platform {

namespace po = boost::program_options;

po::options_description all_reduce_options() {
  po::options_description sizes("Sizes and data");
  auto add = sizes.add_options();
  add("minbytes,b", po::value<std::string>()->value_name("SIZE")->default_value("1K"),
      "first size: bytes of a rank's tensor (K, M, G are powers of 1024)");
  add("maxbytes,e", po::value<std::string>()->value_name("SIZE"),
      "last size; default 64M, or the first if that is more");
  add("stepfactor,f", po::value<std::string>()->value_name("N")->default_value("2"), "factor between sizes");
  add("datatype,t", po::value<std::string>()->value_name("TYPE")->default_value("float"),
      "float, half, bfloat16 (fp32, fp16, bf16 are understood), int8, uint8, int32, int64 or bool");
  add("op,o", po::value<std::string>()->value_name("OP")->default_value("sum"),
      "sum, avg, max, min or product; of all_reduce, reduce_scatter and reduce");
  add("layout", po::value<std::string>()->value_name("L")->default_value("sharded"),
      "how a rank's tensor lies on its cubes: sharded, replicated or partial");
  add("cubes", po::value<std::string>()->value_name("N"), "cubes per SIP that hold it; default all");

  po::options_description run("Run");
  auto add_run = run.add_options();
  add_run("algorithm", po::value<std::string>()->value_name("A"), "an algorithm of ccl.yaml instead of its default");
  add_run("ccl", po::value<std::string>()->value_name("FILE"), "ccl.yaml to use instead of the platform's");
  add_run("group", po::value<std::string>()->value_name("R,R,..."), "ranks that take part, as 0,2,4; default all");
  add_run("root", po::value<std::string>()->value_name("R")->default_value("0"),
          "root of broadcast, reduce, gather and scatter, counted in the group");
  add_run("blocking", po::value<std::string>()->value_name("0|1")->default_value("1"),
          "0: start with async_op, then wait");
  add_run("topology-sweep", "the same on every SIP topology with as many SIPs");
  add_run("no-check", "do not compare the results with the reference");
  add_run("repeat", po::value<std::string>()->value_name("N")->default_value("1"), "runs, and rows, per size");

  po::options_description output("Output");
  auto add_output = output.add_options();
  add_output("csv", po::value<std::string>()->value_name("FILE"), "write the rows as CSV too");
  add_output("json", po::value<std::string>()->value_name("FILE"),
             "write the rows and the effective configuration as JSON too");
  add_output("explain", "below the table, for every size: closed form, lower bound and where the time went");
  add_output("quiet", "no table");

  po::options_description all;
  all.add(platform_options()).add(sizes).add(run).add(output).add(observe_options());
  return all;
}

namespace {

uint64_t parse_count(const std::string& option, const std::string& text, uint64_t min, uint64_t max) {
  uint64_t v = 0;
  const char* end = text.data() + text.size();
  const auto [ptr, ec] = std::from_chars(text.data(), end, v);
  if (ec != std::errc() || ptr != end || v < min || v > max) {
    throw UsageError(fmt::format("{}: expected a whole number from {} to {}, got '{}'", option, min, max, text));
  }
  return v;
}

std::string op_text(const AllReduceRow& row) {
  return row.op ? to_string(*row.op) : "n/a";
}

std::vector<uint32_t> parse_ranks(const std::string& option, const std::string& text) {
  std::vector<uint32_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, comma - at);
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    out.push_back(static_cast<uint32_t>(parse_count(option, word, 0, UINT32_MAX)));
    at = comma + 1;
  }
  return out;
}

[[noreturn]] void wrong_word(const char* option, const std::string& text, const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& w : words) list += (list.empty() ? "" : ", ") + w;
  throw UsageError(fmt::format("{}: '{}' is none of {}{}", option, text, list, did_you_mean(text, words)));
}

}  // namespace

std::string microseconds(Ps time) {
  return fmt::format("{}.{:06}", time / 1000000, time % 1000000);
}

void open_for_writing(OutputFile& file, const char* option, const std::string& name,
                      const std::shared_ptr<OutputGate>& gate) {
  if (name.empty()) return;
  file.open(name, gate);
  if (!file) throw UsageError(fmt::format("{}: '{}' cannot be written", option, name));
}

void open_document(OutputFile& file, const std::string& name, const std::shared_ptr<OutputGate>& gate) {
  open_for_writing(file, "--json", name, std::filesystem::is_regular_file(name) ? gate : nullptr);
}

void close_written(OutputFile& file, const std::string& name) {
  if (!file.is_open()) return;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("'{}' could not be written completely", name));
}

const char* to_string(TensorLayout layout) {
  switch (layout) {
    case TensorLayout::Sharded:
      return "sharded";
    case TensorLayout::Replicated:
      return "replicated";
    case TensorLayout::Partial:
      return "partial";
  }
  return "?";
}

void require_meaning(const po::variables_map& values, const std::string& collective) {
  const auto among = [&collective](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), collective) != names.end();
  };
  // One script for all collectives may name the default.
  const auto refuse = [&values](const char* option, const char* default_value, const std::string& why) {
    if (values[option].as<std::string>() != default_value) throw UsageError(fmt::format("--{}: {}", option, why));
  };
  if (!among({"broadcast", "reduce", "gather", "scatter"})) {
    refuse("root", "0", collective + " has none; broadcast, reduce, gather and scatter have");
  }
  if (!among({"all_reduce", "reduce_scatter", "reduce"})) {
    refuse("op", "sum", collective + " reduces nothing; all_reduce, reduce_scatter and reduce do");
  }
}

AllReduceOptions read_all_reduce_options(const po::variables_map& values, const std::string& command) {
  const auto text = [&values](const char* name) { return values[name].as<std::string>(); };
  AllReduceOptions out;
  out.command = command;
  if (values.count("help") != 0) {
    out.help = true;
    return out;
  }
  out.config = config_source(values);

  const auto dtype = parse_dtype(text("datatype"));
  std::vector<std::string> types;
  for (const DType t : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int8, DType::UInt8, DType::Int32,
                        DType::Int64, DType::Bool}) {
    types.push_back(to_string(t));
  }
  if (!dtype) wrong_word("--datatype", text("datatype"), types);
  out.dtype = *dtype;
  const auto op = parse_reduce_op(text("op"));
  if (!op) wrong_word("--op", text("op"), {"sum", "avg", "max", "min", "product"});
  out.op = *op;
  if (!can_reduce(out.op, out.dtype)) {
    throw UsageError(fmt::format("--op: {} of {} means nothing", to_string(out.op), to_string(out.dtype)));
  }
  const std::string layout = text("layout");
  bool found = false;
  for (const TensorLayout l : {TensorLayout::Sharded, TensorLayout::Replicated, TensorLayout::Partial}) {
    if (layout != to_string(l)) continue;
    out.layout = l;
    found = true;
  }
  if (!found) wrong_word("--layout", layout, {"sharded", "replicated", "partial"});

  const uint64_t begin = parse_size("--minbytes", text("minbytes"));
  constexpr uint64_t kDefaultEnd = 64 << 20;
  const uint64_t end =
      values.count("maxbytes") != 0 ? parse_size("--maxbytes", text("maxbytes")) : std::max(begin, kDefaultEnd);
  const uint64_t factor = parse_count("--stepfactor", text("stepfactor"), 2, 1 << 20);
  for (const uint64_t bytes : size_range(begin, end, factor)) {
    // As nccl-tests: a size that is no whole number of elements is rounded down, and then it is measured once.
    const uint64_t whole = bytes / item_bytes(out.dtype) * item_bytes(out.dtype);
    if (out.sizes.empty() || out.sizes.back() != whole) out.sizes.push_back(whole);
  }

  if (values.count("cubes") != 0) {
    out.cubes = static_cast<uint32_t>(parse_count("--cubes", text("cubes"), 1, addr::kMaxCubes));
  }
  if (values.count("algorithm") != 0) out.algorithm = text("algorithm");
  if (values.count("ccl") != 0) {
    out.ccl_file = text("ccl");
    if (!std::filesystem::is_regular_file(*out.ccl_file)) {
      throw UsageError(fmt::format("--ccl: '{}' is no file", *out.ccl_file));
    }
  }
  out.check = values.count("no-check") == 0;
  out.repeat = static_cast<uint32_t>(parse_count("--repeat", text("repeat"), 1, 1000000));
  if (values.count("csv") != 0) out.csv_file = text("csv");
  if (values.count("json") != 0) out.json_file = text("json");
  out.quiet = values.count("quiet") != 0;
  out.observe = parse_observe_options(values);
  if (values.count("group") != 0) out.group = parse_ranks("--group", text("group"));
  out.root = static_cast<uint32_t>(parse_count("--root", text("root"), 0, addr::kMaxSips - 1));
  out.blocking = parse_count("--blocking", text("blocking"), 0, 1) == 1;
  out.explain = values.count("explain") != 0;
  out.topology_sweep = values.count("topology-sweep") != 0;
  if (out.topology_sweep && out.observe.any()) {
    throw UsageError("--topology-sweep runs several machines: --stats, --trace, --vcd, --log and --record take one");
  }
  return out;
}

AllReduceOptions parse_all_reduce_options(const Arguments& arguments, const std::string& command) {
  const po::variables_map values = parse_arguments(arguments, all_reduce_options());
  if (values.count("help") == 0) require_meaning(values, command);
  return read_all_reduce_options(values, command);
}

double AllReduceRow::algbw_gbps() const {
  return time == 0 ? 0.0 : static_cast<double>(size_bytes) * 1000.0 / static_cast<double>(time);
}
double AllReduceRow::busbw_gbps() const {
  return algbw_gbps() * (bus_factor ? *bus_factor : 2.0 * (ranks - 1) / ranks);
}
double AllReduceRow::efficiency() const {
  return time == 0 ? 0.0 : static_cast<double>(bound) / static_cast<double>(time);
}

std::string csv_line(const AllReduceRow& r) {
  std::string line =
      fmt::format("{},{},{},{},{},{},{:.6f},{:.6f},{},{},{:.6f},{:.3f}", r.size_bytes, r.count, to_string(r.dtype),
                  op_text(r), r.algorithm, microseconds(r.time), r.algbw_gbps(), r.busbw_gbps(),
                  r.wrong ? std::to_string(*r.wrong) : "n/a", microseconds(r.bound), r.efficiency(), r.wall_ms);
  if (!r.topology.empty()) line += ',' + r.topology;
  if (r.explain) {
    const Explanation& e = *r.explain;
    for (const Ps t : {e.closed_form, e.host, e.links, e.between, e.reduction}) line += ',' + microseconds(t);
    line += ',' + std::to_string(e.staged_bytes);
  }
  return line;
}

std::string table_columns() {
  return fmt::format("#{:>12} {:>13} {:>9} {:>8} {:>11} {:>8} {:>8} {:>7} {:<18} {:>11} {:>6} {:>10}\n", "size",
                     "count", "type", "redop", "time", "algbw", "busbw", "#wrong", " algorithm", "bound", "effic.",
                     "wall") +
         fmt::format("#{:>12} {:>13} {:>9} {:>8} {:>11} {:>8} {:>8} {:>7} {:<18} {:>11} {:>6} {:>10}\n", "(B)",
                     "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", "(us)", "", "(ms)");
}

std::string table_line(const AllReduceRow& r) {
  return fmt::format(
      " {:>12} {:>13} {:>9} {:>8} {:>11.3f} {:>8.2f} {:>8.2f} {:>7}  {:<17} {:>11.3f} {:>6.3f} {:>10.2f}\n",
      r.size_bytes, r.count, to_string(r.dtype), op_text(r), static_cast<double>(r.time) / 1e6, r.algbw_gbps(),
      r.busbw_gbps(), r.wrong ? std::to_string(*r.wrong) : "n/a", r.algorithm, static_cast<double>(r.bound) / 1e6,
      r.efficiency(), r.wall_ms);
}

std::vector<std::string> explain_table(const std::vector<AllReduceRow>& rows) {
  std::vector<std::string> out;
  const auto us = [](Ps t) { return fmt::format("{:>11.3f}", static_cast<double>(t) / 1e6); };
  for (const AllReduceRow& r : rows) {
    if (!r.explain) continue;
    if (out.empty()) {
      out.push_back("where the time went, in us: host (launch, completion) + links (one between SIPs carries data) +");
      out.push_back(
          "between (latency, messages, arithmetic, copies) = time; reduction: busiest vector unit, in between");
      out.push_back(fmt::format("{:>13} {:<20}{:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>12}", "size",
                                " algorithm", "time", "closed form", "bound", "host", "links", "between", "reduction",
                                "repacked (B)"));
    }
    const Explanation& e = *r.explain;
    out.push_back(fmt::format("{:>13}  {:<19}{} {} {} {} {} {} {} {:>12}", r.size_bytes, r.algorithm, us(r.time),
                              us(e.closed_form), us(r.bound), us(e.host), us(e.links), us(e.between), us(e.reduction),
                              e.staged_bytes));
    if (!e.selection.empty()) out.push_back(fmt::format("{:>13}  auto: {}", "", e.selection));
  }
  return out;
}

std::string json_document(const AllReduceJob& job, const std::vector<std::string>& notes,
                          const std::vector<AllReduceRow>& rows, const std::exception* failure) {
  nlohmann::ordered_json out = run_document(job.options.command, job.config, notes);
  for (const AllReduceRow& r : rows) {
    nlohmann::ordered_json row;
    row["size_bytes"] = r.size_bytes;
    row["count"] = r.count;
    row["type"] = to_string(r.dtype);
    row["redop"] = r.op ? nlohmann::ordered_json(to_string(*r.op)) : nlohmann::ordered_json(nullptr);
    row["algorithm"] = r.algorithm;
    row["time_us"] = static_cast<double>(r.time) / 1e6;
    row["algbw_gbps"] = r.algbw_gbps();
    row["busbw_gbps"] = r.busbw_gbps();
    row["wrong"] = r.wrong ? nlohmann::ordered_json(*r.wrong) : nlohmann::ordered_json(nullptr);
    row["bound_us"] = static_cast<double>(r.bound) / 1e6;
    row["efficiency"] = r.efficiency();
    row["wall_ms"] = r.wall_ms;
    if (!r.topology.empty()) row["topology"] = r.topology;
    if (r.explain) {
      const Explanation& e = *r.explain;
      const auto us = [](Ps t) { return static_cast<double>(t) / 1e6; };
      row["explain"] = {{"closed_form_us", us(e.closed_form)},
                        {"host_us", us(e.host)},
                        {"links_us", us(e.links)},
                        {"between_us", us(e.between)},
                        {"reduction_us", us(e.reduction)},
                        {"staged_bytes", e.staged_bytes},
                        {"selection", e.selection}};
    }
    out["results"].push_back(std::move(row));
  }
  add_failure(out, failure);
  return out.dump(2) + '\n';
}

// -------------------------------------------------------------------------------------------------- AllReduceReport

AllReduceReport::AllReduceReport(const AllReduceJob& job, Io& io) : m_job(job), m_io(io) {
  open_for_writing(m_csv, "--csv", job.options.csv_file, job.outputs);
  open_document(m_json, job.options.json_file, job.outputs);
  if (!m_csv.is_open()) return;
  m_csv << kAllReduceCsvHeader << (job.options.topology_sweep ? kSweepCsvHeader : "")
        << (job.options.explain ? kExplainCsvHeader : "") << '\n'
        << std::flush;
}

void AllReduceReport::header(const std::string& line) {
  m_headers.push_back(line);
  if (!m_job.options.quiet) m_io.out << "# " << line << '\n' << std::flush;
}

void AllReduceReport::progress(uint64_t size_bytes) {
  if (!m_io.terminal || m_job.options.quiet) return;
  m_io.err << fmt::format("\r\033[Krunning {} bytes ...", size_bytes) << std::flush;
  m_progress_shown = true;
}

void AllReduceReport::clear_progress() {
  if (!m_progress_shown) return;
  m_io.err << "\r\033[K" << std::flush;
  m_progress_shown = false;
}

void AllReduceReport::print_columns() {
  if (m_columns_printed || m_job.options.quiet) return;
  m_io.out << table_columns();
  m_columns_printed = true;
}

void AllReduceReport::add(const AllReduceRow& row) {
  clear_progress();
  m_job.outputs->accept();
  m_rows.push_back(row);
  print_columns();
  if (!m_job.options.quiet) m_io.out << table_line(row) << std::flush;
  if (m_csv.is_open()) m_csv << csv_line(row) << '\n' << std::flush;
}

int AllReduceReport::finish(const std::exception* failure) {
  clear_progress();
  uint64_t wrong = 0;
  double busbw = 0;
  bool checked = true;
  for (const AllReduceRow& r : m_rows) {
    wrong += r.wrong.value_or(0);
    busbw += r.busbw_gbps();
    checked = checked && r.wrong.has_value();
  }
  if (!m_job.options.quiet && failure == nullptr) {
    print_columns();
    if (checked) {
      m_io.out << fmt::format("# Wrong values: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
    } else {
      m_io.out << "# Wrong values: not checked\n";
    }
    if (!m_rows.empty()) {
      m_io.out << fmt::format("# Average bus bandwidth: {:.3f} GB/s\n", busbw / static_cast<double>(m_rows.size()));
    }
    for (const auto& lines : {explain_table(m_rows), m_footers}) {
      for (const std::string& line : lines) m_io.out << "# " << line << '\n';
    }
    m_io.out << std::flush;
  }
  if (m_json.is_open()) m_json << json_document(m_job, m_headers, m_rows, failure);
  m_job.outputs->accept();
  close_written(m_csv, m_job.options.csv_file);
  close_written(m_json, m_job.options.json_file);
  return wrong == 0 && failure == nullptr ? kExitOk : kExitFailed;
}

namespace {

/// The platform on every topology; a grid as near to a square as its number of SIPs allows.
std::vector<SystemConfig> sweep_configs(const AllReduceOptions& options, const SystemConfig& config) {
  if (!config.link_overrides.empty()) {
    throw UsageError("--topology-sweep: sip_link.overrides of the platform name links of its own topology");
  }
  uint32_t h = 1;
  for (uint32_t d = 1; d * d <= config.sips; ++d) {
    if (config.sips % d == 0) h = d;
  }
  std::vector<SystemConfig> out;
  for (const SipTopology t : {SipTopology::Ring1d, SipTopology::Torus2d, SipTopology::Mesh2d,
                              SipTopology::FullyConnected, SipTopology::Switch}) {
    const bool grid = t == SipTopology::Torus2d || t == SipTopology::Mesh2d;
    ConfigSource source = options.config;
    source.sets.push_back(fmt::format("system.sips.topology={}", to_string(t)));
    source.sets.push_back(fmt::format("system.sips.w={}", grid ? config.sips / h : config.sips));
    source.sets.push_back(fmt::format("system.sips.h={}", grid ? h : 1));
    out.push_back(load_system_config(source));
  }
  return out;
}

Command table_command(const std::string& name, const std::string& what, AllReduceRunner runner) {
  const auto run = [name, what, runner = std::move(runner)](const Arguments& arguments, Io& io) {
    AllReduceOptions options = parse_all_reduce_options(arguments, name);
    if (options.help) {
      print_command_help(
          io.out, name,
          fmt::format("Runs {} on the simulated machine for a range of sizes and prints one row per size: "
                      "simulated time,\nalgorithm and bus bandwidth, wrong elements, the lower bound of any algorithm, "
                      "and how near the time is to it.",
                      what),
          all_reduce_options());
      return kExitOk;
    }
    const AllReduceJob job = make_job(std::move(options));
    AllReduceReport report(job, io);
    return run_and_report(runner, job, report);
  };
  return {name, fmt::format("run {} and print the table of times and bandwidths", what), run};
}

}  // namespace

AllReduceJob make_job(AllReduceOptions options) {
  AllReduceJob job;
  job.config = load_system_config(options.config);
  options.observe.require_kept(find_config_file(options.config.path_or_name), "-c");
  options.observe.require_kept(job.config.ccl_file, "the platform's ccl key");
  options.observe.require_kept(options.ccl_file.value_or(""), "--ccl");
  if (options.cubes && *options.cubes > job.config.cubes()) {
    throw UsageError(fmt::format("--cubes: {} asked for, but a SIP of '{}' has {}", *options.cubes, job.config.name,
                                 job.config.cubes()));
  }
  if (options.topology_sweep) job.sweep = sweep_configs(options, job.config);
  job.options = std::move(options);
  return job;
}

Command all_reduce_command(AllReduceRunner runner) {
  return table_command("all_reduce", "an all-reduce", std::move(runner));
}

Command collective_command(const std::string& name, AllReduceRunner runner) {
  return table_command(name, (name.front() == 'a' ? "an " : "a ") + name, std::move(runner));
}

}  // namespace ahbm::platform
