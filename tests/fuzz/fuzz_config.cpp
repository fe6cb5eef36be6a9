// Topology files: every text is a validated machine or a ConfigError, and what is accepted is written out as a file
// that means the same.
#include "models/core/config/load_config.h"
#include "models/core/errors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ahbm;
  std::string written;
  try {
    written = to_yaml(parse_system_config(fuzz::text_of(data, size), "fuzz.yaml"));
  } catch (const ConfigError& e) {
    if (*e.what() == '\0') fuzz::broken("a ConfigError without a text");
    return 0;
  }
  try {
    const std::string again = to_yaml(parse_system_config(written, "written.yaml"));
    if (again != written)
      fuzz::broken("the effective configuration changes when it is read again:\n" + written + again);
  } catch (const ConfigError& e) {
    fuzz::broken(std::string("the effective configuration is refused: ") + e.what() + '\n' + written);
  }
  return 0;
}
