// Routing decisions as a plain class, and a link between scripted stubs.
#include "models/core/config/load_config.h"
#include "models/fabric/fabric_plan.h"
#include "models/fabric/link.h"
#include "models/tlm/classify.h"
#include "tests/support/sim_test.h"
#include "tests/support/tlm_stubs.h"

namespace ahbm::models {
namespace {

SystemConfig platform(const std::vector<std::string>& sets) {
  return load_system_config(AHBM_SOURCE_DIR "/configs/ring4.yaml", sets);
}

TEST(FabricPlan, PlaceOfAnAddress) {
  const FabricPlan plan(platform({}));
  EXPECT_TRUE(plan.place(hbm_address(SipId{3}, CubeId{15}, 7)));
  EXPECT_EQ(plan.place(mailbox_address(SipId{2}, 9))->cube, addr::kSipBlock);
  EXPECT_FALSE(plan.place(hbm_address(SipId{4}, CubeId{0}, 0)));
  EXPECT_FALSE(plan.place(hbm_address(SipId{0}, CubeId{16}, 0)));
  EXPECT_FALSE(plan.place(0));
  EXPECT_FALSE(plan.place(hbm_address(SipId{0}, CubeId{0}, 0) & ~addr::kGlobalBit));
  EXPECT_FALSE(plan.place(hbm_address(SipId{0}, CubeId{0}, 0) | (Addr{1} << 56)));
}

/// Follows the decisions of all routers from a cube to where the message ends, as the modules would.
std::string follow(const FabricPlan& plan, SipId sip, CubeId cube, Addr to, const Transit& t) {
  std::string way;
  bool in_mesh = true;
  FabricEntry entry;
  for (int i = 0; i < 200; ++i) {
    if (in_mesh) {
      const MeshStep step = plan.mesh_step(sip, cube, to, t);
      if (step.to == MeshStep::To::Nowhere) return way + " nowhere";
      if (step.to == MeshStep::To::Local) return way + " cube" + std::to_string(value(cube));
      if (step.to == MeshStep::To::Neighbour) {
        way += to_string(step.side);
        cube = *plan.mesh().neighbour(cube, step.side);
      } else {
        EXPECT_EQ(plan.mesh().attachments()[step.attachment].cube, cube);
        way += " out" + std::to_string(step.attachment);
        entry = plan.from_mesh(step.attachment);
        in_mesh = false;
      }
      continue;
    }
    const FabricStep step = plan.fabric_step(sip, entry, to, t);
    if (step.to == FabricStep::To::Nowhere) return way + " nowhere";
    if (step.to == FabricStep::To::SipBlock) return way + " block" + std::to_string(value(sip));
    if (step.to == FabricStep::To::Mesh) {
      way += " in" + std::to_string(step.index) + " ";
      cube = plan.mesh().attachments()[step.index].cube;
      in_mesh = true;
    } else {
      const SipGraph::Port& p = plan.graph().ports(sip)[step.index];
      const SipId peer = p.peer == SipGraph::kSwitchCore ? plan.place(to)->sip : p.peer;
      bool found = false;
      for (const Arrival& a : plan.arrivals(peer)) {
        if ((a.from == sip || a.from == SipGraph::kSwitchCore) && (a.port == step.index || a.from != sip)) {
          entry = a.entry;
          found = true;
        }
      }
      EXPECT_TRUE(found);
      way += " sip" + std::to_string(value(peer));
      sip = peer;
    }
  }
  return way + " never";
}

TEST(FabricPlan, WaysOfTheDefaultPlatform) {
  // Attachments in the order of the file: whatever it is, E is at cube 11, W at 8, N at 2, S at 14.
  const FabricPlan plan(platform({}));
  uint32_t e = 0, w = 0;
  for (uint32_t a = 0; a < plan.mesh().attachments().size(); ++a) {
    if (plan.mesh().attachments()[a].side == Side::E) e = a;
    if (plan.mesh().attachments()[a].side == Side::W) w = a;
  }
  EXPECT_EQ(plan.mesh().attachments()[e].cube, CubeId{11});
  EXPECT_EQ(plan.mesh().attachments()[w].cube, CubeId{8});
  const std::string out_e = " out" + std::to_string(e), out_w = " out" + std::to_string(w);
  const std::string in_e = " in" + std::to_string(e) + " ", in_w = " in" + std::to_string(w) + " ";
  Transit t;
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{0}, hbm_address(SipId{0}, CubeId{15}, 0), t), "EEESSS cube15");
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{0}, hbm_address(SipId{0}, CubeId{0}, 0), t), " cube0");
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{0}, hbm_address(SipId{1}, CubeId{0}, 0), t),
            "EEESS" + out_e + " sip1" + in_w + "NN cube0");
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{0}, hbm_address(SipId{3}, CubeId{0}, 0), t),
            "SS" + out_w + " sip3" + in_e + "WWWNN cube0");
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{11}, hbm_address(SipId{2}, CubeId{8}, 0), t),
            out_e + " sip1 sip2" + in_w + " cube8");
  t.egress = Side::W;
  t.has_egress = true;
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{8}, hbm_address(SipId{2}, CubeId{11}, 0), t),
            out_w + " sip3 sip2" + in_e + " cube11");
  // The hint breaks ties only.
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{11}, hbm_address(SipId{1}, CubeId{8}, 0), t),
            out_e + " sip1" + in_w + " cube8");
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{0}, Addr{0}, t), " nowhere");
  EXPECT_EQ(follow(plan, SipId{0}, CubeId{8}, mailbox_address(SipId{0}, 0), Transit{}), out_w + " block0");
}

TEST(FabricPlan, EveryWayOfEveryTopologyEnds) {
  for (const auto& sets : std::vector<std::vector<std::string>>{
           {},
           {"system.sips.count=7"},
           {"system.sips.topology=torus_2d", "system.sips.count=16"},
           {"system.sips.topology=torus_2d", "system.sips.count=4", "system.sips.double_links=true"},
           {"system.sips.topology=mesh_2d", "system.sips.count=12", "system.sips.w=4", "system.sips.h=3"},
           {"system.sips.topology=fully_connected", "system.sips.count=9"},
           {"system.sips.topology=switch", "system.sips.count=9"}}) {
    for (const bool lanes : {false, true}) {
      SystemConfig config = platform(sets);
      if (lanes) {
        config.sip_ports = {{Side::E, CubeId{3}},  {Side::W, CubeId{0}},  {Side::N, CubeId{1}},
                            {Side::S, CubeId{13}}, {Side::E, CubeId{15}}, {Side::W, CubeId{12}}};
      }
      const FabricPlan plan(config);
      for (uint32_t s = 0; s < config.sips; ++s) {
        for (uint32_t c = 0; c < config.cubes(); ++c) {
          for (uint32_t d = 0; d < config.sips; ++d) {
            for (const uint32_t to : {0u, 5u, 15u}) {
              for (int hint = -1; hint < 4; ++hint) {
                Transit t;
                t.has_egress = hint >= 0;
                t.egress = static_cast<Side>(std::max(hint, 0));
                const auto way = follow(plan, SipId{s}, CubeId{c}, hbm_address(SipId{d}, CubeId{to}, 0), t);
                const std::string end = " cube" + std::to_string(to);
                ASSERT_TRUE(way.size() >= end.size() && way.substr(way.size() - end.size()) == end) << way;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Classify, ControlIsNotifyCreditAndMailbox) {
  const MapShape shape = SystemConfig{}.map_shape();
  const PeLocation pe{SipId{1}, CubeId{2}, PeId{3}};
  const auto of = [&](Addr a, bool write = true) { return classify(decode(a, shape), write); };
  EXPECT_EQ(of(doorbell_address(pe, QpId{0}, 0x00)), Channel::Control);
  EXPECT_EQ(of(doorbell_address(pe, QpId{63}, 0x08)), Channel::Control);
  EXPECT_EQ(of(doorbell_address(pe, QpId{0}, 0x10)), Channel::Data);  // PUSH carries data
  EXPECT_EQ(of(mailbox_address(SipId{0}, 65535)), Channel::Control);
  EXPECT_EQ(of(mailbox_address(SipId{0}, 0), false), Channel::Data);
  EXPECT_EQ(of(hbm_address(SipId{0}, CubeId{0}, 0)), Channel::Data);
  EXPECT_EQ(of(pe_sfr_address(pe, 0)), Channel::Data);
  EXPECT_EQ(of(0), Channel::Data);
}

class LinkTest : public test::SimTest {};

TEST_F(LinkTest, CutThroughAndWayBack) {
  const LinkParams params{100000000000, ns(250)};
  Link forth("forth", params, Framing{}), back("back", params, Framing{});
  join_directions(forth, back);
  test::ScriptedInitiator one("one"), two("two");
  test::ScriptedTarget at_two("at_two", 0, 1 << 20, ns(7)), at_one("at_one", 0, 1 << 20);
  one.out.bind(forth.link_in);
  forth.link_out.bind(at_two.in);
  two.out.bind(back.link_in);
  back.link_out.bind(at_one.in);
  run([&] {
    EXPECT_EQ(one.write(0, std::vector<uint8_t>(1024, 3)).delay, 10400 + ns(250) + ns(7));
    ASSERT_EQ(at_two.arrivals.size(), 1u);
    EXPECT_EQ(at_two.arrivals[0].head, ns(250));
    EXPECT_EQ(at_two.arrivals[0].tail, ns(250) + 10400);
    sc_core::wait(1, sc_core::SC_US);
    // 16 bytes of header out, 1040 back.
    EXPECT_EQ(one.read(0, 1024).delay, 160 + ns(250) + ns(7) + 10400 + ns(250));
    EXPECT_EQ(back.stats().payload_bytes, 1024u);
    EXPECT_EQ(back.stats().transactions, 1u);
    // The error of a read comes back as a header.
    at_two.next_status = {tlm::TLM_COMMAND_ERROR_RESPONSE};
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_EQ(one.read(0, 1024).status, tlm::TLM_COMMAND_ERROR_RESPONSE);
    EXPECT_EQ(back.stats().payload_bytes, 1024u);
    EXPECT_EQ(back.stats().transactions, 2u);
  });
}

/// A payload with its NOTIFY fused, that collects a route.
test::Access message_of_4096_bytes(IpcqNotify& notify, RouteGrant& grant) {
  notify.doorbell.wire_payload = 8;
  notify.doorbell.channel = Channel::Control;
  test::Access a;
  a.command = tlm::TLM_WRITE_COMMAND;
  a.data.assign(4096, 1);
  a.before = [&notify, &grant](tlm::tlm_generic_payload& p) {
    p.set_extension(&notify);
    p.set_extension(&grant);
  };
  a.after = [&notify, &grant](tlm::tlm_generic_payload& p) {
    p.clear_extension(&notify);
    p.clear_extension(&grant);
  };
  return a;
}

TEST_F(LinkTest, FusedNotifyPassesOnTheControlChannel) {
  const LinkParams params{100000000000, ns(250)};
  Link link("link", params, Framing{});
  test::ScriptedInitiator from("from");
  test::ScriptedTarget to("to", 0, 1 << 20);
  from.out.bind(link.link_in);
  link.link_out.bind(to.in);
  run([&] {
    IpcqNotify notify;
    RouteGrant grant;
    const test::Access a = message_of_4096_bytes(notify, grant);
    from.transport(a);
    EXPECT_EQ(notify.doorbell.head, ns(250));
    EXPECT_EQ(notify.doorbell.tail, ns(250) + 240);
    EXPECT_EQ(link.stats().transactions, 2u);
    EXPECT_EQ(link.stats().control_wire_bytes, 24u);
    ASSERT_EQ(grant.forward.size(), 1u);
    EXPECT_EQ(grant.forward[0], &link.hop());
    EXPECT_FALSE(grant.complete());  // the target granted nothing
  });
}

/// Doubles the bandwidth by halving what is sent, and costs 5 ns more.
class Compressor : public LinkModel {
 public:
  void carry(Ps now, Hop& wire, Transit& t) override {
    const uint64_t bytes = t.wire_payload;
    if (t.channel == Channel::Data) t.wire_payload /= 2;
    wire.pass(now, t);
    t.shift(ns(5));
    t.wire_payload = bytes;
  }
};

TEST_F(LinkTest, AnOwnModelCarriesBothWaysAndRefusesGrants) {
  const LinkParams params{100000000000, ns(250)};
  std::vector<std::string> asked;
  const LinkFactory own = [&](const std::string& path, const LinkParams& p) -> std::unique_ptr<LinkModel> {
    asked.push_back(path);
    EXPECT_EQ(p.latency, params.latency);
    if (path == "forth") return std::make_unique<Compressor>();
    return nullptr;
  };
  Link forth("forth", params, Framing{}, own), back("back", params, Framing{}, own);
  join_directions(forth, back);
  test::ScriptedInitiator one("one"), two("two");
  test::ScriptedTarget at_two("at_two", 0, 1 << 20, ns(7)), at_one("at_one", 0, 1 << 20, ns(7));
  one.out.bind(forth.link_in);
  forth.link_out.bind(at_two.in);
  two.out.bind(back.link_in);
  back.link_out.bind(at_one.in);
  EXPECT_EQ(asked, (std::vector<std::string>{"forth", "back"}));
  run([&] {
    // 4096 bytes travel as 2048: two packets.
    IpcqNotify notify;
    RouteGrant grant;
    const test::Access a = message_of_4096_bytes(notify, grant);
    EXPECT_EQ(one.transport(a).delay, 20800 + ns(250) + ns(5) + ns(7));
    EXPECT_EQ(notify.doorbell.tail, 240 + ns(250) + ns(5));
    EXPECT_TRUE(grant.refused);
    EXPECT_TRUE(grant.forward.empty());
    EXPECT_EQ(forth.stats().payload_bytes, 2048u + 8u);
    sc_core::wait(1, sc_core::SC_US);
    // The data of a read comes back over the shipped direction, that of the other side's over the own one.
    EXPECT_EQ(one.read(0, 1024).delay, (160 + ns(255)) + ns(7) + (10400 + ns(250)));
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_EQ(two.read(0, 1024).delay, (160 + ns(250)) + ns(7) + (5280 + ns(255)));
    test::Access read;
    read.data.resize(64);
    read.before = [&](tlm::tlm_generic_payload& p) { grant.clear_route(), p.set_extension(&grant); };
    read.after = [&](tlm::tlm_generic_payload& p) { p.clear_extension(&grant); };
    two.transport(read);
    EXPECT_TRUE(grant.refused);  // its way back has an own model
  });
}

TEST_F(LinkTest, AnOwnModelThatGoesBackInTimeIsNamed) {
  struct Backwards : LinkModel {
    void carry(Ps, Hop&, Transit& t) override { t.head += ns(1), t.tail -= 1; }
  };
  Link link("link", {100000000000, ns(250)}, Framing{},
            [](const std::string&, const LinkParams&) { return std::make_unique<Backwards>(); });
  test::ScriptedInitiator from("from");
  test::ScriptedTarget to("to", 0, 1 << 20);
  from.out.bind(link.link_in);
  link.link_out.bind(to.in);
  run([&] {
    std::string text;
    try {
      from.write(0, std::vector<uint8_t>(8), ns(2));
    } catch (const std::logic_error& e) {
      text = e.what();
    }
    EXPECT_EQ(text,
              "link: its LinkModel moved a message from head 2000 ps, tail 2000 ps to head 3000 ps, tail 1999 ps; "
              "expected no time earlier than before and the tail not before the head");
    EXPECT_EQ(to.writes, 0u);
  });
}

}  // namespace
}  // namespace ahbm::models
