#include "platform/cli/command.h"

#include <fmt/core.h>

#include <algorithm>
#include <ostream>

#include "models/core/suggest.h"

namespace ahbm::platform {

namespace po = boost::program_options;

void CommandTable::add(Command command) {
  if (command.name.empty()) throw std::invalid_argument("a command needs a name");
  if (find(command.name) != nullptr) {
    throw std::invalid_argument(fmt::format("command '{}' exists already", command.name));
  }
  m_commands.push_back(std::move(command));
}

const Command* CommandTable::find(const std::string& name) const {
  const auto it = std::find_if(m_commands.begin(), m_commands.end(), [&](const Command& c) { return c.name == name; });
  return it == m_commands.end() ? nullptr : &*it;
}

void CommandTable::print_help(std::ostream& out) const {
  out << "Usage: ahbm-vp COMMAND [options]\n"
         "\n"
         "AHBM-VP: a virtual platform of a multi-chip accelerator and its host runtime.\n"
         "\n"
         "Commands:\n";
  for (const Command& c : m_commands) out << fmt::format("  {:<14} {}\n", c.name, c.summary);
  out << "\n"
         "Options:\n"
         "  -h, --help     this text; `ahbm-vp COMMAND --help` lists the options of a command\n"
         "  --version      version of the program\n"
         "\n"
         "Exit code: 0 right, 1 wrong or failed run, 2 bad input.\n";
}

int CommandTable::run(const Arguments& arguments, Io& io) const {
  const int code = dispatch(arguments, io);
  io.out.flush();
  if (io.out) return code;
  io.err << "ahbm-vp: standard output could not be written completely\n";
  return code == kExitOk ? kExitFailed : code;
}

int CommandTable::dispatch(const Arguments& arguments, Io& io) const {
  try {
    if (arguments.empty()) {
      print_help(io.err);
      return kExitBadInput;
    }
    const std::string& first = arguments[0];
    if (first == "-h" || first == "--help") {
      print_help(io.out);
      return kExitOk;
    }
    if (first == "--version") {
      io.out << "ahbm-vp " << AHBM_VERSION << '\n';
      return kExitOk;
    }
    if (const Command* c = find(first)) return c->run({arguments.begin() + 1, arguments.end()}, io);
    std::vector<std::string> known;
    for (const Command& c : m_commands) known.push_back(c.name);
    if (first[0] == '-') {
      known = {"--help", "--version"};
      throw UsageError(fmt::format("unknown option '{}'{}; a command comes first", first, did_you_mean(first, known)));
    }
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    throw UsageError(fmt::format("unknown command '{}'{}; commands: {}", first, did_you_mean(first, known), list));
  } catch (const UsageError& e) {
    io.err << "ahbm-vp: " << e.what() << '\n';
    return kExitBadInput;
  } catch (const ConfigError& e) {
    io.err << e.what() << '\n';
    return kExitBadInput;
  } catch (const std::exception& e) {
    io.err << "ahbm-vp: " << e.what() << '\n';
    return kExitFailed;
  }
}

po::options_description platform_options() {
  po::options_description options("Platform");
  auto add = options.add_options();
  add("config,c", po::value<std::string>()->value_name("FILE")->default_value("ring4"),
      "topology file, or the name of a shipped platform");
  add("set", po::value<std::vector<std::string>>()->composing()->value_name("KEY=VALUE"),
      "override a key of the topology file, for example system.sips.count=8; may be given several times");
  add("help,h", "this text");
  return options;
}

po::variables_map parse_arguments(const Arguments& arguments, const po::options_description& options) {
  // An abbreviation that is unique today may not be tomorrow, so scripts must not depend on any.
  constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  try {
    const auto parsed = po::command_line_parser(arguments).options(options).style(kStyle).run();
    for (const auto& o : parsed.options) {
      if (o.position_key < 0) continue;
      throw UsageError(fmt::format("'{}' belongs to no option; --help lists all", o.value.empty() ? "" : o.value[0]));
    }
    po::store(parsed, values);
    po::notify(values);
  } catch (const po::unknown_option& e) {
    std::vector<std::string> known;
    for (const auto& o : options.options()) {
      known.push_back("--" + o->long_name());
    }
    throw UsageError(fmt::format("unknown option '{}'{}; --help lists all", e.get_option_name(),
                                 did_you_mean(e.get_option_name(), known)));
  } catch (const po::error& e) {
    throw UsageError(e.what());
  }
  return values;
}

ConfigSource config_source(const po::variables_map& values) {
  ConfigSource source;
  source.path_or_name = values["config"].as<std::string>();
  if (values.count("set") != 0) source.sets = values["set"].as<std::vector<std::string>>();
  return source;
}

void print_command_help(std::ostream& out, const std::string& name, const std::string& text,
                        const po::options_description& options) {
  out << "Usage: ahbm-vp " << name << " [options]\n\n" << text << "\n\n" << options;
}

Command config_command() {
  const auto run = [](const Arguments& arguments, Io& io) {
    const po::options_description options = platform_options();
    const po::variables_map values = parse_arguments(arguments, options);
    if (values.count("help") != 0) {
      print_command_help(io.out, "config",
                         "Prints the effective configuration: every key with its resolved value, as a topology file "
                         "that reproduces\nthe run.",
                         options);
      return kExitOk;
    }
    io.out << to_yaml(load_system_config(config_source(values)));
    return kExitOk;
  };
  return {"config", "print the effective configuration of a platform", run};
}

}  // namespace ahbm::platform
