// A tensor on the machine: shape, dtype, policy and a handle to its shards. Copies of a Tensor share the handle, and so
// do its views; the memory is freed with the last of them, not before the launches that use it have completed.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "models/core/dtype.h"
#include "runtime/device.h"
#include "runtime/layout/dp_policy.h"
#include "runtime/layout/strided_view.h"

namespace ahbm::runtime {

using layout::CubePolicy;
using layout::DPPolicy;
using layout::PePolicy;
using layout::Shape;
using layout::SipScope;

/// A shard in memory. PEs of one cube have theirs back to back, in PE order.
struct DeviceShard {
  SipId sip{};
  CubeId cube{};
  PeId pe{};
  Addr address = 0;
  uint64_t bytes = 0;
};

class Context;

class TensorHandle {
 public:
  /// Allocates every cube's buffer on every SIP of `sips`. \throws std::runtime_error when out of memory
  TensorHandle(Device& device, layout::Layout layout, std::vector<SipId> sips);
  /// On one PE. \pre the layout has one cube with one PE
  TensorHandle(Device& device, layout::Layout layout, const PeLocation& pe);
  /// A handle that holds nothing.
  explicit TensorHandle(Device& device);
  ~TensorHandle();
  TensorHandle(const TensorHandle&) = delete;
  TensorHandle& operator=(const TensorHandle&) = delete;

  Device& device() const;  ///< \throws std::runtime_error when it is gone
  /// The context that made the tensor. \throws std::runtime_error when there is none any more
  Context& context() const;
  void set_context(std::weak_ptr<Context*> context) { m_context = std::move(context); }
  void same_context(const TensorHandle& other) { m_context = other.m_context; }
  bool on_one_pe() const { return m_on_one_pe; }  ///< made for one, whichever that is
  const layout::Layout& layout() const { return *m_layout; }
  const std::vector<SipId>& sips() const { return m_sips; }
  const std::vector<DeviceShard>& shards() const { return m_shards; }
  bool on(SipId sip) const;
  /// Start of a cube's buffer; 0 when it is empty.
  Addr cube_buffer(SipId sip, CubeId cube) const;
  const DeviceShard& shard(SipId sip, CubeId cube, PeId pe) const;

  /// Launches that use this tensor and may not have completed. Transfers and collectives wait for them first.
  void add_pending(const Launch& launch);
  void wait_pending();
  /// The same for launches in which PEs read shards that are not their own: whoever changes the tensor waits for them.
  void add_reader(const Launch& launch);
  void wait_readers();
  /// Launches in which a PE writes shards that are not its own: whoever reads or changes the tensor waits for them.
  void add_writer(const Launch& launch);
  void wait_writers();
  /// Collectives under way on this tensor. Later ones that read other cubes' parts wait for their end; whether they
  /// failed is told elsewhere.
  void add_collective(const Launch& launch);
  void wait_collectives();
  /// After an all_reduce every cube of a partial tensor holds the whole sum.
  void become_replicated();

 private:
  size_t find_sip(SipId sip) const;   ///< index in `m_sips`; their number when it is not there
  size_t sip_index(SipId sip) const;  ///< \throws std::out_of_range when it is not there

  std::weak_ptr<Device*> m_device;
  std::weak_ptr<Context*> m_context;
  std::unique_ptr<layout::Layout> m_layout;
  std::vector<SipId> m_sips;
  bool m_on_one_pe = false;
  std::vector<DeviceShard> m_shards;  ///< SIP-major, as layout().shards() inside
  std::vector<Addr> m_cube_buffers;   ///< SIP-major
  std::vector<Launch> m_pending;
  std::vector<Launch> m_readers;
  std::vector<Launch> m_writers;
  std::vector<Launch> m_collectives;  ///< and some that have completed
};

/// The element type of C++ that stands for a dtype on the host; fp16 and bf16 travel as raw uint16_t.
template <typename T>
bool host_type_fits(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return std::is_same_v<T, float>;
    case DType::Float16:
    case DType::BFloat16:
      return std::is_same_v<T, uint16_t>;
    case DType::Int32:
      return std::is_same_v<T, int32_t>;
    case DType::Int8:
      return std::is_same_v<T, int8_t>;
    case DType::UInt8:
    case DType::Bool:
      return std::is_same_v<T, uint8_t>;
    case DType::Int64:
      return std::is_same_v<T, int64_t>;
  }
  return false;
}

class Tensor {
 public:
  /// Shape () with nothing deployed.
  Tensor() = default;
  /// Not deployed: there is no memory behind it yet. Contexts make deployed ones.
  Tensor(Shape shape, DType dtype, DPPolicy policy = {}, std::shared_ptr<TensorHandle> handle = nullptr);

  const Shape& shape() const { return m_shape; }
  DType dtype() const { return m_dtype; }
  DPPolicy policy() const;  ///< of the handle where there is one
  uint64_t elements() const { return layout::element_count(m_shape); }
  uint64_t bytes() const { return elements() * item_bytes(m_dtype); }
  bool deployed() const { return m_handle != nullptr; }
  const std::shared_ptr<TensorHandle>& handle() const { return m_handle; }
  /// \throws std::runtime_error `not deployed` / `no shards`
  TensorHandle& checked_handle() const;

  // --- views: other sizes and strides over the elements of the logical tensor, in the same memory. Any layout will do:
  // the elements stay on the cubes and PEs where they are. Arguments as PyTorch's, \throws std::invalid_argument for
  // wrong ones. Collectives, to_host, upload and copy_ take views; operators work on a `contiguous` copy.
  Tensor narrow(int64_t dim, int64_t start, uint64_t length) const {
    return seen(base_view().narrow(dim, start, length));
  }
  Tensor select(int64_t dim, int64_t index) const { return seen(base_view().select(dim, index)); }
  /// Every `step`-th index of [start, end).
  Tensor slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1) const {
    return seen(base_view().slice(dim, start, end, step));
  }
  Tensor transpose(int64_t a, int64_t b) const { return seen(base_view().transpose(a, b)); }
  Tensor permute(const std::vector<int64_t>& dims) const { return seen(base_view().permute(dims)); }
  Tensor expand(const Shape& shape) const { return seen(base_view().expand(shape)); }
  bool is_view() const { return m_view != nullptr; }                        ///< and not all of its tensor in its order
  const layout::StridedView* strided_view() const { return m_view.get(); }  ///< null when it is none
  std::vector<uint64_t> strides() const { return base_view().strides(); }   ///< in elements of the logical tensor
  uint64_t storage_offset() const { return base_view().offset(); }
  bool is_contiguous() const { return base_view().is_contiguous(); }
  /// The same elements in a tensor of their own under the same policy, copied by PEs; itself when it is no view.
  Tensor contiguous() const;
  /// Replaces the elements by those of a tensor of the same shape, dtype and SIPs, copied by the PEs that hold them.
  /// Returns when that is done. \throws std::invalid_argument when they differ, std::runtime_error when they overlap
  void copy_(const Tensor& source) const;

  /// The logical tensor of one SIP (default: the tensor's first), row-major. Of copies it is copy 0.
  /// \throws std::runtime_error for a partial tensor (see piece_bytes)
  std::vector<uint8_t> to_host_bytes() const;
  std::vector<uint8_t> to_host_bytes(SipId sip) const;
  template <typename T>
  std::vector<T> to_host() const {
    return as<T>(to_host_bytes());
  }
  template <typename T>
  std::vector<T> to_host(SipId sip) const {
    return as<T>(to_host_bytes(sip));
  }
  /// What one cube holds of a replicated or partial tensor, in logical order (for copies on PEs: PE `pe`'s).
  std::vector<uint8_t> piece_bytes(SipId sip, CubeId cube, PeId pe = PeId{0}) const;
  template <typename T>
  std::vector<T> piece(SipId sip, CubeId cube, PeId pe = PeId{0}) const {
    return as<T>(piece_bytes(sip, cube, pe));
  }

  /// Replaces the contents on every SIP that holds it. `data` is the logical tensor; of a partial tensor the pieces of
  /// the cubes one after another, as a tensor of shape (cubes, *shape).
  /// \throws std::invalid_argument when `bytes` is another size. Null is fine when the simulation is not functional.
  void upload(const void* data, uint64_t bytes) const;
  void upload(SipId sip, const void* data, uint64_t bytes) const;
  template <typename T>
  void upload(const std::vector<T>& data) const {
    check_type<T>();
    upload(data.data(), data.size() * sizeof(T));
  }
  template <typename T>
  void upload(SipId sip, const std::vector<T>& data) const {
    check_type<T>();
    upload(sip, data.data(), data.size() * sizeof(T));
  }
  /// Bytes that `upload` takes.
  uint64_t host_bytes() const;

 private:
  /// As a view, whether it is one or not.
  layout::StridedView base_view() const { return m_view ? *m_view : layout::StridedView(m_shape); }
  /// The tensor behind it through `view`.
  Tensor seen(layout::StridedView view) const;
  Tensor dense_like(const std::vector<SipId>& sips) const;
  void copy_elements(const Tensor& source, const std::vector<SipId>& sips) const;

  template <typename T>
  void check_type() const {
    if (!host_type_fits<T>(m_dtype)) {
      throw std::invalid_argument(std::string("tensor of dtype ") + to_string(m_dtype) +
                                  ": the host type does not match (fp16 and bf16 are uint16_t, bool is uint8_t)");
    }
  }
  template <typename T>
  std::vector<T> as(const std::vector<uint8_t>& bytes) const {
    check_type<T>();
    std::vector<T> out(bytes.size() / sizeof(T));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(out.data()));
    return out;
  }

  Shape m_shape;
  DType m_dtype = DType::Float32;
  DPPolicy m_policy;
  std::shared_ptr<TensorHandle> m_handle;
  std::shared_ptr<const layout::StridedView> m_view;
};

/// For messages: `(2, 3) float`, `(2, 3) float, strides (8, 2) from 1`.
std::string describe(const Tensor& tensor);
/// Whether they have elements in common.
bool share_memory(const Tensor& a, const Tensor& b);
/// Whether they are the same elements in the same order.
bool same_memory(const Tensor& a, const Tensor& b);

}  // namespace ahbm::runtime
