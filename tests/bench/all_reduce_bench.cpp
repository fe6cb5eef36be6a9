// The main job on the shipped `ring4`: wall time of a 64 MiB all-reduce beside a plain program that does the same
// additions and slot copies, and the rate of messages.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "models/pe/executor.h"
#include "platform/machine.h"
#include "tests/bench/bench_support.h"

namespace ahbm::bench {
namespace {

constexpr uint32_t kSlotBytes = 16 << 10, kHeader = 32, kPayload = kSlotBytes - kHeader;

/// What the bidirectional ring does to bytes, and nothing else: per rank and lane, every chunk's partial sum arrives in
/// slots, is added to local memory and goes on in a slot; then the sums go round and are stored. Same counts of
/// additions, slot copies and stores as the kernel, in memory of the same sizes that was touched before.
class PlainLoops {
 public:
  PlainLoops(uint64_t bytes, uint32_t ranks, uint32_t lanes)
      : m_ranks(ranks), m_lanes(lanes), m_lane_bytes(bytes / lanes), m_chunk(m_lane_bytes / ranks) {
    m_buffers.resize(ranks * lanes);
    for (auto& b : m_buffers) b.assign(m_lane_bytes / sizeof(float), 1.0f);
    // Two queue pairs of eight slots per PE.
    m_rings.assign(ranks * lanes, std::vector<uint8_t>(2 * 8 * kSlotBytes, 1));
    m_staging.assign(kSlotBytes / sizeof(float), 0.0f);
  }

  void run() {
    // Per phase and direction a link carries one and a half chunks (n = 4): of every lane and rank, three chunks come
    // in over both directions. In the first phase each is added to local memory and all but the owner's combination
    // goes on; in the second each is stored and a third goes on. The PEs take turns slot by slot, as on the machine.
    const uint32_t pes = m_ranks * m_lanes;
    for (uint32_t c = 0; c < m_ranks; ++c) {
      for (uint64_t at = 0; at < m_chunk; at += kPayload) {
        for (uint32_t pe = 0; pe < pes; ++pe) reduce_piece(pe, c, at);
      }
    }
    for (uint32_t c = 1; c < m_ranks; ++c) {
      for (uint64_t at = 0; at < m_chunk; at += kPayload) {
        for (uint32_t pe = 0; pe < pes; ++pe) gather_piece(pe, c, at);
      }
    }
  }

 private:
  uint8_t* slot(uint32_t pe, uint64_t at) { return m_rings[pe].data() + (at / kPayload % 16) * kSlotBytes + kHeader; }

  void reduce_piece(uint32_t pe, uint32_t chunk, uint64_t at) {
    const uint64_t n = std::min<uint64_t>(kPayload, m_chunk - at) / sizeof(float);
    const float* in = reinterpret_cast<const float*>(slot(pe, at));
    const float* mine = m_buffers[pe].data() + (chunk * m_chunk + at) / sizeof(float);
    for (uint64_t i = 0; i < n; ++i) m_staging[i] = mine[i] + in[i];
    std::memcpy(slot((pe + 1) % (m_ranks * m_lanes), at), m_staging.data(), n * sizeof(float));
  }
  void gather_piece(uint32_t pe, uint32_t chunk, uint64_t at) {
    const uint64_t n = std::min<uint64_t>(kPayload, m_chunk - at);
    const uint8_t* in = slot(pe, at);
    std::memcpy(slot((pe + 1) % (m_ranks * m_lanes), at), in, n);
    std::memcpy(reinterpret_cast<uint8_t*>(m_buffers[pe].data()) + chunk * m_chunk + at, in, n);
  }

  const uint32_t m_ranks, m_lanes;
  const uint64_t m_lane_bytes, m_chunk;
  std::vector<std::vector<float>> m_buffers;
  std::vector<std::vector<uint8_t>> m_rings;
  std::vector<float> m_staging;
};

uint64_t messages_sent(platform::Machine& machine) {
  const SystemConfig& c = machine.system->config();
  uint64_t n = 0;
  for (uint32_t s = 0; s < c.sips; ++s) {
    for (uint32_t k = 0; k < c.cubes(); ++k) {
      n += machine.system->pe({SipId{s}, CubeId{k}, PeId{0}}).executor().move_stats().messages_sent;
    }
  }
  return n;
}

/// An all-reduce on a machine whose tensors are there and whose queue pairs are connected.
class AllReduce {
 public:
  AllReduce(platform::Machine& machine, uint64_t bytes)
      : m_context(*machine.context), m_tensors(machine.system->config().sips) {
    m_context.distributed.init_process_group();
    m_context.spawn([&](uint32_t rank) { m_tensors[rank] = m_context.ones({bytes / 4}); }, ranks());
  }
  /// Seconds of wall time, from launch to completion.
  double run() {
    double seconds = 0;
    m_context.spawn(
        [&](uint32_t rank) {
          m_context.distributed.barrier();
          const auto begin = std::chrono::steady_clock::now();
          const auto work = m_context.distributed.all_reduce(m_tensors[rank]);
          seconds = std::max(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
          if (rank == 0) m_simulated = work.record().end - work.record().start;
        },
        ranks());
    return seconds;
  }
  Ps simulated() const { return m_simulated; }

 private:
  uint32_t ranks() const { return static_cast<uint32_t>(m_tensors.size()); }
  runtime::Context& m_context;
  std::vector<runtime::Tensor> m_tensors;
  Ps m_simulated = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Both are run once to touch their memory, then in turn: the speed of a shared host changes from one second to the
/// next, and a median of pairs says more than two means.
void allReduce64MiB(benchmark::State& state) {
  fresh_context();
  constexpr uint64_t kBytes = 64 << 20;
  auto* machine = new platform::Machine(platform("ring4"));
  std::vector<double> plain_s, ratios;
  Ps simulated = 0;
  machine->run([&] {
    AllReduce all_reduce(*machine, kBytes);
    all_reduce.run();
    PlainLoops plain(kBytes, 4, 16);
    plain.run();
    for (auto _ : state) {
      plain_s.push_back(seconds_of([&] { plain.run(); }));
      const double ours = all_reduce.run();
      state.SetIterationTime(ours);
      ratios.push_back(ours / plain_s.back());
    }
    simulated = all_reduce.simulated();
  });
  const double bound_ps = 1.5 * kBytes / 200e9 * 1e12;
  state.counters["plain_ms"] = median(plain_s) * 1e3;
  state.counters["ratio"] = median(ratios);
  state.counters["simulated_us"] = static_cast<double>(simulated) / 1e6;
  state.counters["efficiency"] = bound_ps / static_cast<double>(simulated);
}
BENCHMARK(allReduce64MiB)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);

void messages(benchmark::State& state, const std::vector<std::string>& sets, const char* name, uint64_t bytes) {
  fresh_context();
  auto* machine = new platform::Machine(platform(name, sets));
  std::vector<double> seconds;
  uint64_t sent = 0;
  Ps simulated = 0;
  machine->run([&] {
    AllReduce all_reduce(*machine, bytes);
    const uint64_t before = messages_sent(*machine);
    for (auto _ : state) {
      const double this_time = all_reduce.run();
      state.SetIterationTime(this_time);
      seconds.push_back(this_time);
    }
    simulated = all_reduce.simulated();
    sent = messages_sent(*machine) - before;
  });
  const double per_run = static_cast<double>(sent) / static_cast<double>(state.iterations());
  state.counters["messages"] = per_run;
  state.counters["messages_per_second"] = per_run / median(seconds);
  state.counters["simulated_us"] = static_cast<double>(simulated) / 1e6;
  // Of the whole process: run such a benchmark alone.
  state.counters["user_s"] = process_use().user_s;
  state.counters["peak_mib"] = process_use().peak_mib;
}

void messagesWithData(benchmark::State& state) {
  messages(state, {"ipcq.sip.slot_bytes=4 KiB"}, "ring4", 16 << 20);
}
BENCHMARK(messagesWithData)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);

void messagesTimingOnly(benchmark::State& state) {
  messages(state, {"ipcq.sip.slot_bytes=4 KiB", "simulation.functional=false"}, "ring4", 16 << 20);
}
BENCHMARK(messagesTimingOnly)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);

// 16 SIPs x 16 lanes: 256 busy PEs.
void messages256Pes(benchmark::State& state) {
  messages(state, {"system.sips.count=16", "ipcq.sip.slot_bytes=4 KiB", "simulation.functional=false"}, "ring4",
           16 << 20);
}
BENCHMARK(messages256Pes)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);

// 64 SIPs x 16 lanes: 1,024 busy PEs of 16,384.
void messages1024Pes(benchmark::State& state) {
  messages(state, {"ipcq.sip.slot_bytes=4 KiB", "simulation.functional=false"}, "large", 16 << 20);
}
BENCHMARK(messages1024Pes)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(2);

// A ring of 1,024 SIPs of one PE each, 1 MiB: messages of half a KiB.
void ringOf1024Sips(benchmark::State& state) {
  messages(state, {"system.sips.count=1024", "simulation.functional=false"}, "peer_64B_50ns", 1 << 20);
}
BENCHMARK(ringOf1024Sips)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace ahbm::bench
