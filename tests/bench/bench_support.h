// What benchmarks share: a simulation context of their own, and a body that runs as a process.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <systemc>

#include "models/core/config/load_config.h"

namespace ahbm::bench {

/// One elaboration fits in one simulation context: every benchmark begins with a new one and leaves its modules alone.
inline void fresh_context() {
  sc_core::sc_curr_simcontext = new sc_core::sc_simcontext;
  sc_core::sc_default_global_context = sc_core::sc_curr_simcontext;
}

/// Runs `body` as a thread process until it returns.
inline void run(const std::function<void()>& body) {
  bool done = false;
  sc_core::sc_spawn_options options;
  options.set_stack_size(1 << 20);
  sc_core::sc_spawn(
      [&] {
        body();
        done = true;
        sc_core::sc_pause();
      },
      sc_core::sc_gen_unique_name("bench_body"), &options);
  sc_core::sc_start();
  if (!done) throw std::runtime_error("the body of a benchmark did not finish");
}

inline double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of the whole process so far: seconds of user time, most resident memory in MiB.
struct ProcessUse {
  double user_s = 0, peak_mib = 0;
};
inline ProcessUse process_use() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {static_cast<double>(use.ru_utime.tv_sec) + 1e-6 * static_cast<double>(use.ru_utime.tv_usec),
          static_cast<double>(use.ru_maxrss) / 1024};
}

inline SystemConfig platform(const std::string& name, const std::vector<std::string>& sets = {}) {
  return load_system_config(std::string(AHBM_SOURCE_DIR) + "/configs/" + name + ".yaml", sets);
}

}  // namespace ahbm::bench
