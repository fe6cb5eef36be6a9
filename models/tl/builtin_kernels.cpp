#include "models/tl/builtin_kernels.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ahbm::tl {
namespace {

/// Elements of a tile: 64 KiB, of which a double-buffered loop over three operands keeps six.
uint64_t tile_elements(DType t) {
  return (64 << 10) / item_bytes(t);
}

/// Calls body(offset in elements, elements) for tiles that cover [0, n).
template <typename Body>
void for_tiles(uint64_t n, DType t, Body&& body) {
  for (uint64_t at = 0; at < n; at += tile_elements(t)) body(at, std::min(tile_elements(t), n - at));
}

void require_arithmetic(const char* kernel, DType t) {
  if (has_arithmetic(t)) return;
  throw std::invalid_argument(fmt::format("{}: no arithmetic on {}", kernel, ahbm::to_string(t)));
}

}  // namespace

DType dtype_argument(const Args& args, size_t index) {
  const uint64_t v = args.u64(index);
  if (v > static_cast<uint64_t>(DType::Bool)) {
    throw std::invalid_argument(
        fmt::format("argument {}: {} is not the number of a dtype (0 to {})", index, v, static_cast<int>(DType::Bool)));
  }
  return static_cast<DType>(v);
}

void fill_kernel(Tl& tl, const Args& args) {
  const Addr dst = args.address(0);
  const DType t = dtype_argument(args, 3);
  Tile tile;
  for_tiles(args.u64(1), t, [&](uint64_t at, uint64_t n) {
    if (tile.size() != n) tile = tl.full(1, n, t, args.f64(2));
    tl.store(dst + at * item_bytes(t), tile);
  });
}

void copy_kernel(Tl& tl, const Args& args) {
  tl.copy(args.address(0), args.address(1), args.u64(2), dtype_argument(args, 3));
}

void add_kernel(Tl& tl, const Args& args) {
  const DType t = dtype_argument(args, 4);
  require_arithmetic("add", t);
  for_tiles(args.u64(3), t, [&](uint64_t at, uint64_t n) {
    const Addr offset = at * item_bytes(t);
    const Tile a = tl.load(args.address(0) + offset, n, t);
    const Tile b = tl.load(args.address(1) + offset, n, t);
    tl.store(args.address(2) + offset, tl.add(a, b));
  });
}

void scale_kernel(Tl& tl, const Args& args) {
  const DType t = dtype_argument(args, 4);
  require_arithmetic("scale", t);
  for_tiles(args.u64(2), t, [&](uint64_t at, uint64_t n) {
    const Addr offset = at * item_bytes(t);
    tl.store(args.address(1) + offset, tl.binary(Binary::Mul, tl.load(args.address(0) + offset, n, t), args.f64(3)));
  });
}

void copy_blocks_kernel(Tl& tl, const Args& args) {
  constexpr size_t kFirst = 3, kWords = 6;
  const DType from = dtype_argument(args, 0), to = dtype_argument(args, 1);
  if (from != to) {
    require_arithmetic("copy_blocks", from);
    require_arithmetic("copy_blocks", to);
  }
  const uint64_t n = args.u64(2);
  for (uint64_t i = 0; i < n; ++i) {
    const size_t at = kFirst + i * kWords;
    const Addr src = args.address(at), dst = args.address(at + 1);
    const uint64_t cols = args.u64(at + 2), rows = args.u64(at + 3);
    const uint64_t src_stride = args.u64(at + 4), dst_stride = args.u64(at + 5);
    if (cols == 0 || rows == 0) continue;
    if (from == to && (rows == 1 || (src_stride == cols && dst_stride == cols))) {
      Move m;  // long runs stream without a stop in the TCM; the kernel's end waits for them
      m.local = src;
      m.store = dst;
      m.count = cols * rows;
      m.dtype = from;
      tl.submit(m);
      continue;
    }
    const uint64_t tile = tile_elements(item_bytes(from) > item_bytes(to) ? from : to);
    const uint64_t step_cols = std::min(cols, tile), step_rows = std::max<uint64_t>(1, tile / step_cols);
    for (uint64_t r = 0; r < rows; r += step_rows) {
      for (uint64_t c = 0; c < cols; c += step_cols) {
        const uint64_t h = std::min(step_rows, rows - r), w = std::min(step_cols, cols - c);
        Tile x = tl.load(src + (r * src_stride + c) * item_bytes(from), h, w, src_stride, from);
        if (from != to) x = tl.cast(x, to);
        tl.store(dst + (r * dst_stride + c) * item_bytes(to), x, dst_stride);
      }
    }
  }
}

void register_builtin_kernels(KernelRegistry& registry) {
  registry.add("fill", fill_kernel);
  registry.add("copy", copy_kernel);
  registry.add("add", add_kernel);
  registry.add("scale", scale_kernel);
  registry.add("copy_blocks", copy_blocks_kernel);
}

}  // namespace ahbm::tl
