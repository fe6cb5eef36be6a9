#include "platform/collective_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ccl/reference.h"
#include "platform/machine.h"
#include "platform/observe.h"
#include "platform/run_checks.h"
#include "runtime/random.h"

namespace ahbm::platform {

namespace {

using Clock = std::chrono::steady_clock;
using ccl::Collective;
using runtime::Tensor;
using runtime::distributed::CollectiveRecord;
using runtime::distributed::group_dst;
using runtime::distributed::group_src;
using runtime::distributed::ProcessGroup;
using runtime::distributed::Work;

/// Bytes per second into (or out of) a SIP over all its links.
uint64_t link_bandwidth(const SipGraph& graph, SipId sip, bool in) {
  uint64_t sum = 0;
  for (const SipGraph::DirectedLink& l : graph.directed_links()) {
    if ((in ? l.to : l.from) == sip) sum += l.link.bytes_per_second;
  }
  return sum;
}

Ps over(double bytes, uint64_t bandwidth) {
  return bandwidth == 0 ? 0 : static_cast<Ps>(bytes * 1e12 / static_cast<double>(bandwidth));
}

/// One size on the machine.
class Point {
 public:
  Point(Collective collective, const AllReduceJob& job, Machine& machine, std::vector<uint32_t> ranks, uint64_t size)
      : m_collective(collective),
        m_job(job),
        m_options(job.options),
        m_machine(machine),
        m_ranks(std::move(ranks)),
        m_n(static_cast<uint32_t>(m_ranks.size())),
        m_item(item_bytes(job.options.dtype)),
        m_functional(job.config.simulation.functional) {
    const bool cut =
        collective != Collective::Broadcast && collective != Collective::Reduce && collective != Collective::SendRecv;
    m_block = size / m_item / (cut ? m_n : 1);
    m_count = m_block * (cut ? m_n : 1);
    m_policy.cube =
        job.options.layout == TensorLayout::Replicated ? runtime::CubePolicy::Replicate : runtime::CubePolicy::RowWise;
    m_policy.num_cubes = job.options.cubes.value_or(0);
  }

  AllReduceRow run(const ProcessGroup& group) {
    runtime::Context& ctx = *m_machine.context;
    const bool check = m_options.check && m_functional;
    std::vector<uint64_t> wrong(m_n, 0);
    m_results.assign(m_n, {});
    Clock::time_point begin = Clock::time_point::max(), end = Clock::time_point::min();
    CollectiveRecord record;
    ctx.distributed.on_collective = [&](const CollectiveRecord& r) {
      if (r.collective != m_collective) return;
      // Of a sendrecv: from the first message of any pair to the last.
      const Ps start = record.algorithm.empty() ? r.start : std::min(record.start, r.start);
      const Ps last = std::max(record.end, r.end);
      record = r;
      record.start = start;
      record.end = last;
    };
    ctx.spawn(
        [&](uint32_t /*rank*/) {
          const int64_t me = ctx.distributed.get_rank(group);
          if (me < 0) return;
          const auto r = static_cast<uint32_t>(me);
          std::vector<Tensor> inputs, outputs;
          make(r, inputs, outputs);
          ctx.distributed.barrier(group);
          begin = std::min(begin, Clock::now());
          call(r, inputs, outputs, group);
          end = std::max(end, Clock::now());
          ctx.distributed.barrier(group);
          if (!check) return;
          for (const Tensor& t : outputs) {
            const std::vector<uint8_t> bytes = t.to_host_bytes();
            m_results[r].insert(m_results[r].end(), bytes.begin(), bytes.end());
          }
        },
        ctx.distributed.get_world_size());
    ctx.distributed.on_collective = nullptr;
    AllReduceRow row;
    row.size_bytes = m_count * m_item;
    row.count = m_count;
    row.dtype = m_options.dtype;
    row.op = m_options.op;
    row.algorithm = record.algorithm;
    row.ranks = m_n;
    row.time = record.end - record.start;
    std::vector<SipId> sips;
    for (const uint32_t r : m_ranks) sips.push_back(SipId{r});
    row.bound = collective_bound(m_machine.system->graph(), m_collective, m_count * m_item, sips, m_options.root);
    row.bus_factor = bus_factor(m_collective, m_n);
    if (check) {
      row.wrong = 0;
      for (uint32_t r = 0; r < m_n; ++r) *row.wrong += differing(m_results[r], expected(record, r));
    }
    row.wall_ms = std::chrono::duration<double, std::milli>(end - begin).count();
    if (m_count > 0 && m_n > 1 && row.time < row.bound) {
      throw std::runtime_error(
          fmt::format("{} bytes took {} ps, less than the lower bound of {} ps: the model or the "
                      "bound is wrong",
                      row.size_bytes, row.time, row.bound));
    }
    const std::string finding = settled_queues();
    if (!finding.empty()) throw std::runtime_error("the queues are not clean after the collective: " + finding);
    if (!record.algorithm.empty()) m_closed_form = closed_form(record);
    m_staged = record.staged_bytes;
    return row;
  }

  double closed_form_us() const { return m_closed_form * 1e6; }
  uint64_t staged_bytes() const { return m_staged; }

 private:
  uint32_t root() const { return m_options.root; }

  Tensor tensor(uint64_t count, std::optional<uint64_t> seed) {
    Tensor t = m_machine.context->empty({count}, m_options.dtype, m_policy);
    if (m_functional) {
      std::vector<uint8_t> host(count * m_item, 0x5A);
      if (seed) host = contribution(*seed, count);
      t.upload(host.data(), host.size());
    }
    return t;
  }

  void make(uint32_t r, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    switch (m_collective) {
      case Collective::AllGather:
        inputs.push_back(tensor(m_block, r));
        outputs.push_back(tensor(m_count, {}));
        break;
      case Collective::ReduceScatter:
        inputs.push_back(tensor(m_count, r));
        outputs.push_back(tensor(m_block, {}));
        break;
      case Collective::AllToAll:
        inputs.push_back(tensor(m_count, r));
        outputs.push_back(tensor(m_count, {}));
        break;
      case Collective::Gather:
        inputs.push_back(tensor(m_block, r));
        for (uint32_t i = 0; r == root() && i < m_n; ++i) outputs.push_back(tensor(m_block, {}));
        break;
      case Collective::Scatter:
        for (uint32_t i = 0; r == root() && i < m_n; ++i) inputs.push_back(tensor(m_block, i));
        outputs.push_back(tensor(m_block, {}));
        break;
      case Collective::SendRecv:
        inputs.push_back(tensor(m_count, r));
        outputs.push_back(tensor(m_count, {}));
        break;
      default:
        inputs.push_back(tensor(m_count, r));
        outputs = inputs;
        break;
    }
  }

  void call(uint32_t r, const std::vector<Tensor>& in, const std::vector<Tensor>& out, const ProcessGroup& group) {
    auto& d = m_machine.context->distributed;
    const bool async = !m_options.blocking;
    Work work;
    switch (m_collective) {
      case Collective::Broadcast:
        work = d.broadcast(in[0], group_src(root()), group, async);
        break;
      case Collective::Reduce:
        work = d.reduce(in[0], group_dst(root()), m_options.op, group, async);
        break;
      case Collective::AllGather:
        work = d.all_gather_into_tensor(out[0], in[0], group, async);
        break;
      case Collective::ReduceScatter:
        work = d.reduce_scatter_tensor(out[0], in[0], m_options.op, group, async);
        break;
      case Collective::AllToAll:
        work = d.all_to_all_single(out[0], in[0], {}, {}, group, async);
        break;
      case Collective::Gather:
        work = d.gather(in[0], out, group_dst(root()), group, async);
        break;
      case Collective::Scatter:
        work = d.scatter(out[0], in, group_src(root()), group, async);
        break;
      case Collective::SendRecv: {
        if (m_n == 1) return;
        const Work sent = d.isend(in[0], group_dst((r + 1) % m_n), group);
        const Work received = d.irecv(out[0], group_src((r + m_n - 1) % m_n), group);
        sent.wait();
        received.wait();
        return;
      }
      default:
        throw std::logic_error(fmt::format("{} has a command of its own", ccl::to_string(m_collective)));
    }
    work.wait();
  }

  std::vector<uint8_t> contribution(uint64_t seed, uint64_t count) const {
    std::vector<uint8_t> out(count * m_item);
    runtime::fill_random(m_options.dtype, 1000003 + seed, 0, count, out.data());
    return out;
  }

  std::vector<uint8_t> piece(uint32_t of, uint64_t begin, uint64_t count, uint64_t length) const {
    const std::vector<uint8_t> all = contribution(of, length);
    return {all.begin() + static_cast<ptrdiff_t>(begin * m_item),
            all.begin() + static_cast<ptrdiff_t>((begin + count) * m_item)};
  }

  /// What rank r must hold, by the meaning of the collective; sums in the documented order of the algorithm that ran.
  std::vector<uint8_t> expected(const CollectiveRecord& record, uint32_t r) {
    std::vector<uint8_t> out;
    const auto append = [&](const std::vector<uint8_t>& more) { out.insert(out.end(), more.begin(), more.end()); };
    switch (m_collective) {
      case Collective::Broadcast:
        return contribution(root(), m_count);
      case Collective::Reduce:
        return r == root() ? reduced(record) : contribution(r, m_count);
      case Collective::ReduceScatter: {
        const std::vector<uint8_t>& all = reduced(record);
        const auto begin = all.begin() + static_cast<ptrdiff_t>(r * m_block * m_item);
        return {begin, begin + static_cast<ptrdiff_t>(m_block * m_item)};
      }
      case Collective::AllGather:
      case Collective::Gather:
        for (uint32_t i = 0; (m_collective == Collective::AllGather || r == root()) && i < m_n; ++i) {
          append(contribution(i, m_block));
        }
        return out;
      case Collective::AllToAll:
        for (uint32_t i = 0; i < m_n; ++i) append(piece(i, r * m_block, m_block, m_count));
        return out;
      case Collective::Scatter:
        return contribution(r, m_block);
      case Collective::SendRecv:
        return m_n == 1 ? std::vector<uint8_t>(m_count * m_item, 0x5A) : contribution((r + m_n - 1) % m_n, m_count);
      default:
        return out;
    }
  }

  /// The whole reduced tensor.
  const std::vector<uint8_t>& reduced(const CollectiveRecord& record) {
    if (!m_reduced.empty() || m_count == 0) return m_reduced;
    m_reduced.resize(m_count * m_item);
    std::vector<std::vector<uint8_t>> host;
    for (uint32_t r = 0; r < m_n; ++r) host.push_back(contribution(r, m_count));
    const ccl::AlgorithmModule& module = *m_machine.algorithms.find(record.algorithm);
    for (size_t lane = 0; lane < record.lanes.size(); ++lane) {
      const ccl::CollectiveShape& shape = record.shapes[lane];
      const uint64_t n = record.lanes[lane].count(), wire = item_bytes(shape.dtype);
      if (n == 0) continue;
      std::vector<std::vector<uint8_t>> parts(m_n, std::vector<uint8_t>(n * wire));
      std::vector<uint64_t> where;
      for (const auto& run : record.lanes[lane].runs()) {
        for (uint64_t i = 0; i < run.count; ++i) where.push_back(run.block * m_block + run.element + i);
      }
      std::vector<const void*> contributions;
      for (uint32_t r = 0; r < m_n; ++r) {
        for (uint64_t i = 0; i < n; ++i) {
          if (shape.dtype == m_options.dtype) {
            std::memcpy(parts[r].data() + i * wire, host[r].data() + where[i] * m_item, m_item);
          } else {
            store_element(shape.dtype, parts[r].data(), i, load_element(m_options.dtype, host[r].data(), where[i]));
          }
        }
        contributions.push_back(parts[r].data());
      }
      std::vector<uint8_t> sum(n * wire);
      ccl::evaluate_reference(module.reduction_order(record.ranks, shape), contributions, n, shape.dtype, m_options.op,
                              m_options.op == ReduceOp::Avg ? m_n : 1, sum.data());
      for (uint64_t i = 0; i < n; ++i) {
        if (shape.dtype == m_options.dtype) {
          std::memcpy(m_reduced.data() + where[i] * m_item, sum.data() + i * wire, m_item);
        } else {
          store_element(m_options.dtype, m_reduced.data(), where[i], load_element(shape.dtype, sum.data(), i));
        }
      }
    }
    return m_reduced;
  }

  uint64_t differing(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) const {
    if (got == want) return 0;
    uint64_t n = 0;
    const uint64_t both = std::min(got.size(), want.size()) / m_item;
    for (uint64_t i = 0; i < both; ++i) {
      n += std::memcmp(got.data() + i * m_item, want.data() + i * m_item, m_item) != 0;
    }
    return n + std::max(got.size(), want.size()) / m_item - both;
  }

  /// Credits of the last messages may still be on their way when the last completion is at the host.
  std::string settled_queues() const {
    constexpr int kSettleMicroseconds = 100;
    std::string finding = unclean_queues(m_machine.context->device());
    for (int i = 0; i < kSettleMicroseconds && !finding.empty(); ++i) {
      sc_core::wait(1, sc_core::SC_US);
      finding = unclean_queues(m_machine.context->device());
    }
    return finding;
  }

  double closed_form(const CollectiveRecord& record) const {
    if (record.ranks.sips.empty()) return 0;
    ccl::CostQuery q;
    q.ranks = m_n;
    q.bytes = static_cast<double>(m_count * m_item);
    q.latency = static_cast<double>(m_job.config.sip_link.latency) * 1e-12;
    q.bandwidth = static_cast<double>(m_job.config.sip_link.bytes_per_second);
    q.cube_latency = static_cast<double>(m_job.config.noc.cube_link.latency) * 1e-12;
    q.cube_bandwidth = static_cast<double>(m_job.config.noc.cube_link.bytes_per_second);
    q.group = &record.ranks;
    q.layout = record.layout;
    return m_machine.algorithms.find(record.algorithm)->time(q);
  }

  const Collective m_collective;
  const AllReduceJob& m_job;
  const AllReduceOptions& m_options;
  Machine& m_machine;
  const std::vector<uint32_t> m_ranks;
  const uint32_t m_n;
  const uint32_t m_item;
  const bool m_functional;
  uint64_t m_block = 0, m_count = 0;
  runtime::DPPolicy m_policy;
  std::vector<std::vector<uint8_t>> m_results;
  std::vector<uint8_t> m_reduced;
  double m_closed_form = 0;
  uint64_t m_staged = 0;
};

}  // namespace

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
  Ps bound = 0;
  const auto poorest = [&](double each, bool in, std::optional<uint32_t> but) {
    for (uint32_t r = 0; r < group.size(); ++r) {
      if (!but || *but != r) bound = std::max(bound, over(each, link_bandwidth(graph, group[r], in)));
    }
  };
  const auto from_root = [&] {
    for (uint32_t r = 0; r < group.size(); ++r) {
      if (r != root) bound = std::max(bound, graph.diameter_latency({group[root], group[r]}));
    }
  };
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
      from_root();
      break;
    case Collective::Gather:
      bound = over(size * f, link_bandwidth(graph, group[root], true));
      from_root();
      break;
    case Collective::Scatter:
      bound = over(size * f, link_bandwidth(graph, group[root], false));
      from_root();
      break;
    case Collective::SendRecv:
      poorest(size, false, {});
      for (size_t r = 0; r < group.size(); ++r) {
        bound = std::max(bound, graph.diameter_latency({group[r], group[(r + 1) % group.size()]}));
      }
      break;
    default:
      break;
  }
  return bound;
}

void run_collective(Collective collective, const AllReduceJob& job, AllReduceReport& report) {
  Observing observing(job.options.observe);
  auto* machine = new Machine(job.config, observing.parts());  // left to the operating system, see Machine
  observing.attach(*machine);
  machine->run([&] {
    runtime::Context& ctx = *machine->context;
    if (job.options.ccl_file) ctx.distributed.set_ccl_file(*job.options.ccl_file);
    if (job.options.algorithm) ctx.distributed.set_algorithm(*job.options.algorithm);
    if (job.options.layout == TensorLayout::Partial) {
      throw UsageError(fmt::format("--layout: partial is for all_reduce, {} takes sharded or replicated",
                                   ccl::to_string(collective)));
    }
    std::vector<uint32_t> ranks = job.options.group;
    ProcessGroup group;
    try {
      ctx.distributed.init_process_group();
      if (!ranks.empty()) group = ctx.distributed.new_group(ranks);
    } catch (const std::invalid_argument& e) {
      throw UsageError(e.what());
    }
    ranks = ctx.distributed.get_process_group_ranks(group);
    if (job.options.root >= ranks.size()) {
      throw UsageError(fmt::format("--root: {} of a group of {} ranks", job.options.root, ranks.size()));
    }
    report.header(fmt::format("{}: {} ranks (rank = {}){}, {}, {} x {} cubes of {} PEs, layout {}", job.config.name,
                              ranks.size(), runtime::distributed::to_string(ctx.distributed.rank_mode()),
                              job.options.group.empty() ? "" : fmt::format(", group {}", fmt::join(ranks, ",")),
                              to_string(job.config.topology), job.config.cube_w, job.config.cube_h, job.config.pes,
                              to_string(job.options.layout)));
    for (const uint64_t size : job.options.sizes) {
      report.progress(size);
      for (uint32_t i = 0; i < job.options.repeat; ++i) {
        Point point(collective, job, *machine, ranks, size);
        const AllReduceRow row = point.run(group);
        report.add(row);
        if (!job.options.explain || i != 0) continue;
        report.footer(
            fmt::format("{} B by {}: {:.3f} us, closed form {:.3f} us, lower bound {:.3f} us; {} bytes repacked",
                        row.size_bytes, row.algorithm, static_cast<double>(row.time) / 1e6, point.closed_form_us(),
                        static_cast<double>(row.bound) / 1e6, point.staged_bytes()));
      }
    }
    ctx.distributed.destroy_process_group();
  });
  observing.finish();
  if (job.options.quiet) return;
  for (const std::string& line : load_summary(*machine->system)) report.footer(line);
}

}  // namespace ahbm::platform
