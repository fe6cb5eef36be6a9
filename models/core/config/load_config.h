// From a topology file to a SystemConfig: YAML -> raw optionals -> resolved and validated. Keys, defaults and rules:
// docs/configuration.md.
#pragma once

#include <string>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/errors.h"

namespace ahbm {

/// What `-c` and `--set` give.
struct ConfigSource {
  std::string path_or_name;
  std::vector<std::string> sets;
};

/// Where a platform named on a command line lies: the path itself, else the path with `.yaml`, else the shipped
/// platform of that name. \throws ConfigError naming the nearest shipped platform
std::string find_config_file(const std::string& path_or_name);

/// Names of the shipped platforms, sorted.
std::vector<std::string> shipped_platforms();

/// \param path  file or name of a shipped platform (`large`)
/// \param sets  overrides `system.sips.count=8`, applied in order before validation
/// \throws ConfigError listing every mistake, one per line: `file:line:column: text`, `--set ...: text`
SystemConfig load_system_config(const std::string& path, const std::vector<std::string>& sets = {});
inline SystemConfig load_system_config(const ConfigSource& source) {
  return load_system_config(source.path_or_name, source.sets);
}

/// The same from a text. `ccl:` is relative to the folder of `file_name_for_errors`.
SystemConfig parse_system_config(const std::string& yaml_text, const std::string& file_name_for_errors,
                                 const std::vector<std::string>& sets = {});

/// The effective configuration: every key with its resolved value, as YAML that loads to an equal SystemConfig.
std::string to_yaml(const SystemConfig& config);

}  // namespace ahbm
