// What the models tell to whoever watches. Kernel-free.
//
// A site in a model holds a `const observe::Tap*` that is null while nobody watches it: one branch. A tap knows its
// place in the machine and a list of sinks (trace, waves, log, the user's own), which can change at run time.
//
// Times are absolute and may lie ahead of the simulated time of the call: under loose timing a transfer is reserved
// before it happens. No event begins before the simulated time at which it is told, except those that are told when
// they end (Kernel, Region, Wait, Release, Collective).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/core/time.h"

namespace ahbm::observe {

/// What kind of place a tap is at.
enum class Place : uint8_t { Link, Port, Memory, Pe, Rank, Signal };

/// A place in the machine.
struct Point {
  std::string path;  ///< hierarchical, as the sc_object where there is one
  Place place = Place::Link;
  uint32_t flat_pe = 0xFFFFFFFF;  ///< of a Pe
  uint32_t channels = 1;          ///< of a Memory
  uint32_t index = 0;             ///< in the Observation, dense from 0
};

enum class EventKind : uint8_t {
  Transfer,        ///< Link, Port: the data or control channel is in use over [begin, end)
  Access,          ///< Memory: channel `index` is in use over [begin, end)
  Launch,          ///< Pe: a descriptor enters (`value` 1) or leaves (0) the launch queue at `begin`
  KernelStart,     ///< Pe: a kernel starts at `begin`
  Kernel,          ///< Pe: ran over [begin, end); `value` is its launch::Status
  Region,          ///< Pe: a named region of the running kernel
  Send,            ///< Pe: the DMA takes message `number` of queue pair `index` over [begin, end)
  Take,            ///< Pe: a kernel takes message `number`, which was visible since `begin`, at `end`
  Release,         ///< Pe: message `number`, taken at `begin`, is given back at `end`
  Wait,            ///< Pe: waited over [begin, end); `wait` says what for
  Message,         ///< Pe: a message of `index` counts from `begin` on
  Credit,          ///< Pe: `value` credits of `index` come at `begin`
  QueueReset,      ///< Pe: queue pair `index` starts empty with `value` credits (0: disabled)
  Interrupt,       ///< Pe, Signal: the line is `value` from `begin` on
  Error,           ///< Pe: error bits `value` at `address`
  Reset,           ///< Pe: everything is at its reset value
  Register,        ///< Pe: register `name` is `value` from `begin` on
  Collective,      ///< Rank: ran over [begin, end)
  OperationStart,  ///< Rank: a call of the program begins at `begin`
  Operation,       ///< Rank: a call of the program over [begin, end); calls of one rank nest
};

enum class Wait : uint8_t { Message, Credit, Launch };

struct Event {
  EventKind kind = EventKind::Transfer;
  Wait wait = Wait::Message;
  bool control = false;  ///< Transfer: the control channel
  bool write = false;    ///< Access
  bool initial = false;  ///< Interrupt, Register: nothing changed, this is the value when a sink was attached
  Ps begin = 0, end = 0;
  uint64_t bytes = 0;       ///< payload (Send and Take: with the header)
  uint64_t wire_bytes = 0;  ///< Transfer
  uint32_t index = 0;
  uint32_t peer_pe = 0xFFFFFFFF, peer_qp = 0;  ///< Send
  uint64_t number = 0;                         ///< Send, Take, Release: of the message since the queue was enabled
  uint64_t value = 0;
  uint64_t address = 0;
  uint32_t tag = 0, group = 0, seq = 0;  ///< Kernel, Collective
  const char* name = "";                 ///< valid during the call only
};

/// Somebody who watches. Called in the order of the simulation.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Asked once per point when the sink is attached: false, and nothing of that point is told.
  virtual bool wants(const Point& point) = 0;
  virtual void on_event(const Point& point, const Event& event) = 0;
};

class Tap {
 public:
  explicit Tap(Point point) : m_point(std::move(point)) {}
  const Point& point() const { return m_point; }
  void tell(const Event& event) const {
    for (Sink* sink : m_sinks) sink->on_event(m_point, event);
  }
  void add(Sink* sink) { m_sinks.push_back(sink); }
  bool remove(Sink* sink) {
    for (auto it = m_sinks.begin(); it != m_sinks.end(); ++it) {
      if (*it != sink) continue;
      m_sinks.erase(it);
      return true;
    }
    return false;
  }
  bool idle() const { return m_sinks.empty(); }

 private:
  Point m_point;
  std::vector<Sink*> m_sinks;
};

}  // namespace ahbm::observe
