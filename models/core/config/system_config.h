// The resolved, validated configuration of a machine. Passed by const reference to every module; no module reads YAML.
// Defaults here are the ones of the specification, so `SystemConfig{}` is the shipped `ring4`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/core/address_map.h"
#include "models/core/fault.h"
#include "models/core/ids.h"
#include "models/core/time.h"

namespace ahbm {

enum class SipTopology : uint8_t { Ring1d, Torus2d, Mesh2d, FullyConnected, Switch };
const char* to_string(SipTopology t);  ///< ring_1d, torus_2d, mesh_2d, fully_connected, switch

enum class Side : uint8_t { N, S, E, W };
const char* to_string(Side side);

struct LinkParams {
  uint64_t bytes_per_second = 0;
  Ps latency = 0;
};

/// Stands for the core of a switch where a link's end is named.
constexpr uint32_t kSwitchSip = 0xFFFFFFFF;

/// One directed or undirected link that differs from its kind's parameters.
struct LinkOverride {
  SipId from{}, to{};        ///< SipId{kSwitchSip}: the core of a switch
  std::optional<Side> side;  ///< only the cable(s) on this side of `from`; all between the two when unset
  bool both_directions = true;
  bool absent = false;
  std::optional<uint64_t> bytes_per_second;
  std::optional<Ps> latency;
};

/// Where a SIP link of one side attaches to the cube mesh.
struct SipPort {
  Side side{};
  CubeId cube{};
};

struct PeConfig {
  uint64_t hertz = 1500000000;
  uint32_t vector_lanes = 64;      ///< elements per cycle, of every dtype alike
  uint32_t macs_per_cycle = 4096;  ///< bf16
  bool free_compute = false;       ///< arithmetic takes no simulated time (comparison with other simulators)
  uint64_t tcm_bytes = 4 << 20;
  uint64_t tcm_bytes_per_second = 768000000000;
  Ps tcm_latency = ns(4);
  uint64_t dma_bytes_per_second = 256000000000;  ///< each of the two channels
  Ps dma_setup = ns(20);
  uint32_t dma_outstanding = 8;
  Ps sfr_latency = ns(10);
  Ps launch_dispatch = ns(100);
  uint32_t launch_queue_depth = 16;
};

struct RingShape {
  uint32_t n_slots = 0;
  uint32_t slot_bytes = 0;  ///< header included
};

struct IpcqConfig {
  uint32_t queue_pairs = 64;
  uint64_t ring_bytes = 3 << 20;  ///< of the TCM, at its start
  RingShape cube{4, 4 << 10};
  RingShape sip{8, 16 << 10};
  Ps notify_latency = ns(4);
  bool header_on_wire = true;
};

struct HbmConfig {
  uint64_t bytes = addr::kHbmMaxBytes;
  uint64_t bytes_per_second = 819200000000;  ///< over all channels
  uint32_t channels = 16;
  uint32_t interleave_bytes = 256;
  Ps latency = ns(90);
};

struct NocConfig {
  LinkParams cube_link{256000000000, ns(4)};  ///< latency: per hop, router included
  LinkParams crossbar{1024000000000, ns(2)};  ///< per port
  uint32_t packet_bytes = 1024;
  uint32_t packet_header_bytes = 16;
};

struct SimulationConfig {
  bool functional = true;
  bool dmi = true;
  bool route_grants = true;
  Ps pe_quantum = 0;  ///< how far a PE may run ahead of the simulated time (temporal decoupling); 0: not at all
  Ps stall_limit = us(1000);
};

struct SystemConfig {
  std::string name = "ring4";
  uint32_t sips = 4;
  SipTopology topology = SipTopology::Ring1d;
  uint32_t sip_w = 4, sip_h = 1;  ///< grid of SIPs; sip = y * w + x
  bool double_links = false;
  std::vector<LinkOverride> link_overrides;
  uint32_t cube_w = 4, cube_h = 4;
  std::vector<SipPort> sip_ports;  ///< resolved: every port of a SIP, in the order of the file; never empty
  uint32_t pes = 4;                ///< per cube
  PeConfig pe;
  IpcqConfig ipcq;
  HbmConfig hbm;
  NocConfig noc;
  LinkParams sip_link{100000000000, ns(250)};
  LinkParams host_link{64000000000, ns(600)};
  SimulationConfig simulation;
  std::vector<Fault> faults;
  std::string ccl_file;  ///< absolute or relative to the working directory; empty when none is named

  uint32_t cubes() const { return cube_w * cube_h; }
  uint32_t total_pes() const { return sips * cubes() * pes; }
  /// The state of so many busy PEs fits the host's caches, more or less. Beyond that it pays to fetch it ahead.
  static constexpr uint32_t kPesInHostCaches = 512;
  uint32_t pes_in_host_caches = kPesInHostCaches;  ///< tests lower it; not in files
  bool outgrows_host_caches() const { return total_pes() > pes_in_host_caches; }
  MapShape map_shape() const { return {sips, cubes(), pes, hbm.bytes, pe.tcm_bytes, ipcq.queue_pairs}; }
  uint32_t flat_pe(const PeLocation& l) const { return (value(l.sip) * cubes() + value(l.cube)) * pes + value(l.pe); }
  PeLocation pe_location(uint32_t flat) const {
    return {SipId{flat / (cubes() * pes)}, CubeId{flat / pes % cubes()}, PeId{flat % pes}};
  }
};

}  // namespace ahbm
