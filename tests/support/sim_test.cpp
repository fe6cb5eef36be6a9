#include "tests/support/sim_test.h"

#include <algorithm>
#include <exception>

namespace ahbm::test {

namespace {

constexpr int kStackBytes = 1 << 20;  // gtest formats failures on the process's own stack
SimTest* current_test = nullptr;

}  // namespace

SimTest::SimTest() {
  current_test = this;
  using Handler = sc_core::sc_report_handler;
  Handler::set_actions(sc_core::SC_FATAL, sc_core::SC_DISPLAY | sc_core::SC_CACHE_REPORT | sc_core::SC_THROW);
  Handler::set_actions(sc_core::SC_ERROR, sc_core::SC_CACHE_REPORT | sc_core::SC_THROW);
  Handler::set_handler(&SimTest::on_report);
}

SimTest::~SimTest() {
  current_test = nullptr;
  sc_core::sc_report_handler::set_handler(nullptr);
  // The old context is left as it is: processes of the test may still be suspended in it.
  sc_core::sc_curr_simcontext = new sc_core::sc_simcontext;
  sc_core::sc_default_global_context = sc_core::sc_curr_simcontext;
}

void SimTest::on_report(const sc_core::sc_report& report, const sc_core::sc_actions& actions) {
  if (report.get_severity() == sc_core::SC_WARNING && current_test != nullptr) {
    auto& expected = current_test->m_expected_warnings;
    const auto it = std::find(expected.begin(), expected.end(), report.get_msg_type());
    if (it != expected.end()) {
      expected.erase(it);
      return;
    }
    current_test->m_warnings.push_back(sc_core::sc_report_compose_message(report));
  }
  sc_core::sc_report_handler::default_handler(report, actions);
}

void SimTest::expect_warning(const std::string& message_type) {
  m_expected_warnings.push_back(message_type);
}

void SimTest::TearDown() {
  for (const std::string& w : m_warnings) ADD_FAILURE() << "unexpected " << w;
  for (const std::string& w : m_expected_warnings) ADD_FAILURE() << "expected warning did not come: " << w;
}

void SimTest::run(const std::function<void()>& body, Ps limit) {
  bool done = false;
  std::exception_ptr error;
  sc_core::sc_spawn_options options;
  options.set_stack_size(kStackBytes);
  sc_core::sc_spawn(
      [&] {
        try {
          body();
          done = true;
        } catch (const sc_core::sc_unwind_exception&) {
          throw;
        } catch (...) {
          error = std::current_exception();
        }
        sc_core::sc_pause();
      },
      sc_core::sc_gen_unique_name("test_body"), &options);
  sc_core::sc_start(sc_core::sc_time::from_value(limit), sc_core::SC_EXIT_ON_STARVATION);
  if (error) std::rethrow_exception(error);
  if (done) return;
  const bool dry = !sc_core::sc_pending_activity();
  ADD_FAILURE() << "the test body has not returned at " << sc_core::sc_time_stamp() << ": "
                << (dry ? "nothing is left to happen, it waits for ever" : "the limit of simulated time has passed");
  // The body refers to locals of the test: it must not be resumed.
  throw std::runtime_error("unfinished test body");
}

void SimTest::advance(Ps duration) {
  sc_core::sc_start(sc_core::sc_time::from_value(duration), sc_core::SC_RUN_TO_TIME);
}

}  // namespace ahbm::test
