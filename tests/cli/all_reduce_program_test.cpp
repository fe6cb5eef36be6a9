// Whole runs of `ahbm-vp all_reduce` on the small machine, as a user starts them.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <vector>

#include "models/core/config/load_config.h"
#include "platform/cli/all_reduce.h"
#include "tests/cli/program.h"

namespace ahbm::platform {
namespace {

namespace fs = std::filesystem;
using test::ProgramResult;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The last column is wall time: the only thing that differs between two runs.
std::string without_wall(const std::string& table) {
  return std::regex_replace(table, std::regex(" +[0-9]+\\.[0-9][0-9]\n"), " WALL\n");
}

std::vector<std::vector<std::string>> rows(const std::string& table) {
  std::vector<std::vector<std::string>> out;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    out.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return out;
}

/// Columns of a row.
enum Column { kSize, kCount, kType, kOp, kTime, kAlgbw, kBusbw, kWrong, kAlgorithm, kBound, kEfficiency, kWall };

class AllReduceProgram : public testing::Test {
 protected:
  void SetUp() override {
    m_dir = fs::path(testing::TempDir()) /
            (std::string("ahbm_") + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
             std::to_string(getpid()));
    fs::create_directories(m_dir);
  }
  void TearDown() override { fs::remove_all(m_dir); }

  static ProgramResult tiny(const std::string& arguments) {
    return test::run_program("all_reduce -c " AHBM_SOURCE_DIR "/configs/tiny.yaml " + arguments);
  }
  static std::string messages(const std::string& arguments) { return tiny(arguments + " 2>&1 >/dev/null").text; }
  std::string file(const std::string& name) const { return (m_dir / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(m_dir / name) << text;
    return file(name);
  }

  fs::path m_dir;
};

// AHBM_UPDATE_GOLDEN=1 writes the file instead: look at the difference before you commit it.
TEST_F(AllReduceProgram, TableIsTheGoldenOne) {
  const fs::path golden = AHBM_SOURCE_DIR "/tests/cli/golden/all_reduce_tiny.txt";
  const ProgramResult r = tiny("-b 1K -e 64K -f 4");
  EXPECT_EQ(r.code, 0);
  if (std::getenv("AHBM_UPDATE_GOLDEN") != nullptr) std::ofstream(golden) << without_wall(r.text);
  EXPECT_EQ(without_wall(r.text), read(golden));
}

TEST_F(AllReduceProgram, TwoRunsAreTheSameButForTheWallTime) {
  const std::string arguments = "-b 256 -e 16K -f 4 --layout partial -t half --csv ";
  const ProgramResult a = tiny(arguments + file("a.csv"));
  const ProgramResult b = tiny(arguments + file("b.csv"));
  EXPECT_EQ(a.code, 0);
  EXPECT_EQ(without_wall(a.text), without_wall(b.text));
  const auto cut = [](const std::string& csv) { return std::regex_replace(csv, std::regex(",[0-9.]+\n"), "\n"); };
  EXPECT_EQ(cut(read(file("a.csv"))), cut(read(file("b.csv"))));
  EXPECT_THAT(read(file("a.csv")), HasSubstr("\n256,128,half,sum,intercube,"));
}

TEST_F(AllReduceProgram, CsvHasTheHeaderAndTheRowsOfTheTable) {
  write("out.csv", "what was here before\n");
  const ProgramResult r = tiny("-b 1K -e 4K --csv " + file("out.csv"));
  EXPECT_EQ(r.code, 0);
  std::istringstream lines(read(file("out.csv")));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "size_bytes,count,type,redop,algorithm,time_us,algbw_gbps,busbw_gbps,wrong,bound_us,efficiency,wall_ms");
  const auto table = rows(r.text);
  ASSERT_THAT(table, SizeIs(3));
  for (const auto& row : table) {
    std::getline(lines, line);
    std::vector<std::string> fields;
    std::istringstream words(line);
    for (std::string word; std::getline(words, word, ',');) fields.push_back(word);
    ASSERT_THAT(fields, SizeIs(12)) << line;
    EXPECT_EQ(fields[0], row[kSize]);
    EXPECT_EQ(fields[1], row[kCount]);
    EXPECT_EQ(fields[4], row[kAlgorithm]);
    EXPECT_EQ(fmt::format("{:.3f}", std::stod(fields[5])), row[kTime]);
    EXPECT_EQ(fmt::format("{:.2f}", std::stod(fields[7])), row[kBusbw]);
    EXPECT_THAT(line, HasSubstr(",0,0.250000,"));
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(AllReduceProgram, JsonReproducesTheRun) {
  const ProgramResult first =
      tiny("-b 8K -e 8K --set 'sip_link.bandwidth=25 GB/s' --set system.sips.count=3 --json " + file("first.json"));
  EXPECT_EQ(first.code, 0);
  const auto doc = nlohmann::ordered_json::parse(read(file("first.json")));
  ASSERT_THAT(doc["results"], SizeIs(1));
  std::string names;
  for (const auto& item : doc["results"][0].items()) names += (names.empty() ? "" : ",") + item.key();
  EXPECT_EQ(names, kAllReduceCsvHeader);
  EXPECT_EQ(doc["results"][0]["wrong"], 0);
  EXPECT_EQ(doc["config"]["system"]["sips"]["count"], 3);

  const std::string config = write("again.yaml", doc["config"].dump(2));
  const ProgramResult again = test::run_program("all_reduce -c " + config + " -b 8K -e 8K --json " + file("b.json"));
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(without_wall(again.text), without_wall(first.text));
  EXPECT_EQ(nlohmann::ordered_json::parse(read(file("b.json")))["config"], doc["config"]);
}

TEST_F(AllReduceProgram, UncheckedAndRepeated) {
  const ProgramResult r = tiny("-b 4K -e 4K --no-check --repeat 3");
  EXPECT_EQ(r.code, 0);
  const auto table = rows(r.text);
  ASSERT_THAT(table, SizeIs(3));
  for (const auto& row : table) {
    EXPECT_EQ(row[kWrong], "n/a");
    EXPECT_EQ(row[kTime], table[0][kTime]) << "the machine is as it was: no run leaves anything to the next";
  }
  EXPECT_THAT(r.text, HasSubstr("# Wrong values: not checked\n"));
}

TEST_F(AllReduceProgram, EveryLayoutDtypeOpAndAlgorithm) {
  for (const char* layout : {"sharded", "replicated", "partial"}) {
    for (const char* type : {"float", "half", "bfloat16", "int32"}) {
      for (const char* op : {"sum", "avg", "max", "min", "product"}) {
        const std::string arguments =
            std::string("-b 10000 -e 10000 --layout ") + layout + " -t " + type + " -o " + op + " --algorithm ring";
        const ProgramResult r = tiny(arguments);
        EXPECT_EQ(r.code, 0) << arguments;
        const auto table = rows(r.text);
        ASSERT_THAT(table, SizeIs(1)) << arguments;
        EXPECT_EQ(table[0][kType], type);
        EXPECT_EQ(table[0][kOp], op);
        EXPECT_EQ(table[0][kWrong], "0") << arguments;
        EXPECT_EQ(table[0][kAlgorithm], layout == std::string("partial") ? "intercube" : "ring");
      }
    }
  }
}

TEST_F(AllReduceProgram, OtherNamesOfTheDtypes) {
  EXPECT_EQ(rows(tiny("-b 1K -e 1K -t fp32").text)[0][kType], "float");
  EXPECT_EQ(rows(tiny("-b 1K -e 1K -t bf16 -o max").text)[0][kType], "bfloat16");
  EXPECT_EQ(rows(tiny("-b 1K -e 1K -t fp16").text)[0][kCount], "512");
}

TEST_F(AllReduceProgram, FewerCubes) {
  const auto one = rows(tiny("-b 64K -e 64K --cubes 1").text);
  const auto all = rows(tiny("-b 64K -e 64K").text);
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_EQ(one[0][kWrong], "0");
  EXPECT_EQ(one[0][kSize], "65536") << "the logical tensor, whatever the layout";
  EXPECT_EQ(one[0][kBound], all[0][kBound]) << "the bound knows SIP links only";
  EXPECT_NE(one[0][kTime], all[0][kTime]);
  EXPECT_EQ(tiny("--cubes 5 2>/dev/null").code, 2);
}

TEST_F(AllReduceProgram, TimesDoNotDependOnThePayload) {
  const auto with = rows(tiny("-b 1K -e 64K -f 8").text);
  const auto without = rows(tiny("-b 1K -e 64K -f 8 --set simulation.functional=false").text);
  ASSERT_EQ(with.size(), without.size());
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(with[i][kTime], without[i][kTime]);
    EXPECT_EQ(without[i][kWrong], "n/a");
  }
}

TEST_F(AllReduceProgram, NothingAndLessThanAnElement) {
  const auto table = rows(tiny("-b 0 -e 0").text);
  ASSERT_THAT(table, SizeIs(1));
  EXPECT_EQ(table[0][kTime], "0.000");
  EXPECT_EQ(table[0][kWrong], "0");
}

TEST_F(AllReduceProgram, EveryShippedPlatformButTheLargestOnes) {
  for (const char* name : {"single", "ring2", "peer_64B_50ns"}) {
    const ProgramResult r = test::run_program(std::string("all_reduce -b 4K -e 4K -c ") + name);
    EXPECT_EQ(r.code, 0) << name;
    const auto table = rows(r.text);
    ASSERT_THAT(table, SizeIs(1)) << name;
    EXPECT_EQ(table[0][kWrong], "0") << name;
  }
}

TEST_F(AllReduceProgram, BadInputIsCode2AndSaysWhatIsRight) {
  EXPECT_EQ(tiny("--algoritm ring 2>/dev/null").code, 2);
  EXPECT_EQ(messages("--algoritm ring"),
            "ahbm-vp: unknown option '--algoritm' (did you mean '--algorithm'?); --help lists all\n");
  EXPECT_EQ(tiny("--algorithm rong 2>/dev/null").code, 2);
  EXPECT_THAT(messages("--algorithm rong"), HasSubstr("'rong' has no entry under algorithms (did you mean 'ring'?)"));
  EXPECT_EQ(tiny("-b 4K -e 1K 2>/dev/null").code, 2);
  EXPECT_EQ(messages("-b 4K -e 1K"), "ahbm-vp: --maxbytes is 1024, less than --minbytes, which is 4096\n");
  EXPECT_EQ(tiny("--set sip_link.bandwith=1 2>/dev/null").code, 2);
  EXPECT_THAT(messages("--set sip_link.bandwith=1"), HasSubstr("did you mean 'sip_link.bandwidth'?"));
  EXPECT_EQ(tiny("-t floot 2>/dev/null").code, 2);
  EXPECT_EQ(tiny("--csv /no/such/folder/a.csv 2>/dev/null").code, 2);
  const std::string ccl = write("ccl.yaml", "defaults:\n  algoritm: ring\n");
  EXPECT_EQ(tiny("--ccl " + ccl + " 2>/dev/null").code, 2);
  EXPECT_THAT(messages("--ccl " + ccl), HasSubstr(ccl + ":2:3: "));
}

TEST_F(AllReduceProgram, AMissingCclYamlIsNamed) {
  const std::string config = write("lonely.yaml", "name: lonely\nsystem:\n  sips: {count: 2}\n");
  const std::string run = "all_reduce -b 1K -e 1K -c " + config;
  EXPECT_EQ(test::run_program(run + " 2>/dev/null").code, 2);
  EXPECT_THAT(test::run_program(run + " 2>&1 >/dev/null").text, HasSubstr("ccl.yaml"));
  const auto info = test::run_program("info -c " + config);
  EXPECT_EQ(info.code, 0) << "needed by collectives only";
  EXPECT_THAT(info.text, HasSubstr("\nRanks of collectives: 2 (rank = sip), no ccl.yaml\n"));
  EXPECT_EQ(tiny("--ccl " + file("none.yaml") + " 2>/dev/null").code, 2);
}

TEST_F(AllReduceProgram, InfoSaysHowRanksCount) {
  EXPECT_THAT(test::run_program("info -c tiny").text,
              HasSubstr("\nRanks of collectives: 2 (rank = sip), algorithm auto\n"));
  const auto with = [&](uint32_t world) {
    write(
        "ccl.yaml",
        fmt::format("defaults: {{algorithm: ring, world_size: {}}}\nalgorithms: {{ring: {{module: ring}}}}\n", world));
    return "info -c " + write("small.yaml", "name: small\nsystem:\n  sips: {count: 2}\n");
  };
  EXPECT_THAT(test::run_program(with(6)).text, HasSubstr("Ranks of collectives: 6 (rank = pe), algorithm ring\n"));
  const std::string too_many = with(1000) + " 2>&1 >/dev/null";
  EXPECT_THAT(test::run_program(too_many).text, HasSubstr("world_size 1000 is more than the machine's"));
  EXPECT_EQ(test::run_program(too_many).code, 2);
}

TEST_F(AllReduceProgram, TensorsOfRanksThatArePesHaveNoLayoutOverCubes) {
  const std::string ccl = write("ccl.yaml", "defaults: {algorithm: auto, rank: pe}\n");
  const std::string run = "-b 1K -e 1K --ccl " + ccl;
  const auto plain = tiny(run);
  EXPECT_EQ(plain.code, 0);
  EXPECT_THAT(plain.text, AllOf(HasSubstr("(rank = pe)"), HasSubstr("PEs, tensors whole on their PEs\n")));
  for (const char* command : {"all_reduce", "all_gather", "tune"}) {
    for (const char* wrong : {"--layout partial", "--layout replicated", "--cubes 2"}) {
      if (command == std::string("all_gather") && wrong == std::string("--layout partial")) continue;  // of none
      const auto r = test::run_program(fmt::format("{} -c tiny {} {} 2>&1", command, run, wrong));
      const std::string option = std::string(wrong).substr(0, std::string(wrong).find(' '));
      EXPECT_EQ(r.code, 2) << command << ' ' << wrong;
      EXPECT_EQ(r.text.rfind("ahbm-vp: " + option + ": ranks are PEs here (rank: pe of ccl.yaml)", 0), 0) << r.text;
    }
  }
}

TEST_F(AllReduceProgram, WhatNoAlgorithmDoesIsBadInputAndKeepsItsReason) {
  // An algorithm that does partial tensors only, and nothing else to fall back to.
  const std::string ccl =
      write("ccl.yaml", "defaults:\n  algorithm: intercube\nalgorithms:\n  intercube:\n    module: intercube\n");
  const std::string arguments = "-b 1K -e 1K --ccl " + ccl;
  EXPECT_EQ(tiny(arguments + " --json " + file("a.json") + " 2>/dev/null").code, 2);
  EXPECT_THAT(messages(arguments), AllOf(StartsWith("ahbm-vp: rank "), HasSubstr("sharded over cubes")));
  EXPECT_THAT(nlohmann::json::parse(read(file("a.json")))["error"].get<std::string>(), HasSubstr("sharded over cubes"));
  EXPECT_EQ(tiny(arguments + " --layout partial").code, 0);
}

TEST_F(AllReduceProgram, AStallIsCode1AndSaysWhoWaitsForWhat) {
  const std::string config = write("stalls.yaml", read(AHBM_SOURCE_DIR "/configs/tiny.yaml") +
                                                      "faults:\n  - {kind: stop_pe, sip: 1, cube: 0, pe: 0}\n");
  const std::string run = "all_reduce -b 64K -e 64K --ccl " AHBM_SOURCE_DIR "/configs/ccl.yaml -c " + config;
  EXPECT_EQ(test::run_program(run + " 2>/dev/null").code, 1);
  EXPECT_THAT(test::run_program(run + " 2>&1 >/dev/null").text,
              AllOf(StartsWith("ahbm-vp: stalled at "), HasSubstr("direction  credits  waits for"),
                    HasSubstr("rank 0  all_reduce #1  sip0.cube0.pe0  QP "), HasSubstr("a message"),
                    HasSubstr("nothing: the PE is stopped")));
  test::run_program(run + " --json " + file("stall.json") + " 2>/dev/null");
  const auto stall = nlohmann::json::parse(read(file("stall.json")))["stall"];
  ASSERT_GE(stall.size(), 2u);
  EXPECT_EQ(stall[0]["who"], "rank 0");
  EXPECT_EQ(stall[0]["operation"], "all_reduce #1");
  EXPECT_EQ(stall[0]["pe"], "sip0.cube0.pe0");
  EXPECT_EQ(stall[0]["waits_for"], "a message");
  EXPECT_TRUE(stall[0]["credits"].is_number_unsigned()) << stall[0];
  EXPECT_TRUE(stall.back()["credits"].is_null()) << stall.back();
  EXPECT_EQ(stall.back()["waits_for"], "nothing: the PE is stopped");
}

TEST_F(AllReduceProgram, PipedRunsPrintTheTableAndNothingElse) {
  const ProgramResult r = tiny("-b 1K -e 2K");
  EXPECT_THAT(r.text, Not(HasSubstr("running")));
  EXPECT_THAT(r.text, Not(HasSubstr("\r")));
  EXPECT_EQ(messages("-b 1K -e 2K"), "");
  EXPECT_EQ(tiny("-b 1K -e 1K --quiet").text, "");
}

TEST_F(AllReduceProgram, HelpNamesTheCodesAndTheOptions) {
  const ProgramResult r = test::run_program("all_reduce --help");
  EXPECT_EQ(r.code, 0);
  for (const char* word : {"--minbytes", "--stepfactor", "--layout", "--repeat", "--csv", "--json", "--set"}) {
    EXPECT_THAT(r.text, HasSubstr(word));
  }
}

}  // namespace
}  // namespace ahbm::platform
