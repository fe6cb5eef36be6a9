// Notation, meshes, plans and operator rules, one by one.
#include <gtest/gtest.h>

#include "runtime/layout/errors.h"
#include "runtime/layout/strategy.h"

namespace ahbm::dtensor {
namespace {

Placements list(const std::vector<const char*>& texts) {
  Placements out;
  for (const char* t : texts) out.push_back(parse_placement(t));
  return out;
}

DTensorSpec spec(const MeshPtr& mesh, const std::vector<const char*>& placements, const Dims& shape) {
  return {mesh, list(placements), shape, DType::Float32};
}

template <typename Fn>
std::string kind_of(Fn&& fn) {
  try {
    fn();
  } catch (const LayoutError& e) {
    return e.kind();
  }
  return "none";
}

// "[placements] collective collective ..." of the only output.
std::string summary(Op op, const std::vector<DTensorSpec>& inputs, const OpArgs& args = {}) {
  OpCall call{op, {}, args};
  for (const DTensorSpec& s : inputs) call.inputs.emplace_back(s);
  const OpDecision d = decide(call, RingCostModel());
  std::string out = d.outputs.empty() ? "-" : to_string(d.outputs[0].placements());
  for (const std::string& s : d.collective_sequence()) out += " " + s;
  return out;
}

TEST(Placement, NotationGoesBothWays) {
  for (const char* text : {"R", "S(0)", "S(-1)", "SS(1,4)", "P(sum)", "P(avg)", "P(max)", "P(min)", "P(product)",
                           "NP(2)", "NP(0.5)", "NP(inf)", "NP(-inf)", "MP(13x4,0)", "MP(5,0)"}) {
    EXPECT_EQ(to_string(parse_placement(text)), text);
  }
  EXPECT_EQ(to_string(parse_placement(" P ")), "P(sum)");
  EXPECT_EQ(to_string(parse_placement("P(prod)")), "P(product)");
  EXPECT_EQ(to_string(list({"S(0)", "P(sum)"})), "[S(0), P(sum)]");
  for (const char* bad : {"", "X", "S", "S()", "S(a)", "S(0", "SS(0)", "P(mean2)", "NP(x)", "NP(nan)", "MP(3)",
                          "MP(3x,0)", "S(99999999999)"}) {
    EXPECT_THROW(parse_placement(bad), std::invalid_argument) << bad;
  }
}

TEST(Placement, EqualityIsByKindAndFields) {
  EXPECT_FALSE(parse_placement("SS(0,1)") == parse_placement("S(0)"));
  EXPECT_FALSE(parse_placement("NP(1)") == parse_placement("P(sum)"));
  EXPECT_FALSE(parse_placement("MP(3x4,0)") == parse_placement("MP(3x4,1)"));
  EXPECT_NE(hash_of(parse_placement("SS(0,2)")), hash_of(parse_placement("S(0)")));
  EXPECT_EQ(hash_of(parse_placement("MP(3x4,0)")), hash_of(parse_placement("MP(3x4,0)")));
}

TEST(Placement, NormalisingChecks) {
  EXPECT_EQ(to_string(normalize(list({"S(-1)", "SS(-2,2)"}), 2, 2)), "[S(1), SS(0,2)]");
  EXPECT_EQ(kind_of([] { normalize(list({"R"}), 2, 2); }), "PlacementsLengthMismatch");
  EXPECT_EQ(kind_of([] { normalize(list({"S(2)"}), 1, 2); }), "DimOutOfRange");
  EXPECT_EQ(kind_of([] { normalize(list({"S(0)"}), 1, 0); }), "DimOutOfRange");
  EXPECT_EQ(kind_of([] { normalize(list({"P(sum)", "P(max)"}), 2, 2); }), "MixedPartial");
  EXPECT_EQ(kind_of([] { normalize(list({"P(sum)", "NP(1)"}), 2, 2); }), "MixedPartial");
  EXPECT_EQ(kind_of([] { normalize(list({"P(sum)", "P(avg)"}), 2, 2); }), "none");
  EXPECT_THROW(normalize({StridedShard{0, 0}}, 1, 1), std::invalid_argument);
}

TEST(Mesh, GroupsCoordinatesAndRanksOutside) {
  const MeshPtr mesh = MeshLayout::from_ranks({2, 2}, {3, 1, 2, 0}, {"dp", "tp"}, "sip", 6);
  EXPECT_EQ(mesh->group(1, 0), (RankList{1, 0}));
  EXPECT_EQ(mesh->group(1, 1), (RankList{3, 1}));
  EXPECT_EQ(mesh->local_rank(2, 0), 1U);
  EXPECT_EQ(mesh->dim_index("tp"), 1U);
  EXPECT_FALSE(mesh->coordinate(5));
  EXPECT_EQ(kind_of([&] { mesh->group(5, 0); }), "MeshError");
  EXPECT_EQ(kind_of([&] { mesh->group(1); }), "MeshError");
  EXPECT_EQ(kind_of([&] { mesh->group(1, 2); }), "MeshError");
  EXPECT_EQ(kind_of([&] { mesh->dim_index("pp"); }), "MeshKeyError");
  EXPECT_EQ(kind_of([] { MeshLayout::from_ranks({2}, {1, 1}); }), "MeshError");
  EXPECT_EQ(kind_of([] { MeshLayout::from_ranks({2}, {0, 7}, {}, "sip", 4); }), "MeshError");
  EXPECT_EQ(kind_of([] { MeshLayout::create({2, 0}); }), "MeshError");
  EXPECT_EQ(kind_of([] { MeshLayout::create({2}, {}, "sip:0"); }), "MeshError");
  EXPECT_EQ(kind_of([] { MeshLayout::create({2, 2}, {"a"}); }), "MeshError");
  const DTensorSpec t = spec(mesh, {"S(0)", "R"}, {5, 3});
  EXPECT_EQ(local_shape(t, 4), Dims{0});
  EXPECT_EQ(*MeshLayout::create({2, 2}), *MeshLayout::from_ranks({2, 2}, {0, 1, 2, 3}));
  EXPECT_NE(*MeshLayout::create({4}), *MeshLayout::create({2, 2}));
}

TEST(Mesh, FlattenedNamesCanBeSliced) {
  const MeshPtr mesh = MeshLayout::create({2, 2, 2}, {"dp", "cp", "tp"});
  const MeshPtr flat = mesh->flatten({"dp", "cp"}, 3);
  EXPECT_EQ(flat->ranks(), (RankList{1, 3, 5, 7}));
  EXPECT_EQ(flat->names(), std::vector<std::string>{"dp_cp"});
  EXPECT_EQ(*mesh->flatten({"dp", "cp"}, 3), *flat);
  EXPECT_EQ(mesh->slice({"dp_cp"}, 0)->ranks(), (RankList{0, 2, 4, 6}));
  EXPECT_EQ(mesh->slice({"dp_cp", "tp"}, 0)->shape(), (std::vector<uint32_t>{4, 2}));
  EXPECT_EQ(mesh->slice({"dp", "tp"}, 2)->ranks(), (RankList{2, 3, 6, 7}));
  EXPECT_EQ(mesh->slice({"dp", "cp", "tp"}, 2), mesh);
  EXPECT_EQ(mesh->slice({"dp", "tp"}, 2)->slice({"tp"}, 6)->ranks(), (RankList{6, 7}));
  EXPECT_EQ(kind_of([&] { mesh->flatten({"cp", "tp"}, 0, "dp"); }), "MeshError");
  EXPECT_EQ(kind_of([&] { mesh->flatten({"cp", "tp"}, 0, "dp_cp"); }), "MeshError");
  EXPECT_EQ(kind_of([&] { mesh->slice({"dp_cp", "cp"}, 0); }), "MeshKeyError");
  EXPECT_EQ(kind_of([&] { mesh->slice({"tp"}, 0)->slice({"dp_cp"}, 0); }), "MeshKeyError");
  EXPECT_EQ(kind_of([&] { mesh->slice({"tp"}, 9); }), "MeshError");
  EXPECT_EQ(kind_of([] { MeshLayout::create({2})->slice({"tp"}, 0); }), "MeshError");
  // A 4-d mesh and a name flattened from its middle.
  const MeshPtr four = MeshLayout::create({2, 2, 2, 2}, {"a", "b", "c", "d"});
  four->flatten({"b", "c"}, 0, "bc");
  EXPECT_EQ(four->slice({"bc"}, 5)->ranks(), (RankList{1, 3, 5, 7}));
  EXPECT_EQ(four->slice({"a", "bc"}, 5)->shape(), (std::vector<uint32_t>{2, 4}));
}

TEST(Plan, TraceAndSequence) {
  const MeshPtr mesh = MeshLayout::create({2, 2});
  const RedistributePlan plan = plan_redistribute(spec(mesh, {"S(0)", "S(0)"}, {8, 2}), list({"R", "S(0)"}));
  EXPECT_EQ(trace(plan), "S0S0→S0R→RR→RS0");
  EXPECT_EQ(collective_sequence(plan), (std::vector<std::string>{"all_gather@1", "all_gather@0"}));
  const MeshPtr cube = MeshLayout::create({2, 2, 2});
  EXPECT_EQ(collective_sequence(
                plan_redistribute(spec(cube, {"P(sum)", "P(sum)", "S(0)"}, {8}), list({"S(0)", "S(0)", "S(0)"}))),
            (std::vector<std::string>{"all_gather@2", "all_reduce@1", "reduce_scatter@0"}));
}

TEST(Plan, Legality) {
  const MeshPtr mesh = MeshLayout::create({2});
  const auto kind = [&](const char* from, const char* to, Legality legality) {
    return kind_of([&] { plan_redistribute(spec(mesh, {from}, {4}), list({to}), legality); });
  };
  EXPECT_EQ(kind("R", "P(sum)", Legality::User), "IllegalRedistribute");
  EXPECT_EQ(kind("P(sum)", "P(avg)", Legality::User), "IllegalRedistribute");
  EXPECT_EQ(kind("P(product)", "P(sum)", Legality::User), "IllegalRedistribute");
  EXPECT_EQ(kind("S(0)", "P(sum)", Legality::Internal), "UnsupportedTransition");
  EXPECT_EQ(kind("R", "P(product)", Legality::Internal), "UnsupportedTransition");
  EXPECT_EQ(kind("R", "NP(0)", Legality::Internal), "UnsupportedTransition");
  EXPECT_EQ(kind("R", "P(max)", Legality::Internal), "none");
  EXPECT_EQ(kind("P(sum)", "P(max)", Legality::Internal), "none");
  EXPECT_EQ(kind("P(sum)", "P(sum)", Legality::User), "none");
}

TEST(Plan, SharesComeAfterOtherReductions) {
  const MeshPtr mesh = MeshLayout::create({3, 2});
  EXPECT_EQ(trace(plan_redistribute(spec(mesh, {"R", "P(product)"}, {4}), list({"P(sum)", "R"}), Legality::Internal)),
            "RPproduct→RR→PsumR");
  EXPECT_EQ(
      trace(plan_redistribute(spec(mesh, {"P(max)", "P(max)"}, {4}), list({"P(avg)", "S(0)"}), Legality::Internal)),
      "PmaxPmax→RPmax→RS0→PavgS0");
}

TEST(Plan, MergesOnlyWhatFlattensEvenly) {
  const MeshPtr mesh = MeshLayout::create({2, 2});
  const auto merged = [&](const std::vector<const char*>& from, const std::vector<const char*>& to, const Dims& shape,
                          bool groups = true) {
    const RedistributePlan plan = plan_redistribute(spec(mesh, from, shape), list(to));
    return merge_steps(plan, [&](const std::vector<uint32_t>&) { return groups; }).size();
  };
  EXPECT_EQ(merged({"S(0)", "S(0)"}, {"R", "R"}, {8, 3}), 1U);
  EXPECT_EQ(merged({"S(0)", "S(0)"}, {"R", "R"}, {8, 3}, false), 2U);
  EXPECT_EQ(merged({"S(0)", "S(0)"}, {"R", "R"}, {5, 3}), 2U);  // nested 2,1,1,1 is not the flat 2,2,1,0
  EXPECT_EQ(merged({"S(0)", "S(1)"}, {"R", "R"}, {8, 4}), 2U);
  EXPECT_EQ(merged({"P(sum)", "P(sum)"}, {"R", "R"}, {5, 3}), 1U);
  EXPECT_EQ(merged({"P(sum)", "P(avg)"}, {"R", "R"}, {5, 3}), 2U);
  EXPECT_EQ(merged({"P(sum)", "P(sum)"}, {"S(0)", "S(0)"}, {6, 3}), 2U);
  EXPECT_EQ(merged({"P(sum)", "P(sum)"}, {"S(0)", "S(0)"}, {8, 3}), 1U);
}

TEST(Rules, EveryOperatorHasAName) {
  for (int i = 0; i <= static_cast<int>(Op::Embedding); ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_EQ(parse_op(to_string(op)), std::optional<Op>(op)) << i;
  }
  EXPECT_FALSE(parse_op("matmull"));
}

TEST(Rules, Pointwise) {
  const MeshPtr mesh = MeshLayout::create({4});
  const auto r = spec(mesh, {"R"}, {8, 4});
  const auto s0 = spec(mesh, {"S(0)"}, {8, 4});
  const auto sum = spec(mesh, {"P(sum)"}, {8, 4});
  const auto avg = spec(mesh, {"P(avg)"}, {8, 4});
  const auto max = spec(mesh, {"P(max)"}, {8, 4});
  EXPECT_EQ(summary(Op::Add, {sum, r}), "[P(sum)]");
  EXPECT_EQ(summary(Op::Add, {r, sum}), "[R] all_reduce@0");
  EXPECT_EQ(summary(Op::Sub, {sum, sum}), "[P(sum)]");
  EXPECT_EQ(summary(Op::Add, {sum, avg}), "[P(sum)] all_reduce@0:avg");
  EXPECT_EQ(summary(Op::Add, {max, r}), "[R] all_reduce@0:max");
  EXPECT_EQ(summary(Op::Mul, {s0, sum}), "[S(0)] reduce_scatter@0");
  EXPECT_EQ(summary(Op::Div, {r, sum}), "[R] all_reduce@0");
  EXPECT_EQ(summary(Op::Div, {sum, sum}), "[P(sum)] all_reduce@0");
  EXPECT_EQ(summary(Op::Maximum, {max, r}), "[P(max)]");
  EXPECT_EQ(summary(Op::Neg, {max}), "[R] all_reduce@0:max");
  EXPECT_EQ(summary(Op::Gelu, {sum}), "[R] all_reduce@0");
  EXPECT_EQ(summary(Op::RsubScalar, {sum}), "[R] all_reduce@0");
  EXPECT_EQ(summary(Op::RdivScalar, {sum}), "[R] all_reduce@0");
  // A 0-d divisor that is pending has fewer dimensions, a 0-d dividend follows the pending divisor: reduced both ways.
  EXPECT_EQ(summary(Op::Div, {spec(mesh, {"R"}, {}), sum}), "[R] all_reduce@0");
  const MeshPtr two = MeshLayout::create({2, 2});
  EXPECT_EQ(summary(Op::Add, {spec(two, {"S(0)", "P(sum)"}, {8, 4}), spec(two, {"R", "S(1)"}, {8, 4})}),
            "[S(0), R] all_reduce@1 all_gather@1");
}

TEST(Rules, Matmul) {
  const MeshPtr mesh = MeshLayout::create({4});
  // A replicated bias counts once: its share is added on every rank.
  EXPECT_EQ(summary(Op::Addmm, {spec(mesh, {"R"}, {4}), spec(mesh, {"S(1)"}, {12, 8}), spec(mesh, {"S(0)"}, {8, 4})}),
            "[P(sum)]");
  EXPECT_EQ(summary(Op::Linear, {spec(mesh, {"S(1)"}, {6, 8}), spec(mesh, {"S(1)"}, {4, 8}), spec(mesh, {"R"}, {4})}),
            "[P(sum)]");
  EXPECT_EQ(summary(Op::Addmm, {spec(mesh, {"R"}, {3}), spec(mesh, {"R"}, {4, 0}), spec(mesh, {"R"}, {0, 3})}), "[R]");
  EXPECT_EQ(summary(Op::Linear, {spec(mesh, {"S(1)"}, {2, 8, 16}), spec(mesh, {"R"}, {4, 16})}), "[S(1)]");
  EXPECT_EQ(summary(Op::Matmul, {spec(mesh, {"S(2)"}, {2, 8, 16}), spec(mesh, {"S(0)"}, {16, 4})}), "[P(sum)]");
  EXPECT_EQ(summary(Op::Matmul, {spec(mesh, {"S(0)"}, {8, 3, 16}), spec(mesh, {"S(0)"}, {8, 16, 4})}), "[S(0)]");
  EXPECT_EQ(summary(Op::Dot, {spec(mesh, {"S(0)"}, {16}), spec(mesh, {"R"}, {16})}), "[P(sum)]");
  const MeshPtr two = MeshLayout::create({2, 2});
  // Contracting shards must agree in order, not only in dimension.
  EXPECT_EQ(summary(Op::Mm, {spec(two, {"S(1)", "S(1)"}, {4, 4}), spec(two, {"SS(0,2)", "S(0)"}, {4, 4})}),
            "[P(sum), P(sum)] all_gather@1 all_gather@0");
  // Heads: cut where every rank's query heads find their key heads.
  const auto q = spec(mesh, {"S(1)"}, {2, 8, 5, 4});
  EXPECT_EQ(summary(Op::Sdpa, {q, q, q}), "[S(1)]");
  const auto kv = spec(mesh, {"S(1)"}, {2, 4, 5, 4});
  EXPECT_EQ(summary(Op::Sdpa, {q, kv, kv}), "[S(1)]");
  const auto one = spec(mesh, {"R"}, {2, 1, 5, 4});
  EXPECT_EQ(summary(Op::Sdpa, {q, one, one}), "[S(1)]");
  const auto few = spec(mesh, {"R"}, {2, 2, 5, 4});
  EXPECT_EQ(summary(Op::Sdpa, {q, few, few}), "[R] all_gather@0");
}

TEST(Rules, Reductions) {
  const MeshPtr mesh = MeshLayout::create({2});
  EXPECT_EQ(summary(Op::Mean, {spec(mesh, {"S(0)"}, {3, 4})}), "[R] all_gather@0");
  EXPECT_EQ(summary(Op::Mean, {spec(mesh, {"P(avg)"}, {3, 4})}), "[P(avg)]");
  EXPECT_EQ(summary(Op::Any, {spec(mesh, {"P(sum)"}, {3, 4})}), "[R] all_reduce@0");
  EXPECT_EQ(summary(Op::ArgMax, {spec(mesh, {"S(0)"}, {3, 4})}), "[R] all_gather@0");
  OpArgs norm;
  norm.p = std::numeric_limits<double>::infinity();
  EXPECT_EQ(summary(Op::Norm, {spec(mesh, {"S(0)"}, {3, 4})}, norm), "[NP(inf)]");
  const MeshPtr two = MeshLayout::create({2, 2});
  OpArgs dim;
  dim.dims = Dims{1};
  EXPECT_EQ(summary(Op::Sum, {spec(two, {"S(0)", "S(1)"}, {4, 4})}, dim), "[S(0), P(sum)]");
  EXPECT_EQ(summary(Op::Max, {spec(two, {"P(sum)", "S(1)"}, {4, 4})}, dim), "[R, R] all_gather@1 all_reduce@0");
  OpArgs twice;
  twice.dims = Dims{0, -2};
  EXPECT_EQ(kind_of([&] { summary(Op::Sum, {spec(mesh, {"R"}, {3, 4})}, twice); }), "DimOutOfRange");
}

TEST(Rules, CrossEntropyTakesItsTargetAlong) {
  const MeshPtr mesh = MeshLayout::create({4});
  const auto logits = spec(mesh, {"S(0)"}, {8, 16});
  const auto target = DTensorSpec(mesh, list({"R"}), {8}, DType::Int64);
  OpArgs args;
  EXPECT_EQ(summary(Op::CrossEntropy, {logits, target}, args), "[P(avg)]");
  const OpDecision d = decide({Op::CrossEntropy, {logits, target}, args}, RingCostModel());
  EXPECT_EQ(to_string(d.inputs[1].required.placements()), "[S(0)]");
  args.reduction = LossReduction::None;
  EXPECT_EQ(summary(Op::CrossEntropy, {logits, target}, args), "[S(0)]");
  EXPECT_EQ(kind_of([&] { summary(Op::CrossEntropy, {logits, logits}, args); }), "ShapeMismatch");
}

TEST(Rules, Structure) {
  const MeshPtr mesh = MeshLayout::create({4});
  OpArgs dim;
  dim.dim = 0;
  const auto sum = spec(mesh, {"P(sum)"}, {2, 8});
  const auto avg = spec(mesh, {"P(avg)"}, {2, 8});
  const auto r = spec(mesh, {"R"}, {2, 8});
  const auto s1 = spec(mesh, {"S(1)"}, {2, 8});
  EXPECT_EQ(summary(Op::Cat, {sum, r}, dim), "[P(sum)]");
  EXPECT_EQ(summary(Op::Cat, {r, sum}, dim), "[P(sum)]");
  EXPECT_EQ(summary(Op::Cat, {sum, s1}, dim), "[S(1)] reduce_scatter@0");
  EXPECT_EQ(summary(Op::Cat, {sum, avg}, dim), "[R] all_reduce@0 all_reduce@0:avg");
  EXPECT_EQ(summary(Op::Stack, {sum, r}, dim), "[P(sum)]");
  EXPECT_EQ(summary(Op::Stack, {sum, s1}, dim), "[S(2)] reduce_scatter@0");
  EXPECT_EQ(summary(Op::Stack, {s1, spec(mesh, {"S(0)"}, {2, 8}), sum}, dim),
            "[R] all_gather@0 all_gather@0 all_reduce@0");
  EXPECT_EQ(summary(Op::Squeeze, {spec(MeshLayout::create({2}), {"S(0)"}, {1, 4})}, dim), "[R] all_gather@0");
  OpArgs expand;
  expand.sizes = {3, 2, 8};
  EXPECT_EQ(summary(Op::Expand, {s1}, expand), "[S(2)]");
  OpArgs chunk;
  chunk.dim = 1;
  chunk.index = 3;
  const OpDecision chunks = decide({Op::Chunk, {r}, chunk}, RingCostModel());
  EXPECT_EQ(chunks.args.sizes, (Dims{3, 3, 2}));
  OpArgs split;
  split.dim = 1;
  split.sizes = {4, 5};
  EXPECT_EQ(kind_of([&] { summary(Op::Split, {r}, split); }), "ShapeMismatch");
  OpArgs whole;
  whole.dim = 1;
  whole.end = 100;
  EXPECT_TRUE(decide({Op::Slice, {s1}, whole}, RingCostModel()).alias);
  OpArgs select;
  select.dim = 0;
  select.index = 2;
  EXPECT_EQ(kind_of([&] { summary(Op::Select, {r}, select); }), "DimOutOfRange");
  OpArgs at;
  at.dim = 1;
  const auto index = DTensorSpec(mesh, list({"R"}), {2, 1}, DType::Int64);
  EXPECT_EQ(summary(Op::Gather, {s1, index}, at), "[MP(2x8,1)]");
  const auto wide = DTensorSpec(mesh, list({"R"}), {2, 3}, DType::Int64);
  EXPECT_EQ(summary(Op::Gather, {s1, wide}, at), "[R] all_gather@0");
  const auto rows = DTensorSpec(mesh, list({"S(0)"}), {8}, DType::Int64);
  EXPECT_EQ(summary(Op::IndexSelect, {r, rows}, at), "[S(1)]");
  const OpDecision unequal = decide({Op::Equal, {r, spec(mesh, {"R"}, {})}, {}}, RingCostModel());
  EXPECT_EQ(unequal.constant, std::optional<bool>(false));
}

TEST(Rules, ViewChecksTheProductOfNestedShards) {
  const MeshPtr mesh = MeshLayout::create({2, 4});
  OpArgs view;
  view.sizes = {4, 2};
  EXPECT_EQ(kind_of([&] { summary(Op::View, {spec(mesh, {"S(0)", "S(0)"}, {8})}, view); }), "IllegalView");
  EXPECT_EQ(summary(Op::Reshape, {spec(mesh, {"S(0)", "S(0)"}, {8})}, view), "[R, R] all_gather@1 all_gather@0");
  view.sizes = {0, -1};
  EXPECT_EQ(kind_of([&] { summary(Op::View, {spec(mesh, {"R", "R"}, {0, 4})}, view); }), "ShapeMismatch");
  view.sizes = {4, 0};
  EXPECT_EQ(kind_of([&] { summary(Op::View, {spec(mesh, {"S(1)", "R"}, {0, 4})}, view); }), "IllegalView");
}

TEST(Spec, FromLocalChecksItsChunk) {
  const MeshPtr mesh = MeshLayout::create({4});
  // Columns 2,3,4,5 of 14: the chunks would be 4,4,4,2.
  EXPECT_EQ(kind_of([&] {
              spec_from_local(mesh, list({"S(1)"}), {2, 2}, {2, 1}, DType::Float32, 0, Dims{2, 14}, Dims{14, 1});
            }),
            "LocalShapeMismatch");
  const DTensorSpec rows =
      spec_from_local(mesh, list({"S(0)"}), {1, 2}, {2, 1}, DType::Float32, 3, Dims{10, 2}, Dims{2, 1});
  EXPECT_EQ(rows.shape(), (Dims{10, 2}));
  EXPECT_EQ(kind_of([&] { spec_from_local(mesh, list({"S(0)"}), {1}, {1}, DType::Float32, 0, Dims{4}); }),
            "ShapeStrideTogether");
}

}  // namespace
}  // namespace ahbm::dtensor
