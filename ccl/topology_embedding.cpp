#include "ccl/topology_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>

namespace ahbm::ccl {
namespace {

using Order = std::vector<uint32_t>;

/// A cell of the grid, or with x and y exchanged when the construction runs along columns.
uint32_t cell(uint32_t x, uint32_t y, uint32_t w, bool transposed) {
  return transposed ? x * w + y : y * w + x;
}

/// An even number of rows (after the exchange): snake through columns 1.. row by row, and back up column 0.
Order mesh_cycle(uint32_t w, uint32_t h) {
  const bool transposed = h % 2 != 0;
  const uint32_t cols = transposed ? h : w, rows = transposed ? w : h;
  Order order;
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t i = 1; i < cols; ++i) order.push_back(cell(y % 2 == 0 ? i : cols - i, y, w, transposed));
  }
  for (uint32_t y = rows; y-- > 0;) order.push_back(cell(0, y, w, transposed));
  std::rotate(order.begin(), order.end() - 1, order.end());  // start at cell 0
  return order;
}

/// Odd times odd, with wrap-around: every row is walked all round, to the right or to the left, and the walk steps down
/// from where it ends. To the right that is one column before where the row began, to the left one behind; the walk
/// closes when the two kinds of rows differ in number by a multiple of the columns.
Order odd_torus_cycle(uint32_t w, uint32_t h) {
  const bool transposed = h < w;
  const uint32_t cols = transposed ? h : w, rows = transposed ? w : h;
  const uint32_t rightward = (rows + cols) / 2;
  Order order;
  uint32_t x = 0;
  for (uint32_t y = 0; y < rows; ++y) {
    const uint32_t step = y < rightward ? 1 : cols - 1;
    for (uint32_t i = 0; i < cols; ++i) order.push_back(cell((x + i * step) % cols, y, w, transposed));
    x = (x + (cols - 1) * step) % cols;
  }
  return order;
}

Order natural(uint32_t n) {
  Order order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// A Hamiltonian cycle of a rectangle.
RingOrder cycle(uint32_t w, uint32_t h, bool wraps_x, bool wraps_y) {
  const uint32_t n = w * h;
  if (n <= 2) return {natural(n), {}};
  if (w == 1 || h == 1) {
    if (w == 1 ? wraps_y : wraps_x) return {natural(n), {}};
    return {{}, fmt::format("a line of {} SIPs without wrap-around has no ring: use a torus_2d or a ring_1d", n)};
  }
  if (n % 2 == 0) return {mesh_cycle(w, h), {}};
  if (wraps_x && wraps_y) return {odd_torus_cycle(w, h), {}};
  return {{},
          fmt::format("a mesh of {}x{} SIPs has no Hamiltonian cycle (w*h is odd): use a torus_2d or an even number "
                      "of rows or columns",
                      w, h)};
}

}  // namespace

uint32_t RingOrder::position(uint32_t rank) const {
  const auto it = std::find(order.begin(), order.end(), rank);
  if (it == order.end()) throw std::out_of_range(fmt::format("rank {} is not on a ring of {}", rank, order.size()));
  return static_cast<uint32_t>(it - order.begin());
}

RingOrder ring_order(SipTopology topology, uint32_t w, uint32_t h, uint32_t n) {
  const bool grid = topology == SipTopology::Torus2d || topology == SipTopology::Mesh2d;
  if (!grid || n <= 2) return {natural(n), {}};
  if (n <= w * h && n % w == 0) {
    const bool wraps = topology == SipTopology::Torus2d;
    return cycle(w, n / w, wraps, wraps && n == w * h);
  }
  const auto refuse = [&](const std::string& why) { return RingOrder{{}, why}; };
  if (n > w * h) return refuse(fmt::format("{} ranks do not fit a {} of {}x{}", n, to_string(topology), w, h));
  return refuse(fmt::format("{} ranks are no whole rows of a {} of {}x{}: use a multiple of {} ranks", n,
                            to_string(topology), w, h, w));
}

namespace {

bool is_grid(SipTopology t) {
  return t == SipTopology::Torus2d || t == SipTopology::Mesh2d;
}

struct Cell {
  uint32_t x, y;
};
Cell cell_of(const Group& g, uint32_t rank) {
  const uint32_t sip = value(g.sips[rank]);
  return {sip % g.sip_w, sip / g.sip_w};
}

std::vector<uint32_t> by_sip(const Group& g) {
  std::vector<uint32_t> order = natural(g.size());
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return g.sips[a] < g.sips[b]; });
  return order;
}

/// Row by row, to the right and to the left in turn.
std::vector<uint32_t> snake(const Group& g) {
  std::vector<uint32_t> order = by_sip(g);
  bool leftward = false;
  for (auto row = order.begin(); row != order.end();) {
    const uint32_t y = cell_of(g, *row).y;
    const auto end = std::find_if(row, order.end(), [&](uint32_t r) { return cell_of(g, r).y != y; });
    if (leftward) std::reverse(row, end);
    leftward = !leftward;
    row = end;
  }
  return order;
}

}  // namespace

std::vector<uint32_t> line_order(const Group& group) {
  return is_grid(group.topology) ? snake(group) : by_sip(group);
}

uint32_t GridOrder::position(uint32_t rank) const {
  const auto it = std::find(order.begin(), order.end(), rank);
  if (it == order.end()) throw std::out_of_range(fmt::format("rank {} is not on a grid of {}x{}", rank, w, h));
  return static_cast<uint32_t>(it - order.begin());
}

GridOrder grid_order(const Group& group) {
  GridOrder grid;
  if (!is_grid(group.topology)) {
    grid.w = group.size();
    grid.h = 1;
    grid.wraps_x = true;
    grid.order = by_sip(group);
    return grid;
  }
  std::vector<bool> columns(group.sip_w), rows(group.sip_h);
  for (uint32_t r = 0; r < group.size(); ++r) {
    const Cell c = cell_of(group, r);
    if (c.x >= group.sip_w || c.y >= group.sip_h) {
      grid.refusal = fmt::format("rank {} is SIP {}, outside of a {} of {}x{}", r, value(group.sips[r]),
                                 to_string(group.topology), group.sip_w, group.sip_h);
      return grid;
    }
    columns[c.x] = rows[c.y] = true;
  }
  grid.w = static_cast<uint32_t>(std::count(columns.begin(), columns.end(), true));
  grid.h = static_cast<uint32_t>(std::count(rows.begin(), rows.end(), true));
  if (grid.w * grid.h != group.size()) {
    grid.refusal = fmt::format("{} ranks in {} columns and {} rows of a {} are no rectangle", group.size(), grid.w,
                               grid.h, to_string(group.topology));
    return grid;
  }
  grid.wraps_x = grid.wraps_y = group.topology == SipTopology::Torus2d;
  // Some of a torus' columns close their rows only if the way round does not lead over the row's own links: all of
  // them, or gaps no longer than half of the extent. Adjacent columns without the wrap are a line.
  const auto closes = [](const std::vector<bool>& used) {
    const auto extent = static_cast<uint32_t>(used.size());
    uint32_t gap = 0, longest = 0;
    for (uint32_t i = 0; i < 2 * extent; ++i) {
      gap = used[i % extent] ? 0 : gap + 1;
      longest = std::max(longest, gap + 1);
    }
    return 2 * longest <= extent || extent <= 2 || longest == 1;
  };
  grid.wraps_x = grid.wraps_x && closes(columns);
  grid.wraps_y = grid.wraps_y && closes(rows);
  grid.order = by_sip(group);
  return grid;
}

uint32_t sip_hops(const Group& group, uint32_t rank_a, uint32_t rank_b) {
  if (rank_a == rank_b) return 0;
  const auto along = [](uint32_t a, uint32_t b, uint32_t extent, bool wraps) {
    const uint32_t d = a < b ? b - a : a - b;
    return wraps ? std::min(d, extent - d) : d;
  };
  switch (group.topology) {
    case SipTopology::Ring1d:
      return along(value(group.sips[rank_a]), value(group.sips[rank_b]), std::max(group.machine_sips, group.sip_w),
                   true);
    case SipTopology::FullyConnected:
      return 1;
    case SipTopology::Switch:
      return 2;
    default:
      break;
  }
  const Cell a = cell_of(group, rank_a), b = cell_of(group, rank_b);
  const bool wraps = group.topology == SipTopology::Torus2d;
  return along(a.x, b.x, group.sip_w, wraps) + along(a.y, b.y, group.sip_h, wraps);
}

namespace {

/// The ranks of a growing tree, found by their SIPs.
class PlacedRanks {
 public:
  explicit PlacedRanks(const Group& group)
      : m_group(group),
        m_extent(is_grid(group.topology) ? group.sip_w * group.sip_h : std::max(group.machine_sips, group.sip_w)),
        m_turn(group.size()) {
    const auto outside = [this](SipId s) { return value(s) >= m_extent; };
    // What lies outside of the fabric has neighbours nowhere, but a number of hops.
    if (std::none_of(group.sips.begin(), group.sips.end(), outside)) m_on_sip.resize(m_extent);
  }

  void add(uint32_t rank) {
    m_turn[rank] = static_cast<uint32_t>(m_ranks.size());
    m_ranks.push_back(rank);
    if (!m_on_sip.empty()) m_on_sip[value(m_group.sips[rank])].push_back(rank);
  }
  /// Position in the order in which they were added.
  uint32_t turn(uint32_t rank) const { return m_turn[rank]; }

  /// Those on the same SIP.
  template <typename Fn>
  void for_each_beside(uint32_t rank, const Fn& fn) const {
    if (!m_on_sip.empty()) for_each_on(value(m_group.sips[rank]), fn);
  }
  /// Those one hop away, some of them twice where two ways lead to the same SIP.
  template <typename Fn>
  void for_each_neighbour(uint32_t rank, const Fn& fn) const {
    if (m_on_sip.empty()) return;
    const uint32_t sip = value(m_group.sips[rank]), w = m_group.sip_w, h = m_group.sip_h;
    if (!is_grid(m_group.topology)) {
      for (const uint32_t step : {1u, m_extent - 1}) for_each_on((sip + step) % m_extent, fn);
      return;
    }
    const auto [x, y] = cell_of(m_group, rank);
    const bool wraps = m_group.topology == SipTopology::Torus2d;
    if (wraps || x + 1 < w) for_each_on(y * w + (x + 1) % w, fn);
    if (wraps || x > 0) for_each_on(y * w + (x + w - 1) % w, fn);
    if (wraps || y + 1 < h) for_each_on((y + 1) % h * w + x, fn);
    if (wraps || y > 0) for_each_on((y + h - 1) % h * w + x, fn);
  }
  template <typename Fn>
  void for_each(const Fn& fn) const {
    for (const uint32_t rank : m_ranks) fn(rank);
  }

 private:
  template <typename Fn>
  void for_each_on(uint32_t sip, const Fn& fn) const {
    for (const uint32_t rank : m_on_sip[sip]) fn(rank);
  }

  const Group& m_group;
  const uint32_t m_extent;  ///< SIPs of the fabric
  std::vector<uint32_t> m_turn, m_ranks;
  std::vector<std::vector<uint32_t>> m_on_sip;  ///< empty: some are outside
};

}  // namespace

TreeOrder tree_order(const Group& group, uint32_t root) {
  constexpr size_t kMaxChildren = 4;
  const uint32_t n = group.size();
  TreeOrder tree;
  tree.parent.assign(n, root);
  tree.children.resize(n);
  if (group.topology == SipTopology::FullyConnected || group.topology == SipTopology::Switch) {
    // Every way is equally long: a heap of two children each keeps a root's link from carrying more than two copies.
    const auto rank = [&](uint32_t i) { return (root + i) % n; };
    for (uint32_t i = 1; i < n; ++i) {
      tree.parent[rank(i)] = rank((i - 1) / 2);
      tree.children[rank((i - 1) / 2)].push_back(rank(i));
    }
    for (uint32_t i = n; i > 1; i /= 2) ++tree.depth;
    tree.depth *= group.topology == SipTopology::Switch ? 2 : 1;
    return tree;
  }
  std::vector<uint32_t> order = natural(n), depth(n), branch(n, root), load(n), away(n);
  for (uint32_t r = 0; r < n; ++r) away[r] = sip_hops(group, root, r);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return away[a] < away[b]; });

  PlacedRanks placed(group);
  placed.add(root);
  using Cost = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;
  for (const uint32_t r : order) {
    if (r == root) continue;
    uint32_t best = root;
    Cost least{~0u, 0, 0, 0};
    const auto consider = [&](uint32_t p) {
      if (tree.children[p].size() == kMaxChildren) return;
      const uint32_t hops = sip_hops(group, p, r);
      const Cost cost{hops, depth[p] + hops, p == root ? 0 : load[branch[p]], placed.turn(p)};
      if (cost < least) least = cost, best = p;
    };
    const auto found = [&] { return std::get<0>(least) != ~0u; };
    placed.for_each_beside(r, consider);
    if (!found()) placed.for_each_neighbour(r, consider);
    if (!found()) placed.for_each(consider);
    tree.parent[r] = best;
    tree.children[best].push_back(r);
    branch[r] = best == root ? r : branch[best];
    ++load[branch[r]];
    depth[r] = std::get<1>(least);
    tree.depth = std::max(tree.depth, depth[r]);
    placed.add(r);
  }
  return tree;
}

RingOrder ring_order(const Group& group) {
  if (!is_grid(group.topology) || group.size() <= 2) return {by_sip(group), {}};
  const GridOrder grid = grid_order(group);
  if (grid.order.empty()) {
    if (grid.w * grid.h != group.size() && grid.w != 0 && grid.h != 0) return {snake(group), {}};
    return {{}, grid.refusal};
  }
  RingOrder ring = cycle(grid.w, grid.h, grid.wraps_x, grid.wraps_y);
  for (uint32_t& p : ring.order) p = grid.order[p];
  return ring;
}

Egress RingEgress::of(uint32_t rank, tl::Dir dir) {
  switch (dir) {
    case tl::Dir::GlobalN:
      return Egress::N;
    case tl::Dir::GlobalS:
      return Egress::S;
    case tl::Dir::GlobalE:
      return Egress::E;
    case tl::Dir::GlobalW:
      return Egress::W;
    default:
      break;
  }
  if (dir != tl::Dir::Next && dir != tl::Dir::Prev) return Egress::Any;
  const Group& group = m_group;
  if (group.topology == SipTopology::Ring1d) return dir == tl::Dir::Next ? Egress::E : Egress::W;
  const uint32_t n = group.size();
  if (!is_grid(group.topology) || n < 2) return Egress::Any;
  if (!m_ring) {
    m_ring = ring_order(group).order;
    m_position.resize(n);
    for (uint32_t p = 0; p < m_ring->size(); ++p) m_position[(*m_ring)[p]] = p;
  }
  const std::vector<uint32_t>& ring = *m_ring;
  if (ring.empty()) return Egress::Any;
  const uint32_t at = m_position.at(rank);
  const uint32_t peer = ring[dir == tl::Dir::Next ? (at + 1) % n : (at + n - 1) % n];
  const uint32_t from = value(group.sips[rank]), to = value(group.sips[peer]);
  const uint32_t w = group.sip_w, h = group.sip_h;
  const uint32_t x0 = from % w, y0 = from / w, x1 = to % w, y1 = to / w;
  const bool forward = dir == tl::Dir::Next;
  if (y0 == y1) {
    // In a dimension of 2 both ways lead to the same SIP; with two cables each direction takes its own.
    if (w == 2 && n == 2) return forward ? Egress::E : Egress::W;
    if ((x0 + 1) % w == x1 && (x0 + 1 < w || w > 2)) return Egress::E;
    if ((x1 + 1) % w == x0 && (x1 + 1 < w || w > 2)) return Egress::W;
  } else if (x0 == x1) {
    if (h == 2 && n == 2) return forward ? Egress::S : Egress::N;
    if ((y0 + 1) % h == y1 && (y0 + 1 < h || h > 2)) return Egress::S;
    if ((y1 + 1) % h == y0 && (y1 + 1 < h || h > 2)) return Egress::N;
  }
  return Egress::Any;
}

std::optional<Side> side_of(Egress egress) {
  switch (egress) {
    case Egress::N:
      return Side::N;
    case Egress::S:
      return Side::S;
    case Egress::E:
      return Side::E;
    case Egress::W:
      return Side::W;
    default:
      return std::nullopt;
  }
}

Egress ring_egress(const Group& group, uint32_t rank, tl::Dir dir) {
  return RingEgress(group).of(rank, dir);
}

}  // namespace ahbm::ccl
