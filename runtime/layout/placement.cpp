#include "runtime/layout/placement.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "runtime/layout/errors.h"

namespace ahbm::dtensor {
namespace {

std::string norm_string(double p) {
  if (std::isinf(p)) return p > 0 ? "inf" : "-inf";
  std::string s = std::to_string(p);
  s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s;
}

size_t double_bits(double v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return static_cast<size_t>(bits);
}

[[noreturn]] void bad_placement(std::string_view text) {
  throw std::invalid_argument("placement '" + std::string(text) +
                              "': expected S(dim), SS(dim,split_factor), R, P(sum|avg|max|min|product), NP(p) or "
                              "MP(shape,dim) with a shape like 13x4");
}

int64_t parse_int(std::string_view digits, std::string_view whole) {
  int64_t v = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
  if (ec != std::errc() || end != digits.data() + digits.size()) bad_placement(whole);
  return v;
}

int parse_dim(std::string_view digits, std::string_view whole) {
  const int64_t v = parse_int(digits, whole);
  if (v < std::numeric_limits<int>::min() || v > std::numeric_limits<int>::max()) bad_placement(whole);
  return static_cast<int>(v);
}

}  // namespace

bool has_share(const Placement& p) {
  if (is_partial(p, ReduceOp::Product)) return false;
  const auto* norm = std::get_if<NormPartial>(&p);
  return norm == nullptr || norm->p != 0;
}

Placement with_dim(const Placement& p, int dim) {
  if (const auto* s = std::get_if<StridedShard>(&p)) return StridedShard{dim, s->split_factor};
  return Shard{dim};
}

ReduceOp wire_op(const Placement& p) {
  if (const auto* partial = std::get_if<Partial>(&p)) return partial->op;
  if (const auto* norm = std::get_if<NormPartial>(&p); norm != nullptr && std::isinf(norm->p)) {
    return norm->p > 0 ? ReduceOp::Max : ReduceOp::Min;
  }
  return ReduceOp::Sum;
}

size_t hash_of(const Placement& p, size_t seed) {
  size_t h = hash_mix(seed, p.index());
  if (const auto* s = std::get_if<Shard>(&p)) return hash_mix(h, static_cast<size_t>(s->dim));
  if (const auto* partial = std::get_if<Partial>(&p)) return hash_mix(h, static_cast<size_t>(partial->op));
  if (const auto* s = std::get_if<StridedShard>(&p)) {
    return hash_mix(hash_mix(h, static_cast<size_t>(s->dim)), static_cast<size_t>(s->split_factor));
  }
  if (const auto* norm = std::get_if<NormPartial>(&p)) return hash_mix(h, double_bits(norm->p));
  if (const auto* mask = std::get_if<MaskPartial>(&p)) {
    h = hash_mix(h, static_cast<size_t>(mask->offset_dim));
    for (const int64_t d : mask->offset_shape) h = hash_mix(h, static_cast<size_t>(d));
  }
  return h;
}

size_t hash_of(const Placements& ps, size_t seed) {
  size_t h = hash_mix(seed, ps.size());
  for (const Placement& p : ps) h = hash_of(p, h);
  return h;
}

std::string to_string(const Placement& p) {
  if (const auto* s = std::get_if<Shard>(&p)) return "S(" + std::to_string(s->dim) + ")";
  if (const auto* s = std::get_if<StridedShard>(&p)) {
    return "SS(" + std::to_string(s->dim) + "," + std::to_string(s->split_factor) + ")";
  }
  if (const auto* partial = std::get_if<Partial>(&p)) return std::string("P(") + to_string(partial->op) + ")";
  if (const auto* norm = std::get_if<NormPartial>(&p)) return "NP(" + norm_string(norm->p) + ")";
  if (const auto* mask = std::get_if<MaskPartial>(&p)) {
    std::string shape;
    for (const int64_t d : mask->offset_shape) shape += (shape.empty() ? "" : "x") + std::to_string(d);
    return "MP(" + shape + "," + std::to_string(mask->offset_dim) + ")";
  }
  return "R";
}

std::string to_string(const Placements& ps) {
  std::string out = "[";
  for (size_t i = 0; i < ps.size(); ++i) out += (i == 0 ? "" : ", ") + to_string(ps[i]);
  return out + "]";
}

std::string short_string(const Placements& ps) {
  std::string out;
  for (const Placement& p : ps) {
    for (const char c : to_string(p)) {
      if (c == ',') {
        out += '/';
      } else if (c != '(' && c != ')') {
        out += c;
      }
    }
  }
  return out;
}

Placement parse_placement(std::string_view text) {
  std::string compact;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) compact += c;
  }
  const std::string_view s = compact;
  const size_t open = s.find('(');
  const std::string_view name = s.substr(0, open);
  if (open == std::string_view::npos) {
    if (name == "R") return Replicate{};
    if (name == "P") return Partial{};
    bad_placement(text);
  }
  if (s.back() != ')') bad_placement(text);
  const std::string_view body = s.substr(open + 1, s.size() - open - 2);
  const size_t comma = body.rfind(',');
  if (name == "S") return Shard{parse_dim(body, text)};
  if (name == "P") {
    const auto op = parse_reduce_op(body);
    if (!op) bad_placement(text);
    return Partial{*op};
  }
  if (name == "NP") {
    if (body == "inf") return NormPartial{std::numeric_limits<double>::infinity()};
    if (body == "-inf") return NormPartial{-std::numeric_limits<double>::infinity()};
    double p = 0;
    const auto [end, ec] = std::from_chars(body.data(), body.data() + body.size(), p);
    if (ec != std::errc() || end != body.data() + body.size() || std::isnan(p)) bad_placement(text);
    return NormPartial{p};
  }
  if (comma == std::string_view::npos) bad_placement(text);
  const std::string_view first = body.substr(0, comma);
  const std::string_view second = body.substr(comma + 1);
  if (name == "SS") return StridedShard{parse_dim(first, text), parse_int(second, text)};
  if (name == "MP") {
    MaskPartial mask;
    mask.offset_dim = parse_dim(second, text);
    for (size_t at = 0; at <= first.size();) {
      const size_t end = std::min(first.find('x', at), first.size());
      mask.offset_shape.push_back(parse_int(first.substr(at, end - at), text));
      at = end + 1;
    }
    return mask;
  }
  bad_placement(text);
}

Placements all_replicate(size_t mesh_ndim) {
  return Placements(mesh_ndim, Placement(Replicate{}));
}

bool is_all_replicate(const Placements& ps) {
  for (const Placement& p : ps) {
    if (!is_replicate(p)) return false;
  }
  return true;
}

bool partials_commute(const Placements& ps) {
  const Placement* first = nullptr;
  for (const Placement& p : ps) {
    if (!is_partial(p)) continue;
    if (first == nullptr) {
      first = &p;
    } else if (!(p == *first) && !(is_linear_partial(p) && is_linear_partial(*first))) {
      return false;
    }
  }
  return true;
}

Placements normalize(const Placements& ps, size_t mesh_ndim, size_t tensor_ndim) {
  if (ps.size() != mesh_ndim) {
    throw PlacementsLengthMismatch(to_string(ps) + " has " + std::to_string(ps.size()) +
                                   " placements: expected one per mesh dimension, " + std::to_string(mesh_ndim));
  }
  Placements out = ps;
  for (Placement& p : out) {
    if (auto* s = std::get_if<Shard>(&p)) {
      s->dim = normalize_dim(s->dim, tensor_ndim, "Shard dim");
    } else if (auto* strided = std::get_if<StridedShard>(&p)) {
      if (strided->split_factor < 1) {
        throw std::invalid_argument(to_string(p) + ": split factor " + std::to_string(strided->split_factor) +
                                    ", expected >= 1");
      }
      strided->dim = normalize_dim(strided->dim, tensor_ndim, "StridedShard dim");
    } else if (const auto* mask = std::get_if<MaskPartial>(&p)) {
      normalize_dim(mask->offset_dim, mask->offset_shape.size(), "MaskPartial dim");
    }
  }
  if (!partials_commute(out)) {
    throw MixedPartial(to_string(out) +
                       ": pending reductions of different kinds do not commute; expected one kind, or " +
                       "sum and avg");
  }
  return out;
}

std::vector<Range> owned_ranges(const Placement& p, uint64_t extent, uint64_t n, uint64_t i) {
  if (std::holds_alternative<Shard>(p)) return {torch_chunk(extent, n, i)};
  const auto* strided = std::get_if<StridedShard>(&p);
  if (strided == nullptr) return {{0, extent}};
  std::vector<Range> out;
  const auto factor = static_cast<uint64_t>(strided->split_factor);
  for (uint64_t j = 0; j < factor; ++j) {
    const Range outer = torch_chunk(extent, factor, j);
    if (outer.empty()) break;
    const Range inner = torch_chunk(outer.count, n, i);
    if (!inner.empty()) out.push_back({outer.begin + inner.begin, inner.count});
  }
  return out;
}

uint64_t owned_count(const Placement& p, uint64_t extent, uint64_t n, uint64_t i) {
  if (std::holds_alternative<Shard>(p)) return torch_chunk(extent, n, i).count;
  const auto* strided = std::get_if<StridedShard>(&p);
  if (strided == nullptr) return extent;
  // All outer chunks are full but the last non-empty one.
  const auto factor = static_cast<uint64_t>(strided->split_factor);
  const uint64_t c = ceil_div(extent, factor);
  if (c == 0) return 0;
  const uint64_t full = extent / c;
  return full * torch_chunk(c, n, i).count + torch_chunk(extent - full * c, n, i).count;
}

}  // namespace ahbm::dtensor
