#include "platform/commands.h"

#include "platform/all_reduce_runner.h"
#include "platform/bench_runner.h"
#include "platform/cli/all_reduce.h"
#include "platform/cli/bench.h"
#include "platform/collective_runner.h"

namespace ahbm::platform {

CommandTable commands() {
  CommandTable table;
  table.add(config_command());
  table.add(info_command());
  table.add(all_reduce_command(run_all_reduce));
  const std::pair<const char*, ccl::Collective> others[] = {
      {"all_gather", ccl::Collective::AllGather}, {"reduce_scatter", ccl::Collective::ReduceScatter},
      {"all_to_all", ccl::Collective::AllToAll},  {"broadcast", ccl::Collective::Broadcast},
      {"reduce", ccl::Collective::Reduce},        {"gather", ccl::Collective::Gather},
      {"scatter", ccl::Collective::Scatter},      {"sendrecv", ccl::Collective::SendRecv}};
  for (const auto& [name, collective] : others) {
    table.add(collective_command(name, [collective = collective](const AllReduceJob& job, AllReduceReport& report) {
      run_collective(collective, job, report);
    }));
  }
  table.add(bench_command(run_bench));
  return table;
}

}  // namespace ahbm::platform
