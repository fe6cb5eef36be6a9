#include "ccl/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "ccl/algorithms/modules.h"

namespace ahbm::ccl {

const char* to_string(Collective c) {
  static constexpr const char* kNames[] = {"all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
                                           "all_to_all", "gather",    "scatter", "send_recv",  "barrier"};
  return kNames[static_cast<size_t>(c)];
}

const char* to_string(CubeLayout l) {
  static constexpr const char* kNames[] = {"sharded", "replicated", "partial"};
  return kNames[static_cast<size_t>(l)];
}

bool reduces(Collective c) {
  return c == Collective::AllReduce || c == Collective::Reduce || c == Collective::ReduceScatter;
}

uint64_t CollectiveShape::block_begin(uint32_t rank) const {
  if (counts.empty()) return rank * count;
  return std::accumulate(counts.begin(), counts.begin() + rank, uint64_t{0});
}

double link_bandwidth(const CostQuery& q, double links) {
  double rate = q.bandwidth;
  for (const double shared : {q.node_bandwidth, q.mesh_bandwidth}) {
    if (shared > 0) rate = std::min(rate, shared / links);
  }
  return rate;
}

CollectiveShape lane_shape(uint64_t count, CubeLayout layout) {
  CollectiveShape shape;
  shape.count = count;
  shape.layout = layout;
  return shape;
}

uint64_t input_elements(Collective c, uint32_t rank, uint32_t n, const CollectiveShape& shape) {
  switch (c) {
    case Collective::Reduce:
      return shape.count;
    case Collective::AllGather:
    case Collective::Gather:
      return shape.block(rank);
    case Collective::ReduceScatter:
      return shape.total(n);
    case Collective::Scatter:
      return rank == shape.root ? shape.total(n) : 0;
    case Collective::SendRecv:
      return rank == shape.root ? shape.count : 0;
    case Collective::AllToAll: {
      uint64_t sum = 0;
      for (uint32_t to = 0; to < n; ++to) sum += shape.sent(n, rank, to);
      return sum;
    }
    default:
      return 0;
  }
}

uint64_t output_elements(Collective c, uint32_t rank, uint32_t n, const CollectiveShape& shape) {
  switch (c) {
    case Collective::AllReduce:
    case Collective::Broadcast:
      return shape.count;
    case Collective::Reduce:
      return rank == shape.root ? shape.count : 0;
    case Collective::AllGather:
      return shape.total(n);
    case Collective::Gather:
      return rank == shape.root ? shape.total(n) : 0;
    case Collective::ReduceScatter:
    case Collective::Scatter:
      return shape.block(rank);
    case Collective::SendRecv:
      return rank == shape.peer ? shape.count : 0;
    case Collective::AllToAll: {
      uint64_t sum = 0;
      for (uint32_t from = 0; from < n; ++from) sum += shape.sent(n, from, rank);
      return sum;
    }
    case Collective::Barrier:
      break;
  }
  return 0;
}

std::vector<Connection> connections_of(const AlgorithmModule& module, const Group& group,
                                       const CollectiveShape& shape) {
  std::vector<Connection> out = module.connections(group, shape);
  const auto check = [&](uint32_t rank, uint32_t cube) {
    if (rank < group.size() && cube < group.n_cubes) return;
    throw std::runtime_error(
        fmt::format("algorithm module '{}' connects rank {} cube {}; the group has {} ranks of {} cubes", module.name,
                    rank, cube, group.size(), group.n_cubes));
  };
  for (const Connection& c : out) {
    check(c.rank, c.cube);
    check(c.peer_rank, c.peer_cube);
  }
  return out;
}

void Registry::add(AlgorithmModule module) {
  if (module.name.empty()) throw std::invalid_argument("an algorithm module needs a name");
  const auto require = [&](bool there, const char* what) {
    if (!there) throw std::invalid_argument(fmt::format("algorithm module '{}' has no {}", module.name, what));
  };
  require(module.kernel != nullptr, "kernel");
  require(!module.kernel_name.empty(), "kernel_name");
  require(static_cast<bool>(module.refusal), "refusal");
  require(module.kernel_args || module.rank_args, "kernel_args or rank_args");
  require(static_cast<bool>(module.connections), "connections");
  require(static_cast<bool>(module.time), "time");
  require(!reduces(module.collective) || module.reduction_order, "reduction_order");
  if (m_modules.count(module.name) != 0) {
    throw std::invalid_argument(fmt::format("an algorithm module named '{}' exists already", module.name));
  }
  std::string name = module.name;
  m_modules.emplace(std::move(name), std::move(module));
}

const AlgorithmModule* Registry::find(std::string_view name) const {
  const auto it = m_modules.find(name);
  return it == m_modules.end() ? nullptr : &it->second;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> out;
  for (const auto& [name, module] : m_modules) out.push_back(name);
  return out;
}

void register_builtin_algorithms(Registry& registry) {
  registry.add(ring_module());
  registry.add(ring_bidirectional_module());
  registry.add(all_to_all_grid_module());
  for (const auto& modules :
       {intercube_modules(), grid_all_reduce_modules(), pairwise_all_reduce_modules(), direct_modules(),
        axis_block_modules(), rooted_ring_modules(), tree_modules(), peer_modules()}) {
    for (const AlgorithmModule& m : modules) registry.add(m);
  }
}

}  // namespace ahbm::ccl
