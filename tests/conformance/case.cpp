#include "tests/conformance/case.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ahbm::conformance {

using namespace dtensor;

std::string Verdict::text() const {
  std::string out;
  for (const std::string& p : m_problems) out += (out.empty() ? "" : "; ") + p;
  return out;
}

void check_fields(const YAML::Node& node, const std::string& where, const std::vector<std::string>& known) {
  if (!node.IsMap()) throw CaseError(where + " is no mapping");
  for (const auto& entry : node) {
    const auto name = entry.first.as<std::string>();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw CaseError("unknown field '" + name + "' in " + where);
    }
  }
}

YAML::Node required(const YAML::Node& node, const char* field) {
  const YAML::Node value = node[field];
  if (!value) throw CaseError(std::string("field '") + field + "' is missing");
  return value;
}

bool flag(const YAML::Node& node, const char* field) {
  return node[field] && node[field].as<bool>();
}

bool is_text(const YAML::Node& node) {
  return node.Tag() == "!";
}

Dims dims_of(const YAML::Node& node) {
  const auto numbers = numbers_of<int64_t>(node);
  return {numbers.begin(), numbers.end()};
}

Placements placements_of(const YAML::Node& node) {
  if (!node.IsSequence()) throw CaseError("expected a list of placements, not " + one_line(node));
  Placements out;
  for (const auto& v : node) out.push_back(parse_placement(v.as<std::string>()));
  return out;
}

namespace {

/// Deeper nesting than this has no meaning in a case; an alias may even contain itself.
constexpr int kMaxDepth = 32;
void check_depth(int depth) {
  if (depth > kMaxDepth) throw CaseError("nested too deeply, or an alias that contains itself");
}

std::string one_line(const YAML::Node& node, int depth) {
  check_depth(depth);
  if (node.IsScalar() || node.IsNull() || !node.IsDefined()) return node.IsScalar() ? node.Scalar() : "null";
  std::string out;
  for (const auto& v : node) {
    if (!out.empty()) out += ",";
    out += node.IsMap() ? v.first.Scalar() + ":" + one_line(v.second, depth + 1) : one_line(v, depth + 1);
  }
  return node.IsMap() ? "{" + out + "}" : "[" + out + "]";
}

void flatten_ranks(const YAML::Node& node, RankList& ranks, int depth = 0) {
  check_depth(depth);
  for (const auto& v : node) {
    if (v.IsSequence()) {
      flatten_ranks(v, ranks, depth + 1);
    } else {
      ranks.push_back(number_of<uint32_t>(v));
    }
  }
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

std::string numbers(const std::vector<double>& values) {
  std::vector<std::string> out;
  for (const double v : values) out.push_back(number(v));
  return list_text(out);
}

/// `magnitude`: of the terms behind a sum, whose rounding counts.
bool close(double expected, double got, double magnitude) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (std::isinf(expected) || std::isinf(got)) return expected == got;
  return std::abs(got - expected) <= 1e-5 * std::abs(expected) + std::max(2e-7, 1e-6 * magnitude);
}

/// The numbers in name(a,b,...). Nothing when the text is something else.
bool parse_call(const std::string& text, const std::string& name, std::vector<double>& arguments) {
  if (text.rfind(name + "(", 0) != 0 || text.back() != ')') return false;
  const std::string list = text.substr(name.size() + 1, text.size() - name.size() - 2);
  size_t at = 0;
  while (at < list.size()) {
    size_t used = 0;
    arguments.push_back(std::stod(list.substr(at), &used));
    at += used;
    if (at < list.size() && (list[at] != ',' || at + 1 == list.size())) return false;
    ++at;
  }
  return true;
}

/// One thread per rank and one SIP per rank: more is a mistake of the case.
constexpr uint64_t kMaxWorld = 1024;
void check_world(uint64_t ranks) {
  if (ranks > kMaxWorld) throw CaseError("a world of more than " + std::to_string(kMaxWorld) + " ranks");
}

}  // namespace

std::string one_line(const YAML::Node& node) {
  return one_line(node, 0);
}

MeshCase mesh_of(const YAML::Node& node) {
  check_fields(node, "mesh", {"shape", "ranks", "world", "names"});
  MeshCase out;
  if (node["names"]) out.names = node["names"].as<std::vector<std::string>>();
  if (node["shape"]) {
    if (node["ranks"]) throw CaseError("mesh with both shape and ranks");
    out.shape = numbers_of<uint32_t>(node["shape"]);
    uint64_t n = 1;
    for (const uint32_t s : out.shape) {
      n *= s;
      check_world(n);
    }
    for (uint32_t r = 0; r < n; ++r) out.ranks.push_back(r);
  } else {
    flatten_ranks(required(node, "ranks"), out.ranks);
    for (YAML::Node level = node["ranks"]; level.IsSequence(); level.reset(level[0])) {
      out.shape.push_back(static_cast<uint32_t>(level.size()));
    }
  }
  out.world = node["world"] ? number_of<uint32_t>(node["world"]) : 0;
  if (out.world == 0) {
    for (const uint32_t r : out.ranks) {
      check_world(uint64_t{r} + 1);
      out.world = std::max(out.world, r + 1);
    }
  }
  check_world(out.world);
  out.world = std::max<uint32_t>(out.world, 1);  // a mesh of nothing: somebody has to be told so
  return out;
}

MeshPtr layout_of(const MeshCase& mesh) {
  return MeshLayout::from_ranks(mesh.shape, mesh.ranks, mesh.names, "sip", mesh.world);
}

DataRule parse_data(const std::string& text, bool& is_local) {
  is_local = false;
  std::vector<double> a;
  if (text == "arange") return [](uint64_t k, uint32_t) { return static_cast<double>(k); };
  if (text == "ones") return [](uint64_t, uint32_t) { return 1.0; };
  if (parse_call(text, "lin", a) && a.size() == 2) {
    return [a](uint64_t k, uint32_t) { return a[0] * static_cast<double>(k) + a[1]; };
  }
  a.clear();
  if (parse_call(text, "mod", a) && a.size() == 2 && a[0] >= 1 && a[0] <= 1e15) {
    return [a](uint64_t k, uint32_t) { return static_cast<double>((7 * k + 3) % static_cast<uint64_t>(a[0])) - a[1]; };
  }
  a.clear();
  if (parse_call(text, "list", a)) {
    return [a](uint64_t k, uint32_t) { return a.at(k); };
  }
  a.clear();
  if (parse_call(text, "local", a) && a.size() == 3) {
    is_local = true;
    return [a](uint64_t k, uint32_t rank) { return a[0] * rank + a[1] * static_cast<double>(k) + a[2]; };
  }
  throw CaseError("unknown data rule '" + text + "'");
}

void check_values(const YAML::Node& entry, const std::vector<double>& got, const std::string& where, Verdict& verdict) {
  if (entry["values"]) {
    const auto expected = numbers_of<double>(entry["values"]);
    bool same = expected.size() == got.size();
    // What cancelled out has the rounding of its terms, which are about as large as the largest value.
    double largest = 0;
    for (const double v : expected) largest = std::max(largest, std::isfinite(v) ? std::abs(v) : 0);
    for (size_t i = 0; same && i < got.size(); ++i) same = close(expected[i], got[i], largest);
    if (!same) verdict.differ("values of " + where, numbers(expected), numbers(got));
  }
  double sum = 0;
  double weighted = 0;
  double magnitude = 0;
  double weighted_magnitude = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = static_cast<double>(i + 1);
    sum += got[i];
    weighted += w * got[i];
    magnitude += std::abs(got[i]);
    weighted_magnitude += w * std::abs(got[i]);
  }
  if (entry["sum"] && !close(number_of<double>(entry["sum"]), sum, magnitude)) {
    verdict.differ("sum of " + where, entry["sum"].Scalar(), number(sum));
  }
  if (entry["wsum"] && !close(number_of<double>(entry["wsum"]), weighted, weighted_magnitude)) {
    verdict.differ("weighted sum of " + where, entry["wsum"].Scalar(), number(weighted));
  }
}

void check_locals(const YAML::Node& locals, const DTensorSpec& spec, Verdict& verdict,
                  const std::function<void(uint32_t, const YAML::Node&)>& values) {
  if (!locals.IsSequence() || locals.size() == 0) throw CaseError("expect.locals is no list of locals");
  for (const auto& entry : locals) {
    if (!values && (entry["values"] || entry["sum"] || entry["wsum"])) {
      throw CaseError("values in a case that has no data");
    }
    check_fields(entry, "expect.locals", {"rank", "ranks", "shape", "offset", "values", "sum", "wsum"});
    if (entry["rank"] && entry["ranks"]) throw CaseError("expect.locals with both rank and ranks");
    const auto ranks = entry["ranks"] ? numbers_of<uint32_t>(entry["ranks"])
                                      : std::vector<uint32_t>{number_of<uint32_t>(required(entry, "rank"))};
    if (ranks.empty()) throw CaseError("expect.locals without a rank");
    for (const uint32_t rank : ranks) {
      const LocalPart part = local_part(spec, rank);
      const std::string of_rank = " of rank " + std::to_string(rank);
      verdict.compare("local shape" + of_rank, to_string(dims_of(required(entry, "shape"))), to_string(part.shape));
      if (spec.mesh()->contains(rank)) {
        verdict.compare("offset" + of_rank, entry["offset"] ? to_string(dims_of(entry["offset"])) : "none",
                        part.offset ? to_string(*part.offset) : "none");
      } else if (entry["offset"]) {
        verdict.compare("offset" + of_rank + ", outside", to_string(dims_of(entry["offset"])), "[]");
      }
      if (values) values(rank, entry);
    }
  }
}

}  // namespace ahbm::conformance
