// Contractions: the rows of all matrices of a batch, one after another, are cut over the PEs. A and B are read where
// they lie.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {
namespace {

/// a [a_batch of m x k] x b [b_batch of k x n, transposed: n x k], for every matrix of the result.
struct Problem {
  Tensor a, b;
  bool transposed = false;
  uint64_t m = 1, n = 1, k = 1;
  std::vector<uint64_t> a_of{0}, b_of{0};  ///< which matrix of a and b makes each of the result's
  double factor = 1;
  Tensor bias;  ///< n elements, or not deployed
  uint64_t rows() const { return a_of.size() * m; }
};

/// Runs of whole rows of `cols` elements: how many, and where.
std::vector<std::pair<uint64_t, Addr>> runs(const Placed& flat, CubeId cube, PeId pe, uint64_t cols) {
  std::vector<std::pair<uint64_t, Addr>> out;
  for (const Region& r : flat.blocks(cube, pe)) {
    out.emplace_back(cols == 0 ? 0 : static_cast<uint64_t>(r.extent[0]) / cols, r.address);
  }
  return out;
}

/// The result's block on one PE, as a block of rows x n.
struct Block {
  uint64_t row = 0, rows = 0, col = 0, cols = 0;
  Addr address = 0;
};

class Product {
 public:
  Product(Context& context, Problem problem) : m_context(context), m_p(std::move(problem)) {}

  /// Into a tensor of `shape`, rows x n elements: computed where it shall lie, or cut into better blocks and moved.
  Tensor run(const Shape& shape, DType dtype, const DPPolicy& policy) {
    const bool plane = shape.size() == 2 && shape[0] == m_p.rows();
    const bool rows_lie = shape.size() >= 2 && shape.back() == m_p.n && policy == by_rows(policy);
    const Shape flat{m_p.rows(), m_p.n};
    double best = std::numeric_limits<double>::infinity();
    if (plane || rows_lie) best = cost(layout_of(shape, dtype, policy), plane);
    std::optional<DPPolicy> blocks;
    for (const CubePolicy cube : {CubePolicy::RowWise, CubePolicy::ColumnWise}) {
      for (const PePolicy pe : {PePolicy::RowWise, PePolicy::ColumnWise}) {
        DPPolicy candidate;
        candidate.cube = cube;
        candidate.pe = pe;
        const layout::Layout l = layout_of(flat, dtype, candidate);
        const double c =
            cost(l, true) + kMoveCost + 2 * static_cast<double>(largest(l, true).rows * largest(l, true).cols);
        if (c >= best) continue;
        best = c;
        blocks = candidate;
      }
    }
    Tensor out = make(m_context, blocks ? flat : shape, dtype, blocks.value_or(policy));
    compute(out, blocks || plane);
    return blocks ? reshaped(m_context, out, shape, policy) : out;
  }

 private:
  /// Another launch, in elements that a DMA moves meanwhile.
  static constexpr double kMoveCost = 100000;

  layout::Layout layout_of(const Shape& shape, DType dtype, const DPPolicy& policy) const {
    return {shape, dtype, policy, m_context.config().cubes(), m_context.config().pes};
  }

  /// The block of the PE with most to do.
  Block largest(const layout::Layout& l, bool plane) const {
    const layout::Shard& s = l.shards().front();  // leading parts are the full ones
    if (plane) return {0, s.rows.count, 0, s.cols.count, 0};
    return {0, s.elements / m_p.n, 0, m_p.n, 0};
  }

  /// What the PE with most to do spends, in elements that its DMA moves: rows of A and columns of B, which are turned
  /// around when they come as rows, a start for every piece, and a part for the MACs.
  double cost(const layout::Layout& l, bool plane) const {
    constexpr double kStart = 2000, kMacs = 100;
    const Block b = largest(l, plane);
    const kernels::MatmulTiles t = kernels::matmul_tiles(b.rows, b.cols, m_p.k, m_p.transposed);
    const uint64_t down = ceil_div(b.rows, t.rows), across = ceil_div(b.cols, std::max<uint64_t>(1, t.cols));
    const uint64_t steps = ceil_div(m_p.k, t.depth);
    uint64_t pieces = down * across * (m_p.transposed ? (steps == 1 ? 1 : b.cols) : m_p.k);
    if (!m_p.transposed && b.cols == m_p.n && across == 1) pieces = down * steps;
    pieces += t.whole_a ? down : b.rows * steps * across;
    const double a = static_cast<double>(b.rows * m_p.k) * static_cast<double>(t.whole_a ? 1 : across);
    const double from_b = static_cast<double>(b.cols * m_p.k * down) * (m_p.transposed ? 2 : 1);
    return a + from_b + kStart * static_cast<double>(pieces) + static_cast<double>(b.rows * b.cols * m_p.k) / kMacs;
  }

  Block block_of(const Placed& to, const layout::Shard& s, bool plane) const {
    const Region r = to.own(s.cube, s.pe);
    if (plane) {
      return {static_cast<uint64_t>(r.begin[0]), static_cast<uint64_t>(r.extent[0]), static_cast<uint64_t>(r.begin[1]),
              static_cast<uint64_t>(r.extent[1]), r.address};
    }
    return {static_cast<uint64_t>(r.begin[0]) / m_p.n, static_cast<uint64_t>(r.extent[0]) / m_p.n, 0, m_p.n, r.address};
  }

  void compute(const Tensor& out, bool plane) {
    if (out.elements() == 0) return;
    const Placed to = plane ? Placed(m_context, out) : Placed::flat(m_context, out);
    const Placed a = Placed::flat(m_context, m_p.a), b = Placed::flat(m_context, m_p.b);
    std::unique_ptr<Placed> bias;
    if (m_p.bias.deployed()) {
      m_p.bias = whole_for(m_context, m_p.bias, to);
      bias = std::make_unique<Placed>(m_context, m_p.bias);
    }
    KernelLaunch launch(m_context, "matmul");
    for (const layout::Shard& s : to.layout().shards()) {
      if (s.elements == 0) continue;
      std::vector<uint64_t>& args = launch.on(to.sip(), s.cube, s.pe);
      args = {word(m_p.a.dtype()),
              word(out.dtype()),
              m_p.transposed ? uint64_t{1} : uint64_t{0},
              m_p.k,
              m_p.n,
              tl::pack_f64(m_p.factor),
              bias ? bias->blocks(s.cube, s.pe).front().address : 0,
              word(bias ? m_p.bias.dtype() : DType::Float32),
              0};
      add_segments(args, block_of(to, s, plane), runs(a, s.cube, s.pe, m_p.k), item_bytes(out.dtype()));
      const auto b_runs = runs(b, s.cube, s.pe, m_p.transposed ? m_p.k : m_p.n);
      args.push_back(b_runs.size());
      for (const auto& [rows, address] : b_runs) args.insert(args.end(), {rows, address});
    }
    launch.reads(m_p.a, true);
    launch.reads(m_p.b, true);
    if (bias) launch.reads(m_p.bias, true);
    launch.writes(out, true);
    launch.run();
  }

  /// The block's rows, cut where a matrix ends and where A goes on elsewhere.
  void add_segments(std::vector<uint64_t>& args, const Block& block,
                    const std::vector<std::pair<uint64_t, Addr>>& a_runs, uint64_t item) const {
    const size_t count_at = args.size() - 1;
    for (uint64_t done = 0; done < block.rows;) {
      const uint64_t row = block.row + done, matrix = row / m_p.m;
      uint64_t n = std::min(block.rows - done, m_p.m - row % m_p.m);
      uint64_t a_row = m_p.a_of[matrix] * m_p.m + row % m_p.m;
      Addr a = 0;
      for (const auto& [rows, address] : a_runs) {
        if (m_p.k == 0) break;
        if (a_row < rows) {
          n = std::min(n, rows - a_row);
          a = address + a_row * m_p.k * item_bytes(m_p.a.dtype());
          break;
        }
        a_row -= rows;
      }
      args.insert(args.end(), {n, block.cols, block.col, a, m_p.b_of[matrix], block.address + done * block.cols * item,
                               block.cols});
      ++args[count_at];
      done += n;
    }
  }

  Context& m_context;
  Problem m_p;
};

/// For every position of `batch`, the row-major index in `own`, which broadcasts to it.
std::vector<uint64_t> matrices(const Shape& batch, const Shape& own) {
  std::vector<uint64_t> out(layout::element_count(batch), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t rest = i, stride = 1;
    for (size_t d = 0; d < batch.size(); ++d) {
      const uint64_t at = rest % batch[batch.size() - 1 - d];
      rest /= batch[batch.size() - 1 - d];
      if (d >= own.size()) continue;
      const uint64_t extent = own[own.size() - 1 - d];
      out[i] += (extent == 1 ? 0 : at) * stride;
      stride *= extent;
    }
  }
  return out;
}

Shape leading(const Shape& shape) {
  return shape.size() <= 2 ? Shape() : Shape(shape.begin(), shape.end() - 2);
}

Shape common_batch(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t d = 0; d < out.size(); ++d) {
    const uint64_t x = d < a.size() ? a[a.size() - 1 - d] : 1, y = d < b.size() ? b[b.size() - 1 - d] : 1;
    out[out.size() - 1 - d] = x == 1 ? y : x;
  }
  return out;
}

Problem problem_of(const Call& call, Tensor a, Tensor b) {
  Problem p;
  p.transposed = call.op == Op::Linear;
  const DType dtype = dtensor::promote(a.dtype(), b.dtype());
  require_matrix(call.op, dtype);
  if (a.shape().size() == 1) a = reshaped(call.context, a, {1, a.elements()}, by_rows(a.policy()));
  if (b.shape().size() == 1) b = reshaped(call.context, b, {b.elements(), 1}, by_rows(b.policy()));
  const Shape as = a.shape(), bs = b.shape();
  p.k = as.back();
  p.n = bs[bs.size() - (p.transposed ? 2 : 1)];
  p.m = as[as.size() - 2];
  if (bs.size() == 2) {
    p.m = 1;  // one matrix of all rows
    for (size_t d = 0; d + 1 < as.size(); ++d) p.m *= as[d];
  } else {
    const Shape batch = common_batch(leading(as), leading(bs));
    p.a_of = matrices(batch, leading(as));
    p.b_of = matrices(batch, leading(bs));
  }
  p.a = lying_by_rows(call.context, a, dtype);
  p.b = lying_by_rows(call.context, b, dtype);
  return p;
}

}  // namespace

Tensor run_sdpa(const Call& call) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
  require_matrix(call.op, q.dtype());
  if (!is_floating(q.dtype())) refuse(call.op, fmt::format("on {}: expected a floating type", to_string(q.dtype())));
  const uint64_t heads = q.shape()[1], kv_heads = k.shape()[1], length = q.shape()[2], keys = k.shape()[2];
  if (layout::element_count(call.out().shape) == 0) {
    return make(call.context, call.out().shape, call.out().dtype, call.policy);
  }
  if (keys == 0) return filled(call.context, call.out().shape, 0, call.out().dtype, call.policy);
  Problem scores;
  scores.a = lying_by_rows(call.context, q, q.dtype());
  scores.b = lying_by_rows(call.context, k, q.dtype());
  scores.transposed = true;
  scores.m = length;
  scores.n = keys;
  scores.k = q.shape()[3];
  scores.factor = scores.k == 0 ? 1 : 1 / std::sqrt(static_cast<double>(scores.k));
  scores.a_of.clear();
  scores.b_of.clear();
  for (uint64_t i = 0; i < q.shape()[0] * heads; ++i) {
    scores.a_of.push_back(i);
    scores.b_of.push_back(i / heads * kv_heads + i % heads / (heads / kv_heads));
  }
  const std::vector<uint64_t> a_of = scores.a_of, b_of = scores.b_of;
  const uint64_t rows = scores.rows();
  const DPPolicy policy = rows_over_all();
  const Shape shape{rows, keys};
  const auto run = [&](Op op, const OpArgs& args, const std::vector<Tensor>& inputs, DType t) {
    return execute(call.context, op, args, inputs, {{shape, t}}, policy).front();
  };
  Tensor s = Product(call.context, std::move(scores)).run(shape, DType::Float32, policy);
  OpArgs args;
  args.value = -std::numeric_limits<double>::infinity();
  if (call.args.causal) {
    // The matrices are the heads; row i sees the keys up to i.
    const Tensor whole = reshaped(call.context, s, {rows / length, length, keys}, policy);
    s = execute(call.context, Op::Tril, args, {whole}, {{whole.shape(), DType::Float32}}, policy).front();
    s = reshaped(call.context, s, shape, policy);
  }
  if (call.inputs.size() > 3) {
    const Tensor& mask = call.in(3);
    const Tensor full =
        reshaped(call.context, broadcast(call.context, mask, {q.shape()[0], heads, length, keys}, policy, mask.dtype()),
                 shape, policy);
    if (mask.dtype() == DType::Bool) {
      s = run(Op::MaskedFill, args, {s, run(Op::LogicalNot, {}, {full}, DType::Bool)}, DType::Float32);
    } else {
      s = run(Op::Add, {}, {s, full}, DType::Float32);
    }
  }
  OpArgs last;
  last.dim = 1;
  Problem weighted;
  weighted.a = run(Op::Softmax, last, {s}, q.dtype());
  weighted.b = lying_by_rows(call.context, v, q.dtype());
  weighted.m = length;
  weighted.n = v.shape()[3];
  weighted.k = keys;
  weighted.a_of = a_of;
  weighted.b_of = b_of;
  return Product(call.context, std::move(weighted)).run(call.out().shape, call.out().dtype, call.policy);
}

Tensor run_matmul(const Call& call) {
  if (call.op == Op::Sdpa) return run_sdpa(call);
  const bool bias_first = call.op == Op::Addmm || call.op == Op::Baddbmm;
  const size_t lhs = bias_first ? 1 : 0;
  Tensor bias;
  if (bias_first) bias = call.in(0);
  if (call.op == Op::Linear && call.inputs.size() > 2) bias = call.in(2);
  if (layout::element_count(call.out().shape) == 0) {
    return make(call.context, call.out().shape, call.out().dtype, call.policy);
  }
  Problem p = problem_of(call, call.in(lhs), call.inputs.at(lhs + 1));
  if (bias.deployed()) require_matrix(call.op, bias.dtype());
  const bool as_row = bias.deployed() && bias.elements() == p.n && !bias.shape().empty() &&
                      bias.shape().back() == p.n && is_floating(bias.dtype()) == is_floating(p.a.dtype());
  if (as_row) p.bias = bias;
  const Tensor product = Product(call.context, std::move(p)).run(call.out().shape, call.out().dtype, call.policy);
  if (!bias.deployed() || as_row) return product;
  return apply(call, Op::Add, {}, {product, bias}, call.out());
}

}  // namespace ahbm::runtime::ops
