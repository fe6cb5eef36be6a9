// Collectives with a root on a spanning tree of the group (tree_order in topology_embedding.h): along neighbours where
// there are any, balanced over the root's k links; on fully_connected and switch a binary tree, for gather and scatter
// a star while half of a PE's queue pairs suffice for it. Everything is pipelined message by message, and no way leads
// in a circle.
//   broadcast_tree, reduce_tree   eL + S/B        e links on the longest way
//   gather_tree, scatter_tree     eL + f S/(kB)   relayed by the ranks on the way
// Order of a reduction: every rank takes its own contribution, then its children's sums in their order.
#include <algorithm>
#include <cmath>

#include "ccl/algorithms/modules.h"
#include "ccl/detours.h"
#include "ccl/group_memo.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;
using tl::Move;

/// Ranks of a star whose root still has queue pairs left for other groups.
uint32_t largest_star(const Group& g) {
  return g.queue_pairs / 2;
}

TreeOrder block_tree(const Group& g, uint32_t root) {
  const bool equal = g.topology == SipTopology::FullyConnected || g.topology == SipTopology::Switch;
  if (!equal || g.size() > largest_star(g)) return tree_order(g, root);
  TreeOrder star;
  star.parent.assign(g.size(), root);
  star.children.resize(g.size());
  for (uint32_t i = 1; i < g.size(); ++i) star.children[root].push_back((root + i) % g.size());
  star.depth = g.topology == SipTopology::Switch ? 2 : 1;
  return star;
}

TreeOrder tree_for(Collective c, const Group& g, uint32_t root) {
  return c == Collective::Gather || c == Collective::Scatter ? block_tree(g, root) : tree_order(g, root);
}

/// Words: count, n, parent's direction (none at the root), number of children, their directions.
struct Node {
  explicit Node(ModuleArguments& a) : count(a.take()), n(a.take32()), parent(static_cast<Dir>(a.take())) {
    for (uint64_t k = a.take(); k > 0; --k) children.push(static_cast<Dir>(a.take()));
  }
  bool is_root() const { return parent == Dir::None; }
  uint64_t count;
  uint32_t n;
  Dir parent;
  tl::DirList children;
};

Move move_of(const ModuleArguments& a, uint64_t count, uint16_t step) {
  Move m = a.move(count, step);
  m.local = a.input;
  m.store = a.output;
  return m;
}

void broadcast_tree_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  a.input = a.output;
  const Node node(a);
  if (node.n < 2 || node.count == 0) return;
  Move m = move_of(a, node.count, 0);
  (node.is_root() ? m.store : m.local) = 0;
  if (!node.is_root()) m.from = node.parent;
  m.to = node.children;
  tl.submit(m);
}

void reduce_tree_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const Node node(a);
  if (node.count == 0) return;
  Move m = move_of(a, node.count, 0);
  m.from = node.children;
  if (!node.is_root()) {
    m.to = node.parent;
    m.store = 0;
  } else {
    if (a.op == ReduceOp::Avg) m.divisor = node.n;
    if (m.from.empty() && m.local == m.store) return;
  }
  tl.submit(m);
}

/// A block that passes a rank on its way to or from the root.
struct Passing {
  uint32_t rank;   ///< whose block
  uint32_t child;  ///< index of the child it belongs behind; the number of children: its own
};
/// Of each rank, in the order in which the link to its parent carries them up: its own, then the children's in turn.
using PassingBlocks = std::vector<std::vector<Passing>>;

PassingBlocks passing_blocks(const TreeOrder& tree, uint32_t root) {
  std::vector<uint32_t> downwards{root};
  downwards.reserve(tree.parent.size());
  for (size_t i = 0; i < downwards.size(); ++i) {
    const auto& children = tree.children[downwards[i]];
    downwards.insert(downwards.end(), children.begin(), children.end());
  }
  PassingBlocks out(tree.parent.size());
  for (auto at = downwards.rbegin(); at != downwards.rend(); ++at) {
    const auto& children = tree.children[*at];
    const auto n = static_cast<uint32_t>(children.size());
    std::vector<Passing>& blocks = out[*at];
    blocks.push_back({*at, n});
    size_t before = 0;
    for (size_t k = 0; before != blocks.size(); ++k) {
      before = blocks.size();
      for (uint32_t c = 0; c < n; ++c) {
        const std::vector<Passing>& behind = out[children[c]];
        if (k < behind.size()) blocks.push_back({behind[k].rank, c});
      }
    }
  }
  return out;
}

/// Words: parent's direction, number of blocks, then for each: its owner, first element among all blocks, count,
/// direction (none: this rank's own).
void gather_tree_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const auto parent = static_cast<Dir>(a.take());
  for (uint64_t k = a.take(); k > 0; --k) {
    const uint64_t owner = a.take(), begin = a.take(), count = a.take();
    const auto from = static_cast<Dir>(a.take());
    if (count == 0) continue;
    Move m = move_of(a, count, wire_step(owner));
    if (from != Dir::None) {
      m.from = from;
      m.local = 0;
    }
    if (parent != Dir::None) {
      m.to = parent;
      m.store = 0;
    } else {
      m.store += begin * a.item();
      if (m.store == m.local) continue;
    }
    tl.submit(m);
  }
}

void scatter_tree_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const auto parent = static_cast<Dir>(a.take());
  for (uint64_t k = a.take(); k > 0; --k) {
    const uint64_t owner = a.take(), begin = a.take(), count = a.take();
    const auto to = static_cast<Dir>(a.take());
    if (count == 0) continue;
    Move m = move_of(a, count, wire_step(owner));
    if (parent != Dir::None) {
      m.from = parent;
      m.local = 0;
    } else {
      m.local += begin * a.item();
    }
    if (to != Dir::None) {
      m.to = to;
      m.store = 0;
    } else if (m.store == m.local) {
      continue;
    }
    tl.submit(m);
  }
}

std::vector<uint64_t> node_words(const TreeOrder& tree, const Group& g, const CollectiveShape& shape, uint32_t rank) {
  const auto parent = rank == shape.root ? Dir::None : tl::peer_dir(tree.parent[rank]);
  std::vector<uint64_t> words{shape.count, g.size(), static_cast<uint64_t>(parent), tree.children[rank].size()};
  for (const uint32_t child : tree.children[rank]) words.push_back(static_cast<uint64_t>(tl::peer_dir(child)));
  return words;
}

std::vector<uint64_t> block_words(const TreeOrder& tree, std::vector<Passing> blocks, const CollectiveShape& shape,
                                  uint32_t rank, bool gather) {
  const auto parent = rank == shape.root ? Dir::None : tl::peer_dir(tree.parent[rank]);
  // Downwards the farthest go first.
  if (!gather) std::reverse(blocks.begin(), blocks.end());
  std::vector<uint64_t> words{static_cast<uint64_t>(parent), blocks.size()};
  words.reserve(words.size() + 4 * blocks.size());
  const auto& children = tree.children[rank];
  const BlockRanges ranges(shape);
  for (const Passing& p : blocks) {
    const Dir dir = p.child == children.size() ? Dir::None : tl::peer_dir(children[p.child]);
    const Range range = ranges.of(p.rank);
    words.insert(words.end(), {p.rank, range.begin, range.count, static_cast<uint64_t>(dir)});
  }
  return words;
}

void append_subtree(const TreeOrder& tree, uint32_t at, std::vector<int32_t>& postfix) {
  postfix.push_back(static_cast<int32_t>(at));
  for (const uint32_t child : tree.children[at]) {
    append_subtree(tree, child, postfix);
    postfix.push_back(ReduceTree::kCombine);
  }
}

size_t branch_size(const TreeOrder& tree, uint32_t at) {
  size_t ranks = 1;
  for (const uint32_t child : tree.children[at]) ranks += branch_size(tree, child);
  return ranks;
}

/// f S/(kB): the share of the fullest of the root's links.
double fullest_branch(const TreeOrder& tree, uint32_t root) {
  size_t most = 0, all = tree.parent.size();
  for (const uint32_t child : tree.children[root]) most = std::max(most, branch_size(tree, child));
  return static_cast<double>(most) / static_cast<double>(all);
}

/// What the blocks on a connection of so many links, `share` of the buffer, take at least: each has messages of its
/// own.
double blocks_seconds(const CostQuery& q, double share, double links) {
  const double block = q.bytes / q.ranks, message = std::min(block, q.message_bytes * q.lanes);
  const double messages = message > 0 ? share * q.ranks * std::ceil(block / message) : 0;
  return credit_seconds(q, messages, message, q.latency + (links - 1) * hop_seconds(q));
}

/// The longest way for the first message, and what follows it over the fullest link.
double routed_seconds(const CostQuery& q, const TreeOrder& tree, bool upwards, bool blocks) {
  const std::vector<SipId>& sips = q.group->sips;
  std::vector<Flow> flows;  // between a rank and its parent; the root has none
  for (uint32_t r = 0; r < q.ranks; ++r) {
    const SipId parent = sips[tree.parent[r]];
    const double bytes = r == q.root ? 0 : blocks ? static_cast<double>(branch_size(tree, r)) / q.ranks : 1;
    flows.push_back({upwards ? sips[r] : parent, upwards ? parent : sips[r], std::nullopt, bytes});
  }
  const Detours::Ways ways = q.detours->of(flows);
  const double rate = shared_bandwidth(q), message = blocks ? 0 : first_message(q, q.bytes);
  double longest = 0, follows = 0, least = 0;
  for (uint32_t r = 0; r < q.ranks; ++r) {
    if (r == q.root) continue;
    follows = std::max(follows, transfer_seconds(q, flows[r].bytes * q.bytes, ways.links[r]) - message / rate);
    if (blocks) least = std::max(least, blocks_seconds(q, flows[r].bytes, ways.links[r]));
    double way = 0;
    for (uint32_t at = r; at != q.root; at = tree.parent[at]) {
      way += q.latency + (ways.links[at] - 1.0) * hop_seconds(q) + message / rate;
    }
    longest = std::max(longest, way);
  }
  return std::max(least, longest + std::max(follows, (ways.fullest * q.bytes - message) / rate));
}

AlgorithmModule tree_module(Collective collective, tl::KernelFn kernel, const char* doc) {
  const bool blocks = collective == Collective::Gather || collective == Collective::Scatter;
  AlgorithmModule m;
  m.name = std::string(to_string(collective)) + "_tree";
  m.kernel_name = "ccl_" + m.name;
  m.doc = doc;
  m.collective = collective;
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded};
  m.kernel = kernel;
  m.refusal = [](const Group&) { return std::string(); };
  const auto trees =
      group_memo<TreeOrder>([=](const Group& g, uint32_t root) { return tree_for(collective, g, root); });
  const auto passing = group_memo<PassingBlocks>(
      [trees](const Group& g, uint32_t root) { return passing_blocks(*trees->of(g, root), root); }, 1);
  m.rank_args = [=](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const auto tree = trees->of(g, shape.root);
    if (!blocks) return node_words(*tree, g, shape, rank);
    return block_words(*tree, passing->of(g, shape.root)->at(rank), shape, rank, collective == Collective::Gather);
  };
  m.connections = [=](const Group& g, const CollectiveShape& shape) {
    const auto shared = trees->of(g, shape.root);
    const TreeOrder& tree = *shared;
    std::vector<Connection> out;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) {
      for (uint32_t r = 0; r < g.size(); ++r) {
        if (r == shape.root) continue;
        out.push_back({r, cube, tl::peer_dir(tree.parent[r]), tree.parent[r], cube, tl::peer_dir(r)});
      }
    }
    return out;
  };
  m.traffic.asks = true;
  m.time = [=](const CostQuery& q) {
    if (q.ranks < 2 || q.group == nullptr) return 0.0;
    const auto kept = trees->of(*q.group, q.root);
    const TreeOrder& tree = *kept;
    if (q.detours != nullptr) {
      return routed_seconds(q, tree, collective == Collective::Reduce || collective == Collective::Gather, blocks);
    }
    const bool one_uplink = q.group->topology == SipTopology::Switch;
    // On equal links a node sends two copies; a switch has one uplink for both, or for all blocks.
    const double connection = blocks ? fullest_branch(tree, q.root) : 1;
    const double uplink = blocks ? (q.ranks - 1.0) / q.ranks : std::min(q.ranks - 1.0, 2.0);
    const double share = one_uplink ? uplink : connection;
    const double steps = tree.depth / (one_uplink ? 2.0 : 1.0);  // a step leads up and down
    const double rate = shared_bandwidth(q), message = blocks ? 0 : first_message(q, q.bytes);
    const double follows =
        std::max(share * (q.bytes - message) / rate, transfer_seconds(q, connection * q.bytes) - message / rate);
    const double seconds = steps * (q.latency + message / rate) + follows;
    return blocks ? std::max(seconds, blocks_seconds(q, connection, 1)) : seconds;
  };
  if (reduces(collective)) {
    m.reduction_order = [trees](const Group& g, const CollectiveShape& shape) {
      ReduceTree tree{{0, shape.count}, {}};
      append_subtree(*trees->of(g, shape.root), shape.root, tree.postfix);
      return std::vector<ReduceTree>{tree};
    };
  }
  return m;
}

}  // namespace

std::vector<AlgorithmModule> tree_modules() {
  return {
      tree_module(Collective::Broadcast, broadcast_tree_kernel, "spanning tree, any group: eL + S/B"),
      tree_module(Collective::Reduce, reduce_tree_kernel, "spanning tree, any group: eL + S/B"),
      tree_module(Collective::Gather, gather_tree_kernel, "relayed up a spanning tree, any group: eL + f S/(kB)"),
      tree_module(Collective::Scatter, scatter_tree_kernel, "relayed down a spanning tree, any group: eL + f S/(kB)"),
  };
}

}  // namespace ahbm::ccl
