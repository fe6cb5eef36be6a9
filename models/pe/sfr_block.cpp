#include "models/pe/sfr_block.h"

#include <cstring>

#include "ahbm/registers/pe.h"
#include "models/tlm/process_check.h"
#include "models/tlm/register_access.h"

namespace ahbm::models {

using namespace regs;

SfrBlock::SfrBlock(const sc_core::sc_module_name& name, const SystemConfig& config, const PeLocation& location,
                   SfrHost& host)
    : sc_core::sc_module(name),
      bus_in("bus_in"),
      m_config(config),
      m_location(location),
      m_host(host),
      m_block(pe::kLayout, this) {
  bus_in.register_b_transport(this, &SfrBlock::b_transport);
  bus_in.register_transport_dbg(this, &SfrBlock::transport_dbg);
  identify();
}

void SfrBlock::identify() {
  m_block.set(pe::LOCATION, pe::LOCATION_PE.place(value(m_location.pe)) |
                                pe::LOCATION_CUBE.place(value(m_location.cube)) |
                                pe::LOCATION_SIP.place(value(m_location.sip)) |
                                pe::LOCATION_FLAT_PE.place(m_config.flat_pe(m_location)));
  m_block.set(pe::CONFIG, pe::CONFIG_QUEUE_PAIRS.place(m_config.ipcq.queue_pairs) |
                              pe::CONFIG_LAUNCH_DEPTH.place(m_config.pe.launch_queue_depth) |
                              pe::CONFIG_RING_BYTES.place(m_config.ipcq.ring_bytes));
}

void SfrBlock::reset() {
  m_block.reset();
  m_descriptor_bytes = 0;
  ++m_epoch;
  identify();
  update_irq();
  if (m_tap != nullptr) tell_registers(0);
}

void SfrBlock::observe(const observe::Tap* tap) {
  m_tap = tap;
  m_told.assign(tap != nullptr ? m_block.layout().count : 0, 0);
  if (tap != nullptr) tell_registers(0, true);
}

void SfrBlock::tell_registers(Ps at, bool initial) {
  const BlockLayout& layout = m_block.layout();
  observe::Event e;
  e.kind = observe::EventKind::Register;
  e.initial = initial;
  e.begin = e.end = std::max(at, now_ps());
  for (RegIndex i = 0; i < layout.count; ++i) {
    const uint64_t v = m_block.get(i);
    if (v == m_told[i]) continue;
    m_told[i] = v;
    e.index = i;
    e.value = v;
    e.name = layout.registers[i].name;
    m_tap->tell(e);
  }
}

void SfrBlock::record_error(uint32_t error_bits, Addr address) {
  const Ps now = now_ps();
  m_block.raise(pe::ERROR_BITS, error_bits, now);
  m_block.add(pe::ERROR_COUNT, 1);
  m_block.set(pe::FAULT_ADDR, address);
  raise_interrupt(pe::IRQ_PENDING_ERROR.mask());
  if (m_tap == nullptr) return;
  observe::Event e;
  e.kind = observe::EventKind::Error;
  e.begin = e.end = now;
  e.value = error_bits;
  e.address = address;
  m_tap->tell(e);
}

void SfrBlock::raise_interrupt(uint32_t causes) {
  m_block.raise(pe::IRQ_PENDING, causes, now_ps());
  update_irq();
  if (m_tap != nullptr) tell_registers(0);
}

void SfrBlock::update_irq() {
  m_host.interrupt_level((m_block.get(pe::IRQ_PENDING) & m_block.get(pe::IRQ_ENABLE)) != 0);
}

uint64_t SfrBlock::peek(const RegisterLayout& reg, uint64_t stored) const {
  if (reg.index != pe::STATUS) return stored;
  return pe::STATUS_BUSY.place(m_host.kernel_running()) | pe::STATUS_ERROR.place(m_block.get(pe::ERROR_BITS) != 0) |
         pe::STATUS_QUEUED.place(m_host.launches_queued()) | pe::STATUS_EPOCH.place(m_epoch);
}

void SfrBlock::on_write(const RegisterLayout& reg, uint64_t, uint64_t now, uint64_t) {
  switch (reg.index) {
    case pe::CTRL:
      if (pe::CTRL_RESET.of(now) != 0) {
        m_host.request_reset(m_access_at);
      } else if (pe::CTRL_ABORT.of(now) != 0) {
        m_host.request_abort(m_access_at);
      }
      break;
    case pe::IRQ_PENDING:
    case pe::IRQ_ENABLE:
      update_irq();
      break;
    case pe::IRQ_SET:
      m_block.set(pe::IRQ_SET, 0);
      if (pe::IRQ_SET_SOFT.of(now) != 0) raise_interrupt(pe::IRQ_PENDING_SOFT.mask());
      break;
    default:
      break;
  }
}

RegStatus SfrBlock::on_fifo_write(const RegisterLayout&, const uint8_t* data, uint32_t bytes) {
  if (bytes == sizeof m_descriptor && m_descriptor_bytes != 0) {
    // A whole descriptor does not suffer from somebody's words before it.
    m_descriptor_bytes = 0;
    record_error(pe::ERROR_BITS_KERNEL.mask(), pe_sfr_address(m_location, pe::offset::LAUNCH));
  }
  if (bytes % 8 != 0 || bytes > sizeof m_descriptor - m_descriptor_bytes) return RegStatus::BurstError;
  std::memcpy(m_descriptor + m_descriptor_bytes, data, bytes);
  m_descriptor_bytes += bytes;
  if (m_descriptor_bytes == sizeof m_descriptor) {
    launch::Descriptor d;
    std::memcpy(&d, m_descriptor, sizeof d);
    m_descriptor_bytes = 0;
    m_host.launch(d, m_access_at);
  }
  return RegStatus::Ok;
}

void SfrBlock::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  const Addr offset = trans.get_address() & (addr::kPeWindowBytes - 1);
  if (trans.is_write() && offset == addr::kPeSfr + pe::offset::LAUNCH) {
    // A full launch queue delays whoever writes the descriptor.
    const uint32_t epoch_then = m_epoch;
    while (m_host.launch_queue_full()) {
      require_thread(trans, name());
      sc_core::wait(m_host.launch_space());
      if (m_epoch != epoch_then) {  // what waited at a queue that a reset has emptied is not let into the new one
        trans.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
        transit->head = transit->tail = std::max(transit->tail, now_ps());
        return;
      }
      const Ps now = now_ps();
      transit->head = std::max(transit->head, now);
      transit->tail = std::max(transit->tail, now);
    }
  }
  transit->shift(m_config.pe.sfr_latency);
  m_access_at = transit->tail;
  trans.set_response_status(to_tlm(access_registers(m_block, offset - addr::kPeSfr, trans, transit->tail)));
  if (m_tap != nullptr) tell_registers(transit->tail);
}

unsigned SfrBlock::transport_dbg(tlm::tlm_generic_payload& trans) {
  const Addr offset = (trans.get_address() & (addr::kPeWindowBytes - 1)) - addr::kPeSfr;
  if (trans.is_read()) return m_block.debug_read(offset, trans.get_data_ptr(), trans.get_data_length());
  if (!trans.is_write()) return 0;
  const unsigned n = m_block.debug_write(offset, trans.get_data_ptr(), trans.get_data_length());
  update_irq();
  return n;
}

}  // namespace ahbm::models
