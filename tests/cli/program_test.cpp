// The program itself: what reaches the shell through SystemC's sc_main.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Result {
  int code = -1;
  std::string text;
};

/// Runs `ahbm-vp arguments` in a shell; `text` is standard output, or with `2>&1 >/dev/null` standard error.
Result run(const std::string& arguments) {
  Result r;
  FILE* pipe = popen((std::string(AHBM_VP_PROGRAM) + ' ' + arguments).c_str(), "r");
  if (pipe == nullptr) return r;
  std::array<char, 4096> buffer{};
  size_t n = 0;
  while ((n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) r.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) r.code = WEXITSTATUS(status);
  return r;
}

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
