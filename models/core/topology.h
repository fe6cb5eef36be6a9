// Who is joined to whom, and which way a message goes: the graph of SIPs and the mesh of cubes inside one, as plain
// classes. The fabric models, the collectives, the command line and the bound of an all-reduce share them.
//
// Orientation: x grows towards E, y grows towards S; sip = y * sip_w + x and cube = y * cube_w + x.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/ids.h"
#include "models/core/time.h"

namespace ahbm {

constexpr Side opposite(Side side) {
  switch (side) {
    case Side::N:
      return Side::S;
    case Side::S:
      return Side::N;
    case Side::E:
      return Side::W;
    default:
      return Side::E;
  }
}

/// The ways between SIPs of a ring_1d, torus_2d or mesh_2d without absent links, by coordinates alone.
class GridRoutes {
 public:
  explicit GridRoutes(const SystemConfig& config)
      : m_topology(config.topology), m_w(config.sip_w), m_h(config.sip_h), m_double_links(config.double_links) {}

  /// Empty when there is none.
  std::optional<SipId> neighbour(SipId sip, Side side) const;
  /// Where a message leaves: shortest way, X before Y, a tie between the two ways round goes to E (or S) unless
  /// `egress_hint` names the other. Empty when here == dest.
  std::optional<Side> next_side(SipId here, SipId dest, std::optional<Side> egress_hint) const;
  /// Whether a row of this extent is closed to a ring. A dimension of 2 has one cable unless two are declared.
  bool wraps(uint32_t extent) const;

 private:
  struct Axis {
    int32_t distance = 0;  ///< signed steps, positive towards E or S
    bool tie = false;      ///< the other way round is equally long
  };
  Axis axis(uint32_t from, uint32_t to, uint32_t extent) const;

  SipTopology m_topology = SipTopology::Ring1d;
  uint32_t m_w = 1, m_h = 1;
  bool m_double_links = false;
};

/// The links between SIPs. Every fabric link is two directed links, one per end; a `Port` is the end from which this
/// SIP sends. Ports of a SIP are numbered; in a grid topology a port also belongs to a side.
class SipGraph {
 public:
  /// In `attachment`: traffic uses the nearest attachment of each cube (fully_connected, switch).
  static constexpr uint32_t kNearestAttachment = 0xFFFFFFFF;
  /// In `peer`: the core of a switch.
  static constexpr SipId kSwitchCore{kSwitchSip};
  /// In `peer_port`: the peer has no link back on this cable (an absent direction).
  static constexpr uint32_t kNoPort = 0xFFFFFFFF;

  struct Port {
    Side side = Side::E;       ///< grid topologies only
    uint32_t lane = 0;         ///< index among the ports of this side (parallel cables); 0 for the others
    SipId peer{};              ///< SIP at the other end, or kSwitchCore
    uint32_t peer_port = 0;    ///< its index in ports(peer); for a switch the core's port number, which is this SIP's
    Side peer_side = Side::W;  ///< grid topologies only
    uint32_t attachment = kNearestAttachment;  ///< index into SystemConfig::sip_ports: where it joins the cube mesh
    LinkParams link;                           ///< of the direction from here to the peer
  };

  struct DirectedLink {
    SipId from{}, to{};  ///< kSwitchCore for the core
    uint32_t port = 0;   ///< in ports(from); the core's port number when `from` is the core
    LinkParams link;
  };

  /// Does not check reachability: `unreachable` does, and so does loading a configuration.
  explicit SipGraph(const SystemConfig& config);

  uint32_t sips() const { return m_sips; }
  SipTopology topology() const { return m_topology; }
  /// Grid topologies: grouped by side in the order E, W, N, S and by lane inside; fully_connected: one per peer in
  /// ascending order; switch: one. An absent link has no port: indices are dense.
  const std::vector<Port>& ports(SipId sip) const { return m_ports[sip]; }

  /// The port that a message for `dest` leaves by. Grid: shortest way, X before Y, a tie between the two ways round
  /// goes to E (or S) unless `egress_hint` names the other; with absent links the shortest remaining way, hint first,
  /// then the port of the regular way, then the lowest number. `lane` chooses among parallel cables (modulo their
  /// number). Empty when here == dest or when there is no way.
  std::optional<uint32_t> next_port(SipId here, SipId dest, std::optional<Side> egress_hint = std::nullopt,
                                    uint32_t lane = 0) const;

  /// The neighbour over the link(s) of one side of a grid topology; empty when there is none.
  std::optional<SipId> neighbour(SipId sip, Side side) const;
  /// First port of a side with this lane (modulo the number of lanes); empty when the side has none.
  std::optional<uint32_t> port_on(SipId sip, Side side, uint32_t lane = 0) const;

  /// SIPs on the way, both ends included (a switch core is not listed); {from} when from == to.
  /// \throws std::runtime_error when there is no way
  std::vector<SipId> path(SipId from, SipId to, std::optional<Side> egress_hint = std::nullopt) const;
  /// Links on the way (a switch counts 2). \throws std::runtime_error when there is no way
  uint32_t hops(SipId from, SipId to) const;

  /// Pairs without a way; empty when every SIP reaches every other. At most one entry per SIP is given.
  std::vector<std::pair<SipId, SipId>> unreachable() const;

  /// Largest number of links between two SIPs of the group / largest sum of link latencies on the way of least latency.
  uint32_t diameter_hops() const;
  Ps diameter_latency(const std::vector<SipId>& group) const;

  std::vector<DirectedLink> directed_links() const;
  /// Links from the switch's core to each SIP; empty for other topologies.
  /// A bandwidth of 0 means absent.
  const std::vector<LinkParams>& switch_downlinks() const { return m_downlinks; }

  /// What no all-reduce of `bytes` over the SIPs of `group` can undercut, whatever the algorithm:
  /// max( 2(n-1)S / sum of the bandwidths of all directed links, S / bandwidth of the poorest member, diameter latency
  /// ), rounded down. A switch counts its uplinks only (every byte crosses one). 0 for a group of one.
  Ps all_reduce_bound(uint64_t bytes, const std::vector<SipId>& group) const;
  Ps all_reduce_bound(uint64_t bytes) const;

 private:
  bool is_grid() const;
  void build_grid(const SystemConfig& config);
  void build_full(const SystemConfig& config);
  void build_switch(const SystemConfig& config);
  const std::vector<uint16_t>& distances_to(SipId dest) const;  ///< over the remaining links, computed on first use
  std::vector<Ps> latencies_from(SipId from) const;

  uint32_t m_sips = 0;
  SipTopology m_topology = SipTopology::Ring1d;
  uint32_t m_w = 1, m_h = 1;
  GridRoutes m_routes;
  bool m_irregular = false;       ///< some link is absent: routes come from distances, not from coordinates
  bool m_uniform_latency = true;  ///< no override changes a latency
  IdVector<SipId, std::vector<Port>> m_ports;
  std::vector<LinkParams> m_downlinks;
  mutable std::vector<std::vector<uint16_t>> m_distances;
};

/// The cubes of one SIP and where its fabric router joins them.
class CubeMesh {
 public:
  explicit CubeMesh(const SystemConfig& config);

  uint32_t cubes() const { return m_w * m_h; }
  std::optional<CubeId> neighbour(CubeId cube, Side side) const;
  /// Dimension order, X first. Empty when here == dest.
  std::optional<Side> next_side(CubeId here, CubeId dest) const;
  /// The next cube on the way; dest itself when here == dest.
  CubeId next_cube(CubeId here, CubeId dest) const;
  uint32_t hops(CubeId from, CubeId to) const;
  uint32_t diameter() const { return (m_w - 1) + (m_h - 1); }

  /// SystemConfig::sip_ports: the links between cube routers and the SIP's fabric router.
  const std::vector<SipPort>& attachments() const { return m_attachments; }
  /// The attachment nearest to a cube, the lowest index on a tie: host traffic, the SIP block, fully_connected, switch.
  uint32_t nearest_attachment(CubeId cube) const;
  CubeId nearest_port_cube(CubeId cube) const { return m_attachments[nearest_attachment(cube)].cube; }
  /// The nearest among those of one side; its `lane` is its index among them. Empty when the side has none.
  std::optional<uint32_t> attachment_on(Side side, CubeId cube) const;
  uint32_t lane_of(uint32_t attachment) const;

 private:
  uint32_t m_w = 1, m_h = 1;
  std::vector<SipPort> m_attachments;
};

}  // namespace ahbm
