// All-reduce of a tensor that is partial over the cubes: every cube of every SIP holds a sum of its own. The mesh of
// each SIP is reduced to the cube in its centre, these reduce between the SIPs, and the result is broadcast back over
// the mesh. reduce(S) + all-reduce(S) + broadcast(S), the mesh parts pipelined message by message. Between the SIPs:
//   intercube       the bidirectional ring
//   intercube_mesh  mesh_2d, along lines, for rectangles of a grid without a Hamiltonian cycle, and lines
//
// Order of the reduction. Inside a SIP every cube takes its own contribution first, then the sums of its neighbours W,
// E, N, S, as far as they are its children in the tree of cube_mesh.h. Between the SIPs: as ring_bidirectional.cpp or
// grid.cpp. An average divides by the ranks; the cubes' contributions are parts of one rank's tensor and are summed.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ccl/algorithms/cube_mesh.h"
#include "ccl/algorithms/modules.h"
#include "ccl/kernel_arguments.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Axis;

template <LaneAllReduce kAllReduce>
void intercube_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const uint64_t count = a.take();
  const uint32_t cube_w = a.take32();
  const uint32_t cubes = tl.num_programs(Axis::Cube), cube = tl.program_id(Axis::Cube);
  if (a.layout != CubeLayout::Partial && cubes > 1) {
    throw std::invalid_argument("intercube reduces tensors that are partial over the cubes, not " +
                                std::string(to_string(a.layout)) + " ones: use ring or ring_bidirectional");
  }
  const CubeShape shape(cube_w, cubes);
  const CubeBuffer buffer{a.output, count, a.dtype, a.op};
  reduce_to_root(tl, shape, cube, buffer);
  if (cube == tree_root(shape) && tl.num_programs(Axis::Sip) > 1) {
    tl.wait_all();
    kAllReduce(tl, a, a.output, count);
  }
  if (cube == tree_root(shape)) tl.wait_all();
  broadcast_from_root(tl, shape, cube, buffer);
}

/// Seconds of a reduction or broadcast over the cube mesh in messages of a slot of 4 KiB.
double mesh_seconds(const CostQuery& q) {
  if (q.group == nullptr || q.group->n_cubes < 2) return 0;
  const double depth = tree_depth(CubeShape(q.group->cube_w, q.group->n_cubes));
  const double pieces = std::max(1.0, std::ceil(q.bytes / 4064));
  return (depth + pieces - 1) * (q.cube_latency + q.bytes / pieces / q.cube_bandwidth);
}

AlgorithmModule module_between_cubes(const LaneModule& lane) {
  AlgorithmModule m = sip_all_reduce_module(lane);
  m.layouts = {CubeLayout::Partial};
  m.connections = [connections = lane.connections](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    append_mesh_connections(g, out);
    connections(g, tree_root(CubeShape(g.cube_w, g.n_cubes)), out);
    return out;
  };
  m.traffic.asks = true;
  m.time = [time = lane.time](const CostQuery& q) { return time(q) + 2 * mesh_seconds(q); };
  m.reduction_order = [order = lane.order](const Group& g, const CollectiveShape& shape) {
    if (shape.layout != CubeLayout::Partial && g.n_cubes > 1) {
      throw std::invalid_argument("a reduction between cubes has an order of reduction for partial tensors only");
    }
    const CubeShape mesh(g.cube_w, g.n_cubes);
    std::vector<ReduceTree> trees = order(g, shape.count);
    for (ReduceTree& tree : trees) {
      std::vector<int32_t> expanded;
      for (int32_t leaf : tree.postfix) {
        if (leaf < 0) {
          expanded.push_back(leaf);
        } else {
          append_tree_order(mesh, leaf * static_cast<int32_t>(g.n_cubes), expanded);
        }
      }
      tree.postfix = std::move(expanded);
    }
    return trees;
  };
  return m;
}

}  // namespace

std::vector<AlgorithmModule> intercube_modules() {
  AlgorithmModule by_ring = module_between_cubes(
      advising(bidirectional_lane_module(), "intercube_mesh runs on lines and rectangles without one"));
  by_ring.name = "intercube";
  by_ring.kernel_name = "ccl_intercube";
  by_ring.doc =
      "tensor partial over the cubes: reduce to the centre of each mesh, ring between the SIPs, broadcast back";
  by_ring.kernel = intercube_kernel<bidirectional_lane>;

  AlgorithmModule by_mesh = module_between_cubes(advising(mesh_lane_module(), "intercube runs on it"));
  by_mesh.name = "intercube_mesh";
  by_mesh.kernel_name = "ccl_intercube_mesh";
  by_mesh.doc = "tensor partial over the cubes: as intercube, but along the lines of a mesh between the SIPs";
  by_mesh.kernel = intercube_kernel<grid_lane>;
  return {by_ring, by_mesh};
}

}  // namespace ahbm::ccl
