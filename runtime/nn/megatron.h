// Tensor parallelism written out, as Megatron-LM does it: layers that hold their slice of the parameters as a plain
// tensor and call the collectives themselves. The other style, declared from outside, is parallel.h.
#pragma once

#include "runtime/nn/layers.h"

namespace ahbm::nn {

/// The calling rank's place among the ranks that share the layers.
struct TensorParallelGroup {
  Context* context = nullptr;
  runtime::distributed::ProcessGroup group;
  uint32_t rank = 0;  ///< in the group
  uint32_t size = 1;
  bool sequence_parallel = false;  ///< activations between the layers are cut along the sequence

  Range part(uint64_t extent) const { return torch_chunk(extent, size, rank); }
};
/// Of a 1-d mesh. \throws MeshError on an n-d mesh
TensorParallelGroup tensor_parallel_group(const dtensor::DeviceMesh& mesh, bool sequence_parallel = false);

// Collectives on plain tensors, for extents that the ranks need not divide: padded to equal parts on the way.
Tensor all_reduced(const TensorParallelGroup& tp, const Tensor& t);
/// The ranks' parts along `dim`, one after another, `extent` in all.
Tensor gathered(const TensorParallelGroup& tp, const Tensor& part, size_t dim, uint64_t extent);
/// This rank's part of the ranks' sum.
Tensor reduce_scattered(const TensorParallelGroup& tp, const Tensor& t, size_t dim);

/// The rank's output features. With `gather_output` all of them.
class ColumnParallelLinear : public Module {
 public:
  ColumnParallelLinear(const Builder& at, const TensorParallelGroup& tp, uint64_t in, uint64_t out, bool bias,
                       bool gather_output = false);
  const char* kind() const override { return "ColumnParallelLinear"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  TensorParallelGroup m_tp;
  uint64_t m_out;
  bool m_gather;
  Value m_weight, m_bias;  ///< [out of this rank, in], [out of this rank]
};

/// Takes the rank's input features; the products are summed over the ranks, then the bias is added, once.
class RowParallelLinear : public Module {
 public:
  RowParallelLinear(const Builder& at, const TensorParallelGroup& tp, uint64_t in, uint64_t out, bool bias);
  const char* kind() const override { return "RowParallelLinear"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  TensorParallelGroup m_tp;
  Value m_weight, m_bias;  ///< [out, in of this rank], [out]
};

/// The rank's rows of the table; rows of others count as zeros, and the sum over the ranks is the lookup.
class VocabParallelEmbedding : public Module {
 public:
  VocabParallelEmbedding(const Builder& at, const TensorParallelGroup& tp, uint64_t rows, uint64_t width,
                         size_t sequence_dim);
  const char* kind() const override { return "VocabParallelEmbedding"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  TensorParallelGroup m_tp;
  Range m_rows;
  size_t m_sequence_dim;
  Value m_weight;  ///< [rows of this rank, width]
};

/// Mean loss of logits whose classes are cut, without gathering them: three all_reduces of one number per token.
/// \param logits  [..., classes of this rank], target of the leading sizes \param classes  in all
Tensor vocab_parallel_cross_entropy(const TensorParallelGroup& tp, const Tensor& logits, const Tensor& target,
                                    uint64_t classes);

class MegatronFactory : public LayerFactory {
 public:
  /// \param length  of the sequences, which sequence parallelism cuts
  MegatronFactory(TensorParallelGroup tp, uint64_t length, bool gather_logits = true)
      : m_tp(std::move(tp)), m_length(length), m_gather_logits(gather_logits) {}
  Made column(const Builder& at, uint64_t in, uint64_t out, bool bias) const override;
  Made row(const Builder& at, uint64_t in, uint64_t out, bool bias) const override;
  Made key_value(const Builder& at, uint64_t in, uint64_t heads, uint64_t width, bool bias) const override;
  Made table(const Builder& at, uint64_t rows, uint64_t width, size_t sequence_dim) const override;
  Made head(const Builder& at, uint64_t in, uint64_t out) const override;
  void enter(Module& module) const override;
  /// \throws std::invalid_argument when the ranks do not divide the heads
  Range heads(uint64_t all) const override;

 private:
  TensorParallelGroup m_tp;
  uint64_t m_length;
  bool m_gather_logits;
};

}  // namespace ahbm::nn
