// Options, table, CSV and JSON of `all_reduce`, with a scripted runner in place of the machine.
#include "platform/cli/all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "platform/cli/size.h"

namespace ahbm::platform {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string why(const Arguments& arguments) {
  try {
    parse_all_reduce_options(arguments);
    return "";
  } catch (const UsageError& e) {
    return e.what();
  }
}

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

AllReduceRow row(uint64_t bytes, std::optional<uint64_t> wrong = 0) {
  AllReduceRow r;
  r.size_bytes = bytes;
  r.count = bytes / 4;
  r.algorithm = "ring_bidirectional";
  r.ranks = 4;
  r.time = 8000000 + bytes;  // ps
  r.wrong = wrong;
  r.bound = 7864320;
  r.wall_ms = 1.25;
  return r;
}

struct Result {
  int code = -1;
  std::string out, err;
};

Result run(const Arguments& arguments, AllReduceRunner runner, bool terminal = false) {
  CommandTable table;
  table.add(all_reduce_command(std::move(runner)));
  Arguments all{"all_reduce"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::ostringstream out, err;
  Io io{out, err, terminal};
  const int code = table.run(all, io);
  return {code, out.str(), err.str()};
}

void report_each(const AllReduceJob& job, AllReduceReport& report) {
  report.header("4 ranks");
  for (const uint64_t bytes : job.options.sizes) {
    report.progress(bytes);
    report.add(row(bytes, job.options.check ? std::optional<uint64_t>(0) : std::nullopt));
  }
}

TEST(Size, PowersOf1024) {
  EXPECT_EQ(parse_size("-b", "0"), 0u);
  EXPECT_EQ(parse_size("-b", "4096"), 4096u);
  EXPECT_EQ(parse_size("-b", "1K"), 1024u);
  EXPECT_EQ(parse_size("-b", "1k"), 1024u);
  EXPECT_EQ(parse_size("-b", "64M"), uint64_t{64} << 20);
  EXPECT_EQ(parse_size("-b", "2G"), uint64_t{2} << 30);
  EXPECT_EQ(parse_size("-b", "1T"), uint64_t{1} << 40);
  EXPECT_EQ(parse_size("-b", "16KiB"), 16384u);
  EXPECT_EQ(parse_size("-b", "16KB"), 16384u);
  EXPECT_EQ(parse_size("-b", "12B"), 12u);
  for (const char* bad : {"", "K", "-1", "1.5M", "1X", "1 K", "0x10", "1KK", "1iB", "+4"}) {
    EXPECT_THROW(parse_size("-b", bad), UsageError) << bad;
  }
  for (const char* large : {"99999999999999999999", "18446744073709551615K", "16777216T"}) {
    EXPECT_THROW(parse_size("-b", large), UsageError) << large;
  }
}

TEST(Size, Ranges) {
  EXPECT_THAT(size_range(1024, 8192, 2), ElementsAre(1024, 2048, 4096, 8192));
  EXPECT_THAT(size_range(1024, 8191, 2), ElementsAre(1024, 2048, 4096));
  EXPECT_THAT(size_range(3, 3, 2), ElementsAre(3));
  EXPECT_THAT(size_range(0, 0, 2), ElementsAre(0));
  EXPECT_THAT(size_range(1, 100, 10), ElementsAre(1, 10, 100));
  EXPECT_EQ(size_range(1, UINT64_MAX, 2).size(), 64u);
  EXPECT_THROW(size_range(2, 1, 2), UsageError);
  EXPECT_THROW(size_range(1, 2, 1), UsageError);
  EXPECT_THROW(size_range(0, 2, 2), UsageError);
}

TEST(AllReduceOptions, Defaults) {
  const AllReduceOptions o = parse_all_reduce_options({});
  EXPECT_EQ(o.config.path_or_name, "ring4");
  EXPECT_EQ(o.sizes.front(), 1024u);
  EXPECT_EQ(o.sizes.back(), uint64_t{64} << 20);
  EXPECT_EQ(o.sizes.size(), 17u);
  EXPECT_EQ(o.dtype, DType::Float32);
  EXPECT_EQ(o.op, ReduceOp::Sum);
  EXPECT_EQ(o.layout, TensorLayout::Sharded);
  EXPECT_FALSE(o.cubes);
  EXPECT_FALSE(o.algorithm);
  EXPECT_TRUE(o.check);
  EXPECT_EQ(o.repeat, 1u);
}

TEST(AllReduceOptions, Everything) {
  const AllReduceOptions o =
      parse_all_reduce_options({"-c",         "tiny",     "-b",      "6",          "-e",          "96",
                                "-f",         "4",        "-t",      "bf16",       "-o",          "max",
                                "--layout",   "partial",  "--cubes", "3",          "--algorithm", "ring",
                                "--no-check", "--repeat", "5",       "--csv",      "a.csv",       "--json",
                                "b.json",     "--quiet",  "--set",   "cube.pes=1", "--set",       "pe.clock=1 GHz"});
  EXPECT_EQ(o.config.path_or_name, "tiny");
  EXPECT_THAT(o.config.sets, ElementsAre("cube.pes=1", "pe.clock=1 GHz"));
  EXPECT_THAT(o.sizes, ElementsAre(6, 24, 96));
  EXPECT_EQ(o.dtype, DType::BFloat16);
  EXPECT_EQ(o.op, ReduceOp::Max);
  EXPECT_EQ(o.layout, TensorLayout::Partial);
  EXPECT_EQ(o.cubes, 3u);
  EXPECT_EQ(o.algorithm, "ring");
  EXPECT_FALSE(o.check);
  EXPECT_EQ(o.repeat, 5u);
  EXPECT_EQ(o.csv_file, "a.csv");
  EXPECT_EQ(o.json_file, "b.json");
  EXPECT_TRUE(o.quiet);
}

TEST(AllReduceOptions, SizesAreWholeElements) {
  EXPECT_THAT(parse_all_reduce_options({"-b", "7", "-e", "7"}).sizes, ElementsAre(4));
  EXPECT_THAT(parse_all_reduce_options({"-b", "1", "-e", "8"}).sizes, ElementsAre(0, 4, 8))
      << "1 and 2 bytes hold no float";
  EXPECT_THAT(parse_all_reduce_options({"-b", "0", "-e", "0"}).sizes, ElementsAre(0));
  EXPECT_THAT(parse_all_reduce_options({"-b", "256M"}).sizes, ElementsAre(uint64_t{256} << 20));
}

TEST(AllReduceOptions, WrongOnesSayWhatIsRight) {
  EXPECT_EQ(why({"--algoritm", "ring"}), "unknown option '--algoritm' (did you mean '--algorithm'?); --help lists all");
  EXPECT_EQ(why({"-b", "1X"}), "--minbytes: '1X' is no size; expected a size like 4096, 1K or 64M");
  EXPECT_EQ(why({"-b", "2K", "-e", "1K"}), "--maxbytes is 1024, less than --minbytes, which is 2048");
  EXPECT_EQ(why({"-f", "1"}), "--stepfactor: expected a whole number from 2 to 1048576, got '1'");
  EXPECT_EQ(
      why({"-t", "floot"}),
      "--datatype: 'floot' is none of float, half, bfloat16, int8, uint8, int32, int64, bool (did you mean 'float'?)");
  EXPECT_EQ(why({"-t", "int8", "-o", "avg"}), "");
  EXPECT_EQ(why({"-t", "bool", "-o", "avg"}), "--op: avg of bool means nothing");
  EXPECT_EQ(why({"--group", "0,x"}), "--group: expected a whole number from 0 to 4294967295, got 'x'");
  EXPECT_EQ(why({"--topology-sweep", "--trace", "a.json"}),
            "--topology-sweep runs several machines: --stats, --trace, --vcd, --log and --record take one");
  EXPECT_EQ(why({"-o", "summ"}), "--op: 'summ' is none of sum, avg, max, min, product (did you mean 'sum'?)");
  EXPECT_EQ(why({"--layout", "shard"}),
            "--layout: 'shard' is none of sharded, replicated, partial (did you mean 'sharded'?)");
  EXPECT_EQ(why({"--cubes", "0"}), "--cubes: expected a whole number from 1 to 255, got '0'");
  EXPECT_EQ(why({"--repeat", "x"}), "--repeat: expected a whole number from 1 to 1000000, got 'x'");
  EXPECT_EQ(why({"--ccl", "/no/such/ccl.yaml"}), "--ccl: '/no/such/ccl.yaml' is no file");
}

TEST(AllReduceRow, Figures) {
  const AllReduceRow r = row(1 << 20);
  EXPECT_DOUBLE_EQ(r.algbw_gbps(), 1048576.0 * 1000 / 9048576);
  EXPECT_DOUBLE_EQ(r.busbw_gbps(), r.algbw_gbps() * 1.5);
  EXPECT_DOUBLE_EQ(r.efficiency(), 7864320.0 / 9048576);
  AllReduceRow none;
  EXPECT_EQ(none.algbw_gbps(), 0.0);
  EXPECT_EQ(none.busbw_gbps(), 0.0);
  EXPECT_EQ(none.efficiency(), 0.0);
}

TEST(AllReduceReport, TableOnStandardOutput) {
  const Result r = run({"-c", "tiny", "-b", "1K", "-e", "4K", "-f", "4"}, report_each);
  EXPECT_EQ(r.code, kExitOk);
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.out,
            "# 4 ranks\n"
            "#        size         count      type    redop        time    algbw    busbw  #wrong  algorithm           "
            "    bound effic.       wall\n"
            "#         (B)    (elements)                           (us)   (GB/s)   (GB/s)                              "
            "     (us)              (ms)\n"
            "         1024           256     float      sum       8.001     0.13     0.19       0  ring_bidirectional  "
            "     7.864  0.983       1.25\n"
            "         4096          1024     float      sum       8.004     0.51     0.77       0  ring_bidirectional  "
            "     7.864  0.983       1.25\n"
            "# Wrong values: 0 OK\n"
            "# Average bus bandwidth: 0.480 GB/s\n");
}

TEST(AllReduceReport, UncheckedRunsSaySo) {
  const Result r = run({"-c", "tiny", "-b", "1K", "-e", "1K", "--no-check"}, report_each);
  EXPECT_EQ(r.code, kExitOk);
  EXPECT_THAT(r.out, HasSubstr("    n/a  ring_bidirectional"));
  EXPECT_THAT(r.out, HasSubstr("# Wrong values: not checked\n"));
}

TEST(AllReduceReport, WrongElementsFailTheRun) {
  const Result r = run({"-c", "tiny", "-b", "1K", "-e", "1K"},
                       [](const AllReduceJob&, AllReduceReport& report) { report.add(row(1024, 3)); });
  EXPECT_EQ(r.code, kExitFailed);
  EXPECT_THAT(r.out, HasSubstr("# Wrong values: 3 FAILED\n"));
}

TEST(AllReduceReport, CsvAndJson) {
  const fs::path dir = fs::path(testing::TempDir()) / "ahbm_all_reduce";
  fs::create_directories(dir);
  const std::string csv = (dir / "o.csv").string();
  const std::string json = (dir / "o.json").string();
  std::ofstream(csv) << "old old old\nold\nold\nold\n";
  std::ofstream(json) << std::string(100000, 'x');
  const Result r =
      run({"-c", "tiny", "-b", "1K", "-e", "4K", "-f", "4", "--csv", csv, "--json", json, "--quiet"}, report_each);
  EXPECT_EQ(r.code, kExitOk);
  EXPECT_EQ(r.out, "") << "--quiet";
  EXPECT_EQ(read(csv),
            "size_bytes,count,type,redop,algorithm,time_us,algbw_gbps,busbw_gbps,wrong,bound_us,efficiency,wall_ms\n"
            "1024,256,float,sum,ring_bidirectional,8.001024,0.127984,0.191975,0,7.864320,0.982914,1.250\n"
            "4096,1024,float,sum,ring_bidirectional,8.004096,0.511738,0.767607,0,7.864320,0.982537,1.250\n");
  const nlohmann::ordered_json doc = nlohmann::ordered_json::parse(read(json));
  EXPECT_EQ(doc["command"], "all_reduce");
  EXPECT_EQ(doc["config"]["system"]["sips"]["count"], 2);
  EXPECT_EQ(doc["config"]["sip_link"]["bandwidth"], "100 GB/s");
  EXPECT_EQ(doc["config"]["ipcq"]["header_on_wire"], true);
  EXPECT_EQ(doc["notes"][0], "4 ranks");
  ASSERT_EQ(doc["results"].size(), 2u);
  std::string names;
  for (const auto& item : doc["results"][1].items()) names += (names.empty() ? "" : ",") + item.key();
  EXPECT_EQ(names, kAllReduceCsvHeader);
  EXPECT_EQ(doc["results"][1]["size_bytes"], 4096);
  EXPECT_DOUBLE_EQ(doc["results"][1]["time_us"].get<double>(), 8.004096);
  EXPECT_EQ(doc["results"][1]["wrong"], 0);
  EXPECT_FALSE(doc.contains("error"));
  // The configuration in the file is a topology file again.
  EXPECT_EQ(to_yaml(parse_system_config(doc["config"].dump(), "/x/again.yaml")), to_yaml(load_system_config("tiny")));
  fs::remove_all(dir);
}

TEST(AllReduceReport, ABrokenRunKeepsItsRowsAndItsReason) {
  const fs::path dir = fs::path(testing::TempDir()) / "ahbm_broken";
  fs::create_directories(dir);
  const std::string csv = (dir / "o.csv").string();
  const std::string json = (dir / "o.json").string();
  const Result r = run({"-c", "tiny", "--csv", csv, "--json", json}, [](const AllReduceJob&, AllReduceReport& report) {
    report.add(row(1024));
    throw std::runtime_error("deadlock");
  });
  EXPECT_EQ(r.code, kExitFailed);
  EXPECT_EQ(r.err, "ahbm-vp: deadlock\n");
  EXPECT_THAT(read(csv), HasSubstr("\n1024,256,"));
  const auto doc = nlohmann::json::parse(read(json));
  EXPECT_EQ(doc["error"], "deadlock");
  EXPECT_EQ(doc["results"].size(), 1u);
  fs::remove_all(dir);
}

TEST(AllReduceReport, BadInputStopsBeforeTheRun) {
  const AllReduceRunner never = [](const AllReduceJob&, AllReduceReport&) { FAIL() << "must not run"; };
  EXPECT_EQ(run({"-c", "tiny", "--cubes", "5"}, never).code, kExitBadInput);
  EXPECT_EQ(run({"-c", "tiny", "--cubes", "5"}, never).err,
            "ahbm-vp: --cubes: 5 asked for, but a SIP of 'tiny' has 4\n");
  EXPECT_EQ(run({"-c", "tiny", "--csv", "/no/such/folder/o.csv"}, never).err,
            "ahbm-vp: --csv: '/no/such/folder/o.csv' cannot be written\n");
  EXPECT_EQ(run({"-c", "tinny"}, never).code, kExitBadInput);
  EXPECT_EQ(run({"--set", "pe.clock=0 GHz"}, never).code, kExitBadInput);
  const Result refused = run({"-c", "tiny"}, [](const AllReduceJob&, AllReduceReport&) {
    throw UsageError("--algorithm: 'rong' is none of ring");
  });
  EXPECT_EQ(refused.code, kExitBadInput) << "what only the runtime can see is bad input all the same";
}

TEST(AllReduceReport, ProgressOnlyForAPersonWhoWatches) {
  EXPECT_EQ(run({"-c", "tiny", "-b", "1K", "-e", "1K"}, report_each, false).err, "");
  EXPECT_THAT(run({"-c", "tiny", "-b", "1K", "-e", "1K"}, report_each, true).err, HasSubstr("running 1024 bytes"));
  EXPECT_EQ(run({"-c", "tiny", "-b", "1K", "-e", "1K", "--quiet"}, report_each, true).err, "");
}

TEST(AllReduceHelp, NamesEveryOption) {
  const Result r = run({"--help"}, nullptr);
  EXPECT_EQ(r.code, kExitOk);
  for (const char* option : {"-c [ --config ]", "-b [ --minbytes ]", "-e [ --maxbytes ]", "-f [ --stepfactor ]",
                             "-t [ --datatype ]", "-o [ --op ]", "--layout", "--cubes", "--algorithm", "--ccl",
                             "--no-check", "--repeat", "--csv", "--json", "--quiet", "--set", "-h [ --help ]"}) {
    EXPECT_THAT(r.out, HasSubstr(option));
  }
}

}  // namespace
}  // namespace ahbm::platform
