// Reductions of the own shard along one of three dimensions, and of the results of several PEs.
#include <cmath>
#include <vector>

#include "runtime/kernels/arguments.h"
#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {
namespace {

using tl::Binary;
using tl::Compare;
using tl::Fold;
using tl::Tile;

Binary binary_of(Fold f) {
  switch (f) {
    case Fold::Sum:
      return Binary::Add;
    case Fold::Prod:
      return Binary::Mul;
    case Fold::Max:
      return Binary::Max;
    case Fold::Min:
      return Binary::Min;
  }
  return Binary::Add;
}

/// x as the numbers that are folded, in fp32 or int64.
Tile mapped(tl::Tl& tl, Map map, double p, const Tile& x) {
  const DType acc = accumulator(x.dtype());
  if (map == Map::NonZero || (map == Map::Power && p == 0)) {
    return tl.cast(tl.compare(Compare::Ne, x, 0.0), acc);
  }
  const Tile y = as_dtype(tl, x, acc);
  if (map == Map::Identity) return y;
  if (p == 2) return tl.unary(tl::Unary::Square, y);
  const Tile size = tl.unary(tl::Unary::Abs, y);
  return p == 1 || std::isinf(p) ? size : tl.binary(Binary::Pow, size, p);
}

Tile finished(tl::Tl& tl, Finish finish, double count, double p, const Tile& x) {
  switch (finish) {
    case Finish::None:
      return x;
    case Finish::Mean:
      return tl.binary(Binary::Div, x, count);
    case Finish::Root:
      return p == 2 ? tl.unary(tl::Unary::Sqrt, x) : tl.binary(Binary::Pow, x, 1 / p);
    case Finish::NonZero:
      return tl.compare(Compare::Ne, x, 0.0);
    case Finish::RootMean:
      return tl.unary(tl::Unary::Sqrt, tl.binary(Binary::Div, x, count));
  }
  return x;
}

struct Reduction {
  Map map;
  Fold fold;
  double p;
  Finish finish;
  double count;
  Addr src;
  DType src_dtype;
  Addr dst;
  DType dst_dtype;

  void put(tl::Tl& tl, uint64_t at, const Tile& x) const {
    tl.store(dst + at * item_bytes(dst_dtype), as_dtype(tl, finished(tl, finish, count, p, x), dst_dtype));
  }
  Tile get(tl::Tl& tl, uint64_t at, uint64_t rows, uint64_t cols, uint64_t stride) const {
    return mapped(tl, map, p, tl.load(src + at * item_bytes(src_dtype), rows, cols, stride, src_dtype));
  }
  Tile merged(tl::Tl& tl, const Tile& acc, const Tile& x) const { return acc ? tl.binary(binary_of(fold), acc, x) : x; }
  uint64_t tile() const { return tile_elements(src_dtype, accumulator(src_dtype)); }

  /// Whole rows: as many at once as a tile takes, or one in pieces.
  void rows(tl::Tl& tl, uint64_t a, uint64_t r) const {
    const uint64_t width = std::min(r, tile()), height = std::max<uint64_t>(1, tile() / std::max<uint64_t>(1, width));
    for (uint64_t i = 0; i < a; i += height) {
      const uint64_t n = std::min(height, a - i);
      Tile acc;
      for (uint64_t k = 0; k < r; k += width) {
        acc = merged(tl, acc, tl.fold(fold, get(tl, i * r + k, n, std::min(width, r - k), r)));
      }
      if (!acc) acc = tl.fold(fold, tl.zeros(n, 0, accumulator(src_dtype)));
      put(tl, i, tl.strided(acc, 0, 1, n, 0, 1));
    }
  }

  /// Columns of each of a planes.
  void columns(tl::Tl& tl, uint64_t a, uint64_t r, uint64_t b) const {
    const uint64_t width = std::min<uint64_t>(b, 2048), height = std::max<uint64_t>(1, tile() / width);
    for (uint64_t i = 0; i < a; ++i) {
      for (uint64_t c = 0; c < b; c += width) {
        const uint64_t n = std::min(width, b - c);
        Tile acc;
        for (uint64_t k = 0; k < r; k += height) {
          acc = merged(tl, acc, tl.fold_down(fold, get(tl, (i * r + k) * b + c, std::min(height, r - k), n, b)));
        }
        if (!acc) acc = tl.fold_down(fold, tl.zeros(0, n, accumulator(src_dtype)));
        put(tl, i * b + c, acc);
      }
    }
  }
};

}  // namespace

void reduce_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  Reduction x{};
  x.map = in.as<Map>();
  x.fold = in.as<Fold>();
  x.p = in.f64();
  x.finish = in.as<Finish>();
  x.count = in.f64();
  x.src = in.u64();
  x.src_dtype = in.dtype();
  x.dst = in.u64();
  x.dst_dtype = in.dtype();
  const uint64_t a = in.u64(), r = in.u64(), b = in.u64();
  if (b == 1) {
    x.rows(tl, a, r);
  } else if (b != 0) {
    x.columns(tl, a, r, b);
  }
}

void combine_kernel(tl::Tl& tl, const tl::Args& args) {
  ArgReader in(args);
  const auto fold = in.as<Fold>();
  const auto finish = in.as<Finish>();
  const double count = in.f64(), p = in.f64();
  const DType src_dtype = in.dtype();
  const Addr dst = in.u64();
  const DType dst_dtype = in.dtype();
  const uint64_t n = in.u64();
  std::vector<Addr> parts(in.u64());
  for (Addr& part : parts) part = in.u64();
  const uint64_t tile = tile_elements(src_dtype, dst_dtype);
  for (uint64_t at = 0; at < n; at += tile) {
    const uint64_t m = std::min(tile, n - at);
    const auto load = [&](size_t i) { return tl.load(parts.at(i) + at * item_bytes(src_dtype), m, src_dtype); };
    Tile next = load(0), acc;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tile x = next;
      if (i + 1 < parts.size()) next = load(i + 1);
      acc = acc ? tl.binary(binary_of(fold), acc, x) : x;
    }
    tl.store(dst + at * item_bytes(dst_dtype), as_dtype(tl, finished(tl, finish, count, p, acc), dst_dtype));
  }
}

}  // namespace ahbm::kernels
