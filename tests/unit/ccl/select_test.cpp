// Closed forms at the figures of the specification, and what `auto` makes of them.
#include "ccl/select.h"

#include <gmock/gmock.h>

#include <utility>

#include "ccl/detours.h"
#include "tests/unit/ccl/harness.h"

namespace ahbm::ccl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Group grid(SipTopology t, uint32_t w, uint32_t h) {
  return make_group(w * h, 1, 1, 0, t, w, h);
}

double nanoseconds(const char* name, const Group& g, double bytes) {
  CostQuery q;
  q.ranks = g.size();
  q.bytes = bytes;
  q.latency = 50e-9;
  q.bandwidth = 64e9;
  q.group = &g;
  return builtin().find(name)->time(q) * 1e9;
}

constexpr double kMiB = 1 << 20, kS = kMiB / 64;  // S/B in ns

TEST(ClosedForms, AllReducesOnGrids) {
  const Group torus = grid(SipTopology::Torus2d, 4, 4), mesh = grid(SipTopology::Mesh2d, 4, 4);
  EXPECT_NEAR(nanoseconds("torus_2d", torus, kMiB), 8 * 50 + 15.0 / 16 * kS / 2, 0.5);
  EXPECT_NEAR(nanoseconds("torus_2d_2", torus, kMiB), 12 * 50 + 15.0 / 16 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("torus_2d_1", torus, kMiB), 12 * 50 + 2 * 15.0 / 16 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("mesh_2d", mesh, kMiB), 15960, 0.5);
  EXPECT_NEAR(nanoseconds("mesh_2d_1", mesh, kMiB), 12 * 50 + 2 * 15.0 / 16 * kS, 0.5);
  // A dimension of 2 with one cable: both directions are one link.
  const Group small = grid(SipTopology::Torus2d, 2, 2);
  EXPECT_NEAR(nanoseconds("torus_2d", small, kMiB), 4 * 50 + 3.0 / 4 * kS, 0.5);
}

TEST(ClosedForms, TheOthers) {
  const Group ring = make_group(8), full = grid(SipTopology::FullyConnected, 8, 1);
  EXPECT_NEAR(nanoseconds("reduce_scatter_ring", ring, kMiB), 7 * 50 + 7.0 / 8 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("all_gather_ring_bidirectional", ring, kMiB), 4 * 50 + 7.0 / 16 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("broadcast_ring", ring, kMiB), 7 * 50 + kS / 2, 0.5);
  EXPECT_NEAR(nanoseconds("reduce_tree", ring, kMiB), 4 * 50 + kS, 0.5);
  EXPECT_NEAR(nanoseconds("gather_tree", ring, kMiB), 4 * 50 + kS / 2, 0.5);  // branches of 4 and 3 ranks
  EXPECT_NEAR(nanoseconds("all_to_all_ring", ring, kMiB), 4 * 50 + kS, 0.5);
  EXPECT_NEAR(nanoseconds("all_to_all_direct", ring, kMiB), 4 * 50 + 1.25 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("halving_doubling", full, kMiB), 6 * 50 + 2 * 7.0 / 8 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("halving_doubling", ring, kMiB), 14 * 50 + 3 * kS, 0.5);
  const Group hub = grid(SipTopology::Switch, 8, 1);
  EXPECT_NEAR(nanoseconds("direct", full, kMiB), 2 * 50 + 2.0 / 8 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("direct", hub, kMiB), 2 * 50 + 2 * 7.0 / 8 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("reduce_scatter_direct", full, kMiB), 50 + 1.0 / 8 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("all_gather_direct", hub, kMiB), 50 + 7.0 / 8 * kS, 0.5);
  EXPECT_NEAR(nanoseconds("recursive_doubling", full, 1024), 3 * (50 + 16), 0.5);
  EXPECT_NEAR(nanoseconds("barrier_dissemination", full, 0), 3 * 50, 0.5);
}

// With the figures of peer_64B_50ns, messages of 16,352 bytes and 8 slots: what slabs hide and where they leave gaps.
TEST(ClosedForms, SlabsAndMessages) {
  const auto with_messages = [](const char* name, const Group& g, double bytes) {
    CostQuery q;
    q.ranks = g.size();
    q.bytes = bytes;
    q.latency = 50e-9;
    q.bandwidth = 64e9;
    q.group = &g;
    q.message_bytes = 16352;
    q.slots = 8;
    return builtin().find(name)->time(q) * 1e9;
  };
  const double message = 16352 / 64.0;  // ns on the link
  const Group ring = make_group(8), torus = grid(SipTopology::Torus2d, 8, 8), mesh = grid(SipTopology::Mesh2d, 4, 4);
  // 14 steps of a slab of 7 messages, and of one of a message and 256 bytes, which is shorter than what it waits for.
  EXPECT_NEAR(with_messages("ring", ring, kMiB), 14 * (7 * message + message + 50) + 4, 1);
  // What fits into one message takes the textbook's time.
  EXPECT_NEAR(with_messages("ring", ring, 8192), 14 * (50 + 16), 0.5);
  EXPECT_NEAR(with_messages("ring", ring, 8192), nanoseconds("ring", ring, 8192), 0.5);
  for (const char* name : {"ring", "ring_bidirectional"}) {
    EXPECT_NEAR(with_messages(name, ring, 64 * kMiB) / nanoseconds(name, ring, 64 * kMiB), 1, 0.001) << name;
  }
  EXPECT_NEAR(with_messages("torus_2d", torus, 64 * kMiB), 63.0 / 64 * 64 * kS / 2, 350) << "latencies are hidden";
  // An even ring both ways: the second of a block's halves waits for the first on one of the ways, once.
  EXPECT_NEAR(with_messages("all_gather_ring_bidirectional", ring, 65536), 4 * (50 + 64) + 3 * 14 + 50, 1);
  // Whoever passes on what it receives needs a whole message of it first.
  EXPECT_NEAR(with_messages("broadcast_ring", ring, 8192), 7 * (50 + 64), 0.5);
  EXPECT_NEAR(with_messages("broadcast_ring", ring, kMiB), 7 * (50 + message) + kS / 2 - message, 0.5);
  EXPECT_NEAR(with_messages("reduce_tree", ring, 8192), 4 * (50 + 128), 0.5);
  const Group full = grid(SipTopology::FullyConnected, 16, 1), hub = grid(SipTopology::Switch, 8, 1);
  EXPECT_NEAR(with_messages("double_binary_tree", full, 4096), 2 * 4 * (50 + 32), 0.5);
  EXPECT_NEAR(with_messages("broadcast_tree", hub, 1024), 3 * (50 + 16), 0.5) << "up and down are one hop";
  // Routed messages share a link, but not at the same time while they are shorter than a hop: 7 hops in 4 exchanges.
  const Group square = grid(SipTopology::Torus2d, 4, 4);
  EXPECT_NEAR(with_messages("recursive_doubling", square, 1024), 4 * (50 + 16) + 3 * 50, 0.5);
  EXPECT_NEAR(with_messages("recursive_doubling", square, 8192), 4 * (50 + 128) + 3 * 128, 0.5);
  // The sums and the results of the second dimension share the time on a line's links: 7/8 and not 15/16.
  EXPECT_NEAR(with_messages("mesh_2d", mesh, 64 * kMiB), 7.0 / 8 * 64 * kS, 1000);
}

// Lanes share the links, and each goes on for itself: what one waits for is its own message.
TEST(ClosedForms, LanesFollowOneAnother) {
  const Group ring = make_group(8, 4, 4, 16);
  CostQuery q;
  q.ranks = 8;
  q.bytes = 64 * 1024;
  q.latency = 500e-9;
  q.bandwidth = 64e9;
  q.group = &ring;
  q.message_bytes = 4064;
  q.slots = 8;
  q.lanes = 16;
  const double step = 500 + 8192 / 16 / 64.0;  // ns; the other lanes' parts are on the link meanwhile
  EXPECT_NEAR(builtin().find("ring")->time(q) * 1e9, 14 * step + 8192 / 64.0 - 8192 / 16 / 64.0, 0.5);
}

SystemConfig machine(const Group& g) {
  SystemConfig c;
  c.sips = g.machine_sips;
  c.topology = g.topology;
  c.sip_w = g.sip_w;
  c.sip_h = g.sip_h;
  c.cube_w = c.cube_h = 1;
  for (const Side side : {Side::E, Side::W, Side::N, Side::S}) c.sip_ports.push_back({side, CubeId{0}});
  c.sip_link = {64000000000, ns(50)};
  return c;
}

std::string chosen(Collective c, const Group& g, double bytes, uint64_t count = 1024) {
  const Selection s = select_algorithm(builtin(), c, g, lane_shape(count), bytes, machine(g));
  return s.module == nullptr ? s.text : s.module->name;
}

TEST(Select, FastestForTopologyAndSize) {
  EXPECT_EQ(chosen(Collective::AllReduce, make_group(8), kMiB), "ring_bidirectional");
  EXPECT_EQ(chosen(Collective::AllReduce, grid(SipTopology::Torus2d, 4, 4), kMiB), "torus_2d");
  EXPECT_EQ(chosen(Collective::AllReduce, grid(SipTopology::Mesh2d, 4, 4), 64 * kMiB), "mesh_2d");
  EXPECT_EQ(chosen(Collective::AllReduce, grid(SipTopology::Mesh2d, 3, 3), kMiB), "mesh_2d");
  const Group joined = grid(SipTopology::FullyConnected, 8, 1);
  EXPECT_EQ(chosen(Collective::AllReduce, joined, kMiB), "direct");
  EXPECT_EQ(chosen(Collective::ReduceScatter, joined, kMiB), "reduce_scatter_direct");
  EXPECT_EQ(chosen(Collective::AllGather, joined, kMiB), "all_gather_direct");
  EXPECT_EQ(chosen(Collective::AllToAll, joined, kMiB), "all_to_all_direct");
  EXPECT_EQ(chosen(Collective::AllReduce, grid(SipTopology::Switch, 8, 1), 4096), "direct");
  // Both directions of a line share the one link that a rank has to a switch.
  EXPECT_EQ(chosen(Collective::AllReduce, grid(SipTopology::Switch, 3, 1), 4 * kMiB), "ring_bidirectional");
  EXPECT_EQ(chosen(Collective::ReduceScatter, grid(SipTopology::Switch, 3, 1), kMiB),
            "reduce_scatter_ring_bidirectional");
  // More peers than a PE has queue pairs; and a tree passes sums on without storing and reading them.
  EXPECT_EQ(chosen(Collective::AllReduce, grid(SipTopology::FullyConnected, 100, 1), 64), "double_binary_tree");
  EXPECT_EQ(chosen(Collective::Broadcast, make_group(8), 64 * kMiB), "broadcast_ring");
  EXPECT_EQ(chosen(Collective::Broadcast, make_group(8), 64), "broadcast_tree");
  EXPECT_EQ(chosen(Collective::ReduceScatter, grid(SipTopology::Mesh2d, 3, 3), kMiB), "reduce_scatter_line");
  // More peers than a PE has queue pairs.
  EXPECT_EQ(chosen(Collective::AllToAll, make_group(100), kMiB), "all_to_all_ring");
  EXPECT_EQ(chosen(Collective::AllToAll, grid(SipTopology::Mesh2d, 9, 9), kMiB), "all_to_all_grid");
  EXPECT_EQ(chosen(Collective::AllToAll, grid(SipTopology::Mesh2d, 1, 66), 64), "all_to_all_grid");
  EXPECT_EQ(chosen(Collective::AllToAll, grid(SipTopology::Torus2d, 4, 4), kMiB), "all_to_all_grid");
  EXPECT_EQ(chosen(Collective::Barrier, make_group(8), 0), "barrier_dissemination");
}

// Also of more ranks than a PE has queue pairs, and where there is no Hamiltonian ring.
TEST(Select, EveryCollectiveRunsOnEveryTopology) {
  const auto all_run = [](const Group& g) {
    CollectiveShape shape = lane_shape(16);
    shape.peer = g.size() - 1;
    for (uint32_t c = 0; c <= static_cast<uint32_t>(Collective::Barrier); ++c) {
      const Selection s = select_algorithm(builtin(), static_cast<Collective>(c), g, shape, 65536, machine(g));
      EXPECT_NE(s.module, nullptr) << s.text << " (" << g.sip_w << " x " << g.sip_h << ")";
    }
  };
  for (const SipTopology t : {SipTopology::Ring1d, SipTopology::Torus2d, SipTopology::Mesh2d,
                              SipTopology::FullyConnected, SipTopology::Switch}) {
    const bool rows = t == SipTopology::Torus2d || t == SipTopology::Mesh2d;
    for (const uint32_t n : {2u, 9u, 64u, 65u, 66u, 67u, 77u, 81u, 105u, 121u, 128u}) {
      for (uint32_t h = 1; h <= (rows ? n : 1); ++h) {
        if (n % h == 0) all_run(grid(t, n / h, h));
      }
      // Parts of 196: a run, every second one, any.
      for (const auto& [step, begin] : {std::pair{1u, 3u}, {2u, 0u}, {55u, 7u}}) {
        if (step * n > 196 && step == 2) continue;
        Group part = rows ? grid(t, 14, 14) : grid(t, 196, 1);
        part.sips.clear();
        for (uint32_t i = 0; i < n; ++i) part.sips.push_back(SipId{(begin + i * step) % 196});
        all_run(part);
      }
    }
  }
  Group rectangle = grid(SipTopology::Mesh2d, 14, 14), row = grid(SipTopology::Torus2d, 196, 1);
  rectangle.sips.clear();
  for (uint32_t i = 0; i < 77; ++i) rectangle.sips.push_back(SipId{(1 + i / 11) * 14 + i % 11});
  row.sips.resize(80);
  all_run(rectangle);
  all_run(row);
}

TEST(Select, PassesOverWhatHasNoRoom) {
  const Group g = grid(SipTopology::FullyConnected, 8, 1);
  std::set<std::string> asked;
  const auto no_room = [&](const AlgorithmModule& m) {
    asked.insert(m.name);
    return std::string(m.name == "direct" ? "all taken" : "");
  };
  const auto select = [&](const RoomFor& room, const std::set<const AlgorithmModule*>& preferred = {}) {
    return select_algorithm(builtin(), Collective::AllReduce, g, lane_shape(1), kMiB, machine(g), preferred, room);
  };
  const Selection s = select(no_room);
  ASSERT_NE(s.module, nullptr);
  EXPECT_EQ(s.module->name, select({}).candidates[1].module->name);
  EXPECT_THAT(s.text, HasSubstr("; no room for direct: all taken"));
  EXPECT_EQ(asked, (std::set<std::string>{"direct", s.module->name})) << "the slower ones are not asked";
  // Of the preferred ones none fits: the others come in.
  EXPECT_EQ(select(no_room, {builtin().find("direct")}).module, s.module);
  const Selection none = select([](const AlgorithmModule&) { return std::string("full"); });
  EXPECT_EQ(none.module, nullptr);
  EXPECT_THAT(none.text, HasSubstr("no algorithm does all_reduce of 1048576 bytes"));
  EXPECT_THAT(none.text, HasSubstr("; no room for direct, "));
  EXPECT_THAT(none.text, HasSubstr("recursive_doubling: full"));
}

TEST(Select, AsksTheFormsOnceForTheSameCall) {
  uint32_t asked = 0;
  Registry registry;
  for (const char* name : {"ring", "ring_bidirectional"}) {
    AlgorithmModule m = *builtin().find(name);
    m.time = [&asked, form = m.time](const CostQuery& q) {
      ++asked;
      return form(q);
    };
    registry.add(std::move(m));
  }
  const Group g = make_group(8), other = make_group(6);
  SelectionMemo memo;
  const auto select = [&](const Group& group, uint64_t count, const RoomFor& room = {}) {
    return select_algorithm(registry, Collective::AllReduce, group, lane_shape(count), 4.0 * static_cast<double>(count),
                            machine(group), {}, room, &memo);
  };
  const Selection first = select(g, 1000);
  EXPECT_EQ(asked, 2u);
  const Selection again = select(g, 1000);
  EXPECT_EQ(asked, 2u);
  EXPECT_EQ(again.text, first.text);
  ASSERT_EQ(again.candidates.size(), 2u);
  EXPECT_EQ(again.candidates[1].seconds, first.candidates[1].seconds);
  // Whether there is room is asked every time.
  const auto none = [&](const AlgorithmModule& m) { return &m == first.module ? "full" : ""; };
  EXPECT_NE(select(g, 1000, none).module, first.module);
  EXPECT_EQ(select(g, 1000).module, first.module);
  EXPECT_EQ(asked, 2u);
  select(other, 1000);
  EXPECT_EQ(asked, 4u);
  for (uint64_t count = 1; count <= SelectionMemo::kCalls; ++count) select(g, count);
  const uint32_t before = asked;
  select(g, 1000);  // forgotten
  EXPECT_EQ(asked, before + 2);
}

TEST(Select, RefusesConnectionsThatLeaveTheGroup) {
  const Group g = make_group(4);
  AlgorithmModule module = *builtin().find("ring");
  module.connections = [](const Group&, const CollectiveShape&) {
    return std::vector<Connection>{{1, 0, tl::Dir::Next, 4, 0, tl::Dir::Prev}};
  };
  try {
    connections_of(module, g, {});
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("'ring' connects rank 4 cube 0; the group has 4 ranks of 1 cubes"));
  }
  module.connections = [](const Group&, const CollectiveShape&) {
    return std::vector<Connection>{{1, 2, tl::Dir::Next, 3, 0, tl::Dir::Prev}};
  };
  EXPECT_THROW(connections_of(module, g, {}), std::runtime_error);
}

TEST(Select, SaysWhatAndWhy) {
  const Group torus = grid(SipTopology::Torus2d, 4, 4), mesh = grid(SipTopology::Mesh2d, 3, 3);
  const Selection s = select_algorithm(builtin(), Collective::AllReduce, torus, lane_shape(1), kMiB, machine(torus));
  EXPECT_THAT(s.text, HasSubstr("torus_2d for all_reduce of 1048576 bytes on 16 ranks of a torus_2d: "));
  EXPECT_THAT(s.text, HasSubstr("; next: "));
  for (size_t i = 1; i < s.candidates.size() && s.candidates[i].refusal.empty(); ++i) {
    EXPECT_LE(s.candidates[i - 1].seconds, s.candidates[i].seconds);
  }
  CollectiveShape bools = lane_shape(1);
  bools.dtype = DType::Bool;
  bools.op = ReduceOp::Avg;
  const Selection none = select_algorithm(builtin(), Collective::AllReduce, torus, bools, kMiB, machine(torus));
  EXPECT_EQ(none.module, nullptr);
  EXPECT_THAT(none.text, HasSubstr("does not know avg of bool"));
  const std::string why = refusal_of(builtin(), *builtin().find("torus_2d"), mesh, lane_shape(1), machine(mesh));
  EXPECT_THAT(why, HasSubstr("torus_2d cannot run here: "));
  EXPECT_THAT(why, HasSubstr("algorithms that fit: "));
  EXPECT_THAT(why, HasSubstr("mesh_2d, mesh_2d_1, recursive_doubling"));
  EXPECT_EQ(refusal_of(builtin(), *builtin().find("mesh_2d"), mesh, lane_shape(1), machine(mesh)), "");
}

SystemConfig without_link(SystemConfig c, uint32_t from, uint32_t to) {
  LinkOverride o;
  o.from = SipId{from};
  o.to = SipId{to};
  o.absent = true;
  c.link_overrides.push_back(o);
  return c;
}

// What was sent over an absent link goes over two others: it shares them, and comes later.
TEST(Select, AbsentLinksMakeDetours) {
  const Group joined = grid(SipTopology::FullyConnected, 8, 1), ring = make_group(8);
  const auto seconds = [](const char* name, const SystemConfig& c, const Group& g, double bytes) {
    return closed_form(*builtin().find(name), c, g, lane_shape(1024), bytes);
  };
  const SystemConfig whole = machine(joined), less = without_link(whole, 0, 1);
  const double hop = 50e-9;
  for (const double bytes : {8 * 1024.0, 16 * kMiB}) {
    const auto added = [&](const char* name, double passes, double load) {
      CostQuery q = platform_figures(whole, joined, lane_shape(1024), bytes);
      EXPECT_NEAR(seconds(name, whole, joined, bytes), builtin().find(name)->time(q), 1e-15) << name;
      q.bandwidth /= load;
      q.wire_bandwidth /= load;
      EXPECT_NEAR(seconds(name, less, joined, bytes), builtin().find(name)->time(q) + passes * hop, 1e-15) << name;
    };
    added("direct", 2, 2);
    added("reduce_scatter_direct", 1, 2);
    added("all_gather_direct", 1, 2);
    added("halving_doubling", 2, 1);  // one peer at a time
    added("recursive_doubling", 1, 1);
    added("all_to_all_direct", 1, 2);
    if (bytes > kMiB) continue;  // else what hides behind the bytes
    added("ring_bidirectional", 2, 2);
    added("ring", 2, 1);  // 0 to 2 to 1: no other message of the ring goes that way
    added("all_gather_ring", 1, 1);
  }
  // The other way round a ring of 8 is 6 hops longer, against the direction of a ring algorithm.
  const SystemConfig broken = without_link(machine(ring), 3, 4);
  EXPECT_NEAR(seconds("ring", broken, ring, 8192) - seconds("ring", machine(ring), ring, 8192), 12 * hop, 1e-12);
  // A missing link that the group's messages do not need is none.
  const Group half = [&] {
    Group g = joined;
    g.sips = {SipId{2}, SipId{3}, SipId{4}, SipId{5}};
    return g;
  }();
  EXPECT_EQ(seconds("direct", less, half, kMiB), seconds("direct", whole, half, kMiB));
  // Without two ways out of rank 0, blocks to three ranks share one link.
  const SystemConfig fewer = without_link(without_link(less, 0, 2), 0, 3);
  EXPECT_GT(seconds("direct", fewer, joined, 64 * kMiB), 1.9 * seconds("direct", less, joined, 64 * kMiB));
}

using Links = std::vector<std::pair<uint32_t, uint32_t>>;

/// With the figures of peer_64B_50ns.
double detoured(const char* name, const Group& g, double bytes, const Links& absent) {
  SystemConfig c = machine(g);
  for (const auto& [from, to] : absent) c = without_link(std::move(c), from, to);
  const Detours detours(c);
  CostQuery q;
  q.ranks = g.size();
  q.bytes = bytes;
  q.latency = q.hop_latency = 50e-9;
  q.bandwidth = 64e9;
  q.group = &g;
  q.message_bytes = 16352;
  q.slots = 8;
  q.detours = &detours;
  return builtin().find(name)->time(q) * 1e9;
}

// The simulated times of peer_64B_50ns.
TEST(ClosedForms, DetoursAreWhatTheySimulatedAs) {
  const auto near = [](const char* name, const Group& g, double bytes, const Links& absent, double simulated) {
    EXPECT_NEAR(detoured(name, g, bytes, absent) / simulated, 1, 0.1) << name << " of " << bytes;
  };
  // The way round is 14 hops longer, and 8 messages wait for their credits that long.
  const Group ring = make_group(16);
  near("ring_bidirectional", ring, 16384, {{8, 9}}, 5465);
  near("ring", ring, 16384, {{8, 9}}, 5645);
  // One colour uses the rows' links while the columns' are free to route over, and the other way round.
  const Group mesh = grid(SipTopology::Mesh2d, 4, 4), small = grid(SipTopology::Mesh2d, 3, 3);
  const Links below{{9, 13}, {5, 9}, {4, 8}};
  near("mesh_2d_1", mesh, kMiB, below, 37637);
  near("mesh_2d", mesh, kMiB, below, 47158);
  near("ring_bidirectional", mesh, kMiB, below, 46236);
  near("mesh_2d_1", small, 16384, {{5, 8}, {1, 4}}, 1114);
  const Group torus = grid(SipTopology::Torus2d, 4, 2);
  near("torus_2d", torus, kMiB, {{0, 1}, {0, 3}, {4, 7}}, 39193);
  // Every exchange, and every edge of a tree, goes its own way.
  near("double_binary_tree", small, 16384, {{5, 8}, {1, 4}}, 1626);
  near("double_binary_tree", mesh, kMiB, below, 57602);
  near("recursive_doubling", grid(SipTopology::Mesh2d, 8, 2), 4096, {{9, 10}, {3, 4}}, 1604);
  near("recursive_doubling", make_group(6), 4096, {{5, 0}}, 786);
  near("halving_doubling", mesh, kMiB, below, 126647);
}

// Without this the fastest of the forms was 28 to 98 % slower than the fastest of the simulations.
TEST(Select, FastestWithAbsentLinks) {
  const auto chosen_without = [](const Group& g, double bytes, const Links& absent) {
    const AlgorithmModule* best = nullptr;
    double least = 0;
    for (const auto& [name, m] : builtin().modules()) {
      if (m.collective != Collective::AllReduce || m.layouts.count(CubeLayout::Sharded) == 0) continue;
      if (!m.refusal(g).empty()) continue;
      const double t = detoured(name.c_str(), g, bytes, absent);
      if (best == nullptr || t < least) best = &m, least = t;
    }
    return best->name;
  };
  EXPECT_EQ(chosen_without(make_group(16), 16384, {{8, 9}}), "double_binary_tree");
  EXPECT_EQ(chosen_without(grid(SipTopology::Mesh2d, 4, 4), kMiB, {{9, 13}, {5, 9}, {4, 8}}), "mesh_2d_1");
  EXPECT_EQ(chosen_without(grid(SipTopology::Mesh2d, 3, 3), 16384, {{5, 8}, {1, 4}}), "mesh_2d_1");
  EXPECT_EQ(chosen_without(grid(SipTopology::Torus2d, 4, 2), kMiB, {{0, 1}, {0, 3}, {4, 7}}), "ring_bidirectional");
  EXPECT_EQ(chosen_without(grid(SipTopology::Mesh2d, 8, 2), 4096, {{9, 10}, {3, 4}}), "mesh_2d_1");
}

Group part_of(Group machine, const std::vector<uint32_t>& sips) {
  machine.sips.clear();
  for (const uint32_t s : sips) machine.sips.push_back(SipId{s});
  return machine;
}

void near(const Group& g, const char* name, double bytes, double simulated) {
  EXPECT_NEAR(detoured(name, g, bytes, {}) / simulated, 1, 0.06) << name << " of " << bytes;
}

// The simulated times of peer_64B_50ns: SIPs that the ring closes over four others, a diagonal, scattered ones.
TEST(ClosedForms, SubGroupsAreRoutedAsTheySimulate) {
  const Group arc = part_of(make_group(8), {0, 1, 2, 3});
  near(arc, "ring_bidirectional", 1024, 410);
  near(arc, "mesh_2d_1", 1024, 324);
  near(arc, "recursive_doubling", 1024, 182);
  near(arc, "double_binary_tree", 1024, 332);
  near(arc, "halving_doubling", 65536, 2770);
  near(arc, "reduce_scatter_ring", 1024, 262);
  near(arc, "broadcast_ring", 1024, 282);
  near(arc, "broadcast_tree", 1024, 198);
  near(arc, "all_to_all_ring", 1024, 314);
  near(arc, "all_to_all_direct", 1024, 158);
  const Group diagonal = part_of(grid(SipTopology::Mesh2d, 4, 4), {0, 5, 10, 15});
  near(diagonal, "ring", 1024, 1024);
  near(diagonal, "recursive_doubling", 1024, 332);
  near(diagonal, "all_gather_ring_bidirectional", 65536, 1069);
  near(diagonal, "reduce_ring", 1024, 524);
  near(diagonal, "reduce_tree", 65536, 1841);
  near(diagonal, "gather_tree", 65536, 1077);
  near(diagonal, "all_to_all_ring", 1024, 614);
  const Group scattered = part_of(grid(SipTopology::Torus2d, 4, 4), {4, 8, 11, 14});
  near(scattered, "ring_bidirectional", 1024, 708);
  near(scattered, "reduce_scatter_line", 1024, 312);
  near(scattered, "broadcast_ring", 1024, 424);
  near(scattered, "all_to_all_direct", 65536, 924);
}

// The simulated times of peer_64B_50ns: lines, rings, odd and even sides, and columns that are no neighbours.
TEST(ClosedForms, AllToAllAlongRowsAndColumns) {
  const Group mesh = grid(SipTopology::Mesh2d, 9, 9), torus = grid(SipTopology::Torus2d, 5, 5);
  near(mesh, "all_to_all_grid", 3888, 2489);
  near(mesh, "all_to_all_grid", 262116, 9206);
  near(mesh, "all_to_all_grid", 16777044, 582782);
  near(grid(SipTopology::Mesh2d, 81, 1), "all_to_all_grid", 262116, 85687);
  near(grid(SipTopology::Mesh2d, 7, 11), "all_to_all_grid", 262108, 11274);
  near(grid(SipTopology::Mesh2d, 2, 3), "all_to_all_grid", 262128, 2981);
  near(torus, "all_to_all_grid", 262100, 2736);
  near(torus, "all_to_all_grid", 16777200, 168086);
  near(grid(SipTopology::Torus2d, 4, 4), "all_to_all_grid", 262144, 2162);
  const std::vector<uint32_t> apart{6, 8, 10, 12, 14, 16, 18, 20, 22};
  near(part_of(grid(SipTopology::Mesh2d, 6, 6), apart), "all_to_all_grid", 4068, 436);
  near(part_of(grid(SipTopology::Mesh2d, 6, 6), apart), "all_to_all_grid", 262116, 3065);
  near(part_of(grid(SipTopology::Torus2d, 6, 6), apart), "all_to_all_grid", 4068, 279);
}

// An exchange is waited for by those whose way is long, and not by all: not every step's longest way counts.
TEST(ClosedForms, ExchangesWaitForTheirOwnWays) {
  near(part_of(make_group(8), {0, 1, 2, 4, 6, 7}), "recursive_doubling", 1024, 399);
  near(part_of(make_group(16), {0, 4, 15}), "recursive_doubling", 1024, 282);
  near(part_of(make_group(16), {0, 4, 15}), "recursive_doubling", 8192, 510);
  near(part_of(grid(SipTopology::Mesh2d, 3, 3), {2, 3, 4, 6, 8}), "recursive_doubling", 1024, 349);
}

// What took every connection for one hop on a link of its own chose rings there, which take up to 2.4 times as long.
TEST(Select, KnowsTheWaysBetweenMembersThatAreNoNeighbours) {
  const auto chosen_of = [](Collective c, const Group& g, double bytes) {
    return select_algorithm(builtin(), c, g, lane_shape(1024), bytes, machine(g)).module->name;
  };
  const Group arc = part_of(make_group(8), {0, 1, 2, 3});
  const Group diagonal = part_of(grid(SipTopology::Mesh2d, 4, 4), {0, 5, 10, 15});
  for (const Group& g : {arc, diagonal}) {
    EXPECT_EQ(chosen_of(Collective::AllReduce, g, 1024), "recursive_doubling");
    EXPECT_EQ(chosen_of(Collective::AllToAll, g, 1024), "all_to_all_direct");
    EXPECT_EQ(chosen_of(Collective::AllToAll, g, 32768), "all_to_all_direct");
    EXPECT_EQ(chosen_of(Collective::ReduceScatter, g, 1024), "reduce_scatter_line");
    EXPECT_EQ(chosen_of(Collective::Broadcast, g, 1024), "broadcast_tree");
  }
  const Group apart = part_of(grid(SipTopology::Torus2d, 6, 4), {0, 4, 7});
  EXPECT_EQ(chosen_of(Collective::Reduce, apart, 1024), "reduce_tree");
}

// All members of a machine: nothing is asked, and the forms are those of the whole fabric.
TEST(Select, WholeFabricsHaveNoDetours) {
  for (const Group& g : {make_group(8), grid(SipTopology::Torus2d, 4, 4), grid(SipTopology::Mesh2d, 4, 3),
                         grid(SipTopology::Switch, 8, 1)}) {
    const SystemConfig c = machine(g);
    EXPECT_FALSE(Detours::possible(c, g));
    const CostQuery q = platform_figures(c, g, lane_shape(1024), kMiB);
    for (const char* name : {"ring", "recursive_doubling", "broadcast_tree", "broadcast_ring", "all_to_all_direct"}) {
      EXPECT_EQ(closed_form(*builtin().find(name), c, g, lane_shape(1024), kMiB), builtin().find(name)->time(q));
    }
    const Group part = part_of(g, {0, 2, 3});
    EXPECT_EQ(Detours::possible(c, part), g.topology != SipTopology::Switch);
  }
}

// The ways by coordinates are the fabric's routes; what shares a link counts there, what goes beside only as load.
TEST(Select, WaysAreTheFabricsRoutes) {
  for (const Group& g : {make_group(6), grid(SipTopology::Torus2d, 4, 3), grid(SipTopology::Mesh2d, 3, 4),
                         grid(SipTopology::FullyConnected, 5, 1), grid(SipTopology::Torus2d, 2, 4)}) {
    const SystemConfig c = machine(g);
    const SipGraph graph(c);
    const Detours detours(c);
    for (uint32_t from = 0; from < c.sips; ++from) {
      for (uint32_t to = 0; to < c.sips; ++to) {
        for (const std::optional<Side> side : {std::optional<Side>(), {Side::W}, {Side::N}}) {
          if (from == to) continue;
          const std::vector<SipId> path = graph.path(SipId{from}, SipId{to}, side);
          const Detours::Ways way = detours.of({{SipId{from}, SipId{to}, side, 1}});
          ASSERT_EQ(way.links.front() + 1, path.size());
          // Flows over each of its links, and no others, add to what it carries.
          for (size_t i = 1; i < path.size(); ++i) {
            const Detours::Ways beside =
                detours.of({{SipId{from}, SipId{to}, side, 1}}, {{path[i - 1], path[i], {}, 5}});
            ASSERT_EQ(beside.carried.front(), 6);
          }
        }
      }
    }
  }
  const Detours ring(machine(make_group(8)));
  const auto flow = [](uint32_t from, uint32_t to, double bytes) {
    return Flow{SipId{from}, SipId{to}, std::nullopt, bytes};
  };
  const Detours::Ways ways = ring.of({flow(0, 2, 3), flow(1, 2, 4), flow(5, 6, 2), flow(5, 6, 2)});
  EXPECT_EQ(ways.links, (std::vector<uint32_t>{2, 1, 1, 1}));
  EXPECT_EQ(ways.carried, (std::vector<double>{7, 7, 4, 4}));
  EXPECT_EQ(ways.fullest, 7);
  EXPECT_EQ(ways.alone, 4);
}

// Where cubes use the attachment that is nearest, six of sixteen share the fullest one.
TEST(ClosedForms, AttachmentsLimitWhatLeavesManyLinksAtOnce) {
  Group g = grid(SipTopology::FullyConnected, 16, 1);
  g.cube_w = g.cube_h = 4;
  g.n_cubes = 16;
  SystemConfig c = machine(g);
  c.cube_w = c.cube_h = 4;
  c.sip_ports = {{Side::E, CubeId{11}}, {Side::W, CubeId{8}}, {Side::N, CubeId{2}}, {Side::S, CubeId{14}}};
  const auto cube_rate = static_cast<double>(c.noc.cube_link.bytes_per_second);
  const CostQuery q = platform_figures(c, g, lane_shape(1 << 20), 4 * kMiB);
  EXPECT_NEAR(q.mesh_bandwidth, cube_rate * 16 / 6, 0.05 * cube_rate) << "less the headers";
  EXPECT_LT(q.mesh_bandwidth, cube_rate * 16 / 6);
  EXPECT_NEAR(link_bandwidth(q, 15), q.mesh_bandwidth / 15, 1);
  EXPECT_GT(closed_form(*builtin().find("direct"), c, g, lane_shape(1 << 20), 4 * kMiB),
            2 * 15.0 / 16 * 4 * kMiB / (cube_rate * 16 / 6));
  g.topology = SipTopology::Ring1d;
  c.topology = SipTopology::Ring1d;
  EXPECT_EQ(platform_figures(c, g, lane_shape(1 << 20), 4 * kMiB).mesh_bandwidth, 0) << "each side has its own";
}

// Connections that do not fit with the usual slots get small ones: the form is that of those, as `auto` has it.
TEST(Select, FormsKnowShrunkQueues) {
  const Group g = grid(SipTopology::FullyConnected, 64, 1);
  SystemConfig c = machine(g);
  const CollectiveShape shape = lane_shape(1 << 18);
  const AlgorithmModule& direct = *builtin().find("direct");
  const auto with = [&](const RingShape& r) { return direct.time(platform_figures(c, g, shape, kMiB, r)); };
  c.ipcq.ring_bytes = uint64_t{63} * c.ipcq.sip.n_slots * c.ipcq.sip.slot_bytes;
  EXPECT_DOUBLE_EQ(closed_form(direct, c, g, shape, kMiB), with(c.ipcq.sip));
  --c.ipcq.ring_bytes;
  EXPECT_DOUBLE_EQ(closed_form(direct, c, g, shape, kMiB), with({2, 1 << 10}));
  EXPECT_NE(with({2, 1 << 10}), with(c.ipcq.sip));
}

struct Simulated {
  const char* name;
  double bytes, nanoseconds;
  uint32_t root = 0;
};

/// Forms beside the simulated times of peer_64B_50ns with such slots.
void near(const Group& g, const RingShape& slots, const std::vector<Simulated>& rows) {
  const SystemConfig c = machine(g);
  const Detours detours(c);
  for (const Simulated& row : rows) {
    CostQuery q;
    q.ranks = g.size();
    q.bytes = row.bytes;
    q.hop_latency = 50e-9;
    q.latency = g.topology == SipTopology::Switch ? 2 * q.hop_latency : q.hop_latency;
    q.message_bytes = slots.slot_bytes - 32.0;
    q.slots = slots.n_slots;
    q.wire_bandwidth = 64e9;
    q.bandwidth = std::min(64e9, q.slots * q.message_bytes / (2 * q.latency + q.message_bytes / 64e9));
    q.group = &g;
    q.root = row.root;
    if (Detours::possible(c, g)) q.detours = &detours;
    EXPECT_NEAR(builtin().find(row.name)->time(q) * 1e9 / row.nanoseconds, 1, 0.05)
        << row.name << " of " << row.bytes << " in " << slots.n_slots << " slots, root " << row.root;
  }
}

// With one slot a message waits for the credit of the one before on its connection, and messages to other peers do not.
TEST(ClosedForms, CreditsComeBackOncePerRoundTrip) {
  const RingShape one{1, 16 << 10}, small{1, 1 << 10};
  near(make_group(16), one,
       {{"all_to_all_ring", 1024, 3587},
        {"all_to_all_direct", 1024, 458},
        {"all_gather_ring", 16384, 1693},
        {"all_gather_ring_bidirectional", 16384, 1572}});
  // Of a line's all-reduce each step waits for the one before.
  near(grid(SipTopology::Mesh2d, 1, 8), one, {{"mesh_2d_1", 1024, 1330}, {"mesh_2d_1", 16384, 1751}});
  near(grid(SipTopology::Mesh2d, 2, 4), one, {{"mesh_2d_1", 1024, 629}, {"mesh_2d_1", 16384, 1052}});
  // The longest connection does not carry the most blocks.
  near(part_of(grid(SipTopology::Mesh2d, 6, 6), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), small,
       {{"all_gather_line", 16384, 2296}});
  near(part_of(make_group(12), {1, 2, 4, 9, 10, 11}), small, {{"reduce_scatter_line", 16384, 4560}});
  // A message alone takes its time on the link, whatever credits let through of many.
  near(make_group(8), small,
       {{"broadcast_ring", 4096, 676},
        {"broadcast_tree", 4096, 712},
        {"reduce_ring", 4096, 676},
        {"reduce_ring", 16384, 1373},
        {"reduce_tree", 16384, 2105}});
  // The connections of a switch have credits of their own on one link.
  near(grid(SipTopology::Switch, 6, 1), {8, 256},
       {{"broadcast_ring", 16384, 1397}, {"broadcast_tree", 16384, 2062}, {"reduce_tree", 16384, 2080}});
}

// Of 8 slots 7 hold what is to be passed on: one message goes on per L, and not all of them. Sums hold none.
TEST(ClosedForms, ResultsHoldSmallSlots) {
  const RingShape small{8, 256};
  near(make_group(8), small,
       {{"all_gather_ring", 4096, 379},
        {"all_gather_ring", 16384, 2538},
        {"all_gather_ring", 65536, 11220},
        {"all_gather_ring_bidirectional", 16384, 676},
        {"all_gather_ring_bidirectional", 65536, 2930},
        {"reduce_scatter_ring", 4096, 379},
        {"reduce_scatter_ring", 65536, 3525},
        {"reduce_scatter_line", 16384, 1004},
        {"ring", 16384, 3585},
        {"ring", 65536, 14907},
        {"ring_bidirectional", 4096, 433}});
  near(make_group(5), {4, 256}, {{"all_gather_ring", 16384, 2526}, {"mesh_2d", 4096, 865}, {"torus_2d", 4096, 437}});
  near(grid(SipTopology::Torus2d, 4, 4), small, {{"torus_2d_1", 16384, 2963}, {"torus_2d", 4096, 428}});
}

TEST(ClosedForms, RootsAreWhereTheyAre) {
  const RingShape usual{8, 16 << 10};
  near(grid(SipTopology::Mesh2d, 4, 4), usual,
       {{"broadcast_tree", 1024, 396, 0},
        {"broadcast_tree", 1024, 264, 5},
        {"broadcast_tree", 65536, 2001, 5},
        {"reduce_tree", 1024, 264, 5},
        {"gather_tree", 1024, 306, 0},
        {"gather_tree", 1024, 204, 5},
        {"scatter_tree", 1024, 204, 5}});
  near(part_of(grid(SipTopology::Mesh2d, 4, 4), {0, 1, 2, 3, 7, 11}), usual,
       {{"broadcast_tree", 1024, 330, 0},
        {"broadcast_tree", 1024, 198, 2},
        {"broadcast_ring", 1024, 490, 2},
        {"reduce_tree", 1024, 198, 2},
        {"gather_tree", 1024, 158, 2},
        {"scatter_tree", 1024, 158, 2}});
  // What the call says arrives there.
  const Group mesh = grid(SipTopology::Mesh2d, 4, 4);
  CollectiveShape shape = lane_shape(256);
  shape.root = 5;
  EXPECT_EQ(platform_figures(machine(mesh), mesh, shape, 1024).root, 5u);
}

// The connections of a switch share its links: each waits for credits of its own, and the others go on.
TEST(ClosedForms, CreditsOfManyConnectionsLeaveAnUplinkFull) {
  const Group hub = grid(SipTopology::Switch, 32, 1);
  const CostQuery q = platform_figures(machine(hub), hub, lane_shape(1 << 20), 4 * kMiB, {2, 1 << 10});
  ASSERT_LT(q.bandwidth, 0.3 * q.wire_bandwidth);
  const double bytes = 31.0 / 32 * 4 * kMiB;
  EXPECT_NEAR(builtin().find("all_gather_direct")->time(q), bytes / q.wire_bandwidth, 0.02 * bytes / q.wire_bandwidth);
}

// From the last SIP of a row to the first one of the next, and from the last one to SIP 0.
TEST(ClosedForms, SendsToTheNextRankTakeTheLongestWay) {
  const AlgorithmModule& sends = *builtin().find("send_recv");
  const auto seconds = [&](SipTopology topology, uint32_t w, uint32_t h, double bytes, const RingShape& ring) {
    const Group g = grid(topology, w, h);
    return sends.time(platform_figures(machine(g), g, lane_shape(1 << 10), bytes, ring));
  };
  const RingShape slots{8, 16 << 10}, few{2, 1 << 10};
  const double hop = seconds(SipTopology::Ring1d, 16, 1, 4096, slots);
  const double link = static_cast<double>(machine(grid(SipTopology::Ring1d, 16, 1)).sip_link.latency) * 1e-12;
  EXPECT_NEAR(seconds(SipTopology::Mesh2d, 4, 4, 4096, slots) - hop, 5 * link, link / 100) << "six hops";
  EXPECT_NEAR(seconds(SipTopology::Torus2d, 4, 4, 4096, slots) - hop, link, link / 100) << "two hops";
  EXPECT_NEAR(seconds(SipTopology::FullyConnected, 16, 1, 4096, slots), hop, hop / 100);
  // A round trip per two messages.
  EXPECT_GT(seconds(SipTopology::Mesh2d, 4, 4, 1 << 20, few), (1 << 20) / 2048.0 * 12 * link);
}

TEST(Select, FiguresOfThePlatform) {
  const Group g = make_group(4);
  SystemConfig c = machine(g);
  const CostQuery usual = platform_figures(c, g, lane_shape(1), kMiB);
  EXPECT_GT(usual.latency, 50e-9);
  EXPECT_LT(usual.bandwidth, 64e9);
  EXPECT_GT(usual.bandwidth, 0.97 * 64e9);
  c.ipcq.sip = {1, 1 << 10};  // one message of 992 bytes in a round trip of more than 100 ns
  EXPECT_LT(platform_figures(c, g, lane_shape(1), kMiB).bandwidth, 992 / 100e-9);
  c = machine(g);
  LinkOverride slow;
  slow.from = SipId{1};
  slow.to = SipId{2};
  slow.bytes_per_second = 6400000000;
  c.link_overrides.push_back(slow);
  EXPECT_LT(platform_figures(c, g, lane_shape(1), kMiB).bandwidth, 6.4e9);
  c = machine(g);
  c.pe.dma_bytes_per_second = 64000000000;  // of two links at once each gets half
  const CostQuery narrow = platform_figures(c, g, lane_shape(1), kMiB);
  EXPECT_NEAR(link_bandwidth(narrow, 2), 32e9, 1e6);
}

// What has no ring is carried by intercube_mesh, what is no rectangle by intercube.
TEST(Select, RefusalsOfPartialTensorsNameWhatWorks) {
  const CollectiveShape shape = lane_shape(100, CubeLayout::Partial);
  const auto refusal = [&](const char* module, const Group& g) {
    return refusal_of(builtin(), *builtin().find(module), g, shape, machine(g));
  };
  const Group mesh = make_group(9, 2, 2, 0, SipTopology::Mesh2d, 3, 3);
  EXPECT_THAT(refusal("intercube", mesh), AllOf(HasSubstr("has no Hamiltonian cycle"), Not(HasSubstr("mesh_2d;")),
                                                HasSubstr("algorithms that fit: intercube_mesh")));
  EXPECT_EQ(refusal("intercube_mesh", mesh), "");
  EXPECT_THAT(refusal("mesh_2d", mesh), HasSubstr("algorithms that fit: intercube_mesh"));
  Group corner = make_group(3, 2, 2, 0, SipTopology::Mesh2d, 3, 3);
  corner.sips = {SipId{0}, SipId{1}, SipId{3}};
  EXPECT_THAT(refusal("intercube_mesh", corner), HasSubstr("algorithms that fit: intercube"));
  EXPECT_EQ(refusal("intercube", corner), "");
}

}  // namespace
}  // namespace ahbm::ccl::test
