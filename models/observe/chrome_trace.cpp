#include "models/observe/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "models/core/path_glob.h"

namespace ahbm::observe {

namespace {

// Kinds of tracks of one point. Channels of a memory count from kFirstChannel.
enum What : uint32_t { kData, kControl, kKernels, kRegions, kSends, kReceives, kWaits, kRank, kFirstChannel };

uint64_t track_key(uint32_t point, uint32_t what, uint32_t lane) {
  return uint64_t{point} << 32 | uint64_t{what} << 16 | lane;
}

std::string micros(Ps t) {
  return fmt::format("{}.{:06}", t / 1000000, t % 1000000);
}

const char* wait_name(Wait w) {
  switch (w) {
    case Wait::Message:
      return "wait for message";
    case Wait::Credit:
      return "wait for credit";
    case Wait::Launch:
      return "wait for launch";
  }
  return "wait";
}

}  // namespace

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20) {
      out += fmt::format("\\u{:04x}", u);
    } else if (u >= 0x80) {
      out += '?';  // names are ASCII; what is not may not be valid UTF-8 either
    } else {
      out += c;
    }
  }
  return out + '"';
}

ChromeTrace::ChromeTrace(TraceOptions options) : m_options(std::move(options)) {
  m_out.open(m_options.file, m_options.gate);
  if (!m_out) throw std::runtime_error(fmt::format("the trace file '{}' cannot be written", m_options.file));
  m_out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
}

ChromeTrace::~ChromeTrace() {
  try {
    finish();
  } catch (const std::runtime_error&) {
    // Who wants to know calls finish() first.
  }
}

void ChromeTrace::finish() {
  if (!m_open) return;
  for (auto& [point, rank] : m_ranks) {
    if (!rank.held.empty()) flush(m_tracks.at(track_key(point, kRank, 0)), rank);
  }
  m_open = false;
  m_out << "\n]}\n";
  m_out.close();
  if (!m_out)
    throw std::runtime_error(fmt::format("the trace file '{}' could not be written completely", m_options.file));
}

bool ChromeTrace::wants(const Point& point) {
  if (point.place == Place::Signal || !path_selected(m_options.filters, point.path)) return false;
  if (point.place == Place::Pe) m_traced_pes[point.flat_pe] = true;
  return true;
}

void ChromeTrace::line(const std::string& text) {
  m_out << (m_first ? "\n" : ",\n") << text;
  m_first = false;
}

uint32_t ChromeTrace::process(const Point& point) {
  // One process per SIP; links between SIPs, the host and ranks have one each per System.
  std::string name;
  size_t end = point.path.find('.');
  if (point.place == Place::Rank) {
    name = point.path.substr(0, end) + " ranks";
  } else if (end != std::string::npos) {
    const size_t second = point.path.find('.', end + 1);
    name = second == std::string::npos ? point.path.substr(0, end) + " links" : point.path.substr(0, second);
  } else {
    name = point.path;
  }
  const auto [it, made] = m_processes.try_emplace(name, static_cast<uint32_t>(m_processes.size() + 1));
  if (made) {
    m_threads.resize(it->second + 1, 1);
    line(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":{}}}}})", it->second,
                     json_string(name)));
    line(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})",
                     it->second, it->second));
  }
  return it->second;
}

ChromeTrace::Track& ChromeTrace::track(const Point& point, uint32_t what, uint32_t lane, const std::string& label) {
  const auto [it, made] = m_tracks.try_emplace(track_key(point.index, what, lane));
  Track& t = it->second;
  if (made) {
    t.pid = process(point);
    t.tid = m_threads[t.pid]++;
    std::string name = label.empty() ? point.path : point.path + ' ' + label;
    if (lane != 0) name += fmt::format(" {}", lane + 1);
    line(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", t.pid, t.tid,
                     json_string(name)));
    line(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", t.pid,
                     t.tid, point.index * 64 + std::min<uint32_t>(what, 40) + lane));
  }
  return t;
}

ChromeTrace::Track& ChromeTrace::free_track(const Point& point, uint32_t what, Ps begin, Ps end, const char* label) {
  for (uint32_t lane = 0;; ++lane) {
    Track& t = track(point, what, lane, label);
    if (t.busy_until > begin && lane < 0xFFFF) continue;
    t.busy_until = std::max(t.busy_until, end);
    return t;
  }
}

void ChromeTrace::slice(const Track& track, const char* name, const char* category, Ps begin, Ps end,
                        const std::string& args) {
  ++m_slices;
  line(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                   json_string(name), category, track.pid, track.tid, micros(begin), micros(end - begin), args));
}

void ChromeTrace::arrow(const Held& held, const Track& to) {
  ++m_arrows;
  const uint64_t id = ++m_flow;
  line(fmt::format(R"({{"ph":"s","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}}})", id,
                   held.from.pid, held.from.tid, micros(held.from.at)));
  line(fmt::format(R"({{"ph":"f","bp":"e","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}}})", id,
                   to.pid, to.tid, micros(held.taken)));
}

void ChromeTrace::on_event(const Point& point, const Event& e) {
  if (!m_open) return;
  switch (e.kind) {
    case EventKind::Transfer:
      if (!inside(e.begin, e.end)) return;
      slice(track(point, e.control ? kControl : kData, 0, e.control ? "control" : ""), e.control ? "control" : "data",
            "link", e.begin, e.end, fmt::format(R"("bytes":{},"wire_bytes":{})", e.bytes, e.wire_bytes));
      return;
    case EventKind::Access:
      if (!inside(e.begin, e.end)) return;
      slice(track(point, kFirstChannel + e.index, 0, fmt::format("channel {}", e.index)), e.write ? "write" : "read",
            "memory", e.begin, e.end, fmt::format(R"("bytes":{})", e.bytes));
      return;
    case EventKind::Collective:
      collective(point, e);
      return;
    case EventKind::OperationStart:
      m_ranks[point.index].open.push_back(e.begin);
      return;
    case EventKind::Operation:
      operation(point, e);
      return;
    default:
      on_pe(point, e);
  }
}

bool ChromeTrace::Lane::takes(Ps begin, Ps end) const {
  return begin >= forgotten && std::all_of(drawn.begin(), drawn.end(), [&](const std::pair<Ps, Ps>& d) {
           return end <= d.first || d.second <= begin || (begin >= d.first && end <= d.second);
         });
}

void ChromeTrace::Lane::add(Ps begin, Ps end) {
  constexpr size_t kKept = 1024;
  drawn.emplace_back(begin, end);
  if (drawn.size() <= kKept) return;
  forgotten = std::max(forgotten, drawn.front().second);
  drawn.pop_front();
}

void ChromeTrace::flush(const Track& to, RankState& rank) {
  // Viewers draw slices that begin together in the order of the file: the outer one first.
  std::stable_sort(rank.held.begin(), rank.held.end(), [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  for (const Slice& s : rank.held) slice(to, s.name.c_str(), s.category, s.begin, s.end, s.args);
  rank.held.clear();
}

void ChromeTrace::draw(const Point& point, RankState& rank, uint32_t lane, Slice s) {
  rank.lanes[lane].add(s.begin, s.end);
  const Track& to = track(point, kRank, lane, "");
  if (lane == 0) {
    rank.held.push_back(std::move(s));
    if (rank.open.empty()) flush(to, rank);
  } else {
    slice(to, s.name.c_str(), s.category, s.begin, s.end, s.args);
  }
}

void ChromeTrace::collective(const Point& point, const Event& e) {
  if (!inside(e.begin, e.end)) return;
  RankState& rank = m_ranks[point.index];
  const Event& last = rank.collective;
  const bool part = e.group == last.group && e.seq == last.seq && e.begin >= last.begin && e.end <= last.end;
  uint32_t lane = part ? rank.collective_lane : 0;
  // It may not cross the begin of an operation that goes on.
  const bool crosses =
      std::any_of(rank.open.begin(), rank.open.end(), [&e](Ps begin) { return e.begin < begin && begin < e.end; });
  if (!part && crosses) lane = 1;
  for (;; ++lane) {
    if (lane == rank.lanes.size()) rank.lanes.emplace_back();
    if (part || rank.lanes[lane].takes(e.begin, e.end)) break;
  }
  if (!part) {
    rank.collective = e;
    rank.collective_lane = lane;
  }
  draw(point, rank, lane,
       {e.name, "collective", e.begin, e.end,
        fmt::format(R"("bytes":{},"group":{},"seq":{})", e.bytes, e.group, e.seq)});
}

void ChromeTrace::operation(const Point& point, const Event& e) {
  RankState& rank = m_ranks[point.index];
  while (!rank.open.empty() && rank.open.back() > e.begin) rank.open.pop_back();  // those that were broken off
  if (!rank.open.empty()) rank.open.pop_back();
  if (inside(e.begin, e.end)) {
    draw(point, rank, 0, {e.name, "operation", e.begin, e.end, ""});
  } else if (rank.open.empty() && !rank.held.empty()) {
    flush(track(point, kRank, 0, ""), rank);
  }
}

void ChromeTrace::kernel(const Point& point, const Event& e) {
  PeState& pe = m_pes[point.index];
  if (inside(e.begin, e.end)) {
    Track& main = track(point, kKernels, 0, "");
    main.busy_until = std::max(main.busy_until, e.end);
    slice(main, e.name, "kernel", e.begin, e.end,
          fmt::format(R"("tag":{},"group":{},"seq":{},"status":{})", e.tag, e.group, e.seq, e.value));
    // Regions that nest go below the kernel. One that only overlaps another (objects need not die in the reverse order
    // of their birth) would be drawn wrongly there.
    std::vector<const Region*> drawn;
    for (const Region& r : pe.regions) {
      const bool nests = std::none_of(drawn.begin(), drawn.end(), [&r](const Region* d) {
        const bool apart = r.end <= d->begin || d->end <= r.begin;
        const bool within = (r.begin >= d->begin && r.end <= d->end) || (d->begin >= r.begin && d->end <= r.end);
        return !apart && !within;
      });
      if (nests) drawn.push_back(&r);
      slice(nests ? main : free_track(point, kRegions, r.begin, r.end, "regions"), r.name.c_str(), "region", r.begin,
            r.end, "");
    }
  }
  pe.regions.clear();
}

void ChromeTrace::on_pe(const Point& point, const Event& e) {
  switch (e.kind) {
    case EventKind::Kernel:
      kernel(point, e);
      return;
    case EventKind::Region:
      // Drawn with its kernel, which is told when it ends; a kernel with very many regions shows the first ones.
      if (inside(e.begin, e.end) && m_pes[point.index].regions.size() < 4096) {
        m_pes[point.index].regions.push_back({e.begin, e.end, e.name});
      }
      return;
    case EventKind::Send: {
      if (!inside(e.begin, e.end)) return;
      const Track& t = free_track(point, kSends, e.begin, e.end, "send");
      slice(t, "send", "message", e.begin, e.end,
            fmt::format(R"("bytes":{},"qp":{},"to_pe":{},"number":{})", e.bytes, e.index, e.peer_pe, e.number));
      if (m_traced_pes.count(e.peer_pe) == 0) return;
      auto& sent = m_sent[{e.peer_pe, e.peer_qp}];
      if (!sent.empty() && sent.back().number >= e.number) sent.clear();  // a new connection
      sent.push_back({e.number, e.begin, t.pid, t.tid});
      if (sent.size() > 65536) sent.pop_front();
      return;
    }
    case EventKind::Take: {
      Held held;
      held.number = e.number;
      held.taken = e.end;
      held.ready = e.begin;
      held.bytes = e.bytes;
      const auto it = m_sent.find({point.flat_pe, e.index});
      if (it != m_sent.end()) {
        auto& sent = it->second;
        while (!sent.empty() && sent.front().number < e.number) sent.pop_front();
        if (!sent.empty() && sent.front().number == e.number) {
          held.from = sent.front();
          held.has_arrow = true;
          sent.pop_front();
        }
      }
      m_held[{point.flat_pe, e.index}].push_back(held);
      return;
    }
    case EventKind::Release: {
      auto& held = m_held[{point.flat_pe, e.index}];
      const auto it = std::find_if(held.begin(), held.end(), [&e](const Held& h) { return h.number == e.number; });
      if (it == held.end()) return;
      if (inside(it->taken, e.end)) {
        const Track& t = free_track(point, kReceives, it->taken, e.end, "receive");
        slice(t, "receive", "message", it->taken, e.end,
              fmt::format(R"("bytes":{},"qp":{},"number":{},"in_queue_us":{})", it->bytes, e.index, e.number,
                          micros(it->taken - it->ready)));
        if (it->has_arrow) arrow(*it, t);
      }
      held.erase(it);
      return;
    }
    case EventKind::QueueReset:
      m_held.erase({point.flat_pe, e.index});
      m_sent.erase({point.flat_pe, e.index});
      return;
    case EventKind::Wait:
      if (!inside(e.begin, e.end)) return;
      slice(free_track(point, kWaits, e.begin, e.end, "wait"), wait_name(e.wait), "wait", e.begin, e.end,
            e.wait == Wait::Launch ? "" : fmt::format(R"("qp":{})", e.index));
      return;
    default:
      return;
  }
}

}  // namespace ahbm::observe
