// The topology file as it is written: every key optional, every value with its position. Nothing is defaulted or
// checked against anything else here.
#pragma once

#include <string>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/config/yaml_reader.h"

namespace ahbm {

struct RawLink {
  yaml::Item<uint64_t> bandwidth;
  yaml::Item<Ps> latency;
};

struct RawLinkOverride {
  yaml::Position position;
  std::string path;
  yaml::Item<uint64_t> from, to;  ///< kSwitchSip for `switch`
  yaml::Item<Side> side;
  yaml::Item<bool> both_directions, absent;
  RawLink link;
};

struct RawSipPort {
  yaml::Position position;
  yaml::Item<Side> side;
  yaml::Item<uint64_t> cube;
};

struct RawFault {
  yaml::Position position;
  std::string path;
  yaml::Item<FaultKind> kind;
  yaml::Item<uint64_t> sip, cube, pe, qp, message;
  yaml::Item<MessagePart> part;
  yaml::Item<uint64_t> from, to;  ///< kSwitchSip for `switch`
  yaml::Item<Side> side;
  yaml::Item<uint64_t> from_cube, to_cube;
  yaml::Item<bool> both_directions;
  yaml::Item<uint64_t> offset, bytes;
  yaml::Item<FaultAccess> access;
  yaml::Item<Ps> at;
};

struct RawRing {
  yaml::Item<uint64_t> n_slots, slot_bytes;
};

struct RawConfig {
  yaml::Item<std::string> name, ccl;
  yaml::Item<uint64_t> sips, sip_w, sip_h;
  yaml::Item<SipTopology> topology;
  yaml::Item<bool> double_links;
  yaml::Item<uint64_t> cube_w, cube_h;
  yaml::Position ports_position;
  std::vector<RawSipPort> ports;
  bool ports_given = false;
  yaml::Item<uint64_t> pes;

  yaml::Item<uint64_t> pe_clock, vector_lanes, macs_per_cycle;
  yaml::Item<bool> free_compute;
  yaml::Item<uint64_t> tcm_capacity, tcm_bandwidth, dma_bandwidth, dma_outstanding, launch_queue_depth;
  yaml::Item<Ps> tcm_latency, dma_setup, sfr_latency, launch_dispatch;

  yaml::Item<uint64_t> queue_pairs, ring_bytes;
  RawRing cube_ring, sip_ring;
  yaml::Item<Ps> notify_latency;
  yaml::Item<bool> header_on_wire;

  yaml::Item<uint64_t> hbm_capacity, hbm_bandwidth, hbm_channels, hbm_interleave;
  yaml::Item<Ps> hbm_latency;

  RawLink cube_link, crossbar, sip_link, host_link;
  yaml::Item<uint64_t> packet_bytes, packet_header;
  std::vector<RawLinkOverride> overrides;
  std::vector<RawFault> faults;

  yaml::Item<bool> functional, dmi, route_grants;
  yaml::Item<Ps> pe_quantum, stall_limit;
};

/// Reads every known key; mistakes go to the document.
RawConfig read_raw_config(yaml::Document& document);

/// Fills in defaults and checks what depends on several keys; mistakes go to the document.
SystemConfig resolve_config(const RawConfig& raw, yaml::Document& document);

}  // namespace ahbm
