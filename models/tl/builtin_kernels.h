// The kernels that every platform has. Each PE works on its own range; `n` may be 0 and may exceed what the TCM holds.
// Words of the argument block, in order (f64: a double's bits, `pack_f64`; dtype: the number of an ahbm::DType):
//
//   fill   dst, n, value f64, dtype          dst[i] = value
//   copy   src, dst, n, dtype                dst[i] = src[i]; the ranges must not overlap
//   add    a, b, dst, n, dtype               dst[i] = a[i] + b[i]; dst may be a or b
//   scale  src, dst, n, factor f64, dtype    dst[i] = src[i] * factor; dst may be src
//   copy_blocks  dtype, dst dtype, n, then n times: src, dst, columns, rows, row stride of src, of dst (in elements)
//          n blocks of rows x columns, converted to the dst dtype on the way; no block overlaps what another one writes
//
// fill and copy take every dtype, add and scale those with arithmetic; copy_blocks converts between those with
// arithmetic and copies every dtype.
#pragma once

#include "models/tl/kernel_registry.h"

namespace ahbm::tl {

void fill_kernel(Tl& tl, const Args& args);
void copy_kernel(Tl& tl, const Args& args);
void add_kernel(Tl& tl, const Args& args);
void scale_kernel(Tl& tl, const Args& args);
void copy_blocks_kernel(Tl& tl, const Args& args);

/// A dtype from an argument word. \throws std::invalid_argument for a number that is none
DType dtype_argument(const Args& args, size_t index);

}  // namespace ahbm::tl
