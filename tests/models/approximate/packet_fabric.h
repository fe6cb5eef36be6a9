// A packet-accurate link, router and endpoint in nb_transport: the proof that an approximately-timed fabric fits behind
// the sockets of the loosely-timed one, and the reference for its times (docs/adr/0014).
//
// A message is cut into packets. Every hop hands a packet on with three phases:
//   BEGIN_REQ      forward, when its head is there
//   END_REQ        backward, when its tail has left the sender: the port is free for the next packet
//   PACKET_CREDIT  backward, when its place in the receiver's buffer is free again
// A sender needs a free port and a credit. Packets, not messages, are arbitrated, round robin per output.
#pragma once

#include <tlm_utils/peq_with_cb_and_phase.h>
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/tlm/extensions.h"
#include "models/tlm/walk.h"

namespace ahbm::test {

TLM_DECLARE_EXTENDED_PHASE(PACKET_CREDIT);

/// A b_transport call on its way as packets.
struct PacketMessage {
  tlm::tlm_generic_payload* trans = nullptr;
  uint32_t source = 0;  ///< endpoint that issued it
  Ps first_head = 0;    ///< of the packets that arrived last: request or response
  Ps last_tail = 0;
  bool done = false;
  sc_core::sc_event finished;
};

struct PacketExtension : tlm::tlm_extension<PacketExtension> {
  PacketMessage* message = nullptr;
  uint64_t wire_bytes = 0;
  Ps head = 0;  ///< at the receiver it is handed to, or was handed to last
  Ps tail = 0;
  bool first = false, last = false;
  bool response = false;
  tlm_extension_base* clone() const override { return new PacketExtension(*this); }
  void copy_from(const tlm_extension_base& o) override { *this = static_cast<const PacketExtension&>(o); }
};

class PacketPool : public tlm::tlm_mm_interface {
 public:
  tlm::tlm_generic_payload& acquire(const PacketExtension& info) {
    auto* p = new tlm::tlm_generic_payload(this);
    p->set_extension(new PacketExtension(info));
    p->acquire();
    ++m_live;
    return *p;
  }
  void free(tlm::tlm_generic_payload* p) override {
    --m_live;
    delete p;  // and its extension
  }
  size_t live() const { return m_live; }

 private:
  size_t m_live = 0;
};

inline PacketExtension& info_of(tlm::tlm_generic_payload& packet) {
  return *packet.get_extension<PacketExtension>();
}

/// One direction of a cable: serialises packets one after another, and delays them and the credits of the other side.
class PacketLink : public sc_core::sc_module {
 public:
  PacketLink(const sc_core::sc_module_name& name, const LinkParams& params)
      : sc_core::sc_module(name),
        in("in"),
        out("out"),
        m_params(params),
        m_forward(this, &PacketLink::deliver),
        m_backward(this, &PacketLink::answer) {
    in.register_nb_transport_fw(this, &PacketLink::forward);
    out.register_nb_transport_bw(this, &PacketLink::backward);
  }
  tlm_utils::simple_target_socket<PacketLink> in;
  tlm_utils::simple_initiator_socket<PacketLink> out;

 private:
  tlm::tlm_sync_enum forward(tlm::tlm_generic_payload& packet, tlm::tlm_phase& phase, sc_core::sc_time&) {
    PacketExtension& p = info_of(packet);
    const Ps now = models::now_ps();
    // Times come from the bytes of everything sent without a gap, so that roundings do not add up.
    if (now != m_begin + transfer_ps(m_bytes, m_params.bytes_per_second)) {
      m_begin = now;
      m_bytes = 0;
    }
    m_bytes += p.wire_bytes;
    const Ps sent = std::max(m_begin + transfer_ps(m_bytes, m_params.bytes_per_second), p.tail);
    p.tail = sent + m_params.latency;
    packet.acquire();
    m_forward.notify(packet, phase, models::to_sc_time(m_params.latency));
    packet.acquire();
    m_backward.notify(packet, tlm::END_REQ, models::to_sc_time(sent - now));
    return tlm::TLM_ACCEPTED;
  }
  tlm::tlm_sync_enum backward(tlm::tlm_generic_payload& packet, tlm::tlm_phase& phase, sc_core::sc_time&) {
    if (phase == PACKET_CREDIT) {
      packet.acquire();
      m_backward.notify(packet, phase, models::to_sc_time(m_params.latency));
    }
    return tlm::TLM_ACCEPTED;  // END_REQ: this side's own serialisation has seen to that
  }
  void deliver(tlm::tlm_generic_payload& packet, const tlm::tlm_phase& phase) {
    tlm::tlm_phase p = phase;
    sc_core::sc_time zero;
    out->nb_transport_fw(packet, p, zero);
    packet.release();
  }
  void answer(tlm::tlm_generic_payload& packet, const tlm::tlm_phase& phase) {
    tlm::tlm_phase p = phase;
    sc_core::sc_time zero;
    in->nb_transport_bw(packet, p, zero);
    packet.release();
  }

  const LinkParams m_params;
  Ps m_begin = 0;
  uint64_t m_bytes = 0;
  tlm_utils::peq_with_cb_and_phase<PacketLink> m_forward, m_backward;
};

/// Input-buffered, no time of its own.
class PacketRouter : public sc_core::sc_module {
 public:
  struct Port {
    std::unique_ptr<tlm_utils::simple_target_socket_tagged<PacketRouter>> in;
    std::unique_ptr<tlm_utils::simple_initiator_socket_tagged<PacketRouter>> out;
    std::deque<tlm::tlm_generic_payload*> waiting;  ///< the oldest may be on its way out
    bool leaving = false;                           ///< it is
    bool busy = false;                              ///< the output
    size_t from = 0;                                ///< input of the packet that leaves by this output
    uint32_t credits = 0;
    size_t next = 0;  ///< input that is asked first
  };

  /// \param credits  packets that the receiver of each output buffers
  /// \param route    output port of a packet
  PacketRouter(const sc_core::sc_module_name& name, size_t ports, uint32_t credits,
               std::function<size_t(const PacketExtension&)> route)
      : sc_core::sc_module(name), m_ports(ports), m_route(std::move(route)) {
    for (size_t i = 0; i < ports; ++i) {
      Port& p = m_ports[i];
      const std::string index = std::to_string(i);
      p.in = std::make_unique<tlm_utils::simple_target_socket_tagged<PacketRouter>>(("in" + index).c_str());
      p.out = std::make_unique<tlm_utils::simple_initiator_socket_tagged<PacketRouter>>(("out" + index).c_str());
      p.in->register_nb_transport_fw(this, &PacketRouter::forward, static_cast<int>(i));
      p.out->register_nb_transport_bw(this, &PacketRouter::backward, static_cast<int>(i));
      p.credits = credits;
    }
    SC_HAS_PROCESS(PacketRouter);
    SC_METHOD(arbitrate);
    sensitive << m_kick;
    dont_initialize();
    SC_METHOD(entered);
    sensitive << m_tail_entered;
    dont_initialize();
  }
  Port& port(size_t i) { return m_ports[i]; }

 private:
  tlm::tlm_sync_enum forward(int id, tlm::tlm_generic_payload& packet, tlm::tlm_phase&, sc_core::sc_time&) {
    packet.acquire();
    m_ports[static_cast<size_t>(id)].waiting.push_back(&packet);
    m_entering.push_back({&packet, static_cast<size_t>(id), info_of(packet).tail});
    packet.acquire();
    entered();
    m_kick.notify(sc_core::SC_ZERO_TIME);
    return tlm::TLM_ACCEPTED;
  }
  tlm::tlm_sync_enum backward(int id, tlm::tlm_generic_payload& packet, tlm::tlm_phase& phase, sc_core::sc_time&) {
    Port& out = m_ports[static_cast<size_t>(id)];
    if (phase == PACKET_CREDIT) {
      ++out.credits;
    } else {
      Port& in = m_ports[out.from];
      out.busy = in.leaving = false;
      in.waiting.pop_front();
      answer(in, packet, PACKET_CREDIT);
      packet.release();
    }
    m_kick.notify(sc_core::SC_ZERO_TIME);
    return tlm::TLM_ACCEPTED;
  }
  void answer(Port& in, tlm::tlm_generic_payload& packet, tlm::tlm_phase phase) {
    sc_core::sc_time zero;
    (*in.in)->nb_transport_bw(packet, phase, zero);
  }
  /// Tells senders whose packet's tail is in. The times are those of the packets' arrival: the next hop sets its own.
  void entered() {
    Ps next = ~Ps{0};
    for (auto it = m_entering.begin(); it != m_entering.end();) {
      if (it->tail > models::now_ps()) {
        next = std::min(next, it->tail);
        ++it;
        continue;
      }
      const Entering e = *it;
      it = m_entering.erase(it);
      answer(m_ports[e.port], *e.packet, tlm::END_REQ);
      e.packet->release();
    }
    if (next != ~Ps{0}) m_tail_entered.notify(models::to_sc_time(next - models::now_ps()));
  }
  void arbitrate() {
    for (size_t o = 0; o < m_ports.size(); ++o) {
      Port& out = m_ports[o];
      for (size_t k = 0; k < m_ports.size() && !out.busy && out.credits > 0; ++k) {
        const size_t i = (out.next + k) % m_ports.size();
        Port& in = m_ports[i];
        if (in.waiting.empty() || in.leaving || m_route(info_of(*in.waiting.front())) != o) continue;
        in.leaving = out.busy = true;
        out.from = i;
        out.next = i + 1;
        --out.credits;
        tlm::tlm_phase phase = tlm::BEGIN_REQ;
        sc_core::sc_time zero;
        info_of(*in.waiting.front()).head = models::now_ps();
        (*out.out)->nb_transport_fw(*in.waiting.front(), phase, zero);
      }
    }
  }

  struct Entering {
    tlm::tlm_generic_payload* packet;
    size_t port;
    Ps tail;
  };
  std::vector<Port> m_ports;
  std::function<size_t(const PacketExtension&)> m_route;
  std::deque<Entering> m_entering;
  sc_core::sc_event m_kick, m_tail_entered;
};

/// Between the packets and the b_transport sockets of everything else: cuts what comes in at `in` into packets, and
/// calls `out` for messages whose packets have all come. Binds where a loosely-timed router would.
class PacketEndpoint : public sc_core::sc_module {
 public:
  PacketEndpoint(const sc_core::sc_module_name& name, uint32_t number, const models::Framing& framing, uint32_t credits,
                 PacketPool& pool)
      : sc_core::sc_module(name),
        in("in"),
        out("out"),
        packet_in("packet_in"),
        packet_out("packet_out"),
        m_number(number),
        m_framing(framing),
        m_credits(credits),
        m_pool(pool),
        m_taken(this, &PacketEndpoint::taken) {
    in.register_b_transport(this, &PacketEndpoint::b_transport);
    packet_in.register_nb_transport_fw(this, &PacketEndpoint::forward);
    packet_out.register_nb_transport_bw(this, &PacketEndpoint::backward);
    SC_HAS_PROCESS(PacketEndpoint);
    SC_METHOD(send);
    sensitive << m_kick;
    dont_initialize();
  }
  tlm_utils::simple_target_socket<PacketEndpoint> in;
  tlm_utils::simple_initiator_socket<PacketEndpoint> out;
  tlm_utils::simple_target_socket<PacketEndpoint> packet_in;
  tlm_utils::simple_initiator_socket<PacketEndpoint> packet_out;

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    models::TransitScope transit(trans, delay);
    PacketMessage message;
    message.trans = &trans;
    message.source = m_number;
    queue(message, transit->wire_payload, transit->head, transit->tail, false);
    while (!message.done) sc_core::wait(message.finished);
    transit->head = message.first_head;
    transit->tail = std::max(message.last_tail, models::now_ps());
  }

  /// Cuts a message whose head and tail pass here at these times.
  void queue(PacketMessage& message, uint64_t payload, Ps head, Ps tail, bool response) {
    const uint64_t packets = std::max<uint64_t>(1, ceil_div(payload, m_framing.packet_bytes));
    const uint64_t total = m_framing.wire_bytes(payload);
    const auto at = [&](uint64_t bytes) {
      return head + static_cast<Ps>(static_cast<Uint128>(tail - head) * bytes / total);
    };
    uint64_t before = 0;
    for (uint64_t k = 0; k < packets; ++k) {
      PacketExtension p;
      p.message = &message;
      p.wire_bytes =
          m_framing.header_bytes + std::min<uint64_t>(m_framing.packet_bytes, payload - k * m_framing.packet_bytes);
      p.head = at(before);
      before += p.wire_bytes;
      p.tail = at(before);
      p.first = k == 0;
      p.last = k + 1 == packets;
      p.response = response;
      m_queue.push_back(&m_pool.acquire(p));
    }
    m_kick.notify(sc_core::SC_ZERO_TIME);
  }
  void send() {
    if (m_busy || m_credits == 0 || m_queue.empty()) return;
    tlm::tlm_generic_payload& packet = *m_queue.front();
    PacketExtension& p = info_of(packet);
    const Ps now = models::now_ps();
    if (p.head > now) return m_kick.notify(models::to_sc_time(p.head - now));
    p.head = now;
    p.tail = std::max(p.tail, now);
    m_busy = true;
    --m_credits;
    m_queue.pop_front();
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time zero;
    packet_out->nb_transport_fw(packet, phase, zero);
  }
  tlm::tlm_sync_enum backward(tlm::tlm_generic_payload& packet, tlm::tlm_phase& phase, sc_core::sc_time&) {
    if (phase == PACKET_CREDIT) {
      ++m_credits;
    } else {
      m_busy = false;
      packet.release();  // the hops that still hold it have references of their own
    }
    m_kick.notify(sc_core::SC_ZERO_TIME);
    return tlm::TLM_ACCEPTED;
  }

  tlm::tlm_sync_enum forward(tlm::tlm_generic_payload& packet, tlm::tlm_phase& phase, sc_core::sc_time&) {
    const PacketExtension& p = info_of(packet);
    PacketMessage& message = *p.message;
    if (p.first) message.first_head = p.head;
    const Ps tail = p.tail;
    packet.acquire();
    m_taken.notify(packet, phase, models::to_sc_time(tail - models::now_ps()));
    if (!p.last) return tlm::TLM_ACCEPTED;
    message.last_tail = tail;
    if (p.response) {
      finish(message);
    } else {
      sc_core::sc_spawn([this, &message] { serve(message); });
    }
    return tlm::TLM_ACCEPTED;
  }
  void taken(tlm::tlm_generic_payload& packet, const tlm::tlm_phase&) {
    for (tlm::tlm_phase phase : {tlm::tlm_phase(tlm::END_REQ), tlm::tlm_phase(PACKET_CREDIT)}) {
      sc_core::sc_time zero;
      packet_in->nb_transport_bw(packet, phase, zero);
    }
    packet.release();
  }
  void serve(PacketMessage& message) {
    tlm::tlm_generic_payload& trans = *message.trans;
    // b_transport gave it one, and what lies behind `out` may look there.
    models::Transit& transit = trans.get_extension<models::TransitExtension>()->transit;
    transit.head = message.first_head;
    transit.tail = message.last_tail;
    transit.wire_payload = trans.is_read() ? 0 : trans.get_data_length();
    models::call_next(*out.get_interface(0), trans, transit);
    message.first_head = transit.head;
    message.last_tail = transit.tail;
    if (!trans.is_read()) return finish(message);  // the acknowledgement of a posted write takes no time
    queue(message, trans.is_response_ok() ? trans.get_data_length() : 0, transit.head, transit.tail, true);
  }
  static void finish(PacketMessage& message) {
    message.done = true;
    message.finished.notify(sc_core::SC_ZERO_TIME);
  }

  const uint32_t m_number;
  const models::Framing m_framing;
  uint32_t m_credits;
  PacketPool& m_pool;
  bool m_busy = false;
  std::deque<tlm::tlm_generic_payload*> m_queue;
  sc_core::sc_event m_kick;
  tlm_utils::peq_with_cb_and_phase<PacketEndpoint> m_taken;
};

}  // namespace ahbm::test
