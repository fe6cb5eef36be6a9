// The fixture itself: that it notices what it promises to notice. Run as one process per test and as one binary.
#include "tests/support/sim_test.h"

#include <gtest/gtest-spi.h>

#include <stdexcept>

#include "tests/support/tlm_stubs.h"

namespace ahbm::test {
namespace {

using SimTestSelf = SimTest;

TEST_F(SimTestSelf, BodyRunsInAProcessAndTimePasses) {
  bool ran = false;
  run([&] {
    EXPECT_EQ(now(), 0u);
    sc_core::wait(sc_core::sc_time::from_value(ns(5)));
    EXPECT_EQ(now(), ns(5));
    ran = true;
  });
  EXPECT_TRUE(ran);
  run([&] { EXPECT_EQ(now(), ns(5)); });  // goes on where the first body ended
  advance(ns(7));
  EXPECT_EQ(now(), ns(12));
}

TEST_F(SimTestSelf, EveryTestStartsAtTimeZeroWithFreshNames) {
  ScriptedInitiator a("same_name");
  ScriptedTarget b("memory", 0, 64);
  a.out.bind(b.in);
  EXPECT_STREQ(a.name(), "same_name");
  run([&] { EXPECT_EQ(now(), 0u); });
}

TEST_F(SimTestSelf, EveryTestStartsAtTimeZeroWithFreshNamesAgain) {
  ScriptedInitiator a("same_name");
  ScriptedTarget b("memory", 0, 64);
  a.out.bind(b.in);
  EXPECT_STREQ(a.name(), "same_name");  // would be same_name_0 in the context of the test before
  run([&] { EXPECT_EQ(now(), 0u); });
}

TEST_F(SimTestSelf, ExceptionsAreCarriedOut) {
  EXPECT_THROW(run([] { throw std::out_of_range("from the body"); }), std::out_of_range);
}

TEST_F(SimTestSelf, AWaitForEverFails) {
  sc_core::sc_event never;
  bool threw = false;
  EXPECT_NONFATAL_FAILURE(
      {
        try {
          run([&] { sc_core::wait(never); });
        } catch (const std::runtime_error&) {
          threw = true;
        }
      },
      "it waits for ever");
  EXPECT_TRUE(threw);
}

TEST_F(SimTestSelf, TheTimeLimitFails) {
  EXPECT_NONFATAL_FAILURE(
      {
        try {
          run([&] { sc_core::wait(sc_core::sc_time::from_value(us(2))); }, us(1));
        } catch (const std::runtime_error&) {
        }
      },
      "limit of simulated time");
}

TEST_F(SimTestSelf, ErrorsAndFatalsThrow) {
  EXPECT_THROW(run([] { SC_REPORT_ERROR("/test", "an error"); }), sc_core::sc_report);
  EXPECT_THROW(run([] { SC_REPORT_FATAL("/test", "a fatal error"); }), sc_core::sc_report);
}

TEST_F(SimTestSelf, ExpectedWarningsPass) {
  expect_warning("/test");
  run([] { SC_REPORT_WARNING("/test", "expected"); });
}

class WarningTest : public SimTest {
 protected:
  void TearDown() override { EXPECT_NONFATAL_FAILURE(SimTest::TearDown(), "surprise"); }
};
TEST_F(WarningTest, UnexpectedWarningsFail) {
  run([] { SC_REPORT_WARNING("/test", "surprise"); });
}

class MissingWarningTest : public SimTest {
 protected:
  void TearDown() override { EXPECT_NONFATAL_FAILURE(SimTest::TearDown(), "did not come: /test"); }
};
TEST_F(MissingWarningTest, ExpectedWarningsMustCome) {
  expect_warning("/test");
  run([] {});
}

struct Stubs : SimTest {
  ScriptedInitiator cpu{"cpu"};
  ScriptedTarget memory{"memory", 0x1000, 0x100, ns(3)};
  Stubs() { cpu.out.bind(memory.in); }
};

TEST_F(Stubs, MemoryKeepsBytesAndAddsItsLatency) {
  run([&] {
    const Outcome w = cpu.write_value<uint32_t>(0x1010, 0x11223344, ns(2));
    EXPECT_TRUE(w.ok());
    EXPECT_EQ(w.delay, ns(5));
    EXPECT_EQ(memory.arrivals.at(0).tail, ns(2));
    EXPECT_EQ(cpu.read_value<uint32_t>(0x1010), 0x11223344u);
    EXPECT_EQ(memory.peek(0x1010, 4), (std::vector<uint8_t>{0x44, 0x33, 0x22, 0x11}));
  });
  EXPECT_EQ(memory.writes, 1u);
  EXPECT_EQ(memory.bytes_read, 4u);
  EXPECT_EQ(cpu.live(), 0u);
}

TEST_F(Stubs, SparseByteEnablesTouchOnlyTheirBytes) {
  run([&] {
    cpu.write_value<uint32_t>(0x1000, 0xAAAAAAAA);
    Access a;
    a.command = tlm::TLM_WRITE_COMMAND;
    a.address = 0x1000;
    a.data = {1, 2, 3, 4};
    a.byte_enables = {0xFF, 0};  // repeats
    EXPECT_TRUE(cpu.transport(a).ok());
    EXPECT_EQ(cpu.read_value<uint32_t>(0x1000), 0xAA03AA01u);
  });
}

TEST_F(Stubs, BoundsAndScriptedStatuses) {
  run([&] {
    EXPECT_EQ(cpu.read(0x10FC, 8).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    EXPECT_EQ(cpu.read(0xFFF, 1).status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
    memory.next_status = {tlm::TLM_GENERIC_ERROR_RESPONSE, tlm::TLM_OK_RESPONSE};
    EXPECT_EQ(cpu.write_value<uint8_t>(0x1000, 7).status, tlm::TLM_GENERIC_ERROR_RESPONSE);
    EXPECT_EQ(cpu.read_value<uint8_t>(0x1000), 0);
    Access a;
    a.address = 0x10FC;
    a.data.resize(16);
    std::vector<uint8_t> data;
    EXPECT_EQ(cpu.debug(a, data), 4u);
  });
  EXPECT_EQ(memory.reads, 1u);
  EXPECT_EQ(memory.writes, 0u);
}

}  // namespace
}  // namespace ahbm::test
