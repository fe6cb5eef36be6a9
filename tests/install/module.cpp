// A shared object with algorithm modules; the definitions of CMakeLists.txt choose what is wrong with it.
#include <stdexcept>

#include "ccl/algorithms/modules.h"
#include "ccl/module_file.h"

#if defined(MODULE_SILENT)
// Loadable, without the function that it should have.
extern "C" int something_else() {
  return 0;
}
#elif defined(MODULE_ABI)
extern "C" int ahbm_register(ahbm::ccl::Registry&, uint32_t abi) {
  return static_cast<int>(abi) + 40;
}
#else
[[maybe_unused]] static ahbm::ccl::AlgorithmModule module_named(const char* name, const char* kernel) {
  ahbm::ccl::AlgorithmModule m = ahbm::ccl::ring_module();
  m.name = name;
  m.kernel_name = kernel;
  m.kernel = [](ahbm::tl::Tl& tl, const ahbm::tl::Args&) { tl.wait_all(); };
  return m;
}

AHBM_ALGORITHM_MODULE(registry) {
#if defined(MODULE_GOOD)
  registry.add(module_named("mine", "my_kernel"));
#elif defined(MODULE_TWO)
  registry.add(module_named("first", "first_kernel"));
  registry.add(module_named("second", "second_kernel"));
#elif defined(MODULE_THROWING)
  registry.add(module_named("half", "half_kernel"));
  throw std::runtime_error("no licence");
#elif defined(MODULE_CLASH)
  registry.add(module_named("aaa", "aaa_kernel"));
  registry.add(module_named("ring", "zzz_kernel"));
#elif defined(MODULE_KERNEL_CLASH)
  registry.add(module_named("other", "ccl_ring"));
#else
  (void)registry;
#endif
}
#endif
