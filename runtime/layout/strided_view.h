// Which elements of a row-major tensor a view of it shows, and in which order: PyTorch's sizes, strides and storage
// offset, over the elements of the whole logical tensor. Where these lie in memory is the layout's business, so that a
// view of a tensor that is cut over cubes and PEs is nothing special. Plain arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/layout/dp_policy.h"

namespace ahbm::layout {

/// Dimensions count from the end when negative, and so do positions. All that is wrong is a std::invalid_argument that
/// names the call, the value and the shape.
class StridedView {
 public:
  /// All of it.
  explicit StridedView(const Shape& base);

  const Shape& shape() const { return m_shape; }
  const std::vector<uint64_t>& strides() const { return m_strides; }
  uint64_t offset() const { return m_offset; }
  uint64_t elements() const { return element_count(m_shape); }
  /// Of a tensor of shape `base`: every element, in its order.
  bool is_all_of(const Shape& base) const;
  /// Its elements follow one another in the base.
  bool is_contiguous() const;
  /// Some element shows twice.
  bool overlaps_itself() const;

  StridedView narrow(int64_t dim, int64_t start, uint64_t length) const;
  StridedView select(int64_t dim, int64_t index) const;
  /// Every `step`-th index of [start, end), both clamped as Python's slices are.
  StridedView slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1) const;
  StridedView permute(const std::vector<int64_t>& dims) const;
  StridedView transpose(int64_t a, int64_t b) const;
  /// New dimensions in front, and those of 1 repeated.
  StridedView expand(const Shape& shape) const;

  /// fn(element of the view, element of the base, count) for the runs that are contiguous on both sides, in the order
  /// of the view.
  void for_each_run(const std::function<void(uint64_t, uint64_t, uint64_t)>& fn) const;

  friend bool operator==(const StridedView& a, const StridedView& b) {
    return a.m_shape == b.m_shape && a.m_strides == b.m_strides && a.m_offset == b.m_offset;
  }

 private:
  size_t checked_dim(const char* call, int64_t dim) const;

  Shape m_shape;
  std::vector<uint64_t> m_strides;
  uint64_t m_offset = 0;
};

/// Whether two views of one tensor show an element that is the same.
bool overlap(const StridedView& a, const StridedView& b);

/// e.g. `strides (8, 2) from 1`
std::string to_string(const StridedView& view);

}  // namespace ahbm::layout
