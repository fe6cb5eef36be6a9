// A machine with scripted initiators on its spare sockets, and the closed forms that its times are compared with. The
// closed forms are written from the specification, not with the models' own classes.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/core/config/load_config.h"
#include "models/system/system.h"
#include "models/tl/kernel_registry.h"
#include "tests/support/sim_test.h"
#include "tests/support/tlm_stubs.h"

namespace ahbm::test {

inline SystemConfig platform(const std::string& name, const std::vector<std::string>& sets = {}) {
  return load_system_config(std::string(AHBM_SOURCE_DIR "/configs/") + name + ".yaml", sets);
}

class Machine {
 public:
  explicit Machine(const SystemConfig& c, const char* name = "system") : config(c), system(name, config, m_kernels) {}

  /// The scripted initiator on a cube's spare socket, made on first use. \pre before the simulation starts
  ScriptedInitiator& on_cube(uint32_t sip, uint32_t cube) {
    auto& p = m_on_cube[{sip, cube}];
    if (!p) {
      p = std::make_unique<ScriptedInitiator>(sc_core::sc_gen_unique_name("cube_initiator"));
      p->out.bind(system.sip(SipId{sip}).cube(CubeId{cube}).spare_in);
    }
    return *p;
  }
  ScriptedInitiator& on_sip(uint32_t sip) {
    auto& p = m_on_sip[sip];
    if (!p) {
      p = std::make_unique<ScriptedInitiator>(sc_core::sc_gen_unique_name("sip_initiator"));
      p->out.bind(system.sip(SipId{sip}).spare_in);
    }
    return *p;
  }

 private:
  tl::KernelRegistry m_kernels;

 public:
  const SystemConfig config;
  models::System system;

 private:
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<ScriptedInitiator>> m_on_cube;
  std::map<uint32_t, std::unique_ptr<ScriptedInitiator>> m_on_sip;
};

inline Addr hbm(uint32_t sip, uint32_t cube, Addr offset) {
  return hbm_address(SipId{sip}, CubeId{cube}, offset);
}

/// Uncontended way of one message: sum of latencies + largest busy.
class Way {
 public:
  explicit Way(const SystemConfig& config) : m_config(config) {}
  Way& xbar() { return add(m_config.noc.crossbar); }
  Way& mesh(uint32_t hops) {
    for (uint32_t i = 0; i < hops; ++i) add(m_config.noc.cube_link);
    return *this;
  }
  /// From the mesh to the fabric router or back, and into the SIP block: the cube link's bandwidth, no latency.
  Way& port() { return add({m_config.noc.cube_link.bytes_per_second, 0}); }
  Way& sip_link() { return add(m_config.sip_link); }
  Way& host_link() { return add(m_config.host_link); }

  Ps latency() const { return m_latency; }
  uint64_t wire(uint64_t payload) const {
    const uint64_t packets =
        std::max<uint64_t>(1, (payload + m_config.noc.packet_bytes - 1) / m_config.noc.packet_bytes);
    return payload + packets * m_config.noc.packet_header_bytes;
  }
  Ps busy(uint64_t payload) const {
    Ps worst = 0;
    for (const uint64_t b : m_bandwidths) worst = std::max(worst, transfer_ps(wire(payload), b));
    return worst;
  }
  /// The HBM's part of the busy time: an even share of every channel, or the largest one where not all have one.
  static Ps hbm_busy(const SystemConfig& config, Addr offset, uint64_t bytes) {
    std::vector<uint64_t> share(config.hbm.channels, 0);
    for (uint64_t i = 0; i < bytes; ++i) ++share[(offset + i) / config.hbm.interleave_bytes % config.hbm.channels];
    if (*std::min_element(share.begin(), share.end()) != 0) return transfer_ps(bytes, config.hbm.bytes_per_second);
    const uint64_t largest = *std::max_element(share.begin(), share.end());
    return transfer_ps(largest * config.hbm.channels, config.hbm.bytes_per_second);
  }
  /// A posted write into the HBM at the end of this way.
  Ps hbm_write(Addr offset, uint64_t bytes) const {
    return m_latency + m_config.hbm.latency + std::max(busy(bytes), hbm_busy(m_config, offset, bytes));
  }
  /// A read: the header-only request this way, then the data back over as many resources of the same kinds.
  /// \param back the way of the data, which leaves by the output ports of the other direction
  Ps hbm_read(Addr offset, uint64_t bytes, const Way& back) const {
    return m_latency + busy(0) + m_config.hbm.latency + back.m_latency +
           std::max(back.busy(bytes), hbm_busy(m_config, offset, bytes));
  }

 private:
  Way& add(const LinkParams& link) {
    m_latency += link.latency;
    m_bandwidths.push_back(link.bytes_per_second);
    return *this;
  }
  const SystemConfig& m_config;
  Ps m_latency = 0;
  std::vector<uint64_t> m_bandwidths;
};

inline std::vector<uint8_t> pattern(size_t bytes, uint8_t seed = 1) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(seed + i * 7 + (i >> 8));
  return data;
}

}  // namespace ahbm::test
