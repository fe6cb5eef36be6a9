// Reads that copy later (models/memory/loan.h) cannot be told from those that copy at once: whoever looks at or changes
// tensors while an all-reduce runs finds the same bytes at the same times.
#include <random>

#include "models/pe/pe.h"
#include "models/pe/tcm.h"
#include "runtime/distributed/distributed.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::now;
using ahbm::test::SimTest;

constexpr uint64_t kCount = 200000;

struct Seen {
  uint64_t hash = 1469598103934665603u;
  uint64_t loans = 0;  ///< under way when somebody looked
  Ps took = 0;
  std::vector<std::vector<float>> results;
  void add(const std::vector<uint8_t>& bytes) {
    for (const uint8_t b : bytes) hash = (hash ^ b) * 1099511628211u;
  }
};

constexpr uint32_t kSips = 2;

SystemConfig config(bool grants, uint64_t scratch_bytes) {
  SystemConfig c = tiny(kSips);
  c.simulation.route_grants = grants;  // loans are only asked for along granted routes
  c.ipcq.sip.slot_bytes = 4096;
  c.pe.tcm_bytes = c.ipcq.ring_bytes + scratch_bytes;
  return c;
}

/// Three all-reduces, while somebody reads TCMs, and reads and writes tensors. In an SC thread.
Seen disturbed(Machine& m, uint64_t seed) {
  const SystemConfig& c = m.system.config();
  Seen seen;
  std::vector<Tensor> tensors(kSips);
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto disturb = [&] {
    const PeLocation pe = c.pe_location(static_cast<uint32_t>(below(c.total_pes())));
    std::vector<uint8_t> bytes(1 + below(4096));
    if (below(3) == 0) {
      // Where operands and results are staged: in which area is up to the engine, but what was borrowed for one that is
      // looked at is copied, and the sum is right.
      const Addr at = pe_base(pe) + c.ipcq.ring_bytes + below(64 << 10);
      m.system.host_bridge.debug_read(at, bytes.data(), bytes.size());
      return;
    }
    const DeviceShard& shard = tensors[value(pe.sip)].handle()->shards()[below(8)];
    const Addr at = shard.address + below(shard.bytes - 4096) / 4 * 4;
    const float v = static_cast<float>(below(100));
    if (below(2) == 0) {
      m.system.host_bridge.debug_read(at, bytes.data(), bytes.size());
      seen.add(bytes);
    } else {
      m.system.host_bridge.debug_write(at, &v, sizeof v);
    }
  };
  auto& d = m.ctx.distributed;
  d.init_process_group();
  const Ps begin = now();
  for (int turn = 0; turn < 3; ++turn) {
    m.ctx.spawn([&](uint32_t rank) { tensors[rank] = m.ctx.full({kCount}, rank + 1.0); }, kSips);
    bool running = true, over = false;
    sc_core::sc_spawn([&] {
      for (; running; sc_core::wait(sc_core::sc_time::from_value(1 + below(ns(200))))) {
        for (uint32_t s = 0; s < kSips; ++s) {
          for (uint32_t k = 0; k < c.cubes(); ++k) {
            seen.loans += m.system.sip(SipId{s}).cube(CubeId{k}).hbm().memory().loans();
          }
        }
        disturb();
      }
      over = true;
    });
    m.ctx.spawn([&](uint32_t rank) { d.all_reduce(tensors[rank]); }, kSips);
    running = false;
    while (!over) sc_core::wait(100, sc_core::SC_NS);
    for (uint32_t r = 0; r < kSips; ++r) seen.results.push_back(tensors[r].to_host<float>(SipId{r}));
  }
  seen.took = now() - begin;
  return seen;
}

class Loans : public SimTest, public testing::WithParamInterface<uint64_t> {};

TEST_P(Loans, CannotBeSeen) {
  Machine lending(config(true, GetParam()), nullptr, {}, "lending");
  Machine copying(config(false, GetParam()), nullptr, {}, "copying");
  Seen a, b;
  run([&] {
    a = disturbed(lending, 5);
    b = disturbed(copying, 5);
  });
  EXPECT_GT(a.loans, 100u) << "nothing was tested";
  EXPECT_EQ(b.loans, 0u);
  EXPECT_EQ(a.took, b.took);
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.results, b.results);
}

// Room for all pieces under way, and for four or five of them.
INSTANTIATE_TEST_SUITE_P(Scratch, Loans, testing::Values(1 << 20, 20 << 10), testing::PrintToStringParamName());

}  // namespace
}  // namespace ahbm::runtime::test
