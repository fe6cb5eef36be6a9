// The command line as a table of commands. Exit codes: 0 right, 1 wrong or failed run, 2 bad input.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/core/config/load_config.h"

namespace ahbm::platform {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;

/// Where a command writes.
struct Io {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  ///< a person watches `err`: progress may be shown
};

/// Input that the user must correct; ends the program with kExitBadInput.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Arguments = std::vector<std::string>;

struct Command {
  std::string name;
  std::string summary;                            ///< one line of the overall help
  std::function<int(const Arguments&, Io&)> run;  ///< arguments after the command's name
};

class CommandTable {
 public:
  /// \throws std::invalid_argument for an empty or a taken name
  void add(Command command);
  const Command* find(const std::string& name) const;
  const std::vector<Command>& commands() const { return m_commands; }

  /// Runs `program arguments...`. Exceptions end here: UsageError and ConfigError with kExitBadInput, everything else
  /// with kExitFailed, each with its message on `io.err`. So does a run whose output `io.out` did not take.
  int run(const Arguments& arguments, Io& io) const;

 private:
  int dispatch(const Arguments& arguments, Io& io) const;
  void print_help(std::ostream& out) const;
  std::vector<Command> m_commands;
};

/// What the options of every command that takes a platform have in common: `-c`, `--set`, `--help`.
boost::program_options::options_description platform_options();

/// Parses a command's arguments. Abbreviated options and stray words are refused, a wrong option gets a suggestion.
/// \throws UsageError
boost::program_options::variables_map parse_arguments(const Arguments& arguments,
                                                      const boost::program_options::options_description& options);

/// The platform that `-c` and `--set` name. \throws ConfigError
ConfigSource config_source(const boost::program_options::variables_map& values);

/// `Usage: ahbm-vp NAME [options]`, a paragraph, the options.
void print_command_help(std::ostream& out, const std::string& name, const std::string& text,
                        const boost::program_options::options_description& options);

Command config_command();  ///< prints the effective configuration
/// Draws the machine. \param ranks  a line on how ranks count, which only the runtime knows; not set: none
Command info_command(std::function<std::string(const SystemConfig&)> ranks = {});

}  // namespace ahbm::platform
