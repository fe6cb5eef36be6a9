// How parameters get their values: from the seed, their name and their index alone, so that every way of cutting a
// model over ranks, and a reference on the host, starts from the same numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"

namespace ahbm::nn {

using runtime::Context;
using runtime::DPPolicy;
using runtime::Shape;
using runtime::Tensor;

/// Uniform in [center - spread, center + spread).
struct Init {
  double center = 0;
  double spread = 1;
};
Init linear_init(uint64_t in_features);  ///< spread 1 / sqrt(in)
constexpr Init kBiasInit{0, 0.5};
constexpr Init kTableInit{0, 1};
constexpr Init kNormWeightInit{1, 0.25};

/// A range of one dimension of a parameter.
struct Cut {
  size_t dim = 0;
  Range range;
};

/// The parameter's elements, or those of a cut, row-major and rounded to the dtype.
/// \throws std::out_of_range for a cut that leaves the shape
std::vector<double> parameter_values(uint64_t seed, const std::string& name, const Shape& shape, const Init& init,
                                     DType dtype, const std::optional<Cut>& cut = std::nullopt);

class Builder {
 public:
  Builder(Context& context, DType dtype = DType::Float32, uint64_t seed = 1, DPPolicy policy = {})
      : m_context(&context), m_dtype(dtype), m_seed(seed), m_policy(policy) {}

  Context& context() const { return *m_context; }
  DType dtype() const { return m_dtype; }
  /// For the child `name`.
  Builder at(const std::string& name) const;
  /// On the calling thread's SIP.
  Tensor parameter(const std::string& name, const Shape& shape, const Init& init,
                   const std::optional<Cut>& cut = std::nullopt) const;

 private:
  Context* m_context;
  DType m_dtype;
  uint64_t m_seed;
  DPPolicy m_policy;
  std::string m_prefix;  ///< empty or ends in a dot
};

}  // namespace ahbm::nn
