#include "runtime/layout/redistribute_plan.h"

#include <algorithm>
#include <cmath>

#include "runtime/layout/errors.h"

namespace ahbm::dtensor {
namespace {

[[noreturn]] void unsupported(const Placement& from, const Placement& to) {
  throw UnsupportedTransition(to_string(from) + " to " + to_string(to) +
                              ": no such change of placement; expected S or R in one of the two");
}

PlanStep make_step(uint32_t mesh_dim, uint32_t n, const Placement& from, const Placement& to) {
  PlanStep step{mesh_dim, from, to};
  if (n == 1) return step;
  if (is_shard(from)) {
    if (is_replicate(to)) {
      step.transition = Transition::Gather;
      step.collective = CollectiveKind::AllGather;
    } else if (!is_shard(to)) {
      unsupported(from, to);
    } else if (shard_dim(from) == shard_dim(to)) {
      step.transition = Transition::GatherCut;
      step.collective = CollectiveKind::AllGather;
    } else {
      step.transition = Transition::Exchange;
      step.collective = CollectiveKind::AllToAll;
    }
  } else if (is_partial(from)) {
    step.reduce_op = wire_op(from);
    if (is_replicate(to)) {
      step.transition = Transition::Reduce;
      step.collective = CollectiveKind::AllReduce;
    } else if (is_shard(to)) {
      step.transition = Transition::ReduceCut;
      step.collective = CollectiveKind::ReduceScatter;
    } else {
      unsupported(from, to);
    }
  } else if (is_shard(to)) {
    step.transition = Transition::Cut;
  } else if (!has_share(to)) {
    unsupported(from, to);
  } else if (const auto* partial = std::get_if<Partial>(&to)) {
    step.transition = partial->op == ReduceOp::Sum ? Transition::Divide : Transition::Keep;
  } else if (const auto* norm = std::get_if<NormPartial>(&to)) {
    step.transition = std::isinf(norm->p) ? Transition::Keep : Transition::ScaleNorm;
  } else if (std::holds_alternative<MaskPartial>(to)) {
    step.transition = Transition::MaskIndices;
  }
  return step;
}

void emit(RedistributePlan& plan, uint32_t m, Placement& cur, const Placement& to) {
  plan.steps.push_back(make_step(m, plan.mesh->shape()[m], cur, to));
  cur = to;
}

// Whether the mesh dimensions before m cut tensor dimension d in the same way in both lists.
bool same_outer_shards(const Placements& a, const Placements& b, size_t m, int d) {
  for (size_t i = 0; i < m; ++i) {
    const bool in_a = is_shard(a[i], d);
    const bool in_b = is_shard(b[i], d);
    if (in_a != in_b || (in_a && !(a[i] == b[i]))) return false;
  }
  return true;
}

// Extent of tensor dimension d that the group of mesh dimension m shares at this coordinate.
int64_t extent_over(const RedistributePlan& plan, const Placements& cur, size_t m, int d, const Coordinate& c) {
  auto extent = static_cast<uint64_t>(plan.shape[static_cast<size_t>(d)]);
  for (size_t i = 0; i < m; ++i) {
    if (is_shard(cur[i], d)) extent = owned_count(cur[i], extent, plan.mesh->shape()[i], c[i]);
  }
  return static_cast<int64_t>(extent);
}

// The ranks along `dims` (ascending) that share the other coordinates with c, row-major; `position`: c's own.
RankList group_along(const MeshLayout& mesh, const std::vector<uint32_t>& dims, const Coordinate& c,
                     uint32_t& position) {
  uint32_t n = 1;
  position = 0;
  for (const uint32_t d : dims) {
    n *= mesh.shape()[d];
    position = position * mesh.shape()[d] + c[d];
  }
  RankList out;
  out.reserve(n);
  Coordinate at = c;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t rest = i;
    for (size_t k = dims.size(); k-- > 0;) {
      at[dims[k]] = rest % mesh.shape()[dims[k]];
      rest /= mesh.shape()[dims[k]];
    }
    out.push_back(mesh.rank_at(at));
  }
  return out;
}

}  // namespace

const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::None:
      return "none";
    case CollectiveKind::AllGather:
      return "all_gather";
    case CollectiveKind::AllReduce:
      return "all_reduce";
    case CollectiveKind::ReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::AllToAll:
      return "all_to_all";
    case CollectiveKind::Broadcast:
      return "broadcast";
    case CollectiveKind::Scatter:
      return "scatter";
  }
  return "?";
}

const char* to_string(Transition t) {
  switch (t) {
    case Transition::Keep:
      return "keep";
    case Transition::Cut:
      return "cut";
    case Transition::Gather:
      return "gather";
    case Transition::Exchange:
      return "exchange";
    case Transition::GatherCut:
      return "gather_cut";
    case Transition::Reduce:
      return "reduce";
    case Transition::ReduceCut:
      return "reduce_cut";
    case Transition::Divide:
      return "divide";
    case Transition::ScaleNorm:
      return "scale_norm";
    case Transition::MaskIndices:
      return "mask_indices";
  }
  return "?";
}

uint32_t RedistributePlan::collectives() const {
  uint32_t n = 0;
  for (const PlanStep& s : steps) n += s.collective != CollectiveKind::None ? 1 : 0;
  return n;
}

Placements RedistributePlan::before(size_t step) const {
  Placements cur = source;
  for (size_t i = 0; i < step; ++i) cur[steps[i].mesh_dim] = steps[i].to;
  return cur;
}

Placements check_redistribute(const DTensorSpec& source, const Placements& target) {
  Placements to = normalize(target, source.mesh()->ndim(), source.ndim());
  for (size_t m = 0; m < to.size(); ++m) {
    if (is_partial(to[m]) && !(to[m] == source.placements()[m])) {
      throw IllegalRedistribute("redistribute of " + to_string(source.placements()) + " to " + to_string(to) +
                                ": a Partial target is allowed only where the source is the same Partial, but mesh "
                                "dimension " +
                                std::to_string(m) + " is " + to_string(source.placements()[m]));
    }
  }
  return to;
}

RedistributePlan plan_redistribute(const DTensorSpec& source, const Placements& target, Legality legality) {
  RedistributePlan plan{source.mesh(), source.shape(), source.placements(), {}, {}};
  if (legality == Legality::User) {
    plan.target = check_redistribute(source, target);
  } else {
    plan.target = target;
  }
  const auto ndim = static_cast<uint32_t>(plan.source.size());
  // Shares of new Partials are taken last. They are local, and earlier they could stand between a pending reduction of
  // another kind and its value: a third of each factor is not a third of the product.
  Placements moved = plan.target;
  for (uint32_t m = 0; m < ndim; ++m) {
    if (!is_partial(moved[m]) || moved[m] == plan.source[m]) continue;
    if (is_shard(plan.source[m]) && plan.mesh->shape()[m] > 1) unsupported(plan.source[m], moved[m]);
    moved[m] = Replicate{};
  }
  Placements cur = plan.source;
  bool sharded = false;
  for (const Placement& p : cur) sharded = sharded || is_shard(p);
  if (sharded) {
    const Placement replicate = Replicate{};
    for (uint32_t m = ndim; m-- > 0;) {
      const Placement& wanted = moved[m];
      const int d = shard_dim(wanted);
      const Placement& to = d < 0 || same_outer_shards(cur, moved, m, d) ? wanted : replicate;
      if (!(cur[m] == to)) emit(plan, m, cur[m], to);
    }
  }
  for (uint32_t m = 0; m < ndim; ++m) {
    if (!(cur[m] == moved[m])) emit(plan, m, cur[m], moved[m]);
  }
  for (uint32_t m = 0; m < ndim; ++m) {
    if (!(cur[m] == plan.target[m])) emit(plan, m, cur[m], plan.target[m]);
  }
  return plan;
}

StepOnRank step_on_rank(const RedistributePlan& plan, size_t step, const Coordinate& coordinate) {
  return step_on_rank(plan, MergedStep{step, 1, {plan.steps[step].mesh_dim}}, coordinate);
}

StepOnRank step_on_rank(const RedistributePlan& plan, const MergedStep& merged, const Coordinate& c) {
  const PlanStep& step = plan.steps[merged.first];
  const MeshLayout& mesh = *plan.mesh;
  // Parts of merged steps nest without a gap, so they are those of one dimension in the place of the outermost.
  const size_t m = merged.mesh_dims.front();
  Placements cur = plan.before(merged.first);
  StepOnRank out;
  out.group = group_along(mesh, merged.mesh_dims, c, out.group_rank);
  const auto n = static_cast<uint32_t>(out.group.size());
  out.before = local_shape(mesh, cur, plan.shape, c);
  out.from_dim = shard_dim(step.from);
  out.to_dim = shard_dim(step.to);
  if (out.from_dim >= 0) {
    out.from_extent = extent_over(plan, cur, m, out.from_dim, c);
    // Rank 0 of a group holds the largest part, strided or not.
    out.from_chunk = static_cast<int64_t>(owned_count(step.from, static_cast<uint64_t>(out.from_extent), n, 0));
  }
  if (out.to_dim >= 0) {
    out.to_extent = extent_over(plan, cur, m, out.to_dim, c);
    out.to_chunk = static_cast<int64_t>(owned_count(step.to, static_cast<uint64_t>(out.to_extent), n, 0));
  }
  if (const auto* mask = std::get_if<MaskPartial>(&step.to); mask != nullptr) {
    // Nested cuts of the table's rows: every mesh dimension with the same mask cuts what the ones before left over.
    auto extent = static_cast<uint64_t>(mask->offset_shape[static_cast<size_t>(mask->offset_dim)]);
    for (size_t i = 0; i < m; ++i) {
      if (plan.target[i] == step.to) extent = torch_chunk(extent, mesh.shape()[i], c[i]).count;
    }
    out.rows = torch_chunk(extent, n, c[m]);
  }
  for (const uint32_t dim : merged.mesh_dims) cur[dim] = step.to;
  out.after = local_shape(mesh, cur, plan.shape, c);
  if (step.collective == CollectiveKind::None) return out;

  out.send_shape = out.before;
  out.recv_shape = out.after;
  const auto from = static_cast<size_t>(out.from_dim);
  const auto to = static_cast<size_t>(out.to_dim);
  switch (step.transition) {
    case Transition::Gather:
    case Transition::GatherCut:
      out.send_shape[from] = out.from_chunk;
      out.recv_shape = out.send_shape;
      out.recv_shape[from] = out.from_chunk * n;
      break;
    case Transition::Exchange:
      out.send_shape[from] = out.from_chunk;
      out.send_shape[to] = out.to_chunk * n;
      out.recv_shape = out.send_shape;
      out.recv_shape[from] = out.from_chunk * n;
      out.recv_shape[to] = out.to_chunk;
      break;
    case Transition::ReduceCut:
      out.send_shape[to] = out.to_chunk * n;
      out.recv_shape = out.send_shape;
      out.recv_shape[to] = out.to_chunk;
      break;
    default:
      break;
  }
  out.send_elements = numel(out.send_shape);
  return out;
}

std::string to_string(const PlanStep& step) {
  return std::to_string(step.mesh_dim) + ":" + to_string(step.from) + "->" + to_string(step.to);
}

std::string trace(const RedistributePlan& plan) {
  Placements cur = plan.source;
  std::string out = short_string(cur);
  for (const PlanStep& step : plan.steps) {
    cur[step.mesh_dim] = step.to;
    out += "→" + short_string(cur);
  }
  return out;
}

std::string mesh_dims_string(const std::vector<uint32_t>& mesh_dims) {
  std::string out;
  for (const uint32_t d : mesh_dims) out += (out.empty() ? "" : "+") + std::to_string(d);
  return out;
}

std::string collective_string(CollectiveKind kind, uint32_t mesh_dim, ReduceOp op) {
  return collective_string(kind, std::vector<uint32_t>{mesh_dim}, op);
}

std::string collective_string(CollectiveKind kind, const std::vector<uint32_t>& mesh_dims, ReduceOp op) {
  std::string out = std::string(to_string(kind)) + "@" + mesh_dims_string(mesh_dims);
  const bool reduces = kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
  if (reduces && op != ReduceOp::Sum) out += std::string(":") + ahbm::to_string(op);
  return out;
}

std::vector<std::string> collective_sequence(const RedistributePlan& plan, const HasGroup& has_group) {
  std::vector<std::string> out;
  for (const MergedStep& m : merge_steps(plan, has_group)) {
    const PlanStep& s = plan.steps[m.first];
    if (s.collective != CollectiveKind::None) out.push_back(collective_string(s.collective, m.mesh_dims, s.reduce_op));
  }
  return out;
}

std::vector<MergedStep> merge_steps(const RedistributePlan& plan, const HasGroup& has_group) {
  std::vector<MergedStep> out;
  for (size_t i = 0; i < plan.steps.size();) {
    const PlanStep& first = plan.steps[i];
    MergedStep merged{i, 1, {first.mesh_dim}};
    const bool mergeable =
        has_group && (first.transition == Transition::Gather || first.transition == Transition::Reduce ||
                      first.transition == Transition::ReduceCut);
    const Placement& cut = first.transition == Transition::Gather ? first.from : first.to;
    const bool plain = is_replicate(cut) || std::holds_alternative<Shard>(cut);
    const bool masked = std::holds_alternative<MaskPartial>(first.from);
    while (mergeable && plain && !masked && i + merged.count < plan.steps.size()) {
      const PlanStep& next = plan.steps[i + merged.count];
      if (!(next.from == first.from) || !(next.to == first.to) || next.transition != first.transition) break;
      std::vector<uint32_t> dims = merged.mesh_dims;
      dims.insert(std::upper_bound(dims.begin(), dims.end(), next.mesh_dim), next.mesh_dim);
      if (is_shard(cut)) {
        // Even over everything that cuts this tensor dimension while the steps run.
        const Placements cur = plan.before(first.transition == Transition::Gather ? i : i + merged.count + 1);
        int64_t product = 1;
        for (size_t m = 0; m < cur.size(); ++m) {
          if (is_shard(cur[m], shard_dim(cut))) product *= plan.mesh->shape()[m];
        }
        if (plan.shape[static_cast<size_t>(shard_dim(cut))] % product != 0) break;
      }
      if (!has_group(dims)) break;
      merged.mesh_dims = std::move(dims);
      ++merged.count;
    }
    i += merged.count;
    out.push_back(std::move(merged));
  }
  return out;
}

}  // namespace ahbm::dtensor
