// PEs on a bus of a test: no fabric, a known latency, a scripted memory in the place of the HBM and of the mailbox.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <memory>
#include <vector>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/ipcq/ipcq.h"
#include "models/pe/executor.h"
#include "models/pe/pe.h"
#include "tests/support/sim_test.h"
#include "tests/support/tlm_stubs.h"

namespace ahbm::test {

/// Forwards by PE window, everything else to the memory; adds `latency` once on the way there.
class TestBus : public sc_core::sc_module {
 public:
  TestBus(const sc_core::sc_module_name& name, uint32_t initiators, uint32_t pes) : sc_core::sc_module(name) {
    for (uint32_t i = 0; i < initiators; ++i) {
      in.push_back(std::make_unique<tlm_utils::simple_target_socket<TestBus>>(("in" + std::to_string(i)).c_str()));
      in.back()->register_b_transport(this, &TestBus::b_transport);
      in.back()->register_transport_dbg(this, &TestBus::transport_dbg);
    }
    for (uint32_t i = 0; i < pes; ++i) {
      to_pe.push_back(
          std::make_unique<tlm_utils::simple_initiator_socket<TestBus>>(("pe" + std::to_string(i)).c_str()));
    }
  }
  std::vector<std::unique_ptr<tlm_utils::simple_target_socket<TestBus>>> in;
  std::vector<std::unique_ptr<tlm_utils::simple_initiator_socket<TestBus>>> to_pe;
  tlm_utils::simple_initiator_socket<TestBus> to_memory{"to_memory"};
  Ps latency = 0;
  uint64_t transactions = 0;

 private:
  tlm_utils::simple_initiator_socket<TestBus>& route(uint64_t address) {
    const uint64_t in_cube = address & (addr::kCubeBytes - 1);
    if (in_cube < addr::kPeWindows || in_cube >= addr::kCubeSfr) return to_memory;
    const uint64_t pe = (in_cube - addr::kPeWindows) / addr::kPeWindowBytes;
    return pe < to_pe.size() ? *to_pe[pe] : to_memory;
  }
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    ++transactions;
    {
      models::TransitScope transit(trans, delay);
      transit->shift(latency);
      if (auto* notify = trans.get_extension<models::IpcqNotify>()) notify->doorbell.shift(latency);
    }
    if (auto* grant = trans.get_extension<models::RouteGrant>()) grant->refused = true;
    route(trans.get_address())->b_transport(trans, delay);
  }
  unsigned transport_dbg(tlm::tlm_generic_payload& trans) { return route(trans.get_address())->transport_dbg(trans); }
};

class PeBench {
 public:
  static constexpr uint64_t kMemory = addr::kGlobalBit;

  PeBench(const SystemConfig& c, uint32_t n_pes)
      : config(c),
        bus("bus", n_pes + 1, n_pes),
        host("host"),
        memory("memory", kMemory, uint64_t{1} << 34),
        rst_n("rst_n", true) {
    services.config = &config;
    services.kernels = &kernels;
    services.payloads = &payloads;
    services.progress = &progress;
    services.route_epoch = &route_epoch;
    bus.to_memory.bind(memory.in);
    host.out.bind(*bus.in[n_pes]);
    for (uint32_t i = 0; i < n_pes; ++i) {
      irq.push_back(std::make_unique<sc_core::sc_signal<bool>>(("irq" + std::to_string(i)).c_str()));
      pe.push_back(std::make_unique<models::Pe>(("pe" + std::to_string(i)).c_str(), services, location(i)));
      pe[i]->xbar_out.bind(*bus.in[i]);
      bus.to_pe[i]->bind(pe[i]->xbar_in);
      pe[i]->rst_n(rst_n);
      pe[i]->irq_out(*irq[i]);
    }
  }
  static PeLocation location(uint32_t pe) { return {SipId{0}, CubeId{0}, PeId{pe}}; }

  void reg32(uint64_t address, uint32_t v) { check(host.write_value(address, v)); }
  void reg64(uint64_t address, uint64_t v) { check(host.write_value(address, v)); }
  void sfr32(uint32_t pe_index, uint32_t offset, uint32_t v) { reg32(pe_sfr_address(location(pe_index), offset), v); }
  template <typename T>
  T sfr(uint32_t pe_index, uint32_t offset) {
    return host.read_value<T>(pe_sfr_address(location(pe_index), offset));
  }
  uint64_t qp(uint32_t pe_index, uint32_t q, uint32_t offset) {
    return host.read_value<uint32_t>(qp_reg_address(location(pe_index), QpId{q}, offset));
  }

  /// Joins QP `qa` of PE a with QP `qb` of PE b; both rings have `slots` of `slot_bytes`, at the given TCM offsets.
  void connect(uint32_t a, uint32_t qa, uint64_t ring_a, uint32_t b, uint32_t qb, uint64_t ring_b, uint32_t slots,
               uint32_t slot_bytes) {
    half(a, qa, ring_a, b, qb, ring_b, slots, slot_bytes);
    half(b, qb, ring_b, a, qa, ring_a, slots, slot_bytes);
    for (const auto& [p, q] : {std::pair{a, qa}, std::pair{b, qb}}) {
      reg32(qp_reg_address(location(p), QpId{q}, regs::qp::offset::CTRL), 1);
    }
  }

  /// Writes argument block and descriptor of a launch. `links`: direction, QP, peer, slots.
  void launch(uint32_t pe_index, const char* kernel, const std::vector<uint64_t>& args,
              const std::vector<ahbm::launch::LinkEntry>& links, uint32_t tag) {
    const uint32_t id = kernels.find(kernel) != nullptr ? kernels.find(kernel)->id : 999;
    ahbm::launch::ArgHeader h;
    h.n_args = static_cast<uint32_t>(args.size());
    h.n_links = static_cast<uint32_t>(links.size());
    h.group = 1;
    h.seq = 5;
    std::vector<uint8_t> block(sizeof h + args.size() * 8 + links.size() * sizeof(ahbm::launch::LinkEntry));
    std::memcpy(block.data(), &h, sizeof h);
    auto append = [at = block.data() + sizeof h](const auto& values) mutable {
      const size_t bytes = values.size() * sizeof(values[0]);
      if (bytes != 0) std::memcpy(at, values.data(), bytes);  // an empty vector may have no address
      at += bytes;
    };
    append(args);
    append(links);
    const uint64_t at = kArguments + tag * 4096;
    memory.poke(at, block);
    ahbm::launch::Descriptor d;
    d.kernel_id = id;
    d.arg_address = at;
    d.arg_bytes = static_cast<uint32_t>(block.size());
    d.tag = tag;
    d.completion_address = completion_address(tag);
    check(post(pe_index, d));
  }
  Outcome post(uint32_t pe_index, const ahbm::launch::Descriptor& d) {
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = pe_sfr_address(location(pe_index), regs::pe::offset::LAUNCH);
    a.data.resize(sizeof d);
    std::memcpy(a.data.data(), &d, sizeof d);
    a.streaming_width = 8;
    return host.transport(a);
  }
  static uint64_t completion_address(uint32_t tag) { return kMemory + (uint64_t{1} << 33) + tag * 8; }
  ahbm::launch::Completion completion(uint32_t tag) const {
    ahbm::launch::Completion c;
    std::memcpy(&c, memory.peek(completion_address(tag), 8).data(), 8);
    return c;
  }
  /// Waits until `n` completions have been written; returns the arrival of the last.
  Ps wait_completions(size_t n) {
    for (;;) {
      size_t seen = 0;
      Ps last = 0;
      for (const Arrival& a : memory.arrivals) {
        if (a.command != tlm::TLM_WRITE_COMMAND || a.address < completion_address(0)) continue;
        ++seen;
        last = a.tail;
      }
      if (seen >= n) return last;
      sc_core::wait(sc_core::sc_time(100, sc_core::SC_NS));
    }
  }
  static void check(const Outcome& o) {
    if (!o.ok()) throw std::runtime_error("unexpected response");
  }

  static constexpr uint64_t kArguments = kMemory + 0x10000000;
  SystemConfig config;
  tl::KernelRegistry kernels;
  models::PayloadPool payloads;
  Progress progress;
  uint64_t route_epoch = 0;
  models::SystemServices services;
  TestBus bus;
  ScriptedInitiator host;
  ScriptedTarget memory;
  sc_core::sc_signal<bool, sc_core::SC_MANY_WRITERS> rst_n;
  std::vector<std::unique_ptr<sc_core::sc_signal<bool>>> irq;
  std::vector<std::unique_ptr<models::Pe>> pe;

 private:
  void half(uint32_t self, uint32_t q, uint64_t ring, uint32_t peer, uint32_t peer_q, uint64_t peer_ring,
            uint32_t slots, uint32_t slot_bytes) {
    namespace o = regs::qp::offset;
    const auto at = [&](uint32_t offset) { return qp_reg_address(location(self), QpId{q}, offset); };
    reg32(at(o::PEER_QP), peer_q);
    reg64(at(o::PEER_PE), pe_base(location(peer)));
    reg64(at(o::PEER_RING), tcm_address(location(peer), peer_ring));
    reg32(at(o::PEER_SLOTS), slots);
    reg32(at(o::SLOT_BYTES), slot_bytes);
    reg64(at(o::RING), ring);
    reg32(at(o::SLOTS), slots);
  }
};

inline launch::LinkEntry link(tl::Dir dir, uint32_t qp, uint32_t peer, uint32_t slots, uint32_t slot_bytes) {
  launch::LinkEntry e;
  e.dir = static_cast<uint16_t>(dir);
  e.qp = static_cast<uint16_t>(qp);
  e.peer_flat_pe = peer;
  e.n_slots = slots;
  e.slot_bytes = slot_bytes;
  return e;
}

/// One SIP of one cube with four PEs, everything at its default, and with state fetched ahead as on a large machine.
inline SystemConfig bench_config() {
  SystemConfig c;
  c.pes_in_host_caches = 0;
  c.sips = c.sip_w = 1;
  c.cube_w = c.cube_h = 1;
  c.pes = 4;
  c.sip_ports = {{Side::E, CubeId{0}}, {Side::W, CubeId{0}}, {Side::N, CubeId{0}}, {Side::S, CubeId{0}}};
  return c;
}

}  // namespace ahbm::test
