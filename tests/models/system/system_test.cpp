// Protocol behaviour of the whole fabric: statuses, holes, region ends, debug, DMI, reset, names, several Systems.
#include <cstring>
#include <memory>
#include <set>

#include "ahbm/registers/cube.h"
#include "ahbm/registers/pe.h"
#include "models/core/errors.h"
#include "models/memory/ram.h"
#include "models/tlm/process_check.h"
#include "models/tlm/process_macro.h"
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

class SystemTest : public SimTest {};

std::vector<Addr> holes(const SystemConfig& c) {
  const Addr cube = cube_base(SipId{1}, CubeId{1});
  return {
      0,                               // a null pointer
      0x80000000,                      // local addresses exist for the management core only
      ~Addr{0},                        //
      hbm(1, 1, 0) | (Addr{1} << 56),  // above the map
      hbm(c.sips, 0, 0),               // no such SIP
      hbm(0, c.cubes(), 0),            // no such cube
      cube + c.hbm.bytes,              // behind the HBM
      cube + addr::kPeWindows + c.pes * addr::kPeWindowBytes,
      cube + addr::kCubeSfr - 4,
      cube + addr::kCubeSfr + addr::kCubeSfrBytes,
      pe_base({SipId{1}, CubeId{1}, PeId{0}}) + c.pe.tcm_bytes,
      sip_block_base(SipId{1}) + addr::kUart,  // nothing bound there
      sip_block_base(SipId{1}) + addr::kBootRom,
      sip_block_base(SipId{1}) + addr::kFirmwareRam,
      sip_block_base(SipId{1}) + addr::kMailbox + addr::kMailboxBytes,
      sip_block_base(SipId{1}) + 0x40000000,
  };
}

// T17: a payload whose last status was OK must not keep it.
TEST_F(SystemTest, HolesAnswerAddressErrorFromEverywhere) {
  SystemConfig config = platform("tiny");
  config.hbm.bytes = 1 << 30;  // with the whole 12 GiB there would be no hole behind it
  Machine m(config);
  ScriptedInitiator host("host_initiator");
  host.out.bind(m.system.host_bridge.spare_in);
  std::vector<ScriptedInitiator*> sources = {&m.on_cube(0, 0), &m.on_cube(1, 1), &m.on_sip(0), &m.on_sip(1), &host};
  run([&] {
    for (ScriptedInitiator* from : sources) {
      for (const Addr hole : holes(m.config)) {
        SCOPED_TRACE(testing::Message() << from->name() << " to " << std::hex << hole);
        for (const auto command : {tlm::TLM_READ_COMMAND, tlm::TLM_WRITE_COMMAND}) {
          Access a;
          a.command = command;
          a.address = hole;
          a.data = pattern(4);
          a.before = [](tlm::tlm_generic_payload& p) {
            p.set_response_status(tlm::TLM_OK_RESPONSE);
            p.set_dmi_allowed(true);
          };
          const Outcome o = from->transport(a);
          EXPECT_EQ(o.status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
          EXPECT_FALSE(o.dmi_allowed);
          EXPECT_EQ(o.data, pattern(4));
          std::vector<uint8_t> data;
          EXPECT_EQ(from->debug(a, data), 0u);
        }
      }
      EXPECT_EQ(from->live(), 0u);
    }
    for (const Addr hole : holes(m.config)) {
      uint32_t word = 0;
      EXPECT_EQ(m.system.host_bridge.write(hole, &word, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
      EXPECT_EQ(m.system.host_bridge.read(hole, &word, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
      EXPECT_EQ(m.system.host_bridge.debug_read(hole, &word, 4), 0u);
    }
  });
}

TEST_F(SystemTest, APayloadCanBeUsedAgainAfterAnError) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    EXPECT_EQ(from.write(0, pattern(8)).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_TRUE(from.write(hbm(1, 1, 64), pattern(8)).ok());
    EXPECT_EQ(from.read(hbm(1, 1, 64), 8).data, pattern(8));
    EXPECT_EQ(from.write(hbm(0, 9, 0), pattern(8)).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_TRUE(from.read(hbm(1, 1, 64), 8).ok());
  });
}

// T27
TEST_F(SystemTest, AccessesAcrossARegionsEndChangeNothing) {
  Machine m(platform("tiny"));
  // A foreign target in the holes behind every region sees none of them.
  ScriptedTarget behind("behind", cube_base(SipId{0}, CubeId{0}), addr::kCubeBytes);
  m.system.sip(SipId{0}).cube(CubeId{0}).spare_out.bind(behind.in);
  ScriptedTarget in_block("in_block", sip_block_base(SipId{0}), addr::kCubeBytes);
  m.system.sip(SipId{0}).spare_out.bind(in_block.in);
  int completions = 0;
  m.system.host_bridge.on_completion = [&](const models::CompletionEvent&) { ++completions; };
  ScriptedInitiator& from = m.on_cube(1, 0);
  const PeLocation pe{SipId{0}, CubeId{0}, PeId{0}};
  run([&] {
    const Addr ends[] = {
        hbm(0, 0, m.config.hbm.bytes),
        tcm_address(pe, m.config.pe.tcm_bytes),
        pe_sfr_address(pe, addr::kPeSfrBytes),
        qp_reg_address(pe, QpId{3}, addr::kQpRegBytes),
        doorbell_address(pe, QpId{3}, addr::kDoorbellBytes),
        cube_base(SipId{0}, CubeId{0}) + addr::kCubeSfr + addr::kCubeSfrBytes,
        mailbox_address(SipId{0}, addr::kMailboxTags),
    };
    for (const Addr end : ends) {
      SCOPED_TRACE(testing::Message() << std::hex << end);
      EXPECT_EQ(from.write(end - 2, pattern(4)).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
      const Outcome o = from.read(end - 2, 4);
      EXPECT_EQ(o.status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
      EXPECT_EQ(o.data, std::vector<uint8_t>(4, 0));
    }
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_TRUE(behind.arrivals.empty());
    EXPECT_TRUE(in_block.arrivals.empty());
    EXPECT_EQ(completions, 0);
    EXPECT_FALSE(m.system.sip(SipId{0}).cube(CubeId{0}).hbm().memory().touched());
    // Debug transport past the end: the short count.
    std::vector<uint8_t> data;
    Access a;
    a.address = ends[0] - 2;
    a.data.resize(4);
    EXPECT_EQ(from.debug(a, data), 2u);
    a.address = ends[6] - 2;
    EXPECT_EQ(from.debug(a, data), 2u);
    // The last bytes themselves are fine.
    EXPECT_TRUE(from.write(ends[0] - 4, pattern(4)).ok());
    EXPECT_TRUE(from.write(ends[1] - 4, pattern(4)).ok());
  });
}

TEST_F(SystemTest, HbmHonoursByteEnablesAndRefusesStreaming) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 2);
  run([&] {
    const Addr at = hbm(1, 1, 4096 - 3);
    EXPECT_TRUE(from.write(at, std::vector<uint8_t>(8, 0x11)).ok());
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = at;
    a.data = {1, 2, 3, 4, 5, 6, 7, 8};
    a.byte_enables = {0xFF, 0, 0, 0xFF, 0};  // repeats
    const Outcome w = from.transport(a);
    EXPECT_TRUE(w.ok());
    EXPECT_EQ(from.read(at, 8).data, (std::vector<uint8_t>{1, 0x11, 0x11, 4, 0x11, 6, 0x11, 0x11}));
    a.command = tlm::TLM_READ_COMMAND;
    a.data.assign(8, 0xEE);
    EXPECT_EQ(from.transport(a).data, (std::vector<uint8_t>{1, 0xEE, 0xEE, 4, 0xEE, 6, 0xEE, 0xEE}));
    Access s;
    s.command = tlm::TLM_WRITE_COMMAND;
    s.address = at;
    s.data = pattern(8);
    s.streaming_width = 4;
    EXPECT_EQ(from.transport(s).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.read(at, 8).data[0], 1);
    Access none;
    none.command = tlm::TLM_IGNORE_COMMAND;
    none.address = at;
    none.data = pattern(8);
    EXPECT_TRUE(from.transport(none).ok());
    EXPECT_EQ(from.read(at, 8).data[0], 1);
  });
}

TEST_F(SystemTest, MailboxTakesWholeSlotsOnly) {
  Machine m(platform("tiny"));
  int completions = 0;
  m.system.host_bridge.on_completion = [&](const models::CompletionEvent&) { ++completions; };
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Addr slot = mailbox_address(SipId{0}, 9);
    EXPECT_EQ(from.write(slot, pattern(4)).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.write(slot, pattern(16)).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.write(slot + 4, pattern(8)).status, tlm::TLM_BURST_ERROR_RESPONSE);
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = slot;
    a.data = pattern(8);
    a.byte_enables = {0xFF, 0xFF, 0xFF, 0};
    EXPECT_EQ(from.transport(a).status, tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE);
    a.byte_enables.clear();
    a.streaming_width = 4;
    EXPECT_EQ(from.transport(a).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.read_value<uint64_t>(slot), 0u);
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_EQ(completions, 0);
    a.streaming_width = 0;
    EXPECT_TRUE(from.transport(a).ok());
    EXPECT_EQ(from.read(slot, 8).data, pattern(8));
    const std::vector<uint8_t> whole = pattern(8);
    EXPECT_EQ(from.read(slot + 4, 4).data, (std::vector<uint8_t>{whole[4], whole[5], whole[6], whole[7]}));
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_EQ(completions, 1);
    // A debug write changes the slot and sends nothing.
    std::vector<uint8_t> data;
    EXPECT_EQ(from.debug(a, data), 8u);
    sc_core::wait(10, sc_core::SC_US);
    EXPECT_EQ(completions, 1);
  });
}

// T20
TEST_F(SystemTest, DmiIsRefusedWithASaneRange) {
  Machine m(platform("tiny"));
  ScriptedInitiator host("host_initiator");
  host.out.bind(m.system.host_bridge.spare_in);
  std::vector<ScriptedInitiator*> sources = {&m.on_cube(0, 0), &m.on_sip(1), &host};
  run([&] {
    const PeLocation pe{SipId{1}, CubeId{3}, PeId{1}};
    for (ScriptedInitiator* from : sources) {
      for (const Addr to : {hbm(1, 3, 64), hbm(0, 0, 0), pe_sfr_address(pe, 0), tcm_address(pe, 0),
                            cube_base(SipId{1}, CubeId{3}) + addr::kCubeSfr, mailbox_address(SipId{0}, 1), Addr{0}}) {
        tlm::tlm_generic_payload p;
        tlm::tlm_dmi dmi;
        p.set_command(tlm::TLM_READ_COMMAND);
        p.set_address(to);
        p.set_dmi_allowed(true);
        EXPECT_FALSE(from->out->get_direct_mem_ptr(p, dmi));
        EXPECT_FALSE(p.is_dmi_allowed());
        EXPECT_EQ(dmi.get_start_address(), to);
        EXPECT_EQ(dmi.get_end_address(), to);
        EXPECT_TRUE(dmi.is_none_allowed());
        EXPECT_EQ(dmi.get_dmi_ptr(), nullptr);
      }
      EXPECT_FALSE(from->write(hbm(0, 1, 0), pattern(8)).dmi_allowed);
    }
  });
}

// T22
TEST_F(SystemTest, DebugAndHostAccessesBeforeTheSimulationStarts) {
  Machine m(platform("tiny"));
  const std::vector<uint8_t> data = pattern(100000);
  EXPECT_EQ(m.system.host_bridge.debug_write(hbm(1, 2, 123), data.data(), data.size()), data.size());
  std::vector<uint8_t> back(data.size());
  EXPECT_EQ(m.system.host_bridge.debug_read(hbm(1, 2, 123), back.data(), back.size()), back.size());
  EXPECT_EQ(back, data);
  const uint32_t word = 42;
  EXPECT_EQ(m.system.host_bridge.write(hbm(0, 0, 0), &word, 4).status, tlm::TLM_OK_RESPONSE);
  run([&] {
    uint32_t seen = 0;
    EXPECT_EQ(m.system.host_bridge.read(hbm(0, 0, 0), &seen, 4).status, tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(seen, 42u);
    back.assign(back.size(), 0);
    EXPECT_EQ(m.system.host_bridge.read(hbm(1, 2, 123), back.data(), back.size()).status, tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(back, data);
  });
}

TEST_F(SystemTest, DebugTakesNoTimeAndReservesNothing) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    const Way out = Way(m.config).xbar().mesh(2).port().sip_link().port().mesh(1).xbar();
    std::vector<uint8_t> data(1 << 20);
    EXPECT_EQ(m.system.host_bridge.debug_write(hbm(1, 0, 0), data.data(), data.size()), data.size());
    EXPECT_EQ(now(), 0u);
    EXPECT_EQ(from.write(hbm(1, 0, 0), pattern(64)).delay, out.hbm_write(0, 64));
    EXPECT_EQ(m.system.host_bridge.link_down(SipId{1}).transactions, 0u);
  });
}

// T23
struct Caller : sc_core::sc_module {
  explicit Caller(const sc_core::sc_module_name& name) : sc_core::sc_module(name) {
    AHBM_HAS_PROCESS(Caller);
    SC_METHOD(from_method);
    SC_THREAD(from_thread);
  }
  void from_method() {
    try {
      models::require_thread("top.dma", "top.slow_target", 0x80001234);
    } catch (const sc_core::sc_report& r) {
      method_message = r.what();
    }
  }
  void from_thread() {
    models::require_thread("top.dma", "top.slow_target", 0x80001234);
    thread_ok = true;
  }
  std::string method_message;
  bool thread_ok = false;
};

TEST_F(SystemTest, WaitingTargetsNameWhoCalledThemFromWhere) {
  Caller caller("caller");
  std::string before_start;
  try {
    models::require_thread("top.loader", "top.slow_target", 0x42);
  } catch (const sc_core::sc_report& r) {
    before_start = r.what();
  }
  for (const char* part : {"top.loader", "top.slow_target", "0x42", "before sc_start"}) {
    EXPECT_NE(before_start.find(part), std::string::npos) << part << " in " << before_start;
  }
  advance(ns(1));
  for (const char* part : {"top.dma", "top.slow_target", "0x80001234", "method process"}) {
    EXPECT_NE(caller.method_message.find(part), std::string::npos) << part << " in " << caller.method_message;
  }
  EXPECT_TRUE(caller.thread_ok);
}

TEST_F(SystemTest, SipResetRefusesItsCubesAndLetsTrafficPass) {
  Machine m(platform("ring4"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  run([&] {
    EXPECT_TRUE(from.write(hbm(1, 5, 0), pattern(8)).ok());
    EXPECT_TRUE(from.write_value(mailbox_address(SipId{1}, 3), uint64_t{7}).ok());
    m.system.sip_rst_n[1].write(false);
    sc_core::wait(1, sc_core::SC_NS);
    const PeLocation pe{SipId{1}, CubeId{5}, PeId{0}};
    EXPECT_EQ(from.write(hbm(1, 5, 0), pattern(8, 9)).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(hbm(1, 5, 0), 8).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(pe_sfr_address(pe, 0), 4).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(cube_base(SipId{1}, CubeId{5}) + addr::kCubeSfr, 4).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(from.read(mailbox_address(SipId{1}, 3), 8).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_TRUE(from.write(hbm(2, 5, 0), pattern(8)).ok());  // passes through SIP 1
    m.system.sip_rst_n[1].write(true);
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_EQ(from.read(hbm(1, 5, 0), 8).data, pattern(8));  // memory keeps its contents
    EXPECT_EQ(from.read_value<uint64_t>(mailbox_address(SipId{1}, 3)), 0u);
  });
}

TEST_F(SystemTest, ResetAssertedFromTheStart) {
  Machine m(platform("tiny"));
  m.system.sip_rst_n[0].write(false);
  ScriptedInitiator& from = m.on_cube(1, 0);
  run([&] {
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_EQ(from.read(hbm(0, 0, 0), 4).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    m.system.sip_rst_n[0].write(true);
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_TRUE(from.read(hbm(0, 0, 0), 4).ok());
  });
}

TEST_F(SystemTest, CubeRegisters) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  models::Cube& cube = m.system.sip(SipId{0}).cube(CubeId{0});
  run([&] {
    namespace r = regs::cube::offset;
    const Addr sfr = cube_base(SipId{0}, CubeId{0}) + addr::kCubeSfr;
    EXPECT_EQ(from.read_value<uint32_t>(sfr + r::CONFIG), 2u | (16u << 8));
    EXPECT_EQ(from.write_value(sfr + r::ID, uint32_t{1}).status, tlm::TLM_COMMAND_ERROR_RESPONSE);
    EXPECT_EQ(from.read(sfr + r::ID, 3).status, tlm::TLM_BURST_ERROR_RESPONSE);
    EXPECT_EQ(from.read(sfr + 0x1000, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_EQ(from.read_value<uint64_t>(sfr + r::IRQ_ENABLE), ~uint64_t{0});
    // CTRL.RESET holds the PEs for one SFR latency from when the access is done.
    const Outcome o = from.write_value(sfr + r::CTRL, uint32_t{1});
    EXPECT_TRUE(o.ok());
    EXPECT_TRUE(cube.sfr.pe_rst_n.read());
    ScriptedInitiator::wait_for(o);
    sc_core::wait(1, sc_core::SC_NS);
    EXPECT_FALSE(cube.sfr.pe_rst_n.read());
    EXPECT_TRUE(m.system.sip(SipId{0}).cube(CubeId{1}).sfr.pe_rst_n.read());
    EXPECT_TRUE(from.read(sfr, 4).ok());  // the cube itself is not in reset
    sc_core::wait(10, sc_core::SC_NS);
    EXPECT_TRUE(cube.sfr.pe_rst_n.read());
    EXPECT_EQ(from.read_value<uint32_t>(sfr + r::CTRL), 0u);
  });
}

TEST_F(SystemTest, InterruptsOfPesAreCollected) {
  Machine m(platform("tiny"));
  ScriptedInitiator& from = m.on_cube(0, 0);
  models::Sip& sip = m.system.sip(SipId{0});
  run([&] {
    const Addr sfr = cube_base(SipId{0}, CubeId{2}) + addr::kCubeSfr;
    const PeLocation pe{SipId{0}, CubeId{2}, PeId{1}};
    const auto settle = [] { sc_core::wait(1, sc_core::SC_US); };
    settle();
    EXPECT_FALSE(sip.cube_irq[2].read());
    const uint32_t soft = static_cast<uint32_t>(regs::pe::IRQ_SET_SOFT.mask());
    EXPECT_TRUE(from.write_value(pe_sfr_address(pe, regs::pe::offset::IRQ_ENABLE), ~uint32_t{0}).ok());
    EXPECT_TRUE(from.write_value(pe_sfr_address(pe, regs::pe::offset::IRQ_SET), soft).ok());
    settle();
    EXPECT_EQ(from.read_value<uint64_t>(sfr + regs::cube::offset::IRQ_PENDING), 2u);
    EXPECT_TRUE(sip.cube_irq[2].read());
    EXPECT_FALSE(sip.cube_irq[1].read());
    // Masked, the line falls and the pending bit stays: it shows a level.
    EXPECT_TRUE(from.write_value(sfr + regs::cube::offset::IRQ_ENABLE, ~uint64_t{2}).ok());
    settle();
    EXPECT_FALSE(sip.cube_irq[2].read());
    EXPECT_EQ(from.read_value<uint64_t>(sfr + regs::cube::offset::IRQ_PENDING), 2u);
    EXPECT_EQ(from.write_value(sfr + regs::cube::offset::IRQ_PENDING, uint64_t{2}).status,
              tlm::TLM_COMMAND_ERROR_RESPONSE);
    // CTRL.RESET of the cube resets the PE and with it its interrupt.
    EXPECT_TRUE(from.write_value(sfr + regs::cube::offset::CTRL, uint32_t{1}).ok());
    settle();
    EXPECT_EQ(from.read_value<uint64_t>(sfr + regs::cube::offset::IRQ_PENDING), 0u);
    EXPECT_EQ(from.read_value<uint64_t>(sfr + regs::cube::offset::IRQ_ENABLE), ~uint64_t{2});
  });
}

TEST_F(SystemTest, ModuleNamesAreThePaths) {
  Machine m(platform("tiny"));
  EXPECT_STREQ(m.system.name(), "system");
  EXPECT_STREQ(m.system.sip(SipId{1}).name(), "system.sip1");
  EXPECT_STREQ(m.system.pe({SipId{0}, CubeId{1}, PeId{1}}).name(), "system.sip0.cube1.pe1");
  EXPECT_STREQ(m.system.sip(SipId{0}).cube(CubeId{3}).hbm().name(), "system.sip0.cube3.hbm");
  EXPECT_STREQ(m.system.sip(SipId{0}).router(CubeId{2}).name(), "system.sip0.router2");
  EXPECT_STREQ(m.system.host_bridge.name(), "system.host_bridge");
  EXPECT_EQ(sc_core::sc_find_object("system.sip0.cube1.pe1"), &m.system.pe({SipId{0}, CubeId{1}, PeId{1}}));
  ASSERT_EQ(m.system.sip_links().size(), 2u);
  EXPECT_STREQ(m.system.sip_links()[0]->name(), "system.link_sip0_E_sip1");
}

TEST_F(SystemTest, TwoSystemsAreIndependent) {
  Machine a(platform("tiny"), "a");
  Machine b(platform("tiny", {"sip_link.latency=100 ns"}), "b");
  ScriptedInitiator& in_a = a.on_cube(0, 3);
  ScriptedInitiator& in_b = b.on_cube(0, 3);
  run([&] {
    const Ps ta = in_a.write(hbm(1, 2, 0), pattern(64)).delay;
    const Ps tb = in_b.write(hbm(1, 2, 0), pattern(64, 5)).delay;
    EXPECT_EQ(ta, tb + ns(150));
    EXPECT_EQ(in_a.read(hbm(1, 2, 0), 64).data, pattern(64));
    EXPECT_EQ(in_b.read(hbm(1, 2, 0), 64).data, pattern(64, 5));
  });
}

TEST_F(SystemTest, ATakenNameIsRefused) {
  const SystemConfig config = platform("tiny", {"system.sips.count=1"});
  tl::KernelRegistry kernels;
  models::System first("system", config, kernels);
  expect_warning(sc_core::SC_ID_INSTANCE_EXISTS_);
  try {
    models::System second("system", config, kernels);
    ADD_FAILURE() << "a second module of that name was built";
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("'system'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("system_0"), std::string::npos) << e.what();
  }
}

TEST_F(SystemTest, ANameWithDotsIsRefused) {
  const SystemConfig config = platform("tiny", {"system.sips.count=1"});
  tl::KernelRegistry kernels;
  expect_warning(sc_core::SC_ID_ILLEGAL_CHARACTERS_);
  EXPECT_THROW(models::System("my.system", config, kernels), std::invalid_argument);
}

TEST_F(SystemTest, AnotherTimeResolutionIsRefused) {
  const SystemConfig config = platform("tiny", {"system.sips.count=1"});
  tl::KernelRegistry kernels;
  sc_core::sc_set_time_resolution(1, sc_core::SC_NS);
  try {
    models::System system("system", config, kernels);
    ADD_FAILURE() << "built with a resolution of 1 ns";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("1 ns"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("1 ps"), std::string::npos) << e.what();
  }
}

// `simulation.functional: false`: no payload bytes, the same times.
TEST_F(SystemTest, TimingOnlyTakesTheSameTime) {
  Machine with(platform("tiny"), "with");
  Machine without(platform("tiny", {"simulation.functional=false"}), "without");
  run([&] {
    std::vector<uint8_t> data(100000);
    for (const uint64_t n : {1u, 64u, 5000u, 100000u}) {
      sc_core::wait(100, sc_core::SC_US);
      const auto a = with.system.host_bridge.write(hbm(1, 1, 77), data.data(), n);
      const auto b = without.system.host_bridge.write(hbm(1, 1, 77), nullptr, n);
      EXPECT_EQ(b.status, tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(a.done, b.done);
      EXPECT_EQ(a.sent, b.sent);
      const auto c = with.system.host_bridge.read(hbm(0, 1, 77), data.data(), n);
      const auto d = without.system.host_bridge.read(hbm(0, 1, 77), nullptr, n);
      EXPECT_EQ(c.done, d.done);
    }
    EXPECT_FALSE(without.system.sip(SipId{1}).cube(CubeId{1}).hbm().memory().touched());
    // A missing data pointer is an error when bytes should move.
    EXPECT_EQ(with.system.host_bridge.write(hbm(1, 1, 0), nullptr, 8).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
  });
}

TEST_F(SystemTest, DevicesOfTheSipBlockAndTheManagementCore) {
  Machine m(platform("tiny"));
  models::SipBlock& block = m.system.sip(SipId{1}).sip_block;
  const Addr base = sip_block_base(SipId{1});
  ScriptedTarget uart("uart", base + addr::kUart, addr::kUartBytes, ns(5));
  ScriptedTarget ram("ram", base + addr::kFirmwareRam, addr::kFirmwareRamBytes);
  block.uart_out.bind(uart.in);
  block.firmware_ram_out.bind(ram.in);
  ScriptedInitiator core("core");
  core.out.bind(block.management_cpu_in);
  ScriptedInitiator& far = m.on_cube(0, 0);
  run([&] {
    // Boot view and global view are the same device; outside of the block the core goes over the fabric.
    EXPECT_EQ(core.write_value(addr::kUart, uint32_t{'x'}).delay, ns(5));
    EXPECT_TRUE(far.write_value(base + addr::kUart + 4, uint32_t{'y'}).ok());
    ASSERT_EQ(uart.arrivals.size(), 2u);
    EXPECT_EQ(uart.arrivals[0].address, base + addr::kUart);
    EXPECT_TRUE(core.write_value(addr::kFirmwareRam, uint64_t{99}).ok());
    EXPECT_EQ(far.read_value<uint64_t>(base + addr::kFirmwareRam), 99u);
    EXPECT_TRUE(core.write_value(hbm(0, 2, 0), uint64_t{5}).ok());
    EXPECT_EQ(core.read_value<uint64_t>(hbm(0, 2, 0)), 5u);
    EXPECT_EQ(core.read(addr::kTimer, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_EQ(core.read(addr::kFirmwareRam + addr::kFirmwareRamBytes - 2, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_EQ(core.read(0x20000000, 4).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    std::vector<uint8_t> data;
    Access a;
    a.address = addr::kFirmwareRam;
    a.data.resize(8);
    EXPECT_EQ(core.debug(a, data), 8u);
    EXPECT_EQ(data[0], 99);
  });
}

/// A management core in miniature: reads and writes words of the SIP block, directly where it is granted.
class WordCore {
 public:
  explicit WordCore(ScriptedInitiator& port) : m_port(port) {}

  uint32_t read(uint64_t address) {
    if (const uint8_t* p = direct(address, tlm::TLM_READ_COMMAND)) {
      m_time += m_dmi.get_read_latency().value();
      uint32_t v = 0;
      std::memcpy(&v, p, sizeof v);
      return v;
    }
    const Outcome o = m_port.read(address, 4);
    EXPECT_TRUE(o.ok());
    m_time += o.delay;
    uint32_t v = 0;
    std::memcpy(&v, o.data.data(), sizeof v);
    return v;
  }
  void write(uint64_t address, uint32_t v) {
    if (uint8_t* p = direct(address, tlm::TLM_WRITE_COMMAND)) {
      m_time += m_dmi.get_write_latency().value();
      std::memcpy(p, &v, sizeof v);
      return;
    }
    const Outcome o = m_port.write_value(address, v);
    EXPECT_TRUE(o.ok());
    m_time += o.delay;
  }
  Ps time() const { return m_time; }

 private:
  uint8_t* direct(uint64_t address, tlm::tlm_command command) {
    tlm::tlm_generic_payload p;
    p.set_command(command);
    p.set_address(address);
    m_dmi.init();
    if (!m_port.out->get_direct_mem_ptr(p, m_dmi)) return nullptr;
    EXPECT_LE(m_dmi.get_start_address(), address);
    EXPECT_GE(m_dmi.get_end_address(), address + 3);
    return m_dmi.get_dmi_ptr() + (address - m_dmi.get_start_address());
  }

  ScriptedInitiator& m_port;
  tlm::tlm_dmi m_dmi;
  Ps m_time = 0;
};

// With and without direct memory access a core computes the same in the same simulated time.
TEST_F(SystemTest, FirmwareRamIsTheSameWithAndWithoutDmi) {
  constexpr uint64_t kWords = 1000;
  const Addr base = sip_block_base(SipId{0});
  struct Setup {
    const char* name;
    Machine m;
    models::Ram rom, ram;
    ScriptedInitiator port;
    std::unique_ptr<WordCore> core;
    Setup(const char* n, const std::vector<std::string>& sets, Addr at)
        : name(n),
          m(platform("tiny", sets), n),
          rom((n + std::string("_rom")).c_str(), at + addr::kBootRom, addr::kBootRomBytes, ns(20),
              models::Ram::Kind::ReadOnly),
          ram((n + std::string("_ram")).c_str(), at + addr::kFirmwareRam, addr::kFirmwareRamBytes, ns(7)),
          port((n + std::string("_core")).c_str()) {
      models::SipBlock& block = m.system.sip(SipId{0}).sip_block;
      block.boot_rom_out.bind(rom.in);
      block.firmware_ram_out.bind(ram.in);
      port.out.bind(block.management_cpu_in);
      core = std::make_unique<WordCore>(port);
    }
  };
  Setup with("with", {}, base), without("without", {"simulation.dmi=false"}, base);
  run([&] {
    for (Setup* s : {&with, &without}) {
      uint32_t x = 1;
      for (uint64_t i = 0; i < 256; ++i) s->rom.memory().write(4 * i, &(x = x * 1664525 + 1013904223), 4);
      uint32_t sum = 0;
      for (uint64_t i = 0; i < kWords; ++i) {
        sum = sum * 31 + s->core->read(addr::kBootRom + 4 * (i % 256));
        s->core->write(addr::kFirmwareRam + 4 * (sum % 4096), sum);
        sum += s->core->read(addr::kFirmwareRam + 4 * (i % 4096));
      }
      s->core->write(addr::kFirmwareRam, sum);
      EXPECT_EQ(s->core->time(), kWords * (ns(20) + 2 * ns(7)) + ns(7)) << s->name;
    }
    EXPECT_EQ(with.core->read(addr::kFirmwareRam), without.core->read(addr::kFirmwareRam));
    EXPECT_EQ(with.ram.accesses() + with.rom.accesses(), 0u);
    EXPECT_EQ(without.ram.accesses() + without.rom.accesses(), 3 * kWords + 2);
    // Firmware RAM is memory for everybody else too; a ROM refuses writes and gives only reads away.
    EXPECT_TRUE(with.port.write_value(addr::kFirmwareRam + addr::kFirmwareRamBytes - 4, uint32_t{1}).ok());
    EXPECT_EQ(with.port.write_value(addr::kBootRom, uint32_t{1}).status, tlm::TLM_COMMAND_ERROR_RESPONSE);
    EXPECT_EQ(with.port.read(addr::kFirmwareRam + addr::kFirmwareRamBytes - 2, 4).status,
              tlm::TLM_ADDRESS_ERROR_RESPONSE);
    tlm::tlm_generic_payload p;
    tlm::tlm_dmi dmi;
    p.set_command(tlm::TLM_WRITE_COMMAND);
    p.set_address(addr::kBootRom);
    EXPECT_FALSE(with.port.out->get_direct_mem_ptr(p, dmi));
    EXPECT_FALSE(dmi.is_write_allowed());
  });
}

}  // namespace
}  // namespace ahbm::test
