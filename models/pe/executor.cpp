#include "models/pe/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "ahbm/registers/pe.h"
#include "models/core/ipcq_protocol.h"
#include "models/fault/fault_injector.h"
#include "models/tl/framing.h"

namespace ahbm::models {

using namespace regs;

namespace {
constexpr uint32_t kRefillMoves = tl::kMaxMoves * 3 / 4;  // when a blocked `submit` returns

class RaiseFlag {
 public:
  explicit RaiseFlag(bool& flag) : m_flag(flag) { m_flag = true; }
  ~RaiseFlag() { m_flag = false; }
  RaiseFlag(const RaiseFlag&) = delete;
  RaiseFlag& operator=(const RaiseFlag&) = delete;

 private:
  bool& m_flag;
};
}  // namespace

Executor::Executor(const Parts& parts, const char* name)
    : m_parts(parts),
      m_engine({parts.config, parts.ipcq, parts.dma, parts.compute, &m_scratch, parts.tcm, parts.progress}),
      m_scratch(parts.config->ipcq.ring_bytes, parts.config->pe.tcm_bytes),
      m_name(name) {
  parts.ipcq->set_listener(this);
}

void Executor::bind_out(tlm::tlm_fw_transport_if<>* first, const uint64_t* route_epoch) {
  m_out.bind(first, route_epoch, m_parts.config->simulation.route_grants);
}

void Executor::enqueue(const launch::Descriptor& descriptor, Ps at) {
  m_queue.push_back({descriptor, at});
  m_stats.queue_high_water = std::max(m_stats.queue_high_water, queued());
  if (m_tap != nullptr) tell(observe::EventKind::Launch, std::max(at, now_ps()), at, 1);
  m_parts.progress->note();
  m_parts.progress->note_until(at);
  if (!m_spawned) {
    m_parts.wakes->wake(*this, now_ps());  // spawns
  } else {
    wake(at);
  }
}

/// By the wake queue, whose process is the parent then. That of whoever launches may end, or be ended with all that it
/// spawned.
void Executor::spawn() {
  m_spawned = true;
  sc_core::sc_spawn_options options;
  options.set_stack_size(256 * 1024);
  sc_core::sc_spawn([this] { thread(); }, sc_core::sc_gen_unique_name("executor"), &options);
}

void Executor::wake(Ps at) {
  if (m_is_blocked) return m_parts.wakes->wake(*this, at);
  if (!m_sleeping) return;
  const Ps now = now_ps();
  m_wake.notify(to_sc_time(at > now ? at - now : 0));
}

void Executor::name_touched(QpId qp, IpcqPort::Use use, HostLines& lines) const {
  lines.add(static_cast<const WakeQueue::Sleeper*>(this), &m_blocked);
  m_engine.name_touched(qp, use, lines);
}

void Executor::on_approach(uint32_t turns, Ps at) {
  if (!m_is_blocked) return;
  if (turns == WakeQueue::kHorizon && m_source.next != nullptr && m_engine.reads_soon()) {
    // It will be asked for moves. A source is a closure on the kernel's stack, and most of what it needs lies behind
    // it.
    constexpr size_t kBytes = 512;
    fetch_lines(m_source.next, reinterpret_cast<const char*>(m_source.next) + kBytes);
  }
  m_engine.fetch(turns, at, at + m_parts.config->simulation.pe_quantum);
}

void Executor::on_message(QpId qp, Ps ready) {
  if (const Ps at = m_engine.message_came(qp, ready, now_ps()); at != kNever) {
    wake(at);
  } else if (m_slot_qp == qp) {
    wake(ready);
  }
}

void Executor::on_credit(QpId qp, Ps at) {
  if (const Ps when = m_engine.credit_came(qp, at); when != kNever) wake(when);
}

void Executor::abort() {
  for (Queued& q : m_queue) q.aborted = true;
  if (m_running) m_abort = true;
  wake(0);
}

void Executor::reset() {
  if (m_tap != nullptr) {
    for (const Queued& q : m_queue) tell(observe::EventKind::Launch, std::max(q.at, now_ps()), q.at, 0);
  }
  m_queue.clear();
  m_space.notify(sc_core::SC_ZERO_TIME);
  m_stopped = false;
  if (m_running) m_reset = true;
  wake(0);
}

void Executor::stand_still() {
  if (!m_parts.faults->stopped(m_parts.location, now_ps())) return;
  m_stopped = true;
  while (m_stopped) {
    m_sleeping = true;
    sc_core::wait(m_wake);
    m_sleeping = false;
  }
}

void Executor::signals() {
  if (m_parts.faults->stops_armed()) stand_still();
  if (m_reset) throw Reset{};
  if (m_abort) throw Aborted{};
}

void Executor::sleep_until(Ps t) {
  for (;;) {
    signals();
    const Ps now = now_ps();
    if (now >= t) return;
    m_sleeping = true;
    m_wake.notify(to_sc_time(t - now));
    sc_core::wait(m_wake);
    m_sleeping = false;
  }
}

template <typename Done>
void Executor::block_until(const Done& done, tl::Handle awaited, Ps deadline) {
  refuse_in_source();
  static_assert(sizeof(Done) <= sizeof m_blocked.condition && alignof(Done) <= 8 && std::is_trivially_copyable_v<Done>);
  m_blocked.done = [](const void* condition, Ps next) {
    if constexpr (std::is_invocable_v<const Done&, Ps>) {
      return (*std::launder(static_cast<const Done*>(condition)))(next);
    } else {
      return (*std::launder(static_cast<const Done*>(condition)))();
    }
  };
  new (m_blocked.condition.data()) Done(done);
  m_blocked.awaited = awaited;
  m_blocked.deadline = deadline;
  for (;;) {
    signals();
    if (step(MoveEngine::Caller::Thread)) return;
    m_is_blocked = true;
    try {
      sc_core::wait(m_resume);
    } catch (...) {  // the simulation takes its threads down
      m_is_blocked = false;
      throw;
    }
    m_is_blocked = false;
    if (m_failure) std::rethrow_exception(std::exchange(m_failure, nullptr));
  }
}

bool Executor::step(MoveEngine::Caller caller) {
  const Blocked& blocked = m_blocked;
  const Ps at = now_ps();
  // A kernel looks at the clock when it waits for a time, and acts at it as soon as its thread goes on.
  const bool by_the_clock = caller == MoveEngine::Caller::Thread || blocked.deadline != 0;
  const Ps until = by_the_clock ? at : m_parts.wakes->may_act_until();
  Ps now = at;
  Ps next;
  for (;; now = next) {
    do {
      next = m_engine.progress(now, blocked.awaited, caller);
      if (m_engine.needs_thread() || blocked.done(blocked.condition.data(), next)) {
        if (now == at) return true;
        m_parts.wakes->wake(*this, now);  // the thread goes on then
        return false;
      }
    } while (m_engine.ripples());  // `done` may have submitted moves
    if (next > until) break;
  }
  if (blocked.deadline > now) next = std::min(next, blocked.deadline);
  if (next != kNever) m_parts.wakes->wake(*this, next);
  return false;
}

/// Carries the moves of a waiting kernel on. The kernel's thread is only woken for what it waits for and for what a
/// method may not do: that spares most of the context switches, and the host's caches the stacks.
void Executor::on_wake() {
  if (!m_spawned) return spawn();
  if (!m_is_blocked || m_failure) return;
  try {
    const bool thread_needed = m_parts.foreign_parts || m_reset || m_abort || m_parts.faults->stops_armed();
    if (thread_needed || step(MoveEngine::Caller::Method)) m_resume.notify();
  } catch (...) {
    m_failure = std::current_exception();
    m_resume.notify();
  }
}

Executor::Queued Executor::next() {
  // The front may change while this waits: a reset empties the queue, and others may have come since.
  for (;;) {
    if (m_parts.faults->stops_armed()) stand_still();
    const Ps now = now_ps();
    if (!m_queue.empty()) {
      const Queued front = m_queue.front();
      if (front.aborted || front.at <= now) {
        m_queue.pop_front();
        m_space.notify(sc_core::SC_ZERO_TIME);
        return front;
      }
      m_wake.notify(to_sc_time(front.at - now));
    }
    m_sleeping = true;
    sc_core::wait(m_wake);
    m_sleeping = false;
  }
}

void Executor::tell(observe::EventKind kind, Ps begin, Ps end, uint64_t value, const char* text) const {
  observe::Event e;
  e.kind = kind;
  e.begin = begin;
  e.end = end;
  e.value = value;
  e.name = text;
  e.tag = static_cast<uint32_t>(m_current.tag);
  e.group = m_current.group;
  e.seq = m_current.seq;
  m_tap->tell(e);
}

tl::Tl::Region Executor::region(const char* name) {
  Region out;
  if (m_tap != nullptr) {
    out.end = [this, text = std::string(name), begin = now_ps()] {
      if (m_tap != nullptr) tell(observe::EventKind::Region, begin, now_ps(), 0, text.c_str());
    };
  }
  return out;
}

void Executor::thread() {
  Ps idle_since = now_ps();
  for (;;) {
    const Queued launched = next();
    m_reset = false;
    m_abort = launched.aborted;
    m_running = true;
    m_current = launched.descriptor;
    note_start(idle_since, launched.at);
    run(launched.descriptor);
    m_running = false;
    idle_since = now_ps();
  }
}

void Executor::note_start(Ps idle_since, Ps at) {
  const Ps now = now_ps();
  const Ps came = std::min(at, now);
  if (came > idle_since) m_stats.idle += came - idle_since;
  m_stats.queued += now - came;
  if (m_tap == nullptr) return;
  tell(observe::EventKind::Launch, std::max(at, now), now, 0);
  if (came <= idle_since) return;
  observe::Event e;
  e.kind = observe::EventKind::Wait;
  e.wait = observe::Wait::Launch;
  e.begin = idle_since;
  e.end = now;
  m_tap->tell(e);
}

void Executor::run(const launch::Descriptor& descriptor) {
  const Ps begin = now_ps();
  try {
    const launch::Status status = execute(descriptor);
    m_stats.busy += now_ps() - begin;
    ++m_stats.kernels;
    if (m_tap != nullptr) {
      tell(observe::EventKind::Kernel, begin, now_ps(), static_cast<uint64_t>(status),
           m_kernel_name.empty() ? "?" : m_kernel_name.c_str());
    }
    if (status != launch::Status::Ok) ++m_stats.failed;
    m_parts.sfr->count(pe::KERNELS);
    complete(descriptor, status);
    m_parts.sfr->raise_interrupt(pe::IRQ_PENDING_DONE.mask());
  } catch (const Reset&) {
    // Unwound; no completion.
    if (m_tap != nullptr) {
      tell(observe::EventKind::Kernel, begin, now_ps(), static_cast<uint64_t>(launch::Status::Aborted),
           m_kernel_name.empty() ? "?" : m_kernel_name.c_str());
    }
  }
  m_kernel_name.clear();
  m_slot_qp = QpId{~0u};
}

launch::Status Executor::execute(const launch::Descriptor& d) {
  const Addr sfr = pe_sfr_address(m_parts.location, 0);
  try {
    signals();
    const Ps dispatched = now_ps() + m_parts.config->pe.launch_dispatch;
    m_parts.progress->note_until(dispatched);
    sleep_until(dispatched);
    const tl::KernelRegistry::Entry* kernel = m_parts.kernels->find(d.kernel_id);
    if (kernel == nullptr) {
      m_parts.sfr->record_error(pe::ERROR_BITS_KERNEL.mask(), sfr + pe::offset::LAUNCH);
      return launch::Status::UnknownKernel;
    }
    m_kernel_name = kernel->name;
    if (m_tap != nullptr) tell(observe::EventKind::KernelStart, now_ps(), now_ps(), 0, m_kernel_name.c_str());
    m_stored_by = 0;
    m_scratch.reset();
    if (d.arg_bytes < sizeof(launch::ArgHeader) || d.arg_bytes > m_scratch.capacity()) {
      m_parts.sfr->record_error(pe::ERROR_BITS_KERNEL.mask(), d.arg_address);
      return launch::Status::BadArguments;
    }
    // The argument block. It moves bytes even when the simulation moves no payload.
    uint8_t* block = m_parts.tcm->data(m_scratch.allocate(d.arg_bytes), d.arg_bytes);
    m_parts.dma->set_launch(static_cast<uint32_t>(d.tag), d.group, d.seq);
    while (m_parts.dma->in_free() > now_ps()) sleep_until(m_parts.dma->in_free());
    const Dma::Result r = m_parts.dma->read(now_ps(), d.arg_address, block, d.arg_bytes);
    if (r.status != tlm::TLM_OK_RESPONSE) fault("argument block", d.arg_address, r.status);
    sleep_until(r.done);
    launch::ArgHeader header;
    std::memcpy(&header, block, sizeof header);
    const uint64_t need =
        sizeof header + uint64_t{header.n_args} * 8 + uint64_t{header.n_links} * sizeof(launch::LinkEntry);
    if (need > d.arg_bytes) {
      m_parts.sfr->record_error(pe::ERROR_BITS_KERNEL.mask(), d.arg_address);
      return launch::Status::BadArguments;
    }
    // An empty vector has no address to copy to.
    std::vector<uint64_t> words(header.n_args);
    if (!words.empty()) std::memcpy(words.data(), block + sizeof header, words.size() * 8);
    std::vector<launch::LinkEntry> links(header.n_links);
    if (!links.empty()) {
      std::memcpy(links.data(), block + sizeof header + words.size() * 8, links.size() * sizeof(launch::LinkEntry));
    }
    m_scratch.reset();

    const uint32_t flat = m_parts.config->flat_pe(m_parts.location);
    m_engine.begin(header, links, flat);
    configure(header, std::move(links), flat);
    m_parts.wakes->tell_approach(*this, static_cast<const WakeQueue::Sleeper*>(this), &m_scratch,
                                 m_parts.config->pes_in_host_caches);
    kernel->fn(*this, tl::Args(std::move(words)));
    wait_all();
    // A completion says that everything stored is in memory.
    sleep_until(std::max(m_stored_by, m_engine.stored_by()));
    return launch::Status::Ok;
  } catch (const sc_core::sc_unwind_exception&) {
    throw;  // the simulation takes its threads down; it is a std::exception too
  } catch (const Aborted&) {
    return launch::Status::Aborted;
  } catch (const tl::FaultError& e) {
    m_parts.sfr->record_error(pe::ERROR_BITS_BAD_ADDRESS.mask(), e.address());
    return launch::Status::BadAddress;
  } catch (const tl::ProtocolError& e) {
    SC_REPORT_INFO_VERB("/ahbm/pe/executor", (m_name + ": " + e.what()).c_str(), sc_core::SC_HIGH);
    m_parts.sfr->record_error(pe::ERROR_BITS_PROTOCOL.mask(), sfr);
    m_last_error = e.what();
    return launch::Status::Protocol;
  } catch (const Reset&) {
    throw;
  } catch (const std::exception& e) {
    m_last_error = e.what();
    m_parts.sfr->record_error(pe::ERROR_BITS_KERNEL.mask(), sfr);
    return launch::Status::KernelThrew;
  } catch (...) {
    m_last_error = "something that is no std::exception";
    m_parts.sfr->record_error(pe::ERROR_BITS_KERNEL.mask(), sfr);
    return launch::Status::KernelThrew;
  }
}

void Executor::complete(const launch::Descriptor& descriptor, launch::Status status) {
  launch::Completion completion;
  completion.status = static_cast<uint16_t>(status);
  completion.kernel_id = static_cast<uint16_t>(descriptor.kernel_id);
  completion.flat_pe = m_parts.config->flat_pe(m_parts.location);
  const Ps now = now_ps();
  PooledPayload& p = m_parts.payloads->acquire();
  p.set_command(tlm::TLM_WRITE_COMMAND);
  p.set_address(descriptor.completion_address);
  p.set_data_ptr(reinterpret_cast<uint8_t*>(&completion));
  p.set_data_length(sizeof completion);
  p.set_streaming_width(sizeof completion);
  p.origin.flat_pe = completion.flat_pe;
  p.origin.launch_tag = static_cast<uint32_t>(descriptor.tag);
  p.transit.transit = Transit{now, now, sizeof completion, Channel::Control, Side::E, false};
  m_out.transport(p, m_completion_route);
  if (!p.is_response_ok()) {
    m_parts.sfr->record_error(pe::ERROR_BITS_BAD_ADDRESS.mask(), descriptor.completion_address);
  }
  m_parts.progress->note();
  m_parts.progress->note_until(p.transit.transit.tail);
  p.release();
}

void Executor::fault(const char* what, Addr address, tlm::tlm_response_status status) {
  tlm::tlm_generic_payload text;
  text.set_response_status(status);
  throw tl::FaultError(fmt::format("{}: {} at 0x{:x} answered {}", m_name, what, address, text.get_response_string()),
                       address);
}

std::string Executor::waiting_for() const {
  if (m_stopped) return "nothing: the PE is stopped";
  if (!m_running) return {};
  if (m_slot_qp != QpId{~0u}) return fmt::format("a message on QP {}", value(m_slot_qp));
  return m_engine.waiting_for(now_ps());
}

// --- moves

/// A source may run in a process that must not wait, ahead of its turn.
void Executor::refuse_in_source() const {
  if (m_source_runs) throw tl::ProtocolError("a source of moves (submit_all) must not use the machine itself");
}

tl::Handle Executor::submit(const tl::Move& move) {
  refuse_in_source();
  if (m_engine.unissued() >= tl::kMaxMoves) {
    // Room for some at once, if that comes by itself: resuming a kernel is dear.
    block_until(
        [this](Ps next) {
          const uint32_t n = m_engine.unissued();
          return n <= kRefillMoves || (next == kNever && n < tl::kMaxMoves);
        },
        MoveEngine::kNobody);
  }
  const tl::Handle handle = m_engine.submit(move);
  // A move behind others on its queue pairs can do nothing yet.
  if (m_engine.ripples()) m_engine.progress(now_ps(), MoveEngine::kNobody, MoveEngine::Caller::Thread);
  return handle;
}

void Executor::submit_all(const tl::MoveSource& next) {
  refuse_in_source();
  m_source = {&next, false, nullptr};
  try {
    // Also by the method process: resuming a kernel for every few moves is dear.
    block_until([this] { return take_from_source(); }, MoveEngine::kNobody);
  } catch (...) {
    m_engine.drop_read();
    m_source = {};
    throw;
  }
  const std::exception_ptr failure = std::exchange(m_source, {}).failure;
  if (m_engine.ripples()) m_engine.progress(now_ps(), MoveEngine::kNobody, MoveEngine::Caller::Thread);
  if (failure) std::rethrow_exception(failure);
}

bool Executor::take_from_source() {
  for (;;) {
    if (m_engine.has_read()) {
      if (m_engine.unissued() >= tl::kMaxMoves) return false;
      m_engine.submit_read();
    } else if (m_source.at_end) {
      return true;
    } else {
      const RaiseFlag running(m_source_runs);
      try {
        m_source.at_end = !m_engine.read_ahead(*m_source.next);
      } catch (...) {
        m_source.failure = std::current_exception();
        m_source.at_end = true;
      }
    }
  }
}

void Executor::wait(tl::Handle handle) {
  block_until([this, handle] { return m_engine.done(handle); }, handle);
}

void Executor::wait_all() {
  block_until([this] { return m_engine.idle(); }, MoveEngine::kEverybody);
}

tl::Slot Executor::recv_slot(tl::Dir from, DType t, uint64_t n, uint16_t step) {
  refuse_in_source();
  block_until([this, from] { return m_engine.lane_idle(from); }, MoveEngine::kNobody);
  const QpId qp = m_engine.qp_of(from);
  m_slot_qp = qp;
  const Ps begin = now_ps();
  for (;;) {
    block_until(
        [this, qp] {
          const auto message = m_parts.ipcq->front(qp);
          return message.has_value();
        },
        MoveEngine::kNobody);
    const auto message = m_parts.ipcq->front(qp);
    if (message->ready <= now_ps()) break;
    // Moves in flight go on meanwhile.
    block_until([ready = message->ready] { return now_ps() >= ready; }, MoveEngine::kNobody, message->ready);
  }
  m_slot_qp = QpId{~0u};
  m_engine.waited_for_message(begin, now_ps(), qp);
  const auto message = m_parts.ipcq->front(qp);
  const uint64_t bytes = n * item_bytes(t);
  const uint8_t* slot = m_parts.tcm->data(message->tcm_offset, message->bytes);
  if (functional()) {
    ipcq::SlotHeader header;
    std::memcpy(&header, slot, sizeof header);
    // Which message of the sender's move this is, is the kernel's business here.
    const ipcq::SlotHeader expected =
        tl::make_header(group(), sequence(), step, t, static_cast<uint32_t>(bytes), peer(from).flat_pe, header.message);
    const std::string mismatch = tl::check_header(header, expected);
    if (!mismatch.empty()) {
      throw tl::ProtocolError(
          fmt::format("PE {} direction {} (QP {}): {}", flat_pe(), tl::to_string(from), value(qp), mismatch));
    }
  }
  m_parts.ipcq->take(qp);
  return make_slot(from, slot + ipcq::kHeaderBytes, bytes, message->ticket);
}

void Executor::release_slot(tl::Dir dir, uint64_t ticket) {
  m_parts.ipcq->release(m_engine.qp_of(dir), ticket, now_ps());
}

void Executor::pause_until(Ps t) {
  if (t > now_ps()) block_until([t] { return now_ps() >= t; }, MoveEngine::kNobody, t);
}

// --- tiles

uint8_t* Executor::tcm_alloc(uint64_t bytes) {
  uint64_t at = m_scratch.allocate(bytes);
  if (at == Scratch::kNone && m_engine.give_back_spares()) at = m_scratch.allocate(bytes);
  if (at == Scratch::kNone) {
    throw tl::ProtocolError(fmt::format("PE {}: a tile of {} bytes does not fit: {} of {} bytes of TCM are in use",
                                        flat_pe(), bytes, m_scratch.used(), m_scratch.capacity()));
  }
  return m_parts.tcm->data(at, bytes);
}

void Executor::tcm_free(uint8_t* p, uint64_t bytes) {
  m_scratch.release(static_cast<uint64_t>(p - m_parts.tcm->data(0, 0)), bytes);
}

uint64_t Executor::dma_load(Addr src, uint8_t* dst, uint64_t bytes) {
  refuse_in_source();
  while (m_parts.dma->in_free() > now_ps()) pause_until(m_parts.dma->in_free());
  const Dma::Result r = m_parts.dma->read(now_ps(), src, functional() ? dst : nullptr, bytes);
  if (r.status != tlm::TLM_OK_RESPONSE) fault("load", src, r.status);
  return r.done;
}

void Executor::dma_store(Addr dst, const uint8_t* src, uint64_t bytes, uint64_t ready) {
  refuse_in_source();
  pause_until(ready);
  while (m_parts.dma->out_free() > now_ps()) pause_until(m_parts.dma->out_free());
  const Dma::Result r = m_parts.dma->write(now_ps(), dst, functional() ? src : nullptr, bytes);
  if (r.status != tlm::TLM_OK_RESPONSE) fault("store", dst, r.status);
  m_stored_by = std::max(m_stored_by, r.done);
}

uint64_t Executor::vector_time(uint64_t elements, uint64_t ready) {
  const Ps end = m_parts.compute->vector(now_ps(), ready, elements);
  m_parts.progress->note();
  m_parts.progress->note_until(end);
  return end;
}

uint64_t Executor::mac_time(uint64_t m, uint64_t n, uint64_t k, uint64_t ready) {
  const Ps end = m_parts.compute->macs(now_ps(), ready, m, n, k);
  m_parts.progress->note();
  m_parts.progress->note_until(end);
  return end;
}

}  // namespace ahbm::models
