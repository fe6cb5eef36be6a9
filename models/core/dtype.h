// Element types, reduction operators and the arithmetic on raw bytes that the models, the twin and the checker share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ahbm {

enum class DType : uint8_t { Float32, Float16, BFloat16, Int32, Int8, UInt8, Int64, Bool };
enum class ReduceOp : uint8_t { Sum, Avg, Max, Min, Product };

uint32_t item_bytes(DType dtype);
/// nccl-tests names: float, half, bfloat16, int32, int8, uint8, int64, bool.
const char* to_string(DType dtype);
const char* to_string(ReduceOp op);  ///< sum, avg, max, min, product
/// Accepts the nccl-tests names and the usual aliases (fp32, float32, fp16, float16, bf16, int, ...).
std::optional<DType> parse_dtype(std::string_view name);
/// Accepts sum, avg (mean), max, min, product (prod).
std::optional<ReduceOp> parse_reduce_op(std::string_view name);
bool is_floating(DType dtype);
/// Whether matrices are multiplied in it and fractions scale it (fp32, fp16, bf16, int32).
bool has_arithmetic(DType dtype);
/// Whether `reduce` does the operator on the dtype: everything but an average of bools.
bool can_reduce(ReduceOp op, DType dtype);

/// dst[i] = op(a[i], b[i]) for n elements; dst may be a or b. Avg adds (the division is `divide`). fp16 and bf16
/// compute in fp32 and round to nearest even at every call; integers wrap; max and min propagate NaN, and where a == b
/// they return a (so max(-0, +0) is the first argument's zero). Bool: sum and max are "or", product and min are "and";
/// every byte but 0 is true. \throws NotImplementedError where `can_reduce` is false.
void reduce(ReduceOp op, DType dtype, void* dst, const void* a, const void* b, uint64_t n);

/// x[i] = x[i] / divisor: in fp32 rounded once to the dtype for floating types, truncated toward zero for integers.
/// \throws NotImplementedError for bools and a divisor other than 1, std::invalid_argument for a divisor of 0
void divide(DType dtype, void* x, uint64_t n, uint64_t divisor);

/// x[i] = x[i] * factor, in fp32 (double for integers, truncated toward zero, limited to the dtype's range).
/// \throws NotImplementedError for a dtype without arithmetic
void scale(DType dtype, void* x, uint64_t n, double factor);

/// One element to and from double, and a fill, for every dtype; rounding to nearest even. Integers are truncated toward
/// zero and limited to the dtype's range, NaN becomes 0; a Bool is 1 for everything but 0.
double load_element(DType dtype, const void* base, uint64_t index);
void store_element(DType dtype, void* base, uint64_t index, double v);
void fill(DType dtype, void* base, uint64_t n, double v);

}  // namespace ahbm
