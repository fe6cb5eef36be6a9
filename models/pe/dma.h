// The PE's DMA: two channels, out of and into the TCM. Issues at the current time and answers with times.
#pragma once

#include <memory>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/progress.h"
#include "models/ipcq/ipcq_port.h"
#include "models/pe/tcm.h"
#include "models/tlm/route.h"

namespace ahbm::models {

class FaultInjector;

struct DmaStats {
  uint64_t transfers = 0;
  uint64_t bytes = 0;
};

class Dma {
 public:
  struct Result {
    Ps taken = 0;  ///< write: the channel has read the source; read: as `done`
    Ps done = 0;   ///< write: the target has the last byte; read: it is in the TCM
    tlm::tlm_response_status status = tlm::TLM_INCOMPLETE_RESPONSE;
  };

  Dma(const SystemConfig& config, PayloadPool& payloads, Tcm& tcm, uint32_t flat_pe, Progress& progress,
      FaultInjector& faults);
  void bind(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch) {
    m_initiator.bind(first, route_epoch, m_config.simulation.route_grants);
  }
  /// The launch that the following transfers belong to.
  void set_launch(uint32_t tag, uint32_t group, uint32_t seq) {
    m_tag = tag;
    m_group = group;
    m_seq = seq;
  }

  /// Earliest time at which another transfer may be issued (at most `dma_outstanding` are under way per channel).
  Ps out_free() const { return m_out_done[m_out_next]; }
  Ps in_free() const { return m_in_done[m_in_next]; }

  /// The bytes lie in a memory of the machine; elsewhere a foreign module may answer, and wait.
  bool reaches_memory(Addr address, uint64_t bytes);

  /// TCM -> `dst`, from `start` on, which may lie ahead. \pre out_free() <= start
  Result write(Ps start, Addr dst, const uint8_t* src, uint64_t bytes);
  /// One message: header and payload at `tcm_offset`; fused with its NOTIFY. `wire_bytes` counts what links carry.
  /// A payload on loan is only copied to its place when others than the target see the transaction.
  /// \param moves_bytes  false: only time passes
  Result send(Ps start, const SendSlot& slot, uint64_t tcm_offset, uint32_t bytes, uint32_t wire_bytes, Route& route,
              bool moves_bytes = true);
  /// `src` -> TCM. \pre in_free() <= now
  /// \param loan  if not null: would do as well (Tcm::ask_loan). Asked for where only the memory sees the transaction
  Result read(Ps now, Addr src, uint8_t* dst, uint64_t bytes, Loan* loan = nullptr);

  /// Something is going to be loaded and sent at `at`, `turns` wake-ups later (models/pe/wake_queue.h).
  void fetch(uint32_t turns, Ps at) const;

  const DmaStats& out_stats() const { return m_out_stats; }
  const DmaStats& in_stats() const { return m_in_stats; }
  Hop& out_hop() { return m_out; }
  Hop& in_hop() { return m_in; }

 private:
  void step(uint32_t& next) const { next = (next + 1) % m_config.pe.dma_outstanding; }
  /// A fault that strikes this message. True: it is lost. An altered copy of `data` takes its place.
  bool strike(const SendSlot& slot, const uint8_t*& data, uint32_t bytes, Ps now);
  PooledPayload& prepare(tlm::tlm_command command, Addr address, uint8_t* data, uint64_t bytes);

  const SystemConfig& m_config;
  PayloadPool& m_payloads;
  Tcm& m_tcm;
  uint32_t m_flat_pe;
  uint32_t m_tag = 0, m_group = 0, m_seq = 0;
  Progress& m_progress;
  FaultInjector& m_faults;
  RoutedInitiator m_initiator;
  uint32_t m_out_next = 0, m_in_next = 0;
  std::unique_ptr<Ps[]> m_out_done, m_in_done;  ///< completion times of the last `dma_outstanding` transfers, a ring
  Hop m_out, m_in;
  DmaStats m_out_stats, m_in_stats;
  RouteCache m_routes;
  std::vector<uint8_t> m_altered;
};

}  // namespace ahbm::models
