#include "ccl/algorithms/lanes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "models/core/ipcq_protocol.h"

namespace ahbm::ccl {

using tl::Dir;

SlabPlan::SlabPlan(const tl::Tl& tl, DType dtype, uint64_t longest, uint32_t share, const std::vector<Dir>& dirs,
                   uint32_t message_bytes) {
  uint64_t slots = std::numeric_limits<uint32_t>::max(), slot_bytes = slots;
  for (const Dir dir : dirs) {
    const tl::Peer peer = tl.peer(dir);
    slots = std::min<uint64_t>(slots, peer.n_slots);
    slot_bytes = std::min<uint64_t>(slot_bytes, peer.slot_bytes);
  }
  if (message_bytes != 0) {
    slot_bytes = std::min<uint64_t>(slot_bytes, ipcq::kHeaderBytes + message_bytes);
    // Slots differ in size or number: a slab of one message is the same for every rank.
    slots = std::min<uint64_t>(slots, 2);
  }
  message_elems = std::max<uint64_t>(1, ipcq::payload_capacity(slot_bytes) / item_bytes(dtype));
  slab_elems = message_elems * std::max<uint64_t>(1, (slots - 1) / share);
  slabs = ceil_div(longest, slab_elems);
  store_first = slots <= share;
}

Range SlabPlan::cut(const Range& chunk, uint64_t slab) const {
  const uint64_t begin = std::min(chunk.count, slab * slab_elems);
  return {chunk.begin + begin, std::min(chunk.count - begin, slab_elems)};
}

namespace {
void store_and_forward(tl::Tl& tl, tl::Move move) {
  tl::Move send = move;
  move.to = {};
  tl.wait(tl.submit(move));
  send.from = {};
  send.local = std::exchange(send.store, 0);
  tl.submit(send);
}
}  // namespace

void submit_steps(tl::Tl& tl, const StepSource& next) {
  Step step;
  for (bool more = true; more;) {
    tl.submit_all([&]() -> const tl::Move* {
      do {
        more = next(step);
      } while (more && step.move.count == 0);  // the operands of no elements need not exist
      return more && !step.store_first ? &step.move : nullptr;
    });
    if (more) store_and_forward(tl, step.move);
  }
}

}  // namespace ahbm::ccl
