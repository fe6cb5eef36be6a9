// Every algorithm of every collective on every kind of fabric, with counts around the number of ranks, slots of one
// element up to the whole buffer, and queues of 1, 2 and 8 slots. Measurement makes each run fail for a wrong element,
// a changed guard byte, a queue or credit that is left over, and a time below the bound.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "ccl/select.h"
#include "models/core/config/load_config.h"
#include "platform/collective_runner.h"
#include "platform/measurement.h"
#include "tests/support/sim_test.h"

namespace ahbm::platform {
namespace {

using ::testing::HasSubstr;

constexpr ccl::Collective kCollectives[] = {
    ccl::Collective::AllReduce, ccl::Collective::AllGather, ccl::Collective::ReduceScatter,
    ccl::Collective::AllToAll,  ccl::Collective::Broadcast, ccl::Collective::Reduce,
    ccl::Collective::Gather,    ccl::Collective::Scatter,   ccl::Collective::SendRecv};
constexpr std::pair<DType, ReduceOp> kArithmetic[] = {
    {DType::Float32, ReduceOp::Sum}, {DType::BFloat16, ReduceOp::Avg}, {DType::Int8, ReduceOp::Product},
    {DType::Bool, ReduceOp::Sum},    {DType::Float16, ReduceOp::Max},  {DType::Int64, ReduceOp::Avg},
    {DType::UInt8, ReduceOp::Min},   {DType::Int32, ReduceOp::Sum},    {DType::BFloat16, ReduceOp::Sum},
    {DType::Float32, ReduceOp::Avg}, {DType::Bool, ReduceOp::Product}, {DType::Int64, ReduceOp::Product}};

std::string platform(const std::string& sips, const std::string& slots, const std::string& more = "") {
  return fmt::format(
      "name: generated\nccl: {}/configs/ccl.yaml\nsystem:\n  sips: {{{}}}\nsip:\n  cube_mesh: {{w: 1, h: 1}}\n"
      "cube:\n  pes: 1\nhbm:\n  capacity: 64 MiB\nipcq:\n  sip: {{{}}}\n{}",
      AHBM_SOURCE_DIR, sips, slots, more);
}

using Arithmetic = std::pair<DType, ReduceOp>;

/// One run for `count` elements of a block, with the process group that there is.
AllReduceRow measure(Machine& machine, AllReduceJob& job, ccl::Collective collective,
                     const runtime::distributed::ProcessGroup& group, uint64_t count, const Arithmetic& arithmetic) {
  job.options.dtype = arithmetic.first;
  job.options.op = arithmetic.second;
  const uint64_t n = machine.context->distributed.get_process_group_ranks(group).size();
  const bool whole = collective == ccl::Collective::AllReduce || collective == ccl::Collective::Broadcast ||
                     collective == ccl::Collective::Reduce || collective == ccl::Collective::SendRecv;
  job.options.root = static_cast<uint32_t>(count % n);
  const uint64_t size = count * item_bytes(arithmetic.first) * (whole ? 1 : n);
  const AllReduceRow row = Measurement(collective, job, machine, group, size).run();
  EXPECT_EQ(row.wrong, 0u) << row.algorithm << ' ' << row.size_bytes << " bytes of " << to_string(row.dtype) << ' '
                           << to_string(job.options.op);
  return row;
}

/// Runs the collective by the module (empty: as `auto` chooses) for every count; answers the last run.
AllReduceRow measure(Machine& machine, AllReduceJob& job, ccl::Collective collective, const std::string& module,
                     const std::vector<uint64_t>& counts, const std::function<Arithmetic()>& arithmetic) {
  job.options.root = 0;
  machine.context->distributed.set_module(module);
  const auto group = start_group(collective, job, machine);
  AllReduceRow row;
  for (const uint64_t count : counts) row = measure(machine, job, collective, group, count, arithmetic());
  machine.context->distributed.destroy_process_group();
  return row;
}

Arithmetic fp32_sum() {
  return {DType::Float32, ReduceOp::Sum};
}

/// The modules of a collective that run on the whole machine.
std::vector<std::string> fitting(Machine& machine, ccl::Collective collective) {
  const SystemConfig& c = machine.context->config();
  ccl::Group g;
  for (uint32_t s = 0; s < c.sips; ++s) g.sips.push_back(SipId{s});
  g.topology = c.topology;
  g.sip_w = c.sip_w;
  g.sip_h = c.sip_h;
  g.machine_sips = c.sips;
  std::vector<std::string> out;
  for (const auto& [name, module] : machine.algorithms.modules()) {
    if (module.collective != collective) continue;
    if (ccl::refusal_of(machine.algorithms, module, g, ccl::lane_shape(1), c).empty()) out.push_back(name);
  }
  return out;
}

struct Case {
  std::string name, sips, slots, quantum;
};

class Generator : public ahbm::test::SimTest, public testing::WithParamInterface<Case> {};

TEST_P(Generator, EveryAlgorithmIsRight) {
  AllReduceJob job;
  job.config = parse_system_config(platform(GetParam().sips, GetParam().slots, GetParam().quantum), "generated.yaml");
  Machine machine(job.config);
  run([&] {
    const uint64_t n = job.config.sips;
    size_t turn = n;
    for (const ccl::Collective collective : kCollectives) {
      const std::vector<std::string> modules = fitting(machine, collective);
      EXPECT_FALSE(modules.empty()) << to_string(collective);
      for (const std::string& module : modules) {
        measure(machine, job, collective, module, {0, 1, n - 1, n, n + 1, 997},
                [&] { return kArithmetic[turn++ % std::size(kArithmetic)]; });
      }
    }
    EXPECT_GE(turn, n + 9 * 6);
    EXPECT_EQ(machine.device->queue_pairs().queue_pairs_in_use(), 0u);
    EXPECT_EQ(machine.device->allocator(SipId{0}, CubeId{0}).used(), 0u);
  });
}

std::vector<Case> cases() {
  std::vector<std::pair<std::string, std::string>> fabrics;
  for (const uint32_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}) {
    fabrics.emplace_back(fmt::format("ring{}", n), fmt::format("count: {}, topology: ring_1d", n));
  }
  for (const char* kind : {"torus", "mesh"}) {
    for (const auto& [w, h] : {std::pair{1, 1}, {2, 2}, {2, 3}, {3, 3}, {1, 4}, {4, 1}, {4, 3}}) {
      fabrics.emplace_back(fmt::format("{}{}x{}", kind, w, h),
                           fmt::format("count: {}, topology: {}_2d, w: {}, h: {}", w * h, kind, w, h));
    }
  }
  for (const uint32_t n : {2, 5, 8}) {
    fabrics.emplace_back(fmt::format("full{}", n), fmt::format("count: {}, topology: fully_connected", n));
    fabrics.emplace_back(fmt::format("switch{}", n), fmt::format("count: {}, topology: switch", n));
  }
  // 8 bytes of payload: one int64. 7976 bytes: 997 of them. Turned against each other, so that every fabric meets every
  // slot size and every depth.
  const char* slots[] = {"40 B", "256 B", "4 KiB", "8 KiB"};
  const uint32_t depths[] = {1, 2, 8};
  std::vector<Case> out;
  for (size_t f = 0; f < fabrics.size(); ++f) {
    for (size_t s = 0; s < std::size(slots); ++s) {
      const uint32_t depth = depths[(f + s) % std::size(depths)];
      std::string size = slots[s];
      size.erase(std::remove(size.begin(), size.end(), ' '), size.end());
      // Every third one with PEs that run ahead.
      const bool ahead = (f + s / 2) % 3 == 2;
      out.push_back({fmt::format("{}_{}_depth{}{}", fabrics[f].first, size, depth, ahead ? "_ahead" : ""),
                     fabrics[f].second, fmt::format("n_slots: {}, slot_bytes: {}", depth, slots[s]),
                     ahead ? "simulation: {pe_quantum: 20 ns}\n" : ""});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Generator, testing::ValuesIn(cases()), [](const auto& p) { return p.param.name; });

// --- fabrics that are not as they should be

class Irregular : public ahbm::test::SimTest {
 public:
  static constexpr const char* kSlots = "n_slots: 4, slot_bytes: 1 KiB";
  /// Every collective as `auto` chooses, and every all-reduce.
  void measure_all(Machine& machine, AllReduceJob& job) {
    for (const ccl::Collective collective : kCollectives) {
      measure(machine, job, collective, "", {1000}, fp32_sum);
    }
    for (const std::string& module : fitting(machine, ccl::Collective::AllReduce)) {
      measure(machine, job, ccl::Collective::AllReduce, module, {1000}, fp32_sum);
    }
  }
};

TEST_F(Irregular, ALinkTenTimesSlowerThanTheOthers) {
  std::vector<std::unique_ptr<Machine>> machines;
  AllReduceJob job;
  for (const char* sips : {"count: 5, topology: ring_1d", "count: 6, topology: torus_2d, w: 3, h: 2",
                           "count: 6, topology: mesh_2d, w: 3, h: 2", "count: 4, topology: fully_connected"}) {
    const std::string slow = "sip_link: {bandwidth: 50 GB/s, overrides: [{from: 1, to: 2, bandwidth: 5 GB/s}]}\n";
    machines.push_back(std::make_unique<Machine>(parse_system_config(platform(sips, kSlots, slow), "slow.yaml"),
                                                 models::SystemParts{},
                                                 fmt::format("system{}", machines.size()).c_str()));
  }
  run([&] {
    for (const auto& machine : machines) measure_all(*machine, job);
    // The ring has to take the slow link: no faster than what it carries.
    const AllReduceRow row = measure(*machines[0], job, ccl::Collective::AllReduce, "ring", {100000}, fp32_sum);
    EXPECT_GT(row.time, us(400000 * 2 * 4 / 5) / 5000) << "2 (n-1)/n S / (5 bytes per ns)";
  });
}

TEST_F(Irregular, EverySingleLinkRemoved) {
  std::vector<std::unique_ptr<Machine>> machines;
  AllReduceJob job;
  size_t refused = 0;
  const auto add = [&](const std::string& sips, uint32_t from, uint32_t to, const std::string& both) {
    const std::string absent =
        fmt::format("sip_link: {{overrides: [{{from: {}, to: {}, absent: true{}}}]}}\n", from, to, both);
    try {
      const SystemConfig config = parse_system_config(platform(sips, kSlots, absent), "removed.yaml");
      machines.push_back(
          std::make_unique<Machine>(config, models::SystemParts{}, fmt::format("system{}", machines.size()).c_str()));
    } catch (const ConfigError& e) {
      ++refused;
      EXPECT_THAT(e.what(), HasSubstr("leave no way from SIP")) << sips << ' ' << from << ' ' << to;
    }
  };
  for (const char* both : {"", ", both_directions: false"}) {
    for (uint32_t s = 0; s < 4; ++s) add("count: 4, topology: ring_1d", s, (s + 1) % 4, both);
    for (uint32_t y = 0; y < 2; ++y) {
      for (uint32_t x = 0; x < 3; ++x) {
        const uint32_t s = 3 * y + x;
        add("count: 6, topology: torus_2d, w: 3, h: 2", s, 3 * y + (x + 1) % 3, both);
        if (y == 0) add("count: 6, topology: torus_2d, w: 3, h: 2", s, s + 3, both);
        if (x < 2) add("count: 6, topology: mesh_2d, w: 3, h: 2", s, s + 1, both);
        if (y == 0) add("count: 6, topology: mesh_2d, w: 3, h: 2", s, s + 3, both);
      }
    }
    add("count: 3, topology: fully_connected", 0, 2, both);
    EXPECT_EQ(refused, 0u) << "each of them leaves a way round";
  }
  for (const char* both : {"", ", both_directions: false"}) {
    add("count: 2, topology: ring_1d", 0, 1, both);
    add("count: 3, topology: mesh_2d, w: 3, h: 1", 1, 2, both);
  }
  EXPECT_EQ(refused, 4u) << "a bridge: told before anything runs";
  run([&] {
    for (const auto& machine : machines) measure_all(*machine, job);
  });
}

/// Few queue pairs: what a star's root would need for all others, a tree does not.
TEST_F(Irregular, AsManySipsAsHaveNoQueuePairsAtOneRoot) {
  std::vector<std::unique_ptr<Machine>> machines;
  AllReduceJob job;
  for (const uint32_t n : {4, 5, 9, 17}) {
    for (const char* kind : {"switch", "fully_connected"}) {
      SystemConfig config =
          parse_system_config(platform(fmt::format("count: {}, topology: {}", n, kind), kSlots), "few.yaml");
      config.ipcq.queue_pairs = 8;
      if (n > 8 && config.topology == SipTopology::FullyConnected) continue;  // its neighbours alone are more
      machines.push_back(
          std::make_unique<Machine>(config, models::SystemParts{}, fmt::format("system{}", machines.size()).c_str()));
    }
  }
  run([&] {
    for (const auto& machine : machines) {
      for (const ccl::Collective collective : {ccl::Collective::Gather, ccl::Collective::Scatter}) {
        measure(*machine, job, collective, "", {0, 100, 1001}, fp32_sum);
      }
    }
  });
}

/// A ring buffer that is nearly used up: connections that an algorithm adds get fewer slots of the same size.
TEST_F(Irregular, SlotsAlikeInSizeButNotInNumber) {
  const std::string nearly_full =
      "  ring_bytes: 30 KiB\n  cube: {slot_bytes: 256 B}\nsip_link: {overrides: [{from: 0, to: 1, absent: true}]}\n";
  AllReduceJob job;
  Machine machine(parse_system_config(
      platform("count: 6, topology: torus_2d, w: 3, h: 2", "n_slots: 8, slot_bytes: 1 KiB", nearly_full), "full.yaml"));
  run([&] {
    measure_all(machine, job);
    for (const std::string& module : fitting(machine, ccl::Collective::AllReduce)) {
      measure(machine, job, ccl::Collective::AllReduce, module, {25600}, fp32_sum);
    }
  });
}

/// Sub-groups of one SIP less than there are: the ring closes over the missing one.
TEST_F(Irregular, SevenOfEight) {
  std::vector<std::unique_ptr<Machine>> machines;
  AllReduceJob job;
  job.options.group = {0, 1, 2, 4, 5, 6, 7};
  for (const char* sips : {"count: 8, topology: ring_1d", "count: 8, topology: torus_2d, w: 4, h: 2",
                           "count: 8, topology: mesh_2d, w: 4, h: 2", "count: 8, topology: switch"}) {
    machines.push_back(std::make_unique<Machine>(parse_system_config(platform(sips, kSlots), "eight.yaml"),
                                                 models::SystemParts{},
                                                 fmt::format("system{}", machines.size()).c_str()));
  }
  run([&] {
    for (const auto& machine : machines) {
      for (const ccl::Collective collective : kCollectives) {
        measure(*machine, job, collective, "", {1, 6, 1000}, [] { return Arithmetic{DType::BFloat16, ReduceOp::Sum}; });
      }
    }
  });
}

/// Links take longer than the quantum and everything else next to nothing, so no message is late for it and hardly any
/// two meet: the same times, by fewer wake-ups.
TEST_F(Irregular, PesThatRunAheadTakeTheSameTime) {
  std::vector<std::unique_ptr<Machine>> machines;
  AllReduceJob job;
  for (const char* quantum : {"0 ns", "20 ns"}) {
    const SystemConfig config = load_system_config(
        "peer_64B_50ns",
        {"system.sips.count=16", "system.sips.topology=torus_2d", fmt::format("simulation.pe_quantum={}", quantum)});
    machines.push_back(
        std::make_unique<Machine>(config, models::SystemParts{}, fmt::format("system{}", machines.size()).c_str()));
  }
  run([&] {
    for (const char* module : {"torus_2d", "ring", "ring_bidirectional"}) {
      Ps times[2];
      uint64_t deltas[2];
      for (size_t i = 0; i < 2; ++i) {
        const uint64_t before = sc_core::sc_delta_count();
        times[i] = measure(*machines[i], job, ccl::Collective::AllReduce, module, {65536}, fp32_sum).time;
        deltas[i] = sc_core::sc_delta_count() - before;
      }
      EXPECT_EQ(times[1], times[0]) << module;
      if (std::string(module) == "torus_2d") {
        EXPECT_LT(deltas[1] * 3, deltas[0] * 2) << "four messages come at nearly the same time";
      }
    }
  });
}

// --- ranks that are PEs

class FlatPe : public ahbm::test::SimTest {
 public:
  /// Two SIPs of 2 x 2 cubes of 2 PEs: 16 ranks.
  static SystemConfig machine() {
    return parse_system_config(fmt::format("name: flat\nccl: {}/configs/ccl.yaml\nsystem:\n  sips: {{count: 2}}\n"
                                           "sip:\n  cube_mesh: {{w: 2, h: 2}}\ncube:\n  pes: 2\n",
                                           AHBM_SOURCE_DIR),
                               "flat.yaml");
  }
  static std::string ccl_file(const std::string& defaults) {
    const std::string path =
        fmt::format("{}flat_pe_ccl_{}.yaml", testing::TempDir(), getpid());  // tests run side by side
    std::ofstream(path) << "defaults: {algorithm: auto, " << defaults << "}\nalgorithms: {}\n";
    return path;
  }
};

TEST_F(FlatPe, EveryCollectiveOnAllPes) {
  Machine m(machine());
  run([&] {
    AllReduceJob job;
    job.options.ccl_file = ccl_file("world_size: 16");  // more than SIPs: PEs
    for (const ccl::Collective collective : kCollectives) {
      measure(m, job, collective, "", {0, 1, 15, 16, 17, 997}, [] {
        return Arithmetic{DType::BFloat16, ReduceOp::Sum};
      });
    }
    for (const char* module : {"ring", "ring_bidirectional", "double_binary_tree", "halving_doubling"}) {
      measure(m, job, ccl::Collective::AllReduce, module, {3000}, fp32_sum);
    }
    job.options.group = {1, 6, 9, 15};
    for (const ccl::Collective collective : kCollectives) measure(m, job, collective, "", {100}, fp32_sum);
    job.options.group.clear();
    job.options.ccl_file = ccl_file("world_size: 5, rank: pe");
    measure(m, job, ccl::Collective::AllReduce, "", {100}, fp32_sum);
    EXPECT_EQ(m.device->allocator(SipId{1}, CubeId{3}).used(), 0u);
  });
}

/// Ranks of one cube are connected by rings of its own, with other numbers of slots than those between SIPs.
TEST_F(FlatPe, SlotsAlikeInSizeButNotInNumber) {
  SystemConfig c = machine();
  for (RingShape* ring : {&c.ipcq.sip, &c.ipcq.cube}) ring->slot_bytes = 128;
  ASSERT_NE(c.ipcq.sip.n_slots, c.ipcq.cube.n_slots);
  Machine m(c);
  run([&] {
    AllReduceJob job;
    job.options.ccl_file = ccl_file("world_size: 3, rank: pe");
    for (const ccl::Collective collective : kCollectives) measure(m, job, collective, "", {1000}, fp32_sum);
    for (const char* module : {"ring", "ring_bidirectional"}) {
      measure(m, job, ccl::Collective::AllReduce, module, {1000}, fp32_sum);
    }
  });
}

TEST_F(FlatPe, TensorsLieOnTheRanksOwnPe) {
  Machine m(machine());
  run([&] {
    auto& d = m.context->distributed;
    d.set_ccl_file(ccl_file("world_size: 16"));
    d.init_process_group();
    EXPECT_EQ(d.rank_mode(), runtime::distributed::RankMode::Pe);
    m.context->spawn(
        [&](uint32_t rank) {
          const runtime::Tensor t = m.context->full({10}, rank);
          ASSERT_EQ(t.handle()->shards().size(), 1u);
          const runtime::DeviceShard& shard = t.handle()->shards().front();
          EXPECT_EQ((PeLocation{shard.sip, shard.cube, shard.pe}), m.context->config().pe_location(rank));
          EXPECT_EQ(m.context->current_device(), rank / 8);
          d.all_reduce(t);
          EXPECT_THAT(t.to_host<float>(), testing::Each(120.f));
        },
        16);
    runtime::DPPolicy all;
    all.sips = runtime::SipScope::All;
    try {
      d.all_reduce(m.context->ones({10}, DType::Float32, all));
      ADD_FAILURE() << "the driver has no PE";
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("ranks are PEs here (rank: pe), call it from rank threads"));
    }
    d.destroy_process_group();
    d.set_ccl_file(ccl_file("world_size: 17"));
    EXPECT_THROW(d.init_process_group(), std::invalid_argument) << "more ranks than PEs";
  });
}

}  // namespace
}  // namespace ahbm::platform
