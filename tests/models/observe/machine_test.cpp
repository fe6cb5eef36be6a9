// Sinks, statistics and recorders on a whole machine that scripted initiators drive.
#include "models/observe/chrome_trace.h"
#include "models/observe/log_sink.h"
#include "models/observe/observation.h"
#include "models/observe/probe.h"
#include "models/observe/statistics.h"
#include "models/observe/wave_sink.h"

#include <gmock/gmock.h>

#include <map>
#include <sstream>

#include "models/core/config/yaml_reader.h"
#include "models/core/path_glob.h"
#include "tests/models/observe/files.h"
#include "tests/models/system/machine.h"

namespace ahbm::test {
namespace {

using observe::Event;
using observe::EventKind;
using observe::Observation;
using observe::Point;
using observe::test::ScratchFile;
using observe::test::TraceFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSipLink = "system.link_sip0_E_sip1";

/// Keeps everything of the paths that match.
class Collector : public observe::Sink {
 public:
  explicit Collector(std::string pattern = "*") : m_pattern(std::move(pattern)) {}
  bool wants(const Point& point) override { return glob_matches(m_pattern, point.path); }
  void on_event(const Point& point, const Event& e) override {
    ++count[point.path];
    bytes[point.path] += e.bytes;
    EXPECT_LE(e.begin, e.end);
    EXPECT_GE(e.begin, now());
  }
  std::map<std::string, uint64_t> count, bytes;

 private:
  const std::string m_pattern;
};

uint64_t figure(models::System& system, const std::string& path, const std::string& name) {
  for (const auto& s : observe::collect_statistics(system)) {
    if (s.path == path && s.name == name) return s.count;
  }
  ADD_FAILURE() << "no figure " << path << ' ' << name;
  return 0;
}

class Observed : public SimTest {
 protected:
  void write_across(Machine& m, uint64_t times, uint64_t bytes = 4096) {
    ScriptedInitiator& from = m.on_cube(0, 0);
    for (uint64_t i = 0; i < times; ++i) {
      const Outcome o = from.write(hbm(1, 3, i * bytes), pattern(bytes));
      ASSERT_TRUE(o.ok());
      ScriptedInitiator::wait_for(o);
      delays.push_back(o.delay);
    }
  }
  std::vector<Ps> delays;
};

// T24: what takes a granted route past the sockets is traced like everything else.
TEST_F(Observed, EveryTransactionOnAGrantedRouteIsTold) {
  Machine m(platform("tiny"));
  m.on_cube(0, 0);
  Observation observation(m.system);
  Collector all, only_link(kSipLink);
  run([&] {
    write_across(m, 20);
    EXPECT_GT(observation.attach(all), 100u);
    EXPECT_EQ(observation.attach(only_link), 1u);
    write_across(m, 30);
    observation.detach(all);
    write_across(m, 5);
  });
  EXPECT_EQ(all.count[kSipLink], 30u);
  EXPECT_EQ(only_link.count[kSipLink], 35u);
  EXPECT_EQ(only_link.count.size(), 1u);
  EXPECT_EQ(all.bytes[kSipLink], 30u * 4096);
  EXPECT_EQ(all.bytes["system.sip1.cube3.hbm"], 30u * 4096) << "shares of all channels together";
  EXPECT_EQ(figure(m.system, kSipLink, "transactions"), 55u);
}

TEST_F(Observed, WatchingChangesNoTime) {
  const ScratchFile trace_file("watch.json"), wave_file("watch.vcd");
  Machine plain(platform("tiny"), "plain"), watched(platform("tiny"), "watched");
  plain.on_cube(0, 0);
  watched.on_cube(0, 0);
  observe::ChromeTrace trace({trace_file.path(), {}, 0, ~Ps{0}});
  observe::WaveSink waves(wave_file.path(), {}, &models::now_ps);
  Observation observation(watched.system);
  observation.attach(trace);
  observation.attach(waves);
  run([&] {
    for (const uint64_t bytes : {4u, 1024u, 4096u, 65536u}) {
      write_across(plain, 3, bytes);
      write_across(watched, 3, bytes);
    }
  });
  ASSERT_EQ(delays.size(), 24u);
  for (size_t i = 0; i < delays.size(); i += 6) {
    for (size_t k = 0; k < 3; ++k) EXPECT_EQ(delays[i + k], delays[i + 3 + k]);
  }
  trace.finish();
  waves.finish();
  EXPECT_GT(trace.slices(), 100u);
  EXPECT_GT(waves.writer().changes(), 100u);
}

// Competing transfers are split around each other: their slices must nest, whatever the order of the calls was.
TEST_F(Observed, ContendedLinksAndChannelsAreDrawnRight) {
  const ScratchFile file("contended.json");
  Machine m(platform("tiny"));
  for (uint32_t c = 0; c < 4; ++c) m.on_cube(0, c);
  observe::ChromeTrace trace({file.path(), {}, 0, ~Ps{0}});
  Observation observation(m.system);
  observation.attach(trace);
  run([&] {
    uint32_t x = 12345;
    const auto random = [&x] { return x = x * 1664525 + 1013904223, x >> 8; };
    for (int i = 0; i < 400; ++i) {
      // Annotated delays put reservations ahead of one another.
      const uint64_t bytes = 64 + random() % 8192;
      const Addr to = hbm(random() % 2, random() % 4, random() % 65536);
      ScriptedInitiator& from = m.on_cube(0, random() % 4);
      const Ps delay = random() % 2000000;
      ASSERT_TRUE((random() % 3 == 0 ? from.read(to, bytes, delay) : from.write(to, pattern(bytes), delay)).ok());
      if (random() % 4 == 0) sc_core::wait(sc_core::sc_time(random() % 1000, sc_core::SC_NS));
    }
  });
  trace.finish();
  const TraceFile read(file.text());
  read.expect_laminar();
  EXPECT_EQ(read.count(kSipLink), figure(m.system, kSipLink, "transactions"));
  std::map<std::string, uint64_t> channel_busy;
  for (const auto& s : read.slices) {
    const std::string& track = read.names.at({s.pid, s.tid});
    if (track.find("hbm channel") != std::string::npos) channel_busy[track] += s.dur > 0;
  }
  EXPECT_EQ(channel_busy.size(), 2u * 4 * m.config.hbm.channels);
}

TEST_F(Observed, ResetLinesAndLinkOccupancyAsWaves) {
  const ScratchFile file("lines.vcd");
  Machine m(platform("tiny"));
  m.on_cube(0, 0);
  observe::WaveSink waves(file.path(), {"*.busy", "system.sip_rst_n_1"}, &models::now_ps);
  Observation observation(m.system);
  EXPECT_GT(observation.attach(waves), 10u);
  run([&] {
    write_across(m, 7);
    m.system.sip_rst_n[1].write(false);
    sc_core::wait(sc_core::sc_time(50, sc_core::SC_NS));
    m.system.sip_rst_n[1].write(true);
    sc_core::wait(sc_core::sc_time(50, sc_core::SC_NS));
  });
  waves.finish();
  const std::string text = file.text();
  EXPECT_THAT(text, HasSubstr(" sip_rst_n_1 $end"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("sip_rst_n_0")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("control_busy")));
  // 1 at the start, the pulse, and a rise and a fall of every hop of the seven writes, and the end.
  Way way(m.config);
  EXPECT_THAT(text, HasSubstr("$scope module link_sip0_E_sip1 $end\n$var wire 1 "));
  const size_t at = text.find("$scope module link_sip0_E_sip1 $end\n$var wire 1 ") +
                    std::string("$scope module link_sip0_E_sip1 $end\n$var wire 1 ").size();
  const std::string id = text.substr(at, text.find(' ', at) - at);
  size_t rises = 0, falls = 0, pos = text.find("#0\n");
  pos = text.find("$end", pos);
  for (size_t p = pos; (p = text.find("\n1" + id + "\n", p)) != std::string::npos; ++p) ++rises;
  for (size_t p = pos; (p = text.find("\n0" + id + "\n", p)) != std::string::npos; ++p) ++falls;
  EXPECT_EQ(rises, 7u);
  EXPECT_EQ(falls, 7u);
}

TEST_F(Observed, StatisticsOfEveryBlockAreUniqueAndAgreeInBothFormats) {
  Machine m(platform("tiny"));
  m.on_cube(0, 0);
  run([&] { write_across(m, 10); });
  EXPECT_EQ(figure(m.system, kSipLink, "bytes"), 40960u);
  EXPECT_EQ(figure(m.system, kSipLink, "wire_bytes"), 10u * (4096 + 4 * 16));
  EXPECT_EQ(figure(m.system, kSipLink, "busy"), 10 * transfer_ps(4096 + 64, m.config.sip_link.bytes_per_second));
  EXPECT_EQ(figure(m.system, "system.sip1.cube3.hbm", "bytes_written"), 40960u);
  EXPECT_EQ(figure(m.system, "system.sip1.cube3.hbm", "writes"), 10u);
  uint64_t channels = 0;
  for (uint32_t c = 0; c < m.config.hbm.channels; ++c) {
    channels += figure(m.system, "system.sip1.cube3.hbm.channel" + std::to_string(c), "busy");
  }
  EXPECT_EQ(channels, figure(m.system, "system.sip1.cube3.hbm", "busy"));

  std::ostringstream yaml_text, csv_text;
  observe::write_statistics_yaml(m.system, yaml_text);
  observe::write_statistics_csv(m.system, csv_text);
  // The reader refuses keys that come twice.
  const auto document = yaml::Document::from_text(yaml_text.str(), "statistics");
  std::map<std::string, std::string> from_yaml;
  for (const auto& e : document.root_node().entries) {
    if (e.key != "statistics") continue;
    for (const auto& block : e.value.entries) {
      for (const auto& f : block.value.entries) {
        ASSERT_EQ(f.value.items.size(), 2u);
        from_yaml[block.key + ',' + f.key] = f.value.items[0].scalar + ',' + f.value.items[1].scalar;
      }
    }
  }
  std::istringstream lines(csv_text.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "path,name,value,unit");
  size_t n = 0;
  while (std::getline(lines, line)) {
    const size_t second = line.find(',', line.find(',') + 1);
    ASSERT_EQ(from_yaml.count(line.substr(0, second)), 1u) << line;
    EXPECT_EQ(from_yaml[line.substr(0, second)], line.substr(second + 1));
    ++n;
  }
  EXPECT_EQ(n, from_yaml.size());

  const auto links = observe::busiest_links(m.system, 2);
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].path, kSipLink);
  EXPECT_GE(links[0].busy, links[1].busy);
}

TEST_F(Observed, LogLinesAreOffByDefaultAndByPath) {
  static std::vector<std::string> lines;
  lines.clear();
  Machine m(platform("tiny"));
  m.on_cube(0, 0);
  Observation observation(m.system);
  observe::LogSink none{observe::LogRules{}};
  observe::LogSink link(observe::LogRules::parse({std::string(kSipLink) + "=trace", "system.sip1=debug"}));
  EXPECT_EQ(observation.attach(none), 0u);
  EXPECT_GT(observation.attach(link), 1u);
  sc_core::sc_report_handler::set_handler([](const sc_core::sc_report& r, const sc_core::sc_actions&) {
    lines.push_back(std::string(r.get_msg_type()) + ' ' + r.get_msg());
  });
  run([&] { write_across(m, 3, 256); });
  ASSERT_EQ(lines.size(), 3u) << "transfers in SIP 1 are below its level";
  EXPECT_EQ(link.lines(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("/ahbm/fabric/link system.link_sip0_E_sip1: 256 B (272 on the wire, data) from "));
}

// ------------------------------------------------------------------------------------------------------- recorder

TEST_F(Observed, ProbeBetweenForeignModules) {
  ScriptedInitiator initiator("initiator");
  observe::Probe probe("probe");
  ScriptedTarget target("target", 0x1000, 0x1000, ns(30));
  initiator.out.bind(probe.in);
  probe.out.bind(target.in);
  const ScratchFile file("probe.csv");
  observe::CsvRecorder csv(file.path());
  std::vector<observe::Transaction> seen;
  probe.on_transaction = [&](const observe::Transaction& t) {
    seen.push_back(t);
    csv.write(t);
  };
  run([&] {
    sc_core::wait(sc_core::sc_time(5, sc_core::SC_NS));
    EXPECT_TRUE(initiator.write_value<uint32_t>(0x1010, 7, ns(2)).ok());
    EXPECT_EQ(initiator.read_value<uint32_t>(0x1010), 7u);
    EXPECT_FALSE(initiator.read(0x9000, 8).ok());
    std::vector<uint8_t> data(4);
    Access a;
    a.address = 0x1010;
    initiator.debug(a, data);
  });
  ASSERT_EQ(seen.size(), 3u) << "debug transport is not recorded";
  EXPECT_EQ(probe.transactions(), 3u);
  EXPECT_EQ(seen[0].time, ns(7));
  EXPECT_EQ(seen[0].latency, ns(30));
  EXPECT_EQ(seen[2].status, tlm::TLM_ADDRESS_ERROR_RESPONSE);
  EXPECT_THAT(seen[0].initiator, HasSubstr("test_body"));
  csv.finish();
  std::istringstream lines(file.text());
  std::vector<std::string> rows;
  for (std::string l; std::getline(lines, l);) rows.push_back(l);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0], "time_ps,initiator,command,address,length,status,latency_ps");
  EXPECT_EQ(rows[1], "7000," + seen[0].initiator + ",write,0x1010,4,OK,30000");
  EXPECT_THAT(rows[3], HasSubstr(",read,0x9000,8,ADDRESS_ERROR,"));
}

// With route grants on, a recorder in the machine sees every transaction, and times stay what they are.
TEST_F(Observed, ProbesInTheMachineSeeEverythingAndTakeNoTime) {
  tl::KernelRegistry kernels;
  const SystemConfig config = platform("tiny");
  ASSERT_TRUE(config.simulation.route_grants);
  observe::ProbeSet probes;
  std::map<std::string, uint64_t> seen;
  Ps latency = 0;
  for (const char* path : {"system.sip1.cube3.hbm", "system.link_sip0_E_sip1", "system.sip0.cube0.crossbar.mesh_out",
                           "system.host_bridge.sip0_out", "system.sip7.cube0.hbm"}) {
    probes.add(path, [&seen, &latency, path](const observe::Transaction& t) {
      ++seen[path];
      EXPECT_TRUE(t.status == tlm::TLM_OK_RESPONSE);
      latency = t.latency;
    });
  }
  models::SystemParts parts;
  parts.probes = &probes;
  models::System system("system", config, kernels, parts);
  Machine plain(config, "plain");
  EXPECT_THAT(probes.unmatched(), ElementsAre("system.sip7.cube0.hbm"));
  std::string late;
  ScriptedInitiator from("from");
  from.out.bind(system.sip(SipId{0}).cube(CubeId{0}).spare_in);
  plain.on_cube(0, 0);
  run([&] {
    try {
      probes.add("system.sip0.cube0.hbm", [](const observe::Transaction&) {});
    } catch (const std::logic_error& e) {
      late = e.what();
    }
    for (int i = 0; i < 8; ++i) {
      const Outcome a = from.write(hbm(1, 3, 4096 * i), pattern(4096));
      const Outcome b = plain.on_cube(0, 0).write(hbm(1, 3, 4096 * i), pattern(4096));
      EXPECT_EQ(a.delay, b.delay);
      ScriptedInitiator::wait_for(a);
    }
    uint32_t word = 0;
    EXPECT_EQ(system.host_bridge.read(hbm(0, 1, 0), &word, 4).done,
              plain.system.host_bridge.read(hbm(0, 1, 0), &word, 4).done);
  });
  EXPECT_EQ(seen["system.sip1.cube3.hbm"], 8u);
  EXPECT_EQ(seen["system.link_sip0_E_sip1"], 8u);
  EXPECT_EQ(seen["system.sip0.cube0.crossbar.mesh_out"], 8u);
  EXPECT_EQ(seen["system.host_bridge.sip0_out"], 1u);
  EXPECT_EQ(probes.transactions(), 25u);
  EXPECT_THAT(late, HasSubstr("a probe at 'system.sip0.cube0.hbm' comes too late"));
}

}  // namespace
}  // namespace ahbm::test
