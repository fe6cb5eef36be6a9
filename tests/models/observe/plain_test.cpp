// The parts that need no machine: path patterns, the VCD writer, the trace writer, log rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "models/core/path_glob.h"
#include "models/observe/chrome_trace.h"
#include "models/observe/log.h"
#include "models/observe/vcd_writer.h"
#include "tests/models/observe/files.h"

namespace ahbm::observe {
namespace {

using test::ScratchFile;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PathGlob, StarCrossesDotsAndSelectsBelow) {
  EXPECT_TRUE(glob_matches("system.*.pe0", "system.sip0.cube1.pe0"));
  EXPECT_FALSE(glob_matches("system.*.pe0", "system.sip0.cube1.pe01"));
  EXPECT_TRUE(glob_matches("*a*b*c", "xxaxxbxbxc"));
  EXPECT_FALSE(glob_matches("*a*b*c", "xxaxxbxbx"));
  EXPECT_TRUE(glob_matches("s?p0", "sip0"));
  EXPECT_FALSE(glob_matches("s?p0", "sp0"));
  EXPECT_TRUE(glob_matches("**", ""));
  EXPECT_TRUE(path_selected("system.sip0", "system.sip0.cube0"));
  EXPECT_FALSE(path_selected("system.sip1", "system.sip10.cube0")) << "a name is not a prefix of another";
  EXPECT_TRUE(path_selected(std::vector<std::string>{}, "anything"));
  EXPECT_FALSE(path_selected(std::vector<std::string>{"a", "b"}, "c"));
}

TEST(PathGlob, MaySelectBelow) {
  EXPECT_TRUE(may_select_below("system.sip0.link.busy", "system.sip0.link"));
  EXPECT_TRUE(may_select_below("*.busy", "system.sip0.link"));
  EXPECT_FALSE(may_select_below("system.sip0.link2.busy", "system.sip0.link"));
  EXPECT_FALSE(may_select_below("system.sip1.*", "system.sip0.link"));
  EXPECT_TRUE(may_select_below("system.sip?.link.busy", "system.sip0.link"));
}

TEST(LogRules, LaterRulesWinAndNothingIsOnByDefault) {
  const LogRules rules = LogRules::parse({"system.*=info", "system.sip0.*=debug", "system.sip0.cube1=off"});
  EXPECT_EQ(rules.level("system.sip1.cube0"), LogLevel::Info);
  EXPECT_EQ(rules.level("system.sip0.cube0.pe1"), LogLevel::Debug);
  EXPECT_EQ(rules.level("system.sip0.cube1.pe1"), LogLevel::Off);
  EXPECT_EQ(rules.level("other"), LogLevel::Off);
  EXPECT_EQ(LogRules().level("system"), LogLevel::Off);
  const auto message = [](const std::string& rule) -> std::string {
    try {
      LogRules::parse({rule});
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message("system.sip0"), HasSubstr("expected PATTERN=LEVEL"));
  EXPECT_THAT(message("system=debgu"), HasSubstr("did you mean 'debug'?"));
  EXPECT_THAT(message("=debug"), HasSubstr("'=debug' is no log rule"));
}

// --------------------------------------------------------------------------------------------------------- waves

/// Full names and value changes after the initial values, of a VCD file as its text says.
struct Dump {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::pair<uint64_t, std::string>>> changes;  ///< by full name
};

Dump read_vcd(const std::string& text) {
  Dump out;
  std::istringstream in(text);
  std::vector<std::string> scopes;
  std::map<std::string, std::string> by_id;
  std::string word;
  uint64_t at = 0;
  bool dumping = false, defined = false;
  while (in >> word) {
    if (word == "$scope") {
      std::string kind, name;
      in >> kind >> name;
      scopes.push_back(name);
    } else if (word == "$upscope") {
      scopes.pop_back();
    } else if (word == "$var") {
      std::string kind, width, id, name;
      in >> kind >> width >> id >> name;
      std::string full;
      for (const auto& s : scopes) full += s + '.';
      out.names.push_back(full + name);
      by_id[id] = full + name;
      std::string rest;
      in >> rest;
      EXPECT_TRUE(rest == "$end" || rest[0] == '[') << "a blank in the name of " << full << name;
    } else if (word == "$enddefinitions") {
      defined = true;
    } else if (word == "$dumpvars") {
      dumping = true;
    } else if (word == "$end" && dumping) {
      dumping = false;
    } else if (defined && word[0] == '#') {
      at = std::stoull(word.substr(1));
    } else if (defined && word[0] == 'b') {
      std::string id;
      in >> id;
      if (!dumping) out.changes[by_id.at(id)].emplace_back(at, word.substr(1));
    } else if (defined && (word[0] == '0' || word[0] == '1')) {
      if (!dumping) out.changes[by_id.at(word.substr(1))].emplace_back(at, word.substr(0, 1));
    }
  }
  return out;
}

size_t count_changes(const Dump& d) {
  size_t n = 0;
  for (const auto& [name, list] : d.changes) n += list.size();
  return n;
}

TEST(VcdWriter, WritesInTimeOrderWhateverTheOrderOfTheCalls) {
  const ScratchFile file("order.vcd");
  {
    VcdWriter w(file.path());
    const auto busy = w.add("system.link", "busy", 1);
    const auto level = w.add("system.pe0", "level", 8);
    w.change(busy, 100, 1);
    w.change(busy, 300, -1);
    w.set(level, 50, 3);
    w.change(busy, 300, 1);  // follows without a gap: no change at 300
    w.change(busy, 400, -1);
    w.advance(60);
    EXPECT_EQ(w.pending(), 4u);
    w.change(level, 60, -1);
    w.finish(1000);
  }
  const Dump d = read_vcd(file.text());
  using Changes = std::vector<std::pair<uint64_t, std::string>>;
  EXPECT_EQ(d.changes.at("system.link.busy"), (Changes{{100, "1"}, {400, "0"}}));
  EXPECT_EQ(d.changes.at("system.pe0.level"), (Changes{{50, "11"}, {60, "10"}}));
  EXPECT_EQ(d.changes.at("simulating"), (Changes{{1000, "0"}}));
  EXPECT_FALSE(std::filesystem::exists(file.path() + ".part"));
}

TEST(VcdWriter, ResetForgetsWhatWasToCome) {
  const ScratchFile file("reset.vcd");
  VcdWriter w(file.path());
  const auto level = w.add("pe", "level", 8);
  w.change(level, 10, 1);
  w.change(level, 90, 1);
  w.reset(level, 50, 0);
  w.change(level, 70, 2);
  w.finish(100);
  using Changes = std::vector<std::pair<uint64_t, std::string>>;
  EXPECT_EQ(read_vcd(file.text()).changes.at("pe.level"), (Changes{{10, "1"}, {50, "0"}, {70, "10"}}));
}

TEST(VcdWriter, MemoryIsWhatLiesAhead) {
  const ScratchFile file("bounded.vcd");
  VcdWriter w(file.path());
  const auto s = w.add("link", "busy", 1);
  for (Ps t = 0; t < 100000; ++t) {
    w.change(s, t * 10 + 5, 1);
    w.change(s, t * 10 + 9, -1);
    w.advance(t * 10);
    ASSERT_LE(w.pending(), 4u);
  }
  w.finish(1000000);
  EXPECT_EQ(w.changes(), 200001u);
}

TEST(VcdWriter, UnwritableFileIsNamed) {
  EXPECT_THROW(VcdWriter("/nonexistent/x.vcd"), std::runtime_error);
}

// T48: dots, brackets, blanks, dollars and duplicates.
class AwkwardNames : public ::testing::Test {
 protected:
  void write(const std::string& path) {
    VcdWriter w(path);
    const std::vector<std::string> names = {"level", "level", "level[3]", "level_3_", "weird name", "$end",
                                            "a.b",   "",      "level",    "$var",     "clk"};
    std::vector<VcdWriter::Signal> signals;
    for (const auto& n : names) signals.push_back(w.add("system.sip0.my block[2]", n, 1));
    for (const auto& n : names) signals.push_back(w.add("system.sip0", n, 8));
    Ps t = 0;
    for (const auto s : signals) {
      w.set(s, t += 7, 1);
      w.set(s, t += 7, 0);
    }
    w.finish(t + 1);
    m_changes = 2 * signals.size() + 1;
    m_signals = signals.size() + 1;
  }
  size_t m_changes = 0, m_signals = 0;
};

TEST_F(AwkwardNames, AreUniqueAndBlankFree) {
  const ScratchFile file("names.vcd");
  write(file.path());
  const Dump d = read_vcd(file.text());
  EXPECT_EQ(d.names.size(), m_signals);
  EXPECT_EQ(std::set<std::string>(d.names.begin(), d.names.end()).size(), m_signals);
  for (const auto& n : d.names) EXPECT_TRUE(std::regex_match(n, std::regex("[A-Za-z0-9_.]+"))) << n;
  EXPECT_THAT(d.names, Contains("system.sip0.my_block_2_.level_3_"));
  EXPECT_EQ(count_changes(d), m_changes);
}

TEST_F(AwkwardNames, SurviveTheRoundTripThroughFst) {
  if (std::system("command -v vcd2fst >/dev/null && command -v fst2vcd >/dev/null") != 0) {
    GTEST_SKIP() << "gtkwave is not installed (scripts/setup.sh installs it): the round trip was NOT checked";
  }
  const ScratchFile vcd("trip.vcd"), fst("trip.fst"), back("trip_back.vcd");
  write(vcd.path());
  const Dump d = read_vcd(vcd.text());
  ASSERT_EQ(std::system(("vcd2fst '" + vcd.path() + "' '" + fst.path() + "' >/dev/null 2>&1").c_str()), 0);
  ASSERT_EQ(std::system(("fst2vcd -f '" + fst.path() + "' -o '" + back.path() + "' >/dev/null 2>&1").c_str()), 0);
  const Dump again = read_vcd(back.text());
  EXPECT_EQ(std::set<std::string>(again.names.begin(), again.names.end()),
            std::set<std::string>(d.names.begin(), d.names.end()));
  EXPECT_EQ(again.names.size(), d.names.size());
  // The converter repeats the initial values as changes at #0; those after it must be the same ones.
  size_t after_zero = 0;
  for (const auto& [name, list] : again.changes) {
    for (const auto& c : list) after_zero += c.first > 0;
  }
  EXPECT_EQ(after_zero, m_changes);
}

TEST(VcdWriter, NothingEverChangesAndTheFileStillOpens) {
  const ScratchFile vcd("still.vcd"), fst("still.fst"), back("still_back.vcd");
  {
    VcdWriter w(vcd.path());
    w.add("a", "b", 1);
    w.finish(0);
  }
  EXPECT_EQ(count_changes(read_vcd(vcd.text())), 1u) << "a change after #0";
  if (std::system("command -v vcd2fst >/dev/null && command -v fst2vcd >/dev/null") != 0) {
    GTEST_SKIP() << "gtkwave is not installed (scripts/setup.sh installs it): the round trip was NOT checked";
  }
  ASSERT_EQ(std::system(("vcd2fst '" + vcd.path() + "' '" + fst.path() + "' >/dev/null 2>&1").c_str()), 0);
  EXPECT_EQ(std::system(("fst2vcd -f '" + fst.path() + "' -o '" + back.path() + "' >/dev/null 2>&1").c_str()), 0);
  EXPECT_EQ(read_vcd(back.text()).names.size(), 2u);
}

// --------------------------------------------------------------------------------------------------------- trace

Point pe_point(uint32_t flat, uint32_t index) {
  Point p;
  p.path = "system.sip0.cube0.pe" + std::to_string(flat);
  p.place = Place::Pe;
  p.flat_pe = flat;
  p.index = index;
  return p;
}

Event event(EventKind kind, Ps begin, Ps end, const char* name = "") {
  Event e;
  e.kind = kind;
  e.begin = begin;
  e.end = end;
  e.name = name;
  return e;
}

TEST(ChromeTrace, RegionsNestAndTheOnesThatDoNotGoElsewhere) {
  const ScratchFile file("regions.json");
  {
    ChromeTrace t({file.path(), {}, 0, ~Ps{0}});
    const Point pe = pe_point(0, 0);
    ASSERT_TRUE(t.wants(pe));
    t.on_event(pe, event(EventKind::Region, 20, 40, "inner"));
    t.on_event(pe, event(EventKind::Region, 10, 50, "outer"));
    t.on_event(pe, event(EventKind::Region, 45, 60, "across"));
    t.on_event(pe, event(EventKind::Kernel, 0, 100, "kernel \"k\"\n"));
    t.finish();
    EXPECT_EQ(t.slices(), 4u);
  }
  const test::TraceFile trace(file.text());
  EXPECT_EQ(trace.slices.size(), 4u);
  trace.expect_laminar();
  EXPECT_EQ(trace.slice("outer").tid, trace.slice("inner").tid);
  EXPECT_NE(trace.slice("across").tid, trace.slice("outer").tid);
  EXPECT_EQ(trace.slice("kernel \"k\"\n").dur, 100u);
}

TEST(ChromeTrace, CollectivesLieInsideTheOperationsThatMadeThem) {
  const ScratchFile file("operations.json");
  Point rank;
  rank.path = "system.rank0";
  rank.place = Place::Rank;
  const auto collective = [](Ps begin, Ps end, const char* name, uint32_t seq) {
    Event e = event(EventKind::Collective, begin, end, name);
    e.seq = seq;
    return e;
  };
  {
    ChromeTrace t({file.path(), {}, 0, ~Ps{0}});
    ASSERT_TRUE(t.wants(rank));
    t.on_event(rank, event(EventKind::OperationStart, 10, 0));
    t.on_event(rank, event(EventKind::OperationStart, 10, 0));
    t.on_event(rank, collective(20, 60, "gather", 1));
    t.on_event(rank, collective(20, 30, "gather: host", 1));
    t.on_event(rank, event(EventKind::Operation, 10, 70, "redistribute"));
    t.on_event(rank, event(EventKind::Operation, 10, 80, "matmul"));
    // This one began inside the operation and outlasts it, and crosses the begin of the next.
    t.on_event(rank, event(EventKind::OperationStart, 95, 0));
    t.on_event(rank, collective(72, 100, "asynchronous", 2));
    t.on_event(rank, collective(72, 75, "asynchronous: host", 2));
    // Told late, when the next operation is under way: it lies before that.
    t.on_event(rank, collective(82, 90, "late", 3));
    t.on_event(rank, event(EventKind::Operation, 95, 110, "relu"));
    t.finish();
    EXPECT_EQ(t.slices(), 8u);
  }
  const test::TraceFile trace(file.text());
  trace.expect_laminar();
  const auto& outer = trace.slice("matmul");
  for (const char* name : {"redistribute", "gather", "gather: host", "late", "relu"}) {
    EXPECT_EQ(trace.slice(name).tid, outer.tid) << name;
  }
  EXPECT_TRUE(trace.covered(outer.pid, outer.tid, trace.slice("gather").ts, "redistribute"));
  EXPECT_NE(trace.slice("asynchronous").tid, outer.tid);
  EXPECT_EQ(trace.slice("asynchronous: host").tid, trace.slice("asynchronous").tid);
  // Those that begin together are in the file from the outside in, as viewers want them.
  EXPECT_LT(file.text().find("\"matmul\""), file.text().find("\"redistribute\""));
  EXPECT_EQ(trace.names.at({outer.pid, outer.tid}), "system.rank0");
}

TEST(ChromeTrace, ReceivesThatOverlapGetTracksOfTheirOwnAndArrowsFromTheirSends) {
  const ScratchFile file("receives.json");
  ChromeTrace t({file.path(), {}, 0, ~Ps{0}});
  const Point a = pe_point(0, 0), b = pe_point(1, 1);
  ASSERT_TRUE(t.wants(a) && t.wants(b));
  for (uint64_t n = 0; n < 3; ++n) {
    Event send = event(EventKind::Send, n * 10, n * 10 + 15);
    send.peer_pe = 1;
    send.peer_qp = 4;
    send.number = n;
    send.bytes = 100 + n;
    t.on_event(a, send);
  }
  const auto on_b = [&](EventKind kind, Ps begin, Ps end, uint64_t n) {
    Event e = event(kind, begin, end);
    e.index = 4;
    e.number = n;
    t.on_event(b, e);
  };
  on_b(EventKind::Take, 100, 110, 0);
  on_b(EventKind::Take, 100, 120, 1);
  on_b(EventKind::Release, 130, 130, 0);
  on_b(EventKind::Take, 100, 131, 2);
  on_b(EventKind::Release, 140, 140, 2);
  on_b(EventKind::Release, 150, 150, 1);
  t.finish();
  EXPECT_EQ(t.arrows(), 3u);
  const test::TraceFile trace(file.text());
  trace.expect_laminar();
  ASSERT_EQ(trace.flows.size(), 3u);
  for (const auto& f : trace.flows) {
    EXPECT_TRUE(trace.covered(f.from_pid, f.from_tid, f.from_ts, "send"));
    EXPECT_TRUE(trace.covered(f.to_pid, f.to_tid, f.to_ts, "receive"));
    EXPECT_LT(f.from_ts, f.to_ts);
  }
}

TEST(ChromeTrace, TimeWindowAndPathFilter) {
  const ScratchFile file("window.json");
  ChromeTrace t({file.path(), {"system.sip0.cube0.pe0"}, 100, 200});
  const Point a = pe_point(0, 0), b = pe_point(1, 1);
  EXPECT_TRUE(t.wants(a));
  EXPECT_FALSE(t.wants(b));
  for (const Ps begin : {0, 99, 100, 199, 200}) {
    Event e = event(EventKind::Wait, begin, begin + 1);
    t.on_event(a, e);
  }
  t.finish();
  const test::TraceFile trace(file.text());
  std::vector<uint64_t> begins;
  for (const auto& s : trace.slices) begins.push_back(s.ts);
  EXPECT_THAT(begins, ElementsAre(99, 100, 199));
}

TEST(ChromeTrace, EmptyIsValidToo) {
  const ScratchFile file("empty.json");
  { ChromeTrace t({file.path(), {}, 0, ~Ps{0}}); }
  EXPECT_TRUE(test::TraceFile(file.text()).slices.empty());
  EXPECT_THROW(ChromeTrace({"/nonexistent/t.json", {}, 0, 1}), std::runtime_error);
}

}  // namespace
}  // namespace ahbm::observe
