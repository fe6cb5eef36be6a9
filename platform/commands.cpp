#include "platform/commands.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "platform/bench_runner.h"
#include "platform/cli/all_reduce.h"
#include "platform/cli/bench.h"
#include "platform/cli/tune.h"
#include "platform/collective_runner.h"
#include "platform/tune_runner.h"
#include "runtime/distributed/ccl_config.h"

namespace ahbm::platform {

namespace {

std::string describe_ranks(const SystemConfig& config) {
  using namespace runtime::distributed;
  // Only collectives need the file.
  const bool there = !config.ccl_file.empty() && std::filesystem::exists(config.ccl_file);
  const CclSettings settings = there ? load_ccl_config(config.ccl_file) : CclSettings();
  const World world = resolve_world(settings, config);
  return fmt::format("Ranks of collectives: {} (rank = {}), {}", world.size, to_string(world.mode),
                     there ? "algorithm " + settings.algorithm : "no ccl.yaml");
}

}  // namespace

CommandTable commands() {
  CommandTable table;
  table.add(config_command());
  table.add(info_command(describe_ranks));
  table.add(all_reduce_command([](const AllReduceJob& job, AllReduceReport& report) {
    run_collective(ccl::Collective::AllReduce, job, report);
  }));
  const std::pair<const char*, ccl::Collective> others[] = {
      {"all_gather", ccl::Collective::AllGather}, {"reduce_scatter", ccl::Collective::ReduceScatter},
      {"all_to_all", ccl::Collective::AllToAll},  {"broadcast", ccl::Collective::Broadcast},
      {"reduce", ccl::Collective::Reduce},        {"gather", ccl::Collective::Gather},
      {"scatter", ccl::Collective::Scatter},      {"sendrecv", ccl::Collective::SendRecv}};
  std::map<std::string, ccl::Collective> tunable{{"all_reduce", ccl::Collective::AllReduce}};
  for (const auto& [name, collective] : others) {
    table.add(collective_command(name, [collective = collective](const AllReduceJob& job, AllReduceReport& report) {
      run_collective(collective, job, report);
    }));
    tunable.emplace(name, collective);
  }
  std::vector<std::string> names;
  for (const auto& [name, collective] : tunable) names.push_back(name);
  table.add(tune_command(names, [tunable](const std::string& name, const AllReduceJob& job, TuneReport& report) {
    run_tune(tunable.at(name), job, report);
  }));
  table.add(bench_command(run_bench));
  return table;
}

}  // namespace ahbm::platform
