// Collectives of pairs.
//   all_to_all_direct       a queue pair between every two ranks that exchange something; the fabric routes
//   all_to_all_ring         blocks travel the shorter way round a ring, relayed by the ranks on it; for even n half of
//   the
//                           block of the rank opposite goes each way. Two queue pairs per rank. floor(n/2) L + n S/(8B)
//   send_recv               one queue pair, routed
//   barrier_dissemination   ceil(log2 n) rounds: in round k every rank tells rank + 2^k, and hears from rank - 2^k
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "ccl/algorithms/modules.h"
#include "ccl/detours.h"

namespace ahbm::ccl {
namespace {

using tl::Dir;
using tl::Move;

void copy_own(tl::Tl& tl, const ModuleArguments& a, Addr from, Addr to, uint64_t count) {
  if (from != to && count != 0) tl.copy(from, to, count, a.dtype);
}

/// Words: rank, ranges of the blocks to and from every rank.
void all_to_all_direct_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const uint32_t rank = a.take32();
  const Parts out = take_parts(a), in = take_parts(a);
  const auto n = static_cast<uint32_t>(out.size());
  copy_own(tl, a, a.input + out[rank].begin * a.item(), a.output + in[rank].begin * a.item(), out[rank].count);
  // Distances 1, n-1, 2, n-2, ...: both ways round are busy from the start.
  for (uint32_t i = 1; i < n; ++i) {
    const uint32_t k = i % 2 == 1 ? (i + 1) / 2 : n - i / 2;
    const uint32_t to = (rank + k) % n, from = (rank + n - k) % n;
    Move receive = a.move(in[from].count, wire_step(from)), send = a.move(out[to].count, wire_step(rank));
    receive.from = tl::peer_dir(from);
    receive.store = a.output + in[from].begin * a.item();
    send.to = tl::peer_dir(to);
    send.local = a.input + out[to].begin * a.item();
    if (receive.count != 0) tl.submit(receive);
    if (send.count != 0) tl.submit(send);
  }
}

/// Elements between two positions of a ring.
struct Exchange {
  std::vector<uint32_t> order;  ///< rank at a position
  CollectiveShape shape;

  uint32_t n() const { return static_cast<uint32_t>(order.size()); }
  uint32_t reach() const { return n() / 2; }
  uint32_t position(uint32_t p, uint32_t d, bool up) const { return (up ? p + d : p + n() - d) % n(); }
  /// The part of the block from position `origin` to the one `d` further on that travels this way.
  Range part(uint32_t origin, uint32_t d, bool up) const {
    const uint64_t block = shape.sent(n(), order[origin], order[position(origin, d, up)]);
    return 2 * d < n() ? Range{0, block} : aligned_chunk(block, 2, up ? 0 : 1);
  }
  uint64_t input_begin(uint32_t origin, uint32_t dest) const {
    uint64_t begin = 0;
    for (uint32_t r = 0; r < order[dest]; ++r) begin += shape.sent(n(), order[origin], r);
    return begin;
  }
  uint64_t output_begin(uint32_t origin, uint32_t dest) const {
    uint64_t begin = 0;
    for (uint32_t r = 0; r < order[origin]; ++r) begin += shape.sent(n(), r, order[dest]);
    return begin;
  }
};

/// Room for what waits at a rank between two steps of one way round.
uint64_t transit_elements(const CollectiveShape& shape, uint32_t n) {
  return n / 2 * longest_block(shape);
}

/// Words: position, scratch elements of a way, n, the ranks by position, count, number of counts, the counts.
void all_to_all_ring_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const uint32_t p = a.take32();
  const uint64_t transit = a.take();
  Exchange x;
  for (uint64_t k = a.take(); k > 0; --k) x.order.push_back(a.take32());
  x.shape = take_blocks(a);
  const uint32_t n = x.n(), item = a.item();
  copy_own(tl, a, a.input + x.input_begin(p, p) * item, a.output + x.output_begin(p, p) * item,
           x.shape.sent(n, x.order[p], x.order[p]));

  // Step s moves what has s-1 links behind it: blocks of the rank s-1 back that go s or more links.
  const auto waiting = [&](uint32_t s, bool up) { return a.scratch + ((s % 2) * 2 + up) * transit * item; };
  for (uint32_t s = 1; s <= x.reach(); ++s) {
    Addr from_scratch[2] = {waiting(s - 1, false), waiting(s - 1, true)};
    Addr to_scratch[2] = {waiting(s, false), waiting(s, true)};
    for (uint32_t d = s; d <= x.reach(); ++d) {
      for (const bool up : {true, false}) {
        const uint32_t sender = x.position(p, s - 1, !up), origin = x.position(p, s, !up);
        const Range sent = x.part(sender, d, up), received = x.part(origin, d, up);
        Move receive = a.move(received.count, wire_step(d)), send = a.move(sent.count, wire_step(d));
        receive.from = up ? Dir::Prev : Dir::Next;
        send.to = up ? Dir::Next : Dir::Prev;
        if (d == s) {
          receive.store = a.output + (x.output_begin(origin, p) + received.begin) * item;
        } else {
          receive.store = to_scratch[up];
          to_scratch[up] += received.count * item;
        }
        if (s == 1) {
          send.local = a.input + (x.input_begin(p, x.position(p, d, up)) + sent.begin) * item;
        } else {
          send.local = from_scratch[up];
          from_scratch[up] += sent.count * item;
        }
        if (receive.count != 0) tl.submit(receive);
        if (send.count != 0) tl.submit(send);
      }
    }
    tl.wait_all();  // the next step sends what this one has stored
  }
}

enum class Role : uint8_t { Copy, Send, Receive };

/// Words: number of transfers; of each its role, address (0: of the arguments), count, dtype, direction, step.
void send_recv_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  for (uint64_t k = a.take(); k > 0; --k) {
    const auto role = static_cast<Role>(a.take());
    const Addr address = a.take();
    Move m = a.move(a.take(), 0);
    m.dtype = static_cast<DType>(a.take());
    const auto dir = static_cast<Dir>(a.take());
    m.step = wire_step(a.take());
    if (m.count == 0) continue;
    if (role == Role::Copy) {
      copy_own(tl, a, a.input, a.output, m.count);
    } else if (role == Role::Send) {
      m.local = address != 0 ? address : a.input;
      m.to = dir;
      tl.submit(m);
    } else {
      m.store = address != 0 ? address : a.output;
      m.from = dir;
      tl.submit(m);
    }
  }
}

void put_transfer(Role role, const Transfer& t, std::vector<uint64_t>& words) {
  words.insert(words.end(), {static_cast<uint64_t>(role), t.address, t.count, static_cast<uint64_t>(t.dtype),
                             static_cast<uint64_t>(t.dir), t.step});
}

constexpr uint64_t kBarrierBytes = 16;  ///< a byte to send, and 8 bytes on one that is received

/// Words: n, rank.
void barrier_kernel(tl::Tl& tl, const tl::Args& args) {
  ModuleArguments a(args);
  const uint32_t n = a.take32(), rank = a.take32();
  for (uint32_t distance = 1, round = 0; distance < n; distance *= 2, ++round) {
    Move send = a.move(1, wire_step(round)), receive = send;
    send.dtype = receive.dtype = DType::UInt8;
    send.local = a.scratch;
    send.to = tl::peer_dir((rank + distance) % n);
    receive.store = a.scratch + kBarrierBytes / 2;
    receive.from = tl::peer_dir((rank + n - distance) % n);
    tl.submit(receive);
    tl.submit(send);
    tl.wait_all();
  }
}

/// A queue pair for every pair of ranks, on every cube.
std::vector<Connection> pair_connections(const Group& g, const std::vector<std::pair<uint32_t, uint32_t>>& pairs) {
  std::vector<Connection> out;
  for (uint32_t cube = 0; cube < g.n_cubes; ++cube) {
    for (const auto& [r, p] : pairs) out.push_back({r, cube, tl::peer_dir(p), p, cube, tl::peer_dir(r)});
  }
  return out;
}

AlgorithmModule base(Collective collective, const char* name, tl::KernelFn kernel, const char* doc) {
  AlgorithmModule m;
  m.name = name;
  m.kernel_name = std::string("ccl_") + name;
  m.doc = doc;
  m.collective = collective;
  allow_everything(m);
  m.layouts = {CubeLayout::Sharded};
  m.kernel = kernel;
  m.refusal = [](const Group&) { return std::string(); };
  return m;
}

/// From rank 0, each of CostQuery::latency.
uint32_t hops(const Group& g, uint32_t rank) {
  return g.topology == SipTopology::Switch ? 1 : sip_hops(g, 0, rank);
}

double bits_of(uint32_t n) {
  return n < 2 ? 0 : std::ceil(std::log2(n));
}

/// To the position opposite both ways round are as long, and the fabric takes one of them for all.
double pairs_on_ring_link(uint32_t n) {
  const double half = n / 2;
  return half * (half + 1) / 2;
}

/// Over the link in the middle.
double pairs_on_line_link(uint32_t n) {
  return std::floor(n * double(n) / 4);
}

/// A block from every rank to every other, each over a connection of its own, the longest way of which takes `way`.
/// \param load  bytes on the fullest link
double pairs_seconds(const CostQuery& q, double way, double load) {
  const double block = q.bytes / q.ranks;
  const double messages = q.message_bytes > 0 ? std::ceil(block / q.lanes / q.message_bytes) : 1;
  return std::max(way + std::max(load / shared_bandwidth(q), block / q.bandwidth),
                  credit_seconds(q, messages, std::min(block, q.message_bytes * q.lanes), way));
}

/// So many steps round a ring both ways, each of which waits for the longest connection.
/// \param load  times that the fullest link carries what a connection does
double steps_round_seconds(const CostQuery& q, double way, double load) {
  const double n = q.ranks, block = q.bytes / n, reach = std::floor(n / 2);
  const double carried = std::floor(n * n / 4) / 2 * block;
  const auto messages = [&](double bytes) {
    return q.message_bytes > 0 ? std::max(1.0, std::ceil(bytes / q.lanes / q.message_bytes)) : 1;
  };
  // Of a block for the rank opposite half goes either way.
  const bool even = q.ranks % 2 == 0;
  const double whole = even ? reach * (reach - 1) / 2 : reach * (reach + 1) / 2, halves = even ? reach : 0;
  return std::max(reach * way + std::max(carried / q.bandwidth, load * carried / shared_bandwidth(q)),
                  credit_seconds(q, whole * messages(block) + halves * messages(block / 2),
                                 std::min(block, q.message_bytes * q.lanes), way));
}

/// By the ways that there are.
double routed_pairs_seconds(const CostQuery& q) {
  const std::vector<SipId>& sips = q.group->sips;
  std::vector<Flow> flows;
  for (const SipId from : sips) {
    for (const SipId to : sips) {
      if (from != to) flows.push_back({from, to, std::nullopt, q.bytes / q.ranks});
    }
  }
  const Detours::Ways ways = q.detours->of(flows);
  const double farthest = *std::max_element(ways.links.begin(), ways.links.end());
  return pairs_seconds(q, q.latency + (farthest - 1) * hop_seconds(q), ways.fullest);
}

/// By the ways of the ring's connections.
double routed_ring_seconds(const CostQuery& q) {
  std::vector<Connection> ring;
  append_ring_connections(*q.group, 0, ring);
  const Detours::Ways ways = q.detours->of(flows_along(*q.group, ring));
  const double longest = *std::max_element(ways.links.begin(), ways.links.end());
  return steps_round_seconds(q, q.latency + (longest - 1) * hop_seconds(q), ways.fullest);
}

AlgorithmModule all_to_all_direct_module() {
  AlgorithmModule m = base(Collective::AllToAll, "all_to_all_direct", all_to_all_direct_kernel,
                           "a queue pair per peer, routed by the fabric: (n+2) S/(8B) on a ring of even n");
  m.rank_args = [](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const uint32_t n = g.size();
    std::vector<Range> out, in;
    for (uint32_t p = 0; p < n; ++p) {
      out.push_back({out.empty() ? 0 : out.back().end(), shape.sent(n, rank, p)});
      in.push_back({in.empty() ? 0 : in.back().end(), shape.sent(n, p, rank)});
    }
    std::vector<uint64_t> words{rank};
    put_ranges(out, words);
    put_ranges(in, words);
    return words;
  };
  m.connections = [](const Group& g, const CollectiveShape& shape) {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    const uint32_t n = g.size();
    for (uint32_t r = 0; r < n; ++r) {
      for (uint32_t p = r + 1; p < n; ++p) {
        const bool nothing = !shape.counts.empty() && shape.sent(n, r, p) == 0 && shape.sent(n, p, r) == 0;
        if (!nothing) pairs.emplace_back(r, p);
      }
    }
    return pair_connections(g, pairs);
  };
  m.traffic.asks = true;
  m.time = [](const CostQuery& q) {
    if (q.ranks < 2 || q.group == nullptr) return 0.0;
    if (q.detours != nullptr) return routed_pairs_seconds(q);
    const Group& g = *q.group;
    uint32_t farthest = 0;
    for (uint32_t r = 1; r < g.size(); ++r) farthest = std::max(farthest, hops(g, r));
    const double n = q.ranks, each = q.bytes / n;
    double load = 0;  // bytes on the fullest link
    switch (g.topology) {
      case SipTopology::FullyConnected:
        load = each;
        break;
      case SipTopology::Switch:
        load = (n - 1) * each;
        break;
      case SipTopology::Ring1d:
        load = directions_shared(q) ? each : pairs_on_ring_link(g.size()) * each;
        break;
      case SipTopology::Torus2d:
        // Along rows, then along columns.
        load = std::max(pairs_on_ring_link(g.sip_w) * g.sip_h, pairs_on_ring_link(g.sip_h) * g.sip_w) * each;
        break;
      default:
        load = std::max(pairs_on_line_link(g.sip_w) * g.sip_h, pairs_on_line_link(g.sip_h) * g.sip_w) * each;
    }
    return pairs_seconds(q, q.latency + (farthest - 1) * hop_seconds(q), load);
  };
  return m;
}

AlgorithmModule all_to_all_ring_module() {
  AlgorithmModule m = base(Collective::AllToAll, "all_to_all_ring", all_to_all_ring_kernel,
                           "relayed the shorter way round a ring, two queue pairs: floor(n/2)L + n S/(8B)");
  const RingMemo rings = lay_on_ring(m, "all_to_all_direct");
  m.rank_args = [rings](const Group& g, const CollectiveShape& shape, uint32_t rank) {
    const auto ring = rings->of(g);
    std::vector<uint64_t> words{ring->position(rank), transit_elements(shape, g.size()), g.size()};
    words.insert(words.end(), ring->order.begin(), ring->order.end());
    put_blocks(shape, words);
    return words;
  };
  m.scratch_bytes = [](const Group& g, const CollectiveShape& shape) {
    return 4 * transit_elements(shape, g.size()) * item_bytes(shape.dtype);
  };
  m.traffic.asks = true;
  m.time = [](const CostQuery& q) {
    if (q.ranks < 2) return 0.0;
    if (q.detours != nullptr && q.group != nullptr) return routed_ring_seconds(q);
    return steps_round_seconds(q, q.latency, directions_shared(q) ? 2 : 1);
  };
  return m;
}

/// Of the longest way from a rank to the next one, as in a batch in which every rank sends to the next; a switch's
/// second link is part of CostQuery::latency.
uint32_t hops_beyond_first(const CostQuery& q) {
  if (q.group == nullptr || q.group->topology == SipTopology::Switch) return 0;
  uint32_t hops = 1;
  const uint32_t n = q.group->size();
  for (uint32_t r = 0; r < n; ++r) hops = std::max(hops, sip_hops(*q.group, r, (r + 1) % n));
  return hops - 1;
}

AlgorithmModule send_recv_module() {
  AlgorithmModule m = base(Collective::SendRecv, "send_recv", send_recv_kernel, "one queue pair, routed: eL + S/B");
  m.rank_args = [](const Group&, const CollectiveShape& shape, uint32_t rank) {
    const bool sends = rank == shape.root, receives = rank == shape.peer;
    std::vector<uint64_t> words{sends || receives ? 1u : 0u};
    Transfer t;
    t.count = shape.count;
    t.dtype = shape.dtype;
    t.dir = tl::peer_dir(sends ? shape.peer : shape.root);
    if (sends || receives) put_transfer(sends && receives ? Role::Copy : sends ? Role::Send : Role::Receive, t, words);
    return words;
  };
  m.connections = [](const Group& g, const CollectiveShape& shape) {
    if (shape.root == shape.peer) return std::vector<Connection>();
    return pair_connections(g, {std::minmax(shape.root, shape.peer)});
  };
  m.time = [](const CostQuery& q) {
    if (q.ranks < 2) return 0.0;
    const double latency = q.latency + hops_beyond_first(q) * hop_seconds(q);
    const double carried = transfer_seconds(q, q.bytes, 1.0 + hops_beyond_first(q));
    // The first message is read and the last one stored while nothing is on the link.
    return latency + carried + turn_seconds(q, q.bytes);
  };
  return m;
}

AlgorithmModule barrier_module() {
  AlgorithmModule m =
      base(Collective::Barrier, "barrier_dissemination", barrier_kernel, "ceil(log2 n) rounds of a byte");
  m.rank_args = [](const Group& g, const CollectiveShape&, uint32_t rank) {
    return std::vector<uint64_t>{g.size(), rank};
  };
  m.scratch_bytes = [](const Group&, const CollectiveShape&) { return kBarrierBytes; };
  m.connections = [](const Group& g, const CollectiveShape&) {
    std::set<std::pair<uint32_t, uint32_t>> pairs;
    const uint32_t n = g.size();
    for (uint32_t distance = 1; distance < n; distance *= 2) {
      for (uint32_t r = 0; r < n; ++r) pairs.insert(std::minmax(r, (r + distance) % n));
    }
    return pair_connections(g, {pairs.begin(), pairs.end()});
  };
  m.time = [](const CostQuery& q) {
    if (q.group == nullptr) return bits_of(q.ranks) * q.latency;
    double all = 0;
    for (uint32_t d = 1; d < q.ranks; d *= 2) all += hops(*q.group, d);
    return all * q.latency;
  };
  return m;
}

}  // namespace

std::vector<uint64_t> pack_transfers(const Group& group, uint32_t rank, const std::vector<Transfer>& transfers,
                                     uint32_t message_bytes) {
  std::vector<uint64_t> words{0, 0, message_bytes, transfers.size()};
  for (const Transfer& t : transfers) put_transfer(t.sends ? Role::Send : Role::Receive, t, words);
  AppendedArguments a;
  a.sip_rank = rank;
  a.sip_topo_kind = static_cast<uint32_t>(group.topology);
  a.sip_topo_w = group.sip_w;
  a.sip_topo_h = group.sip_h;
  return pack_arguments(0, words, a);
}

std::vector<AlgorithmModule> peer_modules() {
  return {all_to_all_direct_module(), all_to_all_ring_module(), send_recv_module(), barrier_module()};
}

}  // namespace ahbm::ccl
