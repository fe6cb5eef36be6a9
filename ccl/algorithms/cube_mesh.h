// What collectives do among the cubes of one SIP. The cubes that take part are the first `n` of a mesh `w` wide, row by
// row: full rows and perhaps a shorter last one. Messages go to mesh neighbours only, by the directions N, S, E, W.
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/algorithm.h"
#include "models/tl/tl.h"

namespace ahbm::ccl {

struct CubeShape {
  uint32_t w = 1;
  uint32_t n = 1;

  /// \param cube_w width of the mesh, \param n_cubes cubes that take part
  CubeShape(uint32_t cube_w, uint32_t n_cubes) : w(cube_w < n_cubes ? cube_w : n_cubes), n(n_cubes) {}
  uint32_t rows() const { return (n + w - 1) / w; }
  uint32_t row_length(uint32_t y) const { return (y + 1) * w <= n ? w : n - y * w; }
  uint32_t column_length(uint32_t x) const { return x < row_length(rows() - 1) ? rows() : rows() - 1; }
};

/// A cube's place in the tree that reductions climb and broadcasts descend. The root is in the centre; a row is joined
/// at the root's column (a last row that does not reach it: at its last cube), columns lead to the root's row.
struct TreeNode {
  tl::Dir parent = tl::Dir::None;  ///< None: the root
  tl::DirList children;            ///< in the order W, E, N, S, which is the order of reduction
};
uint32_t tree_root(const CubeShape& shape);
TreeNode tree_node(const CubeShape& shape, uint32_t cube);
uint32_t tree_depth(const CubeShape& shape);

/// The order in which a reduction to the root combines the cubes: every cube takes its own contribution first, then its
/// children's sums. Postfix over `first + cube`.
void append_tree_order(const CubeShape& shape, int32_t first, std::vector<int32_t>& postfix);

struct CubeBuffer {
  Addr address = 0;
  uint64_t count = 0;  ///< elements of the whole buffer, the same on every cube
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
};

/// Submits this cube's part of a reduction to the root, in place at the root; the others' buffers stay as they are.
void reduce_to_root(tl::Tl& tl, const CubeShape& shape, uint32_t cube, const CubeBuffer& buffer);
/// Submits this cube's part of a broadcast from the root.
void broadcast_from_root(tl::Tl& tl, const CubeShape& shape, uint32_t cube, const CubeBuffer& buffer);
/// Cube c holds slice c of `chunks(count, n)`; afterwards all hold all. Along the rows, then along the columns (and,
/// for a short last row, along the rows again): no slice crosses a link twice. Returns when the last messages are
/// submitted.
void gather_slices(tl::Tl& tl, const CubeShape& shape, uint32_t cube, const CubeBuffer& buffer);

/// A queue pair between every two neighbours, on every rank.
void append_mesh_connections(const Group& group, std::vector<Connection>& out);

}  // namespace ahbm::ccl
