// ahbm-conformance [FILE] [--filter TEXT]...: runs the cases of a file on simulated machines.
//
// Cases that need ranks run on a machine with as many SIPs as the case's world has ranks. A process can elaborate one
// machine, so every size of world gets a process of its own; if it dies, its cases have failed.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <set>
#include <systemc>

#include "platform/machine.h"
#include "runtime/layout/errors.h"
#include "tests/conformance/machine_cases.h"

namespace ahbm::conformance {
namespace {

struct Options {
  std::string file = AHBM_SOURCE_DIR "/tests/conformance/dtensor_cases.yaml";
  std::vector<std::string> filters;
  uint32_t cubes = 1;  ///< per SIP, in a row
  uint32_t pes = 2;
  bool list = false;
};

const char* const kUsage =
    "usage: ahbm-conformance [FILE] [--filter TEXT]... [--cubes N] [--pes N] [--list]\n"
    "  FILE          cases; default: those shipped with the sources\n"
    "  --filter TEXT only cases whose id or kind holds TEXT; several: any of them\n"
    "  --cubes N     cubes per SIP (default 1)\n"
    "  --pes N       PEs per cube (default 2)\n"
    "  --list        print the ids and run nothing\n";

/// \throws CaseError for what is no option
Options parse_options(int argc, char** argv) {
  Options out;
  bool named = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw CaseError(arg + " takes a value");
      return argv[++i];
    };
    const auto number = [&] {
      const std::string text = value();
      char* end = nullptr;
      const unsigned long n = std::strtoul(text.c_str(), &end, 10);
      if (*end != '\0' || n < 1 || n > 16) throw CaseError(arg + " " + text + ": expected 1..16");
      return static_cast<uint32_t>(n);
    };
    if (arg == "--filter") {
      out.filters.push_back(value());
    } else if (arg == "--cubes") {
      out.cubes = number();
    } else if (arg == "--pes") {
      out.pes = number();
    } else if (arg == "--list") {
      out.list = true;
    } else if (!named && !arg.empty() && arg[0] != '-') {
      out.file = arg;
      named = true;
    } else {
      throw CaseError("unexpected argument '" + arg + "'");
    }
  }
  return out;
}

SystemConfig machine_config(uint32_t sips, const Options& options) {
  SystemConfig c;
  c.name = "conformance";
  c.sips = sips;
  c.sip_w = sips;
  c.sip_h = 1;
  c.cube_w = options.cubes;
  c.cube_h = 1;
  c.pes = options.pes;
  c.hbm.bytes = 64 << 20;
  const CubeId last{options.cubes - 1};
  c.sip_ports = {{Side::E, last}, {Side::W, CubeId{0}}, {Side::N, CubeId{0}}, {Side::S, last}};
  c.ccl_file = AHBM_SOURCE_DIR "/configs/ccl.yaml";
  return c;
}

/// Runs one case. What it throws is the case's failure.
void run_guarded(const YAML::Node& node, Verdict& verdict, const std::function<void()>& body) {
  try {
    body();
  } catch (const sc_core::sc_unwind_exception&) {
    throw;
  } catch (const std::exception& e) {
    const auto* layout = dynamic_cast<const dtensor::LayoutError*>(&e);
    const YAML::Node expect = node.IsMap() ? node["expect"] : YAML::Node();
    const bool expected =
        layout != nullptr && expect.IsMap() && expect["error"] && expect["error"].as<std::string>() == layout->kind();
    if (!expected) verdict.fail(std::string(layout != nullptr ? layout->kind() : "failed") + ": " + e.what());
  }
}

std::string id_of(const YAML::Node& node, size_t index) {
  if (node.IsMap() && node["id"] && node["id"].IsScalar()) return node["id"].Scalar();
  return "case " + std::to_string(index);
}

/// A line in the pipe from a world's process: number of the case, then what went wrong (empty: nothing).
void send_line(int fd, size_t index, std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  const std::string line = std::to_string(index) + " " + text + "\n";
  size_t at = 0;
  while (at < line.size()) {
    const ssize_t n = write(fd, line.data() + at, line.size() - at);
    if (n <= 0) _exit(3);
    at += static_cast<size_t>(n);
  }
}

[[noreturn]] void run_world(uint32_t sips, const Options& options, const std::vector<YAML::Node>& cases,
                            const std::vector<size_t>& which, int fd) {
  int status = 0;
  try {
    platform::Machine machine(machine_config(sips, options));
    machine.run([&] {
      for (const size_t i : which) {
        Verdict verdict;
        run_guarded(cases[i], verdict, [&] { run_machine_case(*machine.context, cases[i], verdict); });
        send_line(fd, i, verdict.text());
      }
    });
    std::fflush(nullptr);
    _exit(0);  // taking the modules down takes longer than the cases
  } catch (const std::exception& e) {
    std::fprintf(stderr, "a machine with %u SIPs: %s\n", sips, e.what());
    status = 1;
  }
  _exit(status);
}

/// Runs the cases of one world in a process of its own; answers what each said.
std::map<size_t, std::string> fork_world(uint32_t sips, const Options& options, const std::vector<YAML::Node>& cases,
                                         const std::vector<size_t>& which) {
  int fds[2];
  if (pipe(fds) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    close(fds[0]);
    run_world(sips, options, cases, which, fds[1]);
  }
  close(fds[1]);
  std::map<size_t, std::string> said;
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fds[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(fds[0]);
  waitpid(child, nullptr, 0);
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const size_t space = text.find(' ', begin);
    said[std::stoul(text.substr(begin, space - begin))] = text.substr(space + 1, end - space - 1);
  }
  return said;
}

bool selected(const YAML::Node& node, const std::string& id, const Options& options) {
  if (options.filters.empty()) return true;
  const std::string kind = node.IsMap() && node["kind"] && node["kind"].IsScalar() ? node["kind"].Scalar() : "";
  for (const std::string& f : options.filters) {
    if (id.find(f) != std::string::npos || kind.find(f) != std::string::npos) return true;
  }
  return false;
}

int run(const Options& options) {
  const std::vector<YAML::Node> documents = YAML::LoadAllFromFile(options.file);
  const YAML::Node root = documents.empty() ? YAML::Node() : documents.front();
  if (!root.IsMap() || !root["cases"] || !root["cases"].IsSequence()) {
    throw CaseError(options.file + ": expected a list `cases`");
  }
  std::vector<YAML::Node> cases;
  std::vector<std::string> ids;
  for (const auto& node : root["cases"]) {
    const std::string id = id_of(node, cases.size());
    if (!selected(node, id, options)) continue;
    cases.push_back(node);
    ids.push_back(id);
  }
  if (options.list) {
    for (const std::string& id : ids) std::cout << id << "\n";
    return 0;
  }

  std::vector<std::string> problems(cases.size());
  std::map<uint32_t, std::vector<size_t>> worlds;
  for (size_t i = 0; i < cases.size(); ++i) {
    Verdict verdict;
    run_guarded(cases[i], verdict, [&] {
      if (!run_metadata_case(cases[i], verdict)) worlds[world_of(cases[i])].push_back(i);
    });
    problems[i] = verdict.text();
  }
  for (const auto& [sips, which] : worlds) {
    const auto said = fork_world(sips, options, cases, which);
    for (const size_t i : which) {
      const auto it = said.find(i);
      problems[i] = it != said.end() ? it->second : "did not run: the process of its world ended";
    }
  }
  for (size_t i = 1; i < documents.size(); ++i) {
    ids.push_back("document " + std::to_string(i + 1));
    problems.emplace_back("a file has one document, and `cases` are in it");
  }
  size_t failed = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].empty()) continue;
    ++failed;
    std::cout << "FAILED " << ids[i] << ": " << problems[i] << "\n";
  }
  std::cout << problems.size() << " cases: " << problems.size() - failed << " passed, " << failed << " failed\n";
  return failed == 0 && !cases.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ahbm::conformance

int sc_main(int argc, char** argv) {
  using namespace ahbm::conformance;
  try {
    for (int i = 1; i < argc; ++i) {
      if (std::string(argv[i]) == "--help" || std::string(argv[i]) == "-h") {
        std::cout << kUsage;
        return 0;
      }
    }
    return run(parse_options(argc, argv));
  } catch (const std::exception& e) {
    std::cerr << "ahbm-conformance: " << e.what() << "\n" << kUsage;
    return 2;
  }
}

int main(int argc, char** argv) {
  setenv("SYSTEMC_DISABLE_COPYRIGHT_MESSAGE", "1", 0);
  return sc_core::sc_elab_and_sim(argc, argv);
}
