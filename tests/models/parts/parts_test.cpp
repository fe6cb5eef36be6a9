// Own blocks in the place of shipped ones: they are built, bound and used, where their factory says so.
#include <tlm_utils/simple_target_socket.h>

#include <map>
#include <set>
#include <string>

#include "ahbm/registers/pe.h"
#include "models/core/config/load_config.h"
#include "models/fabric/router.h"
#include "models/pe/executor.h"
#include "models/system/system.h"
#include "tests/support/sim_test.h"
#include "tests/support/tlm_stubs.h"

namespace ahbm::test {
namespace {

SystemConfig tiny() {
  return load_system_config(AHBM_SOURCE_DIR "/configs/tiny.yaml");
}

/// A memory in the place of one cube's HBM.
class OwnMemory : public models::MemoryPart {
 public:
  OwnMemory(const char* name, Addr base) : target(name, base, 1 << 20, ns(7)) {}
  models::TargetSocket& bus() override { return target.in; }
  ScriptedTarget target;
};

TEST_F(SimTest, OwnMemoryServesItsCubeOnly) {
  const SystemConfig config = tiny();
  tl::KernelRegistry kernels;
  models::SystemParts parts;
  OwnMemory* own = nullptr;
  parts.memory = [&](const char* name, SipId sip, CubeId cube, const SystemConfig&) {
    std::unique_ptr<OwnMemory> part;
    if (sip == SipId{1} && cube == CubeId{2}) {
      part = std::make_unique<OwnMemory>(name, hbm_address(sip, cube, 0));
      own = part.get();
    }
    return part;
  };
  models::System system("system", config, kernels, parts);
  ScriptedInitiator host("host");
  host.out.bind(system.host_bridge.spare_in);
  ASSERT_NE(own, nullptr);
  EXPECT_STREQ(own->target.name(), "system.sip1.cube2.hbm");
  EXPECT_FALSE(system.sip(SipId{1}).cube(CubeId{2}).has_hbm());
  EXPECT_THROW(system.sip(SipId{1}).cube(CubeId{2}).hbm(), std::logic_error);
  EXPECT_TRUE(system.sip(SipId{1}).cube(CubeId{1}).has_hbm());
  run([&] {
    EXPECT_TRUE(host.write_value<uint32_t>(hbm_address(SipId{1}, CubeId{2}, 64), 0x12345678).ok());
    EXPECT_TRUE(host.write_value<uint32_t>(hbm_address(SipId{1}, CubeId{1}, 64), 0x9ABCDEF0).ok());
    EXPECT_EQ(host.read_value<uint32_t>(hbm_address(SipId{1}, CubeId{2}, 64)), 0x12345678u);
    EXPECT_EQ(host.read_value<uint32_t>(hbm_address(SipId{1}, CubeId{1}, 64)), 0x9ABCDEF0u);
    EXPECT_EQ(own->target.writes, 1u);
    EXPECT_EQ(own->target.reads, 1u);
    // Past the end of the own memory: its answer comes through.
    EXPECT_EQ(host.read(hbm_address(SipId{1}, CubeId{2}, 2 << 20), 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
  });
}

/// Takes a fixed time for everything.
class FixedCompute : public models::ComputeModel {
 public:
  Ps vector(Ps now, Ps ready, uint64_t) override { return std::max(now, ready) + ns(100); }
  Ps macs(Ps now, Ps ready, uint64_t, uint64_t, uint64_t) override { return std::max(now, ready) + ns(100); }
};

TEST_F(SimTest, OwnComputeWhereTheFactoryMakesOne) {
  const SystemConfig config = tiny();
  tl::KernelRegistry kernels;
  models::SystemParts parts;
  int asked = 0;
  parts.compute = [&](const PeLocation& pe, const PeConfig&) {
    ++asked;
    return pe.pe == PeId{1} ? std::make_unique<FixedCompute>() : nullptr;
  };
  models::System system("system", config, kernels, parts);
  EXPECT_EQ(asked, static_cast<int>(config.total_pes()));
  models::ComputeModel& own = system.pe({SipId{0}, CubeId{3}, PeId{1}}).compute();
  models::ComputeModel& shipped = system.pe({SipId{0}, CubeId{3}, PeId{0}}).compute();
  EXPECT_EQ(own.vector(0, ns(5), 1 << 20), ns(105));
  EXPECT_EQ(shipped.vector(0, ns(5), 640), ns(5) + cycles_ps(10, config.pe.hertz));
  EXPECT_NE(dynamic_cast<models::Compute*>(&shipped), nullptr);
  EXPECT_EQ(dynamic_cast<models::Compute*>(&own), nullptr);
}

/// The shipped blocks, derived from, as somebody would who wants a little more of them.
class CountingIpcq : public models::Ipcq {
 public:
  using Ipcq::Ipcq;
  void reset() override {
    ++resets;
    Ipcq::reset();
  }
  int resets = 0;
};
class CountingSfr : public models::SfrBlock {
 public:
  using SfrBlock::SfrBlock;
  void record_error(uint32_t bits, Addr address) override {
    ++errors;
    SfrBlock::record_error(bits, address);
  }
  int errors = 0;
};
class NamedRouter : public models::Router {
 public:
  using Router::Router;
  models::InitiatorSocket& bound_side(Side side) { return side_out(side); }
};

TEST_F(SimTest, OwnIpcqSfrAndRouterAreUsed) {
  const SystemConfig config = tiny();
  tl::KernelRegistry kernels;
  models::SystemParts parts;
  std::map<uint32_t, CountingIpcq*> ipcqs;
  std::map<uint32_t, CountingSfr*> sfrs;
  uint32_t routers = 0;
  parts.ipcq = [&](const char* name, const PeLocation& pe, const models::Ipcq::Parts& around) {
    auto part = std::make_unique<CountingIpcq>(name, around);
    ipcqs[config.flat_pe(pe)] = part.get();
    return part;
  };
  parts.sfr = [&](const char* name, const PeLocation& pe, const SystemConfig& c, models::SfrHost& host) {
    auto part = std::make_unique<CountingSfr>(name, c, pe, host);
    sfrs[config.flat_pe(pe)] = part.get();
    return part;
  };
  parts.router = [&](const char* name, SipId sip, CubeId cube, const models::FabricPlan& plan) {
    ++routers;
    return std::make_unique<NamedRouter>(name, plan, sip, cube);
  };
  models::System system("system", config, kernels, parts);
  ScriptedInitiator host("host");
  host.out.bind(system.sip(SipId{0}).cube(CubeId{0}).spare_in);
  EXPECT_EQ(routers, config.sips * config.cubes());
  EXPECT_EQ(ipcqs.size(), config.total_pes());
  const PeLocation pe{SipId{0}, CubeId{3}, PeId{1}};
  EXPECT_STREQ(ipcqs[config.flat_pe(pe)]->name(), "system.sip0.cube3.pe1.ipcq");
  run([&] {
    // Over two own routers to a doorbell of a queue pair that is not enabled.
    EXPECT_FALSE(host.write_value<uint64_t>(doorbell_address(pe, QpId{2}, 0), 64).ok());
    EXPECT_EQ(sfrs[config.flat_pe(pe)]->errors, 1);
    EXPECT_TRUE(host.write_value<uint32_t>(pe_sfr_address(pe, regs::pe::offset::CTRL), 1).ok());  // reset
    sc_core::wait(1, sc_core::SC_US);
    EXPECT_EQ(ipcqs[config.flat_pe(pe)]->resets, 1);
    EXPECT_EQ(ipcqs[0]->resets, 0);
  });
}

/// As the shipped one, and slower by what it is told.
class SlowLink : public models::LinkModel {
 public:
  explicit SlowLink(Ps more) : m_more(more) {}
  void carry(Ps now, models::Hop& wire, models::Transit& t) override {
    ++messages;
    wire.pass(now, t);
    t.shift(m_more);
  }
  int messages = 0;

 private:
  const Ps m_more;
};

TEST_F(SimTest, OwnLinkWhereTheFactoryMakesOne) {
  const SystemConfig config = tiny();
  tl::KernelRegistry kernels;
  models::SystemParts parts;
  std::map<std::string, SlowLink*> own;
  std::set<std::string> asked;
  parts.link = [&](const std::string& path, const LinkParams&) {
    EXPECT_TRUE(asked.insert(path).second) << path << " twice";
    std::unique_ptr<SlowLink> model;
    if (path == "own.link_sip0_E_sip1" || path == "own.sip0.link_cube0_cube1" || path == "own.sip1.port0_in") {
      model = std::make_unique<SlowLink>(ns(40));
      own[path] = model.get();
    }
    return model;
  };
  models::System with("own", config, kernels, parts), plain("plain", config, kernels);
  EXPECT_EQ(own.size(), 3u);
  // Two SIPs with a cable, 2 x 2 cubes with four, and the ports of a SIP; each of two directions.
  EXPECT_EQ(asked.size(), 2u + 2u * 2 * (4 + with.plan().mesh().attachments().size()));
  ScriptedInitiator from_own("from_own"), from_plain("from_plain");
  from_own.out.bind(with.sip(SipId{0}).cube(CubeId{0}).spare_in);
  from_plain.out.bind(plain.sip(SipId{0}).cube(CubeId{0}).spare_in);
  run([&] {
    // Twice, so that a granted route would be seen.
    for (int i = 0; i < 2; ++i) {
      const std::vector<uint8_t> data(1000, 7);
      const auto later = [&](SipId sip, CubeId cube) {
        const Addr at = hbm_address(sip, cube, 4096);
        sc_core::wait(10, sc_core::SC_US);
        const Outcome a = from_own.write(at, data), b = from_plain.write(at, data);
        EXPECT_TRUE(a.ok());
        EXPECT_EQ(from_own.read(at, 1000).data, data);
        return a.delay - b.delay;
      };
      EXPECT_EQ(later(SipId{0}, CubeId{0}), 0u);
      EXPECT_EQ(later(SipId{0}, CubeId{1}), ns(40));
      EXPECT_EQ(later(SipId{0}, CubeId{2}), 0u);
      EXPECT_GE(later(SipId{1}, CubeId{1}), ns(40));
    }
    EXPECT_GT(own["own.link_sip0_E_sip1"]->messages, 0);
    // A fault hits it like any other link.
    Fault f;
    f.kind = FaultKind::FailLink;
    f.from = SipId{0};
    f.to = SipId{1};
    with.inject(f);
    EXPECT_EQ(from_own.write(hbm_address(SipId{1}, CubeId{1}, 0), {1}).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
  });
}

}  // namespace
}  // namespace ahbm::test
