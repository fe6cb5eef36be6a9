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

std::vector<uint8_t> expected_output(Collective collective, uint32_t rank, const CollectiveShape& shape,
                                     const std::vector<std::vector<uint8_t>>& inputs,
                                     const std::vector<ReduceTree>& order) {
  using Bytes = std::vector<uint8_t>;
  const auto n = static_cast<uint32_t>(inputs.size());
  const uint64_t item = item_bytes(shape.dtype);
  const auto input = [&](uint32_t r, uint64_t elements) -> const Bytes& {
    if (inputs[r].size() != elements * item) {
      throw std::invalid_argument(fmt::format("{}: rank {} gave {} bytes where {} elements of {} bytes are expected",
                                              to_string(collective), r, inputs[r].size(), elements, item));
    }
    return inputs[r];
  };
  const auto part = [&](const Bytes& from, uint64_t begin, uint64_t elements) {
    const auto first = from.begin() + static_cast<ptrdiff_t>(begin * item);
    return Bytes(first, first + static_cast<ptrdiff_t>(elements * item));
  };
  const auto reduced = [&](uint64_t elements) {
    std::vector<const void*> contributions;
    for (uint32_t r = 0; r < n; ++r) contributions.push_back(input(r, elements).data());
    Bytes out(elements * item);
    evaluate_reference(order, contributions, elements, shape.dtype, shape.op, shape.op == ReduceOp::Avg ? n : 1,
                       out.data());
    return out;
  };
  const auto joined = [&](auto&& block_of) {
    Bytes out;
    for (uint32_t r = 0; r < n; ++r) {
      const Bytes block = block_of(r);
      out.insert(out.end(), block.begin(), block.end());
    }
    return out;
  };

  switch (collective) {
    case Collective::AllReduce:
      return reduced(shape.count);
    case Collective::Reduce:
      return rank == shape.root ? reduced(shape.count) : Bytes();
    case Collective::ReduceScatter:
      return part(reduced(shape.total(n)), shape.block_begin(rank), shape.block(rank));
    case Collective::Broadcast:
      return input(shape.root, shape.count);
    case Collective::SendRecv:
      return rank == shape.peer ? input(shape.root, shape.count) : Bytes();
    case Collective::Scatter:
      return part(input(shape.root, shape.total(n)), shape.block_begin(rank), shape.block(rank));
    case Collective::Gather:
      if (rank != shape.root) return {};
      [[fallthrough]];
    case Collective::AllGather:
      return joined([&](uint32_t r) { return input(r, shape.block(r)); });
    case Collective::AllToAll:
      return joined([&](uint32_t r) {
        uint64_t begin = 0, all = 0;
        for (uint32_t to = 0; to < n; ++to) {
          if (to < rank) begin += shape.sent(n, r, to);
          all += shape.sent(n, r, to);
        }
        return part(input(r, all), begin, shape.sent(n, r, rank));
      });
    case Collective::Barrier:
      return {};
  }
  throw std::invalid_argument(fmt::format("no collective has the number {}", static_cast<int>(collective)));
}

}  // namespace ahbm::ccl
