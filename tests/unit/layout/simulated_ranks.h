// Distributed tensors of doubles with every rank's part in plain vectors, and an executor of plans on them: enough to
// see whether a plan or a decision means what it says. Single-threaded, no communication: a group's members just read
// each other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "runtime/layout/redistribute_plan.h"

namespace ahbm::dtensor::test {

struct Array {
  Dims shape;
  std::vector<double> data;

  static Array zeros(const Dims& shape) { return {shape, std::vector<double>(static_cast<size_t>(numel(shape)), 0)}; }
  double& at(const Dims& index) { return data[flat(index)]; }
  double at(const Dims& index) const { return data[flat(index)]; }
  size_t flat(const Dims& index) const {
    int64_t f = 0;
    for (size_t d = 0; d < shape.size(); ++d) f = f * shape[d] + index[d];
    return static_cast<size_t>(f);
  }
};

/// Calls fn for every index of a shape, row-major.
inline void for_each_index(const Dims& shape, const std::function<void(const Dims&)>& fn) {
  if (numel(shape) == 0) return;
  Dims index(shape.size(), 0);
  while (true) {
    fn(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

inline std::vector<int64_t> positions(const std::vector<Range>& ranges) {
  std::vector<int64_t> out;
  for (const Range& r : ranges) {
    for (uint64_t i = r.begin; i < r.end(); ++i) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

inline Array take(const Array& a, int dim, const std::vector<int64_t>& where) {
  const auto d = static_cast<size_t>(dim);
  Dims shape = a.shape;
  shape[d] = static_cast<int64_t>(where.size());
  Array out = Array::zeros(shape);
  for_each_index(shape, [&](const Dims& i) {
    Dims from = i;
    from[d] = where[static_cast<size_t>(i[d])];
    out.at(i) = a.at(from);
  });
  return out;
}

inline double reduce(const Placement& p, const std::vector<double>& pieces) {
  if (const auto* norm = std::get_if<NormPartial>(&p)) {
    double acc = 0;
    if (std::isinf(norm->p)) {
      acc = pieces[0];
      for (const double v : pieces) acc = norm->p > 0 ? std::max(acc, v) : std::min(acc, v);
      return acc;
    }
    for (const double v : pieces) acc += std::pow(std::abs(v), norm->p);
    return std::pow(acc, 1 / norm->p);
  }
  double acc = pieces[0];
  for (size_t i = 1; i < pieces.size(); ++i) {
    switch (wire_op(p)) {
      case ReduceOp::Max:
        acc = std::max(acc, pieces[i]);
        break;
      case ReduceOp::Min:
        acc = std::min(acc, pieces[i]);
        break;
      case ReduceOp::Product:
        acc *= pieces[i];
        break;
      default:
        acc += pieces[i];
        break;
    }
  }
  return wire_op(p) == ReduceOp::Avg ? acc / static_cast<double>(pieces.size()) : acc;
}

/// A distributed tensor: the spec and one local array per position of the mesh.
struct Distributed {
  DTensorSpec spec;
  std::vector<Array> local;

  const MeshLayout& mesh() const { return *spec.mesh(); }
};

/// The value of one element on a rank: depends on the global index and, for a Partial, on the rank's coordinate.
using PieceFn = std::function<double(const Dims&, const Coordinate&)>;

inline std::vector<std::vector<int64_t>> owned(const DTensorSpec& spec, const Coordinate& c) {
  std::vector<std::vector<int64_t>> out;
  for (size_t d = 0; d < spec.ndim(); ++d) {
    out.push_back(positions(owned_along(*spec.mesh(), spec.placements(), spec.shape(), static_cast<int>(d), c)));
  }
  return out;
}

inline Distributed build(const DTensorSpec& spec, const PieceFn& piece) {
  Distributed out{spec, {}};
  for (uint32_t r = 0; r < spec.mesh()->size(); ++r) {
    const Coordinate c = spec.mesh()->coordinate_at(r);
    const auto mine = owned(spec, c);
    Array a = Array::zeros(local_shape(*spec.mesh(), spec.placements(), spec.shape(), c));
    for_each_index(a.shape, [&](const Dims& i) {
      Dims global = i;
      for (size_t d = 0; d < i.size(); ++d) global[d] = mine[d][static_cast<size_t>(i[d])];
      a.at(i) = piece(global, c);
    });
    out.local.push_back(std::move(a));
  }
  return out;
}

/// Carries out a plan, checking the shapes it announces on the way.
inline Distributed execute(const RedistributePlan& plan, const Distributed& in, const HasGroup& has_group = nullptr) {
  Distributed cur = in;
  const MeshLayout& mesh = *plan.mesh;
  for (const MergedStep& s : merge_steps(plan, has_group)) {
    const PlanStep& step = plan.steps[s.first];
    Distributed next = cur;
    for (uint32_t r = 0; r < mesh.size(); ++r) {
      const StepOnRank info = step_on_rank(plan, s, mesh.coordinate_at(r));
      const auto n = static_cast<uint32_t>(info.group.size());
      EXPECT_EQ(cur.local[r].shape, info.before) << to_string(step);
      Array value = cur.local[r];
      const auto member = [&](uint32_t i) -> const Array& { return cur.local[*mesh.index_of(info.group[i])]; };
      EXPECT_EQ(info.group[info.group_rank], mesh.ranks()[r]);
      if (step.collective != CollectiveKind::None) {
        EXPECT_EQ(info.send_elements, numel(info.send_shape));
        EXPECT_GE(info.send_elements, numel(info.before)) << to_string(step);
        // Every member hands in a buffer of the same size.
        for (const uint32_t rank : info.group) {
          EXPECT_EQ(step_on_rank(plan, s, *mesh.coordinate(rank)).send_shape, info.send_shape) << to_string(step);
        }
      }
      const Transition t = step.transition;
      if (t == Transition::Gather || t == Transition::GatherCut || t == Transition::Exchange) {
        Dims shape = value.shape;
        shape[static_cast<size_t>(info.from_dim)] = info.from_extent;
        Array whole = Array::zeros(shape);
        int64_t filled = 0;
        for (uint32_t i = 0; i < n; ++i) {
          const auto where = positions(owned_ranges(step.from, static_cast<uint64_t>(info.from_extent), n, i));
          EXPECT_LE(static_cast<int64_t>(where.size()), info.from_chunk);
          const Array& theirs = member(i);
          for_each_index(theirs.shape, [&](const Dims& at) {
            Dims to = at;
            to[static_cast<size_t>(info.from_dim)] =
                where.at(static_cast<size_t>(at[static_cast<size_t>(info.from_dim)]));
            whole.at(to) = theirs.at(at);
            ++filled;
          });
        }
        EXPECT_EQ(filled, numel(shape)) << to_string(step);
        value = std::move(whole);
      }
      if (t == Transition::Reduce || t == Transition::ReduceCut) {
        for (size_t e = 0; e < value.data.size(); ++e) {
          std::vector<double> pieces;
          for (uint32_t i = 0; i < n; ++i) pieces.push_back(member(i).data.at(e));
          value.data[e] = reduce(step.from, pieces);
        }
      }
      if (t == Transition::Cut || t == Transition::GatherCut || t == Transition::Exchange ||
          t == Transition::ReduceCut) {
        EXPECT_EQ(value.shape[static_cast<size_t>(info.to_dim)], info.to_extent) << to_string(step);
        value = take(value, info.to_dim,
                     positions(owned_ranges(step.to, static_cast<uint64_t>(info.to_extent), n, info.group_rank)));
        EXPECT_LE(value.shape[static_cast<size_t>(info.to_dim)], info.to_chunk);
      }
      if (t == Transition::Divide) {
        for (double& v : value.data) v /= n;
      }
      if (t == Transition::ScaleNorm) {
        for (double& v : value.data) v /= std::pow(n, 1 / std::get<NormPartial>(step.to).p);
      }
      EXPECT_EQ(value.shape, info.after) << to_string(step);
      next.local[r] = std::move(value);
    }
    cur = std::move(next);
  }
  cur.spec = in.spec.with_checked_placements(plan.target);
  return cur;
}

/// The logical value, by gathering everything.
inline Array full(const Distributed& in) {
  const auto all = all_replicate(in.mesh().ndim());
  const Distributed out = execute(plan_redistribute(in.spec, all), in);
  for (const Array& a : out.local) {
    EXPECT_EQ(a.shape, out.local[0].shape);
    for (size_t i = 0; i < a.data.size(); ++i) EXPECT_NEAR(a.data[i], out.local[0].data[i], 1e-9);
  }
  return out.local[0];
}

class Random {
 public:
  explicit Random(uint32_t seed) : m_engine(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(m_engine() % static_cast<uint64_t>(n)); }
  bool coin() { return below(2) == 0; }

  MeshPtr mesh(int64_t max_dims = 3, int64_t max_size = 4) {
    std::vector<uint32_t> shape(static_cast<size_t>(1 + below(max_dims)));
    for (uint32_t& n : shape) n = static_cast<uint32_t>(1 + below(max_size));
    uint32_t total = 1;
    for (const uint32_t n : shape) total *= n;
    RankList ranks(total);
    for (uint32_t i = 0; i < total; ++i) ranks[i] = i + 3;
    if (coin()) std::shuffle(ranks.begin(), ranks.end(), m_engine);
    return MeshLayout::from_ranks(shape, ranks);
  }
  Dims shape(int64_t max_dims = 3, int64_t max_size = 10) {
    Dims out(static_cast<size_t>(1 + below(max_dims)));
    for (int64_t& n : out) n = below(max_size);
    return out;
  }
  /// \param partials  what a Partial may be; empty: none
  Placements placements(size_t mesh_ndim, size_t ndim, const std::vector<Placement>& partials, bool strided) {
    Placements out;
    for (size_t m = 0; m < mesh_ndim; ++m) {
      const int64_t kind = below(ndim == 0 ? 2 : 6);
      const int dim = ndim == 0 ? 0 : static_cast<int>(below(static_cast<int64_t>(ndim)));
      if (kind == 1 && !partials.empty()) {
        out.emplace_back(partials[static_cast<size_t>(below(static_cast<int64_t>(partials.size())))]);
      } else if (kind == 2 && strided) {
        out.emplace_back(StridedShard{dim, 1 + below(3)});
      } else if (kind >= 2) {
        out.emplace_back(Shard{dim});
      } else {
        out.emplace_back(Replicate{});
      }
    }
    return out;
  }

 private:
  std::mt19937 m_engine;
};

}  // namespace ahbm::dtensor::test
