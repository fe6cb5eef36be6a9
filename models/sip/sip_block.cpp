#include "models/sip/sip_block.h"

#include <algorithm>
#include <cstring>

#include "models/tlm/classify.h"
#include "models/tlm/process_macro.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

namespace {
constexpr uint32_t kSlotBytes = 8;

/// Gives the payload another address for the time of a call.
class AddressScope {
 public:
  AddressScope(tlm::tlm_generic_payload& trans, Addr address) : m_trans(trans), m_old(trans.get_address()) {
    trans.set_address(address);
  }
  ~AddressScope() { m_trans.set_address(m_old); }
  AddressScope(const AddressScope&) = delete;
  AddressScope& operator=(const AddressScope&) = delete;

 private:
  tlm::tlm_generic_payload& m_trans;
  const Addr m_old;
};
}  // namespace

SipBlock::SipBlock(const sc_core::sc_module_name& name, const SystemServices& services, SipId sip)
    : sc_core::sc_module(name),
      fabric_in("fabric_in"),
      fabric_out("fabric_out"),
      host_out("host_out"),
      management_cpu_in("management_cpu_in", Binding::Optional),
      boot_rom_out("boot_rom_out"),
      timer_out("timer_out"),
      interrupt_controller_out("interrupt_controller_out"),
      uart_out("uart_out"),
      firmware_ram_out("firmware_ram_out"),
      rst_n("rst_n"),
      m_base(sip_block_base(sip)),
      m_shape(services.config->map_shape()),
      m_services(services),
      m_mailbox(addr::kMailboxBytes) {
  fabric_in.register_b_transport(this, &SipBlock::b_transport);
  fabric_in.register_transport_dbg(this, &SipBlock::transport_dbg);
  fabric_in.register_get_direct_mem_ptr(this, &SipBlock::get_direct_mem_ptr);
  management_cpu_in.register_b_transport(this, &SipBlock::cpu_b_transport);
  management_cpu_in.register_transport_dbg(this, &SipBlock::cpu_transport_dbg);
  management_cpu_in.register_get_direct_mem_ptr(this, &SipBlock::cpu_get_direct_mem_ptr);
  AHBM_HAS_PROCESS(SipBlock);
  SC_METHOD(on_reset);
  sensitive << rst_n;
}

void SipBlock::on_reset() {
  const bool in_reset = !rst_n.read();
  if (in_reset && !m_in_reset) {
    m_mailbox.clear();
    ++*m_services.route_epoch;
  }
  m_in_reset = in_reset;
}

bool SipBlock::is_here(Addr address) const {
  return address >> addr::kCubeShift == m_base >> addr::kCubeShift;
}

tlm::tlm_fw_transport_if<>* SipBlock::place(Region region) {
  switch (region) {
    case Region::BootRom:
      return boot_rom_out.get_interface(0);
    case Region::Timer:
      return timer_out.get_interface(0);
    case Region::InterruptController:
      return interrupt_controller_out.get_interface(0);
    case Region::Uart:
      return uart_out.get_interface(0);
    case Region::FirmwareRam:
      return firmware_ram_out.get_interface(0);
    default:
      return nullptr;
  }
}

void SipBlock::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_shape, *transit);
  trans.set_dmi_allowed(false);
  const Decoded d = is_here(trans.get_address()) ? decode(trans.get_address(), m_shape) : Decoded{};
  if (!fits(d, touched_bytes(trans))) return answer_hole(trans);
  if (d.region == Region::Mailbox) return mailbox_access(trans, *transit, d.offset);
  tlm::tlm_fw_transport_if<>* device = place(d.region);
  if (device == nullptr) return answer_hole(trans);
  walk_foreign(trans, *transit, nullptr, nullptr, *device);
}

void SipBlock::mailbox_access(tlm::tlm_generic_payload& trans, Transit& transit, Addr offset) {
  const uint32_t n = trans.get_data_length();
  auto status = check_payload(trans, true);
  if (m_in_reset) {
    status = tlm::TLM_GENERIC_ERROR_RESPONSE;
  } else if (status == tlm::TLM_OK_RESPONSE) {
    const bool natural = (n == 1 || n == 2 || n == 4 || n == 8) && offset % n == 0;
    if (!natural || trans.get_streaming_width() < n || (trans.is_write() && n != kSlotBytes)) {
      status = tlm::TLM_BURST_ERROR_RESPONSE;
    } else if (const unsigned char* enables = trans.get_byte_enable_ptr()) {
      const bool all = std::all_of(enables, enables + std::min(n, trans.get_byte_enable_length()),
                                   [](unsigned char e) { return e == TLM_BYTE_ENABLED; });
      if (!all) status = tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE;
    }
  }
  trans.set_response_status(status);
  if (status != tlm::TLM_OK_RESPONSE) return;

  if (RouteGrant* grant = transit.grant) {
    grant->target = &fabric_in.get_base_interface();
    grant->window_begin = m_base + addr::kMailbox;
    grant->window_end = grant->window_begin + addr::kMailboxBytes;
  }
  const Ps done = transit.tail + m_services.config->pe.sfr_latency;
  transit.head = transit.tail = done;
  if (trans.is_read()) {
    m_mailbox.read(offset, trans.get_data_ptr(), n);
    transit.wire_payload = n;
  } else if (trans.is_write()) {
    m_mailbox.write(offset, trans.get_data_ptr(), n);
    ++m_completions;
    forward(trans, done);
  }
}

void SipBlock::forward(const tlm::tlm_generic_payload& trans, Ps when) {
  unsigned char slot[kSlotBytes];
  std::memcpy(slot, trans.get_data_ptr(), kSlotBytes);
  PooledPayload& message = m_services.payloads->acquire();
  message.set_command(tlm::TLM_WRITE_COMMAND);
  message.set_address(trans.get_address());
  message.set_data_ptr(slot);
  message.set_data_length(kSlotBytes);
  message.set_streaming_width(kSlotBytes);
  Transit& transit = message.transit.transit;
  transit.head = transit.tail = when;
  transit.wire_payload = kSlotBytes;
  transit.channel = Channel::Control;
  call_next(*host_out.get_interface(0), message, transit);
  if (m_services.progress != nullptr) m_services.progress->note_until(transit.tail);
  message.release();
}

unsigned SipBlock::transport_dbg(tlm::tlm_generic_payload& trans) {
  const Decoded d = is_here(trans.get_address()) ? decode(trans.get_address(), m_shape) : Decoded{};
  if (d.region == Region::Mailbox && trans.get_data_ptr() != nullptr) {
    const uint64_t n = std::min<uint64_t>(trans.get_data_length(), d.room);
    // No side effects: a debug write changes the slot and sends nothing.
    if (trans.is_write()) m_mailbox.write(d.offset, trans.get_data_ptr(), n);
    if (trans.is_read()) m_mailbox.read(d.offset, trans.get_data_ptr(), n);
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
    return static_cast<unsigned>(n);
  }
  tlm::tlm_fw_transport_if<>* device = place(d.region);
  if (device != nullptr) return device->transport_dbg(trans);
  answer_hole(trans);
  return 0;
}

bool SipBlock::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

void SipBlock::cpu_b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  const Addr address = trans.get_address();
  AddressScope global(trans, address >> 32 == 0 ? m_base + address : address);
  if (is_here(trans.get_address())) return b_transport(trans, delay);
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_shape, *transit);
  if (const auto grant = trans.get_extension<RouteGrant>()) grant->refused = true;  // addresses are not global here
  walk(trans, *transit, nullptr, nullptr, *fabric_out.get_interface(0));
}

unsigned SipBlock::cpu_transport_dbg(tlm::tlm_generic_payload& trans) {
  const Addr address = trans.get_address();
  AddressScope global(trans, address >> 32 == 0 ? m_base + address : address);
  return is_here(trans.get_address()) ? transport_dbg(trans) : fabric_out->transport_dbg(trans);
}

bool SipBlock::cpu_get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  const Addr address = trans.get_address();
  const bool boot_view = address >> 32 == 0;
  AddressScope global(trans, boot_view ? m_base + address : address);
  const Decoded d = is_here(trans.get_address()) ? decode(trans.get_address(), m_shape) : Decoded{};
  const bool memory = d.region == Region::BootRom || d.region == Region::FirmwareRam;
  tlm::tlm_fw_transport_if<>* device = place(d.region);
  bool granted = false;
  if (memory && device != nullptr && m_services.config->simulation.dmi) {
    granted = device->get_direct_mem_ptr(trans, dmi);
  } else {
    refuse_dmi(trans, dmi);
  }
  if (boot_view) {
    // What the device says beyond this block means nothing in the core's view.
    const Addr last = m_base + (Addr{1} << 32) - 1;
    dmi.set_start_address(std::max<Addr>(dmi.get_start_address(), m_base) - m_base);
    dmi.set_end_address(std::min<Addr>(dmi.get_end_address(), last) - m_base);
  }
  return granted;
}

}  // namespace ahbm::models
