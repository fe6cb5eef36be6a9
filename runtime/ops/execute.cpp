#include "runtime/ops/execute.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {

void refuse(Op op, const std::string& why) {
  throw NotImplementedError(fmt::format("{}: {}", dtensor::to_string(op), why));
}

void require_matrix(Op op, DType dtype) {
  if (has_arithmetic(dtype)) return;
  refuse(op, fmt::format("on {}: matrices are multiplied in float, half, bfloat16 and int32; cast first",
                         to_string(dtype)));
}

Tensor apply(const Call& call, Op op, const OpArgs& args, const std::vector<Tensor>& inputs, const OpOutput& output) {
  return execute(call.context, op, args, inputs, {output}, call.policy).front();
}

std::vector<Tensor> execute(Context& context, Op op, const OpArgs& args, const std::vector<Tensor>& inputs,
                            const std::vector<OpOutput>& outputs, const std::optional<DPPolicy>& policy) {
  if (outputs.empty() && op == Op::Unbind) return {};  // of a dimension of 0
  if (inputs.empty() || (outputs.empty() && op != Op::Equal)) {
    throw std::invalid_argument(fmt::format("{}: {} inputs and {} outputs, expected at least 1 of each",
                                            dtensor::to_string(op), inputs.size(), outputs.size()));
  }
  if (std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.is_view(); })) {
    std::vector<Tensor> dense;
    for (const Tensor& t : inputs) dense.push_back(t.contiguous());
    std::vector<Tensor> results = execute(context, op, args, dense, outputs, policy);
    if (args.inplace && inputs.front().is_view()) {
      inputs.front().copy_(results.front());
      results.front() = inputs.front();
    }
    return results;
  }
  if (op == Op::Equal) {
    const std::vector<OpOutput> truth{{{}, DType::Bool}};
    return {run_equal({context, op, args, inputs, truth, policy.value_or(inputs.front().policy())})};
  }
  for (const Tensor& t : inputs) Placed(context, t);  // on this SIP, or an error before anything runs
  const Call call{context, op, args, inputs, outputs, policy.value_or(inputs.front().policy())};
  switch (op) {
    case Op::Identity:
    case Op::Clone:
    case Op::T:
    case Op::Transpose:
    case Op::Permute:
    case Op::Squeeze:
    case Op::Unsqueeze:
    case Op::Expand:
    case Op::Cat:
    case Op::Stack:
    case Op::Split:
    case Op::Chunk:
    case Op::Slice:
    case Op::Select:
    case Op::Unbind:
    case Op::View:
    case Op::Reshape:
      return run_structure(call);
    case Op::ZerosLike:
      return {filled(context, call.out().shape, 0, call.out().dtype, call.policy)};
    case Op::OnesLike:
      return {filled(context, call.out().shape, 1, call.out().dtype, call.policy)};
    case Op::FullLike:
      return {filled(context, call.out().shape, args.value, call.out().dtype, call.policy)};
    case Op::EmptyLike:
      return {make(context, call.out().shape, call.out().dtype, call.policy)};
    default:
      break;
  }
  if (op <= Op::Where) return {run_pointwise(call)};
  if (op <= Op::Cumsum) return {run_reduction(call)};
  switch (op) {
    case Op::Softmax:
    case Op::LogSoftmax:
    case Op::LayerNorm:
    case Op::RmsNorm:
      return {run_rows(call)};
    case Op::CrossEntropy:
    case Op::CrossEntropyLossParallel:
      return {run_loss(call)};
    case Op::Triu:
    case Op::Tril:
      return {run_triangle(call)};
    case Op::Gather:
      return {run_gather(call)};
    case Op::IndexSelect:
    case Op::Embedding:
      return {run_lookup(call)};
    default:
      return {run_matmul(call)};
  }
}

}  // namespace ahbm::runtime::ops
