// Algorithm modules in shared objects: what `module: ./libmine.so` in ccl.yaml loads.
//
// The object defines one function, which AHBM_ALGORITHM_MODULE writes down:
//
//   #include "ccl/module_file.h"
//   AHBM_ALGORITHM_MODULE(registry) { registry.add(my_module()); }
//
// It links its own copy of ahbm::ccl: nothing is resolved against the program that loads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ccl/algorithm.h"
#include "models/tl/kernel_registry.h"

/// Defines `ahbm_register` of a shared object and opens the function in which `registry` is filled.
#define AHBM_ALGORITHM_MODULE(registry)                                                                               \
  static void ahbm_register_modules(::ahbm::ccl::Registry&);                                                          \
  extern "C" __attribute__((visibility("default"))) int ahbm_register(::ahbm::ccl::Registry& modules, uint32_t abi) { \
    if (abi != ::ahbm::ccl::kAbiVersion) return static_cast<int>(::ahbm::ccl::kAbiVersion);                           \
    ahbm_register_modules(modules);                                                                                   \
    return 0;                                                                                                         \
  }                                                                                                                   \
  static void ahbm_register_modules(::ahbm::ccl::Registry& registry)

namespace ahbm::ccl {

/// `ahbm_register` adds the object's modules and returns 0. For an ABI that it was not built for it adds nothing and
/// returns the number of its own.
using RegisterFn = int (*)(Registry& registry, uint32_t abi);
constexpr const char* kRegisterSymbol = "ahbm_register";

/// Whether a `module:` names a file: it has a slash.
bool is_module_file(const std::string& module);

/// Adds the modules of a shared object to `registry` and their kernels to `kernels`, all or nothing. The object stays
/// loaded until the program ends; the same file again is fine and adds nothing.
/// \returns its modules by name, as they are in `registry`
/// \throws ConfigError naming the file and the reason: no such file, not loadable, no ahbm_register, built for another
///         ABI, no module in it, an invalid module, or a name (module's or kernel's) that stands for another one
///         already
std::vector<const AlgorithmModule*> load_module_file(const std::string& path, Registry& registry,
                                                     tl::KernelRegistry& kernels);

}  // namespace ahbm::ccl
