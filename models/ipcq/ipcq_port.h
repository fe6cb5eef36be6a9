// What the executor of a PE asks of its queue hardware. The shipped `Ipcq` implements it; another implementation (a
// bridge to RTL, say) can stand in its place.
#pragma once

#include <cstdint>
#include <optional>
#include <tlm>

#include "models/core/host_lines.h"
#include "models/ipcq/queue_pair.h"
#include "models/observe/tap.h"
#include "models/tlm/sockets.h"

namespace ahbm::models {

/// Where a message goes: one slot of the peer's ring.
struct SendSlot {
  Addr address = 0;
  uint32_t peer_qp = 0;
  uint32_t peer_epoch = 0;
  bool has_egress = false;
  Side egress = Side::E;
  uint32_t qp = 0;      ///< the sender's own
  uint64_t number = 0;  ///< of the message since the queue pair was enabled
};

class IpcqListener {
 public:
  virtual ~IpcqListener() = default;
  /// A message of `qp` counts from `ready` on / a credit of `qp` has come and counts from `at` on.
  virtual void on_message(QpId qp, Ps ready) = 0;
  virtual void on_credit(QpId qp, Ps at) = 0;
};

/// What the queue hardware asks of the PE around it.
class IpcqHost {
 public:
  virtual ~IpcqHost() = default;
  /// Records an error: a bit of ERROR_BITS (a regs::pe field mask) and the address that caused it.
  virtual void record_error(uint32_t error_bits, Addr address) = 0;
  /// A message came in on a QP with IRQ_ON_MESSAGE, to be seen at `at`.
  virtual void message_interrupt(Ps at) = 0;
  /// Register-driven send: `bytes` at `tcm_offset` become the next message of `qp`. False: no credit.
  virtual bool send_from_tcm(QpId qp, uint64_t tcm_offset, uint32_t bytes) = 0;
  virtual uint32_t epoch() const = 0;
  virtual void count_stale() = 0;
};

class IpcqPort {
 public:
  virtual ~IpcqPort() = default;
  virtual void set_listener(IpcqListener* listener) = 0;
  virtual bool enabled(QpId qp) const = 0;
  /// When the next send may leave; nothing while no credit is known.
  virtual std::optional<Ps> credit_time(QpId qp) const = 0;
  /// Takes a credit. Address 0: refused (a disabled queue pair, a message longer than a slot), recorded, nothing taken.
  /// \pre credit_time() unless it is to be refused
  virtual SendSlot take_send_slot(QpId qp, uint32_t message_bytes) = 0;
  virtual std::optional<QueuePair::Message> front(QpId qp) const = 0;
  virtual void take(QpId qp) = 0;
  /// Gives a message back and returns its credit to the peer on the control channel.
  /// `at` is now, or when a transfer under way will have read the slot: the credit leaves then.
  virtual void release(QpId qp, uint64_t ticket, Ps at) = 0;
  /// What is sent to the peer ends at a PE of the machine. Otherwise a foreign module may wait there, and only threads
  /// send to it and give its messages back.
  virtual bool reaches_pe(QpId qp) const {
    (void)qp;
    return false;
  }
  enum class Use : uint8_t { Take, Send };  ///< a message is taken and its credit given back, a message is sent
  /// What comes in for `qp` touches here, its listener left out: a message (for who takes), a credit (for who sends).
  virtual void name_touched(uint32_t qp, Use use, HostLines& lines) const { (void)qp, (void)use, (void)lines; }
  /// Queue pairs will be used `turns` (6 or 7) wake-ups later: asks the host for what all of them look at
  /// (models/pe/wake_queue.h).
  virtual void fetch(uint32_t turns) const { (void)turns; }
  /// `qp` will be used at `at`, `turns` (0 to 4) wake-ups later: the same for what that looks at.
  virtual void fetch(QpId qp, Use use, uint32_t turns, Ps at) const { (void)qp, (void)use, (void)turns, (void)at; }
  /// Whether a message would be refused now, and why; nothing is recorded. Asked before its bytes are put into
  /// the slot.
  virtual QpResult would_take(uint32_t qp, uint32_t bytes) const {
    (void)qp, (void)bytes;
    return QpResult::Ok;
  }
  /// A message whose payload is in the slot at the tail: the fused NOTIFY. Times: when the doorbell and the payload's
  /// tail are here.
  virtual tlm::tlm_response_status deliver(uint32_t qp, uint32_t bytes, uint32_t epoch, Ps doorbell_at,
                                           Ps payload_at) = 0;
  /// A plain write into the ring part of the TCM, complete at `at`.
  virtual void payload_written(uint64_t tcm_offset, uint64_t bytes, Ps at) = 0;
  virtual void reset() = 0;
  /// For reports: credits now, messages waiting now.
  virtual uint32_t credits(QpId qp) const = 0;
  virtual uint32_t level(QpId qp) const = 0;
};

/// The queue hardware with its place on the PE's bus: what another implementation derives from.
class IpcqPart : public IpcqPort {
 public:
  /// QP registers and doorbell pages, at global addresses of this PE's window.
  virtual TargetSocket& bus() = 0;
  /// Where credits leave; called at the end of elaboration. `route_epoch` grows whenever granted routes stop being
  /// valid.
  virtual void bind_out(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch) = 0;
  /// What the queues do is told to `tap` (null: to nobody). A part that tells nothing leaves this alone.
  virtual void observe(const observe::Tap* tap) { (void)tap; }
};

}  // namespace ahbm::models
