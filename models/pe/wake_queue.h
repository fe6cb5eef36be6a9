// When which PE wants to look at its moves again: one process and one queue for all PEs of a system.
//
// SystemC could do this with an event and a process for each of them. There are thousands, most act at the same
// instants, and every one would fetch its event, its process and its place in the kernel's queue into the host's caches
// for each message.
#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

#include "models/core/host_lines.h"
#include "models/core/time.h"

namespace ahbm::models {

class WakeQueue {
 public:
  class Sleeper {
   public:
    virtual ~Sleeper() = default;
    /// Its time has come. Called by a method process.
    virtual void on_wake() = 0;
    /// It comes next: a chance to fetch what it will look at.
    virtual void on_next() {}

   private:
    friend class WakeQueue;
    static constexpr Ps kNever = ~Ps{0};
    Ps m_due = kNever;
    uint32_t m_number = kUnknown;
    static constexpr uint32_t kUnknown = ~uint32_t{0};
  };

  /// Spawns the process. Before or during the simulation.
  WakeQueue();
  WakeQueue(const WakeQueue&) = delete;
  WakeQueue& operator=(const WakeQueue&) = delete;

  /// Wakes `sleeper` at `at` (now, if that is over), unless it is woken earlier anyway: as notify() of an event.
  /// At one instant sleepers are woken in the order in which they first asked.
  void wake(Sleeper& sleeper, Ps at);
  /// What a sleeper looks at whenever it wakes.
  void set_touched(Sleeper& sleeper, const HostLines& lines);

 private:
  struct Entry {
    Ps at;
    uint32_t who;
    bool operator<(const Entry& o) const { return at != o.at ? at > o.at : who > o.who; }  // the earliest on top
  };
  void run();
  void fetch_next() const;
  void tick_at(Ps at);
  void enrol(Sleeper& sleeper);

  sc_core::sc_event m_tick;
  std::vector<Sleeper*> m_sleepers;
  std::vector<HostLines> m_touched;  ///< by sleeper
  std::vector<Entry> m_heap;         ///< one that is not its sleeper's `m_due` was overtaken by an earlier one
  bool m_running = false;
};

}  // namespace ahbm::models
