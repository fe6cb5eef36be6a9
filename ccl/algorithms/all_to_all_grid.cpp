// All-to-all on a rectangle, or a line, relayed along its rows and columns: a block goes along the row of its source to
// the column of its destination, then along that column; every second one, like the squares of a chessboard, goes the
// column first, so that all links are at work at any time. Four queue pairs per rank, and
//   (x + y) L + max(x, y) S/(4B)   on a mesh of x, y > 1; half of that on a torus
//   n L + n S/(4B)                 on a line
//
// Along an axis every link carries first the blocks of the rank before it, then those of the rank before that, and so
// on; each rank's farthest first. A rank stores what it relays, block by block, while it is sending what is in front of
// it.
//
// Why nobody waits for ever: each block's passage of a link has a time, the part of the link's passages of this way
// that come before it, and later links' times of the same block are later. Everybody submits both ends of passages in
// the order of times and waits for earlier ones only; and less than a PE's moves in flight have the same time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <stdexcept>

#include "ccl/algorithms/modules.h"
#include "ccl/detours.h"
#include "ccl/group_memo.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;
using tl::Move;

/// What one way of an axis does at an end of a link: the blocks that pass it, one after the other.
class Passages {
 public:
  /// \param position  of the rank  \param across  blocks for a position of the axis, the ranks of the other axis
  Passages(uint32_t n, bool ring, uint32_t across, uint32_t position, bool up, bool send)
      : m_n(n), m_across(across), m_ring(ring), m_up(up), m_send(send) {
    const uint32_t along = mirrored(position);
    if (n < 2 || (!ring && along == (send ? n - 1 : 0))) return;
    m_link = send ? along : (along + n - 1) % n;
    m_rounds = ring ? n / 2 : m_link + 1;
    m_distance = farthest();
  }
  bool done() const { return m_round == m_rounds; }
  void advance() {
    if (++m_beside < m_across) return;
    m_beside = 0;
    if (--m_distance > m_round) return;
    if (++m_round < m_rounds) m_distance = farthest();
  }
  double time() const {
    const double in_round = farthest() - m_round, before = farthest() - m_distance + double(m_beside) / m_across;
    return (m_round + before / in_round) / m_rounds;
  }
  bool up() const { return m_up; }
  bool send() const { return m_send; }
  uint32_t origin() const { return mirrored(source()); }
  uint32_t destination() const { return mirrored((source() + m_distance) % m_n); }
  uint32_t beside() const { return m_beside; }
  /// Of the block to the position opposite on a ring half goes either way.
  Range part_of(uint64_t block) const {
    return m_ring && 2 * m_distance == m_n ? aligned_chunk(block, 2, m_up ? 0 : 1) : Range{0, block};
  }

 private:
  uint32_t mirrored(uint32_t position) const { return m_up ? position : m_n - 1 - position; }
  uint32_t source() const { return (m_link + m_n - m_round) % m_n; }
  uint32_t farthest() const { return m_ring ? m_n / 2 : m_n - 1 - source(); }

  uint32_t m_n, m_across;
  bool m_ring, m_up, m_send;
  uint32_t m_link = 0;                 ///< between the positions `m_link` and the next, counted along the way
  uint32_t m_round = 0, m_rounds = 0;  ///< links that lie behind a block
  uint32_t m_distance = 0, m_beside = 0;
};

struct Sheet {
  uint32_t w, h;
  bool wraps_x, wraps_y;
  uint32_t x, y;                ///< of this rank
  std::vector<uint32_t> order;  ///< rank of a cell
  CollectiveShape shape;

  uint32_t cells() const { return w * h; }
  uint32_t here() const { return y * w + x; }
  uint64_t sent(uint32_t from, uint32_t to) const { return shape.sent(cells(), order[from], order[to]); }
  /// Whether a block goes along the columns first.
  bool columns_first(uint32_t from, uint32_t to) const {
    return w > 1 && h > 1 && (from % w + from / w + to % w + to / w) % 2 != 0;
  }
};

/// A block that passes a link.
struct Passing {
  uint32_t from, to;
};
Passing passing(const Sheet& s, const Passages& p, bool along_x, bool first) {
  const uint32_t a = p.origin(), b = p.destination(), k = p.beside();
  if (along_x) return first ? Passing{s.y * s.w + a, k * s.w + b} : Passing{k * s.w + a, s.y * s.w + b};
  return first ? Passing{a * s.w + s.x, b * s.w + k} : Passing{a * s.w + k, b * s.w + s.x};
}

/// Working memory for blocks that are relayed. Along a way a rank never has more of them than it has blocks of its own
/// to send that way: both ways and both axes together less than all of its blocks.
class Transit {
 public:
  Transit(tl::Tl& tl, Addr base, uint64_t slots, uint64_t bytes) : m_tl(tl) {
    for (uint64_t i = 0; i < slots; ++i) m_free.push_back({base + i * bytes, 0});
  }
  Addr take() {
    if (m_free.empty()) throw std::logic_error("all_to_all_grid has more to relay than it has room for");
    const auto [at, sent] = m_free.front();
    m_free.pop_front();
    if (sent != 0) m_tl.wait(sent);
    return at;
  }
  void give_back(Addr at, tl::Handle sent) { m_free.push_back({at, sent}); }

 private:
  struct Slot {
    Addr at;
    tl::Handle sent;  ///< the last move that has read it
  };
  tl::Tl& m_tl;
  std::deque<Slot> m_free;
};

/// Words: cell, w, h, whether rows and columns wrap, the ranks by cell, count, number of counts, the counts.
void all_to_all_grid_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  Sheet s;
  const uint32_t here = a.take32();
  s.w = a.take32();
  s.h = a.take32();
  s.wraps_x = a.take() != 0;
  s.wraps_y = a.take() != 0;
  s.x = here % s.w;
  s.y = here / s.w;
  const uint32_t n = s.cells(), item = a.item();
  for (uint32_t i = 0; i < n; ++i) s.order.push_back(a.take32());
  s.shape = take_blocks(a);

  // Where the blocks to and from the rank of every cell lie.
  std::vector<Addr> input(n), output(n);
  std::vector<uint32_t> cell_of(n);
  for (uint32_t c = 0; c < n; ++c) cell_of[s.order[c]] = c;
  Addr next_input = a.input, next_output = a.output;
  for (const uint32_t c : cell_of) {
    input[c] = next_input;
    output[c] = next_output;
    next_input += s.sent(here, c) * item;
    next_output += s.sent(c, here) * item;
  }
  if (s.sent(here, here) != 0) tl.copy(input[here], output[here], s.sent(here, here), a.dtype);

  const uint64_t slot = longest_block(s.shape) * item;
  const auto corner = [&](const Passing& b) {  // of those that turn here
    return a.scratch +
           (s.columns_first(b.from, b.to) ? b.from / s.w * s.w + b.to % s.w : b.to / s.w * s.w + b.from % s.w) * slot;
  };
  for (const bool first : {true, false}) {
    Transit transit(tl, a.scratch + n * slot, n, slot);
    struct Stored {
      Addr at;
      tl::Handle received;
    };
    struct Way {
      SipAxis axis;
      Passages passages;
    };
    std::vector<Way> ways;
    std::deque<Stored> relayed[2][2];  // by axis and way
    for (const bool x : {true, false}) {
      SipAxis axis = grid_axis(x, AxisKind::Both);
      axis.n = x ? s.w : s.h;
      axis.position = x ? s.x : s.y;
      for (const bool up : {true, false}) {
        for (const bool send : {true, false}) {
          ways.push_back({axis, Passages(axis.n, x ? s.wraps_x : s.wraps_y, n / axis.n, axis.position, up, send)});
        }
      }
    }
    for (;;) {
      Way* next = nullptr;
      for (Way& way : ways) {
        if (!way.passages.done() && (next == nullptr || way.passages.time() < next->passages.time())) next = &way;
      }
      if (next == nullptr) break;
      const Passages p = next->passages;
      next->passages.advance();
      const bool x = next->axis.next == Dir::GlobalE;
      const Passing b = passing(s, p, x, first);
      if (s.columns_first(b.from, b.to) != (x != first)) continue;
      const Range part = p.part_of(s.sent(b.from, b.to));
      if (part.empty()) continue;
      Move m = a.move(part.count, wire_step(uint64_t{b.from} * n + b.to));
      auto& waiting = relayed[x][p.up()];
      if (p.send()) {
        m.to = p.up() ? next->axis.next : next->axis.prev;
        if (p.origin() == next->axis.position) {
          m.local = (b.from == here ? input[b.to] : corner(b)) + part.begin * item;
          tl.submit(m);
        } else {
          tl.wait(waiting.front().received);
          m.local = waiting.front().at;
          waiting.pop_front();
          transit.give_back(m.local, tl.submit(m));
        }
      } else {
        m.from = p.up() ? next->axis.prev : next->axis.next;
        if (p.destination() == next->axis.position) {
          m.store = (b.to == here ? output[b.from] : corner(b)) + part.begin * item;
          tl.submit(m);
        } else {
          m.store = transit.take();
          waiting.push_back({m.store, tl.submit(m)});
        }
      }
    }
    tl.wait_all();  // the second half of the way begins with what the first one has stored
  }
}

/// Rows or columns, for the closed form.
struct AxisLoad {
  uint32_t n, across;  ///< ranks along it, and along the other axis
  bool ring;

  double reach() const { return ring ? n / 2 : n - 1; }
  /// Pairs of positions whose blocks pass the link behind position p one way.
  double pairs(uint32_t p) const { return ring ? std::floor(n * double(n) / 4) / 2 : (p + 1.0) * (n - 1 - p); }
  /// Blocks of a half of the way there. Where the squares of a pair are odd in number, one colour has more.
  double blocks(uint32_t p) const {
    if (across == 1) return pairs(p);
    double more = 0;
    if (ring) {
      for (uint32_t d = 1; d <= n / 2; ++d) more += (d % 2 == 0 ? 1 : -1) * (2 * d == n ? d / 2.0 : d);
    } else {
      more = (p + 1) % 2 * ((n - 1 - p) % 2);
    }
    return (pairs(p) * across + (across % 2) * std::abs(more)) / 2;
  }
  /// Moves over the fullest link: half a block takes one as well.
  double moves() const {
    return blocks(middle()) + (ring && n % 2 == 0 ? n / 4.0 * (across > 1 ? across / 2.0 : 1) : 0);
  }
  uint32_t middle() const { return (n - 1) / 2; }
};

/// What goes along an axis, of one half of the way.
std::vector<Flow> axis_flows(const Group& g, const GridOrder& grid, bool x, const AxisLoad& load, RingEgress& egress) {
  std::vector<Flow> out;
  const SipAxis axis = grid_axis(x, AxisKind::Both);
  for (const std::vector<uint32_t>& line : lines_of(grid, x)) {
    for (uint32_t p = 0; p + !load.ring < load.n && load.n > 1; ++p) {
      const uint32_t here = line[p], there = line[(p + 1) % load.n];
      out.push_back({g.sips[here], g.sips[there], side_of(egress.of(here, axis.next)), load.blocks(p)});
      out.push_back({g.sips[there], g.sips[here], side_of(egress.of(there, axis.prev)), load.blocks(p)});
    }
  }
  return out;
}

/// \param carried  blocks on the fullest link  \param way  of the longest connection  \param rate  of its link
double along_seconds(const CostQuery& q, const AxisLoad& load, double carried, double way, double rate) {
  if (load.n < 2) return 0;
  const double block = q.bytes / q.ranks, first = first_message(q, block) / rate;
  const double relay = way + turn_seconds(q, block);
  // What a rank has to send before it relays a block hides the way of that block; a colour's share is not always half.
  const double share = carried / load.pairs(load.middle()) - (load.across > 1 ? 0.5 : 0);
  const double each = std::clamp(relay + (1 - share) * block / rate, 0.0, relay);
  const double hidden = carried * block / rate + way + (load.reach() - 1) * each;
  // A PE has so many moves in flight, to relay takes two, and the other ways and the other axis have theirs.
  const double turns = load.across > 1 ? (load.moves() - 4) / 5.5 : (load.moves() - 2) / 6;
  const double in_flight = load.reach() * (relay + first) + std::max(0.0, turns) * (way + first);
  const double pieces = q.message_bytes > 0 ? std::max(1.0, std::ceil(block / q.lanes / q.message_bytes)) : 1;
  const double credits = load.reach() / 3 * way +
                         credit_seconds(q, load.moves() * pieces, std::min(block, q.message_bytes * q.lanes), way);
  return std::max({hidden, in_flight, credits});
}

double all_to_all_grid_seconds(const CostQuery& q) {
  if (q.ranks < 2 || q.group == nullptr) return 0;
  const Group& g = *q.group;
  const GridOrder grid = grid_order(g);
  if (grid.order.empty()) return 0;
  const AxisLoad rows{grid.w, grid.h, grid.wraps_x}, columns{grid.h, grid.w, grid.wraps_y};
  RingEgress egress(g);
  const auto along = [&](bool x) {
    const AxisLoad& load = x ? rows : columns;
    double carried = load.blocks(load.middle()), way = q.latency;
    // Both directions of a ring of two are one cable, unless there are two.
    if (load.ring && load.n == 2 && !g.double_links) carried *= 2;
    const auto links_of = [](const AxisLoad& l) { return std::min(l.n - 1, 2u); };
    CostQuery shared = q;
    if (q.detours != nullptr && load.n > 1) {
      const Detours::Ways ways =
          q.detours->of(axis_flows(g, grid, x, load, egress), axis_flows(g, grid, !x, x ? columns : rows, egress));
      way += (*std::max_element(ways.links.begin(), ways.links.end()) - 1.0) * hop_seconds(q);
      carried = ways.fullest;
      shared.bandwidth = shared_bandwidth(q);
    }
    return along_seconds(q, load, carried, way, link_bandwidth(shared, links_of(rows) + links_of(columns)));
  };
  return rows.n > 1 && columns.n > 1 ? 2 * std::max(along(true), along(false)) : along(true) + along(false);
}

}  // namespace

AlgorithmModule all_to_all_grid_module() {
  AlgorithmModule m;
  m.name = "all_to_all_grid";
  m.kernel_name = "ccl_" + m.name;
  m.doc =
      "relayed along rows and columns, a queue pair per neighbour: (x+y)L + max(x,y) S/(4B), of a torus half of that";
  m.collective = Collective::AllToAll;
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded};
  m.kernel = all_to_all_grid_kernel;
  const auto grids = group_memo<GridOrder>([](const Group& g, uint32_t) { return grid_order(g); });
  m.refusal = [grids](const Group& g) -> std::string {
    if (g.topology != SipTopology::Torus2d && g.topology != SipTopology::Mesh2d) {
      return fmt::format(
          "all_to_all_grid runs on a torus_2d and a mesh_2d, not on a {}; all_to_all_direct and "
          "all_to_all_ring do",
          to_string(g.topology));
    }
    const std::string why = grids->of(g)->refusal;
    return why.empty() ? why : why + "; all_to_all_direct and all_to_all_ring run there";
  };
  m.rank_args = [grids](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const auto grid = grids->of(g);
    std::vector<uint64_t> words{grid->position(rank), grid->w, grid->h, grid->wraps_x, grid->wraps_y};
    words.insert(words.end(), grid->order.begin(), grid->order.end());
    put_blocks(shape, words);
    return words;
  };
  m.scratch_bytes = [](const Group& g, const CollectiveShape& shape) {
    return 2 * uint64_t{g.size()} * longest_block(shape) * item_bytes(shape.dtype);
  };
  m.connections = [](const Group& g, const CollectiveShape&) {
    const GridOrder grid = grid_order(g);
    std::vector<Connection> out;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) {
      for (const bool x : {true, false}) {
        const SipAxis axis = grid_axis(x, (x ? grid.wraps_x : grid.wraps_y) ? AxisKind::Both : AxisKind::Line);
        for (const std::vector<uint32_t>& line : lines_of(grid, x)) append_axis_connections(axis, line, cube, out);
      }
    }
    return out;
  };
  m.traffic.asks = true;
  m.time = all_to_all_grid_seconds;
  return m;
}

}  // namespace ahbm::ccl
