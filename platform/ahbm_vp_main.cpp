// The program that a user runs.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <systemc>

#include "platform/commands.h"
#include "platform/host_memory.h"

int sc_main(int argc, char* argv[]) {
  // Progress is for a person who watches: not when the table or the messages go to a file or a pipe.
  ahbm::platform::Io io{std::cout, std::cerr, isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0};
  const ahbm::platform::CommandTable table = ahbm::platform::commands();
  return table.run(ahbm::platform::Arguments(argv + 1, argv + argc), io);
}

// SystemC's library has a `main` that prints a banner first; messages are for the user of the tool, so ours turns it
// off.
int main(int argc, char* argv[]) {
  ahbm::platform::prefer_huge_pages_for_heap();
  setenv("SYSTEMC_DISABLE_COPYRIGHT_MESSAGE", "1", 0);
  return sc_core::sc_elab_and_sim(argc, argv);
}
