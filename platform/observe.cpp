#include "platform/observe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "models/core/suggest.h"
#include "models/observe/chrome_trace.h"
#include "models/observe/log_sink.h"
#include "models/observe/observation.h"
#include "models/observe/probe.h"
#include "models/observe/statistics.h"
#include "models/observe/wave_sink.h"
#include "platform/cli/command.h"
#include "platform/machine.h"
#include "platform/time_split.h"
#include "runtime/dtensor/session.h"

namespace ahbm::platform {

namespace {

/// Log lines go to standard error with their time; every other report stays with SystemC.
void report_to_stderr(const sc_core::sc_report& report, const sc_core::sc_actions& actions) {
  if (report.get_severity() > sc_core::SC_WARNING || std::strncmp(report.get_msg_type(), "/ahbm/", 6) != 0) {
    sc_core::sc_report_handler::default_handler(report, actions);
    return;
  }
  const Ps t = report.get_time().value();
  fmt::print(stderr, "{}.{:06} us {} {}{}\n", t / 1000000, t % 1000000, report.get_msg_type(),
             report.get_severity() == sc_core::SC_WARNING ? "warning: " : "", report.get_msg());
}

/// Arrows of plans as names in files and logs have them.
std::string ascii(std::string name) {
  const std::string arrow = "→";
  for (size_t at = 0; (at = name.find(arrow, at)) != std::string::npos;) name.replace(at, arrow.size(), "->");
  return name;
}

std::string microseconds(Ps t) {
  return fmt::format("{:.3f} us", static_cast<double>(t) / 1e6);
}

/// A sink that nothing is told to would leave an empty file behind without a word.
void require_places(size_t n, const char* option, const std::vector<std::string>& patterns) {
  if (n != 0) return;
  std::string list;
  for (const std::string& p : patterns) list += (list.empty() ? "'" : ", '") + p + '\'';
  throw UsageError(
      fmt::format("{}: {} selects nothing of this machine; paths look like system.sip0.cube0.pe0, "
                  "--stats lists them all",
                  option, list));
}

}  // namespace

struct Observing::Impl {
  explicit Impl(const ObserveOptions& o) : options(o) {}

  const ObserveOptions options;
  models::System* system = nullptr;
  OutputFile stats;
  std::unique_ptr<observe::ChromeTrace> trace;
  std::unique_ptr<observe::WaveSink> waves;
  std::unique_ptr<observe::LogSink> log;
  std::vector<std::shared_ptr<observe::CsvRecorder>> recorders;
  observe::ProbeSet* probes = nullptr;  ///< as the machine, left to the operating system
  std::unique_ptr<TimeSplit> split;
  std::unique_ptr<observe::Observation> observation;

  void collective(const runtime::distributed::CollectiveRecord& r);
  bool finished = false;
};

Observing::Observing(const ObserveOptions& options, const std::shared_ptr<OutputGate>& gate)
    : m_impl(std::make_unique<Impl>(options)) {
  Impl& im = *m_impl;
  try {
    if (!options.log_rules.empty()) {
      im.log = std::make_unique<observe::LogSink>(observe::LogRules::parse(options.log_rules));
      sc_core::sc_report_handler::set_handler(&report_to_stderr);
    }
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--log: {}", e.what()));
  }
  try {
    if (!options.trace_file.empty()) {
      im.trace = std::make_unique<observe::ChromeTrace>(
          observe::TraceOptions{options.trace_file, options.trace_filters, options.trace_from, options.trace_to, gate});
    }
    if (!options.vcd_file.empty()) {
      im.waves = std::make_unique<observe::WaveSink>(options.vcd_file, options.vcd_select, &models::now_ps, gate);
    }
    for (const auto& r : options.records) {
      im.recorders.push_back(std::make_shared<observe::CsvRecorder>(r.file, gate));
    }
  } catch (const std::runtime_error& e) {
    throw UsageError(e.what());
  }
  if (!options.stats_file.empty()) {
    im.stats.open(options.stats_file, gate);
    if (!im.stats) throw UsageError(fmt::format("--stats: '{}' cannot be written", options.stats_file));
  }
  if (options.records.empty()) return;
  // Last: nobody owns the probes when this throws.
  auto probes = std::make_unique<observe::ProbeSet>();
  for (size_t i = 0; i < options.records.size(); ++i) {
    probes->add(options.records[i].path, [to = im.recorders[i]](const observe::Transaction& t) { to->write(t); });
  }
  im.probes = probes.release();
}

Observing::~Observing() {
  try {
    finish();
  } catch (const std::exception& e) {
    fmt::print(stderr, "ahbm-vp: {}\n", e.what());
  }
}

models::SystemParts Observing::parts(models::SystemParts parts) {
  parts.probes = m_impl->probes;
  return parts;
}

TimeSplit* Observing::attach(Machine& machine, bool explain) {
  Impl& im = *m_impl;
  im.system = machine.system.get();
  if (im.probes != nullptr) {
    const auto unmatched = im.probes->unmatched();
    if (!unmatched.empty()) {
      throw UsageError(
          fmt::format("--record: no socket and no module with target sockets is called '{}'; expected for example "
                      "system.sip0.cube0.hbm or a link of `info`",
                      unmatched.front()));
    }
  }
  if (im.trace == nullptr && im.waves == nullptr && im.log == nullptr && !explain) return nullptr;
  im.observation = std::make_unique<observe::Observation>(*im.system);
  if (im.trace) require_places(im.observation->attach(*im.trace), "--trace-filter", im.options.trace_filters);
  if (im.waves) require_places(im.observation->attach(*im.waves), "--vcd-select", im.options.vcd_select);
  if (im.log) require_places(im.observation->attach(*im.log), "--log", im.options.log_rules);
  if (im.trace != nullptr || explain) {
    im.split = std::make_unique<TimeSplit>(*im.system);
    im.observation->attach(*im.split);
  }
  machine.context->distributed.on_collective = [&im](const runtime::distributed::CollectiveRecord& r) {
    if (im.observation != nullptr) im.collective(r);
  };
  machine.context->dtensor_session().on_operation_start = [&im](uint32_t rank, Ps begin) {
    if (im.observation != nullptr) im.observation->operation_start(rank, begin);
  };
  machine.context->dtensor_session().on_operation = [&im](const dtensor::OperationRecord& r) {
    if (im.observation == nullptr) return;
    im.observation->operation(r.rank, ascii(r.name).c_str(), r.begin, r.end);
  };
  return explain ? im.split.get() : nullptr;
}

/// A slice on the track of every rank, for as long as the rank took part; below it, where the collective's time went.
void Observing::Impl::collective(const runtime::distributed::CollectiveRecord& r) {
  const std::string name = fmt::format("{} {}", ccl::to_string(r.collective), r.algorithm);
  std::vector<std::pair<std::string, std::pair<Ps, Ps>>> parts;
  if (split != nullptr && r.end > r.start) {
    const TimeSplit::Parts p = split->of(r.start, r.end);
    const auto percent = [&](Ps t) { return 100.0 * static_cast<double>(t) / static_cast<double>(r.end - r.start); };
    parts = {{"host: launch", {r.start, p.first_kernel}},
             {fmt::format("links {:.1f} %, between {:.1f} %, host {:.1f} %", percent(p.links), percent(p.between),
                          percent(p.host)),
              {p.first_kernel, p.last_kernel}},
             {"host: completion", {p.last_kernel, r.end}}};
  }
  for (size_t i = 0; i < r.members.size(); ++i) {
    const runtime::distributed::CollectiveSpan own = r.spans[i];
    if (own.end == 0) continue;
    observation->collective(r.members[i], name.c_str(), r.group, r.seq, r.bytes, own.start, own.end);
    for (const auto& [what, span] : parts) {
      const Ps begin = std::max(span.first, own.start), end = std::min(span.second, own.end);
      if (begin < end) observation->collective(r.members[i], what.c_str(), r.group, r.seq, r.bytes, begin, end);
    }
  }
}

void Observing::watch(Machine& machine, observe::Sink& sink) {
  if (m_impl->observation == nullptr) m_impl->observation = std::make_unique<observe::Observation>(*machine.system);
  m_impl->observation->attach(sink);
}

void Observing::finish() {
  Impl& im = *m_impl;
  if (im.finished) return;
  im.finished = true;
  if (im.system != nullptr && im.stats.is_open()) {
    if (im.options.stats_csv) {
      observe::write_statistics_csv(*im.system, im.stats);
    } else {
      observe::write_statistics_yaml(*im.system, im.stats);
    }
  }
  im.stats.close();
  const bool stats_written = im.options.stats_file.empty() || !im.stats.fail();
  if (im.trace) im.trace->finish();
  if (im.waves) im.waves->finish();
  for (const auto& r : im.recorders) r->finish();
  im.observation.reset();
  if (im.log) sc_core::sc_report_handler::set_handler(nullptr);
  if (!stats_written) {
    throw std::runtime_error(fmt::format("'{}' could not be written completely", im.options.stats_file));
  }
}

std::vector<std::string> load_summary(models::System& system) {
  std::vector<std::string> out;
  const auto links = observe::busiest_links(system, 5);
  if (!links.empty()) {
    out.push_back(fmt::format("busiest links, of {} simulated in all:", microseconds(models::now_ps())));
    for (const auto& l : links) {
      out.push_back(fmt::format("  {:<34} busy {:>5.1f} % ({}), {} B on the wire, waited {}", l.path,
                                l.utilisation * 100, microseconds(l.busy), l.wire_bytes, microseconds(l.waited)));
    }
  }
  const auto waits = observe::waits(system, 5);
  out.push_back(fmt::format("PEs waited, all together: {} for messages, {} for credits, {} for launches",
                            microseconds(waits.total.message), microseconds(waits.total.credit),
                            microseconds(waits.total.launch)));
  for (const auto& w : waits.worst) {
    out.push_back(fmt::format("  {:<34} {} for messages, {} for credits, {} for launches", w.path,
                              microseconds(w.message), microseconds(w.credit), microseconds(w.launch)));
  }
  return out;
}

}  // namespace ahbm::platform
