// The command table, its options and its exit codes, in process.
#include "platform/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "platform/cli/info.h"

namespace ahbm::platform {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Result {
  int code = -1;
  std::string out, err;
};

Result run(const Arguments& arguments) {
  CommandTable table;
  table.add(config_command());
  table.add(info_command());
  table.add({"broken", "fails", [](const Arguments&, Io&) -> int { throw std::runtime_error("the run failed"); }});
  std::ostringstream out, err;
  Io io{out, err};
  Result r;
  r.code = table.run(arguments, io);
  r.out = out.str();
  r.err = err.str();
  return r;
}

TEST(Commands, HelpAndVersion) {
  const Result help = run({"--help"});
  EXPECT_EQ(help.code, kExitOk);
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(help.out,
            "Usage: ahbm-vp COMMAND [options]\n"
            "\n"
            "AHBM-VP: a virtual platform of a multi-chip accelerator and its host runtime.\n"
            "\n"
            "Commands:\n"
            "  config         print the effective configuration of a platform\n"
            "  info           draw a platform: topology, link figures, address ranges\n"
            "  broken         fails\n"
            "\n"
            "Options:\n"
            "  -h, --help     this text; `ahbm-vp COMMAND --help` lists the options of a command\n"
            "  --version      version of the program\n"
            "\n"
            "Exit code: 0 right, 1 wrong or failed run, 2 bad input.\n");
  EXPECT_EQ(run({"-h"}).out, help.out);
  EXPECT_THAT(run({"--version"}).out, ::testing::MatchesRegex("ahbm-vp [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const Result nothing = run({});
  EXPECT_EQ(nothing.code, kExitBadInput);
  EXPECT_EQ(nothing.out, "");
  EXPECT_EQ(nothing.err, help.out);
}

TEST(Commands, EveryCommandExplainsItsOptions) {
  for (const char* name : {"config", "info"}) {
    const Result r = run({name, "--help"});
    EXPECT_EQ(r.code, kExitOk);
    EXPECT_THAT(r.out, StartsWith(std::string("Usage: ahbm-vp ") + name + " [options]\n"));
    EXPECT_THAT(r.out, HasSubstr("--set KEY=VALUE"));
    EXPECT_THAT(r.out, HasSubstr("-c [ --config ] FILE"));
  }
}

TEST(Commands, WrongWordsSuggestTheRightOne) {
  const auto refused = [](const Arguments& arguments) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, kExitBadInput);
    EXPECT_EQ(r.out, "");
    return r.err;
  };
  EXPECT_EQ(refused({"confg"}),
            "ahbm-vp: unknown command 'confg' (did you mean 'config'?); commands: config, info, broken\n");
  EXPECT_EQ(refused({"zzz"}), "ahbm-vp: unknown command 'zzz'; commands: config, info, broken\n");
  EXPECT_EQ(refused({"--hepl"}), "ahbm-vp: unknown option '--hepl' (did you mean '--help'?); a command comes first\n");
  EXPECT_EQ(refused({"info", "--confg", "x"}),
            "ahbm-vp: unknown option '--confg' (did you mean '--config'?); --help lists all\n");
  EXPECT_EQ(refused({"info", "--conf", "tiny"}),
            "ahbm-vp: unknown option '--conf' (did you mean '--config'?); --help lists all\n")
      << "abbreviations are not taken";
  EXPECT_EQ(refused({"info", "tiny"}), "ahbm-vp: 'tiny' belongs to no option; --help lists all\n");
  EXPECT_THAT(refused({"info", "-c"}), HasSubstr("'--config'"));
  EXPECT_THAT(refused({"info", "-c", "tiny", "-c", "ring4"}), HasSubstr("cannot be specified more than once"));
  EXPECT_THAT(refused({"info", "-c", "tinny"}),
              StartsWith("tinny: no such file, and no shipped platform (did you mean 'tiny'?)"));
  EXPECT_EQ(refused({"config", "--set", "system.sips.cuont=8"}),
            "--set system.sips.cuont=8: unknown key 'system.sips.cuont' (did you mean 'system.sips.count'?)\n");
}

TEST(Commands, AFailedRunIsNoBadInput) {
  const Result r = run({"broken"});
  EXPECT_EQ(r.code, kExitFailed);
  EXPECT_EQ(r.err, "ahbm-vp: the run failed\n");
}

TEST(Commands, NamesAreUnique) {
  CommandTable table;
  table.add(info_command());
  EXPECT_THROW(table.add(info_command()), std::invalid_argument);
  EXPECT_THROW(table.add({"", "", nullptr}), std::invalid_argument);
}

TEST(ConfigCommand, PrintsWhatReproducesTheMachine) {
  for (const std::string& name : shipped_platforms()) {
    const Result r = run({"config", "-c", name, "--set", "pe.clock=1.75 GHz"});
    ASSERT_EQ(r.code, kExitOk) << r.err;
    EXPECT_THAT(r.out, HasSubstr("clock: 1.75 GHz"));
    EXPECT_EQ(to_yaml(parse_system_config(r.out, "/anywhere/x.yaml")), r.out);
  }
}

TEST(InfoCommand, DrawsTheSmallMachine) {
  const Result r = run({"info", "-c", "tiny"});
  EXPECT_EQ(r.code, kExitOk);
  EXPECT_EQ(
      r.out,
      "tiny: 2 SIPs, 8 cubes, 16 PEs\n"
      "\n"
      "SIPs: 2, ring_1d; SIP link 100 GB/s, 250 ns each way\n"
      "\n"
      "  [0]--[1]\n"
      "\n"
      "  2 directed links, 200 GB/s in sum; diameter 1 hop\n"
      "\n"
      "Cubes of a SIP: 2 x 2; cube link 256 GB/s, 4 ns per hop each way\n"
      "\n"
      "  [0]--[1]\n"
      "   |    |\n"
      "  [2]--[3]\n"
      "\n"
      "  to the SIP's fabric router: E at cube 3, W at cube 2, N at cube 1, S at cube 3\n"
      "  host link of a SIP: 64 GB/s, 600 ns; packets of 1 KiB with a header of 16 B\n"
      "\n"
      "Cube: HBM 12 GiB, 819.2 GB/s over 16 channels of 256 B, 90 ns; crossbar 1.024 TB/s, 2 ns per port; 2 PEs\n"
      "PE:   1.5 GHz, 64 lanes, 4096 MACs per cycle\n"
      "      TCM 4 MiB, 768 GB/s, 4 ns; DMA 2 x 256 GB/s, set-up 20 ns, 8 outstanding\n"
      "      IPCQ 64 queue pairs, rings of 3 MiB in the TCM; 4 x 4 KiB to cubes, 8 x 16 KiB to SIPs; header on the "
      "wire\n"
      "\n"
      "Addresses, first PE:\n"
      "  sip0.cube0 hbm                     0x0080000000000000 .. 0x00800002ffffffff  12 GiB\n"
      "  sip0.cube0.pe0 tcm                 0x0080000300000000 .. 0x00800003003fffff  4 MiB\n"
      "  sip0.cube0.pe0 sfr                 0x0080000300800000 .. 0x008000030080ffff  64 KiB\n"
      "  sip0.cube0.pe0 qp registers        0x0080000300810000 .. 0x0080000300813fff  16 KiB\n"
      "  sip0.cube0.pe0 doorbells           0x0080000300c00000 .. 0x0080000300c3ffff  256 KiB\n"
      "  sip0.cube0 sfr                     0x00800003ff000000 .. 0x00800003ff00ffff  64 KiB\n"
      "  sip0 mailbox                       0x008003fc11000000 .. 0x008003fc1107ffff  512 KiB\n"
      "Addresses, last PE:\n"
      "  sip1.cube3 hbm                     0x0080040c00000000 .. 0x0080040effffffff  12 GiB\n"
      "  sip1.cube3.pe1 tcm                 0x0080040f01000000 .. 0x0080040f013fffff  4 MiB\n"
      "  sip1.cube3.pe1 sfr                 0x0080040f01800000 .. 0x0080040f0180ffff  64 KiB\n"
      "  sip1.cube3.pe1 qp registers        0x0080040f01810000 .. 0x0080040f01813fff  16 KiB\n"
      "  sip1.cube3.pe1 doorbells           0x0080040f01c00000 .. 0x0080040f01c3ffff  256 KiB\n"
      "  sip1.cube3 sfr                     0x0080040fff000000 .. 0x0080040fff00ffff  64 KiB\n"
      "  sip1 mailbox                       0x008007fc11000000 .. 0x008007fc1107ffff  512 KiB\n"
      "  one SIP further is + 0x40000000000, one cube + 0x400000000, one PE + 0x1000000\n"
      "\n"
      "No all-reduce over all SIPs is faster than: 250 ns for 1 KiB, 10.48576 us for 1 MiB, 671.08864 us for 64 MiB\n");
}

std::string sips_of(const std::vector<std::string>& sets) {
  const std::string text = describe_machine(load_system_config("ring4", sets));
  const size_t begin = text.find("each way\n\n") + 10;
  return text.substr(begin, text.find("\n\n  ", begin) + 1 - begin);
}

TEST(InfoCommand, DrawsEveryTopology) {
  EXPECT_EQ(sips_of({}), "  (3)--[0]--[1]--[2]--[3]--(0)\n");
  EXPECT_EQ(sips_of({"system.sips.count=2", "system.sips.double_links=true"}), "  (1)--[0]--[1]--(0)\n");
  EXPECT_EQ(sips_of({"system.sips.count=9", "system.sips.topology=torus_2d"}),
            "       (6)  (7)  (8)\n"
            "        |    |    |\n"
            "  (2)--[0]--[1]--[2]--(0)\n"
            "        |    |    |\n"
            "  (5)--[3]--[4]--[5]--(3)\n"
            "        |    |    |\n"
            "  (8)--[6]--[7]--[8]--(6)\n"
            "        |    |    |\n"
            "       (0)  (1)  (2)\n");
  EXPECT_EQ(sips_of({"system.sips.count=6", "system.sips.topology=mesh_2d", "system.sips.w=3", "system.sips.h=2",
                     "sip_link.overrides=[{from: 1, to: 4, absent: true}]"}),
            "  [0]--[1]--[2]\n"
            "   |         |\n"
            "  [3]--[4]--[5]\n");
  EXPECT_EQ(sips_of({"system.sips.count=3", "system.sips.topology=fully_connected"}),
            "  [0] .. [2], each joined to the 2 others\n");
  EXPECT_THAT(sips_of({"system.sips.count=3", "system.sips.topology=switch"}), HasSubstr("non-blocking core"));
}

TEST(InfoCommand, LongRowsAreShortened) {
  const std::string row = sips_of({"system.sips.count=8192"});
  EXPECT_LT(row.size(), 200u);
  EXPECT_THAT(row, StartsWith("  (8191)--[   0]--[   1]"));
  EXPECT_THAT(row, ::testing::EndsWith("[8190]--[8191]--(   0)\n"));
}

}  // namespace
}  // namespace ahbm::platform
