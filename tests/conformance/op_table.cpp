#include "tests/conformance/op_table.h"

#include <algorithm>
#include <map>

#include "tests/conformance/op_args.h"

namespace ahbm::conformance {

using namespace dtensor;

namespace {

using Fields = std::vector<std::string>;
using Inputs = std::vector<DTensor>;

struct Call {
  Context& context;
  const DeviceMesh& mesh;
  const Inputs& in;
  const YAML::Node& op;

  const DTensor& at(size_t i) const {
    if (i >= in.size()) throw CaseError("input " + std::to_string(i) + " is missing");
    return in[i];
  }
};
using Run = std::function<OpResult(const Call&)>;

struct Entry {
  Fields fields;
  Run run;
  size_t max_inputs = SIZE_MAX;
};

Operands operands(const Inputs& in) {
  return {in.begin(), in.end()};
}

/// Arguments that no operator has a default for.
void check_given(const YAML::Node& node, Op op) {
  const bool number = op == Op::Fill || op == Op::FullLike || (op >= Op::AddScalar && op <= Op::MaskedFill);
  if (number) required(node, "value");
  if (op == Op::Select) required(node, "index");
  if (op == Op::View || op == Op::Reshape) required(node, "shape");
  if (op == Op::Split) required(node, "size");
  if (op == Op::Permute) required(node, "dims");
}

std::vector<DTensor> apply(const Call& c, Op op, const Inputs& in) {
  check_given(c.op, op);
  return dispatch(op, operands(in), args_of(c.op));
}

/// A tensor that every rank has, by a data rule of global indices; no communication.
Tensor plain_tensor(const Call& c, const std::string& rule_text, const Dims& shape, DType dtype) {
  bool is_local = false;
  const DataRule rule = parse_data(rule_text, is_local);
  const auto n = static_cast<uint64_t>(numel(shape));
  std::vector<uint8_t> data(n * item_bytes(dtype));
  for (uint64_t i = 0; i < n; ++i) store_element(dtype, data.data(), i, rule(i, c.mesh.get_rank()));
  return c.context.from_host(to_shape(shape), dtype, data.data(), data.size());
}

OpResult loss(const Call& c, Op op) {
  const DTensor& logits = c.at(0);
  if (c.in.size() > 1) return {apply(c, op, c.in), {}};
  Dims shape = logits.shape();
  shape.erase(shape.begin() + (shape.size() == 1 ? 0 : 1));
  const Tensor target = plain_tensor(c, required(c.op, "target").as<std::string>(), shape, DType::Int64);
  return {dispatch(op, {logits, from_local(target, c.mesh)}, args_of(c.op)), {}};
}

DeviceMesh other_order(const Call& c) {
  RankList ranks = c.mesh.ranks();
  std::reverse(ranks.begin(), ranks.end());
  return DeviceMesh(c.context, "sip", c.mesh.shape(), ranks, c.mesh.names());
}

Placements single(const YAML::Node& node) {
  return {parse_placement(node.as<std::string>())};
}

DTensor tp_attention(const Call& c, DTensor x, const Inputs& weights, int64_t heads, int64_t width) {
  std::vector<DTensor> qkv;
  for (size_t i = 0; i < 3; ++i) {
    const DTensor p = linear(x, weights.at(i));
    qkv.push_back(transpose(view(p, {x.size(0), x.size(1), heads, width}), 1, 2));
  }
  const DTensor y = transpose(scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], flag(c.op, "causal")), 1, 2);
  return linear(view(y, {x.size(0), x.size(1), heads * width}), weights.at(3));
}

OpResult run_tp_attention(const Call& c) {
  DTensor x = c.at(0);
  c.at(4);
  if (flag(c.op, "seq")) x = x.redistribute(all_replicate(c.mesh.ndim()));
  const DTensor y = tp_attention(c, x, {c.in.begin() + 1, c.in.end()}, number_of<int64_t>(required(c.op, "heads")),
                                 number_of<int64_t>(required(c.op, "head_dim")));
  return {{y.redistribute(single(required(c.op, "out")))}, {}};
}

OpResult run_tp_mlp(const Call& c) {
  DTensor x = c.at(0);
  if (flag(c.op, "seq")) x = x.redistribute(all_replicate(c.mesh.ndim()));
  const DTensor h = relu(linear(x, c.at(1), c.at(2)));
  return {{linear(h, c.at(3), c.at(4)).redistribute(single(required(c.op, "out")))}, {}};
}

OpResult run_distribute_dtensor(const Call& c) {
  const Placements to = placements_of(required(c.op, "placements"));
  return {{distribute_tensor(c.at(0), flag(c.op, "other_mesh") ? other_order(c) : c.mesh, to)}, {}};
}

OpResult run_chain(const Call& c) {
  DTensor t = c.at(0);
  if (!required(c.op, "to").IsSequence() || c.op["to"].size() == 0)
    throw CaseError("redistribute_chain: nowhere to go");
  for (const auto& to : c.op["to"]) t = t.redistribute(placements_of(to));
  return {{t}, {}};
}

OpResult run_add_plain(const Call& c) {
  const YAML::Node data = c.op["data"];
  const Tensor plain =
      plain_tensor(c, data ? data.as<std::string>() : "ones", dims_of(required(c.op, "shape")), c.at(0).dtype());
  OpArgs args;
  args.implicit_replication = flag(c.op, "implicit_replication");
  return {dispatch(Op::Add, {c.at(0), plain}, args), {}};
}

OpResult run_inplace(const Call& c, const std::string& name) {
  const auto op = parse_op(name);
  if (!op) throw CaseError("no operator '" + name + "'");
  if (*op > Op::Where) throw CaseError("no in-place form of '" + name + "'");
  check_given(c.op, *op);
  OpArgs args = args_of(c.op);
  args.inplace = true;
  return {dispatch(*op, operands(c.in), args), {}};
}

/// Names that stand for more than one operator, or for something that is none.
const std::map<std::string, Entry>& special_ops() {
  static const std::map<std::string, Entry> kOps{
      {"redistribute",
       {{"to"},
        [](const Call& c) {
          return OpResult{{c.at(0).redistribute(placements_of(required(c.op, "to")))}, {}};
        },
        1}},
      {"redistribute_chain", {{"to"}, run_chain, 1}},
      {"redistribute_other_mesh",
       {{"to"},
        [](const Call& c) {
          const Placements to = c.op["to"] ? placements_of(c.op["to"]) : c.at(0).placements();
          return OpResult{{c.at(0).redistribute(other_order(c), to)}, {}};
        },
        1}},
      {"full_tensor",
       {{},
        [](const Call& c) {
          FromLocalOptions whole;
          whole.shape = c.at(0).shape();
          whole.stride = contiguous_stride(c.at(0).shape());
          return OpResult{{from_local(c.at(0).full_tensor(), c.mesh, all_replicate(c.mesh.ndim()), whole)}, {}};
        },
        1}},
      {"distribute_dtensor", {{"placements", "other_mesh"}, run_distribute_dtensor, 1}},
      {"sum_then_add_scalar",
       {{"value"},
        [](const Call& c) {
          return OpResult{{add(sum(c.at(0)), number_of<double>(required(c.op, "value")))}, {}};
        },
        1}},
      {"norm_full",
       {{"p", "dims", "keepdim"},
        [](const Call& c) {
          return OpResult{{apply(c, Op::Norm, c.in).front().redistribute(all_replicate(c.mesh.ndim()))}, {}};
        }}},
      {"mm_t",
       {{"linear"},
        [](const Call& c) {
          return OpResult{{t(apply(c, Op::Mm, c.in).front())}, {}};
        }}},
      {"embedding_to",
       {{"to"},
        [](const Call& c) {
          return OpResult{{embedding(c.at(0), c.at(1)).redistribute(placements_of(required(c.op, "to")))}, {}};
        },
        2}},
      {"add_plain_tensor", {{"shape", "data", "implicit_replication"}, run_add_plain, 1}},
      {"inplace_unary", {{"fn"}, [](const Call& c) { return run_inplace(c, required(c.op, "fn").as<std::string>()); }}},
      {"cross_entropy", {{"target", "reduction"}, [](const Call& c) { return loss(c, Op::CrossEntropy); }}},
      {"ce_loss_parallel",
       {{"target", "reduction"}, [](const Call& c) { return loss(c, Op::CrossEntropyLossParallel); }}},
      {"equal",
       {{},
        [](const Call& c) {
          return OpResult{{}, equal(c.at(0), c.at(1))};
        },
        2}},
      {"tp_mlp", {{"out", "seq"}, run_tp_mlp, 5}},
      {"tp_attention", {{"out", "seq", "heads", "head_dim", "causal"}, run_tp_attention, 5}},
  };
  return kOps;
}

/// The fields of an operator that is called by its own name.
Fields fields_of(Op op) {
  if (op == Op::Cast) return {"dtype"};
  if (op == Op::Fill || (op >= Op::AddScalar && op <= Op::MaskedFill) || op == Op::FullLike) return {"value"};
  if (op >= Op::Sum && op <= Op::ArgMin) return {"dims", "dim", "keepdim", "p"};
  if (op == Op::LayerNorm || op == Op::RmsNorm) return {"normalized_dims"};
  if (op == Op::Sdpa) return {"causal"};
  if (op >= Op::Mm && op <= Op::Linear) return {"linear"};
  switch (op) {
    case Op::Transpose:
    case Op::Permute:
      return {"dims"};
    case Op::Cumsum:
    case Op::Softmax:
    case Op::LogSoftmax:
    case Op::Squeeze:
    case Op::Unsqueeze:
    case Op::Cat:
    case Op::Stack:
    case Op::Unbind:
    case Op::Gather:
    case Op::IndexSelect:
      return {"dim"};
    case Op::Expand:
      return {"shape", "size"};
    case Op::Split:
      return {"size", "dim"};
    case Op::Chunk:
      return {"chunks", "dim"};
    case Op::Slice:
      return {"dim", "start", "end", "step"};
    case Op::Select:
      return {"dim", "index"};
    case Op::Triu:
    case Op::Tril:
      return {"diagonal"};
    case Op::View:
    case Op::Reshape:
      return {"shape"};
    default:
      return {};
  }
}

/// `fill_` and `inplace_add` are operators too.
std::optional<Op> inplace_op(const std::string& name) {
  if (name.rfind("inplace_", 0) == 0) return parse_op(name.substr(8));
  if (!name.empty() && name.back() == '_') return parse_op(name.substr(0, name.size() - 1));
  return std::nullopt;
}

}  // namespace

OpCase parse_op_case(const YAML::Node& node) {
  OpCase out{required(node, "name").as<std::string>(), node};
  Fields fields;
  const auto special = special_ops().find(out.name);
  if (special != special_ops().end()) {
    fields = special->second.fields;
    out.max_inputs = special->second.max_inputs;
  } else {
    const std::optional<Op> op = parse_op(out.name) ? parse_op(out.name) : inplace_op(out.name);
    if (!op) throw CaseError("unknown operator '" + out.name + "'");
    fields = fields_of(*op);
  }
  fields.emplace_back("name");
  check_fields(node, "op " + out.name, fields);
  return out;
}

DType OpCase::input_dtype(size_t input) const {
  const bool looks_up = name.rfind("embedding", 0) == 0 || name == "gather" || name == "index_select" ||
                        name == "cross_entropy" || name == "ce_loss_parallel";
  return looks_up && input == 1 ? DType::Int64 : DType::Float32;
}

OpResult OpCase::run(Context& context, const DeviceMesh& mesh, const std::vector<DTensor>& inputs) const {
  const Call call{context, mesh, inputs, node};
  const auto special = special_ops().find(name);
  if (special != special_ops().end()) return special->second.run(call);
  if (const auto op = parse_op(name)) return {apply(call, *op, inputs), {}};
  return run_inplace(call, to_string(*inplace_op(name)));
}

}  // namespace ahbm::conformance
