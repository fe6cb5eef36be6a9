// Contractions: one list of strategy rows for every one of them, made from which dimension of the operands is which.
#include <algorithm>

#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {
namespace {

// One index of the contraction and where it appears; -1: nowhere (or only broadcast there).
struct Label {
  int64_t size = 1;
  int out = -1;
  int lhs = -1;
  int rhs = -1;
};

struct Contraction {
  std::vector<Label> labels;
  Dims shape;
};

[[noreturn]] void bad_shapes(const RuleContext& ctx, const Dims& a, const Dims& b, const std::string& expected) {
  throw ShapeMismatch(
      about(ctx, "operands of shape " + to_string(a) + " and " + to_string(b) + ": expected " + expected));
}

// a @ b with leading dimensions broadcast; 1-d operands count as a row or column without its dimension.
// `transposed`: b is [n, k] and has no batch.
Contraction contraction_of(const RuleContext& ctx, const Dims& a, const Dims& b, bool transposed) {
  if (a.empty() || b.empty()) bad_shapes(ctx, a, b, "at least one dimension each");
  const auto na = static_cast<int>(a.size());
  const auto nb = static_cast<int>(b.size());
  const int lhs_k = na - 1;
  const int rhs_k = nb == 1 ? 0 : (transposed ? nb - 1 : nb - 2);
  const int rhs_n = nb == 1 ? -1 : (transposed ? nb - 2 : nb - 1);
  const int lhs_m = na == 1 ? -1 : na - 2;
  const int64_t k = a[static_cast<size_t>(lhs_k)];
  if (k != b[static_cast<size_t>(rhs_k)]) {
    bad_shapes(ctx, a, b,
               "equal inner sizes, not " + std::to_string(k) + " and " + std::to_string(b[static_cast<size_t>(rhs_k)]));
  }
  Contraction out;
  const int batch_a = std::max(na - 2, 0);
  const int batch_b = std::max(nb - 2, 0);
  const int batch = std::max(batch_a, batch_b);
  for (int i = 0; i < batch; ++i) {
    const int da = i - (batch - batch_a);
    const int db = i - (batch - batch_b);
    const int64_t sa = da < 0 ? 1 : a[static_cast<size_t>(da)];
    const int64_t sb = db < 0 ? 1 : b[static_cast<size_t>(db)];
    if (sa != sb && sa != 1 && sb != 1) bad_shapes(ctx, a, b, "leading sizes that are equal or 1");
    Label label;
    label.size = sa == 1 ? sb : sa;
    label.out = i;
    label.lhs = da >= 0 && sa == label.size ? da : -1;
    label.rhs = db >= 0 && sb == label.size ? db : -1;
    out.labels.push_back(label);
    out.shape.push_back(label.size);
  }
  out.labels.push_back({k, -1, lhs_k, rhs_k});
  if (lhs_m >= 0) {
    out.labels.push_back({a[static_cast<size_t>(lhs_m)], static_cast<int>(out.shape.size()), lhs_m, -1});
    out.shape.push_back(out.labels.back().size);
  }
  if (rhs_n >= 0) {
    out.labels.push_back({b[static_cast<size_t>(rhs_n)], static_cast<int>(out.shape.size()), -1, rhs_n});
    out.shape.push_back(out.labels.back().size);
  }
  return out;
}

std::vector<StrategyRow> rows_of(const Contraction& c, bool linear_partials) {
  std::vector<StrategyRow> rows;
  rows.reserve(c.labels.size() + 5);
  const auto add = [&](const Placement& out, const Placement& lhs, const Placement& rhs) {
    rows.push_back({out, {lhs, rhs}, false});
  };
  const Placement r = Replicate{};
  add(r, r, r);
  for (const Label& l : c.labels) {
    if (l.out >= 0 && l.lhs >= 0 && l.rhs >= 0) add(Shard{l.out}, Shard{l.lhs}, Shard{l.rhs});
  }
  for (const Label& l : c.labels) {
    if (l.out < 0) add(Partial{}, Shard{l.lhs}, Shard{l.rhs});
  }
  for (const Label& l : c.labels) {
    if (l.out >= 0 && l.lhs >= 0 && l.rhs < 0) add(Shard{l.out}, Shard{l.lhs}, r);
  }
  for (const Label& l : c.labels) {
    if (l.out >= 0 && l.rhs >= 0 && l.lhs < 0) add(Shard{l.out}, r, Shard{l.rhs});
  }
  if (linear_partials) {
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
      add(Partial{op}, Partial{op}, r);
      add(Partial{op}, r, Partial{op});
    }
  }
  return rows;
}

void expect_ndim(const RuleContext& ctx, size_t i, size_t ndim) {
  if (ctx.in(i).ndim() == ndim) return;
  throw ShapeMismatch(about(ctx, "operand " + std::to_string(i) + " of shape " + to_string(ctx.in(i).shape()) +
                                     ": expected " + std::to_string(ndim) + " dimensions"));
}

// The output's placement as the bias has to carry it: it is added once, and broadcast like in an addition.
Placement bias_placement(const Placement& out, const Dims& bias, const Dims& shape) {
  if (!is_shard(out)) return out;
  const int d = shard_dim(out) - static_cast<int>(shape.size() - bias.size());
  const bool whole = d >= 0 && bias[static_cast<size_t>(d)] == shape[static_cast<size_t>(shard_dim(out))];
  return whole ? with_dim(out, d) : Placement(Replicate{});
}

void expect_bias(const RuleContext& ctx, const Dims& bias, const Dims& shape) {
  bool fits = bias.size() <= shape.size();
  for (size_t d = 0; fits && d < bias.size(); ++d) {
    const int64_t size = shape[d + shape.size() - bias.size()];
    fits = bias[d] == 1 || bias[d] == size;
  }
  if (!fits) {
    throw ShapeMismatch(
        about(ctx, "a bias of shape " + to_string(bias) + ": expected one that broadcasts to " + to_string(shape)));
  }
}

OpDecision finish(RuleContext& ctx, const std::vector<StrategyRow>& rows, const Dims& shape) {
  Strategy chosen = pick_strategy(ctx, rows);
  OpDecision decision = make_decision(ctx, chosen.inputs);
  DType dtype = ctx.in(0).dtype();
  for (const DTensorSpec& in : ctx.inputs) dtype = promote(dtype, in.dtype());
  add_output(decision, ctx, std::move(chosen.output), shape, dtype);
  return decision;
}

OpDecision decide_sdpa(RuleContext& ctx) {
  expect_inputs(ctx, 3, 4);
  for (size_t i = 0; i < 3; ++i) expect_ndim(ctx, i, 4);
  const Dims& q = ctx.in(0).shape();
  const Dims& k = ctx.in(1).shape();
  const Dims& v = ctx.in(2).shape();
  const bool fits =
      k[0] == q[0] && v[0] == q[0] && k[1] == v[1] && k[2] == v[2] && k[3] == q[3] && k[1] > 0 && q[1] % k[1] == 0;
  if (!fits) {
    throw ShapeMismatch(about(ctx, "query " + to_string(q) + ", key " + to_string(k) + ", value " + to_string(v) +
                                       ": expected [batch, heads, length, width] with equal batch, key and value "
                                       "alike, equal query and key width, and query heads a multiple of key heads"));
  }
  Dims mask;
  if (ctx.inputs.size() > 3) {
    mask = ctx.in(3).shape();
    expect_bias(ctx, mask, Dims{q[0], q[1], q[2], k[2]});
  }
  const Dims scores{q[0], q[1], q[2], k[2]};
  std::vector<StrategyRow> rows;
  const auto add = [&](const Placement& out, const Placement& kv) {
    StrategyRow row{out, {out, kv, kv}};
    if (ctx.inputs.size() > 3) row.inputs.push_back(bias_placement(out, mask, scores));
    rows.push_back(std::move(row));
  };
  add(Replicate{}, Replicate{});
  add(Shard{0}, Shard{0});
  // Heads may be cut if every rank's query heads find their key heads in its own part. With fewer key heads than query
  // heads that takes parts of whole groups.
  bool even = true;
  for (const uint32_t n : ctx.mesh->shape()) even = even && k[1] % static_cast<int64_t>(n) == 0;
  if (q[1] == k[1] || (even && k[1] % static_cast<int64_t>(ctx.mesh->size()) == 0)) {
    add(Shard{1}, Shard{1});
  } else if (k[1] == 1) {
    add(Shard{1}, Replicate{});
  }
  Dims shape = q;
  shape[3] = v[3];
  return finish(ctx, rows, shape);
}

}  // namespace

OpDecision decide_matmul(RuleContext& ctx) {
  if (ctx.op == Op::Sdpa) return decide_sdpa(ctx);
  size_t lhs = 0;
  bool transposed = false;
  size_t bias = SIZE_MAX;
  switch (ctx.op) {
    case Op::Mm:
      expect_inputs(ctx, 2, 2);
      expect_ndim(ctx, 0, 2);
      expect_ndim(ctx, 1, 2);
      break;
    case Op::Bmm:
      expect_inputs(ctx, 2, 2);
      expect_ndim(ctx, 0, 3);
      expect_ndim(ctx, 1, 3);
      break;
    case Op::Dot:
      expect_inputs(ctx, 2, 2);
      expect_ndim(ctx, 0, 1);
      expect_ndim(ctx, 1, 1);
      break;
    case Op::Addmm:
    case Op::Baddbmm:
      expect_inputs(ctx, 3, 3);
      expect_ndim(ctx, 1, ctx.op == Op::Addmm ? 2 : 3);
      expect_ndim(ctx, 2, ctx.op == Op::Addmm ? 2 : 3);
      lhs = 1;
      bias = 0;
      break;
    case Op::Linear:
      expect_inputs(ctx, 2, 3);
      expect_ndim(ctx, 1, 2);
      transposed = true;
      if (ctx.inputs.size() == 3) bias = 2;
      break;
    default:
      expect_inputs(ctx, 2, 2);
      break;
  }
  const Dims& a = ctx.in(lhs).shape();
  const Dims& b = ctx.in(lhs + 1).shape();
  if ((ctx.op == Op::Bmm || ctx.op == Op::Baddbmm) && a[0] != b[0]) bad_shapes(ctx, a, b, "equal batch sizes");
  const Contraction contraction = contraction_of(ctx, a, b, transposed);
  std::vector<StrategyRow> rows = rows_of(contraction, ctx.args.linear_partials);
  if (bias != SIZE_MAX) {
    const Dims& shape = ctx.in(bias).shape();
    expect_bias(ctx, shape, contraction.shape);
    for (StrategyRow& row : rows) {
      const Placement target = bias_placement(row.output, shape, contraction.shape);
      row.inputs.insert(row.inputs.begin() + static_cast<std::ptrdiff_t>(bias), target);
    }
  }
  return finish(ctx, rows, contraction.shape);
}

}  // namespace ahbm::dtensor
