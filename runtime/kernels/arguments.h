// Internal to the kernels: arguments read one after another, and the sizes of tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/tl/builtin_kernels.h"
#include "models/tl/tl.h"

namespace ahbm::kernels {

class ArgReader {
 public:
  explicit ArgReader(const tl::Args& args) : m_args(args) {}
  uint64_t u64() { return m_args.u64(m_next++); }
  int64_t i64() { return m_args.i64(m_next++); }
  double f64() { return m_args.f64(m_next++); }
  DType dtype() { return tl::dtype_argument(m_args, m_next++); }
  template <typename E>
  E as() {
    return static_cast<E>(u64());
  }

 private:
  const tl::Args& m_args;
  size_t m_next = 0;
};

/// Elements of a tile: 64 KiB of the widest element that it has on its way; a kernel keeps a handful of these.
constexpr uint64_t kTileBytes = 64 << 10;
inline uint64_t tile_elements(DType a, DType b = DType::Bool, DType c = DType::Bool) {
  return kTileBytes / std::max({item_bytes(a), item_bytes(b), item_bytes(c)});
}

inline tl::Tile as_dtype(tl::Tl& tl, const tl::Tile& x, DType t) {
  return x.dtype() == t ? x : tl.cast(x, t);
}

}  // namespace ahbm::kernels
