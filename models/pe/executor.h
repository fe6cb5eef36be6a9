// Runs launched kernels: `tl` on the hardware of one PE. An SC_THREAD for the kernels, spawned at the first launch; the
// method process of the wake queue carries their moves on while they wait.
#pragma once

#include <array>
#include <exception>
#include <list>
#include <string>
#include <systemc>

#include "models/core/launch.h"
#include "models/core/progress.h"
#include "models/pe/move_engine.h"
#include "models/pe/sfr_block.h"
#include "models/pe/wake_queue.h"
#include "models/tl/kernel_registry.h"

namespace ahbm::models {

class FaultInjector;

struct ExecutorStats {
  uint64_t kernels = 0;
  uint64_t failed = 0;
  Ps busy = 0;
  Ps idle = 0;    ///< between two kernels, without a descriptor in the queue
  Ps queued = 0;  ///< sum over kernels of the time that their descriptor was in the queue
  uint32_t queue_high_water = 0;
};

class Executor : public tl::Tl, private IpcqListener, private WakeQueue::Sleeper {
 public:
  struct Parts {
    const SystemConfig* config;
    const tl::KernelRegistry* kernels;
    PayloadPool* payloads;
    Tcm* tcm;
    Dma* dma;
    IpcqPort* ipcq;
    ComputeModel* compute;
    SfrPart* sfr;
    PeLocation location;
    Progress* progress;
    FaultInjector* faults;
    WakeQueue* wakes;
    bool foreign_parts;  ///< of the user's, which may wait: then only threads call them
  };
  Executor(const Parts& parts, const char* name);
  void bind_out(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch);

  // --- launch queue
  bool queue_full() const { return m_queue.size() >= m_parts.config->pe.launch_queue_depth; }
  uint32_t queued() const { return static_cast<uint32_t>(m_queue.size()); }
  bool running() const { return m_running; }
  const sc_core::sc_event& space() const { return m_space; }
  void enqueue(const launch::Descriptor& descriptor, Ps at);

  /// The running kernel and everything queued ends with an error completion.
  void abort();
  /// The running kernel unwinds and everything queued is forgotten, without completions.
  void reset();

  /// What the running kernel waits for; empty when it does not wait or none runs.
  std::string waiting_for() const;
  const std::string& kernel_name() const { return m_kernel_name; }
  /// Group and sequence number of the running launch.
  const launch::Descriptor& current() const { return m_current; }
  /// Text of the last error of a kernel (what() of what it threw, or the mismatch of a message).
  const std::string& last_error() const { return m_last_error; }
  const ExecutorStats& stats() const { return m_stats; }
  const MoveStats& move_stats() const { return m_engine.stats(); }
  /// What kernels and moves do is told to `tap`; null: to nobody.
  void observe(const observe::Tap* tap) {
    m_tap = tap;
    m_engine.observe(tap);
  }

  /// What a message or a credit of `qp` touches here.
  void name_touched(QpId qp, IpcqPort::Use use, HostLines& lines) const;

  // --- tl
  tl::Handle submit(const tl::Move& move) override;
  void wait(tl::Handle handle) override;
  void wait_all() override;
  void submit_all(const tl::MoveSource& next) override;
  tl::Slot recv_slot(tl::Dir from, DType t, uint64_t n, uint16_t step) override;
  Region region(const char* name) override;
  bool functional() const override { return m_parts.config->simulation.functional; }

 protected:
  uint8_t* tcm_alloc(uint64_t bytes) override;
  void tcm_free(uint8_t* p, uint64_t bytes) override;
  uint64_t dma_load(Addr src, uint8_t* dst, uint64_t bytes) override;
  void dma_store(Addr dst, const uint8_t* src, uint64_t bytes, uint64_t ready) override;
  uint64_t vector_time(uint64_t elements, uint64_t ready) override;
  uint64_t mac_time(uint64_t m, uint64_t n, uint64_t k, uint64_t ready) override;
  void release_slot(tl::Dir dir, uint64_t ticket) override;

 private:
  struct Queued {
    launch::Descriptor descriptor;
    Ps at;
    bool aborted = false;
  };
  struct Aborted {};
  struct Reset {};

  void on_message(QpId qp, Ps ready) override;
  void on_credit(QpId qp, Ps at) override;
  void thread();
  void run(const launch::Descriptor& descriptor);
  /// Waits for the next descriptor whose time has come and takes it from the queue.
  Queued next();
  void stand_still();
  launch::Status execute(const launch::Descriptor& descriptor);
  void complete(const launch::Descriptor& descriptor, launch::Status status);
  /// What the kernel waits for. The condition is looked at after everything that happens. It is kept here: on the
  /// kernel's stack it would be in one more page of the host's memory for every PE.
  struct Blocked {
    bool (*done)(const void* condition, Ps next) = nullptr;
    alignas(8) std::array<unsigned char, 16> condition;
    tl::Handle awaited = MoveEngine::kNobody;
    Ps deadline = 0;
  };
  /// The moves that `submit_all` has been given.
  struct Source {
    const tl::MoveSource* next = nullptr;
    bool at_end = false;
    std::exception_ptr failure;  ///< what came before it is submitted first
  };
  /// Waits for `done()` or for `done(next)`, where `next` is when moves will go on without anything from outside, or
  /// kNever.
  template <typename Done>
  void block_until(const Done& done, tl::Handle awaited, Ps deadline = 0);
  bool step(MoveEngine::Caller caller);
  /// Submits what there is room for. True: the source has no more.
  bool take_from_source();
  void spawn();
  void on_wake() override;
  void on_approach(uint32_t turns, Ps at) override;
  void refuse_in_source() const;
  void pause_until(Ps t);
  void sleep_until(Ps t);
  void signals();
  void note_start(Ps idle_since, Ps at);
  void tell(observe::EventKind kind, Ps begin, Ps end, uint64_t value, const char* text = "") const;
  void wake(Ps at);
  [[noreturn]] void fault(const char* what, Addr address, tlm::tlm_response_status status);

  // What a wake-up looks at comes first.
  bool m_is_blocked = false;  ///< else the thread runs, or waits for m_wake
  Blocked m_blocked;          ///< of the last call of block_until
  Source m_source;
  std::exception_ptr m_failure;  ///< of the method, for the kernel
  bool m_spawned = false, m_running = false, m_sleeping = false;
  bool m_abort = false, m_reset = false;
  bool m_stopped = false;      ///< by an injected fault, until a reset
  bool m_source_runs = false;  ///< of submit_all
  Parts m_parts;
  MoveEngine m_engine;
  Scratch m_scratch;
  std::string m_name;
  RoutedInitiator m_out;
  Route m_completion_route;
  std::list<Queued> m_queue;  ///< nothing is allocated for the many PEs that never run
  sc_core::sc_event m_wake;   ///< of the thread, while no moves can go on
  sc_core::sc_event m_resume, m_space;
  QpId m_slot_qp{~0u};  ///< the QP that recv_slot waits on
  launch::Descriptor m_current;
  std::string m_kernel_name, m_last_error;
  Ps m_stored_by = 0;
  ExecutorStats m_stats;
  const observe::Tap* m_tap = nullptr;
};

}  // namespace ahbm::models
