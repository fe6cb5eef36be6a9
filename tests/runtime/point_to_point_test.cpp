// Batches of sends and receives: one kernel per rank, whatever the ranks exchange, and no mistake leaves anything
// behind.
#include <gmock/gmock.h>

#include <fstream>
#include <string_view>

#include "models/pe/executor.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {
namespace {

using distributed::P2POp;
using distributed::Work;
using ::testing::Each;
using ::testing::HasSubstr;

class PointToPoint : public GroupTest {};

/// Kernels that the PEs have run.
uint64_t kernels(Machine& m) {
  uint64_t n = 0;
  for (uint32_t s = 0; s < m.device.config().sips; ++s) {
    n += m.system.sip(SipId{s}).cube(CubeId{0}).pe(PeId{0}).executor().stats().kernels;
  }
  return n;
}

const DPPolicy kOneCube = policy(CubePolicy::RowWise, PePolicy::RowWise, 1);

TEST_F(PointToPoint, ARingOfBatchesIsOneKernelPerRank) {
  Machine m(tiny(4));
  in_group(m, [&](auto& d) {
    Ps batched = 0, single = 0;
    for (const bool batch : {true, false}) {
      const uint64_t before = kernels(m);
      std::vector<distributed::CollectiveRecord> records;
      d.on_collective = [&](const auto& r) { records.push_back(r); };
      m.ctx.spawn(
          [&](uint32_t rank) {
            const Tensor out = m.ctx.full({50000}, rank, DType::Float32, kOneCube);
            const Tensor in = m.ctx.zeros({50000}, DType::Float32, kOneCube);
            std::vector<Work> works;
            if (batch) {
              works = d.batch_isend_irecv({{P2POp::Isend, out, (rank + 1) % 4}, {P2POp::Irecv, in, (rank + 3) % 4}});
            } else {
              works = {d.isend(out, (rank + 1) % 4), d.irecv(in, (rank + 3) % 4)};
            }
            for (const Work& w : works) w.wait();
            EXPECT_THAT(in.to_host<float>(), Each(static_cast<float>((rank + 3) % 4)));
            EXPECT_THAT(out.to_host<float>(), Each(static_cast<float>(rank)));
          },
          4);
      EXPECT_EQ(kernels(m) - before, batch ? 4u : 8u);
      ASSERT_EQ(records.size(), 4u);
      Ps start = records[0].start, end = 0;
      for (const auto& r : records) {
        EXPECT_EQ(r.algorithm, "send_recv");
        EXPECT_EQ(r.members[1], (r.members[0] + 1) % 4);
        ASSERT_EQ(r.spans.size(), 2u);
        EXPECT_EQ(std::min(r.spans[0].start, r.spans[1].start), r.start);
        EXPECT_EQ(std::max(r.spans[0].end, r.spans[1].end), r.end);
        for (const auto& span : r.spans) EXPECT_LT(span.start, span.end);
        start = std::min(start, r.start);
        end = std::max(end, r.end);
      }
      (batch ? batched : single) = end - start;
    }
    // 200 kB at 100 GB/s are 2 us, and every rank sends while it receives.
    EXPECT_LT(batched, us(5));
    EXPECT_LT(batched, single);
    d.on_collective = nullptr;
  });
}

TEST_F(PointToPoint, AllToAllAsABatchWithTagsTypesAndNothing) {
  Machine m(tiny(3));
  on_ranks(m, [&](auto& d, uint32_t rank) {
    std::vector<P2POp> ops;
    std::vector<Tensor> received;
    for (uint32_t other = 0; other < 3; ++other) {
      if (other == rank) continue;
      for (uint32_t tag = 0; tag < 3; ++tag) {
        const uint64_t n = 100 * tag;  // nothing at all with tag 0
        const DType t = tag == 1 ? DType::Int32 : DType::Float32;
        received.push_back(m.ctx.zeros({n}, t));
        // Tags in opposite orders: the pairing goes by tag.
        ops.push_back({P2POp::Irecv, received.back(), other, {}, tag});
      }
      for (uint32_t tag = 3; tag-- > 0;) {
        const DType t = tag == 1 ? DType::Int32 : DType::Float32;
        ops.push_back({P2POp::Isend, m.ctx.full({100 * tag}, 10.0 * rank + tag, t), other, {}, tag});
      }
    }
    for (const Work& w : d.batch_isend_irecv(ops)) w.wait();
    size_t i = 0;
    for (uint32_t other = 0; other < 3; ++other) {
      if (other == rank) continue;
      EXPECT_EQ(received[i].elements(), 0u);
      EXPECT_THAT(received[i + 1].to_host<int32_t>(), Each(static_cast<int32_t>(10 * other + 1)));
      EXPECT_THAT(received[i + 2].to_host<float>(), Each(10.f * static_cast<float>(other) + 2));
      i += 3;
    }
  });
}

TEST_F(PointToPoint, BatchesMeetPlainCallsAndLaterBatches) {
  Machine m(tiny(3));
  in_group(m, [&](auto& d) {
    m.ctx.spawn(
        [&](uint32_t rank) {
          const Tensor a = m.ctx.full({1000}, rank), b = m.ctx.zeros({1000}), c = m.ctx.zeros({1000});
          if (rank == 0) {  // plain calls that block, one after the other
            d.send(a, 1);
            d.recv(b, 1);
            EXPECT_THAT(b.to_host<float>(), Each(1.f));
          } else if (rank == 1) {
            const auto works = d.batch_isend_irecv({{P2POp::Irecv, b, 0}, {P2POp::Isend, a, 0}, {P2POp::Isend, a, 2}});
            for (const Work& w : works) w.wait();
            EXPECT_THAT(b.to_host<float>(), Each(0.f));
          } else {
            sc_core::wait(50, sc_core::SC_US);
            const auto works = d.batch_isend_irecv({{P2POp::Irecv, c, 1}});
            works[0].wait();
            EXPECT_THAT(c.to_host<float>(), Each(1.f));
          }
        },
        3);
    EXPECT_EQ(m.device.tags_in_use(), 0u);
  });
}

TEST_F(PointToPoint, AMismatchInABatchIsToldToBothAndTheRestGoesOn) {
  Machine m(tiny(2));
  on_ranks(m, [&](auto& d, uint32_t rank) {
    const Tensor out = m.ctx.full({100}, rank), in = m.ctx.zeros({100}), shorter = m.ctx.zeros({99});
    const auto works = d.batch_isend_irecv({{P2POp::Isend, out, 1 - rank, {}, 1},
                                            {P2POp::Irecv, rank == 0 ? in : shorter, 1 - rank, {}, 1},
                                            {P2POp::Isend, out, 1 - rank, {}, 2},
                                            {P2POp::Irecv, in, 1 - rank, {}, 2}});
    const size_t bad = rank == 0 ? 0 : 1, good = 1 - bad;
    EXPECT_THAT(message_of<std::runtime_error>([&] { works[bad].wait(); }), HasSubstr("expected as many elements"));
    works[good].wait();
    works[2].wait();
    works[3].wait();
    EXPECT_THAT(in.to_host<float>(), Each(static_cast<float>(1 - rank)));
  });
}

TEST_F(PointToPoint, ABatchThatWaitsForSomebodyIsReportedNotHung) {
  Machine m(tiny(3));
  in_group(m, [&](auto& d) {
    const std::string text = message_of<std::runtime_error>([&] {
      m.ctx.spawn(
          [&](uint32_t rank) {
            const Tensor a = m.ctx.full({10}, rank), b = m.ctx.zeros({10});
            std::vector<P2POp> ops{{P2POp::Isend, a, (rank + 1) % 3}, {P2POp::Irecv, b, (rank + 2) % 3}};
            if (rank == 2) ops.pop_back();  // never takes what rank 1 sends
            for (const Work& w : d.batch_isend_irecv(ops)) w.wait();
          },
          3);
    });
    EXPECT_THAT(text, HasSubstr("recv by rank 2 (tag 0)"));
    EXPECT_THAT(text, HasSubstr("the other transfers of the batches"));
    d.destroy_process_group();
    d.init_process_group();
    const Tensor t = m.ctx.ones({10}, DType::Float32, everywhere());
    d.all_reduce(t);
    EXPECT_THAT(t.to_host<float>(SipId{2}), Each(3.f));
  });
}

// New connections shrink when the rings are full. Both ends of all of them must cut messages alike.
TEST_F(PointToPoint, SlotsOfDifferentSizesOnOneRing) {
  SystemConfig c = tiny(4);
  c.cube_w = c.cube_h = 1;
  c.pes = 1;
  for (SipPort& p : c.sip_ports) p.cube = CubeId{0};
  c.ipcq.sip = {4, 16 << 10};
  c.ipcq.ring_bytes = 2 * 4 * (16 << 10) + 16 * (1 << 10);  // two neighbours, and then small ones
  Machine m(c);
  run([&] {
    auto& d = m.ctx.distributed;
    const std::string file = testing::TempDir() + "slots_of_different_sizes.yaml";
    std::ofstream(file) << "defaults: {algorithm: auto, world_size: 3}\nalgorithms: {}\n";
    d.set_ccl_file(file);
    for (const char* algorithm : {"ring", "ring_bidirectional", "double_binary_tree", "halving_doubling"}) {
      d.set_module(algorithm);
      d.init_process_group();
      m.ctx.spawn(
          [&](uint32_t rank) {
            const Tensor t = m.ctx.full({30000}, rank + 1), all = m.ctx.zeros({90000});
            const auto record = d.all_reduce(t).record();
            if (std::string_view(algorithm).substr(0, 4) == "ring") {  // 2 and 0 are no neighbours
              EXPECT_EQ(record.shapes.front().message_bytes, (1u << 10) - 32) << algorithm;
            }
            EXPECT_THAT(t.to_host<float>(), Each(6.f)) << algorithm;
            d.all_gather_into_tensor(all, t);
            EXPECT_THAT(all.to_host<float>(), Each(6.f)) << algorithm;
          },
          3);
      d.destroy_process_group();
    }
  });
}

TEST_F(PointToPoint, AsynchronousCallsLeaveNoMemoryBehind) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    m.ctx.spawn(
        [&](uint32_t rank) {
          const Tensor a = m.ctx.ones({1000}), b = m.ctx.zeros({1000}), c = m.ctx.zeros({2000});
          d.all_reduce(a, ReduceOp::Sum, true).wait();
          d.all_gather_into_tensor(c, a, {}, true).wait();
          for (const Work& w : {d.isend(a, 1 - rank), d.irecv(b, 1 - rank)}) w.wait();
          for (const Work& w : d.batch_isend_irecv({{P2POp::Isend, a, 1 - rank}, {P2POp::Irecv, b, 1 - rank}}))
            w.wait();
        },
        2);
    EXPECT_EQ(m.device.allocator(SipId{0}, CubeId{0}).used(), 0u);
  });
}

// --- rows of the public failures

// 11: two rings of a 2 x 3 torus at once, and a shape of five dimensions.
TEST_F(PointToPoint, RowsAndColumnsOfATorusAtOnce) {
  SystemConfig c = tiny(6);
  c.topology = SipTopology::Torus2d;
  c.sip_w = 3;
  c.sip_h = 2;
  Machine m(c);
  on_ranks(m, [&](auto& d, uint32_t rank) {
    std::vector<distributed::ProcessGroup> rows, columns;
    for (uint32_t y = 0; y < 2; ++y) rows.push_back(d.new_group({3 * y, 3 * y + 1, 3 * y + 2}));
    for (uint32_t x = 0; x < 3; ++x) columns.push_back(d.new_group({x, x + 3}));
    const auto row = rows[rank / 3], column = columns[rank % 3];
    const Tensor a = m.ctx.full({3 * 5000}, rank), a_out = m.ctx.zeros({5000});
    const Tensor b = m.ctx.full({5000}, rank), b_out = m.ctx.zeros({2 * 5000});
    const Work first = d.reduce_scatter_tensor(a_out, a, ReduceOp::Sum, row, true);
    const Work second = d.all_gather_into_tensor(b_out, b, column, true);
    second.wait();
    first.wait();
    EXPECT_THAT(a_out.to_host<float>(), Each(rank < 3 ? 3.f : 12.f));
    const auto gathered = b_out.to_host<float>();
    EXPECT_EQ(gathered[0], static_cast<float>(rank % 3));
    EXPECT_EQ(gathered[9999], static_cast<float>(rank % 3 + 3));
  });
}

TEST_F(PointToPoint, FiveDimensionsOfBf16) {
  Machine m(tiny(2));
  on_ranks(m, [&](auto& d, uint32_t rank) {
    const Tensor in = m.ctx.full({1, 384, 1, 60, 128}, rank + 1, DType::BFloat16);
    const Tensor out = m.ctx.zeros({1, 192, 1, 60, 128}, DType::BFloat16),
                 all = m.ctx.zeros({1, 384, 1, 60, 128}, DType::BFloat16);
    d.reduce_scatter_tensor(out, in, ReduceOp::Sum, {}, false, 1);
    EXPECT_THAT(out.to_host<uint16_t>(), Each(0x4040));  // 3
    d.all_gather_into_tensor(all, out, {}, false, 1);
    EXPECT_THAT(all.to_host<uint16_t>(), Each(0x4040));
  });
}

// 15: integers wrap; a sum of bools is "or", a product "and".
TEST_F(PointToPoint, SmallIntegersWrapAndBoolsAreLogic) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    const auto reduced = [&](DType dtype, std::vector<uint8_t> a, std::vector<uint8_t> b, ReduceOp op) {
      const Tensor t = m.ctx.empty({a.size()}, dtype, everywhere());
      t.upload(SipId{0}, a.data(), a.size());
      t.upload(SipId{1}, b.data(), b.size());
      d.all_reduce(t, op);
      EXPECT_EQ(t.to_host_bytes(SipId{0}), t.to_host_bytes(SipId{1}));
      return t.to_host_bytes(SipId{1});
    };
    const std::vector<uint8_t> a{120, 0x80, 3, 0}, b{100, 0xFF, 100, 0};
    using Bytes = std::vector<uint8_t>;
    EXPECT_EQ(reduced(DType::Int8, a, b, ReduceOp::Sum), (Bytes{220, 0x7F, 103, 0}));  // 120 + 100 = -36
    EXPECT_EQ(reduced(DType::UInt8, a, b, ReduceOp::Sum), (Bytes{220, 0x7F, 103, 0}));
    EXPECT_EQ(reduced(DType::Int8, a, b, ReduceOp::Product), (Bytes{0xE0, 0x80, 44, 0}));
    EXPECT_EQ(reduced(DType::Int8, a, b, ReduceOp::Max), (Bytes{120, 0xFF, 100, 0}));
    EXPECT_EQ(reduced(DType::UInt8, a, b, ReduceOp::Max), (Bytes{120, 0xFF, 100, 0}));
    EXPECT_EQ(reduced(DType::Int8, a, b, ReduceOp::Min), (Bytes{100, 0x80, 3, 0}));
    EXPECT_EQ(reduced(DType::Int8, a, b, ReduceOp::Avg), (Bytes{0xEE, 63, 51, 0})) << "of the wrapped sum, toward zero";
    const std::vector<uint8_t> p{0, 1, 0, 1}, q{0, 0, 1, 1};
    EXPECT_EQ(reduced(DType::Bool, p, q, ReduceOp::Sum), (Bytes{0, 1, 1, 1}));
    EXPECT_EQ(reduced(DType::Bool, p, q, ReduceOp::Max), (Bytes{0, 1, 1, 1}));
    EXPECT_EQ(reduced(DType::Bool, p, q, ReduceOp::Product), (Bytes{0, 0, 0, 1}));
    EXPECT_EQ(reduced(DType::Bool, p, q, ReduceOp::Min), (Bytes{0, 0, 0, 1}));
  });
}

// 28: ranks with different numbers of cubes.
TEST_F(PointToPoint, DifferentNumbersOfCubes) {
  Machine m(tiny(2));
  in_group(m, [&](auto& d) {
    const auto on = [](uint32_t cubes) { return policy(CubePolicy::RowWise, PePolicy::RowWise, cubes); };
    const std::string text = message_of<std::runtime_error>(
        [&] { m.ctx.spawn([&](uint32_t rank) { d.all_reduce(m.ctx.ones({100}, DType::Float32, on(rank + 1))); }, 2); });
    EXPECT_THAT(text, HasSubstr("layout differs between ranks"));
    d.destroy_process_group();
    d.init_process_group();
    m.ctx.spawn(
        [&](uint32_t rank) {  // collectives that move blocks repack them
          const Tensor in = m.ctx.full({101}, rank, DType::Float32, on(rank + 1));
          const Tensor out = m.ctx.zeros({202}, DType::Float32, on(4 - rank));
          d.all_gather_into_tensor(out, in);
          const auto v = out.to_host<float>();
          EXPECT_EQ(v[0] + v[100], 0.f);
          EXPECT_EQ(v[101] + v[201], 2.f);
        },
        2);
  });
}

}  // namespace
}  // namespace ahbm::runtime::test
