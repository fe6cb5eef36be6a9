#include "platform/cli/info.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <vector>

#include "models/core/address_map.h"
#include "models/core/config/units.h"
#include "models/core/topology.h"
#include "platform/cli/command.h"
#include "platform/cli/mesh_info.h"

namespace ahbm::platform {

namespace po = boost::program_options;
using units::format_bandwidth;
using units::format_bytes;
using units::format_time;

namespace {

std::string figures(const LinkParams& link) {
  return fmt::format("{}, {}", format_bandwidth(link.bytes_per_second), format_time(link.latency));
}

std::string plural(uint64_t n, const char* noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

/// Rows or columns to draw: all of a few, else the first and the last ones with a gap (kGap) between.
constexpr uint32_t kGap = 0xFFFFFFFF;
std::vector<uint32_t> visible(uint32_t extent, uint32_t limit) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < extent; ++i) {
    if (extent <= limit || i < limit - 3 || i >= extent - 2) {
      out.push_back(i);
    } else if (out.back() != kGap) {
      out.push_back(kGap);
    }
  }
  return out;
}

/// A grid of boxes. `right(box)` and `below(box)` are the cables towards E and S: number of lanes, 0 for none.
struct Grid {
  uint32_t w = 1, h = 1;
  std::function<uint32_t(uint32_t)> right, below;
  bool wrap_x = false, wrap_y = false;  ///< the last column (row) is joined to the first
};

std::string draw(const Grid& grid) {
  const size_t digits = std::to_string(grid.w * grid.h - 1).size();
  const std::vector<uint32_t> columns = visible(grid.w, 16);
  const std::vector<uint32_t> rows = visible(grid.h, 16);
  const auto number = [digits](uint32_t n) { return fmt::format("{:>{}}", n, digits); };
  const auto horizontal = [](uint32_t lanes) { return lanes == 0 ? "  " : lanes == 1 ? "--" : "=="; };
  const auto vertical = [digits](uint32_t lanes) {
    std::string cell(digits + 2, ' ');
    if (lanes > 0) cell[(digits + 1) / 2] = '|';
    if (lanes > 1) cell[(digits + 1) / 2 + 1] = '|';
    return cell;
  };
  const auto trimmed = [](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
  };

  std::string out;
  const std::string margin(grid.wrap_x ? digits + 6 : 2, ' ');
  const auto vertical_line = [&](uint32_t from_row) {
    std::string line = margin;
    for (const uint32_t x : columns) line += x == kGap ? "     " : vertical(grid.below(from_row * grid.w + x)) + "  ";
    return trimmed(line);
  };
  const auto wrap_labels = [&](uint32_t row) {
    std::string line = margin;
    for (const uint32_t x : columns) {
      const bool joined = x != kGap && grid.below((grid.h - 1) * grid.w + x) > 0;
      line +=
          x == kGap ? "     " : (joined ? '(' + number(row * grid.w + x) + ')' : std::string(digits + 2, ' ')) + "  ";
    }
    return trimmed(line);
  };
  if (grid.wrap_y) out += wrap_labels(grid.h - 1) + vertical_line(grid.h - 1);
  for (const uint32_t y : rows) {
    if (y == kGap) {
      out += margin + "...\n";
      continue;
    }
    std::string line = "  ";
    const uint32_t last = y * grid.w + grid.w - 1;
    if (grid.wrap_x) {
      const uint32_t lanes = grid.right(last);
      line += lanes > 0 ? '(' + number(last) + ')' + horizontal(lanes) : std::string(digits + 4, ' ');
    }
    for (const uint32_t x : columns) {
      if (x == kGap) {
        line += " ... ";
        continue;
      }
      const uint32_t box = y * grid.w + x;
      line += '[' + number(box) + ']';
      const bool gap_next = x + 1 < grid.w && std::find(columns.begin(), columns.end(), x + 1) == columns.end();
      if (x + 1 < grid.w) line += gap_next ? "" : horizontal(grid.right(box));
    }
    if (grid.wrap_x && grid.right(last) > 0) line += horizontal(grid.right(last)) + ('(' + number(y * grid.w) + ')');
    out += trimmed(line);
    if (y + 1 < grid.h) out += vertical_line(y);
  }
  if (grid.wrap_y) out += vertical_line(grid.h - 1) + wrap_labels(0);
  return out;
}

std::string draw_sips(const SystemConfig& c, const SipGraph& graph) {
  std::string out = fmt::format("SIPs: {}, {}", c.sips, to_string(c.topology));
  if (c.sip_h > 1) out += fmt::format(" of {} x {}", c.sip_w, c.sip_h);
  out += fmt::format("; SIP link {} each way\n\n", figures(c.sip_link));
  switch (c.topology) {
    case SipTopology::FullyConnected:
      out += fmt::format("  [0] .. [{}], {}\n", c.sips - 1,
                         c.sips == 1 ? "no links" : fmt::format("each joined to the {} others", c.sips - 1));
      break;
    case SipTopology::Switch:
      out +=
          fmt::format("  [0] .. [{}], each with one link to a non-blocking core: a message crosses two\n", c.sips - 1);
      break;
    default: {
      const auto lanes = [&graph](uint32_t sip, Side side) {
        const SipId from{sip};
        uint32_t n = 0;
        for (const SipGraph::Port& p : graph.ports(from)) n += p.side == side;
        if (n > 0) return n;
        // A cable with only its other direction left is still drawn.
        for (uint32_t s = 0; s < graph.sips(); ++s) {
          for (const SipGraph::Port& p : graph.ports(SipId{s})) n += p.peer == from && p.peer_side == side;
        }
        return n;
      };
      SystemConfig bare = c;
      bare.link_overrides.clear();
      const SipGraph whole(bare);
      Grid grid;
      grid.w = c.sip_w;
      grid.h = c.sip_h;
      grid.right = [&](uint32_t sip) { return lanes(sip, Side::E); };
      grid.below = [&](uint32_t sip) { return lanes(sip, Side::S); };
      grid.wrap_x = whole.port_on(SipId{c.sip_w - 1}, Side::E).has_value();
      grid.wrap_y = whole.port_on(SipId{(c.sip_h - 1) * c.sip_w}, Side::S).has_value();
      out += draw(grid);
    }
  }
  if (!c.link_overrides.empty()) {
    out += "\n  links that differ:\n";
    for (const LinkOverride& o : c.link_overrides) {
      const auto name = [](SipId s) { return s == SipGraph::kSwitchCore ? "switch" : std::to_string(value(s)); };
      LinkParams link = c.sip_link;
      if (o.bytes_per_second) link.bytes_per_second = *o.bytes_per_second;
      if (o.latency) link.latency = *o.latency;
      out += fmt::format("    {} {} {}{}: {}\n", name(o.from), o.both_directions ? "<->" : "->", name(o.to),
                         o.side ? fmt::format(" on side {}", to_string(*o.side)) : "",
                         o.absent ? "absent" : figures(link));
    }
  }
  __extension__ unsigned __int128 total = 0;
  const auto links = graph.directed_links();
  for (const auto& l : links) total += l.link.bytes_per_second;
  out += fmt::format("\n  {}, {} in sum; diameter {}\n", plural(links.size(), "directed link"),
                     format_bandwidth(static_cast<uint64_t>(total)), plural(graph.diameter_hops(), "hop"));
  return out;
}

std::string draw_cubes(const SystemConfig& c, const CubeMesh& mesh) {
  std::string out = fmt::format("Cubes of a SIP: {} x {}; cube link {} per hop each way\n\n", c.cube_w, c.cube_h,
                                figures(c.noc.cube_link));
  Grid grid;
  grid.w = c.cube_w;
  grid.h = c.cube_h;
  grid.right = [&](uint32_t cube) { return mesh.neighbour(CubeId{cube}, Side::E) ? 1u : 0u; };
  grid.below = [&](uint32_t cube) { return mesh.neighbour(CubeId{cube}, Side::S) ? 1u : 0u; };
  out += draw(grid);
  out += "\n  to the SIP's fabric router:";
  for (const SipPort& p : c.sip_ports) out += fmt::format(" {} at cube {},", to_string(p.side), value(p.cube));
  out.back() = '\n';
  out += fmt::format("  host link of a SIP: {}; packets of {} with a header of {}\n", figures(c.host_link),
                     format_bytes(c.noc.packet_bytes), format_bytes(c.noc.packet_header_bytes));
  return out;
}

std::string describe_blocks(const SystemConfig& c) {
  std::string out = fmt::format("Cube: HBM {}, {} over {} of {}, {}; crossbar {} per port; {}\n",
                                format_bytes(c.hbm.bytes), format_bandwidth(c.hbm.bytes_per_second),
                                plural(c.hbm.channels, "channel"), format_bytes(c.hbm.interleave_bytes),
                                format_time(c.hbm.latency), figures(c.noc.crossbar), plural(c.pes, "PE"));
  out += fmt::format("PE:   {}, {} lanes, {} MACs per cycle{}\n", units::format_frequency(c.pe.hertz),
                     c.pe.vector_lanes, c.pe.macs_per_cycle, c.pe.free_compute ? ", arithmetic takes no time" : "");
  out += fmt::format("      TCM {}, {}, {}; DMA 2 x {}, set-up {}, {} outstanding\n", format_bytes(c.pe.tcm_bytes),
                     format_bandwidth(c.pe.tcm_bytes_per_second), format_time(c.pe.tcm_latency),
                     format_bandwidth(c.pe.dma_bytes_per_second), format_time(c.pe.dma_setup), c.pe.dma_outstanding);
  out += fmt::format("      IPCQ {}, rings of {} in the TCM; {} x {} to cubes, {} x {} to SIPs; header {} the wire\n",
                     plural(c.ipcq.queue_pairs, "queue pair"), format_bytes(c.ipcq.ring_bytes), c.ipcq.cube.n_slots,
                     format_bytes(c.ipcq.cube.slot_bytes), c.ipcq.sip.n_slots, format_bytes(c.ipcq.sip.slot_bytes),
                     c.ipcq.header_on_wire ? "on" : "not on");
  return out;
}

std::string describe_addresses(const SystemConfig& c) {
  std::string out;
  const auto range = [&out](const std::string& name, Addr begin, Addr bytes) {
    out += fmt::format("  {:<34} {:#018x} .. {:#018x}  {}\n", name, begin, begin + bytes - 1, format_bytes(bytes));
  };
  const auto block = [&](const PeLocation& l) {
    const std::string cube = fmt::format("sip{}.cube{}", value(l.sip), value(l.cube));
    const std::string pe = fmt::format("{}.pe{}", cube, value(l.pe));
    range(cube + " hbm", hbm_address(l.sip, l.cube, 0), c.hbm.bytes);
    range(pe + " tcm", tcm_address(l, 0), c.pe.tcm_bytes);
    range(pe + " sfr", pe_sfr_address(l, 0), addr::kPeSfrBytes);
    range(pe + " qp registers", qp_reg_address(l, QpId{0}, 0), c.ipcq.queue_pairs * addr::kQpRegBytes);
    range(pe + " doorbells", doorbell_address(l, QpId{0}, 0), c.ipcq.queue_pairs * addr::kDoorbellBytes);
    range(cube + " sfr", cube_base(l.sip, l.cube) + addr::kCubeSfr, addr::kCubeSfrBytes);
    range(fmt::format("sip{} mailbox", value(l.sip)), mailbox_address(l.sip, 0), addr::kMailboxBytes);
  };
  const PeLocation first{};
  const PeLocation last = c.pe_location(c.total_pes() - 1);
  out += "Addresses, first PE:\n";
  block(first);
  if (last != first) {
    out += "Addresses, last PE:\n";
    block(last);
  }
  out += fmt::format("  one SIP further is + {:#x}, one cube + {:#x}, one PE + {:#x}\n", Addr{1} << addr::kSipShift,
                     Addr{1} << addr::kCubeShift, addr::kPeWindowBytes);
  return out;
}

}  // namespace

std::string describe_machine(const SystemConfig& c) {
  const SipGraph graph(c);
  const CubeMesh mesh(c);
  std::string out = fmt::format("{}: {}, {}, {}\n\n", c.name, plural(c.sips, "SIP"),
                                plural(uint64_t{c.sips} * c.cubes(), "cube"), plural(c.total_pes(), "PE"));
  out += draw_sips(c, graph) + '\n';
  out += draw_cubes(c, mesh) + '\n';
  out += describe_blocks(c) + '\n';
  out += describe_addresses(c);
  if (c.sips > 1) {
    out += "\nNo all-reduce over all SIPs is faster than:";
    for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{1} << 20, uint64_t{64} << 20}) {
      out += fmt::format(" {} for {},", format_time(graph.all_reduce_bound(bytes)), format_bytes(bytes));
    }
    out.back() = '\n';
  }
  return out;
}

Command info_command(std::function<std::string(const SystemConfig&)> ranks) {
  const auto run = [ranks = std::move(ranks)](const Arguments& arguments, Io& io) {
    po::options_description options = platform_options();
    options.add_options()("mesh", po::value<std::string>()->value_name("NxM"),
                          "instead: how a device mesh of this shape lies on the SIPs");
    const po::variables_map values = parse_arguments(arguments, options);
    if (values.count("help") != 0) {
      print_command_help(io.out, "info",
                         "Draws the machine as text: SIPs and cubes with their links, what a cube and a PE hold, "
                         "address ranges.",
                         options);
      return kExitOk;
    }
    const SystemConfig config = load_system_config(config_source(values));
    try {
      if (values.count("mesh") != 0) {
        io.out << describe_mesh(config, parse_mesh_shape(values["mesh"].as<std::string>()));
      } else {
        const std::string last = ranks ? '\n' + ranks(config) + '\n' : "";
        io.out << describe_machine(config) << last;
      }
    } catch (const std::invalid_argument& e) {
      throw UsageError(e.what());
    }
    return kExitOk;
  };
  return {"info", "draw a platform: topology, link figures, address ranges", run};
}

}  // namespace ahbm::platform
