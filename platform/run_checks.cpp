#include "platform/run_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"

namespace ahbm::platform {

namespace {

constexpr uint64_t kGuardBytes = runtime::HbmAllocator::kAlignment;

/// Depends on the address, so that bytes moved from one guard to another do not pass.
uint8_t pattern(Addr address) {
  return static_cast<uint8_t>(0xA5 ^ (address * 29 + (address >> 8) * 7));
}

class Registers {
 public:
  explicit Registers(runtime::Device& device) : m_bridge(device.system().host_bridge) {}

  template <typename T>
  T read(Addr address) const {
    T v = 0;
    if (m_bridge.debug_read(address, &v, sizeof v) != sizeof v) {
      throw std::runtime_error(fmt::format("0x{:x} does not answer a debug read of {} bytes", address, sizeof v));
    }
    return v;
  }

 private:
  models::HostBridge& m_bridge;
};

std::string unclean_queue_pair(const Registers& regs, const PeLocation& pe, QpId qp, const MapShape& shape) {
  namespace offset = ahbm::regs::qp::offset;
  const auto at = [&](Addr o) { return qp_reg_address(pe, qp, o); };
  const std::string name = fmt::format("{} queue pair {}", runtime::to_string(pe), value(qp));
  const auto head = regs.read<uint64_t>(at(offset::HEAD));
  const auto tail = regs.read<uint64_t>(at(offset::TAIL));
  if (head != tail) {
    return fmt::format("{}: {} messages were not taken ({} arrived, {} given back)", name, tail - head, tail, head);
  }
  if (const auto level = regs.read<uint32_t>(at(offset::LEVEL)); level != 0) {
    return fmt::format("{}: {} messages wait", name, level);
  }
  const auto credits = regs.read<uint32_t>(at(offset::CREDITS));
  const auto slots = regs.read<uint32_t>(at(offset::PEER_SLOTS));
  if (credits != slots) return fmt::format("{}: {} of {} credits are there", name, credits, slots);
  const Decoded peer = decode(regs.read<uint64_t>(at(offset::PEER_PE)), shape);
  const PeLocation peer_pe{peer.sip, peer.cube, peer.pe};
  const auto peer_qp =
      QpId{static_cast<uint32_t>(ahbm::regs::qp::PEER_QP_QP.of(regs.read<uint32_t>(at(offset::PEER_QP))))};
  const auto sent = regs.read<uint64_t>(at(offset::SENT));
  const auto arrived = regs.read<uint64_t>(qp_reg_address(peer_pe, peer_qp, offset::TAIL));
  if (sent != arrived) {
    return fmt::format("{}: {} messages sent, {} arrived at {} queue pair {}", name, sent, arrived,
                       runtime::to_string(peer_pe), value(peer_qp));
  }
  return {};
}

}  // namespace

BufferGuards::BufferGuards(runtime::Device& device, SipId sip) : m_device(device), m_sip(sip) {
  for (uint32_t c = 0; c < device.config().cubes(); ++c) {
    const Addr block = device.allocate(sip, CubeId{c}, kGuardBytes);
    m_blocks.push_back(block);
    m_regions.push_back({block, kGuardBytes, {}});
  }
}

BufferGuards::~BufferGuards() {
  for (const Addr block : m_blocks) m_device.free(block);
}

void BufferGuards::enclose(const runtime::Tensor& tensor) {
  const runtime::TensorHandle& handle = tensor.checked_handle();
  const layout::Layout& cut = handle.layout();
  for (uint32_t c = 0; c < cut.cubes(); ++c) {
    const Addr buffer = handle.cube_buffer(m_sip, CubeId{c});
    if (buffer == 0) continue;
    const CubeId cube = handle.shard(m_sip, CubeId{c}, PeId{0}).cube;
    const uint64_t bytes = cut.cube_elements(CubeId{c}) * item_bytes(cut.dtype());
    const std::string name =
        fmt::format("sip{}.cube{}: the buffer of {} bytes at 0x{:x}", value(m_sip), value(cube), bytes, buffer);
    m_regions[value(cube)].where = "before " + name;
    const Addr block = m_device.allocate(m_sip, cube, kGuardBytes);
    m_blocks.push_back(block);
    const uint64_t gap = (kGuardBytes - bytes % kGuardBytes) % kGuardBytes;
    if (gap != 0) m_regions.push_back({buffer + bytes, gap, "behind " + name});
    m_regions.push_back({block, kGuardBytes, "behind " + name});
  }
  if (!m_device.config().simulation.functional) return;
  for (const Region& r : m_regions) {
    std::vector<uint8_t> bytes(r.bytes);
    for (uint64_t i = 0; i < r.bytes; ++i) bytes[i] = pattern(r.begin + i);
    if (m_device.system().host_bridge.debug_write(r.begin, bytes.data(), r.bytes) != r.bytes) {
      throw std::runtime_error(fmt::format("guard bytes at 0x{:x} could not be written", r.begin));
    }
  }
}

std::string BufferGuards::damage() const {
  if (!m_device.config().simulation.functional) return {};
  for (const Region& r : m_regions) {
    std::vector<uint8_t> bytes(r.bytes);
    if (m_device.system().host_bridge.debug_read(r.begin, bytes.data(), r.bytes) != r.bytes) {
      return fmt::format("guard bytes at 0x{:x} cannot be read", r.begin);
    }
    for (uint64_t i = 0; i < r.bytes; ++i) {
      if (bytes[i] == pattern(r.begin + i)) continue;
      return fmt::format("the byte at 0x{:x} was overwritten (0x{:02x} instead of 0x{:02x}), {}", r.begin + i, bytes[i],
                         pattern(r.begin + i), r.where.empty() ? "next to no buffer" : r.where);
    }
  }
  return {};
}

std::string unclean_queues(runtime::Device& device) {
  const SystemConfig& config = device.config();
  const Registers regs(device);
  const MapShape shape{config.sips, config.cubes(), config.pes, config.hbm.bytes, addr::kTcmMaxBytes, addr::kMaxQps};
  for (uint32_t s = 0; s < config.sips; ++s) {
    for (uint32_t c = 0; c < config.cubes(); ++c) {
      for (uint32_t p = 0; p < config.pes; ++p) {
        const PeLocation pe{SipId{s}, CubeId{c}, PeId{p}};
        uint32_t left = device.queue_pairs().queue_pairs_in_use(pe);
        if (left == 0) continue;
        namespace offset = ahbm::regs::pe::offset;
        if (const auto errors = regs.read<uint32_t>(pe_sfr_address(pe, offset::ERROR_COUNT)); errors != 0) {
          return fmt::format("{}: {} errors recorded, ERROR_BITS 0x{:x}", runtime::to_string(pe), errors,
                             regs.read<uint32_t>(pe_sfr_address(pe, offset::ERROR_BITS)));
        }
        for (uint32_t q = 0; q < config.ipcq.queue_pairs && left != 0; ++q) {
          const QpId qp{q};
          const auto ctrl = regs.read<uint32_t>(qp_reg_address(pe, qp, ahbm::regs::qp::offset::CTRL));
          if (ahbm::regs::qp::CTRL_ENABLE.of(ctrl) == 0) continue;
          --left;
          std::string finding = unclean_queue_pair(regs, pe, qp, shape);
          if (!finding.empty()) return finding;
        }
      }
    }
  }
  return {};
}

std::string impossible_figures(const SipGraph& graph, const std::vector<SipId>& group, uint64_t bytes, Ps time) {
  if (group.size() < 2 || bytes == 0) return {};
  double links = 0;  // bytes per second; of a switch the uplinks, as every byte crosses one
  for (const SipGraph::DirectedLink& l : graph.directed_links()) {
    if (l.from != SipGraph::kSwitchCore) links += static_cast<double>(l.link.bytes_per_second);
  }
  const double n = static_cast<double>(group.size());
  // One picosecond more: simulated times are whole ones.
  const double busbw = static_cast<double>(bytes) * 1e12 / static_cast<double>(time + 1) * 2 * (n - 1) / n;
  if (busbw > links / n) {
    return fmt::format(
        "{} bytes in {} ps are a bus bandwidth of {:.3f} GB/s, more than the {:.3f} GB/s per rank that the "
        "links carry",
        bytes, time, busbw / 1e9, links / n / 1e9);
  }
  const Ps bound = graph.all_reduce_bound(bytes, group);
  if (time < bound) {
    return fmt::format("{} bytes took {} ps, less than the lower bound of {} ps", bytes, time, bound);
  }
  return {};
}

}  // namespace ahbm::platform
