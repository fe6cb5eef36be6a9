// A trace in the JSON format that Perfetto and chrome://tracing open. Kernel-free.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/core/output_file.h"
#include "models/observe/tap.h"

namespace ahbm::observe {

struct TraceOptions {
  std::string file;
  std::vector<std::string> filters;       ///< path patterns (models/core/path_glob.h); none: everything
  Ps from = 0;                            ///< slices that end before are left out
  Ps to = ~Ps{0};                         ///< slices that begin at or after are left out
  std::shared_ptr<OutputGate> gate = {};  ///< null: the file is emptied at once
};

/// Streams to disk: memory holds what is under way (open messages and operations), not what is over. Tracks: one per
/// rank, link direction (data and control channel), crossbar and DMA port, memory channel; per PE one of kernels and
/// regions, and as many of sends, receives and waits as overlap. Times are microseconds with six decimals: exact
/// picoseconds.
///
/// A rank's operations and collectives share a track: an operation lies above what it did. An asynchronous collective
/// that outlasts an operation it began in goes to a track beside it.
///
/// A receive is the time that a message's slot is held, from when a kernel takes the message until it is given back; an
/// arrow leads to it from its send.
class ChromeTrace : public Sink {
 public:
  /// \throws std::runtime_error when the file cannot be opened (names it)
  explicit ChromeTrace(TraceOptions options);
  ~ChromeTrace() override;
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  bool wants(const Point& point) override;
  void on_event(const Point& point, const Event& event) override;

  /// Ends the document. Later events are dropped. \throws std::runtime_error when it could not be written completely
  void finish();

  uint64_t slices() const { return m_slices; }
  uint64_t arrows() const { return m_arrows; }

 private:
  /// Where slices are drawn: a process (SIP, or what belongs to none) and a thread in it.
  struct Track {
    uint32_t pid = 0, tid = 0;
    Ps busy_until = 0;
  };
  struct Region {
    Ps begin = 0, end = 0;
    std::string name;
  };
  struct PeState {
    std::vector<Region> regions;  ///< of the running kernel, in the order in which they ended
  };
  struct Sent {
    uint64_t number = 0;
    Ps at = 0;
    uint32_t pid = 0, tid = 0;
  };
  struct Held {
    uint64_t number = 0;
    Ps taken = 0, ready = 0;
    uint64_t bytes = 0;
    bool has_arrow = false;
    Sent from;
  };
  struct Slice {
    std::string name;
    const char* category = "";
    Ps begin = 0, end = 0;
    std::string args;
  };
  /// A track whose slices nest.
  struct Lane {
    std::deque<std::pair<Ps, Ps>> drawn;  ///< the newest
    Ps forgotten = 0;                     ///< where those before have ended
    bool takes(Ps begin, Ps end) const;   ///< apart from every slice or inside it
    void add(Ps begin, Ps end);
  };
  struct RankState {
    std::vector<Ps> open;        ///< begins of the operations that are not over, outermost first
    std::deque<Slice> held;      ///< of the first lane, until the outermost operation is over
    std::vector<Lane> lanes{1};  ///< the operations' first
    Event collective;            ///< the last one, below which its parts go
    uint32_t collective_lane = 0;
  };
  using Queue = std::pair<uint32_t, uint32_t>;  ///< flat PE, queue pair

  bool inside(Ps begin, Ps end) const { return end >= m_options.from && begin < m_options.to; }
  Track& track(const Point& point, uint32_t what, uint32_t lane, const std::string& label);
  /// A track of `what` on which nothing overlaps [begin, end).
  Track& free_track(const Point& point, uint32_t what, Ps begin, Ps end, const char* label);
  uint32_t process(const Point& point);
  void slice(const Track& track, const char* name, const char* category, Ps begin, Ps end, const std::string& args);
  void arrow(const Held& held, const Track& to);
  void line(const std::string& text);
  void on_pe(const Point& point, const Event& event);
  void kernel(const Point& point, const Event& event);
  void collective(const Point& point, const Event& event);
  void operation(const Point& point, const Event& event);
  void draw(const Point& point, RankState& rank, uint32_t lane, Slice slice);
  void flush(const Track& track, RankState& rank);

  TraceOptions m_options;
  OutputFile m_out;
  bool m_open = true, m_first = true;
  std::map<std::string, uint32_t> m_processes;
  std::vector<uint32_t> m_threads;  ///< next tid, by pid
  std::unordered_map<uint64_t, Track> m_tracks;
  std::unordered_map<uint32_t, PeState> m_pes;  ///< by point
  std::map<uint32_t, RankState> m_ranks;        ///< by point
  std::map<Queue, std::deque<Sent>> m_sent;     ///< by receiving queue; bounded by its slots
  std::map<Queue, std::vector<Held>> m_held;
  std::unordered_map<uint32_t, bool> m_traced_pes;
  uint64_t m_flow = 0, m_slices = 0, m_arrows = 0;
};

/// A string as JSON, with its quotes.
std::string json_string(const std::string& text);

}  // namespace ahbm::observe
