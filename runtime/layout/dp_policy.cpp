#include "runtime/layout/dp_policy.h"

#include <cstring>
#include <stdexcept>

namespace ahbm::layout {

namespace {

Range sub_chunk(const Range& whole, uint64_t parts, uint64_t i) {
  const Range part = torch_chunk(whole.count, parts, i);
  return {whole.begin + part.begin, part.count};
}

uint32_t resolve(uint32_t asked, uint32_t there, const char* key, const char* what) {
  if (asked > there) {
    throw std::invalid_argument(std::string("DPPolicy: ") + key + " is " + std::to_string(asked) + ", expected 1.." +
                                std::to_string(there) + " (" + what + "), or 0 for all");
  }
  return asked == 0 ? there : asked;
}

}  // namespace

uint64_t element_count(const Shape& shape) {
  uint64_t n = 1;
  for (const uint64_t d : shape) {
    if (d == 0) return 0;  // whatever the other extents are
  }
  for (const uint64_t d : shape) {
    if (n > (uint64_t{1} << 62) / d) {
      throw std::invalid_argument("shape " + to_string(shape) + " has more than 2^62 elements");
    }
    n *= d;
  }
  return n;
}

std::string to_string(const Shape& shape) {
  std::string out = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + (shape.size() == 1 ? ",)" : ")");
}

const char* to_string(CubePolicy p) {
  switch (p) {
    case CubePolicy::Replicate:
      return "replicate";
    case CubePolicy::RowWise:
      return "row_wise";
    case CubePolicy::ColumnWise:
      return "column_wise";
    case CubePolicy::Partial:
      return "partial";
  }
  return "?";
}

const char* to_string(PePolicy p) {
  switch (p) {
    case PePolicy::Replicate:
      return "replicate";
    case PePolicy::RowWise:
      return "row_wise";
    case PePolicy::ColumnWise:
      return "column_wise";
  }
  return "?";
}

const char* to_string(SipScope s) {
  return s == SipScope::Own ? "own" : "all";
}

CubePolicy parse_cube_policy(std::string_view name) {
  for (const CubePolicy p : {CubePolicy::Replicate, CubePolicy::RowWise, CubePolicy::ColumnWise, CubePolicy::Partial}) {
    if (name == to_string(p)) return p;
  }
  throw std::invalid_argument("DPPolicy: cube is '" + std::string(name) +
                              "', expected replicate, row_wise, column_wise or partial");
}

PePolicy parse_pe_policy(std::string_view name) {
  for (const PePolicy p : {PePolicy::Replicate, PePolicy::RowWise, PePolicy::ColumnWise}) {
    if (name == to_string(p)) return p;
  }
  throw std::invalid_argument("DPPolicy: pe is '" + std::string(name) +
                              "', expected replicate, row_wise or column_wise");
}

std::string to_string(const DPPolicy& policy) {
  std::string out = std::string("cube=") + to_string(policy.cube) + " pe=" + to_string(policy.pe);
  if (policy.num_cubes != 0) out += " num_cubes=" + std::to_string(policy.num_cubes);
  if (policy.num_pes != 0) out += " num_pes=" + std::to_string(policy.num_pes);
  if (policy.sips == SipScope::All) out += " sips=all";
  return out;
}

Layout::Layout(Shape shape, DType dtype, const DPPolicy& policy, uint32_t cubes, uint32_t pes)
    : m_shape(std::move(shape)), m_dtype(dtype), m_policy(policy), m_elements(element_count(m_shape)) {
  m_cubes = resolve(policy.num_cubes, cubes, "num_cubes", "cubes of a SIP");
  m_pes = resolve(policy.num_pes, pes, "num_pes", "PEs of a cube");

  if (!m_shape.empty()) m_rows = m_shape.front();
  if (m_shape.size() >= 2) {
    m_cols = m_shape.back();
    m_middle = 1;
    for (size_t i = 1; i + 1 < m_shape.size(); ++i) m_middle *= m_shape[i];
  }
  const bool one_dimension = m_shape.size() < 2;

  m_shards.reserve(size_t{m_cubes} * m_pes);
  for (uint32_t c = 0; c < m_cubes; ++c) {
    Range rows{0, m_rows};
    Range cols{0, m_cols};
    if (policy.cube == CubePolicy::RowWise || (policy.cube == CubePolicy::ColumnWise && one_dimension)) {
      rows = sub_chunk(rows, m_cubes, c);
    } else if (policy.cube == CubePolicy::ColumnWise) {
      cols = sub_chunk(cols, m_cubes, c);
    }
    uint64_t offset = 0;
    for (uint32_t p = 0; p < m_pes; ++p) {
      Shard s;
      s.cube = CubeId{c};
      s.pe = PeId{p};
      s.rows = rows;
      s.cols = cols;
      if (policy.pe == PePolicy::RowWise || (policy.pe == PePolicy::ColumnWise && one_dimension)) {
        s.rows = sub_chunk(rows, m_pes, p);
      } else if (policy.pe == PePolicy::ColumnWise) {
        s.cols = sub_chunk(cols, m_pes, p);
      }
      s.elements = m_elements == 0 ? 0 : s.rows.count * m_middle * s.cols.count;
      s.offset = offset;
      offset += s.elements;
      m_shards.push_back(s);
    }
    m_cube_elements.push_back(offset);
  }
}

uint64_t Layout::cube_logical_elements(CubeId cube) const {
  return replicated_over_pes() ? shard(cube, PeId{0}).elements : cube_elements(cube);
}

uint32_t Layout::occupied_cubes() const {
  uint32_t n = 0;
  while (n < m_cubes && m_cube_elements[n] != 0) ++n;
  return n;
}

void Layout::for_each_run(const Shard& shard, const std::function<void(uint64_t, uint64_t, uint64_t)>& fn) const {
  if (shard.elements == 0) return;
  if (shard.cols.count == m_cols) {  // whole rows lie together
    fn(0, shard.rows.begin * m_middle * m_cols, shard.elements);
    return;
  }
  uint64_t local = 0;
  for (uint64_t r = 0; r < shard.rows.count; ++r) {
    for (uint64_t m = 0; m < m_middle; ++m) {
      fn(local, ((shard.rows.begin + r) * m_middle + m) * m_cols + shard.cols.begin, shard.cols.count);
      local += shard.cols.count;
    }
  }
}

void Layout::pack(const Shard& shard, const void* logical, void* buffer) const {
  const uint64_t item = item_bytes(m_dtype);
  const auto* from = static_cast<const uint8_t*>(logical);
  auto* to = static_cast<uint8_t*>(buffer);
  for_each_run(shard, [&](uint64_t local, uint64_t global, uint64_t n) {
    std::memcpy(to + local * item, from + global * item, n * item);
  });
}

void Layout::unpack(const Shard& shard, const void* buffer, void* logical) const {
  const uint64_t item = item_bytes(m_dtype);
  const auto* from = static_cast<const uint8_t*>(buffer);
  auto* to = static_cast<uint8_t*>(logical);
  for_each_run(shard, [&](uint64_t local, uint64_t global, uint64_t n) {
    std::memcpy(to + global * item, from + local * item, n * item);
  });
}

}  // namespace ahbm::layout
