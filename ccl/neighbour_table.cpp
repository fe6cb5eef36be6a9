#include "ccl/neighbour_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"

namespace ahbm::ccl {
namespace {

namespace offset = regs::qp::offset;

/// TCM alignment of a ring, so that slots of the usual sizes do not straddle more lines than they must.
constexpr uint64_t kRingAlign = 64;

struct Write {
  Addr offset;
  uint32_t bytes;
  uint64_t value;
};

/// Reset epochs of PEs, each asked once. What carries another one is dropped by the PE as a late message.
class Epochs {
 public:
  explicit Epochs(BusAccess& bus) : m_bus(bus) {}
  uint64_t of(const PeLocation& pe) {
    const auto known = m_known.find(pe);
    if (known != m_known.end()) return known->second;
    uint32_t status = 0;
    m_bus.peek(pe_sfr_address(pe, regs::pe::offset::STATUS), &status, sizeof status);
    return m_known[pe] = regs::pe::STATUS_EPOCH.of(status);
  }

 private:
  BusAccess& m_bus;
  std::map<PeLocation, uint64_t> m_known;
};

/// The configuration registers of an end, ENABLE left out.
std::vector<Write> configuration(const QpEnd& own, const QpEnd& peer, uint32_t slot_bytes, uint64_t peer_epoch) {
  return {
      {offset::PEER_QP, 4, regs::qp::PEER_QP_QP.place(value(peer.qp)) | regs::qp::PEER_QP_EPOCH.place(peer_epoch)},
      {offset::PEER_PE, 8, pe_base(peer.pe)},
      {offset::PEER_RING, 8, tcm_address(peer.pe, peer.ring_offset)},
      {offset::PEER_SLOTS, 4, peer.n_slots},
      {offset::SLOT_BYTES, 4, slot_bytes},
      {offset::RING, 8, own.ring_offset},
      {offset::SLOTS, 4, own.n_slots},
  };
}

uint64_t control(const QpEnd& end, bool enable) {
  const uint64_t word = regs::qp::CTRL_EGRESS.place(static_cast<uint64_t>(end.egress));
  return enable ? word | regs::qp::CTRL_ENABLE.place(1) : word;
}

void put(BusAccess& bus, const QpEnd& end, const Write& w) {
  bus.write(qp_reg_address(end.pe, end.qp, w.offset), &w.value, w.bytes);
}

/// Disables first: a queue pair is never enabled with half a configuration.
void reset(BusAccess& bus, const QpEnd& end, std::exception_ptr& first_error) {
  std::vector<Write> writes = configuration(end, end, 0, 0);
  writes.insert(writes.begin(), {offset::CTRL, 4, 0});
  for (Write w : writes) {
    w.value = 0;
    try {
      put(bus, end, w);
    } catch (const std::runtime_error&) {  // anything else may be the end of this thread
      if (!first_error) first_error = std::current_exception();
    }
  }
}

std::string name(const PeLocation& pe) {
  return fmt::format("sip{}.cube{}.pe{}", value(pe.sip), value(pe.cube), value(pe.pe));
}

}  // namespace

QpAllocator::QpAllocator(const SystemConfig& config)
    : m_queue_pairs(config.ipcq.queue_pairs), m_ring_bytes(config.ipcq.ring_bytes) {}

QpAllocator::Grant QpAllocator::allocate(const PeLocation& pe, uint64_t ring_bytes, uint32_t group) {
  const uint64_t bytes = ceil_div(std::max<uint64_t>(ring_bytes, 1), kRingAlign) * kRingAlign;
  std::vector<Use>& used = m_pes[pe];
  if (used.size() >= m_queue_pairs) fail(pe, ring_bytes, "queue pair");

  uint64_t at = 0;
  auto place = used.begin();
  for (; place != used.end() && place->offset < at + bytes; ++place) at = place->offset + place->bytes;
  if (at + bytes > m_ring_bytes) fail(pe, ring_bytes, "ring");

  std::vector<bool> taken(m_queue_pairs);
  for (const Use& u : used) taken[u.qp] = true;
  const auto qp = static_cast<uint32_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
  used.insert(place, {at, bytes, qp, group});
  return {QpId{qp}, at};
}

void QpAllocator::free(const PeLocation& pe, QpId qp) {
  const auto it = m_pes.find(pe);
  if (it == m_pes.end()) return;
  auto& used = it->second;
  used.erase(std::remove_if(used.begin(), used.end(), [qp](const Use& u) { return u.qp == value(qp); }), used.end());
  if (used.empty()) m_pes.erase(it);
}

void QpAllocator::free_group(uint32_t group) {
  for (auto it = m_pes.begin(); it != m_pes.end();) {
    auto& used = it->second;
    used.erase(std::remove_if(used.begin(), used.end(), [group](const Use& u) { return u.group == group; }),
               used.end());
    it = used.empty() ? m_pes.erase(it) : std::next(it);
  }
}

const std::vector<QpAllocator::Use>& QpAllocator::uses(const PeLocation& pe) const {
  static const std::vector<Use> kNone;
  const auto it = m_pes.find(pe);
  return it == m_pes.end() ? kNone : it->second;
}

uint32_t QpAllocator::queue_pairs_in_use(const PeLocation& pe) const {
  return static_cast<uint32_t>(uses(pe).size());
}

uint64_t QpAllocator::ring_bytes_in_use(const PeLocation& pe) const {
  uint64_t sum = 0;
  for (const Use& u : uses(pe)) sum += u.bytes;
  return sum;
}

uint64_t QpAllocator::queue_pairs_in_use() const {
  uint64_t sum = 0;
  for (const auto& [pe, used] : m_pes) sum += used.size();
  return sum;
}

void QpAllocator::fail(const PeLocation& pe, uint64_t ring_bytes, const char* what) const {
  std::map<uint32_t, std::pair<uint32_t, uint64_t>> groups;
  for (const Use& u : uses(pe)) {
    ++groups[u.group].first;
    groups[u.group].second += u.bytes;
  }
  std::string by;
  for (const auto& [group, figures] : groups) {
    by += fmt::format("{}group {}: {} queue pairs, {} ring bytes", by.empty() ? "" : "; ", group, figures.first,
                      figures.second);
  }
  throw std::runtime_error(
      fmt::format("{} has no room for another {} ({} bytes): {} of {} queue pairs and {} of {} "
                  "ring bytes are in use ({})",
                  name(pe), what, ring_bytes, queue_pairs_in_use(pe), m_queue_pairs, ring_bytes_in_use(pe),
                  m_ring_bytes, by.empty() ? "by nobody" : by));
}

std::vector<QpAssignment> assign_queue_pairs(QpAllocator& allocator, uint32_t group_id, const Group& group,
                                             const std::vector<Connection>& connections, const IpcqConfig& ipcq) {
  std::vector<QpAssignment> out;
  out.reserve(connections.size());
  std::vector<std::pair<PeLocation, QpId>> taken;
  taken.reserve(2 * connections.size());
  RingEgress egress(group);
  try {
    for (const Connection& c : connections) {
      const RingShape& shape = c.rank == c.peer_rank ? ipcq.cube : ipcq.sip;
      const auto end = [&](uint32_t rank, uint32_t cube, tl::Dir dir) {
        const PeLocation pe = group.location(rank, cube);
        const auto grant = allocator.allocate(pe, uint64_t{shape.n_slots} * shape.slot_bytes, group_id);
        taken.emplace_back(pe, grant.qp);
        return QpEnd{pe, grant.qp, grant.ring_offset, shape.n_slots, egress.of(rank, dir)};
      };
      QpAssignment a;
      a.a = end(c.rank, c.cube, c.dir);
      a.b = end(c.peer_rank, c.peer_cube, c.peer_dir);
      a.slot_bytes = shape.slot_bytes;
      out.push_back(a);
    }
  } catch (...) {
    for (const auto& [pe, qp] : taken) allocator.free(pe, qp);
    throw;
  }
  return out;
}

std::vector<launch::LinkEntry> link_table(const SystemConfig& config, const std::vector<Connection>& connections,
                                          const std::vector<QpAssignment>& assignments, uint32_t rank, uint32_t cube) {
  if (connections.size() != assignments.size()) {
    throw std::invalid_argument(
        fmt::format("link table: {} connections but {} assignments", connections.size(), assignments.size()));
  }
  std::vector<launch::LinkEntry> out;
  const auto add = [&](tl::Dir dir, const QpEnd& own, const QpEnd& peer, uint32_t slot_bytes) {
    out.push_back({static_cast<uint16_t>(dir), static_cast<uint16_t>(value(own.qp)), config.flat_pe(peer.pe),
                   slot_bytes, peer.n_slots});
  };
  for (size_t i = 0; i < connections.size(); ++i) {
    const Connection& c = connections[i];
    const QpAssignment& q = assignments[i];
    if (c.rank == rank && c.cube == cube) add(c.dir, q.a, q.b, q.slot_bytes);
    if (c.peer_rank == rank && c.peer_cube == cube) add(c.peer_dir, q.b, q.a, q.slot_bytes);
  }
  return out;
}

void install(BusAccess& bus, const std::vector<QpAssignment>& assignments) {
  std::vector<QpEnd> touched;
  touched.reserve(2 * assignments.size());
  Epochs epochs(bus);
  try {
    for (const QpAssignment& q : assignments) {
      for (const auto& [own, peer] : {std::pair{q.b, q.a}, std::pair{q.a, q.b}}) {
        touched.push_back(own);
        for (const Write& w : configuration(own, peer, q.slot_bytes, epochs.of(peer.pe))) put(bus, own, w);
        put(bus, own, {offset::CTRL, 4, control(own, false)});
      }
    }
    for (const QpAssignment& q : assignments) {
      for (const QpEnd& end : {q.b, q.a}) put(bus, end, {offset::CTRL, 4, control(end, true)});
    }
  } catch (...) {
    std::exception_ptr ignored;  // the first error is the one that matters
    for (const QpEnd& end : touched) reset(bus, end, ignored);
    throw;
  }
}

void uninstall(BusAccess& bus, const std::vector<QpAssignment>& assignments) {
  std::exception_ptr error;
  for (const QpAssignment& q : assignments) {
    for (const QpEnd& end : {q.a, q.b}) reset(bus, end, error);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ahbm::ccl
