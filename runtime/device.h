// The machine as the host sees it: memory per cube, queue pairs, mailbox tags, transfers and launches. One Device per
// System; any number of Contexts share it.
//
// Everything that takes simulated time must be called from a SystemC thread process of the OS thread that made the
// Device; anything else is a std::runtime_error that says so.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ccl/bus_access.h"
#include "ccl/neighbour_table.h"
#include "models/core/launch.h"
#include "models/core/stall.h"
#include "models/system/system.h"
#include "runtime/hbm_allocator.h"

namespace ahbm::runtime {

using ahbm::StallError;
using ahbm::StallRow;
std::string format_stall_table(const std::vector<StallRow>& rows);

/// What one PE gets in a launch. Counts, group and sequence number of the header are filled in by Device::launch.
struct PeLaunch {
  PeLocation pe;
  std::vector<uint64_t> args;
  std::vector<launch::LinkEntry> links;
  launch::ArgHeader program;
};

struct LaunchRequest {
  std::string kernel;
  uint32_t group = 0;  ///< 0: not a collective
  uint32_t seq = 0;
  std::vector<PeLaunch> pes;
  std::vector<std::shared_ptr<const void>> keep_alive;  ///< held until the last completion
};

class Device;

/// A launch on its way. Made by Device::launch.
class LaunchState {
 public:
  const std::string& kernel() const { return m_kernel; }
  bool completed() const { return m_pending == 0; }
  bool failed() const { return m_first_error != kNone; }
  Ps first_sent() const { return m_first_sent; }      ///< the first descriptor leaves the host
  Ps last_arrived() const { return m_last_arrived; }  ///< the last completion is at the host
  std::vector<PeLocation> pending_pes() const;
  /// Notified at every completion.
  const sc_core::sc_event& changed() const { return m_changed; }

 private:
  friend class Device;
  static constexpr size_t kNone = SIZE_MAX;
  struct PePart {
    PeLocation pe;
    uint32_t tag = 0;
    Addr arg_address = 0;
    bool sent = false;
    bool done = false;
    uint16_t status = 0;
    uint32_t epoch = 0;   ///< of the PE at the launch
    std::string refused;  ///< the descriptor write itself was answered with this error
  };
  std::string m_kernel;
  uint32_t m_group = 0;
  uint32_t m_seq = 0;
  uint32_t m_kernel_id = 0;
  size_t m_faults_before = 0;  ///< injected faults that had struck before it
  std::vector<PePart> m_parts;
  /// Nobody needs what was kept for the machine any more.
  void let_go() {
    m_keep_alive.clear();
    m_launcher = {};
  }
  std::vector<std::shared_ptr<const void>> m_keep_alive;
  sc_core::sc_process_handle m_launcher;
  size_t m_pending = 0;
  size_t m_first_error = kNone;
  bool m_aborted = false;
  std::string m_thrown;  ///< what the first kernel that failed said
  std::string m_error_text;
  Ps m_first_sent = 0;
  Ps m_last_arrived = 0;
  sc_core::sc_event m_changed;
};
using Launch = std::shared_ptr<LaunchState>;

/// Appends a launch to those under way; those that have completed are taken out now and then.
void add_in_flight(std::vector<Launch>& launches, const Launch& launch);

/// e.g. `sip0.cube1.pe3`
std::string to_string(const PeLocation& pe);

class Device {
 public:
  /// \throws std::runtime_error when the System has a Device already
  explicit Device(models::System& system);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  models::System& system() { return m_system; }
  const SystemConfig& config() const { return m_system.config(); }

  // --- memory: HBM of a cube, 256-byte aligned. Takes no simulated time.
  /// \throws std::runtime_error when out of memory, naming sizes and cube; std::out_of_range for a cube that is not
  /// there
  Addr allocate(SipId sip, CubeId cube, uint64_t bytes);
  /// \throws std::runtime_error for a double free
  void free(Addr address);
  const HbmAllocator& allocator(SipId sip, CubeId cube) const;

  // --- transfers through the host bridge; the calling thread waits until they are done.
  /// `data` may be null when the simulation is not functional. \throws std::runtime_error naming address and response
  void upload(Addr address, const void* data, uint64_t bytes);
  void download(Addr address, void* data, uint64_t bytes);

  /// Register access. Writes are posted: the calling thread pays their serialisation on the host link in batches, and
  /// `flush_bus` waits until all have arrived.
  ccl::BusAccess& bus();
  void flush_bus();
  /// Called before every write of `bus()`; what it throws makes the write fail. For fault injection.
  std::function<void(Addr)> before_bus_write;

  /// Queue pairs and ring bytes of every PE.
  ccl::QpAllocator& queue_pairs() { return m_queue_pairs; }

  // --- launches
  /// Writes argument blocks, then descriptors. Returns when the host has sent them; a full launch queue delays it.
  /// \throws std::invalid_argument for an unknown kernel
  Launch launch(LaunchRequest request);
  /// Several at once: all argument blocks, then all descriptors, those of one PE in the order of the requests.
  /// \param ready is called before the first descriptor is written: what a thread that is ended meanwhile leaves on the
  /// machine belongs to whoever took note of it then.
  std::vector<Launch> launch_all(std::vector<LaunchRequest> requests,
                                 const std::function<void(const std::vector<Launch>&)>& ready = {});
  /// The right to launch collectives on some SIPs, until it dies. Whoever launches on several SIPs holds one, so that
  /// all PEs see the collectives in the same order; otherwise two could wait for each other's kernels.
  class LaunchTurn {
   public:
    /// Waits until nobody who came earlier is launching on one of them.
    LaunchTurn(Device& device, const std::vector<SipId>& sips, const std::string& operation);
    ~LaunchTurn() { release(); }
    LaunchTurn(const LaunchTurn&) = delete;
    LaunchTurn& operator=(const LaunchTurn&) = delete;

   private:
    void release();
    Device& m_device;
    std::list<std::vector<bool>>::iterator m_place;
  };
  /// Waits for the last completion. A failed launch is a std::runtime_error naming kernel, PE, status and fault
  /// address. `what` and `who` are for a stall report.
  void wait(const Launch& launch, const std::string& what = {});
  /// Ends the kernels of a launch that have not completed. They complete with Status::Aborted.
  void abort(const Launch& launch);
  /// Ends a launch whatever its PEs do: aborts it, and resets PEs that do not complete for `simulation.stall_limit`.
  void give_up(const Launch& launch);
  /// Ends kernels outside of groups that a thread which is over has launched, unless they go on by themselves.
  void give_up_orphans();
  /// Numbers process groups of the machine, from 1; 0 stands for a plain kernel.
  uint32_t next_group_id() { return ++m_last_group_id; }
  size_t tags_in_use() const { return m_tags.size(); }
  uint64_t unexpected_completions() const { return m_unexpected_completions; }

  // --- waiting and stalls
  /// What a thread waits for now; shown in stall reports.
  struct Waiting {
    std::string operation;
    std::function<std::string()> waits_for;  ///< asked when a report is made; unused with a launch
    Launch launch;
  };
  /// Blocks the calling thread until `done()`; `event` is notified whenever that may have changed. A thread that nobody
  /// supervises watches for a stall itself. \throws StallError
  void await(const sc_core::sc_event& event, const std::function<bool()>& done, Waiting waiting);
  /// A supervised thread leaves stall detection to its spawner.
  void supervise(const sc_core::sc_process_handle& thread, bool on);
  bool supervised(const sc_core::sc_process_handle& thread) const { return m_supervised.count(thread) != 0; }
  /// How a thread is called in reports; empty forgets it. Unknown threads are `driver`.
  void label(const sc_core::sc_process_handle& thread, std::string name);
  /// Grows with every activity of the machine or of the host towards it.
  uint64_t progress() const { return m_system.progress() + m_activity; }
  void note_activity() { ++m_activity; }
  /// Latest end of the transfers, launches and computing that have begun. As long as it lies ahead nothing has stalled.
  Ps under_way_until() const { return std::max(m_system.under_way_until(), m_under_way_until); }
  /// Nothing has moved since `progress()` was `before`, and nothing is under way.
  bool stands_still(uint64_t before) const;
  /// Rows for everything that waits now.
  std::vector<StallRow> stall_rows() const;
  std::vector<StallRow> rows_of(const Waiting& waiting, const std::string& who) const;
  /// The Waiting of a thread, or null.
  const Waiting* waiting(const sc_core::sc_process_handle& thread) const;
  StallError stall_error(std::vector<StallRow> rows) const;

  /// \throws std::runtime_error when not in a SystemC thread process of the right OS thread
  void check_thread(const char* call) const;
  void check_os_thread(const char* call) const;

  /// Dies with the Device: for objects that may outlive it.
  std::weak_ptr<Device*> weak() const { return m_self; }

 private:
  class Bus;
  class Registered;
  struct TagUse {
    Launch launch;
    size_t part = 0;
  };
  void on_completion(const models::CompletionEvent& event);
  void complete(const Launch& launch, size_t part, Ps arrived);
  void note_transfer(const models::HostBridge::Timing& t);
  Waiting transfer(const char* verb, const char* direction, Addr address, uint64_t bytes) const;
  uint32_t take_tag(const std::string& kernel);
  bool ends_by_itself(const Launch& launch) const;
  const tl::KernelRegistry::Entry& checked_kernel(const LaunchRequest& request) const;
  void throw_failure(const Launch& launch);
  HbmAllocator& allocator_of(Addr address);
  uint32_t epoch_of(const PeLocation& pe) const;
  std::string completion_text(const LaunchState& launch, const PeLocation& pe) const;

  models::System& m_system;
  const std::thread::id m_thread;
  std::vector<HbmAllocator> m_allocators;  ///< SIP-major
  ccl::QpAllocator m_queue_pairs;
  std::unique_ptr<Bus> m_bus;
  std::unordered_map<uint32_t, TagUse> m_tags;
  std::vector<uint32_t> m_free_tags;
  uint32_t m_next_tag = 0;
  sc_core::sc_event m_tag_freed;
  std::list<std::vector<bool>> m_turns;  ///< SIPs of each, in the order of arrival
  sc_core::sc_event m_turn_over;
  uint64_t m_unexpected_completions = 0;
  uint64_t m_activity = 0;
  Ps m_under_way_until = 0;  ///< of the host's own transfers
  uint32_t m_last_group_id = 0;
  std::map<sc_core::sc_process_handle, Waiting> m_waiting;
  std::map<sc_core::sc_process_handle, std::string> m_labels;
  std::map<sc_core::sc_process_handle, int> m_supervised;
  std::shared_ptr<Device*> m_self;
};

/// The calling process; invalid outside a simulation.
sc_core::sc_process_handle current_process();

}  // namespace ahbm::runtime
