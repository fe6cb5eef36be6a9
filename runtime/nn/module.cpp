#include "runtime/nn/module.h"

#include <algorithm>
#include <optional>

#include "runtime/dtensor/session.h"

namespace ahbm::nn {

Value Module::operator()(Values inputs) {
  std::optional<dtensor::InModule> in_module;
  const auto known = std::find_if(inputs.begin(), inputs.end(), [](const Value& v) { return v.defined(); });
  if (known != inputs.end()) in_module.emplace(known->context().dtensor_session(), m_name.empty() ? kind() : m_name);
  for (const PreHook& hook : m_before) hook(inputs);
  Value output = forward(inputs);
  for (const PostHook& hook : m_after) hook(output);
  return output;
}

std::vector<Module::NamedModule> Module::modules() {
  std::vector<NamedModule> out{{"", this}};
  for (const auto& [name, child] : m_children) {
    for (const auto& [path, module] : child->modules())
      out.emplace_back(path.empty() ? name : name + '.' + path, module);
  }
  return out;
}

std::vector<Module::NamedParameter> Module::parameters() {
  std::vector<NamedParameter> out;
  for (const auto& [path, module] : modules()) {
    for (const auto& [name, value] : module->own_parameters()) {
      out.emplace_back(path.empty() ? name : path + '.' + name, value);
    }
  }
  return out;
}

}  // namespace ahbm::nn
