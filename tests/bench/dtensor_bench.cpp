// Distributed tensors: small redistributes per second of wall time, and what a decision costs.
#include <benchmark/benchmark.h>

#include <memory>

#include "platform/machine.h"
#include "runtime/dtensor/functions.h"
#include "tests/bench/bench_support.h"

namespace ahbm::bench {
namespace {

using namespace dtensor;

/// Redistributes of 1 KiB, by all four ranks of the machine, from one list of placements to another.
/// \param cubes  per SIP, a square
void redistributes(benchmark::State& state, const Placements& from, const Placements& to) {
  fresh_context();
  const auto side = std::to_string(state.range(0));
  auto* machine = new platform::Machine(platform("ring4", {"sip.cube_mesh.w=" + side, "sip.cube_mesh.h=" + side}));
  runtime::Context& ctx = *machine->context;
  constexpr int kPerIteration = 200;
  double seconds = 0;
  Ps simulated = 0;
  machine->run([&] {
    ctx.distributed.init_process_group();
    for (auto _ : state) {
      double this_time = 0;
      ctx.spawn(
          [&](uint32_t rank) {
            const DeviceMesh mesh = init_device_mesh(ctx, "sip", {4});
            const DTensor whole = rand({16, 16}, 1, mesh, all_replicate(1));
            const DTensor t = is_partial(from[0]) ? from_local(whole.to_local(), mesh, from) : whole.redistribute(from);
            t.redistribute(to);  // makes connections
            ctx.distributed.barrier();
            const Ps start = models::now_ps();
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < kPerIteration; ++i) t.redistribute(to);
            this_time =
                std::max(this_time, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
            if (rank == 0) simulated = (models::now_ps() - start) / kPerIteration;
          },
          4);
      seconds += this_time;
      state.SetIterationTime(this_time);
    }
  });
  state.counters["per_second"] = kPerIteration * static_cast<double>(state.iterations()) / seconds;
  state.counters["simulated_us"] = static_cast<double>(simulated) / 1e6;
}

void shardToReplicate(benchmark::State& state) {
  redistributes(state, {Shard{0}}, {Replicate{}});
}
void shardToShard(benchmark::State& state) {
  redistributes(state, {Shard{0}}, {Shard{1}});
}
void partialToReplicate(benchmark::State& state) {
  redistributes(state, {Partial{}}, {Replicate{}});
}
void partialToShard(benchmark::State& state) {
  redistributes(state, {Partial{}}, {Shard{0}});
}
void replicateToShard(benchmark::State& state) {
  redistributes(state, {Replicate{}}, {Shard{0}});
}
// One cube per SIP, and 16.
BENCHMARK(shardToReplicate)->Arg(1)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK(shardToShard)->Arg(1)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK(partialToReplicate)->Arg(1)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK(partialToShard)->Arg(1)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK(replicateToShard)->Arg(1)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);

/// A strategy search with all plans, forgotten every time, and the same remembered.
void decide(benchmark::State& state, bool remember) {
  const MeshPtr mesh = MeshLayout::create({4, 2});
  const DTensorSpec a(mesh, {Shard{0}, Shard{1}}, {512, 512}, DType::BFloat16);
  const DTensorSpec b(mesh, {Replicate{}, Shard{0}}, {512, 512}, DType::BFloat16);
  StrategyEngine engine;
  const OpCall call{Op::Mm, {OpInput(a), OpInput(b)}, {}};
  for (auto _ : state) {
    if (!remember) engine.clear();
    benchmark::DoNotOptimize(engine.decide(call));
  }
}
void decideUncached(benchmark::State& state) {
  decide(state, false);
}
BENCHMARK(decideUncached);
void decideCached(benchmark::State& state) {
  decide(state, true);
}
BENCHMARK(decideCached);

}  // namespace
}  // namespace ahbm::bench
