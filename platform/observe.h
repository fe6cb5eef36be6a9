// Statistics, trace, waves, log and recorders around a run of a Machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/core/output_file.h"
#include "models/system/parts.h"
#include "platform/cli/observe_options.h"

namespace ahbm::models {
class System;
}
namespace ahbm::observe {
class Sink;
}

namespace ahbm::platform {

class Machine;
class TimeSplit;

/// Made before the machine, attached after it:
///   Observing observing(options);
///   Machine machine(config, observing.parts());
///   observing.attach(machine);
///   ... run ...
///   observing.finish();
/// When `finish` is not reached because the run failed, the destructor writes what there is.
class Observing {
 public:
  /// Opens the files. \param gate  of the command's files; null: they are emptied at once
  /// \throws UsageError when one cannot be written or a log rule is none
  explicit Observing(const ObserveOptions& options, const std::shared_ptr<OutputGate>& gate = {});
  ~Observing();
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

  /// `parts` with the recorders that the System must splice in.
  models::SystemParts parts(models::SystemParts parts = {});

  /// Answers the split of collectives' times, which `explain` asks for; a trace has it too. Null: nobody does.
  /// \throws UsageError for a filter that selects nothing and a recorder's path that no socket has
  TimeSplit* attach(Machine& machine, bool explain = false);

  /// Shows the machine to a sink of the caller's, too; after `attach`.
  void watch(Machine& machine, observe::Sink& sink);

  /// Ends and writes every file. \throws std::runtime_error when one could not be written completely
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

/// For a person: the five busiest links and where PEs waited, since time 0. Lines without line feeds.
std::vector<std::string> load_summary(models::System& system);

}  // namespace ahbm::platform
