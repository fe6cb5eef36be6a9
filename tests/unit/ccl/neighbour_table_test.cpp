#include "ccl/neighbour_table.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "ahbm/registers/qp.h"
#include "tests/unit/ccl/harness.h"

namespace ahbm::ccl::test {
namespace {

using ::testing::HasSubstr;
namespace offset = regs::qp::offset;

/// Registers as a map, with a switch that makes the n-th write fail.
class MapBus final : public BusAccess {
 public:
  void write(Addr address, const void* data, size_t bytes) override {
    if (fail_at != 0 && ++writes == fail_at) throw std::runtime_error(fmt::format("refused 0x{:x}", address));
    uint64_t v = 0;
    std::memcpy(&v, data, bytes);
    values[address] = v;
    log.push_back(address);
  }
  void read(Addr address, void* data, size_t bytes) override { std::memcpy(data, &values[address], bytes); }

  std::map<Addr, uint64_t> values;
  std::vector<Addr> log;
  size_t fail_at = 0, writes = 0;
};

struct Installed {
  SystemConfig config;
  Group group;
  std::vector<Connection> connections;
  std::vector<QpAssignment> assignments;
};

Installed assign(QpAllocator& allocator, uint32_t id, uint32_t n = 4) {
  Installed i;
  i.group = make_group(n, 2, 2);
  i.connections = builtin().find("ring")->connections(i.group, {});
  i.assignments = assign_queue_pairs(allocator, id, i.group, i.connections, i.config.ipcq);
  return i;
}

TEST(QpAllocator, FirstFitAndReuse) {
  SystemConfig config;
  QpAllocator allocator(config);
  const PeLocation pe{SipId{1}, CubeId{2}, PeId{0}};
  EXPECT_EQ(allocator.allocate(pe, 4096, 1).ring_offset, 0u);
  EXPECT_EQ(allocator.allocate(pe, 8192, 2).ring_offset, 4096u);
  const auto third = allocator.allocate(pe, 4096, 1);
  EXPECT_EQ(third.qp, QpId{2});
  EXPECT_EQ(third.ring_offset, 12288u);
  allocator.free_group(2);
  const auto reused = allocator.allocate(pe, 4096, 3);
  EXPECT_EQ(reused.qp, QpId{1});
  EXPECT_EQ(reused.ring_offset, 4096u);
  EXPECT_EQ(allocator.allocate(pe, 8192, 3).ring_offset, 16384u);  // 4 KiB are free at 8192: too little
  EXPECT_EQ(allocator.queue_pairs_in_use(pe), 4u);
  for (uint32_t g : {1u, 3u}) allocator.free_group(g);
  EXPECT_EQ(allocator.queue_pairs_in_use(), 0u);
  EXPECT_EQ(allocator.ring_bytes_in_use(pe), 0u);
}

TEST(QpAllocator, SaysWhoHasTheQueuePairs) {
  SystemConfig config;
  config.ipcq.queue_pairs = 3;
  QpAllocator allocator(config);
  const PeLocation pe{SipId{1}, CubeId{2}, PeId{0}};
  allocator.allocate(pe, 4096, 7);
  allocator.allocate(pe, 4096, 7);
  allocator.allocate(pe, 100, 9);
  try {
    allocator.allocate(pe, 64, 10);
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("sip1.cube2.pe0"));
    EXPECT_THAT(e.what(), HasSubstr("3 of 3 queue pairs"));
    EXPECT_THAT(e.what(), HasSubstr("group 7: 2 queue pairs, 8192 ring bytes; group 9: 1 queue pairs, 128 ring bytes"));
  }
}

TEST(QpAllocator, SaysWhoHasTheRingBytes) {
  SystemConfig config;
  config.ipcq.ring_bytes = 10000;
  QpAllocator allocator(config);
  const PeLocation pe{};
  allocator.allocate(pe, 8192, 1);
  EXPECT_THROW(allocator.allocate(pe, 4096, 2), std::runtime_error);
  EXPECT_EQ(allocator.queue_pairs_in_use(pe), 1u);
  EXPECT_EQ(allocator.allocate(pe, 1024, 2).ring_offset, 8192u);
}

TEST(QpAllocator, AssignmentIsAllOrNothing) {
  SystemConfig config;
  config.ipcq.queue_pairs = 3;  // a corner of 2x2 cubes needs two for the mesh and two for the ring
  QpAllocator allocator(config);
  const Group group = make_group(4, 2, 2);
  EXPECT_THROW(assign_queue_pairs(allocator, 1, group, builtin().find("ring")->connections(group, {}), config.ipcq),
               std::runtime_error);
  EXPECT_EQ(allocator.queue_pairs_in_use(), 0u);
}

TEST(QpAllocator, AFailedAssignmentLeavesWhatTheGroupHas) {
  SystemConfig config;
  config.ipcq.queue_pairs = 3;
  QpAllocator allocator(config);
  const Group group = make_group(4);
  const auto ring = builtin().find("ring")->connections(group, {});
  const auto before = assign_queue_pairs(allocator, 1, group, ring, config.ipcq);
  EXPECT_EQ(allocator.queue_pairs_in_use(), 8u);
  EXPECT_THROW(assign_queue_pairs(allocator, 1, group, ring, config.ipcq), std::runtime_error);
  EXPECT_EQ(allocator.queue_pairs_in_use(), 8u);
  // What was taken and given back is the first fit again.
  const auto one = assign_queue_pairs(allocator, 1, group, {ring.front()}, config.ipcq);
  EXPECT_EQ(value(one[0].a.qp), 2u);
  EXPECT_EQ(one[0].a.ring_offset, uint64_t{2} * config.ipcq.sip.n_slots * config.ipcq.sip.slot_bytes);
}

TEST(QpAllocator, FreesOneQueuePair) {
  SystemConfig config;
  QpAllocator allocator(config);
  const PeLocation pe{};
  const auto first = allocator.allocate(pe, 4096, 1), second = allocator.allocate(pe, 4096, 1);
  allocator.free(pe, first.qp);
  allocator.free(pe, first.qp);
  EXPECT_EQ(allocator.queue_pairs_in_use(pe), 1u);
  EXPECT_EQ(allocator.allocate(pe, 4096, 2).qp, first.qp);
  allocator.free_group(2);
  allocator.free(pe, second.qp);
  EXPECT_EQ(allocator.queue_pairs_in_use(), 0u);
  allocator.free(pe, second.qp);
}

TEST(NeighbourTable, BothEndsNameEachOther) {
  const SystemConfig config;
  QpAllocator allocator(config);
  const Installed i = assign(allocator, 1);
  MapBus bus;
  install(bus, i.assignments);
  ASSERT_EQ(i.assignments.size(), 4u * 4 + 4 * 4);  // four mesh edges per SIP, four lanes of four
  for (const QpAssignment& q : i.assignments) {
    for (const auto& [own, peer] : {std::pair{q.a, q.b}, std::pair{q.b, q.a}}) {
      const auto reg = [&, o = own](Addr at) { return bus.values.at(qp_reg_address(o.pe, o.qp, at)); };
      EXPECT_EQ(regs::qp::CTRL_ENABLE.of(reg(offset::CTRL)), 1u);
      EXPECT_EQ(reg(offset::PEER_QP), value(peer.qp));
      EXPECT_EQ(reg(offset::PEER_PE), pe_base(peer.pe));
      EXPECT_EQ(reg(offset::PEER_RING), tcm_address(peer.pe, peer.ring_offset));
      EXPECT_EQ(reg(offset::PEER_SLOTS), peer.n_slots);
      EXPECT_EQ(reg(offset::SLOT_BYTES), q.slot_bytes);
      EXPECT_EQ(reg(offset::RING), own.ring_offset);
      EXPECT_EQ(reg(offset::SLOTS), own.n_slots);
    }
  }
}

TEST(NeighbourTable, EnablesLast) {
  const SystemConfig config;
  QpAllocator allocator(config);
  const Installed i = assign(allocator, 1, 2);
  MapBus bus;
  install(bus, i.assignments);
  const size_t enables = 2 * i.assignments.size();
  for (size_t k = 0; k < bus.log.size(); ++k) {
    const bool is_enable = k >= bus.log.size() - enables;
    EXPECT_TRUE(!is_enable || (bus.log[k] & 0xFF) == offset::CTRL);
  }
  // The receiving end of a connection's first direction before the sending one.
  EXPECT_EQ(bus.log[bus.log.size() - enables], qp_reg_address(i.assignments[0].b.pe, i.assignments[0].b.qp, 0));
}

TEST(NeighbourTable, EveryFailedWriteLeavesResetValues) {
  const SystemConfig config;
  QpAllocator allocator(config);
  const Installed i = assign(allocator, 1, 2);
  MapBus counting;
  install(counting, i.assignments);
  for (size_t k = 1; k <= counting.log.size(); ++k) {
    MapBus bus;
    bus.fail_at = k;
    EXPECT_THROW(install(bus, i.assignments), std::runtime_error);
    for (const auto& [address, v] : bus.values) EXPECT_EQ(v, 0u) << "write " << k << " at 0x" << std::hex << address;
  }
}

TEST(NeighbourTable, UninstallAndInstallAgain) {
  const SystemConfig config;
  QpAllocator allocator(config);
  MapBus bus;
  for (int round = 0; round < 3; ++round) {
    const Installed i = assign(allocator, 1);
    install(bus, i.assignments);
    uninstall(bus, i.assignments);
    for (const auto& [address, v] : bus.values) EXPECT_EQ(v, 0u) << std::hex << address;
    allocator.free_group(1);
    EXPECT_EQ(allocator.queue_pairs_in_use(), 0u);
  }
}

TEST(NeighbourTable, LinkTableHasEveryDirection) {
  const SystemConfig config;
  QpAllocator allocator(config);
  const Installed i = assign(allocator, 1);
  const auto links = link_table(i.config, i.connections, i.assignments, 1, 3);
  std::map<tl::Dir, launch::LinkEntry> by_dir;
  for (const auto& l : links) by_dir[static_cast<tl::Dir>(l.dir)] = l;
  ASSERT_EQ(by_dir.size(), 4u);  // the last cube of 2x2: N, W, and the ring
  const auto flat = [&](uint32_t sip, uint32_t cube) { return config.flat_pe({SipId{sip}, CubeId{cube}, PeId{0}}); };
  EXPECT_EQ(by_dir[tl::Dir::N].peer_flat_pe, flat(1, 1));
  EXPECT_EQ(by_dir[tl::Dir::W].peer_flat_pe, flat(1, 2));
  EXPECT_EQ(by_dir[tl::Dir::Next].peer_flat_pe, flat(2, 3));
  EXPECT_EQ(by_dir[tl::Dir::Prev].peer_flat_pe, flat(0, 3));
  EXPECT_EQ(by_dir[tl::Dir::Next].n_slots, config.ipcq.sip.n_slots);
  EXPECT_EQ(by_dir[tl::Dir::N].slot_bytes, config.ipcq.cube.slot_bytes);
}

}  // namespace
}  // namespace ahbm::ccl::test
