// The machine without the runtime: an own TLM initiator sets up queue pairs through their registers, sends a message
// by its doorbell, takes it out at the other end, and launches a kernel, as firmware or RTL would.
#include <tlm_utils/simple_initiator_socket.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <systemc>
#include <tlm>
#include <vector>

#include "ahbm/registers/pe.h"
#include "ahbm/registers/qp.h"
#include "models/core/config/load_config.h"
#include "models/core/ipcq_protocol.h"
#include "models/core/launch.h"
#include "models/system/system.h"

using namespace ahbm;

// [initiator]
class Initiator : public sc_core::sc_module {
 public:
  explicit Initiator(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
  tlm_utils::simple_initiator_socket<Initiator> out;

  // One transaction; waits until it is done.
  void transport(tlm::tlm_command command, Addr address, void* data, unsigned bytes) {
    tlm::tlm_generic_payload trans;
    trans.set_command(command);
    trans.set_address(address);
    trans.set_data_ptr(static_cast<unsigned char*>(data));
    trans.set_data_length(bytes);
    trans.set_streaming_width(bytes);
    sc_core::sc_time delay;
    out->b_transport(trans, delay);
    sc_core::wait(delay);
    if (!trans.is_response_ok()) {
      throw std::runtime_error("access to " + std::to_string(address) + " answered " + trans.get_response_string());
    }
  }
  template <typename T>
  void write(Addr address, T value) {
    transport(tlm::TLM_WRITE_COMMAND, address, &value, sizeof value);
  }
  template <typename T>
  T read(Addr address) {
    T value{};
    transport(tlm::TLM_READ_COMMAND, address, &value, sizeof value);
    return value;
  }
};
// [initiator]

// [connect]
constexpr QpId kQp{3};
constexpr uint32_t kSlots = 4, kSlotBytes = 1024;
constexpr uint64_t kRing = 0x10000;  // in the TCM of both

// QP 3 of one PE talks to QP 3 of the other.
void set_up(Initiator& bus, const PeLocation& self, const PeLocation& peer) {
  namespace reg = regs::qp::offset;
  const auto qp = [&](uint32_t offset) { return qp_reg_address(self, kQp, offset); };
  bus.write<uint32_t>(qp(reg::PEER_QP), value(kQp));
  bus.write<uint64_t>(qp(reg::PEER_PE), pe_base(peer));
  bus.write<uint64_t>(qp(reg::PEER_RING), tcm_address(peer, kRing));
  bus.write<uint32_t>(qp(reg::PEER_SLOTS), kSlots);
  bus.write<uint32_t>(qp(reg::SLOT_BYTES), kSlotBytes);
  bus.write<uint64_t>(qp(reg::RING), kRing);
  bus.write<uint32_t>(qp(reg::SLOTS), kSlots);
  bus.write<uint32_t>(qp(reg::CTRL), 1);  // enable
}
// [connect]

// [kernel]
// Doubles numbers where they lie. Arguments: their address and how many they are.
void twice(tl::Tl& tl, const tl::Args& args) {
  const tl::Tile x = tl.load(args.address(0), args.u64(1), DType::Float32);
  tl.store(args.address(0), tl.add(x, x));
}
// [kernel]

int sc_main(int, char**) {
  const SystemConfig config = load_system_config(PLATFORMS "/ring2.yaml");
  tl::KernelRegistry kernels;
  kernels.add("twice", twice);
  models::System system("system", config, kernels);
  // [bind]
  Initiator bus("bus");
  bus.out.bind(system.sip(SipId{0}).cube(CubeId{0}).spare_in);
  // [bind]

  bool good = false;
  std::string error;
  sc_core::sc_spawn([&] {
    try {
      // [message]
      const PeLocation near{SipId{0}, CubeId{0}, PeId{0}}, far{SipId{1}, CubeId{0}, PeId{1}};
      namespace reg = regs::qp::offset;
      bool ok = bus.read<uint32_t>(pe_sfr_address(far, regs::pe::offset::ID)) == 0x4D424841;
      set_up(bus, near, far);
      set_up(bus, far, near);

      // A message, with its header, in the TCM of the sender; two register writes send it.
      struct Message {
        ipcq::SlotHeader header;
        char text[32] = "from one SIP to the other";
      } message;
      message.header.bytes = sizeof message.text;
      bus.transport(tlm::TLM_WRITE_COMMAND, tcm_address(near, 0), &message, sizeof message);
      bus.write<uint64_t>(qp_reg_address(near, kQp, reg::SEND_SRC), 0);
      bus.write<uint32_t>(qp_reg_address(near, kQp, reg::SEND_BYTES), sizeof message);
      ok = ok && bus.read<uint32_t>(qp_reg_address(near, kQp, reg::CREDITS)) == kSlots - 1;

      while (bus.read<uint32_t>(qp_reg_address(far, kQp, reg::LEVEL)) == 0) {
      }
      const sc_core::sc_time arrived = sc_core::sc_time_stamp();
      Message received;
      ok = ok && bus.read<uint32_t>(qp_reg_address(far, kQp, reg::MSG_BYTES)) == sizeof message;
      bus.transport(tlm::TLM_READ_COMMAND, tcm_address(far, kRing), &received, sizeof received);
      bus.write<uint32_t>(qp_reg_address(far, kQp, reg::RELEASE), 1);  // the slot and its credit go back

      // The other way by hand: payload into the slot at the tail of the peer's ring, then the doorbell.
      bus.transport(tlm::TLM_WRITE_COMMAND, tcm_address(far, kRing + kSlotBytes), &message, sizeof message);
      bus.write<uint64_t>(doorbell_address(far, kQp, ipcq::kNotify), sizeof message);
      sc_core::wait(1, sc_core::SC_US);
      ok = ok && bus.read<uint32_t>(qp_reg_address(far, kQp, reg::LEVEL)) == 1;
      ok = ok && bus.read<uint32_t>(qp_reg_address(near, kQp, reg::CREDITS)) == kSlots;
      ok = ok && bus.read<uint32_t>(pe_sfr_address(far, regs::pe::offset::ERROR_BITS)) == 0;

      // A mistake is an error bit, never silence: five credits that nobody owes.
      try {
        bus.write<uint64_t>(doorbell_address(near, kQp, ipcq::kCredit), 5);
        ok = false;
      } catch (const std::runtime_error&) {
        const uint32_t bits = bus.read<uint32_t>(pe_sfr_address(near, regs::pe::offset::ERROR_BITS));
        ok = ok && bits == regs::pe::ERROR_BITS_OVERRUN.mask();
      }
      // [message]
      // [launch]
      // Numbers, an argument block and the word that the completion goes to, in the HBM of the PE's cube.
      constexpr uint32_t kNumbers = 256;
      const Addr numbers = hbm_address(near.sip, near.cube, 0), block = numbers + 0x1000, done = numbers + 0x2000;
      std::vector<float> values(kNumbers, 1.5f);
      bus.transport(tlm::TLM_WRITE_COMMAND, numbers, values.data(), kNumbers * sizeof(float));
      struct Block {
        launch::ArgHeader header;
        uint64_t words[2];
      } arguments{{}, {numbers, kNumbers}};
      arguments.header.n_args = 2;
      bus.transport(tlm::TLM_WRITE_COMMAND, block, &arguments, sizeof arguments);
      bus.write<uint64_t>(done, ~uint64_t{0});  // no completion looks like that

      // The descriptor, word by word: the eighth one launches.
      launch::Descriptor descriptor;
      descriptor.kernel_id = kernels.find("twice")->id;
      descriptor.arg_address = block;
      descriptor.arg_bytes = sizeof arguments;
      descriptor.completion_address = done;
      uint64_t words[sizeof descriptor / sizeof(uint64_t)];
      std::memcpy(words, &descriptor, sizeof words);
      for (const uint64_t word : words) bus.write(pe_sfr_address(near, regs::pe::offset::LAUNCH), word);

      launch::Completion completion;
      do {
        completion = bus.read<launch::Completion>(done);
      } while (completion.flat_pe == ~0u);
      ok = ok && completion.status == static_cast<uint16_t>(launch::Status::Ok);
      bus.transport(tlm::TLM_READ_COMMAND, numbers, values.data(), kNumbers * sizeof(float));
      ok = ok && values == std::vector<float>(kNumbers, 3.0f);
      // [launch]
      good = ok && std::strcmp(received.text, message.text) == 0;
      std::printf("own_initiator: '%s' arrived by %s\n", received.text, arrived.to_string().c_str());
    } catch (const sc_core::sc_unwind_exception&) {
      throw;
    } catch (const std::exception& e) {
      error = e.what();
    }
  });
  sc_core::sc_start();
  if (!error.empty()) std::printf("own_initiator: %s\n", error.c_str());
  return good ? 0 : 1;
}
