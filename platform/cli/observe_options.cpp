#include "platform/cli/observe_options.h"

#include <fmt/core.h>

#include <filesystem>

#include "models/core/config/units.h"
#include "platform/cli/command.h"

namespace ahbm::platform {

namespace po = boost::program_options;

namespace {

using Texts = std::vector<std::string>;

Ps parse_instant(const char* option, const std::string& text) {
  try {
    return units::parse_time(text);
  } catch (const units::QuantityError& e) {
    throw UsageError(fmt::format("{}: {}", option, e.what()));
  }
}

/// By whatever names and links.
bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(a, ignored) && fs::is_regular_file(b, ignored)) return fs::equivalent(a, b, ignored);
  const auto real = [&ignored](const std::string& name) {
    const fs::path absolute = fs::absolute(name, ignored).lexically_normal();
    const fs::path canonical = fs::weakly_canonical(absolute, ignored);
    return canonical.empty() ? absolute : canonical;
  };
  return real(a) == real(b);
}

void once(std::vector<ObserveOptions::File>& files, const std::string& option, const std::string& name) {
  if (name.empty()) return;
  for (const auto& f : files) {
    if (same_file(f.name, name))
      throw UsageError(fmt::format("{}: '{}' is written by {} already", option, name, f.option));
  }
  files.push_back({option, name});
}

}  // namespace

po::options_description observe_options() {
  po::options_description options("Seeing inside");
  auto add = options.add_options();
  const auto text = [](const char* what) { return po::value<std::string>()->value_name(what); };
  const auto texts = [](const char* what) { return po::value<Texts>()->composing()->value_name(what); };
  add("stats", text("FILE"), "write the counters of every block, as YAML (.yaml, .yml) or CSV (.csv)");
  add("trace", text("FILE"), "write a trace that Perfetto and chrome://tracing open");
  add("trace-filter", texts("GLOB"), "trace only these paths and what is below, e.g. system.sip0.*; several times");
  add("trace-from", text("TIME"), "leave out what ends before, e.g. 1us");
  add("trace-to", text("TIME"), "leave out what begins at or after this time");
  add("vcd", text("FILE"), "write waves: link occupancy, queue levels, interrupts");
  add("vcd-select", texts("GLOB"), "only these signals, e.g. *.busy or system.sip0.cube0.pe0.sfr.*; several times");
  add("log", texts("GLOB=LEVEL"), "log to standard error: off, error, warning, info, debug, trace; several times");
  add("record", texts("PATH[=FILE]"), "write the transactions through a socket or into a module as CSV; several times");
  return options;
}

ObserveOptions parse_observe_options(const po::variables_map& values) {
  ObserveOptions out;
  const auto text = [&values](const char* name) {
    return values.count(name) != 0 ? values[name].as<std::string>() : std::string();
  };
  const auto texts = [&values](const char* name) {
    return values.count(name) != 0 ? values[name].as<Texts>() : Texts();
  };
  for (const char* name : {"stats", "trace", "vcd"}) {
    if (values.count(name) != 0 && text(name).empty())
      throw UsageError(fmt::format("--{}: a file name is missing", name));
  }
  out.stats_file = text("stats");
  if (!out.stats_file.empty()) {
    const std::string extension = std::filesystem::path(out.stats_file).extension().string();
    out.stats_csv = extension == ".csv";
    if (!out.stats_csv && extension != ".yaml" && extension != ".yml") {
      throw UsageError(fmt::format("--stats: '{}' says no format; expected a name that ends in .yaml, .yml or .csv",
                                   out.stats_file));
    }
  }
  out.trace_file = text("trace");
  out.trace_filters = texts("trace-filter");
  if (values.count("trace-from") != 0) out.trace_from = parse_instant("--trace-from", text("trace-from"));
  if (values.count("trace-to") != 0) out.trace_to = parse_instant("--trace-to", text("trace-to"));
  for (const char* name : {"trace-filter", "trace-from", "trace-to"}) {
    if (values.count(name) != 0 && out.trace_file.empty()) throw UsageError(fmt::format("--{} needs --trace", name));
  }
  if (out.trace_from >= out.trace_to) {
    throw UsageError(fmt::format("--trace-from {} is not before --trace-to {}", units::format_time(out.trace_from),
                                 units::format_time(out.trace_to)));
  }
  out.vcd_file = text("vcd");
  out.vcd_select = texts("vcd-select");
  if (!out.vcd_select.empty() && out.vcd_file.empty()) throw UsageError("--vcd-select needs --vcd");
  out.log_rules = texts("log");
  for (const std::string& r : texts("record")) {
    const size_t equals = r.find('=');
    ObserveOptions::Record record;
    record.path = r.substr(0, equals);
    record.file = equals == std::string::npos ? record.path + ".csv" : r.substr(equals + 1);
    if (record.path.empty() || record.file.empty()) {
      throw UsageError(fmt::format("--record: '{}' is not PATH or PATH=FILE", r));
    }
    out.records.push_back(std::move(record));
  }
  std::vector<ObserveOptions::File>& files = out.files;
  for (const char* name : {"csv", "json"}) {
    if (values.count(name) != 0) once(files, fmt::format("--{}", name), text(name));
  }
  once(files, "--stats", out.stats_file);
  once(files, "--trace", out.trace_file);
  once(files, "--vcd", out.vcd_file);
  for (const auto& r : out.records) once(files, "--record", r.file);
  return out;
}

void ObserveOptions::require_kept(const std::string& input, const std::string& reader) const {
  if (input.empty()) return;
  for (const File& f : files) {
    if (same_file(f.name, input)) throw UsageError(fmt::format("{}: '{}' is read by {}", f.option, f.name, reader));
  }
}

}  // namespace ahbm::platform
