// From topology files to SystemConfig: shipped platforms, round trip, overrides, every refusal at its place.
#include "models/core/config/load_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "models/core/config/yaml_reader.h"
#include "models/core/topology.h"

namespace ahbm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string why(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    parse_system_config(text, "t.yaml", sets);
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST(LoadConfig, AnEmptyFileIsTheDefaultMachine) {
  const SystemConfig c = parse_system_config("", "dir/ring4.yaml");
  SystemConfig d;  // the header's defaults are the specification's
  d.sip_ports = c.sip_ports;
  EXPECT_EQ(to_yaml(c), to_yaml(d));
  EXPECT_EQ(c.name, "ring4");
  EXPECT_EQ(c.total_pes(), 256u);
}

TEST(LoadConfig, EveryShippedPlatformLoads) {
  const std::vector<std::string> names = shipped_platforms();
  EXPECT_THAT(names, ::testing::ElementsAre("large", "mesh4x4", "peer_64B_50ns", "ring2", "ring4", "single", "tiny",
                                            "torus4x4"));
  for (const std::string& name : names) {
    const SystemConfig c = load_system_config(name);
    EXPECT_EQ(c.name, name);
    EXPECT_EQ(fs::path(c.ccl_file).filename(), "ccl.yaml");
    EXPECT_TRUE(fs::exists(c.ccl_file)) << c.ccl_file;
    EXPECT_TRUE(SipGraph(c).unreachable().empty());
  }
}

TEST(LoadConfig, ShippedPlatformsAreWhatTheirNamesSay) {
  const struct {
    const char* name;
    uint32_t sips, w, h;
    SipTopology topology;
    uint32_t cubes, pes;
  } cases[] = {
      {"single", 1, 1, 1, SipTopology::Ring1d, 16, 4},   {"ring2", 2, 2, 1, SipTopology::Ring1d, 16, 4},
      {"ring4", 4, 4, 1, SipTopology::Ring1d, 16, 4},    {"torus4x4", 16, 4, 4, SipTopology::Torus2d, 16, 4},
      {"mesh4x4", 16, 4, 4, SipTopology::Mesh2d, 16, 4}, {"large", 64, 8, 8, SipTopology::Torus2d, 16, 16},
      {"tiny", 2, 2, 1, SipTopology::Ring1d, 4, 2},      {"peer_64B_50ns", 8, 8, 1, SipTopology::Ring1d, 1, 1}};
  for (const auto& k : cases) {
    const SystemConfig c = load_system_config(k.name);
    EXPECT_EQ(c.sips, k.sips) << k.name;
    EXPECT_EQ(c.sip_w, k.w) << k.name;
    EXPECT_EQ(c.sip_h, k.h) << k.name;
    EXPECT_EQ(c.topology, k.topology) << k.name;
    EXPECT_EQ(c.cubes(), k.cubes) << k.name;
    EXPECT_EQ(c.pes, k.pes) << k.name;
  }
  // ring4 writes every default out; a changed default must not leave it behind.
  SystemConfig defaults = parse_system_config("name: ring4\n", "t.yaml");
  SystemConfig ring4 = load_system_config("ring4");
  ring4.ccl_file.clear();
  EXPECT_EQ(to_yaml(ring4), to_yaml(defaults));
}

TEST(LoadConfig, ComparisonPlatformHasOnlyItsLinks) {
  const SystemConfig c = load_system_config("peer_64B_50ns");
  constexpr uint64_t k16Tb = 16000000000000;
  EXPECT_EQ(c.sip_link.bytes_per_second, 64000000000u);
  EXPECT_EQ(c.sip_link.latency, ns(50));
  for (const uint64_t rate :
       {c.pe.tcm_bytes_per_second, c.pe.dma_bytes_per_second, c.hbm.bytes_per_second, c.noc.cube_link.bytes_per_second,
        c.noc.crossbar.bytes_per_second, c.host_link.bytes_per_second}) {
    EXPECT_EQ(rate, k16Tb);
  }
  for (const Ps latency :
       {c.pe.tcm_latency, c.pe.dma_setup, c.pe.sfr_latency, c.pe.launch_dispatch, c.ipcq.notify_latency, c.hbm.latency,
        c.noc.cube_link.latency, c.noc.crossbar.latency, c.host_link.latency}) {
    EXPECT_EQ(latency, 0u);
  }
  EXPECT_TRUE(c.pe.free_compute);
  EXPECT_EQ(c.noc.packet_header_bytes, 0u);
  EXPECT_FALSE(c.ipcq.header_on_wire);
  // Credits must not limit a link: the bytes in flight exceed bandwidth times round trip.
  const uint64_t in_flight = uint64_t{c.ipcq.sip.n_slots} * c.ipcq.sip.slot_bytes;
  EXPECT_GT(in_flight, 10 * c.sip_link.bytes_per_second * 2 * c.sip_link.latency / 1000000000000);
}

TEST(LoadConfig, EffectiveConfigurationReadsBackExactly) {
  std::vector<SystemConfig> machines;
  for (const std::string& name : shipped_platforms()) machines.push_back(load_system_config(name));
  machines.push_back(parse_system_config(R"(
name: "odd: \"name\" # 1"
ccl: "a folder/c c.yaml"
system: {sips: {count: 12, topology: torus_2d, w: 2, h: 6, double_links: true}}
sip: {cube_mesh: {w: 3, h: 5}, ports: [{side: S, cube: 13}, {side: E, cube: 2}, {side: E, cube: 14}, {side: W, cube: 0}, {side: W, cube: 12}]}
cube: {pes: 7}
pe: {clock: 1.234567891 GHz, tcm_latency: 1 ps, tcm_capacity: 5000000 B, dma_setup: 1.5 ns}
ipcq: {ring_bytes: 4800000 B, cube: {n_slots: 3, slot_bytes: 40 B}}
hbm: {capacity: 123456789 B, bandwidth: 333.333333333 GB/s, channels: 7, interleave: 1 B}
sip_link:
  overrides:
    - {from: 0, to: 1, side: E, bandwidth: 1 B/s}
    - {from: 2, to: 4, both_directions: false, latency: 0 ns}
    - {from: 10, to: 11, absent: true}
simulation: {functional: false, dmi: false, route_grants: false, pe_quantum: 20 ns, stall_limit: 7 ps}
)",
                                         "/x/y/z.yaml"));
  machines.push_back(
      parse_system_config("system: {sips: {count: 3, topology: switch}}\nsip_link: {overrides: [{from: switch, to: 1, "
                          "both_directions: false, bandwidth: 9 GB/s}, {from: 0, to: switch, latency: 3 ns}]}\n",
                          "/x/s.yaml"));
  for (const SystemConfig& c : machines) {
    const std::string text = to_yaml(c);
    const SystemConfig again = parse_system_config(text, "/elsewhere/effective.yaml");
    EXPECT_EQ(to_yaml(again), text);
    EXPECT_EQ(again.name, c.name);
    EXPECT_EQ(again.ccl_file, c.ccl_file);
    EXPECT_EQ(again.sip_w, c.sip_w);
    EXPECT_EQ(again.pe.hertz, c.pe.hertz);
    EXPECT_EQ(again.simulation.pe_quantum, c.simulation.pe_quantum);
    EXPECT_EQ(again.hbm.bytes_per_second, c.hbm.bytes_per_second);
    EXPECT_EQ(again.link_overrides.size(), c.link_overrides.size());
  }
}

TEST(LoadConfig, CclIsRelativeToTheTopologyFile) {
  EXPECT_EQ(parse_system_config("ccl: sub/../my.yaml", "/a/b/t.yaml").ccl_file, "/a/b/my.yaml");
  EXPECT_EQ(parse_system_config("ccl: /abs/c.yaml", "/a/b/t.yaml").ccl_file, "/abs/c.yaml");
  EXPECT_EQ(parse_system_config("", "/a/b/t.yaml").ccl_file, "");
  EXPECT_EQ(parse_system_config("", "/a/b/t.yaml", {"ccl=here.yaml"}).ccl_file,
            (fs::current_path() / "here.yaml").string())
      << "an override is relative to where it was typed";
}

TEST(LoadConfig, CclBesideTheFileIsFound) {
  const fs::path dir = fs::path(testing::TempDir()) / "ahbm_beside";
  fs::create_directories(dir);
  std::ofstream(dir / "t.yaml") << "name: t\n";
  EXPECT_EQ(load_system_config((dir / "t.yaml").string()).ccl_file, "");
  std::ofstream(dir / "ccl.yaml") << "defaults: {}\n";
  EXPECT_EQ(load_system_config((dir / "t.yaml").string()).ccl_file, (dir / "ccl.yaml").string());
  std::ofstream(dir / "t.yaml") << "name: t\nccl: ''\n";
  EXPECT_EQ(load_system_config((dir / "t.yaml").string()).ccl_file, "") << "an empty text means none";
  fs::remove_all(dir);
}

TEST(LoadConfig, PlatformsAreFoundByNameOrPath) {
  const std::string folder = std::string(AHBM_SOURCE_DIR) + "/configs/";
  EXPECT_EQ(load_system_config("large").sips, 64u);
  EXPECT_EQ(load_system_config("large.yaml").sips, 64u);
  EXPECT_EQ(load_system_config(folder + "large.yaml").sips, 64u);
  EXPECT_EQ(load_system_config(folder + "large").sips, 64u);
  EXPECT_EQ(load_system_config(ConfigSource{"tiny", {"cube.pes=3"}}).pes, 3u);
  const auto refused = [](const std::string& name) {
    try {
      load_system_config(name);
      return std::string("found");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(refused("larg"), StartsWith("larg: no such file, and no shipped platform (did you mean 'large'?)"));
  EXPECT_THAT(refused("torus4x5.yaml"), HasSubstr("(did you mean 'torus4x4'?)"));
  EXPECT_THAT(refused("nowhere/x.yaml"), StartsWith("nowhere/x.yaml: no such file"));
  EXPECT_THAT(refused(""), HasSubstr("no platform given"));
}

TEST(LoadConfig, SetOverridesAnyKeyBeforeValidation) {
  EXPECT_EQ(load_system_config("ring4", {"system.sips.count=8"}).sips, 8u);
  EXPECT_EQ(load_system_config("ring4", {"system.sips.count=8"}).sip_w, 8u);
  // Either one alone would be refused: both are applied before anything is checked.
  const SystemConfig c = load_system_config("ring4", {"system.sips.topology=torus_2d", "system.sips.count=9"});
  EXPECT_EQ(c.sip_w, 3u);
  EXPECT_EQ(load_system_config("ring4", {"pe.clock=2 GHz"}).pe.hertz, 2000000000u);
  EXPECT_EQ(load_system_config("ring4", {"ipcq.sip={n_slots: 2, slot_bytes: 1 KiB}"}).ipcq.sip.slot_bytes, 1024u);
  EXPECT_EQ(load_system_config("ring4", {"name=other"}).name, "other");
  EXPECT_EQ(load_system_config("ring4", {"system.sips.count=2", "system.sips.count=3"}).sips, 3u);
  EXPECT_EQ(why("", {"system.sips.cuont=8"}),
            "--set system.sips.cuont=8: unknown key 'system.sips.cuont' (did you mean 'system.sips.count'?)");
  EXPECT_EQ(why("", {"sips.count=8"}),
            "--set sips.count=8: unknown key 'sips.count' (did you mean 'system.sips.count'?)");
  EXPECT_EQ(why("", {"system.sips.count=0"}),
            "--set system.sips.count=0: 'system.sips.count' must be a whole number from 1 to 8192, got '0'");
}

TEST(LoadConfig, AllMistakesOfAFileAtOnceInItsOrder) {
  EXPECT_EQ(why("system:\n"
                "  sips:\n"
                "    count: none\n"
                "    topolgy: ring_1d\n"
                "noc:\n"
                "  link_bandwith: 100\n"
                "  link_latency: 4\n"
                "pe: {clock: nan, dma_setup: -1 ns}\n"
                "pe: {}\n"
                "hbm:\n"
                "  interleave: 100 B\n"
                "ipcq:\n"
                "  sip: {slot_bytes: 36 B}\n",
                {"cube.pes=256"}),
            "t.yaml:3:12: 'system.sips.count' must be a whole number from 1 to 8192, got 'none'\n"
            "t.yaml:4:5: unknown key 'topolgy' (did you mean 'topology'?)\n"
            "t.yaml:6:3: unknown key 'link_bandwith' (did you mean 'link_bandwidth'?)\n"
            "t.yaml:7:17: 'noc.link_latency': '4' has no unit; expected a time like '250 ns'\n"
            "t.yaml:8:13: 'pe.clock': 'nan' is not a finite number; expected a frequency like '1.5 GHz'\n"
            "t.yaml:8:29: 'pe.dma_setup': '-1 ns' is negative; expected a time like '250 ns'\n"
            "t.yaml:9:1: duplicate key 'pe' (first at 8:1)\n"
            "t.yaml:11:15: 'hbm.interleave' must be a power of two, got 100 B\n"
            "t.yaml:13:21: 'ipcq.sip.slot_bytes' must be a multiple of 8 above the 32 bytes of the header, got 36 B\n"
            "--set cube.pes=256: 'cube.pes' must be a whole number from 1 to 255, got '256'");
}

TEST(LoadConfig, LimitsOfTheAddressMap) {
  EXPECT_EQ(why("system: {sips: {count: 8192}}"), "");
  EXPECT_THAT(why("system: {sips: {count: 8193}}"), StartsWith("t.yaml:1:24: 'system.sips.count' must be"));
  EXPECT_EQ(why("sip: {cube_mesh: {w: 15, h: 17}}"), "");
  EXPECT_EQ(why("sip: {cube_mesh: {w: 16, h: 16}}"),
            "t.yaml:1:22: 'sip.cube_mesh': 16 * 16 = 256 cubes, but the address map holds 255 in a SIP");
  EXPECT_EQ(why("cube: {pes: 255}"), "");
  EXPECT_THAT(why("cube: {pes: 256}"), HasSubstr("from 1 to 255"));
  EXPECT_EQ(why("ipcq: {queue_pairs: 1024}"), "");
  EXPECT_THAT(why("ipcq: {queue_pairs: 1025}"), HasSubstr("from 1 to 1024"));
  EXPECT_EQ(why("hbm: {capacity: 12 GiB}"), "");
  EXPECT_EQ(why("hbm: {capacity: 12884901889 B}"),
            "t.yaml:1:17: 'hbm.capacity': '12884901889 B' is out of range; expected 1 B to 12 GiB");
  EXPECT_EQ(why("pe: {tcm_capacity: 8 MiB}"), "");
  EXPECT_EQ(why("pe: {tcm_capacity: 9 MiB}"),
            "t.yaml:1:20: 'pe.tcm_capacity': '9 MiB' is out of range; expected 1 B to 8 MiB");
}

TEST(LoadConfig, RingsFitTheirMemories) {
  EXPECT_EQ(why("pe: {tcm_capacity: 2 MiB}\nipcq: {ring_bytes: 3 MiB}"),
            "t.yaml:2:20: 'ipcq.ring_bytes' is 3 MiB, but 'pe.tcm_capacity' is only 2 MiB: kernels need 128 KiB behind "
            "the rings; 'pe.tcm_capacity' must be at least 3200 KiB");
  EXPECT_EQ(why("pe: {tcm_capacity: 2 MiB}"),
            "t.yaml:1:20: 'ipcq.ring_bytes' is 3 MiB, but 'pe.tcm_capacity' is only 2 MiB: kernels need 128 KiB behind "
            "the rings; 'pe.tcm_capacity' must be at least 3200 KiB");
  EXPECT_EQ(why("ipcq: {cube: {slot_bytes: 32 B}}"),
            "t.yaml:1:27: 'ipcq.cube.slot_bytes' must be a multiple of 8 above the 32 bytes of the header, got 32 B");
  EXPECT_EQ(why("ipcq: {cube: {slot_bytes: 40 B}}"), "");
  EXPECT_EQ(why("ipcq: {cube: {slot_bytes: 44 B}}"),
            "t.yaml:1:27: 'ipcq.cube.slot_bytes' must be a multiple of 8 above the 32 bytes of the header, got 44 B");
  EXPECT_EQ(why("ipcq: {sip: {n_slots: 193}}"),
            "t.yaml:1:23: 'ipcq.sip': 193 slots of 16 KiB take 3088 KiB, but 'ipcq.ring_bytes' is 3 MiB");
  EXPECT_THAT(why("ipcq: {sip: {n_slots: 0}}"), HasSubstr("'ipcq.sip.n_slots' must be a whole number from 1"));
  // One ring fits, those of all neighbours together do not: 4 x 4 x 4 KiB + 2 x 100 x 16 KiB.
  EXPECT_EQ(
      why("ipcq: {sip: {n_slots: 100}}"),
      "t.yaml:1:23: 'ipcq.ring_bytes' is 3 MiB, but the rings of a cube's neighbours take 3264 KiB (4 x 4 x 4 KiB to "
      "cubes, 2 x 100 x 16 KiB to SIPs)");
  EXPECT_EQ(why("ipcq: {queue_pairs: 5}"),
            "t.yaml:1:21: 'ipcq.queue_pairs' is 5, but the neighbours of a cube take 6 (4 cubes, 2 SIPs)");
  EXPECT_EQ(why("ipcq: {queue_pairs: 6}"), "");
  EXPECT_EQ(why("ipcq: {queue_pairs: 1}\nsystem: {sips: {count: 2}}\nsip: {cube_mesh: {w: 1, h: 1}}"), "");
}

TEST(LoadConfig, KernelsHaveSpaceBehindTheRings) {
  EXPECT_THAT(why("pe: {tcm_capacity: 3 MiB}"), HasSubstr("'pe.tcm_capacity' must be at least 3200 KiB"));
  EXPECT_THAT(why("pe: {tcm_capacity: 3276799 B}"), HasSubstr("'pe.tcm_capacity' must be at least 3200 KiB"));
  EXPECT_EQ(why("pe: {tcm_capacity: 3200 KiB}"), "");
  // A message is staged whole.
  EXPECT_EQ(why("ipcq: {ring_bytes: 3 MiB, sip: {n_slots: 1, slot_bytes: 1048584 B}}"),
            "t.yaml:1:20: 'ipcq.ring_bytes' is 3 MiB, but 'pe.tcm_capacity' is only 4 MiB: kernels need 1048640 B "
            "behind the rings for a message of 'ipcq.sip.slot_bytes'; 'pe.tcm_capacity' must be at least 4194368 B");
  EXPECT_EQ(why("pe: {tcm_capacity: 4194368 B}\nipcq: {sip: {n_slots: 1, slot_bytes: 1048584 B}}"), "");
  EXPECT_THAT(why("ipcq: {ring_bytes: 8 MiB}"),
              HasSubstr("with the largest 'pe.tcm_capacity', 'ipcq.ring_bytes' may be 8064 KiB"));
  EXPECT_EQ(why("pe: {tcm_capacity: 8 MiB}\nipcq: {ring_bytes: 8064 KiB}"), "");
}

TEST(LoadConfig, MemoriesAndPackets) {
  EXPECT_EQ(why("hbm: {interleave: 4 KiB}"), "");
  EXPECT_THAT(why("hbm: {interleave: 0 B}"), HasSubstr("out of range"));
  EXPECT_EQ(why("hbm: {bandwidth: 3 B/s, channels: 4}"),
            "t.yaml:1:18: 'hbm.bandwidth' of 3 B/s leaves less than 1 B/s for each of 4 channels");
  EXPECT_THAT(why("noc: {packet_bytes: 0 B}"), HasSubstr("out of range"));
  EXPECT_EQ(why("noc: {packet_header: 0 B}"), "");
  EXPECT_THAT(why("sip_link: {latency: 2 s}"), HasSubstr("'2 s' is out of range; expected 0 ns to 1 s"));
  EXPECT_THAT(why("sip_link: {bandwidth: 0 GB/s}"), HasSubstr("is zero"));
  EXPECT_THAT(why("pe: {clock: 0 Hz}"), HasSubstr("is zero"));
  EXPECT_THAT(why("simulation: {stall_limit: 0 ns}"), HasSubstr("out of range"));
}

TEST(LoadConfig, TopologyRules) {
  EXPECT_EQ(why("system: {sips: {count: 6, topology: ring_1d, w: 6, h: 1}}"), "");
  EXPECT_EQ(why("system: {sips: {count: 6, topology: ring_1d, w: 3, h: 2}}"),
            "t.yaml:1:49: 'system.sips.w' is 3, but ring_1d of 6 SIPs has w = 6, h = 1; leave w and h out\n"
            "t.yaml:1:55: 'system.sips.h' is 2, but ring_1d of 6 SIPs has w = 6, h = 1; leave w and h out");
  EXPECT_EQ(why("system: {sips: {count: 6, topology: torus_2d, w: 3, h: 2}}"), "");
  EXPECT_EQ(why("system: {sips: {count: 6, topology: torus_2d, w: 3, h: 3}}"),
            "t.yaml:1:50: 'system.sips': w * h = 3 * 3 = 9, but count is 6");
  EXPECT_EQ(why("system: {sips: {count: 6, topology: mesh_2d}}"),
            "t.yaml:1:24: 'system.sips.count' is 6, which is no square: mesh_2d needs w and h with w * h = 6");
  EXPECT_EQ(why("system: {sips: {count: 6, topology: mesh_2d, w: 3}}"),
            "t.yaml:1:49: 'system.sips.w' is given without 'system.sips.h'; give both or none");
  EXPECT_EQ(why("system: {sips: {topology: ring}}"),
            "t.yaml:1:27: 'system.sips.topology' must be one of ring_1d, torus_2d, mesh_2d, mesh_2d_no_wrap, "
            "fully_connected, switch, got 'ring' (did you mean 'ring_1d'?)");
  EXPECT_EQ(why("system: {sips: {topology: torus2d}}"),
            "t.yaml:1:27: 'system.sips.topology' must be one of ring_1d, torus_2d, mesh_2d, mesh_2d_no_wrap, "
            "fully_connected, switch, got 'torus2d' (did you mean 'torus_2d'?)");
  const SystemConfig mesh = parse_system_config("system: {sips: {count: 9, topology: mesh_2d_no_wrap}}", "t.yaml");
  EXPECT_EQ(mesh.topology, SipTopology::Mesh2d);
  EXPECT_EQ(mesh.sip_w, 3u);
  for (const char* t : {"fully_connected", "switch"}) {
    const SystemConfig c =
        parse_system_config(std::string("system: {sips: {count: 5, topology: ") + t + "}}", "t.yaml");
    EXPECT_EQ(c.sip_w, 5u);
    EXPECT_EQ(c.sip_h, 1u);
  }
}

TEST(LoadConfig, Ports) {
  EXPECT_EQ(why("sip: {ports: [{side: E, cube: 16}]}"),
            "t.yaml:1:31: 'sip.ports': there is no cube 16; a mesh of 4 x 4 has cubes 0 to 15");
  EXPECT_EQ(why("sip: {ports: [{side: E}, {cube: 3}]}"),
            "t.yaml:1:15: a port of 'sip.ports' needs a cube\nt.yaml:1:26: a port of 'sip.ports' needs a side");
  EXPECT_EQ(why("sip: {ports: [{side: e, cube: 3}]}"),
            "t.yaml:1:22: 'sip.ports.0.side' must be one of N, S, E, W, got 'e' (did you mean 'E'?)");
  EXPECT_EQ(why("sip: {ports: [{side: E, cube: 3}, {side: E, cube: 7}]}"),
            "t.yaml:1:14: 'sip.ports': 2 ports on side E and 1 on side W; the links of ring_1d join the two sides one "
            "to one");
  EXPECT_EQ(why("sip: {ports: [{side: N, cube: 3}, {side: N, cube: 7}]}"), "") << "a ring has no links there";
  EXPECT_EQ(why("sip: {ports: {side: E, cube: 3}}"), "t.yaml:1:14: 'sip.ports' must be a list, got a map");
}

TEST(LoadConfig, LinkOverrides) {
  const auto with = [](const std::string& o) { return why("sip_link: {overrides: [" + o + "]}"); };
  EXPECT_EQ(with("{from: 0, to: 1, bandwidth: 1 GB/s}"), "");
  EXPECT_EQ(with("{from: 0, to: 2, bandwidth: 1 GB/s}"),
            "t.yaml:1:31: 'sip_link.overrides.0': SIP 0 has no link to SIP 2 in ring_1d of 4");
  EXPECT_EQ(with("{from: 0, to: 1, side: W, bandwidth: 1 GB/s}"),
            "t.yaml:1:31: 'sip_link.overrides.0': SIP 0 has no link to SIP 1 on side W in ring_1d of 4");
  EXPECT_EQ(with("{from: 0, to: 4, bandwidth: 1 GB/s}"),
            "t.yaml:1:38: 'sip_link.overrides.0.to': there is no SIP 4; there are SIPs 0 to 3");
  EXPECT_EQ(with("{from: 0, bandwidth: 1 GB/s}"), "t.yaml:1:24: 'sip_link.overrides.0' needs the SIPs from and to");
  EXPECT_EQ(with("{from: 0, to: 1}"),
            "t.yaml:1:24: 'sip_link.overrides.0' changes nothing; give bandwidth, latency or absent: true");
  EXPECT_EQ(with("{from: 0, to: 1, absent: true, latency: 1 ns}"),
            "t.yaml:1:24: 'sip_link.overrides.0' is absent and has a bandwidth or latency as well");
  EXPECT_EQ(with("{from: 0, to: switch, latency: 1 ns}"),
            "t.yaml:1:31: 'sip_link.overrides.0': SIP 0 has no link to the switch in ring_1d of 4");
  EXPECT_EQ(with("{from: 0, to: 1, absent: true}"), "");
  EXPECT_EQ(with("{from: 0, to: 1, absent: true}, {from: 2, to: 3, absent: true}"),
            "t.yaml:1:24: 'sip_link.overrides' leave no way from SIP 1 to SIP 0, SIP 2 to SIP 0");
  EXPECT_EQ(with("{from: 0, to: 1, latencyy: 1 ns}"),
            "t.yaml:1:24: 'sip_link.overrides.0' changes nothing; give bandwidth, latency or absent: true\n"
            "t.yaml:1:41: unknown key 'latencyy' (did you mean 'latency'?)");
}

TEST(LoadConfig, MisspeltHardwareKeyAndDuplicateAreErrors) {  // T47
  EXPECT_EQ(why("noc:\n  link_bandwith: 100\n"),
            "t.yaml:2:3: unknown key 'link_bandwith' (did you mean 'link_bandwidth'?)");
  EXPECT_EQ(why("link_bandwith: 100\n"),
            "t.yaml:1:1: unknown key 'link_bandwith' (did you mean 'noc.link_bandwidth'?)");
  EXPECT_EQ(why("hbm:\n  latency: 90 ns\n  channels: 16\n  latency: 10 ns\n"),
            "t.yaml:4:3: duplicate key 'latency' (first at 2:3)");
}

/// `a.b.c` -> value for every scalar of a tree.
void flatten(const yaml::Node& node, const std::string& path, std::map<std::string, std::string>& out) {
  if (node.kind == yaml::Node::Kind::Scalar) out[path] = node.scalar;
  for (const auto& e : node.entries) flatten(e.value, path.empty() ? e.key : path + '.' + e.key, out);
}

TEST(LoadConfig, TheManualNamesEveryKeyWithItsDefault) {
  std::ifstream in(std::string(AHBM_SOURCE_DIR) + "/docs/configuration.md");
  ASSERT_TRUE(in);
  std::map<std::string, std::string> documented;  // rows like: | `pe.clock` | `1.5 GHz` | ... |
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const size_t key_end = line.find('`', 3);
    const size_t value_begin = line.find("| `", key_end);
    const std::string key = line.substr(3, key_end - 3);
    if (value_begin == std::string::npos || value_begin > key_end + 3) {
      documented[key] = "";  // the default follows from something else and is described in words
      continue;
    }
    documented[key] = line.substr(value_begin + 3, line.find('`', value_begin + 3) - value_begin - 3);
  }
  std::map<std::string, std::string> actual;
  const auto doc = yaml::Document::from_text(to_yaml(parse_system_config("", "t.yaml")), "effective");
  flatten(doc.root_node(), "", actual);
  for (const auto& [key, value] : actual) {
    if (key == "name" || key == "ccl") continue;
    ASSERT_EQ(documented.count(key), 1u) << key << " is not in the manual";
    EXPECT_EQ(documented[key], value) << key;
  }
  // And nothing is documented that is not read: every documented key with a default can be set to it.
  for (const auto& [key, value] : documented) {
    if (!value.empty()) {
      EXPECT_EQ(why("", {key + "=" + value}), "") << key;
    }
  }
}

}  // namespace
}  // namespace ahbm
