#include "runtime/layout/strided_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace ahbm::layout {

namespace {

std::vector<uint64_t> dense_strides(const Shape& shape) {
  std::vector<uint64_t> out(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) out[d - 1] = out[d] * shape[d];
  return out;
}

/// The first element of every run and its length, by place in the base.
std::vector<Range> runs_of(const StridedView& view) {
  std::vector<Range> out;
  view.for_each_run([&](uint64_t, uint64_t base, uint64_t count) { out.push_back({base, count}); });
  std::sort(out.begin(), out.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return out;
}

}  // namespace

StridedView::StridedView(const Shape& base) : m_shape(base), m_strides(dense_strides(base)) {}

bool StridedView::is_contiguous() const {
  const std::vector<uint64_t> dense = dense_strides(m_shape);
  bool contiguous = true;
  for (size_t d = 0; d < m_shape.size(); ++d) contiguous &= m_shape[d] == 1 || m_strides[d] == dense[d];
  return contiguous || elements() == 0;
}

bool StridedView::is_all_of(const Shape& base) const {
  return m_offset == 0 && m_shape == base && is_contiguous();
}

bool StridedView::overlaps_itself() const {
  if (elements() == 0) return false;
  for (size_t d = 0; d < m_shape.size(); ++d) {
    if (m_shape[d] > 1 && m_strides[d] == 0) return true;
  }
  return false;  // all else that makes views takes elements apart or away
}

size_t StridedView::checked_dim(const char* call, int64_t dim) const {
  const auto n = static_cast<int64_t>(m_shape.size());
  if (dim >= -n && dim < n) return static_cast<size_t>(dim < 0 ? dim + n : dim);
  throw std::invalid_argument(
      fmt::format("{}: dim {} of a tensor {}, {}", call, dim, layout::to_string(m_shape),
                  n == 0 ? std::string("which has none") : fmt::format("expected {} to {}", -n, n - 1)));
}

StridedView StridedView::narrow(int64_t dim, int64_t start, uint64_t length) const {
  const size_t d = checked_dim("narrow", dim);
  const auto extent = static_cast<int64_t>(m_shape[d]);
  const int64_t from = start < 0 ? start + extent : start;
  if (from < 0 || from > extent || length > static_cast<uint64_t>(extent - from)) {
    throw std::invalid_argument(
        fmt::format("narrow: start {} and length {} in dim {} of a tensor {}, expected a range "
                    "of its {}",
                    start, length, dim, layout::to_string(m_shape), extent));
  }
  StridedView out = *this;
  out.m_shape[d] = length;
  out.m_offset += static_cast<uint64_t>(from) * m_strides[d];
  return out;
}

StridedView StridedView::select(int64_t dim, int64_t index) const {
  const size_t d = checked_dim("select", dim);
  const auto extent = static_cast<int64_t>(m_shape[d]);
  if (index < -extent || index >= extent) {
    throw std::invalid_argument(fmt::format("select: index {} in dim {} of a tensor {}, expected one of its {}", index,
                                            dim, layout::to_string(m_shape), extent));
  }
  StridedView out = *this;
  out.m_offset += static_cast<uint64_t>(index < 0 ? index + extent : index) * m_strides[d];
  out.m_shape.erase(out.m_shape.begin() + static_cast<std::ptrdiff_t>(d));
  out.m_strides.erase(out.m_strides.begin() + static_cast<std::ptrdiff_t>(d));
  return out;
}

StridedView StridedView::slice(int64_t dim, int64_t start, int64_t end, int64_t step) const {
  const size_t d = checked_dim("slice", dim);
  if (step < 1) {
    throw std::invalid_argument(fmt::format("slice: step {} in dim {} of a tensor {}, expected 1 or more", step, dim,
                                            layout::to_string(m_shape)));
  }
  const auto extent = static_cast<int64_t>(m_shape[d]);
  const auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent); };
  const int64_t from = clamped(start), to = std::max(from, clamped(end));
  StridedView out = *this;
  out.m_shape[d] = to > from ? static_cast<uint64_t>((to - from - 1) / step) + 1 : 0;
  out.m_offset += static_cast<uint64_t>(from) * m_strides[d];
  out.m_strides[d] *= static_cast<uint64_t>(step);
  return out;
}

StridedView StridedView::permute(const std::vector<int64_t>& dims) const {
  std::vector<bool> used(m_shape.size());
  StridedView out = *this;
  bool good = dims.size() == m_shape.size();
  for (size_t i = 0; good && i < dims.size(); ++i) {
    const size_t d = checked_dim("permute", dims[i]);
    good = !used[d];
    used[d] = true;
    out.m_shape[i] = m_shape[d];
    out.m_strides[i] = m_strides[d];
  }
  if (good) return out;
  throw std::invalid_argument(fmt::format("permute: dims ({}) of a tensor {}, expected each of its {} once",
                                          fmt::join(dims, ", "), layout::to_string(m_shape), m_shape.size()));
}

StridedView StridedView::transpose(int64_t a, int64_t b) const {
  const size_t i = checked_dim("transpose", a), j = checked_dim("transpose", b);
  StridedView out = *this;
  std::swap(out.m_shape[i], out.m_shape[j]);
  std::swap(out.m_strides[i], out.m_strides[j]);
  return out;
}

StridedView StridedView::expand(const Shape& shape) const {
  StridedView out = *this;
  bool good = shape.size() >= m_shape.size();
  const size_t front = good ? shape.size() - m_shape.size() : 0;
  out.m_shape = shape;
  out.m_strides.insert(out.m_strides.begin(), front, 0);
  for (size_t d = front; good && d < shape.size(); ++d) {
    const uint64_t have = m_shape[d - front];
    good = shape[d] == have || have == 1;
    if (shape[d] != have) out.m_strides[d] = 0;
  }
  if (good) return out;
  throw std::invalid_argument(
      fmt::format("expand: a tensor {} to {}, expected its dimensions at the end, only those "
                  "of 1 changed",
                  layout::to_string(m_shape), layout::to_string(shape)));
}

void StridedView::for_each_run(const std::function<void(uint64_t, uint64_t, uint64_t)>& fn) const {
  const uint64_t total = elements();
  // Trailing dimensions that follow one another in the base are one run.
  size_t outer = m_shape.size();
  uint64_t run = 1;
  while (outer != 0 && (m_strides[outer - 1] == run || m_shape[outer - 1] == 1)) run *= m_shape[--outer];
  std::vector<uint64_t> index(outer, 0);
  uint64_t base = m_offset;
  for (uint64_t at = 0; at < total; at += run) {
    fn(at, base, run);
    for (size_t d = outer; d-- != 0;) {
      base += m_strides[d];
      if (++index[d] < m_shape[d]) break;
      base -= m_strides[d] * m_shape[d];
      index[d] = 0;
    }
  }
}

bool overlap(const StridedView& a, const StridedView& b) {
  const std::vector<Range> x = runs_of(a), y = runs_of(b);
  for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    if (x[i].end() <= y[j].begin) {
      ++i;
    } else if (y[j].end() <= x[i].begin) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

std::string to_string(const StridedView& view) {
  return fmt::format("strides ({}) from {}", fmt::join(view.strides(), ", "), view.offset());
}

}  // namespace ahbm::layout
