#include "runtime/distributed/connections.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "models/core/ipcq_protocol.h"
#include "models/core/topology.h"

namespace ahbm::runtime::distributed {

namespace {

using tl::Dir;

constexpr RingShape kSmallRing{2, 1 << 10};  ///< what a new connection shrinks to before it is refused

struct SideNames {
  Side side;
  Dir cube, sip;
  ccl::Egress egress;
};
/// The sides whose connections are made from here; the opposite ends are the neighbours' N and W.
constexpr SideNames kSouth{Side::S, Dir::S, Dir::GlobalS, ccl::Egress::S};
constexpr SideNames kEast{Side::E, Dir::E, Dir::GlobalE, ccl::Egress::E};
constexpr SideNames kNorth{Side::N, Dir::N, Dir::GlobalN, ccl::Egress::N};
constexpr SideNames kWest{Side::W, Dir::W, Dir::GlobalW, ccl::Egress::W};

/// Every SIP of the machine as a group: rank = SIP.
ccl::Group whole_machine(const SystemConfig& config) {
  ccl::Group g;
  for (uint32_t s = 0; s < config.sips; ++s) g.sips.push_back(SipId{s});
  g.cube_w = config.cube_w;
  g.cube_h = config.cube_h;
  g.n_cubes = config.cubes();
  g.topology = config.topology;
  g.sip_w = config.sip_w;
  g.sip_h = config.sip_h;
  g.machine_sips = config.sips;
  g.double_links = config.double_links;
  g.queue_pairs = config.ipcq.queue_pairs;
  return g;
}

ccl::Egress egress_of(Dir dir) {
  for (const SideNames& n : {kEast, kWest, kNorth, kSouth}) {
    if (n.sip == dir) return n.egress;
  }
  return ccl::Egress::Any;
}

std::vector<ccl::Connection> neighbour_connections(const SystemConfig& config, const SipGraph& graph) {
  const CubeMesh mesh(config);
  std::vector<ccl::Connection> out;
  for (uint32_t s = 0; s < config.sips; ++s) {
    for (uint32_t c = 0; c < config.cubes(); ++c) {
      for (const auto& [here, there] : {std::pair{kEast, kWest}, std::pair{kSouth, kNorth}}) {
        if (const auto cube = mesh.neighbour(CubeId{c}, here.side)) {
          out.push_back({s, c, here.cube, s, value(*cube), there.cube});
        }
        const auto sip = graph.neighbour(SipId{s}, here.side);
        if (sip && *sip != SipId{s}) out.push_back({s, c, here.sip, value(*sip), c, there.sip});
      }
    }
  }
  return out;
}

/// How gladly a connection called `wanted` is put on a neighbour's called `installed`: a ring leaves by E (S) and comes
/// in by W (N), so that two connections between the same two SIPs take the two ways at both ends alike.
int preference(Dir wanted, Dir installed) {
  if (wanted == installed) return 0;
  const bool forward = installed == Dir::GlobalE || installed == Dir::GlobalS;
  if (wanted == Dir::Next) return forward ? 1 : 2;
  if (wanted == Dir::Prev) return forward ? 2 : 1;
  return 3;
}

}  // namespace

struct Connections::Impl {
  /// A connection of the group, by both ends.
  struct Installed {
    Dir dir_a = Dir::None, dir_b = Dir::None;
    ccl::QpAssignment qps;
    bool written = false;  ///< the hardware knows it; else it is only taken
  };
  struct Table {
    LinkTable links;
    std::vector<size_t> uses;  ///< indices in `installed`
    bool written = false;
  };
  struct TableKey {
    const ccl::AlgorithmModule* module;
    std::vector<SipId> sips;
    uint32_t cube_w, n_cubes, root, peer;
    std::vector<bool> nothing;                 ///< which of the call's counts are 0
    bool operator<(const TableKey& o) const {  // what is long comes last
      return std::tie(module, cube_w, n_cubes, root, peer, nothing, sips) <
             std::tie(o.module, o.cube_w, o.n_cubes, o.root, o.peer, o.nothing, o.sips);
    }
  };

  Device& device;
  const uint32_t group;
  std::vector<Installed> installed;
  std::multimap<PeLocation, size_t> by_pe;  ///< end -> index in `installed`
  std::map<TableKey, Table> tables;

  Impl(Device& d, uint32_t g) : device(d), group(g) {}

  void add(const std::vector<ccl::Connection>& connections, const std::vector<ccl::QpAssignment>& qps) {
    for (size_t i = 0; i < qps.size(); ++i) {
      by_pe.emplace(qps[i].a.pe, installed.size());
      by_pe.emplace(qps[i].b.pe, installed.size());
      installed.push_back({connections[i].dir, connections[i].peer_dir, qps[i], false});
    }
  }

  struct Found {
    size_t index;
    ccl::QpAssignment qps;  ///< `a` at `from`
  };
  /// A connection between the two ends that the table does not use yet.
  std::optional<Found> find(const ccl::Connection& c, const PeLocation& from, const PeLocation& to,
                            std::vector<bool>& used) const {
    std::optional<size_t> best;
    int best_rank = 0;
    bool best_swapped = false;
    const auto range = by_pe.equal_range(from);
    for (auto it = range.first; it != range.second; ++it) {
      const Installed& i = installed[it->second];
      if (used[it->second]) continue;
      for (const bool swapped : {false, true}) {
        const ccl::QpEnd& own = swapped ? i.qps.b : i.qps.a;
        const ccl::QpEnd& peer = swapped ? i.qps.a : i.qps.b;
        if (own.pe != from || peer.pe != to) continue;
        const int rank = preference(c.dir, swapped ? i.dir_b : i.dir_a);
        if (!best || rank < best_rank || (rank == best_rank && it->second < *best)) {
          best = it->second;
          best_rank = rank;
          best_swapped = swapped;
        }
      }
    }
    if (!best) return std::nullopt;
    used[*best] = true;
    ccl::QpAssignment qps = installed[*best].qps;
    if (best_swapped) std::swap(qps.a, qps.b);
    return Found{*best, qps};
  }

  std::vector<ccl::QpAssignment> make(const ccl::Group& g, const std::vector<ccl::Connection>& connections) {
    IpcqConfig shape = device.config().ipcq;
    ccl::QpAllocator& allocator = device.queue_pairs();
    try {
      return ccl::assign_queue_pairs(allocator, group, g, connections, shape);
    } catch (const std::runtime_error&) {
      shape.cube = shape.sip = kSmallRing;
    }
    try {
      return ccl::assign_queue_pairs(allocator, group, g, connections, shape);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(std::string("connections of process group ") + std::to_string(group) + ": " + e.what());
    }
  }

  /// The table of a call; takes what it lacks. \throws std::runtime_error when that does not fit
  Table& plan(const ccl::AlgorithmModule& module, const ccl::Group& g, const ccl::CollectiveShape& shape) {
    TableKey key{&module, g.sips, g.cube_w, g.n_cubes, shape.root, shape.peer, {}};
    for (const uint64_t n : shape.counts) key.nothing.push_back(n == 0);
    const auto known = tables.find(key);
    if (known != tables.end()) return known->second;

    const std::vector<ccl::Connection> connections = ccl::connections_of(module, g, shape);
    std::vector<ccl::QpAssignment> qps(connections.size());
    Table table{LinkTable(g.n_cubes), std::vector<size_t>(connections.size()), false};
    std::vector<bool> used(installed.size());
    std::vector<size_t> missing;
    std::vector<ccl::Connection> wanted;
    for (size_t i = 0; i < connections.size(); ++i) {
      const ccl::Connection& c = connections[i];
      if (const auto found = find(c, g.location(c.rank, c.cube), g.location(c.peer_rank, c.peer_cube), used)) {
        qps[i] = found->qps;
        table.uses[i] = found->index;
      } else {
        missing.push_back(i);
        wanted.push_back(c);
      }
    }
    if (!missing.empty()) {
      const std::vector<ccl::QpAssignment> fresh = make(g, wanted);
      for (size_t k = 0; k < missing.size(); ++k) {
        qps[missing[k]] = fresh[k];
        table.uses[missing[k]] = installed.size() + k;
      }
      add(wanted, fresh);
    }
    for (size_t i = 0; i < connections.size(); ++i) enter(connections[i], qps[i], table.links);
    return tables.emplace(key, std::move(table)).first->second;
  }

  void enter(const ccl::Connection& c, const ccl::QpAssignment& qps, LinkTable& links) const {
    const auto entry = [&](uint32_t rank, uint32_t cube, Dir dir, const ccl::QpEnd& own, const ccl::QpEnd& peer) {
      links.add(rank, cube,
                {static_cast<uint16_t>(dir), static_cast<uint16_t>(value(own.qp)), device.config().flat_pe(peer.pe),
                 qps.slot_bytes, peer.n_slots});
    };
    if (c.rank != c.peer_rank) {
      for (const ccl::QpEnd* end : {&qps.a, &qps.b}) {
        links.note_ring_between_sips(end->n_slots, ipcq::payload_capacity(qps.slot_bytes));
      }
    }
    entry(c.rank, c.cube, c.dir, qps.a, qps.b);
    entry(c.peer_rank, c.peer_cube, c.peer_dir, qps.b, qps.a);
  }
};

Connections::Connections(Device& device, uint32_t group) : m_impl(std::make_unique<Impl>(device, group)) {}
Connections::~Connections() = default;

void Connections::install_neighbours() {
  Impl& im = *m_impl;
  const SystemConfig& config = im.device.config();
  const std::vector<ccl::Connection> connections = neighbour_connections(config, im.device.system().graph());
  std::vector<ccl::QpAssignment> qps =
      ccl::assign_queue_pairs(im.device.queue_pairs(), im.group, whole_machine(config), connections, config.ipcq);
  for (size_t i = 0; i < qps.size(); ++i) {
    qps[i].a.egress = egress_of(connections[i].dir);
    qps[i].b.egress = egress_of(connections[i].peer_dir);
  }
  try {
    ccl::install(im.device.bus(), qps);
    im.device.flush_bus();
  } catch (...) {
    im.device.queue_pairs().free_group(im.group);
    throw;
  }
  im.add(connections, qps);
  for (Impl::Installed& i : im.installed) i.written = true;
}

size_t Connections::size() const {
  const auto& installed = m_impl->installed;
  return static_cast<size_t>(
      std::count_if(installed.begin(), installed.end(), [](const Impl::Installed& i) { return i.written; }));
}

std::string Connections::reserve(const ccl::AlgorithmModule& module, const ccl::Group& group,
                                 const ccl::CollectiveShape& shape) {
  try {
    m_impl->plan(module, group, shape);
    return {};
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

const LinkTable& Connections::table(const ccl::AlgorithmModule& module, const ccl::Group& group,
                                    const ccl::CollectiveShape& shape, uint32_t& made) {
  Impl& im = *m_impl;
  Impl::Table& table = im.plan(module, group, shape);
  if (table.written) return table.links;
  std::vector<ccl::QpAssignment> fresh;
  for (const size_t i : table.uses) {
    if (!im.installed[i].written) fresh.push_back(im.installed[i].qps);
  }
  if (!fresh.empty()) {
    ccl::install(im.device.bus(), fresh);
    im.device.flush_bus();
  }
  for (const size_t i : table.uses) im.installed[i].written = true;
  table.written = true;
  made += static_cast<uint32_t>(fresh.size());
  return table.links;
}

void Connections::release() {
  Impl& im = *m_impl;
  std::vector<ccl::QpAssignment> qps;
  for (const Impl::Installed& i : im.installed) {
    if (i.written) qps.push_back(i.qps);
  }
  im.installed.clear();
  im.by_pe.clear();
  im.tables.clear();
  try {
    ccl::uninstall(im.device.bus(), qps);
  } catch (const std::runtime_error&) {
    // A PE that refuses is held in reset or cut off: its queue pairs are at their reset values, or are written anew by
    // whoever gets them next.
  }
  im.device.flush_bus();
  im.device.queue_pairs().free_group(im.group);
}

}  // namespace ahbm::runtime::distributed
