#include "models/observe/vcd_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace ahbm::observe {

namespace {

/// Short identifier codes of printable characters.
std::string code(uint32_t n) {
  std::string out;
  do {
    out += static_cast<char>('!' + n % 94);
    n /= 94;
  } while (n != 0);
  return out;
}

std::vector<std::string> scopes_of(const std::string& path) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    out.push_back(vcd_identifier(path.substr(begin, dot - begin)));
    begin = dot + 1;
  }
  return out;
}

}  // namespace

std::string vcd_identifier(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    out += plain ? c : '_';
  }
  return out.empty() ? "_" : out;
}

VcdWriter::VcdWriter(const std::string& file, std::shared_ptr<OutputGate> gate) : m_file(file), m_part(file + ".part") {
  m_out.open(m_file, std::move(gate));
  if (!m_out) throw std::runtime_error(fmt::format("the wave file '{}' cannot be written", m_file));
  m_changes_out.open(m_part, std::ios::trunc);
  if (!m_changes_out) throw std::runtime_error(fmt::format("the wave file '{}' cannot be written", m_part));
  m_simulating = add("", "simulating", 1);
  m_signals[m_simulating].value = 1;
  m_signals[m_simulating].shown = 1;
}

VcdWriter::~VcdWriter() {
  try {
    finish(m_written);
  } catch (const std::runtime_error&) {
    // Who wants to know calls finish() first.
  }
}

VcdWriter::Signal VcdWriter::add(const std::string& scope, const std::string& name, uint32_t width) {
  SignalState s;
  for (const std::string& part : scopes_of(scope)) s.scope += (s.scope.empty() ? "" : ".") + part;
  s.name = vcd_identifier(name);
  const auto full = [&s](const std::string& n) { return s.scope.empty() ? n : s.scope + '.' + n; };
  const std::string wanted = s.name;
  for (uint32_t n = 1; !m_names.insert(full(s.name)).second; ++n) s.name = fmt::format("{}_{}", wanted, n);
  s.full_name = full(s.name);
  s.id = code(static_cast<uint32_t>(m_signals.size()));
  s.width = std::clamp<uint32_t>(width, 1, 64);
  m_signals.push_back(std::move(s));
  return static_cast<Signal>(m_signals.size() - 1);
}

void VcdWriter::push(Signal s, Ps at, int64_t value, bool absolute) {
  if (!m_open) return;
  m_pending.push({std::max(at, m_written), m_order++, s, m_signals[s].generation, value, absolute});
}

void VcdWriter::reset(Signal s, Ps at, uint64_t value) {
  // What lies before `at` must still be seen; what is written up to now is.
  write_until(at);
  ++m_signals[s].generation;
  push(s, at, static_cast<int64_t>(value), true);
}

uint64_t VcdWriter::visible(const SignalState& s) {
  if (s.width == 1) return s.value > 0 ? 1 : 0;
  return static_cast<uint64_t>(s.value) & (s.width == 64 ? ~uint64_t{0} : (uint64_t{1} << s.width) - 1);
}

std::string VcdWriter::value_text(const SignalState& s, uint64_t v) {
  if (s.width == 1) return fmt::format("{}{}\n", v, s.id);
  return fmt::format("b{:b} {}\n", v, s.id);
}

void VcdWriter::write_instant(Ps at) {
  // All that happens at one instant first, so that a transfer that follows another without a gap is no change.
  while (!m_pending.empty() && m_pending.top().at == at) {
    const Change c = m_pending.top();
    m_pending.pop();
    SignalState& s = m_signals[c.signal];
    if (c.generation != s.generation) continue;
    s.value = c.absolute ? c.value : s.value + c.value;
    if (!s.touched) {
      s.touched = true;
      m_touched.push_back(c.signal);
    }
  }
  bool stamped = false;
  for (const Signal i : m_touched) {
    SignalState& s = m_signals[i];
    s.touched = false;
    const uint64_t v = visible(s);
    if (v == s.shown) continue;
    s.shown = v;
    if (!stamped) m_changes_out << '#' << at << '\n';
    stamped = true;
    m_changes_out << value_text(s, v);
    ++m_changes;
  }
  m_touched.clear();
}

void VcdWriter::write_until(Ps end) {
  while (!m_pending.empty() && m_pending.top().at < end) write_instant(m_pending.top().at);
  m_written = std::max(m_written, end);
}

void VcdWriter::advance(Ps now) {
  if (m_open) write_until(now);
}

void VcdWriter::write_header(std::ostream& out) const {
  out << "$version AHBM-VP $end\n$timescale 1ps $end\n";
  std::vector<const SignalState*> sorted;
  for (const SignalState& s : m_signals) sorted.push_back(&s);
  std::sort(sorted.begin(), sorted.end(), [](const SignalState* a, const SignalState* b) {
    const auto sa = scopes_of(a->scope), sb = scopes_of(b->scope);
    return sa != sb ? sa < sb : a->name < b->name;
  });
  std::vector<std::string> open;
  for (const SignalState* s : sorted) {
    const std::vector<std::string> wanted = scopes_of(s->scope);
    size_t common = 0;
    while (common < open.size() && common < wanted.size() && open[common] == wanted[common]) ++common;
    for (; open.size() > common; open.pop_back()) out << "$upscope $end\n";
    for (; open.size() < wanted.size(); open.push_back(wanted[open.size()])) {
      out << "$scope module " << wanted[open.size()] << " $end\n";
    }
    out << fmt::format("$var wire {} {} {}{} $end\n", s->width, s->id, s->name,
                       s->width > 1 ? fmt::format(" [{}:0]", s->width - 1) : "");
  }
  for (; !open.empty(); open.pop_back()) out << "$upscope $end\n";
  out << "$enddefinitions $end\n#0\n$dumpvars\n";
  for (const SignalState& s : m_signals) out << value_text(s, &s == &m_signals[m_simulating] ? 1 : 0);
  out << "$end\n";
}

void VcdWriter::finish(Ps end) {
  if (!m_open) return;
  end = std::max<Ps>({end, m_written, 1});
  set(m_simulating, end, 0);
  write_until(end + 1);
  m_open = false;
  write_header(m_out);
  m_changes_out.close();
  bool complete = !m_changes_out.fail();
  {
    std::ifstream part(m_part);
    if (part.peek() != std::ifstream::traits_type::eof()) m_out << part.rdbuf();
  }
  m_out.close();
  complete = complete && !m_out.fail();
  std::remove(m_part.c_str());
  if (!complete) throw std::runtime_error(fmt::format("the wave file '{}' could not be written completely", m_file));
}

}  // namespace ahbm::observe
