// A scripted TLM initiator and a scripted target memory, as foreign models would bind them.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/core/time.h"
#include "models/tlm/extensions.h"

namespace ahbm::test {

/// Everything of one transaction that a test may want to choose. `data` is written for reads.
struct Access {
  tlm::tlm_command command = tlm::TLM_READ_COMMAND;
  uint64_t address = 0;
  std::vector<uint8_t> data;
  std::vector<uint8_t> byte_enables;  ///< empty: none
  uint32_t streaming_width = 0;       ///< 0: the data length
  Ps delay = 0;                       ///< annotated at the call
  /// Called before the payload leaves, e.g. to attach extensions (which it must detach in `after`).
  std::function<void(tlm::tlm_generic_payload&)> before, after;
};

struct Outcome {
  tlm::tlm_response_status status = tlm::TLM_INCOMPLETE_RESPONSE;
  Ps delay = 0;  ///< annotated on return
  std::vector<uint8_t> data;
  bool dmi_allowed = false;
  bool ok() const { return status == tlm::TLM_OK_RESPONSE; }
};

/// Issues what the test says, one call each. Never waits by itself: `Outcome::delay` is the time that it took, and
/// `wait_for` waits it out. Payloads have a memory manager and come back to it when released.
class ScriptedInitiator : public sc_core::sc_module, private tlm::tlm_mm_interface {
 public:
  explicit ScriptedInitiator(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
  ~ScriptedInitiator() override {
    for (tlm::tlm_generic_payload* p : m_free) delete p;
  }

  tlm_utils::simple_initiator_socket<ScriptedInitiator> out;

  Outcome transport(const Access& access);
  /// transport_dbg; `Outcome::data` has the bytes done, `debug_count` of them.
  uint32_t debug(const Access& access, std::vector<uint8_t>& data);

  Outcome write(uint64_t address, const std::vector<uint8_t>& data, Ps delay = 0);
  Outcome read(uint64_t address, size_t bytes, Ps delay = 0);
  template <typename T>
  Outcome write_value(uint64_t address, T v, Ps delay = 0) {
    std::vector<uint8_t> data(sizeof(T));
    std::memcpy(data.data(), &v, sizeof(T));
    return write(address, data, delay);
  }
  /// Reads a T and requires an OK response (throws otherwise).
  template <typename T>
  T read_value(uint64_t address) {
    const Outcome o = read(address, sizeof(T));
    if (!o.ok()) throw std::runtime_error("read_value: not an OK response");
    T v{};
    std::memcpy(&v, o.data.data(), sizeof(T));
    return v;
  }
  static void wait_for(const Outcome& o) {
    if (o.delay != 0) sc_core::wait(sc_core::sc_time::from_value(o.delay));
  }
  /// Payloads handed out and not yet released by whoever acquired them.
  size_t live() const { return m_live; }

 private:
  tlm::tlm_generic_payload& acquire(const Access& access, std::vector<uint8_t>& data);
  void free(tlm::tlm_generic_payload* p) override;

  std::vector<tlm::tlm_generic_payload*> m_free;
  size_t m_live = 0;
};

/// What arrived at a scripted target.
struct Arrival {
  Ps at = 0;    ///< simulated time of the call
  Ps tail = 0;  ///< at + annotated delay
  Ps head = 0;  ///< of the Transit extension; == tail without one
  tlm::tlm_command command = tlm::TLM_IGNORE_COMMAND;
  uint64_t address = 0;
  uint32_t length = 0;
  uint32_t streaming_width = 0;
  std::vector<uint8_t> data;  ///< of writes, when `keep_data`
};

/// A memory at [base, base + size) with a fixed latency, kept sparsely. Statuses can be scripted.
class ScriptedTarget : public sc_core::sc_module {
 public:
  ScriptedTarget(const sc_core::sc_module_name& name, uint64_t base, uint64_t size, Ps latency = 0);

  tlm_utils::simple_target_socket<ScriptedTarget> in;

  uint64_t base;
  uint64_t size;
  Ps latency;
  bool keep_data = false;
  /// Answers of the next transactions, oldest first; when empty the memory answers. An error changes nothing.
  std::deque<tlm::tlm_response_status> next_status;
  std::function<void(const Arrival&)> on_arrival;

  std::vector<Arrival> arrivals;
  uint64_t reads = 0, writes = 0, bytes_read = 0, bytes_written = 0, debug_calls = 0;

  std::vector<uint8_t> peek(uint64_t address, size_t bytes) const;
  void poke(uint64_t address, const std::vector<uint8_t>& data);

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi);
  tlm::tlm_response_status serve(tlm::tlm_generic_payload& trans);
  uint8_t load(uint64_t address) const;
  uint8_t& at(uint64_t address);

  static constexpr uint64_t kPageBytes = 4096;
  std::map<uint64_t, std::vector<uint8_t>> m_pages;
};

}  // namespace ahbm::test
