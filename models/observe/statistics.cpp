#include "models/observe/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "ahbm/registers/pe.h"
#include "models/ipcq/ipcq.h"
#include "models/observe/walk_machine.h"
#include "models/pe/compute.h"
#include "models/pe/dma.h"
#include "models/pe/executor.h"
#include "models/pe/sfr_block.h"

namespace ahbm::observe {

using namespace models;

namespace {

class Emitter {
 public:
  Emitter(const std::function<void(const Stat&)>& visit, Ps elapsed) : m_visit(visit), m_elapsed(elapsed) {}

  void at(std::string path) { m_stat.path = std::move(path); }
  void count(const char* name, uint64_t v, const char* unit = "count") {
    m_stat.name = name;
    m_stat.count = v;
    m_stat.ratio = 0;
    m_stat.unit = unit;
    m_visit(m_stat);
  }
  void bytes(const char* name, uint64_t v) { count(name, v, "B"); }
  void time(const char* name, Ps v) { count(name, v, "ps"); }
  /// Part of the elapsed time that `resources` resources were busy.
  void utilisation(const char* name, Ps busy, uint64_t resources = 1) {
    m_stat.name = name;
    m_stat.count = 0;
    m_stat.ratio = share(busy, m_elapsed * resources);
    m_stat.unit = "1";
    m_visit(m_stat);
  }
  static double share(Ps part, Ps whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }

 private:
  const std::function<void(const Stat&)>& m_visit;
  const Ps m_elapsed;
  Stat m_stat;
};

void emit_hop(Emitter& out, const std::string& path, const Hop& hop) {
  const HopStats s = hop.stats();
  out.at(path);
  out.count("transactions", s.transactions);
  out.bytes("bytes", s.payload_bytes);
  out.bytes("wire_bytes", s.wire_bytes);
  out.bytes("control_wire_bytes", s.control_wire_bytes);
  out.time("busy", s.busy);
  out.utilisation("utilisation", s.busy);
  out.time("waited", s.waited);
}

void emit_memory(Emitter& out, const std::string& path, Hbm& hbm) {
  const HbmStats& s = hbm.stats();
  const HbmTiming& timing = hbm.timing();
  out.at(path);
  out.count("reads", s.reads);
  out.count("writes", s.writes);
  out.bytes("bytes_read", s.bytes_read);
  out.bytes("bytes_written", s.bytes_written);
  out.time("busy", s.busy);
  out.utilisation("utilisation", s.busy, timing.channels());
  out.time("waited", s.waited);
  for (uint32_t c = 0; c < timing.channels(); ++c) {
    out.at(fmt::format("{}.channel{}", path, c));
    out.time("busy", timing.channel_busy(c));
    out.utilisation("utilisation", timing.channel_busy(c));
  }
}

void emit_dma(Emitter& out, const std::string& path, const DmaStats& s) {
  out.at(path);
  out.count("transfers", s.transfers);
  out.bytes("transfer_bytes", s.bytes);
}

void emit_pe(Emitter& out, const std::string& path, Pe& pe) {
  const ExecutorStats e = pe.launched() ? pe.executor().stats() : ExecutorStats{};
  const MoveStats m = pe.launched() ? pe.executor().move_stats() : MoveStats{};
  out.at(path);
  out.count("kernels", e.kernels);
  out.count("kernels_failed", e.failed);
  out.time("busy", e.busy);
  out.utilisation("utilisation", e.busy);
  out.time("waited_launch", e.idle);
  out.time("waited_message", m.waited_message);
  out.time("waited_credit", m.waited_credit);
  out.count("message_waits", m.message_waits);
  out.count("credit_waits", m.credit_waits);
  out.count("messages_sent", m.messages_sent);
  out.count("messages_received", m.messages_received);
  out.bytes("bytes_sent", m.bytes_sent);
  out.at(path + ".launch_queue");
  out.count("high_water", e.queue_high_water, "descriptors");
  out.time("waited", e.queued);
  emit_dma(out, path + ".dma.out", pe.dma().out_stats());
  emit_dma(out, path + ".dma.in", pe.dma().in_stats());
  if (const auto* compute = dynamic_cast<const Compute*>(&pe.compute())) {
    out.at(path + ".compute");
    out.time("vector_busy", compute->vector_busy());
    out.utilisation("vector_utilisation", compute->vector_busy());
    out.time("mac_busy", compute->mac_busy());
    out.utilisation("mac_utilisation", compute->mac_busy());
  }
  if (auto* sfr = dynamic_cast<SfrBlock*>(&pe.sfr())) {
    out.at(path + ".sfr");
    out.count("errors", sfr->registers().get(regs::pe::ERROR_COUNT));
    out.count("stale_dropped", sfr->registers().get(regs::pe::STALE_DROPPED));
  }
  if (const auto* ipcq = dynamic_cast<const Ipcq*>(&pe.ipcq())) {
    QpStats sum;
    const std::vector<QpStats> pairs = ipcq->stats();
    for (const QpStats& q : pairs) {
      sum.messages_sent += q.messages_sent;
      sum.messages_received += q.messages_received;
      sum.bytes_sent += q.bytes_sent;
      sum.bytes_received += q.bytes_received;
      sum.credits_exhausted += q.credits_exhausted;
      sum.high_water = std::max(sum.high_water, q.high_water);
    }
    const auto emit = [&out](const QpStats& q) {
      out.count("messages_sent", q.messages_sent, "messages");
      out.count("messages_received", q.messages_received, "messages");
      out.bytes("bytes_sent", q.bytes_sent);
      out.bytes("bytes_received", q.bytes_received);
      out.count("credits_exhausted", q.credits_exhausted);
      out.count("high_water", q.high_water, "slots");
    };
    out.at(path + ".ipcq");
    emit(sum);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const QpStats& q = pairs[i];
      if (q.messages_sent + q.messages_received + q.high_water == 0) continue;
      out.at(fmt::format("{}.ipcq.qp{}", path, i));
      emit(q);
    }
  }
}

}  // namespace

std::string Stat::text() const {
  return std::string(unit) == "1" ? fmt::format("{:.6f}", ratio) : std::to_string(count);
}

void visit_statistics(System& system, const std::function<void(const Stat&)>& visit) {
  Emitter out(visit, now_ps());
  MachineVisitor v;
  v.hop = [&out](const std::string& path, Place, const Hop& hop) { emit_hop(out, path, hop); };
  v.memory = [&out](const std::string& path, Hbm& hbm) { emit_memory(out, path, hbm); };
  v.pe = [&out](const std::string& path, Pe& pe, uint32_t) { emit_pe(out, path, pe); };
  v.sip_block = [&out](const std::string& path, SipBlock& block) {
    out.at(path);
    out.count("completions", block.completions());
  };
  walk_machine(system, v);
}

std::vector<Stat> collect_statistics(System& system) {
  std::vector<Stat> out;
  visit_statistics(system, [&out](const Stat& s) { out.push_back(s); });
  return out;
}

void write_statistics_yaml(System& system, std::ostream& out) {
  // A path comes up again (a DMA channel is a resource and has transfers of its own), and a key may not: figures of one
  // path are gathered PE by PE, where the repetition is near.
  out << fmt::format("time: [{}, ps]\nstatistics:\n", now_ps());
  std::vector<std::pair<std::string, std::string>> open;  // paths of the current module and their lines
  std::string module;
  const auto flush = [&] {
    for (const auto& [path, lines] : open) out << "  " << path << ":\n" << lines;
    open.clear();
  };
  visit_statistics(system, [&](const Stat& s) {
    if (module.empty() || s.path.compare(0, module.size(), module) != 0) {
      flush();
      module = s.path;
    }
    auto it = std::find_if(open.rbegin(), open.rend(), [&s](const auto& o) { return o.first == s.path; });
    if (it == open.rend()) {
      open.emplace_back(s.path, "");
      it = open.rbegin();
    }
    it->second += fmt::format("    {}: [{}, {}]\n", s.name, s.text(), s.unit);
  });
  flush();
}

void write_statistics_csv(System& system, std::ostream& out) {
  out << "path,name,value,unit\n";
  visit_statistics(
      system, [&out](const Stat& s) { out << s.path << ',' << s.name << ',' << s.text() << ',' << s.unit << '\n'; });
}

std::vector<LinkLoad> busiest_links(System& system, size_t n) {
  std::vector<LinkLoad> out;
  const Ps elapsed = now_ps();
  MachineVisitor v;
  v.hop = [&out, elapsed](const std::string& path, Place place, const Hop& hop) {
    const HopStats s = hop.stats();
    if (place != Place::Link || s.busy == 0) return;
    out.push_back({path, s.wire_bytes, s.busy, s.waited, Emitter::share(s.busy, elapsed)});
  };
  walk_machine(system, v);
  std::stable_sort(out.begin(), out.end(), [](const LinkLoad& a, const LinkLoad& b) { return a.busy > b.busy; });
  if (out.size() > n) out.resize(n);
  return out;
}

WaitSummary waits(System& system, size_t n) {
  WaitSummary out;
  MachineVisitor v;
  v.pe = [&out](const std::string& path, Pe& pe, uint32_t) {
    if (!pe.launched()) return;
    const MoveStats& m = pe.executor().move_stats();
    const PeWaits w{path, m.waited_message, m.waited_credit, pe.executor().stats().idle};
    out.total.message += w.message;
    out.total.credit += w.credit;
    out.total.launch += w.launch;
    if (w.message + w.credit != 0) out.worst.push_back(w);
  };
  walk_machine(system, v);
  std::stable_sort(out.worst.begin(), out.worst.end(),
                   [](const PeWaits& a, const PeWaits& b) { return a.message + a.credit > b.message + b.credit; });
  if (out.worst.size() > n) out.worst.resize(n);
  return out;
}

}  // namespace ahbm::observe
