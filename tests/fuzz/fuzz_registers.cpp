// Register traffic: a sequence of accesses, 16 bytes each, on one of the four blocks. Illegal ones change nothing,
// read-only fields keep their values, and reads have no side effects (no field of these blocks is read-to-clear).
#include <cstring>
#include <vector>

#include "ahbm/registers/cube.h"
#include "ahbm/registers/doorbell.h"
#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/registers/register_block.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace ahbm;

std::vector<uint64_t> values(const RegisterBlock& block, const BlockLayout& layout) {
  std::vector<uint64_t> out;
  for (RegIndex i = 0; i < layout.count; ++i) out.push_back(block.get(i));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const BlockLayout* layouts[] = {&regs::pe::kLayout, &regs::qp::kLayout, &regs::cube::kLayout,
                                  &regs::doorbell::kLayout};
  const BlockLayout& layout = *layouts[data[0] % 4];
  RegisterBlock block(layout);
  const std::vector<uint64_t> reset = values(block, layout);
  for (size_t at = 1; at + 16 <= size; at += 16) {
    const uint8_t* p = data + at;
    uint8_t buffer[64] = {}, enables[8];
    std::memcpy(buffer, p + 8, 8);
    std::memcpy(enables, p + 8, 8);
    for (uint8_t& e : enables) e = (e & 1) != 0 ? 0xFF : 0x00;
    RegAccessRequest q;
    q.write = (p[0] & 1) != 0;
    q.offset = (p[1] | p[2] << 8) & ((p[0] & 2) != 0 ? 0xFF : 0xFFFF);
    q.data = buffer;
    q.length = p[3] % 65;
    q.streaming_width = (p[0] & 4) != 0 ? q.length : p[4] % 65;
    if ((p[0] & 8) != 0) {
      q.byte_enables = enables;
      q.byte_enable_length = p[5] % 9;
    }
    q.now = p[6];
    const auto before = values(block, layout);
    const RegStatus status = block.access(q);
    const auto after = values(block, layout);
    if ((status != RegStatus::Ok || !q.write) && after != before)
      fuzz::broken("a refused access or a read changed a register");
    for (size_t i = 0; i < after.size(); ++i) {
      const RegisterLayout& r = layout.registers[i];
      const uint64_t fixed = r.field_mask & ~r.writable;
      if ((after[i] & fixed) != (reset[i] & fixed)) fuzz::broken("a read-only field changed");
      if ((after[i] & ~r.field_mask) != 0) fuzz::broken("a bit outside all fields is set");
    }
  }
  return 0;
}
