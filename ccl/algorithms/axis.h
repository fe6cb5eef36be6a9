// Reductions and gathers along one axis of a group: a ring, walked one way or both, or a line. Rings, lines, tori and
// meshes are put together from them.
//
// Every position owns a block. Partial sums of a block flow to its owner from the `before` positions below it, towards
// Next, and from the `after` positions above it, towards Prev; what an owner has flows back the same ways.
//   ring, one way    before = n-1, after = 0 (Up), or the other way round (Down)
//   ring, both ways  before = after = (n-1)/2; an even n has one position opposite of the owner: a block's first half
//   (of
//                    torch.chunk's two) counts it to `before`, the second half to `after`
//   line             before = owner, after = n-1-owner
// Order of a reduction, with o the owner:
//   (x[o] + (x[o-1] + (x[o-2] + ... x[o-before]))) + (x[o+1] + (x[o+2] + ... x[o+after]))
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/algorithm.h"
#include "ccl/kernel_arguments.h"
#include "models/tl/tl.h"

namespace ahbm::ccl {

enum class AxisKind : uint8_t { Up, Down, Both, Line };

struct SipAxis {
  tl::Dir prev = tl::Dir::Prev, next = tl::Dir::Next;
  uint32_t n = 1, position = 0;
  AxisKind kind = AxisKind::Both;

  /// Halves that a block is cut into.
  uint32_t parts() const { return kind == AxisKind::Both && n % 2 == 0 ? 2 : 1; }
  struct Reach {
    uint32_t before, after;
  };
  Reach reach(uint32_t owner, uint32_t part) const;
};

/// A move of a schedule; with `store_first` what it receives is stored before it is passed on.
struct Step {
  tl::Move move;
  bool store_first = false;
};
/// Submits schedules step by step in turn, so that what they do on different links overlaps.
void submit_in_turn(tl::Tl& tl, const std::vector<std::vector<Step>>& schedules);

/// Where the elements of the blocks lie: element e at `base + (e - origin) * item`.
struct Place {
  Addr base = 0;
  uint64_t origin = 0;
  Addr at(uint64_t element, uint32_t item) const { return base + (element - origin) * item; }
};

struct AxisWork {
  std::vector<Range> blocks;  ///< of each position, in elements
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  uint64_t divisor = 1;
  uint32_t message_bytes = 0;  ///< ModuleArguments::message_bytes
  Place input, output;
};

/// Every position ends with the reduction of its block, at `output`.
std::vector<Step> reduce_scatter_steps(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work);
/// Every position gives its block, from `input`, and ends with all of them at `output`.
std::vector<Step> all_gather_steps(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work);
/// Both after one another, in place at `input`; an owner passes its block on without a stop.
std::vector<Step> all_reduce_steps(const tl::Tl& tl, const SipAxis& axis, const AxisWork& work);

/// The documented order for blocks of positions, as postfix over positions.
std::vector<ReduceTree> axis_order_of_reduction(const SipAxis& axis, const std::vector<Range>& blocks);

/// Queue pairs along an axis whose positions are the ranks of `order`, on one cube.
void append_axis_connections(const SipAxis& axis, const std::vector<uint32_t>& order, uint32_t cube,
                             std::vector<Connection>& out);

}  // namespace ahbm::ccl
