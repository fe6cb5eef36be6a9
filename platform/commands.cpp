#include "platform/commands.h"

namespace ahbm::platform {

CommandTable commands() {
  CommandTable table;
  table.add(config_command());
  table.add(info_command());
  return table;
}

}  // namespace ahbm::platform
