#include "ccl/algorithms/cube_mesh.h"

#include <algorithm>

namespace ahbm::ccl {

using tl::Dir;
using tl::Move;

namespace {

/// Column of a row's cube through which its sum leaves the row.
uint32_t gate(const CubeShape& s, uint32_t y) {
  return std::min(s.w / 2, s.row_length(y) - 1);
}

uint32_t root_row(const CubeShape& s) {
  const uint32_t y = s.rows() / 2;
  return s.row_length(y) > s.w / 2 || y == 0 ? y : y - 1;
}

Move move_of(const CubeBuffer& b, const Range& range, uint16_t step) {
  Move m;
  m.local = m.store = b.address + range.begin * item_bytes(b.dtype);
  m.count = range.count;
  m.dtype = b.dtype;
  m.op = b.op;
  m.step = step;
  return m;
}

/// An all-gather among the cubes of a line: every cube sends its own block both ways and passes on what comes, so that
/// the blocks reach the far ends in the order of their distance. `at`: this cube's index on the line; `minus` leads to
/// index at-1. Message steps are `step` + the owner's index.
void line_gather(tl::Tl& tl, const CubeBuffer& b, const std::vector<Range>& blocks, uint32_t at, Dir minus, Dir plus,
                 uint16_t step) {
  const auto length = static_cast<uint32_t>(blocks.size());
  const auto flow = [&](Dir in, Dir out, uint32_t upstream, uint32_t downstream, bool from_minus) {
    for (uint32_t k = 0; k <= upstream; ++k) {
      if (k == 0 && downstream == 0) continue;
      const uint32_t owner = from_minus ? at - k : at + k;
      Move m = move_of(b, blocks[owner], static_cast<uint16_t>(step + owner));
      (k == 0 ? m.store : m.local) = 0;
      if (k != 0) m.from = in;
      if (downstream != 0) m.to = out;
      tl.submit(m);
    }
  };
  flow(minus, plus, at, length - 1 - at, true);
  flow(plus, minus, length - 1 - at, at, false);
}

}  // namespace

uint32_t tree_root(const CubeShape& s) {
  return root_row(s) * s.w + gate(s, root_row(s));
}

TreeNode tree_node(const CubeShape& s, uint32_t cube) {
  const uint32_t x = cube % s.w, y = cube / s.w, centre = root_row(s);
  TreeNode node;
  if (x != gate(s, y)) {
    node.parent = x < gate(s, y) ? Dir::E : Dir::W;
  } else if (y != centre) {
    node.parent = y < centre ? Dir::S : Dir::N;
  }
  if (x > 0 && x <= gate(s, y)) node.children.push(Dir::W);
  if (x + 1 < s.row_length(y) && x >= gate(s, y)) node.children.push(Dir::E);
  if (y > 0 && y <= centre && x == gate(s, y - 1)) node.children.push(Dir::N);
  if (y + 1 < s.rows() && y >= centre && x == gate(s, y + 1)) node.children.push(Dir::S);
  return node;
}

namespace {

uint32_t neighbour(const CubeShape& s, uint32_t cube, Dir dir) {
  switch (dir) {
    case Dir::W:
      return cube - 1;
    case Dir::E:
      return cube + 1;
    case Dir::N:
      return cube - s.w;
    default:
      return cube + s.w;
  }
}

void append_subtree(const CubeShape& s, uint32_t cube, int32_t first, std::vector<int32_t>& postfix) {
  postfix.push_back(first + static_cast<int32_t>(cube));
  for (Dir child : tree_node(s, cube).children) {
    append_subtree(s, neighbour(s, cube, child), first, postfix);
    postfix.push_back(ReduceTree::kCombine);
  }
}

uint32_t depth_below(const CubeShape& s, uint32_t cube) {
  uint32_t depth = 0;
  for (Dir child : tree_node(s, cube).children) {
    depth = std::max(depth, 1 + depth_below(s, neighbour(s, cube, child)));
  }
  return depth;
}

}  // namespace

uint32_t tree_depth(const CubeShape& s) {
  return depth_below(s, tree_root(s));
}

void append_tree_order(const CubeShape& s, int32_t first, std::vector<int32_t>& postfix) {
  append_subtree(s, tree_root(s), first, postfix);
}

void reduce_to_root(tl::Tl& tl, const CubeShape& shape, uint32_t cube, const CubeBuffer& buffer) {
  const TreeNode node = tree_node(shape, cube);
  Move m = move_of(buffer, {0, buffer.count}, 0);
  m.from = node.children;
  if (node.parent != Dir::None) {
    m.to = node.parent;
    m.store = 0;
  } else if (node.children.empty()) {
    return;
  }
  tl.submit(m);
}

void broadcast_from_root(tl::Tl& tl, const CubeShape& shape, uint32_t cube, const CubeBuffer& buffer) {
  const TreeNode node = tree_node(shape, cube);
  Move m = move_of(buffer, {0, buffer.count}, 1);
  m.to = node.children;
  if (node.parent != Dir::None) {
    m.from = node.parent;
    m.local = 0;
  } else if (node.children.empty()) {
    return;
  } else {
    m.store = 0;
  }
  tl.submit(m);
}

void gather_slices(tl::Tl& tl, const CubeShape& shape, uint32_t cube, const CubeBuffer& buffer) {
  if (shape.n < 2) return;
  const std::vector<Range> slices = tl::Tl::chunks(buffer.count, shape.n);
  const uint32_t x = cube % shape.w, y = cube / shape.w;
  const auto row = [&](uint32_t r) {
    const uint64_t begin = slices[r * shape.w].begin;
    return Range{begin, slices[r * shape.w + shape.row_length(r) - 1].end() - begin};
  };

  const auto first = slices.begin() + y * shape.w;
  line_gather(tl, buffer, {first, first + shape.row_length(y)}, x, Dir::W, Dir::E, 0);
  tl.wait_all();  // what comes next reads what has just been stored

  std::vector<Range> rows;
  for (uint32_t r = 0; r < shape.column_length(x); ++r) rows.push_back(row(r));
  line_gather(tl, buffer, rows, y, Dir::N, Dir::S, 256);

  // Columns beyond the end of a short last row get it from the column at its end.
  const uint32_t short_row = shape.rows() - 1, end = shape.row_length(short_row);
  if (end == shape.w || y == short_row || x + 1 < end) return;
  tl.wait_all();
  Move m = move_of(buffer, row(short_row), 512);
  if (x + 1 < shape.w) m.to = Dir::E;
  if (x + 1 > end) {
    m.from = Dir::W;
    m.local = 0;
  } else {
    m.store = 0;
  }
  tl.submit(m);
}

void append_mesh_connections(const Group& group, std::vector<Connection>& out) {
  const CubeShape s(group.cube_w, group.n_cubes);
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    for (uint32_t cube = 0; cube < s.n; ++cube) {
      const uint32_t x = cube % s.w, y = cube / s.w;
      if (x + 1 < s.row_length(y)) out.push_back({rank, cube, Dir::E, rank, cube + 1, Dir::W});
      if (y + 1 < s.column_length(x)) out.push_back({rank, cube, Dir::S, rank, cube + s.w, Dir::N});
    }
  }
}

}  // namespace ahbm::ccl
