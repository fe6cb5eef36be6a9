#include <fmt/format.h>

#include <algorithm>

#include "runtime/ops/internal.h"

namespace ahbm::runtime::ops {

Dims to_dims(const Shape& shape) {
  return Dims(shape.begin(), shape.end());
}
Shape to_shape(const Dims& dims) {
  return Shape(dims.begin(), dims.end());
}
int64_t count(const Dims& extent) {
  int64_t n = 1;
  for (const int64_t e : extent) n *= e;
  return n;
}

Placed::Placed(Context& context, const Tensor& t) : m_tensor(t), m_shape(to_dims(t.shape())) {
  if (m_shape.empty()) m_shape.push_back(1);
  for (size_t d = 1; d < m_shape.size(); ++d) m_row_elements *= m_shape[d];
  if (t.is_view()) {
    throw std::invalid_argument(fmt::format("{} is a view: expected contiguous() of it here", describe(t)));
  }
  const TensorHandle& handle = t.checked_handle();
  m_sip = SipId{context.current_device()};
  if (!handle.on(m_sip)) {
    throw std::invalid_argument(fmt::format("tensor {} lies on sip{}, expected sip{}, this thread's",
                                            layout::to_string(t.shape()), value(handle.sips().front()), value(m_sip)));
  }
  m_layout = &handle.layout();
  if (m_layout->shape() != t.shape()) {
    m_own_layout = std::make_shared<layout::Layout>(t.shape(), t.dtype(), m_layout->policy(), context.config().cubes(),
                                                    context.config().pes);
    m_layout = m_own_layout.get();
  }
  if (m_layout->partial_over_cubes() && m_layout->cubes() > 1) {
    throw std::invalid_argument(fmt::format("tensor {} holds partial sums on {} cubes: all_reduce it first",
                                            layout::to_string(t.shape()), m_layout->cubes()));
  }
}

Placed Placed::flat(Context& context, const Tensor& t) {
  Placed p(context, t);
  p.m_flattened = p.m_row_elements;
  p.m_row_elements = 1;
  p.m_shape = {static_cast<int64_t>(t.elements())};
  return p;
}

Region Placed::region(const Range& rows, const Range& cols, Addr address) const {
  Region r{Dims(m_shape.size(), 0), m_shape, address};
  r.begin[0] = static_cast<int64_t>(rows.begin) * m_flattened;
  r.extent[0] = static_cast<int64_t>(rows.count) * m_flattened;
  if (m_shape.size() > 1) {
    r.begin.back() = static_cast<int64_t>(cols.begin);
    r.extent.back() = static_cast<int64_t>(cols.count);
  }
  return r;
}

Region Placed::own(CubeId cube, PeId pe) const {
  if (value(cube) >= m_layout->cubes() || value(pe) >= m_layout->pes()) return region({}, {}, 0);
  const layout::Shard& s = m_layout->shard(cube, pe);
  if (s.elements == 0) return region({}, {}, 0);
  return region(s.rows, s.cols, m_tensor.handle()->shard(m_sip, cube, pe).address);
}

bool Placed::by_rows() const {
  if (m_shape.size() == 1) return true;
  const DPPolicy& p = m_layout->policy();
  return p.cube != CubePolicy::ColumnWise && p.pe != PePolicy::ColumnWise;
}

bool Placed::same_for_all() const {
  return !m_layout->replicated_over_cubes() && !m_layout->replicated_over_pes();
}

void Placed::append_cube(std::vector<Region>& out, CubeId cube, std::optional<PeId> pe) const {
  const layout::Layout& l = *m_layout;
  if (l.cube_elements(cube) == 0) return;
  if (l.replicated_over_pes() && pe) {
    out.push_back(own(cube, PeId{value(*pe) % l.pes()}));
  } else if (!l.replicated_over_pes() && (l.policy().pe == PePolicy::RowWise || m_shape.size() == 1)) {
    // PEs of a cube have their rows back to back.
    Range rows = l.shard(cube, PeId{0}).rows;
    rows.count = 0;
    for (uint32_t p = 0; p < l.pes(); ++p) rows.count += l.shard(cube, PeId{p}).rows.count;
    out.push_back(region(rows, l.shard(cube, PeId{0}).cols, m_tensor.handle()->cube_buffer(m_sip, cube)));
  } else {
    for (uint32_t p = 0; p < l.pes(); ++p) {
      if (l.shard(cube, PeId{p}).elements != 0) out.push_back(own(cube, PeId{p}));
    }
  }
}

std::vector<Region> Placed::blocks(CubeId cube, PeId pe) const {
  std::vector<Region> out;
  const layout::Layout& l = *m_layout;
  const bool one_cube = l.replicated_over_cubes() || l.partial_over_cubes();
  const uint32_t first = one_cube ? value(cube) % l.cubes() : 0;
  const uint32_t last = one_cube ? first + 1 : l.cubes();
  for (uint32_t c = first; c < last; ++c) append_cube(out, CubeId{c}, pe);
  return out;
}

std::vector<Region> Placed::all_blocks() const {
  std::vector<Region> out;
  for (uint32_t c = 0; c < m_layout->cubes(); ++c) append_cube(out, CubeId{c}, std::nullopt);
  return out;
}

bool Placed::is_own(CubeId cube, PeId pe, Addr address, uint64_t bytes) const {
  if (value(cube) >= m_layout->cubes() || value(pe) >= m_layout->pes()) return false;
  const DeviceShard& s = m_tensor.handle()->shard(m_sip, cube, pe);
  return address >= s.address && address + bytes <= s.address + s.bytes;
}

void KernelLaunch::reads(const Tensor& t, bool elsewhere) {
  if (elsewhere) {
    // Its parts come from queues of other PEs than those that read them.
    t.handle()->wait_pending();
    t.handle()->wait_collectives();
  }
  t.handle()->wait_writers();
  m_uses.push_back({t, elsewhere, false});
}

void KernelLaunch::writes(const Tensor& t, bool fresh) {
  if (!fresh) {
    t.handle()->wait_readers();
    t.handle()->wait_writers();
  }
  m_uses.push_back({t, false, false});
}

void KernelLaunch::writes_elsewhere(const Tensor& t) {
  t.handle()->wait_pending();
  t.handle()->wait_collectives();
  m_uses.push_back({t, false, true});
}

void KernelLaunch::run() {
  if (m_pes.empty()) return;
  LaunchRequest request;
  request.kernel = m_kernel;
  request.pes = std::move(m_pes);
  for (const Use& use : m_uses) request.keep_alive.push_back(use.tensor.handle());
  const Launch launch = m_context.launch_each(std::move(request));
  for (const Use& use : m_uses) {
    use.tensor.handle()->add_pending(launch);
    if (use.read_elsewhere) use.tensor.handle()->add_reader(launch);
    if (use.written_elsewhere) use.tensor.handle()->add_writer(launch);
  }
}

}  // namespace ahbm::runtime::ops
