// An own TLM memory on the spare socket of a cube, and a kernel that reads it.
#include <tlm_utils/simple_target_socket.h>

#include <cstdio>
#include <cstring>
#include <systemc>
#include <tlm>
#include <vector>

#include "models/core/config/load_config.h"
#include "models/system/system.h"
#include "runtime/context.h"

using namespace ahbm;

// [memory]
// Any TLM-2.0 target will do. Addresses are global; `delay` is when the last byte of the request is here.
class TableMemory : public sc_core::sc_module {
 public:
  TableMemory(const sc_core::sc_module_name& name, Addr base, uint64_t bytes)
      : sc_core::sc_module(name), in("in"), m_base(base), m_bytes(bytes) {
    in.register_b_transport(this, &TableMemory::b_transport);
  }
  tlm_utils::simple_target_socket<TableMemory> in;
  uint64_t reads = 0;

  float* words() { return reinterpret_cast<float*>(m_bytes.data()); }

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) {
    const uint64_t offset = trans.get_address() - m_base;
    const uint64_t n = trans.get_data_length();
    if (offset >= m_bytes.size() || n > m_bytes.size() - offset) {
      trans.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
      return;
    }
    if (!trans.is_read()) {  // a read-only memory
      trans.set_response_status(tlm::TLM_COMMAND_ERROR_RESPONSE);
      return;
    }
    std::memcpy(trans.get_data_ptr(), m_bytes.data() + offset, n);
    ++reads;
    delay += sc_core::sc_time(40, sc_core::SC_NS);
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
  }

  const Addr m_base;
  std::vector<uint8_t> m_bytes;
};
// [memory]

// [kernel]
// Arguments: own buffer, table, number of elements.
void add_table(tl::Tl& tl, const tl::Args& args) {
  const uint64_t n = args.u64(2);
  const tl::Tile table = tl.load(args.address(1), n, DType::Float32);
  tl.store(args.address(0), tl.add(tl.load(args.address(0), n, DType::Float32), table));
}
// [kernel]

int sc_main(int, char**) {
  constexpr uint64_t kElements = 1000;
  // [platform]
  const SystemConfig config = load_system_config(PLATFORMS "/tiny.yaml");
  tl::KernelRegistry kernels;
  kernels.add("add_table", add_table);
  models::System system("system", config, kernels);

  // Behind the last PE window of a cube there is a hole; what falls into holes goes to the cube's spare socket.
  const Addr base = cube_base(SipId{0}, CubeId{0}) + 0x380000000;
  TableMemory table("table", base, kElements * sizeof(float));
  for (uint64_t i = 0; i < kElements; ++i) table.words()[i] = 0.5f * static_cast<float>(i);
  system.sip(SipId{0}).cube(CubeId{0}).spare_out.bind(table.in);

  runtime::Device device(system);
  runtime::Context context(device);
  // [platform]

  // [run]
  uint64_t wrong = 0;
  double microseconds = 0;
  runtime::Driver driver([&] {
    runtime::DPPolicy one_pe;
    one_pe.num_cubes = one_pe.num_pes = 1;
    const runtime::Tensor x = context.ones({kElements}, DType::Float32, one_pe);
    const runtime::Launch launch = context.launch("add_table", {x, base, kElements});
    context.wait(launch);
    microseconds = static_cast<double>(launch->last_arrived() - launch->first_sent()) / 1e6;
    const std::vector<float> result = x.to_host<float>();
    for (uint64_t i = 0; i < kElements; ++i) wrong += result[i] != 1.0f + 0.5f * static_cast<float>(i);
  });
  sc_core::sc_start();
  driver.check();
  // [run]
  std::printf("own_memory: %llu wrong, %.3f us, %llu reads of the own memory\n", static_cast<unsigned long long>(wrong),
              microseconds, static_cast<unsigned long long>(table.reads));
  return wrong == 0 && table.reads > 0 ? 0 : 1;
}
