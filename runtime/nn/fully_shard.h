// Parameters that are whole only while they are used, as FSDP2's forward: each rank of the data-parallel dimension
// holds its chunk of every parameter, one all_gather per module brings them together before its forward, and they are
// dropped behind it. Works on plain parameters and on those that tensor parallelism has cut already.
#pragma once

#include "runtime/nn/module.h"

namespace ahbm::nn {

/// Takes the parameters of `module` and below that no earlier call has taken: call it for the inner modules first, then
/// for the outer one. All of one dtype. Chunks of the first dimension by torch's rule, padded on the wire.
/// Rows that both dimensions cut so unevenly that no placements say it rest as S(0) of this rank's tensor part, on the
/// data dimension's own mesh.
/// \param mesh  1-d; or 2-d (data, tensor): then parameters may be distributed over the second dimension
/// \throws UnsupportedMesh for more dimensions, MeshMismatch for a parameter on another mesh, std::invalid_argument for
///   mixed dtypes, a 0-d parameter, or a module without parameters to take
void fully_shard(Module& module, const dtensor::DeviceMesh& mesh);

}  // namespace ahbm::nn
