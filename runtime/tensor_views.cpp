// Views of tensors, and copies between tensors of any strides and layouts inside their SIPs, made by the PEs.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/distributed/lane_plan.h"
#include "runtime/tensor.h"

namespace ahbm::runtime {

using distributed::BlockCut;
using distributed::CopyList;
using distributed::Laid;
using distributed::Side;

namespace {

/// From one tensor to another, element by element in their order.
struct Copier {
  Laid to, from;
  const TensorHandle &dst, &src;
  Side target = Side::cut(to, BlockCut::whole(to.elements())),
       source = Side::cut(from, BlockCut::whole(from.elements()));

  /// The copies into one cube, read from the same cube where `from` is whole on every cube.
  CopyList into(SipId sip, CubeId cube) const {
    const uint64_t item = item_bytes(to.layout->dtype());
    const uint32_t pes = to.layout->replicated_over_pes() ? to.layout->pes() : 1;
    CopyList out(item, item);
    for (uint32_t pe = 0; pe < pes; ++pe) {
      const Addr base = pes > 1 ? dst.shard(sip, cube, PeId{pe}).address : dst.cube_buffer(sip, cube);
      uint64_t element = 0;
      target.for_each_piece({0, 0, to.elements()}, [&](const Side::Piece& piece) {
        const uint64_t first = element;
        element += piece.count;
        if (!to.on_every_cube() && piece.cube != value(cube)) return;
        Addr at = base + piece.offset * item;
        source.for_each_piece({0, first, piece.count}, [&](const Side::Piece& read) {
          const bool here = from.on_every_cube() && value(cube) < from.layout->cubes();
          out.add(src.cube_buffer(sip, here ? cube : CubeId{read.cube}) + read.offset * item, at, read.count);
          at += read.count * item;
        });
      });
    }
    return out;
  }
};

}  // namespace

std::string describe(const Tensor& t) {
  std::string text = layout::to_string(t.shape()) + " " + to_string(t.dtype());
  if (t.is_view()) text += ", " + layout::to_string(*t.strided_view());
  return text;
}

bool share_memory(const Tensor& a, const Tensor& b) {
  if (a.handle() != b.handle() || a.elements() == 0 || b.elements() == 0) return false;
  if (!a.is_view() || !b.is_view()) return true;
  return layout::overlap(*a.strided_view(), *b.strided_view());
}

bool same_memory(const Tensor& a, const Tensor& b) {
  if (a.handle() != b.handle() || a.storage_offset() != b.storage_offset()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return a.elements() == b.elements();
  return a.shape() == b.shape() && a.strides() == b.strides();
}

Tensor Tensor::seen(layout::StridedView view) const {
  Tensor out(view.shape(), m_dtype, m_policy, m_handle);
  const Shape& whole = m_handle != nullptr ? m_handle->layout().shape() : m_shape;
  const bool all = view.is_contiguous() && view.offset() == 0 && view.elements() == layout::element_count(whole);
  if (all && view.shape() == m_shape && !is_view()) return *this;
  if (all && view.shape() == whole) return out;
  out.m_view = std::make_shared<layout::StridedView>(std::move(view));
  return out;
}

/// Not filled, on some SIPs of its own.
Tensor Tensor::dense_like(const std::vector<SipId>& sips) const {
  TensorHandle& handle = checked_handle();
  Device& device = handle.device();
  const layout::Layout& l = handle.layout();
  const DeviceShard& first = handle.shards().front();
  std::shared_ptr<TensorHandle> made;
  if (handle.on_one_pe()) {
    made = std::make_shared<TensorHandle>(device, layout::Layout(m_shape, m_dtype, l.policy(), 1, 1),
                                          PeLocation{first.sip, first.cube, first.pe});
  } else {
    const SystemConfig& config = device.config();
    made = std::make_shared<TensorHandle>(
        device, layout::Layout(m_shape, m_dtype, l.policy(), config.cubes(), config.pes), sips);
  }
  made->same_context(handle);
  return Tensor(m_shape, m_dtype, l.policy(), std::move(made));
}

Tensor Tensor::contiguous() const {
  if (!is_view()) return *this;
  const Tensor out = dense_like(checked_handle().sips());
  out.copy_elements(*this, out.handle()->sips());
  return out;
}

void Tensor::copy_(const Tensor& source) const {
  const std::vector<SipId>& sips = checked_handle().sips();
  if (source.shape() != m_shape || source.dtype() != m_dtype || source.checked_handle().sips() != sips) {
    throw std::invalid_argument(fmt::format(
        "copy_ of {} ({}) into {} ({}): expected the same shape and dtype, on the "
        "same SIPs",
        describe(source), layout::to_string(source.policy()), describe(*this), layout::to_string(policy())));
  }
  if (same_memory(*this, source)) return;
  if (share_memory(*this, source)) {
    throw std::runtime_error(fmt::format("copy_: {} and {} share their memory", describe(source), describe(*this)));
  }
  copy_elements(source, sips);
}

void Tensor::copy_elements(const Tensor& source, const std::vector<SipId>& sips) const {
  TensorHandle &dst = checked_handle(), &src = source.checked_handle();
  Device& device = dst.device();
  device.check_thread("a copy of a strided tensor");
  if (m_view != nullptr && m_view->overlaps_itself()) {
    throw std::runtime_error(fmt::format("{} shows elements more than once and cannot be written", describe(*this)));
  }
  const layout::Layout &l = dst.layout(), &read = src.layout();
  if (l.partial_over_cubes() != read.partial_over_cubes() && std::max(l.occupied_cubes(), read.occupied_cubes()) > 1) {
    throw std::runtime_error(fmt::format(
        "copy of {} ({}) into {} ({}): expected both or none to be partial over cubes; "
        "all_reduce the partial one first",
        describe(source), layout::to_string(read.policy()), describe(*this), layout::to_string(l.policy())));
  }
  for (TensorHandle* handle : {&dst, &src}) {
    handle->wait_pending();
    handle->wait_collectives();
  }
  if (elements() == 0) return;
  const Copier copier{{l, m_shape, m_view.get()}, {read, source.m_shape, source.m_view.get()}, dst, src};
  std::vector<LaunchRequest> rounds;  // one after another on each PE
  for (const SipId sip : sips) {
    for (uint32_t c = 0; c < l.cubes(); ++c) {
      if (l.cube_elements(CubeId{c}) == 0) continue;
      size_t round = 0;
      for (std::vector<uint64_t>& args : copier.into(sip, CubeId{c}).arguments(m_dtype, m_dtype)) {
        if (rounds.size() == round) {
          rounds.emplace_back();
          rounds.back().kernel = "copy_blocks";
          rounds.back().keep_alive = {m_handle, source.m_handle};
        }
        const DeviceShard& place = dst.shard(sip, CubeId{c}, PeId{0});
        PeLaunch pe;
        pe.pe = {place.sip, place.cube, place.pe};
        pe.args = std::move(args);
        rounds[round++].pes.push_back(std::move(pe));
      }
    }
  }
  if (rounds.empty()) return;
  const std::vector<Launch> launches = device.launch_all(std::move(rounds), [&](const std::vector<Launch>& ready) {
    for (const Launch& launch : ready) {
      dst.add_pending(launch);
      src.add_pending(launch);
    }
  });
  for (const Launch& launch : launches) device.wait(launch, "a copy of a strided tensor");
}

}  // namespace ahbm::runtime
