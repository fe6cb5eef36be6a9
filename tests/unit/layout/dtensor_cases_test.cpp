// The conformance cases of tests/conformance as far as metadata goes: errors, result placements and shapes, local
// shapes and offsets, and the collectives (kind, mesh dimension, operator, padded elements) that decisions and plans
// name. Values need ranks that run; here nothing does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/layout/errors.h"
#include "tests/conformance/case.h"
#include "tests/conformance/op_args.h"

namespace ahbm::dtensor {
namespace {

using conformance::args_of;
using conformance::dims_of;
using conformance::flag;
using conformance::layout_of;
using conformance::mesh_of;
using conformance::Verdict;

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
  const MeshPtr mesh = n["mesh"] ? layout_of(mesh_of(n["mesh"])) : case_mesh;
  const Placements placements = conformance::placements_of(n["placements"]);
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
    if (flag(n, "run_check")) {
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
  const auto steps = plan_distribute(spec, flag(n, "allow_partial"));
  const bool silent = n["src"] && n["src"].IsNull();
  if (flag(n, "count_comm") && !silent) {
    for (const DistributeStep& s : steps) {
      run.out.seq.push_back(collective_string(
          s.action == DistributeStep::Action::Scatter ? CollectiveKind::Scatter : CollectiveKind::Broadcast, s.mesh_dim,
          ReduceOp::Sum));
    }
  }
  return spec;
}

// tp_attention: column-parallel q, k, v, heads on their own ranks, row-parallel output.
DTensorSpec attention(Run& run, const std::vector<DTensorSpec>& in, const YAML::Node& op) {
  DTensorSpec x = in[0];
  if (flag(op, "seq")) x = run.redistribute(x, all_replicate(1));
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
  OpArgs args = args_of(op);
  args.inplace = name.rfind("inplace_", 0) == 0 || name.back() == '_';
  auto& outputs = run.out.outputs;
  if (name == "redistribute") {
    outputs = {run.redistribute(in[0], conformance::placements_of(op["to"]))};
  } else if (name == "full_tensor") {
    outputs = {run.redistribute(in[0], all_replicate(mesh->ndim()))};
  } else if (name == "distribute_dtensor") {
    const Placements to = conformance::placements_of(op["placements"]);
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
    outputs = {run.redistribute(run.apply(Op::Embedding, in)[0], conformance::placements_of(op["to"]))};
  } else if (name == "inplace_add") {
    outputs = run.apply(Op::Add, in, args);
  } else if (name == "add_plain_tensor") {
    args.sizes.clear();
    outputs = run.apply(OpCall{Op::Add, {OpInput(in[0]), OpInput(dims_of(op["shape"]), DType::Float32)}, args});
  } else if (name == "tp_mlp") {
    DTensorSpec x = in[0];
    if (flag(op, "seq")) x = run.redistribute(x, all_replicate(1));
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

void check_output(const YAML::Node& expect, const DTensorSpec& spec) {
  if (expect["placements"]) {
    EXPECT_EQ(to_string(spec.placements()), to_string(conformance::placements_of(expect["placements"])));
  }
  if (expect["shape"]) {
    EXPECT_EQ(to_string(spec.shape()), to_string(dims_of(expect["shape"])));
  }
  Verdict verdict;
  if (expect["locals"]) conformance::check_locals(expect["locals"], spec, verdict, [](uint32_t, const YAML::Node&) {});
  EXPECT_EQ(verdict.text(), "");
}

void check_op(const YAML::Node& c) {
  const YAML::Node expect = c["expect"];
  const auto name = c["op"]["name"].as<std::string>();
  std::string error = "none";
  std::string what;
  Run run;
  try {
    const MeshPtr mesh = layout_of(mesh_of(c["mesh"]));
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

TEST(DTensorCases, Metadata) {
  std::map<std::string, int> seen;
  for (const YAML::Node& c : all_cases()) {
    const auto kind = c["kind"].as<std::string>();
    SCOPED_TRACE(c["id"].as<std::string>());
    try {
      Verdict verdict;
      if (kind == "op") {
        check_op(c);
      } else if (!conformance::run_metadata_case(c, verdict)) {
        continue;  // needs ranks
      }
      EXPECT_EQ(verdict.text(), "");
      ++seen[kind];
    } catch (const LayoutError& e) {
      EXPECT_EQ(e.kind(), c["expect"]["error"] ? c["expect"]["error"].as<std::string>() : "none") << e.message();
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw " << e.what();
    }
  }
  for (const char* kind : {"op", "chunk", "shape_offset", "global_info", "plan"}) EXPECT_GT(seen[kind], 0) << kind;
}

}  // namespace
}  // namespace ahbm::dtensor
