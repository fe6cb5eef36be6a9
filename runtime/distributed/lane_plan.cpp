#include "runtime/distributed/lane_plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "runtime/kernels/operator_kernels.h"

namespace ahbm::runtime::distributed {

void Lane::add(const LaneRun& run) {
  if (run.count == 0) return;
  if (m_blocks.size() <= run.block) m_blocks.resize(run.block + 1);
  m_blocks[run.block] += run.count;
  m_count += run.count;
  if (!m_runs.empty() && m_runs.back().block == run.block &&
      m_runs.back().element + m_runs.back().count == run.element) {
    m_runs.back().count += run.count;
  } else {
    m_runs.push_back(run);
  }
}

// --- BlockCut

BlockCut::BlockCut(uint64_t outer, std::vector<uint64_t> parts) : m_outer(outer), m_parts(std::move(parts)) {
  m_begins.reserve(m_parts.size() + 1);
  m_begins.push_back(0);
  for (const uint64_t part : m_parts) m_begins.push_back(m_begins.back() + part);
}

BlockCut BlockCut::equal(const layout::Shape& shape, size_t dim, uint32_t n) {
  uint64_t outer = 1, inner = 1;
  for (size_t i = 0; i < dim; ++i) outer *= shape[i];
  for (size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  return {outer, std::vector<uint64_t>(n, shape[dim] / n * inner)};
}

BlockCut BlockCut::rows(const layout::Shape& shape, const std::vector<uint64_t>& splits) {
  uint64_t inner = 1;
  for (size_t i = 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<uint64_t> parts;
  for (const uint64_t rows : splits) parts.push_back(rows * inner);
  return {1, std::move(parts)};
}

void BlockCut::for_each_logical(const LaneRun& run, const std::function<void(uint64_t, uint64_t, uint64_t)>& fn) const {
  const uint64_t before = m_begins[run.block], width = m_parts[run.block], stride = row();
  for (uint64_t at = run.element, left = run.count; left != 0;) {
    const uint64_t n = m_outer == 1 || width == stride ? left : std::min(left, width - at % width);
    fn(at, width == stride ? at : at / width * stride + before + at % width, n);
    at += n;
    left -= n;
  }
}

void BlockCut::for_each_block(uint64_t begin, uint64_t count, const std::function<void(const LaneRun&)>& fn) const {
  const uint64_t stride = row();
  while (count != 0) {
    const uint64_t line = begin / stride, rest = begin % stride;
    // The last part that begins there or before: those before it at the same place are empty.
    const auto next = std::upper_bound(m_begins.begin(), m_begins.end(), rest);
    const auto block = static_cast<uint32_t>(next - m_begins.begin() - 1);
    const uint64_t inside = rest - m_begins[block], width = m_parts[block];
    const uint64_t n = width == stride ? count : std::min(count, width - inside);
    fn({block, line * width + inside, n});
    begin += n;
    count -= n;
  }
}

// --- Side

void Side::add(const Laid& tensor, BlockCut cut, std::vector<uint32_t> blocks) {
  Placed placed;
  const layout::Layout& l = *tensor.layout;
  const uint32_t cubes = tensor.on_every_cube() ? std::min(1u, l.cubes()) : l.cubes();
  const uint32_t pes = l.replicated_over_pes() ? std::min(1u, l.pes()) : l.pes();
  for (uint32_t c = 0; c < cubes; ++c) {
    for (uint32_t p = 0; p < pes; ++p) {
      const layout::Shard& shard = l.shard(CubeId{c}, PeId{p});
      l.for_each_run(shard, [&](uint64_t local, uint64_t logical, uint64_t n) {
        placed.runs.push_back({logical, n, c, shard.offset + local});
      });
    }
  }
  std::sort(placed.runs.begin(), placed.runs.end(), [](const Run& a, const Run& b) { return a.logical < b.logical; });
  if (tensor.view != nullptr) placed.runs = seen_through(*tensor.view, placed.runs);
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (m_blocks.size() <= blocks[i]) m_blocks.resize(blocks[i] + 1);
    m_blocks[blocks[i]] = {m_tensors.size(), i};
  }
  placed.cut = std::move(cut);
  placed.blocks = std::move(blocks);
  m_tensors.push_back(std::move(placed));
}

std::vector<Side::Run>::const_iterator Side::run_at(const std::vector<Run>& runs, uint64_t logical) {
  return std::prev(
      std::upper_bound(runs.begin(), runs.end(), logical, [](uint64_t at, const Run& r) { return at < r.logical; }));
}

/// The runs of a view's elements, from those of the tensor that it is a view of.
std::vector<Side::Run> Side::seen_through(const layout::StridedView& view, const std::vector<Run>& runs) {
  std::vector<Run> out;
  auto it = runs.begin();
  view.for_each_run([&](uint64_t element, uint64_t base, uint64_t count) {
    if (base < it->logical || base >= it->logical + it->count) it = run_at(runs, base);
    while (count != 0) {
      const uint64_t skip = base - it->logical, n = std::min(count, it->count - skip);
      out.push_back({element, n, it->cube, it->offset + skip});
      element += n;
      base += n;
      count -= n;
      if (count != 0) ++it;
    }
  });
  return out;
}

Side Side::cut(const Laid& tensor, BlockCut cut) {
  std::vector<uint32_t> blocks(cut.blocks());
  std::iota(blocks.begin(), blocks.end(), 0);
  Side side;
  side.add(tensor, std::move(cut), std::move(blocks));
  return side;
}

Side Side::list(const std::vector<Laid>& tensors) {
  Side side;
  for (uint32_t b = 0; b < tensors.size(); ++b) side.add(tensors[b], BlockCut::whole(tensors[b].elements()), {b});
  return side;
}

Side Side::single(const Laid& tensor, uint32_t block) {
  Side side;
  side.add(tensor, BlockCut::whole(tensor.elements()), {block});
  return side;
}

void Side::for_each_piece(const LaneRun& run, const std::function<void(const Piece&)>& fn) const {
  const Where& where = m_blocks[run.block];
  const Placed& placed = m_tensors[where.tensor];
  placed.cut.for_each_logical({where.part, run.element, run.count}, [&](uint64_t, uint64_t logical, uint64_t n) {
    auto it = run_at(placed.runs, logical);
    while (n != 0) {
      const uint64_t skip = logical - it->logical, take = std::min(n, it->count - skip);
      fn({where.tensor, it->cube, it->offset + skip, take});
      logical += take;
      n -= take;
      ++it;
    }
  });
}

std::vector<Lane> Side::lanes(uint32_t n_lanes) const {
  struct Item {
    uint32_t block;
    size_t tensor;
    uint64_t offset;
    LaneRun run;
  };
  std::vector<std::vector<Item>> items(n_lanes);
  for (size_t t = 0; t < m_tensors.size(); ++t) {
    const Placed& placed = m_tensors[t];
    for (const Run& r : placed.runs) {
      uint64_t offset = r.offset;
      placed.cut.for_each_block(r.logical, r.count, [&](LaneRun run) {
        run.block = placed.blocks[run.block];
        items[r.cube].push_back({run.block, t, offset, run});
        offset += run.count;
      });
    }
  }
  std::vector<Lane> out(n_lanes);
  for (uint32_t c = 0; c < n_lanes; ++c) {
    std::sort(items[c].begin(), items[c].end(), [](const Item& a, const Item& b) {
      return std::tie(a.block, a.offset, a.run.element) < std::tie(b.block, b.offset, b.run.element);
    });
    for (const Item& item : items[c]) out[c].add(item.run);
  }
  return out;
}

std::vector<Lane> even_lanes(const std::vector<uint64_t>& block_elements, uint32_t n_lanes) {
  std::vector<Lane> out(n_lanes);
  for (uint32_t c = 0; c < n_lanes; ++c) {
    for (uint32_t b = 0; b < block_elements.size(); ++b) {
      const Range r = aligned_chunk(block_elements[b], n_lanes, c);
      out[c].add({b, r.begin, r.count});
    }
  }
  return out;
}

// --- CopyList

void CopyList::add(Addr src, Addr dst, uint64_t count) {
  if (count == 0) return;
  if (!m_blocks.empty()) {
    BlockCopy& last = m_blocks.back();
    if (last.rows == 1 && src == last.src + last.cols * m_src_item && dst == last.dst + last.cols * m_dst_item) {
      last.cols += count;
      last.src_stride = last.dst_stride = last.cols;
      return;
    }
    const auto stride = [&](Addr now, Addr first, uint32_t item, uint64_t known) -> uint64_t {
      if (last.rows == 1) return now > first && (now - first) % item == 0 ? (now - first) / item : 0;
      return now == first + last.rows * known * item ? known : 0;
    };
    const uint64_t src_stride = stride(src, last.src, m_src_item, last.src_stride);
    const uint64_t dst_stride = stride(dst, last.dst, m_dst_item, last.dst_stride);
    if (count == last.cols && src_stride >= count && dst_stride >= count) {
      last.src_stride = src_stride;
      last.dst_stride = dst_stride;
      ++last.rows;
      return;
    }
  }
  m_blocks.push_back({src, dst, count, 1, count, count});
}

std::vector<std::vector<uint64_t>> CopyList::arguments(DType src, DType dst) const {
  std::vector<std::vector<uint64_t>> out;
  for (const BlockCopy& b : m_blocks) {
    if (out.empty() || out.back().size() > kernels::kMaxDescriptorWords) {
      out.push_back({static_cast<uint64_t>(src), static_cast<uint64_t>(dst), 0});
    }
    std::vector<uint64_t>& words = out.back();
    words.insert(words.end(), {b.src, b.dst, b.cols, b.rows, b.src_stride, b.dst_stride});
    ++words[2];
  }
  return out;
}

}  // namespace ahbm::runtime::distributed
