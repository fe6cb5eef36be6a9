#include "runtime/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ahbm::runtime {

namespace {

void add(std::vector<Launch>& launches, const Launch& launch) {
  launches.erase(
      std::remove_if(launches.begin(), launches.end(), [](const Launch& l) { return l->completed() && !l->failed(); }),
      launches.end());
  launches.push_back(launch);
}

void wait_all(Device& device, std::vector<Launch>& launches) {
  while (!launches.empty()) {
    const Launch launch = launches.back();
    launches.pop_back();
    device.wait(launch);
  }
}

}  // namespace

TensorHandle::TensorHandle(Device& device, layout::Layout layout, std::vector<SipId> sips)
    : m_device(device.weak()), m_layout(std::make_unique<layout::Layout>(std::move(layout))), m_sips(std::move(sips)) {
  const layout::Layout& l = *m_layout;
  const uint64_t item = item_bytes(l.dtype());
  m_cube_buffers.reserve(m_sips.size() * l.cubes());
  try {
    for (const SipId sip : m_sips) {
      for (uint32_t c = 0; c < l.cubes(); ++c) {
        const uint64_t bytes = l.cube_elements(CubeId{c}) * item;
        m_cube_buffers.push_back(bytes == 0 ? 0 : device.allocate(sip, CubeId{c}, bytes));
      }
    }
  } catch (...) {
    for (const Addr buffer : m_cube_buffers) {
      if (buffer != 0) device.free(buffer);
    }
    throw;
  }
  m_shards.reserve(m_sips.size() * l.shards().size());
  for (size_t s = 0; s < m_sips.size(); ++s) {
    for (const layout::Shard& shard : l.shards()) {
      const Addr buffer = m_cube_buffers[s * l.cubes() + value(shard.cube)];
      m_shards.push_back({m_sips[s], shard.cube, shard.pe, shard.elements == 0 ? 0 : buffer + shard.offset * item,
                          shard.elements * item});
    }
  }
}

TensorHandle::TensorHandle(Device& device, layout::Layout layout, const PeLocation& pe)
    : m_device(device.weak()),
      m_layout(std::make_unique<layout::Layout>(std::move(layout))),
      m_sips{pe.sip},
      m_on_one_pe(true) {
  const uint64_t bytes = m_layout->elements() * item_bytes(m_layout->dtype());
  m_cube_buffers.push_back(bytes == 0 ? 0 : device.allocate(pe.sip, pe.cube, bytes));
  m_shards.push_back({pe.sip, pe.cube, pe.pe, m_cube_buffers.front(), bytes});
}

TensorHandle::TensorHandle(Device& device)
    : m_device(device.weak()), m_layout(std::make_unique<layout::Layout>(Shape{0}, DType::Float32, DPPolicy{}, 1, 1)) {}

TensorHandle::~TensorHandle() {
  const auto device = m_device.lock();
  if (device == nullptr) return;  // the memory went with the machine
  for (const Addr buffer : m_cube_buffers) {
    if (buffer != 0) (*device)->free(buffer);
  }
}

Device& TensorHandle::device() const {
  const auto device = m_device.lock();
  if (device == nullptr) throw std::runtime_error("the tensor's device does not exist any more");
  return **device;
}

size_t TensorHandle::find_sip(SipId sip) const {
  // A tensor on all SIPs, which the driver makes, has them in their order.
  if (value(sip) < m_sips.size() && m_sips[value(sip)] == sip) return value(sip);
  return static_cast<size_t>(std::find(m_sips.begin(), m_sips.end(), sip) - m_sips.begin());
}

size_t TensorHandle::sip_index(SipId sip) const {
  const size_t index = find_sip(sip);
  if (index == m_sips.size()) throw std::out_of_range(fmt::format("the tensor has no shards on sip{}", value(sip)));
  return index;
}

bool TensorHandle::on(SipId sip) const {
  return find_sip(sip) != m_sips.size();
}

Addr TensorHandle::cube_buffer(SipId sip, CubeId cube) const {
  return m_cube_buffers.at(sip_index(sip) * m_layout->cubes() + value(cube));
}

Context& TensorHandle::context() const {
  const auto context = m_context.lock();
  if (context == nullptr) throw std::runtime_error("the tensor's context does not exist any more, or none made it");
  return **context;
}

const DeviceShard& TensorHandle::shard(SipId sip, CubeId cube, PeId pe) const {
  return m_shards.at((sip_index(sip) * m_layout->cubes() + value(cube)) * m_layout->pes() + value(pe));
}

void TensorHandle::add_pending(const Launch& launch) {
  add(m_pending, launch);
}

void TensorHandle::wait_pending() {
  wait_all(device(), m_pending);
}

void TensorHandle::add_reader(const Launch& launch) {
  add(m_readers, launch);
}

void TensorHandle::wait_readers() {
  wait_all(device(), m_readers);
}

void TensorHandle::add_writer(const Launch& launch) {
  add(m_writers, launch);
}

void TensorHandle::wait_writers() {
  wait_all(device(), m_writers);
}

void TensorHandle::add_collective(const Launch& launch) {
  add_in_flight(m_collectives, launch);
}

void TensorHandle::wait_collectives() {
  while (!m_collectives.empty()) {
    const Launch launch = m_collectives.back();
    m_collectives.pop_back();
    device().await(launch->changed(), [&] { return launch->completed(); },
                   {"a collective on the same tensor", {}, launch});
  }
}

void TensorHandle::become_replicated() {
  DPPolicy policy = m_layout->policy();
  if (policy.cube != CubePolicy::Partial) return;
  policy.cube = CubePolicy::Replicate;
  m_layout = std::make_unique<layout::Layout>(m_layout->shape(), m_layout->dtype(), policy, m_layout->cubes(),
                                              m_layout->pes());
}

// --- Tensor

Tensor::Tensor(Shape shape, DType dtype, DPPolicy policy, std::shared_ptr<TensorHandle> handle)
    : m_shape(std::move(shape)), m_dtype(dtype), m_policy(policy), m_handle(std::move(handle)) {}

DPPolicy Tensor::policy() const {
  return m_handle != nullptr && !m_handle->shards().empty() ? m_handle->layout().policy() : m_policy;
}

TensorHandle& Tensor::checked_handle() const {
  if (m_handle == nullptr) {
    throw std::runtime_error(fmt::format("tensor {} is not deployed: make it with a Context", describe(*this)));
  }
  if (m_handle->shards().empty()) {
    throw std::runtime_error(fmt::format("tensor {} has no shards on the machine", describe(*this)));
  }
  return *m_handle;
}

std::vector<uint8_t> Tensor::to_host_bytes() const {
  return to_host_bytes(checked_handle().sips().front());
}

std::vector<uint8_t> Tensor::to_host_bytes(SipId sip) const {
  if (is_view()) {
    const Tensor dense = dense_like({sip});
    dense.copy_elements(*this, {sip});
    return dense.to_host_bytes(sip);
  }
  TensorHandle& handle = checked_handle();
  const layout::Layout& l = handle.layout();
  if (l.partial_over_cubes() && l.cubes() > 1) {
    throw std::runtime_error(
        fmt::format("tensor {} holds partial sums on {} cubes: all_reduce it first, or read the cubes with piece()",
                    describe(*this), l.cubes()));
  }
  Device& device = handle.device();
  device.check_thread("to_host");
  handle.wait_pending();
  std::vector<uint8_t> out(bytes());
  std::vector<uint8_t> buffer;
  const uint64_t item = item_bytes(m_dtype);
  const uint32_t cubes = l.replicated_over_cubes() || l.partial_over_cubes() ? 1 : l.cubes();
  for (uint32_t c = 0; c < cubes; ++c) {
    const CubeId cube{c};
    const uint64_t n = l.cube_logical_elements(cube);
    if (n == 0) continue;
    buffer.resize(n * item);
    device.download(handle.cube_buffer(sip, cube), buffer.data(), buffer.size());
    const uint32_t pes = l.replicated_over_pes() ? 1 : l.pes();
    for (uint32_t p = 0; p < pes; ++p) {
      const layout::Shard& shard = l.shard(cube, PeId{p});
      l.unpack(shard, buffer.data() + shard.offset * item, out.data());
    }
  }
  return out;
}

std::vector<uint8_t> Tensor::piece_bytes(SipId sip, CubeId cube, PeId pe) const {
  TensorHandle& handle = checked_handle();
  const layout::Layout& l = handle.layout();
  if (is_view()) {
    const std::vector<uint8_t> all = Tensor(l.shape(), m_dtype, m_policy, m_handle).piece_bytes(sip, cube, pe);
    std::vector<uint8_t> out(bytes());
    m_view->for_each_run([&](uint64_t element, uint64_t base, uint64_t count) {
      const uint64_t item = item_bytes(m_dtype);
      std::memcpy(out.data() + element * item, all.data() + base * item, count * item);
    });
    return out;
  }
  if (!l.replicated_over_cubes() && !l.partial_over_cubes()) {
    throw std::runtime_error(
        fmt::format("piece() of tensor {}: its cubes hold shards ({}), not whole copies or summands", describe(*this),
                    layout::to_string(l.policy())));
  }
  if (value(cube) >= l.cubes() || value(pe) >= l.pes()) {
    throw std::out_of_range(fmt::format("piece(): the tensor lies on {} cubes and {} PEs, asked were cube {} and PE {}",
                                        l.cubes(), l.pes(), value(cube), value(pe)));
  }
  Device& device = handle.device();
  device.check_thread("piece");
  handle.wait_pending();
  std::vector<uint8_t> out(bytes());
  std::vector<uint8_t> buffer;
  const uint32_t first = l.replicated_over_pes() ? value(pe) : 0;
  const uint32_t last = l.replicated_over_pes() ? value(pe) + 1 : l.pes();
  for (uint32_t p = first; p < last; ++p) {
    const layout::Shard& shard = l.shard(cube, PeId{p});
    if (shard.elements == 0) continue;
    const DeviceShard& place = handle.shard(sip, cube, PeId{p});
    buffer.resize(place.bytes);
    device.download(place.address, buffer.data(), place.bytes);
    l.unpack(shard, buffer.data(), out.data());
  }
  return out;
}

uint64_t Tensor::host_bytes() const {
  const layout::Layout& l = checked_handle().layout();
  return bytes() * (l.partial_over_cubes() ? l.cubes() : 1);
}

void Tensor::upload(const void* data, uint64_t n_bytes) const {
  for (const SipId sip : checked_handle().sips()) upload(sip, data, n_bytes);
}

void Tensor::upload(SipId sip, const void* data, uint64_t n_bytes) const {
  TensorHandle& handle = checked_handle();
  const layout::Layout& l = handle.layout();
  if (n_bytes != host_bytes()) {
    throw std::invalid_argument(fmt::format("upload to tensor {} ({}): {} bytes given, expected {}", describe(*this),
                                            layout::to_string(l.policy()), n_bytes, host_bytes()));
  }
  if (is_view()) {
    const Tensor dense = dense_like({sip});
    dense.upload(sip, data, n_bytes);
    copy_elements(dense, {sip});
    return;
  }
  Device& device = handle.device();
  device.check_thread("upload");
  const bool functional = device.config().simulation.functional;
  if (functional && data == nullptr && n_bytes > 0) {
    throw std::invalid_argument("upload: null data with a functional simulation");
  }
  handle.wait_pending();
  const uint64_t item = item_bytes(m_dtype);
  std::vector<uint8_t> buffer;
  for (uint32_t c = 0; c < l.cubes(); ++c) {
    const CubeId cube{c};
    const uint64_t cube_bytes = l.cube_elements(cube) * item;
    if (cube_bytes == 0) continue;
    const void* source = nullptr;
    if (functional && data != nullptr) {
      const auto* logical = static_cast<const uint8_t*>(data) + (l.partial_over_cubes() ? c * bytes() : 0);
      buffer.resize(cube_bytes);
      for (uint32_t p = 0; p < l.pes(); ++p) {
        const layout::Shard& shard = l.shard(cube, PeId{p});
        l.pack(shard, logical, buffer.data() + shard.offset * item);
      }
      source = buffer.data();
    }
    device.upload(handle.cube_buffer(sip, cube), source, cube_bytes);
  }
}

}  // namespace ahbm::runtime
