// The fixture of every test that simulates.
//
// One elaboration fits in one simulation context, so ctest runs every TEST in a process of its own; the fixture also
// leaves a fresh context behind, so that running a whole binary by hand works.
//
//   TEST_F(SimTest, MovesBytes) {
//     Dut dut("dut");
//     run([&] { dut.write(...); wait(10, SC_NS); EXPECT_EQ(...); });
//   }
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <systemc>
#include <vector>

#include "models/core/time.h"

namespace ahbm::test {

class SimTest : public ::testing::Test {
 public:
  SimTest();
  ~SimTest() override;
  SimTest(const SimTest&) = delete;
  SimTest& operator=(const SimTest&) = delete;

  /// Runs `body` as an SC thread process from the current simulated time until it returns; may be called again. The
  /// test fails when nothing is left to happen, or `limit` of simulated time has passed, before `body` returned. What
  /// `body` throws comes out of here.
  void run(const std::function<void()>& body, Ps limit = us(10'000'000));

  /// Lets the simulation go on for `duration`, without a body.
  void advance(Ps duration);

  /// Lets one SystemC warning of this message type pass that would otherwise fail the test, and requires it.
  void expect_warning(const std::string& message_type);

 protected:
  void TearDown() override;

 private:
  static void on_report(const sc_core::sc_report& report, const sc_core::sc_actions& actions);

  std::vector<std::string> m_expected_warnings;
  std::vector<std::string> m_warnings;
};

inline Ps now() {
  return sc_core::sc_time_stamp().value();
}

}  // namespace ahbm::test
