// The decisions D1..D8 of ADR-0047 and what was decided beside them, one by one.
#include "runtime/distributed/distributed.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "ahbm/registers/qp.h"
#include "models/pe/executor.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using ahbm::test::now;
using ahbm::test::SimTest;
using distributed::InitStep;
using testing::ElementsAre;
using testing::HasSubstr;

class DistributedTest : public GroupTest {
 protected:
  /// A ccl.yaml of this test.
  static std::string ccl_file(const std::string& text) {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    const std::string path = testing::TempDir() + "/" + info->name() + ".yaml";
    std::ofstream(path) << text;
    return path;
  }
  static std::string ccl_with(const std::string& defaults, const std::string& ring = "") {
    return ccl_file("defaults: {algorithm: ring" + (defaults.empty() ? "" : ", " + defaults) +
                    "}\nalgorithms:\n  ring: {module: ring" + (ring.empty() ? "" : ", " + ring) +
                    "}\n  intercube: {module: intercube}\n");
  }
  /// Queue pairs of PE 0s whose configuration or control is not zero, by debug reads.
  static uint64_t configured_queue_pairs(Machine& m) {
    const SystemConfig& c = m.device.config();
    uint64_t n = 0;
    for (uint32_t s = 0; s < c.sips; ++s) {
      for (uint32_t k = 0; k < c.cubes(); ++k) {
        for (uint32_t q = 0; q < c.ipcq.queue_pairs; ++q) {
          const PeLocation pe{SipId{s}, CubeId{k}, PeId{0}};
          bool any = false;
          for (const uint64_t offset :
               {regs::qp::offset::CTRL, regs::qp::offset::PEER_QP, regs::qp::offset::PEER_PE,
                regs::qp::offset::PEER_RING, regs::qp::offset::PEER_SLOTS, regs::qp::offset::SLOT_BYTES,
                regs::qp::offset::RING, regs::qp::offset::SLOTS}) {
            uint32_t word = 0;
            EXPECT_EQ(m.system.host_bridge.debug_read(qp_reg_address(pe, QpId{q}, offset), &word, 4), 4u);
            any = any || word != 0;
          }
          n += any;
        }
      }
    }
    return n;
  }
  static constexpr const char* kNotInitialized = "Default process group has not been initialized";
};

// --- D1

TEST_F(DistributedTest, D1_NothingExistsBeforeInit) {
  SystemConfig c = tiny(2);
  c.ccl_file.clear();  // a program without collectives needs no ccl.yaml
  Machine m(c);
  run([&] {
    auto& d = m.ctx.distributed;
    EXPECT_FALSE(d.is_initialized());
    EXPECT_EQ(d.get_rank(), 0u);
    const Tensor t = m.ctx.ones({4});
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.get_world_size(); }), HasSubstr(kNotInitialized));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.get_backend(); }), HasSubstr(kNotInitialized));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.all_reduce(t); }), HasSubstr(kNotInitialized));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.all_reduce(t, "nonsense"); }), HasSubstr(kNotInitialized));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.barrier(); }), HasSubstr(kNotInitialized));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.destroy_process_group(); }), HasSubstr(kNotInitialized));
    EXPECT_EQ(configured_queue_pairs(m), 0u);
  });
}

TEST_F(DistributedTest, D1_OtherBackendsAreRefusedBeforeTheBinding) {
  Machine m(tiny(1));
  run([&] {
    distributed::DistributedContext alone;
    for (const char* name : {"nccl", "gloo", "", "AHBM"}) {
      EXPECT_THAT(message_of<std::invalid_argument>([&] { m.ctx.distributed.init_process_group(name); }),
                  HasSubstr(std::string("Unsupported backend '") + name + "'"));
      EXPECT_THAT(message_of<std::invalid_argument>([&] { alone.init_process_group(name); }),
                  HasSubstr("Unsupported backend"));
    }
    EXPECT_THAT(message_of<std::runtime_error>([&] { alone.init_process_group("ahbm"); }),
                HasSubstr("not bound to a RuntimeContext"));
    EXPECT_FALSE(alone.is_initialized());
    EXPECT_EQ(alone.get_rank(), 0u);
  });
}

// --- D2

TEST_F(DistributedTest, D2_WorldSizeAlgorithmThenDefaultsThenTopology) {
  Machine m(tiny(4));
  run([&] {
    auto& d = m.ctx.distributed;
    const auto world = [&](const std::string& file) {
      d.set_ccl_file(file);
      d.init_process_group("ahbm", 17, 5);  // accepted and ignored
      const uint32_t n = d.get_world_size();
      EXPECT_EQ(d.rank_mode(), distributed::RankMode::Sip);
      d.destroy_process_group();
      return n;
    };
    EXPECT_EQ(world(ccl_with("")), 4u);
    EXPECT_EQ(world(ccl_with("world_size: 3")), 3u);
    EXPECT_EQ(world(ccl_with("world_size: 3", "world_size: 2")), 2u);
  });
}

TEST_F(DistributedTest, D2_ASmallerWorldIsTheFirstSips) {
  Machine m(tiny(4));
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_ccl_file(ccl_with("world_size: 3"));
    d.init_process_group();
    std::vector<float> seen(3);
    m.ctx.spawn(
        [&](uint32_t rank) {
          const Tensor t = m.ctx.full({5}, rank + 1.0);
          d.all_reduce(t);
          seen[rank] = t.to_host<float>()[4];
        },
        3);
    EXPECT_THAT(seen, ElementsAre(6, 6, 6));
    EXPECT_THAT(message_of<std::runtime_error>([&] {
                  m.ctx.spawn(
                      [&](uint32_t rank) {
                        if (rank == 3) d.all_reduce(m.ctx.ones({5}));
                      },
                      4);
                }),
                HasSubstr("rank 3 is not in the process group of world size 3"));
  });
}

TEST_F(DistributedTest, D2_MoreRanksThanSipsOrPes) {
  Machine m(tiny(2));  // 16 PEs
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_ccl_file(ccl_with("world_size: 17"));
    EXPECT_THAT(message_of<std::invalid_argument>([&] { d.init_process_group(); }),
                testing::AllOf(HasSubstr("world_size 17"), HasSubstr("16 PEs")));
    d.set_ccl_file(ccl_with("world_size: 3, rank: sip"));
    EXPECT_THAT(message_of<std::invalid_argument>([&] { d.init_process_group(); }), HasSubstr("2 SIPs"));
    EXPECT_FALSE(d.is_initialized());
    for (const char* flat : {"world_size: 3", "rank: pe"}) {
      d.set_ccl_file(ccl_with(flat));
      d.init_process_group();
      EXPECT_EQ(d.rank_mode(), distributed::RankMode::Pe) << flat;
      d.destroy_process_group();
    }
  });
}

// --- D3

TEST_F(DistributedTest, D3_InitInstallsNeighboursOnPe0OfEveryCube) {
  Machine m(tiny(2));
  run([&] {
    m.ctx.distributed.init_process_group();
    // 2 x 2 cubes: two mesh neighbours each; a ring of two SIPs has one cable: one more.
    EXPECT_EQ(configured_queue_pairs(m), 2u * 4u * 3u);
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 24u);
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use({SipId{0}, CubeId{0}, PeId{1}}), 0u);
    m.ctx.distributed.destroy_process_group();
    EXPECT_EQ(configured_queue_pairs(m), 0u);
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
  });
}

TEST_F(DistributedTest, D3_EveryStepMayFailAndLeavesNothing) {
  Machine m(tiny(3));
  run([&] {
    auto& d = m.ctx.distributed;
    std::vector<InitStep> seen;
    for (const InitStep failing : {InitStep::LoadConfig, InitStep::ResolveModule, InitStep::WorldSize,
                                   InitStep::TopologyFacts, InitStep::Install}) {
      seen.clear();
      d.before_step = [&](InitStep s) {
        seen.push_back(s);
        if (s == failing) throw std::runtime_error("injected");
      };
      EXPECT_EQ(message_of<std::runtime_error>([&] { d.init_process_group(); }), "injected");
      EXPECT_EQ(seen.size(), static_cast<size_t>(failing) + 1);  // in this order, and none after it
      EXPECT_EQ(seen.back(), failing);
      EXPECT_FALSE(d.is_initialized());
      EXPECT_EQ(configured_queue_pairs(m), 0u);
      EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
    }
    d.before_step = nullptr;
    d.init_process_group();
    EXPECT_TRUE(d.is_initialized());
  });
}

TEST_F(DistributedTest, D3_AWriteThatFailsMidwayReturnsEverythingToReset) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    uint64_t writes = 0;
    m.device.before_bus_write = [&](Addr) { ++writes; };
    d.init_process_group();
    d.destroy_process_group();
    const uint64_t total = writes / 2;
    ASSERT_GT(total, 100u);
    for (const uint64_t failing : {uint64_t{1}, uint64_t{2}, total / 3, total / 2, total - 30}) {
      writes = 0;
      m.device.before_bus_write = [&](Addr address) {
        if (++writes == failing) throw std::runtime_error("the bus broke at " + std::to_string(address));
      };
      EXPECT_THAT(message_of<std::runtime_error>([&] { d.init_process_group(); }), HasSubstr("the bus broke"));
      EXPECT_FALSE(d.is_initialized());
      EXPECT_EQ(configured_queue_pairs(m), 0u) << "write " << failing << " of " << total;
      EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
    }
    m.device.before_bus_write = nullptr;
    d.init_process_group();
    const Tensor t = m.ctx.ones({100}, DType::Float32, everywhere());
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(SipId{1}), testing::Each(2.f));
  });
}

TEST_F(DistributedTest, D3_ConfigurationMistakesAreNamed) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    const auto init = [&] { d.init_process_group(); };
    d.set_ccl_file("/nonexistent/ccl.yaml");
    EXPECT_THAT(message_of<ConfigError>(init), HasSubstr("/nonexistent/ccl.yaml"));
    d.set_ccl_file(ccl_file("defaults: {algorithm: ring, world_sise: 2}\nalgorithms: {ring: {module: ring}}\n"));
    EXPECT_THAT(message_of<ConfigError>(init),
                testing::AllOf(HasSubstr(":1:"), HasSubstr("world_sise"), HasSubstr("did you mean 'world_size'?")));
    d.set_ccl_file(ccl_file("defaults: {algorithm: rign}\nalgorithms: {ring: {module: ring}}\n"));
    EXPECT_THAT(message_of<ConfigError>(init),
                HasSubstr("'rign' has no entry under algorithms (did you mean 'ring'?)"));
    d.set_ccl_file(ccl_file("defaults: {algorithm: ring}\nalgorithms: {ring: {module: rings}}\n"));
    EXPECT_THAT(message_of<std::invalid_argument>(init),
                HasSubstr("no module is called 'rings' (did you mean 'ring'?)"));
    d.set_ccl_file(ccl_file("defaults: {algorithm: ring}\nalgorithms: {ring: {}}\n"));
    EXPECT_THAT(message_of<ConfigError>(init), HasSubstr("algorithms.ring.module is missing"));
    d.set_ccl_file(ccl_file("algorithms: {ring: {module: ring}}\n"));
    EXPECT_THAT(message_of<ConfigError>(init), HasSubstr("defaults.algorithm is missing"));
    d.set_ccl_file(ccl_with("barrier: sometimes"));
    EXPECT_THAT(message_of<ConfigError>(init), HasSubstr("sometimes"));
    EXPECT_FALSE(d.is_initialized());
    EXPECT_EQ(configured_queue_pairs(m), 0u);
    d.set_ccl_file({});
    d.init_process_group();
    EXPECT_TRUE(d.is_initialized());
  });
}

TEST_F(DistributedTest, D3_TopologyFactsWantAWholeGrid) {
  SystemConfig c = tiny(6);
  c.topology = SipTopology::Torus2d;
  c.sip_w = 3;
  c.sip_h = 2;
  const distributed::TopologyFacts f = distributed::topology_facts(c);
  EXPECT_EQ(f.sip_w, 3u);
  EXPECT_EQ(f.cube_h, 2u);
  c.sip_w = 4;
  EXPECT_THAT(message_of<std::invalid_argument>([&] { distributed::topology_facts(c); }),
              HasSubstr("torus_2d of 4 x 2 does not have the machine's 6 SIPs"));
  run([] {});
}

// --- D4

TEST_F(DistributedTest, D4_RanksAreBoundToThreads) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    std::set<uint32_t> seen;
    const auto own = [&](uint32_t rank) {
      d.bind_rank(rank);
      sc_core::wait(10, sc_core::SC_NS);
      seen.insert(d.get_rank());
    };
    sc_core::sc_process_handle a = sc_core::sc_spawn([&] { own(0); });
    sc_core::sc_process_handle b = sc_core::sc_spawn([&] { own(1); });
    sc_core::wait(a.terminated_event() & b.terminated_event());
    EXPECT_THAT(seen, ElementsAre(0, 1));
    EXPECT_EQ(d.get_rank(), 0u);
    d.unbind_rank(b);
    EXPECT_FALSE(d.is_bound(b));
  });
}

TEST_F(DistributedTest, D4_UsersOwnThreadsReduceLikeSpawnedOnes) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    std::vector<float> got(2);
    const auto body = [&](uint32_t rank) {
      d.bind_rank(rank);
      const Tensor t = m.ctx.full({3}, rank + 1.0);
      d.all_reduce(t);
      got[rank] = t.to_host<float>()[0];
    };
    sc_core::sc_process_handle a = sc_core::sc_spawn([&] { body(0); });
    sc_core::sc_process_handle b = sc_core::sc_spawn([&] { body(1); });
    sc_core::wait(a.terminated_event() & b.terminated_event());
    EXPECT_THAT(got, ElementsAre(3, 3));
  });
}

// --- D5

TEST_F(DistributedTest, D5_ValidationInTheSeedsOrder) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    const Tensor bare({4}, DType::Float32);
    EXPECT_THAT(message_of<NotImplementedError>([&] { d.all_reduce(bare, "bxor"); }), HasSubstr("'bxor'"));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.all_reduce(bare); }), HasSubstr("not deployed"));
    const Tensor empty({4}, DType::Float32, {}, std::make_shared<TensorHandle>(m.device));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.all_reduce(empty); }), HasSubstr("no shards"));
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.all_reduce(m.ctx.ones({4})); }),
                HasSubstr("no shards on SIP 1 of rank 1"));
    // None of these was a call: the next one pairs up.
    const Tensor t = m.ctx.ones({4}, DType::Float32, everywhere());
    EXPECT_EQ(d.all_reduce(t).record().seq, 0u);
  });
}

TEST_F(DistributedTest, D5_AnOpThatTheAlgorithmDoesNotDoIsNeverASum) {
  Machine m(tiny(2));
  ccl::Registry sum_only;
  ccl::AlgorithmModule module = *m.algorithms.find("ring");
  module.ops = {ReduceOp::Sum};
  sum_only.add(module);
  Context ctx(m.device, &sum_only);
  run([&] {
    ctx.distributed.set_ccl_file(ccl_file("defaults: {algorithm: ring}\nalgorithms: {ring: {module: ring}}\n"));
    ctx.distributed.init_process_group();
    const Tensor t = ctx.ones({4}, DType::Float32, everywhere());
    for (const char* op : {"max", "min", "avg", "product", "prod"}) {
      EXPECT_THAT(message_of<NotImplementedError>([&] { ctx.distributed.all_reduce(t, op); }),
                  HasSubstr("algorithm ring does not do op"));
    }
    EXPECT_THAT(t.to_host<float>(), testing::Each(1.f));
    ctx.distributed.all_reduce(t, "sum");
    EXPECT_THAT(t.to_host<float>(), testing::Each(2.f));
  });
}

TEST_F(DistributedTest, D5_DriverReducesEverySipAndDrainsInline) {
  Machine m(tiny(4));
  in_group(m, [&](auto& d) {
    const Tensor t = m.ctx.zeros({257}, DType::Int32, everywhere());
    for (uint32_t s = 0; s < 4; ++s) t.upload(SipId{s}, std::vector<int32_t>(257, 1 << s));
    const distributed::Work work = d.all_reduce(t);
    EXPECT_TRUE(work.is_completed());
    for (uint32_t s = 0; s < 4; ++s) EXPECT_THAT(t.to_host<int32_t>(SipId{s}), testing::Each(15));
    EXPECT_EQ(work.record().world_size, 4u);
    EXPECT_EQ(work.record().bytes, 257u * 4);
    EXPECT_TRUE(work.record().complete());
    EXPECT_LT(work.record().start, work.record().end);
  });
}

TEST_F(DistributedTest, D5_LaunchIsDeferredToTheLastCallAtNoCost) {
  Machine m(tiny(3));
  in_group(m, [&](auto& d) {
    Ps last_call = 0;
    distributed::CollectiveRecord record;
    d.on_collective = [&](const distributed::CollectiveRecord& r) { record = r; };
    m.ctx.spawn(
        [&](uint32_t rank) {
          const Tensor t = m.ctx.full({1000}, rank);
          sc_core::wait(10 * (rank == 1 ? 1 : rank == 2 ? 5 : 0), sc_core::SC_US);
          last_call = std::max(last_call, now());
          d.all_reduce(t);
          EXPECT_THAT(t.to_host<float>(), testing::Each(3.f));
        },
        3);
    ASSERT_EQ(record.spans.size(), 3u);
    Ps first = record.spans[0].start, last = 0;
    for (const auto& span : record.spans) {
      EXPECT_GE(span.start, last_call);
      EXPECT_GT(span.end, span.start);
      first = std::min(first, span.start);
      last = std::max(last, span.end);
    }
    EXPECT_EQ(record.start, first);
    EXPECT_EQ(record.end, last);
    EXPECT_GE(record.start, last_call);
    EXPECT_LT(record.start, last_call + ns(100));  // the argument blocks' serialisation
    EXPECT_THAT(record.selection, HasSubstr(record.algorithm + " for all_reduce of 4000 bytes on 3 ranks"));
    // The root of a broadcast is through when its data has left.
    m.ctx.spawn([&](uint32_t) { d.broadcast(m.ctx.ones({1000}), 0); }, 3);
    EXPECT_LT(record.spans[0].end, record.spans[1].end);
    EXPECT_EQ(record.end, std::max(record.spans[1].end, record.spans[2].end));
  });
}

TEST_F(DistributedTest, D5_OneCubeCountsAsOneByOne) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    // One cube, whatever its policy, launches on that cube only.
    for (const CubePolicy cube : {CubePolicy::RowWise, CubePolicy::Replicate, CubePolicy::Partial}) {
      const Tensor t = m.ctx.full({9}, 2, DType::Float32, everywhere(policy(cube, PePolicy::RowWise, 1)));
      const distributed::Work w = d.all_reduce(t);
      EXPECT_EQ(w.record().layout, ccl::CubeLayout::Sharded);
      for (const SipId sip : {SipId{0}, SipId{1}}) EXPECT_THAT(t.to_host<float>(sip), testing::Each(4.f));
      uint64_t kernels = 0;
      for (uint32_t c = 1; c < 4; ++c)
        kernels += m.system.pe({SipId{0}, CubeId{c}, PeId{0}}).executor().stats().kernels;
      EXPECT_EQ(kernels, 0u);
    }
  });
}

TEST_F(DistributedTest, D5_AsyncWorkRunsBesideAndKeepsTheOrder) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    m.ctx.spawn(
        [&](uint32_t rank) {
          const Tensor a = m.ctx.full({5000}, rank + 1.0);
          const Tensor b = m.ctx.full({10}, rank + 10.0);
          const Ps before = now();
          const distributed::Work first = d.all_reduce(a, "sum", true);
          const distributed::Work second = d.all_reduce(b, "max", true);
          EXPECT_EQ(now(), before);
          EXPECT_FALSE(first.is_completed());
          second.wait();
          first.wait();
          EXPECT_EQ(first.record().seq + 1, second.record().seq);
          EXPECT_THAT(a.to_host<float>(), testing::Each(3.f));
          EXPECT_THAT(b.to_host<float>(), testing::Each(11.f));
        },
        2);
    // What nobody waited for is drained when the threads are joined.
    std::vector<Tensor> kept(2);
    std::vector<distributed::Work> works(2);
    m.ctx.spawn(
        [&](uint32_t rank) {
          kept[rank] = m.ctx.full({5000}, 1);
          works[rank] = d.all_reduce(kept[rank], "sum", true);
        },
        2);
    EXPECT_TRUE(works[0].is_completed());
    EXPECT_TRUE(works[1].is_completed());
    EXPECT_THAT(kept[1].to_host<float>(), testing::Each(2.f));
  });
}

TEST_F(DistributedTest, D5_ATensorOnAnotherRanksSipIsRefused) {
  Machine m(tiny(2));
  run([&] {
    m.ctx.distributed.init_process_group();
    const std::string text = message_of<std::runtime_error>([&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            m.ctx.set_device(0);
            m.ctx.distributed.all_reduce(m.ctx.full({4}, rank));
          },
          2);
    });
    EXPECT_THAT(text, HasSubstr("rank 1 is SIP 1, but its tensor lies on SIP 0"));
  });
}

// --- D6, D7

TEST_F(DistributedTest, D6_BarrierTakesNoTimeAndD7_Answers) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    EXPECT_EQ(d.get_backend(), "ahbm");
    EXPECT_EQ(d.get_world_size(), 2u);
    EXPECT_EQ(d.get_rank(), 0u);
    m.ctx.spawn(
        [&](uint32_t rank) {
          sc_core::wait(rank * 10.0, sc_core::SC_NS);
          const Ps before = now();
          d.barrier();
          EXPECT_EQ(now(), before);
          EXPECT_EQ(d.get_rank(), rank);
        },
        2);
    d.barrier();
  });
}

// --- decided beside them

TEST_F(DistributedTest, EachRankInitsAndDestroysLikeADdpScript) {
  Machine m(tiny(3));
  run([&] {
    auto& d = m.ctx.distributed;
    uint64_t writes = 0;
    m.device.before_bus_write = [&](Addr) { ++writes; };
    std::vector<std::vector<float>> sums(3);
    const auto script = [&](uint32_t rank) {
      for (int round = 0; round < 3; ++round) {
        d.init_process_group("ahbm", 3, rank);
        EXPECT_TRUE(d.is_initialized());
        EXPECT_THAT(message_of<std::runtime_error>([&] { d.init_process_group("ahbm"); }),
                    HasSubstr("was called by this thread already"));
        const Tensor t = m.ctx.full({100}, rank + 1.0);
        d.all_reduce(t);
        sums[rank].push_back(t.to_host<float>()[99]);
        d.destroy_process_group();
        EXPECT_FALSE(d.is_initialized());
      }
    };
    m.ctx.spawn(script, 3);
    for (const auto& s : sums) EXPECT_THAT(s, ElementsAre(6, 6, 6));
    EXPECT_EQ(configured_queue_pairs(m), 0u);
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
    EXPECT_FALSE(d.is_initialized());
    m.device.before_bus_write = nullptr;
  });
}

TEST_F(DistributedTest, RanksJoinAGroupThatTheDriverMade) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    m.ctx.spawn(
        [&](uint32_t rank) {
          d.init_process_group();
          const Tensor t = m.ctx.full({4}, rank);
          d.all_reduce(t);
          EXPECT_THAT(t.to_host<float>(), testing::Each(1.f));
          d.destroy_process_group();
        },
        2);
    EXPECT_TRUE(d.is_initialized());  // the driver is still in it
    d.destroy_process_group();
    EXPECT_FALSE(d.is_initialized());
  });
}

TEST_F(DistributedTest, AFailedInitOfOneRankFailsTheRun) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_ccl_file("/nonexistent.yaml");
    EXPECT_THAT(message_of<ConfigError>([&] { m.ctx.spawn([&](uint32_t) { d.init_process_group(); }, 2); }),
                HasSubstr("rank 0 at"));
    d.set_ccl_file({});
    m.ctx.spawn([&](uint32_t) { d.init_process_group(); }, 2);
    EXPECT_TRUE(d.is_initialized());
  });
}

// Collectives 20: destroy, init with another world size, ten times; everything returns.
TEST_F(DistributedTest, DestroyAndInitAgainWithAnotherWorldTenTimes) {
  Machine m(tiny(4));
  run([&] {
    auto& d = m.ctx.distributed;
    for (int i = 0; i < 10; ++i) {
      const uint32_t world = 1 + static_cast<uint32_t>(i) % 4;
      d.set_ccl_file(ccl_with("world_size: " + std::to_string(world)));
      d.init_process_group();
      ASSERT_EQ(d.get_world_size(), world);
      const Tensor t = m.ctx.ones({1001}, DType::Int32, everywhere());
      EXPECT_EQ(d.all_reduce(t).record().seq, 0u);
      EXPECT_THAT(t.to_host<int32_t>(SipId{0}), testing::Each(static_cast<int32_t>(world)));
      EXPECT_THAT(t.to_host<int32_t>(SipId{3}), testing::Each(world == 4 ? 4 : 1));
      d.destroy_process_group();
      EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
      EXPECT_EQ(configured_queue_pairs(m), 0u);
    }
    EXPECT_EQ(m.device.tags_in_use(), 0u);
    for (uint32_t c = 0; c < 4; ++c) EXPECT_EQ(m.device.allocator(SipId{0}, CubeId{c}).used(), 0u);
  });
}

TEST_F(DistributedTest, TwoContextsReduceAtOnce) {
  Machine m(tiny(2));
  Context other(m.device);
  run([&] {
    m.ctx.distributed.init_process_group();
    other.distributed.init_process_group();
    const auto reduce = [](Context& ctx, double value) {
      ctx.spawn(
          [&ctx, value](uint32_t rank) {
            for (int i = 0; i < 5; ++i) {
              const Tensor t = ctx.full({3000}, value + rank);
              ctx.distributed.all_reduce(t);
              EXPECT_THAT(t.to_host<float>(), testing::Each(static_cast<float>(2 * value + 1)));
            }
          },
          2);
    };
    bool done = false;
    sc_core::sc_event ended;
    sc_core::sc_spawn([&] {
      reduce(other, 100);
      done = true;
      ended.notify(sc_core::SC_ZERO_TIME);
    });
    reduce(m.ctx, 1);
    if (!done) sc_core::wait(ended);
    other.distributed.destroy_process_group();
    const Tensor t = m.ctx.ones({8}, DType::Float32, everywhere());
    m.ctx.distributed.all_reduce(t);  // the other group's end took nothing of this one
    EXPECT_THAT(t.to_host<float>(), testing::Each(2.f));
  });
}

// Collectives 1: different counts; named, and no buffer is touched.
TEST_F(DistributedTest, DifferentShapesNameBothRanksAndTouchNothing) {
  Machine m(tiny(4));
  in_group(m, [&](auto& d) {
    std::vector<Tensor> kept(4);
    const std::string text = message_of<std::runtime_error>([&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            kept[rank] = m.ctx.full({rank == 0 ? 100u : 200u}, rank);
            d.all_reduce(kept[rank]);
          },
          4);
    });
    EXPECT_THAT(text, HasSubstr("op #0 (all_reduce): shape differs between ranks"));
    EXPECT_THAT(text, HasSubstr("rank 0 has (100,)"));
    EXPECT_THAT(text, HasSubstr("has (200,)"));
    for (uint32_t r = 0; r < 4; ++r) EXPECT_THAT(kept[r].to_host<float>(), testing::Each(static_cast<float>(r)));
    // The group has failed with the run; made anew it works.
    EXPECT_THAT(message_of<std::runtime_error>([&] { d.all_reduce(m.ctx.ones({4}, DType::Float32, everywhere())); }),
                HasSubstr("the process group has failed"));
    d.destroy_process_group();
    d.init_process_group();
    const Tensor t = m.ctx.ones({4}, DType::Float32, everywhere());
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(), testing::Each(4.f));
  });
}

TEST_F(DistributedTest, DifferentDtypesOpsLayoutsAndCallsAreNamed) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    const auto meet = [&](std::function<void()> zero, std::function<void()> one) {
      d.init_process_group();
      const std::string text =
          message_of<std::runtime_error>([&] { m.ctx.spawn([&](uint32_t r) { r == 0 ? zero() : one(); }, 2); });
      d.destroy_process_group();
      EXPECT_THAT(text, HasSubstr("rank 0"));
      EXPECT_THAT(text, HasSubstr("rank 1"));
      return text;
    };
    const auto reduce = [&](DType t, ReduceOp op, DPPolicy p = {}) {
      return [&m, &d, t, op, p] { d.all_reduce(m.ctx.ones({8}, t, p), op); };
    };
    EXPECT_THAT(meet(reduce(DType::Float32, ReduceOp::Sum), reduce(DType::Int32, ReduceOp::Sum)),
                HasSubstr("dtype differs between ranks"));
    EXPECT_THAT(meet(reduce(DType::Float32, ReduceOp::Max), reduce(DType::Float32, ReduceOp::Sum)),
                HasSubstr("op differs between ranks"));
    EXPECT_THAT(meet(reduce(DType::Float32, ReduceOp::Sum),
                     reduce(DType::Float32, ReduceOp::Sum, policy(CubePolicy::Replicate))),
                HasSubstr("layout differs between ranks"));
    EXPECT_THAT(meet(reduce(DType::Float32, ReduceOp::Sum), [&] { d.barrier(); }),
                testing::AnyOf(HasSubstr("all_reduce of rank 0 meets barrier of rank 1"),
                               HasSubstr("barrier of rank 1 meets all_reduce of rank 0")));
  });
}

TEST_F(DistributedTest, MismatchInUsersOwnThreadsReachesEveryRank) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    std::vector<std::string> texts(2);
    const auto body = [&](uint32_t rank) {
      d.bind_rank(rank);
      const Tensor t = m.ctx.ones({rank + 1});
      texts[rank] = message_of<std::runtime_error>([&] { d.all_reduce(t); });
    };
    sc_core::sc_process_handle a = sc_core::sc_spawn([&] { body(0); });
    sc_core::sc_process_handle b = sc_core::sc_spawn([&] { body(1); });
    sc_core::wait(a.terminated_event() & b.terminated_event());
    for (const std::string& t : texts) EXPECT_THAT(t, HasSubstr("shape differs between ranks"));
  });
}

TEST_F(DistributedTest, AMissingRankIsReportedAsATable) {
  SystemConfig c = tiny(4);
  c.simulation.stall_limit = us(100);
  Machine m(c);
  in_group(m, [&](auto& d) {
    const std::string text = message_of<StallError>([&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            const Tensor t = m.ctx.ones({16});
            d.all_reduce(t);
            if (rank == 1 || rank == 3) return;
            d.all_reduce(t);
          },
          4);
    });
    EXPECT_THAT(text, HasSubstr("all_reduce #1"));
    EXPECT_THAT(text, HasSubstr("ranks 1, 3"));
    EXPECT_THAT(text, testing::ContainsRegex("rank 0 .*ranks 1, 3"));
    EXPECT_THAT(text, testing::ContainsRegex("rank 2 .*ranks 1, 3"));
    EXPECT_THAT(text, HasSubstr("waits for"));
    // Nothing stale: the group made anew works.
    d.destroy_process_group();
    d.init_process_group();
    const Tensor t = m.ctx.ones({16}, DType::Float32, everywhere());
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(), testing::Each(4.f));
  });
}

TEST_F(DistributedTest, AClockDoesNotHideAStall) {
  SystemConfig c = tiny(2);
  c.simulation.stall_limit = us(20);
  Machine m(c);
  sc_core::sc_clock clock("clock", 100, sc_core::SC_NS);
  in_group(m, [&](auto& d) {
    EXPECT_THAT(message_of<StallError>([&] {
                  m.ctx.spawn(
                      [&](uint32_t rank) {
                        if (rank == 0) d.all_reduce(m.ctx.ones({4}));
                      },
                      2);
                }),
                HasSubstr("rank 1"));
  });
}

// A kernel that waits for a message that never comes, inside a collective: the table names PE, queue and direction.
void deaf_kernel(tl::Tl& tl, const tl::Args& args) {
  if (tl.program_id(tl::Axis::Sip) == 0) tl.recv(tl::Dir::Prev, args.address(0), 1, DType::Float32);
}

TEST_F(DistributedTest, AStallInsideTheMachineNamesPeQueueAndDirection) {
  SystemConfig c = tiny(2);
  c.simulation.stall_limit = us(50);
  Machine m(c, [](tl::KernelRegistry& k) { k.add("deaf", deaf_kernel); });
  ccl::Registry registry;
  ccl::AlgorithmModule module = *m.algorithms.find("ring");
  module.name = "deaf";
  module.kernel_name = "deaf";
  module.kernel = deaf_kernel;
  registry.add(module);
  registry.add(*m.algorithms.find("ring"));
  Context ctx(m.device, &registry);
  run([&] {
    auto& d = ctx.distributed;
    d.set_ccl_file(
        ccl_file("defaults: {algorithm: deaf}\nalgorithms:\n  deaf: {module: deaf}\n  ring: {module: ring}\n"));
    d.init_process_group();
    const DPPolicy one = policy(CubePolicy::RowWise, PePolicy::RowWise, 1, 1);
    std::string text = message_of<StallError>(
        [&] { ctx.spawn([&](uint32_t) { d.all_reduce(ctx.ones({4}, DType::Float32, one)); }, 2); });
    EXPECT_THAT(
        text, testing::ContainsRegex("rank 0 +all_reduce #0 +sip0.cube0.pe0 +QP [0-9]+ +[A-Za-z]+ +[0-9]+ +a message"));
    EXPECT_THAT(text, testing::Not(HasSubstr("rank 1 ")));

    // The kernel was ended: the same PEs work again in a new group.
    d.destroy_process_group();
    d.set_algorithm("ring");
    d.init_process_group();
    const Tensor t = ctx.ones({40}, DType::Float32, everywhere());
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(SipId{1}), testing::Each(2.f));
  });
}

void failing_kernel(tl::Tl& tl, const tl::Args& args) {
  if (tl.program_id(tl::Axis::Sip) == 1) throw std::runtime_error("broken");
  tl.recv(tl::Dir::Prev, args.address(0), 1, DType::Float32);
}

TEST_F(DistributedTest, AFailedLaunchFailsTheGroupAndEndsItsOtherPes) {
  Machine m(tiny(2), [](tl::KernelRegistry& k) { k.add("failing", failing_kernel); });
  ccl::Registry registry;
  ccl::AlgorithmModule module = *m.algorithms.find("ring");
  module.name = "failing";
  module.kernel_name = "failing";
  module.kernel = failing_kernel;
  registry.add(module);
  registry.add(*m.algorithms.find("ring"));
  Context ctx(m.device, &registry);
  run([&] {
    auto& d = ctx.distributed;
    d.set_ccl_file(ccl_file(
        "defaults: {algorithm: failing}\nalgorithms:\n  failing: {module: failing}\n  ring: {module: ring}\n"));
    d.init_process_group();
    const std::string text =
        message_of<std::runtime_error>([&] { ctx.spawn([&](uint32_t) { d.all_reduce(ctx.ones({4})); }, 2); });
    EXPECT_THAT(text, HasSubstr("rank 1 at"));
    EXPECT_THAT(text, HasSubstr("kernel failing failed on sip1.cube"));
    d.destroy_process_group();
    EXPECT_EQ(m.device.tags_in_use(), 0u);
    d.set_algorithm("ring");
    d.init_process_group();
    const Tensor t = ctx.ones({40}, DType::Float32, everywhere());
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(SipId{1}), testing::Each(2.f));
  });
}

TEST_F(DistributedTest, AThrowingRankLeavesNoOtherRankWaiting) {
  Machine m(tiny(3));
  in_group(m, [&](auto& d) {
    const Ps start = now();
    EXPECT_THAT(message_of<std::runtime_error>([&] {
                  m.ctx.spawn(
                      [&](uint32_t rank) {
                        const Tensor t = m.ctx.ones({16});
                        if (rank == 2) throw std::runtime_error("rank two gives up");
                        d.all_reduce(t);
                      },
                      3);
                }),
                testing::AllOf(HasSubstr("rank 2 at"), HasSubstr("rank two gives up")));
    EXPECT_LT(now() - start, us(50));
    for (uint32_t c = 0; c < 4; ++c) EXPECT_EQ(m.device.allocator(SipId{0}, CubeId{c}).used(), 0u);
  });
}

// Collectives 6: nothing to reduce.
TEST_F(DistributedTest, ZeroElementsAreANoOp) {
  Machine m(tiny(3));
  in_group(m, [&](auto& d) {
    for (const Shape& shape : {Shape{0}, Shape{1, 0, 2}}) {
      for (const char* op : {"sum", "avg", "max", "min", "product"}) {
        const Tensor t = m.ctx.zeros(shape, DType::Float32, everywhere());
        const Ps before = now();
        const distributed::Work w = d.all_reduce(t, op);
        EXPECT_EQ(now(), before);
        EXPECT_EQ(w.record().bytes, 0u);
        EXPECT_EQ(w.record().start, w.record().end);
      }
    }
    for (const auto& link : m.system.sip_links()) EXPECT_EQ(link->hop().stats().payload_bytes, 0u);
  });
}

// Collectives 4: a world of one copies, and no SIP link moves a byte.
TEST_F(DistributedTest, WorldOfOneIsExactAndUsesNoLink) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_ccl_file(ccl_with("world_size: 1"));
    d.init_process_group();
    uint64_t before = 0, after = 0;
    for (const auto& link : m.system.sip_links()) before += link->hop().stats().payload_bytes;
    for (const char* op : {"sum", "avg", "max", "min", "product"}) {
      const Tensor t = m.ctx.arange(0, 1000);
      d.all_reduce(t, op);
      const std::vector<float> v = t.to_host<float>();
      for (size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], static_cast<float>(i)) << op;
    }
    for (const auto& link : m.system.sip_links()) after += link->hop().stats().payload_bytes;
    EXPECT_EQ(after, before);
  });
}

// Collectives 7: counts that divide by nothing.
TEST_F(DistributedTest, CountsThatDivideByNothing) {
  Machine m(tiny(8));
  in_group(m, [&](auto& d) {
    for (const uint64_t count : {1, 2, 3, 7, 8, 9, 15, 17, 31, 33, 997}) {
      const Tensor t = m.ctx.zeros({count}, DType::Int32, everywhere());
      for (uint32_t s = 0; s < 8; ++s) {
        std::vector<int32_t> v(count);
        for (uint64_t i = 0; i < count; ++i) v[i] = static_cast<int32_t>(1000 * s + i);
        t.upload(SipId{s}, v);
      }
      d.all_reduce(t);
      for (uint32_t s = 0; s < 8; ++s) {
        const std::vector<int32_t> v = t.to_host<int32_t>(SipId{s});
        for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(v[i], static_cast<int32_t>(28000 + 8 * i)) << count;
      }
    }
  });
}

// Collectives 10: both neighbours are the same SIP. One TEST per topology: one elaboration per process.
struct Grid {
  const char* name;
  SipTopology topology;
  uint32_t w, h;
  bool double_links;
};
class SmallTopologies : public SimTest, public testing::WithParamInterface<Grid> {};

TEST_P(SmallTopologies, ReduceExactly) {
  const Grid g = GetParam();
  SystemConfig c = tiny(g.w * g.h);
  c.topology = g.topology;
  c.sip_w = g.w;
  c.sip_h = g.h;
  c.double_links = g.double_links;
  Machine m(c);
  run([&] {
    auto& d = m.ctx.distributed;
    const uint32_t n = g.w * g.h;
    for (const char* algorithm : {"ring", "ring_bidirectional"}) {
      d.set_algorithm(algorithm);
      d.init_process_group();
      const Tensor t = m.ctx.zeros({5000}, DType::Int32, everywhere());
      for (uint32_t s = 0; s < n; ++s) t.upload(SipId{s}, std::vector<int32_t>(5000, 1 << s));
      d.all_reduce(t);
      for (uint32_t s = 0; s < n; ++s) EXPECT_THAT(t.to_host<int32_t>(SipId{s}), testing::Each((1 << n) - 1));
      d.destroy_process_group();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Grids, SmallTopologies,
    testing::Values(
        Grid{"ring2", SipTopology::Ring1d, 2, 1, false}, Grid{"ring2_double", SipTopology::Ring1d, 2, 1, true},
        Grid{"torus2x2", SipTopology::Torus2d, 2, 2, false}, Grid{"torus2x2_double", SipTopology::Torus2d, 2, 2, true},
        Grid{"torus2x3", SipTopology::Torus2d, 2, 3, false}, Grid{"torus1x4", SipTopology::Torus2d, 1, 4, false},
        Grid{"torus4x1", SipTopology::Torus2d, 4, 1, false}, Grid{"torus3x3", SipTopology::Torus2d, 3, 3, false},
        Grid{"torus1x1", SipTopology::Torus2d, 1, 1, false}, Grid{"mesh2x3", SipTopology::Mesh2d, 2, 3, false},
        Grid{"full4", SipTopology::FullyConnected, 4, 1, false}, Grid{"switch3", SipTopology::Switch, 3, 1, false}),
    [](const testing::TestParamInfo<Grid>& p) { return std::string(p.param.name); });

TEST_F(DistributedTest, ATopologyWithoutARingIsRefusedWithTheReason) {
  SystemConfig c = tiny(3);
  c.topology = SipTopology::Mesh2d;
  Machine m(c);
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_algorithm("ring_bidirectional");
    d.init_process_group();
    EXPECT_THAT(message_of<NotImplementedError>([&] { d.all_reduce(m.ctx.ones({4}, DType::Float32, everywhere())); }),
                HasSubstr("has no ring"));
  });
}

// Collectives 17: every rank ends with the same bits; bf16 rounds at every step.
TEST_F(DistributedTest, Bf16RanksAreBitIdentical) {
  Machine m(tiny(8));
  in_group(m, [&](auto& d) {
    const uint64_t count = 640;
    const Tensor t = m.ctx.zeros({count}, DType::BFloat16, everywhere());
    for (uint32_t s = 0; s < 8; ++s) {
      std::vector<uint16_t> v(count);
      for (uint64_t i = 0; i < count; ++i) {
        store_element(DType::BFloat16, v.data(), i, i % 3 == 0 ? (s == 0 ? 256.0 : 1.0) : 3e38 / (1 + i % 5));
      }
      t.upload(SipId{s}, v);
    }
    d.all_reduce(t);
    const std::vector<uint16_t> first = t.to_host<uint16_t>(SipId{0});
    for (uint32_t s = 1; s < 8; ++s) EXPECT_EQ(t.to_host<uint16_t>(SipId{s}), first);
  });
}

TEST_F(DistributedTest, InPlaceOnTheTensorThatWasGivenAndItsCopies) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    const Tensor t = m.ctx.ones({64}, DType::Float32, everywhere());
    const Tensor alias = t;
    const Addr address = t.handle()->shards().front().address;
    d.all_reduce(t);
    d.all_reduce(alias);
    EXPECT_EQ(t.handle()->shards().front().address, address);
    EXPECT_THAT(alias.to_host<float>(SipId{1}), testing::Each(4.f));
  });
}

TEST_F(DistributedTest, APartialTensorIsReplicatedAfterwards) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    const Tensor t = m.ctx.ones({10}, DType::Int32, everywhere(policy(CubePolicy::Partial)));
    EXPECT_EQ(d.all_reduce(t).record().algorithm, "intercube");
    EXPECT_EQ(t.policy().cube, CubePolicy::Replicate);
    EXPECT_THAT(t.to_host<int32_t>(SipId{1}), testing::Each(8));
    d.all_reduce(t);
    EXPECT_THAT(t.piece<int32_t>(SipId{0}, CubeId{3}), testing::Each(16));
  });
}

TEST_F(DistributedTest, KernelsBeforeACollectiveAreWaitedFor) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    const Tensor t = m.ctx.zeros({1 << 16}, DType::Float32, everywhere());
    m.ctx.launch("fill", {t, elements_of(t), 3.0, DType::Float32});
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(), testing::Each(6.f));
  });
}

TEST_F(DistributedTest, GuardBytesAroundEveryBufferStay) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    std::vector<Tensor> tensors, guards;
    for (const uint64_t count : {1, 63, 64, 65, 1000}) {
      guards.push_back(m.ctx.from_host({1024}, DType::UInt8, std::vector<uint8_t>(1024, 0xA5), everywhere()));
      tensors.push_back(m.ctx.ones({count}, DType::Float32, everywhere()));
      guards.push_back(m.ctx.from_host({1024}, DType::UInt8, std::vector<uint8_t>(1024, 0xA5), everywhere()));
    }
    for (const Tensor& t : tensors) d.all_reduce(t);
    for (const Tensor& g : guards) {
      EXPECT_THAT(g.to_host<uint8_t>(SipId{0}), testing::Each(0xA5));
      EXPECT_THAT(g.to_host<uint8_t>(SipId{1}), testing::Each(0xA5));
    }
    for (const Tensor& t : tensors) EXPECT_THAT(t.to_host<float>(SipId{1}), testing::Each(2.f));
  });
}

TEST_F(DistributedTest, QueuesAreEmptyAndCreditsBackAfterwards) {
  Machine m(tiny(3));
  in_group(m, [&](auto& d) {
    const Tensor t = m.ctx.ones({40000}, DType::Float32, everywhere());
    d.all_reduce(t);
    sc_core::wait(10, sc_core::SC_US);
    for (uint32_t s = 0; s < 3; ++s) {
      for (uint32_t k = 0; k < 4; ++k) {
        const PeLocation pe{SipId{s}, CubeId{k}, PeId{0}};
        for (uint32_t q = 0; q < m.device.queue_pairs().queue_pairs_in_use(pe); ++q) {
          const auto reg = [&](uint64_t offset) {
            uint32_t v = 0;
            m.system.host_bridge.debug_read(qp_reg_address(pe, QpId{q}, offset), &v, 4);
            return v;
          };
          EXPECT_EQ(reg(regs::qp::offset::LEVEL), 0u);
          EXPECT_EQ(reg(regs::qp::offset::CREDITS), reg(regs::qp::offset::PEER_SLOTS));
          EXPECT_EQ(reg(regs::qp::offset::HEAD), reg(regs::qp::offset::TAIL));
        }
      }
    }
  });
}

TEST_F(DistributedTest, RunningOutOfQueuePairsSaysHowManyAndByWhom) {
  SystemConfig c = tiny(2);
  c.ipcq.queue_pairs = 3;  // just the neighbours
  Machine m(c);
  Context other(m.device);
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_algorithm("ring_bidirectional");
    d.init_process_group();
    // A ring of two needs a second connection between the two SIPs.
    std::string text = message_of<std::runtime_error>([&] {
      d.all_reduce(m.ctx.ones({4}, DType::Float32, everywhere(policy(CubePolicy::RowWise, PePolicy::RowWise, 1))));
    });
    EXPECT_THAT(text, testing::AllOf(HasSubstr("3 of 3 queue pairs"), HasSubstr("group 1: 3 queue pairs")));
    text = message_of<std::runtime_error>([&] { other.distributed.init_process_group(); });
    EXPECT_THAT(text, HasSubstr("group 1: 3 queue pairs"));
    EXPECT_FALSE(other.distributed.is_initialized());
    d.destroy_process_group();
    EXPECT_EQ(m.device.queue_pairs().queue_pairs_in_use(), 0u);
  });
}

TEST_F(DistributedTest, NewConnectionsAreMadeOutsideTheMeasuredTimeAndOnce) {
  Machine m(tiny(2));
  run([&] {
    auto& d = m.ctx.distributed;
    d.set_algorithm("ring_bidirectional");
    d.init_process_group();
    const Tensor t = m.ctx.ones({64}, DType::Float32, everywhere());
    const auto first = d.all_reduce(t).record();
    const auto second = d.all_reduce(t).record();
    EXPECT_EQ(first.connections, 4u);  // the second connection of each of the four lanes
    EXPECT_EQ(second.connections, 0u);
    EXPECT_EQ(first.end - first.start, second.end - second.start);
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
