// Internal to runtime/dtensor: plans carried out on the machine.
#pragma once

#include <functional>
#include <vector>

#include "runtime/dtensor/dtensor.h"
#include "runtime/layout/redistribute_plan.h"

namespace ahbm::dtensor {

/// This rank's part of a distributed tensor while it is moved around.
struct Part {
  Tensor tensor;
  std::vector<Tensor> masks;  ///< of MaskPartial entries: true where the row is elsewhere
  bool owned = false;         ///< nobody else sees the memory: it may be changed in place
};

/// Something under way: `finish` waits for it and gives the part.
using Finish = std::function<Part()>;

/// Carries out a plan on this rank's part; ranks outside the mesh must not call it.
/// \param policy  how results lie on cubes and PEs
Part redistribute_part(const DeviceMesh& mesh, const RedistributePlan& plan, Part part, const DPPolicy& policy);
/// Returns once the plan's last collective is under way.
Finish start_redistribute(const DeviceMesh& mesh, const RedistributePlan& plan, Part part, const DPPolicy& policy);

/// Elements `ranges` of `dim`, one after another, as a part of `chunk` elements along `dim`; what lies behind them is
/// whatever the memory held.
Tensor cut_padded(Context& context, const Tensor& t, int dim, const std::vector<Range>& ranges, int64_t chunk,
                  const DPPolicy& policy);
/// A copy that nobody else sees.
Part owned(Context& context, Part part);
/// This rank's share of a replicated value under a pending reduction.
Part share_of(Context& context, Part part, const Placement& to, uint32_t n, uint32_t position);
/// What a rank outside the mesh holds.
Tensor nothing_of(Context& context, const DTensorSpec& spec);

}  // namespace ahbm::dtensor
