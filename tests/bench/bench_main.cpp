// Benchmarks run inside sc_main, since libsystemc owns main().
#include <benchmark/benchmark.h>

#include <systemc>

#include "platform/host_memory.h"

int sc_main(int argc, char** argv) {
  ahbm::platform::prefer_huge_pages_for_heap();
  sc_core::sc_report_handler::set_actions(sc_core::SC_INFO, sc_core::SC_DO_NOTHING);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::fflush(stdout);
  std::_Exit(0);  // taking a large module tree down costs more than building it
}
