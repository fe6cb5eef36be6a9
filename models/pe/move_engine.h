// Carries out moves (models/tl/tl.h) on the hardware of one PE: cuts them into pieces and runs the stages of every
// piece
// - load, receive, reduce, send and store, retire - as soon as its inputs are there and its resources are free. Pieces
// of a move overlap, and so do moves; messages of one queue pair keep the order in which their moves were submitted.
//
// No SystemC: time comes in through `progress`, which says when it wants to be called next.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/core/ipcq_protocol.h"
#include "models/core/progress.h"
#include "models/core/ring_buffer.h"
#include "models/ipcq/ipcq_port.h"
#include "models/pe/compute.h"
#include "models/pe/dma.h"
#include "models/pe/scratch.h"
#include "models/tl/tl.h"

namespace ahbm::models {

struct MoveStats {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;  ///< headers included
  // Summed over queue pairs: from when the oldest move of a pair could go on but for a credit (a message) until it
  // came.
  Ps waited_credit = 0;
  Ps waited_message = 0;
  uint64_t credit_waits = 0;
  uint64_t message_waits = 0;
};

class MoveEngine {
 public:
  struct Parts {
    const SystemConfig* config;
    IpcqPort* ipcq;
    Dma* dma;
    ComputeModel* compute;
    Scratch* scratch;
    Tcm* tcm;
    Progress* progress;  ///< counts activity for stall detection
  };
  explicit MoveEngine(const Parts& parts) : m_parts(parts), m_functional(parts.config->simulation.functional) {}

  /// Forgets everything and takes the link table of a new launch.
  void begin(const launch::ArgHeader& header, const std::vector<launch::LinkEntry>& links, uint32_t flat_pe);

  tl::Handle submit(const tl::Move& move);
  /// Takes moves from a source without submitting them, several at a time: what makes them is in none of the host's
  /// caches when it is asked for one after every message. False: it has no more.
  bool read_ahead(const tl::MoveSource& next);
  bool has_read() const { return !m_read.empty(); }
  bool reads_soon() const { return m_read.size() < 2; }  ///< so few are left that the source will be asked for more
  void submit_read();                                    ///< the oldest of them. \pre has_read()
  void drop_read();
  bool done(tl::Handle handle) const;
  /// Whether something has happened since the last `progress` that it could act on at once.
  bool ripples() const { return m_ripple; }
  bool idle() const { return m_in_flight == 0; }
  /// Moves that have transfers to issue yet; the last ones of the others are under way.
  uint32_t unissued() const { return m_unissued; }

  static constexpr tl::Handle kNobody = 0, kEverybody = ~tl::Handle{0};
  /// Who calls `progress`: a process that may wait, or one that may not and can therefore only send to what is known
  /// not to wait either.
  enum class Caller : uint8_t { Thread, Method };
  /// Does what can be done at `now`. Returns when something will be possible without any outside event, or kNever. That
  /// a move has done its last transfer counts only for those that somebody waits for: `awaited`, or all (kEverybody).
  /// \throws tl::ProtocolError for a message that does not match, tl::FaultError for an address that answered an error
  Ps progress(Ps now, tl::Handle awaited, Caller caller);
  /// The last `progress` left something undone that only a thread may do.
  bool needs_thread() const { return m_needs_thread; }

  /// A message / a credit of this queue pair has become known and counts from then on. Answers when to wake up for it,
  /// or kNever.
  Ps message_came(QpId qp, Ps ready, Ps now);
  Ps credit_came(QpId qp, Ps at);

  /// What `message_came` (for who takes) or `credit_came` (for who sends) looks at.
  void name_touched(QpId qp, IpcqPort::Use use, HostLines& lines) const;
  /// `progress` will be called at `at` and perhaps for times up to `until`, `turns` wake-ups later
  /// (models/pe/wake_queue.h): asks the host for what it is going to look at.
  void fetch(uint32_t turns, Ps at, Ps until) const;

  /// Staging areas that are kept for the next piece go back to the scratch memory. False: there were none.
  bool give_back_spares();

  /// Latest time at which everything that was stored has reached its memory.
  Ps stored_by() const { return m_stored_by; }
  /// One line per blocked move, for the stall report.
  std::string waiting_for(Ps now) const;

  const MoveStats& stats() const { return m_stats; }
  void observe(const observe::Tap* tap) { m_tap = tap; }
  /// A wait for a message outside of moves, over [begin, now).
  void waited_for_message(Ps begin, Ps now, QpId qp) { end_wait(begin, now, observe::Wait::Message, qp); }
  /// Receives that `recv_slot` does outside of moves need the lane to be free of earlier moves.
  bool lane_idle(tl::Dir dir) const;
  QpId qp_of(tl::Dir dir) const { return m_lanes[lane_index(dir)].qp; }

 private:
  static constexpr Ps kNotWaiting = ~Ps{0};
  static constexpr uint32_t kLoadAheadBytes = 64 << 10;
  static constexpr uint32_t kWindow = 8;  ///< pieces of one move in flight

  // A PE has sixteen moves queued, and some more under way; the host has to hold those of every PE in its caches. So
  // what waits for its turn takes one cache line, and a move gets the rest when it is the oldest one on a queue pair.
  static constexpr uint16_t kNoState = 0xFFFF;
  struct alignas(64) QueuedMove {
    Addr local, store;
    uint64_t count;
    uint32_t divisor;
    uint32_t handle;  ///< its low half
    uint32_t piece_elems;
    uint16_t step, recv_step;
    uint16_t from[4], to[4];  ///< lane indices
    uint16_t state;           ///< index of its MoveState
    DType dtype;
    ReduceOp op;
    uint8_t n_from : 3, n_to : 3;
    bool local_last : 1;
  };
  struct Piece {
    uint32_t count = 0;
    uint32_t stage = kUnstaged;  ///< TCM offset of header + payload
    Ps load_ready = 0;
    Ps acc_ready = 0;
    Ps taken = 0;  ///< the result is there, and all sends and the store have read it
    uint32_t slot_offset[4] = {};
    bool slots_held = false;
  };
  static constexpr uint32_t kUnstaged = ~uint32_t{0};
  // By cache line: what decides whether it is looked at and how far it is, the messages per direction, the piece.
  struct alignas(64) MoveState {
    QueuedMove* move = nullptr;
    Ps next_time = kNever;  ///< when it can go on by itself
    Ps lazy_time = kNever;  ///< when its oldest piece is done with its transfers, if nothing else waits for that
    bool dirty = true;      ///< something happened that may let it go on
    bool drained = false;   ///< every transfer is issued
    bool computes = false;  ///< the accumulator is in the staging area, else it is the received slot
    uint8_t item = 4;
    uint32_t pieces = 0;
    uint32_t opened = 0, loaded = 0, computed = 0, stored = 0, retired = 0;
    std::unique_ptr<Piece[]> ring;  ///< index modulo kWindow; only used by moves of several pieces

    uint32_t received[4] = {}, sent[4] = {};
    uint64_t first_ticket[4] = {};  ///< of the messages received per source: those of a move follow each other

    Piece single;  ///< of a move that is one piece, as most are in short collectives
    Piece& piece(uint32_t i) { return pieces == 1 ? single : ring[i % kWindow]; }
  };
  static_assert(sizeof(QueuedMove) == 64 && sizeof(MoveState) == 192);
  // Two cache lines, and the route.
  struct alignas(64) Lane {
    RingBuffer<QueuedMove*> receiving, sending;
    MoveState *receiver = nullptr, *sender = nullptr;  ///< of the fronts, if any
    Ps message_since = kNotWaiting, credit_since = kNotWaiting;
    QpId qp{};
    launch::LinkEntry link;
    Route route;
  };

  size_t lane_index(tl::Dir dir) const;
  tl::Dir dir_of(uint16_t lane) const { return static_cast<tl::Dir>(m_lane_dirs[lane]); }
  QueuedMove& acquire_queued();
  /// Checked and with everything that a move says, not in any queue yet.
  QueuedMove& check_in(const tl::Move& move);
  tl::Handle queue_up(QueuedMove& q);
  void free_block(QueuedMove* block);
  void fetch_for(const QueuedMove& q, uint32_t turns, Ps at) const;
  /// There is something to do but to retire pieces.
  static bool goes_on(const MoveState& m, Ps now) { return m.dirty || m.next_time <= now; }
  MoveState& state(const QueuedMove& q) { return m_states[q.state / kBlock][q.state % kBlock]; }
  /// Gives the move a state and lists it, unless it has one.
  MoveState& start(QueuedMove& q);
  void advance(MoveState& m, Ps now);
  void advance_loads(MoveState& m, Ps now);
  void advance_receives(MoveState& m, Ps now);
  void advance_computes(MoveState& m, Ps now);
  void advance_sends(MoveState& m, Ps now);
  void advance_stores(MoveState& m, Ps now);
  bool advance_retires(MoveState& m, Ps now);
  uint32_t piece_count(const MoveState& m, uint32_t i) const;
  uint64_t piece_offset(const MoveState& m, uint32_t i) const { return uint64_t{i} * m.move->piece_elems * m.item; }
  /// Else what is loaded is sent or stored as it is.
  static bool combines(const MoveState& m) { return m.move->n_from != 0 || m.move->divisor > 1; }
  bool stage(MoveState& m, Piece& p);
  void unstage(const MoveState& m, const Piece& p);
  void stage_result(const MoveState& m, Piece& p);
  static uint64_t stage_bytes(const MoveState& m) {
    return ipcq::kHeaderBytes + uint64_t{m.move->piece_elems} * m.item;
  }
  /// Where the result is in the TCM, header first.
  uint64_t accumulator(const MoveState& m, const Piece& p) const { return m.computes ? p.stage : p.slot_offset[0]; }
  /// Where the data pointer of a transfer goes: null when the simulation moves no payload bytes.
  uint8_t* payload(uint8_t* slot) const;
  bool open(MoveState& m, uint32_t i);
  Ps output_start(MoveState& m, uint32_t i, Ps now);
  /// Whether a transfer that starts at `start` may be issued now. To what is ours, ahead of time; to what may wait,
  /// when its time has come and by a thread only, which is asked for.
  bool allowed(MoveState& m, bool ours, Ps start, Ps now) {
    if (ours) return true;
    if (start > now) {
      wake_at(m, start);
      return false;
    }
    m_needs_thread = m_needs_thread || !m_may_wait;
    return m_may_wait;
  }
  bool may_release(MoveState& m, const Piece& p, Ps now);
  void finish(MoveState& m);
  void forget_finished();
  void forget_done();
  /// Gives the received slots back; their credits leave at `at`, when nothing reads them any more.
  void release_slots(MoveState& m, uint32_t i, Ps at);
  static bool issued(const MoveState& m, uint32_t i);  ///< every transfer of piece i
  void used_up(MoveState& m, uint32_t i);
  static void wake_at(MoveState& m, Ps t) { m.next_time = std::min(m.next_time, t); }
  void pass_on(RingBuffer<QueuedMove*>& queue, MoveState*& front);
  const Lane* lane_of(QpId qp) const {
    const size_t i = value(qp);
    return i < m_lane_of_qp.size() && m_lane_of_qp[i] >= 0 ? &m_lanes[static_cast<size_t>(m_lane_of_qp[i])] : nullptr;
  }
  Lane* lane_of(QpId qp) { return const_cast<Lane*>(std::as_const(*this).lane_of(qp)); }
  /// The wait of a lane that began at `since` is over.
  void end_wait(Ps& since, Ps now, observe::Wait what, QpId qp);
  void tell_send(const Lane& lane, const SendSlot& slot, Ps now, Ps taken, uint32_t bytes) const;
  [[noreturn]] void fault(const char* what, Addr address, tlm::tlm_response_status status);

  // By cache line, the most used first.
  alignas(64) Parts m_parts;
  const observe::Tap* m_tap = nullptr;

  std::vector<Lane> m_lanes;
  std::vector<MoveState*> m_listed;  ///< moves that may do something: at the head of a lane, or without lanes
  uint32_t m_in_flight = 0, m_unissued = 0;
  const bool m_functional;  ///< payload bytes are moved
  bool m_may_wait = true, m_needs_thread = false;
  bool m_ripple = false;   ///< something happened that other moves may have waited for
  bool m_starved = false;  ///< a piece found no room to be staged

  std::vector<int16_t> m_lane_of_qp;
  std::vector<uint16_t> m_lane_dirs;  ///< tl::Dir by lane
  RingBuffer<bool> m_done;            ///< from m_first_handle on
  tl::Handle m_first_handle = 1;
  Ps m_stored_by = 0;

  MoveStats m_stats;
  uint64_t m_spare_bytes = 0;

  // Staging areas of m_spare_bytes that no piece uses; in the second ones are results that something loaded went into,
  // in the lines that the host used last.
  std::vector<uint64_t> m_spares, m_result_spares;
  // Blocks of moves; those that are free, the ones used last on top.
  static constexpr uint32_t kBlock = 8;
  std::vector<std::unique_ptr<QueuedMove[]>> m_queued;
  std::vector<std::unique_ptr<MoveState[]>> m_states;
  std::vector<QueuedMove*> m_free;
  std::vector<uint16_t> m_free_states;
  static constexpr uint32_t kReadAhead = 8;
  RingBuffer<QueuedMove*> m_read;  ///< from a source, ahead of their submission
  launch::ArgHeader m_header;
  uint32_t m_flat_pe = 0;
};

}  // namespace ahbm::models
