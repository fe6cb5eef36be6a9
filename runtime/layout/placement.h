// How a tensor lies along one dimension of a device mesh, and the list of these that describes it on the whole mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/core/chunk.h"
#include "models/core/dtype.h"
#include "runtime/layout/dims.h"

namespace ahbm::dtensor {

/// Every rank of the mesh dimension holds the same data.
struct Replicate {
  friend bool operator==(const Replicate&, const Replicate&) { return true; }
};
/// Tensor dimension `dim` is cut by torch.chunk's rule. Negative only before `normalize`.
struct Shard {
  int dim = 0;
  friend bool operator==(const Shard& a, const Shard& b) { return a.dim == b.dim; }
};
/// The extent is cut into `split_factor` chunks, each of them into as many as there are ranks; a rank holds its piece
/// of every chunk, one after the other. Expresses "a later mesh dimension was applied first". Never equal to a Shard.
struct StridedShard {
  int dim = 0;
  int64_t split_factor = 1;
  friend bool operator==(const StridedShard& a, const StridedShard& b) {
    return a.dim == b.dim && a.split_factor == b.split_factor;
  }
};
/// Every rank holds a piece of the whole shape; reducing the pieces with `op` gives the value.
struct Partial {
  ReduceOp op = ReduceOp::Sum;
  friend bool operator==(const Partial& a, const Partial& b) { return a.op == b.op; }
};
/// A p-norm whose sum over ranks is pending: raise to p, sum, take the root (inf: max, -inf: min, 0 and 1: plain sum).
struct NormPartial {
  double p = 2;
  friend bool operator==(const NormPartial& a, const NormPartial& b) { return a.p == b.p; }
};
/// Rows looked up in a table of `offset_shape` cut along `offset_dim`: entries of other ranks' rows are masked (the
/// mask belongs to the result, not to the placement); the reduction zeroes those and sums.
struct MaskPartial {
  SmallVector<int64_t, 2> offset_shape;  // shorter than Dims: every placement pays for it
  int offset_dim = 0;
  MaskPartial() = default;
  MaskPartial(const Dims& shape, int dim) : offset_shape(shape.begin(), shape.end()), offset_dim(dim) {}
  friend bool operator==(const MaskPartial& a, const MaskPartial& b) {
    return a.offset_dim == b.offset_dim && a.offset_shape == b.offset_shape;
  }
};

using Placement = std::variant<Replicate, Shard, StridedShard, Partial, NormPartial, MaskPartial>;
/// One per mesh dimension, outermost first.
using Placements = SmallVector<Placement, 3>;

inline bool is_replicate(const Placement& p) {
  return std::holds_alternative<Replicate>(p);
}
/// Shard or StridedShard.
inline bool is_shard(const Placement& p) {
  return std::holds_alternative<Shard>(p) || std::holds_alternative<StridedShard>(p);
}
/// Any of the three kinds of pending reduction.
inline bool is_partial(const Placement& p) {
  return p.index() >= 3;
}
inline bool is_partial(const Placement& p, ReduceOp op) {
  const auto* partial = std::get_if<Partial>(&p);
  return partial != nullptr && partial->op == op;
}
/// Partial(sum) or Partial(avg): what linear operators keep.
inline bool is_linear_partial(const Placement& p) {
  return is_partial(p, ReduceOp::Sum) || is_partial(p, ReduceOp::Avg);
}
/// The tensor dimension a (Strided)Shard cuts, -1 for the others.
inline int shard_dim(const Placement& p) {
  if (const auto* s = std::get_if<Shard>(&p)) return s->dim;
  if (const auto* s = std::get_if<StridedShard>(&p)) return s->dim;
  return -1;
}
inline bool is_shard(const Placement& p, int dim) {
  return is_shard(p) && shard_dim(p) == dim;
}
/// Whether a replicated value can become this without communication: not a product or a 0-norm, which no equal pieces
/// multiply or count up to.
bool has_share(const Placement& p);
/// The same kind of shard of another tensor dimension. \pre is_shard(p)
Placement with_dim(const Placement& p, int dim);
/// The operator a reduction of this placement uses on the wire. \pre is_partial(p)
ReduceOp wire_op(const Placement& p);

size_t hash_of(const Placement& p, size_t seed = 0);
size_t hash_of(const Placements& ps, size_t seed = 0);

std::string to_string(const Placement& p);       ///< S(0), SS(0,2), R, P(sum), NP(2), MP(13x4,0)
std::string to_string(const Placements& ps);     ///< [S(0), P(sum)]
std::string short_string(const Placements& ps);  ///< S0R, S0Psum: the form of plan traces

/// Reads the notation of `to_string`; P alone is P(sum). \throws std::invalid_argument naming the text and the notation
Placement parse_placement(std::string_view text);

/// Replicate on every mesh dimension.
Placements all_replicate(size_t mesh_ndim);
bool is_all_replicate(const Placements& ps);

/// Negative shard dimensions counted from the front, everything checked against the tensor and the mesh.
/// \throws PlacementsLengthMismatch, DimOutOfRange, MixedPartial; std::invalid_argument for a split factor below 1
Placements normalize(const Placements& ps, size_t mesh_ndim, size_t tensor_ndim);
/// Whether the pending reductions of one spec commute: all alike, or sum and avg together.
bool partials_commute(const Placements& ps);

/// What rank i of n holds of `extent` elements, as ranges of the extent in the order they lie in its local tensor: one
/// range (maybe empty) for a Shard, up to split_factor non-empty ones for a StridedShard, everything for the rest.
/// \pre i < n, n > 0
std::vector<Range> owned_ranges(const Placement& p, uint64_t extent, uint64_t n, uint64_t i);
/// Sum of the counts of `owned_ranges`.
uint64_t owned_count(const Placement& p, uint64_t extent, uint64_t n, uint64_t i);

}  // namespace ahbm::dtensor
