#include "runtime/layout/dtensor_spec.h"

#include <algorithm>

#include "runtime/layout/errors.h"

namespace ahbm::dtensor {

DTensorSpec::DTensorSpec(MeshPtr mesh, const Placements& placements, Dims shape, DType dtype,
                         std::optional<Dims> stride)
    : m_mesh(std::move(mesh)),
      m_placements(normalize(placements, m_mesh->ndim(), shape.size())),
      m_shape(std::move(shape)),
      m_stride(stride ? std::move(*stride) : contiguous_stride(m_shape)),
      m_dtype(dtype),
      m_numel(ahbm::dtensor::numel(m_shape)) {
  if (m_stride.size() != m_shape.size()) {
    throw ShapeMismatch("stride " + ahbm::dtensor::to_string(m_stride) + " for shape " +
                        ahbm::dtensor::to_string(m_shape) + ": expected as many entries");
  }
  finish();
}

DTensorSpec DTensorSpec::plain(Dims shape, DType dtype) {
  DTensorSpec out;
  out.m_numel = ahbm::dtensor::numel(shape);
  out.m_stride = contiguous_stride(shape);
  out.m_shape = std::move(shape);
  out.m_dtype = dtype;
  out.finish();
  return out;
}

void DTensorSpec::finish() {
  m_num_shards = 1;
  m_replicated = true;
  m_partial = false;
  for (size_t m = 0; m < m_placements.size(); ++m) {
    const Placement& p = m_placements[m];
    if (is_shard(p)) m_num_shards *= m_mesh->shape()[m];
    m_replicated = m_replicated && is_replicate(p);
    m_partial = m_partial || is_partial(p);
  }
  size_t h = hash_mix(m_mesh ? m_mesh->hash() : 0, static_cast<size_t>(m_dtype));
  h = ahbm::dtensor::hash_of(m_placements, h);
  h = ahbm::dtensor::hash_of(m_shape, h);
  m_hash = ahbm::dtensor::hash_of(m_stride, h);
}

DTensorSpec DTensorSpec::with_placements(const Placements& placements) const {
  return with_checked_placements(normalize(placements, m_mesh->ndim(), m_shape.size()));
}

DTensorSpec DTensorSpec::with_checked_placements(Placements placements) const {
  DTensorSpec out = *this;
  out.m_placements = std::move(placements);
  out.finish();
  return out;
}

bool operator==(const DTensorSpec& a, const DTensorSpec& b) {
  return &a == &b || (a.m_hash == b.m_hash && a.m_dtype == b.m_dtype && a.m_shape == b.m_shape &&
                      a.m_stride == b.m_stride && a.m_placements == b.m_placements && same_mesh(a.m_mesh, b.m_mesh));
}

std::string DTensorSpec::to_string() const {
  return std::string(ahbm::to_string(m_dtype)) + " " + ahbm::dtensor::to_string(m_shape) + " on " +
         m_mesh->to_string() + " as " + ahbm::dtensor::to_string(m_placements);
}

Dims local_shape(const MeshLayout& mesh, const Placements& placements, const Dims& shape,
                 const Coordinate& coordinate) {
  Dims out = shape;
  for (size_t m = 0; m < placements.size(); ++m) {
    const int d = shard_dim(placements[m]);
    if (d < 0) continue;
    auto& extent = out[static_cast<size_t>(d)];
    extent =
        static_cast<int64_t>(owned_count(placements[m], static_cast<uint64_t>(extent), mesh.shape()[m], coordinate[m]));
  }
  return out;
}

Dims local_shape(const DTensorSpec& spec, uint32_t rank) {
  const auto c = spec.mesh()->coordinate(rank);
  if (!c) return spec.ndim() == 0 ? Dims{} : Dims{0};
  return local_shape(*spec.mesh(), spec.placements(), spec.shape(), *c);
}

std::vector<Range> owned_along(const MeshLayout& mesh, const Placements& placements, const Dims& shape, int dim,
                               const Coordinate& coordinate) {
  std::vector<Range> held{{0, static_cast<uint64_t>(shape[static_cast<size_t>(dim)])}};
  for (size_t m = 0; m < placements.size(); ++m) {
    if (!is_shard(placements[m], dim)) continue;
    uint64_t extent = 0;
    for (const Range& r : held) extent += r.count;
    // Translate ranges of the current local extent to global ones.
    std::vector<Range> next;
    for (const Range& want : owned_ranges(placements[m], extent, mesh.shape()[m], coordinate[m])) {
      uint64_t at = 0;
      for (const Range& r : held) {
        const uint64_t lo = std::max(at, want.begin);
        const uint64_t hi = std::min(at + r.count, want.end());
        if (lo < hi) {
          const Range piece{r.begin + (lo - at), hi - lo};
          if (!next.empty() && next.back().end() == piece.begin) {
            next.back().count += piece.count;
          } else {
            next.push_back(piece);
          }
        }
        at += r.count;
      }
    }
    held = std::move(next);
  }
  if (held.size() == 1 && held[0].empty()) held.clear();
  return held;
}

LocalPart local_part(const DTensorSpec& spec, uint32_t rank) {
  const auto c = spec.mesh()->coordinate(rank);
  if (!c) return {local_shape(spec, rank), Dims{}};
  LocalPart out{local_shape(*spec.mesh(), spec.placements(), spec.shape(), *c), Dims(spec.ndim(), 0)};
  for (size_t d = 0; d < spec.ndim(); ++d) {
    bool cut = false;
    for (const Placement& p : spec.placements()) cut = cut || is_shard(p, static_cast<int>(d));
    if (!cut) continue;
    const auto held = owned_along(*spec.mesh(), spec.placements(), spec.shape(), static_cast<int>(d), *c);
    if (held.empty()) {
      (*out.offset)[d] = spec.shape()[d];
    } else if (held.size() == 1) {
      (*out.offset)[d] = static_cast<int64_t>(held[0].begin);
    } else {
      out.offset.reset();
      return out;
    }
  }
  return out;
}

GlobalInfo global_info(const MeshLayout& mesh, const Placements& placements, const Dims& local,
                       const Dims& local_stride) {
  const Placements normal = normalize(placements, mesh.ndim(), local.size());
  GlobalInfo out{local, local_stride};
  for (size_t m = 0; m < normal.size(); ++m) {
    const int dim = shard_dim(normal[m]);
    if (dim < 0) continue;
    const auto d = static_cast<size_t>(dim);
    const int64_t n = mesh.shape()[m];
    out.shape[d] *= n;
    for (size_t j = 0; j < out.stride.size(); ++j) {
      if (j != d && out.stride[j] >= out.stride[d]) out.stride[j] *= n;
    }
  }
  return out;
}

DTensorSpec spec_from_local(MeshPtr mesh, const Placements& placements, const Dims& local, const Dims& local_stride,
                            DType dtype, uint32_t rank, const std::optional<Dims>& shape,
                            const std::optional<Dims>& stride) {
  if (shape.has_value() != stride.has_value()) {
    throw ShapeStrideTogether(std::string("from_local with only ") + (shape ? "a shape" : "a stride") +
                              ": expected both or neither");
  }
  if (!shape) {
    GlobalInfo info = global_info(*mesh, placements, local, local_stride);
    return DTensorSpec(std::move(mesh), placements, std::move(info.shape), dtype, std::move(info.stride));
  }
  DTensorSpec spec(std::move(mesh), placements, *shape, dtype, *stride);
  if (const auto c = spec.mesh()->coordinate(rank)) {
    const Dims expected = local_shape(*spec.mesh(), spec.placements(), spec.shape(), *c);
    if (expected != local) {
      throw LocalShapeMismatch("rank " + std::to_string(rank) + " has a local tensor " + to_string(local) + " of " +
                               to_string(*shape) + " as " + to_string(spec.placements()) + ": expected " +
                               to_string(expected));
    }
  }
  return spec;
}

std::optional<std::vector<ShardOrderEntry>> shard_order(const MeshLayout& mesh, const Placements& placements) {
  std::vector<ShardOrderEntry> out;
  for (size_t m = placements.size(); m-- > 0;) {
    const int d = shard_dim(placements[m]);
    if (d < 0) continue;
    auto it = std::find_if(out.begin(), out.end(), [&](const ShardOrderEntry& e) { return e.tensor_dim == d; });
    if (it == out.end()) it = out.insert(out.end(), ShardOrderEntry{d, {}});
    const auto* strided = std::get_if<StridedShard>(&placements[m]);
    const int64_t factor = strided != nullptr ? strided->split_factor : 1;
    // The later mesh dimensions that cut before this one are those whose sizes multiply to the split factor.
    int64_t product = 1;
    size_t at = 0;
    while (product < factor && at < it->mesh_dims.size()) product *= mesh.shape()[it->mesh_dims[at++]];
    if (product != factor) return std::nullopt;
    it->mesh_dims.insert(it->mesh_dims.begin() + static_cast<std::ptrdiff_t>(at), static_cast<uint32_t>(m));
  }
  std::sort(out.begin(), out.end(),
            [](const ShardOrderEntry& a, const ShardOrderEntry& b) { return a.tensor_dim < b.tensor_dim; });
  return out;
}

Placements placements_of(const MeshLayout& mesh, const std::vector<ShardOrderEntry>& order) {
  Placements out = all_replicate(mesh.ndim());
  for (const ShardOrderEntry& entry : order) {
    for (size_t i = 0; i < entry.mesh_dims.size(); ++i) {
      const uint32_t m = entry.mesh_dims[i];
      if (m >= mesh.ndim() || !is_replicate(out[m])) {
        throw MeshError("shard order names mesh dimension " + std::to_string(m) +
                        (m >= mesh.ndim() ? ": expected one below " + std::to_string(mesh.ndim())
                                          : " twice: expected each at most once"));
      }
      int64_t factor = 1;
      for (size_t j = 0; j < i; ++j) {
        if (entry.mesh_dims[j] > m) factor *= mesh.shape()[entry.mesh_dims[j]];
      }
      if (factor == 1) {
        out[m] = Shard{entry.tensor_dim};
      } else {
        out[m] = StridedShard{entry.tensor_dim, factor};
      }
    }
  }
  return out;
}

std::vector<DistributeStep> plan_distribute(const DTensorSpec& target, bool allow_partial) {
  std::vector<DistributeStep> out;
  for (uint32_t m = 0; m < target.mesh()->ndim(); ++m) {
    const Placement& p = target.placements()[m];
    DistributeStep step{m, DistributeStep::Action::Broadcast};
    if (is_shard(p)) {
      step.action = DistributeStep::Action::Scatter;
    } else if (is_partial(p)) {
      if (!allow_partial || !std::holds_alternative<Partial>(p) || is_partial(p, ReduceOp::Product)) {
        throw UnsupportedPlacement("distribute_tensor to " + to_string(target.placements()) + ": expected S, SS or R" +
                                   (allow_partial ? ", or P(sum|avg|max|min)" : ""));
      }
      step.action = DistributeStep::Action::BroadcastAndDivide;
    }
    out.push_back(step);
  }
  return out;
}

}  // namespace ahbm::dtensor
