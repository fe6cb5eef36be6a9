#include "runtime/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <regex>
#include <stdexcept>
#include <utility>

#include "ahbm/registers/pe.h"
#include "models/core/suggest.h"
#include "models/ipcq/ipcq_port.h"
#include "models/pe/executor.h"

namespace ahbm::runtime {

namespace {

namespace pe_regs = regs::pe;

constexpr uint64_t kPieceBytes = 1 << 20;  ///< of a transfer: what one transaction moves
constexpr Ps kBusBatch = us(1);            ///< register writes in flight on a host link before the host waits

void wait_until(Ps t) {
  const Ps now = models::now_ps();
  // A thread that is being ended may still write registers on its way out; it cannot wait for them.
  if (t > now && !sc_core::sc_is_unwinding()) sc_core::wait(models::to_sc_time(t - now));
}

std::string response_text(tlm::tlm_response_status status) {
  tlm::tlm_generic_payload p;
  p.set_response_status(status);
  return p.get_response_string();
}

void check_response(const models::HostBridge::Timing& t, const char* verb, Addr address, uint64_t bytes,
                    const models::FaultInjector& faults) {
  if (t.status == tlm::TLM_OK_RESPONSE) return;
  throw std::runtime_error(fmt::format("{} of {} bytes at {:#x} was answered with {}{}", verb, bytes, address,
                                       response_text(t.status), faults.note()));
}

}  // namespace

std::string to_string(const PeLocation& pe) {
  return fmt::format("sip{}.cube{}.pe{}", value(pe.sip), value(pe.cube), value(pe.pe));
}

sc_core::sc_process_handle current_process() {
  if (!sc_core::sc_is_running()) return {};
  return sc_core::sc_get_current_process_handle();
}

std::string format_stall_table(const std::vector<StallRow>& rows) {
  using Line = std::array<std::string, 7>;
  std::vector<Line> lines{{"rank", "operation", "pe", "queue", "direction", "credits", "waits for"}};
  for (const StallRow& r : rows) {
    lines.push_back(
        {r.who, r.operation, r.pe, r.queue, r.direction, r.credits ? std::to_string(*r.credits) : "", r.waits_for});
  }
  std::array<size_t, 7> width{};
  for (Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i].empty()) line[i] = "-";
      width[i] = std::max(width[i], line[i].size());
    }
  }
  std::string out;
  for (const Line& line : lines) {
    std::string text = "  ";
    for (size_t i = 0; i < line.size(); ++i) text += fmt::format("{:<{}}  ", line[i], width[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

void add_in_flight(std::vector<Launch>& launches, const Launch& launch) {
  const size_t n = launches.size();
  if ((n & (n - 1)) == 0) {  // rarer the more there are: thousands of ranks launch before the first has completed
    const auto completed = [](const Launch& l) { return l->completed(); };
    launches.erase(std::remove_if(launches.begin(), launches.end(), completed), launches.end());
  }
  launches.push_back(launch);
}

std::vector<PeLocation> LaunchState::pending_pes() const {
  std::vector<PeLocation> out;
  for (const PePart& p : m_parts) {
    if (!p.done) out.push_back(p.pe);
  }
  return out;
}

/// What the calling thread waits for, until it dies.
class Device::Registered {
 public:
  Registered(Device& device, Waiting waiting) : m_device(device), m_thread(current_process()) {
    m_device.m_waiting[m_thread] = std::move(waiting);
  }
  ~Registered() { m_device.m_waiting.erase(m_thread); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  Device& m_device;
  const sc_core::sc_process_handle m_thread;
};

// --- register access

class Device::Bus : public ccl::BusAccess {
 public:
  explicit Bus(Device& device) : m_device(device) {}

  void write(Addr address, const void* data, size_t bytes) override {
    m_device.check_thread("a register write");
    if (m_device.before_bus_write) m_device.before_bus_write(address);
    const auto t = m_device.m_system.host_bridge.write(address, data, bytes);
    check_response(t, "register write", address, bytes, m_device.m_system.faults());
    m_device.note_transfer(t);
    m_done = std::max(m_done, t.done);
    if (t.sent > models::now_ps() + kBusBatch) wait_until(t.sent);
  }

  void read(Addr address, void* data, size_t bytes) override {
    m_device.check_thread("a register read");
    flush();
    const auto t = m_device.m_system.host_bridge.read(address, data, bytes);
    check_response(t, "register read", address, bytes, m_device.m_system.faults());
    m_device.note_transfer(t);
    wait_until(t.done);
  }

  void peek(Addr address, void* data, size_t bytes) override {
    if (m_device.m_system.host_bridge.debug_read(address, data, bytes) != bytes) {
      throw std::runtime_error(fmt::format("debug read of {} bytes at {:#x} was not answered", bytes, address));
    }
  }

  void flush() { wait_until(m_done); }

 private:
  Device& m_device;
  Ps m_done = 0;
};

Device::Device(models::System& system)
    : m_system(system),
      m_thread(std::this_thread::get_id()),
      m_queue_pairs(system.config()),
      m_bus(std::make_unique<Bus>(*this)),
      m_self(std::make_shared<Device*>(this)) {
  if (m_system.host_bridge.on_completion) {
    throw std::runtime_error(fmt::format("{} has a Device already: contexts share it", system.name()));
  }
  const SystemConfig& c = config();
  m_allocators.reserve(size_t{c.sips} * c.cubes());
  for (uint32_t s = 0; s < c.sips; ++s) {
    for (uint32_t k = 0; k < c.cubes(); ++k) {
      m_allocators.emplace_back(fmt::format("sip{}.cube{}", s, k), hbm_address(SipId{s}, CubeId{k}, 0), c.hbm.bytes);
    }
  }
  m_system.host_bridge.on_completion = [this](const models::CompletionEvent& e) { on_completion(e); };
}

Device::~Device() {
  m_system.host_bridge.on_completion = nullptr;
}

void Device::check_os_thread(const char* call) const {
  if (std::this_thread::get_id() != m_thread) {
    throw std::runtime_error(fmt::format(
        "{} from another OS thread than the Device's: the simulation and the runtime live in one OS thread", call));
  }
}

void Device::check_thread(const char* call) const {
  check_os_thread(call);
  const sc_core::sc_process_handle self = current_process();
  const bool in_thread =
      self.valid() && (self.proc_kind() == sc_core::SC_THREAD_PROC_ || self.proc_kind() == sc_core::SC_CTHREAD_PROC_);
  if (!in_thread) {
    throw std::runtime_error(
        fmt::format("{} outside a simulation process: it takes simulated time, so it has to be called from a SystemC "
                    "thread process (a rank thread, or a driver started with run_driver)",
                    call));
  }
}

// --- memory

Addr Device::allocate(SipId sip, CubeId cube, uint64_t bytes) {
  check_os_thread("allocate");
  const SystemConfig& c = config();
  if (value(sip) >= c.sips || value(cube) >= c.cubes()) {
    throw std::out_of_range(fmt::format("allocate: sip{}.cube{} does not exist, the machine has {} SIPs of {} cubes",
                                        value(sip), value(cube), c.sips, c.cubes()));
  }
  return m_allocators[value(sip) * c.cubes() + value(cube)].allocate(bytes);
}

HbmAllocator& Device::allocator_of(Addr address) {
  const Decoded d = decode(address, config().map_shape());
  if (d.region != Region::Hbm) {
    throw std::runtime_error(fmt::format("free of {:#x}: no HBM address ({})", address, describe(d)));
  }
  return m_allocators[value(d.sip) * config().cubes() + value(d.cube)];
}

void Device::free(Addr address) {
  check_os_thread("free");
  allocator_of(address).free(address);
}

const HbmAllocator& Device::allocator(SipId sip, CubeId cube) const {
  return m_allocators.at(value(sip) * config().cubes() + value(cube));
}

// --- transfers

void Device::note_transfer(const models::HostBridge::Timing& t) {
  note_activity();
  m_under_way_until = std::max(m_under_way_until, t.done);
}

Device::Waiting Device::transfer(const char* verb, const char* direction, Addr address, uint64_t bytes) const {
  return {fmt::format("{} of {} bytes", verb, bytes),
          [=] { return fmt::format("the transfer {} {}", direction, describe(decode(address, config().map_shape()))); },
          nullptr};
}

void Device::upload(Addr address, const void* data, uint64_t bytes) {
  check_thread("upload");
  const Registered registered(*this, transfer("upload", "to", address, bytes));
  const auto* from = static_cast<const uint8_t*>(data);
  Ps done = 0;
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const uint64_t n = std::min(kPieceBytes, bytes - at);
    const auto t = m_system.host_bridge.write(address + at, from == nullptr ? nullptr : from + at, n);
    check_response(t, "upload", address + at, n, m_system.faults());
    note_transfer(t);
    done = std::max(done, t.done);
    wait_until(t.sent);
  }
  wait_until(done);
}

void Device::download(Addr address, void* data, uint64_t bytes) {
  check_thread("download");
  const Registered registered(*this, transfer("download", "from", address, bytes));
  auto* to = static_cast<uint8_t*>(data);
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const uint64_t n = std::min(kPieceBytes, bytes - at);
    const auto t = m_system.host_bridge.read(address + at, to == nullptr ? nullptr : to + at, n);
    check_response(t, "download", address + at, n, m_system.faults());
    note_transfer(t);
    wait_until(t.done);
  }
}

ccl::BusAccess& Device::bus() {
  return *m_bus;
}

void Device::flush_bus() {
  check_thread("flush_bus");
  m_bus->flush();
}

// --- launches

uint32_t Device::take_tag(const std::string& kernel) {
  while (m_free_tags.empty() && m_next_tag == addr::kMailboxTags) {
    await(m_tag_freed, [this] { return !m_free_tags.empty(); },
          {"kernel " + kernel, [] { return fmt::format("one of the {} launch tags", addr::kMailboxTags); }, nullptr});
  }
  if (m_free_tags.empty()) return m_next_tag++;
  const uint32_t tag = m_free_tags.back();
  m_free_tags.pop_back();
  return tag;
}

Launch Device::launch(LaunchRequest request) {
  std::vector<LaunchRequest> one;
  one.push_back(std::move(request));
  return launch_all(std::move(one)).front();
}

const tl::KernelRegistry::Entry& Device::checked_kernel(const LaunchRequest& request) const {
  const tl::KernelRegistry::Entry* kernel = m_system.kernels().find(request.kernel);
  if (kernel == nullptr) {
    std::vector<std::string> known;
    for (const auto& e : m_system.kernels().entries()) known.push_back(e.name);
    throw std::invalid_argument(
        fmt::format("launch: no kernel is called '{}'{}; there are: {} (those of operators on tensors come with "
                    "kernels::register_operator_kernels)",
                    request.kernel, did_you_mean(request.kernel, known), fmt::join(known, ", ")));
  }
  for (const PeLaunch& p : request.pes) {
    const SystemConfig& c = config();
    if (value(p.pe.sip) >= c.sips || value(p.pe.cube) >= c.cubes() || value(p.pe.pe) >= c.pes) {
      throw std::out_of_range(
          fmt::format("launch of {}: {} does not exist, the machine has {} SIPs of {} cubes of {} "
                      "PEs",
                      request.kernel, to_string(p.pe), c.sips, c.cubes(), c.pes));
    }
  }
  return *kernel;
}

std::vector<Launch> Device::launch_all(std::vector<LaunchRequest> requests,
                                       const std::function<void(const std::vector<Launch>&)>& ready) {
  check_thread("launch");
  std::vector<const tl::KernelRegistry::Entry*> kernels;
  size_t pes = 0;
  for (const LaunchRequest& request : requests) {
    kernels.push_back(&checked_kernel(request));
    pes += request.pes.size();
  }
  if (pes > addr::kMailboxTags) {
    throw std::runtime_error(
        fmt::format("launch of {} kernels at once: the machine has {} launch tags", pes, addr::kMailboxTags));
  }

  // What has not been handed to the machine is given back when the thread is ended or a write is refused on the way.
  struct Unsent {
    Device& device;
    std::vector<Launch> launches;
    ~Unsent() {
      for (const Launch& launch : launches) {
        for (auto& part : launch->m_parts) {
          if (part.sent || part.done) continue;
          device.m_tags.erase(part.tag);
          device.m_free_tags.push_back(part.tag);
          if (part.arg_address != 0) device.free(part.arg_address);
          part.done = true;
          if (--launch->m_pending == 0) launch->let_go();
        }
      }
    }
  } unsent{*this, {}};

  models::HostBridge& bridge = m_system.host_bridge;
  std::vector<launch::Descriptor> descriptors;
  descriptors.reserve(pes);
  std::vector<uint8_t> block;
  // Writes are posted and issued together: each host link takes its own one after another, the host waits for the last.
  Ps sent = 0;
  for (size_t k = 0; k < requests.size(); ++k) {
    LaunchRequest& request = requests[k];
    auto state = std::make_shared<LaunchState>();
    state->m_kernel = request.kernel;
    state->m_group = request.group;
    state->m_seq = request.seq;
    state->m_launcher = current_process();
    state->m_kernel_id = kernels[k]->id;
    state->m_faults_before = m_system.faults().fired().size();
    state->m_keep_alive = std::move(request.keep_alive);
    state->m_parts.reserve(request.pes.size());
    unsent.launches.push_back(state);
    for (const PeLaunch& pe : request.pes) {
      launch::ArgHeader header = pe.program;
      header.n_args = static_cast<uint32_t>(pe.args.size());
      header.n_links = static_cast<uint32_t>(pe.links.size());
      header.group = request.group;
      header.seq = request.seq;
      const size_t arg_bytes = pe.args.size() * sizeof(uint64_t);
      block.resize(sizeof header + arg_bytes + pe.links.size() * sizeof(launch::LinkEntry));
      std::memcpy(block.data(), &header, sizeof header);
      if (arg_bytes != 0) std::memcpy(block.data() + sizeof header, pe.args.data(), arg_bytes);
      if (!pe.links.empty()) {
        std::memcpy(block.data() + sizeof header + arg_bytes, pe.links.data(),
                    pe.links.size() * sizeof(launch::LinkEntry));
      }

      LaunchState::PePart part;
      part.pe = pe.pe;
      part.tag = take_tag(request.kernel);
      state->m_parts.push_back(part);
      state->m_parts.back().epoch = epoch_of(pe.pe);
      ++state->m_pending;
      state->m_parts.back().arg_address = allocate(pe.pe.sip, pe.pe.cube, block.size());

      launch::Descriptor d;
      d.kernel_id = kernels[k]->id;
      d.arg_bytes = static_cast<uint32_t>(block.size());
      d.arg_address = state->m_parts.back().arg_address;
      d.tag = part.tag;
      d.completion_address = mailbox_address(pe.pe.sip, part.tag);
      d.group = request.group;
      d.seq = request.seq;
      descriptors.push_back(d);

      const auto t = bridge.write(d.arg_address, block.data(), block.size());
      note_transfer(t);
      if (t.status != tlm::TLM_OK_RESPONSE) {
        state->m_parts.back().refused = "its argument block " + response_text(t.status);
      }
      sent = std::max(sent, t.sent);
    }
  }
  wait_until(sent);
  if (ready) ready(unsent.launches);

  const Ps first_sent = models::now_ps();
  size_t next = 0;
  for (const Launch& state : unsent.launches) {
    state->m_first_sent = first_sent;
    for (size_t i = 0; i < state->m_parts.size(); ++i) {
      const launch::Descriptor& d = descriptors[next++];
      LaunchState::PePart& part = state->m_parts[i];
      m_tags[part.tag] = {state, i};
      if (part.refused.empty()) {
        const auto t = bridge.write(pe_sfr_address(part.pe, pe_regs::offset::LAUNCH), &d, sizeof d, 8);
        note_transfer(t);
        sent = std::max(sent, t.sent);
        if (t.status != tlm::TLM_OK_RESPONSE) part.refused = "its descriptor " + response_text(t.status);
      }
      part.sent = true;  // from here on a completion ends it, or the refusal here
      if (!part.refused.empty()) {
        part.status = static_cast<uint16_t>(launch::Status::Aborted);
        complete(state, i, models::now_ps());
      }
    }
  }
  wait_until(sent);
  return unsent.launches;
}

Device::LaunchTurn::LaunchTurn(Device& device, const std::vector<SipId>& sips, const std::string& operation)
    : m_device(device) {
  std::vector<bool> mine(device.config().sips);
  for (const SipId sip : sips) mine.at(value(sip)) = true;
  m_place = device.m_turns.insert(device.m_turns.end(), std::move(mine));
  const auto free_to_go = [this] {
    for (auto it = m_device.m_turns.begin(); it != m_place; ++it) {
      for (size_t s = 0; s < it->size(); ++s) {
        if ((*it)[s] && (*m_place)[s]) return false;
      }
    }
    return true;
  };
  try {
    device.await(device.m_turn_over, free_to_go,
                 {operation, [] { return std::string("an earlier collective's launch"); }, nullptr});
  } catch (...) {
    release();
    throw;
  }
}

void Device::LaunchTurn::release() {
  m_device.m_turns.erase(m_place);
  m_device.m_turn_over.notify(sc_core::SC_ZERO_TIME);
}

void Device::on_completion(const models::CompletionEvent& event) {
  const auto use = m_tags.find(event.tag);
  if (use == m_tags.end()) {
    ++m_unexpected_completions;  // a guest wrote to the mailbox
    return;
  }
  const TagUse found = use->second;
  LaunchState::PePart& part = found.launch->m_parts[found.part];
  if (part.pe.sip != event.sip || event.completion.flat_pe != config().flat_pe(part.pe) ||
      event.completion.kernel_id != static_cast<uint16_t>(found.launch->m_kernel_id)) {
    ++m_unexpected_completions;
    return;
  }
  part.status = event.completion.status;
  complete(found.launch, found.part, event.arrived);
}

void Device::complete(const Launch& launch, size_t index, Ps arrived) {
  LaunchState::PePart& part = launch->m_parts[index];
  part.done = true;
  m_tags.erase(part.tag);
  m_free_tags.push_back(part.tag);
  m_tag_freed.notify(sc_core::SC_ZERO_TIME);
  free(part.arg_address);
  note_activity();
  if (part.status != static_cast<uint16_t>(launch::Status::Ok) && launch->m_first_error == LaunchState::kNone) {
    launch->m_first_error = index;
    const auto status = static_cast<launch::Status>(part.status);
    if (status == launch::Status::KernelThrew || status == launch::Status::Protocol) {
      launch->m_thrown = m_system.pe(part.pe).executor().last_error();
    }
  }
  launch->m_last_arrived = std::max(launch->m_last_arrived, arrived);
  if (--launch->m_pending == 0) launch->let_go();
  launch->m_changed.notify(sc_core::SC_ZERO_TIME);
}

void Device::wait(const Launch& launch, const std::string& what) {
  check_thread("wait");
  const std::string operation = what.empty() ? "kernel " + launch->m_kernel : what;
  await(launch->m_changed, [&] { return launch->completed() || launch->failed(); }, {operation, {}, launch});
  if (launch->failed()) throw_failure(launch);
  // A message whose bytes were altered on purpose is not to pass for a result.
  const auto& fired = m_system.faults().fired();
  for (size_t i = launch->m_faults_before; i < fired.size(); ++i) {
    const auto& f = fired[i];
    if (!f.silent || f.group != launch->m_group || (f.group != 0 && f.seq != launch->m_seq)) continue;
    throw std::runtime_error(fmt::format("{} completed, but a message was altered on its way: {}", operation, f.text));
  }
}

uint32_t Device::epoch_of(const PeLocation& pe) const {
  uint32_t status = 0;
  m_system.host_bridge.debug_read(pe_sfr_address(pe, pe_regs::offset::STATUS), &status, sizeof status);
  return static_cast<uint32_t>(pe_regs::STATUS_EPOCH.of(status));
}

/// Waits for a launch as long as one PE after the other completes. False: none did for the stall limit, which counts
/// from the end of what is under way (an abort on its way there), and the completion's way back.
bool Device::ends_by_itself(const Launch& launch) const {
  const Ps limit = config().simulation.stall_limit + config().host_link.latency;
  while (!launch->completed()) {
    const size_t pending = launch->m_pending;
    const Ps now = models::now_ps();
    const Ps ahead = std::max(under_way_until(), now) - now;
    sc_core::wait(models::to_sc_time(ahead + limit), launch->m_changed);
    if (launch->m_pending == pending) return false;
  }
  return true;
}

void Device::give_up(const Launch& launch) {
  check_thread("give_up");
  abort(launch);
  if (ends_by_itself(launch)) return;
  // These PEs do not answer any more. A reset empties them, so that no completion can come after this.
  const auto reset = static_cast<uint8_t>(pe_regs::CTRL_RESET.place(1));
  Ps done = models::now_ps();
  for (const PeLocation& pe : launch->pending_pes()) {
    const auto t = m_system.host_bridge.write(pe_sfr_address(pe, pe_regs::offset::CTRL), &reset, 1);
    note_transfer(t);
    done = std::max(done, t.done);  // a PE that refuses is held in reset already
  }
  wait_until(done + 1);  // a reset takes effect when it has arrived, at that instant but maybe after this thread
  for (size_t i = 0; i < launch->m_parts.size(); ++i) {
    LaunchState::PePart& part = launch->m_parts[i];
    if (part.done) continue;
    part.refused.clear();
    part.status = static_cast<uint16_t>(launch::Status::Aborted);
    complete(launch, i, models::now_ps());
  }
}

void Device::give_up_orphans() {
  check_thread("give_up_orphans");
  std::vector<Launch> orphans;
  for (const auto& [tag, use] : m_tags) {
    if (use.launch->m_group == 0 && use.launch->m_launcher.terminated()) orphans.push_back(use.launch);
  }
  for (const Launch& launch : orphans) {
    if (!ends_by_itself(launch)) give_up(launch);
  }
}

void Device::abort(const Launch& launch) {
  check_thread("abort");
  if (launch->m_aborted) return;
  launch->m_aborted = true;
  // One byte: the other fields of CTRL keep their values.
  const auto abort = static_cast<uint8_t>(pe_regs::CTRL_ABORT.place(1));
  for (const PeLocation& pe : launch->pending_pes()) {
    const auto t = m_system.host_bridge.write(pe_sfr_address(pe, pe_regs::offset::CTRL), &abort, 1);
    note_transfer(t);
    wait_until(t.sent);
  }
}

void Device::throw_failure(const Launch& launch) {
  if (launch->m_error_text.empty()) {
    const LaunchState::PePart& part = launch->m_parts[launch->m_first_error];
    std::string text = fmt::format("kernel {} failed on {}: ", launch->m_kernel, to_string(part.pe));
    if (!part.refused.empty()) {
      text += fmt::format("the machine answered the write of {}", part.refused);
    } else {
      uint64_t fault = 0;
      try {
        bus().read(pe_sfr_address(part.pe, pe_regs::offset::FAULT_ADDR), &fault, sizeof fault);
      } catch (const std::runtime_error&) {
        // The PE does not answer; its status says enough.
      }
      text += fmt::format("{} (status {}), FAULT_ADDR {:#x}",
                          launch::to_string(static_cast<launch::Status>(part.status)), part.status, fault);
      if (fault != 0) text += fmt::format(" ({})", describe(decode(fault, config().map_shape())));
    }
    if (!launch->m_thrown.empty()) text += "; it said: " + launch->m_thrown;
    launch->m_error_text = text + m_system.faults().note();
  }
  throw std::runtime_error(launch->m_error_text);
}

// --- waiting and stalls

void Device::await(const sc_core::sc_event& event, const std::function<bool()>& done, Waiting waiting) {
  check_thread("a wait");
  if (done()) return;
  const Registered registered(*this, std::move(waiting));

  if (m_supervised.count(current_process()) != 0) {
    while (!done()) sc_core::wait(event);
    return;
  }
  const sc_core::sc_time limit = models::to_sc_time(config().simulation.stall_limit);
  while (!done()) {
    const uint64_t before = progress();
    const sc_core::sc_time begin = sc_core::sc_time_stamp();
    sc_core::wait(limit, event);
    const bool timed_out = sc_core::sc_time_stamp() - begin >= limit;
    if (timed_out && !done() && stands_still(before)) throw stall_error(stall_rows());
  }
}

bool Device::stands_still(uint64_t before) const {
  return progress() == before && under_way_until() < models::now_ps();
}

void Device::supervise(const sc_core::sc_process_handle& thread, bool on) {
  if (on) {
    m_supervised[thread] = 1;
  } else {
    m_supervised.erase(thread);
  }
}

void Device::label(const sc_core::sc_process_handle& thread, std::string name) {
  if (name.empty()) {
    m_labels.erase(thread);
  } else {
    m_labels[thread] = std::move(name);
  }
}

const Device::Waiting* Device::waiting(const sc_core::sc_process_handle& thread) const {
  const auto it = m_waiting.find(thread);
  return it == m_waiting.end() ? nullptr : &it->second;
}

std::vector<StallRow> Device::rows_of(const Waiting& waiting, const std::string& who) const {
  std::vector<StallRow> rows;
  if (waiting.launch == nullptr) {
    rows.push_back({who, waiting.operation, {}, {}, {}, waiting.waits_for ? waiting.waits_for() : std::string(), {}});
    return rows;
  }
  for (const PeLocation& pe : waiting.launch->pending_pes()) {
    const std::string text = m_system.pe(pe).waiting_for();
    const size_t before = rows.size();
    // The executor's own words: "... a message from W (QP 3, piece 1/4), a credit towards E (QP 2, ...) ...".
    static const std::regex kItem(R"((a message|a credit) (?:from|towards) (\S+) \(QP (\d+)[^)]*\))");
    for (std::sregex_iterator it(text.begin(), text.end(), kItem), end; it != end; ++it) {
      const QpId qp{static_cast<uint32_t>(std::stoul((*it)[3]))};
      rows.push_back({who, waiting.operation, to_string(pe), fmt::format("QP {}", value(qp)), (*it)[2], (*it)[1],
                      m_system.pe(pe).ipcq().credits(qp)});
    }
    if (rows.size() != before) continue;
    rows.push_back({who,
                    waiting.operation,
                    to_string(pe),
                    {},
                    {},
                    text.empty() ? completion_text(*waiting.launch, pe) : text,
                    {}});
  }
  return rows;
}

std::string Device::completion_text(const LaunchState& launch, const PeLocation& pe) const {
  std::string text = fmt::format("the completion of kernel {}", launch.kernel());
  for (const LaunchState::PePart& p : launch.m_parts) {
    if (p.pe == pe && !p.done && p.epoch != epoch_of(pe)) return text + "; the PE was reset after its launch";
  }
  return text;
}

std::vector<StallRow> Device::stall_rows() const {
  std::vector<std::pair<std::string, const Waiting*>> waits;
  for (const auto& [thread, waiting] : m_waiting) {
    const auto label = m_labels.find(thread);
    waits.emplace_back(label == m_labels.end() ? "driver" : label->second, &waiting);
  }
  std::stable_sort(waits.begin(), waits.end(), [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
  });
  std::vector<StallRow> rows;
  for (const auto& [who, waiting] : waits) {
    for (StallRow& r : rows_of(*waiting, who)) rows.push_back(std::move(r));
  }
  return rows;
}

StallError Device::stall_error(std::vector<StallRow> rows) const {
  std::string struck;
  for (const auto& f : m_system.faults().fired()) struck += fmt::format("  injected: {}\n", f.text);
  const std::string text =
      fmt::format("stalled at {} ns: nothing moved for {} ns\n{}{}", static_cast<double>(models::now_ps()) / 1000.0,
                  static_cast<double>(config().simulation.stall_limit) / 1000.0, format_stall_table(rows), struck);
  return StallError(text, std::move(rows));
}

}  // namespace ahbm::runtime
