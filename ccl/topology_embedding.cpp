#include "ccl/topology_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

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

}  // namespace

uint32_t RingOrder::position(uint32_t rank) const {
  const auto it = std::find(order.begin(), order.end(), rank);
  if (it == order.end()) throw std::out_of_range(fmt::format("rank {} is not on a ring of {}", rank, order.size()));
  return static_cast<uint32_t>(it - order.begin());
}

RingOrder ring_order(SipTopology topology, uint32_t w, uint32_t h, uint32_t n) {
  const bool grid = topology == SipTopology::Torus2d || topology == SipTopology::Mesh2d;
  if (!grid || n <= 2) return {natural(n), {}};
  const auto refuse = [&](const std::string& why) { return RingOrder{{}, why}; };
  if (n > w * h) return refuse(fmt::format("{} ranks do not fit a {} of {}x{}", n, to_string(topology), w, h));
  if (n % w != 0) {
    return refuse(fmt::format("{} ranks are no whole rows of a {} of {}x{}: use a multiple of {} ranks", n,
                              to_string(topology), w, h, w));
  }
  const bool wraps = topology == SipTopology::Torus2d;
  const bool wraps_x = wraps, wraps_y = wraps && n == w * h;
  const uint32_t rows = n / w;
  if (w == 1 || rows == 1) {
    if (w == 1 ? wraps_y : wraps_x) return {natural(n), {}};
    return refuse(fmt::format("a line of {} SIPs without wrap-around has no ring: use a torus_2d or a ring_1d", n));
  }
  if (n % 2 == 0) return {mesh_cycle(w, rows), {}};
  if (wraps_x && wraps_y) return {odd_torus_cycle(w, rows), {}};
  return refuse(
      fmt::format("a mesh of {}x{} SIPs has no Hamiltonian cycle (w*h is odd): use a torus_2d, or an even "
                  "number of rows or columns",
                  w, rows));
}

RingOrder ring_order(const Group& group) {
  const bool grid = group.topology == SipTopology::Torus2d || group.topology == SipTopology::Mesh2d;
  if (grid && group.size() > 2) {
    for (uint32_t r = 0; r < group.size(); ++r) {
      if (group.sips[r] == SipId{r}) continue;
      return {{},
              fmt::format("rank {} is SIP {}: on a {} a ring takes the SIPs 0 to {} in order", r, value(group.sips[r]),
                          to_string(group.topology), group.size() - 1)};
    }
  }
  return ring_order(group.topology, group.sip_w, group.sip_h, group.size());
}

Egress ring_egress(const Group& group, uint32_t rank, tl::Dir dir) {
  if (dir != tl::Dir::Next && dir != tl::Dir::Prev) return Egress::Any;
  if (group.topology == SipTopology::Ring1d) return dir == tl::Dir::Next ? Egress::E : Egress::W;
  const bool grid = group.topology == SipTopology::Torus2d || group.topology == SipTopology::Mesh2d;
  const RingOrder ring = ring_order(group);
  const uint32_t n = group.size();
  if (!grid || n < 2 || ring.order.empty()) return Egress::Any;
  const uint32_t at = ring.position(rank);
  const uint32_t peer = ring.order[dir == tl::Dir::Next ? (at + 1) % n : (at + n - 1) % n];
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

}  // namespace ahbm::ccl
