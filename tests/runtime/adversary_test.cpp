// An initiator that obeys no convention writes and reads registers and doorbells, while an all-reduce runs: the result
// is right, or the run is reported as failed; nothing aborts, nothing is left over.
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "ahbm/registers/pe.h"
#include "models/core/ipcq_protocol.h"
#include "models/pe/executor.h"
#include "runtime/distributed/distributed.h"
#include "tests/runtime/machine.h"
#include "tests/support/tlm_stubs.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::Access;
using ahbm::test::now;
using ahbm::test::Outcome;
using ahbm::test::ScriptedInitiator;
using ahbm::test::SimTest;

/// 10^5; AHBM_ADVERSARY_TRANSACTIONS=10000000 for the long run.
uint64_t transactions() {
  const char* n = std::getenv("AHBM_ADVERSARY_TRANSACTIONS");
  return n != nullptr ? std::strtoull(n, nullptr, 10) : 100000;
}

class Adversary {
 public:
  Adversary(const SystemConfig& config, std::vector<ScriptedInitiator*> ports, uint64_t seed)
      : m_config(config), m_ports(std::move(ports)), m_random(seed) {}

  void attack(uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      const Outcome o = m_ports[below(m_ports.size())]->transport(next());
      ++m_statuses[o.status];
      if (o.status == tlm::TLM_INCOMPLETE_RESPONSE) ++unanswered;
      if (below(8) == 0) sc_core::wait(sc_core::sc_time::from_value(below(ns(40))));
    }
  }
  uint64_t unanswered = 0;
  uint64_t refused() const {
    uint64_t n = 0;
    for (const auto& [status, count] : m_statuses) n += status == tlm::TLM_OK_RESPONSE ? 0 : count;
    return n;
  }
  uint64_t accepted() const {
    const auto it = m_statuses.find(tlm::TLM_OK_RESPONSE);
    return it == m_statuses.end() ? 0 : it->second;
  }

 private:
  uint64_t below(uint64_t n) { return m_random() % n; }

  Access next() {
    const PeLocation pe = m_config.pe_location(static_cast<uint32_t>(below(m_config.total_pes())));
    const QpId qp{static_cast<uint32_t>(below(below(4) == 0 ? m_config.ipcq.queue_pairs + 4 : 6))};
    Access a;
    a.command = below(3) == 0 ? tlm::TLM_READ_COMMAND : tlm::TLM_WRITE_COMMAND;
    uint64_t word = m_random() >> below(64);
    switch (below(8)) {
      case 0:
        a.address = pe_sfr_address(pe, below(0x100) & ~uint64_t{7});
        break;
      case 1:
        a.address = qp_reg_address(pe, qp, below(0x68) & ~uint64_t{3});
        break;
      case 2:
      case 3:
        a.address = doorbell_address(pe, qp, ipcq::kNotify);
        word = 32 + below(512);
        break;
      case 4:
        a.address = doorbell_address(pe, qp, ipcq::kCredit);
        word = below(3);
        break;
      case 5:
        a.address = doorbell_address(pe, qp, ipcq::kPush);
        break;
      case 6:
        a.address = cube_base(pe.sip, pe.cube) + addr::kCubeSfr + (below(0x100) & ~uint64_t{3});
        break;
      default:
        a.address = below(2) == 0 ? mailbox_address(pe.sip, static_cast<uint32_t>(below(64)))
                                  : pe_base(pe) + addr::kPeSfr + below(0x800000);
    }
    // Resets and aborts end every all-reduce at once; they come now and then only.
    const Addr offset = a.address & (addr::kPeWindowBytes - 1);
    const bool control =
        offset == addr::kPeSfr + regs::pe::offset::CTRL || (a.address & (addr::kCubeBytes - 1)) == addr::kCubeSfr + 8;
    if (control && below(64) != 0) a.command = tlm::TLM_READ_COMMAND;
    // A full launch queue would make this initiator wait like any other.
    if (offset == addr::kPeSfr + regs::pe::offset::LAUNCH && below(16) != 0) a.command = tlm::TLM_READ_COMMAND;
    const uint64_t length = below(4) != 0 ? 8 : below(2) != 0 ? 4 : 1 + below(72);
    a.data.resize(length);
    for (size_t i = 0; i < length; ++i) a.data[i] = static_cast<uint8_t>(word >> (8 * (i % 8)));
    if (below(16) == 0) a.streaming_width = static_cast<uint32_t>(1 + below(16));
    if (below(16) == 0) {
      a.byte_enables.resize(1 + below(8));
      for (uint8_t& e : a.byte_enables) e = below(2) != 0 ? 0xFF : 0;
    }
    return a;
  }

  const SystemConfig& m_config;
  std::vector<ScriptedInitiator*> m_ports;
  std::mt19937_64 m_random;
  std::map<tlm::tlm_response_status, uint64_t> m_statuses;
};

TEST_F(SimTest, AdversaryOnTheSpareSockets) {
  constexpr uint32_t kSips = 2;
  constexpr uint64_t kCount = 20000;
  SystemConfig c = tiny(kSips);
  c.simulation.stall_limit = us(30);
  Machine m(c);
  std::vector<std::unique_ptr<ScriptedInitiator>> initiators;
  std::vector<ScriptedInitiator*> ports;
  const auto initiator = [&]() -> ScriptedInitiator& {
    initiators.push_back(std::make_unique<ScriptedInitiator>(sc_core::sc_gen_unique_name("adversary")));
    ports.push_back(initiators.back().get());
    return *ports.back();
  };
  for (uint32_t s = 0; s < kSips; ++s) {
    initiator().out.bind(m.system.sip(SipId{s}).spare_in);
    initiator().out.bind(m.system.sip(SipId{s}).cube(CubeId{1}).spare_in);
  }
  initiator().out.bind(m.system.host_bridge.spare_in);

  const uint64_t total = transactions();
  constexpr uint64_t kPerRound = 1000;
  uint64_t right = 0, reported = 0;
  Adversary adversary(c, ports, 7);
  run([&] {
    auto& d = m.ctx.distributed;
    for (uint64_t done = 0; done < total; done += kPerRound) {
      d.init_process_group();
      bool attacking = true;
      // Rounds differ in how much of the operation they meet.
      const Ps delay = done / kPerRound % 7 * us(2);
      const sc_core::sc_process_handle attack = sc_core::sc_spawn([&] {
        sc_core::wait(models::to_sc_time(delay));
        adversary.attack(kPerRound);
        attacking = false;
      });
      bool failed = false;
      uint64_t wrong = 0;
      try {
        m.ctx.spawn(
            [&](uint32_t rank) {
              const Tensor t = m.ctx.full({kCount}, rank + 1.0);
              d.all_reduce(t);
              for (const float v : t.to_host<float>(SipId{rank})) wrong += v != 3.f;
            },
            kSips);
      } catch (const std::runtime_error&) {
        failed = true;
      }
      if (!failed) {
        ASSERT_EQ(wrong, 0u) << "wrong and not reported, round " << done / kPerRound;
      }
      ++(failed ? reported : right);
      while (attacking) sc_core::wait(1, sc_core::SC_US);
      if (d.is_initialized()) d.destroy_process_group();
      // Leaves every PE as new for the next round: launches of the adversary's own may still stand in a queue.
      for (uint32_t s = 0; s < kSips; ++s) m.system.sip_rst_n[s].write(false);
      sc_core::wait(1, sc_core::SC_US);
      for (uint32_t s = 0; s < kSips; ++s) m.system.sip_rst_n[s].write(true);
      sc_core::wait(10, sc_core::SC_US);

      ASSERT_EQ(m.system.payloads().live(), 0u);
      ASSERT_EQ(m.system.host_bridge.transfers_under_way(), 0u);
      ASSERT_EQ(m.device.tags_in_use(), 0u);
      ASSERT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
      for (uint32_t s = 0; s < kSips; ++s) {
        for (uint32_t k = 0; k < c.cubes(); ++k) ASSERT_EQ(m.device.allocator(SipId{s}, CubeId{k}).used(), 0u);
      }
      for (const auto& i : initiators) ASSERT_EQ(i->live(), 0u);
    }
    EXPECT_EQ(adversary.unanswered, 0u);
    EXPECT_GT(adversary.refused(), total / 10);
    EXPECT_GT(adversary.accepted(), total / 10);

    // The machine still works.
    d.init_process_group();
    m.ctx.spawn(
        [&](uint32_t rank) {
          const Tensor t = m.ctx.full({kCount}, rank + 1.0);
          d.all_reduce(t);
          EXPECT_THAT(t.to_host<float>(SipId{rank}), testing::Each(3.f));
        },
        kSips);
  });
  RecordProperty("right", std::to_string(right));
  RecordProperty("reported", std::to_string(reported));
}

}  // namespace
}  // namespace ahbm::runtime::test
