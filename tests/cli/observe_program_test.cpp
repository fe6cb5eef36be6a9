// What `ahbm-vp all_reduce` writes down about a run: statistics, trace, waves, log, recorded transactions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "models/core/config/yaml_reader.h"
#include "platform/cli/all_reduce.h"
#include "platform/cli/observe_options.h"
#include "tests/cli/program.h"
#include "tests/models/observe/files.h"

namespace ahbm::platform {
namespace {

namespace fs = std::filesystem;
using observe::test::TraceFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// path,name -> value of a statistics file in CSV.
std::map<std::string, double> figures(const std::string& csv) {
  std::map<std::string, double> out;
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t second = line.find(',', line.find(',') + 1);
    out[line.substr(0, second)] = std::stod(line.substr(second + 1));
  }
  return out;
}

class ObserveProgram : public testing::Test {
 protected:
  void SetUp() override {
    m_dir = fs::path(testing::TempDir()) /
            (std::string("ahbm_") + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
             std::to_string(getpid()));
    fs::create_directories(m_dir);
  }
  void TearDown() override { fs::remove_all(m_dir); }
  static test::ProgramResult tiny(const std::string& arguments) {
    return test::run_program("all_reduce -c tiny -b 64K -e 64K " + arguments);
  }
  static std::string error(const std::string& arguments) {
    const auto r = tiny(arguments + " 2>&1 >/dev/null");
    EXPECT_EQ(r.code, 2) << arguments;
    return r.text;
  }
  std::string file(const std::string& name) const { return (m_dir / name).string(); }

  fs::path m_dir;
};

TEST_F(ObserveProgram, TableEndsWithLinksAndWaits) {
  const auto r = tiny("");
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.text, AllOf(HasSubstr("# busiest links, of "), HasSubstr("#   system.link_sip0_E_sip1"),
                            HasSubstr("# PEs waited, all together: ")));
  EXPECT_EQ(tiny("--quiet").text, "");
}

TEST_F(ObserveProgram, StatisticsBalance) {
  const auto r = tiny("--stats " + file("s.csv"));
  ASSERT_EQ(r.code, 0);
  auto f = figures(read(file("s.csv")));
  ASSERT_GT(f.size(), 1000u);
  double sent = 0, received = 0, kernels = 0, completions = 0, hbm_written = 0, waited = 0;
  for (const auto& [key, v] : f) {
    const std::string path = key.substr(0, key.find(','));
    const bool queue_total = path.size() > 5 && path.compare(path.size() - 5, 5, ".ipcq") == 0;
    if (queue_total && key.find(",messages_sent") != std::string::npos) sent += v;
    if (queue_total && key.find(",messages_received") != std::string::npos) received += v;
    if (key.find(",kernels") == key.size() - 8) kernels += v;
    if (key.find(",completions") != std::string::npos) completions += v;
    if (key.find(".hbm,bytes_written") != std::string::npos) hbm_written += v;
    if (key.find(",waited_message") != std::string::npos) waited += v;
    if (key.find("utilisation") != std::string::npos) {
      EXPECT_LE(v, 1.0) << key;
    }
  }
  EXPECT_GT(sent, 0);
  EXPECT_EQ(sent, received);
  EXPECT_GT(kernels, 0);
  EXPECT_EQ(kernels, completions);
  EXPECT_GT(hbm_written, 2 * 65536) << "both ranks' tensors were uploaded and reduced";
  EXPECT_GT(waited, 0);
  EXPECT_GE((f["system.link_sip0_E_sip1,bytes"]), 32768);
}

TEST_F(ObserveProgram, StatisticsAsYamlAreTheSame) {
  ASSERT_EQ(tiny("--stats " + file("s.yaml")).code, 0);
  ASSERT_EQ(tiny("--stats " + file("s.csv")).code, 0);
  const auto csv = figures(read(file("s.csv")));
  const auto document = yaml::Document::from_text(read(file("s.yaml")), "statistics");
  size_t n = 0;
  for (const auto& e : document.root_node().entries) {
    if (e.key != "statistics") continue;
    for (const auto& block : e.value.entries) {
      for (const auto& figure : block.value.entries) {
        const auto it = csv.find(block.key + ',' + figure.key);
        ASSERT_NE(it, csv.end()) << block.key << ' ' << figure.key;
        EXPECT_DOUBLE_EQ(std::stod(figure.value.items.at(0).scalar), it->second);
        ++n;
      }
    }
  }
  EXPECT_EQ(n, csv.size());
}

TEST_F(ObserveProgram, TraceShowsEveryMessageAndEveryPass) {
  ASSERT_EQ(tiny("--trace " + file("t.json") + " --stats " + file("s.csv")).code, 0);
  auto f = figures(read(file("s.csv")));
  const TraceFile trace(read(file("t.json")));
  trace.expect_laminar();
  double sent = 0;
  for (const auto& [key, v] : f) {
    if (key.find(".ipcq,messages_sent") != std::string::npos) sent += v;
  }
  EXPECT_EQ(trace.flows.size(), sent);
  for (const auto& flow : trace.flows) EXPECT_LT(flow.from_ts, flow.to_ts);
  for (const std::string link : {"system.link_sip0_E_sip1", "system.sip0.link_cube0_cube1"}) {
    EXPECT_EQ(trace.count(link) + trace.count(link + " control"), (f[link + ",transactions"])) << link;
  }
  for (const char* track :
       {"system.rank0", "system.rank1", "system.sip0.cube0.pe0", "system.sip1.cube3.hbm channel 0"}) {
    EXPECT_GT(trace.count(track), 0u) << track;
  }
}

TEST_F(ObserveProgram, EveryMemberOfATransferHasASlice) {
  const auto r = test::run_program("sendrecv -c ring4 --group 0,2,3 -b 1K -e 1K --trace " + file("t.json"));
  ASSERT_EQ(r.code, 0);
  const TraceFile trace(read(file("t.json")));
  trace.expect_laminar();
  EXPECT_EQ(trace.count("system.rank1"), 0u) << "not in the group";
  for (const char* rank : {"system.rank0", "system.rank2", "system.rank3"}) EXPECT_GT(trace.count(rank), 0u) << rank;
  for (const auto& s : trace.slices) {
    if (s.name == "send_recv send_recv") {
      EXPECT_LT(s.dur, us(100));
    }
  }
}

TEST_F(ObserveProgram, TwoTracesOfOneRunAreTheSame) {
  ASSERT_EQ(tiny("--trace " + file("a.json") + " --vcd " + file("a.vcd") + " --stats " + file("a.yaml")).code, 0);
  ASSERT_EQ(tiny("--trace " + file("b.json") + " --vcd " + file("b.vcd") + " --stats " + file("b.yaml")).code, 0);
  EXPECT_EQ(read(file("a.json")), read(file("b.json")));
  EXPECT_EQ(read(file("a.vcd")), read(file("b.vcd")));
  EXPECT_EQ(read(file("a.yaml")), read(file("b.yaml")));
}

TEST_F(ObserveProgram, WatchingChangesNoNumber) {
  const auto column = [](const std::string& csv) {
    std::istringstream lines(csv);
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    return line.substr(0, line.rfind(','));  // all but the wall time
  };
  ASSERT_EQ(tiny("--csv " + file("plain.csv")).code, 0);
  ASSERT_EQ(tiny("--csv " + file("seen.csv") + " --trace " + file("t.json") + " --vcd " + file("w.vcd") +
                 " --record system.link_sip0_E_sip1=" + file("r.csv"))
                .code,
            0);
  EXPECT_EQ(column(read(file("plain.csv"))), column(read(file("seen.csv"))));
}

TEST_F(ObserveProgram, TraceFilterAndWindow) {
  ASSERT_EQ(
      tiny("--trace " + file("t.json") + " --trace-filter 'system.sip1.cube0.*' --trace-from 3us --trace-to 6us").code,
      0);
  const TraceFile trace(read(file("t.json")));
  EXPECT_GT(trace.slices.size(), 0u);
  for (const auto& s : trace.slices) {
    EXPECT_THAT(trace.names.at({s.pid, s.tid}), HasSubstr("system.sip1.cube0."));
    EXPECT_GE(s.end(), us(3));
    EXPECT_LT(s.ts, us(6));
  }
}

TEST_F(ObserveProgram, WavesHoldWhatWasAskedFor) {
  ASSERT_EQ(
      tiny("--vcd " + file("w.vcd") + " --vcd-select '*.link_sip0_E_sip1.busy' --vcd-select '*.qp?_messages'").code, 0);
  const std::string text = read(file("w.vcd"));
  EXPECT_THAT(text, AllOf(HasSubstr("$scope module link_sip0_E_sip1 $end"), HasSubstr("_messages [15:0] $end"),
                          Not(HasSubstr("credits")), Not(HasSubstr("channel"))));
  EXPECT_FALSE(fs::exists(file("w.vcd.part")));
}

TEST_F(ObserveProgram, LogGoesToStandardErrorByPath) {
  const auto r = tiny("--log system.sip0.cube0.pe0=info 2>&1 >/dev/null");
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.text, HasSubstr("/ahbm/pe/executor system.sip0.cube0.pe0: kernel "));
  std::istringstream lines(r.text);
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(line, HasSubstr(" system.sip0.cube0.pe0: "));
  EXPECT_EQ(tiny("2>&1 >/dev/null").text, "") << "quiet by default";
}

TEST_F(ObserveProgram, RecordCountsEveryTransaction) {
  ASSERT_EQ(tiny("--record system.link_sip0_E_sip1=" + file("r.csv") + " --stats " + file("s.csv")).code, 0);
  auto f = figures(read(file("s.csv")));
  std::istringstream lines(read(file("r.csv")));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "time_ps,initiator,command,address,length,status,latency_ps");
  size_t credits = 0, messages = 0;
  while (std::getline(lines, line)) {
    EXPECT_THAT(line, AllOf(HasSubstr(",pe "), HasSubstr(",write,"), HasSubstr(",OK,")));
    ++(line.find(",8,OK,") != std::string::npos ? credits : messages);
  }
  // A message is one call that passes the link twice: as payload, and as the NOTIFY fused into it.
  EXPECT_GT(messages, 0u);
  EXPECT_EQ(2 * messages + credits, (f["system.link_sip0_E_sip1,transactions"]));
}

TEST_F(ObserveProgram, MistakesAreNamed) {
  EXPECT_THAT(error("--stats x.txt"), HasSubstr("--stats: 'x.txt' says no format; expected a name that ends in .yaml"));
  EXPECT_THAT(error("--trace-filter 'a*'"), HasSubstr("--trace-filter needs --trace"));
  EXPECT_THAT(error("--trace-to 5us"), HasSubstr("--trace-to needs --trace"));
  EXPECT_THAT(error("--vcd-select 'a*'"), HasSubstr("--vcd-select needs --vcd"));
  const std::string trace = "--trace " + file("t.json");
  EXPECT_THAT(error(trace + " --trace-from 5us --trace-to 2us"),
              HasSubstr("--trace-from 5 us is not before --trace-to 2 us"));
  EXPECT_THAT(error(trace + " --trace-from 5"), HasSubstr("--trace-from: "));
  EXPECT_THAT(error(trace + " --trace-filter system.sip7"), HasSubstr("--trace-filter: 'system.sip7' selects nothing"));
  EXPECT_THAT(error("--log system=loud"), HasSubstr("'loud' is no log level"));
  EXPECT_THAT(error("--record system.sip7.cube0.hbm=" + file("r.csv")), HasSubstr("system.sip7.cube0.hbm"));
  EXPECT_THAT(error("--record =x"), HasSubstr("'=x' is not PATH or PATH=FILE"));
  EXPECT_THAT(error("--stats /nonexistent/s.csv"), HasSubstr("/nonexistent/s.csv"));
  EXPECT_THAT(error("--vcd /nonexistent/w.vcd"), HasSubstr("/nonexistent/w.vcd"));
  EXPECT_THAT(error("--csv " + file("one.csv") + " --stats " + file("one.csv")),
              HasSubstr("is written by --csv already"));
}

TEST_F(ObserveProgram, RefusedCommandsLeaveFilesAlone) {
  const std::string base = " -c tiny -b 1K -e 1K ";
  const auto keep = [&](const std::string& options) { return options + '=' + file("keep"); };
  const auto option = [&](const char* name, const char* end = "") {
    return " --" + std::string(name) + ' ' + file(std::string("keep") + end);
  };
  const std::string all = option("csv", ".csv") + option("json", ".json") + option("stats", ".yaml") +
                          option("trace", ".trace") + option("vcd", ".vcd") + keep(" --record system.sip0.cube0.hbm");
  const std::vector<std::string> names = {"keep", "keep.csv", "keep.json", "keep.yaml", "keep.trace", "keep.vcd"};
  const std::vector<std::string> refused = {
      "all_reduce" + base + "--record nonsense=" + file("other") + all,
      "all_reduce" + base + "--trace-filter nosuch" + all, "all_reduce" + base + "--vcd-select nosuch" + all,
      "all_reduce" + base + "--log nosuch=info" + all, "all_reduce" + base + "--log system=loud" + all,
      "all_reduce" + base + "--algorithm nosuch" + all, "all_reduce" + base + "--group 0,9" + all,
      "reduce" + base + "--root 9" + all,
      // Found when the calls of the ranks have met, and only when another algorithm has run.
      "all_gather" + base + "--algorithm ring" + all, "tune" + base + "--group 0,9" + all,
      "bench tp_mlp -c tiny --hidden 16 --sequence 4 --trace-filter nosuch" + all,
      "all_reduce" + base + all + " --record system.sip0.cube1.hbm=/nonexistent/r.csv"};
  for (const bool there : {true, false}) {
    for (const std::string& command : refused) {
      for (const std::string& name : names) {
        fs::remove(file(name));
        if (there) std::ofstream(file(name)) << "precious\n";
      }
      const auto r = test::run_program(command + " 2>&1");
      EXPECT_EQ(r.code, 2) << command << '\n' << r.text;
      for (const std::string& name : names) {
        const std::string what = name + ": " + command;
        if (there) {
          EXPECT_EQ(read(file(name)), "precious\n") << what;
        } else if (name != "keep.json") {
          EXPECT_FALSE(fs::exists(file(name))) << what;
        }
      }
      EXPECT_FALSE(fs::exists(file("other")));
      EXPECT_FALSE(fs::exists(file("keep.vcd.part")));
    }
  }
  // What runs replaces them all.
  for (const std::string& name : names) std::ofstream(file(name)) << std::string(1 << 20, '#');
  EXPECT_EQ(test::run_program("all_reduce" + base + "--quiet" + all).code, 0);
  for (const std::string& name : names) EXPECT_THAT(read(file(name)), Not(HasSubstr("#########"))) << name;
  EXPECT_THAT(read(file("keep.csv")), StartsWith(kAllReduceCsvHeader));
}

TEST_F(ObserveProgram, InputIsNotOverwritten) {
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(file(name)) << text; };
  const std::string platform = test::run_program("config -c tiny").text;
  const std::string ccl = "defaults: {algorithm: auto}\nalgorithms: {own: {module: ./own.csv}}\n";
  write("my.yaml", platform);
  write("ccl.yaml", ccl);
  write("own.csv", "no shared object");
  fs::create_symlink(file("my.yaml"), file("link.csv"));
  const std::string mine = " -c " + file("my.yaml") + " --ccl " + file("ccl.yaml") + ' ';
  const auto message = [](const std::string& arguments) {
    const auto r = test::run_program(arguments + " 2>&1");
    EXPECT_EQ(r.code, 2) << arguments;
    return r.text;
  };
  for (const char* command : {"all_reduce", "tune"}) {
    const std::string base = command + mine + "-b 1K -e 1K ";
    EXPECT_THAT(message(base + "--stats " + file("my.yaml")),
                HasSubstr("--stats: '" + file("my.yaml") + "' is read by -c"));
    EXPECT_THAT(message(base + "--csv " + file("link.csv")), HasSubstr("' is read by -c"));
    EXPECT_THAT(message(base + "--json " + file("ccl.yaml")), HasSubstr("' is read by --ccl"));
  }
  EXPECT_THAT(message("all_reduce" + mine + "-b 1K -e 1K --csv " + file("own.csv")),
              HasSubstr("--csv: '" + file("own.csv") + "' is read by " + file("ccl.yaml")));
  EXPECT_THAT(message("bench tp_mlp -c " + file("my.yaml") + " --trace " + file("my.yaml")),
              HasSubstr("--trace: '" + file("my.yaml") + "' is read by -c"));
  EXPECT_EQ(read(file("my.yaml")), platform);
  EXPECT_EQ(read(file("ccl.yaml")), ccl);
  EXPECT_EQ(read(file("own.csv")), "no shared object");
  EXPECT_THAT(error("--csv " + file("one.csv") + " --json " + file("./one.csv")),
              HasSubstr("is written by --csv already"));
}

}  // namespace
}  // namespace ahbm::platform
