// What the layout algebra refuses, one class per kind. Every check depends on global metadata only, so all ranks raise
// alike and before any collective. A caller that needs just the kind catches `LayoutError`; one that thinks in the
// Python surface's terms catches std::runtime_error (RuntimeError), std::invalid_argument (ValueError) or
// std::out_of_range (KeyError, IndexError).
#pragma once

#include <stdexcept>
#include <string>

namespace ahbm::dtensor {

class LayoutError {
 public:
  virtual ~LayoutError() = default;
  virtual const char* kind() const noexcept = 0;     ///< e.g. "IllegalView"
  virtual const char* message() const noexcept = 0;  ///< same as what()
};

template <typename Base>
class LayoutErrorOf : public Base, public LayoutError {
 public:
  using Base::Base;
  const char* message() const noexcept override { return Base::what(); }
};

#define AHBM_LAYOUT_ERROR(name, base)                            \
  class name : public LayoutErrorOf<base> {                      \
   public:                                                       \
    using LayoutErrorOf<base>::LayoutErrorOf;                    \
    const char* kind() const noexcept override { return #name; } \
  }

/// Number of placements != number of mesh dimensions.
AHBM_LAYOUT_ERROR(PlacementsLengthMismatch, std::invalid_argument);
/// A dimension outside [-ndim, ndim), a Shard of a 0-d tensor, a permutation that is none, an index past the end.
AHBM_LAYOUT_ERROR(DimOutOfRange, std::out_of_range);
/// Operands or target on different meshes.
AHBM_LAYOUT_ERROR(MeshMismatch, std::runtime_error);
/// A plain tensor of more than one element beside a DTensor, without implicit replication.
AHBM_LAYOUT_ERROR(MixedTensor, std::runtime_error);
/// Global shapes the operator cannot take.
AHBM_LAYOUT_ERROR(ShapeMismatch, std::runtime_error);
/// A Partial placement in distribute_tensor or a factory.
AHBM_LAYOUT_ERROR(UnsupportedPlacement, std::runtime_error);
/// distribute_tensor of a DTensor with other placements.
AHBM_LAYOUT_ERROR(AlreadyDistributed, std::invalid_argument);
/// redistribute to a Partial that is not the source's own.
AHBM_LAYOUT_ERROR(IllegalRedistribute, std::runtime_error);
/// from_local with only one of shape and stride.
AHBM_LAYOUT_ERROR(ShapeStrideTogether, std::runtime_error);
/// from_local with a shape whose chunk on this rank is not the local tensor.
AHBM_LAYOUT_ERROR(LocalShapeMismatch, std::runtime_error);
/// run_check found different dtype, shape or stride.
AHBM_LAYOUT_ERROR(MetadataMismatch, std::invalid_argument);
/// An in-place operator that would change the placements of its first operand.
AHBM_LAYOUT_ERROR(InplaceRedistribute, std::runtime_error);
/// A view no local reshape can express.
AHBM_LAYOUT_ERROR(IllegalView, std::runtime_error);
/// An operator that needs (unbind) or forbids (loss parallel) a whole dimension.
AHBM_LAYOUT_ERROR(ShardedDim, std::runtime_error);
/// Mean loss over a batch that is not cut evenly.
AHBM_LAYOUT_ERROR(UnevenMean, std::invalid_argument);
/// An n-d mesh where a 1-d one is needed.
AHBM_LAYOUT_ERROR(UnsupportedMesh, std::invalid_argument);
AHBM_LAYOUT_ERROR(MeshError, std::runtime_error);
/// A mesh dimension name that does not exist or is out of order.
AHBM_LAYOUT_ERROR(MeshKeyError, std::out_of_range);
/// Pending reductions that do not commute in one spec.
AHBM_LAYOUT_ERROR(MixedPartial, std::runtime_error);
/// A change of placement that cannot be done, e.g. Shard to Partial.
AHBM_LAYOUT_ERROR(UnsupportedTransition, std::runtime_error);
/// An operator that would move data inside an ExplicitRedistribution scope.
AHBM_LAYOUT_ERROR(ImplicitRedistribution, std::runtime_error);
/// Anything that would need autograd: this runtime is forward-only.
AHBM_LAYOUT_ERROR(ForwardOnly, std::runtime_error);

#undef AHBM_LAYOUT_ERROR

}  // namespace ahbm::dtensor
