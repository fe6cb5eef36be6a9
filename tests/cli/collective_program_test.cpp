// The commands of the collectives beside all_reduce, as a user starts them: right results, columns, groups, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const auto& run = ahbm::platform::test::run_program;

class Collective : public testing::TestWithParam<const char*> {};

TEST_P(Collective, IsRightForEverySizeTypeAndGroup) {
  const std::string name = GetParam();
  const auto all = run(name + " -c tiny -b 8 -e 256K -f 32 --explain 2>/dev/null");
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.text, AllOf(HasSubstr("# Wrong values: 0 OK"), HasSubstr("closed form"), HasSubstr("lower bound")));
  const auto group =
      run(name + " -c ring4 --group '0, 2,3' --root 1 --cubes 2 -t bfloat16 -o avg -b 10K -e 10K --blocking 0");
  EXPECT_EQ(group.code, 0);
  EXPECT_THAT(group.text, AllOf(HasSubstr("3 ranks (rank = sip), group 0,2,3"), HasSubstr("# Wrong values: 0 OK")));
}

INSTANTIATE_TEST_SUITE_P(All, Collective,
                         testing::Values("all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather",
                                         "scatter", "sendrecv"),
                         [](const auto& p) { return std::string(p.param); });

TEST(CollectiveCommand, MistakesAreBadInput) {
  EXPECT_EQ(run("gather -c tiny --group 0,9 2>/dev/null").code, 2);
  EXPECT_THAT(run("gather -c tiny --group 0,x 2>&1").text, HasSubstr("--group: expected a whole number"));
  EXPECT_THAT(run("broadcast -c tiny --root 2 -b 8 -e 8 2>&1").text, HasSubstr("--root: 2 of a group of 2 ranks"));
  EXPECT_THAT(run("reduce -c tiny --layout partial -b 8 -e 8 2>&1").text, HasSubstr("partial is for all_reduce"));
  EXPECT_THAT(run("scatter -c tiny --blocking 2 2>&1").text,
              HasSubstr("--blocking: expected a whole number from 0 to 1"));
}

}  // namespace
