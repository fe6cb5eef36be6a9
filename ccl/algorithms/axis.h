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
#include <utility>
#include <vector>

#include "ccl/algorithm.h"
#include "ccl/algorithms/lanes.h"
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
  /// Connections of so many positions: from each to the next one.
  size_t links(size_t positions) const { return positions < 2 ? 0 : positions - (kind == AxisKind::Line ? 1 : 0); }
  struct Reach {
    uint32_t before, after;
  };
  Reach reach(uint32_t owner, uint32_t part) const;
};

/// Where the elements of the blocks lie: element e at `base + (e - origin) * item`.
struct Place {
  Addr base = 0;
  uint64_t origin = 0;
  Addr at(uint64_t element, uint32_t item) const { return base + (element - origin) * item; }
};

struct AxisWork {
  AxisWork(const ModuleArguments& a, Parts cut)
      : blocks(std::move(cut)), dtype(a.dtype), op(a.op), message_bytes(a.message_bytes) {}

  Parts blocks;  ///< of each position, in elements
  DType dtype;
  ReduceOp op;
  uint32_t message_bytes;  ///< ModuleArguments::message_bytes
  uint64_t divisor = 1;
  Place input, output;
};

/// What a position does, step by step. Steps are made when they are asked for: those of a long axis, of every PE, are
/// more than the host's caches hold.
class AxisSchedule {
 public:
  enum class Phases : uint8_t {
    ReduceScatter,  ///< every position ends with the reduction of its block, at `output`
    AllGather,      ///< every position gives its block, from `input`, and ends with all of them at `output`
    AllReduce       ///< both after one another, in place at `input`; an owner passes its block on without a stop
  };
  AxisSchedule(const tl::Tl& tl, const SipAxis& axis, AxisWork work, Phases phases);
  /// As StepSource.
  bool next(Step& out);

 private:
  /// One way along the axis: data enters by `in` and leaves by `out`.
  struct Flow {
    tl::Dir in, out;
    bool up;
  };
  bool reduces() const { return m_phases != Phases::AllGather; }
  bool gathers() const { return m_phases != Phases::ReduceScatter; }
  /// The position `d` further on, or back; n when a line ends before.
  uint32_t away(uint32_t d, bool further) const;
  /// Of the owner's block, what the slab and the half of an even ring leave.
  Range part_of(uint32_t owner) const;
  tl::Move move_for(uint32_t owner, const Range& part, bool gather) const;
  /// A step without elements: schedules that take turns take one for it.
  static bool pass_over(Step& out) {
    out.move.count = 0;
    return true;
  }
  // False: this position has nothing to do there.
  bool fill_in(Step& out) const;
  bool towards_owner(Step& out, const Flow& flow, uint32_t d) const;
  bool at_owner(Step& out) const;
  bool from_owner(Step& out, const Flow& flow, uint32_t d) const;
  void advance();

  SipAxis m_axis;
  AxisWork m_work;
  Phases m_phases;
  Flow m_flows[2];
  SlabPlan m_plan;
  // Where it stands: round k < n-1 brings sums to the owner n-1-k away, n-1 is at the owner, later ones bring results.
  uint64_t m_slab = 0;
  uint32_t m_round = 0, m_first_round = 0, m_end_round = 0;
  uint32_t m_part = 0, m_flow = 0;
};

/// Submits schedules step by step in turn, so that what they do on different links overlaps.
void submit_in_turn(tl::Tl& tl, std::vector<AxisSchedule> schedules);

/// The documented order for blocks of positions, as postfix over positions.
std::vector<ReduceTree> axis_order_of_reduction(const SipAxis& axis, const Parts& blocks);

/// Queue pairs along an axis whose positions are the ranks of `order`, on one cube.
void append_axis_connections(const SipAxis& axis, const std::vector<uint32_t>& order, uint32_t cube,
                             std::vector<Connection>& out);

}  // namespace ahbm::ccl
