// Which way a message goes through the machine, as one plain class that all routers of a System share. Kernel-free.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/core/address_map.h"
#include "models/core/topology.h"
#include "models/tlm/transit.h"

namespace ahbm::models {

/// What a cube's router does with a message.
struct MeshStep {
  enum class To : uint8_t { Local, Neighbour, Fabric, Nowhere };
  To to = To::Nowhere;
  Side side{};              ///< Neighbour
  uint32_t attachment = 0;  ///< Fabric: index into SystemConfig::sip_ports
};

/// What a SIP's fabric router does with a message.
struct FabricStep {
  enum class To : uint8_t { SipBlock, Mesh, Link, Nowhere };
  To to = To::Nowhere;
  uint32_t index = 0;  ///< Mesh: attachment; Link: port in SipGraph::ports
};

/// How a message came to a fabric router, as far as that decides where it goes on.
struct FabricEntry {
  /// By this attachment it enters the cube mesh; kNearestAttachment: the one nearest to its cube.
  uint32_t attachment = SipGraph::kNearestAttachment;
  uint32_t lane = 0;  ///< parallel cable that it keeps to
};

/// A directed link that ends at a SIP: port `port` of `from` (of the switch's core: the SIP's own number).
struct Arrival {
  SipId from{};
  uint32_t port = 0;
  FabricEntry entry;
  LinkParams link;
};

class FabricPlan {
 public:
  explicit FabricPlan(const SystemConfig& config);

  const SipGraph& graph() const { return m_graph; }
  const CubeMesh& mesh() const { return m_mesh; }
  const MapShape& shape() const { return m_shape; }

  /// The SIP and cube fields of an address; empty when it names none of this machine (bit 55 clear included).
  struct Place {
    SipId sip{};
    uint32_t cube = 0;  ///< addr::kSipBlock: the SIP block
  };
  std::optional<Place> place(Addr address) const {
    const auto sip = static_cast<uint32_t>(address >> addr::kSipShift) & (addr::kMaxSips - 1);
    const auto cube = static_cast<uint32_t>(address >> addr::kCubeShift) & 0xFF;
    if (address >> 55 != 1 || sip >= m_shape.sips || (cube >= m_shape.cubes && cube != addr::kSipBlock)) return {};
    return Place{SipId{sip}, cube};
  }

  /// Inside the mesh X goes before Y; what leaves the SIP goes to the attachment of the side it leaves by, the nearest
  /// one when there are several (or when the topology has no sides). Every router on the way decides the same.
  MeshStep mesh_step(SipId sip, CubeId here, Addr address, const Transit& t) const;

  FabricStep fabric_step(SipId sip, const FabricEntry& from, Addr address, const Transit& t) const;

  FabricEntry from_mesh(uint32_t attachment) const { return {attachment, m_mesh.lane_of(attachment)}; }
  /// Every link that ends at a SIP, one-way ones included, in the order of their senders and their ports.
  const std::vector<Arrival>& arrivals(SipId sip) const { return m_arrivals[sip]; }

 private:
  FabricEntry from_link(const SipGraph::Port& port) const;
  static std::optional<Side> hint(const Transit& t) {
    return t.has_egress ? std::optional<Side>(t.egress) : std::nullopt;
  }

  SipGraph m_graph;
  CubeMesh m_mesh;
  MapShape m_shape;
  std::vector<uint32_t> m_nearest;                 ///< by cube
  std::vector<std::optional<uint32_t>> m_on_side;  ///< by side * cubes + cube
  IdVector<SipId, std::vector<Arrival>> m_arrivals;
};

}  // namespace ahbm::models
