#include "platform/cli/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "models/core/suggest.h"
#include "platform/cli/run_document.h"

namespace ahbm::platform {

namespace po = boost::program_options;

namespace {

po::options_description tune_options() {
  po::options_description own("Tune");
  own.add_options()("collective", po::value<std::string>()->value_name("C")->default_value("all_reduce"),
                    "the collective whose algorithms are compared");
  po::options_description all = all_reduce_options();
  all.add(own);
  return all;
}

std::string verdict(const TuneRow& row) {
  const std::optional<double> margin = row.margin();
  if (!margin) return "no other";
  if (row.right()) return fmt::format("right by {:.1f} %", std::max(0.0, *margin) * 100);
  return fmt::format("wrong by {:.1f} %: {}", -*margin * 100, row.best().algorithm);
}

uint64_t wrong_of(const TuneRow& row) {
  uint64_t wrong = 0;
  for (const TuneEntry& e : row.entries) wrong += e.wrong.value_or(0);
  return wrong;
}

}  // namespace

const TuneEntry& TuneRow::best() const {
  return *std::min_element(entries.begin(), entries.end(),
                           [](const TuneEntry& a, const TuneEntry& b) { return a.time < b.time; });
}

std::optional<double> TuneRow::margin() const {
  if (entries.size() < 2 || choice().time == 0) return std::nullopt;
  Ps next = ~Ps{0};
  for (size_t i = 1; i < entries.size(); ++i) next = std::min(next, entries[i].time);
  return static_cast<double>(next) / static_cast<double>(choice().time) - 1;
}

bool TuneRow::right() const {
  constexpr double kShownAsNothing = 0.0005;
  return margin().value_or(0) > -kShownAsNothing;
}

TuneReport::TuneReport(const AllReduceJob& job, Io& io) : m_job(job), m_io(io) {
  open_for_writing(m_csv, "--csv", job.options.csv_file, job.outputs);
  open_document(m_json, job.options.json_file, job.outputs);
  if (m_csv.is_open()) m_csv << kTuneCsvHeader << '\n' << std::flush;
}

void TuneReport::header(const std::string& line) {
  m_headers.push_back(line);
  if (!m_job.options.quiet) m_io.out << "# " << line << '\n' << std::flush;
}

void TuneReport::progress(uint64_t size_bytes, const std::string& algorithm) {
  if (!m_io.terminal || m_job.options.quiet) return;
  m_io.err << fmt::format("\r\033[Krunning {} bytes by {} ...", size_bytes, algorithm) << std::flush;
  m_progress_shown = true;
}

void TuneReport::clear_progress() {
  if (!m_progress_shown) return;
  m_io.err << "\r\033[K" << std::flush;
  m_progress_shown = false;
}

void TuneReport::add(const TuneRow& row) {
  clear_progress();
  m_job.outputs->accept();
  m_rows.push_back(row);
  if (m_columns.empty()) {
    for (const TuneEntry& e : row.entries) m_columns.push_back(e.algorithm);
    std::sort(m_columns.begin(), m_columns.end());
    std::string line = fmt::format("#{:>12}", "size (B)");
    for (const std::string& name : m_columns) line += fmt::format(" {:>{}}", name, std::max<size_t>(12, name.size()));
    if (!m_job.options.quiet) m_io.out << line << "  auto\n";
  }
  std::string line = fmt::format(" {:>12}", row.size_bytes);
  for (const std::string& name : m_columns) {
    const auto entry =
        std::find_if(row.entries.begin(), row.entries.end(), [&](const TuneEntry& e) { return e.algorithm == name; });
    const std::string time =
        entry == row.entries.end() ? "-" : fmt::format("{:.3f}", static_cast<double>(entry->time) / 1e6);
    line += fmt::format(" {:>{}}", time, std::max<size_t>(12, name.size()));
  }
  if (!m_job.options.quiet) {
    m_io.out << line << fmt::format("  {}: {}\n", row.choice().algorithm, verdict(row)) << std::flush;
  }
  if (!m_csv.is_open()) return;
  for (const TuneEntry& e : row.entries) {
    m_csv << fmt::format("{},{},{},{},{},{},{}\n", row.size_bytes, e.algorithm, microseconds(e.time),
                         microseconds(e.closed_form), e.wrong ? std::to_string(*e.wrong) : "n/a",
                         &e == &row.choice() ? 1 : 0, row.margin() ? fmt::format("{:.6f}", *row.margin()) : "n/a");
  }
  m_csv << std::flush;
}

int TuneReport::finish(const std::exception* failure) {
  clear_progress();
  uint64_t wrong = 0;
  size_t right = 0;
  double lost = 0;
  for (const TuneRow& r : m_rows) {
    wrong += wrong_of(r);
    right += r.right() ? 1 : 0;
    lost = std::max(lost, -r.margin().value_or(0));
  }
  if (!m_job.options.quiet && failure == nullptr) {
    m_io.out << fmt::format(
        "# auto is right for {} of {} sizes; what a better choice would have saved at most: {:.1f} %\n", right,
        m_rows.size(), lost * 100);
    if (m_job.options.check) m_io.out << fmt::format("# Wrong values: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
    if (!m_rows.empty()) {
      for (const std::string& why : m_rows.front().refusals) m_io.out << "# not run: " << why << '\n';
    }
    m_io.out << std::flush;
  }
  if (m_json.is_open()) {
    nlohmann::ordered_json doc = nlohmann::ordered_json::parse(json_document(m_job, m_headers, {}, failure));
    for (const TuneRow& r : m_rows) {
      nlohmann::ordered_json row;
      row["size_bytes"] = r.size_bytes;
      row["chosen"] = r.choice().algorithm;
      row["best"] = r.best().algorithm;
      row["margin"] = r.margin() ? nlohmann::ordered_json(*r.margin()) : nlohmann::ordered_json(nullptr);
      for (const TuneEntry& e : r.entries) {
        row["algorithms"].push_back({{"algorithm", e.algorithm},
                                     {"time_us", static_cast<double>(e.time) / 1e6},
                                     {"closed_form_us", static_cast<double>(e.closed_form) / 1e6},
                                     {"wrong", e.wrong ? nlohmann::ordered_json(*e.wrong) : nullptr}});
      }
      row["refused"] = r.refusals;
      doc["results"].push_back(std::move(row));
    }
    m_json << doc.dump(2) << '\n';
  }
  m_job.outputs->accept();
  close_written(m_csv, m_job.options.csv_file);
  close_written(m_json, m_job.options.json_file);
  return wrong == 0 && failure == nullptr ? kExitOk : kExitFailed;
}

Command tune_command(std::vector<std::string> collectives, TuneRunner runner) {
  const auto run = [collectives = std::move(collectives), runner = std::move(runner)](const Arguments& arguments,
                                                                                      Io& io) {
    const po::variables_map values = parse_arguments(arguments, tune_options());
    AllReduceOptions options = read_all_reduce_options(values, "tune");
    if (options.help) {
      print_command_help(io.out, "tune",
                         "Runs a collective by every algorithm that can do it and prints the simulated times, size by "
                         "size: what\n`algorithm: auto` chooses, and by how much it was right or wrong.",
                         tune_options());
      return kExitOk;
    }
    const std::string collective = values["collective"].as<std::string>();
    if (std::find(collectives.begin(), collectives.end(), collective) == collectives.end()) {
      throw UsageError(fmt::format("--collective: '{}' is none of {}{}", collective, fmt::join(collectives, ", "),
                                   did_you_mean(collective, collectives)));
    }
    require_meaning(values, collective);
    if (options.explain) {
      throw UsageError(fmt::format("--explain: tune does not say where the time went, {} --explain does", collective));
    }
    if (!values["repeat"].defaulted()) {
      throw UsageError("--repeat: tune runs every algorithm once, simulated times do not differ between runs");
    }
    if (options.algorithm) throw UsageError("--algorithm: tune runs every algorithm that fits");
    if (options.topology_sweep) throw UsageError("--topology-sweep: tune takes one topology");
    const AllReduceJob job = make_job(std::move(options));
    TuneReport report(job, io);
    return run_and_report([&](const AllReduceJob& j, TuneReport& r) { runner(collective, j, r); }, job, report);
  };
  return {"tune", "compare the algorithms of a collective and judge what auto chooses", run};
}

}  // namespace ahbm::platform
