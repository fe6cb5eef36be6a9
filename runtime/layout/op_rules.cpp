#include "runtime/layout/op_rules.h"

#include <algorithm>
#include <array>

namespace ahbm::dtensor {

std::string about(const RuleContext& ctx, const std::string& text) {
  return std::string(to_string(ctx.op)) + (ctx.args.inplace ? "_" : "") + ": " + text;
}

void expect_inputs(const RuleContext& ctx, size_t min, size_t max) {
  const size_t n = ctx.inputs.size();
  if (n >= min && n <= max) return;
  throw std::invalid_argument(about(ctx, std::to_string(n) + " tensors, expected " + std::to_string(min) +
                                             (max == min ? "" : ".." + std::to_string(max))));
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const bool fa = is_floating(a);
  const bool fb = is_floating(b);
  if (fa != fb) return fa ? a : b;
  if (fa) return DType::Float32;  // half with bfloat16, or one of them with float
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (a == DType::Int64 || b == DType::Int64) return DType::Int64;
  if (a == DType::Int32 || b == DType::Int32) return DType::Int32;
  return DType::Int32;  // int8 with uint8: the smallest that holds both
}

OpDecision make_decision(RuleContext& ctx, const SmallVector<Placements, 3>& required) {
  OpDecision out;
  out.op = ctx.op;
  for (size_t i = 0; i < required.size(); ++i) {
    const DTensorSpec& in = ctx.in(i);
    out.inputs.emplace_back();
    InputDecision& decision = out.inputs.back();
    if (required[i] == in.placements()) {
      decision.required = in;
      decision.plan = {ctx.mesh, in.shape(), in.placements(), in.placements(), {}};
      continue;
    }
    decision.required = in.with_checked_placements(required[i]);
    decision.plan = plan_redistribute(in, required[i], Legality::Internal);
    decision.redistribute = true;
    // Partial to another Partial goes by way of Replicate: its price is that of the reduction.
    Placements priced = required[i];
    for (size_t m = 0; m < priced.size(); ++m) {
      if (is_partial(priced[m]) && is_partial(in.placements()[m]) && !(priced[m] == in.placements()[m])) {
        priced[m] = Replicate{};
      }
    }
    out.cost_us += redistribute_cost(ctx.cost, in, priced);
  }
  out.args = ctx.args;
  return out;
}

void add_output(OpDecision& decision, const RuleContext& ctx, Placements placements, Dims shape, DType dtype) {
  decision.outputs.emplace_back(ctx.mesh, placements, std::move(shape), dtype);
}

bool is_sharded(const DTensorSpec& spec, int dim) {
  return std::any_of(spec.placements().begin(), spec.placements().end(),
                     [dim](const Placement& p) { return is_shard(p, dim); });
}

bool is_even(const DTensorSpec& spec, int dim) {
  int64_t parts = 1;
  for (size_t m = 0; m < spec.placements().size(); ++m) {
    if (!is_shard(spec.placements()[m], dim)) continue;
    parts *= spec.mesh()->shape()[m];
    if (const auto* strided = std::get_if<StridedShard>(&spec.placements()[m])) parts *= strided->split_factor;
  }
  return spec.shape()[static_cast<size_t>(dim)] % parts == 0;
}

namespace {

constexpr size_t kMaxInputs = 4;

// The search over the product of rows: depth-first in product order, with the running cost of every input. What a row
// means on a mesh dimension is worked out once, before.
/// By more than what the order of the additions makes of equal costs.
bool cheaper(double a, double b) {
  return b == kInfiniteCost ? a < b : a < b * (1 - 1e-9);
}

class Search {
 public:
  Search(const RuleContext& ctx, const std::vector<StrategyRow>& rows)
      : m_mesh(*ctx.mesh), m_ctx(ctx), m_inputs(ctx.inputs.size()) {
    if (m_inputs > kMaxInputs) throw std::invalid_argument(about(ctx, "more than 4 tensors"));
    m_chosen.assign(ctx.mesh_ndim(), 0);
    for (const StrategyRow& row : rows) {
      RowInfo info;
      for (size_t i = 0; i < m_inputs; ++i) {
        info.partials[i] = kind_bit(row.inputs[i]);
        info.shards[i] = static_cast<int8_t>(shard_dim(row.inputs[i]));
      }
      info.partials[kMaxInputs] = kind_bit(row.output);
      info.any_extent = row.any_extent;
      m_info.push_back(info);
    }
    for (uint32_t m = 0; m < ctx.mesh_ndim(); ++m) {
      const uint32_t n = m_mesh.shape()[m];
      m_usable.emplace_back();
      for (uint32_t r = 0; r < rows.size(); ++r) {
        Usable usable{r, {}};
        bool fits = true;
        for (size_t i = 0; i < m_inputs && fits; ++i) {
          const DTensorSpec& in = ctx.in(i);
          const int d = m_info[r].shards[i];
          fits = d < 0 || rows[r].any_extent || in.shape()[static_cast<size_t>(d)] >= static_cast<int64_t>(n);
          if (!fits) break;
          usable.changes[i] = change_kind(in.placements()[m], rows[r].inputs[i], n);
          fits = usable.changes[i] != ChangeKind::Impossible;
        }
        if (fits) m_usable.back().push_back(usable);
      }
    }
  }

  SmallVector<uint32_t, 4> run() {
    Level top;
    for (size_t i = 0; i < m_inputs; ++i) top.bytes[i] = local_bytes(m_ctx.in(i));
    visit(0, top);
    if (m_has_exact) return m_exact;
    if (m_best.empty()) throw UnsupportedTransition(about(m_ctx, "no way to place the operands"));
    return m_best;
  }

 private:
  struct RowInfo {
    std::array<uint16_t, kMaxInputs + 1> partials{};  // kind of Partial per tensor, output last
    std::array<int8_t, kMaxInputs> shards{};
    bool any_extent = false;
  };
  struct Usable {
    uint32_t row = 0;
    std::array<ChangeKind, kMaxInputs> changes{};
  };
  struct Level {
    std::array<double, kMaxInputs> bytes{};
    std::array<uint16_t, kMaxInputs + 1> partials{};
    double cost = 0;
    bool exact = true;
  };

  // Every cut dimension has at least as many elements as there are parts.
  bool fits() const {
    for (size_t m = 1; m < m_chosen.size(); ++m) {
      const RowInfo& row = m_info[m_chosen[m]];
      if (row.any_extent) continue;
      for (size_t i = 0; i < m_inputs; ++i) {
        const int d = row.shards[i];
        if (d < 0) continue;
        int64_t parts = m_mesh.shape()[m];
        for (size_t k = 0; k < m; ++k) {
          if (m_info[m_chosen[k]].shards[i] == d) parts *= m_mesh.shape()[k];
        }
        if (m_ctx.in(i).shape()[static_cast<size_t>(d)] < parts) return false;
      }
    }
    return true;
  }

  static uint16_t kind_bit(const Placement& p) {
    if (const auto* partial = std::get_if<Partial>(&p)) {
      return static_cast<uint16_t>(1U << static_cast<uint32_t>(partial->op));
    }
    if (std::holds_alternative<NormPartial>(p)) return 1U << 8;
    if (std::holds_alternative<MaskPartial>(p)) return 1U << 9;
    return 0;
  }
  static bool commute(uint32_t bits) {
    const uint32_t linear = 1U << static_cast<uint32_t>(ReduceOp::Sum) | 1U << static_cast<uint32_t>(ReduceOp::Avg);
    return (bits & (bits - 1)) == 0 || bits == linear;
  }

  void visit(uint32_t m, const Level& level) {
    if (m == m_chosen.size()) {
      if (!fits()) return;
      if (level.exact) {
        m_exact = m_chosen;  // the last of these wins
        m_has_exact = true;
      } else if (m_best.empty() || cheaper(level.cost, m_best_cost)) {
        m_best = m_chosen;  // the first of the cheapest wins, so the first of those without cost too
        m_best_cost = level.cost;
      }
      return;
    }
    for (const Usable& usable : m_usable[m]) {
      const RowInfo& row = m_info[usable.row];
      Level next = level;
      bool possible = true;
      for (size_t i = 0; i < m_inputs; ++i) {
        if (usable.changes[i] != ChangeKind::Same) {
          next.exact = false;
          next.cost += change_cost(m_ctx.cost, m_mesh, m, usable.changes[i], next.bytes[i]);
        }
        next.partials[i] = static_cast<uint16_t>(next.partials[i] | row.partials[i]);
        possible = possible && commute(next.partials[i]);
      }
      next.partials[kMaxInputs] = static_cast<uint16_t>(next.partials[kMaxInputs] | row.partials[kMaxInputs]);
      // Costs only grow: what is no cheaper than the best so far, or needs a change when something fits as it is,
      // cannot win any more.
      if (!possible || !commute(next.partials[kMaxInputs])) continue;
      if (!next.exact && (m_has_exact || (!m_best.empty() && !cheaper(next.cost, m_best_cost)))) continue;
      m_chosen[m] = usable.row;
      visit(m + 1, next);
    }
  }

  const MeshLayout& m_mesh;
  const RuleContext& m_ctx;
  size_t m_inputs;
  SmallVector<RowInfo, 12> m_info;
  SmallVector<SmallVector<Usable, 12>, 3> m_usable;
  SmallVector<uint32_t, 4> m_chosen;
  SmallVector<uint32_t, 4> m_best;
  SmallVector<uint32_t, 4> m_exact;
  double m_best_cost = kInfiniteCost;
  bool m_has_exact = false;
};

}  // namespace

Strategy pick_strategy(const RuleContext& ctx, const std::vector<StrategyRow>& rows) {
  const SmallVector<uint32_t, 4> chosen = Search(ctx, rows).run();
  Strategy out;
  out.inputs.resize(ctx.inputs.size());
  for (const uint32_t r : chosen) {
    out.output.push_back(rows[r].output);
    for (size_t i = 0; i < ctx.inputs.size(); ++i) out.inputs[i].push_back(rows[r].inputs[i]);
  }
  return out;
}

Placements pick_shared(const RuleContext& ctx, const std::vector<Placements>& candidates) {
  const Placements* exact = nullptr;
  const Placements* best = nullptr;
  double best_cost = kInfiniteCost;
  for (const Placements& candidate : candidates) {
    bool same = true;
    double cost = 0;
    for (const DTensorSpec& in : ctx.inputs) {
      same = same && in.placements() == candidate;
      cost += redistribute_cost(ctx.cost, in, candidate);
    }
    if (same) {
      exact = &candidate;
    } else if (cheaper(cost, best_cost)) {
      best = &candidate;
      best_cost = cost;
    }
  }
  if (exact != nullptr) return *exact;
  if (best != nullptr) return *best;
  // Every candidate asks for a Partial that some input cannot become: reduce the Partials first.
  std::vector<Placements> cleared;
  for (const Placements& candidate : candidates) {
    cleared.push_back(replicate_where(candidate, [](const Placement& p) { return is_partial(p); }));
  }
  if (cleared == candidates) throw UnsupportedTransition(about(ctx, "no way to place the operands"));
  return pick_shared(ctx, cleared);
}

}  // namespace ahbm::dtensor
