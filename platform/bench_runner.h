// What `ahbm-vp bench` runs: layers and models on a simulated machine, on one SIP, as Megatron layers and as
// distributed tensors, each checked against the host's numbers.
#pragma once

#include "platform/cli/bench.h"
#include "platform/machine.h"
#include "platform/step_split.h"

namespace ahbm::platform {

/// Elaborates the job's machine, runs and reports. For tests with a machine of their own there is `run_bench_on`.
void run_bench(const BenchJob& job, BenchReport& report);
/// Called by the driver, before init_process_group. \param split  attached to the machine
void run_bench_on(Machine& machine, StepSplit& split, const BenchJob& job, BenchReport& report);

/// Every layout of the parameters and activations of an MLP, ranked by simulated time. \pre process group initialised
void run_placement_sweep(Machine& machine, StepSplit& split, const BenchJob& job, BenchReport& report);

/// Largest |got - wanted| over the largest |wanted|; infinite when something is no number.
double relative_error(const std::vector<double>& got, const std::vector<double>& wanted);
/// What `relative_error` may be against double precision after that model's rounding in that dtype.
double tolerance(DType dtype);

}  // namespace ahbm::platform
