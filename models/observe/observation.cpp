#include "models/observe/observation.h"

#include <fmt/format.h>

#include "models/observe/walk_machine.h"

namespace ahbm::observe {

using namespace models;

Observation::Observation(System& system) {
  MachineVisitor v;
  v.hop = [this](const std::string& path, Place place, Hop& hop) {
    Point p;
    p.path = path;
    p.place = place;
    add(std::move(p), [&hop](const Tap* tap) { hop.observe(tap); });
  };
  v.memory = [this](const std::string& path, Hbm& hbm) {
    Point p;
    p.path = path;
    p.place = Place::Memory;
    p.channels = hbm.timing().channels();
    add(std::move(p), [&hbm](const Tap* tap) { hbm.observe(tap); });
  };
  v.pe = [this](const std::string& path, Pe& pe, uint32_t flat) {
    Point p;
    p.path = path;
    p.place = Place::Pe;
    p.flat_pe = flat;
    add(std::move(p), [&pe](const Tap* tap) { pe.observe(tap); });
  };
  v.line = [this](const std::string& path, sc_core::sc_signal_in_if<bool>& line) { watch_line(path, line); };
  walk_machine(system, v);
  m_ranks.resize(system.config().total_pes(), nullptr);
  for (uint32_t r = 0; r < system.config().sips; ++r) {
    Point p;
    p.path = fmt::format("{}.rank{}", system.name(), r);
    p.place = Place::Rank;
    add(std::move(p), [this, r](const Tap* tap) { m_ranks[r] = tap; });
  }
}

Observation::~Observation() {
  *m_alive = false;
  for (Spot& s : m_spots) {
    if (!s.tap->idle()) s.connect(nullptr);
  }
}

void Observation::add(Point point, std::function<void(const Tap*)> connect) {
  point.index = static_cast<uint32_t>(m_spots.size());
  m_spots.push_back({std::make_unique<Tap>(std::move(point)), std::move(connect)});
}

void Observation::watch_line(const std::string& path, sc_core::sc_signal_in_if<bool>& line) {
  Point p;
  p.path = path;
  p.place = Place::Signal;
  // The method process is made when somebody first watches; afterwards it looks for a tap at every change.
  auto current = std::make_shared<const Tap*>(nullptr);
  auto spawned = std::make_shared<bool>(false);
  add(std::move(p), [current, spawned, alive = m_alive, &line](const Tap* tap) {
    *current = tap;
    if (tap == nullptr) return;
    const auto tell = [current, alive, &line](bool initial) {
      if (!*alive || *current == nullptr) return;
      Event e;
      e.initial = initial;
      e.kind = EventKind::Interrupt;
      e.begin = e.end = now_ps();
      e.value = line.read() ? 1 : 0;
      (*current)->tell(e);
    };
    tell(true);
    if (*spawned) return;
    *spawned = true;
    sc_core::sc_spawn_options options;
    options.spawn_method();
    options.dont_initialize();
    options.set_sensitivity(&line.value_changed_event());
    sc_core::sc_spawn([tell] { tell(false); }, sc_core::sc_gen_unique_name("line_watch"), &options);
  });
}

size_t Observation::attach(Sink& sink) {
  size_t wanted = 0;
  for (Spot& s : m_spots) {
    if (!sink.wants(s.tap->point())) continue;
    ++wanted;
    s.tap->add(&sink);
    s.connect(s.tap.get());  // also when it is connected: registers and lines tell their values again
  }
  return wanted;
}

void Observation::detach(Sink& sink) {
  for (Spot& s : m_spots) {
    if (s.tap->remove(&sink) && s.tap->idle()) s.connect(nullptr);
  }
}

void Observation::collective(uint32_t rank, const char* name, uint32_t group, uint32_t seq, uint64_t bytes, Ps begin,
                             Ps end) {
  if (rank >= m_ranks.size() || m_ranks[rank] == nullptr) return;
  Event e;
  e.kind = EventKind::Collective;
  e.name = name;
  e.group = group;
  e.seq = seq;
  e.bytes = bytes;
  e.begin = begin;
  e.end = end;
  m_ranks[rank]->tell(e);
}

void Observation::operation_start(uint32_t rank, Ps begin) {
  if (rank >= m_ranks.size() || m_ranks[rank] == nullptr) return;
  Event e;
  e.kind = EventKind::OperationStart;
  e.begin = begin;
  m_ranks[rank]->tell(e);
}

void Observation::operation(uint32_t rank, const char* name, Ps begin, Ps end) {
  if (rank >= m_ranks.size() || m_ranks[rank] == nullptr) return;
  Event e;
  e.kind = EventKind::Operation;
  e.name = name;
  e.begin = begin;
  e.end = end;
  m_ranks[rank]->tell(e);
}

std::vector<std::string> Observation::paths() const {
  std::vector<std::string> out;
  for (const Spot& s : m_spots) out.push_back(s.tap->point().path);
  return out;
}

}  // namespace ahbm::observe
