#include "runtime/distributed/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "ccl/kernel_arguments.h"
#include "ccl/module_file.h"
#include "ccl/select.h"
#include "models/core/suggest.h"
#include "runtime/context.h"
#include "runtime/distributed/process_group.h"

namespace ahbm::runtime::distributed {

// --- what groups and operations are made of

std::string Operation::name() const {
  return fmt::format("{} #{}", call.name, seq & 0x7FFFFFFFu);
}

std::string Operation::missing_ranks() const {
  if (!waits_for.empty()) return waits_for;
  std::vector<uint32_t> ranks;
  for (size_t r = 0; r < arrived.size(); ++r) {
    if (!arrived[r]) ranks.push_back(global_ranks[r]);
  }
  return ranks.empty() ? "its connections"
                       : fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

std::optional<uint32_t> GroupState::rank_of(uint32_t global_rank) const {
  const auto it = std::lower_bound(global_ranks.begin(), global_ranks.end(), global_rank);
  if (it == global_ranks.end() || *it != global_rank) return std::nullopt;
  return static_cast<uint32_t>(it - global_ranks.begin());
}

std::string GroupState::title() const {
  return number == 0 ? "the process group" : fmt::format("process group {}", number);
}

std::string GroupState::caller_name(std::optional<uint32_t> group_rank) const {
  return group_rank ? fmt::format("rank {}", global_ranks[*group_rank]) : std::string("the driver");
}

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

std::vector<Tensor> Work::result() const {
  wait();
  return m_state == nullptr ? std::vector<Tensor>{} : m_state->outputs;
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

std::optional<PeLocation> DistributedContext::own_pe() const {
  const auto it = m_ranks.find(current_process());
  if (it == m_ranks.end() || m_group == nullptr || it->second >= m_group->pes.size()) return std::nullopt;
  return m_group->pes[it->second];
}

uint32_t DistributedContext::get_rank() const {
  const auto it = m_ranks.find(current_process());
  return it == m_ranks.end() ? 0 : it->second;
}

// --- init and destroy (D1-D3)

GroupState& DistributedContext::group() const {
  if (!is_initialized()) {
    throw std::runtime_error(
        "Default process group has not been initialized, please make sure to call init_process_group.");
  }
  return *m_group;
}

const DistributedContext::GroupPtr& DistributedContext::group_ptr(const ProcessGroup& group_handle) const {
  group();
  return group_handle.is_default() ? m_group : group_handle.state();
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
  const auto closing = [this](const GroupState& g) {
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
    const GroupPtr g = m_group;
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
  auto g = std::make_shared<GroupState>();

  step(InitStep::LoadConfig);
  const std::string& file = m_ccl_file.empty() ? config.ccl_file : m_ccl_file;
  if (file.empty()) {
    throw ConfigError("init_process_group: no ccl.yaml was named; give one with --ccl or `ccl:` in the topology file");
  }
  g->settings = load_ccl_config(file, m_algorithm);

  step(InitStep::ResolveModule);
  if (!m_module.empty()) {
    g->module = context().algorithms().find(m_module);
    if (g->module == nullptr) throw std::invalid_argument(fmt::format("no module is called '{}'", m_module));
  } else if (g->settings.algorithm != kAutomatic || !g->settings.module.empty()) {
    g->module = &named_module(g->settings);
  }

  step(InitStep::WorldSize);
  g->world = resolve_world(g->settings, config);

  step(InitStep::TopologyFacts);
  g->facts = topology_facts(config);
  static const std::map<std::string, uint32_t> kAnyKind;
  const auto& kinds = g->module == nullptr ? kAnyKind : g->module->topo_name_to_kind;
  if (!kinds.empty() && kinds.count(ahbm::to_string(g->facts.topology)) == 0) {
    throw std::invalid_argument(fmt::format("algorithm module {} does not know the SIP topology {}", g->module->name,
                                            ahbm::to_string(g->facts.topology)));
  }
  for (uint32_t r = 0; r < g->world.size; ++r) {
    if (g->world.mode == RankMode::Pe) g->pes.push_back(config.pe_location(r));
    g->sips.push_back(g->pes.empty() ? SipId{r} : g->pes.back().sip);
    g->global_ranks.push_back(r);
  }
  g->next_seq.resize(g->world.size);

  step(InitStep::Install);
  g->id = device().next_group_id();
  g->connections = std::make_unique<Connections>(device(), g->id);
  g->connections->install_neighbours();
  m_group = std::move(g);
  ++m_generation;
}

void DistributedContext::destroy_process_group(const ProcessGroup& which) {
  const GroupPtr g = group_ptr(which);
  device().check_thread("destroy_process_group");
  const sc_core::sc_process_handle self = current_process();
  if (g->number != 0) {
    const auto bound = m_ranks.find(self);
    const std::optional<uint32_t> rank = bound == m_ranks.end() ? std::nullopt : g->rank_of(bound->second);
    if (bound != m_ranks.end() && !rank) return;  // nothing of it is here
    if (g->destroyed) {
      throw std::invalid_argument(fmt::format("destroy_process_group: {} was destroyed already", g->title()));
    }
    if (bound != m_ranks.end()) {
      if (g->failed.empty()) drain(self);
      if (!g->left_ranks.insert(*rank).second) {
        throw std::invalid_argument(
            fmt::format("destroy_process_group: rank {} has left {} already", bound->second, g->title()));
      }
      if (g->left_ranks.size() < g->size()) return;
    } else if (g->failed.empty()) {
      drain(self);
    }
    if (!g->destroyed) release(g);
    return;
  }
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

void DistributedContext::release(const GroupPtr& g) {
  g->destroyed = true;  // first: what follows takes simulated time
  const std::vector<Launch> in_flight = g->in_flight;
  for (const Launch& l : in_flight) {
    if (!l->completed()) device().give_up(l);
  }
  g->connections->release();
  m_outstanding.remove_if([&](const WorkPtr& work) { return work->group == g; });
  if (g->number != 0) m_subgroups.erase(g->number);
}

void DistributedContext::teardown() {
  m_installing = true;
  struct Done {
    DistributedContext& c;
    ~Done() {
      c.m_installing = false;
      c.m_group_changed->notify(sc_core::SC_ZERO_TIME);
    }
  } done{*this};
  while (!m_subgroups.empty()) release(GroupPtr(m_subgroups.begin()->second));
  release(GroupPtr(m_group));
  device().give_up_orphans();
  m_group.reset();
  m_outstanding.clear();
}

void DistributedContext::forget(const sc_core::sc_process_handle& thread) {
  if (m_group == nullptr) return;
  m_group->members.erase(thread);
  m_group->left.erase(thread);
}

// --- groups

ProcessGroup DistributedContext::new_group(std::vector<uint32_t> ranks) {
  const GroupPtr parent = group_ptr({});
  const Caller caller = begin(parent, "new_group");
  if (ranks.empty()) ranks = parent->global_ranks;
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= parent->size()) {
      throw std::invalid_argument(
          fmt::format("new_group: rank {} does not exist, the world size is {}", ranks[i], parent->size()));
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      throw std::invalid_argument(fmt::format("new_group: rank {} is given twice", ranks[i]));
    }
  }
  Call call;
  call.name = "new_group";
  call.agree.emplace_back("ranks", fmt::format("{}", fmt::join(ranks, ",")));
  const std::shared_ptr<Operation> op = arrive(*parent, caller.rank, call);
  if (op->created == nullptr) {
    auto g = std::make_shared<GroupState>();
    g->id = device().next_group_id();
    g->number = ++m_last_group_number;
    g->settings = parent->settings;
    g->module = parent->module;
    g->world = parent->world;
    g->world.size = static_cast<uint32_t>(ranks.size());
    g->facts = parent->facts;
    for (const uint32_t r : ranks) {
      g->sips.push_back(parent->sips[r]);
      if (!parent->pes.empty()) g->pes.push_back(parent->pes[r]);
    }
    g->global_ranks = std::move(ranks);
    g->next_seq.resize(g->size());
    g->connections = std::make_unique<Connections>(device(), g->id);
    m_subgroups[g->number] = g;
    op->created = std::move(g);
  }
  return ProcessGroup(op->created);
}

int64_t DistributedContext::get_rank(const ProcessGroup& which) const {
  const std::optional<uint32_t> rank = group_ptr(which)->rank_of(get_rank());
  return rank ? static_cast<int64_t>(*rank) : -1;
}

int64_t DistributedContext::get_world_size(const ProcessGroup& which) const {
  const GroupPtr& g = group_ptr(which);
  const bool driver = m_ranks.count(current_process()) == 0;
  return driver || g->rank_of(get_rank()) ? static_cast<int64_t>(g->size()) : -1;
}

uint32_t DistributedContext::get_group_rank(const ProcessGroup& which, uint32_t global_rank) const {
  const GroupPtr& g = group_ptr(which);
  const std::optional<uint32_t> rank = g->rank_of(global_rank);
  if (!rank) {
    throw std::invalid_argument(fmt::format("get_group_rank: global rank {} is not part of {}, which has ranks {}",
                                            global_rank, g->title(), fmt::join(g->global_ranks, ", ")));
  }
  return *rank;
}

uint32_t DistributedContext::get_global_rank(const ProcessGroup& which, uint32_t group_rank) const {
  const GroupPtr& g = group_ptr(which);
  if (group_rank >= g->size()) {
    throw std::invalid_argument(fmt::format("get_global_rank: group rank {} is not part of {}, which has {} ranks",
                                            group_rank, g->title(), g->size()));
  }
  return g->global_ranks[group_rank];
}

std::vector<uint32_t> DistributedContext::get_process_group_ranks(const ProcessGroup& which) const {
  return group_ptr(which)->global_ranks;
}

size_t DistributedContext::connections(const ProcessGroup& which) const {
  return group_ptr(which)->connections->size();
}

std::string DistributedContext::module_name(const ProcessGroup& which) const {
  const ccl::AlgorithmModule* module = group_ptr(which)->module;
  return module != nullptr ? module->name : std::string();
}

// --- failure

void DistributedContext::mark_failed(const std::string& why) {
  if (m_group == nullptr) return;
  const auto subgroups = m_subgroups;
  const GroupPtr g = m_group;
  for (const auto& [number, group] : subgroups) mark_failed(group, why);
  mark_failed(g, why);
  m_outstanding.clear();
}

void DistributedContext::mark_failed(const GroupPtr& g, const std::string& why) {
  if (!g->failed.empty() || g->destroyed) return;
  g->failed = why;
  const auto end = [&](Operation& op) {
    if (op.error == nullptr) op.error = std::make_exception_ptr(std::runtime_error(failed_text(*g)));
    op.changed.notify(sc_core::SC_ZERO_TIME);
  };
  for (const auto& [seq, op] : g->operations) end(*op);
  for (auto* posts : {&g->sends, &g->receives}) {
    for (auto& [pair, waiting] : *posts) {
      for (GroupState::Post& post : waiting) end(*post.work->operation);
    }
    posts->clear();
  }
  for (const auto& op : g->batched) end(*op);
  g->operations.clear();
  g->ready.clear();
  g->batched.clear();
  g->changed.notify(sc_core::SC_ZERO_TIME);
  const std::vector<Launch> in_flight = g->in_flight;
  for (const Launch& l : in_flight) {
    if (!l->completed()) device().abort(l);
  }
}

std::string DistributedContext::failed_text(const GroupState& g) {
  return g.number == 0
             ? fmt::format("the process group has failed ({}): call destroy_process_group, then init again", g.failed)
             : fmt::format("{} has failed ({}): destroy it and make a new one", g.title(), g.failed);
}

void DistributedContext::check_usable(const GroupState& g) const {
  if (g.destroyed) throw std::runtime_error(fmt::format("{} was destroyed", g.title()));
  if (!g.failed.empty()) throw std::runtime_error(failed_text(g));
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
    for (StallRow& r : device().rows_of(*waiting, work->group->caller_name(work->rank))) rows.push_back(std::move(r));
  }
  return rows;
}

void DistributedContext::settled(const std::shared_ptr<WorkState>& work) {
  const auto it = std::find(m_outstanding.begin(), m_outstanding.end(), work);  // mostly one of the oldest
  if (it != m_outstanding.end()) m_outstanding.erase(it);
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
    throw std::invalid_argument(fmt::format("{}: no module is called '{}'{}; there are: {}{}", where, settings.module,
                                            did_you_mean(settings.module, names), fmt::join(names, ", "),
                                            settings.module.find(".so") != std::string::npos
                                                ? "; a shared object is named with a slash, as ./lib.so"
                                                : ""));
  }
  std::vector<std::string> names;
  for (const ccl::AlgorithmModule* m : modules) {
    if (m->name == settings.algorithm) return *m;
    names.push_back(m->name);
  }
  throw std::invalid_argument(
      fmt::format("{}: {} has several modules ({}); expected one of them to be called {}, as "
                  "the entry",
                  where, settings.module, fmt::join(names, ", "), settings.algorithm));
}

namespace {
ccl::Group between_sips(const GroupState& g) {
  ccl::Group out;
  out.sips = g.sips;
  out.topology = g.facts.topology;
  out.sip_w = g.facts.sip_w;
  out.sip_h = g.facts.sip_h;
  out.machine_sips = g.facts.sips;
  return out;
}
}  // namespace

const ccl::AlgorithmModule& DistributedContext::choose_module(const GroupState& g, ccl::CubeLayout layout, ReduceOp op,
                                                              DType dtype) const {
  const ccl::AlgorithmModule* module = g.module;
  if (module->layouts.count(layout) == 0 || module->collective != ccl::Collective::AllReduce) {
    // The first that does not refuse these SIPs, else the first.
    const ccl::Group sips = between_sips(g);
    const ccl::AlgorithmModule *first = nullptr, *fitting = nullptr;
    for (const std::string& name : g.settings.modules) {
      for (const ccl::AlgorithmModule* m : modules_of(g.settings, name)) {
        if (fitting != nullptr || m->collective != ccl::Collective::AllReduce || m->layouts.count(layout) == 0)
          continue;
        if (first == nullptr) first = m;
        if (!m->refusal || m->refusal(sips).empty()) fitting = m;
      }
      if (fitting != nullptr) break;
    }
    if (first != nullptr) module = fitting != nullptr ? fitting : first;
  }
  if (module->collective != ccl::Collective::AllReduce) {
    throw NotImplementedError(
        fmt::format("all_reduce: no algorithm of {} does an all_reduce of a tensor that is {} over "
                    "cubes; {} does {}",
                    g.settings.file, ccl::to_string(layout), module->name, ccl::to_string(module->collective)));
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

const ccl::AlgorithmModule& DistributedContext::choose_module(const GroupState& g, ccl::Collective collective,
                                                              const ccl::Group& group,
                                                              const ccl::CollectiveShape& shape, double bytes,
                                                              std::string& why) const {
  if (g.module != nullptr && g.module->collective == collective) {
    const std::string refusal = ccl::refusal_of(context().algorithms(), *g.module, group, shape, context().config());
    if (refusal.empty()) return *g.module;
    throw NotImplementedError(fmt::format("{}: {}", ccl::to_string(collective), refusal));
  }
  std::set<const ccl::AlgorithmModule*> named;
  for (const std::string& name : g.settings.modules) {
    const auto modules = modules_of(g.settings, name);
    named.insert(modules.begin(), modules.end());
  }
  const ccl::Selection selection = ccl::select_algorithm(
      context().algorithms(), collective, group, shape, bytes, context().config(), named,
      [&](const ccl::AlgorithmModule& m) { return g.connections->reserve(m, group, shape); }, &g.selections);
  why = selection.text;
  if (selection.module != nullptr) return *selection.module;
  if (!selection.no_room.empty()) throw std::runtime_error(selection.text);
  throw NotImplementedError(
      fmt::format("{}: no algorithm can run here: {}", ccl::to_string(collective), selection.text));
}

}  // namespace ahbm::runtime::distributed
