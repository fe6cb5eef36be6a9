// Internal: a cross entropy that leaves out the targets of one value, made of other operators; the same on tensors of
// one SIP and on distributed ones, whose placements decide what is reduced over ranks.
#pragma once

#include "runtime/layout/strategy.h"

namespace ahbm::runtime::ops {

/// \param left_out  Bool: the targets that do not count
/// \param per_token  the losses of targets that are all inside the classes
template <typename T, typename Loss>
T ignoring(const T& target, const T& left_out, dtensor::LossReduction reduction, Loss&& per_token) {
  const T losses = masked_fill(per_token(masked_fill(target, left_out, 0)), left_out, 0);
  if (reduction == dtensor::LossReduction::None) return losses;
  // In fp32: a count of half or bfloat16 would be rounded.
  const T total = sum(cast(losses, DType::Float32));
  if (reduction == dtensor::LossReduction::Sum) return cast(total, losses.dtype());
  return cast(total / sum(cast(logical_not(left_out), DType::Float32)), losses.dtype());
}

}  // namespace ahbm::runtime::ops
