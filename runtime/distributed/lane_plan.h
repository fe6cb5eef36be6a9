// How a collective's elements are spread over lanes, and where each lies in a tensor's memory. A lane is one cube of
// every SIP of the group; its kernel wants the blocks of a collective one after the other in one buffer. Tensors lie as
// their DPPolicy says, so some lanes read and write them in place and the others go through a staging buffer that is
// packed before and unpacked after. Plain arithmetic on layouts; knows no SystemC.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/core/address_map.h"
#include "runtime/layout/dp_policy.h"
#include "runtime/layout/strided_view.h"

namespace ahbm::runtime::distributed {

/// Elements [element, element + count) of a block.
struct LaneRun {
  uint32_t block = 0;
  uint64_t element = 0;
  uint64_t count = 0;
  friend bool operator==(const LaneRun& a, const LaneRun& b) {
    return a.block == b.block && a.element == b.element && a.count == b.count;
  }
};

/// What one lane carries, blocks ascending: the order of its buffers.
class Lane {
 public:
  void add(const LaneRun& run);  ///< joins the last run where it continues it
  const std::vector<LaneRun>& runs() const { return m_runs; }
  uint64_t count() const { return m_count; }
  uint64_t count(uint32_t block) const { return block < m_blocks.size() ? m_blocks[block] : 0; }

 private:
  std::vector<LaneRun> m_runs;
  std::vector<uint64_t> m_blocks;
  uint64_t m_count = 0;
};

/// A row-major tensor cut into blocks along a dimension: `outer` times, `parts[b]` elements in a row belong to block b.
/// A block is numbered row-major in itself.
class BlockCut {
 public:
  BlockCut() : BlockCut(1, {}) {}
  BlockCut(uint64_t outer, std::vector<uint64_t> parts);
  static BlockCut whole(uint64_t elements) { return {1, {elements}}; }
  /// n equal parts of dimension `dim`. \pre shape[dim] % n == 0
  static BlockCut equal(const layout::Shape& shape, size_t dim, uint32_t n);
  /// splits[b] rows of the first dimension each.
  static BlockCut rows(const layout::Shape& shape, const std::vector<uint64_t>& splits);

  size_t blocks() const { return m_parts.size(); }
  uint64_t row() const { return m_begins.back(); }
  uint64_t elements(uint32_t block) const { return m_outer * m_parts[block]; }
  /// fn(element of the block, logical element, count) for every contiguous piece of the run.
  void for_each_logical(const LaneRun& run, const std::function<void(uint64_t, uint64_t, uint64_t)>& fn) const;
  /// fn(run of a block) for the logical elements [begin, begin + count), in their order.
  void for_each_block(uint64_t begin, uint64_t count, const std::function<void(const LaneRun&)>& fn) const;

 private:
  uint64_t m_outer;
  std::vector<uint64_t> m_parts;
  std::vector<uint64_t> m_begins;  ///< of each part in a row, and the row's end
};

/// A tensor's elements in their order, and how the memory behind them is cut. References what it is made of.
struct Laid {
  const layout::Layout* layout;
  const layout::Shape* shape;  ///< the tensor's: of a reshaped one not its layout's
  const layout::StridedView* view = nullptr;

  Laid(const layout::Layout& l) : layout(&l), shape(&l.shape()) {}  // NOLINT(google-explicit-constructor)
  Laid(const layout::Layout& l, const layout::Shape& s, const layout::StridedView* v)
      : layout(&l), shape(&s), view(v) {}
  uint64_t elements() const { return layout::element_count(*shape); }
  bool on_every_cube() const { return layout->replicated_over_cubes() || layout->partial_over_cubes(); }
};

/// The blocks of a collective as one or several tensors of a rank hold them. Of copies on PEs it knows copy 0; of
/// tensors that are replicated or partial over cubes the offsets inside a cube's buffer, which all cubes share.
class Side {
 public:
  /// All blocks in one tensor.
  static Side cut(const Laid& tensor, BlockCut cut);
  /// Block b is tensor b.
  static Side list(const std::vector<Laid>& tensors);
  /// Block `block` is the tensor; it has no others.
  static Side single(const Laid& tensor, uint32_t block);

  struct Piece {
    size_t tensor = 0;
    uint32_t cube = 0;
    uint64_t offset = 0;  ///< elements inside the cube's buffer
    uint64_t count = 0;
  };
  bool has(uint32_t block) const { return block < m_blocks.size() && m_blocks[block].tensor != kNone; }
  /// The pieces of a run, in its order. \pre has(run.block)
  void for_each_piece(const LaneRun& run, const std::function<void(const Piece&)>& fn) const;

  /// One lane per cube: what the cube holds. \pre no tensor is replicated or partial over cubes
  std::vector<Lane> lanes(uint32_t n_lanes) const;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Run {
    uint64_t logical = 0, count = 0;
    uint32_t cube = 0;
    uint64_t offset = 0;
  };
  struct Placed {
    BlockCut cut;
    std::vector<uint32_t> blocks;  ///< of the cut's parts
    std::vector<Run> runs;         ///< by logical element
  };
  struct Where {
    size_t tensor = kNone;
    uint32_t part = 0;
  };
  static std::vector<Run>::const_iterator run_at(const std::vector<Run>& runs, uint64_t logical);
  static std::vector<Run> seen_through(const layout::StridedView& view, const std::vector<Run>& runs);
  void add(const Laid& tensor, BlockCut cut, std::vector<uint32_t> blocks);

  std::vector<Placed> m_tensors;
  std::vector<Where> m_blocks;
};

/// Every block cut into one part per lane, as ahbm::aligned_chunk does.
std::vector<Lane> even_lanes(const std::vector<uint64_t>& block_elements, uint32_t n_lanes);

/// A block of rows x columns elements from one address to another; strides in elements. Arguments of `copy_blocks`.
struct BlockCopy {
  Addr src = 0, dst = 0;
  uint64_t cols = 0, rows = 1;
  uint64_t src_stride = 0, dst_stride = 0;
};

/// Collects copies of contiguous pieces and joins those that continue one another or follow at equal distances.
class CopyList {
 public:
  CopyList(uint32_t src_item, uint32_t dst_item) : m_src_item(src_item), m_dst_item(dst_item) {}
  void add(Addr src, Addr dst, uint64_t count);
  const std::vector<BlockCopy>& blocks() const { return m_blocks; }
  /// The argument blocks of `copy_blocks` that make the copies: as many launches as it takes, one after another.
  std::vector<std::vector<uint64_t>> arguments(DType src, DType dst) const;
  bool empty() const { return m_blocks.empty(); }

 private:
  uint32_t m_src_item, m_dst_item;
  std::vector<BlockCopy> m_blocks;
};

}  // namespace ahbm::runtime::distributed
