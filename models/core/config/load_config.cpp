#include "models/core/config/load_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "models/core/config/raw_config.h"
#include "models/core/config/units.h"
#include "models/core/config/yaml_reader.h"
#include "models/core/suggest.h"

namespace ahbm {

namespace fs = std::filesystem;

namespace {

/// Where shipped platforms lie: in the installation that the running program belongs to, else beside the source that
/// it was built from, else where that was to be installed.
std::vector<fs::path> config_folders() {
  std::vector<fs::path> out;
  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  if (!ec) out.push_back(program.parent_path().parent_path() / "share" / "ahbm" / "configs");
  out.emplace_back(AHBM_SOURCE_CONFIG_DIR);
  out.emplace_back(AHBM_INSTALL_CONFIG_DIR);
  return out;
}

bool is_file(const fs::path& p) {
  std::error_code ec;
  const auto status = fs::status(p, ec);
  return fs::exists(status) && !fs::is_directory(status);
}

SystemConfig load(yaml::Document document, const std::string& file, const std::vector<std::string>& sets,
                  bool look_beside) {
  for (const std::string& s : sets) document.set(s);
  const RawConfig raw = read_raw_config(document);
  SystemConfig config = resolve_config(raw, document);
  document.throw_if_errors();

  const fs::path path(file);
  config.name = raw.name.value_or(path.stem().string());
  const fs::path folder = fs::absolute(path).parent_path();
  if (raw.ccl) {
    // An override is typed in a shell, so its path is relative to where the shell is. An empty text means none.
    const fs::path ccl(*raw.ccl);
    const fs::path full = raw.ccl.position.from_set ? fs::absolute(ccl) : folder / ccl;
    if (!ccl.empty()) config.ccl_file = full.lexically_normal().string();
  } else if (look_beside && is_file(folder / "ccl.yaml")) {
    config.ccl_file = (folder / "ccl.yaml").lexically_normal().string();
  }
  return config;
}

/// A scalar that reads back as this text.
std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    if (ch == '"' || ch == '\\') {
      out += '\\';
      out += ch;
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += ch;
    }
  }
  return out + '"';
}

std::string end_text(SipId sip) {
  return value(sip) == kSwitchSip ? "switch" : std::to_string(value(sip));
}

std::string fault_keys(const Fault& f) {
  std::string keys = fmt::format("kind: {}", to_string(f.kind));
  const auto add = [&keys](auto format, const auto&... args) {
    keys += ", " + fmt::format(fmt::runtime(format), args...);
  };
  switch (f.kind) {
    case FaultKind::DropMessage:
    case FaultKind::CorruptMessage:
      add("sip: {}, cube: {}, pe: {}, message: {}", value(f.pe.sip), value(f.pe.cube), value(f.pe.pe), f.message);
      if (f.qp) add("qp: {}", *f.qp);
      if (f.kind == FaultKind::CorruptMessage) add("part: {}", to_string(f.part));
      return keys;
    case FaultKind::StopPe:
      add("sip: {}, cube: {}, pe: {}", value(f.pe.sip), value(f.pe.cube), value(f.pe.pe));
      break;
    case FaultKind::FailLink:
      if (f.between_cubes) {
        add("sip: {}, from_cube: {}, to_cube: {}", value(f.sip), value(f.from_cube), value(f.to_cube));
      } else {
        add("from: {}, to: {}", end_text(f.from), end_text(f.to));
        if (f.side) add("side: {}", to_string(*f.side));
      }
      add("both_directions: {}", f.both_directions);
      break;
    case FaultKind::AddressError: {
      const auto sip = (f.address >> addr::kSipShift) & (addr::kMaxSips - 1);
      const auto cube = (f.address >> addr::kCubeShift) & 0xFF;
      const Addr in_cube = f.address & (addr::kCubeBytes - 1);
      add("sip: {}, cube: {}", sip, cube);
      if (in_cube < addr::kPeWindows) {
        add("offset: {}", units::format_bytes(in_cube));
      } else {
        const Addr in_pes = in_cube - addr::kPeWindows;
        add("pe: {}, offset: {}", in_pes / addr::kPeWindowBytes, units::format_bytes(in_pes % addr::kPeWindowBytes));
      }
      add("bytes: {}, access: {}", units::format_bytes(f.bytes), to_string(f.access));
      break;
    }
  }
  add("at: {}", units::format_time(f.at));
  return keys;
}

}  // namespace

const char* to_string(SipTopology t) {
  switch (t) {
    case SipTopology::Ring1d:
      return "ring_1d";
    case SipTopology::Torus2d:
      return "torus_2d";
    case SipTopology::Mesh2d:
      return "mesh_2d";
    case SipTopology::FullyConnected:
      return "fully_connected";
    case SipTopology::Switch:
      return "switch";
  }
  return "?";
}

const char* to_string(Side side) {
  switch (side) {
    case Side::N:
      return "N";
    case Side::S:
      return "S";
    case Side::E:
      return "E";
    case Side::W:
      return "W";
  }
  return "?";
}

std::vector<std::string> shipped_platforms() {
  std::vector<std::string> out;
  for (const fs::path& folder : config_folders()) {
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(folder, ec)) {
      const fs::path& p = entry.path();
      if (p.extension() == ".yaml" && p.stem() != "ccl" && is_file(p)) out.push_back(p.stem().string());
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string find_config_file(const std::string& path_or_name) {
  if (path_or_name.empty()) throw ConfigError("no platform given; expected a file or the name of a shipped platform");
  if (is_file(path_or_name)) return path_or_name;
  if (is_file(path_or_name + ".yaml")) return path_or_name + ".yaml";
  const bool bare = path_or_name.find('/') == std::string::npos;
  if (bare) {
    for (const fs::path& folder : config_folders()) {
      for (const std::string& name : {path_or_name + ".yaml", path_or_name}) {
        if (is_file(folder / name)) return (folder / name).lexically_normal().string();
      }
    }
  }
  const std::vector<std::string> shipped = shipped_platforms();
  std::string list;
  for (const std::string& s : shipped) list += (list.empty() ? "" : ", ") + s;
  throw ConfigError(fmt::format("{}: no such file, and no shipped platform{} (shipped: {})", path_or_name,
                                did_you_mean(fs::path(path_or_name).stem().string(), shipped), list));
}

SystemConfig load_system_config(const std::string& path, const std::vector<std::string>& sets) {
  const std::string file = find_config_file(path);
  return load(yaml::Document::from_file(file), file, sets, true);
}

SystemConfig parse_system_config(const std::string& yaml_text, const std::string& file_name_for_errors,
                                 const std::vector<std::string>& sets) {
  return load(yaml::Document::from_text(yaml_text, file_name_for_errors), file_name_for_errors, sets, false);
}

std::string to_yaml(const SystemConfig& c) {
  using units::format_bandwidth;
  using units::format_bytes;
  using units::format_frequency;
  using units::format_time;
  std::string out;
  const auto line = [&out](auto format, const auto&... args) {
    out += fmt::format(fmt::runtime(format), args...);
    out += '\n';
  };

  line("name: {}", quote(c.name));
  line("ccl: {}", quote(c.ccl_file));
  line("system:");
  line("  sips:");
  line("    count: {}", c.sips);
  line("    topology: {}", to_string(c.topology));
  if (c.topology == SipTopology::Torus2d || c.topology == SipTopology::Mesh2d) {
    line("    w: {}", c.sip_w);  // elsewhere they follow from the count
    line("    h: {}", c.sip_h);
  }
  line("    double_links: {}", c.double_links);
  line("sip:");
  line("  cube_mesh:");
  line("    w: {}", c.cube_w);
  line("    h: {}", c.cube_h);
  line("  ports:");
  for (const SipPort& p : c.sip_ports) line("    - {{side: {}, cube: {}}}", to_string(p.side), value(p.cube));
  line("cube:");
  line("  pes: {}", c.pes);
  line("pe:");
  line("  clock: {}", format_frequency(c.pe.hertz));
  line("  vector_lanes: {}", c.pe.vector_lanes);
  line("  macs_per_cycle: {}", c.pe.macs_per_cycle);
  line("  free_compute: {}", c.pe.free_compute);
  line("  tcm_capacity: {}", format_bytes(c.pe.tcm_bytes));
  line("  tcm_bandwidth: {}", format_bandwidth(c.pe.tcm_bytes_per_second));
  line("  tcm_latency: {}", format_time(c.pe.tcm_latency));
  line("  dma_bandwidth: {}", format_bandwidth(c.pe.dma_bytes_per_second));
  line("  dma_setup: {}", format_time(c.pe.dma_setup));
  line("  dma_outstanding: {}", c.pe.dma_outstanding);
  line("  sfr_latency: {}", format_time(c.pe.sfr_latency));
  line("  launch_dispatch: {}", format_time(c.pe.launch_dispatch));
  line("  launch_queue_depth: {}", c.pe.launch_queue_depth);
  line("ipcq:");
  line("  queue_pairs: {}", c.ipcq.queue_pairs);
  line("  ring_bytes: {}", format_bytes(c.ipcq.ring_bytes));
  for (const auto& [name, ring] : {std::pair{"cube", c.ipcq.cube}, std::pair{"sip", c.ipcq.sip}}) {
    line("  {}: {{n_slots: {}, slot_bytes: {}}}", name, ring.n_slots, format_bytes(ring.slot_bytes));
  }
  line("  notify_latency: {}", format_time(c.ipcq.notify_latency));
  line("  header_on_wire: {}", c.ipcq.header_on_wire);
  line("hbm:");
  line("  capacity: {}", format_bytes(c.hbm.bytes));
  line("  bandwidth: {}", format_bandwidth(c.hbm.bytes_per_second));
  line("  channels: {}", c.hbm.channels);
  line("  interleave: {}", format_bytes(c.hbm.interleave_bytes));
  line("  latency: {}", format_time(c.hbm.latency));
  line("noc:");
  line("  link_bandwidth: {}", format_bandwidth(c.noc.cube_link.bytes_per_second));
  line("  link_latency: {}", format_time(c.noc.cube_link.latency));
  line("  crossbar_bandwidth: {}", format_bandwidth(c.noc.crossbar.bytes_per_second));
  line("  crossbar_latency: {}", format_time(c.noc.crossbar.latency));
  line("  packet_bytes: {}", format_bytes(c.noc.packet_bytes));
  line("  packet_header: {}", format_bytes(c.noc.packet_header_bytes));
  line("sip_link:");
  line("  bandwidth: {}", format_bandwidth(c.sip_link.bytes_per_second));
  line("  latency: {}", format_time(c.sip_link.latency));
  if (!c.link_overrides.empty()) line("  overrides:");
  for (const LinkOverride& o : c.link_overrides) {
    std::string keys = fmt::format("from: {}, to: {}", end_text(o.from), end_text(o.to));
    if (o.side) keys += fmt::format(", side: {}", to_string(*o.side));
    keys += fmt::format(", both_directions: {}, absent: {}", o.both_directions, o.absent);
    if (o.bytes_per_second) keys += fmt::format(", bandwidth: {}", format_bandwidth(*o.bytes_per_second));
    if (o.latency) keys += fmt::format(", latency: {}", format_time(*o.latency));
    line("    - {{{}}}", keys);
  }
  line("host_link:");
  line("  bandwidth: {}", format_bandwidth(c.host_link.bytes_per_second));
  line("  latency: {}", format_time(c.host_link.latency));
  if (!c.faults.empty()) line("faults:");
  for (const Fault& f : c.faults) line("  - {{{}}}", fault_keys(f));
  line("simulation:");
  line("  functional: {}", c.simulation.functional);
  line("  dmi: {}", c.simulation.dmi);
  line("  route_grants: {}", c.simulation.route_grants);
  line("  pe_quantum: {}", format_time(c.simulation.pe_quantum));
  line("  stall_limit: {}", format_time(c.simulation.stall_limit));
  return out;
}

}  // namespace ahbm
