#include <cstdio>
#include <cstring>
#include <systemc>

#include "ahbm/version.h"
#include "models/core/config/load_config.h"
#include "models/system/system.h"

int sc_main(int, char**) {
  ahbm::tl::KernelRegistry kernels;
  ahbm::models::System system("system", ahbm::load_system_config(PLATFORMS "/single.yaml"), kernels);
  sc_core::sc_start(1, sc_core::SC_NS);
  std::printf("ahbm %s, %u SIP\n", AHBM_VERSION_STRING, system.config().sips);
  return system.config().sips == 1 ? 0 : 1;
}
