// The command line, one argument per line: every line ends with one of the documented exit codes and, when it fails,
// with a message.
#include <sstream>

#include "platform/cli/all_reduce.h"
#include "platform/cli/command.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ahbm;
  using namespace ahbm::platform;
  std::istringstream lines(fuzz::text_of(data, size));
  Arguments arguments;
  for (std::string line; std::getline(lines, line);) {
    // A NUL cannot get into an argument; options that name files to write would litter.
    if (line.find('\0') != std::string::npos) return 0;
    if (line.size() > 2 && line[0] == '-' && line[1] == '-' && line[2] != 's' && line[2] != 'b' && line[2] != 'q') {
      for (const char* writes : {"csv", "json", "stats", "trace", "vcd", "record", "log", "out"}) {
        if (std::string(writes).rfind(line.substr(2, line.find('=') - 2), 0) == 0) return 0;
      }
    } else if (line.rfind("--st", 0) == 0) {
      return 0;
    }
    arguments.push_back(line);
  }
  std::ostringstream out, err;
  Io io{out, err, false};
  CommandTable table;
  table.add(config_command());
  table.add(info_command());
  table.add(all_reduce_command([](const AllReduceJob& job, AllReduceReport& report) {
    for (const uint64_t s : job.options.sizes) {
      AllReduceRow row;
      row.size_bytes = s;
      row.time = row.bound = 1;
      row.wrong = 0;
      report.add(row);
      if (report.rows().size() > 100) break;
    }
  }));
  const int code = table.run(arguments, io);
  if (code < 0 || code > 2) fuzz::broken("exit code " + std::to_string(code));
  if (code != 0 && err.str().empty() && out.str().empty()) fuzz::broken("a failure without a message");
  return 0;
}
