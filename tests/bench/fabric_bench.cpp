// A read over six decoding hops of the platform, beside six bare decoding TLM routers; and how long a large machine
// takes to come up.
#include <benchmark/benchmark.h>
#include <tlm_utils/passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>

#include <cstring>
#include <memory>
#include <vector>

#include "models/system/system.h"
#include "tests/bench/bench_support.h"

namespace ahbm::bench {
namespace {

/// The plainest router there is: an address map of a few windows, one latency.
class BareRouter : public sc_core::sc_module {
 public:
  explicit BareRouter(const sc_core::sc_module_name& name) : sc_core::sc_module(name), in("in"), out("out") {
    in.register_b_transport(this, &BareRouter::b_transport);
    for (uint64_t i = 0; i < 8; ++i) m_map.push_back({i << 32, (i + 1) << 32});
  }
  tlm_utils::passthrough_target_socket<BareRouter> in;
  tlm_utils::simple_initiator_socket<BareRouter> out;

 private:
  struct Window {
    uint64_t begin, end;
  };
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    const uint64_t a = trans.get_address();
    for (const Window& w : m_map) {
      if (a < w.begin || a >= w.end) continue;
      delay += sc_core::sc_time::from_value(4000);
      out->b_transport(trans, delay);
      return;
    }
    trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  }
  std::vector<Window> m_map;
};

class BareMemory : public sc_core::sc_module {
 public:
  explicit BareMemory(const sc_core::sc_module_name& name) : sc_core::sc_module(name), in("in"), m_bytes(1 << 20) {
    in.register_b_transport(this, &BareMemory::b_transport);
  }
  tlm_utils::passthrough_target_socket<BareMemory> in;

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    const uint64_t at = trans.get_address() & 0xFFFFF;
    if (trans.is_read()) std::memcpy(trans.get_data_ptr(), m_bytes.data() + at, trans.get_data_length());
    delay += sc_core::sc_time::from_value(90000);
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
  }
  std::vector<uint8_t> m_bytes;
};

class Initiator : public sc_core::sc_module {
 public:
  explicit Initiator(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
  tlm_utils::simple_initiator_socket<Initiator> out;

  /// One 4-byte read with a payload of its own, then the time that it took.
  void read(uint64_t address) {
    tlm::tlm_generic_payload trans;
    uint32_t data = 0;
    trans.set_command(tlm::TLM_READ_COMMAND);
    trans.set_address(address);
    trans.set_data_ptr(reinterpret_cast<uint8_t*>(&data));
    trans.set_data_length(4);
    trans.set_streaming_width(4);
    sc_core::sc_time delay;
    out->b_transport(trans, delay);
    if (!trans.is_response_ok()) throw std::runtime_error("read failed");
    sc_core::wait(delay);
  }
};

// Crossbar, four mesh routers, crossbar: cube 0 to cube 3 of a 4 x 4 mesh.
void sixHopRead(benchmark::State& state) {
  fresh_context();
  tl::KernelRegistry kernels;
  auto* system = new models::System("system", platform("single"), kernels);
  auto* ours = new Initiator("ours");
  ours->out.bind(system->sip(SipId{0}).cube(CubeId{0}).spare_in);
  auto* plain = new Initiator("plain");
  std::vector<BareRouter*> routers;
  for (int i = 0; i < 6; ++i) routers.push_back(new BareRouter(("router" + std::to_string(i)).c_str()));
  auto* memory = new BareMemory("memory");
  plain->out.bind(routers[0]->in);
  for (int i = 0; i < 5; ++i) routers[i]->out.bind(routers[i + 1]->in);
  routers[5]->out.bind(memory->in);
  const uint64_t address = hbm_address(SipId{0}, CubeId{3}, 0x1000);
  constexpr int kReads = 20000;
  double ours_s = 0, plain_s = 0;
  run([&] {
    for (auto _ : state) {
      const double a = seconds_of([&] {
        for (int i = 0; i < kReads; ++i) ours->read(address + 4 * i);
      });
      const double b = seconds_of([&] {
        for (int i = 0; i < kReads; ++i) plain->read(4 * i);
      });
      ours_s += a;
      plain_s += b;
      state.SetIterationTime(a);
    }
  });
  state.counters["ns_per_read"] = ours_s / kReads / state.iterations() * 1e9;
  state.counters["bare_ns_per_read"] = plain_s / kReads / state.iterations() * 1e9;
  state.counters["ratio"] = ours_s / plain_s;
}
BENCHMARK(sixHopRead)->UseManualTime()->Unit(benchmark::kMillisecond);

void elaborateLarge(benchmark::State& state) {
  for (auto _ : state) {
    fresh_context();
    auto* kernels = new tl::KernelRegistry;
    const double s = seconds_of([&] {
      new models::System("system", platform("large"), *kernels);
      sc_core::sc_start(sc_core::SC_ZERO_TIME);
    });
    state.SetIterationTime(s);
  }
  state.counters["pes"] = 16384;
}
BENCHMARK(elaborateLarge)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace ahbm::bench
