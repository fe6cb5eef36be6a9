#include "runtime/dtensor/debug.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/dtensor/session.h"

namespace ahbm::dtensor {

using runtime::distributed::CollectiveCall;

namespace {

/// The fewest mesh dimensions whose group of `rank` these ranks (ascending) are; none if they are no such group.
std::vector<uint32_t> mesh_dims_of(const MeshLayout& mesh, const RankList& group, uint32_t rank) {
  std::vector<uint32_t> best;
  if (!mesh.contains(rank)) return best;
  for (uint32_t mask = 1; mask < 1u << mesh.ndim(); ++mask) {
    std::vector<uint32_t> dims;
    size_t n = 1;
    for (uint32_t d = 0; d < mesh.ndim(); ++d) {
      if ((mask >> d & 1) == 0) continue;
      dims.push_back(d);
      n *= mesh.shape()[d];
    }
    if (n != group.size() || (!best.empty() && best.size() <= dims.size())) continue;
    for (RankList members : mesh.groups(dims)) {
      std::sort(members.begin(), members.end());
      if (members == group && std::binary_search(group.begin(), group.end(), rank)) best = dims;
    }
  }
  return best;
}

/// A table of lines with columns padded to their widest entry.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) line += fmt::format("{:<{}}  ", row[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string CommEvent::notation() const {
  const bool reduces = kind.find("reduce") != std::string::npos;
  return kind + "@" + (mesh_dims.empty() ? "-1" : mesh_dims_string(mesh_dims)) +
         (reduces && op != ReduceOp::Sum ? std::string(":") + ahbm::to_string(op) : std::string());
}

CommDebugMode::CommDebugMode(Context& context) : m_context(context) {
  auto& distributed = context.distributed;
  std::optional<uint32_t> only;
  if (distributed.is_bound(runtime::current_process())) only = distributed.get_rank();
  m_listener = distributed.add_listener([this, only](const CollectiveCall& call) {
    if (only && call.rank != only) return;
    CommEvent event;
    event.kind = ccl::to_string(call.collective);
    event.rank = call.rank.value_or(call.group.front());
    event.group = call.group;
    event.op = call.op;
    event.dtype = call.dtype;
    event.elements = static_cast<int64_t>(call.elements);
    event.record = call.record;
    Session& session = m_context.dtensor_session();
    const Session::Scopes& scopes = session.scopes();
    event.modules = scopes.modules;
    if (!scopes.at_work.empty()) event.mesh_dims = mesh_dims_of(*scopes.at_work.back(), call.group, event.rank);
    session.tidy();
    m_log.push_back(std::move(event));
  });
}

CommDebugMode::~CommDebugMode() {
  m_context.distributed.remove_listener(m_listener);
}

CommDebugMode::Counts CommDebugMode::counts() const {
  Counts out;
  for (const CommEvent& e : m_log) ++out[e.kind];
  return out;
}

std::map<std::string, CommDebugMode::Counts> CommDebugMode::module_counts() const {
  std::map<std::string, Counts> out;
  for (const CommEvent& e : m_log) {
    for (const std::string& path : e.modules) ++out[path][e.kind];
  }
  return out;
}

uint32_t CommDebugMode::count(const std::string& kind) const {
  return static_cast<uint32_t>(
      std::count_if(m_log.begin(), m_log.end(), [&](const CommEvent& e) { return e.kind == kind; }));
}

std::vector<std::string> CommDebugMode::sequence() const {
  std::vector<std::string> out;
  for (const CommEvent& e : m_log) out.push_back(e.notation());
  return out;
}

std::vector<int64_t> CommDebugMode::elements() const {
  std::vector<int64_t> out;
  for (const CommEvent& e : m_log) out.push_back(e.elements);
  return out;
}

std::string CommDebugMode::text() const {
  std::vector<std::vector<std::string>> rows{
      {"#", "rank", "collective", "mesh dim", "ranks", "elements", "dtype", "start (ns)", "time (ns)"}};
  for (size_t i = 0; i < m_log.size(); ++i) {
    const CommEvent& e = m_log[i];
    const bool ran = e.record->complete() && e.end() > 0;
    const auto ns = [](Ps t) { return fmt::format("{:.1f}", static_cast<double>(t) / 1000.0); };
    rows.push_back({std::to_string(i), std::to_string(e.rank), e.notation(),
                    e.mesh_dims.empty() ? "-" : mesh_dims_string(e.mesh_dims), std::to_string(e.group.size()),
                    std::to_string(e.elements), ahbm::to_string(e.dtype), ran ? ns(e.start()) : "-",
                    ran ? ns(e.end() - e.start()) : "-"});
  }
  std::string out = table(rows);
  const auto modules = module_counts();
  if (modules.empty()) return out;
  rows.clear();
  rows.push_back({"module", "collectives"});
  for (const auto& [path, counts] : modules) {
    std::vector<std::string> list;
    for (const auto& [kind, n] : counts) list.push_back(fmt::format("{} {}", kind, n));
    rows.push_back({path, fmt::format("{}", fmt::join(list, " + "))});
  }
  return out + table(rows);
}

std::string visualize_sharding(const DTensorSpec& spec) {
  if (spec.ndim() == 0 || spec.ndim() > 2) {
    throw ShapeMismatch(
        fmt::format("visualize_sharding of shape {}: expected 1 or 2 dimensions", to_string(spec.shape())));
  }
  const MeshLayout& mesh = *spec.mesh();
  // Pieces of the tensor by row and column range, each with the ranks that hold it.
  using Piece = std::pair<uint64_t, uint64_t>;
  std::map<std::pair<Piece, Piece>, RankList> pieces;
  RankList empty;
  for (const uint32_t rank : mesh.ranks()) {
    const Coordinate c = *mesh.coordinate(rank);
    std::vector<std::vector<Range>> owned;
    for (size_t d = 0; d < spec.ndim(); ++d) {
      owned.push_back(owned_along(mesh, spec.placements(), spec.shape(), static_cast<int>(d), c));
    }
    if (owned.size() == 1) owned.push_back({{0, 1}});
    bool any = false;
    for (const Range& r : owned[0]) {
      for (const Range& k : owned[1]) {
        if (r.count == 0 || k.count == 0) continue;
        pieces[{{r.begin, r.end()}, {k.begin, k.end()}}].push_back(rank);
        any = true;
      }
    }
    if (!any) empty.push_back(rank);
  }
  std::vector<Piece> rows, cols;
  for (const auto& [piece, ranks] : pieces) {
    rows.push_back(piece.first);
    cols.push_back(piece.second);
  }
  for (auto* list : {&rows, &cols}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  const auto range = [](const Piece& p) { return fmt::format("{}-{}", p.first, p.second - 1); };
  std::vector<std::vector<std::string>> lines;
  if (spec.ndim() == 2) {
    lines.push_back({"rows \\ cols"});
    for (const Piece& c : cols) lines.front().push_back(range(c));
  } else {
    lines.push_back({"rows", "ranks"});
  }
  for (const Piece& r : rows) {
    lines.push_back({range(r)});
    for (const Piece& c : cols) {
      const auto it = pieces.find({r, c});
      lines.back().push_back(it == pieces.end() ? "-" : fmt::format("{}", fmt::join(it->second, ",")));
    }
  }
  std::string out = spec.to_string() + "\n" + table(lines);
  if (!empty.empty()) out += fmt::format("nothing on rank{} {}\n", empty.size() > 1 ? "s" : "", fmt::join(empty, ", "));
  return out;
}

std::string explain(const RedistributePlan& plan, uint32_t rank, const HasGroup& has_group) {
  std::vector<std::vector<std::string>> rows{{trace(plan)}};
  const auto coordinate = plan.mesh->coordinate(rank);
  for (const MergedStep& merged : merge_steps(plan, has_group)) {
    const PlanStep& step = plan.steps[merged.first];
    const std::string change = to_string(step.from) + "->" + to_string(step.to);
    std::vector<std::string> row{"", mesh_dims_string(merged.mesh_dims) + ":" + change, to_string(step.transition),
                                 step.collective == CollectiveKind::None
                                     ? std::string("local")
                                     : collective_string(step.collective, merged.mesh_dims, step.reduce_op)};
    if (coordinate) {
      const StepOnRank info = step_on_rank(plan, merged, *coordinate);
      row.push_back(to_string(info.before) + " -> " + to_string(info.after));
      if (step.collective != CollectiveKind::None) {
        row.push_back(fmt::format("{} elements over ranks {}", info.send_elements, fmt::join(info.group, ",")));
      }
    }
    rows.push_back(std::move(row));
  }
  return table(rows);
}

}  // namespace ahbm::dtensor
