#include "ccl/algorithms/modules.h"

#include <fmt/format.h>

#include <stdexcept>

#include "ccl/algorithms/cube_mesh.h"
#include "ccl/kernel_arguments.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {

using tl::Axis;
using tl::Dir;

void sip_ring_kernel(tl::Tl& tl, const tl::Args& args, LaneAllReduce all_reduce) {
  const CollectiveArguments a = unpack_arguments(args);
  if (a.layout == CubeLayout::Partial) {
    throw std::invalid_argument("a ring between SIPs reduces no partial sums of cubes: use the algorithm intercube");
  }
  if (a.world_size == 1) return;
  const RingOrder ring =
      ring_order(static_cast<SipTopology>(a.sip_topo_kind), a.sip_topo_w, a.sip_topo_h, a.world_size);
  if (!ring.refusal.empty()) throw std::invalid_argument(ring.refusal);
  Lane lane{a.buffer, a.n_elem, a.dtype, a.op, a.world_size, ring.position(a.sip_rank)};
  if (a.layout == CubeLayout::Sharded) {
    all_reduce(tl, lane);
    return;
  }
  const CubeShape shape(a.cube_w, tl.num_programs(Axis::Cube));
  const uint32_t cube = tl.program_id(Axis::Cube);
  const Range slice = aligned_chunk(a.n_elem, shape.n, cube);
  lane.buffer = a.at(slice.begin);
  lane.count = slice.count;
  all_reduce(tl, lane);
  tl.wait_all();
  gather_slices(tl, shape, cube, {a.buffer, a.n_elem, a.dtype, a.op});
}

AlgorithmModule sip_ring_module_base() {
  AlgorithmModule m;
  m.collective = Collective::AllReduce;
  m.ops = {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};
  m.dtypes = {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32};
  m.layouts = {CubeLayout::Sharded, CubeLayout::Replicated};
  m.refusal = [](const Group& g) { return ring_order(g).refusal; };
  m.kernel_args = builtin_kernel_args;
  m.connections = [](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    append_mesh_connections(g, out);
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) append_ring_connections(g, cube, out);
    return out;
  };
  return m;
}

void append_ring_connections(const Group& group, uint32_t cube, std::vector<Connection>& out) {
  const RingOrder ring = ring_order(group);
  if (!ring.refusal.empty()) throw std::invalid_argument(ring.refusal);
  const uint32_t n = group.size();
  for (uint32_t p = 0; p < n && n > 1; ++p) {
    out.push_back({ring.order[p], cube, Dir::Next, ring.order[(p + 1) % n], cube, Dir::Prev});
  }
}

std::vector<ReduceTree> lanes_order_of_reduction(const Group& group, uint64_t count, CubeLayout layout,
                                                 LaneOrder lane_order) {
  if (layout == CubeLayout::Partial && group.n_cubes > 1) {
    throw std::invalid_argument("no order of reduction for partial sums of cubes: use the algorithm intercube");
  }
  const RingOrder ring = ring_order(group);
  if (!ring.refusal.empty()) throw std::invalid_argument(ring.refusal);
  const uint32_t lanes = layout == CubeLayout::Replicated ? group.n_cubes : 1;
  std::vector<ReduceTree> out;
  for (const Range& slice : chunks(count, lanes)) {
    for (ReduceTree& tree : lane_order(slice.count, group.size())) {
      tree.range.begin += slice.begin;
      for (int32_t& leaf : tree.postfix) {
        if (leaf >= 0) leaf = static_cast<int32_t>(ring.order[static_cast<size_t>(leaf)]);
      }
      out.push_back(std::move(tree));
    }
  }
  return out;
}

double bidirectional_seconds(const CostQuery& q) {
  if (q.ranks < 2) return 0;
  const bool shared =
      q.group != nullptr && (q.group->topology == SipTopology::Switch || (q.ranks == 2 && !q.group->double_links));
  const double links = shared ? 1 : 2;
  const double f = (q.ranks - 1.0) / q.ranks;
  return 2.0 * (q.ranks / 2) * q.latency + 2 * f * q.bytes / (links * q.bandwidth);
}

double gather_seconds(const CostQuery& q) {
  if (q.layout != CubeLayout::Replicated || q.group == nullptr || q.group->n_cubes < 2 || q.ranks < 2) return 0;
  const CubeShape s(q.group->cube_w, q.group->n_cubes);
  const double cubes = s.n;
  return (s.w - 1 + s.rows() - 1) * q.cube_latency + (cubes - 1) / cubes * q.bytes / q.cube_bandwidth;
}

}  // namespace ahbm::ccl
