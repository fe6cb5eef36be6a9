#include "models/core/config/raw_config.h"

#include <limits>

namespace ahbm {

namespace {

constexpr Ps kMaxLatency = 1000000000000;  // 1 s: a larger one is a wrong unit
constexpr Ps kMaxQuantum = ns(100);
constexpr Ps kMaxStall = 3600 * kMaxLatency;  // 1 h of simulated time
constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

const std::vector<std::pair<std::string, Side>> kSides = {
    {"N", Side::N}, {"S", Side::S}, {"E", Side::E}, {"W", Side::W}};

RawLink read_link(yaml::Section& section, const std::string& prefix = "") {
  return {section.bandwidth(prefix + "bandwidth"), section.time(prefix + "latency", 0, kMaxLatency)};
}

RawRing read_ring(yaml::Section section) {
  return {section.count("n_slots", 1, kMaxU32), section.bytes("slot_bytes", 0, addr::kTcmMaxBytes)};
}

/// A SIP number, or the word `switch` for its core.
yaml::Item<uint64_t> read_end(yaml::Section& section, const std::string& key) {
  const yaml::Node* n = section.node(key);
  if (n != nullptr && n->kind == yaml::Node::Kind::Scalar && n->scalar == "switch") {
    return {kSwitchSip, n->position, section.path() + '.' + key, true};
  }
  return section.count(key, 0, addr::kMaxSips - 1);
}

RawFault read_fault(yaml::Section& s) {
  RawFault f;
  f.position = s.position();
  f.path = s.path();
  f.kind = s.choice<FaultKind>("kind", {{"drop_message", FaultKind::DropMessage},
                                        {"corrupt_message", FaultKind::CorruptMessage},
                                        {"fail_link", FaultKind::FailLink},
                                        {"stop_pe", FaultKind::StopPe},
                                        {"address_error", FaultKind::AddressError}});
  f.sip = s.count("sip", 0, addr::kMaxSips - 1);
  f.cube = s.count("cube", 0, addr::kMaxCubes - 1);
  f.pe = s.count("pe", 0, addr::kMaxPes - 1);
  f.qp = s.count("qp", 0, addr::kMaxQps - 1);
  f.message = s.count("message", 1, std::numeric_limits<uint64_t>::max());
  f.part = s.choice<MessagePart>("part", {{"header", MessagePart::Header}, {"payload", MessagePart::Payload}});
  f.from = read_end(s, "from");
  f.to = read_end(s, "to");
  f.side = s.choice<Side>("side", kSides);
  f.from_cube = s.count("from_cube", 0, addr::kMaxCubes - 1);
  f.to_cube = s.count("to_cube", 0, addr::kMaxCubes - 1);
  f.both_directions = s.boolean("both_directions");
  f.offset = s.bytes("offset", 0, addr::kCubeBytes - 1);
  f.bytes = s.bytes("bytes", 1, addr::kCubeBytes);
  f.access = s.choice<FaultAccess>(
      "access", {{"any", FaultAccess::Any}, {"read", FaultAccess::Read}, {"write", FaultAccess::Write}});
  f.at = s.time("at", 0, kMaxStall);
  return f;
}

}  // namespace

RawConfig read_raw_config(yaml::Document& document) {
  RawConfig raw;
  yaml::Section root = document.root();
  raw.name = root.text("name");
  raw.ccl = root.text("ccl");
  {
    yaml::Section system = root.section("system");
    yaml::Section sips = system.section("sips");
    raw.sips = sips.count("count", 1, addr::kMaxSips);
    raw.topology = sips.choice<SipTopology>("topology", {{"ring_1d", SipTopology::Ring1d},
                                                         {"torus_2d", SipTopology::Torus2d},
                                                         {"mesh_2d", SipTopology::Mesh2d},
                                                         {"mesh_2d_no_wrap", SipTopology::Mesh2d},
                                                         {"fully_connected", SipTopology::FullyConnected},
                                                         {"switch", SipTopology::Switch}});
    raw.sip_w = sips.count("w", 1, addr::kMaxSips);
    raw.sip_h = sips.count("h", 1, addr::kMaxSips);
    raw.double_links = sips.boolean("double_links");
  }
  {
    yaml::Section sip = root.section("sip");
    yaml::Section mesh = sip.section("cube_mesh");
    raw.cube_w = mesh.count("w", 1, addr::kMaxCubes);
    raw.cube_h = mesh.count("h", 1, addr::kMaxCubes);
    raw.ports_given = sip.has("ports");
    raw.ports_position = sip.position();
    if (const yaml::Node* n = sip.node("ports")) raw.ports_position = n->position;
    for (yaml::Section& port : sip.sections_of_list("ports")) {
      raw.ports.push_back(
          {port.position(), port.choice<Side>("side", kSides), port.count("cube", 0, addr::kMaxCubes - 1)});
    }
  }
  {
    yaml::Section cube = root.section("cube");
    raw.pes = cube.count("pes", 1, addr::kMaxPes);
  }
  {
    yaml::Section pe = root.section("pe");
    raw.pe_clock = pe.frequency("clock");
    raw.vector_lanes = pe.count("vector_lanes", 1, kMaxU32);
    raw.macs_per_cycle = pe.count("macs_per_cycle", 1, kMaxU32);
    raw.free_compute = pe.boolean("free_compute");
    raw.tcm_capacity = pe.bytes("tcm_capacity", 1, addr::kTcmMaxBytes);
    raw.tcm_bandwidth = pe.bandwidth("tcm_bandwidth");
    raw.tcm_latency = pe.time("tcm_latency", 0, kMaxLatency);
    raw.dma_bandwidth = pe.bandwidth("dma_bandwidth");
    raw.dma_setup = pe.time("dma_setup", 0, kMaxLatency);
    raw.dma_outstanding = pe.count("dma_outstanding", 1, 65536);
    raw.sfr_latency = pe.time("sfr_latency", 0, kMaxLatency);
    raw.launch_dispatch = pe.time("launch_dispatch", 0, kMaxLatency);
    raw.launch_queue_depth = pe.count("launch_queue_depth", 1, 65536);
  }
  {
    yaml::Section ipcq = root.section("ipcq");
    raw.queue_pairs = ipcq.count("queue_pairs", 1, addr::kMaxQps);
    raw.ring_bytes = ipcq.bytes("ring_bytes", 0, addr::kTcmMaxBytes);
    raw.cube_ring = read_ring(ipcq.section("cube"));
    raw.sip_ring = read_ring(ipcq.section("sip"));
    raw.notify_latency = ipcq.time("notify_latency", 0, kMaxLatency);
    raw.header_on_wire = ipcq.boolean("header_on_wire");
  }
  {
    yaml::Section hbm = root.section("hbm");
    raw.hbm_capacity = hbm.bytes("capacity", 1, addr::kHbmMaxBytes);
    raw.hbm_bandwidth = hbm.bandwidth("bandwidth");
    raw.hbm_channels = hbm.count("channels", 1, 65536);
    raw.hbm_interleave = hbm.bytes("interleave", 1, uint64_t{1} << 30);
    raw.hbm_latency = hbm.time("latency", 0, kMaxLatency);
  }
  {
    yaml::Section noc = root.section("noc");
    raw.cube_link = read_link(noc, "link_");
    raw.crossbar = read_link(noc, "crossbar_");
    raw.packet_bytes = noc.bytes("packet_bytes", 1, uint64_t{1} << 30);
    raw.packet_header = noc.bytes("packet_header", 0, uint64_t{1} << 20);
  }
  {
    yaml::Section link = root.section("sip_link");
    raw.sip_link = read_link(link);
    for (yaml::Section& s : link.sections_of_list("overrides")) {
      RawLinkOverride o;
      o.position = s.position();
      o.path = s.path();
      o.from = read_end(s, "from");
      o.to = read_end(s, "to");
      o.side = s.choice<Side>("side", kSides);
      o.both_directions = s.boolean("both_directions");
      o.absent = s.boolean("absent");
      o.link = read_link(s);
      raw.overrides.push_back(o);
    }
  }
  for (yaml::Section& s : root.sections_of_list("faults")) raw.faults.push_back(read_fault(s));
  {
    yaml::Section link = root.section("host_link");
    raw.host_link = read_link(link);
  }
  {
    yaml::Section simulation = root.section("simulation");
    raw.functional = simulation.boolean("functional");
    raw.dmi = simulation.boolean("dmi");
    raw.route_grants = simulation.boolean("route_grants");
    raw.pe_quantum = simulation.time("pe_quantum", 0, kMaxQuantum);
    raw.stall_limit = simulation.time("stall_limit", 1, kMaxStall);
  }
  return raw;
}

}  // namespace ahbm
