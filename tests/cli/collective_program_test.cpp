// The commands of the collectives beside all_reduce, as a user starts them: right results, columns, groups, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const auto& run = ahbm::platform::test::run_program;

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool has_root(const std::string& name) {
  return name == "broadcast" || name == "reduce" || name == "gather" || name == "scatter";
}

bool reduces(const std::string& name) {
  return name == "all_reduce" || name == "reduce_scatter" || name == "reduce";
}

class Collective : public testing::TestWithParam<const char*> {};

TEST_P(Collective, IsRightForEverySizeTypeAndGroup) {
  const std::string name = GetParam();
  const auto all = run(name + " -c tiny -b 8 -e 256K -f 32 --explain 2>/dev/null");
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.text, AllOf(HasSubstr("# Wrong values: 0 OK"), HasSubstr("closed form"), HasSubstr("reduction")));
  const auto group = run(name + " -c ring4 --group '0, 2,3' --cubes 2 -t bfloat16 -b 10K -e 10K" +
                         (has_root(name) ? " --root 1" : "") + (reduces(name) ? " -o avg" : "") +
                         (name == "sendrecv" ? "" : " --blocking 0"));
  EXPECT_EQ(group.code, 0);
  EXPECT_THAT(group.text, AllOf(HasSubstr("3 ranks (rank = sip), group 0,2,3"), HasSubstr("# Wrong values: 0 OK")));
}

TEST_P(Collective, TakesEveryDtypeThatCanBeReduced) {
  for (const char* type : {"int8", "uint8", "int32", "int64", "bool"}) {
    if (!reduces(GetParam())) {
      const auto r = run(std::string(GetParam()) + " -c tiny -b 2000 -e 2000 -t " + type + " 2>&1");
      EXPECT_EQ(r.code, 0) << type << '\n' << r.text;
      continue;
    }
    for (const char* op : {"sum", "avg", "max", "product"}) {
      const bool means_nothing = type == std::string("bool") && op == std::string("avg");
      const auto r = run(std::string(GetParam()) + " -c tiny -b 2000 -e 2000 -t " + type + " -o " + op + " 2>&1");
      EXPECT_EQ(r.code, means_nothing ? 2 : 0) << type << ' ' << op << '\n' << r.text;
    }
  }
}

TEST_P(Collective, OptionsThatSayNothingToItAreRefused) {
  const std::string name = GetParam(), size = " -c tiny -b 1K -e 1K";
  for (const std::string& command : {name, "tune --collective " + name}) {
    const auto check = [&](const std::string& option, bool taken) {
      const auto r = run(command + size + ' ' + option + " 2>&1");
      EXPECT_EQ(r.code, taken ? 0 : 2) << command << ' ' << option << '\n' << r.text;
      if (!taken) {
        EXPECT_THAT(r.text, HasSubstr(name)) << option;
      }
    };
    check("--root 1", has_root(name));
    check("-o max", reduces(name));
    check("--root 0 -o sum --blocking 0", true);
  }
  const auto r = run(name + size + " --quiet --csv /dev/stdout --json /dev/stderr 2>&1");
  EXPECT_THAT(r.text, HasSubstr(reduces(name) ? ",float,sum," : ",float,n/a,"));
  EXPECT_THAT(r.text, HasSubstr(reduces(name) ? "\"redop\": \"sum\"" : "\"redop\": null"));
}

TEST_P(Collective, WritesWhatIsAskedForAboutTheRun) {
  const std::string name = GetParam();
  const fs::path dir = fs::path(testing::TempDir()) / ("ahbm_observe_" + name + std::to_string(getpid()));
  fs::create_directories(dir);
  const auto file = [&](const char* f) { return (dir / f).string(); };
  const auto r = run(name + " -c tiny -b 4K -e 4K --trace " + file("t.json") + " --stats " + file("s.yaml") +
                     " --vcd " + file("w.vcd") + " --record system.sip0.cube0.hbm=" + file("h.csv") + " --csv " +
                     file("r.csv") + " --json " + file("r.json") + " --explain --log '*=info' 2>" + file("log"));
  EXPECT_EQ(r.code, 0);
  const std::string own = name == "sendrecv" ? "send_recv " : name + ' ';
  EXPECT_THAT(read(file("t.json")), AllOf(HasSubstr('"' + own), HasSubstr("host: launch"), HasSubstr("between")));
  EXPECT_THAT(read(file("log")), HasSubstr(own));
  EXPECT_THAT(read(file("s.yaml")), HasSubstr("wire_bytes"));
  EXPECT_THAT(read(file("w.vcd")), HasSubstr("$enddefinitions"));
  EXPECT_THAT(read(file("h.csv")), HasSubstr("write"));
  EXPECT_THAT(read(file("r.csv")), HasSubstr("wall_ms,closed_form_us,host_us,links_us,between_us,reduction_us"));
  // The split is exact.
  const auto row = nlohmann::json::parse(read(file("r.json")))["results"][0];
  const auto& e = row["explain"];
  EXPECT_NEAR(e["host_us"].get<double>() + e["links_us"].get<double>() + e["between_us"].get<double>(),
              row["time_us"].get<double>(), 1e-9);
  EXPECT_GT(e["host_us"].get<double>(), 1.2) << "600 ns there and 600 ns back";
  EXPECT_GT(e["links_us"].get<double>(), 0);
  fs::remove_all(dir);
}

INSTANTIATE_TEST_SUITE_P(All, Collective,
                         testing::Values("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                                         "reduce", "gather", "scatter", "sendrecv"),
                         [](const auto& p) { return std::string(p.param); });

TEST(CollectiveCommand, ATopologySweepRunsThemAll) {
  const auto r =
      run("all_reduce -c tiny --set system.sips.count=4 --topology-sweep -b 4K -e 4K --csv /dev/stdout --quiet");
  EXPECT_EQ(r.code, 0);
  for (const char* topology : {"ring_1d", "torus_2d", "mesh_2d", "fully_connected", "switch"}) {
    EXPECT_THAT(r.text, HasSubstr(std::string(",") + topology + "\n"));
  }
  EXPECT_EQ(run("gather -c tiny --topology-sweep -b 4K -e 4K --explain").code, 0);
  EXPECT_THAT(run("gather -c tiny --set system.sips.count=4 "
                  "--set 'sip_link.overrides=[{from: 0, to: 1, absent: true}]' --topology-sweep 2>&1")
                  .text,
              HasSubstr("--topology-sweep: sip_link.overrides"));
}

TEST(CollectiveCommand, MistakesAreBadInput) {
  EXPECT_EQ(run("gather -c tiny --group 0,9 2>/dev/null").code, 2);
  EXPECT_THAT(run("gather -c tiny --group 0,x 2>&1").text, HasSubstr("--group: expected a whole number"));
  EXPECT_THAT(run("broadcast -c tiny --root 2 -b 8 -e 8 2>&1").text, HasSubstr("--root: 2 of a group of 2 ranks"));
  EXPECT_THAT(run("reduce -c tiny --layout partial -b 8 -e 8 2>&1").text, HasSubstr("partial is for all_reduce"));
  EXPECT_THAT(run("scatter -c tiny --blocking 2 2>&1").text,
              HasSubstr("--blocking: expected a whole number from 0 to 1"));
}

// Links of 64 B/ns and 50 ns: what the best algorithms take, against their closed forms and the bound.
TEST(ClosedForms, AreWithinFivePercentOfTheSimulation) {
  struct Machine {
    const char *topology, *algorithm;
    int sips;
  };
  for (const Machine& m : {Machine{"ring_1d", "ring", 8}, Machine{"ring_1d", "ring_bidirectional", 8},
                           Machine{"torus_2d", "torus_2d", 16}, Machine{"torus_2d", "torus_2d", 64},
                           Machine{"mesh_2d", "mesh_2d", 16}, Machine{"fully_connected", "direct", 8}}) {
    const auto r =
        run(std::string("all_reduce -c peer_64B_50ns -b 1M -e 64M -f 64 --quiet --explain --json /dev/stdout") +
            " --set simulation.functional=false --set system.sips.topology=" + m.topology +
            " --set system.sips.count=" + std::to_string(m.sips) + " --algorithm " + m.algorithm);
    ASSERT_EQ(r.code, 0) << m.algorithm;
    const auto document = nlohmann::json::parse(r.text);
    for (const auto& row : document["results"]) {
      const double time = row["time_us"], form = row["explain"]["closed_form_us"];
      EXPECT_NEAR(time / form, 1, 0.05) << m.algorithm << " of " << row["size_bytes"] << " on " << m.sips;
      EXPECT_GE(time, row["bound_us"].get<double>());
    }
  }
}

// More ranks than a PE has queue pairs, on what has no Hamiltonian ring: a line, an odd mesh and a part of a mesh.
TEST(AllToAll, RunsWithoutARingAndWithoutAConnectionPerPeer) {
  const auto sips = [](int w, int h) {
    return " --set system.sips.count=" + std::to_string(w * h) + " --set system.sips.w=" + std::to_string(w) +
           " --set system.sips.h=" + std::to_string(h);
  };
  std::string part;
  for (int i = 0; i < 77; ++i) part += (i == 0 ? " --group " : ",") + std::to_string((i / 7) * 8 + i % 7);
  for (const std::string& where : {sips(66, 1), sips(9, 9), sips(8, 11) + part}) {
    const auto r = run("all_to_all -c peer_64B_50ns --set system.sips.topology=mesh_2d" + where +
                       " -b 64K -e 64K --repeat 2 --quiet --json /dev/stdout");
    ASSERT_EQ(r.code, 0) << where;
    const auto report = nlohmann::json::parse(r.text);
    for (const auto& row : report["results"]) {
      EXPECT_EQ(row["algorithm"], "all_to_all_grid");
      EXPECT_EQ(row["wrong"], 0);
    }
  }
  for (const std::string& where :
       {"mesh_2d" + sips(66, 1), "mesh_2d" + sips(9, 9), "mesh_2d" + sips(4, 3), "torus_2d" + sips(5, 5)}) {
    const auto r = run("all_to_all -c peer_64B_50ns --algorithm all_to_all_grid -b 1M -e 16M -f 16 --quiet --explain" +
                       (" --json /dev/stdout --set simulation.functional=false --set system.sips.topology=" + where));
    ASSERT_EQ(r.code, 0) << where;
    const auto report = nlohmann::json::parse(r.text);
    for (const auto& row : report["results"]) {
      const double time = row["time_us"], form = row["explain"]["closed_form_us"];
      EXPECT_NEAR(time / form, 1, 0.03) << where << " of " << row["size_bytes"];
    }
  }
}

// Blocks that are longer than a queue, of more peers than a PE takes moves at a time: nobody waits for the last ones.
TEST(Direct, ManyPeersWithLongBlocks) {
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter"}) {
    const std::string algorithm = name == std::string("all_reduce") ? "direct" : std::string(name) + "_direct";
    const auto r = run(std::string(name) + " -c peer_64B_50ns --set system.sips.topology=fully_connected" +
                       " --set system.sips.count=16 -b 4M -e 16M -f 4 --quiet --explain --json /dev/stdout" +
                       " --algorithm " + algorithm);
    ASSERT_EQ(r.code, 0) << name;
    const auto document = nlohmann::json::parse(r.text);
    for (const auto& row : document["results"]) {
      const double time = row["time_us"], form = row["explain"]["closed_form_us"];
      EXPECT_NEAR(time / form, 1, 0.03) << algorithm << " of " << row["size_bytes"];
    }
  }
}

TEST(Direct, FullyConnectedSipsExchangeInOneHop) {
  for (const char* name : {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"}) {
    const auto r = run(std::string(name) + " -c ring4 --set system.sips.topology=fully_connected -b 1M -e 1M --quiet " +
                       "--json /dev/stdout");
    EXPECT_EQ(r.code, 0) << name;
    const auto row = nlohmann::json::parse(r.text)["results"][0];
    EXPECT_THAT(row["algorithm"].get<std::string>(), testing::EndsWith("direct"));
    EXPECT_EQ(row["wrong"], 0);
  }
}

// Buffers lie where they lie with data, also in lists of tensors that happen to be neighbours or not.
TEST(CollectiveCommand, TimesDoNotDependOnWhetherDataMoves) {
  for (const char* command : {"scatter -c tiny -b 4096 -e 4096", "scatter -c ring4 -b 1M -e 1M",
                              "gather -c ring4 -b 1M -e 1M", "all_reduce -c tiny -b 33332 -e 33332"}) {
    const std::string line = std::string(command) + " --quiet --json /dev/stdout";
    const auto with = run(line), without = run(line + " --set simulation.functional=false");
    ASSERT_EQ(with.code, 0) << command;
    ASSERT_EQ(without.code, 0) << command;
    EXPECT_EQ(nlohmann::json::parse(with.text)["results"][0]["time_us"],
              nlohmann::json::parse(without.text)["results"][0]["time_us"])
        << command;
  }
}

// A link that is slow or absent in the direction that nothing takes is no lower bound of the run.
TEST(CollectiveCommand, LinksMayDifferByDirection) {
  const std::string ring =
      " -c ring2 -b 1K -e 1K --root 0 --set 'sip_link.overrides=[{both_directions: false, latency: 5 us, ";
  const std::string four = " -c peer_64B_50ns --set system.sips.count=4 --set 'sip_link.overrides=[";
  for (const std::string& arguments :
       {"broadcast" + ring + "from: 1, to: 0}]'", "scatter" + ring + "from: 1, to: 0}]'",
        "reduce" + ring + "from: 0, to: 1}]'", "gather" + ring + "from: 0, to: 1}]'",
        "broadcast" + four + "{from: 2, to: 3, both_directions: false, absent: true}]' " +
            "--set system.sips.double_links=true -b 4 -e 4 --group 2,1,3,0 --root 3",
        "sendrecv" + four +
            "{from: 1, to: 2, absent: true}, {from: 0, to: 1, both_directions: false, latency: 5 us}, " +
            "{from: 2, to: 3, latency: 3 us}]' -b 1K -e 1K"}) {
    const auto r = run(arguments + " 2>&1");
    EXPECT_EQ(r.code, 0) << arguments << '\n' << r.text;
    EXPECT_THAT(r.text, HasSubstr("# Wrong values: 0 OK")) << arguments;
  }
}

TEST(CollectiveCommand, SlowCreditsAreNotMissing) {
  const auto r = run("all_reduce -c ring4 -b 1K -e 1K --set 'sip_link.latency=150 us' 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_THAT(r.text, HasSubstr("# Wrong values: 0 OK"));
}

TEST(CollectiveCommand, WhatTakesLongerThanTheStallLimitIsNoStall) {
  for (const char* slow : {"sip_link.latency=2 ms", "host_link.latency=2 ms", "pe.launch_dispatch=2 ms",
                           "hbm.latency=2 ms", "sip_link.bandwidth=1 MB/s", "host_link.bandwidth=10 MB/s"}) {
    const auto r = run(std::string("all_reduce -c tiny -b 64K -e 64K --set '") + slow + "' 2>&1");
    EXPECT_EQ(r.code, 0) << slow << '\n' << r.text;
    EXPECT_THAT(r.text, HasSubstr("# Wrong values: 0 OK")) << slow;
  }
}

TEST(CollectiveCommand, ANamedAlgorithmThatDoesNotFitIsBadInput) {
  const std::pair<const char*, const char*> calls[] = {
      {"reduce_scatter", "reduce_scatter_direct"}, {"all_gather", "all_gather_direct"}, {"all_reduce", "direct"}};
  for (const auto& [name, algorithm] : calls) {
    const std::string line =
        std::string(name) + " -c tiny --set system.sips.count=9 -b 9K -e 9K --algorithm " + algorithm;
    for (const char* more : {" 2>&1", " --blocking 0 2>&1", " --topology-sweep 2>&1"}) {
      const auto r = run(line + more);
      // In a sweep it runs where all are joined.
      EXPECT_EQ(r.code, std::string(more).find("sweep") != std::string::npos ? 0 : 2) << line << more;
      EXPECT_THAT(r.text, HasSubstr(std::string(algorithm) + " cannot run here"));
      EXPECT_THAT(r.text, HasSubstr("algorithms that fit: "));
    }
  }
  const auto r =
      run("all_gather -c tiny --set system.sips.count=9 -b 9K -e 9K --algorithm all_gather_direct --quiet "
          "--json /dev/stdout 2>/dev/null");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(nlohmann::json::parse(r.text)["error"].get<std::string>(),
              HasSubstr("all_gather_direct cannot run here"));
}

TEST(CollectiveCommand, ANamedAlgorithmIsNeverReplacedByAnother) {
  const std::pair<const char*, const char*> calls[] = {
      {"all_reduce -c tiny -b 1K -e 1K --algorithm intercube", "not all_reduce of sharded ones"},
      {"all_gather -c tiny -b 1K -e 1K --algorithm mesh_2d", "algorithms for that: all_gather_direct, all_gather_line"},
  };
  for (const auto& [line, why] : calls) {
    const auto r = run(std::string(line) + " 2>&1");
    EXPECT_EQ(r.code, 2) << line;
    EXPECT_THAT(r.text, HasSubstr(why));
  }
  // The cubes have to be reduced too, and the table says by what.
  const auto partial = run("all_reduce -c tiny -b 1K -e 1K --layout partial --algorithm ring");
  EXPECT_EQ(partial.code, 0);
  EXPECT_THAT(partial.text, AllOf(HasSubstr("ring reduces between SIPs only"), HasSubstr("0  intercube ")));
  const auto named = run("all_reduce -c tiny -b 1K -e 1K --layout partial --algorithm intercube");
  EXPECT_EQ(named.code, 0);
  EXPECT_THAT(named.text, Not(HasSubstr("between SIPs only")));
  EXPECT_EQ(run("all_gather -c tiny -b 1K -e 1K --algorithm auto").code, 0);
}

TEST(CollectiveCommand, PartialTensorsOnMeshesWithoutARing) {
  const std::string odd = " -c tiny --set system.sips.topology=mesh_2d --set system.sips.count=9 ";
  const std::string partial = odd + "--layout partial -b 64K -e 64K";
  const auto r = run("all_reduce" + partial);
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_THAT(r.text, AllOf(HasSubstr("0  intercube_mesh "), HasSubstr("# Wrong values: 0 OK")));
  EXPECT_EQ(run("all_reduce" + partial + " --algorithm intercube_mesh").code, 0);
  for (const char* algorithm : {"mesh_2d", "double_binary_tree"}) {
    const auto other = run("all_reduce" + partial + " --algorithm " + algorithm);
    EXPECT_EQ(other.code, 0) << algorithm;
    EXPECT_THAT(other.text, AllOf(HasSubstr("reduces between SIPs only"), HasSubstr("0  intercube_mesh ")));
  }
  const auto ring = run("all_reduce" + partial + " --algorithm intercube 2>&1");
  EXPECT_EQ(ring.code, 2);
  EXPECT_THAT(ring.text,
              AllOf(HasSubstr("has no Hamiltonian cycle"), HasSubstr("algorithms that fit: intercube_mesh")));
  EXPECT_THAT(ring.text, Not(HasSubstr("algorithm mesh_2d")));
  const auto line =
      run("all_reduce -c tiny --set system.sips.topology=mesh_2d --set system.sips.count=3 --layout partial "
          "--set system.sips.w=3 --set system.sips.h=1 -b 4K -e 4K");
  EXPECT_EQ(line.code, 0) << line.text;
}

TEST(CollectiveCommand, ASweepSkipsTopologiesOnWhichTheAlgorithmCannotRun) {
  const auto r =
      run("all_reduce -c tiny --set system.sips.count=4 -b 4K -e 4K --algorithm torus_2d --topology-sweep --json "
          "/dev/stdout --quiet");
  EXPECT_EQ(r.code, 0);
  const auto document = nlohmann::json::parse(r.text);
  std::vector<std::string> topologies;
  for (const auto& row : document["results"]) topologies.push_back(row["topology"]);
  EXPECT_THAT(topologies, ElementsAre("ring_1d", "torus_2d", "fully_connected", "switch"));
  EXPECT_THAT(r.text, HasSubstr("mesh_2d: skipped: "));
  const auto nowhere = run("all_gather -c tiny -b 4K -e 4K --algorithm torus_2d --topology-sweep 2>&1");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.text, HasSubstr("torus_2d does all_reduce"));
}

TEST(CollectiveCommand, ALostCreditNamesTheFaultThatLostIt) {
  const auto r =
      run("broadcast -c tiny -b 4096 -e 4096 --set "
          "'faults=[{kind: fail_link, from: 1, to: 0, at: 0 ns, both_directions: false}]' 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.text, HasSubstr("the queues are not clean after the collective"));
  EXPECT_THAT(r.text, HasSubstr("injected: fault 0 (fail_link"));
}

}  // namespace
