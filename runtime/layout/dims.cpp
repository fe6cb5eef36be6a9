#include "runtime/layout/dims.h"

#include <limits>

#include "runtime/layout/errors.h"

namespace ahbm::dtensor {

int64_t numel(const Dims& shape) {
  int64_t n = 1;
  bool empty = false;
  for (const int64_t d : shape) {
    if (d < 0) throw ShapeMismatch("size " + std::to_string(d) + " in shape " + to_string(shape) + ": expected >= 0");
    if (d == 0) {
      empty = true;
    } else if (n > std::numeric_limits<int64_t>::max() / d) {
      throw ShapeMismatch("shape " + to_string(shape) + " has more than 2^63 - 1 elements");
    } else {
      n *= d;
    }
  }
  return empty ? 0 : n;
}

Dims contiguous_stride(const Dims& shape) {
  Dims stride(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) stride[i - 1] = stride[i] * (shape[i] > 0 ? shape[i] : 1);
  return stride;
}

std::string to_string(const Dims& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return out + "]";
}

int normalize_dim(int64_t dim, size_t ndim, const char* what) {
  const auto n = static_cast<int64_t>(ndim);
  if (dim < -n || dim >= n) {
    throw DimOutOfRange(std::string(what) + " " + std::to_string(dim) + " of a " + std::to_string(n) + "-d tensor: " +
                        (n == 0 ? std::string("it has no dimension")
                                : "expected " + std::to_string(-n) + ".." + std::to_string(n - 1)));
  }
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

}  // namespace ahbm::dtensor
