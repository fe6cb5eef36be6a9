#include "platform/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <queue>

#include "ccl/reference.h"
#include "ccl/select.h"
#include "models/observe/statistics.h"
#include "platform/run_checks.h"
#include "runtime/random.h"

namespace ahbm::platform {

namespace {

using Clock = std::chrono::steady_clock;
using ccl::Collective;
using runtime::CubePolicy;
using runtime::distributed::CollectiveRecord;
using runtime::distributed::group_dst;
using runtime::distributed::group_src;
using runtime::distributed::LaneRun;
using runtime::distributed::P2POp;
using runtime::distributed::ProcessGroup;
using runtime::distributed::Work;

/// What output buffers hold before.
uint8_t unwritten(DType dtype) {
  return dtype == DType::Bool ? 1 : 0x5A;
}

/// What bounds ask of every rank, from one pass over the links.
class LinkFigures {
 public:
  explicit LinkFigures(const SipGraph& graph) : m_core(graph.sips()), m_nodes(graph.sips() + 1) {
    for (const SipGraph::DirectedLink& l : graph.directed_links()) {
      const uint32_t from = node(l.from), to = node(l.to);
      m_nodes[from].out += l.link.bytes_per_second;
      m_nodes[to].in += l.link.bytes_per_second;
      m_nodes[from].links[0].push_back({to, l.link.latency});
      m_nodes[to].links[1].push_back({from, l.link.latency});
    }
  }

  /// Bytes per second into (or out of) a SIP over all its links.
  uint64_t bandwidth(SipId sip, bool in) const { return in ? m_nodes[value(sip)].in : m_nodes[value(sip)].out; }

  /// Largest sum of link latencies on the ways of least latency from one to others, or back: where links differ by
  /// direction the two are not the same.
  Ps farthest(SipId one, const std::vector<SipId>& others, bool back) const {
    Ps out = 0;
    const std::vector<Ps> least = latencies(one, back, others);
    for (const SipId s : others) {
      if (least[value(s)] != kNoWay) out = std::max(out, least[value(s)]);
    }
    return out;
  }

 private:
  static constexpr Ps kNoWay = std::numeric_limits<Ps>::max();
  struct Node {
    uint64_t in = 0, out = 0;
    std::vector<std::pair<uint32_t, Ps>> links[2];  ///< away from here, and backwards
  };
  uint32_t node(SipId sip) const { return sip == SipGraph::kSwitchCore ? m_core : value(sip); }

  /// Of the ways from a node (or to it), right for `wanted`: it ends when the last of them has been reached.
  std::vector<Ps> latencies(SipId from, bool back, const std::vector<SipId>& wanted) const {
    std::vector<bool> open(m_nodes.size());
    for (const SipId s : wanted) open[value(s)] = true;
    size_t left = wanted.size();
    std::vector<Ps> least(m_nodes.size(), kNoWay);
    using Entry = std::pair<Ps, uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> todo;
    least[value(from)] = 0;
    todo.emplace(0, value(from));
    while (!todo.empty() && left != 0) {
      const auto [latency, at] = todo.top();
      todo.pop();
      if (latency != least[at]) continue;
      if (open[at]) --left, open[at] = false;
      const auto relax = [&, base = latency](uint32_t to, Ps more) {
        if (base + more >= least[to]) return;
        least[to] = base + more;
        todo.emplace(least[to], to);
      };
      // From the core of a switch a way leads to one SIP and no further. All links of a SIP lead to the core there.
      if (at == m_core) {
        for (const SipId s : wanted) {
          for (const auto& link : m_nodes[value(s)].links[!back]) relax(value(s), link.second);
        }
        continue;
      }
      for (const auto& [to, more] : m_nodes[at].links[back]) relax(to, more);
    }
    return least;
  }

  const uint32_t m_core;  ///< node of a switch's core
  std::vector<Node> m_nodes;
};

Ps over(double bytes, uint64_t bandwidth) {
  return bandwidth == 0 ? 0 : static_cast<Ps>(bytes * 1e12 / static_cast<double>(bandwidth));
}

/// Whether a rank's tensor is cut into one block per rank.
bool in_blocks(Collective c) {
  return c == Collective::AllGather || c == Collective::ReduceScatter || c == Collective::AllToAll ||
         c == Collective::Gather || c == Collective::Scatter;
}

CubePolicy cube_policy(TensorLayout layout) {
  switch (layout) {
    case TensorLayout::Sharded:
      return CubePolicy::RowWise;
    case TensorLayout::Replicated:
      return CubePolicy::Replicate;
    case TensorLayout::Partial:
      return CubePolicy::Partial;
  }
  return CubePolicy::RowWise;
}

/// Of the PE whose vector unit was busy longest, since time 0.
Ps longest_vector_time(models::System& system) {
  Ps longest = 0;
  observe::visit_statistics(system, [&](const observe::Stat& s) {
    if (s.name == "vector_busy") longest = std::max<Ps>(longest, s.count);
  });
  return longest;
}

}  // namespace

/// One rank at a time holds a copy of its tensor on the host: on a large machine all at once would fill it.
class Measurement::Turn {
 public:
  explicit Turn(sc_core::sc_mutex& mutex) : m_mutex(mutex) { m_mutex.lock(); }
  ~Turn() { m_mutex.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  sc_core::sc_mutex& m_mutex;
};

Measurement::Measurement(Collective collective, const AllReduceJob& job, Machine& machine, const ProcessGroup& group,
                         uint64_t size, TimeSplit* split)
    : m_collective(collective),
      m_job(job),
      m_machine(machine),
      m_group(group),
      m_ranks(machine.context->distributed.get_process_group_ranks(group)),
      m_n(static_cast<uint32_t>(m_ranks.size())),
      m_item(item_bytes(job.options.dtype)),
      m_split(split),
      m_functional(machine.context->config().simulation.functional),
      m_turn(sc_core::sc_gen_unique_name("turn")) {
  m_block = size / m_item / (in_blocks(collective) ? m_n : 1);
  m_count = m_block * (in_blocks(collective) ? m_n : 1);
  m_policy.cube = cube_policy(job.options.layout);
  m_policy.num_cubes = job.options.cubes.value_or(0);
  if (job.options.layout == TensorLayout::Partial) {
    m_pieces = job.options.cubes.value_or(machine.context->config().cubes());
  }
}

AllReduceRow Measurement::run() {
  const AllReduceOptions& o = m_job.options;
  runtime::Context& ctx = *m_machine.context;
  const uint32_t world = ctx.distributed.get_world_size();
  m_tensors = std::vector<Rank>(m_n);
  std::vector<std::vector<Work>> works(m_n);
  const Ps vector_before = m_split != nullptr ? longest_vector_time(*m_machine.system) : 0;
  if (m_split != nullptr) m_split->forget();
  Clock::time_point begin = Clock::time_point::min(), end = Clock::time_point::min();
  try {
    ctx.spawn(
        [&](uint32_t /*rank*/) {
          const int64_t me = ctx.distributed.get_rank(m_group);
          if (me < 0) return;
          const auto r = static_cast<uint32_t>(me);
          make(r, m_tensors[r]);
          // Everybody starts together; nothing of the set-up above is measured.
          ctx.distributed.barrier(m_group);
          begin = Clock::now();  // the last rank to come is the one that launches
          works[r] = call(r, m_tensors[r]);
          end = std::max(end, Clock::now());
          for (const auto& guard : m_tensors[r].guards) {
            const std::string damage = guard->damage();
            if (!damage.empty()) throw std::runtime_error("the collective wrote outside its buffers: " + damage);
          }
        },
        world);
  } catch (const NotImplementedError& e) {
    // Found when the ranks' calls have met, before anything is sent: the command line asks for what nothing can do.
    throw UnsuitableAlgorithm(e.what());
  }
  // A barrier holds nobody back: only now have all ranks ended, and the record has the last one's time.
  note(works);
  if (o.algorithm) check_algorithm();

  AllReduceRow row;
  row.size_bytes = m_count * m_item;
  row.count = m_count;
  row.dtype = o.dtype;
  if (ccl::reduces(m_collective)) {
    row.op = o.op;
  } else {
    row.op.reset();
  }
  row.algorithm = m_record.algorithm.empty() ? "none" : m_record.algorithm;
  row.ranks = m_n;
  row.time = m_record.end - m_record.start;
  row.bus_factor = bus_factor(m_collective, m_n);
  row.wall_ms = std::chrono::duration<double, std::milli>(end - begin).count();
  std::vector<SipId> sips;  // none where ranks are PEs: the bounds are about links between SIPs
  if (ctx.distributed.rank_mode() == runtime::distributed::RankMode::Sip) {
    for (const uint32_t r : m_ranks) sips.push_back(SipId{r});
  }
  const SipGraph& graph = m_machine.system->graph();
  row.bound = collective_bound(graph, m_collective, row.size_bytes, sips, root());
  if (m_split != nullptr) row.explain = explanation(vector_before);
  if (o.check && m_functional) {
    std::vector<uint64_t> wrong(m_n, 0);
    ctx.spawn(
        [&](uint32_t /*rank*/) {
          const int64_t me = ctx.distributed.get_rank(m_group);
          if (me < 0) return;
          const Turn turn(m_turn);
          wrong[static_cast<uint32_t>(me)] = count_wrong(static_cast<uint32_t>(me));
        },
        world);
    row.wrong = 0;
    for (const uint64_t w : wrong) *row.wrong += w;
  }
  m_tensors.clear();
  const std::string impossible =
      m_collective == Collective::AllReduce ? impossible_figures(graph, sips, row.size_bytes, row.time)
      : m_n > 1 && row.time < row.bound
          ? fmt::format("{} bytes took {} ps, less than the lower bound of {} ps", row.size_bytes, row.time, row.bound)
          : std::string();
  if (!impossible.empty()) throw std::runtime_error(impossible + ": the model or the bound is wrong");
  check_clean();
  return row;
}

void Measurement::note(const std::vector<std::vector<Work>>& works) {
  m_record = {};
  for (const auto& of_rank : works) {
    for (const Work& work : of_rank) {
      const CollectiveRecord& r = work.record();
      if (r.algorithm.empty()) continue;
      const bool first = m_record.algorithm.empty();
      const Ps start = first ? r.start : std::min(m_record.start, r.start), end = std::max(m_record.end, r.end);
      if (first) m_record = r;
      m_record.start = start;
      m_record.end = end;
    }
  }
}

/// A program's group has one algorithm and runs by others what that does not do; who names one for a single collective
/// wants no other.
void Measurement::check_algorithm() const {
  const std::string asked = m_machine.context->distributed.module_name(m_group);
  if (m_n == 1 || asked.empty() || m_record.algorithm.empty() || m_record.algorithm == asked) return;
  const ccl::AlgorithmModule& module = *m_machine.algorithms.find(asked);
  // Between SIPs as asked; what is partial over the cubes needs a module that reduces those too.
  const bool over_cubes_too = m_record.layout == ccl::CubeLayout::Partial && module.collective == m_collective;
  if (over_cubes_too) return;
  std::vector<std::string> others;
  for (const auto& [name, m] : m_machine.algorithms.modules()) {
    if (m.collective == m_collective && m.layouts.count(m_record.layout) != 0) others.push_back(name);
  }
  std::vector<std::string> layouts;
  for (const ccl::CubeLayout l : module.layouts) layouts.emplace_back(ccl::to_string(l));
  throw UnsuitableAlgorithm(
      fmt::format("--algorithm: {} does {} of {} tensors, not {} of {} ones; algorithms for that: {}", asked,
                  ccl::to_string(module.collective), fmt::join(layouts, " or "), ccl::to_string(m_collective),
                  ccl::to_string(m_record.layout), fmt::join(others, ", ")));
}

/// Nothing may be left in the machine. Credits of the last messages may still be on their way to the senders when the
/// last completion is at the host, on slow links for long.
void Measurement::check_clean() const {
  constexpr Ps kSettle = us(100);
  runtime::Device& device = m_machine.context->device();
  std::string finding = unclean_queues(device);
  const Ps settled = models::now_ps() + kSettle;
  while (!finding.empty()) {
    const Ps now = models::now_ps();
    // Behind the end of what is under way, as a credit counts from then on.
    const Ps next = now < settled ? now + us(1) : device.under_way_until() + 1;
    if (next <= now) break;
    sc_core::wait(models::to_sc_time(next - now));
    finding = unclean_queues(device);
  }
  if (!finding.empty()) {
    throw std::runtime_error("the queues are not clean after the collective: " + finding +
                             m_machine.system->faults().note());
  }
  const size_t tags = device.tags_in_use();
  if (tags != 0) throw std::runtime_error(fmt::format("{} launch tags are still in use after the collective", tags));
}

Explanation Measurement::explanation(Ps vector_busy_before) const {
  Explanation out;
  if (m_record.ranks.sips.empty()) return out;
  const TimeSplit::Parts parts = m_split->of(m_record.start, m_record.end);
  out.host = parts.host;
  out.links = parts.links;
  out.between = parts.between;
  out.reduction = longest_vector_time(*m_machine.system) - vector_busy_before;
  out.staged_bytes = m_record.staged_bytes;
  out.selection = m_record.selection;
  const ccl::CollectiveShape& shape = m_record.shapes.front();
  const double bytes = static_cast<double>(m_count) * item_bytes(shape.dtype);
  const ccl::AlgorithmModule& module = *m_machine.algorithms.find(m_record.algorithm);
  out.closed_form =
      static_cast<Ps>(ccl::closed_form(module, m_machine.context->config(), m_record.ranks, shape, bytes) * 1e12);
  return out;
}

// --- tensors and calls

runtime::Tensor Measurement::tensor(uint64_t count, std::optional<uint64_t> seed, Rank& rank) {
  runtime::Context& ctx = *m_machine.context;
  // Guards are made even where no data is moved: buffers lie at the same addresses in both modes, and take the same
  // time.
  rank.guards.push_back(std::make_unique<BufferGuards>(ctx.device(), SipId{ctx.current_device()}));
  Tensor t = ctx.empty({count}, m_job.options.dtype, m_policy);
  rank.guards.back()->enclose(t);
  if (!m_functional) return t;
  const Turn turn(m_turn);
  const uint64_t all = count * m_pieces;
  const std::vector<uint8_t> host =
      seed ? contribution(*seed, 0, all) : std::vector<uint8_t>(all * m_item, unwritten(m_job.options.dtype));
  t.upload(host.data(), host.size());
  return t;
}

void Measurement::make(uint32_t r, Rank& rank) {
  const auto in = [&](uint64_t count, uint64_t seed) { rank.inputs.push_back(tensor(count, seed, rank)); };
  const auto out = [&](uint64_t count) { rank.outputs.push_back(tensor(count, {}, rank)); };
  switch (m_collective) {
    case Collective::AllGather:
      in(m_block, r);
      out(m_count);
      break;
    case Collective::ReduceScatter:
      in(m_count, r);
      out(m_block);
      break;
    case Collective::AllToAll:
    case Collective::SendRecv:
      in(m_count, r);
      out(m_count);
      break;
    case Collective::Gather:
      in(m_block, r);
      for (uint32_t i = 0; r == root() && i < m_n; ++i) out(m_block);
      break;
    case Collective::Scatter:
      for (uint32_t i = 0; r == root() && i < m_n; ++i) in(m_block, i);
      out(m_block);
      break;
    default:
      in(m_count, r);
      rank.outputs = rank.inputs;
      break;
  }
}

std::vector<Work> Measurement::call(uint32_t r, const Rank& rank) {
  auto& d = m_machine.context->distributed;
  const ReduceOp op = m_job.options.op;
  const bool async = !m_job.options.blocking;
  Work work;
  switch (m_collective) {
    case Collective::AllReduce:
      work = d.all_reduce(rank.inputs[0], op, m_group, async);
      break;
    case Collective::Broadcast:
      work = d.broadcast(rank.inputs[0], group_src(root()), m_group, async);
      break;
    case Collective::Reduce:
      work = d.reduce(rank.inputs[0], group_dst(root()), op, m_group, async);
      break;
    case Collective::AllGather:
      work = d.all_gather_into_tensor(rank.outputs[0], rank.inputs[0], m_group, async);
      break;
    case Collective::ReduceScatter:
      work = d.reduce_scatter_tensor(rank.outputs[0], rank.inputs[0], op, m_group, async);
      break;
    case Collective::AllToAll:
      work = d.all_to_all_single(rank.outputs[0], rank.inputs[0], {}, {}, m_group, async);
      break;
    case Collective::Gather:
      work = d.gather(rank.inputs[0], rank.outputs, group_dst(root()), m_group, async);
      break;
    case Collective::Scatter:
      work = d.scatter(rank.outputs[0], rank.inputs, group_src(root()), m_group, async);
      break;
    case Collective::SendRecv: {
      if (m_n == 1) return {};
      const std::vector<Work> batch =
          d.batch_isend_irecv({{P2POp::Isend, rank.inputs[0], group_dst((r + 1) % m_n), m_group},
                               {P2POp::Irecv, rank.outputs[0], group_src((r + m_n - 1) % m_n), m_group}});
      for (const Work& w : batch) w.wait();
      return batch;
    }
    default:
      throw std::logic_error(fmt::format("{} has no command", ccl::to_string(m_collective)));
  }
  work.wait();
  return {work};
}

// --- what must come out

/// Elements [first, first + count) of a rank's contribution.
std::vector<uint8_t> Measurement::contribution(uint64_t seed, uint64_t first, uint64_t count) const {
  std::vector<uint8_t> out(count * m_item);
  runtime::fill_random(m_job.options.dtype, 1000003 + seed, first, count, out.data());
  return out;
}

/// What rank r must hold, by the meaning of the collective; sums in the documented order of the algorithm that ran.
std::vector<uint8_t> Measurement::expected(uint32_t r) {
  std::vector<uint8_t> out;
  const auto append = [&](const std::vector<uint8_t>& more) { out.insert(out.end(), more.begin(), more.end()); };
  const uint32_t before = (r + m_n - 1) % m_n;
  switch (m_collective) {
    case Collective::AllReduce:
      return reduced();
    case Collective::Broadcast:
      return contribution(root(), 0, m_count);
    case Collective::Reduce:
      return r == root() ? reduced() : contribution(r, 0, m_count);
    case Collective::ReduceScatter: {
      const auto begin = reduced().begin() + static_cast<ptrdiff_t>(r * m_block * m_item);
      return {begin, begin + static_cast<ptrdiff_t>(m_block * m_item)};
    }
    case Collective::AllGather:
    case Collective::Gather:
      for (uint32_t i = 0; (m_collective == Collective::AllGather || r == root()) && i < m_n; ++i) {
        append(contribution(i, 0, m_block));
      }
      return out;
    case Collective::AllToAll:
      for (uint32_t i = 0; i < m_n; ++i) append(contribution(i, r * m_block, m_block));
      return out;
    case Collective::Scatter:
      return contribution(r, 0, m_block);
    case Collective::SendRecv:
      return m_n == 1 ? std::vector<uint8_t>(m_count * m_item, unwritten(m_job.options.dtype))
                      : contribution(before, 0, m_count);
    default:
      return out;
  }
}

/// The whole reduced tensor.
const std::vector<uint8_t>& Measurement::reduced() {
  if (!m_reduced.empty() || m_count == 0) return m_reduced;
  m_reduced.resize(m_count * m_item);
  if (m_collective == Collective::AllReduce && m_record.layout != ccl::CubeLayout::Sharded) {
    reduce_lane(m_record.shapes.front(), {{0, 0, m_count}});
    return m_reduced;
  }
  std::vector<runtime::distributed::Lane> lanes = m_record.lanes;
  if (m_collective == Collective::AllReduce) {
    using runtime::distributed::BlockCut;
    lanes = runtime::distributed::Side::cut(m_tensors[0].inputs[0].handle()->layout(), BlockCut::whole(m_count))
                .lanes(m_record.ranks.n_cubes);
  }
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane].count() != 0) reduce_lane(m_record.shapes[lane], lanes[lane].runs());
  }
  return m_reduced;
}

/// Contributions are made anew rather than kept: the tensors of a large machine fill the host's memory once already.
void Measurement::reduce_lane(const ccl::CollectiveShape& shape, const std::vector<LaneRun>& runs) {
  const uint64_t wire = item_bytes(shape.dtype);
  const DType dtype = m_job.options.dtype;
  const auto converted = [](DType from, DType to, const std::vector<uint8_t>& in) {
    if (from == to) return in;
    const uint64_t n = in.size() / item_bytes(from);
    std::vector<uint8_t> out(n * item_bytes(to));
    for (uint64_t i = 0; i < n; ++i) store_element(to, out.data(), i, load_element(from, in.data(), i));
    return out;
  };
  uint64_t n = 0;
  for (const LaneRun& run : runs) n += run.count;
  const uint64_t pieces = shape.layout == ccl::CubeLayout::Partial ? m_record.ranks.n_cubes : 1;
  std::vector<std::vector<uint8_t>> host;
  for (uint32_t r = 0; r < m_n; ++r) {
    for (uint64_t p = 0; p < pieces; ++p) {
      host.emplace_back();
      for (const LaneRun& run : runs) {
        const auto part =
            converted(dtype, shape.dtype, contribution(r, p * m_count + run.block * m_block + run.element, run.count));
        host.back().insert(host.back().end(), part.begin(), part.end());
      }
    }
  }
  std::vector<const void*> contributions;
  for (const auto& h : host) contributions.push_back(h.data());
  std::vector<uint8_t> sum(n * wire);
  const ccl::AlgorithmModule& module = *m_machine.algorithms.find(m_record.algorithm);
  ccl::evaluate_reference(module.reduction_order(m_record.ranks, shape), contributions, n, shape.dtype,
                          m_job.options.op, m_job.options.op == ReduceOp::Avg ? m_n : 1, sum.data());
  const std::vector<uint8_t> result = converted(shape.dtype, dtype, sum);
  uint64_t at = 0;
  for (const LaneRun& run : runs) {
    std::memcpy(m_reduced.data() + (run.block * m_block + run.element) * m_item, result.data() + at * m_item,
                run.count * m_item);
    at += run.count;
  }
}

/// Elements of every copy that a rank holds.
uint64_t Measurement::count_wrong(uint32_t r) {
  const std::vector<Tensor>& outputs = m_tensors[r].outputs;
  const std::vector<uint8_t> want = expected(r);
  uint32_t copies = 1;
  for (const Tensor& t : outputs) {
    const layout::Layout& l = t.handle()->layout();
    if (l.replicated_over_cubes()) copies = std::max(copies, l.cubes());
  }
  // Nothing but the result of an all-reduce is new on every cube of the rank that gave it.
  if (m_collective == Collective::Broadcast && r == root()) copies = 1;
  uint64_t wrong = 0;
  for (uint32_t c = 0; c < copies; ++c) {
    std::vector<uint8_t> got;
    for (const Tensor& t : outputs) {
      const SipId sip = t.handle()->sips().front();
      const auto bytes = copies == 1 ? t.to_host_bytes(sip) : t.piece_bytes(sip, CubeId{c});
      got.insert(got.end(), bytes.begin(), bytes.end());
    }
    wrong += differing(got, want);
  }
  return wrong;
}

uint64_t Measurement::differing(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) const {
  if (got == want) return 0;
  uint64_t n = 0;
  const uint64_t both = std::min(got.size(), want.size()) / m_item;
  for (uint64_t i = 0; i < both; ++i) {
    n += std::memcmp(got.data() + i * m_item, want.data() + i * m_item, m_item) != 0;
  }
  return n + std::max(got.size(), want.size()) / m_item - both;
}

// --- figures

double bus_factor(Collective collective, uint32_t ranks) {
  const double f = ranks == 0 ? 0 : (ranks - 1.0) / ranks;
  switch (collective) {
    case Collective::AllReduce:
      return 2 * f;
    case Collective::AllGather:
    case Collective::ReduceScatter:
    case Collective::AllToAll:
    case Collective::Gather:
    case Collective::Scatter:
      return f;
    default:
      return 1;
  }
}

Ps collective_bound(const SipGraph& graph, Collective collective, uint64_t bytes, const std::vector<SipId>& group,
                    uint32_t root) {
  if (group.size() < 2 || bytes == 0) return 0;
  if (collective == Collective::AllReduce) return graph.all_reduce_bound(bytes, group);
  const double f = (static_cast<double>(group.size()) - 1) / static_cast<double>(group.size());
  const auto size = static_cast<double>(bytes);
  const LinkFigures links(graph);
  Ps bound = 0;
  const auto poorest = [&](double each, bool in, std::optional<uint32_t> but) {
    for (uint32_t r = 0; r < group.size(); ++r) {
      if (!but || *but != r) bound = std::max(bound, over(each, links.bandwidth(group[r], in)));
    }
  };
  // Nothing goes the other way: a slow link there holds up nobody.
  const auto from_root = [&] { bound = std::max(bound, links.farthest(group[root], group, false)); };
  const auto to_root = [&] { bound = std::max(bound, links.farthest(group[root], group, true)); };
  switch (collective) {
    case Collective::AllGather:
    case Collective::ReduceScatter:
    case Collective::AllToAll:
      // A gathered block leaves its rank once at least, a sum enters it once: only the other side has all the bytes.
      if (collective != Collective::ReduceScatter) poorest(size * f, true, {});
      if (collective != Collective::AllGather) poorest(size * f, false, {});
      bound = std::max(bound, graph.diameter_latency(group));
      break;
    case Collective::Broadcast:
      poorest(size, true, root);
      from_root();
      break;
    case Collective::Reduce:
      poorest(size, false, root);
      to_root();
      break;
    case Collective::Gather:
      bound = over(size * f, links.bandwidth(group[root], true));
      to_root();
      break;
    case Collective::Scatter:
      bound = over(size * f, links.bandwidth(group[root], false));
      from_root();
      break;
    case Collective::SendRecv:
      poorest(size, false, {});
      for (size_t r = 0; r < group.size(); ++r) {
        bound = std::max(bound, links.farthest(group[r], {group[(r + 1) % group.size()]}, false));
      }
      break;
    default:
      break;
  }
  return bound;
}

}  // namespace ahbm::platform
