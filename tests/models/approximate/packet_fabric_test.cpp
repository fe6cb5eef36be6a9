// The packet-accurate fabric against the loosely-timed one: the same sockets outside, the same picosecond when nothing
// competes, and what only packets can show when something does.
#include "tests/models/approximate/packet_fabric.h"

#include <memory>
#include <numeric>

#include "models/fabric/link.h"
#include "tests/support/sim_test.h"
#include "tests/support/tlm_stubs.h"

namespace ahbm::test {
namespace {

constexpr uint64_t kBase = 0x1000, kSize = 1 << 20;
constexpr Ps kMemory = 90000;
constexpr uint32_t kPlentyOfCredits = 1024;
const models::Framing kFraming{1024, 16};

std::vector<uint8_t> pattern(size_t n) {
  std::vector<uint8_t> data(n);
  std::iota(data.begin(), data.end(), uint8_t{3});
  return data;
}

/// initiator - link - ... - link - memory, in b_transport.
struct LooseChain {
  explicit LooseChain(const std::vector<LinkParams>& links) : memory("loose_memory", kBase, kSize, kMemory) {
    for (size_t i = 0; i < links.size(); ++i) {
      const std::string index = std::to_string(i);
      there.push_back(std::make_unique<models::Link>(("there" + index).c_str(), links[i], kFraming));
      back.push_back(std::make_unique<models::Link>(("back" + index).c_str(), links[i], kFraming));
      models::join_directions(*there[i], *back[i]);
      if (i == 0) continue;
      there[i - 1]->link_out.bind(there[i]->link_in);
      back[i]->link_out.bind(unused.emplace_back(std::make_unique<ScriptedTarget>(("u" + index).c_str(), 0, 1))->in);
      source.emplace_back(std::make_unique<ScriptedInitiator>(("s" + index).c_str()))->out.bind(back[i]->link_in);
    }
    initiator.out.bind(there.front()->link_in);
    there.back()->link_out.bind(memory.in);
    back[0]->link_out.bind(unused.emplace_back(std::make_unique<ScriptedTarget>("u", 0, 1))->in);
    source.emplace_back(std::make_unique<ScriptedInitiator>("s"))->out.bind(back[0]->link_in);
  }
  ScriptedInitiator initiator{"loose_initiator"};
  std::vector<std::unique_ptr<models::Link>> there, back;
  std::vector<std::unique_ptr<ScriptedTarget>> unused;
  std::vector<std::unique_ptr<ScriptedInitiator>> source;
  ScriptedTarget memory;
};

/// initiators - endpoints - router - link - router ... - endpoint - memory, in packets. Router i has port 0 towards the
/// memory, port 1 towards the initiators; the first one has a port per initiator from 1 on.
struct PacketChain {
  PacketChain(const std::vector<LinkParams>& links, size_t initiators, uint32_t credits)
      : memory("packet_memory", kBase, kSize, kMemory), far("far", 1000, kFraming, credits, pool) {
    for (size_t i = 0; i <= links.size(); ++i) {
      const bool first = i == 0;
      routers.push_back(std::make_unique<PacketRouter>(("router" + std::to_string(i)).c_str(),
                                                       first ? 1 + initiators : 2, credits,
                                                       [first](const PacketExtension& p) {
                                                         if (!p.response) return size_t{0};
                                                         return first ? size_t{1} + p.message->source : size_t{1};
                                                       }));
    }
    for (size_t i = 0; i < links.size(); ++i) {
      const std::string index = std::to_string(i);
      there.push_back(std::make_unique<PacketLink>(("packets_there" + index).c_str(), links[i]));
      back.push_back(std::make_unique<PacketLink>(("packets_back" + index).c_str(), links[i]));
      routers[i]->port(0).out->bind(there[i]->in);
      there[i]->out.bind(*routers[i + 1]->port(1).in);
      routers[i + 1]->port(1).out->bind(back[i]->in);
      back[i]->out.bind(*routers[i]->port(0).in);
    }
    routers.back()->port(0).out->bind(far.packet_in);
    far.packet_out.bind(*routers.back()->port(0).in);
    far.out.bind(memory.in);
    far_source.out.bind(far.in);
    for (size_t i = 0; i < initiators; ++i) {
      const std::string index = std::to_string(i);
      near.push_back(std::make_unique<PacketEndpoint>(("near" + index).c_str(), static_cast<uint32_t>(i), kFraming,
                                                      credits, pool));
      initiator.push_back(std::make_unique<ScriptedInitiator>(("initiator" + index).c_str()));
      unused.push_back(std::make_unique<ScriptedTarget>(("unused" + index).c_str(), 0, 1));
      initiator[i]->out.bind(near[i]->in);
      near[i]->out.bind(unused[i]->in);
      near[i]->packet_out.bind(*routers[0]->port(1 + i).in);
      routers[0]->port(1 + i).out->bind(near[i]->packet_in);
    }
  }
  PacketPool pool;
  std::vector<std::unique_ptr<ScriptedInitiator>> initiator;
  std::vector<std::unique_ptr<ScriptedTarget>> unused;
  std::vector<std::unique_ptr<PacketEndpoint>> near;
  std::vector<std::unique_ptr<PacketRouter>> routers;
  std::vector<std::unique_ptr<PacketLink>> there, back;
  ScriptedTarget memory;
  PacketEndpoint far;
  ScriptedInitiator far_source{"far_source"};
};

struct Done {
  Ps at = 0;
  Outcome outcome;
};
/// When an access that starts now is over, whether its model waits or annotates.
Done access(ScriptedInitiator& from, const Access& a) {
  Done d;
  d.outcome = from.transport(a);
  d.at = now() + d.outcome.delay;
  return d;
}

/// A message whose tail is `behind` its head.
struct Stream {
  models::TransitExtension extension;
  Access access;
  Stream(const Access& a, Ps behind) : access(a) {
    access.delay = behind;
    access.before = [this, behind](tlm::tlm_generic_payload& p) {
      extension.transit.head = now();
      extension.transit.tail = now() + behind;
      extension.transit.wire_payload = p.is_read() ? 0 : p.get_data_length();
      p.set_extension(&extension);
    };
    access.after = [this](tlm::tlm_generic_payload& p) { p.clear_extension(&extension); };
  }
};

class PacketFabric : public SimTest {};

TEST_F(PacketFabric, AgreesWithTheLooselyTimedOneToThePicosecond) {
  const LinkParams slow{64'000'000'000, 50'000}, fast{256'000'000'000, 4'000}, odd{100'000'000'007, 250'001};
  const std::vector<std::vector<LinkParams>> chains{{slow}, {odd}, {slow, fast}, {fast, slow}, {fast, odd, slow}};
  struct Scope : sc_core::sc_module {
    std::unique_ptr<LooseChain> a;
    std::unique_ptr<PacketChain> b;
    Scope(const sc_core::sc_module_name& name, const std::vector<LinkParams>& links) : sc_core::sc_module(name) {
      a = std::make_unique<LooseChain>(links);
      b = std::make_unique<PacketChain>(links, 1, kPlentyOfCredits);
    }
  };
  std::vector<std::unique_ptr<Scope>> scopes;  // everything is elaborated before the first run
  for (size_t i = 0; i < chains.size(); ++i) {
    scopes.push_back(std::make_unique<Scope>(("chain" + std::to_string(i)).c_str(), chains[i]));
  }
  run([&] {
    for (const auto& scope : scopes) {
      for (const size_t bytes : {1, 8, 1023, 1024, 1025, 4096, 65535, 300'000}) {
        for (const Ps behind : {Ps{0}, Ps{700}, Ps{3'000'000}}) {
          for (const tlm::tlm_command command : {tlm::TLM_WRITE_COMMAND, tlm::TLM_READ_COMMAND}) {
            Access a;
            a.command = command;
            a.address = kBase + 64;
            a.data = pattern(bytes);
            const Ps start = now();
            Stream stream(a, behind);
            const Done expected = access(scope->a->initiator, stream.access);
            const Done got = access(*scope->b->initiator[0], stream.access);
            ASSERT_TRUE(expected.outcome.ok() && got.outcome.ok());
            EXPECT_EQ(got.at - start, expected.at - start)
                << scope->name() << " " << bytes << " bytes, tail " << behind << " ps behind, " << int(command);
            EXPECT_EQ(got.outcome.data, expected.outcome.data);
            EXPECT_EQ(scope->a->memory.arrivals.back().tail, scope->b->memory.arrivals.back().tail);
            sc_core::wait(10, sc_core::SC_US);
          }
        }
      }
      EXPECT_EQ(scope->b->memory.peek(kBase + 64, 300'000), pattern(300'000));
      EXPECT_EQ(scope->b->pool.live(), 0u);
    }
  });
}

TEST_F(PacketFabric, AnErrorComesBackAsOnePacket) {
  const LinkParams link{64'000'000'000, 50'000};
  PacketChain packets({link}, 1, kPlentyOfCredits);
  LooseChain loose({link});
  run([&] {
    Access a;
    a.address = kBase + kSize;
    a.data.resize(4096);
    const Ps start = now();
    const Done expected = access(loose.initiator, a);
    const Done got = access(*packets.initiator[0], a);
    EXPECT_EQ(got.outcome.status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_EQ(got.at - start, expected.at - start);
  });
}

TEST_F(PacketFabric, PacketsOfTwoMessagesTakeTurns) {
  const LinkParams link{64'000'000'000, 50'000};
  constexpr size_t kBytes = 65536;
  PacketChain packets({link}, 2, 16);  // more than a packet and its credit are under way: (16.25 + 2 x 50) / 16.25 ns
  LooseChain loose({link});
  Ps done[2] = {0, 0}, expected[2] = {0, 0};
  run([&] {
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = kBase;
    a.data = pattern(kBytes);
    const Ps start = now();
    for (Ps& e : expected) e = access(loose.initiator, a).at - start;
    std::vector<sc_core::sc_process_handle> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.push_back(sc_core::sc_spawn([&, i] {
        Access mine = a;
        mine.address = kBase + i * kBytes;
        done[i] = access(*packets.initiator[i], mine).at - start;
      }));
    }
    for (auto& t : threads) {
      if (!t.terminated()) sc_core::wait(t.terminated_event());
    }
  });
  const Ps packet = transfer_ps(1024 + 16, link.bytes_per_second);
  // The link works without a gap either way; only who has to wait differs, by at most what competes.
  EXPECT_EQ(done[1], expected[1]);
  EXPECT_EQ(done[0], expected[1] - packet);
  EXPECT_LE(done[0] - expected[0], kBytes / 1024 * packet);
  EXPECT_EQ(packets.memory.peek(kBase, kBytes), pattern(kBytes));
  EXPECT_EQ(packets.memory.peek(kBase + kBytes, kBytes), pattern(kBytes));
}

TEST_F(PacketFabric, CreditsBoundWhatIsUnderWay) {
  const LinkParams link{64'000'000'000, 50'000};
  PacketChain packets({link}, 1, 1);
  run([&] {
    constexpr uint64_t kPackets = 32;
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = kBase;
    a.data = pattern(kPackets * 1024);
    const Ps start = now();
    const Ps took = access(*packets.initiator[0], a).at - start;
    // With one place in the far buffer a packet leaves only when the credit of the one before is back: one
    // serialisation and both latencies later.
    const Ps packet = transfer_ps(1024 + 16, link.bytes_per_second);
    EXPECT_EQ(took, (kPackets - 1) * (packet + 2 * link.latency) + packet + link.latency + kMemory);
  });
}

}  // namespace
}  // namespace ahbm::test
