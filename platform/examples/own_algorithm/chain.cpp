// An all-reduce along the chain of ranks, as a shared object: partial sums go up to the last rank, the result comes
// down again, both piece by piece over the two directions of the same links.
#include "ccl/algorithm.h"
#include "ccl/kernel_arguments.h"
#include "ccl/module_file.h"

using namespace ahbm;

// [kernel]
static void chain_kernel(tl::Tl& tl, const tl::Args& args) {
  const ccl::CollectiveArguments a = ccl::unpack_arguments(args);
  if (a.world_size == 1 || a.n_elem == 0) return;
  const bool first = a.sip_rank == 0, last = a.sip_rank + 1 == a.world_size;

  tl::Move up;  // x[r] + (x[r-1] + (... + x[0]))
  up.local = a.buffer;
  up.count = a.n_elem;
  up.dtype = a.dtype;
  up.op = a.op;
  if (!first) up.from = tl::Dir::Prev;
  if (last) {
    up.divisor = a.op == ReduceOp::Avg ? a.world_size : 1;
    up.store = a.buffer;
    up.to = tl::Dir::Prev;
  } else {
    up.to = tl::Dir::Next;
  }
  tl.submit(up);

  if (!last) {
    tl::Move down;
    down.from = tl::Dir::Next;
    down.store = a.buffer;
    down.count = a.n_elem;
    down.dtype = a.dtype;
    if (!first) down.to = tl::Dir::Prev;
    tl.submit(down);
  }
}  // the end of a kernel waits for its moves
// [kernel]

// [module]
static ccl::AlgorithmModule chain_module() {
  ccl::AlgorithmModule m;
  m.name = "chain";
  m.kernel_name = "chain";
  m.collective = ccl::Collective::AllReduce;
  m.doc = "reduce up and broadcast down the chain of ranks: 2(n-1)(L + m/B) + S/B";
  m.ops = {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};
  m.dtypes = {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32};
  m.layouts = {ccl::CubeLayout::Sharded};
  m.kernel = chain_kernel;
  m.kernel_args = ccl::builtin_kernel_args;
  m.refusal = [](const ccl::Group&) { return std::string(); };  // runs on every topology

  m.connections = [](const ccl::Group& g, const ccl::CollectiveShape&) {
    std::vector<ccl::Connection> out;
    for (uint32_t cube = 0; cube < g.n_cubes; ++cube) {
      for (uint32_t r = 0; r + 1 < g.size(); ++r) {
        out.push_back({r, cube, tl::Dir::Next, r + 1, cube, tl::Dir::Prev});
      }
    }
    return out;
  };

  // The first message travels 2(n-1) links, the others follow it: m are the bytes of a message.
  m.time = [](const ccl::CostQuery& q) {
    if (q.ranks < 2) return 0.0;
    const double hops = 2.0 * (q.ranks - 1);
    return hops * (q.latency + q.message_bytes / q.bandwidth) + (q.bytes - q.message_bytes) / q.bandwidth;
  };

  // Postfix: x[n-1] ... x[1] x[0], then n-1 times `+` from the right.
  m.reduction_order = [](const ccl::Group& g, const ccl::CollectiveShape& shape) {
    ccl::ReduceTree tree{Range{0, shape.count}, {}};
    for (uint32_t r = g.size(); r-- > 0;) tree.postfix.push_back(static_cast<int32_t>(r));
    tree.postfix.insert(tree.postfix.end(), g.size() - 1, ccl::ReduceTree::kCombine);
    return std::vector<ccl::ReduceTree>{tree};
  };
  return m;
}

AHBM_ALGORITHM_MODULE(registry) {
  registry.add(chain_module());
}
// [module]
