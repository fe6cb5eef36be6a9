#include "runtime/nn/parallel.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace ahbm::nn {

using dtensor::Replicate;
using dtensor::Shard;

namespace {

/// A plain tensor as the part of a distributed one.
Value taken_for(const Value& v, const DeviceMesh& mesh, const Placement& layout) {
  if (v.is_distributed()) return v;
  return dtensor::from_local(v.tensor(), mesh, {layout});
}

Value laid_out(const Value& v, const Placement& layout, bool local) {
  const DTensor out = v.distributed().redistribute({layout});
  if (local) return out.to_local();
  return out;
}

/// One style on one module.
class Application {
 public:
  Application(Module& module, std::string path, const DeviceMesh& mesh, const ParallelizeOptions& options)
      : m_module(module), m_path(std::move(path)), m_mesh(mesh), m_options(options) {}

  void operator()(const ColwiseParallel& style) const {
    const bool table = table_or_linear("ColwiseParallel");
    distribute([&](const std::string&) { return Placement(Shard{table ? 1 : 0}); });
    bring_input(style.input_layout, Replicate{});
    bring_output(style.output_layout, style.use_local_output);
  }

  void operator()(const RowwiseParallel& style) const {
    const bool table = table_or_linear("RowwiseParallel");
    distribute([&](const std::string& name) {
      if (table) return Placement(Shard{0});
      return name == "weight" ? Placement(Shard{1}) : Placement(Replicate{});
    });
    const Placement wanted = table ? Placement(Replicate{}) : Placement(Shard{-1});
    bring_input(style.input_layout.value_or(wanted), wanted);
    bring_output(style.output_layout, style.use_local_output);
  }

  void operator()(const SequenceParallel& style) const {
    replicate_parameters();
    bring_input(Shard{style.sequence_dim}, Shard{style.sequence_dim});
    bring_output(Shard{style.sequence_dim}, style.use_local_output);
  }

  void operator()(const ReplicateParallel& style) const {
    replicate_parameters();
    bring_input(Replicate{}, Replicate{});
    bring_output(Replicate{}, style.use_local_output);
  }

  void operator()(const PrepareModuleInput& style) const {
    if (style.input_layouts.size() != style.desired_input_layouts.size()) {
      throw std::invalid_argument(fmt::format("PrepareModuleInput of {}: {} input layouts and {} desired ones", where(),
                                              style.input_layouts.size(), style.desired_input_layouts.size()));
    }
    m_module.add_pre_hook([style, mesh = m_mesh, where = where()](Values& inputs) {
      if (inputs.size() != style.input_layouts.size()) {
        throw std::invalid_argument(fmt::format("PrepareModuleInput of {}: {} inputs, but {} layouts", where,
                                                inputs.size(), style.input_layouts.size()));
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!style.input_layouts[i] || !style.desired_input_layouts[i]) continue;
        inputs[i] = laid_out(taken_for(inputs[i], mesh, *style.input_layouts[i]), *style.desired_input_layouts[i],
                             style.use_local_output);
      }
    });
  }

  void operator()(const PrepareModuleOutput& style) const {
    m_module.add_post_hook([style, mesh = m_mesh](Value& output) {
      output =
          laid_out(taken_for(output, mesh, style.output_layout), style.desired_output_layout, style.use_local_output);
    });
  }

 private:
  std::string where() const {
    return m_path.empty() ? std::string(m_module.kind()) : fmt::format("'{}' ({})", m_path, m_module.kind());
  }

  /// True for an Embedding. \throws std::invalid_argument for anything but that and a Linear
  bool table_or_linear(const char* style) const {
    const bool table = std::strcmp(m_module.kind(), "Embedding") == 0;
    if (!table && std::strcmp(m_module.kind(), "Linear") != 0) {
      throw std::invalid_argument(fmt::format("{} of {}: expected a Linear or an Embedding", style, where()));
    }
    return table;
  }

  void distribute(const std::function<Placement(const std::string&)>& placement_of) const {
    dtensor::DistributeOptions options;
    options.src_data_rank = m_options.src_data_rank;
    for (const auto& [name, value] : m_module.own_parameters()) {
      *value = dtensor::distribute_tensor(value->tensor(), m_mesh, {placement_of(name)}, options);
    }
  }

  void replicate_parameters() const {
    distribute([](const std::string&) { return Placement(Replicate{}); });
  }

  void bring_input(const Placement& from, const Placement& to) const {
    m_module.add_pre_hook([from, to, mesh = m_mesh](Values& inputs) {
      inputs.at(0) = laid_out(taken_for(inputs.at(0), mesh, from), to, false);
    });
  }

  void bring_output(const Placement& to, bool local) const {
    m_module.add_post_hook([to, local](Value& output) { output = laid_out(output, to, local); });
  }

  Module& m_module;
  std::string m_path;
  const DeviceMesh& m_mesh;
  const ParallelizeOptions& m_options;
};

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    out.push_back(path.substr(at, dot - at));
    at = dot + 1;
  }
  return out;
}

bool matches(const std::string& pattern, const std::string& path) {
  const auto wanted = parts_of(pattern);
  const auto have = parts_of(path);
  return std::equal(wanted.begin(), wanted.end(), have.begin(), have.end(),
                    [](const auto& w, const auto& h) { return fnmatch(w.c_str(), h.c_str(), 0) == 0; });
}

void require_1d(const DeviceMesh& mesh) {
  if (mesh.ndim() == 1) return;
  throw dtensor::UnsupportedMesh(fmt::format(
      "parallelize_module on {}: expected a 1-d mesh; slice it, for example mesh[\"tp\"]", mesh.to_string()));
}

}  // namespace

void parallelize_module(Module& module, const DeviceMesh& mesh, const ParallelStyle& style,
                        const ParallelizeOptions& options) {
  require_1d(mesh);
  std::visit(Application(module, "", mesh, options), style);
}

void parallelize_module(Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const ParallelizeOptions& options) {
  require_1d(mesh);
  const auto modules = module.modules();
  for (const auto& [pattern, style] : plan) {
    bool found = false;
    for (const auto& [path, child] : modules) {
      if (!matches(pattern, path)) continue;
      found = true;
      std::visit(Application(*child, path, mesh, options), style);
    }
    if (found) continue;
    std::vector<std::string> paths;
    for (const auto& entry : modules) paths.push_back(entry.first);
    throw std::invalid_argument(fmt::format("parallelize_module: '{}' names no module; there are {}", pattern,
                                            fmt::join(paths.begin() + 1, paths.end(), ", ")));
  }
}

// --- plans

namespace {

PrepareModuleInput gather_sequence() {
  return {{Placement(Shard{1})}, {Placement(Replicate{})}, false};
}

/// Between the layers of a pair features stay cut, as a distributed tensor; behind it the output is whole on every
/// rank, or cut along the sequence and then distributed, because a sequence may be cut unevenly.
const ColwiseParallel kFirst{Replicate{}, Shard{-1}, false};
RowwiseParallel second(const PlanOptions& options, int sequence_dim = 1) {
  RowwiseParallel out;
  if (options.sequence_parallel) out.output_layout = Shard{sequence_dim};
  out.use_local_output = !options.sequence_parallel;
  return out;
}

void append(ParallelPlan& plan, const std::string& prefix, const ParallelPlan& more) {
  for (const auto& [pattern, style] : more) {
    plan.emplace_back(pattern.empty() ? prefix : prefix + '.' + pattern, style);
  }
}

}  // namespace

ParallelPlan mlp_plan(const PlanOptions& options) {
  ParallelPlan plan;
  if (options.sequence_parallel) plan.emplace_back("", gather_sequence());
  plan.emplace_back("up", kFirst);
  plan.emplace_back("down", second(options));
  return plan;
}

ParallelPlan attention_plan(const AttentionConfig& config, uint32_t ranks, const PlanOptions& options) {
  ParallelPlan plan;
  if (options.sequence_parallel) plan.emplace_back("", gather_sequence());
  plan.emplace_back("wq", kFirst);
  for (const char* name : {"wk", "wv"}) {
    if (config.keys() % ranks == 0) {
      plan.emplace_back(name, kFirst);
    } else {
      plan.emplace_back(name, ReplicateParallel{});
    }
  }
  plan.emplace_back("wo", second(options));
  return plan;
}

ParallelPlan transformer_plan(const TransformerConfig& config, uint32_t ranks, const PlanOptions& options) {
  ParallelPlan plan;
  plan.emplace_back("tokens", second(options, 1));
  plan.emplace_back("positions", second(options, 0));
  for (auto& entry : plan) std::get<RowwiseParallel>(entry.second).input_layout = Replicate{};
  if (config.layers > 0) {
    append(plan, "layers.*.attention", attention_plan(config.attention, ranks, options));
    append(plan, "layers.*.mlp", mlp_plan(options));
  }
  if (options.sequence_parallel) {
    if (config.layers > 0) {
      plan.emplace_back("layers.*.attention_norm", SequenceParallel{});
      plan.emplace_back("layers.*.mlp_norm", SequenceParallel{});
    }
    plan.emplace_back("norm", SequenceParallel{});
  }
  ColwiseParallel head;
  if (options.sequence_parallel) head.input_layout = Shard{1};
  if (options.loss_parallel) {
    head.use_local_output = false;
  } else {
    head.output_layout = Replicate{};
  }
  plan.emplace_back("head", head);
  return plan;
}

}  // namespace ahbm::nn
