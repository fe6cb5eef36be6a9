// Modules as in torch.nn, forward only: parameters by name, children by name, and hooks around `forward`, which is how
// the parallel styles and sharded parameters work on modules that know nothing of them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/nn/value.h"

namespace ahbm::nn {

class Module {
 public:
  using PreHook = std::function<void(Values& inputs)>;
  using PostHook = std::function<void(Value& output)>;

  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual const char* kind() const = 0;  ///< Linear, Embedding, ...
  /// Hooks in the order in which they were added, forward between them. What they communicate is counted as the
  /// module's (dtensor::CommDebugMode), by its name as a child, else its kind.
  Value operator()(Values inputs);
  Value operator()(const Value& input) { return (*this)(Values{input}); }

  void add_pre_hook(PreHook hook) { m_before.push_back(std::move(hook)); }
  void add_post_hook(PostHook hook) { m_after.push_back(std::move(hook)); }

  using NamedParameter = std::pair<std::string, Value*>;
  using NamedModule = std::pair<std::string, Module*>;
  const std::vector<NamedParameter>& own_parameters() const { return m_parameters; }
  const std::vector<NamedModule>& children() const { return m_children; }
  /// Of this module and all below, by path: layers.0.mlp.up.weight.
  std::vector<NamedParameter> parameters();
  /// This one (with an empty path) and all below.
  std::vector<NamedModule> modules();

 protected:
  virtual Value forward(const Values& inputs) = 0;
  void add_parameter(const char* name, Value& value) { m_parameters.emplace_back(name, &value); }
  void add_child(const std::string& name, Module& module) {
    module.m_name = name;
    m_children.emplace_back(name, &module);
  }

 private:
  std::string m_name;  ///< as a child; empty: it is nobody's
  std::vector<NamedParameter> m_parameters;
  std::vector<NamedModule> m_children;
  std::vector<PreHook> m_before;
  std::vector<PostHook> m_after;
};

}  // namespace ahbm::nn
