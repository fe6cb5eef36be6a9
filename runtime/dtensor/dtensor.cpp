#include "runtime/dtensor/dtensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include "runtime/dtensor/functions.h"
#include "runtime/dtensor/redistribute.h"
#include "runtime/dtensor/session.h"
#include "runtime/ops/execute.h"
#include "runtime/random.h"

namespace ahbm::dtensor {

namespace ops = runtime::ops;

Dims to_dims(const runtime::Shape& shape) {
  return {shape.begin(), shape.end()};
}

runtime::Shape to_shape(const Dims& dims) {
  return {dims.begin(), dims.end()};
}

struct DTensor::State {
  DeviceMesh mesh;
  DTensorSpec spec;
  Part part;
  Finish pending;  ///< of an asynchronous redistribute; empties into `part`

  void settle() {
    if (pending) part = pending();
    pending = nullptr;
  }
};

namespace {

bool outside(const DeviceMesh& mesh) {
  return !mesh.layout().contains(mesh.get_rank());
}

void check_local(const Tensor& t, const char* what) {
  if (t.is_view()) {
    throw std::invalid_argument(fmt::format("{}: {} is a view: expected contiguous() of it", what, describe(t)));
  }
  if (t.policy().cube != runtime::CubePolicy::Partial) return;
  throw NotImplementedError(
      fmt::format("{}: a local tensor {} that is partial over the cubes of its SIP: reduce it first", what,
                  layout::to_string(t.shape())));
}

}  // namespace

DTensor::DTensor(DeviceMesh mesh, DTensorSpec spec, Tensor local, std::vector<Tensor> masks)
    : m_state(std::make_shared<State>(
          State{std::move(mesh), std::move(spec), {std::move(local), std::move(masks)}, nullptr})) {}

const DTensorSpec& DTensor::spec() const {
  if (m_state == nullptr)
    throw std::runtime_error("an empty DTensor: expected one made by distribute_tensor or the like");
  return m_state->spec;
}

const DeviceMesh& DTensor::device_mesh() const {
  spec();
  return m_state->mesh;
}

const Tensor& DTensor::to_local() const {
  spec();
  m_state->settle();
  return m_state->part.tensor;
}

const std::vector<Tensor>& DTensor::masks() const {
  to_local();
  return m_state->part.masks;
}

bool DTensor::pending() const {
  return m_state != nullptr && m_state->pending;
}

DTensor DTensor::redistribute(const Placements& placements, const RedistributeOptions& options) const {
  const DeviceMesh& mesh = device_mesh();
  const Placements target = check_redistribute(spec(), placements);
  const auto plan = mesh.session().engine().plan(spec(), target);
  const Tensor& local = to_local();
  const DPPolicy policy = options.policy.value_or(local.policy());
  DTensor out(mesh, spec().with_checked_placements(target), local, masks());
  if (outside(mesh)) return out;
  if (options.async_op) {
    out.m_state->pending = start_redistribute(mesh, *plan, {local, masks()}, policy);
    return out;
  }
  if (!plan->steps.empty()) out.m_state->part = redistribute_part(mesh, *plan, {local, masks()}, policy);
  Tensor& result = out.m_state->part.tensor;
  if (options.policy) result = ops::relayout(mesh.context(), result, policy);
  return out;
}

DTensor DTensor::redistribute(const DeviceMesh& mesh, const Placements& placements,
                              const RedistributeOptions& options) const {
  if (mesh != device_mesh()) {
    throw MeshMismatch(fmt::format("redistribute of a tensor on mesh {} to mesh {}: expected the same mesh",
                                   device_mesh().to_string(), mesh.to_string()));
  }
  return redistribute(placements, options);
}

Tensor DTensor::full_tensor() const {
  return redistribute(all_replicate(device_mesh().ndim())).to_local();
}

double DTensor::item() const {
  if (numel() != 1) {
    throw ShapeMismatch(fmt::format("item of a tensor of shape {}: expected one element", dtensor::to_string(shape())));
  }
  const Tensor whole = full_tensor();
  if (outside(device_mesh())) return 0;
  const std::vector<uint8_t> bytes = whole.to_host_bytes();
  return bytes.empty() ? 0 : load_element(dtype(), bytes.data(), 0);
}

void DTensor::backward() const {
  throw ForwardOnly("backward: this runtime is forward-only, no operator records gradients");
}

Tensor DTensor::grad() const {
  throw ForwardOnly("grad: this runtime is forward-only, no operator records gradients");
}

void DTensor::requires_grad_(bool on) const {
  if (on) throw ForwardOnly("requires_grad_(true): this runtime is forward-only, no operator records gradients");
}

DTensor DTensor::t() const {
  return dtensor::t(*this);
}
DTensor DTensor::transpose(int64_t dim0, int64_t dim1) const {
  return dtensor::transpose(*this, dim0, dim1);
}
DTensor DTensor::permute(const Dims& dims) const {
  return dtensor::permute(*this, dims);
}
DTensor DTensor::view(const Dims& sizes) const {
  return dtensor::view(*this, sizes);
}
DTensor DTensor::reshape(const Dims& sizes) const {
  return dtensor::reshape(*this, sizes);
}
DTensor DTensor::to(DType dtype) const {
  return cast(*this, dtype);
}
DTensor DTensor::sum(const Dims& dims, bool keepdim) const {
  return dtensor::sum(*this, dims, keepdim);
}
DTensor DTensor::mean(const Dims& dims, bool keepdim) const {
  return dtensor::mean(*this, dims, keepdim);
}

// --- distribute_tensor

namespace {

/// distribute_tensor on one rank, one mesh dimension after the other.
class Distribution {
 public:
  Distribution(const DeviceMesh& mesh, const DTensorSpec& spec, const Tensor& tensor, const DistributeOptions& options)
      : m_mesh(mesh),
        m_context(mesh.context()),
        m_spec(spec),
        m_coordinate(*mesh.get_coordinate()),
        m_options(options),
        m_policy(tensor.policy()),
        m_part{tensor, {}, false} {}

  void run(const DistributeStep& step) {
    const uint32_t n = m_mesh.shape()[step.mesh_dim];
    if (n == 1) return;
    const Placement& to = m_spec.placements()[step.mesh_dim];
    if (step.action == DistributeStep::Action::Scatter) {
      scatter(step.mesh_dim, to, n);
      return;
    }
    if (m_options.src_data_rank) broadcast(step.mesh_dim);
    if (step.action == DistributeStep::Action::BroadcastAndDivide) {
      m_part = share_of(m_context, std::move(m_part), to, n, m_coordinate[step.mesh_dim]);
    }
  }

  Tensor result() { return owned(m_context, std::move(m_part)).tensor; }

 private:
  uint32_t source(uint32_t mesh_dim) const {
    return m_mesh.layout().group(m_mesh.get_rank(), mesh_dim)[*m_options.src_data_rank];
  }

  void broadcast(uint32_t mesh_dim) {
    const uint32_t src = source(mesh_dim);
    // The source's tensor is only read; the others' would be overwritten.
    if (src != m_mesh.get_rank() && !m_part.owned) {
      m_part = {m_context.empty(m_part.tensor.shape(), m_part.tensor.dtype(), m_policy), {}, true};
    }
    m_context.distributed.broadcast(m_part.tensor, src, m_mesh.get_group(mesh_dim));
  }

  void scatter(uint32_t mesh_dim, const Placement& to, uint32_t n) {
    const int dim = shard_dim(to);
    const uint64_t extent = m_part.tensor.shape()[static_cast<size_t>(dim)];
    const auto mine = owned_ranges(to, extent, n, m_coordinate[mesh_dim]);
    const uint64_t count = owned_count(to, extent, n, m_coordinate[mesh_dim]);
    if (!m_options.src_data_rank) {
      m_part = {ops::take(m_context, m_part.tensor, static_cast<size_t>(dim), mine), {}, true};
      return;
    }
    // Member 0 of a group has the longest part, strided or not.
    const auto chunk = static_cast<int64_t>(owned_count(to, extent, n, 0));
    const auto group = m_mesh.get_group(mesh_dim);
    const uint32_t src = source(mesh_dim);
    const RankList& members = m_mesh.layout().group(m_mesh.get_rank(), mesh_dim);
    std::vector<Tensor> chunks;
    if (src == m_mesh.get_rank()) {
      chunks.resize(n);
      for (uint32_t j = 0; j < n; ++j) {
        const uint32_t place = m_context.distributed.get_group_rank(group, members[j]);
        chunks[place] = cut_padded(m_context, m_part.tensor, dim, owned_ranges(to, extent, n, j), chunk, m_policy);
      }
    }
    Dims shape = to_dims(m_part.tensor.shape());
    shape[static_cast<size_t>(dim)] = chunk;
    Tensor out = m_context.empty(to_shape(shape), m_part.tensor.dtype(), m_policy);
    m_context.distributed.scatter(out, chunks, src, group);
    if (count != static_cast<uint64_t>(chunk)) {
      out = ops::take(m_context, out, static_cast<size_t>(dim), {{0, count}});
    }
    m_part = {std::move(out), {}, true};
  }

  const DeviceMesh& m_mesh;
  Context& m_context;
  const DTensorSpec& m_spec;
  Coordinate m_coordinate;
  const DistributeOptions& m_options;
  DPPolicy m_policy;
  Part m_part;
};

}  // namespace

DTensor distribute_tensor(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                          const DistributeOptions& options) {
  const DTensorSpec spec(mesh.layout_ptr(), placements, to_dims(tensor.shape()), tensor.dtype());
  const std::vector<DistributeStep> steps = plan_distribute(spec, options.allow_partial);
  for (uint32_t d = 0; options.src_data_rank && d < mesh.ndim(); ++d) {
    if (*options.src_data_rank < mesh.shape()[d]) continue;
    throw std::invalid_argument(
        fmt::format("distribute_tensor: src_data_rank {} on mesh {}: expected 0..{}, the ranks "
                    "of mesh dimension {}",
                    *options.src_data_rank, mesh.to_string(), mesh.shape()[d] - 1, d));
  }
  Context& context = mesh.context();
  if (outside(mesh)) return DTensor(mesh, spec, nothing_of(context, spec));
  check_local(tensor, "distribute_tensor");
  const NamedOperation operation(mesh.session(),
                                 [&] { return "distribute_tensor " + short_string(spec.placements()); });
  const AtWork at_work(mesh.session(), mesh.layout());
  Distribution distribution(mesh, spec, tensor, options);
  for (const DistributeStep& step : steps) distribution.run(step);
  return DTensor(mesh, spec, distribution.result());
}

DTensor distribute_tensor(const Tensor& tensor, const DeviceMesh& mesh) {
  return distribute_tensor(tensor, mesh, all_replicate(mesh.ndim()));
}

DTensor distribute_tensor(const DTensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  if (mesh != tensor.device_mesh()) {
    throw MeshMismatch(fmt::format("distribute_tensor of a tensor on mesh {} to mesh {}: expected the same mesh",
                                   tensor.device_mesh().to_string(), mesh.to_string()));
  }
  const Placements target = normalize(placements, mesh.ndim(), tensor.ndim());
  if (target != tensor.placements()) {
    throw AlreadyDistributed(
        fmt::format("distribute_tensor of a tensor that lies as {} already to {}: use redistribute",
                    to_string(tensor.placements()), to_string(target)));
  }
  return tensor;
}

// --- from_local

namespace {

/// What `make` gives on this rank, if it gives a spec on every rank of the mesh. What is wrong with the local tensor of
/// one rank only is raised by all of them.
DTensorSpec agreed_spec(const DeviceMesh& mesh, const std::function<DTensorSpec()>& make, bool same_everywhere) {
  std::optional<DTensorSpec> spec;
  std::exception_ptr own;
  std::string mine;
  static const std::string kMismatch = "LocalShapeMismatch: ", kError = "an error: ";
  const auto says = [](const std::string& text, const std::string& what) { return text.rfind(what, 0) == 0; };
  try {
    spec = make();
    mine = spec->to_string() + " stride " + to_string(spec->stride());
  } catch (const LocalShapeMismatch& e) {
    own = std::current_exception();
    mine = kMismatch + e.what();
  } catch (const std::exception& e) {
    own = std::current_exception();
    mine = kError + e.what();
  }
  const auto all = mesh.session().exchange(mesh.layout(), mine, "from_local");
  if (own && std::all_of(all.begin(), all.end(), [&](const std::string& s) { return s == mine; })) {
    std::rethrow_exception(own);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (!says(all[i], kMismatch)) continue;
    throw LocalShapeMismatch(fmt::format("rank {}: {}", mesh.ranks()[i], all[i].substr(kMismatch.size())));
  }
  const bool compare =
      same_everywhere || std::any_of(all.begin(), all.end(), [&](const std::string& s) { return says(s, kError); });
  for (size_t i = 1; i < all.size() && compare; ++i) {
    if (all[i] == all[0]) continue;
    throw MetadataMismatch(fmt::format("from_local: rank {} has {}, rank {} has {}: expected the same on every rank",
                                       mesh.ranks()[0], all[0], mesh.ranks()[i], all[i]));
  }
  return *spec;
}

}  // namespace

DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                   const FromLocalOptions& options) {
  const Dims shape = to_dims(local.shape());
  const bool is_outside = outside(mesh);
  const uint32_t rank = is_outside ? mesh.layout().ranks().front() : mesh.get_rank();
  // What a rank outside passes is only looked at where nothing else says the shape.
  const bool declared = is_outside && options.shape && options.stride;
  const auto make_spec = [&] {
    return declared ? DTensorSpec(mesh.layout_ptr(), placements, *options.shape, local.dtype(), options.stride)
                    : spec_from_local(mesh.layout_ptr(), placements, shape, contiguous_stride(shape), local.dtype(),
                                      rank, options.shape, options.stride);
  };
  if (is_outside) {
    const DTensorSpec spec = make_spec();
    return DTensor(mesh, spec, nothing_of(mesh.context(), spec));
  }
  check_local(local, "from_local");
  const bool differs = options.run_check || (options.shape && options.stride);
  const DTensorSpec spec = differs ? agreed_spec(mesh, make_spec, options.run_check) : make_spec();
  if (options.run_check) {
    const AtWork at_work(mesh.session(), mesh.layout());
    for (uint32_t d = 0; d < mesh.ndim(); ++d) {
      if (!is_replicate(spec.placements()[d]) || mesh.shape()[d] == 1) continue;
      mesh.context().distributed.broadcast(local, mesh.layout().group(rank, d).front(), mesh.get_group(d));
    }
  }
  return DTensor(mesh, spec, local);
}

DTensor from_local(const Tensor& local, const DeviceMesh& mesh) {
  return from_local(local, mesh, all_replicate(mesh.ndim()));
}

// --- factories

namespace {

DTensorSpec factory_spec(const char* name, const Dims& size, const DeviceMesh& mesh, const Placements& placements,
                         DType dtype) {
  DTensorSpec spec(mesh.layout_ptr(), placements, size, dtype);
  if (spec.has_partial()) {
    throw UnsupportedPlacement(
        fmt::format("{} with placements {}: expected S and R only", name, to_string(spec.placements())));
  }
  return spec;
}

/// Every index of this rank's part in the global tensor, row-major.
std::vector<uint64_t> global_indices(const DTensorSpec& spec, const Coordinate& c) {
  std::vector<uint64_t> out{0};
  for (size_t d = 0; d < spec.ndim(); ++d) {
    const auto extent = static_cast<uint64_t>(spec.shape()[d]);
    const auto ranges = owned_along(*spec.mesh(), spec.placements(), spec.shape(), static_cast<int>(d), c);
    std::vector<uint64_t> next;
    for (const uint64_t base : out) {
      for (const Range& r : ranges) {
        for (uint64_t i = r.begin; i < r.end(); ++i) next.push_back(base * extent + i);
      }
    }
    out = std::move(next);
  }
  return out;
}

}  // namespace

DTensor full(const Dims& size, double value, const DeviceMesh& mesh, const Placements& placements, DType dtype,
             const DPPolicy& policy) {
  const DTensorSpec spec = factory_spec("full", size, mesh, placements, dtype);
  Context& context = mesh.context();
  if (outside(mesh)) return DTensor(mesh, spec, nothing_of(context, spec));
  return DTensor(mesh, spec, ops::filled(context, to_shape(local_shape(spec, mesh.get_rank())), value, dtype, policy));
}

DTensor zeros(const Dims& size, const DeviceMesh& mesh, const Placements& placements, DType dtype,
              const DPPolicy& policy) {
  return full(size, 0, mesh, placements, dtype, policy);
}

DTensor ones(const Dims& size, const DeviceMesh& mesh, const Placements& placements, DType dtype,
             const DPPolicy& policy) {
  return full(size, 1, mesh, placements, dtype, policy);
}

DTensor empty(const Dims& size, const DeviceMesh& mesh, const Placements& placements, DType dtype,
              const DPPolicy& policy) {
  const DTensorSpec spec = factory_spec("empty", size, mesh, placements, dtype);
  Context& context = mesh.context();
  if (outside(mesh)) return DTensor(mesh, spec, nothing_of(context, spec));
  return DTensor(mesh, spec, context.empty(to_shape(local_shape(spec, mesh.get_rank())), dtype, policy));
}

DTensor rand(const Dims& size, uint64_t seed, const DeviceMesh& mesh, const Placements& placements, DType dtype,
             const DPPolicy& policy) {
  const DTensorSpec spec = factory_spec("rand", size, mesh, placements, dtype);
  Context& context = mesh.context();
  if (outside(mesh)) return DTensor(mesh, spec, nothing_of(context, spec));
  const Tensor local = context.empty(to_shape(local_shape(spec, mesh.get_rank())), dtype, policy);
  std::vector<uint8_t> data;
  if (context.config().simulation.functional) {
    data.resize(local.bytes());
    const std::vector<uint64_t> indices = global_indices(spec, *mesh.get_coordinate());
    for (size_t i = 0; i < indices.size(); ++i) {
      store_element(dtype, data.data(), i, runtime::random_value(dtype, seed, indices[i]));
    }
  }
  local.upload(data.empty() ? nullptr : data.data(), local.bytes());
  return DTensor(mesh, spec, local);
}

// --- scopes

ImplicitReplication::ImplicitReplication(Context& context) : m_session(context.dtensor_session()) {
  ++m_session.scopes().implicit_replication;
}
ImplicitReplication::~ImplicitReplication() {
  --m_session.scopes().implicit_replication;
  m_session.tidy();
}
ExplicitRedistribution::ExplicitRedistribution(Context& context) : m_session(context.dtensor_session()) {
  ++m_session.scopes().explicit_redistribution;
}
ExplicitRedistribution::~ExplicitRedistribution() {
  --m_session.scopes().explicit_redistribution;
  m_session.tidy();
}

}  // namespace ahbm::dtensor
