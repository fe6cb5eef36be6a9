// libsystemc exports `main`; a binary that also linked gtest_main could run no test and still exit 0. So both mains of
// a test binary are ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <systemc>

int sc_main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);  // initialises GoogleTest too
  const int result = RUN_ALL_TESTS();
  if (::testing::UnitTest::GetInstance()->test_to_run_count() == 0 && !::testing::GTEST_FLAG(list_tests)) {
    std::fprintf(stderr, "no test ran\n");
    return 1;
  }
  return result;
}

int main(int argc, char** argv) {
  setenv("SYSTEMC_DISABLE_COPYRIGHT_MESSAGE", "1", 0);
  return sc_core::sc_elab_and_sim(argc, argv);
}
