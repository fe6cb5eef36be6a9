// The SFRs of a PE (configs/registers/pe.yaml) as a TLM target.
#pragma once

#include <systemc>
#include <tlm>
#include <vector>

#include "models/core/config/system_config.h"
#include "models/core/launch.h"
#include "models/core/registers/register_block.h"
#include "models/ipcq/ipcq_port.h"
#include "models/pe/sfr_port.h"
#include "models/tlm/extensions.h"
#include "models/tlm/sockets.h"

namespace ahbm::models {

/// What the registers ask of the PE around them.
class SfrHost {
 public:
  virtual ~SfrHost() = default;
  virtual bool launch_queue_full() const = 0;
  virtual const sc_core::sc_event& launch_space() const = 0;
  virtual void launch(const launch::Descriptor& descriptor, Ps at) = 0;
  virtual void request_reset(Ps at) = 0;
  virtual void request_abort(Ps at) = 0;
  virtual bool kernel_running() const = 0;
  virtual uint32_t launches_queued() const = 0;
  virtual void interrupt_level(bool high) = 0;
};

class SfrBlock : public sc_core::sc_module, public SfrPart, private RegisterBehaviour {
 public:
  SfrBlock(const sc_core::sc_module_name& name, const SystemConfig& config, const PeLocation& location, SfrHost& host);

  InSocket<SfrBlock> bus_in;

  TargetSocket& bus() override { return bus_in; }
  void record_error(uint32_t error_bits, Addr address) override;
  void raise_interrupt(uint32_t causes) override;
  void count(RegIndex counter, uint64_t n = 1) override {
    m_block.add(counter, n);
    if (m_tap != nullptr) tell_registers(0);
  }
  uint32_t epoch() const override { return m_epoch; }
  void reset() override;
  RegisterBlock& registers() { return m_block; }
  void observe(const observe::Tap* tap) override;

 private:
  uint64_t peek(const RegisterLayout& reg, uint64_t stored) const override;
  void on_write(const RegisterLayout& reg, uint64_t old, uint64_t now, uint64_t written_mask) override;
  RegStatus on_fifo_write(const RegisterLayout& reg, const uint8_t* data, uint32_t bytes) override;
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  void identify();
  void update_irq();
  /// Tells every stored register that has changed since the last call; counts from `at` or now, whichever is later.
  void tell_registers(Ps at, bool initial = false);

  const SystemConfig& m_config;
  const PeLocation m_location;
  SfrHost& m_host;
  RegisterBlock m_block;
  uint32_t m_epoch = 0;
  const observe::Tap* m_tap = nullptr;
  std::vector<uint64_t> m_told;  ///< values of the registers as the tap knows them
  uint8_t m_descriptor[sizeof(launch::Descriptor)] = {};
  uint32_t m_descriptor_bytes = 0;
  Ps m_access_at = 0;
};

}  // namespace ahbm::models
