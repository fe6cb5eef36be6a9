// What an all-reduce must give, bit for bit: replays the documented order of an algorithm over the contributions.
// Knows nothing of kernels, moves or queues.
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/dtype.h"

namespace ahbm::ccl {

/// \param contributions one pointer to `count` elements per index that the trees name
/// \param out `count` elements
/// \param divisor of the result: the number of ranks for an average, else 1
/// \throws std::invalid_argument when the trees do not cover [0, count) exactly once, a tree is no well-formed postfix,
///   or it does not name every contribution exactly once
void evaluate_reference(const std::vector<ReduceTree>& order, const std::vector<const void*>& contributions,
                        uint64_t count, DType dtype, ReduceOp op, uint64_t divisor, void* out);

/// What a rank's output must hold after a collective, bit for bit; empty where the rank has no output.
/// \param inputs what every rank gave (all_reduce and broadcast: its buffer; empty where a rank gives nothing), Sharded
/// \param order of the algorithm's reduction; unused where nothing is reduced
/// \throws std::invalid_argument when an input has another length than the shape says
std::vector<uint8_t> expected_output(Collective collective, uint32_t rank, const CollectiveShape& shape,
                                     const std::vector<std::vector<uint8_t>>& inputs,
                                     const std::vector<ReduceTree>& order);

}  // namespace ahbm::ccl
