// ccl.yaml: every text is a set of settings or a ConfigError (std::invalid_argument for a world that cannot be).
#include <stdexcept>

#include "models/core/errors.h"
#include "runtime/distributed/ccl_config.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ahbm;
  try {
    const auto settings = runtime::distributed::parse_ccl_config(fuzz::text_of(data, size), "fuzz.yaml");
    const SystemConfig config;
    const auto world = runtime::distributed::resolve_world(settings, config);
    if (world.size == 0 || world.size > config.total_pes()) fuzz::broken("a world of " + std::to_string(world.size));
  } catch (const ConfigError&) {
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
