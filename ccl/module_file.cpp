#include "ccl/module_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "models/core/errors.h"

namespace ahbm::ccl {

bool is_module_file(const std::string& module) {
  return module.find('/') != std::string::npos;
}

std::vector<const AlgorithmModule*> load_module_file(const std::string& path, Registry& registry,
                                                     tl::KernelRegistry& kernels) {
  const auto refuse = [&](const std::string& why) { return ConfigError(fmt::format("{}: {}", path, why)); };
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) throw refuse("no such file; expected a shared object with algorithm modules");
  void* const object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    const char* const why = dlerror();
    throw refuse(fmt::format("cannot be loaded: {}", why != nullptr ? why : "no reason given"));
  }
  const auto register_modules = reinterpret_cast<RegisterFn>(dlsym(object, kRegisterSymbol));
  if (register_modules == nullptr) {
    throw refuse(fmt::format("has no function '{}'; define it with AHBM_ALGORITHM_MODULE", kRegisterSymbol));
  }

  Registry own;
  int answer = 0;
  try {
    answer = register_modules(own, kAbiVersion);
  } catch (const std::exception& e) {
    throw refuse(fmt::format("{} failed: {}", kRegisterSymbol, e.what()));
  }
  if (answer != 0) {
    throw refuse(fmt::format("built for ABI {} of algorithm modules, expected {}: build it anew", answer, kAbiVersion));
  }
  if (own.modules().empty()) throw refuse(fmt::format("{} added no algorithm module", kRegisterSymbol));

  // Everything is looked at before anything is added.
  for (const auto& [name, module] : own.modules()) {
    const AlgorithmModule* const known = registry.find(name);
    if (known != nullptr && known->kernel != module.kernel) {
      throw refuse(fmt::format("an algorithm module named '{}' exists already", name));
    }
    const tl::KernelRegistry::Entry* const kernel = kernels.find(module.kernel_name);
    if (kernel != nullptr && kernel->fn != module.kernel) {
      throw refuse(fmt::format("module '{}': a kernel named '{}' exists already", name, module.kernel_name));
    }
  }
  std::vector<const AlgorithmModule*> out;
  for (const auto& [name, module] : own.modules()) {
    kernels.add(module.kernel_name, module.kernel);
    if (registry.find(name) == nullptr) registry.add(module);
    out.push_back(registry.find(name));
  }
  return out;
}

}  // namespace ahbm::ccl
