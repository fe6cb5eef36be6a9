#include "platform/all_reduce_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "ccl/reference.h"
#include "platform/machine.h"
#include "platform/observe.h"
#include "platform/run_checks.h"
#include "runtime/random.h"

namespace ahbm::platform {

namespace {

using Clock = std::chrono::steady_clock;
using runtime::CubePolicy;

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

ccl::CubeLayout ccl_layout(TensorLayout layout) {
  switch (layout) {
    case TensorLayout::Sharded:
      return ccl::CubeLayout::Sharded;
    case TensorLayout::Replicated:
      return ccl::CubeLayout::Replicated;
    case TensorLayout::Partial:
      return ccl::CubeLayout::Partial;
  }
  return ccl::CubeLayout::Sharded;
}

/// The group that the collective runs on, as the reference needs it.
ccl::Group group_of(const SystemConfig& config, uint32_t ranks, const layout::Layout& cut) {
  ccl::Group g;
  for (uint32_t r = 0; r < ranks; ++r) g.sips.push_back(SipId{r});
  g.n_cubes = std::max(1u, cut.occupied_cubes());
  if (g.n_cubes > 1) {
    g.cube_w = config.cube_w;
    g.cube_h = config.cube_h;
  }
  g.topology = config.topology;
  g.sip_w = config.sip_w;
  g.sip_h = config.sip_h;
  g.machine_sips = config.sips;
  g.double_links = config.double_links;
  return g;
}

/// One size on the machine: contributions made, reduced, compared.
class Point {
 public:
  Point(const AllReduceJob& job, Machine& machine, uint32_t ranks, uint64_t size)
      : m_job(job),
        m_machine(machine),
        m_ranks(ranks),
        m_size(size),
        m_item(item_bytes(job.options.dtype)),
        m_count(size / m_item),
        m_functional(job.config.simulation.functional) {
    m_policy.cube = cube_policy(job.options.layout);
    m_policy.num_cubes = job.options.cubes.value_or(0);
    m_pieces = job.options.layout == TensorLayout::Partial ? job.options.cubes.value_or(job.config.cubes()) : 1;
  }

  AllReduceRow run() {
    const AllReduceOptions& o = m_job.options;
    runtime::Context& ctx = *m_machine.context;
    const bool check = o.check && m_functional;
    std::vector<uint64_t> wrong(m_ranks, 0);
    std::vector<runtime::Tensor> tensors(m_ranks);
    runtime::distributed::Work work_of_first;
    Clock::time_point begin = Clock::time_point::min(), end = Clock::time_point::min();
    ctx.spawn(
        [&](uint32_t rank) {
          std::optional<BufferGuards> guards;
          if (m_functional) guards.emplace(ctx.device(), SipId{rank});
          runtime::Tensor t = ctx.empty({m_count}, o.dtype, m_policy);
          if (guards) guards->enclose(t);
          if (m_functional) {
            const Turn turn(m_turn);
            const std::vector<uint8_t> host = contribution(rank, 0, m_count * m_pieces);
            t.upload(host.data(), host.size());
          }
          // Everybody starts together; nothing of the set-up above is measured.
          ctx.distributed.barrier();
          begin = Clock::now();  // the last rank to come is the one that launches
          const auto work = ctx.distributed.all_reduce(t, o.op);
          end = std::max(end, Clock::now());
          if (rank == 0) work_of_first = work;
          tensors[rank] = t;
          if (!guards) return;
          const std::string damage = guards->damage();
          if (!damage.empty()) throw std::runtime_error("the collective wrote outside its buffers: " + damage);
        },
        m_ranks);
    // A barrier holds nobody back: only now have all ranks ended, and the record has the last one's time.
    const runtime::distributed::CollectiveRecord record = work_of_first.record();
    if (check) {
      const std::vector<uint8_t> want = expected(record, tensors[0].handle()->layout());
      ctx.spawn(
          [&](uint32_t rank) {
            const Turn turn(m_turn);
            wrong[rank] = count_wrong(tensors[rank], rank, want);
          },
          m_ranks);
    }
    AllReduceRow row;
    row.size_bytes = m_size;
    row.count = m_count;
    row.dtype = o.dtype;
    row.op = o.op;
    row.algorithm = record.algorithm;
    row.ranks = m_ranks;
    row.time = record.end - record.start;
    std::vector<SipId> group;
    for (uint32_t r = 0; r < m_ranks; ++r) group.push_back(SipId{r});
    row.bound = m_machine.system->graph().all_reduce_bound(m_size, group);
    if (check) {
      row.wrong = 0;
      for (const uint64_t w : wrong) *row.wrong += w;
    }
    row.wall_ms = std::chrono::duration<double, std::milli>(end - begin).count();
    const std::string impossible = impossible_figures(m_machine.system->graph(), group, m_count * m_item, row.time);
    if (!impossible.empty()) throw std::runtime_error(impossible + ": the model or the bound is wrong");
    check_queues();
    return row;
  }

 private:
  /// Nothing may be left in the machine. Credits of the last messages may still be on their way to the senders when the
  /// last completion is at the host.
  void check_queues() const {
    constexpr int kSettleMicroseconds = 100;
    std::string finding = unclean_queues(m_machine.context->device());
    for (int i = 0; i < kSettleMicroseconds && !finding.empty(); ++i) {
      sc_core::wait(1, sc_core::SC_US);
      finding = unclean_queues(m_machine.context->device());
    }
    if (!finding.empty()) throw std::runtime_error("the queues are not clean after the collective: " + finding);
    const size_t tags = m_machine.context->device().tags_in_use();
    if (tags != 0) throw std::runtime_error(fmt::format("{} launch tags are still in use after the collective", tags));
  }

  /// The logical tensor that every rank must hold, by the documented order of the algorithm that ran.
  std::vector<uint8_t> expected(const runtime::distributed::CollectiveRecord& record, const layout::Layout& cut) const {
    std::vector<uint8_t> out(m_count * m_item);
    if (m_count == 0) return out;
    const AllReduceOptions& o = m_job.options;
    const ccl::AlgorithmModule& module = *m_machine.algorithms.find(record.algorithm);
    const ccl::Group group = group_of(m_job.config, m_ranks, cut);
    const uint64_t divisor = o.op == ReduceOp::Avg ? m_ranks : 1;
    const ccl::CubeLayout layout = ccl_layout(o.layout);
    const auto reduce_range = [&](uint64_t first, uint64_t n) {
      // Made anew rather than kept: the tensors of a large machine fill the host's memory once already.
      std::vector<std::vector<uint8_t>> host;
      std::vector<const void*> contributions;
      for (uint32_t r = 0; r < m_ranks; ++r) {
        for (uint64_t p = 0; p < m_pieces; ++p) {
          host.push_back(contribution(r, p * m_count + first, n));
          contributions.push_back(host.back().data());
        }
      }
      ccl::evaluate_reference(module.reduction_order(group, ccl::lane_shape(n, layout)), contributions, n, o.dtype,
                              o.op, divisor, out.data() + first * m_item);
    };
    if (layout != ccl::CubeLayout::Sharded) {
      reduce_range(0, m_count);
    } else {
      for (uint32_t c = 0; c < cut.cubes(); ++c) {
        const uint64_t n = cut.cube_elements(CubeId{c});
        if (n != 0) reduce_range(cut.shard(CubeId{c}, PeId{0}).rows.begin, n);
      }
    }
    return out;
  }

  /// Elements [first, first + n) of what a rank brings.
  std::vector<uint8_t> contribution(uint32_t rank, uint64_t first, uint64_t n) const {
    std::vector<uint8_t> out(n * m_item);
    runtime::fill_random(m_job.options.dtype, 1000003 + rank, first, n, out.data());
    return out;
  }

  uint64_t differing(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) const {
    if (got == want) return 0;
    uint64_t n = got.size() == want.size() ? 0 : m_count;
    for (uint64_t i = 0; n < m_count && i < m_count; ++i) {
      n += std::memcmp(got.data() + i * m_item, want.data() + i * m_item, m_item) != 0;
    }
    return n;
  }

  /// Elements of every copy that a rank holds.
  uint64_t count_wrong(const runtime::Tensor& t, uint32_t rank, const std::vector<uint8_t>& want) const {
    const SipId sip{rank};
    if (m_job.options.layout == TensorLayout::Sharded) return differing(t.to_host_bytes(sip), want);
    uint64_t n = 0;
    for (uint32_t c = 0; c < t.handle()->layout().cubes(); ++c) n += differing(t.piece_bytes(sip, CubeId{c}), want);
    return n;
  }

  /// One rank at a time holds a copy of its tensor on the host: on a large machine all at once would fill it.
  class Turn {
   public:
    explicit Turn(sc_core::sc_mutex& mutex) : m_mutex(mutex) { m_mutex.lock(); }
    ~Turn() { m_mutex.unlock(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    sc_core::sc_mutex& m_mutex;
  };

  sc_core::sc_mutex m_turn{sc_core::sc_gen_unique_name("turn")};
  const AllReduceJob& m_job;
  Machine& m_machine;
  const uint32_t m_ranks;
  const uint64_t m_size;
  const uint32_t m_item;
  const uint64_t m_count;
  const bool m_functional;
  uint64_t m_pieces = 1;
  runtime::DPPolicy m_policy;
};

}  // namespace

void run_all_reduce(const AllReduceJob& job, AllReduceReport& report) {
  Observing observing(job.options.observe);
  auto* machine = new Machine(job.config, observing.parts());  // left to the operating system, see Machine
  observing.attach(*machine);
  machine->run([&] {
    runtime::Context& ctx = *machine->context;
    if (job.options.ccl_file) ctx.distributed.set_ccl_file(*job.options.ccl_file);
    if (job.options.algorithm) ctx.distributed.set_algorithm(*job.options.algorithm);
    try {
      ctx.distributed.init_process_group();
    } catch (const std::invalid_argument& e) {
      throw UsageError(e.what());
    }
    const uint32_t ranks = ctx.distributed.get_world_size();
    report.header(fmt::format("{}: {} ranks (rank = {}), {}, {} x {} cubes of {} PEs, layout {}", job.config.name,
                              ranks, runtime::distributed::to_string(ctx.distributed.rank_mode()),
                              to_string(job.config.topology), job.config.cube_w, job.config.cube_h, job.config.pes,
                              to_string(job.options.layout)));
    for (const uint64_t size : job.options.sizes) {
      report.progress(size);
      for (uint32_t i = 0; i < job.options.repeat; ++i) report.add(Point(job, *machine, ranks, size).run());
    }
    ctx.distributed.destroy_process_group();
  });
  observing.finish();
  if (job.options.quiet) return;
  for (const std::string& line : load_summary(*machine->system)) report.footer(line);
}

}  // namespace ahbm::platform
