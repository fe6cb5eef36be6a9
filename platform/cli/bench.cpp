#include "platform/cli/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "models/core/suggest.h"
#include "platform/cli/all_reduce.h"
#include "platform/cli/run_document.h"

namespace ahbm::platform {

namespace po = boost::program_options;

namespace {

struct Bench {
  const char* name;
  const char* what;
};
constexpr Bench kBenches[] = {
    {"tp_mlp", "an MLP: column-parallel, then row-parallel"},
    {"tp_attention", "an attention block: heads cut over the ranks"},
    {"tp_transformer", "a language model with vocabulary-parallel embeddings and head"},
    {"sequence_parallel", "the same with activations cut along the sequence between the layers"},
    {"fsdp_tp", "the same with parameters also sharded over the first mesh dimension, gathered before use"}};

std::vector<std::string> bench_names() {
  std::vector<std::string> out;
  for (const Bench& b : kBenches) out.emplace_back(b.name);
  return out;
}

po::options_description bench_options() {
  const auto number = [](uint64_t d) { return po::value<uint64_t>()->value_name("N")->default_value(d); };
  const auto optional = [] { return po::value<uint64_t>()->value_name("N"); };
  const auto text = [](const char* what) { return po::value<std::string>()->value_name(what); };
  po::options_description model("Mesh and model");
  auto add = model.add_options();
  add("mesh", text("TP|DPxTP"),
      "ranks that share the layers, or data-parallel x tensor-parallel ranks, e.g. 4x2; default all SIPs. fsdp_tp: one "
      "number is the data-parallel one");
  add("hidden", number(512), "features of a token");
  add("inner", optional(), "features inside the MLP; default 4 x hidden");
  add("heads", number(8), "attention heads");
  add("kv-heads", optional(), "heads of keys and values; default as many as heads");
  add("layers", number(2), "transformer blocks");
  add("vocabulary", number(1024), "tokens that there are");
  add("sequence", number(256), "tokens of a sequence");
  add("batch", optional(), "sequences; default one per data-parallel rank");
  add("datatype,t", text("TYPE")->default_value("float"), "float, half or bfloat16");
  add("seed", number(1), "of parameters and inputs");
  add("no-bias", "linear layers without bias");
  add("rms-norm", "RMSNorm instead of LayerNorm");
  add("loss-parallel", "the logits stay cut by vocabulary, and a loss is computed from them");

  po::options_description run("Run");
  auto add_run = run.add_options();
  add_run("steps", number(1), "forward passes; the first one also makes connections");
  add_run(
      "cost-model", text("MODEL")->default_value("ring"),
      "what operators on distributed tensors choose by: ring (PyTorch's constants) or topology (the machine's links)");
  add_run("sweep", text("WHAT"),
          "placements: every layout of the layer of tp_mlp, ranked by simulated time, instead of the two styles");
  add_run("no-check", "do not compare with the host's numbers, which takes most of the time of a large model");

  po::options_description output("Output");
  auto add_output = output.add_options();
  add_output("csv", text("FILE"), "write the rows as CSV too");
  add_output("json", text("FILE"), "write the rows and the effective configuration as JSON too");
  add_output("quiet", "no table");

  po::options_description all;
  all.add(platform_options()).add(model).add(run).add(output).add(observe_options());
  return all;
}

uint64_t number_of(const po::variables_map& values, const char* name, uint64_t min, uint64_t max) {
  const auto v = values[name].as<uint64_t>();
  if (v < min || v > max) {
    throw UsageError(fmt::format("--{}: {} is not in {}..{}", name, static_cast<int64_t>(v), min, max));
  }
  return v;
}

/// One number, or two with an x between them.
std::vector<uint32_t> parse_mesh(const std::string& text) {
  std::vector<uint32_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t cross = std::min(text.find('x', at), text.size());
    const std::string word = text.substr(at, cross - at);
    const bool digits = !word.empty() && word.size() < 5 && word.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoul(word) == 0) {
      throw UsageError(fmt::format("--mesh: '{}': expected numbers from 1 with x between them, e.g. 8 or 4x2", text));
    }
    out.push_back(static_cast<uint32_t>(std::stoul(word)));
    at = cross + 1;
  }
  if (out.size() > 2) {
    throw UsageError(fmt::format("--mesh: {} has {} dimensions, expected one (tensor parallel) or two (data x tensor)",
                                 text, out.size()));
  }
  return out;
}

/// The platform and the mesh on it. Without `-c` the default platform gets as many SIPs as the mesh has ranks.
void place(BenchOptions& o, const po::variables_map& values) {
  o.config = config_source(values);
  std::vector<uint32_t> mesh;
  if (values.count("mesh") != 0) mesh = parse_mesh(values["mesh"].as<std::string>());
  uint64_t wanted = 1;
  for (const uint32_t n : mesh) wanted *= n;
  const bool sized = std::any_of(o.config.sets.begin(), o.config.sets.end(),
                                 [](const std::string& s) { return s.rfind("system.sips", 0) == 0; });
  if (!mesh.empty() && values["config"].defaulted() && !sized) {
    o.config.sets.push_back(fmt::format("system.sips.count={}", wanted));
  }
  const SystemConfig config = load_system_config(o.config);
  if (mesh.empty()) mesh = {config.sips};
  if (!mesh.empty() && values.count("mesh") != 0 && wanted != config.sips) {
    throw UsageError(fmt::format("--mesh: {} ranks, but '{}' has {} SIPs; --set system.sips.count={} makes it fit",
                                 wanted, config.name, config.sips, wanted));
  }
  if (mesh.size() == 1) mesh.insert(o.bench == "fsdp_tp" ? mesh.end() : mesh.begin(), 1);
  o.data = mesh[0];
  o.tensor = mesh[1];
}

void require_used(const BenchOptions& o, const po::variables_map& values) {
  std::vector<const char*> unused;
  if (o.bench == "tp_mlp") unused = {"heads", "kv-heads", "layers", "vocabulary", "rms-norm"};
  if (o.bench == "tp_attention") unused = {"inner", "layers", "vocabulary", "rms-norm"};
  for (const char* name : unused) {
    if (values.count(name) == 0 || values[name].defaulted()) continue;
    throw UsageError(fmt::format("--{}: {} has no use for it", name, o.bench));
  }
}

void read_model(BenchOptions& o, const po::variables_map& values) {
  require_used(o, values);
  constexpr uint64_t kMost = 1 << 16;
  o.hidden = number_of(values, "hidden", 1, kMost);
  o.heads = number_of(values, "heads", 1, kMost);
  o.inner = values.count("inner") != 0 ? number_of(values, "inner", 1, kMost * 4) : 4 * o.hidden;
  o.kv_heads = values.count("kv-heads") != 0 ? number_of(values, "kv-heads", 1, kMost) : o.heads;
  o.layers = number_of(values, "layers", 0, 1000);
  o.vocabulary = number_of(values, "vocabulary", 1, 1 << 20);
  o.length = number_of(values, "sequence", 1, kMost);
  o.batch = values.count("batch") != 0 ? number_of(values, "batch", 1, kMost) : o.data;
  o.seed = number_of(values, "seed", 0, UINT32_MAX);
  o.bias = values.count("no-bias") == 0;
  o.rms_norm = values.count("rms-norm") != 0;
  o.loss_parallel = values.count("loss-parallel") != 0;
  if (o.bench != "tp_mlp" && o.hidden % o.heads != 0) {
    throw UsageError(fmt::format("--heads: {} do not divide the {} features of --hidden", o.heads, o.hidden));
  }
  if (o.bench != "tp_mlp" && o.heads % o.kv_heads != 0) {
    throw UsageError(fmt::format("--kv-heads: {} do not divide the {} heads", o.kv_heads, o.heads));
  }
  if (o.bench != "tp_mlp" && o.heads % o.tensor != 0) {
    throw UsageError(fmt::format("--heads: {} on {} tensor-parallel ranks, expected a multiple", o.heads, o.tensor));
  }
  // Operators on distributed tensors leave dimensions alone that are smaller than the number of ranks.
  const auto require_one_each = [&](const char* name, uint64_t n) {
    if (n >= o.tensor) return;
    throw UsageError(
        fmt::format("--{}: {} on {} tensor-parallel ranks, expected at least one for each", name, n, o.tensor));
  };
  if (o.bench != "tp_attention") require_one_each("inner", o.inner);
  if (o.has_model()) require_one_each("vocabulary", o.vocabulary);
  if (o.batch % o.data != 0) {
    throw UsageError(
        fmt::format("--batch: {} sequences on {} data-parallel ranks, expected a multiple", o.batch, o.data));
  }
  if (o.loss_parallel && !o.has_model()) {
    throw UsageError(fmt::format("--loss-parallel: {} has no logits", o.bench));
  }
  const auto dtype = parse_dtype(values["datatype"].as<std::string>());
  if (!dtype || !is_floating(*dtype)) {
    throw UsageError(
        fmt::format("--datatype: '{}': expected float, half or bfloat16", values["datatype"].as<std::string>()));
  }
  o.dtype = *dtype;
}

std::string figure(const std::optional<double>& v) {
  return v ? fmt::format("{:.2e}", *v) : "n/a";
}

double as_microseconds(Ps t) {
  return static_cast<double>(t) / 1e6;
}

uint32_t count_of(const BenchRow& row, const char* kind) {
  const auto it = row.collectives.find(kind);
  return it == row.collectives.end() ? 0 : it->second;
}

std::string table_columns(bool sweep) {
  return fmt::format("#{:<24} {:>5} {:>11} {:>11} {:>11} {:>11} {:>11} {:>9} {:>9}  {}\n", sweep ? "layouts" : "style",
                     sweep ? "place" : "step", "time", "compute", "collective", "host", "bytes", "error",
                     sweep ? "estimate" : "vs single", "collectives") +
         fmt::format("#{:<24} {:>5} {:>11} {:>11} {:>11} {:>11} {:>11} {:>9} {:>9}\n", "", "", "(us)", "(us)", "(us)",
                     "(us)", "(B)", "", sweep ? "(us)" : "");
}

std::string table_line(const BenchRow& r) {
  return fmt::format(" {:<24} {:>4} {:>11.3f} {:>11.3f} {:>11.3f} {:>11.3f} {:>11} {:>9} {:>9}  {}{}\n", r.style,
                     r.step, as_microseconds(r.time), as_microseconds(r.compute), as_microseconds(r.collective),
                     as_microseconds(r.host), r.bytes, figure(r.error),
                     r.estimate_us ? fmt::format("{:.2f}", *r.estimate_us) : figure(r.single_error),
                     collectives_text(r.collectives), r.wrong ? "  WRONG" : "");
}

nlohmann::ordered_json to_json(const BenchRow& r) {
  const auto optional = [](const std::optional<double>& v) {
    return v ? nlohmann::ordered_json(*v) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json out;
  out["style"] = r.style;
  out["step"] = r.step;
  out["time_us"] = as_microseconds(r.time);
  out["compute_us"] = as_microseconds(r.compute);
  out["collective_us"] = as_microseconds(r.collective);
  out["host_us"] = as_microseconds(r.host);
  out["collectives"] = r.collectives;
  out["bytes"] = r.bytes;
  out["error"] = optional(r.error);
  out["single_error"] = optional(r.single_error);
  out["estimate_us"] = optional(r.estimate_us);
  out["wrong"] = r.wrong;
  return out;
}

}  // namespace

std::string collectives_text(const std::map<std::string, uint32_t>& counts) {
  std::string out;
  for (const auto& [kind, n] : counts) {
    if (n > 0) out += fmt::format("{}{} {}", out.empty() ? "" : " + ", kind, n);
  }
  return out.empty() ? "none" : out;
}

std::string bench_csv_line(const std::string& bench, const BenchRow& r) {
  const auto optional = [](const std::optional<double>& v) { return v ? fmt::format("{:.6g}", *v) : "n/a"; };
  return fmt::format("{},\"{}\",{},{:.6f},{:.6f},{:.6f},{:.6f},{},{},{},{},{},{},{},{},{}", bench, r.style, r.step,
                     as_microseconds(r.time), as_microseconds(r.compute), as_microseconds(r.collective),
                     as_microseconds(r.host), count_of(r, "all_reduce"), count_of(r, "all_gather"),
                     count_of(r, "reduce_scatter"), count_of(r, "all_to_all"), r.bytes, optional(r.error),
                     optional(r.single_error), optional(r.estimate_us), r.wrong ? 1 : 0);
}

BenchOptions parse_bench_options(const std::string& bench, const Arguments& arguments) {
  const po::variables_map values = parse_arguments(arguments, bench_options());
  BenchOptions out;
  out.bench = bench;
  if (values.count("help") != 0) {
    out.help = true;
    return out;
  }
  place(out, values);
  read_model(out, values);
  out.steps = static_cast<uint32_t>(number_of(values, "steps", 1, 1000));
  out.check = values.count("no-check") == 0;
  const auto cost = values["cost-model"].as<std::string>();
  if (cost != "ring" && cost != "topology") {
    throw UsageError(fmt::format("--cost-model: '{}': expected ring or topology", cost));
  }
  out.topology_cost = cost == "topology";
  if (values.count("sweep") != 0) {
    const auto what = values["sweep"].as<std::string>();
    if (what != "placements") throw UsageError(fmt::format("--sweep: '{}': expected placements", what));
    if (bench != "tp_mlp") throw UsageError(fmt::format("--sweep: {} has none, tp_mlp has", bench));
    if (out.data != 1) throw UsageError("--sweep: expected a mesh of one dimension, e.g. --mesh 4");
    if (!values["steps"].defaulted()) throw UsageError("--steps: --sweep runs every layout once");
    out.sweep = true;
  }
  if (values.count("csv") != 0) out.csv_file = values["csv"].as<std::string>();
  if (values.count("json") != 0) out.json_file = values["json"].as<std::string>();
  out.quiet = values.count("quiet") != 0;
  out.observe = parse_observe_options(values);
  return out;
}

// ------------------------------------------------------------------------------------------------------ BenchReport

BenchReport::BenchReport(const BenchJob& job, Io& io) : m_job(job), m_io(io) {
  open_for_writing(m_csv, "--csv", job.options.csv_file, job.outputs);
  open_document(m_json, job.options.json_file, job.outputs);
  if (m_csv.is_open()) m_csv << kBenchCsvHeader << '\n' << std::flush;
}

void BenchReport::print(const std::string& line) {
  if (!m_job.options.quiet) m_io.out << line << std::flush;
}

void BenchReport::header(const std::string& line) {
  m_headers.push_back(line);
  print("# " + line + '\n');
}

void BenchReport::add(const BenchRow& row) {
  if (m_rows.empty()) print(table_columns(m_job.options.sweep));
  m_job.outputs->accept();
  m_rows.push_back(row);
  print(table_line(row));
  if (m_csv.is_open()) m_csv << bench_csv_line(m_job.options.bench, row) << '\n' << std::flush;
}

void BenchReport::footer(const std::string& line, bool failure) {
  m_failed = m_failed || failure;
  m_footers.push_back(line);
}

int BenchReport::finish(const std::exception* failure) {
  const auto wrong = std::count_if(m_rows.begin(), m_rows.end(), [](const BenchRow& r) { return r.wrong; });
  const bool failed = m_failed || wrong != 0 || failure != nullptr;
  const bool checked = std::any_of(m_rows.begin(), m_rows.end(), [](const BenchRow& r) { return r.error.has_value(); });
  if (failure == nullptr) {
    for (const std::string& line : m_footers) print("# " + line + '\n');
    print(checked ? fmt::format("# Wrong rows: {} {}\n", wrong, failed ? "FAILED" : "OK")
                  : std::string("# Wrong rows: not checked\n"));
  }
  if (m_json.is_open()) {
    nlohmann::ordered_json out = run_document("bench " + m_job.options.bench, m_job.config, m_headers);
    for (const BenchRow& r : m_rows) out["results"].push_back(to_json(r));
    out["summary"] = m_footers;
    add_failure(out, failure);
    m_json << out.dump(2) << '\n';
  }
  m_job.outputs->accept();
  close_written(m_csv, m_job.options.csv_file);
  close_written(m_json, m_job.options.json_file);
  return failed ? kExitFailed : kExitOk;
}

// ----------------------------------------------------------------------------------------------------------- command

namespace {

int run_bench_command(const BenchRunner& runner, const Arguments& arguments, Io& io) {
  const std::vector<std::string> names = bench_names();
  std::string list;
  for (const Bench& b : kBenches) list += fmt::format("  {:<18} {}\n", b.name, b.what);
  const std::string first = arguments.empty() ? "" : arguments.front();
  const std::string text =
      "Runs one of these on the simulated machine, as Megatron layers and as distributed tensors, and checks both "
      "against\none SIP and against the host's double precision:\n\n" +
      list;
  if (first == "--help" || first == "-h") {
    print_command_help(io.out, "bench NAME", text, bench_options());
    return kExitOk;
  }
  if (std::find(names.begin(), names.end(), first) == names.end()) {
    if (first.empty()) throw UsageError("bench: a name is missing, one of:\n" + list);
    throw UsageError(fmt::format("bench: '{}' is none{}; there are:\n{}", first, did_you_mean(first, names), list));
  }
  BenchJob job;
  job.options = parse_bench_options(first, {arguments.begin() + 1, arguments.end()});
  if (job.options.help) {
    print_command_help(io.out, "bench " + first, text, bench_options());
    return kExitOk;
  }
  job.config = load_system_config(job.options.config);
  job.options.observe.require_kept(find_config_file(job.options.config.path_or_name), "-c");
  job.options.observe.require_kept(job.config.ccl_file, "the platform's ccl key");
  BenchReport report(job, io);
  return run_and_report(runner, job, report);
}

}  // namespace

Command bench_command(BenchRunner runner) {
  return {"bench", "run tensor-parallel layers and models in both styles, checked",
          [runner = std::move(runner)](const Arguments& arguments, Io& io) {
            return run_bench_command(runner, arguments, io);
          }};
}

}  // namespace ahbm::platform
