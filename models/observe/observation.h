// Sinks on a running machine: puts taps on the places that somebody wants to watch, and takes them off again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/observe/tap.h"
#include "models/system/system.h"

namespace ahbm::observe {

/// Ranks count as places too: `system.rank0` ... . At most one Observation per System at a time, made after the System
/// and destroyed before it. Sinks may be attached and detached whenever no event is being told.
class Observation {
 public:
  explicit Observation(models::System& system);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  /// Asks the sink for every place. Answers how many it wants. The sink must live until it is detached or the
  /// Observation is destroyed.
  size_t attach(Sink& sink);
  void detach(Sink& sink);

  /// A collective of a rank is over; for the runtime's users.
  void collective(uint32_t rank, const char* name, uint32_t group, uint32_t seq, uint64_t bytes, Ps begin, Ps end);

  /// A call of a rank's program, an operator on a distributed tensor, say: it begins; it is over.
  void operation_start(uint32_t rank, Ps begin);
  void operation(uint32_t rank, const char* name, Ps begin, Ps end);

  /// Every place, in the order of the machine.
  std::vector<std::string> paths() const;

 private:
  struct Spot {
    std::unique_ptr<Tap> tap;
    std::function<void(const Tap*)> connect;
  };
  void add(Point point, std::function<void(const Tap*)> connect);
  void watch_line(const std::string& path, sc_core::sc_signal_in_if<bool>& line);

  std::vector<Spot> m_spots;
  std::vector<const Tap*> m_ranks;  ///< by rank; null: nobody watches
  std::shared_ptr<bool> m_alive = std::make_shared<bool>(true);
};

}  // namespace ahbm::observe
