// Operators on the tensors of one SIP, with the names and rules of torch: `a + b`, `matmul(a, b)`, `softmax(a, -1)`.
//
// Shapes and dtypes are checked as for distributed tensors (errors of runtime/layout/errors.h); what runs is
// ops::execute, on the SIP of the calling thread, in simulated time. Results lie as the first operand does. A result
// may share memory with its input where torch's would be a view and the layout allows it; otherwise it is a copy.
#pragma once

#include <vector>

#include "runtime/ops/execute.h"

namespace ahbm::runtime {

namespace ops {
/// Any operator, its results by the rules of the layout library. Arguments need not be normalised.
std::vector<Tensor> call(dtensor::Op op, const std::vector<Tensor>& inputs, const dtensor::OpArgs& args = {},
                         const std::optional<DPPolicy>& policy = std::nullopt);
}  // namespace ops

using Sizes = dtensor::Dims;
/// No value: all dimensions.
using OptionalDims = std::optional<Sizes>;

// --- pointwise, with broadcasting
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& a);
const Tensor& operator+=(const Tensor& a, const Tensor& b);
const Tensor& operator-=(const Tensor& a, const Tensor& b);
const Tensor& operator*=(const Tensor& a, const Tensor& b);
const Tensor& operator/=(const Tensor& a, const Tensor& b);
const Tensor& operator+=(const Tensor& a, double b);
const Tensor& operator-=(const Tensor& a, double b);
const Tensor& operator*=(const Tensor& a, double b);
const Tensor& operator/=(const Tensor& a, double b);
Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, const Tensor& b);
Tensor operator<(const Tensor& a, const Tensor& b);
Tensor operator<=(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator>=(const Tensor& a, const Tensor& b);
Tensor operator==(const Tensor& a, double b);
Tensor operator!=(const Tensor& a, double b);
Tensor operator<(const Tensor& a, double b);
Tensor operator<=(const Tensor& a, double b);
Tensor operator>(const Tensor& a, double b);
Tensor operator>=(const Tensor& a, double b);

Tensor abs(const Tensor& a);
Tensor exp(const Tensor& a);
Tensor log(const Tensor& a);
Tensor sqrt(const Tensor& a);
Tensor rsqrt(const Tensor& a);
Tensor reciprocal(const Tensor& a);
Tensor sin(const Tensor& a);
Tensor cos(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor sigmoid(const Tensor& a);
Tensor relu(const Tensor& a);
Tensor silu(const Tensor& a);
Tensor gelu(const Tensor& a);  ///< by the error function
Tensor square(const Tensor& a);
Tensor sign(const Tensor& a);
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, double b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, double b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, double b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& a);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor masked_fill(const Tensor& a, const Tensor& mask, double value);
Tensor cast(const Tensor& a, DType dtype);
Tensor clone(const Tensor& a);
const Tensor& fill_(const Tensor& a, double value);
const Tensor& zero_(const Tensor& a);
const Tensor& copy_(const Tensor& a, const Tensor& from);
Tensor zeros_like(const Tensor& a);
Tensor ones_like(const Tensor& a);
Tensor full_like(const Tensor& a, double value);
Tensor empty_like(const Tensor& a);
/// One shape and all elements equal; reads the answer back.
bool equal(const Tensor& a, const Tensor& b);

// --- reductions
Tensor sum(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);  ///< amax: values only
Tensor min(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor any(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor norm(const Tensor& a, double p = 2, const OptionalDims& dims = {}, bool keepdim = false);
Tensor var(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);  ///< with n - 1
Tensor std(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor logsumexp(const Tensor& a, const OptionalDims& dims = {}, bool keepdim = false);
Tensor argmax(const Tensor& a, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& a, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor cumsum(const Tensor& a, int64_t dim);

// --- normalisation and losses
Tensor softmax(const Tensor& a, int64_t dim);
Tensor log_softmax(const Tensor& a, int64_t dim);
/// Over the last `dims` dimensions; weight and bias of their shape, or not deployed. Epsilon as in execute.h.
Tensor layer_norm(const Tensor& a, int64_t dims = 1, const Tensor& weight = {}, const Tensor& bias = {});
Tensor rms_norm(const Tensor& a, int64_t dims = 1, const Tensor& weight = {});
/// \param ignore_index  targets of this value, inside the classes or not, add nothing and do not count in the mean
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     dtensor::LossReduction reduction = dtensor::LossReduction::Mean,
                     std::optional<int64_t> ignore_index = {});

// --- contractions
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor mm(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor baddbmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {},
                                    bool causal = false);

// --- structure
Tensor t(const Tensor& a);
Tensor transpose(const Tensor& a, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& a, const Sizes& dims);
Tensor squeeze(const Tensor& a, std::optional<int64_t> dim = {});
Tensor unsqueeze(const Tensor& a, int64_t dim);
Tensor view(const Tensor& a, const Sizes& sizes);
Tensor reshape(const Tensor& a, const Sizes& sizes);
Tensor expand(const Tensor& a, const Sizes& sizes);
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& a, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& a, const Sizes& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& a, int64_t chunks, int64_t dim = 0);
Tensor slice(const Tensor& a, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
Tensor select(const Tensor& a, int64_t dim, int64_t index);
std::vector<Tensor> unbind(const Tensor& a, int64_t dim = 0);
Tensor triu(const Tensor& a);
Tensor tril(const Tensor& a);

// --- lookup; indices are int64 or int32
Tensor gather(const Tensor& a, int64_t dim, const Tensor& index);
Tensor index_select(const Tensor& a, int64_t dim, const Tensor& index);
Tensor embedding(const Tensor& table, const Tensor& indices);

}  // namespace ahbm::runtime
