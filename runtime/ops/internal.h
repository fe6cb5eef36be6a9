// Internal to the operators: where the parts of a tensor lie, launches on single PEs, and the families of `execute`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/core/errors.h"
#include "runtime/kernels/operator_kernels.h"
#include "runtime/ops/execute.h"

namespace ahbm::runtime::ops {

using dtensor::Dims;
using dtensor::Op;
using dtensor::OpArgs;

/// A dense row-major block of a tensor in the memory of one cube.
struct Region {
  Dims begin, extent;  ///< of the tensor's rank; of rank 1 for a 0-d tensor
  Addr address = 0;
};

/// How a tensor lies on this thread's SIP.
class Placed {
 public:
  /// \throws std::invalid_argument when it is on another SIP, or holds summands on its cubes
  Placed(Context& context, const Tensor& t);
  /// As a vector of its elements in row-major order. \pre by_rows()
  static Placed flat(Context& context, const Tensor& t);

  const Tensor& tensor() const { return m_tensor; }
  const Dims& shape() const { return m_shape; }            ///< of rank 1 at least
  int64_t row_elements() const { return m_row_elements; }  ///< of one step of the first dimension
  const layout::Layout& layout() const { return *m_layout; }
  SipId sip() const { return m_sip; }

  /// What a PE holds; no elements where it has none.
  Region own(CubeId cube, PeId pe) const;
  /// Blocks that make up the tensor, preferring copies in that cube and PE.
  std::vector<Region> blocks(CubeId cube, PeId pe) const;
  /// Blocks that make up everything the tensor occupies, all copies.
  std::vector<Region> all_blocks() const;
  /// Whether `blocks` is the same for every PE.
  bool same_for_all() const;
  /// Shards are ranges of the row-major tensor, whole rows of the first dimension.
  bool by_rows() const;
  /// Whether every byte of [address, address + bytes) is in that PE's own shard.
  bool is_own(CubeId cube, PeId pe, Addr address, uint64_t bytes) const;

 private:
  Region region(const Range& rows, const Range& cols, Addr address) const;
  /// What a cube holds; of copies on its PEs that of `pe`, or all.
  void append_cube(std::vector<Region>& out, CubeId cube, std::optional<PeId> pe) const;

  Tensor m_tensor;
  Dims m_shape;
  int64_t m_row_elements = 1;
  int64_t m_flattened = 1;  ///< elements of a step of the layout's first dimension when that is no dimension here
  SipId m_sip{};
  std::shared_ptr<const layout::Layout> m_own_layout;  ///< when the handle's is for another shape
  const layout::Layout* m_layout = nullptr;
};

int64_t count(const Dims& extent);

/// A kernel on some PEs, each with its own arguments.
class KernelLaunch {
 public:
  KernelLaunch(Context& context, const char* kernel) : m_context(context), m_kernel(kernel) {}
  std::vector<uint64_t>& on(SipId sip, CubeId cube, PeId pe) {
    m_pes.push_back({{sip, cube, pe}, {}, {}, {}});
    return m_pes.back().args;
  }
  /// PEs read this tensor, `elsewhere` also what is not their own.
  void reads(const Tensor& t, bool elsewhere);
  /// Every PE writes its own shard. `fresh`: nobody knows the tensor yet.
  void writes(const Tensor& t, bool fresh);
  /// PEs write shards that are not their own.
  void writes_elsewhere(const Tensor& t);
  void run();

 private:
  struct Use {
    Tensor tensor;
    bool read_elsewhere = false;
    bool written_elsewhere = false;
  };
  Context& m_context;
  const char* m_kernel;
  std::vector<PeLaunch> m_pes;
  std::vector<Use> m_uses;
};

/// All elements of `src`, in order, into `dst` of another shape. \pre both by rows
void copy_flat(Context& context, const Tensor& dst, const Tensor& src);
/// A tensor of a result's kind. \throws as Context::empty
Tensor make(Context& context, const Shape& shape, DType dtype, DPPolicy policy);
/// Rows cut over all cubes and PEs.
DPPolicy rows_over_all();
/// The policy with columns cut as rows.
DPPolicy by_rows(DPPolicy p);
/// The tensor in that dtype, as ranges of the row-major tensor.
Tensor lying_by_rows(Context& context, const Tensor& t, DType dtype);
/// The tensor so that each PE of `readers` finds all of it in one block.
Tensor whole_for(Context& context, const Tensor& t, const Placed& readers);
/// Whether `t`, taken for a tensor of `shape`, keeps every element where the policy would put it.
bool keeps_layout(Context& context, const Tensor& t, const Shape& shape);
/// The elements of `t` in the same order in another shape: the same memory when the layout allows, else a copy.
Tensor reshaped(Context& context, const Tensor& t, const Shape& shape, const DPPolicy& policy);
Tensor permuted(Context& context, const Tensor& t, const Dims& order, const DPPolicy& policy, DType dtype);
/// The box that repeats a tensor of shape `from` to `shape`.
Box broadcast_box(const Shape& shape, const Shape& from);
/// `t` with other dimensions repeated: numpy's rule, to `shape`.
Tensor broadcast(Context& context, const Tensor& t, const Shape& shape, const DPPolicy& policy, DType dtype);
/// `t` in this policy and dtype; itself if it is so already.
Tensor brought(Context& context, const Tensor& t, const DPPolicy& policy, DType dtype);

Dims to_dims(const Shape& shape);
Shape to_shape(const Dims& dims);
/// "mm: ..." \throws NotImplementedError
[[noreturn]] void refuse(Op op, const std::string& why);
/// \throws NotImplementedError unless the dtype is one that matrices are multiplied in
void require_matrix(Op op, DType dtype);
inline uint64_t word(DType t) {
  return static_cast<uint64_t>(t);
}

/// The dimensions of an ndim-tensor, those of `dims` at the end.
Dims kept_first(size_t ndim, const Dims& dims);
/// What the dtype makes of a number.
double rounded_limit(DType t, double v);

struct Call {
  Context& context;
  Op op;
  const OpArgs& args;
  const std::vector<Tensor>& inputs;
  const std::vector<OpOutput>& outputs;
  DPPolicy policy;

  const Tensor& in(size_t i) const { return inputs[i]; }
  const OpOutput& out() const { return outputs.front(); }
};
std::vector<Tensor> run_structure(const Call& call);
Tensor run_pointwise(const Call& call);
Tensor run_reduction(const Call& call);
Tensor run_rows(const Call& call);
Tensor run_matmul(const Call& call);
Tensor run_triangle(const Call& call);
Tensor run_gather(const Call& call);
Tensor run_lookup(const Call& call);
Tensor run_loss(const Call& call);
Tensor run_equal(const Call& call);
/// One operator on plain arguments, for those that are made of others.
Tensor apply(const Call& call, Op op, const OpArgs& args, const std::vector<Tensor>& inputs, const OpOutput& output);

}  // namespace ahbm::runtime::ops
