// A simulated machine with its runtime, as the commands of ahbm-vp use it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ccl/algorithm.h"
#include "models/system/system.h"
#include "models/tl/kernel_registry.h"
#include "runtime/context.h"

namespace ahbm::platform {

/// Elaborates the machine in the current simulation context, before the first one runs. Never taken down: destroying a
/// large module tree takes longer than building it, so programs leave that to the operating system.
class Machine {
 public:
  explicit Machine(const SystemConfig& config, models::SystemParts parts = {}, const char* name = "system");

  /// Runs `body` as the driver process until it returns. \throws what `body` threw
  void run(const std::function<void()>& body);

  ccl::Registry algorithms;
  tl::KernelRegistry kernels;
  std::unique_ptr<models::System> system;
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::Context> context;
};

}  // namespace ahbm::platform
