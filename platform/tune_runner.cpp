#include "platform/tune_runner.h"

#include <fmt/format.h>

#include "ccl/select.h"
#include "platform/collective_runner.h"
#include "platform/measurement.h"
#include "platform/observe.h"

namespace ahbm::platform {

namespace {

using runtime::distributed::kAutomatic;

/// What auto had to choose from. The record has the group and the lanes' calls; auto sees all lanes as one.
ccl::Selection candidates(Machine& machine, const runtime::distributed::CollectiveRecord& record, double bytes,
                          const std::set<const ccl::AlgorithmModule*>& named) {
  ccl::CollectiveShape shape = record.shapes.front();
  for (size_t lane = 1; lane < record.shapes.size(); ++lane) shape.count += record.shapes[lane].count;
  return ccl::select_algorithm(machine.algorithms, record.collective, record.ranks, shape, bytes,
                               machine.context->config(), named);
}

TuneRow tune_size(ccl::Collective collective, const AllReduceJob& job, Machine& machine, uint64_t size,
                  TuneReport& report) {
  auto& d = machine.context->distributed;
  TuneRow out;
  const auto measure = [&](const std::string& module) {
    report.progress(size, module.empty() ? kAutomatic : module);
    d.set_module(module);
    const auto group = start_group(collective, job, machine);
    Measurement measurement(collective, job, machine, group, size);
    const AllReduceRow row = measurement.run();
    out.size_bytes = row.size_bytes;
    out.entries.push_back({row.algorithm, row.time, 0, row.wrong});
    std::set<const ccl::AlgorithmModule*> named;
    for (const std::string& name : d.settings().modules) named.insert(machine.algorithms.find(name));
    d.destroy_process_group();
    return std::pair{measurement.record(), named};
  };
  const auto [record, named] = measure("");
  if (record.shapes.empty()) return out;  // nothing to send
  const double bytes = static_cast<double>(record.count) * item_bytes(record.shapes.front().dtype);
  for (const ccl::Candidate& c : candidates(machine, record, bytes, named).candidates) {
    if (!c.refusal.empty()) {
      out.refusals.push_back(c.refusal);
      continue;
    }
    if (c.module->name != out.choice().algorithm) measure(c.module->name);
    for (TuneEntry& e : out.entries) {
      if (e.algorithm == c.module->name) e.closed_form = static_cast<Ps>(c.seconds * 1e12);
    }
  }
  return out;
}

}  // namespace

void run_tune(ccl::Collective collective, const AllReduceJob& job, TuneReport& report) {
  Observing observing(job.options.observe, job.outputs);
  auto* machine = new Machine(job.config, observing.parts());  // left to the operating system, see Machine
  observing.attach(*machine);
  machine->run([&] {
    auto& d = machine->context->distributed;
    d.set_algorithm(kAutomatic);
    const auto group = start_group(collective, job, *machine);
    report.header(
        fmt::format("{} on {}; simulated times in us", ccl::to_string(collective), describe_run(job, *machine, group)));
    d.destroy_process_group();
    for (const uint64_t size : job.options.sizes) report.add(tune_size(collective, job, *machine, size, report));
  });
  observing.finish();
}

}  // namespace ahbm::platform
