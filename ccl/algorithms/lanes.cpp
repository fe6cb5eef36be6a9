#include "ccl/algorithms/lanes.h"

#include <algorithm>
#include <utility>

#include "models/core/ipcq_protocol.h"

namespace ahbm::ccl {

using tl::Dir;

SlabPlan::SlabPlan(const tl::Tl& tl, DType dtype, uint64_t longest, uint32_t share) {
  const tl::Peer next = tl.peer(Dir::Next), prev = tl.peer(Dir::Prev);
  const uint64_t slots = std::min(next.n_slots, prev.n_slots);
  const uint64_t slot_bytes = std::min(next.slot_bytes, prev.slot_bytes);
  const uint64_t per_message = std::max<uint64_t>(1, ipcq::payload_capacity(slot_bytes) / item_bytes(dtype));
  slab_elems = per_message * std::max<uint64_t>(1, (slots - 1) / share);
  slabs = ceil_div(longest, slab_elems);
  store_first = slots <= share;
}

Range SlabPlan::cut(const Range& chunk, uint64_t slab) const {
  const uint64_t begin = std::min(chunk.count, slab * slab_elems);
  return {chunk.begin + begin, std::min(chunk.count - begin, slab_elems)};
}

void forward(tl::Tl& tl, tl::Move move, bool store_first) {
  if (!store_first) {
    tl.submit(move);
    return;
  }
  tl::Move send = move;
  move.to = {};
  tl.wait(tl.submit(move));
  send.from = {};
  send.local = std::exchange(send.store, 0);
  tl.submit(send);
}

}  // namespace ahbm::ccl
