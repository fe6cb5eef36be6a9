// All-reduce on a torus or a mesh of x * y SIPs: reduce-scatter along one dimension, all-reduce of what a rank then
// owns along the other, all-gather along the first. A colour is a part of the buffer with an order of the dimensions,
// and on a torus a way round; colours use different links at any time.
//   torus_2d_1  X then Y, one way round                                  (2(x-1) + 2(y-1)) L + 2f S/B
//   torus_2d_2  the first half X then Y, the second Y then X, one way    (2(x-1) + 2(y-1)) L + f S/B
//   torus_2d    the same two halves, each round both ways (4 colours)    (2 floor(x/2) + 2 floor(y/2)) L + f S/(2B)
//   mesh_2d_1   X then Y, along lines                                    (2(x-1) + 2(y-1)) L + 2f S/B
//   mesh_2d     the two halves (2 colours)                               (2(x-1) + 2(y-1)) L + f S/B
// The phases' shares are equal for x = y; for others the closed form is the sum of the longer ones. Groups are
// rectangles of the grid (topology_embedding.h); a rectangle of one row is a plain ring or line.
//
// Order of the reduction: of axis.h, along the colour's first dimension, then of those sums along its second.
#include <fmt/format.h>

#include <algorithm>

#include "ccl/algorithms/modules.h"
#include "ccl/group_memo.h"
#include "ccl/topology_embedding.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;

struct Colours {
  uint32_t n = 1;  ///< 1: X then Y; 2: also Y then X
  AxisKind kind = AxisKind::Both;
};

struct Colour {
  Range part;  ///< of the buffer
  SipAxis first, second;
};

/// The axes of a cell of a w * h grid. `x`, `y`: AxisKind of each.
std::vector<Colour> colours_at(uint32_t n_colours, uint32_t w, uint32_t h, AxisKind kx, AxisKind ky, uint32_t cell,
                               uint64_t count) {
  const SipAxis x{Dir::GlobalW, Dir::GlobalE, w, cell % w, kx}, y{Dir::GlobalN, Dir::GlobalS, h, cell / w, ky};
  std::vector<Colour> out{{aligned_chunk(count, n_colours, 0), x, y}};
  if (n_colours == 2) out.push_back({aligned_chunk(count, n_colours, 1), y, x});
  return out;
}

}  // namespace

/// Words: colours, w, h, kinds of x and y, the cell.
void grid_lane(tl::Tl& tl, ModuleArguments& a, Addr buffer, uint64_t count) {
  const uint32_t n = a.take32(), w = a.take32(), h = a.take32();
  const auto kx = static_cast<AxisKind>(a.take()), ky = static_cast<AxisKind>(a.take());
  const std::vector<Colour> colours = colours_at(n, w, h, kx, ky, a.take32(), count);
  const auto phase = [&](auto&& schedule_of) {
    std::vector<AxisSchedule> schedules;
    for (const Colour& c : colours) schedules.push_back(schedule_of(c));
    submit_in_turn(tl, std::move(schedules));
    tl.wait_all();
  };
  const auto work = [&](const Range& whole, uint32_t parts) {
    AxisWork out(a, Parts(whole, parts));
    out.input = out.output = {buffer, 0};
    return out;
  };
  using Phases = AxisSchedule::Phases;
  const auto along_first = [&](const Colour& c, Phases phases) {
    return AxisSchedule(tl, c.first, work(c.part, c.first.n), phases);
  };
  phase([&](const Colour& c) { return along_first(c, Phases::ReduceScatter); });
  phase([&](const Colour& c) {
    AxisWork inner = work(Parts(c.part, c.first.n)[c.first.position], c.second.n);
    if (a.op == ReduceOp::Avg) inner.divisor = uint64_t{w} * h;
    return AxisSchedule(tl, c.second, std::move(inner), Phases::AllReduce);
  });
  phase([&](const Colour& c) { return along_first(c, Phases::AllGather); });
}

namespace {

struct Kinds {
  AxisKind x, y;
};
Kinds kinds_of(const Colours& colours, const GridOrder& grid) {
  return {grid.wraps_x ? colours.kind : AxisKind::Line, grid.wraps_y ? colours.kind : AxisKind::Line};
}

std::vector<ReduceTree> grid_order_of_reduction(const Colours& colours, const Group& g, uint64_t count) {
  const GridOrder grid = grid_order(g);
  const Kinds kinds = kinds_of(colours, grid);
  std::vector<ReduceTree> out;
  for (const Colour& c : colours_at(colours.n, grid.w, grid.h, kinds.x, kinds.y, 0, count)) {
    const bool x_first = c.first.next == Dir::GlobalE;
    const Parts blocks(c.part, c.first.n);
    // A block's halves have orders of their own along the first dimension; the second cuts the block anew.
    const std::vector<ReduceTree> outer = axis_order_of_reduction(c.first, blocks);
    for (uint32_t i = 0; i < c.first.n; ++i) {
      for (const ReduceTree& inner : axis_order_of_reduction(c.second, Parts(blocks[i], c.second.n))) {
        for (const ReduceTree& o : outer) {
          const uint64_t begin = std::max(inner.range.begin, o.range.begin);
          const uint64_t end = std::min(inner.range.end(), o.range.end());
          if (begin >= end) continue;
          ReduceTree tree{{begin, end - begin}, {}};
          for (const int32_t j : inner.postfix) {
            if (j < 0) {
              tree.postfix.push_back(j);
              continue;
            }
            for (const int32_t k : o.postfix) {
              if (k < 0) {
                tree.postfix.push_back(k);
                continue;
              }
              const auto cell = static_cast<uint32_t>(x_first ? j * static_cast<int32_t>(grid.w) + k
                                                              : k * static_cast<int32_t>(grid.w) + j);
              tree.postfix.push_back(static_cast<int32_t>(grid.order[cell]));
            }
          }
          out.push_back(std::move(tree));
        }
      }
    }
  }
  return out;
}

}  // namespace

SipAxis grid_axis(bool x, AxisKind kind) {
  SipAxis axis;
  axis.prev = x ? Dir::GlobalW : Dir::GlobalN;
  axis.next = x ? Dir::GlobalE : Dir::GlobalS;
  axis.kind = kind;
  return axis;
}

std::vector<std::vector<uint32_t>> lines_of(const GridOrder& grid, bool rows) {
  std::vector<std::vector<uint32_t>> out(rows ? grid.h : grid.w);
  for (uint32_t cell = 0; cell < grid.order.size(); ++cell) {
    out[rows ? cell / grid.w : cell % grid.w].push_back(grid.order[cell]);
  }
  return out;
}

namespace {

double grid_seconds(const Colours& colours, const CostQuery& q) {
  if (q.group == nullptr) return 0;
  const GridOrder grid = grid_order(*q.group);
  if (grid.order.empty()) return 0;
  const Kinds kinds = kinds_of(colours, grid);
  const double bytes = q.bytes / colours.n, cell = bytes / grid.w / grid.h;
  using Phases = AxisSchedule::Phases;
  const auto axes = [&](bool x, double block, Phases phases) {
    AxisSet out{grid_axis(x, x ? kinds.x : kinds.y), {}, block, phases};
    if (q.detours != nullptr) out.orders = lines_of(grid, x);
    return out;
  };
  // The other colour is at work on the other axis meanwhile, on blocks of that one's own; they end together.
  const auto phase = [&](double of_row, double of_column, Phases phases) {
    const bool all_reduce = phases == Phases::AllReduce;
    const auto along = [&](bool x) {
      const AxisSet own = axes(x, x ? of_row : of_column, phases), other = axes(!x, x ? of_column : of_row, phases);
      const AxisDetour detour = detour_of(q, own, colours.n == 2 ? other : AxisSet{});
      return axis_seconds(q, own.axis.kind, x ? grid.w : grid.h, own.block, phases, colours.n, detour);
    };
    return colours.n == 2 ? std::max(along(true), along(false)) : along(!all_reduce);
  };
  double seconds = phase(cell, cell, Phases::AllReduce) + 2 * turn_seconds(q, cell);
  for (const Phases p : {Phases::ReduceScatter, Phases::AllGather}) seconds += phase(bytes / grid.w, bytes / grid.h, p);
  return seconds;
}

/// Without a refusal.
LaneModule grid_lane_module(const Colours& colours) {
  LaneModule lane;
  const auto grids = group_memo<GridOrder>([](const Group& g, uint32_t) { return grid_order(g); });
  lane.words = [=](const Group& g, uint32_t rank) -> std::vector<uint64_t> {
    const auto shared = grids->of(g);
    const GridOrder& grid = *shared;
    const Kinds kinds = kinds_of(colours, grid);
    return {colours.n,          grid.w, grid.h, static_cast<uint64_t>(kinds.x), static_cast<uint64_t>(kinds.y),
            grid.position(rank)};
  };
  lane.connections = [=](const Group& g, uint32_t cube, std::vector<Connection>& out) {
    const GridOrder grid = grid_order(g);
    const Kinds kinds = kinds_of(colours, grid);
    for (const bool x : {true, false}) {
      for (const std::vector<uint32_t>& line : lines_of(grid, x)) {
        append_axis_connections(grid_axis(x, x ? kinds.x : kinds.y), line, cube, out);
      }
    }
  };
  lane.time = [=](const CostQuery& q) { return grid_seconds(colours, q); };
  lane.order = [=](const Group& g, uint64_t count) { return grid_order_of_reduction(colours, g, count); };
  return lane;
}

AlgorithmModule grid_module(const char* name, bool torus, const Colours& colours, const char* doc) {
  LaneModule lane = grid_lane_module(colours);
  const auto grids = group_memo<GridOrder>([](const Group& g, uint32_t) { return grid_order(g); });
  lane.refusal = [=](const Group& g) -> std::string {
    const auto shared = grids->of(g);
    const GridOrder& grid = *shared;
    if (grid.order.empty()) {
      return grid.refusal + "; ring, recursive_doubling and double_binary_tree run on any group";
    }
    if (torus && ((grid.w > 1 && !grid.wraps_x) || (grid.h > 1 && !grid.wraps_y))) {
      return fmt::format("{} needs wrap-around links in every dimension, and a {} group of {}x{} has none: use mesh_2d",
                         name, to_string(g.topology), grid.w, grid.h);
    }
    return {};
  };
  AlgorithmModule m = sip_all_reduce_module_of<grid_lane>(lane);
  m.name = name;
  m.traffic.asks = true;
  m.kernel_name = "ccl_grid";
  m.doc = doc;
  return m;
}

}  // namespace

LaneModule mesh_lane_module() {
  LaneModule lane = grid_lane_module({2, AxisKind::Line});
  lane.refusal = [](const Group& g) { return grid_order(g).refusal; };
  return lane;
}

std::vector<AlgorithmModule> grid_all_reduce_modules() {
  return {
      grid_module("torus_2d", true, {2, AxisKind::Both},
                  "torus, 2 dimensions x 2 directions: (2 floor(x/2) + 2 floor(y/2))L + f S/(2B)"),
      grid_module("torus_2d_2", true, {2, AxisKind::Up}, "torus, two colours: (2(x-1) + 2(y-1))L + f S/B"),
      grid_module("torus_2d_1", true, {1, AxisKind::Up}, "torus, one colour: (2(x-1) + 2(y-1))L + 2f S/B"),
      grid_module("mesh_2d", false, {2, AxisKind::Line}, "lines of a mesh, two colours: (2(x-1) + 2(y-1))L + f S/B"),
      grid_module("mesh_2d_1", false, {1, AxisKind::Line}, "lines of a mesh, one colour: (2(x-1) + 2(y-1))L + 2f S/B"),
  };
}

}  // namespace ahbm::ccl
