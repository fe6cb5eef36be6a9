#include "ccl/kernel_arguments.h"

#include <fmt/format.h>

#include <stdexcept>

namespace ahbm::ccl {
namespace {

template <typename E>
E checked(const char* name, uint64_t word, E last) {
  if (word > static_cast<uint64_t>(last)) {
    throw std::invalid_argument(
        fmt::format("kernel argument {}: {} where at most {} is expected", name, word, static_cast<uint64_t>(last)));
  }
  return static_cast<E>(word);
}

}  // namespace

std::vector<uint64_t> pack_arguments(Addr buffer, const std::vector<uint64_t>& kernel_args,
                                     const AppendedArguments& a) {
  std::vector<uint64_t> words{buffer};
  words.insert(words.end(), kernel_args.begin(), kernel_args.end());
  for (uint64_t w : {uint64_t{a.sip_rank}, uint64_t{a.sip_topo_kind}, uint64_t{a.sip_topo_w}, uint64_t{a.sip_topo_h},
                     static_cast<uint64_t>(a.dtype), static_cast<uint64_t>(a.op), static_cast<uint64_t>(a.layout)}) {
    words.push_back(w);
  }
  return words;
}

std::vector<uint64_t> pack_arguments(const AlgorithmModule& module, const Group& group, uint32_t rank,
                                     const CollectiveBuffers& buffers, const CollectiveShape& shape) {
  check_shape(module.collective, group.size(), shape);
  if (rank >= group.size()) {
    throw std::invalid_argument(fmt::format("{}: rank {} of a group of {}", module.name, rank, group.size()));
  }
  AppendedArguments a;
  a.sip_rank = rank;
  const auto kind = module.topo_name_to_kind.find(to_string(group.topology));
  if (!module.topo_name_to_kind.empty() && kind == module.topo_name_to_kind.end()) {
    throw std::invalid_argument(
        fmt::format("algorithm {} has no kind for topology {}", module.name, to_string(group.topology)));
  }
  a.sip_topo_kind = module.topo_name_to_kind.empty() ? static_cast<uint32_t>(group.topology) : kind->second;
  a.sip_topo_w = group.sip_w;
  a.sip_topo_h = group.sip_h;
  a.dtype = shape.dtype;
  a.op = shape.op;
  a.layout = shape.layout;
  if (!module.rank_args) {
    return pack_arguments(buffers.output, module.kernel_args(group.size(), shape.count, group.cube_w, group.cube_h), a);
  }
  std::vector<uint64_t> words{buffers.input, buffers.scratch, shape.message_bytes};
  const std::vector<uint64_t> own = module.rank_args(group, shape, rank);
  words.insert(words.end(), own.begin(), own.end());
  return pack_arguments(buffers.output, words, a);
}

std::vector<uint64_t> pack_arguments(const AlgorithmModule& module, const Group& group, uint32_t rank, Addr buffer,
                                     uint64_t n_elem, DType dtype, ReduceOp op, CubeLayout layout) {
  CollectiveShape shape;
  shape.count = n_elem;
  shape.dtype = dtype;
  shape.op = op;
  shape.layout = layout;
  return pack_arguments(module, group, rank, {buffer, buffer, 0}, shape);
}

void check_shape(Collective collective, uint32_t n, const CollectiveShape& shape) {
  const auto fail = [&](const std::string& what) {
    throw std::invalid_argument(fmt::format("{}: {}", to_string(collective), what));
  };
  if (shape.root >= n) fail(fmt::format("root {} in a group of {}", shape.root, n));
  if (shape.peer >= n) fail(fmt::format("peer {} in a group of {}", shape.peer, n));
  if (shape.counts.empty()) return;
  const size_t expected = collective == Collective::AllToAll ? size_t{n} * n : n;
  if (shape.counts.size() != expected) {
    fail(fmt::format("{} element counts where {} are expected", shape.counts.size(), expected));
  }
}

ModuleArguments::ModuleArguments(const tl::Args& args) : AppendedArguments(unpack_appended(args)), m_args(args) {
  output = take();
  input = take();
  scratch = take();
  message_bytes = take32();
}

tl::Move ModuleArguments::move(uint64_t count, uint16_t step) const {
  tl::Move m;
  m.count = count;
  m.dtype = dtype;
  m.op = op;
  m.piece_bytes = message_bytes;
  m.step = step;
  return m;
}

uint64_t ModuleArguments::take() {
  if (m_next + kAppendedWords >= m_args.size()) {
    throw std::invalid_argument(
        fmt::format("a collective's kernel got {} argument words, too few for its module", m_args.size()));
  }
  return m_args.u64(m_next++);
}

AppendedArguments unpack_appended(const tl::Args& args) {
  if (args.size() < 1 + kAppendedWords) {
    throw std::invalid_argument(fmt::format("a collective's kernel got {} argument words; at least {} are expected",
                                            args.size(), 1 + kAppendedWords));
  }
  const size_t base = args.size() - kAppendedWords;
  AppendedArguments a;
  a.sip_rank = args.u32(base);
  a.sip_topo_kind = args.u32(base + 1);
  a.sip_topo_w = args.u32(base + 2);
  a.sip_topo_h = args.u32(base + 3);
  a.dtype = checked("dtype", args.u64(base + 4), DType::Bool);
  a.op = checked("op", args.u64(base + 5), ReduceOp::Product);
  a.layout = checked("layout", args.u64(base + 6), CubeLayout::Partial);
  return a;
}

std::vector<uint64_t> builtin_kernel_args(uint32_t world_size, uint64_t n_elem, uint32_t cube_w, uint32_t cube_h) {
  return {world_size, n_elem, cube_w, cube_h};
}

CollectiveArguments unpack_arguments(const tl::Args& args) {
  constexpr size_t kWords = 1 + 4 + kAppendedWords;
  if (args.size() != kWords) {
    throw std::invalid_argument(
        fmt::format("a built-in collective's kernel got {} argument words; {} are expected", args.size(), kWords));
  }
  CollectiveArguments a;
  static_cast<AppendedArguments&>(a) = unpack_appended(args);
  a.buffer = args.address(0);
  a.world_size = args.u32(1);
  a.n_elem = args.u64(2);
  a.cube_w = args.u32(3);
  a.cube_h = args.u32(4);
  checked("sip_topo_kind", a.sip_topo_kind, SipTopology::Switch);
  if (a.world_size == 0 || a.sip_rank >= a.world_size) {
    throw std::invalid_argument(fmt::format("rank {} of a world of {}", a.sip_rank, a.world_size));
  }
  return a;
}

}  // namespace ahbm::ccl
