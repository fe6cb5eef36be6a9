// Operators on the tensors of one SIP, each a kernel launch (or a few) on its PEs: what DTensor dispatches to on every
// rank, and what the functions of runtime/ops/functions.h are made of.
//
// Operators and their arguments are those of the layout library; so are the rules for shapes. A tensor may have extents
// of 0. Shapes here are local: nothing of this knows of ranks.
#pragma once

#include <optional>
#include <vector>

#include "runtime/context.h"
#include "runtime/layout/strategy.h"

namespace ahbm::runtime::ops {

/// What a result shall be: for view, expand, zeros_like and the like this is the only place that says the shape.
struct OpOutput {
  Shape shape;
  DType dtype = DType::Float32;
};

/// Runs an operator.
/// \param args     as in an OpDecision: dimensions counted from the front, sizes resolved, slices clamped
/// \param outputs  one per result
/// \param policy   how the results lie on cubes and PEs; default: as the first input. With `args.inplace` the result is
///   the first input itself.
/// dtypes: moving, choosing and comparing take every one; what computes takes float, half, bfloat16 and int32, and
///   refuses int32 where torch would give a float; matmuls, folds and rows compute half and bfloat16 in fp32.
/// layer_norm adds 1e-5 to the variance, rms_norm the distance from 1 to the next number of the dtype; another epsilon
/// is
///   `args.value`. std and var divide by n - 1. triu and tril begin at diagonal `args.index`. cross_entropy takes class
///   indices. Equal gives one Bool and needs no entry in `outputs`.
/// Order of sums: inside a PE's shard by tl::Tl::fold (fold_down where what is left lies beside it), tile after tile,
/// then
///   PE by PE in ascending order; matmuls add in ascending k.
/// Reductions of no elements give the identity of their operator (0, 1, -inf for max, inf for min; mean: NaN).
/// \throws std::invalid_argument for inputs on another SIP, NotImplementedError for a dtype the operator does not do
std::vector<Tensor> execute(Context& context, dtensor::Op op, const dtensor::OpArgs& args,
                            const std::vector<Tensor>& inputs, const std::vector<OpOutput>& outputs,
                            const std::optional<DPPolicy>& policy = std::nullopt);

/// A block of elements that moves: dst[dst_begin + i] = src at, for every dimension d of dst with src_dim[d] >= 0,
/// index src_begin[src_dim[d]] + src_step[d] * i[d]; dimensions with src_dim -1 repeat the same elements.
struct Box {
  dtensor::Dims extent;     ///< of dst's rank
  dtensor::Dims dst_begin;  ///< of dst's rank
  dtensor::Dims src_begin;  ///< of src's rank
  dtensor::SmallVector<int, 6> src_dim;
  dtensor::Dims src_step;  ///< of dst's rank
};
/// The plain box: same dimensions on both sides, step 1.
Box box(dtensor::Dims extent, dtensor::Dims dst_begin, dtensor::Dims src_begin);

/// Moves boxes from one tensor of this SIP to another, whatever their policies, converting to dst's dtype. Boxes must
/// lie inside both and not overlap in dst. \throws std::out_of_range naming box and shape
void copy_boxes(Context& context, const Tensor& dst, const Tensor& src, const std::vector<Box>& boxes);

/// A tensor of `shape` whose elements are `value`. By a kernel, not by an upload.
Tensor filled(Context& context, const Shape& shape, double value, DType dtype, const DPPolicy& policy);
/// The same elements under another policy (a new tensor; the same one when the policy is its own already).
Tensor relayout(Context& context, const Tensor& t, const DPPolicy& policy);
/// `t` with `dim` extended to `extent` by zeros at its end.
Tensor pad(Context& context, const Tensor& t, size_t dim, uint64_t extent);
/// Ranges of `dim`, one after another.
Tensor take(Context& context, const Tensor& t, size_t dim, const std::vector<Range>& ranges);

/// Indices into a table of which this SIP holds `rows`: the ones inside shifted to begin at 0, the others 0 and marked.
struct MaskedIndices {
  Tensor indices;
  Tensor mask;  ///< Bool, of the indices' shape: true where the row is elsewhere
};
MaskedIndices mask_indices(Context& context, const Tensor& indices, const Range& rows);
/// Zeroes in place the elements of `t` whose leading index (of the mask's shape) is marked.
void zero_masked(Context& context, const Tensor& t, const Tensor& mask);

}  // namespace ahbm::runtime::ops
