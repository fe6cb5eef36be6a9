// Defaults, derived values and every check that needs more than one key.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "models/core/config/raw_config.h"
#include "models/core/config/units.h"
#include "models/core/ipcq_protocol.h"
#include "models/core/topology.h"

namespace ahbm {

namespace {

class Resolver {
 public:
  Resolver(const RawConfig& raw, yaml::Document& document) : m_raw(raw), m_document(document) {}

  SystemConfig run() {
    take_plain_values();
    const bool grid_ok = resolve_grid();
    const bool cubes_ok = resolve_cubes();
    if (cubes_ok) resolve_ports(grid_ok);
    check_memories();
    check_ipcq(grid_ok && cubes_ok);
    // The graph is built from values that have passed; with a wrong one its own complaints would only be echoes.
    if (grid_ok && cubes_ok && m_ports_ok) resolve_overrides();
    if (grid_ok && cubes_ok && m_ports_ok) resolve_faults();
    return m_config;
  }

 private:
  template <typename T, typename U>
  static void take(T& target, const yaml::Item<U>& item) {
    if (item) target = static_cast<T>(*item);
  }
  static void take(LinkParams& target, const RawLink& raw) {
    take(target.bytes_per_second, raw.bandwidth);
    take(target.latency, raw.latency);
  }
  template <typename... Args>
  void error(const yaml::Position& position, fmt::format_string<Args...> format, Args&&... args) {
    m_document.error(position, fmt::format(format, std::forward<Args>(args)...));
  }
  /// The first of these keys that is in the file, else the file.
  template <typename... Items>
  yaml::Position where(const Items&... items) const {
    yaml::Position out = m_document.whole();
    bool found = false;
    ((found = found || (items ? (out = items.position, true) : false)), ...);
    return out;
  }

  /// False when one of these was read wrongly: that has been reported, and checks on its default would only be echoes.
  template <typename... Items>
  static bool usable(const Items&... items) {
    return ((!items.given || items) && ...);
  }

  void take_plain_values() {
    SystemConfig& c = m_config;
    const RawConfig& r = m_raw;
    take(c.sips, r.sips);
    take(c.topology, r.topology);
    take(c.double_links, r.double_links);
    take(c.cube_w, r.cube_w);
    take(c.cube_h, r.cube_h);
    take(c.pes, r.pes);
    take(c.pe.hertz, r.pe_clock);
    take(c.pe.vector_lanes, r.vector_lanes);
    take(c.pe.macs_per_cycle, r.macs_per_cycle);
    take(c.pe.free_compute, r.free_compute);
    take(c.pe.tcm_bytes, r.tcm_capacity);
    take(c.pe.tcm_bytes_per_second, r.tcm_bandwidth);
    take(c.pe.tcm_latency, r.tcm_latency);
    take(c.pe.dma_bytes_per_second, r.dma_bandwidth);
    take(c.pe.dma_setup, r.dma_setup);
    take(c.pe.dma_outstanding, r.dma_outstanding);
    take(c.pe.sfr_latency, r.sfr_latency);
    take(c.pe.launch_dispatch, r.launch_dispatch);
    take(c.pe.launch_queue_depth, r.launch_queue_depth);
    take(c.ipcq.queue_pairs, r.queue_pairs);
    take(c.ipcq.ring_bytes, r.ring_bytes);
    take(c.ipcq.cube.n_slots, r.cube_ring.n_slots);
    take(c.ipcq.cube.slot_bytes, r.cube_ring.slot_bytes);
    take(c.ipcq.sip.n_slots, r.sip_ring.n_slots);
    take(c.ipcq.sip.slot_bytes, r.sip_ring.slot_bytes);
    take(c.ipcq.notify_latency, r.notify_latency);
    take(c.ipcq.header_on_wire, r.header_on_wire);
    take(c.hbm.bytes, r.hbm_capacity);
    take(c.hbm.bytes_per_second, r.hbm_bandwidth);
    take(c.hbm.channels, r.hbm_channels);
    take(c.hbm.interleave_bytes, r.hbm_interleave);
    take(c.hbm.latency, r.hbm_latency);
    take(c.noc.cube_link, r.cube_link);
    take(c.noc.crossbar, r.crossbar);
    take(c.noc.packet_bytes, r.packet_bytes);
    take(c.noc.packet_header_bytes, r.packet_header);
    take(c.sip_link, r.sip_link);
    take(c.host_link, r.host_link);
    take(c.simulation.functional, r.functional);
    take(c.simulation.dmi, r.dmi);
    take(c.simulation.route_grants, r.route_grants);
    take(c.simulation.pe_quantum, r.pe_quantum);
    take(c.simulation.stall_limit, r.stall_limit);
  }

  bool resolve_grid() {
    SystemConfig& c = m_config;
    const RawConfig& r = m_raw;
    if (!usable(r.sips, r.topology, r.sip_w, r.sip_h, r.double_links)) return false;
    const bool two_d = c.topology == SipTopology::Torus2d || c.topology == SipTopology::Mesh2d;
    if (!two_d) {
      c.sip_w = c.sips;
      c.sip_h = 1;
      bool ok = true;
      if (r.sip_w && *r.sip_w != c.sips) {
        error(r.sip_w.position, "'system.sips.w' is {}, but {} of {} SIPs has w = {}, h = 1; leave w and h out",
              *r.sip_w, to_string(c.topology), c.sips, c.sips);
        ok = false;
      }
      if (r.sip_h && *r.sip_h != 1) {
        error(r.sip_h.position, "'system.sips.h' is {}, but {} of {} SIPs has w = {}, h = 1; leave w and h out",
              *r.sip_h, to_string(c.topology), c.sips, c.sips);
        ok = false;
      }
      return ok;
    }
    if (r.sip_w.value.has_value() != r.sip_h.value.has_value()) {
      error(where(r.sip_w, r.sip_h), "'system.sips.{}' is given without 'system.sips.{}'; give both or none",
            r.sip_w ? "w" : "h", r.sip_w ? "h" : "w");
      return false;
    }
    if (r.sip_w) {
      c.sip_w = static_cast<uint32_t>(*r.sip_w);
      c.sip_h = static_cast<uint32_t>(*r.sip_h);
      if (uint64_t{c.sip_w} * c.sip_h == c.sips) return true;
      error(where(r.sip_w), "'system.sips': w * h = {} * {} = {}, but count is {}", c.sip_w, c.sip_h,
            uint64_t{c.sip_w} * c.sip_h, c.sips);
      return false;
    }
    const auto root = static_cast<uint32_t>(std::lround(std::sqrt(static_cast<double>(c.sips))));
    c.sip_w = c.sip_h = root;
    if (root * root == c.sips) return true;
    error(where(r.sips, r.topology), "'system.sips.count' is {}, which is no square: {} needs w and h with w * h = {}",
          c.sips, to_string(c.topology), c.sips);
    return false;
  }

  bool resolve_cubes() {
    if (!usable(m_raw.cube_w, m_raw.cube_h)) return false;
    const uint64_t cubes = uint64_t{m_config.cube_w} * m_config.cube_h;
    if (cubes <= addr::kMaxCubes) return true;
    error(where(m_raw.cube_w, m_raw.cube_h),
          "'sip.cube_mesh': {} * {} = {} cubes, but the address map holds {} in a SIP", m_config.cube_w,
          m_config.cube_h, cubes, addr::kMaxCubes);
    return false;
  }

  size_t ports_on(Side side) const {
    return static_cast<size_t>(std::count_if(m_config.sip_ports.begin(), m_config.sip_ports.end(),
                                             [side](const SipPort& p) { return p.side == side; }));
  }

  void resolve_ports(bool grid_ok) {
    SystemConfig& c = m_config;
    for (const RawSipPort& p : m_raw.ports) {
      if (!p.side || !p.cube) {
        // A wrong value has been reported where it was read; a missing one has not.
        if (!p.side.given) error(p.position, "a port of 'sip.ports' needs a side");
        if (!p.cube.given) error(p.position, "a port of 'sip.ports' needs a cube");
        m_ports_ok = false;
        continue;
      }
      if (*p.cube >= c.cubes()) {
        error(p.cube.position, "'sip.ports': there is no cube {}; a mesh of {} x {} has cubes 0 to {}", *p.cube,
              c.cube_w, c.cube_h, c.cubes() - 1);
        m_ports_ok = false;
        continue;
      }
      c.sip_ports.push_back({*p.side, CubeId{static_cast<uint32_t>(*p.cube)}});
    }
    // Sides that the file does not name keep their port.
    const std::pair<Side, uint32_t> defaults[] = {{Side::E, c.cube_h / 2 * c.cube_w + c.cube_w - 1},
                                                  {Side::W, c.cube_h / 2 * c.cube_w},
                                                  {Side::N, c.cube_w / 2},
                                                  {Side::S, (c.cube_h - 1) * c.cube_w + c.cube_w / 2}};
    if (!m_ports_ok) return;
    for (const auto& [side, cube] : defaults) {
      if (ports_on(side) == 0) c.sip_ports.push_back({side, CubeId{cube}});
    }
    if (!grid_ok || c.topology == SipTopology::FullyConnected || c.topology == SipTopology::Switch) return;
    for (const auto& [a, b, extent] : {std::tuple{Side::E, Side::W, c.sip_w}, std::tuple{Side::N, Side::S, c.sip_h}}) {
      if (extent < 2 || ports_on(a) == ports_on(b)) continue;
      error(m_raw.ports_position,
            "'sip.ports': {} ports on side {} and {} on side {}; the links of {} join the two sides one to one",
            ports_on(a), to_string(a), ports_on(b), to_string(b), to_string(c.topology));
      m_ports_ok = false;
    }
  }

  void check_memories() {
    const HbmConfig& hbm = m_config.hbm;
    if ((hbm.interleave_bytes & (hbm.interleave_bytes - 1)) != 0) {
      error(where(m_raw.hbm_interleave), "'hbm.interleave' must be a power of two, got {}",
            units::format_bytes(hbm.interleave_bytes));
    }
    if (usable(m_raw.hbm_bandwidth, m_raw.hbm_channels) && hbm.bytes_per_second < hbm.channels) {
      error(where(m_raw.hbm_bandwidth, m_raw.hbm_channels),
            "'hbm.bandwidth' of {} leaves less than 1 B/s for each of {} channels",
            units::format_bandwidth(hbm.bytes_per_second), hbm.channels);
    }
  }

  bool check_ring(const char* name, const RingShape& ring, const RawRing& raw) {
    bool ok = true;
    if (ring.slot_bytes <= ipcq::kHeaderBytes || ring.slot_bytes % 8 != 0) {
      error(where(raw.slot_bytes),
            "'ipcq.{}.slot_bytes' must be a multiple of 8 above the {} bytes of the header, got {}", name,
            ipcq::kHeaderBytes, units::format_bytes(ring.slot_bytes));
      ok = false;
    }
    const uint64_t bytes = uint64_t{ring.n_slots} * ring.slot_bytes;
    if (!usable(raw.n_slots, raw.slot_bytes, m_raw.ring_bytes)) return false;
    if (bytes > m_config.ipcq.ring_bytes) {
      error(where(raw.n_slots, raw.slot_bytes, m_raw.ring_bytes),
            "'ipcq.{}': {} slots of {} take {}, but 'ipcq.ring_bytes' is {}", name, ring.n_slots,
            units::format_bytes(ring.slot_bytes), units::format_bytes(bytes),
            units::format_bytes(m_config.ipcq.ring_bytes));
      ok = false;
    }
    return ok;
  }

  /// Kernels work in the TCM behind the rings.
  void check_working_space() {
    const IpcqConfig& q = m_config.ipcq;
    if (!usable(m_raw.ring_bytes, m_raw.tcm_capacity, m_raw.cube_ring.slot_bytes, m_raw.sip_ring.slot_bytes)) return;
    // Two tiles of the shipped kernels (those that convert have two), which an argument block fits too; and one staged
    // message at least.
    constexpr uint64_t kTiles = 2 * (64 << 10);
    const bool sip_slot = q.sip.slot_bytes >= q.cube.slot_bytes;
    const uint64_t slot = (std::max(q.cube.slot_bytes, q.sip.slot_bytes) + 63) / 64 * 64;
    const uint64_t space = std::max(kTiles, slot);
    if (q.ring_bytes + space <= m_config.pe.tcm_bytes) return;
    const uint64_t least = q.ring_bytes + space;
    const std::string remedy =
        least <= addr::kTcmMaxBytes  ? fmt::format("'pe.tcm_capacity' must be at least {}", units::format_bytes(least))
        : space < addr::kTcmMaxBytes ? fmt::format("with the largest 'pe.tcm_capacity', 'ipcq.ring_bytes' may be {}",
                                                   units::format_bytes(addr::kTcmMaxBytes - space))
                                     : std::string("no 'pe.tcm_capacity' is that large");
    error(where(m_raw.ring_bytes, m_raw.tcm_capacity),
          "'ipcq.ring_bytes' is {}, but 'pe.tcm_capacity' is only {}: kernels need {} behind the rings{}; {}",
          units::format_bytes(q.ring_bytes), units::format_bytes(m_config.pe.tcm_bytes), units::format_bytes(space),
          slot > kTiles ? fmt::format(" for a message of 'ipcq.{}.slot_bytes'", sip_slot ? "sip" : "cube") : "",
          remedy);
  }

  void check_ipcq(bool shape_ok) {
    const IpcqConfig& q = m_config.ipcq;
    check_working_space();
    const bool cube_ok = check_ring("cube", q.cube, m_raw.cube_ring);
    const bool sip_ok = check_ring("sip", q.sip, m_raw.sip_ring);
    if (!shape_ok || !cube_ok || !sip_ok || !usable(m_raw.queue_pairs)) return;

    // What joining a process group installs on PE 0 of a cube: its neighbours in the mesh and those of its SIP.
    const auto neighbours = [](uint32_t extent) { return std::min(extent - 1, 2u); };
    const uint64_t cube_qps = neighbours(m_config.cube_w) + neighbours(m_config.cube_h);
    const bool grid = m_config.topology == SipTopology::Torus2d || m_config.topology == SipTopology::Mesh2d;
    uint64_t sip_qps = grid ? neighbours(m_config.sip_w) + neighbours(m_config.sip_h) : neighbours(m_config.sips);
    if (m_config.double_links && m_config.topology != SipTopology::Mesh2d) {
      sip_qps += (m_config.sip_w == 2) + (m_config.sip_h == 2);
    }
    if (cube_qps + sip_qps > q.queue_pairs) {
      error(where(m_raw.queue_pairs),
            "'ipcq.queue_pairs' is {}, but the neighbours of a cube take {} ({} cubes, {} SIPs)", q.queue_pairs,
            cube_qps + sip_qps, cube_qps, sip_qps);
    }
    const uint64_t bytes = cube_qps * q.cube.n_slots * q.cube.slot_bytes + sip_qps * q.sip.n_slots * q.sip.slot_bytes;
    if (bytes > q.ring_bytes) {
      error(where(m_raw.ring_bytes, m_raw.sip_ring.n_slots, m_raw.sip_ring.slot_bytes, m_raw.cube_ring.n_slots,
                  m_raw.cube_ring.slot_bytes),
            "'ipcq.ring_bytes' is {}, but the rings of a cube's neighbours take {} ({} x {} x {} to cubes, {} x {} x "
            "{} to "
            "SIPs)",
            units::format_bytes(q.ring_bytes), units::format_bytes(bytes), cube_qps, q.cube.n_slots,
            units::format_bytes(q.cube.slot_bytes), sip_qps, q.sip.n_slots, units::format_bytes(q.sip.slot_bytes));
    }
  }

  /// Whether the bare topology has a link between two ends (on that side of the first).
  bool adjacent(const SipGraph& bare, SipId from, SipId to, const std::optional<Side>& side) const {
    if (from == SipGraph::kSwitchCore) return bare.topology() == SipTopology::Switch;
    const auto& ports = bare.ports(from);
    return std::any_of(ports.begin(), ports.end(),
                       [&](const SipGraph::Port& p) { return p.peer == to && (!side || p.side == *side); });
  }

  static std::string end_name(uint64_t end) { return end == kSwitchSip ? "the switch" : fmt::format("SIP {}", end); }

  void resolve_overrides() {
    if (m_raw.overrides.empty()) return;
    const SipGraph bare(m_config);
    bool ok = true;
    for (const RawLinkOverride& o : m_raw.overrides) {
      const size_t before = m_document.error_count();
      resolve_override(o, bare);
      ok = ok && m_document.error_count() == before && o.from && o.to;
    }
    if (!ok) return;
    const auto cut = SipGraph(m_config).unreachable();
    if (cut.empty()) return;
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(cut.size(), 4); ++i) {
      list += fmt::format("{}SIP {} to SIP {}", i == 0 ? "" : ", ", value(cut[i].first), value(cut[i].second));
    }
    error(m_raw.overrides.front().position, "'sip_link.overrides' leave no way from {}{}", list,
          cut.size() > 4 ? fmt::format(" and {} more", cut.size() - 4) : "");
  }

  void resolve_override(const RawLinkOverride& o, const SipGraph& bare) {
    for (const auto* end : {&o.from, &o.to}) {
      if (!end->given) {
        error(o.position, "'{}' needs the SIPs from and to", o.path);
        return;
      }
      if (!*end) return;
      if (**end != kSwitchSip && **end >= m_config.sips) {
        error(end->position, "'{}': there is no SIP {}; there are SIPs 0 to {}", end->path, **end, m_config.sips - 1);
        return;
      }
    }
    LinkOverride out;
    out.from = SipId{static_cast<uint32_t>(*o.from)};
    out.to = SipId{static_cast<uint32_t>(*o.to)};
    out.side = o.side.value;
    out.both_directions = o.both_directions.value_or(true);
    out.absent = o.absent.value_or(false);
    out.bytes_per_second = o.link.bandwidth.value;
    out.latency = o.link.latency.value;
    if (o.side && (m_config.topology == SipTopology::FullyConnected || m_config.topology == SipTopology::Switch)) {
      error(o.side.position, "'{}': links of {} have no side", o.side.path, to_string(m_config.topology));
    } else if (!adjacent(bare, out.from, out.to, out.side)) {
      error(o.from.position, "'{}': {} has no link to {}{} in {}", o.path, end_name(*o.from), end_name(*o.to),
            o.side ? fmt::format(" on side {}", to_string(*o.side)) : "", describe_shape());
    } else if (out.absent && (out.bytes_per_second || out.latency)) {
      error(o.position, "'{}' is absent and has a bandwidth or latency as well", o.path);
    } else if (!o.absent && !o.link.bandwidth && !o.link.latency) {
      error(o.position, "'{}' changes nothing; give bandwidth, latency or absent: true", o.path);
    }
    m_config.link_overrides.push_back(out);
  }

  void resolve_faults() {
    for (const RawFault& f : m_raw.faults) {
      const size_t before = m_document.error_count();
      const Fault out = resolve_fault(f);
      if (m_document.error_count() == before && f.kind) m_config.faults.push_back(out);
    }
  }

  /// Refuses keys that a fault of this kind does not have.
  template <typename... Items>
  void refuse_keys(const RawFault& f, const Items&... items) {
    const auto refuse = [&](const auto& item) {
      if (item.given) error(item.position, "'{}' means nothing to a fault of kind {}", item.path, to_string(*f.kind));
    };
    (refuse(items), ...);
  }

  /// A number below `limit`, which must be there.
  template <typename Id>
  Id needed(const RawFault& f, const yaml::Item<uint64_t>& item, const char* key, uint64_t limit) {
    if (!item.given) {
      error(f.position, "'{}': a fault of kind {} needs '{}'", f.path, to_string(*f.kind), key);
    } else if (item && *item >= limit) {
      error(item.position, "'{}' is {}, expected 0 to {}", item.path, *item, limit - 1);
    }
    return Id{static_cast<uint32_t>(item.value_or(0))};
  }

  Fault resolve_fault(const RawFault& f) {
    const SystemConfig& c = m_config;
    Fault out;
    if (!f.kind) {
      if (!f.kind.given) error(f.position, "'{}' needs a kind", f.path);
      return out;
    }
    out.kind = *f.kind;
    out.at = f.at.value_or(0);
    const bool message = out.kind == FaultKind::DropMessage || out.kind == FaultKind::CorruptMessage;
    if (!message) refuse_keys(f, f.qp, f.message);
    if (out.kind != FaultKind::CorruptMessage) refuse_keys(f, f.part);
    if (out.kind != FaultKind::FailLink)
      refuse_keys(f, f.from, f.to, f.side, f.from_cube, f.to_cube, f.both_directions);
    if (out.kind != FaultKind::AddressError) refuse_keys(f, f.offset, f.bytes, f.access);
    if (message) refuse_keys(f, f.at);
    if (message || out.kind == FaultKind::StopPe) {
      out.pe = {needed<SipId>(f, f.sip, "sip", c.sips), needed<CubeId>(f, f.cube, "cube", c.cubes()),
                needed<PeId>(f, f.pe, "pe", c.pes)};
      if (f.qp) {
        out.qp = needed<uint32_t>(f, f.qp, "qp", c.ipcq.queue_pairs);
      }
      out.message = f.message.value_or(1);
      out.part = f.part.value_or(MessagePart::Header);
    } else if (out.kind == FaultKind::FailLink) {
      resolve_failed_link(f, out);
    } else {
      resolve_address_error(f, out);
    }
    return out;
  }

  void resolve_failed_link(const RawFault& f, Fault& out) {
    const SystemConfig& c = m_config;
    refuse_keys(f, f.cube, f.pe);
    out.both_directions = f.both_directions.value_or(true);
    out.between_cubes = f.from_cube.given || f.to_cube.given;
    if (out.between_cubes) {
      refuse_keys(f, f.from, f.to, f.side);
      out.sip = needed<SipId>(f, f.sip, "sip", c.sips);
      out.from_cube = needed<CubeId>(f, f.from_cube, "from_cube", c.cubes());
      out.to_cube = needed<CubeId>(f, f.to_cube, "to_cube", c.cubes());
      const auto apart = [&](uint32_t a, uint32_t b) { return a > b ? a - b : b - a; };
      const uint32_t a = value(out.from_cube), b = value(out.to_cube);
      if (apart(a % c.cube_w, b % c.cube_w) + apart(a / c.cube_w, b / c.cube_w) != 1) {
        error(f.position, "'{}': cubes {} and {} are no neighbours in a mesh of {} x {}", f.path, a, b, c.cube_w,
              c.cube_h);
      }
      return;
    }
    refuse_keys(f, f.sip);
    for (const auto& [item, key] : {std::pair{&f.from, "from"}, std::pair{&f.to, "to"}}) {
      if (!item->given || !*item || **item != kSwitchSip) needed<SipId>(f, *item, key, c.sips);
    }
    if (!f.from || !f.to) return;
    out.from = SipId{static_cast<uint32_t>(*f.from)};
    out.to = SipId{static_cast<uint32_t>(*f.to)};
    out.side = f.side.value;
    if ((value(out.from) >= c.sips && value(out.from) != kSwitchSip) ||
        (value(out.to) >= c.sips && value(out.to) != kSwitchSip))
      return;
    if (!adjacent(SipGraph(c), out.from, out.to, out.side)) {
      error(f.from.position, "'{}': {} has no link to {}{} in {}", f.path, end_name(*f.from), end_name(*f.to),
            f.side ? fmt::format(" on side {}", to_string(*f.side)) : "", describe_shape());
    }
  }

  void resolve_address_error(const RawFault& f, Fault& out) {
    const SystemConfig& c = m_config;
    const SipId sip = needed<SipId>(f, f.sip, "sip", c.sips);
    const CubeId cube = needed<CubeId>(f, f.cube, "cube", c.cubes());
    uint64_t room = c.hbm.bytes;
    Addr base = hbm_address(sip, cube, 0);
    if (f.pe.given) {
      room = addr::kPeWindowBytes;
      base = pe_base({sip, cube, needed<PeId>(f, f.pe, "pe", c.pes)});
    }
    for (const auto& [item, key] : {std::pair{&f.offset, "offset"}, std::pair{&f.bytes, "bytes"}}) {
      if (!item->given) error(f.position, "'{}': a fault of kind address_error needs '{}'", f.path, key);
    }
    if (!f.offset || !f.bytes) return;
    if (*f.offset >= room || *f.bytes > room - *f.offset) {
      error(f.offset.position, "'{}': {} at offset {} lie beyond the {} of the {}", f.path,
            units::format_bytes(*f.bytes), units::format_bytes(*f.offset), units::format_bytes(room),
            f.pe.given ? "PE's window" : "cube's HBM");
    }
    out.address = base + *f.offset;
    out.bytes = *f.bytes;
    out.access = f.access.value_or(FaultAccess::Any);
  }

  std::string describe_shape() const {
    const bool two_d = m_config.topology == SipTopology::Torus2d || m_config.topology == SipTopology::Mesh2d;
    return two_d ? fmt::format("{} of {} x {}", to_string(m_config.topology), m_config.sip_w, m_config.sip_h)
                 : fmt::format("{} of {}", to_string(m_config.topology), m_config.sips);
  }

  const RawConfig& m_raw;
  yaml::Document& m_document;
  SystemConfig m_config;
  bool m_ports_ok = true;
};

}  // namespace

SystemConfig resolve_config(const RawConfig& raw, yaml::Document& document) {
  return Resolver(raw, document).run();
}

}  // namespace ahbm
