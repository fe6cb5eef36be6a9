#include "ccl/algorithm.h"

#include <fmt/format.h>

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

CollectiveShape lane_shape(uint64_t count, CubeLayout layout) {
  CollectiveShape shape;
  shape.count = count;
  shape.layout = layout;
  return shape;
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
  registry.add(intercube_module());
}

}  // namespace ahbm::ccl
