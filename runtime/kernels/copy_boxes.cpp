// Strided boxes from anywhere in the SIP to the own shard. Long runs stream as moves; everything else goes through a
// tile, rearranged in the TCM where neither side's order fits the other's.
#include <vector>

#include "runtime/kernels/arguments.h"
#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {
namespace {

using tl::Tile;

struct Dim {
  uint64_t extent = 1;
  uint64_t from = 0;
  uint64_t to = 0;
};

/// Elements this far apart are loaded with what lies between them; farther apart, one by one.
constexpr uint64_t kMaxGap = 8;
/// Edge of the square tiles in which a transposition goes.
constexpr uint64_t kSquare = 128;

class BoxCopier {
 public:
  BoxCopier(tl::Tl& tl, DType from, DType to) : m_tl(tl), m_from(from), m_to(to) {}

  void copy(Addr src, Addr dst, std::vector<Dim> dims) {
    if (dims.empty()) dims.push_back({1, 1, 1});
    if (m_from == m_to && dims.size() == 1 && dims[0].from == 1 && dims[0].to == 1) {
      tl::Move m;
      m.local = src;
      m.store = dst;
      m.count = dims[0].extent;
      m.dtype = m_from;
      m_tl.submit(m);
      return;
    }
    const Dim inner = dims.back();
    dims.pop_back();
    Dim cross{1, 0, 0};
    if (!dims.empty()) {
      size_t pick = dims.size() - 1;
      for (size_t d = 0; d < dims.size() && inner.from != 1; ++d) {
        if (dims[d].from == 1) pick = d;
      }
      cross = dims[pick];
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    outer(src, dst, dims, 0, cross, inner);
  }

 private:
  void outer(Addr src, Addr dst, const std::vector<Dim>& dims, size_t at, const Dim& cross, const Dim& inner) {
    if (at == dims.size()) return plane(src, dst, cross, inner);
    for (uint64_t i = 0; i < dims[at].extent; ++i) {
      outer(src + i * dims[at].from * item_bytes(m_from), dst + i * dims[at].to * item_bytes(m_to), dims, at + 1, cross,
            inner);
    }
  }

  void plane(Addr src, Addr dst, const Dim& row, const Dim& col) {
    const uint64_t tile = tile_elements(m_from, m_to);
    const bool transposes = row.from == 1 && col.from > 1 && row.extent > 1;
    const bool gaps = !transposes && col.from > 1;
    const bool far = gaps && col.from > kMaxGap;
    uint64_t width = tile;
    if (transposes) width = kSquare;
    if (gaps && !far) width = tile / col.from;
    if (col.to > 1) width = std::max<uint64_t>(1, tile / col.to);
    width = std::min(width, col.extent);
    const uint64_t spread = width * std::max<uint64_t>({1, gaps && !far ? col.from : 1, col.to});
    uint64_t height = transposes ? kSquare : std::max<uint64_t>(1, tile / spread);
    if (far) height = 1;
    for (uint64_t r = 0; r < row.extent; r += height) {
      for (uint64_t c = 0; c < col.extent; c += width) {
        const Dim rows{std::min(height, row.extent - r), row.from, row.to};
        const Dim cols{std::min(width, col.extent - c), col.from, col.to};
        Tile x = fetch(src + (r * row.from + c * col.from) * item_bytes(m_from), rows, cols);
        if (m_from != m_to) x = m_tl.cast(x, m_to);
        put(dst + (r * row.to + c * col.to) * item_bytes(m_to), x, rows, cols);
      }
    }
  }

  Tile fetch(Addr at, const Dim& r, const Dim& c) {
    const bool one_row = r.extent == 1 || r.from == 0;
    if (c.from == 1 || c.extent == 1) {
      if (!one_row || r.extent == 1) return m_tl.load(at, r.extent, c.extent, r.from, m_from);
      return m_tl.strided(m_tl.load(at, c.extent, m_from), 0, r.extent, c.extent, 0, 1);
    }
    if (c.from == 0) {
      const Tile x = m_tl.load(at, one_row ? 1 : r.extent, 1, r.from, m_from);
      return m_tl.strided(x, 0, r.extent, c.extent, one_row ? 0 : 1, 0);
    }
    if (r.from == 1 && r.extent > 1) {
      return m_tl.strided(m_tl.load(at, c.extent, r.extent, c.from, m_from), 0, r.extent, c.extent, 1, r.extent);
    }
    if (c.from > kMaxGap) {
      return m_tl.strided(m_tl.load(at, c.extent, 1, c.from, m_from), 0, r.extent, c.extent, 0, 1);
    }
    const uint64_t span = (c.extent - 1) * c.from + 1;
    if (!one_row && r.from < span) {  // rows that interleave
      const Tile x = m_tl.load(at, (r.extent - 1) * r.from + span, m_from);
      return m_tl.strided(x, 0, r.extent, c.extent, r.from, c.from);
    }
    const Tile x = m_tl.load(at, one_row ? 1 : r.extent, span, r.from, m_from);
    return m_tl.strided(x, 0, r.extent, c.extent, one_row ? 0 : span, c.from);
  }

  /// Stores x; where its columns are not neighbours in dst, what lies between them is read and written back.
  void put(Addr at, const Tile& x, const Dim& r, const Dim& c) {
    if (c.to == 1 || c.extent == 1) return m_tl.store(at, x, r.to);
    m_tl.wait_all();  // what lies between may be on its way as a move
    const uint64_t span = (c.extent - 1) * c.to + 1;
    if (r.extent == 1 || r.to >= span) {
      const Tile whole = m_tl.load(at, r.extent, span, r.to, m_to);
      m_tl.place(whole, x, 0, span, c.to);
      return m_tl.store(at, whole, r.to);
    }
    for (uint64_t i = 0; i < r.extent; ++i) {  // rows that interleave
      const Addr row = at + i * r.to * item_bytes(m_to);
      const Tile whole = m_tl.load(row, span, m_to);
      m_tl.place(whole, m_tl.strided(x, i * c.extent, 1, c.extent, 0, 1), 0, span, c.to);
      m_tl.store(row, whole);
    }
  }

  tl::Tl& m_tl;
  DType m_from, m_to;
};

}  // namespace

void copy_boxes_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  const DType from = in.dtype(), to = in.dtype();
  BoxCopier copier(tl, from, to);
  const uint64_t n = in.u64();
  for (uint64_t i = 0; i < n; ++i) {
    const Addr src = in.u64(), dst = in.u64();
    std::vector<Dim> dims(in.u64());
    for (Dim& d : dims) {
      d.extent = in.u64();
      d.from = in.u64();
      d.to = in.u64();
    }
    copier.copy(src, dst, std::move(dims));
  }
}

}  // namespace ahbm::kernels
