#include "tests/support/tlm_stubs.h"

#include <algorithm>
#include <stdexcept>

namespace ahbm::test {

tlm::tlm_generic_payload& ScriptedInitiator::acquire(const Access& access, std::vector<uint8_t>& data) {
  if (m_free.empty()) m_free.push_back(new tlm::tlm_generic_payload(this));
  tlm::tlm_generic_payload& p = *m_free.back();
  m_free.pop_back();
  ++m_live;
  p.acquire();
  p.set_command(access.command);
  p.set_address(access.address);
  p.set_data_ptr(data.data());
  p.set_data_length(static_cast<unsigned>(data.size()));
  p.set_streaming_width(access.streaming_width != 0 ? access.streaming_width : static_cast<unsigned>(data.size()));
  // The payload's pointer is not const, but a target may not write byte enables.
  p.set_byte_enable_ptr(access.byte_enables.empty() ? nullptr : const_cast<uint8_t*>(access.byte_enables.data()));
  p.set_byte_enable_length(static_cast<unsigned>(access.byte_enables.size()));
  p.set_dmi_allowed(false);
  p.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  return p;
}

void ScriptedInitiator::free(tlm::tlm_generic_payload* p) {
  p->reset();
  --m_live;
  m_free.push_back(p);
}

Outcome ScriptedInitiator::transport(const Access& access) {
  Outcome o;
  o.data = access.data;
  tlm::tlm_generic_payload& p = acquire(access, o.data);
  if (access.before) access.before(p);
  sc_core::sc_time delay = sc_core::sc_time::from_value(access.delay);
  out->b_transport(p, delay);
  o.status = p.get_response_status();
  o.delay = delay.value();
  o.dmi_allowed = p.is_dmi_allowed();
  if (access.after) access.after(p);
  p.release();
  return o;
}

uint32_t ScriptedInitiator::debug(const Access& access, std::vector<uint8_t>& data) {
  data = access.data;
  tlm::tlm_generic_payload& p = acquire(access, data);
  const uint32_t n = out->transport_dbg(p);
  p.release();
  return n;
}

Outcome ScriptedInitiator::write(uint64_t address, const std::vector<uint8_t>& data, Ps delay) {
  Access a;
  a.command = tlm::TLM_WRITE_COMMAND;
  a.address = address;
  a.data = data;
  a.delay = delay;
  return transport(a);
}

Outcome ScriptedInitiator::read(uint64_t address, size_t bytes, Ps delay) {
  Access a;
  a.address = address;
  a.data.resize(bytes);
  a.delay = delay;
  return transport(a);
}

ScriptedTarget::ScriptedTarget(const sc_core::sc_module_name& name, uint64_t base_address, uint64_t bytes,
                               Ps fixed_latency)
    : sc_core::sc_module(name), in("in"), base(base_address), size(bytes), latency(fixed_latency) {
  in.register_b_transport(this, &ScriptedTarget::b_transport);
  in.register_transport_dbg(this, &ScriptedTarget::transport_dbg);
  in.register_get_direct_mem_ptr(this, &ScriptedTarget::get_direct_mem_ptr);
}

uint8_t ScriptedTarget::load(uint64_t address) const {
  const auto it = m_pages.find(address / kPageBytes);
  return it == m_pages.end() ? uint8_t{0} : it->second[address % kPageBytes];
}

uint8_t& ScriptedTarget::at(uint64_t address) {
  std::vector<uint8_t>& page = m_pages[address / kPageBytes];
  page.resize(kPageBytes);
  return page[address % kPageBytes];
}

std::vector<uint8_t> ScriptedTarget::peek(uint64_t address, size_t bytes) const {
  std::vector<uint8_t> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = load(address + i);
  return out;
}

void ScriptedTarget::poke(uint64_t address, const std::vector<uint8_t>& data) {
  for (size_t i = 0; i < data.size(); ++i) at(address + i) = data[i];
}

tlm::tlm_response_status ScriptedTarget::serve(tlm::tlm_generic_payload& trans) {
  const uint64_t address = trans.get_address();
  const uint32_t length = trans.get_data_length();
  if (address < base || address - base >= size || length > size - (address - base)) {
    return tlm::TLM_ADDRESS_ERROR_RESPONSE;
  }
  if (trans.get_streaming_width() < length) return tlm::TLM_BURST_ERROR_RESPONSE;
  if (trans.get_command() == tlm::TLM_IGNORE_COMMAND) return tlm::TLM_OK_RESPONSE;
  const uint8_t* enables = trans.get_byte_enable_ptr();
  uint8_t* data = trans.get_data_ptr();
  if (data == nullptr) return tlm::TLM_OK_RESPONSE;  // timing only
  for (uint32_t i = 0; i < length; ++i) {
    if (enables != nullptr && enables[i % trans.get_byte_enable_length()] == 0) continue;
    if (trans.is_write()) {
      at(address + i) = data[i];
    } else {
      data[i] = load(address + i);
    }
  }
  return tlm::TLM_OK_RESPONSE;
}

void ScriptedTarget::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  Arrival a;
  {
    models::TransitScope transit(trans, delay);
    a.at = models::now_ps();
    a.tail = transit->tail;
    a.head = transit->head;
    transit->shift(latency);
  }
  a.command = trans.get_command();
  a.address = trans.get_address();
  a.length = trans.get_data_length();
  a.streaming_width = trans.get_streaming_width();
  if (keep_data && trans.is_write() && trans.get_data_ptr() != nullptr) {
    a.data.assign(trans.get_data_ptr(), trans.get_data_ptr() + a.length);
  }
  arrivals.push_back(a);
  if (on_arrival) on_arrival(a);

  tlm::tlm_response_status status = tlm::TLM_OK_RESPONSE;
  if (!next_status.empty()) {
    status = next_status.front();
    next_status.pop_front();
  }
  if (status == tlm::TLM_OK_RESPONSE) status = serve(trans);
  trans.set_response_status(status);
  if (status != tlm::TLM_OK_RESPONSE) return;
  if (trans.is_write()) {
    ++writes;
    bytes_written += a.length;
  } else if (trans.is_read()) {
    ++reads;
    bytes_read += a.length;
  }
}

unsigned ScriptedTarget::transport_dbg(tlm::tlm_generic_payload& trans) {
  ++debug_calls;
  const uint64_t address = trans.get_address();
  if (address < base || address - base >= size) return 0;
  const auto n = static_cast<uint32_t>(std::min<uint64_t>(trans.get_data_length(), size - (address - base)));
  for (uint32_t i = 0; i < n; ++i) {
    if (trans.is_write()) {
      at(address + i) = trans.get_data_ptr()[i];
    } else {
      trans.get_data_ptr()[i] = load(address + i);
    }
  }
  return n;
}

bool ScriptedTarget::get_direct_mem_ptr(tlm::tlm_generic_payload&, tlm::tlm_dmi& dmi) {
  dmi.allow_none();
  return false;
}

}  // namespace ahbm::test
