#include "ccl/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>

#include "ccl/kernel_arguments.h"
#include "models/core/errors.h"
#include "models/tl/framing.h"

namespace ahbm::ccl {
namespace {

// A PE's buffers, in an address space of its own.
constexpr Addr kInput = Addr{1} << 52, kOutput = Addr{2} << 52, kScratch = Addr{3} << 52;
constexpr Addr kAreaMask = Addr{3} << 52;

struct Problem {
  std::string text;
};

/// What a kernel asked for, in order.
struct Action {
  enum Kind { Submit, Wait, WaitAll } kind = WaitAll;
  tl::Handle handle = 0;
  tl::Move move;
};

class RecordingTl final : public tl::Tl {
 public:
  RecordingTl(const launch::ArgHeader& header, std::vector<launch::LinkEntry> links, uint32_t flat_pe) {
    configure(header, std::move(links), flat_pe);
  }
  tl::Handle submit(const tl::Move& move) override {
    tl::check_move(move);
    ++m_last;
    if (move.count == 0) return m_last;
    for (tl::Dir d : move.from) peer(d);
    for (tl::Dir d : move.to) peer(d);
    actions.push_back({Action::Submit, m_last, move});
    return m_last;
  }
  void wait(tl::Handle handle) override {
    if (handle == 0 || handle > m_last) throw tl::ProtocolError(fmt::format("wait for unknown handle {}", handle));
    actions.push_back({Action::Wait, handle, {}});
  }
  void wait_all() override { actions.push_back({Action::WaitAll, 0, {}}); }
  tl::Slot recv_slot(tl::Dir, DType, uint64_t, uint16_t) override { refuse("recv_slot"); }

  std::vector<Action> actions;

 protected:
  uint8_t* tcm_alloc(uint64_t) override { refuse("tiles"); }
  void tcm_free(uint8_t*, uint64_t) override {}
  uint64_t dma_load(Addr, uint8_t*, uint64_t) override { refuse("tiles"); }
  void dma_store(Addr, const uint8_t*, uint64_t, uint64_t) override { refuse("tiles"); }
  uint64_t vector_time(uint64_t, uint64_t) override { return 0; }
  uint64_t mac_time(uint64_t, uint64_t, uint64_t, uint64_t) override { return 0; }
  bool functional() const override { return false; }
  void release_slot(tl::Dir, uint64_t) override {}

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw NotImplementedError(fmt::format("the plan check follows moves only, and the kernel uses {}", what));
  }
  tl::Handle m_last = 0;
};

/// What an element stands for: a set of contributions, by number, what it was divided by, and which element of the
/// contributions it is: the one at its own index plus `shift`.
struct Value {
  uint32_t set = 0;
  uint64_t divisor = 1;
  int64_t shift = 0;
  bool operator==(const Value& o) const { return set == o.set && divisor == o.divisor && shift == o.shift; }
};

/// Sets of contributions, each once, and their unions.
class Sets {
 public:
  explicit Sets(uint32_t contributions) : m_contributions(contributions) {}
  uint32_t single(uint32_t c) {
    std::vector<bool> s(m_contributions);
    s[c] = true;
    return intern(std::move(s));
  }
  /// What nobody has written.
  uint32_t none() { return intern(std::vector<bool>(m_contributions)); }
  uint32_t all() { return intern(std::vector<bool>(m_contributions, true)); }
  uint32_t unite(uint32_t a, uint32_t b) {
    const uint64_t key = uint64_t{a} << 32 | b;
    const auto known = m_unions.find(key);
    if (known != m_unions.end()) return known->second;
    for (const uint32_t set : {a, b}) {
      if (std::find(m_sets[set].begin(), m_sets[set].end(), true) == m_sets[set].end()) {
        throw Problem{"something is reduced that nobody has written"};
      }
    }
    std::vector<bool> s = m_sets[a];
    for (uint32_t c = 0; c < m_contributions; ++c) {
      if (!m_sets[b][c]) continue;
      if (s[c]) throw Problem{fmt::format("contribution {} is counted twice", c)};
      s[c] = true;
    }
    return m_unions[key] = intern(std::move(s));
  }
  /// The first contribution that a set lacks; m_contributions when it is full.
  uint32_t missing(uint32_t a) const {
    const auto it = std::find(m_sets[a].begin(), m_sets[a].end(), false);
    return static_cast<uint32_t>(it - m_sets[a].begin());
  }
  std::string text(uint32_t a) const {
    std::string out;
    for (uint32_t c = 0; c < m_contributions; ++c) {
      if (m_sets[a][c]) out += fmt::format("{}{}", out.empty() ? "" : "+", c);
    }
    return out.empty() ? "nothing" : out;
  }

 private:
  uint32_t intern(std::vector<bool> s) {
    const auto [it, fresh] = m_ids.emplace(std::move(s), static_cast<uint32_t>(m_sets.size()));
    if (fresh) m_sets.push_back(it->first);
    return it->second;
  }
  uint32_t m_contributions;
  std::vector<std::vector<bool>> m_sets;
  std::map<std::vector<bool>, uint32_t> m_ids;
  std::unordered_map<uint64_t, uint32_t> m_unions;
};

/// Values of consecutive elements, run by run.
struct Run {
  uint64_t count = 0;
  Value value;
};
using Runs = std::vector<Run>;

/// f(count, value of a, value of b) over two equally long rows of runs.
template <typename F>
Runs zip(const Runs& a, const Runs& b, F&& f) {
  Runs out;
  size_t i = 0, j = 0;
  uint64_t used_a = 0, used_b = 0;
  while (i < a.size() && j < b.size()) {
    const uint64_t n = std::min(a[i].count - used_a, b[j].count - used_b);
    out.push_back({n, f(a[i].value, b[j].value)});
    if ((used_a += n) == a[i].count) ++i, used_a = 0;
    if ((used_b += n) == b[j].count) ++j, used_b = 0;
  }
  return out;
}

/// A PE's buffer. Runs outside of it have shifts that count from their own first element.
class Contents {
 public:
  Contents() : Contents(0, {}) {}
  Contents(uint64_t n, Value v) : m_n(n) {
    if (n != 0) m_runs[0] = v;
  }
  Runs read(uint64_t at, uint64_t n) {
    split(at);
    split(at + n);
    Runs out;
    for (auto it = m_runs.find(at); it != m_runs.end() && it->first < at + n; ++it) {
      const auto next = std::next(it);
      out.push_back({(next == m_runs.end() ? m_n : next->first) - it->first, it->second});
      out.back().value.shift += static_cast<int64_t>(at);
    }
    return out;
  }
  void write(uint64_t at, const Runs& runs) {
    uint64_t n = 0;
    for (const Run& r : runs) n += r.count;
    split(at);
    split(at + n);
    m_runs.erase(m_runs.lower_bound(at), m_runs.lower_bound(at + n));
    const auto first = static_cast<int64_t>(at);
    for (const Run& r : runs) {
      Value v = r.value;
      v.shift -= first;
      m_runs[at] = v;
      at += r.count;
    }
    if (m_runs.size() > 4096) merge();
  }
  uint64_t size() const { return m_n; }
  const std::map<uint64_t, Value>& runs() const { return m_runs; }

 private:
  void split(uint64_t at) {
    if (at >= m_n) return;
    auto it = std::prev(m_runs.upper_bound(at));
    if (it->first != at) m_runs.emplace_hint(std::next(it), at, it->second);
  }
  void merge() {
    for (auto it = m_runs.begin(); std::next(it) != m_runs.end();) {
      if (std::next(it)->second == it->second) {
        m_runs.erase(std::next(it));
      } else {
        ++it;
      }
    }
  }
  uint64_t m_n;
  std::map<uint64_t, Value> m_runs;
};

struct Message {
  ipcq::SlotHeader header;
  Runs runs;
};

struct Link {
  launch::LinkEntry entry;
  Link* peer = nullptr;
  bool between_sips = false;
  uint32_t credits = 0;
  std::deque<Message> arrived;
  std::deque<tl::Handle> receiving, sending;
};

struct Active {
  const tl::Move* move = nullptr;
  tl::Handle handle = 0;
  std::vector<Link*> from, to;
  uint64_t piece_elems = 0, pieces = 0, piece = 0;
  bool loaded = false, slot_held = false;
  std::vector<bool> sent;
  Runs acc;
};

struct Program {
  uint32_t rank = 0, cube = 0;
  std::map<tl::Dir, std::unique_ptr<Link>> links;
  std::vector<Action> actions;
  size_t next = 0;
  std::vector<std::unique_ptr<Active>> active;
  CollectiveBuffers buffers;
  std::map<Addr, Contents> areas;  ///< by base address
};

class Checker {
 public:
  Checker(const AlgorithmModule& module, const Group& group, const CollectiveShape& shape, bool in_place,
          const PlanQueues& queues)
      : m_group(group),
        m_collective(module.collective),
        m_shape(shape),
        m_in_place(in_place),
        m_queues(queues),
        m_sets(group.size() * (shape.layout == CubeLayout::Partial ? group.n_cubes : 1)) {
    for (uint32_t pe = 0; pe < group.size() * group.n_cubes; ++pe) {
      m_programs.emplace_back();
      Program& p = m_programs.back();
      p.rank = pe / group.n_cubes;
      p.cube = pe % group.n_cubes;
      place_buffers(p, module.scratch_bytes ? module.scratch_bytes(group, shape) : 0);
    }
    for (const Connection& c : module.connections(group, shape)) connect(c);
    for (Program& p : m_programs) record(module, p);
  }

  void run() {
    for (bool any = true; any;) {
      any = false;
      for (Program& p : m_programs) any |= step(p);
    }
    if (std::any_of(m_programs.begin(), m_programs.end(), [](const Program& p) { return !done(p); })) {
      throw Problem{"cyclic wait:" + waiting()};
    }
    for (Program& p : m_programs) check_result(p);
  }

  PlanReport report;

 private:
  uint32_t index(uint32_t rank, uint32_t cube) const { return rank * m_group.n_cubes + cube; }

  void connect(const Connection& c) {
    const auto end = [&](uint32_t rank, uint32_t cube, tl::Dir dir, uint32_t peer) {
      if (rank >= m_group.size() || cube >= m_group.n_cubes) {
        throw Problem{fmt::format("a connection names rank {} cube {}", rank, cube)};
      }
      auto link = std::make_unique<Link>();
      link->between_sips = c.rank != c.peer_rank;
      const RingShape& shape = link->between_sips ? m_queues.sip : m_queues.cube;
      auto& links = m_programs[index(rank, cube)].links;
      link->entry = {static_cast<uint16_t>(dir), static_cast<uint16_t>(links.size()), peer, shape.slot_bytes,
                     shape.n_slots};
      link->credits = shape.n_slots;
      const auto [it, fresh] = links.emplace(dir, std::move(link));
      if (!fresh) {
        throw Problem{fmt::format("rank {} cube {} has two connections named {}", rank, cube, tl::to_string(dir))};
      }
      return it->second.get();
    };
    Link* a = end(c.rank, c.cube, c.dir, index(c.peer_rank, c.peer_cube));
    Link* b = end(c.peer_rank, c.peer_cube, c.peer_dir, index(c.rank, c.cube));
    a->peer = b;
    b->peer = a;
  }

  void record(const AlgorithmModule& module, Program& p) {
    launch::ArgHeader header;
    header.program_rank = p.rank;
    header.program_ranks = m_group.size();
    header.program_cube = p.cube;
    header.program_cubes = m_group.n_cubes;
    std::vector<launch::LinkEntry> links;
    for (const auto& [dir, link] : p.links) links.push_back(link->entry);
    RecordingTl tl(header, std::move(links), index(p.rank, p.cube));
    module.kernel(tl, tl::Args(pack_arguments(module, m_group, p.rank, p.buffers, m_shape)));
    p.actions = std::move(tl.actions);
  }

  static bool done(const Program& p) { return p.next == p.actions.size() && p.active.empty(); }

  bool step(Program& p) {
    bool any = false;
    for (bool again = true; again;) {
      again = take_action(p);
      for (auto& m : p.active) {
        while (advance(p, *m)) again = true;
      }
      p.active.erase(
          std::remove_if(p.active.begin(), p.active.end(), [](const auto& m) { return m->piece == m->pieces; }),
          p.active.end());
      any |= again;
    }
    return any;
  }

  bool take_action(Program& p) {
    if (p.next == p.actions.size()) return false;
    const Action& a = p.actions[p.next];
    const auto active = [&] {
      return std::any_of(p.active.begin(), p.active.end(), [&](const auto& m) { return m->handle == a.handle; });
    };
    switch (a.kind) {
      case Action::Wait:
        if (active()) return false;
        break;
      case Action::WaitAll:
        if (!p.active.empty()) return false;
        break;
      case Action::Submit:
        if (p.active.size() >= m_queues.max_moves) return false;
        submit(p, a);
        break;
    }
    ++p.next;
    return true;
  }

  void submit(Program& p, const Action& a) {
    const tl::Move& mv = a.move;
    for (Addr at : {mv.local, mv.store}) {
      if (at == 0) continue;
      const auto found = p.areas.find(at & kAreaMask);
      const uint64_t item = item_bytes(mv.dtype);
      if (found != p.areas.end() && at + mv.count * item <= found->first + found->second.size() * item) continue;
      throw Problem{fmt::format("{} step {} touches elements outside of its buffer of {}", name(p), mv.step,
                                found == p.areas.end() ? 0 : found->second.size())};
    }
    auto m = std::make_unique<Active>();
    m->move = &mv;
    m->handle = a.handle;
    m->piece_elems =
        tl::piece_bytes(mv, [&](tl::Dir d) { return p.links.at(d)->entry.slot_bytes; }) / item_bytes(mv.dtype);
    m->pieces = ceil_div(mv.count, m->piece_elems);
    m->sent.resize(mv.to.size());
    for (tl::Dir d : mv.from) {
      m->from.push_back(p.links.at(d).get());
      m->from.back()->receiving.push_back(m->handle);
    }
    for (tl::Dir d : mv.to) {
      m->to.push_back(p.links.at(d).get());
      m->to.back()->sending.push_back(m->handle);
    }
    p.active.push_back(std::move(m));
  }

  // The rules of tl.h (Order, Buffering).
  bool advance(Program& p, Active& m) {
    if (m.piece == m.pieces) return false;
    const tl::Move& mv = *m.move;
    const uint64_t item = item_bytes(mv.dtype);
    const uint64_t first = m.piece * m.piece_elems, count = std::min(m.piece_elems, mv.count - first);
    const bool last = m.piece + 1 == m.pieces;
    const auto give_back = [&] {
      for (Link* l : m.from) {
        l->arrived.pop_front();
        ++l->peer->credits;
        if (last) l->receiving.pop_front();
      }
    };
    if (!m.loaded) {
      for (const Link* l : m.from) {
        if (l->receiving.front() != m.handle || l->arrived.empty()) return false;
      }
      m.acc = mv.local != 0 ? area(p, mv.local).read((mv.local & ~kAreaMask) / item + first, count) : Runs();
      for (size_t i = 0; i < m.from.size(); ++i) {
        const Message& message = m.from[i]->arrived.front();
        const auto expected = tl::make_header(0, 0, tl::received_step(mv), mv.dtype,
                                              static_cast<uint32_t>(count * item), m.from[i]->entry.peer_flat_pe);
        const std::string mismatch = tl::check_header(message.header, expected);
        if (!mismatch.empty()) {
          throw Problem{fmt::format("{} direction {}: {}", name(p), tl::to_string(mv.from[i]), mismatch)};
        }
        m.acc = m.acc.empty() ? message.runs : zip(m.acc, message.runs, [&](const Value& a, const Value& b) {
          if (a.divisor != 1 || b.divisor != 1) {
            throw Problem{fmt::format("{} step {} adds to what is divided already", name(p), mv.step)};
          }
          if (a.shift != b.shift) {
            throw Problem{fmt::format("{} step {} reduces different elements with each other", name(p), mv.step)};
          }
          return Value{m_sets.unite(a.set, b.set), 1, a.shift};
        });
      }
      for (Run& r : m.acc) r.value.divisor *= mv.divisor;
      m.loaded = true;
      m.slot_held = mv.local == 0 && m.from.size() == 1 && mv.divisor == 1;
      if (!m.slot_held) give_back();
      return true;
    }
    bool all = true;
    for (size_t i = 0; i < m.to.size(); ++i) {
      if (m.sent[i]) continue;
      Link& l = *m.to[i];
      if (l.sending.front() != m.handle || l.credits == 0) {
        all = false;
        continue;
      }
      --l.credits;
      l.peer->arrived.push_back(
          {tl::make_header(0, 0, mv.step, mv.dtype, static_cast<uint32_t>(count * item), index(p.rank, p.cube)),
           m.acc});
      ++report.messages;
      (l.between_sips ? report.sip_payload_bytes : report.cube_payload_bytes) += count * item;
      m.sent[i] = true;
      if (last) l.sending.pop_front();
      return true;
    }
    if (!all) return false;
    if (mv.store != 0) area(p, mv.store).write((mv.store & ~kAreaMask) / item + first, m.acc);
    if (m.slot_held) give_back();
    m.loaded = m.slot_held = false;
    m.sent.assign(m.sent.size(), false);
    ++m.piece;
    return true;
  }

  void check_result(Program& p) {
    for (const auto& [dir, l] : p.links) {
      if (l->arrived.empty()) continue;
      throw Problem{fmt::format("{}: {} messages from {} are received by no move", name(p), l->arrived.size(),
                                tl::to_string(dir))};
    }
    const uint64_t output_begin = (p.buffers.output & ~kAreaMask) / item_bytes(m_shape.dtype);
    for (const Expected& e : expected(p)) {
      if (e.range.empty()) continue;
      Value want = e.value;
      want.shift += static_cast<int64_t>(e.range.begin);
      uint64_t done = 0;
      for (const Run& run : area(p, p.buffers.output).read(output_begin + e.range.begin, e.range.count)) {
        check_value(p, e.range.begin + done, run.value, want);
        done += run.count;
      }
    }
    const auto input = p.areas.find(kInput);
    if (m_in_place || input == p.areas.end()) return;
    for (const auto& [at, v] : input->second.runs()) {
      if (v == Value{m_sets.single(p.rank), 1, 0}) continue;
      throw Problem{fmt::format("{} has changed element {} of its input", name(p), at)};
    }
  }

  void check_value(const Program& p, uint64_t at, const Value& v, const Value& want) {
    if (v == want) return;
    if (v.set != want.set && want.set == m_sets.all()) {
      throw Problem{fmt::format("{} element {} lacks contribution {}", name(p), at, m_sets.missing(v.set))};
    }
    if (v.set != want.set) {
      throw Problem{fmt::format("{} element {} is of {} where {} is expected", name(p), at, m_sets.text(v.set),
                                m_sets.text(want.set))};
    }
    if (v.divisor != want.divisor) {
      throw Problem{
          fmt::format("{} element {} is divided by {} where {} is expected", name(p), at, v.divisor, want.divisor)};
    }
    throw Problem{fmt::format("{} element {} is another element of its contribution, {} further on", name(p), at,
                              v.shift - want.shift)};
  }

  /// What elements of the output must be.
  struct Expected {
    Range range;
    Value value;
  };
  std::vector<Expected> expected(const Program& p) {
    const uint32_t n = m_group.size(), rank = p.rank, root = m_shape.root;
    const auto one = [&](uint32_t of, const Range& range, uint64_t first) {
      return Expected{range, {m_sets.single(of), 1, static_cast<int64_t>(first) - static_cast<int64_t>(range.begin)}};
    };
    const auto reduced = [&](uint64_t count, uint64_t first) {
      const uint64_t divisor = m_shape.op == ReduceOp::Avg ? n : 1;
      return Expected{{0, count}, {m_sets.all(), divisor, static_cast<int64_t>(first)}};
    };
    std::vector<Expected> out;
    switch (m_collective) {
      case Collective::AllReduce:
        return {reduced(m_shape.count, 0)};
      case Collective::Reduce:
        if (rank == root) out.push_back(reduced(m_shape.count, 0));
        break;
      case Collective::ReduceScatter:
        return {reduced(m_shape.block(rank), m_shape.block_begin(rank))};
      case Collective::Broadcast:
        return {one(root, {0, m_shape.count}, 0)};
      case Collective::SendRecv:
        if (rank == m_shape.peer) out.push_back(one(root, {0, m_shape.count}, 0));
        break;
      case Collective::Scatter:
        return {one(root, {0, m_shape.block(rank)}, m_shape.block_begin(rank))};
      case Collective::Gather:
        if (rank != root) break;
        [[fallthrough]];
      case Collective::AllGather:
        for (uint32_t r = 0; r < n; ++r) out.push_back(one(r, {m_shape.block_begin(r), m_shape.block(r)}, 0));
        break;
      case Collective::AllToAll: {
        uint64_t at = 0;
        for (uint32_t r = 0; r < n; ++r) {
          uint64_t first = 0;
          for (uint32_t to = 0; to < rank; ++to) first += m_shape.sent(n, r, to);
          out.push_back(one(r, {at, m_shape.sent(n, r, rank)}, first));
          at += m_shape.sent(n, r, rank);
        }
        break;
      }
      case Collective::Barrier:
        break;
    }
    return out;
  }

  void place_buffers(Program& p, uint64_t scratch_bytes) {
    const uint32_t n = m_group.size();
    const uint64_t input = input_elements(m_collective, p.rank, n, m_shape);
    const uint64_t output = output_elements(m_collective, p.rank, n, m_shape);
    const uint64_t item = item_bytes(m_shape.dtype);
    const Value own{m_sets.single(m_shape.layout == CubeLayout::Partial ? index(p.rank, p.cube) : p.rank), 1, 0};
    const Value nothing{m_sets.none(), 1, 0};
    p.buffers = {kInput, kOutput, scratch_bytes != 0 ? kScratch : 0};
    if (scratch_bytes != 0) p.areas[kScratch] = Contents(scratch_bytes, nothing);
    if (m_collective == Collective::AllReduce || m_collective == Collective::Broadcast) {
      p.buffers.input = kOutput;
      p.areas[kOutput] = Contents(output, own);
      return;
    }
    const bool one_sided =
        p.rank != m_shape.root && (m_collective == Collective::Reduce || m_collective == Collective::Gather ||
                                   m_collective == Collective::Scatter);
    if (!m_in_place || one_sided) {
      p.areas[kInput] = Contents(input, own);
      p.areas[kOutput] = Contents(output, nothing);
      return;
    }
    const uint64_t begin = m_collective == Collective::Reduce ? 0 : m_shape.block_begin(p.rank);
    if (m_collective == Collective::AllGather || m_collective == Collective::Gather) {  // the input is in the output
      p.buffers.input = kOutput + begin * item;
      Contents& all = p.areas[kOutput] = Contents(output, nothing);
      if (input != 0) all.write(begin, {{input, own}});
    } else {
      p.buffers.output = kInput + begin * item;
      p.areas[kInput] = Contents(input, own);
    }
  }

  static Contents& area(Program& p, Addr at) { return p.areas.at(at & kAreaMask); }

  static std::string name(const Program& p) { return fmt::format("rank {} cube {}", p.rank, p.cube); }

  std::string waiting() const {
    std::string text;
    for (const Program& p : m_programs) {
      for (const auto& m : p.active) {
        std::string why;
        for (size_t i = 0; i < m->from.size() && !m->loaded; ++i) {
          if (m->from[i]->receiving.front() == m->handle && m->from[i]->arrived.empty()) {
            why += fmt::format(", a message from {}", tl::to_string(m->move->from[i]));
          }
        }
        for (size_t i = 0; i < m->to.size() && m->loaded; ++i) {
          const Link& l = *m->to[i];
          if (!m->sent[i] && l.sending.front() == m->handle && l.credits == 0) {
            why += fmt::format(", a credit of {} (0 of {})", tl::to_string(m->move->to[i]), l.entry.n_slots);
          }
        }
        if (why.empty()) continue;
        text += fmt::format("\n  {} step {} piece {}/{} waits for {}", name(p), m->move->step, m->piece, m->pieces,
                            why.substr(2));
      }
    }
    return text;
  }

  const Group& m_group;
  Collective m_collective;
  CollectiveShape m_shape;
  bool m_in_place;
  PlanQueues m_queues;
  Sets m_sets;
  std::deque<Program> m_programs;
};

}  // namespace

PlanReport check_plan(const AlgorithmModule& module, const Group& group, uint64_t n_elem, CubeLayout layout,
                      DType dtype, const PlanQueues& queues) {
  CollectiveShape shape = lane_shape(n_elem, layout);
  shape.dtype = dtype;
  if (module.ops.count(ReduceOp::Avg) != 0 && can_reduce(ReduceOp::Avg, dtype)) shape.op = ReduceOp::Avg;
  return check_plan(module, group, shape, true, queues);
}

PlanReport check_plan(const AlgorithmModule& module, const Group& group, const CollectiveShape& shape, bool in_place,
                      const PlanQueues& queues) {
  check_shape(module.collective, group.size(), shape);
  if (in_place && (module.collective == Collective::AllToAll || module.collective == Collective::SendRecv)) {
    throw std::invalid_argument(fmt::format("{} is never in place", to_string(module.collective)));
  }
  PlanReport failed;
  failed.problem = module.refusal(group);
  if (!failed.problem.empty()) return failed;
  std::unique_ptr<Checker> checker;
  try {
    checker = std::make_unique<Checker>(module, group, shape, in_place, queues);
    checker->run();
  } catch (const Problem& p) {
    if (checker) failed = checker->report;
    failed.problem = p.text;
    return failed;
  }
  return checker->report;
}

}  // namespace ahbm::ccl
