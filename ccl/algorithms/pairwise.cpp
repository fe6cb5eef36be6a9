// All-reduces for fabrics whose far SIPs are as near as the near ones, and for small messages. They run on any group,
// ranks in the order of topology_embedding.h's line_order; positions count along it. m is the largest power of two that
// is not above n; first of all, position i < n - m takes in the contribution of position i + m, and gives it the result
// at the end.
//   halving_doubling     halves are exchanged with the positions m/2, m/4, ... 1 away, then gathered the other way
//   round.
//                        full bisection: 2 log2(n) L + 2f S/B; on a ring 2(n-1)L + log2(n) S/B
//   recursive_doubling   everything is exchanged with 1, 2, ... m/2.  log2(n)(L + S/B)
//   double_binary_tree   two balanced trees, the second one position further on, carry half of the buffer each, up and
//                        down again. 2 log2(n) L + 2S/B
//
// Orders of the reduction. y[i] = x[i] + x[i+m] (i < n - m), else x[i].
//   halving_doubling     chunk p of m: v0 = y, v of a step = v[p] + v[p xor distance], distances falling
//   recursive_doubling   the same for all, distances rising, the lower position's sum first
//   double_binary_tree   a position's own, then its lower and its upper child's
#include <algorithm>
#include <cmath>
#include <utility>

#include "ccl/algorithms/modules.h"
#include "ccl/detours.h"
#include "ccl/group_memo.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;
using tl::Move;

uint32_t power_below(uint32_t n) {
  uint32_t m = 1;
  while (2 * m <= n) m *= 2;
  return m;
}

/// Words: n, position, direction of the position m away (none), directions of the positions 1, 2, ... m/2 away.
struct Cube {
  explicit Cube(ModuleArguments& a) : n(a.take32()), m(power_below(n)), position(a.take32()), fold(dir(a)) {
    for (uint32_t d = 1; d < m && position < m; d *= 2) partners.push_back(dir(a));
  }
  static Dir dir(ModuleArguments& a) { return static_cast<Dir>(a.take()); }
  uint32_t n, m, position;
  Dir fold;
  std::vector<Dir> partners;
};

Move move_of(const ModuleArguments& a, uint64_t count, uint16_t step) {
  Move m;
  m.count = count;
  m.dtype = a.dtype;
  m.op = a.op;
  m.piece_bytes = a.message_bytes;
  m.step = step;
  return m;
}

constexpr uint16_t kFoldStep = 1000, kUnfoldStep = 1001, kGatherStep = 100;

/// The ranks beyond m hand their contribution in and wait for the result. True for them.
bool fold_in(tl::Tl& tl, const ModuleArguments& a, const Cube& c, Addr buffer, uint64_t count) {
  if (c.fold == Dir::None) return false;
  Move m = move_of(a, count, kFoldStep);
  m.local = buffer;
  if (c.position < c.m) {
    m.from = c.fold;
    m.store = buffer;
    tl.wait(tl.submit(m));
    return false;
  }
  m.to = c.fold;
  tl.wait(tl.submit(m));
  Move result = move_of(a, count, kUnfoldStep);
  result.from = c.fold;
  result.store = buffer;
  tl.submit(result);
  return true;
}

void fold_out(tl::Tl& tl, const ModuleArguments& a, const Cube& c, Addr buffer, uint64_t count) {
  if (c.fold == Dir::None) return;
  Move m = move_of(a, count, kUnfoldStep);
  m.local = buffer;
  m.to = c.fold;
  tl.submit(m);
}

void halving_doubling_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  const Cube c(a);
  if (fold_in(tl, a, c, buffer, count)) return;
  const std::vector<Range> chunks = tl::Tl::chunks(count, c.m);
  // Chunks [first, first + n) as one range of elements.
  const auto range = [&](uint32_t first, uint32_t n) {
    return Range{chunks[first].begin, chunks[first + n - 1].end() - chunks[first].begin};
  };
  const auto on = [&](const Range& r, uint16_t step) {
    Move m = move_of(a, r.count, step);
    m.local = buffer + r.begin * a.item();
    return m;
  };
  const auto steps = static_cast<uint32_t>(c.partners.size());
  uint32_t first = 0;
  for (uint32_t k = steps; k-- > 0;) {
    const uint32_t half = 1u << k, kept = first + (c.position & half), given = first + (~c.position & half);
    Move send = on(range(given, half), static_cast<uint16_t>(k)),
         keep = on(range(kept, half), static_cast<uint16_t>(k));
    keep.store = keep.local;
    keep.from = send.to = c.partners[k];
    if (k == 0 && a.op == ReduceOp::Avg) keep.divisor = c.n;
    tl.submit(keep);
    tl.submit(send);
    tl.wait_all();
    first = kept;
  }
  for (uint32_t k = 0; k < steps; ++k) {
    const uint32_t size = 1u << k, other = first ^ size;
    const auto step = static_cast<uint16_t>(kGatherStep + k);
    Move send = on(range(first, size), step), receive = on(range(other, size), step);
    receive.store = std::exchange(receive.local, 0);
    receive.from = send.to = c.partners[k];
    tl.submit(receive);
    tl.submit(send);
    tl.wait_all();
    first = std::min(first, other);
  }
  fold_out(tl, a, c, buffer, count);
}

void recursive_doubling_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  const Cube c(a);
  if (fold_in(tl, a, c, buffer, count)) return;
  // What is sent must stay as it is until it has left: steps go from one buffer to the other.
  Addr now = buffer, next = a.scratch;
  for (uint32_t k = 0; k < c.partners.size(); ++k) {
    Move send = move_of(a, count, static_cast<uint16_t>(k));
    send.local = now;
    Move receive = send;
    receive.store = next;
    receive.from = send.to = c.partners[k];
    receive.local_last = (c.position >> k & 1) != 0;
    if (k + 1 == c.partners.size() && a.op == ReduceOp::Avg) receive.divisor = c.n;
    tl.submit(receive);
    tl.submit(send);
    tl.wait_all();
    std::swap(now, next);
  }
  if (now != buffer) tl.copy(now, buffer, count, a.dtype);
  fold_out(tl, a, c, buffer, count);
}

std::vector<uint64_t> cube_words(const std::vector<uint32_t>& order, uint32_t rank) {
  const auto n = static_cast<uint32_t>(order.size()), m = power_below(n);
  const auto p = static_cast<uint32_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  const auto dir = [&](uint32_t position) { return static_cast<uint64_t>(tl::peer_dir(order[position])); };
  std::vector<uint64_t> words{n, p};
  words.push_back(p >= m ? dir(p - m) : p + m < n ? dir(p + m) : static_cast<uint64_t>(Dir::None));
  for (uint32_t d = 1; d < m && p < m; d *= 2) words.push_back(dir(p ^ d));
  return words;
}

void append_cube_connections(const Group& g, uint32_t cube, std::vector<Connection>& out) {
  const std::vector<uint32_t> order = line_order(g);
  const uint32_t n = g.size(), m = power_below(n);
  const auto add = [&](uint32_t p, uint32_t q) {
    out.push_back({order[p], cube, tl::peer_dir(order[q]), order[q], cube, tl::peer_dir(order[p])});
  };
  for (uint32_t p = 0; p < m; ++p) {
    if (p + m < n) add(p, p + m);
    for (uint32_t d = 1; d < m; d *= 2) {
      if ((p & d) == 0) add(p, p ^ d);
    }
  }
}

std::vector<int32_t> folded(uint32_t p, uint32_t m, uint32_t n) {
  std::vector<int32_t> postfix{static_cast<int32_t>(p)};
  if (p + m < n) postfix.insert(postfix.end(), {static_cast<int32_t>(p + m), ReduceTree::kCombine});
  return postfix;
}

std::vector<int32_t> combined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  a.push_back(ReduceTree::kCombine);
  return a;
}

/// The sum that position p holds when it has exchanged with all distances from m/2 down to `distance`.
std::vector<int32_t> halved(uint32_t p, uint32_t distance, uint32_t m, uint32_t n) {
  if (distance >= m) return folded(p, m, n);
  return combined(halved(p, 2 * distance, m, n), halved(p ^ distance, 2 * distance, m, n));
}

std::vector<ReduceTree> halving_order(const Group& g, uint64_t count) {
  const uint32_t n = g.size(), m = power_below(n);
  std::vector<ReduceTree> trees;
  for (uint32_t p = 0; p < m; ++p) {
    const Range r = aligned_chunk(count, m, p);
    if (!r.empty()) trees.push_back({r, halved(p, 1, m, n)});
  }
  return name_leaves(std::move(trees), line_order(g));
}

std::vector<int32_t> doubled(uint32_t first, uint32_t size, uint32_t m, uint32_t n) {
  if (size == 1) return folded(first, m, n);
  return combined(doubled(first, size / 2, m, n), doubled(first + size / 2, size / 2, m, n));
}

std::vector<ReduceTree> doubling_order(const Group& g, uint64_t count) {
  const uint32_t m = power_below(g.size());
  return name_leaves({{{0, count}, doubled(0, m, m, g.size())}}, line_order(g));
}

/// The balanced tree over positions [0, n).
struct BinaryTree {
  std::vector<uint32_t> parent;  ///< n at the root
  std::vector<std::vector<uint32_t>> children;
  uint32_t root = 0, depth = 0;

  explicit BinaryTree(uint32_t n) : parent(n, n), children(n) { root = build(0, n, n, 0); }

 private:
  uint32_t build(uint32_t begin, uint32_t end, uint32_t above, uint32_t level) {
    const uint32_t at = begin + (end - begin) / 2;
    parent[at] = above;
    depth = std::max(depth, level);
    if (begin < at) children[at].push_back(build(begin, at, at, level + 1));
    if (at + 1 < end) children[at].push_back(build(at + 1, end, at, level + 1));
    return at;
  }
};

/// The rank at a tree's position: the second tree is turned by one.
uint32_t tree_rank(const std::vector<uint32_t>& order, uint32_t tree, uint32_t position) {
  return order[(position + tree) % order.size()];
}
/// Each tree has queue pairs of its own, so that the one's ways down do not wait for the other's ways up.
Dir tree_dir(uint32_t n, uint32_t tree, uint32_t rank) {
  return tl::peer_dir(tree * n + rank);
}

/// Words: n, then for each tree: parent's direction (none), number of children, their directions.
void double_tree_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  const uint32_t n = a.take32();
  Move up[2], down[2];
  for (uint32_t tree = 0; tree < 2; ++tree) {
    const Range half = aligned_chunk(count, 2, tree);
    const auto parent = static_cast<Dir>(a.take());
    tl::DirList children;
    for (uint64_t k = a.take(); k > 0; --k) children.push(static_cast<Dir>(a.take()));
    Move m = move_of(a, half.count, static_cast<uint16_t>(tree));
    m.local = buffer + half.begin * a.item();
    up[tree] = down[tree] = m;
    up[tree].from = children;
    if (parent != Dir::None) {
      up[tree].to = parent;
      down[tree].from = parent;
      down[tree].store = std::exchange(down[tree].local, 0);
      down[tree].to = children;
    } else {  // the root sends the sum down as it is made
      up[tree].to = children;
      up[tree].store = m.local;
      if (a.op == ReduceOp::Avg) up[tree].divisor = n;
      down[tree].count = 0;
    }
  }
  for (const Move& m : up) tl.submit(m);
  for (const Move& m : down) {
    if (m.count != 0) tl.submit(m);
  }
}

/// The ranks in line, and the tree over their positions.
struct TreeOnLine {
  explicit TreeOnLine(const Group& g) : order(line_order(g)), shape(g.size()) {}
  std::vector<uint32_t> order;
  BinaryTree shape;
};

std::vector<uint64_t> double_tree_words(const TreeOnLine& line, uint32_t rank) {
  const std::vector<uint32_t>& order = line.order;
  const BinaryTree& shape = line.shape;
  const auto n = static_cast<uint32_t>(order.size());
  const auto p = static_cast<uint32_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  std::vector<uint64_t> words{n};
  for (uint32_t tree = 0; tree < 2; ++tree) {
    const uint32_t at = (p + n - tree) % n;
    const auto dir = [&](uint32_t position) {
      return static_cast<uint64_t>(tree_dir(n, tree, tree_rank(order, tree, position)));
    };
    words.push_back(shape.parent[at] == n ? static_cast<uint64_t>(Dir::None) : dir(shape.parent[at]));
    words.push_back(shape.children[at].size());
    for (const uint32_t child : shape.children[at]) words.push_back(dir(child));
  }
  return words;
}

void append_double_tree_connections(const Group& g, uint32_t cube, std::vector<Connection>& out) {
  const std::vector<uint32_t> order = line_order(g);
  const uint32_t n = g.size();
  const BinaryTree shape(n);
  for (uint32_t tree = 0; tree < 2; ++tree) {
    for (uint32_t p = 0; p < n; ++p) {
      if (shape.parent[p] == n) continue;
      const uint32_t child = tree_rank(order, tree, p), parent = tree_rank(order, tree, shape.parent[p]);
      out.push_back({child, cube, tree_dir(n, tree, parent), parent, cube, tree_dir(n, tree, child)});
    }
  }
}

void append_binary(const BinaryTree& shape, uint32_t at, std::vector<int32_t>& postfix) {
  postfix.push_back(static_cast<int32_t>(at));
  for (const uint32_t child : shape.children[at]) {
    append_binary(shape, child, postfix);
    postfix.push_back(ReduceTree::kCombine);
  }
}

std::vector<ReduceTree> double_tree_order(const Group& g, uint64_t count) {
  const std::vector<uint32_t> order = line_order(g);
  const BinaryTree shape(g.size());
  std::vector<ReduceTree> trees;
  for (uint32_t tree = 0; tree < 2; ++tree) {
    ReduceTree t{aligned_chunk(count, 2, tree), {}};
    append_binary(shape, shape.root, t.postfix);
    for (int32_t& leaf : t.postfix) {
      if (leaf >= 0) leaf = static_cast<int32_t>(tree_rank(order, tree, static_cast<uint32_t>(leaf)));
    }
    if (!t.range.empty()) trees.push_back(std::move(t));
  }
  return trees;
}

/// Whether every SIP reaches every other without sharing links with the others' messages.
bool full_bisection(const CostQuery& q) {
  return q.group != nullptr &&
         (q.group->topology == SipTopology::FullyConnected || q.group->topology == SipTopology::Switch);
}

double log2_of(const CostQuery& q) {
  return std::log2(power_below(q.ranks));
}
/// A step sends what the one before has stored; only messages of one step overlap.
double unhidden_bytes(const CostQuery& q, double step_bytes) {
  return q.message_bytes > 0 ? std::min(step_bytes, q.message_bytes) : step_bytes;
}

/// What every step but the first waits for to have that read.
double reading_seconds(const CostQuery& q, double steps) {
  return std::max(0.0, steps - 1) * q.memory_latency / 2;
}

/// Links on the longest way of every exchange, all steps together. So many pairs share a link on a line.
double exchange_hops(const CostQuery& q) {
  const uint32_t m = power_below(q.ranks);
  if (q.group == nullptr) return m - 1.0;
  const std::vector<uint32_t> order = line_order(*q.group);
  constexpr uint32_t kSample = 64;  // the pattern repeats
  double hops = 0;
  for (uint32_t d = 1; d < m; d *= 2) {
    uint32_t longest = 0;
    for (uint32_t p = 0; p < std::min(m, kSample); ++p) {
      longest = std::max(longest, sip_hops(*q.group, order[p], order[p ^ d]));
    }
    hops += longest;
  }
  return hops;
}
/// Handing in, or out, what is beyond a power of two.
double fold_seconds(const CostQuery& q) {
  return power_below(q.ranks) == q.ranks ? 0 : q.latency + transfer_seconds(q, q.bytes);
}

/// What routed exchanges add to steps between neighbours: how much later every position is.
class RoutedExchanges {
 public:
  explicit RoutedExchanges(const CostQuery& q)
      : m_q(q), m_order(line_order(*q.group)), m_m(power_below(q.ranks)), m_late(q.ranks) {
    // Who takes nothing in has no time to spend on it.
    for (uint32_t p = q.ranks - m_m; p < m_m; ++p) m_late[p] = -fold_seconds(q);
    const std::vector<double> added = of_flows(q.ranks - m_m, m_m, q.bytes);
    for (uint32_t p = 0; p < added.size(); ++p) m_late[p] = added[p];
  }
  /// With those whose number differs in the bit `distance`.
  void exchange(uint32_t distance, double bytes) {
    const std::vector<double> before = m_late, added = of_flows(m_m, distance, bytes);
    for (uint32_t p = 0; p < m_m; ++p) m_late[p] = std::max(before[p], before[p ^ distance] + added[p]);
  }
  /// Of the last one.
  double seconds() const {
    double last = 0;
    const std::vector<double> added = of_flows(m_q.ranks - m_m, m_m, m_q.bytes);
    for (uint32_t p = 0; p < m_m; ++p) {
      last = std::max(last, m_late[p] + (p < added.size() ? added[p] : -fold_seconds(m_q)));
    }
    return last;
  }

 private:
  /// To each of the first `n` positions.
  std::vector<double> of_flows(uint32_t n, uint32_t distance, double bytes) const {
    std::vector<Flow> flows;
    for (uint32_t p = 0; p < n; ++p) {
      flows.push_back({m_q.group->sips[m_order[p ^ distance]], m_q.group->sips[m_order[p]], std::nullopt, 1});
    }
    const Detours::Ways ways = m_q.detours->of(flows);
    std::vector<double> out;
    for (uint32_t p = 0; p < n; ++p) {
      const double further = (ways.links[p] - 1) * hop_seconds(m_q);
      const double next = transfer_seconds(m_q, bytes), routed = transfer_seconds(m_q, bytes, ways.links[p]);
      out.push_back(std::max(further + routed, ways.carried[p] * bytes / shared_bandwidth(m_q)) - next);
    }
    return out;
  }
  const CostQuery& m_q;
  const std::vector<uint32_t> m_order;
  const uint32_t m_m;
  std::vector<double> m_late;
};

/// The longest way up a tree and down again for the first message, and what follows it over the fullest link.
double routed_tree_seconds(const CostQuery& q) {
  const TreeOnLine line(*q.group);
  const uint32_t n = q.ranks;
  std::vector<Flow> flows;  // of both trees, for every position but the root's: up, down
  for (uint32_t tree = 0; tree < 2; ++tree) {
    for (uint32_t p = 0; p < n; ++p) {
      if (line.shape.parent[p] == n) continue;
      const SipId child = q.group->sips[tree_rank(line.order, tree, p)];
      const SipId parent = q.group->sips[tree_rank(line.order, tree, line.shape.parent[p])];
      flows.push_back({child, parent, std::nullopt, 1});
      flows.push_back({parent, child, std::nullopt, 1});
    }
  }
  const Detours::Ways ways = q.detours->of(flows);
  const double further = hop_seconds(q), message = first_message(q, q.bytes / 2);
  const double follows = q.bytes / 2 - message;
  double longest = 0, slowest = follows / q.bandwidth;
  for (const uint32_t n_links : ways.links) slowest = std::max(slowest, transfer_seconds(q, follows, n_links));
  auto links = ways.links.begin();
  for (uint32_t tree = 0; tree < 2; ++tree) {
    std::vector<double> up(n), down(n);  // between a position and its parent
    for (uint32_t p = 0; p < n; ++p) {
      if (line.shape.parent[p] == n) continue;
      for (std::vector<double>* way : {&up, &down}) {
        (*way)[p] = q.latency + (*links++ - 1.0) * further + message / q.bandwidth;
      }
    }
    const auto from_root = [&](const std::vector<double>& way) {
      double most = 0;
      for (uint32_t p = 0; p < n; ++p) {
        double sum = 0;
        for (uint32_t at = p; at != line.shape.root; at = line.shape.parent[at]) sum += way[at];
        most = std::max(most, sum);
      }
      return most;
    };
    longest = std::max(longest, from_root(up) + from_root(down));
  }
  return longest + std::max(slowest, (ways.fullest * q.bytes / 2 - message) / shared_bandwidth(q));
}

AlgorithmModule named(AlgorithmModule m, const char* name, const char* doc) {
  m.name = name;
  m.kernel_name = std::string("ccl_") + name;
  m.doc = doc;
  return m;
}

}  // namespace

std::vector<AlgorithmModule> pairwise_all_reduce_modules() {
  const auto any = [](const Group&) { return std::string(); };
  LaneModule halving, doubling, tree;
  halving.refusal = doubling.refusal = tree.refusal = any;
  const auto lines = group_memo<std::vector<uint32_t>>([](const Group& g, uint32_t) { return line_order(g); });
  halving.words = doubling.words = [lines](const Group& g, uint32_t rank) { return cube_words(*lines->of(g), rank); };
  halving.connections = doubling.connections = append_cube_connections;
  halving.order = halving_order;
  halving.time = [](const CostQuery& q) {
    const double m = power_below(q.ranks), f = (m - 1) / m;
    double alone = 0;  // bytes that are read, reduced and written while nothing is under way
    for (double part = q.bytes / q.lanes / 2, d = 1; d < m; d *= 2, part /= 2) alone += 2 * unhidden_bytes(q, part);
    const double ends = alone * q.byte_seconds + reading_seconds(q, 2 * log2_of(q)) + 2 * fold_seconds(q);
    if (q.detours != nullptr && q.group != nullptr) {
      RoutedExchanges routed(q);
      double carried = 0;
      for (double d = 1; d < m; d *= 2) carried += 2 * transfer_seconds(q, q.bytes * d / m);
      for (uint32_t d = power_below(q.ranks) / 2; d > 0; d /= 2) routed.exchange(d, q.bytes * d / m);
      for (uint32_t d = 1; d < power_below(q.ranks); d *= 2) routed.exchange(d, q.bytes * d / m);
      return 2 * log2_of(q) * q.latency + carried + ends + routed.seconds();
    }
    if (full_bisection(q)) return 2 * log2_of(q) * q.latency + 2 * f * q.bytes / q.bandwidth + ends;
    return 2 * (m - 1) * q.latency + log2_of(q) * q.bytes / q.bandwidth + ends;
  };
  doubling.order = doubling_order;
  doubling.needs_scratch = true;
  doubling.time = [](const CostQuery& q) {
    const double steps = log2_of(q), hops = full_bisection(q) ? steps : exchange_hops(q);
    const double further = hop_seconds(q);
    const double alone = unhidden_bytes(q, q.bytes / q.lanes);
    const bool copied = static_cast<uint32_t>(steps) % 2 == 1;  // the result lies in the working memory
    const double copy = copied ? q.memory_latency + (q.node_bandwidth > 0 ? q.bytes / q.node_bandwidth : 0) : 0;
    const double carried = transfer_seconds(q, q.bytes), first = q.latency + carried / q.lanes;
    // On a routed way messages meet the others' where these come later than they themselves need for a hop.
    double routed = (hops - steps) * std::max(further, carried);
    if (q.detours != nullptr && q.group != nullptr) {
      RoutedExchanges exchanges(q);
      for (uint32_t d = 1; d < power_below(q.ranks); d *= 2) exchanges.exchange(d, q.bytes);
      routed = exchanges.seconds();
    }
    return steps * (std::max(carried, first) + alone * q.byte_seconds) + routed +
           (carried + q.latency - std::max(carried, first)) + reading_seconds(q, steps) + copy + 2 * fold_seconds(q);
  };
  const auto trees = group_memo<TreeOnLine>([](const Group& g, uint32_t) { return TreeOnLine(g); });
  tree.words = [trees](const Group& g, uint32_t rank) { return double_tree_words(*trees->of(g), rank); };
  tree.connections = append_double_tree_connections;
  tree.order = double_tree_order;
  tree.time = [](const CostQuery& q) {
    if (q.detours != nullptr && q.group != nullptr) return routed_tree_seconds(q);
    const uint32_t depth = BinaryTree(q.ranks).depth;
    if (full_bisection(q)) {
      const double copies = q.group->topology == SipTopology::Switch ? 2 : 1, half = first_message(q, q.bytes / 2);
      return 2 * depth * (q.latency + half / q.bandwidth) + copies * (q.bytes - 2 * half) / q.bandwidth;
    }
    return q.ranks * q.latency + std::max(2.0, log2_of(q)) * q.bytes / q.bandwidth;
  };
  AlgorithmModule halves = sip_all_reduce_module_of<halving_doubling_lane>(halving);
  AlgorithmModule doubles = sip_all_reduce_module_of<recursive_doubling_lane>(doubling);
  halves.traffic.asks = doubles.traffic.asks = true;
  AlgorithmModule trees_of_two = sip_all_reduce_module_of<double_tree_lane>(tree);
  trees_of_two.traffic.asks = true;
  return {
      named(std::move(halves), "halving_doubling", "full bisection: 2 log2(n)L + 2f S/B; ring: 2(n-1)L + log2(n) S/B"),
      named(std::move(doubles), "recursive_doubling", "small messages: log2(n)(L + S/B)"),
      named(std::move(trees_of_two), "double_binary_tree", "small messages, any n: 2 log2(n)L + 2S/B"),
  };
}

}  // namespace ahbm::ccl
