// What all commands that run something have in common: the end of a run and their JSON files.
#pragma once

#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/core/config/system_config.h"
#include "platform/cli/command.h"

namespace ahbm::platform {

/// {"command", "version", "config", "notes", "results": []}; `config` loads again as a topology file.
nlohmann::ordered_json run_document(const std::string& command, const SystemConfig& config,
                                    const std::vector<std::string>& notes);

/// "error", and of a stall the rows of the report as "stall". \param failure  what ended the run, or null
void add_failure(nlohmann::ordered_json& document, const std::exception* failure);

/// Runs the job and ends its report, also when the run breaks off. Returns the exit code. What is refused (UsageError,
/// ConfigError) before its first row leaves all files as they were.
template <typename Runner, typename Job, typename Report>
int run_and_report(const Runner& runner, const Job& job, Report& report) {
  try {
    runner(job, report);
  } catch (const UsageError& e) {
    job.outputs->refuse();
    report.finish(&e);
    throw;
  } catch (const ConfigError& e) {
    job.outputs->refuse();
    report.finish(&e);
    throw;
  } catch (const std::exception& e) {
    report.finish(&e);
    throw;
  }
  return report.finish();
}

}  // namespace ahbm::platform
