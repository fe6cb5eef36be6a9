#include "runtime/dtensor/device_mesh.h"

#include <fmt/format.h>

#include "runtime/context.h"
#include "runtime/dtensor/session.h"
#include "runtime/layout/errors.h"

namespace ahbm::dtensor {

using runtime::distributed::ProcessGroup;

uint32_t MeshDim::in(const MeshLayout& mesh) const {
  if (!m_name.empty()) return mesh.dim_index(m_name);
  if (m_index < 0 || m_index >= mesh.ndim()) {
    throw MeshError(fmt::format("mesh dimension {} of a {}-d mesh, expected 0..{}", m_index, mesh.ndim(),
                                int64_t{mesh.ndim()} - 1));
  }
  return static_cast<uint32_t>(m_index);
}

struct DeviceMesh::State {
  runtime::Context* context = nullptr;
  MeshPtr layout;
  std::vector<std::vector<ProcessGroup>> groups;  ///< [dim][as layout->groups(dim)]
  std::shared_ptr<const State> root;              ///< what it was sliced from; null: it is one
};

std::shared_ptr<DeviceMesh::State> DeviceMesh::make_state(runtime::Context& context, MeshPtr layout) {
  auto state = std::make_shared<State>();
  state->context = &context;
  for (uint32_t d = 0; d < layout->ndim(); ++d) {
    state->groups.emplace_back();
    for (const RankList& ranks : layout->groups(d)) {
      state->groups[d].push_back(context.dtensor_session().group(ranks));
    }
  }
  state->layout = std::move(layout);
  return state;
}

DeviceMesh::DeviceMesh(runtime::Context& context, std::string device_type, std::vector<uint32_t> shape, RankList ranks,
                       std::vector<std::string> names)
    : m_state(
          make_state(context, MeshLayout::from_ranks(std::move(shape), std::move(ranks), std::move(names),
                                                     std::move(device_type), context.distributed.get_world_size()))) {}

DeviceMesh init_device_mesh(runtime::Context& context, const std::string& device_type, std::vector<uint32_t> shape,
                            std::vector<std::string> names) {
  const MeshPtr layout = MeshLayout::create(shape, names, device_type, context.distributed.get_world_size());
  return DeviceMesh(context, device_type, std::move(shape), layout->ranks(), std::move(names));
}

const MeshPtr& DeviceMesh::layout_ptr() const {
  if (m_state == nullptr) throw MeshError("an empty DeviceMesh: expected one made by init_device_mesh");
  return m_state->layout;
}

runtime::Context& DeviceMesh::context() const {
  layout_ptr();
  return *m_state->context;
}

Session& DeviceMesh::session() const {
  return context().dtensor_session();
}

uint32_t DeviceMesh::get_rank() const {
  return context().distributed.get_rank();
}

uint32_t DeviceMesh::member_rank() const {
  const uint32_t rank = get_rank();
  return layout().contains(rank) ? rank : layout().ranks().front();
}

uint32_t DeviceMesh::get_local_rank(const std::optional<MeshDim>& dim) const {
  return layout().local_rank(get_rank(), dim ? std::optional<uint32_t>(dim->in(layout())) : std::nullopt);
}

ProcessGroup DeviceMesh::get_group(const std::optional<MeshDim>& dim) const {
  const std::optional<uint32_t> index = dim ? std::optional<uint32_t>(dim->in(layout())) : std::nullopt;
  const RankList& ranks = layout().group(get_rank(), index);
  const auto& all = layout().groups(index.value_or(0));
  return m_state->groups[index.value_or(0)][static_cast<size_t>(&ranks - all.data())];
}

std::vector<ProcessGroup> DeviceMesh::get_all_groups() const {
  std::vector<ProcessGroup> out;
  for (uint32_t d = 0; d < ndim(); ++d) out.push_back(get_group(d));
  return out;
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& names) const {
  const MeshPtr part = layout().slice(names, member_rank());
  if (part == m_state->layout) return *this;
  auto state = make_state(context(), part);
  state->root = m_state->root != nullptr ? m_state->root : m_state;
  return DeviceMesh(std::move(state));
}

DeviceMesh DeviceMesh::flatten(const std::string& name) const {
  const std::vector<std::string>& own = layout().names();
  if (own.empty()) throw MeshError(fmt::format("flattening mesh {}: it has no dimension names", to_string()));
  const auto root = m_state->root != nullptr ? m_state->root : m_state;
  // One group per remaining coordinate of the whole mesh, asked for in one order by everybody.
  for (const uint32_t rank : root->layout->ranks()) {
    session().flattened_group(root->layout->flatten(own, rank, name)->ranks());
  }
  auto state = make_state(context(), root->layout->flatten(own, member_rank(), name));
  state->root = root;
  return DeviceMesh(std::move(state));
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  return a.m_state == b.m_state || (a.m_state != nullptr && b.m_state != nullptr &&
                                    a.m_state->context == b.m_state->context && a.layout() == b.layout());
}

}  // namespace ahbm::dtensor
