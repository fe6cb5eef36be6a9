// When which PE wants to look at its moves again: one process and one queue for all PEs of a system.
//
// SystemC could do this with an event and a process for each of them. There are thousands, most act at the same
// instants, and every one would fetch its event, its process and its place in the kernel's queue into the host's caches
// for each message.
#pragma once

#include <array>
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
    /// `turns` others wake before it does at `at`: a chance to fetch what it will look at. Called with one turn less
    /// every time, at last with 0 just before `on_wake`, as what to fetch stands behind addresses that have to be
    /// fetched first. Not strictly: others may come before it still, and what was overtaken by an earlier call of
    /// `wake` counts as a turn and is told of.
    virtual void on_approach(uint32_t turns, Ps at) { (void)turns, (void)at; }

   private:
    friend class WakeQueue;
    Ps m_due = kNever;
    uint32_t m_number = kUnknown;
    static constexpr uint32_t kUnknown = ~uint32_t{0};
  };

  /// Spawns the process. Before or during the simulation.
  /// \param quantum how far sleepers may act ahead of the simulated time (temporal decoupling; 0: not at all)
  explicit WakeQueue(Ps quantum = 0);
  WakeQueue(const WakeQueue&) = delete;
  WakeQueue& operator=(const WakeQueue&) = delete;

  /// Wakes `sleeper` at `at` (now, if that is over), unless it is woken earlier anyway: as notify() of an event.
  /// At one instant sleepers are woken in the order in which they first asked.
  void wake(Sleeper& sleeper, Ps at);
  /// For `on_wake`: what the sleeper would be woken for until then it may do at once, as if it were that time. The
  /// current time without a quantum; always before anything but wake-ups happens.
  Ps may_act_until() const;
  /// `on_approach` gets at most so many turns.
  static constexpr uint32_t kHorizon = kFetchTurns;
  /// From now on `sleeper` is told when its turn comes near, and [begin, end) is fetched for it before that: as soon as
  /// more than `crowd` sleepers are to be told, for the host's caches hold the state of a few.
  void tell_approach(Sleeper& sleeper, const void* begin, const void* end, uint32_t crowd);

 private:
  struct Entry {
    Ps at;
    uint64_t who;  // as wide as `at`: entries are copied in one go right after they were written
    /// At one instant the one that was enrolled first comes first. One number, to be compared without a branch.
    bool later(const Entry& o) const { return order() > o.order(); }
    Uint128 order() const { return static_cast<Uint128>(at) << 64 | who; }
  };
  struct Enrolled {
    Sleeper* sleeper;
    const void *begin, *end;  ///< null: it is not told when its turn comes near
  };
  void run();
  void approach() const;
  void insert(Entry entry);
  Entry take_first();
  void push_heap(Entry entry);
  void pop_heap();
  void tick_at(Ps at);
  void enrol(Sleeper& sleeper);

  sc_core::sc_event m_tick;
  std::vector<Enrolled> m_sleepers;
  // One that is not its sleeper's `m_due` was overtaken by an earlier one.
  std::array<Entry, kHorizon + 1> m_next;  ///< the earliest ones, sorted
  uint32_t m_n_next = 0;
  std::vector<Entry> m_heap;  ///< all others, the earliest on top: four below each, a cache line of the host
  const Ps m_quantum;
  uint32_t m_told = 0;  ///< sleepers to be told
  bool m_running = false, m_tells = false;
};

}  // namespace ahbm::models
