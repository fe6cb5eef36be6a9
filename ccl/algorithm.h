// The interface of an algorithm module: what the seed's `module:` imports. A module is data plus four pure functions; it
// never sees SystemC. Built-in modules are registered by ccl::register_builtin_algorithms; a shared object offers
// `extern "C" int ahbm_register(ahbm::ccl::Registry&, uint32_t abi)`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/core/chunk.h"
#include "models/core/config/system_config.h"
#include "models/core/dtype.h"
#include "models/tl/tl.h"

namespace ahbm::ccl {

constexpr uint32_t kAbiVersion = 1;

enum class Collective : uint8_t {
  AllReduce, Broadcast, Reduce, AllGather, ReduceScatter, AllToAll, Gather, Scatter, SendRecv, Barrier,
};
const char* to_string(Collective c);  ///< all_reduce, ...

/// How a rank's tensor lies on its cubes, as far as an all_reduce cares.
enum class CubeLayout : uint8_t { Sharded, Replicated, Partial };
const char* to_string(CubeLayout l);

/// The group that a collective runs on. `sips[r]` is rank r's SIP.
struct Group {
  std::vector<SipId> sips;
  uint32_t cube_w = 1, cube_h = 1;   ///< launched cubes: (1,1) or the topology's mesh
  uint32_t n_cubes = 1;              ///< cubes that hold a shard
  SipTopology topology = SipTopology::Ring1d;
  uint32_t sip_w = 1, sip_h = 1;
  uint32_t machine_sips = 1;
  bool double_links = false;
  uint32_t size() const { return static_cast<uint32_t>(sips.size()); }
};

/// One queue pair that a kernel needs: from (rank, cube) towards (peer_rank, peer_cube) under the name `dir`; the peer
/// knows the same connection as `peer_dir`.
struct Connection {
  uint32_t rank = 0, cube = 0;
  tl::Dir dir = tl::Dir::None;
  uint32_t peer_rank = 0, peer_cube = 0;
  tl::Dir peer_dir = tl::Dir::None;
};

/// Figures of a platform for closed forms. Seconds and bytes per second.
struct CostQuery {
  uint32_t ranks = 1;
  double bytes = 0;            ///< S, the logical buffer of a rank
  double latency = 0;          ///< L of one SIP hop, doorbell to doorbell
  double bandwidth = 0;        ///< B of one SIP link and direction, effective
  double cube_latency = 0, cube_bandwidth = 0;
  const Group* group = nullptr;
  CubeLayout layout = CubeLayout::Sharded;
};

/// The documented order of a reduction: a tree over ranks (or rank x cube contributions) for a range of elements.
struct ReduceTree {
  /// Postfix: >= 0 pushes that contribution, kCombine pops b then a and pushes op(a, b).
  static constexpr int32_t kCombine = -1;
  Range range;
  std::vector<int32_t> postfix;
};

struct AlgorithmModule {
  std::string name;  ///< as in ccl.yaml's `module:`
  Collective collective = Collective::AllReduce;
  std::string doc;   ///< one line for `ahbm-vp`
  std::set<ReduceOp> ops;
  std::set<DType> dtypes;
  std::set<CubeLayout> layouts;
  std::string kernel_name;  ///< in the kernel registry
  tl::KernelFn kernel = nullptr;

  /// Empty when the module can run on the group; else why not and what would (one sentence).
  std::function<std::string(const Group&)> refusal;
  /// The seed's kernel_args(world_size, n_elem, cube_w, cube_h): words between (buffer address) and the appended
  /// (sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, dtype, op).
  std::function<std::vector<uint64_t>(uint32_t world_size, uint64_t n_elem, uint32_t cube_w, uint32_t cube_h)>
      kernel_args;
  /// Names of SIP topologies to the number that the kernel receives as sip_topo_kind; empty: the enum's own values.
  std::map<std::string, uint32_t> topo_name_to_kind;
  /// Every connection that its kernel uses, each listed once.
  std::function<std::vector<Connection>(const Group&)> connections;
  /// Simulated seconds of an uncontended run, reduction free.
  std::function<double(const CostQuery&)> time;
  /// The order in which contributions are reduced, for `count` elements per lane. Contribution index: rank for Sharded
  /// and Replicated, rank * n_cubes + cube for Partial.
  std::function<std::vector<ReduceTree>(const Group&, uint64_t count, CubeLayout layout)> reduction_order;
};

class Registry {
 public:
  /// \throws std::invalid_argument for an empty or a taken name
  void add(AlgorithmModule module);
  const AlgorithmModule* find(std::string_view name) const;
  std::vector<std::string> names() const;
  const std::map<std::string, AlgorithmModule, std::less<>>& modules() const { return m_modules; }

 private:
  std::map<std::string, AlgorithmModule, std::less<>> m_modules;
};

/// ring, ring_bidirectional, intercube.
void register_builtin_algorithms(Registry& registry);

}  // namespace ahbm::ccl
