// `ahbm-vp bench` as a user starts it: right results, equal communication of both styles, files, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "platform/cli/bench.h"
#include "tests/cli/program.h"
#include "tests/models/observe/files.h"

namespace ahbm::platform {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const auto& run = test::run_program;
const char* const kSmallMlp = " -c tiny --hidden 16 --sequence 6";
const char* const kSmallAttention = " -c tiny --hidden 16 --heads 4 --sequence 6 --steps 1";
const char* const kSmall = " -c tiny --hidden 16 --heads 4 --sequence 6 --vocabulary 22 --steps 1";
const char* small(const std::string& bench) {
  return bench == "tp_mlp" ? kSmallMlp : bench == "tp_attention" ? kSmallAttention : kSmall;
}

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(BenchProgram, EveryBenchIsRightOnTheSmallestMachine) {
  const std::pair<const char*, const char*> benches[] = {{"tp_mlp", "all_reduce 1,"},
                                                         {"tp_attention", "all_reduce 1,"},
                                                         {"tp_transformer", "all_gather 1 + all_reduce 6,"},
                                                         {"sequence_parallel", "all_gather 6 + reduce_scatter 6,"},
                                                         {"fsdp_tp --mesh 1x2", "all_gather 1 + all_reduce 6,"},
                                                         {"fsdp_tp", "all_gather 6,"}};
  for (const auto& [bench, counts] : benches) {
    const auto result = run(std::string("bench ") + bench + small(bench));
    EXPECT_EQ(result.code, 0) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr(std::string("megatron and dtensor communicate alike: ") + counts),
                                   HasSubstr("# Wrong rows: 0 OK")))
        << bench;
  }
}

TEST(BenchProgram, TwoMeshDimensionsLossAndUnevenSizes) {
  const auto result = run(
      "bench tp_transformer --mesh 2x2 -c tiny --set system.sips.count=4 --hidden 20 --heads 4 --kv-heads 1 --inner 13 "
      "--layers 1 --sequence 5 --vocabulary 23 --batch 4 --loss-parallel --rms-norm --no-bias --steps 1");
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("communicate alike: all_reduce 7,"), HasSubstr("# Wrong rows: 0 OK")));
}

TEST(BenchProgram, TheDefaultMachineHasASipPerRank) {
  const auto result = run("bench tp_mlp --mesh 3 --hidden 8 --sequence 2 --steps 1 --set 'sip.cube_mesh={w: 1, h: 1}'");
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("tp_mlp: ring4, 3 SIPs"));
}

TEST(BenchProgram, WritesFiles) {
  const std::string base = testing::TempDir() + "bench_program_test";
  const auto result = run(std::string("bench tp_mlp") + kSmallMlp + " -t bfloat16 --quiet --csv " + base +
                          ".csv --json " + base + ".json --trace " + base + ".trace --stats " + base + ".yaml");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.text, "");
  const std::string csv = text_of(base + ".csv");
  EXPECT_THAT(csv, AllOf(HasSubstr(kBenchCsvHeader), HasSubstr("tp_mlp,\"megatron\",0,"), HasSubstr("\"dtensor\"")));
  const auto json = nlohmann::json::parse(text_of(base + ".json"));
  EXPECT_EQ(json["config"]["system"]["sips"]["count"], 2) << "as every command writes it";
  ASSERT_EQ(json["results"].size(), 3u);
  EXPECT_EQ(json["results"][2]["style"], "dtensor");
  EXPECT_EQ(json["results"][2]["collectives"]["all_reduce"], 1);
  EXPECT_EQ(json["results"][2]["wrong"], false);
  const double time = json["results"][2]["time_us"];
  EXPECT_NEAR(time,
              json["results"][2]["compute_us"].get<double>() + json["results"][2]["collective_us"].get<double>() +
                  json["results"][2]["host_us"].get<double>(),
              1e-6);
  EXPECT_GT(json["results"][2]["collective_us"].get<double>(), 0);
  EXPECT_GT(json["results"][2]["compute_us"].get<double>(), 0);
  EXPECT_THAT(text_of(base + ".trace"), HasSubstr("all_reduce"));
  EXPECT_THAT(text_of(base + ".yaml"), HasSubstr("time"));
}

TEST(BenchProgram, TraceShowsCollectivesInsideTheirOperations) {
  const std::string file = testing::TempDir() + "bench_program_nested.trace";
  ASSERT_EQ(run(std::string("bench tp_attention") + kSmallAttention + " --quiet --trace " + file).code, 0);
  const observe::test::TraceFile trace(text_of(file));
  trace.expect_laminar();
  size_t nested = 0;
  for (const auto& s : trace.slices) {
    const std::string& track = trace.names.at({s.pid, s.tid});
    if (s.args.count("group") == 0 || s.name.rfind("all_reduce ", 0) != 0 || track.find("rank") == std::string::npos)
      continue;
    // In the forward of the module that reduces, and, of distributed tensors, in the redistribution.
    EXPECT_TRUE(trace.covered(s.pid, s.tid, s.end(), "Attention") || trace.covered(s.pid, s.tid, s.end(), "attention"))
        << s.ts;
    nested += trace.covered(s.pid, s.tid, s.ts, "redistribute Psum->R") &&
              trace.covered(s.pid, s.tid, s.end(), "redistribute Psum->R");
  }
  EXPECT_GE(nested, 2u) << "one for each rank";
}

TEST(BenchProgram, AStallWritesItsRows) {
  const std::string base = testing::TempDir() + "bench_program_stall";
  std::ofstream(base + ".yaml") << text_of(AHBM_SOURCE_DIR "/configs/tiny.yaml")
                                << "faults:\n  - {kind: stop_pe, sip: 1, cube: 0, pe: 0}\n";
  const auto result = run("bench tp_mlp --hidden 16 --sequence 6 --steps 1 -c " + base + ".yaml --set ccl=" +
                          AHBM_SOURCE_DIR "/configs/ccl.yaml --json " + base + ".json 2>/dev/null");
  EXPECT_EQ(result.code, 1);
  const auto json = nlohmann::json::parse(text_of(base + ".json"));
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("stalled at "));
  ASSERT_GE(json["stall"].size(), 1u);
  EXPECT_EQ(json["stall"].back()["waits_for"], "nothing: the PE is stopped");
  EXPECT_EQ(json["stall"].back()["pe"], "sip1.cube0.pe0");
}

TEST(BenchProgram, TwoRunsPrintTheSameWithRouteGrantsAndWithout) {
  const std::string command = std::string("bench sequence_parallel") + kSmall;
  const std::string text = run(command).text;
  EXPECT_EQ(text, run(command).text);
  EXPECT_EQ(text, run(command + " --set simulation.route_grants=false").text);
}

TEST(BenchProgram, WithoutDataOrCheckTimesStay) {
  const std::string command = std::string("bench tp_mlp") + kSmallMlp;
  const auto checked = run(command + " --csv /dev/stdout --quiet");
  for (const char* option : {" --no-check", " --set simulation.functional=false"}) {
    const auto unchecked = run(command + option + " --csv /dev/stdout --quiet");
    EXPECT_EQ(unchecked.code, 0);
    // Every column but those of the errors.
    EXPECT_EQ(unchecked.text.substr(0, unchecked.text.find("n/a")), checked.text.substr(0, unchecked.text.find("n/a")));
    EXPECT_THAT(run(command + option).text, HasSubstr("# Wrong rows: not checked"));
  }
}

TEST(BenchProgram, SweepRanksEveryLayout) {
  const auto result = run(std::string("bench tp_mlp --sweep placements") + kSmallMlp);
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("x R up S(0) down S(1)"), HasSubstr("x S(1) up R down R"),
                                 HasSubstr("the cost model's choice: "), HasSubstr(" of 18 by simulated time"),
                                 HasSubstr("among layouts that cut both weights: "), HasSubstr("# Wrong rows: 0 OK")));
}

TEST(BenchProgram, TheCostModelCanBeTheMachines) {
  const std::string sweep = std::string("bench tp_mlp --sweep placements") + kSmallMlp;
  const auto ring = run(sweep);
  const auto topology = run(sweep + " --cost-model topology");
  EXPECT_EQ(topology.code, 0) << topology.text;
  EXPECT_NE(ring.text, topology.text);
}

TEST(BenchProgram, HelpListsBenchesAndOptions) {
  for (const char* command : {"bench --help", "bench fsdp_tp -h"}) {
    const auto result = run(command);
    EXPECT_EQ(result.code, 0);
    for (const char* word : {"tp_mlp", "tp_attention", "tp_transformer", "sequence_parallel", "fsdp_tp", "--mesh",
                             "--hidden", "--sweep", "--kv-heads", "--csv", "--trace"}) {
      EXPECT_THAT(result.text, HasSubstr(word)) << command;
    }
  }
}

TEST(BenchProgram, MistakesAreBadInput) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "a name is missing"},
      {"tp_mpl", "did you mean 'tp_mlp'"},
      {"tp_mlp --mesh 4x", "--mesh: '4x'"},
      {"tp_mlp --mesh 2x2x2", "has 3 dimensions"},
      {"tp_mlp --mesh 0", "expected numbers from 1"},
      {"tp_mlp -c tiny --mesh 4", "--set system.sips.count=4 makes it fit"},
      {"tp_mlp -c tiny --hidden -1", "--hidden: -1 is not in"},
      {"tp_mlp -c tiny --hidden x", "hidden"},
      {"tp_mlp -c tiny --batch 0", "--batch: 0 is not in"},
      {"tp_mlp -c tiny --mesh 2x1 --batch 3", "3 sequences on 2 data-parallel ranks"},
      {"tp_mlp -c tiny -t int32", "expected float, half or bfloat16"},
      {"tp_mlp -c tiny --loss-parallel", "tp_mlp has no logits"},
      {"tp_mlp -c tiny --layers 0", "--layers: tp_mlp has no use for it"},
      {"tp_mlp -c tiny --heads 8", "--heads: tp_mlp has no use for it"},
      {"tp_mlp -c tiny --kv-heads 8", "--kv-heads: tp_mlp has no use for it"},
      {"tp_mlp -c tiny --vocabulary 8", "--vocabulary: tp_mlp has no use for it"},
      {"tp_mlp -c tiny --rms-norm", "--rms-norm: tp_mlp has no use for it"},
      {"tp_attention -c tiny --layers 2", "--layers: tp_attention has no use for it"},
      {"tp_attention -c tiny --inner 8", "--inner: tp_attention has no use for it"},
      {"tp_mlp -c tiny --sweep placements --steps 2", "--steps: --sweep runs every layout once"},
      {"tp_mlp -c tiny --cost-model x", "expected ring or topology"},
      {"tp_mlp -c tiny --sweep what", "expected placements"},
      {"tp_attention -c tiny --sweep placements", "tp_attention has none"},
      {"tp_mlp -c tiny --mesh 2x1 --sweep placements", "a mesh of one dimension"},
      {"tp_attention -c tiny --heads 3", "3 do not divide the 512 features"},
      {"tp_attention -c tiny --heads 8 --kv-heads 3", "3 do not divide the 8 heads"},
      {"tp_attention -c tiny --set system.sips.count=3", "8 on 3 tensor-parallel ranks"},
      {"tp_mlp -c tiny --inner 1", "--inner: 1 on 2 tensor-parallel ranks"},
      {"tp_transformer -c tiny --vocabulary 1", "--vocabulary: 1 on 2"},
      {"tp_mlp -c nowhere", "nowhere"},
      {"tp_mlp -c tiny --json /nowhere/x", "cannot be written"}};
  for (const auto& [arguments, message] : mistakes) {
    const auto result = run(std::string("bench ") + arguments + " 2>&1 >/dev/null");
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.text, HasSubstr(message)) << arguments;
  }
}

struct Reported {
  int code = 0;
  std::string text;
};
/// What a report of one row makes of it.
Reported report(const BenchRow& row, bool failure = false) {
  BenchJob job;
  job.options.bench = "tp_mlp";
  std::ostringstream out;
  std::ostringstream err;
  Io io{out, err};
  BenchReport r(job, io);
  r.add(row);
  r.footer("a line", failure);
  const int code = r.finish();
  return {code, out.str()};
}

TEST(BenchReport, WhatBrokeOffEndsWithOneAndNoTotals) {
  BenchJob job;
  job.options.bench = "tp_mlp";
  std::ostringstream out;
  Io io{out, out};
  BenchReport r(job, io);
  const std::runtime_error failure("broke off");
  EXPECT_EQ(r.finish(&failure), kExitFailed);
  EXPECT_EQ(out.str(), "");
}

TEST(BenchReport, WrongRowsAndFailuresEndWithOne) {
  BenchRow row;
  row.style = "dtensor";
  row.error = 0.5;
  EXPECT_EQ(report(row).code, kExitOk);
  EXPECT_THAT(report(row).text, AllOf(HasSubstr("5.00e-01"), HasSubstr("# Wrong rows: 0 OK"), Not(HasSubstr("WRONG"))));
  EXPECT_EQ(report(row, true).code, kExitFailed);
  EXPECT_THAT(report(row, true).text, HasSubstr("# Wrong rows: 0 FAILED"));
  row.wrong = true;
  EXPECT_EQ(report(row).code, kExitFailed);
  EXPECT_THAT(report(row).text, AllOf(HasSubstr("WRONG"), HasSubstr("# Wrong rows: 1 FAILED")));
}

TEST(BenchTable, CollectivesAsText) {
  EXPECT_EQ(collectives_text({}), "none");
  EXPECT_EQ(collectives_text({{"all_reduce", 0}}), "none");
  EXPECT_EQ(collectives_text({{"all_gather", 1}, {"all_reduce", 6}}), "all_gather 1 + all_reduce 6");
}

}  // namespace
}  // namespace ahbm::platform
