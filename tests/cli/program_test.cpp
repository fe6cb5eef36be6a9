// The program itself: what reaches the shell through SystemC's sc_main.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const auto& run = ahbm::platform::test::run_program;

TEST(Program, ExitCodesReachTheShell) {
  EXPECT_EQ(run("--version").code, 0);
  EXPECT_EQ(run("config -c tiny").code, 0);
  EXPECT_EQ(run("info -c tiny").code, 0);
  EXPECT_EQ(run("confg 2>/dev/null").code, 2);
  EXPECT_EQ(run("config -c tinny 2>/dev/null").code, 2);
  EXPECT_EQ(run("config --set noc.link_bandwith=100 2>/dev/null").code, 2);
  EXPECT_EQ(run("2>/dev/null").code, 2);
}

TEST(Program, OutputAndMessagesAreApart) {
  EXPECT_THAT(run("config -c tiny 2>/dev/null").text, StartsWith("name: \"tiny\"\n"));
  EXPECT_EQ(run("config -c tiny 2>&1 >/dev/null").text, "") << "no banner, no chatter";
  EXPECT_EQ(run("config --set noc.link_bandwith=100 2>&1 >/dev/null").text,
            "--set noc.link_bandwith=100: unknown key 'noc.link_bandwith' (did you mean 'noc.link_bandwidth'?)\n");
}

TEST(Program, OutputThatIsNotWrittenIsAnError) {
  const std::string small = " -c tiny -b 1K -e 1K";
  for (const std::string& command : {std::string("--help"), std::string("config -c tiny"), std::string("info -c tiny"),
                                     std::string("tune --help"), "all_reduce" + small, "tune" + small,
                                     std::string("bench tp_mlp -c tiny --hidden 16 --sequence 4 --no-check")}) {
    const auto r = run(command + " 2>&1 >/dev/full");
    EXPECT_EQ(r.code, 1) << command;
    EXPECT_THAT(r.text, HasSubstr("ahbm-vp: standard output could not be written completely\n")) << command;
  }
  EXPECT_EQ(run("all_reduce --algorithm nosuch" + small + " >/dev/full 2>/dev/null").code, 2) << "refused all the same";
}

TEST(Program, TwoRunsPrintTheSame) {
  EXPECT_EQ(run("info -c large").text, run("info -c large").text);
  EXPECT_THAT(run("info -c large").text, HasSubstr("large: 64 SIPs, 1024 cubes, 16384 PEs"));
}

}  // namespace
