// The conformance cases of tests/conformance as far as metadata goes: errors, result placements and shapes, local
// shapes and offsets, and the collectives (kind, mesh dimension, operator, padded elements) that decisions and plans
// name. Values need ranks that run; here nothing does.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/layout/errors.h"
#include "runtime/layout/strategy.h"

namespace ahbm::dtensor {
namespace {

const std::vector<YAML::Node>& all_cases() {
  static const std::vector<YAML::Node> kCases = [] {
    std::vector<YAML::Node> out;
    for (const auto& c : YAML::LoadFile(AHBM_SOURCE_DIR "/tests/conformance/dtensor_cases.yaml")["cases"]) {
      out.push_back(c);
    }
    return out;
  }();
  return kCases;
}

Dims dims_of(const YAML::Node& n) {
  Dims out;
  for (const auto& v : n) out.push_back(v.as<int64_t>());
  return out;
}

Placements placements_of_node(const YAML::Node& n) {
  Placements out;
  for (const auto& v : n) out.push_back(parse_placement(v.as<std::string>()));
  return out;
}

void flatten_ranks(const YAML::Node& n, RankList& ranks) {
  for (const auto& v : n) {
    if (v.IsSequence()) {
      flatten_ranks(v, ranks);
    } else {
      ranks.push_back(v.as<uint32_t>());
    }
  }
}

MeshPtr mesh_of(const YAML::Node& n) {
  std::vector<std::string> names;
  if (n["names"]) names = n["names"].as<std::vector<std::string>>();
  const uint32_t world = n["world"] ? n["world"].as<uint32_t>() : 0;
  if (n["shape"]) return MeshLayout::create(n["shape"].as<std::vector<uint32_t>>(), names, "sip", world);
  RankList ranks;
  flatten_ranks(n["ranks"], ranks);
  std::vector<uint32_t> shape;
  for (YAML::Node level = n["ranks"]; level.IsSequence(); level.reset(level[0])) {
    shape.push_back(static_cast<uint32_t>(level.size()));
  }
  return MeshLayout::from_ranks(shape, ranks, names, "sip", world);
}

// What an operator leaves behind.
struct Outcome {
  std::vector<DTensorSpec> outputs;
  std::vector<std::string> seq;
  std::vector<int64_t> elems;
  std::optional<bool> result;
  std::map<std::string, int> merged;  // counts with flattened groups
};

class Run {
 public:
  Outcome out;

  void count(const RedistributePlan& plan) {
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const PlanStep& step = plan.steps[i];
      if (step.collective == CollectiveKind::None) continue;
      int64_t most = 0;
      for (uint32_t r = 0; r < plan.mesh->size(); ++r) {
        most = std::max(most, step_on_rank(plan, i, plan.mesh->coordinate_at(r)).send_elements);
      }
      out.elems.push_back(most);
      out.seq.push_back(collective_string(step.collective, step.mesh_dim, step.reduce_op));
    }
    for (const MergedStep& m : merge_steps(plan, [](const std::vector<uint32_t>&) { return true; })) {
      const CollectiveKind kind = plan.steps[m.first].collective;
      if (kind != CollectiveKind::None) ++out.merged[to_string(kind)];
    }
  }

  DTensorSpec redistribute(const DTensorSpec& from, const Placements& to) {
    const RedistributePlan plan = plan_redistribute(from, to);
    count(plan);
    return from.with_placements(plan.target);
  }

  std::vector<DTensorSpec> apply(Op op, const std::vector<DTensorSpec>& inputs, OpArgs args = {}) {
    OpCall call{op, {}, std::move(args)};
    for (const DTensorSpec& s : inputs) call.inputs.emplace_back(s);
    return apply(call);
  }

  std::vector<DTensorSpec> apply(const OpCall& call) {
    const OpDecision d = decide(call, m_cost);
    for (const InputDecision& in : d.inputs) count(in.plan);
    for (const InnerCollective& c : d.inner) {
      out.seq.push_back(collective_string(c.kind, c.mesh_dim, c.op));
      out.elems.push_back(c.elements);
    }
    out.result = d.constant;
    m_and = d.and_over_ranks;
    return {d.outputs.begin(), d.outputs.end()};
  }

  bool m_and = false;

 private:
  RingCostModel m_cost;
};

DTensorSpec build_input(const YAML::Node& n, const MeshPtr& case_mesh, DType dtype, Run& run) {
  const MeshPtr mesh = n["mesh"] ? mesh_of(n["mesh"]) : case_mesh;
  const Placements placements = placements_of_node(n["placements"]);
  const std::string how = n["how"] ? n["how"].as<std::string>() : "distribute";
  if (how == "from_local") {
    std::optional<Dims> shape;
    std::optional<Dims> stride;
    if (n["shape"]) shape = dims_of(n["shape"]);
    if (n["stride"]) stride = dims_of(n["stride"]);
    const bool each = n["local_shape"].size() > 0 && n["local_shape"][0].IsSequence();
    DTensorSpec spec;
    for (uint32_t i = 0; i < (each ? mesh->size() : 1); ++i) {
      const Dims local = dims_of(each ? n["local_shape"][i] : n["local_shape"]);
      spec = spec_from_local(mesh, placements, local, contiguous_stride(local), dtype, mesh->ranks()[i], shape, stride);
    }
    if (n["run_check"] && n["run_check"].as<bool>()) {
      for (uint32_t m = 0; m < mesh->ndim(); ++m) {
        if (is_replicate(spec.placements()[m])) {
          run.out.seq.push_back(collective_string(CollectiveKind::Broadcast, m, ReduceOp::Sum));
        }
      }
    }
    return spec;
  }
  DTensorSpec spec(mesh, placements, dims_of(n["shape"]), dtype);
  if (how == "reinterpret") return spec;
  const auto steps = plan_distribute(spec, n["allow_partial"] && n["allow_partial"].as<bool>());
  const bool silent = n["src"] && n["src"].IsNull();
  if (n["count_comm"] && n["count_comm"].as<bool>() && !silent) {
    for (const DistributeStep& s : steps) {
      run.out.seq.push_back(collective_string(
          s.action == DistributeStep::Action::Scatter ? CollectiveKind::Scatter : CollectiveKind::Broadcast, s.mesh_dim,
          ReduceOp::Sum));
    }
  }
  return spec;
}

OpArgs args_of(const std::string& name, const YAML::Node& op) {
  OpArgs a;
  if (op["dims"]) a.dims = dims_of(op["dims"]);
  if (op["dim"] && !op["dim"].IsNull()) a.dim = op["dim"].as<int64_t>();
  if (op["keepdim"]) a.keepdim = op["keepdim"].as<bool>();
  if (op["value"]) a.value = op["value"].as<double>();
  if (op["p"]) a.p = op["p"].as<double>();
  if (op["shape"]) a.sizes = dims_of(op["shape"]);
  if (op["size"]) a.sizes = op["size"].IsSequence() ? dims_of(op["size"]) : Dims{op["size"].as<int64_t>()};
  if (op["start"]) a.start = op["start"].as<int64_t>();
  if (op["end"]) a.end = op["end"].as<int64_t>();
  if (op["index"]) a.index = op["index"].as<int64_t>();
  if (op["normalized_dims"]) a.normalized_dims = op["normalized_dims"].as<int64_t>();
  if (op["linear"]) a.linear_partials = op["linear"].as<bool>();
  if (op["implicit_replication"]) a.implicit_replication = op["implicit_replication"].as<bool>();
  if (op["reduction"]) {
    const auto r = op["reduction"].as<std::string>();
    a.reduction = r == "none" ? LossReduction::None : (r == "sum" ? LossReduction::Sum : LossReduction::Mean);
  }
  if (name.rfind("inplace_", 0) == 0 || (!name.empty() && name.back() == '_')) a.inplace = true;
  return a;
}

// tp_attention: column-parallel q, k, v, heads on their own ranks, row-parallel output.
DTensorSpec attention(Run& run, const std::vector<DTensorSpec>& in, const YAML::Node& op) {
  DTensorSpec x = in[0];
  if (op["seq"] && op["seq"].as<bool>()) x = run.redistribute(x, all_replicate(1));
  const auto heads = op["heads"].as<int64_t>();
  const auto width = op["head_dim"].as<int64_t>();
  std::vector<DTensorSpec> qkv;
  for (size_t i = 1; i <= 3; ++i) {
    DTensorSpec p = run.apply(Op::Linear, {x, in[i]})[0];
    OpArgs view;
    view.sizes = {x.shape()[0], x.shape()[1], heads, width};
    OpArgs transpose;
    transpose.dims = Dims{1, 2};
    p = run.apply(Op::View, {p}, view)[0];
    qkv.push_back(run.apply(Op::Transpose, {p}, transpose)[0]);
  }
  DTensorSpec y = run.apply(Op::Sdpa, qkv)[0];
  OpArgs transpose;
  transpose.dims = Dims{1, 2};
  y = run.apply(Op::Transpose, {y}, transpose)[0];
  OpArgs view;
  view.sizes = {x.shape()[0], x.shape()[1], heads * width};
  y = run.apply(Op::View, {y}, view)[0];
  y = run.apply(Op::Linear, {y, in[4]})[0];
  return run.redistribute(y, {parse_placement(op["out"].as<std::string>())});
}

void run_op(Run& run, const std::vector<DTensorSpec>& in, const YAML::Node& op, const MeshPtr& mesh) {
  const auto name = op["name"].as<std::string>();
  OpArgs args = args_of(name, op);
  auto& outputs = run.out.outputs;
  if (name == "redistribute") {
    outputs = {run.redistribute(in[0], placements_of_node(op["to"]))};
  } else if (name == "full_tensor") {
    outputs = {run.redistribute(in[0], all_replicate(mesh->ndim()))};
  } else if (name == "distribute_dtensor") {
    const Placements to = placements_of_node(op["placements"]);
    if (op["other_mesh"]) throw MeshMismatch("distribute_tensor of a tensor on another mesh");
    const DTensorSpec target = in[0].with_placements(to);
    if (target != in[0]) throw AlreadyDistributed("distribute_tensor of a distributed tensor");
    outputs = {target};
  } else if (name == "sum_then_add_scalar") {
    outputs = run.apply(Op::AddScalar, run.apply(Op::Sum, {in[0]}), args);
  } else if (name == "norm_full") {
    outputs = {run.redistribute(run.apply(Op::Norm, {in[0]}, args)[0], all_replicate(mesh->ndim()))};
  } else if (name == "mm_t") {
    outputs = run.apply(Op::T, run.apply(Op::Mm, in));
  } else if (name == "embedding_to") {
    outputs = {run.redistribute(run.apply(Op::Embedding, in)[0], placements_of_node(op["to"]))};
  } else if (name == "inplace_add") {
    outputs = run.apply(Op::Add, in, args);
  } else if (name == "add_plain_tensor") {
    args.sizes.clear();
    outputs = run.apply(OpCall{Op::Add, {OpInput(in[0]), OpInput(dims_of(op["shape"]), DType::Float32)}, args});
  } else if (name == "tp_mlp") {
    DTensorSpec x = in[0];
    if (op["seq"] && op["seq"].as<bool>()) x = run.redistribute(x, all_replicate(1));
    DTensorSpec h = run.apply(Op::Relu, run.apply(Op::Linear, {x, in[1], in[2]}))[0];
    h = run.apply(Op::Linear, {h, in[3], in[4]})[0];
    outputs = {run.redistribute(h, {parse_placement(op["out"].as<std::string>())})};
  } else if (name == "tp_attention") {
    outputs = {attention(run, in, op)};
  } else {
    const auto parsed = parse_op(name);
    ASSERT_TRUE(parsed) << "no operator " << name;
    outputs = run.apply(*parsed, in, args);
  }
}

void check_locals(const YAML::Node& locals, const DTensorSpec& spec) {
  for (const auto& l : locals) {
    std::vector<uint32_t> ranks;
    if (l["ranks"]) {
      ranks = l["ranks"].as<std::vector<uint32_t>>();
    } else {
      ranks = {l["rank"].as<uint32_t>()};
    }
    for (const uint32_t r : ranks) {
      const LocalPart part = local_part(spec, r);
      EXPECT_EQ(to_string(part.shape), to_string(dims_of(l["shape"]))) << "local shape of rank " << r;
      if (l["offset"]) {
        ASSERT_TRUE(part.offset) << "offset of rank " << r;
        EXPECT_EQ(to_string(*part.offset), to_string(dims_of(l["offset"]))) << "offset of rank " << r;
      } else if (spec.mesh()->contains(r)) {
        EXPECT_FALSE(part.offset) << "offset of rank " << r;
      }
    }
  }
}

void check_output(const YAML::Node& expect, const DTensorSpec& spec) {
  if (expect["placements"]) {
    EXPECT_EQ(to_string(spec.placements()), to_string(placements_of_node(expect["placements"])));
  }
  if (expect["shape"]) {
    EXPECT_EQ(to_string(spec.shape()), to_string(dims_of(expect["shape"])));
  }
  if (expect["locals"]) check_locals(expect["locals"], spec);
}

void check_op(const YAML::Node& c) {
  const YAML::Node expect = c["expect"];
  const auto name = c["op"]["name"].as<std::string>();
  std::string error = "none";
  std::string what;
  Run run;
  try {
    const MeshPtr mesh = mesh_of(c["mesh"]);
    std::vector<DTensorSpec> inputs;
    for (const auto& n : c["inputs"]) {
      const bool index = !inputs.empty() && name.rfind("embedding", 0) == 0;
      inputs.push_back(build_input(n, mesh, index ? DType::Int64 : DType::Float32, run));
    }
    run_op(run, inputs, c["op"], mesh);
  } catch (const LayoutError& e) {
    error = e.kind();
    what = e.message();
  }
  ASSERT_EQ(error, expect["error"] ? expect["error"].as<std::string>() : "none") << what;
  if (expect["error"]) {
    EXPECT_GT(what.size(), 20U);
    return;
  }
  if (expect["outputs"]) {
    ASSERT_EQ(run.out.outputs.size(), expect["outputs"].size());
    for (size_t i = 0; i < run.out.outputs.size(); ++i) check_output(expect["outputs"][i], run.out.outputs[i]);
  } else if (expect["result"]) {
    if (run.out.result) {
      EXPECT_EQ(*run.out.result, expect["result"].as<bool>());
    } else {
      EXPECT_TRUE(run.m_and);
    }
  } else {
    ASSERT_EQ(run.out.outputs.size(), 1U);
    check_output(expect, run.out.outputs[0]);
  }
  std::map<std::string, int> counts;
  for (const std::string& s : run.out.seq) ++counts[s.substr(0, s.find('@'))];
  if (expect["comm"]) {
    EXPECT_EQ(counts, (expect["comm"].as<std::map<std::string, int>>()));
  }
  if (expect["comm_seq"]) {
    EXPECT_EQ(run.out.seq, expect["comm_seq"].as<std::vector<std::string>>());
  }
  if (expect["comm_elems"]) {
    EXPECT_EQ(run.out.elems, expect["comm_elems"].as<std::vector<int64_t>>());
  }
  if (expect["comm_if_flattened_groups"]) {
    EXPECT_EQ(run.out.merged, (expect["comm_if_flattened_groups"].as<std::map<std::string, int>>()));
  }
}

void check_chunk(const YAML::Node& c) {
  const auto size = c["size"].as<uint64_t>();
  const auto n = c["chunks"].as<uint64_t>();
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> pads;
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < n; ++i) {
    const auto r = owned_ranges(Shard{0}, size, n, i);
    ASSERT_EQ(r.size(), 1U);
    sizes.push_back(owned_count(Shard{0}, size, n, i));
    EXPECT_EQ(sizes.back(), r[0].count);
    pads.push_back(owned_count(Shard{0}, size, n, 0) - sizes.back());
    offsets.push_back(r[0].begin);
  }
  EXPECT_EQ(sizes, c["expect"]["sizes"].as<std::vector<uint64_t>>());
  EXPECT_EQ(pads, c["expect"]["pads"].as<std::vector<uint64_t>>());
  EXPECT_EQ(offsets, c["expect"]["offsets"].as<std::vector<uint64_t>>());
}

void check_mesh(const YAML::Node& c) {
  const YAML::Node expect = c["expect"];
  std::string error = "none";
  std::string got;
  std::string wanted;
  YAML::Emitter yaml;
  yaml << YAML::Flow;
  try {
    const MeshPtr mesh = mesh_of(c["mesh"]);
    const auto query = c["query"].as<std::string>();
    YAML::Node answer;
    if (query == "groups") {
      for (uint32_t d = 0; d < mesh->ndim(); ++d) answer["groups"].push_back(YAML::Node(mesh->groups(d)));
    } else if (query == "coords") {
      for (const uint32_t r : mesh->ranks()) {
        const Coordinate at = *mesh->coordinate(r);
        answer["coords"][std::to_string(r)] = std::vector<uint32_t>(at.begin(), at.end());
      }
    } else if (query == "slice") {
      for (const uint32_t r : mesh->ranks()) {
        answer["submesh"][std::to_string(r)] = mesh->slice(c["names"].as<std::vector<std::string>>(), r)->ranks();
      }
    } else if (query == "local_rank") {
      std::optional<uint32_t> dim;
      if (!c["dim"].IsNull()) dim = c["dim"].as<uint32_t>();
      for (const uint32_t r : mesh->ranks()) answer["local_rank"].push_back(mesh->local_rank(r, dim));
    } else {
      FAIL() << "unknown query " << query;
    }
    const auto flat = [](const YAML::Node& n) {
      std::string s = YAML::Dump(n);
      s.erase(std::remove_if(s.begin(), s.end(), [](char ch) { return ch == ' ' || ch == '\n'; }), s.end());
      return s;
    };
    // Both go through the same printer, after reading back what was built.
    YAML::Node expected = YAML::Clone(expect);
    const std::function<void(YAML::Node)> style = [&](YAML::Node n) {
      if (n.IsScalar()) return;
      n.SetStyle(YAML::EmitterStyle::Flow);
      for (auto child : n) style(n.IsMap() ? child.second : YAML::Node(child));
    };
    style(answer);
    style(expected);
    got = flat(answer);
    wanted = flat(expected);
  } catch (const LayoutError& e) {
    error = e.kind();
  }
  ASSERT_EQ(error, expect["error"] ? expect["error"].as<std::string>() : "none");
  if (!expect["error"]) {
    EXPECT_EQ(got, wanted);
  }
}

void check_case(const YAML::Node& c) {
  const auto kind = c["kind"].as<std::string>();
  if (kind == "op") {
    check_op(c);
  } else if (kind == "chunk") {
    check_chunk(c);
  } else if (kind == "shape_offset") {
    check_locals(c["expect"]["locals"], DTensorSpec(mesh_of(c["mesh"]), placements_of_node(c["placements"]),
                                                    dims_of(c["shape"]), DType::Float32));
  } else if (kind == "global_info") {
    const GlobalInfo info = global_info(*mesh_of(c["mesh"]), placements_of_node(c["placements"]),
                                        dims_of(c["local_shape"]), dims_of(c["local_stride"]));
    EXPECT_EQ(to_string(info.shape), to_string(dims_of(c["expect"]["shape"])));
    EXPECT_EQ(to_string(info.stride), to_string(dims_of(c["expect"]["stride"])));
  } else if (kind == "plan") {
    // Plans with shards only do not depend on sizes.
    const DTensorSpec from(mesh_of(c["mesh"]), placements_of_node(c["from"]), {16, 16, 16}, DType::Float32);
    std::vector<std::string> steps;
    for (const PlanStep& s : plan_redistribute(from, placements_of_node(c["to"])).steps) steps.push_back(to_string(s));
    EXPECT_EQ(steps, c["expect"]["steps"].as<std::vector<std::string>>());
  } else if (kind == "mesh") {
    check_mesh(c);
  } else {
    FAIL() << "unknown kind " << kind;
  }
}

class DTensorCases : public ::testing::TestWithParam<const char*> {};

TEST_P(DTensorCases, Metadata) {
  int n = 0;
  for (const YAML::Node& c : all_cases()) {
    const auto id = c["id"].as<std::string>();
    if (c["kind"].as<std::string>() != GetParam()) continue;
    ++n;
    SCOPED_TRACE(id);
    try {
      check_case(c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw " << e.what();
    }
  }
  EXPECT_GT(n, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DTensorCases,
                         ::testing::Values("chunk", "shape_offset", "global_info", "plan", "mesh", "op"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace ahbm::dtensor
