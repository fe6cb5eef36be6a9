#include "models/tl/twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "models/core/ipcq_protocol.h"
#include "models/tl/framing.h"

namespace ahbm::tl {
namespace {

/// Unwinds the kernels that are left when a run has failed. No std::exception: a kernel's own handlers do not stop it.
struct Aborted {};

/// HBM by pages on first touch; what was never written reads as 0.
class SparseMemory {
 public:
  explicit SparseMemory(const MapShape& shape) : m_shape(shape) {}

  void write(Addr address, const uint8_t* data, uint64_t bytes) {
    check("write", address, bytes);
    for_pages(address, bytes, [&](uint64_t page, uint64_t at, uint64_t n) {
      auto& p = m_pages[page];
      if (p.empty()) p.resize(kPage);
      std::memcpy(p.data() + at, data, n);
      data += n;
    });
  }
  void read(Addr address, uint8_t* data, uint64_t bytes) const {
    check("read", address, bytes);
    for_pages(address, bytes, [&](uint64_t page, uint64_t at, uint64_t n) {
      const auto p = m_pages.find(page);
      if (p == m_pages.end()) {
        std::memset(data, 0, n);
      } else {
        std::memcpy(data, p->second.data() + at, n);
      }
      data += n;
    });
  }

 private:
  static constexpr uint64_t kPage = 64 << 10;

  void check(const char* what, Addr address, uint64_t bytes) const {
    const Decoded d = decode(address, m_shape);
    if (d.region == Region::Hbm && fits(d, bytes)) return;
    throw FaultError(fmt::format("{} of {} bytes at 0x{:x} ({}): the twin has HBM only", what, bytes, address,
                                 d.region == Region::Hbm ? "beyond its end" : to_string(d.region)),
                     address);
  }
  template <typename F>
  static void for_pages(Addr address, uint64_t bytes, F&& f) {
    while (bytes != 0) {
      const uint64_t at = address % kPage;
      const uint64_t n = std::min(bytes, kPage - at);
      f(address / kPage, at, n);
      address += n;
      bytes -= n;
    }
  }

  MapShape m_shape;
  std::unordered_map<uint64_t, std::vector<uint8_t>> m_pages;
};

using Message = std::vector<uint8_t>;  ///< header and payload

/// One PE's end of a queue pair.
struct End {
  launch::LinkEntry link;
  End* peer = nullptr;
  std::deque<Message> arrived;                 ///< at most n_slots, together with what is held
  std::deque<std::pair<uint64_t, bool>> held;  ///< tickets taken out by `recv_slot`, and whether they are given back
  std::map<uint64_t, Message> held_data;
  uint32_t credits = 0;
  std::deque<uint64_t> receiving, sending;  ///< handles of the moves that use it, oldest first
  TwinTraffic traffic;
};

struct ActiveMove {
  Move move;
  Handle handle = 0;
  std::vector<End*> from, to;
  uint64_t piece_elems = 0, pieces = 0;
  uint64_t piece = 0;        ///< the one in work
  bool loaded = false;       ///< acc holds its value
  bool slot_held = false;    ///< acc came from a slot that is given back at the end of the piece
  std::vector<bool> sent;    ///< to each of `to`
  std::vector<uint8_t> acc;  ///< room for a header, then the payload
};

}  // namespace

struct Twin::Impl {
  class Pe;

  explicit Impl(const TwinConfig& c) : config(c), memory(c.shape) {}

  uint32_t total_pes() const { return config.shape.sips * config.shape.cubes * config.shape.pes; }
  std::string pe_name(uint32_t flat) const {
    const uint32_t per_sip = config.shape.cubes * config.shape.pes;
    return fmt::format("PE {} (sip{}.cube{}.pe{})", flat, flat / per_sip, flat / config.shape.pes % config.shape.cubes,
                       flat % config.shape.pes);
  }
  void drain();
  bool progress_all();
  void pass_baton(Pe* from);

  TwinConfig config;
  SparseMemory memory;
  std::map<uint32_t, std::map<Dir, std::unique_ptr<End>>> ends;

  // Of the run in progress. Whoever holds the baton owns everything; the mutex only orders its hand-over.
  std::vector<std::unique_ptr<Pe>> pes;
  std::mutex mutex;
  std::condition_variable finished;
  Pe* running = nullptr;
  bool failed = false;
  std::exception_ptr failure;
};

/// One running kernel: its Tl and its thread.
class Twin::Impl::Pe final : public Tl {
 public:
  Pe(Impl& impl, const TwinLaunch& launch) : m_impl(impl), m_launch(launch) {
    std::vector<launch::LinkEntry> links;
    auto found = impl.ends.find(launch.flat_pe);
    if (found != impl.ends.end()) {
      for (auto& [dir, end] : found->second) links.push_back(end->link);
    }
    launch::ArgHeader header = launch.header;
    header.n_args = static_cast<uint32_t>(launch.args.size());
    header.n_links = static_cast<uint32_t>(links.size());
    configure(header, std::move(links), launch.flat_pe);
  }

  void start() {
    m_thread = std::thread([this] { thread_main(); });
  }
  void join() {
    if (m_thread.joinable()) m_thread.join();
  }

  Handle submit(const Move& move) override {
    check_move(move);
    auto m = std::make_unique<ActiveMove>();
    m->move = move;
    m->handle = m_next_handle++;
    if (move.count == 0) return m->handle;
    block([this] { return m_moves.size() < m_impl.config.max_moves; }, "submit, with the most moves in flight");
    const uint32_t bytes = piece_bytes(move, [this](Dir d) { return peer(d).slot_bytes; });
    m->piece_elems = bytes / item_bytes(move.dtype);
    m->pieces = ceil_div(move.count, m->piece_elems);
    m->sent.resize(move.to.size());
    for (Dir d : move.from) {
      m->from.push_back(&end(d));
      m->from.back()->receiving.push_back(m->handle);
    }
    for (Dir d : move.to) {
      m->to.push_back(&end(d));
      m->to.back()->sending.push_back(m->handle);
    }
    const Handle handle = m->handle;
    m_moves.push_back(std::move(m));
    return handle;
  }

  void wait(Handle handle) override {
    if (handle == 0 || handle >= m_next_handle) {
      throw ProtocolError(fmt::format("wait for handle {}, which no submit returned", handle));
    }
    block([this, handle] { return find(handle) == nullptr; }, fmt::format("wait for move {}", handle));
  }

  void wait_all() override {
    block([this] { return m_moves.empty(); }, "wait for all moves");
  }

  Slot recv_slot(Dir from, DType t, uint64_t n, uint16_t step) override {
    peer(from);  // names the directions there are
    End& e = end(from);
    const Handle turn = m_next_handle++;
    e.receiving.push_back(turn);
    block([&] { return e.receiving.front() == turn && !e.arrived.empty(); },
          fmt::format("recv_slot step {} from {}", step, to_string(from)));
    e.receiving.pop_front();
    const uint64_t bytes = n * item_bytes(t);
    check(e, from, step, t, bytes, std::nullopt);
    e.held.emplace_back(turn, false);
    Message& kept = e.held_data[turn];
    kept = std::move(e.arrived.front());
    e.arrived.pop_front();
    return make_slot(from, kept.data() + ipcq::kHeaderBytes, bytes, turn);
  }

  /// Does what this PE's moves can do. True when something happened. An error ends this kernel at its next wait.
  bool progress() {
    if (m_error) return false;
    bool any = false;
    try {
      for (bool again = true; again;) {
        again = false;
        const bool backwards = (m_impl.config.schedule & 1) != 0;
        for (size_t i = 0; i < m_moves.size(); ++i) {
          ActiveMove& m = *m_moves[backwards ? m_moves.size() - 1 - i : i];
          while (advance(m)) again = any = true;
        }
        m_moves.erase(
            std::remove_if(m_moves.begin(), m_moves.end(), [](const auto& m) { return m->piece == m->pieces; }),
            m_moves.end());
      }
    } catch (...) {
      m_error = std::current_exception();
      return true;
    }
    return any;
  }

  bool runnable() const { return !m_done && (m_error || !m_blocked || (*m_blocked)()); }
  bool done() const { return m_done; }
  uint32_t flat() const { return m_launch.flat_pe; }
  std::condition_variable& turn() { return m_turn; }

  std::string waiting_for() const {
    if (m_done) return {};
    std::string text = fmt::format("{}: {}", m_impl.pe_name(flat()), m_blocked_text);
    for (const auto& m : m_moves) {
      std::string why;
      const auto add = [&](const std::string& s) { why += (why.empty() ? "" : ", ") + s; };
      for (size_t i = 0; i < m->from.size() && !m->loaded; ++i) {
        const End& e = *m->from[i];
        if (e.receiving.front() != m->handle) continue;
        if (e.arrived.empty()) add(fmt::format("a message from {}", to_string(m->move.from[i])));
      }
      for (size_t i = 0; i < m->to.size(); ++i) {
        const End& e = *m->to[i];
        if (m->sent[i] || e.sending.front() != m->handle || e.credits != 0 || (!m->loaded && !m->from.empty()))
          continue;
        add(fmt::format("a credit of {} (0 of {})", to_string(m->move.to[i]), e.link.n_slots));
      }
      if (!why.empty()) {
        text += fmt::format("; move {} step {} piece {}/{} waits for {}", m->handle, m->move.step, m->piece, m->pieces,
                            why);
      }
    }
    return text;
  }

 protected:
  uint8_t* tcm_alloc(uint64_t bytes) override {
    if (m_tcm_used + bytes > m_impl.config.tile_bytes) {
      throw ProtocolError(fmt::format("a tile of {} bytes does not fit: {} of {} bytes of TCM are in use", bytes,
                                      m_tcm_used, m_impl.config.tile_bytes));
    }
    m_tcm_used += bytes;
    return static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{64}));
  }
  void tcm_free(uint8_t* p, uint64_t bytes) override {
    m_tcm_used -= bytes;
    ::operator delete (p, std::align_val_t{64});
  }
  uint64_t dma_load(Addr src, uint8_t* dst, uint64_t bytes) override {
    m_impl.memory.read(src, dst, bytes);
    return 0;
  }
  void dma_store(Addr dst, const uint8_t* src, uint64_t bytes, uint64_t) override {
    m_impl.memory.write(dst, src, bytes);
  }
  uint64_t vector_time(uint64_t, uint64_t) override { return 0; }
  uint64_t mac_time(uint64_t, uint64_t, uint64_t, uint64_t) override { return 0; }

  void release_slot(Dir dir, uint64_t ticket) override {
    End& e = end(dir);
    e.held_data.erase(ticket);
    for (auto& h : e.held) {
      if (h.first == ticket) h.second = true;
    }
    // The ring is given back from its oldest slot on.
    while (!e.held.empty() && e.held.front().second) {
      e.held.pop_front();
      ++e.peer->credits;
    }
  }

 private:
  End& end(Dir dir) { return *m_impl.ends.at(flat()).at(dir); }

  const ActiveMove* find(Handle handle) const {
    for (const auto& m : m_moves) {
      if (m->handle == handle) return m.get();
    }
    return nullptr;
  }

  /// \param message number in the move; empty: whichever it is
  void check(const End& e, Dir dir, uint16_t step, DType t, uint64_t bytes, std::optional<uint32_t> message) const {
    ipcq::SlotHeader received;
    std::memcpy(&received, e.arrived.front().data(), sizeof received);
    const auto expected = make_header(group(), sequence(), step, t, static_cast<uint32_t>(bytes), e.link.peer_flat_pe,
                                      message.value_or(received.message));
    const std::string mismatch = check_header(received, expected);
    if (!mismatch.empty()) {
      throw ProtocolError(fmt::format("PE {} direction {}: {}", flat_pe(), to_string(dir), mismatch));
    }
  }

  /// The next thing that can happen to a move; false when nothing can.
  bool advance(ActiveMove& m) {
    if (m.piece == m.pieces) return false;
    if (!m.loaded) return receive(m);
    for (size_t i = 0; i < m.to.size(); ++i) {
      if (!m.sent[i] && send(m, i)) return true;
    }
    if (!std::all_of(m.sent.begin(), m.sent.end(), [](bool b) { return b; })) return false;
    retire(m);
    return true;
  }

  bool receive(ActiveMove& m) {
    for (End* e : m.from) {
      if (e->receiving.front() != m.handle || e->arrived.empty()) return false;
    }
    const Move& mv = m.move;
    const uint64_t item = item_bytes(mv.dtype);
    const uint64_t first = m.piece * m.piece_elems;
    const uint64_t count = std::min(m.piece_elems, mv.count - first);
    for (size_t i = 0; i < m.from.size(); ++i) {
      check(*m.from[i], mv.from[i], received_step(mv), mv.dtype, count * item, static_cast<uint32_t>(m.piece));
    }
    m.acc.resize(ipcq::kHeaderBytes + count * item);
    uint8_t* acc = m.acc.data() + ipcq::kHeaderBytes;
    bool have = mv.local != 0;
    if (have) m_impl.memory.read(mv.local + first * item, acc, count * item);
    for (End* e : m.from) {
      const uint8_t* slot = e->arrived.front().data() + ipcq::kHeaderBytes;
      if (have) {
        reduce(mv.op, mv.dtype, acc, mv.local_last ? slot : acc, mv.local_last ? acc : slot, count);
      } else {
        std::memcpy(acc, slot, count * item);
      }
      have = true;
    }
    if (mv.divisor > 1) divide(mv.dtype, acc, count, mv.divisor);
    m.loaded = true;
    m.slot_held = mv.local == 0 && mv.from.size() == 1 && mv.divisor == 1;
    if (!m.slot_held) give_back(m);
    return true;
  }

  void give_back(ActiveMove& m) {
    for (End* e : m.from) {
      e->arrived.pop_front();
      if (e->held.empty()) {
        ++e->peer->credits;
      } else {
        e->held.emplace_back(m.handle, true);  // younger than a slot that the kernel still holds
      }
      if (m.piece + 1 == m.pieces) e->receiving.pop_front();
    }
  }

  bool send(ActiveMove& m, size_t i) {
    End& e = *m.to[i];
    if (e.sending.front() != m.handle || e.credits == 0) return false;
    const auto header = make_header(group(), sequence(), m.move.step, m.move.dtype,
                                    static_cast<uint32_t>(m.acc.size() - ipcq::kHeaderBytes), flat_pe(),
                                    static_cast<uint32_t>(m.piece));
    std::memcpy(m.acc.data(), &header, sizeof header);
    --e.credits;
    e.peer->arrived.push_back(m.acc);
    ++e.traffic.messages_sent;
    e.traffic.payload_bytes_sent += header.bytes;
    m.sent[i] = true;
    if (m.piece + 1 == m.pieces) e.sending.pop_front();
    return true;
  }

  void retire(ActiveMove& m) {
    if (m.move.store != 0) {
      m_impl.memory.write(m.move.store + m.piece * m.piece_elems * item_bytes(m.move.dtype),
                          m.acc.data() + ipcq::kHeaderBytes, m.acc.size() - ipcq::kHeaderBytes);
    }
    if (m.slot_held) give_back(m);
    m.loaded = m.slot_held = false;
    m.sent.assign(m.sent.size(), false);
    ++m.piece;
  }

  /// Lets everything move until `ready` holds; gives the baton away when nothing can.
  void block(const std::function<bool()>& ready, std::string text) {
    if (m_impl.failed) throw Aborted();
    m_blocked_text = std::move(text);
    m_blocked = &ready;
    do {
      while (!m_error && !ready() && m_impl.progress_all()) {
      }
      if (!m_error && ready()) break;
      if (!m_error) {
        m_impl.pass_baton(this);
        if (m_impl.failed) {
          m_blocked = nullptr;
          throw Aborted();
        }
      }
    } while (!m_error && !ready());
    m_blocked = nullptr;
    m_blocked_text.clear();
    if (m_error) std::rethrow_exception(std::exchange(m_error, nullptr));
  }

  void thread_main() {
    {
      std::unique_lock<std::mutex> lock(m_impl.mutex);
      m_turn.wait(lock, [this] { return m_impl.running == this; });
    }
    if (!m_impl.failed) {
      try {
        m_launch.kernel(*this, Args(m_launch.args));
        wait_all();
      } catch (const Aborted&) {
      } catch (const ProtocolError& e) {
        fail(std::make_exception_ptr(ProtocolError(name(e.what()))));
      } catch (const FaultError& e) {
        fail(std::make_exception_ptr(FaultError(name(e.what()), e.address())));
      } catch (const std::exception& e) {
        fail(std::make_exception_ptr(std::runtime_error(name(e.what()))));
      } catch (...) {
        fail(std::make_exception_ptr(std::runtime_error(name("the kernel threw something that is no std::exception"))));
      }
    }
    m_done = true;
    m_impl.pass_baton(this);
  }

  std::string name(const char* what) const { return fmt::format("{}: {}", m_impl.pe_name(flat()), what); }
  void fail(std::exception_ptr e) {
    if (m_impl.failed) return;
    m_impl.failed = true;
    m_impl.failure = std::move(e);
  }

  Impl& m_impl;
  TwinLaunch m_launch;
  std::thread m_thread;
  std::condition_variable m_turn;
  std::vector<std::unique_ptr<ActiveMove>> m_moves;  ///< in order of submission
  Handle m_next_handle = 1;
  uint64_t m_tcm_used = 0;
  const std::function<bool()>* m_blocked = nullptr;
  std::string m_blocked_text;
  std::exception_ptr m_error;
  bool m_done = false;
};

bool Twin::Impl::progress_all() {
  bool any = false;
  const bool backwards = (config.schedule & 2) != 0;
  for (size_t i = 0; i < pes.size(); ++i) any |= pes[backwards ? pes.size() - 1 - i : i]->progress();
  return any;
}

/// Chooses who runs next, the following PE first; a kernel that is not done then sleeps until its turn comes. When
/// nobody can run although kernels are left, the run has failed, and each of them gets a turn to unwind.
void Twin::Impl::pass_baton(Pe* from) {
  const size_t n = pes.size();
  const auto self = std::find_if(pes.begin(), pes.end(), [from](const auto& p) { return p.get() == from; });
  const auto at = static_cast<size_t>(self - pes.begin());
  Pe* next = nullptr;
  const auto choose = [&] {
    for (size_t i = 1; i <= n && next == nullptr; ++i) {
      Pe* p = pes[(at + i) % n].get();
      if (failed ? !p->done() : p->runnable()) next = p;
    }
  };
  choose();
  while (next == nullptr && !failed && progress_all()) choose();
  if (next == nullptr && !failed && std::any_of(pes.begin(), pes.end(), [](const auto& p) { return !p->done(); })) {
    std::string text = "deadlock: no kernel can go on";
    for (const auto& p : pes) {
      const std::string line = p->waiting_for();
      if (!line.empty()) text += "\n  " + line;
    }
    failed = true;
    failure = std::make_exception_ptr(DeadlockError(text));
    choose();
  }
  std::unique_lock<std::mutex> lock(mutex);
  running = next;
  if (next == nullptr) {
    finished.notify_all();
  } else if (next != from) {
    next->turn().notify_all();
  }
  if (from->done() || next == from) return;
  from->turn().wait(lock, [&] { return running == from; });
}

/// Back to the state after `connect`.
void Twin::Impl::drain() {
  for (auto& [pe, dirs] : ends) {
    for (auto& [dir, e] : dirs) {
      e->arrived.clear();
      e->held.clear();
      e->held_data.clear();
      e->receiving.clear();
      e->sending.clear();
      e->credits = e->link.n_slots;
    }
  }
}

Twin::Twin(const TwinConfig& config) : m_impl(std::make_unique<Impl>(config)) {}
Twin::~Twin() = default;

void Twin::connect(const TwinConnection& c) {
  for (uint32_t pe : {c.pe_a, c.pe_b}) {
    if (pe >= m_impl->total_pes()) {
      throw std::invalid_argument(fmt::format("connect: PE {} of a machine of {}", pe, m_impl->total_pes()));
    }
  }
  if (c.n_slots == 0 || c.slot_bytes <= ipcq::kHeaderBytes) {
    throw std::invalid_argument(fmt::format("connect: {} slots of {} bytes; at least 1 of more than {} are expected",
                                            c.n_slots, c.slot_bytes, ipcq::kHeaderBytes));
  }
  const auto make = [&](uint32_t pe, Dir dir, uint32_t peer) {
    auto e = std::make_unique<End>();
    auto& dirs = m_impl->ends[pe];
    e->link = {static_cast<uint16_t>(dir), static_cast<uint16_t>(dirs.size()), peer, c.slot_bytes, c.n_slots};
    e->credits = c.n_slots;
    const auto [it, fresh] = dirs.emplace(dir, std::move(e));
    if (!fresh) {
      throw std::invalid_argument(fmt::format("connect: {} of {} is taken", to_string(dir), m_impl->pe_name(pe)));
    }
    return it->second.get();
  };
  End* a = make(c.pe_a, c.dir_a, c.pe_b);
  End* b = make(c.pe_b, c.dir_b, c.pe_a);
  a->peer = b;
  b->peer = a;
}

void Twin::write(Addr address, const void* data, size_t bytes) {
  m_impl->memory.write(address, static_cast<const uint8_t*>(data), bytes);
}

void Twin::read(Addr address, void* data, size_t bytes) const {
  m_impl->memory.read(address, static_cast<uint8_t*>(data), bytes);
}

TwinTraffic Twin::traffic(uint32_t flat_pe, Dir dir) const {
  const auto pe = m_impl->ends.find(flat_pe);
  if (pe == m_impl->ends.end()) return {};
  const auto e = pe->second.find(dir);
  return e == pe->second.end() ? TwinTraffic() : e->second->traffic;
}

void Twin::run(const std::vector<TwinLaunch>& launches) {
  Impl& impl = *m_impl;
  std::vector<bool> used(impl.total_pes());
  for (const TwinLaunch& l : launches) {
    if (l.flat_pe >= impl.total_pes()) {
      throw std::invalid_argument(fmt::format("run: PE {} of a machine of {}", l.flat_pe, impl.total_pes()));
    }
    if (l.kernel == nullptr) throw std::invalid_argument(fmt::format("run: no kernel for PE {}", l.flat_pe));
    if (used[l.flat_pe]) throw std::invalid_argument(fmt::format("run: two kernels for PE {}", l.flat_pe));
    used[l.flat_pe] = true;
  }
  if (launches.empty()) return;
  impl.failed = false;
  impl.failure = nullptr;
  for (const TwinLaunch& l : launches) impl.pes.push_back(std::make_unique<Impl::Pe>(impl, l));
  for (auto& pe : impl.pes) pe->start();
  {
    std::unique_lock<std::mutex> lock(impl.mutex);
    impl.running = impl.pes[(impl.config.schedule >> 2) % impl.pes.size()].get();
    impl.running->turn().notify_all();
    impl.finished.wait(lock, [&] { return impl.running == nullptr; });
  }
  for (auto& pe : impl.pes) pe->join();
  impl.pes.clear();

  std::string left;
  if (!impl.failed) {
    for (auto& [pe, dirs] : impl.ends) {
      for (auto& [dir, e] : dirs) {
        if (e->arrived.empty() && e->credits == e->link.n_slots) continue;
        left += fmt::format("\n  {} direction {}: {} messages nobody received, {} of {} credits", impl.pe_name(pe),
                            to_string(dir), e->arrived.size(), e->credits, e->link.n_slots);
      }
    }
  }
  if (impl.failed || !left.empty()) impl.drain();
  if (impl.failed) std::rethrow_exception(std::exchange(impl.failure, nullptr));
  if (!left.empty()) throw std::logic_error("queues are not empty at the end of a run:" + left);
}

}  // namespace ahbm::tl
