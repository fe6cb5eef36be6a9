#include "models/pe/pe.h"

#include <cstring>

#include "ahbm/registers/pe.h"
#include "models/fault/fault_injector.h"
#include "models/ipcq/ipcq.h"
#include "models/memory/memory_access.h"
#include "models/pe/executor.h"
#include "models/system/parts.h"
#include "models/tlm/classify.h"
#include "models/tlm/process_macro.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

using namespace regs;

// Where granted routes end: the window's state that every message and credit needs, together in few cache lines.
struct Pe::Inbox final : tlm::tlm_fw_transport_if<> {
  Inbox(Impl& owner, const SystemConfig& c, Addr window) : im(owner), config(c), base(window) {}
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) override;
  void access_tcm(tlm::tlm_generic_payload& trans, Transit& transit, uint64_t local);
  static constexpr uint32_t kNoQp = ~uint32_t{0};
  /// \param qp that the transaction is for, as a message (Take) or a credit (Send)
  void give_route(const Transit& transit, uint32_t qp, IpcqPort::Use use);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans) override;
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) override;
  tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload& trans, tlm::tlm_phase& phase,
                                     sc_core::sc_time& delay) override;

  Impl& im;
  const SystemConfig& config;
  const Addr base;
  uint32_t epoch = 0;  ///< of the SFR block
  bool in_reset = false;
  FaultInjector* faults = nullptr;
  IpcqPart* ipcq = nullptr;
  tlm::tlm_fw_transport_if<>* ipcq_bus = nullptr;
};

struct Pe::Impl : IpcqHost, SfrHost {
  Impl(Pe& owner, const SystemServices& around, const PeLocation& where)
      : inbox(*this, *around.config, pe_base(where)),
        tcm(around.config->pe),
        pe(owner),
        config(*around.config),
        location(where),
        flat_pe(config.flat_pe(where)),
        base(pe_base(where)),
        shape(config.map_shape()),
        faults(around.faults != nullptr ? *around.faults : FaultInjector::none()),
        dma(config, *around.payloads, tcm, flat_pe, *around.progress, faults),
        m_compute(make_compute(around, where)),
        m_sfr(make_sfr(around, where)),
        m_ipcq(make_ipcq(around, where)),
        compute(*m_compute),
        sfr(*m_sfr),
        ipcq(*m_ipcq),
        services(around) {
    if (services.wakes == nullptr) m_own_wakes = std::make_unique<WakeQueue>(config.simulation.pe_quantum);
    bind_to_caller(sfr.bus());
    bind_to_caller(ipcq.bus());
    inbox.faults = &faults;
    inbox.ipcq = &ipcq;
    inbox.ipcq_bus = &ipcq.bus().get_base_interface();
    inbox.epoch = sfr.epoch();
  }
  std::unique_ptr<ComputeModel> make_compute(const SystemServices& services, const PeLocation& where);
  std::unique_ptr<SfrPart> make_sfr(const SystemServices& services, const PeLocation& where);
  std::unique_ptr<IpcqPart> make_ipcq(const SystemServices& services, const PeLocation& where);

  // IpcqHost
  void record_error(uint32_t error_bits, Addr address) override { sfr.record_error(error_bits, address); }
  void message_interrupt(Ps at) override {
    const Ps now = now_ps();
    if (at <= now) {
      sfr.raise_interrupt(pe::IRQ_PENDING_IPCQ.mask());
    } else {
      const uint32_t epoch_then = sfr.epoch();
      later(at, [this, epoch_then] {
        if (sfr.epoch() == epoch_then) sfr.raise_interrupt(regs::pe::IRQ_PENDING_IPCQ.mask());
      });
    }
  }
  bool send_from_tcm(QpId qp, uint64_t tcm_offset, uint32_t bytes) override;
  uint32_t epoch() const override { return inbox.epoch; }
  void count_stale() override { sfr.count(regs::pe::STALE_DROPPED); }

  // SfrHost
  bool launch_queue_full() const override { return m_executor != nullptr && m_executor->queue_full(); }
  const sc_core::sc_event& launch_space() const override { return m_executor->space(); }
  void launch(const launch::Descriptor& d, Ps at) override { executor().enqueue(d, at); }
  void request_reset(Ps at) override {
    // A reset that another one has overtaken is over, too.
    later(at, [this, epoch_then = sfr.epoch()] {
      if (sfr.epoch() == epoch_then) reset();
    });
  }
  void request_abort(Ps at) override {
    later(at, [this, epoch_then = sfr.epoch()] {
      if (sfr.epoch() == epoch_then && m_executor) m_executor->abort();
    });
  }
  bool kernel_running() const override { return m_executor != nullptr && m_executor->running(); }
  uint32_t launches_queued() const override { return m_executor != nullptr ? m_executor->queued() : 0; }
  void interrupt_level(bool high) override {
    if (high == irq_level) return;
    irq_level = high;
    if (driving_line) {
      // The process that is running writes the line when this returns.
    } else if (sc_core::sc_get_status() == sc_core::SC_RUNNING) {
      irq_changed.notify();  // in this delta cycle
    } else {
      irq_changed.notify(sc_core::SC_ZERO_TIME);
    }
    if (tap != nullptr) tell(observe::EventKind::Interrupt, high);
  }

  void reset() {
    if (faults.stops_armed()) faults.revive(location, now_ps());
    if (m_executor) m_executor->reset();
    ipcq.reset();
    sfr.reset();
    inbox.epoch = sfr.epoch();
    if (tap != nullptr) tell(observe::EventKind::Reset, 0);
  }
  void tell(observe::EventKind kind, uint64_t level) const {
    observe::Event e;
    e.kind = kind;
    e.begin = e.end = now_ps();
    e.value = level;
    tap->tell(e);
  }
  /// Rare things that take effect when their transaction arrives: one short process each.
  template <typename F>
  void later(Ps at, F f) {
    const Ps now = now_ps();
    sc_core::sc_spawn([at, now, f] {
      if (at > now) sc_core::wait(to_sc_time(at - now));
      f();
    });
  }
  Executor& executor() {
    if (!m_executor) make_executor();
    return *m_executor;
  }
  void make_executor();

  Inbox inbox;
  Tcm tcm;
  Pe& pe;
  const SystemConfig& config;
  const PeLocation location;
  const uint32_t flat_pe;
  const Addr base;
  const MapShape shape;
  FaultInjector& faults;
  Dma dma;
  std::unique_ptr<WakeQueue> m_own_wakes;
  const std::unique_ptr<ComputeModel> m_compute;
  const std::unique_ptr<SfrPart> m_sfr;
  const std::unique_ptr<IpcqPart> m_ipcq;
  ComputeModel& compute;
  SfrPart& sfr;
  IpcqPart& ipcq;
  const SystemServices services;
  std::unique_ptr<Executor> m_executor;  ///< from the first launch on: most PEs of a large machine never run
  bool irq_level = false;
  bool driving_line = false;
  sc_core::sc_event irq_changed{"irq_changed"};  ///< one process drives the line, whoever's access changed it
  const observe::Tap* tap = nullptr;
  Route firmware_route;
};

void Pe::Impl::make_executor() {
  m_executor = std::make_unique<Executor>(
      Executor::Parts{&config, services.kernels, services.payloads, &tcm, &dma, &ipcq, &compute, &sfr, location,
                      services.progress, &faults, m_own_wakes ? m_own_wakes.get() : services.wakes,
                      services.parts != nullptr && services.parts->any()},
      pe.name());
  m_executor->bind_out(pe.xbar_out.operator->(), services.route_epoch);
  m_executor->observe(tap);
}

std::unique_ptr<ComputeModel> Pe::Impl::make_compute(const SystemServices& around, const PeLocation& where) {
  std::unique_ptr<ComputeModel> own;
  if (around.parts != nullptr && around.parts->compute) own = around.parts->compute(where, config.pe);
  return own != nullptr ? std::move(own) : std::make_unique<Compute>(config.pe);
}
std::unique_ptr<SfrPart> Pe::Impl::make_sfr(const SystemServices& around, const PeLocation& where) {
  std::unique_ptr<SfrPart> own;
  if (around.parts != nullptr && around.parts->sfr) own = around.parts->sfr("sfr", where, config, *this);
  return own != nullptr ? std::move(own) : std::make_unique<SfrBlock>("sfr", config, where, *this);
}
std::unique_ptr<IpcqPart> Pe::Impl::make_ipcq(const SystemServices& around, const PeLocation& where) {
  const Ipcq::Parts place{&config, around.payloads, &tcm, this, flat_pe, base, around.progress};
  std::unique_ptr<IpcqPart> own;
  if (around.parts != nullptr && around.parts->ipcq) own = around.parts->ipcq("ipcq", where, place);
  return own != nullptr ? std::move(own) : std::make_unique<Ipcq>("ipcq", place);
}

bool Pe::Impl::send_from_tcm(QpId qp, uint64_t tcm_offset, uint32_t bytes) {
  const Addr regs = qp_reg_address(location, qp, 0);
  if (tcm_offset >= config.pe.tcm_bytes || bytes > config.pe.tcm_bytes - tcm_offset) {
    record_error(regs::pe::ERROR_BITS_BAD_ADDRESS.mask(), regs);
    return false;
  }
  const Ps now = now_ps();
  const auto credit = ipcq.credit_time(qp);
  if (ipcq.enabled(qp) && (!credit || *credit > now)) {
    record_error(regs::pe::ERROR_BITS_OVERRUN.mask(), regs);
    return false;
  }
  const SendSlot slot = ipcq.take_send_slot(qp, bytes);
  if (slot.address == 0) return false;
  if (!ipcq.enabled(qp)) return false;
  const uint32_t wire = config.ipcq.header_on_wire || bytes < ipcq::kHeaderBytes ? bytes : bytes - ipcq::kHeaderBytes;
  const Dma::Result r = dma.send(now, slot, tcm_offset, bytes, wire, firmware_route);
  if (r.status != tlm::TLM_OK_RESPONSE) record_error(regs::pe::ERROR_BITS_BAD_ADDRESS.mask(), slot.address);
  if (tap != nullptr) {
    const Decoded peer = decode(slot.address, shape);
    observe::Event e;
    e.kind = observe::EventKind::Send;
    e.begin = now;
    e.end = r.taken;
    e.bytes = bytes;
    e.index = value(qp);
    e.peer_pe = config.flat_pe({peer.sip, peer.cube, peer.pe});
    e.peer_qp = slot.peer_qp;
    e.number = slot.number;
    tap->tell(e);
  }
  return r.status == tlm::TLM_OK_RESPONSE;
}

Pe::Pe(const sc_core::sc_module_name& name, const SystemServices& services, const PeLocation& location)
    : sc_core::sc_module(name),
      xbar_in("xbar_in"),
      xbar_out("xbar_out"),
      rst_n("rst_n"),
      irq_out("irq_out"),
      m_impl(std::make_unique<Impl>(*this, services, location)) {
  AHBM_HAS_PROCESS(Pe);
  xbar_in.register_b_transport(this, &Pe::b_transport);
  xbar_in.register_transport_dbg(this, &Pe::transport_dbg);
  xbar_in.register_get_direct_mem_ptr(this, &Pe::get_direct_mem_ptr);
  SC_METHOD(on_line);
  dont_initialize();
  sensitive << rst_n << m_impl->irq_changed;
}

Pe::~Pe() = default;

void Pe::end_of_elaboration() {
  tlm::tlm_fw_transport_if<>* first = xbar_out.operator->();
  m_impl->dma.bind(first, m_impl->services.route_epoch);
  m_impl->ipcq.bind_out(first, m_impl->services.route_epoch);
  m_impl->inbox.in_reset = !rst_n.read();
}

void Pe::on_line() {
  m_impl->inbox.in_reset = !rst_n.read();
  m_impl->driving_line = true;
  if (rst_n.negedge()) m_impl->reset();
  m_impl->driving_line = false;
  irq_out.write(m_impl->irq_level);
}

const PeLocation& Pe::location() const {
  return m_impl->location;
}

std::string Pe::waiting_for() const {
  return m_impl->m_executor ? m_impl->m_executor->waiting_for() : std::string();
}

const Executor& Pe::executor() const {
  return m_impl->executor();
}
bool Pe::launched() const {
  return m_impl->m_executor != nullptr;
}
Dma& Pe::dma() {
  return m_impl->dma;
}
ComputeModel& Pe::compute() {
  return m_impl->compute;
}
IpcqPart& Pe::ipcq() {
  return m_impl->ipcq;
}
SfrPart& Pe::sfr() {
  return m_impl->sfr;
}
Tcm& Pe::tcm() {
  return m_impl->tcm;
}
void Pe::observe(const observe::Tap* tap) {
  m_impl->tap = tap;
  if (m_impl->m_executor) m_impl->m_executor->observe(tap);
  m_impl->ipcq.observe(tap);
  m_impl->sfr.observe(tap);
}

void Pe::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  m_impl->inbox.b_transport(trans, delay);
}

void Pe::Inbox::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  trans.set_dmi_allowed(false);
  const Addr local = trans.get_address() - base;
  if (in_reset) {
    trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return;
  }
  if (faults->addresses_armed() &&
      faults->refuses(trans.get_address(), touched_bytes(trans), trans.is_write(), now_ps())) {
    trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return;
  }
  if (local < config.pe.tcm_bytes) return access_tcm(trans, *transit, local);
  Region region = Region::Doorbell;  // a word of one, most often: decoded without the whole map
  if (trans.get_data_length() > sizeof(uint64_t) || local % sizeof(uint64_t) != 0 ||
      local - addr::kPeDoorbells >= uint64_t{config.ipcq.queue_pairs} * addr::kDoorbellBytes) {
    const Decoded d = decode(trans.get_address(), im.shape);
    region = d.region;
    const bool served = region == Region::PeSfr || region == Region::QpRegs || region == Region::Doorbell;
    if (!served || !fits(d, touched_bytes(trans))) {
      answer_hole(trans);
      return;
    }
  }
  const auto status = check_payload(trans, true);
  if (status != tlm::TLM_OK_RESPONSE) {
    trans.set_response_status(status);
    return;
  }
  const bool rings = region == Region::Doorbell;
  give_route(*transit, rings ? static_cast<uint32_t>((local - addr::kPeDoorbells) / addr::kDoorbellBytes) : kNoQp,
             IpcqPort::Use::Send);
  sc_core::sc_time inner = to_sc_time(transit->tail - now_ps());
  if (region == Region::PeSfr) {
    im.sfr.bus().get_base_interface().b_transport(trans, inner);
  } else {
    ipcq_bus->b_transport(trans, inner);
  }
  if (trans.is_read() && trans.is_response_ok()) transit->wire_payload = trans.get_data_length();
}

void Pe::Inbox::give_route(const Transit& transit, uint32_t qp, IpcqPort::Use use) {
  RouteGrant* grant = transit.grant;
  if (grant == nullptr) return;
  grant->target = this;
  grant->window_begin = base;
  grant->window_end = base + addr::kPeWindowBytes;
  grant->gathers = true;
  if (!config.outgrows_host_caches()) return;
  grant->touched.add(this, this + 1);
  if (qp != kNoQp) {
    if (use == IpcqPort::Use::Take) grant->touched.add(&im.tcm.port());
    ipcq->name_touched(qp, use, grant->touched);
    if (im.m_executor != nullptr) im.m_executor->name_touched(QpId{qp}, use, grant->touched);
  }
}

void Pe::Inbox::access_tcm(tlm::tlm_generic_payload& trans, Transit& transit, uint64_t local) {
  const auto status = check_payload(trans, false);
  if (status != tlm::TLM_OK_RESPONSE) {
    trans.set_response_status(status);
    return;
  }
  const uint64_t n = trans.get_data_length();
  if (touched_bytes(trans) > config.pe.tcm_bytes - local) {
    trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
    return;
  }
  if (trans.get_streaming_width() < n) {
    trans.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
    return;
  }
  trans.set_response_status(tlm::TLM_OK_RESPONSE);
  give_route(transit, transit.notify != nullptr ? transit.notify->qp : kNoQp, IpcqPort::Use::Take);
  if (!trans.is_read() && !trans.is_write()) return;
  IpcqNotify* notify = transit.notify;
  if (notify != nullptr && notify->epoch != (epoch & 0xFFFF)) {
    // From before this PE's reset: the slot may belong to somebody else by now.
    im.count_stale();
    return;
  }
  if (trans.is_read()) transit.wire_payload = n;
  // The port is passed by payload bytes; an IPCQ header that is not on the wire is not counted here either.
  im.tcm.port().pass(now_ps(), transit);
  // A message that its queue pair refuses must not reach a slot: what lies there may not have been read.
  const bool carries = trans.get_data_ptr() != nullptr;
  if (carries && (notify == nullptr || ipcq->would_take(notify->qp, notify->bytes) == QpResult::Ok)) {
    if (transit.payload != nullptr) {
      SparseMemory& memory = im.tcm.memory(local, n);
      memory.write(local, trans.get_data_ptr(), ipcq::kHeaderBytes);
      memory.write(local + ipcq::kHeaderBytes, transit.payload, n - ipcq::kHeaderBytes);
    } else {
      move_bytes(im.tcm.memory(local, n), trans, local);
    }
  }
  if (trans.is_write() && trans.get_byte_enable_ptr() == nullptr) {
    if (notify != nullptr) {
      trans.set_response_status(
          ipcq->deliver(notify->qp, notify->bytes, notify->epoch, notify->doorbell.tail, transit.tail));
    } else if (local < config.ipcq.ring_bytes) {
      ipcq->payload_written(local, n, transit.tail);
    }
  }
}

unsigned Pe::transport_dbg(tlm::tlm_generic_payload& trans) {
  Impl& im = *m_impl;
  const Addr local = trans.get_address() - im.base;
  const uint64_t length = trans.get_data_length();
  if (local < im.config.pe.tcm_bytes) {
    const auto n = static_cast<unsigned>(std::min<uint64_t>(length, im.config.pe.tcm_bytes - local));
    if (trans.is_read()) im.tcm.memory(local, n).read(local, trans.get_data_ptr(), n);
    if (trans.is_write()) im.tcm.memory(local, n).write(local, trans.get_data_ptr(), n);
    return n;
  }
  const Decoded d = decode(trans.get_address(), im.shape);
  if (d.region == Region::PeSfr) return im.sfr.bus().get_base_interface().transport_dbg(trans);
  if (d.region == Region::QpRegs || d.region == Region::Doorbell) return im.inbox.ipcq_bus->transport_dbg(trans);
  return 0;
}

bool Pe::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

// Routes are granted for b_transport alone; the rest comes through the socket.
unsigned Pe::Inbox::transport_dbg(tlm::tlm_generic_payload& trans) {
  return im.pe.transport_dbg(trans);
}
bool Pe::Inbox::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}
tlm::tlm_sync_enum Pe::Inbox::nb_transport_fw(tlm::tlm_generic_payload& trans, tlm::tlm_phase& phase,
                                              sc_core::sc_time& delay) {
  return im.pe.xbar_in.get_base_interface().nb_transport_fw(trans, phase, delay);
}

}  // namespace ahbm::models
