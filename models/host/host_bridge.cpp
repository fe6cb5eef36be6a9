#include "models/host/host_bridge.h"

#include <fmt/core.h>

#include <cstring>
#include <limits>
#include <queue>
#include <stdexcept>
#include <vector>

#include "models/tlm/classify.h"
#include "models/tlm/process_macro.h"
#include "models/tlm/route.h"
#include "models/tlm/walk.h"

namespace ahbm::models {

struct HostBridge::Impl {
  struct Port {
    Port(uint32_t sip, const LinkParams& link, const Framing& framing)
        : out(fmt::format("sip{}_out", sip).c_str()),
          in(fmt::format("sip{}_in", sip).c_str()),
          down(link, framing),
          up(link, framing) {}
    Out out;
    In in;
    Hop down, up;
  };
  struct Pending {
    CompletionEvent event;
    uint64_t order;
    bool operator<(const Pending& o) const {  // std::priority_queue has the greatest on top
      return event.arrived != o.event.arrived ? event.arrived > o.event.arrived : order > o.order;
    }
  };

  explicit Impl(const SystemConfig& config) : shape(config.map_shape()) {}

  /// Null when the address names no SIP of this machine.
  Port* port(Addr address) {
    const auto sip = static_cast<uint32_t>(address >> addr::kSipShift) & (addr::kMaxSips - 1);
    return address >> 55 == 1 && sip < ports.size() ? ports[SipId{sip}].get() : nullptr;
  }

  Timing transfer(tlm::tlm_command command, Addr address, void* data, uint64_t bytes, uint32_t streaming_width);
  uint64_t debug(tlm::tlm_command command, Addr address, void* data, uint64_t bytes);

  const MapShape shape;
  const uint64_t* route_epoch = nullptr;  ///< null: no route grants
  RouteCache routes;
  PayloadPool payloads;
  IdVector<SipId, std::unique_ptr<Port>> ports;
  std::priority_queue<Pending> pending;
  uint64_t completions = 0;
  sc_core::sc_event due;
};

namespace {

PooledPayload& make_payload(PayloadPool& pool, tlm::tlm_command command, Addr address, void* data, uint32_t bytes,
                            uint32_t streaming_width) {
  PooledPayload& p = pool.acquire();
  p.set_command(command);
  p.set_address(address);
  p.set_data_ptr(static_cast<unsigned char*>(data));
  p.set_data_length(bytes);
  p.set_streaming_width(streaming_width);
  return p;
}

}  // namespace

HostBridge::HostBridge(const sc_core::sc_module_name& name, const SystemConfig& config)
    : sc_core::sc_module(name), spare_in("spare_in", Binding::Optional), m_impl(std::make_unique<Impl>(config)) {
  const Framing framing{config.noc.packet_bytes, config.noc.packet_header_bytes};
  for (uint32_t s = 0; s < config.sips; ++s) {
    m_impl->ports.push_back(std::make_unique<Impl::Port>(s, config.host_link, framing));
    m_impl->ports[SipId{s}]->in.register_b_transport(this, &HostBridge::completion_b_transport, static_cast<int>(s));
  }
  spare_in.register_b_transport(this, &HostBridge::spare_b_transport);
  spare_in.register_transport_dbg(this, &HostBridge::spare_transport_dbg);
  spare_in.register_get_direct_mem_ptr(this, &HostBridge::spare_get_direct_mem_ptr);
  AHBM_HAS_PROCESS(HostBridge);
  SC_METHOD(deliver);
  dont_initialize();
  sensitive << m_impl->due;
}

HostBridge::~HostBridge() = default;

void HostBridge::grant_routes(const uint64_t* route_epoch) {
  m_impl->route_epoch = route_epoch;
}

HostBridge::Out& HostBridge::sip_out(SipId sip) {
  return m_impl->ports.at(sip)->out;
}
HostBridge::In& HostBridge::sip_in(SipId sip) {
  return m_impl->ports.at(sip)->in;
}
size_t HostBridge::transfers_under_way() const {
  return m_impl->payloads.live();
}
HopStats HostBridge::link_down(SipId sip) const {
  return m_impl->ports.at(sip)->down.stats();
}
HopStats HostBridge::link_up(SipId sip) const {
  return m_impl->ports.at(sip)->up.stats();
}

Hop& HostBridge::hop_down(SipId sip) {
  return m_impl->ports.at(sip)->down;
}
Hop& HostBridge::hop_up(SipId sip) {
  return m_impl->ports.at(sip)->up;
}

HostBridge::Timing HostBridge::Impl::transfer(tlm::tlm_command command, Addr address, void* data, uint64_t bytes,
                                              uint32_t streaming_width) {
  Timing timing;
  timing.sent = timing.done = now_ps();
  if (bytes == 0) {
    timing.status = tlm::TLM_OK_RESPONSE;
    return timing;
  }
  if (bytes > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(fmt::format("a host transfer of {} bytes at {:#x}: one transaction has at most {}",
                                            bytes, address, std::numeric_limits<uint32_t>::max()));
  }
  Port* port_to = port(address);
  if (port_to == nullptr) {
    timing.status = tlm::TLM_ADDRESS_ERROR_RESPONSE;
    return timing;
  }
  const auto length = static_cast<uint32_t>(bytes);
  PooledPayload& p =
      make_payload(payloads, command, address, data, length, streaming_width == 0 ? length : streaming_width);
  struct Release {  // also when the caller is ended while it waits at a full launch queue
    PooledPayload& payload;
    ~Release() { payload.release(); }
  } release{p};
  Transit& t = p.transit.transit;
  t.head = t.tail = timing.sent;
  t.wire_payload = command == tlm::TLM_WRITE_COMMAND ? bytes : 0;
  t.channel = classify(decode(address, shape), command == tlm::TLM_WRITE_COMMAND);
  port_to->down.pass(now_ps(), t);
  timing.sent = t.tail - port_to->down.link().latency;
  tlm::tlm_fw_transport_if<>& first = *port_to->out.get_interface(0);
  if (route_epoch != nullptr) {
    t.resolved = true;
    transport_routed(p, t, first, routes.to(address), *route_epoch, p.grant);
  } else {
    call_next(first, p, t);
  }
  if (command == tlm::TLM_READ_COMMAND) port_to->up.pass(now_ps(), t);
  timing.done = t.tail;
  timing.status = p.get_response_status();
  return timing;
}

HostBridge::Timing HostBridge::write(Addr address, const void* data, uint64_t bytes, uint32_t streaming_width) {
  return m_impl->transfer(tlm::TLM_WRITE_COMMAND, address, const_cast<void*>(data), bytes, streaming_width);
}

HostBridge::Timing HostBridge::read(Addr address, void* data, uint64_t bytes) {
  return m_impl->transfer(tlm::TLM_READ_COMMAND, address, data, bytes, 0);
}

uint64_t HostBridge::Impl::debug(tlm::tlm_command command, Addr address, void* data, uint64_t bytes) {
  uint64_t done = 0;
  while (done < bytes) {
    Port* port_to = port(address + done);
    if (port_to == nullptr) break;
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes - done, uint64_t{1} << 30));
    PooledPayload& p = make_payload(payloads, command, address + done, static_cast<unsigned char*>(data) + done, n, n);
    const unsigned moved = port_to->out->transport_dbg(p);
    p.release();
    done += moved;
    if (moved < n) break;
  }
  return done;
}

uint64_t HostBridge::debug_write(Addr address, const void* data, uint64_t bytes) {
  return m_impl->debug(tlm::TLM_WRITE_COMMAND, address, const_cast<void*>(data), bytes);
}

uint64_t HostBridge::debug_read(Addr address, void* data, uint64_t bytes) {
  return m_impl->debug(tlm::TLM_READ_COMMAND, address, data, bytes);
}

void HostBridge::spare_b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_impl->shape, *transit);
  Impl::Port* port = m_impl->port(trans.get_address());
  if (port == nullptr) return answer_hole(trans);
  walk(trans, *transit, &port->down, &port->up, *port->out.get_interface(0));
}

unsigned HostBridge::spare_transport_dbg(tlm::tlm_generic_payload& trans) {
  Impl::Port* port = m_impl->port(trans.get_address());
  if (port == nullptr) {
    answer_hole(trans);
    return 0;
  }
  return port->out->transport_dbg(trans);
}

bool HostBridge::spare_get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  return refuse_dmi(trans, dmi);
}

void HostBridge::completion_b_transport(int sip, tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
  TransitScope transit(trans, delay);
  if (transit.foreign()) classify_foreign(trans, m_impl->shape, *transit);
  const SipId from{static_cast<uint32_t>(sip)};
  const Decoded d = decode(trans.get_address(), m_impl->shape);
  if (!trans.is_write() || d.region != Region::Mailbox || d.sip != from || d.offset % sizeof(launch::Completion) != 0) {
    return answer_hole(trans);
  }
  if (trans.get_data_length() != sizeof(launch::Completion) || trans.get_data_ptr() == nullptr) {
    trans.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
    return;
  }
  m_impl->ports[from]->up.pass(now_ps(), *transit);
  CompletionEvent event;
  event.sip = from;
  event.tag = static_cast<uint32_t>(d.offset / sizeof(launch::Completion));
  std::memcpy(&event.completion, trans.get_data_ptr(), sizeof event.completion);
  event.arrived = transit->tail;
  m_impl->pending.push({event, m_impl->completions++});
  m_impl->due.notify(to_sc_time(event.arrived - now_ps()));  // an earlier notification stays
  trans.set_response_status(tlm::TLM_OK_RESPONSE);
}

void HostBridge::deliver() {
  auto& pending = m_impl->pending;
  while (!pending.empty() && pending.top().event.arrived <= now_ps()) {
    const CompletionEvent event = pending.top().event;
    pending.pop();
    if (on_completion) on_completion(event);
  }
  if (!pending.empty()) m_impl->due.notify(to_sc_time(pending.top().event.arrived - now_ps()));
}

}  // namespace ahbm::models
