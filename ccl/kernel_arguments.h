// The argument words of a collective's kernel: what the seed's kernel_args returns, between the buffer and the facts
// that the backend appends.
//
//   0                 address of this PE's buffer
//   1 .. k            the module's kernel_args(world_size, n_elem, cube_w, cube_h); of the built-in modules these are
//                     world_size, n_elem, cube_w, cube_h themselves
//   0 .. 2            of a module with rank_args: addresses of output, input and scratch, message_bytes; then its words
//   then, at the end  sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, dtype, op, layout
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/dtype.h"
#include "models/tl/tl.h"

namespace ahbm::ccl {

/// The facts that the backend appends, whatever the module.
struct AppendedArguments {
  uint32_t sip_rank = 0;
  uint32_t sip_topo_kind = 0;  ///< AlgorithmModule::topo_name_to_kind, else the SipTopology's number
  uint32_t sip_topo_w = 1, sip_topo_h = 1;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  CubeLayout layout = CubeLayout::Sharded;
};
constexpr size_t kAppendedWords = 7;

std::vector<uint64_t> pack_arguments(Addr buffer, const std::vector<uint64_t>& kernel_args,
                                     const AppendedArguments& appended);

/// The argument words of one PE.
/// \param shape of this PE's lane: lanes of a group can differ in their element counts
/// \throws std::invalid_argument when the buffers, the root or the counts do not fit the collective
std::vector<uint64_t> pack_arguments(const AlgorithmModule& module, const Group& group, uint32_t rank,
                                     const CollectiveBuffers& buffers, const CollectiveShape& shape);

/// An all-reduce in place, with the module's kernel_args and its number for the group's topology.
/// \param n_elem elements of the buffer of this PE
std::vector<uint64_t> pack_arguments(const AlgorithmModule& module, const Group& group, uint32_t rank, Addr buffer,
                                     uint64_t n_elem, DType dtype, ReduceOp op, CubeLayout layout);

/// One of the messages that a PE sends or receives in a batch of point-to-point transfers.
struct Transfer {
  bool sends = false;
  Addr address = 0;
  uint64_t count = 0;
  DType dtype = DType::Float32;
  tl::Dir dir = tl::Dir::None;
  uint32_t step = 0;  ///< the same at both ends
};
/// The argument words of the kernel of `send_recv` for several transfers at once. Those of one direction are in the
/// same order at both ends.
std::vector<uint64_t> pack_transfers(const Group& group, uint32_t rank, const std::vector<Transfer>& transfers,
                                     uint32_t message_bytes);

/// \throws std::invalid_argument when root, peer or the number of counts do not fit a group of n ranks
void check_shape(Collective collective, uint32_t n, const CollectiveShape& shape);

/// \throws std::invalid_argument when there are too few words or one is out of its range
AppendedArguments unpack_appended(const tl::Args& args);

/// The arguments of a module with rank_args; its own words are taken one by one.
class ModuleArguments : public AppendedArguments {
 public:
  /// \throws std::invalid_argument when there are too few words or one is out of its range; so does `take`
  explicit ModuleArguments(const tl::Args& args);
  uint64_t take();
  uint32_t take32() { return static_cast<uint32_t>(take()); }
  uint32_t item() const { return item_bytes(dtype); }
  /// Of so many elements, in messages between SIPs; from nowhere to nowhere.
  tl::Move move(uint64_t count, uint16_t step) const;

  Addr output = 0, input = 0, scratch = 0;
  uint32_t message_bytes = 0;  ///< for Move::piece_bytes of messages between SIPs

 private:
  const tl::Args& m_args;
  size_t m_next = 0;
};

/// The arguments of a module whose kernel_args are `builtin_kernel_args`.
struct CollectiveArguments : AppendedArguments {
  Addr buffer = 0;
  uint32_t world_size = 1;
  uint64_t n_elem = 0;
  uint32_t cube_w = 1, cube_h = 1;

  uint32_t item() const { return item_bytes(dtype); }
  Addr at(uint64_t element) const { return buffer + element * item(); }
};
std::vector<uint64_t> builtin_kernel_args(uint32_t world_size, uint64_t n_elem, uint32_t cube_w, uint32_t cube_h);
CollectiveArguments unpack_arguments(const tl::Args& args);

}  // namespace ahbm::ccl
