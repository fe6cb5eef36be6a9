// Tensor-parallel layers in both styles and sharded parameters against one SIP: values, and the collectives that every
// forward issues.
#include <gmock/gmock.h>

#include <cmath>

#include "runtime/dtensor/debug.h"
#include "runtime/nn/fully_shard.h"
#include "runtime/nn/megatron.h"
#include "runtime/nn/parallel.h"
#include "runtime/random.h"
#include "tests/runtime/machine.h"

namespace ahbm::nn::test {
namespace {

using ahbm::test::SimTest;
using dtensor::CommDebugMode;
using dtensor::init_device_mesh;
using dtensor::Replicate;
using dtensor::Shard;
using runtime::test::Machine;
using runtime::test::message_of;
using runtime::test::tiny;
using testing::HasSubstr;

using Counts = std::map<std::string, uint32_t>;
using Numbers = std::vector<double>;

Numbers numbers_of(const Tensor& t) {
  Numbers out;
  for (const float v : t.to_host<float>()) out.push_back(v);
  return out;
}

void expect_near(const Numbers& got, const Numbers& wanted, double tolerance = 2e-5) {
  ASSERT_EQ(got.size(), wanted.size());
  double largest = 0;
  for (const double v : wanted) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], tolerance * std::max(1.0, largest)) << "element " << i;
  }
}

/// Rows [begin, end) of a matrix of `row` elements each.
Numbers rows_of(const Numbers& all, uint64_t row, const Range& rows) {
  return {all.begin() + static_cast<std::ptrdiff_t>(rows.begin * row),
          all.begin() + static_cast<std::ptrdiff_t>(rows.end() * row)};
}

struct Layers : SimTest {
  /// Runs `body` as every rank of `ranks` SIPs, in a process group.
  void spawn(uint32_t ranks, const std::function<void(Context&, uint32_t)>& body) {
    Machine machine(tiny(ranks));
    run([&] {
      machine.ctx.distributed.init_process_group();
      machine.ctx.spawn([&](uint32_t rank) { body(machine.ctx, rank); }, ranks);
      machine.ctx.distributed.destroy_process_group();
    });
  }
};

/// A model, its input and what it must give: made on the rank's own SIP from plain layers.
struct Case {
  Case(Context& context, uint64_t hidden, uint64_t length, uint64_t batch = 1)
      : at(context), x(at.parameter("input", {batch, length, hidden}, Init{0, 1})) {}
  Builder at;
  Tensor x;
  LayerFactory plain;
};

TransformerConfig small_model(uint64_t layers = 2) {
  TransformerConfig c;
  c.layers = layers;
  c.attention.hidden = 16;
  c.attention.heads = 4;
  c.vocabulary = 22;
  c.length = 8;
  return c;
}

Tensor tokens_of(Context& context, const TransformerConfig& c, uint64_t batch = 1) {
  std::vector<int64_t> tokens(batch * c.length);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>((i * 7 + 3) % c.vocabulary);
  return context.from_host({batch, c.length}, DType::Int64, tokens);
}

// --- MLP

TEST_F(Layers, MlpIsOneAllReduceInBothStylesAndRightForUnevenSizes) {
  spawn(4, [](Context& context, uint32_t) {
    const auto mesh = init_device_mesh(context, "sip", {4}, {"tp"});
    for (const auto& [hidden, inner] : {std::pair<uint64_t, uint64_t>{16, 64}, {10, 13}, {6, 5}}) {
      Case c(context, hidden, 6);
      Mlp single(c.at, c.plain, hidden, inner, true);
      const Numbers wanted = numbers_of(single(c.x).tensor());

      Mlp declared(c.at, c.plain, hidden, inner, true);
      parallelize_module(declared, mesh, mlp_plan());
      CommDebugMode comm(context);
      expect_near(numbers_of(declared(c.x).tensor()), wanted);
      EXPECT_EQ(comm.counts(), (Counts{{"all_reduce", 1}}));
      EXPECT_EQ(comm.elements(), std::vector<int64_t>{static_cast<int64_t>(6 * hidden)});

      Mlp megatron(c.at, MegatronFactory(tensor_parallel_group(mesh), 6), hidden, inner, true);
      comm.reset();
      expect_near(numbers_of(megatron(c.x).tensor()), wanted);
      EXPECT_EQ(comm.counts(), (Counts{{"all_reduce", 1}}));
      EXPECT_EQ(comm.elements(), std::vector<int64_t>{static_cast<int64_t>(6 * hidden)});
    }
  });
}

TEST_F(Layers, SequenceParallelMlpGathersAndScatters) {
  spawn(4, [](Context& context, uint32_t rank) {
    const auto mesh = init_device_mesh(context, "sip", {4}, {"tp"});
    for (const uint64_t length : {8, 7}) {
      Case c(context, 16, length);
      Mlp single(c.at, c.plain, 16, 32, true);
      const Range own = torch_chunk(length, 4, rank);
      const Numbers wanted = rows_of(numbers_of(single(c.x).tensor()), 16, own);

      Mlp declared(c.at, c.plain, 16, 32, true);
      parallelize_module(declared, mesh, mlp_plan({true, false}));
      const Value part = dtensor::distribute_tensor(c.x, mesh, {Shard{1}}, {std::nullopt});
      CommDebugMode comm(context);
      expect_near(numbers_of(declared(part).to_local()), wanted);
      EXPECT_EQ(comm.sequence(), (std::vector<std::string>{"all_gather@0", "reduce_scatter@0"}));

      Mlp megatron(c.at, MegatronFactory(tensor_parallel_group(mesh, true), length), 16, 32, true);
      comm.reset();
      expect_near(numbers_of(megatron(part.to_local()).tensor()), wanted);
      EXPECT_EQ(comm.counts(), (Counts{{"all_gather", 1}, {"reduce_scatter", 1}}));
    }
  });
}

TEST_F(Layers, RowwiseBiasIsAddedOnce) {
  spawn(3, [](Context& context, uint32_t) {
    const auto mesh = init_device_mesh(context, "sip", {3}, {"tp"});
    const Builder at(context);
    const Tensor zeros = context.zeros({2, 1, 6});
    Linear single(at, 6, 5, true);
    const Numbers bias = numbers_of(single(zeros).tensor());  // the bias itself, twice
    EXPECT_GT(std::abs(bias[0]), 1e-3);

    Linear declared(at, 6, 5, true);
    parallelize_module(declared, mesh, RowwiseParallel{Replicate{}});
    expect_near(numbers_of(declared(zeros).tensor()), bias);

    RowParallelLinear megatron(at, tensor_parallel_group(mesh), 6, 5, true);
    expect_near(numbers_of(megatron(context.zeros({2, 1, 2})).tensor()), bias);
  });
}

// --- attention

TEST_F(Layers, AttentionIsOneAllReduceAlsoWithFewerKeyHeads) {
  spawn(4, [](Context& context, uint32_t) {
    const auto mesh = init_device_mesh(context, "sip", {4}, {"tp"});
    // As many key heads, cut ones, ones that the ranks do not divide, a single one.
    for (const auto& [heads, keys] : {std::pair<uint64_t, uint64_t>{4, 4}, {8, 4}, {8, 2}, {12, 3}, {4, 1}}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, " << keys << " of keys");
      AttentionConfig config;
      config.hidden = heads * 4;
      config.heads = heads;
      config.kv_heads = keys;
      Case c(context, config.hidden, 5, 2);
      Attention single(c.at, c.plain, config);
      const Numbers wanted = numbers_of(single(c.x).tensor());

      Attention declared(c.at, c.plain, config);
      parallelize_module(declared, mesh, attention_plan(config, 4));
      CommDebugMode comm(context);
      expect_near(numbers_of(declared(c.x).tensor()), wanted);
      EXPECT_EQ(comm.counts(), (Counts{{"all_reduce", 1}}));

      Attention megatron(c.at, MegatronFactory(tensor_parallel_group(mesh), 5), config);
      comm.reset();
      expect_near(numbers_of(megatron(c.x).tensor()), wanted);
      EXPECT_EQ(comm.counts(), (Counts{{"all_reduce", 1}}));
    }
  });
}

// --- model

struct ModelStyle {
  bool sequence_parallel;
  bool uneven;
};
class Model : public Layers, public testing::WithParamInterface<ModelStyle> {};

TEST_P(Model, CountsAndValuesOfTwoLayers) {
  spawn(4, [](Context& context, uint32_t) {
    const bool sequence = GetParam().sequence_parallel;
    TransformerConfig config = small_model();
    if (GetParam().uneven) config.length = 9;
    if (!GetParam().uneven) config.vocabulary = 24;
    const auto mesh = init_device_mesh(context, "sip", {4}, {"tp"});
    const Builder at(context);
    const Value tokens = tokens_of(context, config, 2);
    Transformer single(at, LayerFactory(), config);
    const Numbers wanted = numbers_of(single(tokens).tensor());
    const Counts counts =
        sequence ? Counts{{"all_gather", 6}, {"reduce_scatter", 6}} : Counts{{"all_gather", 1}, {"all_reduce", 6}};

    Transformer declared(at, LayerFactory(), config);
    parallelize_module(declared, mesh, transformer_plan(config, 4, {sequence, false}));
    CommDebugMode comm(context);
    expect_near(numbers_of(declared(tokens).to_local()), wanted);
    EXPECT_EQ(comm.counts(), counts);
    const auto elements = comm.elements();

    Transformer megatron(at, MegatronFactory(tensor_parallel_group(mesh, sequence), config.length), config);
    comm.reset();
    expect_near(numbers_of(megatron(tokens).tensor()), wanted);
    EXPECT_EQ(comm.counts(), counts);
    EXPECT_EQ(comm.elements(), elements);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Model,
                         testing::Values(ModelStyle{false, false}, ModelStyle{true, false}, ModelStyle{false, true},
                                         ModelStyle{true, true}),
                         [](const auto& p) {
                           return std::string(p.param.sequence_parallel ? "Sequence" : "Tensor") +
                                  (p.param.uneven ? "Uneven" : "Even");
                         });

TEST_F(Layers, LossParallelIsThreeSmallAllReduces) {
  spawn(4, [](Context& context, uint32_t) {
    TransformerConfig config = small_model(0);  // 22 classes on 4 ranks
    const auto mesh = init_device_mesh(context, "sip", {4}, {"tp"});
    const Builder at(context);
    const Value tokens = tokens_of(context, config);
    Transformer single(at, LayerFactory(), config);
    const double wanted = numbers_of(cross_entropy(single(tokens), tokens).tensor()).front();

    Transformer declared(at, LayerFactory(), config);
    parallelize_module(declared, mesh, transformer_plan(config, 4, {false, true}));
    const Value logits = declared(tokens);
    CommDebugMode comm(context);
    const Value loss = cross_entropy(logits, tokens, true);
    EXPECT_EQ(comm.sequence(), (std::vector<std::string>{"all_reduce@0:max", "all_reduce@0", "all_reduce@0"}));
    EXPECT_EQ(comm.elements(), (std::vector<int64_t>{8, 8, 8}));
    EXPECT_NEAR(numbers_of(loss.to_local()).front(), wanted, 1e-5);

    const auto tp = tensor_parallel_group(mesh);
    Transformer megatron(at, MegatronFactory(tp, config.length, false), config);
    const Tensor own = megatron(tokens).tensor();
    comm.reset();
    EXPECT_NEAR(numbers_of(vocab_parallel_cross_entropy(tp, own, tokens.tensor(), 22)).front(), wanted, 1e-5);
    EXPECT_EQ(comm.counts(), (Counts{{"all_reduce", 3}}));
    EXPECT_EQ(comm.elements(), (std::vector<int64_t>{8, 8, 8}));
  });
}

// --- sharded parameters

TEST_F(Layers, ShardedParametersAreGatheredOncePerModule) {
  spawn(3, [](Context& context, uint32_t rank) {
    const auto mesh = init_device_mesh(context, "sip", {3}, {"dp"});
    Case c(context, 8, 4);
    Mlp single(c.at, c.plain, 8, 20, true);
    const Numbers wanted = numbers_of(single(c.x).tensor());
    Mlp sharded(c.at, c.plain, 8, 20, true);
    fully_shard(*sharded.children()[0].second, mesh);
    fully_shard(sharded, mesh);
    const auto parameters = sharded.parameters();
    ASSERT_EQ(parameters.size(), 4u);
    EXPECT_EQ(parameters[0].first, "up.weight");
    const DTensor up = parameters[0].second->distributed();
    EXPECT_EQ(dtensor::to_string(up.placements()), "[S(0)]");
    EXPECT_EQ(up.to_local().shape()[0], rank < 2 ? 7u : 6u);
    for (int i = 0; i < 2; ++i) {
      CommDebugMode comm(context);
      expect_near(numbers_of(sharded(c.x).tensor()), wanted);
      // up: 7 rows of 8 and 7 biases; the rest: 3 rows of 20 and 3 biases.
      EXPECT_EQ(comm.counts(), (Counts{{"all_gather", 2}}));
      auto elements = comm.elements();
      std::sort(elements.begin(), elements.end());
      EXPECT_EQ(elements, (std::vector<int64_t>{63, 63}));
    }
    EXPECT_TRUE(sharded.parameters()[0].second->is_distributed());
    EXPECT_THAT(message_of<std::invalid_argument>([&] { fully_shard(sharded, mesh); }), HasSubstr("not sharded yet"));
  });
}

TEST_F(Layers, ShardedParametersOnTopOfTensorParallelOnes) {
  spawn(4, [](Context& context, uint32_t) {
    const auto mesh = init_device_mesh(context, "sip", {2, 2}, {"dp", "tp"});
    const TransformerConfig config = small_model(1);
    const Builder at(context);
    const Value tokens = tokens_of(context, config);
    Transformer single(at, LayerFactory(), config);
    const Numbers wanted = numbers_of(single(tokens).tensor());
    const Numbers weight = numbers_of(single.parameters()[0].second->tensor());

    Transformer declared(at, LayerFactory(), config);
    parallelize_module(declared, mesh["tp"], transformer_plan(config, 2));
    for (const auto& [name, child] : declared.children()) fully_shard(*child, mesh);
    std::map<std::string, std::string> lies;
    for (const auto& [path, value] : declared.parameters()) {
      lies[path] = dtensor::to_string(value->distributed().placements());
    }
    EXPECT_EQ(lies["tokens.weight"], "[SS(0,2), S(0)]");
    EXPECT_EQ(lies["layers.0.mlp.up.weight"], "[SS(0,2), S(0)]");
    EXPECT_EQ(lies["layers.0.mlp.down.weight"], "[S(0), S(1)]");
    EXPECT_EQ(lies["layers.0.mlp.down.bias"], "[S(0), R]");
    EXPECT_EQ(lies["norm.weight"], "[S(0), R]");
    expect_near(numbers_of(declared.parameters()[0].second->distributed().full_tensor()), weight, 0);

    CommDebugMode comm(context);
    expect_near(numbers_of(declared(tokens).to_local()), wanted);
    // A gather for each of tokens, positions, the block, norm and head, and one of the logits.
    EXPECT_EQ(comm.counts(), (Counts{{"all_gather", 6}, {"all_reduce", 4}}));

    Transformer megatron(at, MegatronFactory(tensor_parallel_group(mesh["tp"]), config.length), config);
    for (const auto& [name, child] : megatron.children()) fully_shard(*child, mesh["dp"]);
    comm.reset();
    expect_near(numbers_of(megatron(tokens).tensor()), wanted);
    EXPECT_EQ(comm.counts(), (Counts{{"all_gather", 6}, {"all_reduce", 4}}));
  });
}

TEST_F(Layers, ShardedParametersWithRowsThatBothDimensionsCutUnevenly) {
  spawn(6, [](Context& context, uint32_t rank) {
    // 7 rows: 4 and 3 by tensor, which 3 cut into 2, 2, 0 and 1, 1, 1; no placements of (3, 2) say that.
    const auto mesh = init_device_mesh(context, "sip", {3, 2}, {"dp", "tp"});
    Case c(context, 8, 4);
    Mlp single(c.at, c.plain, 8, 7, true);
    const Numbers wanted = numbers_of(single(c.x).tensor());
    const Numbers weight = numbers_of(single.parameters()[0].second->tensor());
    Mlp declared(c.at, c.plain, 8, 7, true);
    parallelize_module(declared, mesh["tp"], mlp_plan());
    fully_shard(declared, mesh);
    const DTensor up = declared.parameters()[0].second->distributed();
    EXPECT_EQ(up.device_mesh().ndim(), 1u);
    EXPECT_EQ(up.shape(), (Dims{rank % 2 == 0 ? 4 : 3, 8}));
    constexpr uint64_t kRows[] = {2, 1, 2, 1, 0, 1};
    EXPECT_EQ(up.to_local().shape(), (Shape{kRows[rank], 8}));
    expect_near(numbers_of(up.full_tensor()), rows_of(weight, 8, rank % 2 == 0 ? Range{0, 4} : Range{4, 3}), 0);
    for (int i = 0; i < 2; ++i) {
      CommDebugMode comm(context);
      expect_near(numbers_of(declared(c.x).to_local()), wanted);
      EXPECT_EQ(comm.counts(), (Counts{{"all_gather", 1}, {"all_reduce", 1}}));
    }
    EXPECT_THAT(message_of<std::invalid_argument>([&] { fully_shard(declared, mesh); }), HasSubstr("not sharded yet"));
  });
}

TEST_F(Layers, CollectivesAreCountedByModule) {
  spawn(2, [](Context& context, uint32_t) {
    const auto mesh = init_device_mesh(context, "sip", {2}, {"tp"});
    const TransformerConfig config = small_model(2);
    const Builder at(context);
    Transformer declared(at, LayerFactory(), config);
    parallelize_module(declared, mesh, transformer_plan(config, 2));
    Transformer megatron(at, MegatronFactory(tensor_parallel_group(mesh), config.length), config);
    const CommDebugMode outer(context);
    std::map<std::string, Counts> first;
    for (Module* model : {static_cast<Module*>(&declared), static_cast<Module*>(&megatron)}) {
      const CommDebugMode comm(context);
      (*model)(tokens_of(context, config));
      auto counts = comm.module_counts();
      EXPECT_EQ(counts["Transformer"], comm.counts());
      EXPECT_EQ(counts["Transformer.layers.0"], (Counts{{"all_reduce", 2}}));
      EXPECT_EQ(counts["Transformer.layers.1.attention"], (Counts{{"all_reduce", 1}}));
      EXPECT_EQ(counts["Transformer.layers.1.mlp.down"], (Counts{{"all_reduce", 1}}));
      EXPECT_EQ(counts.count("Transformer.layers.1.mlp.up"), 0u);
      EXPECT_EQ(counts["Transformer.head"], (Counts{{"all_gather", 1}}));
      EXPECT_THAT(comm.text(), HasSubstr("Transformer.layers.0.attention.wo  all_reduce 1\n"));
      if (first.empty()) first = counts;
      EXPECT_EQ(counts, first) << "both styles";
    }
    EXPECT_EQ(outer.module_counts().at("Transformer.layers.0"), (Counts{{"all_reduce", 4}}));
    CommDebugMode outside(context);
    context.distributed.all_reduce(context.ones({1}));
    EXPECT_TRUE(outside.module_counts().empty());
    EXPECT_EQ(outside.total(), 1u);
  });
}

// --- styles and mistakes

TEST_F(Layers, StylesAnnotateAndRedistribute) {
  spawn(2, [](Context& context, uint32_t) {
    const auto mesh = init_device_mesh(context, "sip", {2}, {"tp"});
    Case c(context, 6, 4);
    Linear single(c.at, 6, 8, true);
    const Numbers wanted = numbers_of(single(c.x).tensor());

    Linear prepared(c.at, 6, 8, true);
    parallelize_module(prepared, mesh, ColwiseParallel{Replicate{}, Shard{-1}, false});
    parallelize_module(prepared, mesh, PrepareModuleOutput{Shard{-1}, Replicate{}, true});
    CommDebugMode comm(context);
    expect_near(numbers_of(prepared(c.x).tensor()), wanted);
    EXPECT_EQ(comm.counts(), (Counts{{"all_gather", 1}}));

    // As in torch, a column-parallel layer's result is a plain tensor of the rank's features by default.
    Linear column(c.at, 6, 8, true);
    parallelize_module(column, mesh, ColwiseParallel{});
    EXPECT_EQ(column(c.x).tensor().shape(), (Shape{1, 4, 4}));

    Norm norm(c.at, NormKind::RmsNorm, 6);
    Norm plain_norm(c.at, NormKind::RmsNorm, 6);
    parallelize_module(norm, mesh, SequenceParallel{});
    const Value part = dtensor::distribute_tensor(c.x, mesh, {Shard{1}}, {std::nullopt});
    comm.reset();
    const Value y = norm(part.to_local());
    EXPECT_EQ(dtensor::to_string(y.distributed().placements()), "[S(1)]");
    EXPECT_EQ(comm.total(), 0u);
    expect_near(numbers_of(y.distributed().full_tensor()), numbers_of(plain_norm(c.x).tensor()));
  });
}

TEST_F(Layers, ParametersOfTheFirstRankCountByDefault) {
  spawn(2, [](Context& context, uint32_t rank) {
    const auto mesh = init_device_mesh(context, "sip", {2}, {"tp"});
    const Tensor x = context.ones({1, 1, 4});
    Linear first(Builder(context, DType::Float32, 1), 4, 4, false);
    const Numbers wanted = numbers_of(first(x).tensor());
    Linear mine(Builder(context, DType::Float32, 1 + rank), 4, 4, false);
    CommDebugMode comm(context);
    parallelize_module(mine, mesh, ColwiseParallel{Replicate{}, Replicate{}});
    EXPECT_EQ(comm.counts(), (Counts{{"scatter", 1}}));
    expect_near(numbers_of(mine(x).tensor()), wanted, 0);
  });
}

TEST_F(Layers, MistakesAreErrorsOnEveryRank) {
  spawn(4, [](Context& context, uint32_t) {
    const auto grid = init_device_mesh(context, "sip", {2, 2}, {"dp", "tp"});
    const Builder at(context);
    Mlp mlp(at, LayerFactory(), 4, 8, true);
    EXPECT_THAT(message_of<dtensor::UnsupportedMesh>([&] { parallelize_module(mlp, grid, mlp_plan()); }),
                HasSubstr("expected a 1-d mesh"));
    EXPECT_THAT(message_of<std::invalid_argument>([&] {
                  parallelize_module(mlp, grid["tp"], ParallelPlan{{"upp", ColwiseParallel{}}});
                }),
                HasSubstr("'upp' names no module; there are up, down"));
    EXPECT_THAT(message_of<std::invalid_argument>([&] { parallelize_module(mlp, grid["tp"], ColwiseParallel{}); }),
                HasSubstr("ColwiseParallel of Mlp: expected a Linear or an Embedding"));
    AttentionConfig config;
    config.hidden = 6;
    config.heads = 3;
    const auto tp = tensor_parallel_group(grid["tp"]);
    EXPECT_THAT(message_of<std::invalid_argument>([&] { Attention(at, MegatronFactory(tp, 4), config); }),
                HasSubstr("3 attention heads on 2 ranks"));
    config.kv_heads = 2;
    EXPECT_THAT(message_of<std::invalid_argument>([&] { Attention(at, LayerFactory(), config); }),
                HasSubstr("2 key heads for 3 query heads"));
    // A distributed parameter beside a plain activation is refused, as in torch.
    Linear alone(at, 4, 4, false);
    *alone.own_parameters()[0].second =
        dtensor::distribute_tensor(alone.own_parameters()[0].second->tensor(), grid, {Replicate{}, Replicate{}});
    EXPECT_THAT(message_of<dtensor::MixedTensor>([&] { alone(context.ones({2, 4})); }), HasSubstr("linear"));
  });
}

}  // namespace
}  // namespace ahbm::nn::test
