// A machine with its runtime, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "ccl/algorithm.h"
#include "models/core/config/system_config.h"
#include "models/system/system.h"
#include "models/tl/kernel_registry.h"
#include "runtime/context.h"
#include "runtime/kernels/operator_kernels.h"
#include "tests/support/sim_test.h"

namespace ahbm::runtime::test {

/// `tiny` with another number of SIPs: 2 x 2 cubes of 2 PEs, ring_1d.
inline SystemConfig tiny(uint32_t sips) {
  SystemConfig c;
  c.name = "tiny";
  c.sips = sips;
  c.sip_w = sips;
  c.sip_h = 1;
  c.cube_w = c.cube_h = 2;
  c.pes = 2;
  c.hbm.bytes = 256 << 20;
  c.sip_ports = {{Side::E, CubeId{3}}, {Side::W, CubeId{2}}, {Side::N, CubeId{1}}, {Side::S, CubeId{3}}};
  c.ccl_file = std::string(AHBM_SOURCE_DIR) + "/configs/ccl.yaml";
  return c;
}

struct Machine {
  explicit Machine(const SystemConfig& config, void (*more_kernels)(tl::KernelRegistry&) = nullptr,
                   models::SystemParts parts = {}, const char* name = "system")
      : kernels(make_kernels(algorithms, more_kernels)),
        system(name, config, kernels, std::move(parts)),
        device(system),
        ctx(device) {}

  static tl::KernelRegistry make_kernels(ccl::Registry& algorithms, void (*more)(tl::KernelRegistry&)) {
    tl::KernelRegistry out;
    tl::register_builtin_kernels(out);
    kernels::register_operator_kernels(out);
    ccl::register_builtin_algorithms(algorithms);
    for (const auto& [name, module] : algorithms.modules()) out.add(module.kernel_name, module.kernel);
    if (more != nullptr) more(out);
    return out;
  }

  ccl::Registry algorithms;
  tl::KernelRegistry kernels;
  models::System system;
  Device device;
  Context ctx;
};

/// Tests of what needs the default process group.
class GroupTest : public ahbm::test::SimTest {
 protected:
  using Distributed = distributed::DistributedContext;

  /// Runs `driver` once the group is there.
  void in_group(Machine& m, const std::function<void(Distributed&)>& driver) {
    run([&] {
      m.ctx.distributed.init_process_group();
      driver(m.ctx.distributed);
    });
  }
  /// Runs `body` as every rank of it.
  void on_ranks(Machine& m, const std::function<void(Distributed&, uint32_t rank)>& body) {
    in_group(m, [&](Distributed& d) {
      m.ctx.spawn([&](uint32_t rank) { body(d, rank); }, static_cast<uint32_t>(d.get_world_size()));
    });
  }
};

inline DPPolicy policy(CubePolicy cube, PePolicy pe = PePolicy::RowWise, uint32_t num_cubes = 0, uint32_t num_pes = 0) {
  DPPolicy p;
  p.cube = cube;
  p.pe = pe;
  p.num_cubes = num_cubes;
  p.num_pes = num_pes;
  return p;
}
inline DPPolicy everywhere(DPPolicy p = {}) {
  p.sips = SipScope::All;
  return p;
}

/// The text of what `body` throws; the type must be E or derived from it.
template <typename E, typename Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const sc_core::sc_unwind_exception&) {
    throw;
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace ahbm::runtime::test
