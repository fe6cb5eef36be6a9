#include "runtime/nn/builder.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/random.h"

namespace ahbm::nn {

namespace {

/// The seed of a parameter: FNV-1a over its name, from the model's seed.
uint64_t seed_of(uint64_t seed, const std::string& name) {
  uint64_t h = 14695981039346656037ULL ^ seed;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  return h;
}

}  // namespace

Init linear_init(uint64_t in_features) {
  return {0, in_features == 0 ? 1 : 1 / std::sqrt(static_cast<double>(in_features))};
}

std::vector<double> parameter_values(uint64_t seed, const std::string& name, const Shape& shape, const Init& init,
                                     DType dtype, const std::optional<Cut>& cut) {
  // Runs of `inner` elements, `outer` times, `stride` apart.
  uint64_t outer = 1;
  uint64_t stride = layout::element_count(shape);
  uint64_t first = 0;
  uint64_t inner = stride;
  if (cut) {
    if (cut->dim >= shape.size() || cut->range.begin + cut->range.count > shape[cut->dim]) {
      throw std::out_of_range(fmt::format("{}: elements {}..{} of dimension {} of {}", name, cut->range.begin,
                                          cut->range.begin + cut->range.count, cut->dim, layout::to_string(shape)));
    }
    for (size_t d = 0; d < cut->dim; ++d) outer *= shape[d];
    stride = 1;
    for (size_t d = cut->dim; d < shape.size(); ++d) stride *= shape[d];
    const uint64_t item = shape[cut->dim] == 0 ? 0 : stride / shape[cut->dim];
    first = cut->range.begin * item;
    inner = cut->range.count * item;
  }
  const uint64_t parameter_seed = seed_of(seed, name);
  std::vector<double> out;
  out.reserve(outer * inner);
  std::vector<float> run(inner);
  uint64_t rounded = 0;
  for (uint64_t o = 0; o < outer; ++o) {
    runtime::fill_random(DType::Float32, parameter_seed, o * stride + first, inner, run.data());
    for (const float u : run) {
      store_element(dtype, &rounded, 0, init.center + init.spread * (2.0 * static_cast<double>(u) - 1));
      out.push_back(load_element(dtype, &rounded, 0));
    }
  }
  return out;
}

Builder Builder::at(const std::string& name) const {
  Builder out = *this;
  out.m_prefix += name + '.';
  return out;
}

Tensor Builder::parameter(const std::string& name, const Shape& shape, const Init& init,
                          const std::optional<Cut>& cut) const {
  Shape own = shape;
  if (cut && cut->dim < own.size()) own[cut->dim] = cut->range.count;
  if (!m_context->config().simulation.functional) return m_context->zeros(own, m_dtype, m_policy);
  const std::vector<double> values = parameter_values(m_seed, m_prefix + name, shape, init, m_dtype, cut);
  std::vector<uint8_t> data(values.size() * item_bytes(m_dtype));
  for (size_t i = 0; i < values.size(); ++i) store_element(m_dtype, data.data(), i, values[i]);
  return m_context->from_host(own, m_dtype, data.data(), data.size(), m_policy);
}

}  // namespace ahbm::nn
