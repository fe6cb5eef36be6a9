// All-reduce, reduce-scatter and all-gather in single hops, for groups whose members are all joined by links of their
// own (fully_connected; also two or three neighbours) or by a switch. Every rank sends each other rank's block straight
// to it, reduces its own, and sends the result straight to all. A queue pair per peer.
//   direct                  links 2L + 2S/(nB), a switch 2L + 2f S/B
//   reduce_scatter_direct,
//   all_gather_direct       half of it
//
// Order of the reduction: a block's owner takes its own contribution, then those of the ranks behind it, in turn:
// ((x[o] + x[o+1]) + x[o+2]) + ... x[o+n-1], ranks modulo n.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ccl/algorithms/modules.h"
#include "ccl/topology_embedding.h"
#include "models/core/address_map.h"

namespace ahbm::ccl {
namespace {

using tl::DirList;
using tl::Move;

constexpr uint32_t kFan = 4;  ///< directions of a move

/// The ranks behind `rank`, in turn.
std::vector<uint32_t> behind(uint32_t n, uint32_t rank) {
  std::vector<uint32_t> out;
  for (uint32_t d = 1; d < n; ++d) out.push_back((rank + d) % n);
  return out;
}

std::vector<DirList> fans(const std::vector<uint32_t>& ranks) {
  std::vector<DirList> out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i % kFan == 0) out.emplace_back();
    out.back().push(tl::peer_dir(ranks[i]));
  }
  return out;
}

class Exchange {
 public:
  Exchange(tl::Tl& tl, uint32_t rank, const AxisWork& work)
      : m_tl(tl), m_rank(rank), m_work(work), m_peers(behind(static_cast<uint32_t>(work.blocks.size()), rank)) {
    std::vector<tl::Dir> dirs;
    for (const uint32_t p : m_peers) dirs.push_back(tl::peer_dir(p));
    // Two slabs have room in a ring, the one that is reduced and the one that arrives.
    m_plan = SlabPlan(tl, work.dtype, work.blocks.longest(), 2, dirs, work.message_bytes);
  }

  /// Leaves the reduction of the own block at `output`.
  void reduce_scatter() {
    const uint64_t each = m_plan.slab_elems / m_plan.message_elems, ahead = m_plan.store_first ? 0 : 1;
    for (uint64_t slab = 0; slab < m_plan.slabs + ahead; ++slab) {
      if (slab < m_plan.slabs) contribute(slab * each, each);
      if (slab >= ahead) reduce((slab - ahead) * each, each);
    }
  }
  /// Sends the own block from `own` to all, and leaves it and theirs at `output`. Slab by slab: a PE takes in fewer
  /// moves at a time than there may be peers, and no peer may wait for credits until it has had all of another one's
  /// block.
  void all_gather(Addr own) {
    const uint64_t ahead = m_plan.store_first ? 0 : 1;
    for (uint64_t slab = 0; slab < m_plan.slabs + ahead; ++slab) {
      if (slab < m_plan.slabs) give(slab, own);
      if (slab >= ahead) take(slab - ahead);
    }
  }

 private:
  static constexpr uint64_t kGatherStep = 1 << 14;
  uint32_t item() const { return item_bytes(m_work.dtype); }
  /// Empty blocks have no address.
  tl::Handle submit(const Move& m) { return m.count == 0 ? 0 : m_tl.submit(m); }
  Move move_of(uint32_t owner, const Range& part, uint64_t step) const {
    Move m;
    m.count = part.count;
    m.dtype = m_work.dtype;
    m.op = m_work.op;
    m.piece_bytes = m_work.message_bytes;
    m.step = wire_step(step + owner);
    return m;
  }
  /// The move of one message of a contribution.
  Move message_of(uint32_t owner, uint64_t i) const {
    const Range block = m_work.blocks[owner];
    const uint64_t at = std::min(block.count, i * m_plan.message_elems);
    return move_of(owner, {block.begin + at, std::min(block.count - at, m_plan.message_elems)}, 0);
  }
  Addr input_of(uint32_t owner, uint64_t i) const {
    return m_work.input.at(m_work.blocks[owner].begin + i * m_plan.message_elems, item());
  }
  /// `n` messages to everyone, to those first whose reduction takes them first.
  void contribute(uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; ++i) {
      for (auto p = m_peers.rbegin(); p != m_peers.rend(); ++p) {
        Move m = message_of(*p, i);
        m.local = input_of(*p, i);
        m.to = tl::peer_dir(*p);
        submit(m);
      }
    }
  }
  Move gather_move(uint32_t owner, uint64_t slab) const {
    return move_of(owner, m_plan.cut(m_work.blocks[owner], slab), kGatherStep + slab * m_work.blocks.size());
  }
  Addr place_of(uint32_t owner, uint64_t slab) const {
    return m_work.output.at(m_plan.cut(m_work.blocks[owner], slab).begin, item());
  }
  /// A slab of the own block to everyone.
  void give(uint64_t slab, Addr own) {
    Move send = gather_move(m_rank, slab);
    const Range block = m_work.blocks[m_rank], part = m_plan.cut(block, slab);
    const Addr place = place_of(m_rank, slab);
    send.local = own + (part.begin - block.begin) * item();
    send.store = place == send.local ? 0 : place;
    for (const DirList& to : fans(m_peers)) {
      send.to = to;
      submit(send);
      send.store = 0;
    }
  }
  void take(uint64_t slab) {
    for (const uint32_t p : m_peers) {
      Move receive = gather_move(p, slab);
      receive.from = tl::peer_dir(p);
      receive.store = place_of(p, slab);
      submit(receive);
    }
  }
  /// A move takes in four ranks; the next one goes on with what it stored, message by message.
  void reduce(uint64_t first, uint64_t n) {
    std::vector<tl::Handle> before(n);
    const std::vector<DirList> groups = fans(m_peers);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (uint64_t i = first; i < first + n; ++i) {
        Move m = message_of(m_rank, i);
        m.local = input_of(m_rank, i);
        m.store = m_work.output.at(m_work.blocks[m_rank].begin + i * m_plan.message_elems, item());
        m.from = groups[g];
        if (g + 1 == groups.size()) m.divisor = m_work.divisor;
        if (g != 0) {
          m.local = m.store;
          if (m.count != 0) m_tl.wait(before[i - first]);
        }
        before[i - first] = submit(m);
      }
    }
  }

  tl::Tl& m_tl;
  const uint32_t m_rank;
  const AxisWork& m_work;
  const std::vector<uint32_t> m_peers;
  SlabPlan m_plan;
};

AxisWork work_of(const ModuleArguments& a, Parts blocks) {
  AxisWork work(a, std::move(blocks));
  if (a.op == ReduceOp::Avg) work.divisor = work.blocks.size();
  return work;
}

/// Words: n, rank.
void direct_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  const uint32_t n = a.take32(), rank = a.take32();
  AxisWork work = work_of(a, Parts({0, count}, n));
  work.input = work.output = {buffer, 0};
  Exchange exchange(tl, rank, work);
  exchange.reduce_scatter();
  tl.wait_all();
  exchange.all_gather(work.output.at(work.blocks[rank].begin, a.item()));
}

/// Words: rank, blocks.
void block_kernel(tl::Tl& tl, const tl::Args& args, bool reduce) {
  ModuleArguments a(args);
  const uint32_t rank = a.take32();
  AxisWork work = work_of(a, take_parts(a));
  const Range own = work.blocks.at(rank);
  work.input = {a.input, reduce ? 0 : own.begin};
  work.output = {a.output, reduce ? own.begin : 0};
  const Addr from = work.input.at(own.begin, a.item()), to = work.output.at(own.begin, a.item());
  if (work.blocks.size() == 1) {
    if (from != to && own.count != 0) tl.copy(from, to, own.count, a.dtype);
    return;
  }
  Exchange exchange(tl, rank, work);
  if (reduce) {
    exchange.reduce_scatter();
  } else {
    exchange.all_gather(from);
  }
}

void reduce_scatter_kernel(tl::Tl& tl, const tl::Args& args) {
  block_kernel(tl, args, true);
}
void all_gather_kernel(tl::Tl& tl, const tl::Args& args) {
  block_kernel(tl, args, false);
}

std::string refusal(const Group& g, const char* others) {
  if (g.topology == SipTopology::Switch || g.topology == SipTopology::FullyConnected) {
    // Said before the connections of all pairs are listed.
    if (g.size() <= addr::kMaxQps + 1) return {};
    return fmt::format("{} peers are more than the {} queue pairs that a PE can have; {}", g.size() - 1, addr::kMaxQps,
                       others);
  }
  for (uint32_t a = 0; a < g.size(); ++a) {
    for (uint32_t b = 0; b < a; ++b) {
      if (sip_hops(g, a, b) == 1) continue;
      return std::string("not every two ranks of this ") + to_string(g.topology) + " group are neighbours; " + others;
    }
  }
  return {};
}

void append_connections(const Group& g, uint32_t cube, std::vector<Connection>& out) {
  for (uint32_t r = 0; r < g.size(); ++r) {
    for (uint32_t p = r + 1; p < g.size(); ++p) out.push_back({r, cube, tl::peer_dir(p), p, cube, tl::peer_dir(r)});
  }
}

std::vector<ReduceTree> order_of(const std::vector<Range>& blocks) {
  std::vector<ReduceTree> out;
  const auto n = static_cast<uint32_t>(blocks.size());
  for (uint32_t owner = 0; owner < n; ++owner) {
    if (blocks[owner].empty()) continue;
    ReduceTree tree{blocks[owner], {static_cast<int32_t>(owner)}};
    for (const uint32_t p : behind(n, owner)) {
      tree.postfix.insert(tree.postfix.end(), {static_cast<int32_t>(p), ReduceTree::kCombine});
    }
    out.push_back(std::move(tree));
  }
  return out;
}

/// What the chain of moves of a reduction adds to the exchange: each reads what the one before has stored. The store
/// itself is over when its message is.
double chain_seconds(const CostQuery& q) {
  return std::ceil((q.ranks - 1.0) / kFan) * (turn_seconds(q, q.bytes / q.ranks) - q.memory_latency / 2);
}

/// Of one block from every rank to every other.
double exchange_seconds(const CostQuery& q) {
  const double peers = q.ranks - 1.0, block = q.bytes / q.ranks;
  const bool shared = q.group != nullptr && q.group->topology == SipTopology::Switch;
  if (!shared) return q.latency + block / link_bandwidth(q, peers);
  CostQuery uplink = q;  // a credit that one connection waits for leaves it to the others
  if (q.wire_bandwidth > 0) uplink.bandwidth = q.wire_bandwidth;
  return q.latency + std::max(peers * block / link_bandwidth(uplink, 1), block / q.bandwidth);
}

std::vector<Range> blocks_of(const Group& g, const CollectiveShape& shape) {
  const BlockRanges ranges(shape);
  std::vector<Range> out;
  for (uint32_t r = 0; r < g.size(); ++r) out.push_back(ranges.of(r));
  return out;
}

AlgorithmModule all_reduce_module() {
  LaneModule lane;
  lane.refusal = [](const Group& g) {
    return refusal(g, "ring, recursive_doubling and double_binary_tree run on any group");
  };
  lane.words = [](const Group& g, uint32_t rank) { return std::vector<uint64_t>{g.size(), rank}; };
  lane.connections = append_connections;
  lane.time = [](const CostQuery& q) { return 2 * exchange_seconds(q) + chain_seconds(q); };
  lane.order = [](const Group& g, uint64_t count) { return order_of(chunks(count, g.size())); };
  AlgorithmModule m = sip_all_reduce_module_of<direct_lane>(lane);
  m.name = "direct";
  m.kernel_name = "ccl_direct";
  m.doc = "single hops, a queue pair per peer: fully connected 2L + 2S/(nB), switch 2L + 2f S/B";
  return m;
}

AlgorithmModule block_module(Collective collective) {
  const bool reduce = collective == Collective::ReduceScatter;
  AlgorithmModule m;
  m.collective = collective;
  m.name = std::string(to_string(collective)) + "_direct";
  m.kernel_name = "ccl_" + m.name;
  m.doc = "single hops, a queue pair per peer: fully connected L + S/(nB), switch L + f S/B";
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded};
  m.kernel = reduce ? reduce_scatter_kernel : all_gather_kernel;
  m.refusal = [line = std::string(to_string(collective)) + "_line runs on any group"](const Group& g) {
    return refusal(g, line.c_str());
  };
  m.rank_args = [](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    std::vector<uint64_t> words{rank};
    put_ranges(blocks_of(g, shape), words);
    return words;
  };
  m.connections = [](const Group& g, const CollectiveShape&) {
    std::vector<Connection> out;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) append_connections(g, cube, out);
    return out;
  };
  m.time = [reduce](const CostQuery& q) {
    return q.ranks < 2 ? 0.0 : exchange_seconds(q) + (reduce ? chain_seconds(q) : 0);
  };
  if (reduce) {
    m.reduction_order = [](const Group& g, const CollectiveShape& shape) { return order_of(blocks_of(g, shape)); };
  }
  return m;
}

}  // namespace

std::vector<AlgorithmModule> direct_modules() {
  return {all_reduce_module(), block_module(Collective::ReduceScatter), block_module(Collective::AllGather)};
}

}  // namespace ahbm::ccl
