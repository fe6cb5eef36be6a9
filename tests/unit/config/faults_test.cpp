// The `faults:` list of a topology file.
#include <gmock/gmock.h>

#include "models/core/config/load_config.h"
#include "models/core/errors.h"

namespace ahbm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SystemConfig parse(const std::string& faults) {
  return parse_system_config("faults:\n" + faults, "f.yaml");
}
std::string refused(const std::string& faults) {
  try {
    parse(faults);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

constexpr const char* kAll =
    "  - {kind: drop_message, sip: 1, cube: 2, pe: 3, qp: 4, message: 5}\n"
    "  - {kind: corrupt_message, sip: 0, cube: 0, pe: 0, part: payload}\n"
    "  - {kind: fail_link, from: 3, to: 0, side: E, both_directions: false, at: 10 us}\n"
    "  - {kind: fail_link, sip: 2, from_cube: 5, to_cube: 9, at: 1 ms}\n"
    "  - {kind: stop_pe, sip: 1, cube: 15, pe: 3, at: 7 ns}\n"
    "  - {kind: address_error, sip: 3, cube: 1, offset: 1 MiB, bytes: 4 KiB, access: write}\n"
    "  - {kind: address_error, sip: 3, cube: 1, pe: 2, offset: 8 MiB, bytes: 64 KiB}\n";

TEST(Faults, EveryKindIsRead) {
  const std::vector<Fault> f = parse(kAll).faults;
  ASSERT_EQ(f.size(), 7u);
  EXPECT_EQ(describe(f[0]), "drop_message: message 5 of sip1.cube2.pe3 on QP 4");
  EXPECT_EQ(describe(f[1]), "corrupt_message: payload of message 1 of sip0.cube0.pe0");
  EXPECT_EQ(describe(f[2]), "fail_link: sip3 -> sip0 (side E) at 10000 ns");
  EXPECT_EQ(describe(f[3]), "fail_link: sip2.cube5 <-> cube9 at 1000000 ns");
  EXPECT_EQ(describe(f[4]), "stop_pe: sip1.cube15.pe3 at 7 ns");
  EXPECT_EQ(f[5].address, hbm_address(SipId{3}, CubeId{1}, 1 << 20));
  EXPECT_EQ(f[5].bytes, 4096u);
  EXPECT_EQ(f[5].access, FaultAccess::Write);
  EXPECT_EQ(f[6].address, pe_sfr_address({SipId{3}, CubeId{1}, PeId{2}}, 0));
}

TEST(Faults, TheEffectiveConfigurationReadsBackTheSame) {
  const SystemConfig c = parse(kAll);
  const SystemConfig again = parse_system_config(to_yaml(c), "again.yaml");
  ASSERT_EQ(again.faults.size(), c.faults.size());
  for (size_t i = 0; i < c.faults.size(); ++i) EXPECT_EQ(describe(again.faults[i]), describe(c.faults[i])) << i;
  EXPECT_EQ(to_yaml(again), to_yaml(c));
  EXPECT_THAT(to_yaml(SystemConfig{}), ::testing::Not(HasSubstr("faults")));
}

TEST(Faults, MistakesAreNamedWithTheirPlace) {
  EXPECT_THAT(refused("  - {sip: 0}\n"), AllOf(HasSubstr("f.yaml:2:"), HasSubstr("'faults.0' needs a kind")));
  EXPECT_THAT(refused("  - {kind: drop_mesage, sip: 0, cube: 0, pe: 0}\n"), HasSubstr("drop_message"));
  EXPECT_THAT(refused("  - {kind: stop_pe, sip: 4, cube: 0, pe: 0}\n"),
              HasSubstr("'faults.0.sip' is 4, expected 0 to 3"));
  EXPECT_THAT(refused("  - {kind: stop_pe, cube: 0, pe: 0}\n"), HasSubstr("stop_pe needs 'sip'"));
  EXPECT_THAT(refused("  - {kind: stop_pe, sip: 0, cube: 0, pe: 0, qp: 1}\n"),
              HasSubstr("'faults.0.qp' means nothing to a fault of kind stop_pe"));
  EXPECT_THAT(refused("  - {kind: drop_message, sip: 0, cube: 0, pe: 0, message: 0}\n"), HasSubstr("message"));
  EXPECT_THAT(refused("  - {kind: fail_link, from: 0, to: 2}\n"), HasSubstr("SIP 0 has no link to SIP 2"));
  EXPECT_THAT(refused("  - {kind: fail_link, from: 0}\n"), HasSubstr("needs 'to'"));
  EXPECT_THAT(refused("  - {kind: fail_link, sip: 0, from_cube: 0, to_cube: 5}\n"),
              HasSubstr("cubes 0 and 5 are no neighbours in a mesh of 4 x 4"));
  EXPECT_THAT(refused("  - {kind: stop_pe, sip: 0, cube: 0, pe: 0, at: 5}\n"), HasSubstr("no unit"));
  EXPECT_THAT(refused("  - {kind: address_error, sip: 0, cube: 0, offset: 12 GiB, bytes: 1 B}\n"),
              HasSubstr("beyond the 12 GiB of the cube's HBM"));
  EXPECT_THAT(refused("  - {kind: address_error, sip: 0, cube: 0, bytes: 1 B}\n"), HasSubstr("needs 'offset'"));
  EXPECT_THAT(refused("  - {kind: stop_pe, sip: 0, cube: 0, pe: 0, when: 5 us}\n"), HasSubstr("unknown key 'when'"));
}

}  // namespace
}  // namespace ahbm
