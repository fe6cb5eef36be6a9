#include "platform/commands.h"

#include "platform/all_reduce_runner.h"
#include "platform/cli/all_reduce.h"

namespace ahbm::platform {

CommandTable commands() {
  CommandTable table;
  table.add(config_command());
  table.add(info_command());
  table.add(all_reduce_command(run_all_reduce));
  return table;
}

}  // namespace ahbm::platform
