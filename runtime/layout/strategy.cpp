#include "runtime/layout/strategy.h"

#include <algorithm>
#include <cstring>

#include "runtime/layout/op_rules.h"

namespace ahbm::dtensor {
namespace {

struct OpName {
  Op op;
  const char* name;
};
constexpr OpName kOpNames[] = {
    {Op::Neg, "neg"},
    {Op::Clone, "clone"},
    {Op::Cast, "cast"},
    {Op::Relu, "relu"},
    {Op::Abs, "abs"},
    {Op::Exp, "exp"},
    {Op::Log, "log"},
    {Op::Sqrt, "sqrt"},
    {Op::Rsqrt, "rsqrt"},
    {Op::Reciprocal, "reciprocal"},
    {Op::Tanh, "tanh"},
    {Op::Sigmoid, "sigmoid"},
    {Op::Silu, "silu"},
    {Op::Gelu, "gelu"},
    {Op::Square, "square"},
    {Op::Sin, "sin"},
    {Op::Cos, "cos"},
    {Op::Sign, "sign"},
    {Op::LogicalNot, "logical_not"},
    {Op::Fill, "fill"},
    {Op::Zero, "zero"},
    {Op::AddScalar, "add_scalar"},
    {Op::SubScalar, "sub_scalar"},
    {Op::RsubScalar, "rsub_scalar"},
    {Op::MulScalar, "mul_scalar"},
    {Op::DivScalar, "div_scalar"},
    {Op::RdivScalar, "rdiv_scalar"},
    {Op::PowScalar, "pow_scalar"},
    {Op::MaximumScalar, "maximum_scalar"},
    {Op::MinimumScalar, "minimum_scalar"},
    {Op::EqScalar, "eq_scalar"},
    {Op::NeScalar, "ne_scalar"},
    {Op::LtScalar, "lt_scalar"},
    {Op::LeScalar, "le_scalar"},
    {Op::GtScalar, "gt_scalar"},
    {Op::GeScalar, "ge_scalar"},
    {Op::MaskedFill, "masked_fill"},
    {Op::Add, "add"},
    {Op::Sub, "sub"},
    {Op::Mul, "mul"},
    {Op::Div, "div"},
    {Op::Pow, "pow"},
    {Op::Maximum, "maximum"},
    {Op::Minimum, "minimum"},
    {Op::Eq, "eq"},
    {Op::Ne, "ne"},
    {Op::Lt, "lt"},
    {Op::Le, "le"},
    {Op::Gt, "gt"},
    {Op::Ge, "ge"},
    {Op::LogicalAnd, "logical_and"},
    {Op::LogicalOr, "logical_or"},
    {Op::Copy, "copy"},
    {Op::Where, "where"},
    {Op::ZerosLike, "zeros_like"},
    {Op::OnesLike, "ones_like"},
    {Op::FullLike, "full_like"},
    {Op::EmptyLike, "empty_like"},
    {Op::Sum, "sum"},
    {Op::Mean, "mean"},
    {Op::Max, "max"},
    {Op::Min, "min"},
    {Op::Prod, "prod"},
    {Op::All, "all"},
    {Op::Any, "any"},
    {Op::Norm, "norm"},
    {Op::Std, "std"},
    {Op::Var, "var"},
    {Op::LogSumExp, "logsumexp"},
    {Op::ArgMax, "argmax"},
    {Op::ArgMin, "argmin"},
    {Op::Cumsum, "cumsum"},
    {Op::Softmax, "softmax"},
    {Op::LogSoftmax, "log_softmax"},
    {Op::LayerNorm, "layer_norm"},
    {Op::RmsNorm, "rms_norm"},
    {Op::CrossEntropy, "cross_entropy"},
    {Op::CrossEntropyLossParallel, "ce_loss_parallel"},
    {Op::Mm, "mm"},
    {Op::Bmm, "bmm"},
    {Op::Dot, "dot"},
    {Op::Matmul, "matmul"},
    {Op::Addmm, "addmm"},
    {Op::Baddbmm, "baddbmm"},
    {Op::Linear, "linear"},
    {Op::Sdpa, "scaled_dot_product_attention"},
    {Op::Identity, "identity"},
    {Op::T, "t"},
    {Op::Transpose, "transpose"},
    {Op::Permute, "permute"},
    {Op::Squeeze, "squeeze"},
    {Op::Unsqueeze, "unsqueeze"},
    {Op::Expand, "expand"},
    {Op::Cat, "cat"},
    {Op::Stack, "stack"},
    {Op::Split, "split"},
    {Op::Chunk, "chunk"},
    {Op::Slice, "slice"},
    {Op::Select, "select"},
    {Op::Unbind, "unbind"},
    {Op::Equal, "equal"},
    {Op::Gather, "gather"},
    {Op::IndexSelect, "index_select"},
    {Op::Triu, "triu"},
    {Op::Tril, "tril"},
    {Op::View, "view"},
    {Op::Reshape, "reshape"},
    {Op::Embedding, "embedding"},
};

// Bounded, so that a program with ever new shapes or numbers does not grow without end.
constexpr size_t kMaxCached = 8192;

size_t hash_bits(double v, size_t seed) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return hash_mix(seed, static_cast<size_t>(bits));
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

size_t hash_of_input(const OpInput& in, size_t seed) {
  if (in.spec != nullptr) return hash_mix(seed, in.spec->hash());
  return hash_mix(hash_of(in.shape, seed), static_cast<size_t>(in.dtype) + 1);
}

size_t hash_of_call(const OpCall& call) {
  size_t h = hash_mix(static_cast<size_t>(call.op), call.args.hash());
  for (const OpInput& in : call.inputs) h = hash_of_input(in, h);
  return h;
}

}  // namespace

const char* to_string(Op op) {
  for (const OpName& e : kOpNames) {
    if (e.op == op) return e.name;
  }
  return "?";
}

std::optional<Op> parse_op(std::string_view name) {
  for (const OpName& e : kOpNames) {
    if (name == e.name) return e.op;
  }
  return std::nullopt;
}

bool operator==(const OpArgs& a, const OpArgs& b) {
  return a.dims == b.dims && a.dim == b.dim && a.sizes == b.sizes && a.start == b.start && a.end == b.end &&
         a.step == b.step && a.index == b.index && a.normalized_dims == b.normalized_dims &&
         same_bits(a.value, b.value) && same_bits(a.p, b.p) && a.keepdim == b.keepdim && a.inplace == b.inplace &&
         a.causal == b.causal && a.linear_partials == b.linear_partials &&
         a.implicit_replication == b.implicit_replication && a.reduction == b.reduction && a.dtype == b.dtype;
}

size_t OpArgs::hash() const {
  size_t h =
      hash_mix(0, static_cast<size_t>(keepdim) | static_cast<size_t>(inplace) << 1 | static_cast<size_t>(causal) << 2 |
                      static_cast<size_t>(linear_partials) << 3 | static_cast<size_t>(implicit_replication) << 4 |
                      static_cast<size_t>(reduction) << 5 | static_cast<size_t>(dim.has_value()) << 8 |
                      static_cast<size_t>(dims.has_value()) << 9 | (dtype ? static_cast<size_t>(*dtype) + 1 : 0) << 10);
  if (dims) h = hash_of(*dims, h);
  if (dim) h = hash_mix(h, static_cast<size_t>(*dim));
  if (!sizes.empty()) h = hash_of(sizes, h);
  h = hash_mix(h, static_cast<size_t>(start));
  h = hash_mix(h, static_cast<size_t>(end));
  h = hash_mix(h, static_cast<size_t>(step));
  h = hash_mix(h, static_cast<size_t>(index));
  h = hash_mix(h, static_cast<size_t>(normalized_dims));
  return hash_bits(p, hash_bits(value, h));
}

uint32_t OpDecision::collectives() const {
  auto n = static_cast<uint32_t>(inner.size());
  for (const InputDecision& in : inputs) n += in.plan.collectives();
  return n;
}

std::vector<std::string> OpDecision::collective_sequence() const {
  std::vector<std::string> out;
  for (const InputDecision& in : inputs) {
    for (std::string& s : ahbm::dtensor::collective_sequence(in.plan)) out.push_back(std::move(s));
  }
  for (const InnerCollective& c : inner) out.push_back(collective_string(c.kind, c.mesh_dim, c.op));
  return out;
}

OpDecision decide(const OpCall& call, const CostModel& cost) {
  const DTensorSpec* first = nullptr;
  for (const OpInput& in : call.inputs) {
    if (in.spec != nullptr && first == nullptr) first = in.spec;
  }
  if (first == nullptr) {
    throw std::invalid_argument(std::string(to_string(call.op)) + ": expected at least one distributed tensor");
  }
  RuleContext ctx{call.op, first->mesh(), cost, {}, call.args};
  for (const OpInput& in : call.inputs) {
    if (in.spec == nullptr) {
      if (!call.args.implicit_replication && numel(in.shape) != 1) {
        throw MixedTensor(about(ctx, "a plain tensor of shape " + to_string(in.shape) +
                                         " beside a distributed one: expected a distributed tensor, one element, or "
                                         "implicit replication"));
      }
      ctx.inputs.emplace_back(ctx.mesh, all_replicate(ctx.mesh_ndim()), in.shape, in.dtype);
      continue;
    }
    if (!same_mesh(in.spec->mesh(), ctx.mesh)) {
      throw MeshMismatch(about(ctx, "operands on meshes " + ctx.mesh->to_string() + " and " +
                                        in.spec->mesh()->to_string() + ": expected the same mesh"));
    }
    ctx.inputs.push_back(*in.spec);
  }

  if (call.op <= Op::Where) return decide_pointwise(ctx);
  if (call.op <= Op::EmptyLike) return decide_like(ctx);
  if (call.op <= Op::Cumsum) return decide_reduction(ctx);
  if (call.op <= Op::CrossEntropyLossParallel) return decide_normalisation(ctx);
  if (call.op <= Op::Sdpa) return decide_matmul(ctx);
  if (call.op <= Op::Tril) return decide_structure(ctx);
  if (call.op <= Op::Reshape) return decide_view(ctx);
  return decide_embedding(ctx);
}

double compute_cost(const CostModel& model, const OpDecision& d) {
  if (d.alias || d.outputs.empty()) return 0;
  double bytes = 0;
  for (const InputDecision& in : d.inputs) bytes += local_bytes(in.required);
  for (const DTensorSpec& out : d.outputs) bytes += local_bytes(out);
  double macs = 0;
  if (d.op >= Op::Mm && d.op <= Op::Linear) {
    // The contracted dimension is the last one of the left factor.
    const DTensorSpec& left = d.inputs[d.op == Op::Addmm || d.op == Op::Baddbmm ? 1 : 0].required;
    const DTensorSpec& out = d.outputs.front();
    double depth = static_cast<double>(left.shape().back());
    for (uint32_t m = 0; m < left.mesh()->ndim(); ++m) {
      if (is_shard(left.placements()[m], static_cast<int>(left.ndim()) - 1)) depth /= left.mesh()->shape()[m];
    }
    macs = static_cast<double>(out.numel()) / static_cast<double>(out.num_shards()) * depth;
  }
  return model.compute_us(macs, bytes);
}

StrategyEngine::StrategyEngine(std::shared_ptr<const CostModel> cost) : m_cost(std::move(cost)) {}

bool StrategyEngine::matches(const CachedDecision& entry, const OpCall& call) {
  if (entry.op != call.op || entry.specs.size() != call.inputs.size() || !(entry.args == call.args)) return false;
  for (size_t i = 0; i < entry.specs.size(); ++i) {
    const OpInput& in = call.inputs[i];
    const DTensorSpec& spec = entry.specs[i];
    if (in.spec != nullptr) {
      if (!spec.mesh() || !(spec == *in.spec)) return false;
    } else if (spec.mesh() || spec.dtype() != in.dtype || spec.shape() != in.shape) {
      return false;
    }
  }
  return true;
}

std::shared_ptr<const OpDecision> StrategyEngine::decide(const OpCall& call) {
  const size_t key = hash_of_call(call);
  const auto range = m_decisions.equal_range(key);
  for (auto it = range.first; it != range.second; ++it) {
    if (matches(it->second, call)) {
      ++m_hits;
      return it->second.decision;
    }
  }
  ++m_misses;
  auto decision = std::make_shared<const OpDecision>(ahbm::dtensor::decide(call, *m_cost));
  if (m_decisions.size() >= kMaxCached) m_decisions.clear();
  CachedDecision entry{call.op, call.args, {}, decision};
  for (const OpInput& in : call.inputs) {
    entry.specs.push_back(in.spec != nullptr ? *in.spec : DTensorSpec::plain(in.shape, in.dtype));
  }
  m_decisions.emplace(key, std::move(entry));
  return decision;
}

std::shared_ptr<const RedistributePlan> StrategyEngine::plan(const DTensorSpec& source, const Placements& target,
                                                             Legality legality) {
  const size_t key = hash_mix(hash_of(target, source.hash()), static_cast<size_t>(legality));
  const auto range = m_plans.equal_range(key);
  for (auto it = range.first; it != range.second; ++it) {
    if (it->second.legality == legality && it->second.target == target && it->second.source == source) {
      ++m_hits;
      return it->second.plan;
    }
  }
  ++m_misses;
  auto plan = std::make_shared<const RedistributePlan>(plan_redistribute(source, target, legality));
  if (m_plans.size() >= kMaxCached) m_plans.clear();
  m_plans.emplace(key, CachedPlan{source, target, legality, plan});
  return plan;
}

void StrategyEngine::set_cost_model(std::shared_ptr<const CostModel> cost) {
  clear();
  m_cost = std::move(cost);
}

void StrategyEngine::clear() {
  m_decisions.clear();
  m_plans.clear();
}

}  // namespace ahbm::dtensor
