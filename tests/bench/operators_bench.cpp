// Wall time of operators on one SIP: what a small launch costs, and a layer's worth of arithmetic.
#include <benchmark/benchmark.h>

#include "platform/machine.h"
#include "runtime/ops/functions.h"
#include "tests/bench/bench_support.h"

namespace ahbm::bench {
namespace {

using runtime::Tensor;

/// Runs `body` n times after one for warming up; counts calls per second.
template <typename Make>
void measure(benchmark::State& state, const std::vector<std::string>& sets, int n, Make make) {
  for (auto _ : state) {
    fresh_context();
    auto* machine = new platform::Machine(platform("ring4", sets));  // never taken down, see platform::Machine
    double seconds = 0;
    machine->run([&] {
      const std::function<void()> body = make(*machine->context);
      body();
      machine->context->synchronize();
      seconds = seconds_of([&] {
        for (int i = 0; i < n; ++i) body();
        machine->context->synchronize();
      });
    });
    state.SetIterationTime(seconds);
    state.counters["per_second"] = n / seconds;
  }
}

const std::vector<std::string> kOneCube = {"sip.cube_mesh.w=1", "sip.cube_mesh.h=1"};

void BM_SmallAdd(benchmark::State& state) {
  measure(state, kOneCube, 2000, [](runtime::Context& ctx) {
    const Tensor a = ctx.ones({16, 16}), b = ctx.ones({16, 16});
    return [=] { benchmark::DoNotOptimize(a + b); };
  });
}
void BM_SmallRepack(benchmark::State& state) {
  measure(state, kOneCube, 2000, [](runtime::Context& ctx) {
    const Tensor a = ctx.ones({16, 16});
    return [=, &ctx] { benchmark::DoNotOptimize(runtime::ops::take(ctx, a, 1, {{8, 8}, {0, 8}})); };
  });
}
void BM_SmallRepackDependent(benchmark::State& state) {
  measure(state, kOneCube, 2000, [](runtime::Context& ctx) {
    auto a = std::make_shared<Tensor>(ctx.ones({16, 16}));
    return [=, &ctx] { *a = runtime::ops::take(ctx, *a, 0, {{8, 8}, {0, 8}}); };
  });
}
void BM_SmallRepackOn16Cubes(benchmark::State& state) {
  measure(state, {}, 200, [](runtime::Context& ctx) {
    const Tensor a = ctx.ones({16, 16});
    return [=, &ctx] { benchmark::DoNotOptimize(runtime::ops::take(ctx, a, 1, {{8, 8}, {0, 8}})); };
  });
}
void BM_Matmul512(benchmark::State& state) {
  measure(state, {}, 3, [](runtime::Context& ctx) {
    const Tensor a = ctx.rand({256, 512}, 1), b = ctx.rand({512, 512}, 2);
    return [=] { benchmark::DoNotOptimize(runtime::matmul(a, b)); };
  });
}
void BM_Linear512(benchmark::State& state) {
  measure(state, {}, 3, [](runtime::Context& ctx) {
    const Tensor a = ctx.rand({256, 512}, 1), w = ctx.rand({2048, 512}, 2), b = ctx.rand({2048}, 3);
    return [=] { benchmark::DoNotOptimize(runtime::linear(a, w, b)); };
  });
}
void BM_Transpose(benchmark::State& state) {
  measure(state, {}, 3, [](runtime::Context& ctx) {
    const Tensor a = ctx.rand({512, 512}, 1);
    return [=] { benchmark::DoNotOptimize(runtime::t(a)); };
  });
}
void BM_Attention(benchmark::State& state) {
  measure(state, {}, 3, [](runtime::Context& ctx) {
    const Tensor q = ctx.rand({1, 8, 256, 64}, 1);
    return [=] { benchmark::DoNotOptimize(runtime::scaled_dot_product_attention(q, q, q, {}, true)); };
  });
}
void BM_LayerNorm(benchmark::State& state) {
  measure(state, {}, 10, [](runtime::Context& ctx) {
    const Tensor x = ctx.rand({256, 512}, 1), w = ctx.ones({512});
    return [=] { benchmark::DoNotOptimize(runtime::layer_norm(x, 1, w, w)); };
  });
}

BENCHMARK(BM_SmallAdd)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SmallRepack)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SmallRepackDependent)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SmallRepackOn16Cubes)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Matmul512)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Linear512)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Transpose)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Attention)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LayerNorm)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ahbm::bench
