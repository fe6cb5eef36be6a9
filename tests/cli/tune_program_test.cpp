// `ahbm-vp tune`: the times are those of the collectives' own commands, the verdict follows from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "platform/cli/tune.h"
#include "tests/cli/program.h"

namespace ahbm::platform {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TuneEntry entry(const char* algorithm, Ps time) {
  TuneEntry e;
  e.algorithm = algorithm;
  e.time = time;
  return e;
}

TEST(Tune, MarginIsTheNextBestAgainstTheChoice) {
  TuneRow row;
  row.entries = {entry("a", 100)};
  EXPECT_FALSE(row.margin());
  row.entries.push_back(entry("b", 150));
  row.entries.push_back(entry("c", 125));
  EXPECT_DOUBLE_EQ(*row.margin(), 0.25);
  EXPECT_EQ(row.best().algorithm, "a");
  row.entries.push_back(entry("d", 80));
  EXPECT_DOUBLE_EQ(*row.margin(), -0.2);
  EXPECT_EQ(row.best().algorithm, "d");
  EXPECT_FALSE(row.right());
}

TEST(Tune, WhatIsWrongByNothingIsRight) {
  AllReduceJob job;
  std::ostringstream out;
  Io io{out, out};
  TuneReport report(job, io);
  TuneRow row;
  row.entries = {entry("a", 100000), entry("b", 99951)};  // 0.049 %
  report.add(row);
  row.entries[1].time = 99940;  // 0.06 %
  report.add(row);
  report.finish();
  EXPECT_THAT(out.str(), AllOf(HasSubstr("a: right by 0.0 %\n"), HasSubstr("a: wrong by 0.1 %: b\n"),
                               HasSubstr("# auto is right for 1 of 2 sizes")));
}

TEST(Tune, RefusesWhatItWouldNotHeed) {
  for (const char* option : {"--explain", "--repeat 2", "--algorithm ring", "--root 1", "--topology-sweep"}) {
    const auto r = test::run_program(std::string("tune -c tiny -b 1K -e 1K ") + option + " 2>&1");
    EXPECT_EQ(r.code, 2) << option;
    EXPECT_THAT(r.text, HasSubstr(std::string(option).substr(0, std::string(option).find(' ')) + ": ")) << option;
  }
}

TEST(Tune, TimesAreThoseOfARunByThatAlgorithm) {
  const fs::path dir = fs::path(testing::TempDir()) / ("ahbm_tune_" + std::to_string(getpid()));
  fs::create_directories(dir);
  const std::string json = (dir / "t.json").string(), csv = (dir / "t.csv").string();
  const auto r =
      test::run_program("tune -c tiny --set system.sips.count=3 -b 1K -e 64K -f 64 --json " + json + " --csv " + csv);
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.text, AllOf(HasSubstr("# all_reduce on tiny: 3 ranks"), HasSubstr("auto is right for"),
                            HasSubstr("# Wrong values: 0 OK"), HasSubstr("# not run: intercube runs on partial")));
  std::ifstream in(json);
  const auto doc = nlohmann::json::parse(in);
  ASSERT_EQ(doc["results"].size(), 2u);
  for (const auto& row : doc["results"]) {
    ASSERT_GT(row["algorithms"].size(), 5u);
    double best = 1e9;
    for (const auto& e : row["algorithms"]) {
      const std::string name = e["algorithm"];
      best = std::min(best, e["time_us"].get<double>());
      EXPECT_GT(e["closed_form_us"].get<double>(), 0) << name;
      EXPECT_EQ(e["wrong"], 0) << name;
      const std::string size = std::to_string(row["size_bytes"].get<uint64_t>());
      const auto alone =
          test::run_program("all_reduce -c tiny --set system.sips.count=3 --quiet --csv /dev/stdout -b " + size +
                            " -e " + size + " --algorithm " + name);
      EXPECT_THAT(alone.text, HasSubstr("," + name + "," +
                                        microseconds(static_cast<Ps>(std::llround(e["time_us"].get<double>() * 1e6)))))
          << alone.text;
    }
    for (const auto& e : row["algorithms"]) {
      if (e["algorithm"] != row["best"]) continue;
      EXPECT_DOUBLE_EQ(e["time_us"].get<double>(), best);
    }
    EXPECT_EQ(row["margin"].get<double>() >= 0, row["chosen"] == row["best"]);
  }
  std::ifstream lines(csv);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, kTuneCsvHeader);
  fs::remove_all(dir);
}

// With a link of a fully connected fabric gone, what it carried shares two others.
TEST(Tune, AutoKnowsDetoursAroundAnAbsentLink) {
  for (const char* sips : {"4", "8"}) {
    for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather"}) {
      SCOPED_TRACE(std::string(collective) + " on " + sips);
      const auto r = test::run_program(std::string("tune -c peer_64B_50ns --set system.sips.topology=fully_connected "
                                                   "--set 'sip_link.overrides=[{from: 0, to: 1, absent: true}]' -b 1K "
                                                   "-e 4M -f 8 --quiet --json /dev/stdout --set system.sips.count=") +
                                       sips + " --collective " + collective);
      ASSERT_EQ(r.code, 0) << r.text;
      const auto document = nlohmann::json::parse(r.text);
      ASSERT_FALSE(document["results"].empty());
      for (const auto& row : document["results"]) {
        EXPECT_EQ(row["chosen"], row["best"]) << row;
        for (const auto& e : row["algorithms"]) {
          if (!testing::Matches(testing::EndsWith("direct"))(e["algorithm"].get<std::string>())) continue;
          const double simulated = e["time_us"], expected = e["closed_form_us"];
          EXPECT_NEAR(expected / simulated, 1, 0.05) << row["size_bytes"] << " " << e;
        }
      }
    }
  }
}

// The choice is right, or as good as that, and its closed form within 7 % where nothing else takes time.
TEST(Tune, AutoIsRightAndItsFormsAreToo) {
  const std::string peer = "-c peer_64B_50ns --set system.sips.count=16 --set system.sips.topology=";
  for (const std::string& machine : {peer + "torus_2d", peer + "mesh_2d", peer + "ring_1d", peer + "fully_connected",
                                     std::string("-c torus4x4"), std::string("-c mesh4x4")}) {
    for (const char* collective : {"all_reduce", "reduce"}) {
      SCOPED_TRACE(std::string(collective) + " " + machine);
      const auto r =
          test::run_program("tune " + machine + " --collective " + collective +
                            " -b 1K -e 256K -f 4 --set simulation.functional=false --quiet --json /dev/stdout");
      ASSERT_EQ(r.code, 0) << r.text;
      const auto document = nlohmann::json::parse(r.text);
      ASSERT_FALSE(document["results"].empty());
      for (const auto& row : document["results"]) {
        EXPECT_GT(row["margin"].get<double>(), -0.03) << row;
        if (machine.find("peer") == std::string::npos) continue;
        for (const auto& e : row["algorithms"]) {
          if (e["algorithm"] != row["chosen"]) continue;
          EXPECT_NEAR(e["closed_form_us"].get<double>() / e["time_us"].get<double>(), 1, 0.07) << row;
        }
      }
    }
  }
}

// SIPs that a ring closes over others, a diagonal, scattered ones: what is no neighbour is routed, and shares links.
TEST(Tune, AutoKnowsTheWaysInsideOfAPartOfTheMachine) {
  const std::string grid = " --set system.sips.count=16 --set system.sips.topology=";
  for (const std::string& part : {std::string(" --group 0,1,2,3"), grid + "mesh_2d --group 0,5,10,15",
                                  grid + "torus_2d --group 4,8,11,14", grid + "ring_1d --group 1,2,3,4,5,6,7,8,9"}) {
    for (const char* collective : {"all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all"}) {
      SCOPED_TRACE(collective + part);
      const auto r = test::run_program(
          "tune -c peer_64B_50ns --set simulation.functional=false -b 1K -e 4M -f 16 "
          "--quiet --json /dev/stdout --collective " +
          (collective + part));
      ASSERT_EQ(r.code, 0) << r.text;
      const auto document = nlohmann::json::parse(r.text);
      ASSERT_FALSE(document["results"].empty());
      for (const auto& row : document["results"]) {
        if (row["margin"].is_null()) continue;  // a single algorithm
        EXPECT_GT(row["margin"].get<double>(), -0.12) << row;
      }
    }
  }
}

// With sixteen lanes, each has the blocks of some ranks: of routed rings and lines those both ways round are the
// fastest.
TEST(Tune, AutoKnowsWhichBlocksALaneHas) {
  const std::string machine = "tune -c ring4 --set system.sips.topology=mesh_2d --set system.sips.count=36 ";
  for (const char* group : {"1,2,3,13", "1,2,3,4,5,6,7,8,9,10,11,12,13", "3,10,17,24"}) {
    for (const char* collective : {"reduce_scatter", "all_gather"}) {
      SCOPED_TRACE(std::string(collective) + " of " + group);
      const auto r =
          test::run_program(machine + "--group " + group + " --collective " + collective +
                            " --set simulation.functional=false -b 64K -e 4M -f 8 --quiet --json /dev/stdout");
      ASSERT_EQ(r.code, 0) << r.text;
      const auto document = nlohmann::json::parse(r.text);
      ASSERT_EQ(document["results"].size(), 3U);
      for (const auto& row : document["results"]) EXPECT_GT(row["margin"].get<double>(), -0.08) << row;
    }
  }
}

// With few or small slots credits decide: a queue pair per peer passes on more than two do.
TEST(Tune, AutoKnowsCredits) {
  const std::string sub_group = " --set system.sips.topology=torus_2d --set system.sips.count=16 --group 1,3,4,6,9,11";
  for (const std::string& run :
       {std::string("all_to_all --set system.sips.count=16 --set ipcq.sip.n_slots=1"),
        std::string("all_to_all --set ipcq.sip.n_slots=2"), std::string("all_reduce --set ipcq.sip.n_slots=1"),
        std::string("all_to_all --set system.sips.count=16 --set ipcq.sip.slot_bytes=256B"),
        "all_to_all --set ipcq.sip.slot_bytes=256B" + sub_group, "reduce --set ipcq.sip.slot_bytes=256B" + sub_group,
        std::string("all_gather --set ipcq.sip.slot_bytes=256B --set ipcq.sip.n_slots=16 --set system.sips.count=5"),
        std::string("all_gather --set ipcq.sip.slot_bytes=256B --set ipcq.sip.n_slots=2 --group 3,4,5,6,7"),
        std::string("reduce --set system.sips.count=4 --set ipcq.sip.n_slots=4 --group 0,2,3 --root 2")}) {
    SCOPED_TRACE(run);
    const auto r = test::run_program(
        "tune -c peer_64B_50ns --set simulation.functional=false -b 1K -e 16K -f 16 --quiet "
        "--json /dev/stdout --collective " +
        run);
    ASSERT_EQ(r.code, 0) << r.text;
    const auto document = nlohmann::json::parse(r.text);
    ASSERT_EQ(document["results"].size(), 2U);
    for (const auto& row : document["results"]) EXPECT_GT(row["margin"].get<double>(), -0.1) << row;
  }
}

TEST(Tune, OtherCollectivesAndMistakes) {
  for (const char* collective : {"all_gather", "broadcast", "all_to_all", "gather", "sendrecv"}) {
    const auto r = test::run_program(std::string("tune -c tiny -b 4K -e 4K --collective ") + collective);
    EXPECT_EQ(r.code, 0) << collective;
    EXPECT_THAT(r.text, HasSubstr("# Wrong values: 0 OK")) << collective;
  }
  const auto why = [](const std::string& arguments) {
    return test::run_program("tune -c tiny " + arguments + " 2>&1");
  };
  EXPECT_EQ(why("--collective all_reduc").code, 2);
  EXPECT_THAT(why("--collective all_reduc").text, HasSubstr("did you mean 'all_reduce'?"));
  EXPECT_THAT(why("--algorithm ring").text, HasSubstr("tune runs every algorithm that fits"));
}

}  // namespace
}  // namespace ahbm::platform
