// Tensor parallelism declared from outside, as torch.distributed.tensor.parallel: a plan says by name which layers of a
// plain model are cut, and how; parameters become distributed tensors, and hooks bring inputs and outputs into the
// layouts that the plan names. The operators find the collectives.
//
//   parallelize_module(mlp, mesh["tp"], {{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}});
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/nn/layers.h"

namespace ahbm::nn {

using dtensor::DeviceMesh;
using dtensor::Placement;

// A plain tensor that arrives is taken for the rank's part in the input layout; without more knowledge than that, all
// ranks' parts have to be equal, as in torch. Styles that pass distributed tensors on work for uneven sizes too.

/// Linear: weight and bias S(0). Embedding: weight S(1). The output's features are cut.
struct ColwiseParallel {
  Placement input_layout = dtensor::Replicate{};
  Placement output_layout = dtensor::Shard{-1};
  bool use_local_output = true;
};
/// Linear: weight S(1), bias replicated and added once. Embedding: weight S(0). Default input: features cut; of an
/// Embedding: replicated. The output is a pending sum, brought to the output layout: an all_reduce or reduce_scatter.
struct RowwiseParallel {
  std::optional<Placement> input_layout;
  Placement output_layout = dtensor::Replicate{};
  bool use_local_output = true;
};
/// Parameters replicated, activations cut along the sequence.
struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = false;
};
/// Not of torch: parameters and activations replicated, as distributed tensors.
struct ReplicateParallel {
  bool use_local_output = false;
};
/// Inputs by position; nothing: left alone.
struct PrepareModuleInput {
  std::vector<std::optional<Placement>> input_layouts, desired_input_layouts;
  bool use_local_output = false;
};
struct PrepareModuleOutput {
  Placement output_layout, desired_output_layout;
  bool use_local_output = true;
};
using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, ReplicateParallel,
                                   PrepareModuleInput, PrepareModuleOutput>;
/// Patterns of module paths, part by part: layers.*.mlp.up. Applied in order; a module may get several.
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

struct ParallelizeOptions {
  /// Group rank whose parameters count; nothing: each rank cuts its own, no communication.
  std::optional<uint32_t> src_data_rank = 0;
};

/// Called by all ranks of a 1-d mesh. \throws UnsupportedMesh on an n-d mesh (slice it), std::invalid_argument for a
/// pattern that names no module, and a style that the module's kind does not take
void parallelize_module(Module& module, const DeviceMesh& mesh, const ParallelStyle& style,
                        const ParallelizeOptions& options = {});
void parallelize_module(Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const ParallelizeOptions& options = {});

/// Plans for the modules of layers.h on `ranks` ranks. Key heads that `ranks` does not divide are replicated.
struct PlanOptions {
  bool sequence_parallel = false;  ///< between attention and MLP activations are cut along the sequence
  bool loss_parallel = false;      ///< logits stay cut by vocabulary, as a distributed tensor
};
ParallelPlan mlp_plan(const PlanOptions& options = {});
ParallelPlan attention_plan(const AttentionConfig& config, uint32_t ranks, const PlanOptions& options = {});
ParallelPlan transformer_plan(const TransformerConfig& config, uint32_t ranks, const PlanOptions& options = {});

}  // namespace ahbm::nn
