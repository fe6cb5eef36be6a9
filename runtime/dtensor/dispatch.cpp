// The way of an operator on distributed tensors: decide, redistribute, run locally, wrap.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/dtensor/functions.h"
#include "runtime/dtensor/redistribute.h"
#include "runtime/dtensor/session.h"
#include "runtime/ops/execute.h"

namespace ahbm::dtensor {

namespace ops = runtime::ops;

namespace {

const DTensor& first_distributed(Op op, const Operands& inputs) {
  for (const Operand& in : inputs) {
    if (in.distributed() != nullptr) return *in.distributed();
  }
  throw std::invalid_argument(fmt::format("{}: expected at least one distributed tensor", to_string(op)));
}

std::shared_ptr<const OpDecision> decide_call(Op op, const Operands& inputs, OpArgs args, Session& session) {
  const Session::Scopes scopes = session.scopes();
  session.tidy();
  args.implicit_replication = args.implicit_replication || scopes.implicit_replication > 0;
  OpCall call{op, {}, std::move(args)};
  for (const Operand& in : inputs) {
    if (in.distributed() != nullptr) {
      call.inputs.emplace_back(in.distributed()->spec());
    } else if (in.plain() != nullptr) {
      call.inputs.emplace_back(to_dims(in.plain()->shape()), in.plain()->dtype());
    } else {
      throw std::invalid_argument(
          fmt::format("{}: a number as operand {}: expected a tensor", to_string(op), call.inputs.size()));
    }
  }
  auto decision = session.engine().decide(call);
  if (scopes.explicit_redistribution > 0 && decision->cost_us > 0) {
    throw ImplicitRedistribution(
        fmt::format("{}: operands would be redistributed ({}) inside an "
                    "ExplicitRedistribution scope: redistribute them first",
                    to_string(op), fmt::join(decision->collective_sequence(), ", ")));
  }
  return decision;
}

/// The operand whose layout on cubes and PEs the results take: the followed one of pointwise operators, the left factor
/// of contractions, else the first.
size_t policy_source(Op op, const Operands& inputs) {
  if (op == Op::Addmm || op == Op::Baddbmm) return 1;
  size_t best = 0;
  if (op > Op::Where) return best;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const DTensor* a = inputs[i].distributed();
    const DTensor* b = inputs[best].distributed();
    if (a == nullptr) continue;
    if (b == nullptr ||
        std::make_pair(a->spec().num_shards(), a->ndim()) > std::make_pair(b->spec().num_shards(), b->ndim())) {
      best = i;
    }
  }
  return best;
}

/// An operator on this rank, inside the mesh.
class Execution {
 public:
  Execution(const DeviceMesh& mesh, const OpDecision& decision, const Operands& inputs)
      : m_mesh(mesh), m_context(mesh.context()), m_decision(decision) {
    for (size_t i = 0; i < inputs.size(); ++i) m_parts.push_back(prepare(inputs[i], decision.inputs[i]));
    const Tensor& lead = m_parts[policy_source(decision.op, inputs)].tensor;
    if (lead.policy() != m_parts.front().tensor.policy()) m_policy = lead.policy();
  }

  std::vector<DTensor> run() {
    std::vector<Tensor> results;
    if (m_decision.alias) {
      results = {m_parts.front().tensor};
    } else if (m_decision.op == Op::CrossEntropyLossParallel) {
      results = {loss_parallel()};
    } else {
      std::vector<ops::OpOutput> outputs;
      for (const DTensorSpec& spec : m_decision.outputs) {
        outputs.push_back({to_shape(local_shape(spec, m_mesh.get_rank())), spec.dtype()});
      }
      results = looks_up_nothing() ? std::vector<Tensor>{ops::filled(m_context, outputs[0].shape, 0, outputs[0].dtype,
                                                                     m_parts[0].tensor.policy())}
                                   : execute(m_decision.op, m_decision.args, locals(), outputs);
    }
    std::vector<Tensor> masks;
    for (const Part& p : m_parts) masks.insert(masks.end(), p.masks.begin(), p.masks.end());
    std::vector<DTensor> out;
    for (size_t i = 0; i < results.size(); ++i) {
      const DTensorSpec& spec = m_decision.outputs[i];
      const bool masked = std::any_of(spec.placements().begin(), spec.placements().end(),
                                      [](const Placement& p) { return std::holds_alternative<MaskPartial>(p); });
      out.emplace_back(m_mesh, spec, results[i], masked ? masks : std::vector<Tensor>());
    }
    return out;
  }

  /// The local answer of `equal`.
  bool equal() {
    const Tensor answer = execute(Op::Equal, m_decision.args, locals(), {{{}, DType::Bool}}).front();
    const std::vector<uint8_t> bytes = answer.to_host_bytes();
    return bytes.empty() || bytes.front() != 0;
  }

 private:
  Part prepare(const Operand& in, const InputDecision& decision) const {
    const DTensor* distributed = in.distributed();
    Part part;
    part.tensor = distributed != nullptr ? distributed->to_local() : *in.plain();
    if (distributed != nullptr) part.masks = distributed->masks();
    if (!decision.redistribute) return part;
    const DPPolicy policy = part.tensor.policy();
    return redistribute_part(m_mesh, decision.plan, std::move(part), policy);
  }

  std::vector<Tensor> locals() const {
    std::vector<Tensor> out;
    for (const Part& p : m_parts) out.push_back(p.tensor);
    return out;
  }

  std::vector<Tensor> execute(Op op, const OpArgs& args, const std::vector<Tensor>& inputs,
                              const std::vector<ops::OpOutput>& outputs) const {
    return ops::execute(m_context, op, args, inputs, outputs, m_policy);
  }
  Tensor execute(Op op, const OpArgs& args, const std::vector<Tensor>& inputs, const runtime::Shape& shape) const {
    return execute(op, args, inputs, {{shape, m_parts.front().tensor.dtype()}}).front();
  }

  /// A lookup in a part of a table that has no rows: every entry is marked, and its value does not matter.
  bool looks_up_nothing() const {
    return (m_decision.op == Op::Embedding || m_decision.op == Op::Gather) && !m_parts[1].masks.empty() &&
           m_parts[0].tensor.elements() == 0;
  }

  void all_reduce(const Tensor& t, size_t inner) const {
    if (m_decision.inner.empty()) return;
    const InnerCollective& c = m_decision.inner[inner];
    m_context.distributed.all_reduce(t, c.op, m_mesh.get_group(c.mesh_dim));
  }

  /// Cross entropy of logits whose classes are cut: log(sum(exp(x - max))) - (x[target] - max), where maximum, sum and
  /// the target's logit are reduced over the ranks.
  Tensor loss_parallel() const {
    const AtWork at_work(m_mesh.session(), m_mesh.layout());
    const Tensor& logits = m_parts[0].tensor;
    const auto dim = *m_decision.args.dim;
    runtime::Shape column = logits.shape();
    column[static_cast<size_t>(dim)] = 1;
    OpArgs over_classes;
    over_classes.dims = Dims{dim};
    over_classes.keepdim = true;
    const Tensor peak = execute(Op::Max, over_classes, {logits}, column);
    all_reduce(peak, 0);
    const Tensor shifted = execute(Op::Sub, {}, {logits, peak}, logits.shape());
    const Tensor total = execute(Op::Sum, over_classes, {execute(Op::Exp, {}, {shifted}, logits.shape())}, column);
    all_reduce(total, 1);
    const Tensor own = own_logit(shifted, dim, column);
    all_reduce(own, 2);
    const Tensor loss = execute(Op::Sub, {}, {execute(Op::Log, {}, {total}, column), own}, column);
    OpArgs reduction;
    if (m_decision.args.reduction == LossReduction::None) reduction.dims = Dims{dim};
    const DTensorSpec& out = m_decision.outputs[0];
    const bool mean = m_decision.args.reduction == LossReduction::Mean;
    reduction.dims = reduction.dims ? reduction.dims : all_dims(column.size());
    return execute(mean ? Op::Mean : Op::Sum, reduction, {loss}, to_shape(out.shape()));
  }
  static Dims all_dims(size_t n) {
    Dims out;
    for (size_t d = 0; d < n; ++d) out.push_back(static_cast<int64_t>(d));
    return out;
  }

  /// The target's logit where this rank has it, else 0.
  Tensor own_logit(const Tensor& shifted, int64_t dim, const runtime::Shape& column) const {
    const DTensorSpec& spec = m_decision.inputs[0].required;
    const auto rows =
        owned_along(m_mesh.layout(), spec.placements(), spec.shape(), static_cast<int>(dim), *m_mesh.get_coordinate());
    if (rows.empty() || rows.front().count == 0) {
      return ops::filled(m_context, column, 0, shifted.dtype(), shifted.policy());
    }
    OpArgs at;
    at.dim = dim;
    const Tensor& target = m_parts[1].tensor;
    const Tensor index = execute(Op::Unsqueeze, at, {target}, {{column, target.dtype()}}).front();
    const ops::MaskedIndices masked = ops::mask_indices(m_context, index, rows.front());
    const Tensor own = execute(Op::Gather, at, {shifted, masked.indices}, column);
    ops::zero_masked(m_context, own, masked.mask);
    return own;
  }

  const DeviceMesh& m_mesh;
  Context& m_context;
  const OpDecision& m_decision;
  std::vector<Part> m_parts;
  std::optional<DPPolicy> m_policy;
};

bool outside(const DeviceMesh& mesh) {
  return !mesh.layout().contains(mesh.get_rank());
}

}  // namespace

std::shared_ptr<const OpDecision> decision_of(Op op, const Operands& inputs, const OpArgs& args) {
  return decide_call(op, inputs, args, first_distributed(op, inputs).device_mesh().session());
}

std::vector<DTensor> dispatch(Op op, const Operands& inputs, const OpArgs& args) {
  const DeviceMesh mesh = first_distributed(op, inputs).device_mesh();
  const NamedOperation operation(mesh.session(), [op] { return to_string(op); });
  const auto decision = decide_call(op, inputs, args, mesh.session());
  if (decision->outputs.empty()) {
    throw std::invalid_argument(
        fmt::format("{}: the result is no tensor; call the function of that name", to_string(op)));
  }
  if (outside(mesh)) {
    if (decision->args.inplace) return {*inputs[0].distributed()};
    std::vector<DTensor> out;
    for (const DTensorSpec& spec : decision->outputs) out.emplace_back(mesh, spec, nothing_of(mesh.context(), spec));
    return out;
  }
  std::vector<DTensor> out = Execution(mesh, *decision, inputs).run();
  if (decision->args.inplace) return {*inputs[0].distributed()};
  return out;
}

bool equal(const DTensor& a, const Operand& b) {
  const DeviceMesh& mesh = a.device_mesh();
  const auto decision = decide_call(Op::Equal, {a, b}, {}, mesh.session());
  if (decision->constant) return *decision->constant;
  if (outside(mesh)) return true;
  const bool mine = Execution(mesh, *decision, {a, b}).equal();
  if (!decision->and_over_ranks) return mine;
  const auto answers = mesh.session().exchange(mesh.layout(), mine ? "true" : "false", "equal");
  return std::all_of(answers.begin(), answers.end(), [](const std::string& s) { return s == "true"; });
}

}  // namespace ahbm::dtensor
