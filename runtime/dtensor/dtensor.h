// Distributed tensors: a spec that every rank knows, and this rank's part of the data. Semantics and names are those of
// torch.distributed.tensor, forward only.
//
//   DeviceMesh mesh = init_device_mesh(ctx, "sip", {2, 2}, {"dp", "tp"});           // by every rank
//   DTensor x = distribute_tensor(t, mesh, {Shard{0}, Replicate{}});
//   DTensor y = matmul(x, w).redistribute({Replicate{}, Replicate{}});
//   Tensor whole = y.full_tensor();
//
// All functions take simulated time and are called by rank threads; the ranks of the world make the same calls in the
// same order. Errors that depend on global metadata are raised by every rank, before any communication.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/dtensor/device_mesh.h"
#include "runtime/layout/errors.h"
#include "runtime/layout/strategy.h"

namespace ahbm::dtensor {

using runtime::Context;
using runtime::DPPolicy;
using runtime::Tensor;

Dims to_dims(const runtime::Shape& shape);
runtime::Shape to_shape(const Dims& dims);

struct RedistributeOptions {
  bool async_op = false;           ///< returns once the last collective is under way; the first use of the result waits
  std::optional<DPPolicy> policy;  ///< of the result on cubes and PEs; default: the source's
};

/// A value: copies share the local tensor, as torch's do.
class DTensor {
 public:
  DTensor() = default;
  /// \param masks  of a MaskPartial spec: the marks of entries whose row is elsewhere, one per lookup
  DTensor(DeviceMesh mesh, DTensorSpec spec, Tensor local, std::vector<Tensor> masks = {});

  bool defined() const { return m_state != nullptr; }
  const DTensorSpec& spec() const;
  const DeviceMesh& device_mesh() const;
  const Placements& placements() const { return spec().placements(); }
  const Dims& shape() const { return spec().shape(); }  ///< global
  int64_t size(int64_t dim) const { return shape()[static_cast<size_t>(normalize_dim(dim, shape().size()))]; }
  size_t ndim() const { return spec().ndim(); }
  int64_t numel() const { return spec().numel(); }
  DType dtype() const { return spec().dtype(); }
  /// Of the local tensor; no part of the spec's equality.
  DPPolicy policy() const { return to_local().policy(); }

  /// The local tensor as it is: of a Partial the piece that is not reduced yet. Waits for an asynchronous redistribute.
  const Tensor& to_local() const;
  const std::vector<Tensor>& masks() const;
  /// The whole value, on every rank of the mesh.
  Tensor full_tensor() const;
  /// New placements on the same mesh. Equal ones give the same local tensor.
  /// \throws PlacementsLengthMismatch, DimOutOfRange, IllegalRedistribute, MixedPartial
  DTensor redistribute(const Placements& placements, const RedistributeOptions& options = {}) const;
  /// \throws MeshMismatch when it is another mesh
  DTensor redistribute(const DeviceMesh& mesh, const Placements& placements,
                       const RedistributeOptions& options = {}) const;
  /// Whether an asynchronous redistribute is still under way.
  bool pending() const;

  /// Always: this runtime is forward-only. \throws ForwardOnly
  [[noreturn]] void backward() const;
  [[noreturn]] Tensor grad() const;
  void requires_grad_(bool on = true) const;  ///< \throws ForwardOnly for true

  std::string to_string() const { return spec().to_string(); }

  // Methods for the functions that read best as such; functions.h has all.
  DTensor t() const;
  DTensor transpose(int64_t dim0, int64_t dim1) const;
  DTensor permute(const Dims& dims) const;
  DTensor view(const Dims& sizes) const;
  DTensor reshape(const Dims& sizes) const;
  DTensor to(DType dtype) const;
  DTensor sum(const Dims& dims = {}, bool keepdim = false) const;
  DTensor mean(const Dims& dims = {}, bool keepdim = false) const;
  /// The one element of a tensor, reduced first when it is Partial. \throws ShapeMismatch for more than one
  double item() const;

 private:
  struct State;
  friend class Redistribution;
  std::shared_ptr<State> m_state;
};

struct DistributeOptions {
  /// Group rank, on every mesh dimension, whose tensor counts; nothing: no communication, each rank cuts its own.
  std::optional<uint32_t> src_data_rank = 0;
  bool allow_partial = false;  ///< a Partial target divides the value among the ranks instead of being refused
};
/// Scatters and broadcasts, one collective per mesh dimension. All ranks pass a tensor of the same shape.
/// \throws PlacementsLengthMismatch, DimOutOfRange, UnsupportedPlacement; std::invalid_argument for a src_data_rank
/// that
///   a mesh dimension does not have
DTensor distribute_tensor(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                          const DistributeOptions& options = {});
DTensor distribute_tensor(const Tensor& tensor, const DeviceMesh& mesh);
/// The tensor itself if it lies so already. \throws MeshMismatch, AlreadyDistributed
DTensor distribute_tensor(const DTensor& tensor, const DeviceMesh& mesh, const Placements& placements);

struct FromLocalOptions {
  bool run_check = false;     ///< compares the ranks' metadata, then broadcasts along Replicate mesh dimensions
  std::optional<Dims> shape;  ///< global; with `stride`, or neither
  std::optional<Dims> stride;
};
/// Declares local tensors to be the parts of a distributed one. No data moves unless run_check.
/// \throws PlacementsLengthMismatch, DimOutOfRange, ShapeStrideTogether, LocalShapeMismatch, MetadataMismatch;
///   NotImplementedError for a local tensor that is partial over the cubes of its SIP
DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                   const FromLocalOptions& options = {});
DTensor from_local(const Tensor& local, const DeviceMesh& mesh);

/// Factories: every rank makes its own part. \throws UnsupportedPlacement for a Partial
DTensor zeros(const Dims& size, const DeviceMesh& mesh, const Placements& placements, DType dtype = DType::Float32,
              const DPPolicy& policy = {});
DTensor ones(const Dims& size, const DeviceMesh& mesh, const Placements& placements, DType dtype = DType::Float32,
             const DPPolicy& policy = {});
DTensor full(const Dims& size, double value, const DeviceMesh& mesh, const Placements& placements,
             DType dtype = DType::Float32, const DPPolicy& policy = {});
DTensor empty(const Dims& size, const DeviceMesh& mesh, const Placements& placements, DType dtype = DType::Float32,
              const DPPolicy& policy = {});
/// Element i of the global tensor is runtime::random_value(dtype, seed, i), however it is cut.
DTensor rand(const Dims& size, uint64_t seed, const DeviceMesh& mesh, const Placements& placements,
             DType dtype = DType::Float32, const DPPolicy& policy = {});

/// While it lives, plain tensors of any size that the calling thread puts beside distributed ones count as replicated.
class ImplicitReplication {
 public:
  explicit ImplicitReplication(Context& context);
  ~ImplicitReplication();
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;

 private:
  Session& m_session;
};
/// While it lives, an operator of the calling thread that would have to move data is an error (ImplicitRedistribution).
class ExplicitRedistribution {
 public:
  explicit ExplicitRedistribution(Context& context);
  ~ExplicitRedistribution();
  ExplicitRedistribution(const ExplicitRedistribution&) = delete;
  ExplicitRedistribution& operator=(const ExplicitRedistribution&) = delete;

 private:
  Session& m_session;
};

}  // namespace ahbm::dtensor
