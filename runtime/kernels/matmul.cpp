// Tiled products: rows of A against runs of B's rows, which may lie in several cubes.
#include <vector>

#include "runtime/kernels/arguments.h"
#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {
namespace {

using tl::Tile;

/// Elements of a tile of A or B; the accumulator has half as many.
constexpr uint64_t kTile = 32768;

struct Run {
  uint64_t begin = 0, rows = 0;
  Addr address = 0;
};

struct Segment {
  uint64_t rows = 0, cols = 0, first_col = 0;
  Addr a = 0;
  uint64_t batch = 0;
  Addr dst = 0;
  uint64_t dst_stride = 0;
};

class Product {
 public:
  Product(tl::Tl& tl, ArgReader& in) : m_tl(tl) {
    m_dtype = in.dtype();
    m_dst_dtype = in.dtype();
    m_transposed = in.u64() != 0;
    m_k = in.u64();
    m_n = in.u64();
    m_factor = in.f64();
    m_bias = in.u64();
    m_bias_dtype = in.dtype();
    m_segments.resize(in.u64());
    for (Segment& s : m_segments) {
      s.rows = in.u64();
      s.cols = in.u64();
      s.first_col = in.u64();
      s.a = in.u64();
      s.batch = in.u64();
      s.dst = in.u64();
      s.dst_stride = in.u64();
    }
    m_runs.resize(in.u64());
    uint64_t row = 0;
    for (Run& r : m_runs) {
      r.begin = row;
      r.rows = in.u64();
      r.address = in.u64();
      row += r.rows;
    }
  }

  void run() {
    for (const Segment& s : m_segments) {
      m_tiles = matmul_tiles(s.rows, s.cols, m_k, m_transposed);
      for (uint64_t i = 0; i < s.rows; i += m_tiles.rows) rows(s, i, std::min(m_tiles.rows, s.rows - i));
    }
  }

 private:
  uint64_t item() const { return item_bytes(m_dtype); }
  uint64_t b_rows() const { return m_transposed ? m_n : m_k; }

  /// The run that holds a row of B, and how many rows from there on it has, at most `wanted`.
  const Run& run_of(uint64_t row, uint64_t wanted, uint64_t& have) const {
    size_t lo = 0, hi = m_runs.size();
    while (hi - lo > 1) {
      const size_t mid = (lo + hi) / 2;
      (m_runs.at(mid).begin <= row ? lo : hi) = mid;
    }
    const Run& r = m_runs.at(lo);
    have = std::min(wanted, r.begin + r.rows - row);
    return r;
  }

  void rows(const Segment& s, uint64_t i, uint64_t m) {
    m_whole = m_tiles.whole_a && m_k != 0 ? load_a(s, i, m, 0, m_k) : Tile();
    m_panel.clear();
    for (uint64_t j = 0; j < s.cols;) {
      const uint64_t col = s.first_col + j;
      uint64_t n = std::min(m_tiles.cols, s.cols - j);
      if (m_transposed && m_k > 0) run_of(s.batch * b_rows() + col, n, n);
      Tile acc;
      size_t step = 0;
      for (uint64_t k = 0; k < m_k; ++step) {
        uint64_t depth = std::min(m_tiles.depth, m_k - k);
        const Tile b = fetch_b(s.batch * b_rows(), col, n, k, depth);
        acc = m_tl.dot(fetch_a(s, i, m, k, depth, step), b, acc);
        k += depth;
      }
      if (!acc) acc = m_tl.zeros(m, n, is_floating(m_dtype) ? DType::Float32 : DType::Int32);
      finish(s, i, j, acc);
      j += n;
    }
  }

  Tile load_a(const Segment& s, uint64_t i, uint64_t m, uint64_t k, uint64_t depth) {
    return m_tl.load(s.a + (i * m_k + k) * item(), m, depth, m_k, m_dtype);
  }

  /// [m, depth] of A; those of a row of tiles stay while the columns of B pass by.
  Tile fetch_a(const Segment& s, uint64_t i, uint64_t m, uint64_t k, uint64_t depth, size_t step) {
    if (!m_whole) return load_a(s, i, m, k, depth);
    if (depth == m_k) return m_whole;
    if (step == m_panel.size()) m_panel.push_back(m_tl.strided(m_whole, k, m, depth, m_k, 1));
    return m_panel[step];
  }

  /// [depth, n] of B; `depth` shrinks to what lies together.
  Tile fetch_b(uint64_t first_row, uint64_t col, uint64_t n, uint64_t k, uint64_t& depth) {
    uint64_t have = 0;
    if (!m_transposed) {
      const Run& r = run_of(first_row + k, depth, have);
      depth = have;
      return m_tl.load(r.address + ((first_row + k - r.begin) * m_n + col) * item(), depth, n, m_n, m_dtype);
    }
    const Run& r = run_of(first_row + col, n, have);
    const Tile x = m_tl.load(r.address + ((first_row + col - r.begin) * m_k + k) * item(), n, depth, m_k, m_dtype);
    return m_tl.strided(x, 0, depth, n, 1, depth);
  }

  void finish(const Segment& s, uint64_t i, uint64_t j, Tile x) {
    if (m_factor != 1.0) x = m_tl.binary(tl::Binary::Mul, x, m_factor);
    if (m_bias != 0) {
      const Tile bias = m_tl.load(m_bias + (s.first_col + j) * item_bytes(m_bias_dtype), x.cols(), m_bias_dtype);
      x = m_tl.add(x, as_dtype(m_tl, bias, x.dtype()));
    }
    m_tl.store(s.dst + (i * s.dst_stride + j) * item_bytes(m_dst_dtype), as_dtype(m_tl, x, m_dst_dtype), s.dst_stride);
  }

  tl::Tl& m_tl;
  DType m_dtype = DType::Float32, m_dst_dtype = DType::Float32, m_bias_dtype = DType::Float32;
  bool m_transposed = false;
  uint64_t m_k = 0, m_n = 0;
  double m_factor = 1;
  Addr m_bias = 0;
  std::vector<Segment> m_segments;
  std::vector<Run> m_runs;
  MatmulTiles m_tiles;
  Tile m_whole;               ///< the rows of A at hand
  std::vector<Tile> m_panel;  ///< their pieces, by the step of the depth
};

}  // namespace

MatmulTiles matmul_tiles(uint64_t rows, uint64_t cols, uint64_t k, bool transposed) {
  MatmulTiles t;
  k = std::max<uint64_t>(1, k);
  t.rows = std::max<uint64_t>(1, std::min(rows, std::clamp<uint64_t>(kTile / k, 16, 128)));
  t.whole_a = t.rows * k <= kTile;
  const uint64_t most = std::max<uint64_t>(128, kTile / 2 / t.rows);
  if (transposed) {
    t.depth = std::min<uint64_t>(k, 1024);
    t.cols = std::min({cols, most, kTile / t.depth});
  } else {
    t.cols = std::min<uint64_t>({cols, most, 1024});
    t.depth = std::min(k, kTile / std::max<uint64_t>(1, t.cols));
  }
  return t;
}

void matmul_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  Product(tl, in).run();
}

}  // namespace ahbm::kernels
