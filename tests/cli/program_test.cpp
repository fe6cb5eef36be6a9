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

TEST(Program, TwoRunsPrintTheSame) {
  EXPECT_EQ(run("info -c large").text, run("info -c large").text);
  EXPECT_THAT(run("info -c large").text, HasSubstr("large: 64 SIPs, 1024 cubes, 16384 PEs"));
}

}  // namespace
