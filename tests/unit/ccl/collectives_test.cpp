// Every collective by every module, on the twin against the reference, and under the plan check.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "ccl/topology_embedding.h"
#include "models/core/ipcq_protocol.h"
#include "tests/unit/ccl/harness.h"

namespace ahbm::ccl::test {
namespace {

using ::testing::HasSubstr;

const std::vector<DType> kAllDTypes{DType::Float32, DType::Float16, DType::BFloat16, DType::Int32,
                                    DType::Int8,    DType::UInt8,   DType::Int64,    DType::Bool};
const std::vector<ReduceOp> kAllOps{ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};

/// Ranks of a machine of w x h SIPs.
Group group_on(SipTopology topology, uint32_t w, uint32_t h, const std::vector<uint32_t>& sips) {
  Group g = make_group(static_cast<uint32_t>(sips.size()), 1, 1, 0, topology, w, h);
  for (size_t r = 0; r < sips.size(); ++r) g.sips[r] = SipId{sips[r]};
  g.machine_sips = w * h;
  return g;
}

std::vector<uint32_t> first(uint32_t n) {
  std::vector<uint32_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

struct Call {
  std::string algorithm;
  Group group;
  CollectiveShape shape;
  bool in_place = false;
  RingShape ring{8, 16 << 10};
  uint32_t schedule = 0;

  std::string text() const {
    std::vector<uint32_t> sips;
    for (SipId s : group.sips) sips.push_back(value(s));
    return fmt::format("{} on SIPs {} of a {} {}x{}, count {}{} root {} peer {} {} {}{} slots {}x{} schedule {}",
                       algorithm, fmt::join(sips, ","), to_string(group.topology), group.sip_w, group.sip_h,
                       shape.count, shape.counts.empty() ? "" : " (uneven)", shape.root, shape.peer,
                       to_string(shape.dtype), to_string(shape.op), in_place ? " in place" : "", ring.n_slots,
                       ring.slot_bytes, schedule);
  }
};

/// One rank's buffers in its HBM, with guard bytes around each.
struct Buffers {
  CollectiveBuffers address;
  std::vector<uint8_t> input;
};

void run_call(const Call& c) {
  SCOPED_TRACE(c.text());
  const AlgorithmModule* m = builtin().find(c.algorithm);
  ASSERT_NE(m, nullptr);
  const Group& g = c.group;
  const uint32_t n = g.size();
  const Collective what = m->collective;
  ASSERT_EQ(m->refusal(g), "");
  const PlanReport plan = check_plan(*m, g, c.shape, c.in_place, {c.ring, c.ring, 16});
  ASSERT_EQ(plan.problem, "");

  tl::TwinConfig config;
  config.shape.sips = std::max(n, g.machine_sips);
  config.shape.cubes = config.shape.pes = 1;
  config.schedule = c.schedule;
  config.max_moves = 16;
  tl::Twin twin(config);
  for (const Connection& k : m->connections(g, c.shape)) {
    twin.connect(
        {value(g.sips[k.rank]), k.dir, value(g.sips[k.peer_rank]), k.peer_dir, c.ring.n_slots, c.ring.slot_bytes});
  }

  const uint64_t item = item_bytes(c.shape.dtype);
  const bool shared = what == Collective::AllReduce || what == Collective::Broadcast;
  const uint64_t scratch = m->scratch_bytes ? m->scratch_bytes(g, c.shape) : 0;
  struct Area {
    Addr at;
    uint64_t bytes;
  };
  std::vector<std::vector<uint8_t>> given(n), inputs(n);
  std::vector<CollectiveBuffers> buffers(n);
  std::vector<std::vector<Area>> areas(n);
  std::vector<tl::TwinLaunch> launches;
  for (uint32_t r = 0; r < n; ++r) {
    const uint64_t in = input_elements(what, r, n, c.shape), out = output_elements(what, r, n, c.shape);
    Case random;
    random.dtype = c.shape.dtype;
    random.op = c.shape.op;
    given[r] = random_contribution(random, shared ? out : in, 31 * r + 5);
    inputs[r] = what == Collective::Broadcast && r != c.shape.root ? std::vector<uint8_t>() : given[r];
    Addr next = hbm_address(g.sips[r], CubeId{0}, 4096 + item * r);
    const auto place = [&](uint64_t bytes) {
      const Addr at = next + kGuard;
      areas[r].push_back({at, bytes});
      const std::vector<uint8_t> filler(bytes + 2 * kGuard, kGuardByte);
      twin.write(next, filler.data(), filler.size());
      next += (bytes + 2 * kGuard + 63) / 64 * 64;
      return at;
    };
    const bool one_sided =
        r != c.shape.root && (what == Collective::Reduce || what == Collective::Gather || what == Collective::Scatter);
    CollectiveBuffers& b = buffers[r];
    const uint64_t begin = what == Collective::Reduce || shared ? 0
                           : what == Collective::AllToAll       ? 0
                                                                : c.shape.block_begin(r) * item;
    if (shared) {
      b.input = b.output = place(out * item);
    } else if (c.in_place && !one_sided) {
      const bool input_inside = what == Collective::AllGather || what == Collective::Gather;
      const Addr whole = place(std::max(in, out) * item);
      b.input = input_inside ? whole + begin : whole;
      b.output = input_inside ? whole : whole + begin;
    } else {
      b.input = in != 0 ? place(in * item) : 0;
      b.output = out != 0 ? place(out * item) : 0;
    }
    if (scratch != 0) b.scratch = place(scratch);
    if (!given[r].empty()) twin.write(b.input, given[r].data(), given[r].size());
    if (what == Collective::SendRecv && r != c.shape.root && r != c.shape.peer) continue;
    tl::TwinLaunch l;
    l.flat_pe = value(g.sips[r]);
    l.kernel = m->kernel;
    l.args = pack_arguments(*m, g, r, b, c.shape);
    l.header.group = 3;
    l.header.seq = 4;
    l.header.program_rank = r;
    l.header.program_ranks = n;
    launches.push_back(l);
  }
  ASSERT_NO_THROW(twin.run(launches));

  const std::vector<ReduceTree> order = reduces(what) ? m->reduction_order(g, c.shape) : std::vector<ReduceTree>();
  for (uint32_t r = 0; r < n; ++r) {
    const std::vector<uint8_t> want = expected_output(what, r, c.shape, inputs, order);
    std::vector<uint8_t> got(want.size());
    if (!got.empty()) twin.read(buffers[r].output, got.data(), got.size());
    if (got != want) {
      const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
      FAIL() << "rank " << r << ": byte " << at << " of " << want.size() << " differs";
    }
    for (const Area& a : areas[r]) {
      std::vector<uint8_t> low(kGuard), high(kGuard);
      twin.read(a.at - kGuard, low.data(), kGuard);
      twin.read(a.at + a.bytes, high.data(), kGuard);
      const std::vector<uint8_t> guard(kGuard, kGuardByte);
      ASSERT_TRUE(low == guard && high == guard) << "rank " << r << ": guard bytes overwritten";
    }
    if (c.in_place || shared || given[r].empty()) continue;
    std::vector<uint8_t> after(given[r].size());
    twin.read(buffers[r].input, after.data(), after.size());
    ASSERT_EQ(after, given[r]) << "rank " << r << ": input changed";
  }
}

bool in_place_possible(Collective c) {
  return c == Collective::Reduce || c == Collective::AllGather || c == Collective::ReduceScatter ||
         c == Collective::Gather || c == Collective::Scatter;
}

std::vector<Call> calls_of(const AlgorithmModule& m, const Group& g, const std::vector<uint64_t>& counts) {
  std::vector<Call> out;
  const uint32_t n = g.size();
  uint32_t turn = 0;
  for (const uint64_t count : counts) {
    for (const bool in_place : {false, true}) {
      if (in_place && !in_place_possible(m.collective)) continue;
      Call c;
      c.algorithm = m.name;
      c.group = g;
      c.shape.count = count;
      c.shape.root = (turn * 5 + 1) % n;
      c.shape.peer = (turn * 3 + 2) % n;
      c.in_place = in_place;
      c.schedule = turn % 4;
      ++turn;
      out.push_back(c);
    }
  }
  return out;
}

/// A ring of n, or where a module does not run on one, n SIPs that are all joined, or a mesh.
Group group_for(const AlgorithmModule& m, uint32_t n) {
  const uint32_t h = n % 2 == 0 ? 2 : 1;
  for (const Group& g : {make_group(n), group_on(SipTopology::FullyConnected, n, 1, first(n))}) {
    if (m.refusal(g).empty()) return g;
  }
  return group_on(SipTopology::Mesh2d, n / h, h, first(n));
}

std::vector<Group> groups() {
  std::vector<Group> out;
  for (uint32_t n : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u}) {
    out.push_back(group_on(SipTopology::Ring1d, n, 1, first(n)));
    if (n > 2 && n < 8) out.push_back(group_on(SipTopology::FullyConnected, n, 1, first(n)));
  }
  for (const auto& [w, h] : {std::pair{2u, 2u}, {3u, 2u}, {3u, 3u}, {4u, 3u}, {1u, 4u}, {5u, 1u}}) {
    out.push_back(group_on(SipTopology::Torus2d, w, h, first(w * h)));
    out.push_back(group_on(SipTopology::Mesh2d, w, h, first(w * h)));
  }
  out.push_back(group_on(SipTopology::Switch, 6, 1, first(6)));
  out.push_back(group_on(SipTopology::FullyConnected, 16, 1, first(16)));
  out.push_back(group_on(SipTopology::Switch, 18, 1, first(18)));
  // Sub-groups: a row, a column, strided, a rectangle, arbitrary, in any order.
  out.push_back(group_on(SipTopology::Torus2d, 4, 4, {4, 5, 6, 7}));
  out.push_back(group_on(SipTopology::Torus2d, 4, 4, {13, 1, 9, 5}));
  out.push_back(group_on(SipTopology::Torus2d, 4, 4, {0, 2, 8, 10}));
  out.push_back(group_on(SipTopology::Mesh2d, 4, 4, {0, 1, 2, 3}));
  out.push_back(group_on(SipTopology::Mesh2d, 4, 4, {6, 5, 9, 10}));
  out.push_back(group_on(SipTopology::Mesh2d, 4, 4, {15, 3, 8, 1, 6}));
  out.push_back(group_on(SipTopology::Torus2d, 4, 4, {14, 0, 7}));
  out.push_back(group_on(SipTopology::Ring1d, 8, 1, {6, 0, 4, 2}));
  out.push_back(group_on(SipTopology::Ring1d, 8, 1, {5, 1, 7}));
  return out;
}

// Every module on every group that it does not refuse; every count around the ranks.
TEST(Collectives, EveryGroupAndCount) {
  for (const auto& [name, m] : builtin().modules()) {
    if (m.layouts.count(CubeLayout::Sharded) == 0) continue;
    for (const Group& g : groups()) {
      if (!m.refusal(g).empty()) continue;
      const uint64_t n = g.size();
      for (const Call& c : calls_of(m, g, {0, 1, n - 1, n, n + 1, 997})) {
        run_call(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Collectives, ShallowQueuesAndSmallSlots) {
  for (const auto& [name, m] : builtin().modules()) {
    if (m.layouts.count(CubeLayout::Sharded) == 0) continue;
    for (const Group& g :
         {group_on(SipTopology::Ring1d, 2, 1, first(2)), group_on(SipTopology::Ring1d, 5, 1, first(5)),
          group_on(SipTopology::Ring1d, 8, 1, first(8)), group_on(SipTopology::Torus2d, 4, 3, first(12)),
          group_on(SipTopology::Mesh2d, 3, 3, first(9)), group_on(SipTopology::FullyConnected, 7, 1, first(7))}) {
      if (!m.refusal(g).empty()) continue;
      for (uint32_t depth : {1u, 2u, 8u}) {
        for (uint32_t slot : {36u, 256u, 4096u}) {
          for (Call c : calls_of(m, g, {slot < 64 ? 61u : 997u, 4000u / (slot < 64 ? 40 : 1)})) {
            c.ring = {depth, slot};
            c.schedule += depth;
            run_call(c);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// A PE has room for 16 moves at a time, and a rank more peers than that.
TEST(Collectives, DirectToMorePeersThanMoves) {
  for (const char* name : {"direct", "reduce_scatter_direct", "all_gather_direct"}) {
    for (uint32_t depth : {1u, 2u, 5u}) {
      for (Call c :
           calls_of(*builtin().find(name), group_on(SipTopology::Switch, 19, 1, first(19)), {18, 1000, 4001})) {
        c.ring = {depth, 160};
        run_call(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Collectives, DirectRefusesWhatIsNotOneHop) {
  const AlgorithmModule& m = *builtin().find("direct");
  EXPECT_EQ(m.refusal(group_on(SipTopology::Ring1d, 3, 1, first(3))), "");
  EXPECT_EQ(m.refusal(group_on(SipTopology::Torus2d, 3, 3, {0, 3, 6})), "");
  EXPECT_EQ(m.refusal(group_on(SipTopology::Mesh2d, 3, 3, {4, 5})), "");
  EXPECT_THAT(m.refusal(group_on(SipTopology::Ring1d, 4, 1, first(4))), HasSubstr("run on any group"));
  EXPECT_THAT(builtin().find("reduce_scatter_direct")->refusal(group_on(SipTopology::Mesh2d, 2, 2, first(4))),
              HasSubstr("reduce_scatter_line runs on any group"));
}

TEST(Collectives, EveryDTypeAndOp) {
  for (const auto& [name, m] : builtin().modules()) {
    if (m.layouts.count(CubeLayout::Sharded) == 0) continue;
    const Group joined = group_for(m, 6);
    const Group g = m.refusal(joined).empty() ? joined : group_on(SipTopology::Torus2d, 3, 2, first(6));
    if (!m.refusal(g).empty()) continue;
    for (DType t : kAllDTypes) {
      EXPECT_EQ(m.dtypes.count(t), 1u);
      for (ReduceOp op : kAllOps) {
        if (!can_reduce(op, t) || (!reduces(m.collective) && op != ReduceOp::Sum)) continue;
        EXPECT_EQ(m.ops.count(op), 1u);
        for (Call c : calls_of(m, g, {101})) {
          c.shape.dtype = t;
          c.shape.op = op;
          c.ring = {3, 130};
          run_call(c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Collectives, UnevenBlocksAndSplits) {
  for (const auto& [name, m] : builtin().modules()) {
    const Collective c = m.collective;
    const bool blocks = c == Collective::AllGather || c == Collective::ReduceScatter || c == Collective::Gather ||
                        c == Collective::Scatter;
    if (!blocks && c != Collective::AllToAll) continue;
    for (uint32_t n : {1u, 2u, 3u, 6u, 7u}) {
      for (uint32_t depth : {1u, 4u}) {
        for (Call call : calls_of(m, group_for(m, n), {0})) {
          const size_t size = c == Collective::AllToAll ? n * n : n;
          for (size_t i = 0; i < size; ++i) call.shape.counts.push_back(i % 3 == 1 ? 0 : (i * 37 + 11) % 90);
          call.ring = {depth, 160};
          run_call(call);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Collectives, EveryRootAndPeer) {
  for (const auto& [name, m] : builtin().modules()) {
    const Collective c = m.collective;
    if (c != Collective::Broadcast && c != Collective::Reduce && c != Collective::Gather && c != Collective::Scatter &&
        c != Collective::SendRecv) {
      continue;
    }
    for (const Group& g : {make_group(8), group_on(SipTopology::Torus2d, 3, 3, first(9)),
                           group_on(SipTopology::Mesh2d, 4, 4, {15, 3, 8, 1, 6})}) {
      if (!m.refusal(g).empty()) continue;
      for (uint32_t root = 0; root < g.size(); ++root) {
        Call call;
        call.algorithm = name;
        call.group = g;
        call.shape.count = 333;
        call.shape.root = root;
        call.shape.peer = (root * 2 + 3) % g.size();
        run_call(call);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Connections of unlike slots: everybody cuts by the smallest.
TEST(Collectives, MessageBytesAreKept) {
  for (const auto& [name, m] : builtin().modules()) {
    if (m.layouts.count(CubeLayout::Sharded) == 0 || m.collective == Collective::Barrier) continue;
    const Group g = group_for(m, 6);
    if (!m.refusal(g).empty()) continue;
    for (Call c : calls_of(m, g, {997})) {
      c.shape.message_bytes = 96;
      c.ring = {2, 1024};
      run_call(c);
      if (HasFatalFailure()) return;
      const uint64_t whole = check_plan(m, g, c.shape, c.in_place, {c.ring, c.ring}).messages;
      c.shape.message_bytes = 0;
      EXPECT_GT(whole, check_plan(m, g, c.shape, c.in_place, {c.ring, c.ring}).messages) << name;
    }
  }
}

// Lines and rings of every parity beside one another, and parts of grids in any order: blocks around the slots, splits
// that leave ranks out, and a single slot.
TEST(Collectives, AllToAllAlongRowsAndColumns) {
  const AlgorithmModule& m = *builtin().find("all_to_all_grid");
  std::vector<Group> grids;
  for (const SipTopology t : {SipTopology::Mesh2d, SipTopology::Torus2d}) {
    for (const auto& [w, h] : {std::pair{7u, 1u}, {1u, 6u}, {2u, 2u}, {3u, 2u}, {5u, 3u}, {4u, 4u}, {2u, 5u}}) {
      grids.push_back(group_on(t, w, h, first(w * h)));
    }
    grids.push_back(group_on(t, 5, 4, {11, 18, 13, 1, 8, 16, 3, 6}));
    grids.push_back(group_on(t, 6, 5, {29, 5, 0, 24, 12, 17}));
  }
  for (const Group& g : grids) {
    const uint32_t n = g.size();
    for (uint32_t depth : {1u, 2u, 8u}) {
      for (const uint64_t block : {1u, 31u, 32u, 33u, 65u}) {  // elements; a slot has 32
        for (const uint32_t every : {1u, 3u, 7u}) {
          Call c;
          c.algorithm = m.name;
          c.group = g;
          c.shape.count = block;
          if (every > 1) {
            for (uint32_t i = 0; i < n * n; ++i) {
              c.shape.counts.push_back(i % every != 0 || i % n == 1 ? 0 : block + i % 40);
            }
          }
          c.shape.dtype = kAllDTypes[(block + every) % kAllDTypes.size()];
          c.ring = {depth, static_cast<uint32_t>(ipcq::kHeaderBytes + 32 * item_bytes(c.shape.dtype))};
          c.schedule = depth + every;
          run_call(c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Collectives, AllToAllGridRefusesWhatHasNoRowsAndColumns) {
  const AlgorithmModule& m = *builtin().find("all_to_all_grid");
  EXPECT_THAT(m.refusal(group_on(SipTopology::Mesh2d, 4, 4, {15, 3, 8, 1, 6})), HasSubstr("all_to_all_ring run there"));
  EXPECT_THAT(m.refusal(make_group(4)), HasSubstr("torus_2d and a mesh_2d, not on a ring_1d; all_to_all_direct"));
}

}  // namespace
}  // namespace ahbm::ccl::test
