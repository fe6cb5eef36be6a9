#include "ccl/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace ahbm::ccl {
namespace {

constexpr uint64_t kBlock = 4096;  ///< elements at a time: a stack of them stays in the cache

/// Depth of the stack that a postfix needs. \throws when it is not well-formed
size_t check_tree(const ReduceTree& tree, size_t contributions) {
  std::vector<bool> seen(contributions);
  size_t depth = 0, deepest = 0, leaves = 0;
  for (int32_t token : tree.postfix) {
    if (token == ReduceTree::kCombine) {
      if (depth < 2) throw std::invalid_argument("order of reduction: an operator without two operands");
      --depth;
      continue;
    }
    const auto leaf = static_cast<size_t>(token);
    if (token < 0 || leaf >= contributions) {
      throw std::invalid_argument(
          fmt::format("order of reduction: contribution {} of {} does not exist", token, contributions));
    }
    if (seen[leaf]) throw std::invalid_argument(fmt::format("order of reduction: contribution {} twice", token));
    seen[leaf] = true;
    ++leaves;
    deepest = std::max(deepest, ++depth);
  }
  if (depth != 1 || leaves != contributions) {
    throw std::invalid_argument(fmt::format("order of reduction: {} of {} contributions are used and {} values left",
                                            leaves, contributions, depth));
  }
  return deepest;
}

}  // namespace

void evaluate_reference(const std::vector<ReduceTree>& order, const std::vector<const void*>& contributions,
                        uint64_t count, DType dtype, ReduceOp op, uint64_t divisor, void* out) {
  std::vector<Range> ranges;
  for (const ReduceTree& tree : order) ranges.push_back(tree.range);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uint64_t covered = 0;
  for (const Range& r : ranges) {
    if (r.empty()) continue;
    if (r.begin != covered) {
      throw std::invalid_argument(fmt::format("order of reduction: element {} is covered {}",
                                              std::min(r.begin, covered), r.begin < covered ? "twice" : "by no tree"));
    }
    covered = r.end();
  }
  if (covered != count) {
    throw std::invalid_argument(fmt::format("order of reduction: covers {} of {} elements", covered, count));
  }

  const uint64_t item = item_bytes(dtype);
  std::vector<std::vector<uint8_t>> stack;
  for (const ReduceTree& tree : order) {
    if (tree.range.empty()) continue;
    const size_t deepest = check_tree(tree, contributions.size());
    if (stack.size() < deepest) stack.resize(deepest, std::vector<uint8_t>(kBlock * item));
    for (uint64_t at = tree.range.begin; at < tree.range.end(); at += kBlock) {
      const uint64_t n = std::min(kBlock, tree.range.end() - at);
      size_t top = 0;
      for (int32_t token : tree.postfix) {
        if (token == ReduceTree::kCombine) {
          --top;
          reduce(op, dtype, stack[top - 1].data(), stack[top - 1].data(), stack[top].data(), n);
        } else {
          const auto* from = static_cast<const uint8_t*>(contributions[static_cast<size_t>(token)]);
          std::memcpy(stack[top++].data(), from + at * item, n * item);
        }
      }
      if (divisor > 1) divide(dtype, stack[0].data(), n, divisor);
      std::memcpy(static_cast<uint8_t*>(out) + at * item, stack[0].data(), n * item);
    }
  }
}

}  // namespace ahbm::ccl
