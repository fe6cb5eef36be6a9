// Operators against a plain reference in double: arrays on the host, tensors from them, and how they are compared.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "runtime/ops/functions.h"
#include "tests/runtime/machine.h"

namespace ahbm::runtime::test {

/// `tiny` with one SIP of one cube.
inline SystemConfig one_cube() {
  SystemConfig c = tiny(1);
  c.cube_w = c.cube_h = 1;
  for (SipPort& port : c.sip_ports) port.cube = CubeId{0};
  return c;
}

struct Array {
  Shape shape;
  std::vector<double> v;

  Array() = default;
  explicit Array(Shape s, double fill = 0) : shape(std::move(s)), v(layout::element_count(shape), fill) {}
  size_t size() const { return v.size(); }
  /// Row-major index of a position.
  size_t at(const Shape& position) const {
    size_t i = 0;
    for (size_t d = 0; d < shape.size(); ++d) i = i * shape[d] + position[d];
    return i;
  }
  double operator()(const Shape& position) const { return v[at(position)]; }
};

/// Calls f(position) for every position of a shape, row-major.
inline void for_each(const Shape& shape, const std::function<void(const Shape&)>& f) {
  if (layout::element_count(shape) == 0) return;
  Shape at(shape.size(), 0);
  for (;;) {
    f(at);
    size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}
inline Array make_array(const Shape& shape, const std::function<double(const Shape&)>& f) {
  Array out(shape);
  for_each(shape, [&](const Shape& p) { out.v[out.at(p)] = f(p); });
  return out;
}

inline double rounded(DType t, double x) {
  uint8_t raw[8];
  store_element(t, raw, 0, x);
  return load_element(t, raw, 0);
}

/// Numbers that the dtype holds: in (low, high), whole ones for integers.
inline Array random(const Shape& shape, uint32_t seed, DType t = DType::Float32, double low = -2, double high = 2) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> pick(low, high);
  Array out(shape);
  for (double& x : out.v) x = rounded(t, is_floating(t) ? pick(engine) : std::floor(pick(engine)));
  return out;
}

inline Tensor to_device(Context& ctx, const Array& a, DType t = DType::Float32, const DPPolicy& p = {}) {
  std::vector<uint8_t> raw(a.size() * item_bytes(t));
  for (size_t i = 0; i < a.size(); ++i) store_element(t, raw.data(), i, a.v[i]);
  return ctx.from_host(a.shape, t, raw.data(), raw.size(), p);
}
inline Array from_device(const Tensor& t) {
  Array out(t.shape());
  const std::vector<uint8_t> raw = t.to_host_bytes();
  for (size_t i = 0; i < out.size(); ++i) out.v[i] = load_element(t.dtype(), raw.data(), i);
  return out;
}

inline void expect_near(const Tensor& got, const Array& expected, const std::string& what, double rtol = 1e-5,
                        double atol = 1e-6) {
  ASSERT_EQ(got.shape(), expected.shape) << what;
  const Array a = from_device(got);
  for (size_t i = 0; i < a.size(); ++i) {
    const double e = expected.v[i];
    if (std::isnan(e) ? std::isnan(a.v[i]) : a.v[i] == e) continue;
    ASSERT_LE(std::fabs(a.v[i] - e), atol + rtol * std::fabs(e))
        << what << ": element " << i << " of " << layout::to_string(got.shape()) << " is " << a.v[i] << ", expected "
        << e;
  }
}
inline void expect_same(const Tensor& got, const Array& expected, const std::string& what) {
  expect_near(got, expected, what, 0, 0);
}

/// Every kind of policy, and some that leave cubes or PEs without anything.
inline std::vector<DPPolicy> policies() {
  std::vector<DPPolicy> out;
  for (const CubePolicy cube : {CubePolicy::RowWise, CubePolicy::ColumnWise, CubePolicy::Replicate}) {
    for (const PePolicy pe : {PePolicy::RowWise, PePolicy::ColumnWise, PePolicy::Replicate}) {
      out.push_back(policy(cube, pe));
    }
  }
  out.push_back(policy(CubePolicy::RowWise, PePolicy::RowWise, 1, 1));
  out.push_back(policy(CubePolicy::ColumnWise, PePolicy::RowWise, 1, 0));
  return out;
}

}  // namespace ahbm::runtime::test
