#include "platform/machine.h"

#include <utility>

#include "runtime/kernels/operator_kernels.h"

namespace ahbm::platform {

Machine::Machine(const SystemConfig& config, models::SystemParts parts) {
  tl::register_builtin_kernels(kernels);
  kernels::register_operator_kernels(kernels);
  ccl::register_builtin_algorithms(algorithms);
  for (const auto& [name, module] : algorithms.modules()) kernels.add(module.kernel_name, module.kernel);
  system = std::make_unique<models::System>("system", config, kernels, std::move(parts));
  device = std::make_unique<runtime::Device>(*system);
  context = std::make_unique<runtime::Context>(*device, &algorithms);
}

void Machine::run(const std::function<void()>& body) {
  runtime::Driver driver([&] {
    body();
    // Nothing else of this program is to be simulated; clocks of foreign modules would go on for ever.
    sc_core::sc_pause();
  });
  sc_core::sc_start();
  driver.check();
}

}  // namespace ahbm::platform
