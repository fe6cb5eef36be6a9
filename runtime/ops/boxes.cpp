// Data that moves inside the SIP: boxes between tensors of any policies, and what is made of them.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {
namespace {

struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};
Span cut(Span a, int64_t begin, int64_t end) {
  return {std::max(a.begin, begin), std::min(a.end, end)};
}

/// Strides of a dense block.
Dims strides(const Dims& extent) {
  Dims out(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) out[d - 1] = out[d] * extent[d];
  return out;
}

void append_dims(std::vector<uint64_t>& words, const Dims& extent, const Dims& from, const Dims& to) {
  const size_t count_at = words.size();
  words.push_back(0);
  for (size_t d = 0; d < extent.size(); ++d) {
    if (extent[d] == 1) continue;
    const auto n = static_cast<uint64_t>(extent[d]);
    const auto f = static_cast<uint64_t>(from[d]), t = static_cast<uint64_t>(to[d]);
    if (words[count_at] != 0 && words[words.size() - 2] == n * f && words.back() == n * t) {
      words[words.size() - 3] *= n;  // goes on where the dimension outside of it ends
      words[words.size() - 2] = f;
      words.back() = t;
      continue;
    }
    words.insert(words.end(), {n, f, t});
    ++words[count_at];
  }
}

/// The part of a box that goes from one block to another, if there is any.
class Piece {
 public:
  Piece(const Box& box, const Region& dst, const Region& src) : m_from(dst.extent.size(), 0) {
    const size_t ndim = dst.extent.size();
    m_to = strides(dst.extent);
    const Dims src_strides = strides(src.extent);
    // Source dimensions that nothing moves along.
    int64_t from = 0, to = 0;
    for (size_t s = 0; s < src.extent.size(); ++s) {
      const bool used = std::find(box.src_dim.begin(), box.src_dim.end(), static_cast<int>(s)) != box.src_dim.end();
      if (used) continue;
      const int64_t at = box.src_begin[s] - src.begin[s];
      if (at < 0 || at >= src.extent[s]) return;
      from += at * src_strides[s];
    }
    for (size_t d = 0; d < ndim; ++d) {
      Span i =
          cut({0, box.extent[d]}, dst.begin[d] - box.dst_begin[d], dst.begin[d] + dst.extent[d] - box.dst_begin[d]);
      if (box.src_dim[d] >= 0) {
        const auto s = static_cast<size_t>(box.src_dim[d]);
        const int64_t step = box.src_step[d];
        const int64_t lo = src.begin[s] - box.src_begin[s], hi = lo + src.extent[s];
        // step * i in [lo, hi)
        i = cut(i, lo <= 0 ? 0 : (lo + step - 1) / step, hi <= 0 ? 0 : (hi + step - 1) / step);
        m_from[d] = step * src_strides[s];
        from += (step * i.begin - lo) * src_strides[s];
      }
      if (i.end <= i.begin) return;
      m_extent.push_back(i.end - i.begin);
      to += (box.dst_begin[d] + i.begin - dst.begin[d]) * m_to[d];
    }
    m_src = from;
    m_dst = to;
    m_empty = false;
  }
  bool empty() const { return m_empty; }
  /// Elements of the source from the first to the last that is read.
  uint64_t reach() const {
    int64_t last = 0;
    for (size_t d = 0; d < m_extent.size(); ++d) last += (m_extent[d] - 1) * m_from[d];
    return static_cast<uint64_t>(last) + 1;
  }
  uint64_t src() const { return static_cast<uint64_t>(m_src); }
  void append(std::vector<uint64_t>& words, Addr src, Addr dst, uint64_t dst_item) const {
    words.push_back(src);
    words.push_back(dst + static_cast<uint64_t>(m_dst) * dst_item);
    append_dims(words, m_extent, m_from, m_to);
  }

 private:
  bool m_empty = true;
  Dims m_extent, m_from, m_to;
  int64_t m_src = 0, m_dst = 0;
};

std::string text(const Box& b) {
  return fmt::format("box of {} at {} from {}", dtensor::to_string(b.extent), dtensor::to_string(b.dst_begin),
                     dtensor::to_string(b.src_begin));
}

/// A 0-d side counts as one dimension of 1.
Box checked(Box b, const Placed& dst, const Placed& src) {
  if (dst.tensor().shape().empty() && b.extent.empty()) {
    b.extent = {1};
    b.dst_begin = {0};
    b.src_dim = {-1};
    b.src_step = {1};
  }
  if (src.tensor().shape().empty() && b.src_begin.empty()) b.src_begin = {0};
  const size_t ndim = dst.shape().size();
  bool fits = b.extent.size() == ndim && b.dst_begin.size() == ndim && b.src_dim.size() == ndim &&
              b.src_step.size() == ndim && b.src_begin.size() == src.shape().size();
  for (size_t s = 0; fits && s < src.shape().size(); ++s) {
    fits = b.src_begin[s] >= 0 && (b.src_begin[s] < src.shape()[s] || count(b.extent) == 0);
  }
  for (size_t d = 0; fits && d < ndim; ++d) {
    fits = b.extent[d] >= 0 && b.dst_begin[d] >= 0 && b.dst_begin[d] + b.extent[d] <= dst.shape()[d];
    if (!fits || b.src_dim[d] < 0) continue;
    const auto s = static_cast<size_t>(b.src_dim[d]);
    fits = s < src.shape().size() && b.src_step[d] >= 1 &&
           (b.extent[d] == 0 || b.src_begin[s] + (b.extent[d] - 1) * b.src_step[d] < src.shape()[s]);
  }
  if (!fits) {
    throw std::out_of_range(fmt::format("{}: expected it inside tensors of shape {} and {}", text(b),
                                        layout::to_string(dst.tensor().shape()),
                                        layout::to_string(src.tensor().shape())));
  }
  return b;
}

/// Descriptors of one PE, cut where a launch is full.
struct Descriptors {
  uint64_t n = 0;
  std::vector<uint64_t> words;
};

struct Copies {
  Context& context;
  const Placed& dst;
  const Placed& src;
  const std::vector<Box>& boxes;
  bool elsewhere = false;  ///< of the source

  void append(std::vector<Descriptors>& out, CubeId cube, PeId pe, const Region& to,
              const std::vector<Region>& blocks) {
    const uint64_t item = item_bytes(src.tensor().dtype()), dst_item = item_bytes(dst.tensor().dtype());
    for (const Box& box : boxes) {
      for (const Region& from : blocks) {
        const Piece piece(box, to, from);
        if (piece.empty()) continue;
        if (out.empty() || out.back().words.size() > kernels::kMaxDescriptorWords) out.emplace_back();
        const Addr at = from.address + piece.src() * item;
        piece.append(out.back().words, at, to.address, dst_item);
        ++out.back().n;
        elsewhere = elsewhere || !src.is_own(cube, pe, at, piece.reach() * item);
      }
    }
  }

  void arguments(std::vector<uint64_t>& args, const Descriptors& d) const {
    args = {word(src.tensor().dtype()), word(dst.tensor().dtype()), d.n};
    args.insert(args.end(), d.words.begin(), d.words.end());
  }

  /// Every PE writes what it holds.
  void by_owners() {
    struct OfPe {
      CubeId cube;
      PeId pe;
      std::vector<Descriptors> launches;
    };
    std::vector<OfPe> pes;
    std::vector<Region> blocks;
    size_t rounds = 0;
    for (const layout::Shard& s : dst.layout().shards()) {
      if (s.elements == 0) continue;
      if (blocks.empty() || !src.same_for_all()) blocks = src.blocks(s.cube, s.pe);
      std::vector<Descriptors> work;
      append(work, s.cube, s.pe, dst.own(s.cube, s.pe), blocks);
      if (work.empty()) continue;
      rounds = std::max(rounds, work.size());
      pes.push_back({s.cube, s.pe, std::move(work)});
    }
    for (size_t r = 0; r < rounds; ++r) {
      KernelLaunch launch(context, "copy_boxes");
      for (OfPe& pe : pes) {
        if (pe.launches.size() > r) arguments(launch.on(dst.sip(), pe.cube, pe.pe), pe.launches[r]);
      }
      launch.reads(src.tensor(), elsewhere);
      launch.writes(dst.tensor(), false);
      launch.run();
    }
  }

  /// One PE writes everything.
  void by_one() {
    const CubeId cube{0};
    const PeId pe{0};
    const std::vector<Region> blocks = src.blocks(cube, pe);
    std::vector<Descriptors> work;
    for (const Region& to : dst.all_blocks()) append(work, cube, pe, to, blocks);
    for (const Descriptors& d : work) {
      KernelLaunch launch(context, "copy_boxes");
      arguments(launch.on(dst.sip(), cube, pe), d);
      launch.reads(src.tensor(), true);
      launch.writes_elsewhere(dst.tensor());
      launch.run();
    }
  }
};

/// Whether to start a kernel on every PE that holds something costs more than what they would do.
bool is_tiny(const Placed& to, const Placed& from, const std::vector<Box>& boxes) {
  constexpr uint64_t kBytes = 16 << 10, kPes = 4;
  uint64_t elements = 0, pes = 0;
  for (const layout::Shard& s : to.layout().shards()) {
    elements += s.elements;
    pes += s.elements != 0 ? 1 : 0;
  }
  if (pes <= kPes || boxes.size() > pes) return false;
  return elements * std::max(item_bytes(to.tensor().dtype()), item_bytes(from.tensor().dtype())) <= kBytes;
}

void launch_copies(Context& context, const Placed& to, const Placed& from, const std::vector<Box>& boxes) {
  if (boxes.empty()) return;
  Copies copies{context, to, from, boxes};
  if (is_tiny(to, from, boxes)) {
    copies.by_one();
  } else {
    copies.by_owners();
  }
}

}  // namespace

Box box(Dims extent, Dims dst_begin, Dims src_begin) {
  Box b{std::move(extent), std::move(dst_begin), std::move(src_begin), {}, {}};
  for (size_t d = 0; d < b.extent.size(); ++d) b.src_dim.push_back(static_cast<int>(d));
  b.src_step = Dims(b.extent.size(), 1);
  return b;
}

void copy_boxes(Context& context, const Tensor& dst, const Tensor& src, const std::vector<Box>& boxes) {
  const Placed to(context, dst), from(context, src);
  std::vector<Box> good;
  for (const Box& b : boxes) {
    good.push_back(checked(b, to, from));
    if (count(good.back().extent) == 0) good.pop_back();
  }
  launch_copies(context, to, from, good);
}

void copy_flat(Context& context, const Tensor& dst, const Tensor& src) {
  const auto n = static_cast<int64_t>(dst.elements());
  if (n == 0) return;
  launch_copies(context, Placed::flat(context, dst), Placed::flat(context, src), {box({n}, {0}, {0})});
}

DPPolicy rows_over_all() {
  return {};
}

DPPolicy by_rows(DPPolicy p) {
  if (p.cube == CubePolicy::ColumnWise) p.cube = CubePolicy::RowWise;
  if (p.pe == PePolicy::ColumnWise) p.pe = PePolicy::RowWise;
  return p;
}

Tensor lying_by_rows(Context& context, const Tensor& t, DType dtype) {
  return brought(context, t, Placed(context, t).by_rows() ? t.policy() : by_rows(t.policy()), dtype);
}

Tensor whole_for(Context& context, const Tensor& t, const Placed& readers) {
  const Placed p(context, t);
  bool whole = true;
  for (const layout::Shard& shard : readers.layout().shards()) {
    if (shard.elements == 0) continue;
    whole = whole && p.blocks(shard.cube, shard.pe).size() == 1;
    if (!whole || p.same_for_all()) break;
  }
  if (whole) return t;
  DPPolicy copies;
  copies.cube = CubePolicy::Replicate;
  return relayout(context, t, copies);
}

Tensor make(Context& context, const Shape& shape, DType dtype, DPPolicy policy) {
  policy.sips = SipScope::Own;
  return context.empty(shape, dtype, policy);
}

Tensor filled(Context& context, const Shape& shape, double v, DType dtype, const DPPolicy& policy) {
  Tensor t = make(context, shape, dtype, policy);
  if (t.elements() != 0) context.launch("fill", {t, elements_of(t), v, dtype});
  return t;
}

namespace {
Box whole(const Tensor& t) {
  const Dims shape = to_dims(t.shape());
  return box(shape, Dims(shape.size(), 0), Dims(shape.size(), 0));
}
bool same_place(const DPPolicy& a, DPPolicy b) {
  b.sips = a.sips;
  return a == b;
}
}  // namespace

Tensor brought(Context& context, const Tensor& t, const DPPolicy& policy, DType dtype) {
  if (t.dtype() == dtype && same_place(t.policy(), policy)) return t;
  Tensor out = make(context, t.shape(), dtype, policy);
  copy_boxes(context, out, t, {whole(t)});
  return out;
}

Tensor relayout(Context& context, const Tensor& t, const DPPolicy& policy) {
  return brought(context, t, policy, t.dtype());
}

Tensor pad(Context& context, const Tensor& t, size_t dim, uint64_t extent) {
  Shape shape = t.shape();
  if (dim >= shape.size() || extent < shape[dim]) {
    throw std::invalid_argument(fmt::format("pad of {} to {} in dimension {}: expected a dimension of it, and no less",
                                            layout::to_string(shape), extent, dim));
  }
  if (shape[dim] == extent) return t;
  shape[dim] = extent;
  Tensor out = filled(context, shape, 0, t.dtype(), t.policy());
  copy_boxes(context, out, t, {whole(t)});
  return out;
}

Tensor take(Context& context, const Tensor& t, size_t dim, const std::vector<Range>& ranges) {
  Shape shape = t.shape();
  if (dim >= shape.size()) {
    throw std::invalid_argument(
        fmt::format("take from {} in dimension {}: expected a dimension of it", layout::to_string(shape), dim));
  }
  uint64_t total = 0;
  std::vector<Box> boxes;
  for (const Range& r : ranges) {
    Box b = whole(t);
    b.extent[dim] = static_cast<int64_t>(r.count);
    b.dst_begin[dim] = static_cast<int64_t>(total);
    b.src_begin[dim] = static_cast<int64_t>(r.begin);
    if (r.count != 0) boxes.push_back(std::move(b));
    total += r.count;
  }
  shape[dim] = total;
  Tensor out = make(context, shape, t.dtype(), t.policy());
  copy_boxes(context, out, t, boxes);
  return out;
}

bool keeps_layout(Context& context, const Tensor& t, const Shape& shape) {
  const Placed is(context, t);
  if (shape == t.shape()) return true;
  const layout::Layout other(shape, t.dtype(), t.policy(), context.config().cubes(), context.config().pes);
  const auto whole_rows = [](const layout::Layout& l, const layout::Shard& s) {
    return l.shape().size() < 2 || s.cols.count == l.shape().back();
  };
  const auto row_size = [](const layout::Layout& l) {
    return l.shape().empty() || l.shape().front() == 0 ? 1 : l.elements() / l.shape().front();
  };
  const auto last = [](const Shape& s) { return s.size() < 2 ? 1 : s.back(); };
  const layout::Layout& mine = is.layout();
  const bool same_cut = row_size(mine) == row_size(other) && last(t.shape()) == last(shape);
  for (size_t i = 0; i < mine.shards().size(); ++i) {
    const layout::Shard& a = mine.shards()[i];
    const layout::Shard& b = other.shards()[i];
    if (a.elements != b.elements) return false;
    if (a.elements == 0) continue;
    if (same_cut && a.rows == b.rows && a.cols == b.cols) continue;
    if (!whole_rows(mine, a) || !whole_rows(other, b)) return false;
    if (a.rows.begin * row_size(mine) != b.rows.begin * row_size(other)) return false;
  }
  return true;
}

Tensor reshaped(Context& context, const Tensor& t, const Shape& shape, const DPPolicy& policy) {
  if (same_place(t.policy(), policy) && keeps_layout(context, t, shape)) {
    return Tensor(shape, t.dtype(), policy, t.handle());
  }
  // Where both lie by rows, both are ranges of the same flat tensor. What does not is brought there first, or after.
  const Tensor source = shape.empty() || t.shape().size() < 2 ? t : brought(context, t, by_rows(t.policy()), t.dtype());
  const DPPolicy target = shape.size() < 2 ? policy : by_rows(policy);
  Tensor out = make(context, shape, t.dtype(), target);
  copy_flat(context, out, source);
  return brought(context, out, policy, t.dtype());
}

Tensor permuted(Context& context, const Tensor& t, const Dims& order, const DPPolicy& policy, DType dtype) {
  const Dims in = to_dims(t.shape());
  Box b;
  b.dst_begin = b.src_begin = Dims(in.size(), 0);
  b.src_step = Dims(in.size(), 1);
  for (const int64_t d : order) {
    b.extent.push_back(in[static_cast<size_t>(d)]);
    b.src_dim.push_back(static_cast<int>(d));
  }
  Tensor out = make(context, to_shape(b.extent), dtype, policy);
  copy_boxes(context, out, t, {b});
  return out;
}

Box broadcast_box(const Shape& shape, const Shape& from) {
  const Dims in = to_dims(from);
  const Dims extent = to_dims(shape);
  Box b{extent, Dims(extent.size(), 0), Dims(in.size(), 0), {}, Dims(extent.size(), 1)};
  const size_t shift = extent.size() - in.size();
  for (size_t d = 0; d < extent.size(); ++d) {
    b.src_dim.push_back(d < shift || in[d - shift] != extent[d] ? -1 : static_cast<int>(d - shift));
  }
  return b;
}

Tensor broadcast(Context& context, const Tensor& t, const Shape& shape, const DPPolicy& policy, DType dtype) {
  if (t.shape() == shape) return brought(context, t, policy, dtype);
  Tensor out = make(context, shape, dtype, policy);
  copy_boxes(context, out, t, {broadcast_box(shape, t.shape())});
  return out;
}

}  // namespace ahbm::runtime::ops
