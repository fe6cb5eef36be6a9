#include "runtime/distributed/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "ccl/kernel_arguments.h"
#include "ccl/module_file.h"
#include "models/core/suggest.h"
#include "runtime/context.h"
#include "runtime/distributed/connections.h"

namespace ahbm::runtime::distributed {

// What the ranks of one operation have to agree on.
struct DistributedContext::Call {
  ccl::Collective collective = ccl::Collective::AllReduce;
  Tensor tensor;  ///< empty for a barrier
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  DPPolicy policy;
  ccl::CubeLayout layout = ccl::CubeLayout::Sharded;
  const ccl::AlgorithmModule* module = nullptr;
};

/// One position in the sequence of a group, from its first caller to its last.
struct Operation {
  uint32_t seq = 0;
  ccl::Collective collective = ccl::Collective::AllReduce;
  std::string first_caller;
  Shape shape;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  DPPolicy policy;
  ccl::CubeLayout layout = ccl::CubeLayout::Sharded;
  const ccl::AlgorithmModule* module = nullptr;
  ccl::Group group;  ///< as this operation uses it
  std::vector<bool> arrived;
  uint32_t missing = 0;
  bool ready = false;        ///< everybody has called, connections are there
  std::exception_ptr error;  ///< why it will not run
  const LinkTable* links = nullptr;
  std::shared_ptr<CollectiveRecord> record;
  sc_core::sc_event changed;

  std::string name() const { return fmt::format("{} #{}", ccl::to_string(collective), seq); }
  std::string missing_ranks() const {
    std::vector<std::string> ranks;
    for (size_t r = 0; r < arrived.size(); ++r) {
      if (!arrived[r]) ranks.push_back(std::to_string(r));
    }
    return ranks.empty() ? "its connections"
                         : fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
  }
};

/// One caller's part of an operation: a rank's, or the driver's for all ranks.
struct WorkState {
  DistributedContext* owner = nullptr;
  Device* device = nullptr;
  std::shared_ptr<Operation> operation;
  std::optional<uint32_t> rank;  ///< empty: the driver
  Tensor tensor;
  bool last = false;    ///< of the callers: makes the connections
  uint64_t ticket = 0;  ///< position in the order of launches of its rank (of rank 0 for the driver)
  bool done = false;
  std::exception_ptr error;
  sc_core::sc_process_handle caller;
  sc_core::sc_process_handle helper;  ///< of an asynchronous call
  sc_core::sc_event changed;
};

struct ProcessGroup {
  struct RankState {
    uint32_t next_seq = 0;
    uint64_t next_ticket = 0;
    uint64_t launched = 0;  ///< tickets below have sent their descriptors
  };
  uint32_t id = 0;
  CclSettings settings;
  const ccl::AlgorithmModule* module = nullptr;
  World world;
  TopologyFacts facts;
  std::vector<SipId> sips;
  std::vector<RankState> ranks;
  std::map<uint32_t, std::shared_ptr<Operation>> operations;  ///< those that not every rank has called
  std::set<sc_core::sc_process_handle> members;               ///< threads that called init
  std::set<sc_core::sc_process_handle> left;                  ///< and destroy since
  std::string failed;
  std::vector<Launch> in_flight;
  std::unique_ptr<Connections> connections;
  sc_core::sc_event changed;

  void note(const Launch& launch) {
    in_flight.erase(std::remove_if(in_flight.begin(), in_flight.end(), [](const Launch& l) { return l->completed(); }),
                    in_flight.end());
    in_flight.push_back(launch);
  }
};

namespace {

std::string caller_name(std::optional<uint32_t> rank) {
  return rank ? fmt::format("rank {}", *rank) : std::string("the driver");
}

ccl::CubeLayout classify(const layout::Layout& l) {
  if (l.occupied_cubes() <= 1) return ccl::CubeLayout::Sharded;  // nothing to do between cubes
  if (l.replicated_over_cubes()) return ccl::CubeLayout::Replicated;
  return l.partial_over_cubes() ? ccl::CubeLayout::Partial : ccl::CubeLayout::Sharded;
}

}  // namespace

// --- Work

bool Work::is_completed() const {
  return m_state == nullptr || m_state->done;
}

void Work::wait() const {
  if (m_state == nullptr) return;
  WorkState& s = *m_state;
  if (!s.done) {
    s.device->await(s.changed, [&s] { return s.done; },
                    {"wait for " + s.operation->name(),
                     [&s] { return "its completion (" + s.operation->missing_ranks() + ")"; }, nullptr});
  }
  s.owner->settled(m_state);
  if (s.error) std::rethrow_exception(s.error);
}

const CollectiveRecord& Work::record() const {
  static const CollectiveRecord kNone;
  return m_state == nullptr ? kNone : *m_state->operation->record;
}

// --- registry of ranks (D4)

DistributedContext::DistributedContext() = default;
DistributedContext::~DistributedContext() = default;

Context& DistributedContext::context() const {
  if (m_context == nullptr) throw std::runtime_error("DistributedContext not bound to a RuntimeContext");
  return *m_context;
}

Device& DistributedContext::device() const {
  return context().device();
}

void DistributedContext::bind_rank(uint32_t rank) {
  const sc_core::sc_process_handle self = current_process();
  if (!self.valid()) throw std::runtime_error("bind_rank outside a simulation process: there is no thread to bind");
  bind_rank(self, rank);
}

void DistributedContext::bind_rank(const sc_core::sc_process_handle& thread, uint32_t rank) {
  m_ranks[thread] = rank;
  if (m_context != nullptr) device().label(thread, fmt::format("rank {}", rank));
}

void DistributedContext::unbind_rank(const sc_core::sc_process_handle& thread) {
  m_ranks.erase(thread);
  if (m_context != nullptr) device().label(thread, {});
}

uint32_t DistributedContext::get_rank() const {
  const auto it = m_ranks.find(current_process());
  return it == m_ranks.end() ? 0 : it->second;
}

// --- init and destroy (D1-D3)

ProcessGroup& DistributedContext::group() const {
  if (!is_initialized()) {
    throw std::runtime_error(
        "Default process group has not been initialized, please make sure to call init_process_group.");
  }
  return *m_group;
}

bool DistributedContext::is_initialized() const {
  return m_group != nullptr && !m_installing && m_group->left.count(current_process()) == 0;
}

uint32_t DistributedContext::get_world_size() const {
  return group().world.size;
}

std::string DistributedContext::get_backend() const {
  group();
  return "ahbm";
}

RankMode DistributedContext::rank_mode() const {
  return group().world.mode;
}

const CclSettings& DistributedContext::settings() const {
  return group().settings;
}

void DistributedContext::init_process_group(const std::string& backend, std::optional<uint32_t> /*world_size*/,
                                            std::optional<uint32_t> /*rank*/) {
  if (backend != "ahbm") {
    throw std::invalid_argument(fmt::format("Unsupported backend '{}': this machine has 'ahbm' only", backend));
  }
  context();
  device().check_thread("init_process_group");
  if (m_group_changed == nullptr) m_group_changed = std::make_unique<sc_core::sc_event>();
  const sc_core::sc_process_handle self = current_process();

  // A group from which some ranks have gone is on its way out: the next one starts when the others have gone too.
  const auto closing = [this](const ProcessGroup& g) {
    const bool ranks_left = std::any_of(g.left.begin(), g.left.end(), [&](const auto& t) { return is_bound(t); });
    const bool ranks_in = std::any_of(g.members.begin(), g.members.end(), [&](const auto& t) { return is_bound(t); });
    return ranks_left && ranks_in;
  };
  for (;;) {
    if (m_installing) {
      device().await(*m_group_changed, [this] { return !m_installing; },
                     {"init_process_group", [] { return std::string("another thread's init or destroy"); }, nullptr});
      continue;
    }
    if (m_group == nullptr) break;
    const std::shared_ptr<ProcessGroup> g = m_group;
    if (g->members.count(self) != 0) {
      throw std::runtime_error(
          "init_process_group was called by this thread already: call destroy_process_group before another one");
    }
    if (closing(*g)) {
      device().await(*m_group_changed, [&] { return m_group != g || m_installing || !closing(*g); },
                     {"init_process_group",
                      [this, g] {
                        std::vector<std::string> who;
                        for (const auto& [thread, rank] : m_ranks) {
                          if (g->members.count(thread) != 0) who.push_back(std::to_string(rank));
                        }
                        std::sort(who.begin(), who.end());
                        return fmt::format("destroy_process_group of rank {}", fmt::join(who, ", "));
                      },
                      nullptr});
      continue;
    }
    if (!g->failed.empty()) {
      throw std::runtime_error(
          fmt::format("the process group has failed ({}): call destroy_process_group, then init again", g->failed));
    }
    const auto bound = m_ranks.find(self);
    if (bound != m_ranks.end() && bound->second >= g->world.size) {
      throw std::runtime_error(
          fmt::format("rank {} cannot join a process group of world size {}", bound->second, g->world.size));
    }
    g->members.insert(self);
    g->left.erase(self);
    return;
  }

  m_installing = true;
  struct Done {
    DistributedContext& c;
    ~Done() {
      c.m_installing = false;
      c.m_group_changed->notify(sc_core::SC_ZERO_TIME);
    }
  } done{*this};
  install();
  m_group->members.insert(self);
}

void DistributedContext::install() {
  const auto step = [this](InitStep s) {
    if (before_step) before_step(s);
  };
  const SystemConfig& config = context().config();
  auto g = std::make_shared<ProcessGroup>();

  step(InitStep::LoadConfig);
  const std::string& file = m_ccl_file.empty() ? config.ccl_file : m_ccl_file;
  if (file.empty()) {
    throw ConfigError("init_process_group: no ccl.yaml was named; give one with --ccl or `ccl:` in the topology file");
  }
  g->settings = load_ccl_config(file, m_algorithm);
  if (g->settings.accumulate_fp32) {
    throw NotImplementedError(fmt::format("{}: accumulate: fp32 is not supported, expected native", file));
  }
  if (g->settings.barrier_simulated) {
    throw NotImplementedError(fmt::format("{}: barrier: simulated is not supported, expected none", file));
  }

  step(InitStep::ResolveModule);
  g->module = &named_module(g->settings);

  step(InitStep::WorldSize);
  g->world = resolve_world(g->settings, config);
  if (g->world.mode == RankMode::Pe) {
    throw NotImplementedError(fmt::format(
        "{}: ranks that are PEs (rank: pe, or a world_size above the {} SIPs) are not supported", file, config.sips));
  }

  step(InitStep::TopologyFacts);
  g->facts = topology_facts(config);
  const auto& kinds = g->module->topo_name_to_kind;
  if (!kinds.empty() && kinds.count(ahbm::to_string(g->facts.topology)) == 0) {
    throw std::invalid_argument(fmt::format("algorithm module {} does not know the SIP topology {}", g->module->name,
                                            ahbm::to_string(g->facts.topology)));
  }
  for (uint32_t r = 0; r < g->world.size; ++r) g->sips.push_back(SipId{r});
  g->ranks.resize(g->world.size);

  step(InitStep::Install);
  g->id = device().next_group_id();
  g->connections = std::make_unique<Connections>(device(), g->id);
  g->connections->install_neighbours();
  m_group = std::move(g);
}

void DistributedContext::destroy_process_group() {
  const std::shared_ptr<ProcessGroup> g = (group(), m_group);
  device().check_thread("destroy_process_group");
  const sc_core::sc_process_handle self = current_process();
  if (g->members.count(self) == 0 && !g->members.empty()) {
    throw std::runtime_error(
        fmt::format("destroy_process_group by a thread that did not call init_process_group, while {} threads that did "
                    "are in the group",
                    g->members.size()));
  }
  if (g->failed.empty()) drain(self);
  if (g->members.erase(self) != 0) g->left.insert(self);
  if (g->members.empty()) teardown();
  m_group_changed->notify(sc_core::SC_ZERO_TIME);
}

void DistributedContext::teardown() {
  const std::shared_ptr<ProcessGroup> g = m_group;
  m_installing = true;
  struct Done {
    DistributedContext& c;
    ~Done() {
      c.m_installing = false;
      c.m_group_changed->notify(sc_core::SC_ZERO_TIME);
    }
  } done{*this};
  for (const Launch& l : g->in_flight) {
    device().abort(l);
    device().await(l->changed(), [&] { return l->completed(); }, {"destroy_process_group", {}, l});
  }
  g->connections->release();
  m_group.reset();
  m_outstanding.clear();
}

void DistributedContext::forget(const sc_core::sc_process_handle& thread) {
  if (m_group == nullptr) return;
  m_group->members.erase(thread);
  m_group->left.erase(thread);
}

// --- failure

void DistributedContext::mark_failed(const std::string& why) {
  if (m_group == nullptr) return;
  const std::shared_ptr<ProcessGroup> g = m_group;
  if (g->failed.empty()) g->failed = why;
  g->operations.clear();
  for (const Launch& l : g->in_flight) device().abort(l);
  m_outstanding.clear();
  g->changed.notify(sc_core::SC_ZERO_TIME);
}

void DistributedContext::check_usable(const ProcessGroup& g) const {
  if (g.failed.empty()) return;
  throw std::runtime_error(
      fmt::format("the process group has failed ({}): call destroy_process_group, then init again", g.failed));
}

void DistributedContext::end_helpers() {
  for (const auto& work : m_outstanding) {
    if (work->helper.valid() && !work->helper.terminated()) work->helper.kill();
  }
}

std::vector<StallRow> DistributedContext::helper_rows() const {
  std::vector<StallRow> rows;
  for (const auto& work : m_outstanding) {
    const Device::Waiting* waiting = device().waiting(work->helper);
    if (waiting == nullptr) continue;
    for (StallRow& r : device().rows_of(*waiting, caller_name(work->rank))) rows.push_back(std::move(r));
  }
  return rows;
}

void DistributedContext::settled(const std::shared_ptr<WorkState>& work) {
  m_outstanding.erase(std::remove(m_outstanding.begin(), m_outstanding.end(), work), m_outstanding.end());
}

void DistributedContext::drain() {
  while (!m_outstanding.empty()) Work(m_outstanding.front()).wait();
}

void DistributedContext::drain(const sc_core::sc_process_handle& thread) {
  for (;;) {
    const auto it = std::find_if(m_outstanding.begin(), m_outstanding.end(),
                                 [&](const auto& work) { return work->caller == thread; });
    if (it == m_outstanding.end()) return;
    Work(*it).wait();
  }
}

// --- collectives

std::vector<const ccl::AlgorithmModule*> DistributedContext::modules_of(const CclSettings& settings,
                                                                        const std::string& name) const {
  ccl::Registry& registry = context().algorithms();
  if (ccl::is_module_file(name)) {
    const std::filesystem::path path = std::filesystem::absolute(settings.file).parent_path() / name;
    return ccl::load_module_file(path.lexically_normal().string(), registry, device().system().kernels());
  }
  const ccl::AlgorithmModule* const module = registry.find(name);
  return module != nullptr ? std::vector<const ccl::AlgorithmModule*>{module}
                           : std::vector<const ccl::AlgorithmModule*>{};
}

const ccl::AlgorithmModule& DistributedContext::named_module(const CclSettings& settings) const {
  const auto modules = modules_of(settings, settings.module);
  if (modules.size() == 1) return *modules.front();
  const std::string where = fmt::format("{}: algorithms.{}.module", settings.file, settings.algorithm);
  if (!ccl::is_module_file(settings.module)) {
    const std::vector<std::string> names = context().algorithms().names();
    throw std::invalid_argument(fmt::format(
        "{}: no module is called '{}'{}; there are: {}{}", where, settings.module, did_you_mean(settings.module, names),
        fmt::join(names, ", "),
        settings.module.find(".so") != std::string::npos ? "; a shared object is named with a slash, as ./lib.so" : ""));
  }
  std::vector<std::string> names;
  for (const ccl::AlgorithmModule* m : modules) {
    if (m->name == settings.algorithm) return *m;
    names.push_back(m->name);
  }
  throw std::invalid_argument(fmt::format("{}: {} has several modules ({}); expected one of them to be called {}, as "
                                          "the entry",
                                          where, settings.module, fmt::join(names, ", "), settings.algorithm));
}

const ccl::AlgorithmModule& DistributedContext::choose_module(const ProcessGroup& g, ccl::CubeLayout layout,
                                                              ReduceOp op, DType dtype) const {
  const ccl::AlgorithmModule* module = g.module;
  if (module->layouts.count(layout) == 0) {
    for (const std::string& name : g.settings.modules) {
      const auto others = modules_of(g.settings, name);
      const auto other = std::find_if(others.begin(), others.end(), [&](const ccl::AlgorithmModule* m) {
        return m->collective == module->collective && m->layouts.count(layout) != 0;
      });
      if (other == others.end()) continue;
      module = *other;
      break;
    }
  }
  if (module->ops.count(op) == 0) {
    std::vector<std::string> known;
    for (const ReduceOp o : module->ops) known.emplace_back(ahbm::to_string(o));
    throw NotImplementedError(fmt::format("all_reduce: algorithm {} does not do op {}; it does {}", module->name,
                                          ahbm::to_string(op), fmt::join(known, ", ")));
  }
  if (module->layouts.count(layout) == 0) {
    throw NotImplementedError(fmt::format("all_reduce: no algorithm of {} does a tensor that is {} over cubes",
                                          g.settings.file, ccl::to_string(layout)));
  }
  if (module->dtypes.count(dtype) == 0) {
    std::vector<std::string> known;
    for (const DType t : module->dtypes) known.emplace_back(ahbm::to_string(t));
    throw NotImplementedError(fmt::format("all_reduce: algorithm {} does not do dtype {}; it does {}", module->name,
                                          ahbm::to_string(dtype), fmt::join(known, ", ")));
  }
  return *module;
}

Work DistributedContext::all_reduce(const Tensor& tensor, std::string_view op, bool async_op) {
  group();
  const std::optional<ReduceOp> parsed = parse_reduce_op(op);
  if (!parsed) {
    throw NotImplementedError(
        fmt::format("all_reduce: op '{}' is unknown, expected sum, avg, max, min or product", op));
  }
  return all_reduce(tensor, *parsed, async_op);
}

Work DistributedContext::all_reduce(const Tensor& tensor, ReduceOp op, bool async_op) {
  const std::shared_ptr<ProcessGroup> g = (group(), m_group);
  device().check_thread("all_reduce");
  check_usable(*g);
  const sc_core::sc_process_handle self = current_process();
  const auto bound = m_ranks.find(self);
  const std::optional<uint32_t> rank = bound == m_ranks.end() ? std::nullopt : std::optional<uint32_t>(bound->second);
  if (rank && *rank >= g->world.size) {
    throw std::runtime_error(
        fmt::format("all_reduce: rank {} is not in the process group of world size {}", *rank, g->world.size));
  }

  Call call;
  call.tensor = tensor;
  call.dtype = tensor.dtype();
  call.op = op;
  const bool laid_out = tensor.handle() != nullptr && !tensor.handle()->shards().empty();
  call.layout = laid_out ? classify(tensor.handle()->layout()) : ccl::CubeLayout::Sharded;
  call.module = &choose_module(*g, call.layout, op, tensor.dtype());
  TensorHandle& handle = tensor.checked_handle();
  call.policy = handle.layout().policy();
  call.policy.sips = SipScope::Own;  // where the call comes from, not what it means
  if (rank) {
    const SipId own = g->sips[*rank];
    if (handle.sips().size() != 1 || handle.sips().front() != own) {
      throw std::runtime_error(fmt::format(
          "all_reduce: rank {} is SIP {}, but its tensor lies on {}", *rank, value(own),
          handle.sips().size() == 1 ? fmt::format("SIP {}", value(handle.sips().front()))
                                    : fmt::format("{} SIPs (sips: all is for the driver)", handle.sips().size())));
    }
  } else {
    for (uint32_t r = 0; r < g->world.size; ++r) {
      if (!handle.on(g->sips[r])) {
        throw std::runtime_error(
            fmt::format("all_reduce from the driver: world size is {}, but the tensor has no shards on SIP {} of rank "
                        "{}; make it with sips: all, or call from rank threads",
                        g->world.size, value(g->sips[r]), r));
      }
    }
  }
  handle.wait_pending();

  auto work = std::make_shared<WorkState>();
  work->owner = this;
  work->device = &device();
  work->rank = rank;
  work->tensor = tensor;
  work->caller = self;
  work->operation = arrive(*g, rank, call);
  work->last = work->operation->missing == 0;
  work->ticket = g->ranks[rank.value_or(0)].next_ticket;
  for (uint32_t r = 0; r < g->world.size; ++r) {
    if (!rank || *rank == r) ++g->ranks[r].next_ticket;
  }
  if (async_op) {
    start_helper(g, work);
  } else {
    run(g, work);
    work->done = true;
  }
  return Work(work);
}

void DistributedContext::barrier() {
  const std::shared_ptr<ProcessGroup> g = (group(), m_group);
  check_usable(*g);
  const auto bound = m_ranks.find(current_process());
  const std::optional<uint32_t> rank = bound == m_ranks.end() ? std::nullopt : std::optional<uint32_t>(bound->second);
  if (rank && *rank >= g->world.size) {
    throw std::runtime_error(
        fmt::format("barrier: rank {} is not in the process group of world size {}", *rank, g->world.size));
  }
  Call call;
  call.collective = ccl::Collective::Barrier;
  arrive(*g, rank, call);
}

std::shared_ptr<Operation> DistributedContext::arrive(ProcessGroup& g, std::optional<uint32_t> rank, const Call& call) {
  const uint32_t seq = g.ranks[rank.value_or(0)].next_seq;
  if (!rank) {
    for (uint32_t r = 1; r < g.world.size; ++r) {
      if (g.ranks[r].next_seq == seq) continue;
      throw std::runtime_error(
          fmt::format("op #{}: {} by the driver for all ranks, but rank 0 has made {} calls and rank {} {}", seq,
                      ccl::to_string(call.collective), seq, r, g.ranks[r].next_seq));
    }
  }
  std::shared_ptr<Operation>& slot = g.operations[seq];
  if (slot == nullptr) {
    slot = std::make_shared<Operation>();
    slot->seq = seq;
    slot->collective = call.collective;
    slot->first_caller = caller_name(rank);
    slot->shape = call.tensor.shape();
    slot->dtype = call.dtype;
    slot->op = call.op;
    slot->policy = call.policy;
    slot->layout = call.layout;
    slot->module = call.module;
    slot->arrived.resize(g.world.size);
    slot->missing = g.world.size;
    slot->record = std::make_shared<CollectiveRecord>();
    CollectiveRecord& r = *slot->record;
    r.collective = call.collective;
    r.seq = seq;
    r.algorithm = call.module == nullptr ? std::string() : call.module->name;
    r.world_size = g.world.size;
    r.count = call.collective == ccl::Collective::Barrier ? 0 : call.tensor.elements();
    r.dtype = call.dtype;
    r.op = call.op;
    r.layout = call.layout;
    r.bytes = r.count * item_bytes(call.dtype);
    if (call.module != nullptr) {
      const layout::Layout& l = call.tensor.handle()->layout();
      ccl::Group& group = slot->group;
      group.sips = g.sips;
      group.n_cubes = std::max(1u, l.occupied_cubes());
      if (group.n_cubes > 1) {
        group.cube_w = g.facts.cube_w;
        group.cube_h = g.facts.cube_h;
      }
      group.topology = g.facts.topology;
      group.sip_w = g.facts.sip_w;
      group.sip_h = g.facts.sip_h;
      group.machine_sips = g.facts.sips;
      group.double_links = context().config().double_links;
    }
  }
  const std::shared_ptr<Operation> operation = slot;
  Operation& o = *operation;

  // The sequence moves on whatever happens, so that the ranks stay together.
  for (uint32_t r = 0; r < g.world.size; ++r) {
    if (rank && *rank != r) continue;
    ++g.ranks[r].next_seq;
    o.arrived[r] = true;
    --o.missing;
  }
  if (o.missing == 0) g.operations.erase(seq);

  std::string mismatch;
  const auto differ = [&](const char* what, const std::string& first, const std::string& now) {
    if (mismatch.empty() && first != now) {
      mismatch = fmt::format("op #{} ({}): {} differs between ranks: {} has {}, {} has {}", seq,
                             ccl::to_string(o.collective), what, o.first_caller, first, caller_name(rank), now);
    }
  };
  if (o.collective != call.collective) {
    mismatch = fmt::format("op #{}: {} of {} meets {} of {}", seq, ccl::to_string(o.collective), o.first_caller,
                           ccl::to_string(call.collective), caller_name(rank));
  } else if (o.collective != ccl::Collective::Barrier) {
    differ("shape", layout::to_string(o.shape), layout::to_string(call.tensor.shape()));
    differ("dtype", ahbm::to_string(o.dtype), ahbm::to_string(call.dtype));
    differ("op", ahbm::to_string(o.op), ahbm::to_string(call.op));
    differ("layout", layout::to_string(o.policy), layout::to_string(call.policy));
  }
  if (!mismatch.empty()) {
    if (o.error == nullptr) o.error = std::make_exception_ptr(std::runtime_error(mismatch));
    o.changed.notify(sc_core::SC_ZERO_TIME);
    throw std::runtime_error(mismatch);
  }
  return operation;
}

void DistributedContext::prepare(ProcessGroup& g, Operation& op) {
  if (op.record->count == 0) return;
  const std::string refusal = op.module->refusal ? op.module->refusal(op.group) : std::string();
  if (!refusal.empty()) {
    throw NotImplementedError(fmt::format("all_reduce: algorithm {} cannot run here: {}", op.module->name, refusal));
  }
  uint32_t made = 0;
  op.links = &g.connections->table(*op.module, op.group, made);
  op.record->connections = made;
}

void DistributedContext::run(const std::shared_ptr<ProcessGroup>& g, const std::shared_ptr<WorkState>& work) {
  try {
    perform(g, work);
  } catch (const StallError&) {  // of a thread that watches itself
    mark_failed("it stalled");
    throw;
  }
}

void DistributedContext::perform(const std::shared_ptr<ProcessGroup>& g, const std::shared_ptr<WorkState>& work) {
  Operation& op = *work->operation;
  Device& dev = device();
  if (work->last) {
    if (op.error == nullptr) {
      try {
        prepare(*g, op);
      } catch (const sc_core::sc_unwind_exception&) {
        throw;
      } catch (...) {
        op.error = std::current_exception();
      }
    }
    op.ready = op.error == nullptr;
    op.changed.notify(sc_core::SC_ZERO_TIME);
  } else {
    dev.await(op.changed, [&] { return op.ready || op.error != nullptr; },
              {op.name(), [&op] { return op.missing_ranks(); }, nullptr});
  }

  // Launches of a rank leave in the order of its calls, so that every PE sees the collectives in one order.
  ProcessGroup::RankState& order = g->ranks[work->rank.value_or(0)];
  dev.await(g->changed, [&] { return order.launched == work->ticket || !g->failed.empty(); },
            {op.name(), [] { return std::string("an earlier collective's launch"); }, nullptr});
  struct Turn {
    ProcessGroup& g;
    std::optional<uint32_t> rank;
    ~Turn() {
      for (uint32_t r = 0; r < g.ranks.size(); ++r) {
        if (!rank || *rank == r) ++g.ranks[r].launched;
      }
      g.changed.notify(sc_core::SC_ZERO_TIME);
    }
  };
  std::vector<Launch> launches;
  {
    const Turn turn{*g, work->rank};
    if (op.error != nullptr) std::rethrow_exception(op.error);
    check_usable(*g);
    launches = launch(*g, op, *work);
  }
  try {
    for (const Launch& l : launches) dev.wait(l, op.name());
  } catch (const sc_core::sc_unwind_exception&) {
    throw;
  } catch (const StallError&) {
    throw;
  } catch (const std::exception& e) {
    mark_failed(e.what());
    throw;
  }
  work->tensor.handle()->become_replicated();

  CollectiveRecord& record = *op.record;
  for (const Launch& l : launches) {
    record.start = record.start == 0 ? l->first_sent() : std::min(record.start, l->first_sent());
    record.end = std::max(record.end, l->last_arrived());
  }
  record.parts += work->rank ? 1 : record.world_size;
  if (record.complete() && on_collective) on_collective(record);
}

std::vector<Launch> DistributedContext::launch(ProcessGroup& g, const Operation& op, const WorkState& work) {
  std::vector<Launch> out;
  const TensorHandle& handle = *work.tensor.handle();
  const layout::Layout& l = handle.layout();
  if (op.record->count == 0) return out;
  LaunchRequest reduce;
  reduce.kernel = op.module->kernel_name;
  reduce.group = g.id;
  reduce.seq = op.seq;
  reduce.keep_alive.push_back(work.tensor.handle());
  LaunchRequest copies;
  copies.kernel = "copy";
  copies.keep_alive = reduce.keep_alive;
  for (uint32_t r = 0; r < g.world.size; ++r) {
    if (work.rank && *work.rank != r) continue;
    const SipId sip = g.sips[r];
    for (uint32_t c = 0; c < op.group.n_cubes; ++c) {
      const CubeId cube{c};
      const uint64_t n = l.cube_logical_elements(cube);
      const Addr buffer = handle.cube_buffer(sip, cube);
      PeLaunch pe;
      pe.pe = {sip, cube, PeId{0}};
      pe.args = ccl::pack_arguments(*op.module, op.group, r, buffer, n, op.dtype, op.op, op.layout);
      pe.links = op.links->of(r, c);
      pe.program.program_rank = r;
      pe.program.program_ranks = g.world.size;
      pe.program.program_cube = c;
      pe.program.program_cubes = op.group.n_cubes;
      reduce.pes.push_back(std::move(pe));

      // The PEs' copies are renewed by PE 0 when its reduction is over: its launch queue keeps the order.
      if (!l.replicated_over_pes()) continue;
      for (uint32_t p = 1; p < l.pes(); ++p) {
        PeLaunch copy;
        copy.pe = {sip, cube, PeId{0}};
        copy.args = {buffer, handle.shard(sip, cube, PeId{p}).address, n, static_cast<uint64_t>(op.dtype)};
        copies.pes.push_back(std::move(copy));
      }
    }
  }
  out.push_back(device().launch(std::move(reduce)));
  g.note(out.back());
  if (!copies.pes.empty()) {
    out.push_back(device().launch(std::move(copies)));
    g.note(out.back());
  }
  return out;
}

void DistributedContext::start_helper(const std::shared_ptr<ProcessGroup>& g, const std::shared_ptr<WorkState>& work) {
  Device& dev = device();
  const bool supervised = dev.supervised(work->caller);
  work->helper = sc_core::sc_spawn(
      [this, g, work, &dev, supervised] {
        const sc_core::sc_process_handle self = current_process();
        dev.label(self, work->rank ? fmt::format("rank {}", *work->rank) : std::string("driver"));
        if (supervised) dev.supervise(self, true);
        struct Leave {
          Device& device;
          const sc_core::sc_process_handle& self;
          ~Leave() {
            device.label(self, {});
            device.supervise(self, false);
          }
        } leave{dev, self};
        try {
          run(g, work);
        } catch (const sc_core::sc_unwind_exception&) {
          throw;
        } catch (...) {
          work->error = std::current_exception();
        }
        work->done = true;
        work->changed.notify(sc_core::SC_ZERO_TIME);
      },
      sc_core::sc_gen_unique_name("async_collective"));
  m_outstanding.push_back(work);
}

}  // namespace ahbm::runtime::distributed
