#include <gmock/gmock.h>

#include "models/core/config/load_config.h"
#include "platform/cli/mesh_info.h"

namespace ahbm::platform {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SystemConfig platform(const char* name) {
  return load_system_config(std::string(AHBM_SOURCE_DIR) + "/configs/" + name + ".yaml");
}

TEST(MeshInfo, Shapes) {
  EXPECT_THAT(parse_mesh_shape("4x4"), ElementsAre(4, 4));
  EXPECT_THAT(parse_mesh_shape("8"), ElementsAre(8));
  for (const char* text : {"", "x", "4x", "x4", "4x0", "4 x 4", "-4", "4x4x", "99999999999"}) {
    EXPECT_THROW(parse_mesh_shape(text), std::invalid_argument) << text;
  }
}

TEST(MeshInfo, RowsAndColumnsOfATorusShareNoLinks) {
  const std::string text = describe_mesh(platform("torus4x4"), {4, 4});
  EXPECT_THAT(text, HasSubstr("dim 0: 4 groups of 4, columns of the SIP grid\n    0 4 8 12 | 1 5 9 13"));
  EXPECT_THAT(text, HasSubstr("dim 1: 4 groups of 4, rows of the SIP grid\n    0 1 2 3 | 4 5 6 7"));
  EXPECT_EQ(text.find("links;"), std::string::npos) << text;
  EXPECT_EQ(text.find("rings\n"), std::string::npos) << text;
}

TEST(MeshInfo, StridedGroupsOfARingMeetOnItsLinks) {
  const std::string text = describe_mesh(platform("ring4"), {2, 2});
  EXPECT_THAT(text, HasSubstr("dim 0: 2 groups of 2, ranks 2 apart"));
  EXPECT_THAT(text, HasSubstr("crosses up to 2 links; with all groups at work a link carries 2 rings"));
  EXPECT_THAT(text, HasSubstr("dim 1: 2 groups of 2, neighbouring ranks"));
  EXPECT_THAT(describe_mesh(platform("ring4"), {1, 4}), HasSubstr("single ranks"));
  EXPECT_THAT(describe_mesh(platform("ring4"), {4}), HasSubstr("1 group of 4, all SIPs"));
}

TEST(MeshInfo, AMeshNeedsItsSips) {
  try {
    describe_mesh(platform("ring4"), {4, 4});
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), HasSubstr("mesh 4x4 has more ranks than ring4 has SIPs (4)"));
  }
}

}  // namespace
}  // namespace ahbm::platform
