// The interface of an algorithm module: what the seed's `module:` imports. A module is data plus four pure functions;
// it never sees SystemC. Built-in modules are registered by ccl::register_builtin_algorithms; a shared object offers
// `extern "C" int ahbm_register(ahbm::ccl::Registry&, uint32_t abi)`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "models/core/chunk.h"
#include "models/core/config/system_config.h"
#include "models/core/dtype.h"
#include "models/tl/tl.h"

namespace ahbm::ccl {

constexpr uint32_t kAbiVersion = 6;

enum class Collective : uint8_t {
  AllReduce,
  Broadcast,
  Reduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Gather,
  Scatter,
  SendRecv,
  Barrier,
};
const char* to_string(Collective c);  ///< all_reduce, ...

/// How a rank's tensor lies on its cubes, as far as an all_reduce cares.
enum class CubeLayout : uint8_t { Sharded, Replicated, Partial };
const char* to_string(CubeLayout l);

/// The group that a collective runs on. `sips[r]` is rank r's SIP.
struct Group {
  std::vector<SipId> sips;
  uint32_t cube_w = 1, cube_h = 1;  ///< launched cubes: (1,1) or the topology's mesh
  uint32_t n_cubes = 1;             ///< cubes that hold a shard
  SipTopology topology = SipTopology::Ring1d;
  uint32_t sip_w = 1, sip_h = 1;
  uint32_t machine_sips = 1;
  bool double_links = false;
  uint32_t queue_pairs = 64;  ///< of a PE
  /// Where ranks are PEs: each rank's PE. `sips` are then numbers of ranks on a fabric that joins all of them.
  std::vector<PeLocation> pes;
  uint32_t size() const { return static_cast<uint32_t>(sips.size()); }
  /// The PE that runs a rank's kernel for a cube.
  PeLocation location(uint32_t rank, uint32_t cube) const {
    return pes.empty() ? PeLocation{sips.at(rank), CubeId{cube}, PeId{0}} : pes.at(rank);
  }
  friend bool operator==(const Group& a, const Group& b) {
    const auto fields = [](const Group& g) {
      return std::tie(g.topology, g.sip_w, g.sip_h, g.cube_w, g.cube_h, g.n_cubes, g.machine_sips, g.double_links,
                      g.queue_pairs, g.sips, g.pes);
    };
    return fields(a) == fields(b);
  }
};

/// One call of a collective on one lane: the same cube of every SIP of the group, with contiguous buffers. What lies
/// otherwise in memory (a `dim` that is not the first, strides, cubes that hold other parts on input than on output,
/// sums in fp32) is packed before and unpacked after by the caller. A block is what one rank contributes or ends with;
/// blocks lie one after the other in the order of group ranks.
///
///   collective      input (elements)            output                        in place
///   all_reduce      the output                  count                         always
///   broadcast       the output (root's)         count                         always
///   reduce          count                       count, at the root only       input == output
///   all_gather      block of this rank          all blocks                    input == its block in output
///   reduce_scatter  all blocks                  block of this rank            output == its block in input
///   all_to_all      blocks for 0..n-1           blocks from 0..n-1            never
///   gather          block of this rank          all blocks, at the root only  input == its block in the root's output
///   scatter         all blocks, at the root     block of this rank            output == its block in the root's input
///   send_recv       count, at the root          count, at the peer            -
///   barrier         -                           -                             -
///
/// Inputs stay as they are, except in place. All ranks of the group launch the kernel, also with nothing to do; only of
/// a send_recv the others than root and peer do not.
struct CollectiveShape {
  uint64_t count = 0;  ///< elements; of one block where there are blocks
  uint32_t root = 0;   ///< group rank; source of a send_recv
  uint32_t peer = 0;   ///< group rank; destination of a send_recv
  /// Elements of each block where they differ: n of them; all_to_all: n * n, [from * n + to]. Empty: `count` each.
  std::vector<uint64_t> counts;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  CubeLayout layout = CubeLayout::Sharded;
  /// Payload of the smallest slot among the group's connections between SIPs, when their rings are not all alike in
  /// size and number of slots: every rank must cut alike. 0: they are alike.
  uint32_t message_bytes = 0;

  uint64_t block(uint32_t rank) const { return counts.empty() ? count : counts[rank]; }
  uint64_t block_begin(uint32_t rank) const;                   ///< first element of a block among all blocks
  uint64_t total(uint32_t n) const { return block_begin(n); }  ///< elements of all n blocks
  uint64_t sent(uint32_t n, uint32_t from, uint32_t to) const { return counts.empty() ? count : counts[from * n + to]; }
  friend bool operator==(const CollectiveShape& a, const CollectiveShape& b) {
    const auto fields = [](const CollectiveShape& s) {
      return std::tie(s.count, s.root, s.peer, s.dtype, s.op, s.layout, s.message_bytes, s.counts);
    };
    return fields(a) == fields(b);
  }
};

/// `count` elements in the given layout, everything else as it is by default.
CollectiveShape lane_shape(uint64_t count, CubeLayout layout = CubeLayout::Sharded);

/// Elements of a rank's input and output by the table above; 0 for an input that is the output (all_reduce, broadcast).
uint64_t input_elements(Collective c, uint32_t rank, uint32_t n, const CollectiveShape& shape);
uint64_t output_elements(Collective c, uint32_t rank, uint32_t n, const CollectiveShape& shape);

/// Device addresses of a PE's buffers; 0 where a rank has none.
struct CollectiveBuffers {
  Addr input = 0;
  Addr output = 0;
  Addr scratch = 0;  ///< of AlgorithmModule::scratch_bytes
};

/// One queue pair that a kernel needs: from (rank, cube) towards (peer_rank, peer_cube) under the name `dir`; the peer
/// knows the same connection as `peer_dir`.
struct Connection {
  uint32_t rank = 0, cube = 0;
  tl::Dir dir = tl::Dir::None;
  uint32_t peer_rank = 0, peer_cube = 0;
  tl::Dir peer_dir = tl::Dir::None;
};

class Detours;

/// Figures of a platform for closed forms. Seconds and bytes per second.
struct CostQuery {
  uint32_t ranks = 1;
  double bytes = 0;      ///< S, as nccl-tests counts: the buffer; all_gather: the output; reduce_scatter: the input
  double latency = 0;    ///< L of one SIP hop, doorbell to doorbell; through a switch that is one hop
  double bandwidth = 0;  ///< B of one SIP link and direction, effective
  double cube_latency = 0, cube_bandwidth = 0;
  const Group* group = nullptr;
  CubeLayout layout = CubeLayout::Sharded;
  double node_bandwidth = 0;  ///< of all that a rank's PEs send, or receive and reduce, together; 0: no limit
  double message_bytes = 0;   ///< payload of the longest message; 0: unknown, nothing is rounded up to messages
  double hop_latency = 0;     ///< of every SIP hop behind the first one, where a message is routed; 0: as `latency`
  double lanes = 1;           ///< that share the bytes
  /// Where a step waits for the one before to be stored: seconds to read, reduce and write a byte of one lane that
  /// nothing hides, and of the memory's answers.
  double byte_seconds = 0, memory_latency = 0;
  double slots = 0;           ///< messages that a connection holds; 0: unknown
  double mesh_bandwidth = 0;  ///< of the cubes' mesh for all that a rank's lanes send over its links; 0: no limit
  double wire_bandwidth = 0;  ///< B where several connections share a link, whatever one's credits; 0: as `bandwidth`
  const Detours* detours = nullptr;  ///< ccl/detours.h; null where every connection is one hop on a link
  uint32_t root = 0;                 ///< group rank, of a collective that has one
};

/// B where a rank uses so many links at once.
double link_bandwidth(const CostQuery& q, double links);

/// The documented order of a reduction: a tree over ranks (or rank x cube contributions) for a range of elements.
struct ReduceTree {
  /// Postfix: >= 0 pushes that contribution, kCombine pops b then a and pushes op(a, b).
  static constexpr int32_t kCombine = -1;
  Range range;
  std::vector<int32_t> postfix;
};

/// How data goes along a module's connections, for its time where these are routed.
struct Traffic {
  double passes = 1;     ///< times that the longest way leads over a connection
  bool one_way = false;  ///< from `rank` to `peer_rank` only
  bool in_turn = false;  ///< a rank is busy with one peer at a time, so that routed messages find free links
  bool asks = false;     ///< the closed form asks CostQuery::detours itself: the others do not count
};

struct AlgorithmModule {
  std::string name;  ///< as in ccl.yaml's `module:`
  Collective collective = Collective::AllReduce;
  std::string doc;  ///< one line for `ahbm-vp`
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
  /// Where the seed's form says too little: the words for one rank, between (output, input, scratch) and the appended
  /// ones. A module has this or kernel_args.
  std::function<std::vector<uint64_t>(const Group&, const CollectiveShape&, uint32_t rank)> rank_args;
  /// Bytes of working memory that the kernel needs on every PE; not set: none.
  std::function<uint64_t(const Group&, const CollectiveShape&)> scratch_bytes;
  /// Names of SIP topologies to the number that the kernel receives as sip_topo_kind; empty: the enum's own values.
  std::map<std::string, uint32_t> topo_name_to_kind;
  /// Every connection that its kernel uses, each listed once, for all lanes. Of the shape it heeds root, peer, and
  /// which of `counts` are 0.
  std::function<std::vector<Connection>(const Group&, const CollectiveShape&)> connections;
  /// Simulated seconds of an uncontended run, reduction free, on a fabric without absent links.
  std::function<double(const CostQuery&)> time;
  Traffic traffic;
  /// The order in which contributions are reduced, for all the elements of a lane (reduce_scatter: of all blocks).
  /// Contribution index: rank for Sharded and Replicated, rank * n_cubes + cube for Partial. Not set where nothing is
  /// reduced.
  std::function<std::vector<ReduceTree>(const Group&, const CollectiveShape&)> reduction_order;
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

/// What `module.connections` answers. \throws std::runtime_error for an end that is not in the group
std::vector<Connection> connections_of(const AlgorithmModule& module, const Group& group, const CollectiveShape& shape);

/// Whether a collective reduces: all_reduce, reduce, reduce_scatter.
bool reduces(Collective c);

/// Everything in ccl/algorithms.
void register_builtin_algorithms(Registry& registry);

}  // namespace ahbm::ccl
