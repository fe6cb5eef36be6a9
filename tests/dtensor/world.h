// Ranks of a small machine that run a function each, and the way between plain arrays and tensors.
#pragma once

#include <functional>
#include <vector>

#include "runtime/dtensor/debug.h"
#include "runtime/dtensor/functions.h"
#include "tests/runtime/machine.h"
#include "tests/unit/layout/simulated_ranks.h"

namespace ahbm::dtensor::test {

using ahbm::test::SimTest;
using runtime::test::message_of;

/// SIPs in a row, each with `cubes` cubes in a row of two PEs.
inline SystemConfig row(uint32_t sips, uint32_t cubes = 1) {
  SystemConfig c = runtime::test::tiny(sips);
  c.cube_w = cubes;
  c.cube_h = 1;
  const CubeId last{cubes - 1};
  c.sip_ports = {{Side::E, last}, {Side::W, CubeId{0}}, {Side::N, CubeId{0}}, {Side::S, last}};
  return c;
}

struct World : runtime::test::Machine {
  explicit World(uint32_t sips, uint32_t cubes = 1) : Machine(row(sips, cubes)), ranks(sips) {}

  /// Runs `fn` as every rank, in a process group of its own. From the driver.
  void on_ranks(const std::function<void(uint32_t)>& fn) {
    ctx.distributed.init_process_group();
    ctx.spawn(fn, ranks);
    ctx.distributed.destroy_process_group();
  }

  const uint32_t ranks;
};

inline Tensor to_tensor(Context& context, const Array& a, DType dtype = DType::Float32, const DPPolicy& policy = {}) {
  std::vector<uint8_t> data(a.data.size() * item_bytes(dtype));
  for (size_t i = 0; i < a.data.size(); ++i) store_element(dtype, data.data(), i, a.data[i]);
  return context.from_host(to_shape(a.shape), dtype, data.data(), data.size(), policy);
}

inline Array to_array(const Tensor& t) {
  Array out{to_dims(t.shape()), std::vector<double>(t.elements())};
  const std::vector<uint8_t> bytes = t.to_host_bytes();
  for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = load_element(t.dtype(), bytes.data(), i);
  return out;
}

/// The same shape, and elements equal up to rounding.
inline void expect_same(const Array& got, const Array& expected, const std::string& where) {
  ASSERT_EQ(got.shape, expected.shape) << where;
  for (size_t i = 0; i < got.data.size(); ++i) {
    const double tolerance = 1e-5 * std::abs(expected.data[i]) + 1e-6;
    ASSERT_NEAR(got.data[i], expected.data[i], tolerance) << where << ", element " << i;
  }
}

inline Array arange(const Dims& shape) {
  Array out = Array::zeros(shape);
  for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = static_cast<double>(i);
  return out;
}

/// A distributed tensor whose local part on this rank is the one of `parts`.
inline DTensor put(Context& context, const DeviceMesh& mesh, const Distributed& parts, const DPPolicy& policy = {}) {
  FromLocalOptions options;
  options.shape = parts.spec.shape();
  options.stride = parts.spec.stride();
  const size_t position = mesh.layout().index_of(mesh.get_rank()).value_or(0);
  return from_local(to_tensor(context, parts.local[position], parts.spec.dtype(), policy), mesh,
                    parts.spec.placements(), options);
}

}  // namespace ahbm::dtensor::test
