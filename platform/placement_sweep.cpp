// `ahbm-vp bench tp_mlp --sweep placements`.
#include <fmt/format.h>

#include <algorithm>

#include "models/tlm/extensions.h"
#include "platform/bench_reference.h"
#include "platform/bench_runner.h"
#include "runtime/dtensor/debug.h"
#include "runtime/dtensor/functions.h"
#include "runtime/dtensor/session.h"
#include "runtime/nn/builder.h"

namespace ahbm::platform {

namespace {

using dtensor::DeviceMesh;
using dtensor::DTensor;
using dtensor::Op;
using dtensor::Placement;
using dtensor::Replicate;
using dtensor::Shard;
using runtime::Tensor;

/// How activations enter and leave, and how the two weights lie.
struct Layout {
  Placement x, up, down;
  bool weights_cut() const { return dtensor::is_shard(up) && dtensor::is_shard(down); }
  std::string text() const { return fmt::format("x {} up {} down {}", to_string(x), to_string(up), to_string(down)); }
};

std::vector<Layout> layouts() {
  const std::vector<Placement> ways{Shard{0}, Shard{1}, Replicate{}};
  std::vector<Layout> out;
  for (const Placement& x : {Placement(Replicate{}), Placement(Shard{1})}) {
    for (const Placement& up : ways) {
      for (const Placement& down : ways) out.push_back({x, up, down});
    }
  }
  return out;
}

/// What one rank saw of a layout.
struct Seen {
  Span span;
  std::vector<dtensor::CommEvent> log;
  double estimate_us = 0;
  Numbers output;  ///< rank 0's, whole
};

class Sweep {
 public:
  Sweep(Machine& machine, StepSplit& split, const BenchJob& job, BenchReport& report)
      : m_o(job.options),
        m_context(*machine.context),
        m_split(split),
        m_report(report),
        m_all(layouts()),
        m_seen(m_all.size(), std::vector<Seen>(job.options.ranks())),
        m_checked(job.options.check && job.config.simulation.functional) {}

  void run() {
    m_context.spawn([&](uint32_t rank) { run_rank(rank); }, m_o.ranks());
    const Numbers wanted = m_checked ? BenchReference(m_o).output() : Numbers();
    std::vector<BenchRow> rows;
    for (size_t i = 0; i < m_all.size(); ++i) rows.push_back(row(i, wanted));
    std::vector<size_t> order(rows.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a].time < rows[b].time; });
    for (size_t place = 0; place < order.size(); ++place) {
      rows[order[place]].step = static_cast<uint32_t>(place + 1);
      m_report.add(rows[order[place]]);
    }
    m_report.footer(m_o.topology_cost
                        ? "estimate: the cost model's figure for communication and for the operators on each rank"
                        : "estimate: the cost model's figure for the communication, which is all that it looks at");
    tell_choice("the cost model's choice", rows, order, [](const Layout&) { return true; });
    tell_choice("its choice among layouts that cut both weights", rows, order,
                [](const Layout& l) { return l.weights_cut(); });
  }

 private:
  void run_rank(uint32_t rank) {
    const DeviceMesh mesh = dtensor::init_device_mesh(m_context, "sip", {m_o.ranks()}, {"tp"});
    const nn::Builder at(m_context, m_o.dtype, m_o.seed);
    const Tensor x = at.parameter("input", {m_o.batch, m_o.length, m_o.hidden}, {0, 1});
    const Tensor up = at.parameter("up.weight", {m_o.inner, m_o.hidden}, nn::linear_init(m_o.hidden));
    const Tensor down = at.parameter("down.weight", {m_o.hidden, m_o.inner}, nn::linear_init(m_o.inner));
    Tensor up_bias, down_bias;
    if (m_o.bias) {
      up_bias = at.parameter("up.bias", {m_o.inner}, nn::kBiasInit);
      down_bias = at.parameter("down.bias", {m_o.hidden}, nn::kBiasInit);
    }
    for (size_t i = 0; i < m_all.size(); ++i) {
      const Layout& l = m_all[i];
      const auto placed = [&](const Tensor& t, const Placement& p) {
        return t.deployed() ? distribute_tensor(t, mesh, {p}, {std::nullopt}) : DTensor();
      };
      const auto bias = [](const Placement& weight) {
        return dtensor::is_shard(weight, 0) ? weight : Placement(Replicate{});
      };
      const Operands operands{placed(x, l.x), placed(up, l.up), placed(up_bias, bias(l.up)), placed(down, l.down),
                              placed(down_bias, bias(l.down))};
      forward(operands, l.x, nullptr);  // makes connections
      m_context.synchronize();
      m_context.distributed.monitored_barrier({}, us(1'000'000));
      Seen& seen = m_seen[i][rank];
      dtensor::CommDebugMode comm(m_context);
      seen.span.first = models::now_ps();
      const DTensor y = forward(operands, l.x, &seen.estimate_us);
      m_context.synchronize();
      seen.span.second = models::now_ps();
      seen.log = comm.log();
      if (!m_checked) continue;
      const Tensor whole = y.full_tensor();
      if (rank != 0) continue;
      const std::vector<uint8_t> bytes = whole.to_host_bytes();
      for (size_t e = 0; e < whole.elements(); ++e) seen.output.push_back(load_element(m_o.dtype, bytes.data(), e));
    }
  }

  struct Operands {
    DTensor x, up, up_bias, down, down_bias;
  };

  static const dtensor::CostModel& cost_model(const Operands& o) {
    return o.x.device_mesh().session().engine().cost_model();
  }

  /// down(gelu(up(x))), brought back to where x lies. \param estimate  grows by what the cost model says
  static DTensor forward(const Operands& o, const Placement& leave, double* estimate) {
    const auto run = [&](Op op, std::vector<DTensor> inputs) {
      dtensor::Operands operands;
      for (const DTensor& t : inputs) {
        if (t.defined()) operands.emplace_back(t);
      }
      if (estimate != nullptr) {
        const auto decision = decision_of(op, operands);
        *estimate += decision->cost_us + compute_cost(cost_model(o), *decision);
      }
      return dispatch(op, operands).front();
    };
    const DTensor h = run(Op::Gelu, {run(Op::Linear, {o.x, o.up, o.up_bias})});
    const DTensor y = run(Op::Linear, {h, o.down, o.down_bias});
    if (estimate != nullptr) {
      *estimate += redistribute_cost(cost_model(o), y.spec(), {leave});
    }
    return y.redistribute({leave});
  }

  BenchRow row(size_t index, const Numbers& wanted) const {
    const std::vector<Seen>& ranks = m_seen[index];
    BenchRow out;
    out.style = m_all[index].text();
    Span span = ranks.front().span;
    for (const Seen& s : ranks) {
      span.first = std::min(span.first, s.span.first);
      span.second = std::max(span.second, s.span.second);
    }
    out.time = span.second - span.first;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<Span> collectives;
      for (const auto& e : ranks[rank].log) collectives.emplace_back(e.start(), e.end());
      const StepParts parts = m_split.of(SipId{rank}, span, std::move(collectives));
      out.collective += parts.collective / ranks.size();
      out.compute += parts.compute / ranks.size();
    }
    out.host = out.time - out.collective - out.compute;
    for (const auto& e : ranks.front().log) {
      ++out.collectives[e.kind];
      out.bytes += static_cast<uint64_t>(e.elements) * item_bytes(e.dtype);
    }
    out.estimate_us = ranks.front().estimate_us;
    if (m_checked) {
      out.error = relative_error(ranks.front().output, wanted);
      out.wrong = !(*out.error <= tolerance(m_o.dtype));
    }
    return out;
  }

  template <typename Predicate>
  void tell_choice(const char* what, const std::vector<BenchRow>& rows, const std::vector<size_t>& order,
                   Predicate allowed) const {
    std::vector<size_t> among;
    for (const size_t i : order) {
      if (allowed(m_all[i])) among.push_back(i);
    }
    // As the engine does: the first of the cheapest, in the order in which they are listed.
    const size_t choice = *std::min_element(among.begin(), among.end(), [&](size_t a, size_t b) {
      return std::make_pair(*rows[a].estimate_us, a) < std::make_pair(*rows[b].estimate_us, b);
    });
    const auto place = std::find(among.begin(), among.end(), choice) - among.begin() + 1;
    m_report.footer(fmt::format("{}: {} ({:.2f} us): {} of {} by simulated time, {:.3f} times the fastest ({})", what,
                                rows[choice].style, *rows[choice].estimate_us, place, among.size(),
                                static_cast<double>(rows[choice].time) / static_cast<double>(rows[among.front()].time),
                                rows[among.front()].style));
  }

  const BenchOptions& m_o;
  runtime::Context& m_context;
  StepSplit& m_split;
  BenchReport& m_report;
  const std::vector<Layout> m_all;
  std::vector<std::vector<Seen>> m_seen;  ///< by layout, by rank
  bool m_checked;
};

}  // namespace

void run_placement_sweep(Machine& machine, StepSplit& split, const BenchJob& job, BenchReport& report) {
  Sweep(machine, split, job, report).run();
}

}  // namespace ahbm::platform
