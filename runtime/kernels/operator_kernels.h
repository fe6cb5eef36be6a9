// The kernels behind the operators of runtime/ops. Plain tl kernels: they run on the twin as on the machine. Each PE
// gets its own argument block and writes its own shard only; what it reads may lie in any cube of its SIP.
//
// Words of the argument block, in order. f64: a double's bits (`tl::pack_f64`), dtype: the number of an ahbm::DType,
// strides and counts in elements. Runs of rows: `n`, then n times (rows, address) of dense row-major rows that follow
// one another.
//
//   copy_boxes   src dtype, dst dtype, n, then n times: src, dst, dims, then per dimension, outermost first: extent,
//                src stride (0 repeats), dst stride. Converts on the way. Dst strides descend; no box overlaps another
//                in dst, or what another one reads
//   elementwise  Elementwise, compute dtype, dst, dst dtype, rows, columns, value f64, value 2 f64, n, then n operands:
//                address, dtype, row stride, column stride (each (columns, 1), (0, 1), (1, 0) or (0, 0))
//                dst may be an operand with strides (columns, 1) and dst's dtype
//   reduce       Map, Fold, p f64, Finish, count f64, src, src dtype, dst, dst dtype, a, r, b
//                dst[i, j] = finish(fold over k of map(src[i, k, j])) for src [a, r, b] and dst [a, b]
//   combine      Fold, Finish, count f64, p f64, src dtype, dst, dst dtype, n elements, parts, then an address per part
//                dst[i] = finish(fold over the parts of part[i]), in the order of the parts
//   rows         Rows, p f64, src, src dtype, dst, dst dtype, rows, columns, columns of dst, n operands, then n times:
//                address, dtype; what the operands are depends on the function
//   triangle     upper, diagonal, fill f64, dtype, src, dst, rows, columns, rows of a matrix, first row
//   matmul       dtype, dst dtype, transposed b, k, n, factor f64, bias (n elements; 0: none), bias dtype, segments,
//                then per segment: rows, columns, first column, a, batch of b, dst, row stride of dst; then runs of b's
//                rows ([batch * k] rows of n; transposed: [batch * n] rows of k)
//                dst = a x b * factor + bias, in fp32 (int32: integers), k in ascending order
//   lookup       dtype, index dtype, width, indices, n, dst, rows of the table, then runs of the table's rows
//                dst[i] = table[indices[i]]
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/core/dtype.h"
#include "models/tl/kernel_registry.h"

namespace ahbm::kernels {

/// Words of copy descriptors in one PE's argument block: what fits in the TCM beside the rings with room for tiles. Who
/// has more launches once more.
constexpr size_t kMaxDescriptorWords = 8192;

/// What `elementwise` computes from its operands a, b, c and its value v.
enum class Elementwise : uint16_t {
  Copy,
  Unary = 0x100,         ///< + tl::Unary
  Binary = 0x200,        ///< + tl::Binary: a op b
  BinaryValue = 0x300,   ///< + tl::Binary: a op v
  ValueBinary = 0x400,   ///< + tl::Binary: v op a
  Compare = 0x500,       ///< + tl::Compare: Bool of a op b
  CompareValue = 0x600,  ///< + tl::Compare: Bool of a op v
  Where = 0x700,         ///< a ? b : c
  MaskedFill,            ///< b ? v : a
  LogicalAnd,
  LogicalOr,
  InRange,    ///< v <= a < v2 ? a - v : 0, in the integer dtype of a
  NotInRange  ///< Bool: not (v <= a < v2)
};
template <typename F>
constexpr Elementwise operator+(Elementwise family, F f) {
  return static_cast<Elementwise>(static_cast<uint16_t>(family) + static_cast<uint16_t>(f));
}

/// What is done to an element before it is folded.
enum class Map : uint8_t { Identity, NonZero, Power };  ///< NonZero: 0 or 1; Power: |x|^p (p 0: NonZero, inf: |x|)
/// What becomes of a fold.
enum class Finish : uint8_t { None, Mean, Root, NonZero, RootMean };  ///< x / count; x^(1/p); x != 0; sqrt(x / count)

/// What elements of `t` are folded in.
constexpr DType accumulator(DType t) {
  return t == DType::Float32 || t == DType::Float16 || t == DType::BFloat16 ? DType::Float32 : DType::Int64;
}

enum class Rows : uint8_t {
  Softmax,
  LogSoftmax,
  LogSumExp,  ///< one column
  Cumsum,
  ArgMax,  ///< one column, int64
  ArgMin,
  LayerNorm,     ///< p: epsilon; operands: weight and bias, one row each, maybe none
  RmsNorm,       ///< the same
  NegLogLikely,  ///< one column: logsumexp(row) - row[target]; operand: a target per row
  Gather,        ///< operand: indices [rows, columns of dst]
};

/// Tiles of a product of rows x k and k x cols on one PE: deep enough that rows of A and transposed B are read in one
/// piece, wide enough that those of B are.
struct MatmulTiles {
  uint64_t rows = 1, cols = 1, depth = 1;
  bool whole_a = false;  ///< `rows` of A are read at once
};
MatmulTiles matmul_tiles(uint64_t rows, uint64_t cols, uint64_t k, bool transposed);

/// \throws std::invalid_argument when one of the names stands for something else already
void register_operator_kernels(tl::KernelRegistry& registry);

void copy_boxes_kernel(tl::Tl& tl, const tl::Args& args);
void elementwise_kernel(tl::Tl& tl, const tl::Args& args);
void reduce_kernel(tl::Tl& tl, const tl::Args& args);
void combine_kernel(tl::Tl& tl, const tl::Args& args);
void rows_kernel(tl::Tl& tl, const tl::Args& args);
void triangle_kernel(tl::Tl& tl, const tl::Args& args);
void matmul_kernel(tl::Tl& tl, const tl::Args& args);
void lookup_kernel(tl::Tl& tl, const tl::Args& args);

}  // namespace ahbm::kernels
