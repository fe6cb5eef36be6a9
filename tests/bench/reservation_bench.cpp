// What a message costs at the least: the reservations of its payload, its doorbell and its credit along granted routes
// of a real machine, and nothing else - no queue pair, no kernel, no wake-up, no call of a target. The rates of whole
// all-reduces (all_reduce_bench.cpp) cannot exceed these.
#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "models/core/address_map.h"
#include "models/system/system.h"
#include "models/tlm/route.h"
#include "tests/bench/bench_support.h"

namespace ahbm::bench {
namespace {

using namespace models;

/// Granted routes from PE 0 of a cube to that of the same cube in a neighbouring SIP, and back for the credit.
struct Lane {
  Route there, back;
};

void collect(System& system, const PeLocation& from, const PeLocation& to, Side egress, Route& route) {
  const SystemConfig& c = system.config();
  PooledPayload& p = system.services().payloads->acquire();
  uint64_t word = 0;
  p.set_command(tlm::TLM_WRITE_COMMAND);
  p.set_address(tcm_address(to, c.ipcq.ring_bytes));
  p.set_data_ptr(reinterpret_cast<uint8_t*>(&word));
  p.set_data_length(sizeof word);
  p.set_streaming_width(sizeof word);
  p.transit.transit = Transit{now_ps(), now_ps(), sizeof word, Channel::Control, egress, true};
  RoutedInitiator initiator;
  initiator.bind(system.pe(from).xbar_out.operator->(), system.services().route_epoch, true);
  initiator.transport(p, route);
  if (!p.is_response_ok() || !route.granted(*system.services().route_epoch)) {
    throw std::runtime_error("no route was granted");
  }
  p.release();
}

void reservations(benchmark::State& state, const char* name, const std::vector<std::string>& sets, uint32_t bytes) {
  fresh_context();
  tl::KernelRegistry kernels;
  auto& system = *new System("system", platform(name, sets), kernels);
  const SystemConfig& c = system.config();
  constexpr Side kBothWays[] = {Side::E, Side::W};
  std::vector<Lane> lanes;
  size_t hops = 0;
  double seconds = 0;
  uint64_t messages = 0;
  run([&] {
    for (uint32_t k = 0; k < c.cubes(); ++k) {
      for (const Side side : kBothWays) {
        for (uint32_t s = 0; s < c.sips; ++s) {
          const std::optional<SipId> peer = system.graph().neighbour(SipId{s}, side);
          const PeLocation from{SipId{s}, CubeId{k}, PeId{0}}, to{*peer, CubeId{k}, PeId{0}};
          Lane lane;
          collect(system, from, to, side, lane.there);
          collect(system, to, from, side == Side::E ? Side::W : Side::E, lane.back);
          hops += 2 * lane.there.n_forward + lane.back.n_forward;
          lanes.push_back(std::move(lane));
        }
      }
    }
    // Every SIP sends in both directions as fast as its links allow, its lanes in turn.
    const Framing framing{c.noc.packet_bytes, c.noc.packet_header_bytes};
    const Ps period = transfer_ps(framing.wire_bytes(bytes), c.sip_link.bytes_per_second);
    Ps now = now_ps();
    const size_t sips = c.sips;
    for (auto _ : state) {
      const double this_time = seconds_of([&] {
        constexpr int kRounds = 16;
        for (int round = 0; round < kRounds; ++round) {
          for (size_t i = 0; i < lanes.size(); ++i) {
            if (i % (2 * sips) == 0) now += period;
            Lane& lane = lanes[i];
            Transit payload{now, now, bytes, Channel::Data, Side::E, false};
            Transit doorbell{now, now, 8, Channel::Control, Side::E, false};
            pass_hops_with_doorbell(lane.there.forward(), now, payload, doorbell);
            Transit credit{payload.tail, payload.tail, 8, Channel::Control, Side::E, false};
            pass_hops<Channel::Control>(lane.back.forward(), now, credit);
            benchmark::DoNotOptimize(credit.tail);
          }
        }
        messages += kRounds * lanes.size();
      });
      seconds += this_time;
      state.SetIterationTime(this_time);
    }
  });
  state.counters["messages_per_second"] = static_cast<double>(messages) / seconds;
  state.counters["reservations_per_message"] = static_cast<double>(hops) / static_cast<double>(lanes.size());
}

constexpr uint32_t kSlot = 4 << 10;

void reservations256Pes(benchmark::State& state) {
  reservations(state, "ring4", {"system.sips.count=16"}, kSlot);
}
BENCHMARK(reservations256Pes)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(20);

void reservations1024Pes(benchmark::State& state) {
  reservations(state, "large", {}, kSlot);
}
BENCHMARK(reservations1024Pes)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(20);

void reservationsRingOf1024Sips(benchmark::State& state) {
  reservations(state, "peer_64B_50ns", {"system.sips.count=1024"}, 512);
}
BENCHMARK(reservationsRingOf1024Sips)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(20);

}  // namespace
}  // namespace ahbm::bench
