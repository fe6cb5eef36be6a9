#include "platform/collective_runner.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <memory>

#include "ccl/module_file.h"
#include "platform/measurement.h"
#include "platform/observe.h"

namespace ahbm::platform {

namespace {

using runtime::distributed::ProcessGroup;

/// Every size of the job on a machine; rows are reported as they come.
void run_sizes(ccl::Collective collective, const AllReduceJob& job, Machine& machine, TimeSplit* split,
               AllReduceReport& report) {
  const ProcessGroup group = start_group(collective, job, machine);
  report.header(describe_run(job, machine, group));
  const std::string asked = machine.context->distributed.module_name(group);
  if (job.options.algorithm && job.options.layout == TensorLayout::Partial && !asked.empty() &&
      machine.algorithms.find(asked)->layouts.count(ccl::CubeLayout::Partial) == 0) {
    report.header(
        fmt::format("{} reduces between SIPs only: what is partial over the cubes is reduced by a module for "
                    "that",
                    asked));
  }
  for (const uint64_t size : job.options.sizes) {
    report.progress(size);
    for (uint32_t i = 0; i < job.options.repeat; ++i) {
      AllReduceRow row = Measurement(collective, job, machine, group, size, split).run();
      if (job.options.topology_sweep) row.topology = to_string(machine.context->config().topology);
      report.add(row);
    }
  }
  machine.context->distributed.destroy_process_group();
}

void run_sweep(ccl::Collective collective, const AllReduceJob& job, AllReduceReport& report) {
  // All are elaborated before the first one runs.
  std::vector<Machine*> machines;  // left to the operating system, see Machine
  for (const SystemConfig& config : job.sweep) {
    machines.push_back(new Machine(config, {}, fmt::format("system_{}", to_string(config.topology)).c_str()));
  }
  std::exception_ptr unsuitable;
  bool any = false;
  for (Machine* machine : machines) {
    const ObserveOptions nothing;
    Observing observing(nothing);
    TimeSplit* split = observing.attach(*machine, job.options.explain);
    try {
      machine->run([&] { run_sizes(collective, job, *machine, split, report); });
      any = true;
    } catch (const UnsuitableAlgorithm& e) {
      report.header(fmt::format("{}: skipped: {}", to_string(machine->context->config().topology), e.what()));
      unsuitable = std::current_exception();
    }
  }
  if (!any && unsuitable) std::rethrow_exception(unsuitable);
}

}  // namespace

void require_modules_kept(const ObserveOptions& observe, const runtime::distributed::CclSettings& settings) {
  for (const std::string& module : settings.modules) {
    if (!ccl::is_module_file(module)) continue;
    observe.require_kept((std::filesystem::absolute(settings.file).parent_path() / module).string(), settings.file);
  }
}

ProcessGroup start_group(ccl::Collective collective, const AllReduceJob& job, Machine& machine) {
  auto& d = machine.context->distributed;
  const AllReduceOptions& o = job.options;
  if (o.ccl_file) d.set_ccl_file(*o.ccl_file);
  if (o.algorithm) d.set_algorithm(*o.algorithm);
  if (o.layout == TensorLayout::Partial && collective != ccl::Collective::AllReduce) {
    throw UsageError(
        fmt::format("--layout: partial is for all_reduce, {} takes sharded or replicated", ccl::to_string(collective)));
  }
  ProcessGroup group;
  try {
    d.init_process_group();
    require_modules_kept(o.observe, d.settings());
    if (!o.group.empty()) group = d.new_group(o.group);
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
  if (d.rank_mode() == runtime::distributed::RankMode::Pe) {
    constexpr const char* kWhole = "ranks are PEs here (rank: pe of ccl.yaml), and a tensor lies on its PE whole";
    if (o.layout != TensorLayout::Sharded) {
      throw UsageError(fmt::format("--layout: {}, which is not {} over cubes", kWhole, to_string(o.layout)));
    }
    if (o.cubes) throw UsageError(fmt::format("--cubes: {}, not on {} cubes", kWhole, *o.cubes));
  }
  const size_t ranks = d.get_process_group_ranks(group).size();
  if (o.root >= ranks) throw UsageError(fmt::format("--root: {} of a group of {} ranks", o.root, ranks));
  return group;
}

std::string describe_run(const AllReduceJob& job, const Machine& machine, const ProcessGroup& group) {
  const auto& d = machine.context->distributed;
  const SystemConfig& config = machine.context->config();
  const std::vector<uint32_t> ranks = d.get_process_group_ranks(group);
  const bool pes = d.rank_mode() == runtime::distributed::RankMode::Pe;
  return fmt::format("{}: {} ranks (rank = {}){}, {}, {} x {} cubes of {} PEs, {}", config.name, ranks.size(),
                     runtime::distributed::to_string(d.rank_mode()),
                     job.options.group.empty() ? "" : fmt::format(", group {}", fmt::join(ranks, ",")),
                     to_string(config.topology), config.cube_w, config.cube_h, config.pes,
                     pes ? "tensors whole on their PEs" : fmt::format("layout {}", to_string(job.options.layout)));
}

void run_collective(ccl::Collective collective, const AllReduceJob& job, AllReduceReport& report) {
  if (!job.sweep.empty()) {
    run_sweep(collective, job, report);
    return;
  }
  Observing observing(job.options.observe, job.outputs);
  auto* machine = new Machine(job.config, observing.parts());  // left to the operating system, see Machine
  TimeSplit* split = observing.attach(*machine, job.options.explain);
  machine->run([&] { run_sizes(collective, job, *machine, split, report); });
  observing.finish();
  if (job.options.quiet) return;
  for (const std::string& line : load_summary(*machine->system)) report.footer(line);
}

}  // namespace ahbm::platform
