#include "platform/bench_runner.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "models/tlm/extensions.h"
#include "platform/bench_reference.h"
#include "platform/collective_runner.h"
#include "platform/observe.h"
#include "runtime/dtensor/debug.h"
#include "runtime/dtensor/session.h"
#include "runtime/layout/topology_cost.h"
#include "runtime/nn/fully_shard.h"
#include "runtime/nn/megatron.h"
#include "runtime/nn/parallel.h"

namespace ahbm::platform {

namespace {

using dtensor::CommDebugMode;
using dtensor::CommEvent;
using dtensor::DeviceMesh;
using runtime::Context;
using runtime::Tensor;

enum class Style : uint8_t { Single, Megatron, Declared };
const char* to_string(Style style) {
  return style == Style::Single ? "single" : style == Style::Megatron ? "megatron" : "dtensor";
}

/// What one rank saw of one step.
struct Step {
  Span span;
  std::vector<CommEvent> log;
};
/// What a rank has at the end, and which part of the whole it is.
struct Result {
  std::vector<Step> steps;
  Range sequences;  ///< of the batch
  Range features;   ///< of the output's last dimension
  Numbers output;
  std::optional<double> loss;
};

Numbers numbers_of(const Tensor& t) {
  const std::vector<uint8_t> bytes = t.to_host_bytes();
  Numbers out(t.elements());
  for (size_t i = 0; i < out.size(); ++i) out[i] = load_element(t.dtype(), bytes.data(), i);
  return out;
}

nn::TransformerConfig model_config(const BenchOptions& o) {
  nn::TransformerConfig out;
  out.layers = o.layers;
  out.attention.hidden = o.hidden;
  out.attention.heads = o.heads;
  out.attention.kv_heads = o.kv_heads;
  out.attention.bias = o.bias;
  out.inner = o.inner;
  out.vocabulary = o.vocabulary;
  out.length = o.length;
  out.norm = o.rms_norm ? nn::NormKind::RmsNorm : nn::NormKind::LayerNorm;
  return out;
}

std::unique_ptr<nn::Module> plain_model(const BenchOptions& o, const nn::Builder& at, const nn::LayerFactory& factory) {
  const nn::TransformerConfig config = model_config(o);
  if (o.bench == "tp_mlp") return std::make_unique<nn::Mlp>(at, factory, o.hidden, o.inner, o.bias);
  if (o.bench == "tp_attention") return std::make_unique<nn::Attention>(at, factory, config.attention);
  return std::make_unique<nn::Transformer>(at, factory, config);
}

nn::ParallelPlan plan_of(const BenchOptions& o) {
  const nn::PlanOptions options{o.sequence_parallel(), o.loss_parallel};
  const nn::TransformerConfig config = model_config(o);
  if (o.bench == "tp_mlp") return nn::mlp_plan(options);
  if (o.bench == "tp_attention") return nn::attention_plan(config.attention, o.tensor, options);
  return nn::transformer_plan(config, o.tensor, options);
}

/// Embeddings, every block, and the rest as a unit each.
void shard_parameters(nn::Module& model, const DeviceMesh& mesh) {
  for (const auto& [name, child] : model.children()) nn::fully_shard(*child, mesh);
}

class Bench {
 public:
  Bench(Machine& machine, StepSplit& split, const BenchJob& job, BenchReport& report)
      : m_o(job.options), m_context(*machine.context), m_split(split), m_report(report), m_reference(job.options) {
    m_checked = m_o.check && job.config.simulation.functional;
  }

  void run() {
    if (m_checked) m_wanted = m_reference.output();
    measure(Style::Single);
    for (const Style style : {Style::Megatron, Style::Declared}) measure(style);
    compare();
  }

 private:
  void measure(Style style) {
    const uint32_t ranks = style == Style::Single ? 1 : m_o.ranks();
    m_split.forget();
    std::vector<Result> results(ranks);
    m_context.spawn([&](uint32_t rank) { results[rank] = run_rank(style); }, ranks);
    for (uint32_t step = 0; step < m_o.steps; ++step) m_report.add(row(style, step, results));
    if (style == Style::Single) m_single = results.front().output;
    m_outputs.push_back(std::move(results));
  }

  Result run_rank(Style style) {
    const DeviceMesh mesh = style == Style::Single
                                ? DeviceMesh()
                                : dtensor::init_device_mesh(m_context, "sip", {m_o.data, m_o.tensor}, {"dp", "tp"});
    Result out;
    out.sequences =
        style == Style::Single ? Range{0, m_o.batch} : torch_chunk(m_o.batch, m_o.data, mesh.get_local_rank("dp"));
    const uint64_t width = m_o.has_model() ? m_o.vocabulary : m_o.hidden;
    out.features = style != Style::Single && m_o.loss_parallel
                       ? torch_chunk(width, m_o.tensor, mesh.get_local_rank("tp"))
                       : Range{0, width};
    const auto model = model_of(style, mesh);
    const nn::Value input = input_of(out.sequences);
    const Tensor targets = m_o.loss_parallel ? token_tensor(m_reference.targets(), out.sequences) : Tensor();
    for (uint32_t i = 0; i < m_o.steps; ++i) {
      m_context.synchronize();
      if (style != Style::Single) m_context.distributed.monitored_barrier({}, us(1'000'000));
      CommDebugMode comm(m_context);
      Step step;
      step.span.first = models::now_ps();
      const nn::Value y = (*model)(input);
      const nn::Value loss = m_o.loss_parallel ? loss_of(style, mesh, y, targets) : nn::Value();
      const Tensor& local = y.to_local();
      m_context.synchronize();
      step.span.second = models::now_ps();
      step.log = comm.log();
      out.steps.push_back(std::move(step));
      if (i + 1 < m_o.steps || !m_checked) continue;
      out.output = numbers_of(local);
      if (loss.defined()) out.loss = numbers_of(loss.to_local()).front();
    }
    return out;
  }

  std::unique_ptr<nn::Module> model_of(Style style, const DeviceMesh& mesh) const {
    const nn::Builder at(m_context, m_o.dtype, m_o.seed);
    std::unique_ptr<nn::Module> model;
    if (style == Style::Megatron) {
      const auto tp = nn::tensor_parallel_group(mesh["tp"], m_o.sequence_parallel());
      model = plain_model(m_o, at, nn::MegatronFactory(tp, m_o.length, !m_o.loss_parallel));
    } else {
      model = plain_model(m_o, at, nn::LayerFactory());
    }
    // The ranks make the same parameters, so each can cut its own.
    if (style == Style::Declared) nn::parallelize_module(*model, mesh["tp"], plan_of(m_o), {std::nullopt});
    if (style != Style::Single && m_o.bench == "fsdp_tp")
      shard_parameters(*model, style == Style::Megatron ? mesh["dp"] : mesh);
    return model;
  }

  nn::Value input_of(const Range& sequences) const {
    if (m_o.has_model()) return token_tensor(m_reference.tokens(), sequences);
    const Numbers values = nn::parameter_values(m_o.seed, "input", {m_o.batch, m_o.length, m_o.hidden}, {0, 1},
                                                m_o.dtype, nn::Cut{0, sequences});
    std::vector<uint8_t> data(values.size() * item_bytes(m_o.dtype));
    for (size_t i = 0; i < values.size(); ++i) store_element(m_o.dtype, data.data(), i, values[i]);
    return m_context.from_host({sequences.count, m_o.length, m_o.hidden}, m_o.dtype, data.data(), data.size());
  }

  Tensor token_tensor(const std::vector<int64_t>& all, const Range& sequences) const {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(sequences.begin * m_o.length);
    return m_context.from_host(
        {sequences.count, m_o.length}, DType::Int64,
        std::vector<int64_t>(first, first + static_cast<std::ptrdiff_t>(sequences.count * m_o.length)));
  }

  nn::Value loss_of(Style style, const DeviceMesh& mesh, const nn::Value& logits, const Tensor& targets) const {
    if (style == Style::Megatron) {
      return nn::vocab_parallel_cross_entropy(nn::tensor_parallel_group(mesh["tp"]), logits.tensor(), targets,
                                              m_o.vocabulary);
    }
    return nn::cross_entropy(logits, targets, style == Style::Declared);
  }

  BenchRow row(Style style, uint32_t step, const std::vector<Result>& results) const {
    BenchRow out;
    out.style = to_string(style);
    out.step = step;
    Span span = results.front().steps[step].span;
    for (const Result& r : results) {
      span.first = std::min(span.first, r.steps[step].span.first);
      span.second = std::max(span.second, r.steps[step].span.second);
    }
    out.time = span.second - span.first;
    for (uint32_t rank = 0; rank < results.size(); ++rank) {
      const Step& s = results[rank].steps[step];
      std::vector<Span> collectives;
      std::map<std::string, uint32_t> counts;
      for (const CommEvent& e : s.log) {
        collectives.emplace_back(e.start(), e.end());
        ++counts[e.kind];
        if (rank == 0) out.bytes += static_cast<uint64_t>(e.elements) * item_bytes(e.dtype);
      }
      if (rank == 0) out.collectives = counts;
      if (counts != out.collectives) {
        throw std::runtime_error(fmt::format("rank {} issued {}, rank 0 {}", rank, collectives_text(counts),
                                             collectives_text(out.collectives)));
      }
      const StepParts parts = m_split.of(SipId{rank}, span, std::move(collectives));
      out.collective += parts.collective / results.size();
      out.compute += parts.compute / results.size();
    }
    out.host = out.time - out.collective - out.compute;
    if (step + 1 == m_o.steps && m_checked) check(style, results, out);
    return out;
  }

  void check(Style style, const std::vector<Result>& results, BenchRow& row) const {
    double error = 0;
    double single = 0;
    for (const Result& r : results) {
      error = std::max(error, relative_error(r.output, part(m_wanted, r)));
      if (style != Style::Single) single = std::max(single, relative_error(r.output, part(m_single, r)));
      if (!r.loss) continue;
      error = std::max(error,
                       relative_error({*r.loss}, {m_reference.loss(m_wanted, r.sequences.begin, r.sequences.count)}));
    }
    row.error = error;
    if (style != Style::Single) row.single_error = single;
    row.wrong = !(error <= tolerance(m_o.dtype)) || !(single <= tolerance(m_o.dtype));
  }

  /// What a rank has to hold of the whole output.
  Numbers part(const Numbers& whole, const Result& r) const {
    const uint64_t width = m_o.has_model() ? m_o.vocabulary : m_o.hidden;
    Numbers out;
    for (uint64_t row = r.sequences.begin * m_o.length; row < r.sequences.end() * m_o.length; ++row) {
      const auto first = whole.begin() + static_cast<std::ptrdiff_t>(row * width + r.features.begin);
      out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(r.features.count));
    }
    return out;
  }

  void compare() const {
    const BenchRow& megatron = m_report.rows()[2 * m_o.steps - 1];
    const BenchRow& declared = m_report.rows()[3 * m_o.steps - 1];
    const bool equal = megatron.collectives == declared.collectives && megatron.bytes == declared.bytes;
    m_report.footer(
        equal ? fmt::format("megatron and dtensor communicate alike: {}, {} B", collectives_text(declared.collectives),
                            declared.bytes)
              : fmt::format("megatron communicates {}, {} B; dtensor {}, {} B", collectives_text(megatron.collectives),
                            megatron.bytes, collectives_text(declared.collectives), declared.bytes),
        !equal);
    if (m_checked) {
      double difference = 0;
      for (uint32_t r = 0; r < m_o.ranks(); ++r) {
        difference = std::max(difference, relative_error(m_outputs[2][r].output, m_outputs[1][r].output));
      }
      const bool same = difference <= tolerance(m_o.dtype);
      m_report.footer(fmt::format("their results differ by {:.2e} of the largest value at most (tolerance {:.0e})",
                                  difference, tolerance(m_o.dtype)),
                      !same);
    }
    m_report.footer(
        fmt::format("dtensor takes {:.3f} of megatron's time; one SIP takes {:.2f} times as long as dtensor",
                    ratio(declared.time, megatron.time), ratio(m_report.rows()[m_o.steps - 1].time, declared.time)));
  }

  static double ratio(Ps a, Ps b) { return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b); }

  const BenchOptions& m_o;
  Context& m_context;
  StepSplit& m_split;
  BenchReport& m_report;
  BenchReference m_reference;
  bool m_checked = true;
  Numbers m_wanted, m_single;
  std::vector<std::vector<Result>> m_outputs;  ///< by style, by rank
};

}  // namespace

double relative_error(const Numbers& got, const Numbers& wanted) {
  if (got.size() != wanted.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(got[i] - wanted[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

double tolerance(DType dtype) {
  // A few dozen roundings of the dtype on the longest way through a model, each a fraction of the largest value.
  switch (dtype) {
    case DType::Float32:
      return 1e-5;
    case DType::Float16:
      return 5e-3;
    default:
      return 4e-2;
  }
}

void run_bench_on(Machine& machine, StepSplit& split, const BenchJob& job, BenchReport& report) {
  const BenchOptions& o = job.options;
  Context& context = *machine.context;
  try {
    context.distributed.init_process_group();
    require_modules_kept(o.observe, context.distributed.settings());
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
  if (context.distributed.get_world_size() != o.ranks()) {
    throw UsageError(fmt::format("bench: a mesh of {} ranks, but {} ranks (rank = {}); expected a rank per SIP",
                                 o.ranks(), context.distributed.get_world_size(),
                                 runtime::distributed::to_string(context.distributed.rank_mode())));
  }
  report.header(fmt::format("{}: {}, {} SIPs ({}), mesh {} x {} (data x tensor), {} x {} cubes of {} PEs", o.bench,
                            job.config.name, job.config.sips, to_string(job.config.topology), o.data, o.tensor,
                            job.config.cube_w, job.config.cube_h, job.config.pes));
  report.header(fmt::format(
      "batch {}, sequence {}, hidden {}, inner {}, {}{}", o.batch, o.length, o.hidden, o.inner,
      o.bench == "tp_mlp" ? "" : fmt::format("heads {} ({} of keys), ", o.heads, o.kv_heads),
      o.has_model() ? fmt::format("{} layers, vocabulary {}, {}", o.layers, o.vocabulary, ahbm::to_string(o.dtype))
                    : std::string(ahbm::to_string(o.dtype))));
  if (o.topology_cost) {
    context.dtensor_session().engine().set_cost_model(std::make_shared<dtensor::TopologyCostModel>(job.config));
  }
  if (o.sweep) {
    run_placement_sweep(machine, split, job, report);
  } else {
    Bench(machine, split, job, report).run();
  }
  context.distributed.destroy_process_group();
}

void run_bench(const BenchJob& job, BenchReport& report) {
  StepSplit split(job.config);  // outlives what shows it the machine
  Observing observing(job.options.observe, job.outputs);
  auto* machine = new Machine(job.config, observing.parts());  // left to the operating system, see Machine
  observing.attach(*machine);
  observing.watch(*machine, split);
  machine->run([&] { run_bench_on(*machine, split, job, report); });
  observing.finish();
}

}  // namespace ahbm::platform
