// The methods of DistributedContext: what each checks, what its ranks must agree on, and the way of a call from its
// rank's thread to its launch.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "runtime/context.h"
#include "runtime/distributed/collective_plan.h"
#include "runtime/distributed/distributed.h"
#include "runtime/distributed/process_group.h"

namespace ahbm::runtime::distributed {

namespace {

/// The policy without where the call comes from.
std::string policy_text(const Tensor& t) {
  DPPolicy policy = t.policy();
  policy.sips = SipScope::Own;
  return layout::to_string(policy);
}

size_t checked_dim(const char* name, int64_t dim, const Tensor& tensor) {
  const auto n = static_cast<int64_t>(tensor.shape().size());
  if (dim >= -n && dim < n) return static_cast<size_t>(dim < 0 ? dim + n : dim);
  throw std::invalid_argument(
      fmt::format("{}: dim {} of a tensor {}, expected {} to {}", name, dim, describe(tensor), -n, n - 1));
}

void check_dtypes(const char* name, DType dtype, const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors) {
    if (t.dtype() == dtype) continue;
    throw std::invalid_argument(fmt::format("{}: tensors of {} and {}, expected one dtype", name,
                                            ahbm::to_string(dtype), ahbm::to_string(t.dtype())));
  }
}

/// One tensor per rank, each of `like`'s number of elements.
void check_list(const char* name, const char* what, uint32_t n, const std::vector<Tensor>& list, const Tensor& like) {
  if (list.size() != n) {
    throw std::invalid_argument(
        fmt::format("{}: {} of {} tensors, expected one for each of {} ranks", name, what, list.size(), n));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].elements() == like.elements()) continue;
    throw std::invalid_argument(fmt::format("{}: {}[{}] is {}, the tensor {}: expected as many elements", name, what, i,
                                            describe(list[i]), describe(like)));
  }
}

/// Inputs and outputs must be different memory, and so must be the outputs. That of the list that is number `own` may
/// be the very tensor on the other side, and in a world of one any may.
void check_aliases(const char* name, uint32_t n, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                   std::optional<uint32_t> own = {}) {
  // Only tensors of one handle can: a list of a large group has too many pairs to look at all.
  std::unordered_map<const TensorHandle*, std::vector<size_t>> inputs_of, outputs_of;
  for (size_t i = 0; i < inputs.size(); ++i) inputs_of[inputs[i].handle().get()].push_back(i);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorHandle* const handle = outputs[o].handle().get();
    for (const size_t i : inputs_of[handle]) {
      const bool in_place = n == 1 || (inputs.size() > 1 ? i : o) == own;
      if (in_place && same_memory(outputs[o], inputs[i])) continue;
      if (!share_memory(outputs[o], inputs[i])) continue;
      throw std::runtime_error(fmt::format("{}: an input {} and an output {} share their memory", name,
                                           describe(inputs[i]), describe(outputs[o])));
    }
    for (const size_t p : outputs_of[handle]) {
      if (!share_memory(outputs[o], outputs[p])) continue;
      throw std::runtime_error(fmt::format("{}: outputs {} and {} share their memory: {} and {}", name, p, o,
                                           describe(outputs[p]), describe(outputs[o])));
    }
    outputs_of[handle].push_back(o);
  }
}

/// The input of a gather is the part of the output where it is to be.
bool is_own_block(const Tensor& input, const Tensor& output, size_t dim, std::optional<uint32_t> rank, uint32_t n) {
  if (!rank || input.handle() != output.handle() || dim >= output.shape().size()) return false;
  const uint64_t length = output.shape()[dim] / n;
  return same_memory(input, output.narrow(static_cast<int64_t>(dim), static_cast<int64_t>(*rank * length), length));
}

/// What no collective can do with a view.
void check_views(const char* name, const std::vector<Tensor>& tensors, bool outputs) {
  for (const Tensor& t : tensors) {
    if (!t.is_view()) continue;
    const layout::Layout& l = t.handle()->layout();
    if (l.partial_over_cubes() && l.occupied_cubes() > 1) {
      throw NotImplementedError(
          fmt::format("{}: {} is a view of a tensor that is partial over cubes ({}): all_reduce all of that first",
                      name, describe(t), layout::to_string(l.policy())));
    }
    if (!outputs || !t.strided_view()->overlaps_itself()) continue;
    throw std::runtime_error(
        fmt::format("{}: the output {} shows elements more than once, expected each once; give it contiguous()", name,
                    describe(t)));
  }
}

/// What a batch is part of by now.
std::shared_ptr<BatchedTransfers> joined(std::shared_ptr<BatchedTransfers> batch) {
  while (batch != nullptr && batch->joined != nullptr) {
    if (batch->joined->joined != nullptr) batch->joined = batch->joined->joined;  // the way is shorter next time
    batch = batch->joined;
  }
  return batch;
}

std::shared_ptr<BatchedTransfers> join(const std::shared_ptr<BatchedTransfers>& a,
                                       const std::shared_ptr<BatchedTransfers>& b) {
  if (a == b) return a;
  a->unpaired += b->unpaired;
  a->operations.splice(a->operations.end(), b->operations);
  a->works.splice(a->works.end(), b->works);
  b->joined = a;
  return a;
}

}  // namespace

// --- a call's way

DistributedContext::Caller DistributedContext::begin(const GroupPtr& g, const char* name) const {
  device().check_thread(name);
  check_usable(*g);
  const auto bound = m_ranks.find(current_process());
  if (bound == m_ranks.end()) return {};
  if (bound->second >= m_group->size()) {
    throw std::runtime_error(
        fmt::format("{}: rank {} is not in the process group of world size {}", name, bound->second, m_group->size()));
  }
  const std::optional<uint32_t> rank = g->rank_of(bound->second);
  return {rank, rank.has_value()};
}

uint32_t DistributedContext::group_rank(const GroupState& g, const Peer& peer, const char* name,
                                        const char* role) const {
  if (peer.in_group) {
    if (peer.rank < g.size()) return peer.rank;
    throw std::invalid_argument(
        fmt::format("{}: group_{} {} is not in {}, which has {} ranks", name, role, peer.rank, g.title(), g.size()));
  }
  if (const std::optional<uint32_t> rank = g.rank_of(peer.rank)) return *rank;
  throw std::invalid_argument(fmt::format("{}: {} {} (a global rank) is not in {}, which has ranks {}", name, role,
                                          peer.rank, g.title(), fmt::join(g.global_ranks, ", ")));
}

void DistributedContext::check_tensor(const GroupState& g, const Caller& caller, const Tensor& tensor, const char* name,
                                      std::optional<uint32_t> only_rank) const {
  const TensorHandle& handle = tensor.checked_handle();
  if (!g.pes.empty()) {
    if (!caller.rank) {
      throw std::runtime_error(
          fmt::format("{} from the driver: ranks are PEs here (rank: pe), call it from rank threads", name));
    }
    const PeLocation own = g.pes[*caller.rank];
    const DeviceShard& shard = handle.shards().front();
    if (handle.shards().size() == 1 && PeLocation{shard.sip, shard.cube, shard.pe} == own) return;
    throw std::runtime_error(
        fmt::format("{}: rank {} is {}, but its tensor lies elsewhere or on several PEs; make it after "
                    "init_process_group in its rank thread",
                    name, g.global_ranks[*caller.rank], runtime::to_string(own)));
  }
  if (caller.rank) {
    const SipId own = g.sips[*caller.rank];
    if (handle.sips().size() == 1 && handle.sips().front() == own) return;
    throw std::runtime_error(fmt::format(
        "{}: rank {} is SIP {}, but its tensor lies on {}", name, g.global_ranks[*caller.rank], value(own),
        handle.sips().size() == 1 ? fmt::format("SIP {}", value(handle.sips().front()))
                                  : fmt::format("{} SIPs (sips: all is for the driver)", handle.sips().size())));
  }
  for (uint32_t r = 0; r < g.size(); ++r) {
    if ((only_rank && *only_rank != r) || handle.on(g.sips[r])) continue;
    throw std::runtime_error(
        fmt::format("{} from the driver: world size is {}, but the tensor has no shards on SIP {} of rank {}; make it "
                    "with sips: all, or call from rank threads",
                    name, g.size(), value(g.sips[r]), g.global_ranks[r]));
  }
}

Work DistributedContext::collective(const GroupPtr& g, const Caller& caller, Call call, bool async_op) {
  check_views(call.name, call.inputs, false);
  check_views(call.name, call.outputs, true);
  for (const auto* tensors : {&call.inputs, &call.outputs}) {
    for (const Tensor& t : *tensors) t.handle()->wait_pending();
  }
  auto work = std::make_shared<WorkState>();
  work->owner = this;
  work->device = &device();
  work->group = g;
  work->rank = caller.rank;
  work->outputs = call.outputs;
  work->caller = current_process();
  work->operation = arrive(*g, caller.rank, call);
  if (!m_listeners.empty()) tell_listeners(*g, caller, call, *work->operation);
  work->last = work->operation->missing == 0;
  if (work->last) g->ready.push_back(work->operation.get());
  return start(g, work, async_op);
}

uint32_t DistributedContext::add_listener(std::function<void(const CollectiveCall&)> listener) {
  m_listeners.emplace(++m_last_listener, std::move(listener));
  return m_last_listener;
}

void DistributedContext::tell_listeners(const GroupState& g, const Caller& caller, const Call& call,
                                        const Operation& op) const {
  CollectiveCall told;
  told.collective = call.collective;
  told.op = call.op;
  told.dtype = call.dtype;
  if (caller.rank) told.rank = g.global_ranks[*caller.rank];
  told.group = g.global_ranks;
  for (const Tensor& t : call.inputs) told.elements += t.elements();
  told.record = op.record;
  for (const auto& [number, listener] : m_listeners) listener(told);
}

Work DistributedContext::start(const GroupPtr& g, const WorkPtr& work, bool async_op) {
  if (async_op) {
    start_helper(g, work);
  } else {
    run(g, work);
    work->done = true;
  }
  return Work(work);
}

std::shared_ptr<Operation> DistributedContext::arrive(GroupState& g, std::optional<uint32_t> rank, const Call& call) {
  const uint32_t seq = g.next_seq[rank.value_or(0)];
  if (!rank) {
    for (uint32_t r = 1; r < g.size(); ++r) {
      if (g.next_seq[r] == seq) continue;
      throw std::runtime_error(
          fmt::format("op #{}: {} by the driver for all ranks, but rank {} has made {} calls and rank {} {}", seq,
                      call.name, g.global_ranks[0], seq, g.global_ranks[r], g.next_seq[r]));
    }
  }
  std::shared_ptr<Operation>& slot = g.operations[seq];
  if (slot == nullptr) {
    slot = std::make_shared<Operation>();
    slot->seq = seq;
    slot->first_caller = g.caller_name(rank);
    slot->call = call;
    slot->call.inputs.clear();
    slot->call.outputs.clear();
    slot->calls.assign_all(g.size());
    slot->arrived.resize(g.size());
    slot->global_ranks = g.global_ranks;
    slot->missing = g.size();
    slot->record = std::make_shared<CollectiveRecord>();
    CollectiveRecord& r = *slot->record;
    r.collective = call.collective;
    r.seq = seq;
    r.group = g.number;
    r.world_size = g.size();
    r.members = g.global_ranks;
    r.spans.resize(r.members.size());
    r.dtype = call.dtype;
    r.op = call.op;
    r.root = call.root;
  }
  const std::shared_ptr<Operation> operation = slot;
  Operation& o = *operation;

  // The sequence moves on whatever happens, so that the ranks stay together.
  for (uint32_t r = rank.value_or(0); r < (rank ? *rank + 1 : g.size()); ++r) {
    ++g.next_seq[r];
    o.arrived[r] = true;
    o.calls[r] = call;
    --o.missing;
  }
  if (o.missing == 0) g.operations.erase(seq);

  std::string mismatch;
  if (std::string_view(o.call.name) != call.name) {
    mismatch = fmt::format("op #{}: {} of {} meets {} of {}", seq, o.call.name, o.first_caller, call.name,
                           g.caller_name(rank));
  }
  for (size_t i = 0; mismatch.empty() && i < call.agree.size(); ++i) {
    const std::string& first = o.call.agree[i].second;
    if (first == call.agree[i].second) continue;
    mismatch = fmt::format("op #{} ({}): {} differs between ranks: {} has {}, {} has {}", seq, call.name,
                           call.agree[i].first, o.first_caller, first, g.caller_name(rank), call.agree[i].second);
  }
  if (!mismatch.empty()) {
    if (o.error == nullptr) o.error = std::make_exception_ptr(std::runtime_error(mismatch));
    o.changed.notify(sc_core::SC_ZERO_TIME);
    throw std::runtime_error(mismatch);
  }
  return operation;
}

void DistributedContext::run(const GroupPtr& g, const WorkPtr& work) {
  try {
    perform(g, work);
  } catch (const StallError&) {  // of a thread that watches itself
    mark_failed("it stalled");
    throw;
  }
}

void DistributedContext::perform(const GroupPtr& g, const WorkPtr& work) {
  const std::shared_ptr<Operation> operation = work->operation;
  Operation& op = *operation;
  Device& dev = device();
  if (!work->last) {
    dev.await(op.changed, [&] { return op.launched || op.error != nullptr || work->last; },
              {op.name(), [&op] { return op.missing_ranks(); }, nullptr});
  }
  if (work->last) lead(g, work);
  if (op.error != nullptr) std::rethrow_exception(op.error);

  std::vector<uint32_t> own;  // of the ranks with launches
  if (!work->rank) {
    own = op.launches.ranks();
  } else if (op.launches.has(*work->rank)) {
    own = {*work->rank};
  }
  std::vector<Launch> launches;
  for (const uint32_t r : own) launches.insert(launches.end(), op.launches[r].begin(), op.launches[r].end());
  try {
    for (const Launch& l : launches) dev.wait(l, op.name());
  } catch (const sc_core::sc_unwind_exception&) {
    throw;
  } catch (const StallError&) {
    throw;
  } catch (const std::exception& e) {
    mark_failed(g, e.what());
    throw;
  }
  if (op.call.collective == ccl::Collective::AllReduce) {
    for (const Tensor& t : work->outputs) t.handle()->become_replicated();
  }

  CollectiveRecord& record = *op.record;
  for (const uint32_t r : own) {
    if (op.launches[r].empty()) continue;
    // Those of a collective are all of the group, those of a message its two ends.
    const bool all = record.members.size() == g->size() && record.members[r] == g->global_ranks[r];
    const auto member =
        all ? record.members.begin() + r : std::find(record.members.begin(), record.members.end(), g->global_ranks[r]);
    CollectiveSpan& span = record.spans[static_cast<size_t>(member - record.members.begin())];
    for (const Launch& l : op.launches[r]) {
      span.start = span.start == 0 ? l->first_sent() : std::min(span.start, l->first_sent());
      span.end = std::max(span.end, l->last_arrived());
    }
    record.start = record.start == 0 ? span.start : std::min(record.start, span.start);
    record.end = std::max(record.end, span.end);
  }
  record.parts += work->rank ? 1 : record.world_size;
  if (record.complete() && on_collective) on_collective(record);
}

void DistributedContext::lead(const GroupPtr& g, const WorkPtr& work) {
  Operation& op = *work->operation;
  struct Place {  // in the queue of those that are ready
    GroupState& g;
    const Operation* op;
    ~Place() {
      g.ready.erase(std::remove(g.ready.begin(), g.ready.end(), op), g.ready.end());
      g.changed.notify(sc_core::SC_ZERO_TIME);
    }
  } place{*g, &op};
  try {
    if (op.error != nullptr) return;
    // Launches leave in the order in which the calls were complete, so that every PE sees the collectives in one order.
    device().await(g->changed,
                   [&] { return !g->failed.empty() || g->destroyed || g->ready.empty() || g->ready.front() == &op; },
                   {op.name(), [] { return std::string("an earlier collective's launch"); }, nullptr});
    check_usable(*g);
    if (work->batch != nullptr) {
      launch_batch(*g, *work->batch);
    } else {
      launch(*g, op);
    }
    op.launched = true;
  } catch (const sc_core::sc_unwind_exception&) {
    throw;
  } catch (...) {
    op.error = std::current_exception();
  }
  op.changed.notify(sc_core::SC_ZERO_TIME);
  if (work->batch == nullptr) return;
  for (const auto& other : work->batch->operations) {
    if (other->error == nullptr) other->error = op.error;
    other->launched = op.launched;
    other->changed.notify(sc_core::SC_ZERO_TIME);
    g->batched.erase(other);
  }
}

void DistributedContext::launch(GroupState& g, Operation& op) {
  CollectivePlan plan(context(), g, op, chooser(g));
  op.launches.assign(op.calls.ranks());
  if (!plan.nothing()) {
    plan.connect();
    for (const Tensor& t : plan.tensors()) t.handle()->wait_collectives();
    op.waits_for = "its launches";
    const Device::LaunchTurn turn(device(), plan.sips(), op.name());
    for (size_t stage = 0; stage < plan.stages(); ++stage) {
      std::vector<uint32_t> ranks;
      const std::vector<Launch> launches =
          device().launch_all(plan.requests(stage, ranks), [&](const std::vector<Launch>& ready) {
            for (size_t i = 0; i < ready.size(); ++i) note(g, op, ranks[i], ready[i], plan.tensors(ranks[i]));
          });
      if (stage + 1 == plan.stages()) break;
      for (const Launch& l : launches) device().wait(l, op.name());
      plan.stage_done(stage);
    }
  }
  for (Call& call : op.calls.values()) call = Call{};  // the tensors are held by their launches now
}

void DistributedContext::launch_batch(GroupState& g, const BatchedTransfers& batch) {
  std::vector<std::shared_ptr<Operation>> operations(batch.operations.begin(), batch.operations.end());
  std::sort(operations.begin(), operations.end(), [](const auto& a, const auto& b) { return a->seq < b->seq; });
  std::vector<std::unique_ptr<CollectivePlan>> plans;
  std::vector<Operation*> planned;
  const CollectivePlan::Choose choose = chooser(g);
  std::set<SipId> sips;
  for (const auto& op : operations) {
    op->launches.assign(op->calls.ranks());
    try {
      auto plan = std::make_unique<CollectivePlan>(context(), g, *op, choose);
      if (plan->nothing()) continue;
      for (const SipId sip : plan->sips()) sips.insert(sip);
      plans.push_back(std::move(plan));
      planned.push_back(op.get());
    } catch (const NotImplementedError&) {
      op->error = std::current_exception();
    }
  }
  if (!plans.empty()) {
    for (const auto& plan : plans) plan->connect();
    for (const auto& plan : plans) {
      for (const Tensor& t : plan->tensors()) t.handle()->wait_collectives();
    }
    const Device::LaunchTurn turn(device(), {sips.begin(), sips.end()}, planned.front()->name());
    std::map<uint32_t, std::vector<size_t>> of_rank;  // indices of the plans that it takes part in
    for (size_t k = 0; k < plans.size(); ++k) {
      for (const uint32_t r : planned[k]->launches.ranks()) of_rank[r].push_back(k);
    }
    std::vector<uint32_t> ranks;
    device().launch_all(CollectivePlan::batch(plans, ranks), [&](const std::vector<Launch>& ready) {
      for (size_t i = 0; i < ready.size(); ++i) {
        g.note(ready[i]);
        for (const size_t k : of_rank[ranks[i]]) {
          planned[k]->launches[ranks[i]].push_back(ready[i]);
          for (const Tensor& t : plans[k]->tensors(ranks[i])) t.handle()->add_collective(ready[i]);
        }
      }
    });
  }
  for (const auto& op : operations) {
    for (Call& call : op->calls.values()) call = Call{};
  }
}

void DistributedContext::note(GroupState& g, Operation& op, uint32_t rank, const Launch& launch,
                              const std::vector<Tensor>& tensors) {
  g.note(launch);
  op.launches[rank].push_back(launch);
  for (const Tensor& t : tensors) t.handle()->add_collective(launch);
}

DistributedContext::Chooser DistributedContext::chooser(const GroupState& g) const {
  return [this, &g](ccl::Collective collective, const ccl::Group& group, const ccl::CollectiveShape& shape,
                    double bytes, std::string& why) -> const ccl::AlgorithmModule& {
    return choose_module(g, collective, group, shape, bytes, why);
  };
}

void DistributedContext::start_helper(const GroupPtr& g, const WorkPtr& work) {
  Device& dev = device();
  const bool supervised = dev.supervised(work->caller);
  work->helper = sc_core::sc_spawn(
      [this, g, work, &dev, supervised] {
        const sc_core::sc_process_handle self = current_process();
        dev.label(self, work->rank ? g->caller_name(work->rank) : std::string("driver"));
        if (supervised) dev.supervise(self, true);
        struct Leave {
          Device& device;
          const sc_core::sc_process_handle& self;
          const WorkPtr& work;
          ~Leave() {
            work->helper = {};  // this process holds `work`: they would keep each other, and the tensors, for ever
            device.label(self, {});
            device.supervise(self, false);
          }
        } leave{dev, self, work};
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

// --- the collectives

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
  return all_reduce(tensor, op, ProcessGroup(), async_op);
}

Work DistributedContext::all_reduce(const Tensor& tensor, ReduceOp op, const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "all_reduce");
  if (!caller.member) return {};
  Call call;
  call.name = "all_reduce";
  call.inputs = call.outputs = {tensor};
  call.dtype = tensor.dtype();
  call.op = op;
  if (g->module != nullptr) call.module = &choose_module(*g, cube_layout(tensor), op, tensor.dtype());
  check_tensor(*g, caller, tensor, call.name);
  call.agree = {{"shape", layout::to_string(tensor.shape())},
                {"dtype", ahbm::to_string(call.dtype)},
                {"op", ahbm::to_string(op)},
                {"layout", policy_text(tensor)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::broadcast(const Tensor& tensor, Peer src, const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "broadcast");
  if (!caller.member) return {};
  Call call;
  call.name = "broadcast";
  call.collective = ccl::Collective::Broadcast;
  call.inputs = call.outputs = {tensor};
  call.dtype = tensor.dtype();
  call.root = group_rank(*g, src, call.name, "src");
  check_tensor(*g, caller, tensor, call.name);
  call.agree = {{"src", std::to_string(g->global_ranks[call.root])},
                {"shape", layout::to_string(tensor.shape())},
                {"dtype", ahbm::to_string(call.dtype)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::reduce(const Tensor& tensor, Peer dst, ReduceOp op, const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "reduce");
  if (!caller.member) return {};
  Call call;
  call.name = "reduce";
  call.collective = ccl::Collective::Reduce;
  call.root = group_rank(*g, dst, call.name, "dst");
  call.inputs = {tensor};
  if (!caller.rank || *caller.rank == call.root) call.outputs = {tensor};
  call.dtype = tensor.dtype();
  call.op = op;
  check_tensor(*g, caller, tensor, call.name);
  call.agree = {{"dst", std::to_string(g->global_ranks[call.root])},
                {"shape", layout::to_string(tensor.shape())},
                {"dtype", ahbm::to_string(call.dtype)},
                {"op", ahbm::to_string(op)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::all_gather_into_tensor(const Tensor& output, const Tensor& input, const ProcessGroup& which,
                                                bool async_op, int64_t dim) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "all_gather_into_tensor");
  if (!caller.member) return {};
  Call call;
  call.name = "all_gather_into_tensor";
  call.collective = ccl::Collective::AllGather;
  call.inputs = {input};
  call.outputs = {output};
  call.dtype = input.dtype();
  check_dtypes(call.name, call.dtype, call.outputs);
  const bool stacked = dim == 0 && output.elements() == input.elements() * g->size();
  if (!stacked) {
    call.dim = checked_dim(call.name, dim, input);
    Shape expected = input.shape();
    expected[call.dim] *= g->size();
    if (output.shape() != expected) {
      throw std::invalid_argument(fmt::format("{}: {} ranks of {} along dim {} make {}, but the output is {}",
                                              call.name, g->size(), describe(input), dim, layout::to_string(expected),
                                              describe(output)));
    }
  }
  for (const Tensor* t : {&input, &output}) check_tensor(*g, caller, *t, call.name);
  if (!is_own_block(input, output, call.dim, caller.rank, g->size())) {
    check_aliases(call.name, g->size(), call.inputs, call.outputs);
  }
  call.agree = {{"input shape", layout::to_string(input.shape())},
                {"dtype", ahbm::to_string(call.dtype)},
                {"dim", std::to_string(call.dim)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::all_gather(const std::vector<Tensor>& outputs, const Tensor& input, const ProcessGroup& which,
                                    bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "all_gather");
  if (!caller.member) return {};
  Call call;
  call.name = "all_gather";
  call.collective = ccl::Collective::AllGather;
  call.inputs = {input};
  call.outputs = outputs;
  call.dtype = input.dtype();
  check_dtypes(call.name, call.dtype, outputs);
  check_list(call.name, "tensor_list", g->size(), outputs, input);
  check_tensor(*g, caller, input, call.name);
  for (const Tensor& t : outputs) check_tensor(*g, caller, t, call.name);
  check_aliases(call.name, g->size(), call.inputs, call.outputs, caller.rank);
  call.agree = {{"shape", layout::to_string(input.shape())}, {"dtype", ahbm::to_string(call.dtype)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                                               const ProcessGroup& which, bool async_op, int64_t dim) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "reduce_scatter_tensor");
  if (!caller.member) return {};
  Call call;
  call.name = "reduce_scatter_tensor";
  call.collective = ccl::Collective::ReduceScatter;
  call.inputs = {input};
  call.outputs = {output};
  call.dtype = input.dtype();
  call.op = op;
  check_dtypes(call.name, call.dtype, call.outputs);
  const bool stacked = dim == 0 && input.elements() == output.elements() * g->size();
  if (!stacked) {
    call.dim = checked_dim(call.name, dim, output);
    Shape expected = output.shape();
    expected[call.dim] *= g->size();
    if (input.shape() != expected) {
      throw std::invalid_argument(
          fmt::format("{}: {} ranks with an output {} take {} along dim {}, but the input is {}", call.name, g->size(),
                      describe(output), layout::to_string(expected), dim, describe(input)));
    }
  }
  for (const Tensor* t : {&input, &output}) check_tensor(*g, caller, *t, call.name);
  check_aliases(call.name, g->size(), call.inputs, call.outputs);
  call.agree = {{"input shape", layout::to_string(input.shape())},
                {"dtype", ahbm::to_string(call.dtype)},
                {"op", ahbm::to_string(op)},
                {"dim", std::to_string(call.dim)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op,
                                        const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "reduce_scatter");
  if (!caller.member) return {};
  Call call;
  call.name = "reduce_scatter";
  call.collective = ccl::Collective::ReduceScatter;
  call.inputs = inputs;
  call.outputs = {output};
  call.dtype = output.dtype();
  call.op = op;
  check_dtypes(call.name, call.dtype, inputs);
  check_list(call.name, "input_list", g->size(), inputs, output);
  check_tensor(*g, caller, output, call.name);
  for (const Tensor& t : inputs) check_tensor(*g, caller, t, call.name);
  check_aliases(call.name, g->size(), call.inputs, call.outputs);
  call.agree = {{"shape", layout::to_string(output.shape())},
                {"dtype", ahbm::to_string(call.dtype)},
                {"op", ahbm::to_string(op)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::all_to_all_single(const Tensor& output, const Tensor& input,
                                           const std::vector<uint64_t>& output_splits,
                                           const std::vector<uint64_t>& input_splits, const ProcessGroup& which,
                                           bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "all_to_all_single");
  if (!caller.member) return {};
  Call call;
  call.name = "all_to_all_single";
  call.collective = ccl::Collective::AllToAll;
  call.inputs = {input};
  call.outputs = {output};
  call.dtype = input.dtype();
  check_dtypes(call.name, call.dtype, call.outputs);
  const auto splits = [&](const Tensor& t, const std::vector<uint64_t>& rows, const char* what) {
    const uint64_t n_rows = t.shape().empty() ? 1 : t.shape().front();
    std::vector<uint64_t> out = rows;
    if (rows.empty()) {
      if (n_rows % g->size() != 0) {
        throw std::invalid_argument(
            fmt::format("{}: {} rows of the {} {} do not divide by {} ranks; give {}_split_sizes", call.name, n_rows,
                        what, describe(t), g->size(), what));
      }
      out.assign(g->size(), n_rows / g->size());
    }
    uint64_t sum = 0;
    for (const uint64_t v : out) sum += v;
    if (out.size() != g->size() || sum != n_rows) {
      throw std::invalid_argument(
          fmt::format("{}: {}_split_sizes {} for {} ranks and {} rows of {}, expected one per "
                      "rank, together the rows",
                      call.name, what, fmt::join(out, ", "), g->size(), n_rows, describe(t)));
    }
    const uint64_t row = n_rows == 0 ? 0 : t.elements() / n_rows;
    for (uint64_t& v : out) v *= row;
    return out;
  };
  call.input_splits = splits(input, input_splits, "input");
  call.output_splits = splits(output, output_splits, "output");
  for (const Tensor* t : {&input, &output}) check_tensor(*g, caller, *t, call.name);
  check_aliases(call.name, g->size(), call.inputs, call.outputs);
  call.agree = {{"dtype", ahbm::to_string(call.dtype)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, Peer dst,
                                const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "gather");
  if (!caller.member) return {};
  Call call;
  call.name = "gather";
  call.collective = ccl::Collective::Gather;
  call.inputs = {tensor};
  call.dtype = tensor.dtype();
  call.root = group_rank(*g, dst, call.name, "dst");
  check_tensor(*g, caller, tensor, call.name);
  if (!caller.rank || *caller.rank == call.root) {
    check_list(call.name, "gather_list", g->size(), gather_list, tensor);
    check_dtypes(call.name, call.dtype, gather_list);
    for (const Tensor& t : gather_list) check_tensor(*g, caller, t, call.name, call.root);
    check_aliases(call.name, g->size(), call.inputs, gather_list, caller.rank);
    call.outputs = gather_list;
  } else if (!gather_list.empty()) {
    throw std::invalid_argument("gather: gather_list is for the destination rank only");
  }
  call.agree = {{"dst", std::to_string(g->global_ranks[call.root])},
                {"shape", layout::to_string(tensor.shape())},
                {"dtype", ahbm::to_string(call.dtype)}};
  return collective(g, caller, std::move(call), async_op);
}

Work DistributedContext::scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list, Peer src,
                                 const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "scatter");
  if (!caller.member) return {};
  Call call;
  call.name = "scatter";
  call.collective = ccl::Collective::Scatter;
  call.outputs = {tensor};
  call.dtype = tensor.dtype();
  call.root = group_rank(*g, src, call.name, "src");
  check_tensor(*g, caller, tensor, call.name);
  if (!caller.rank || *caller.rank == call.root) {
    check_list(call.name, "scatter_list", g->size(), scatter_list, tensor);
    check_dtypes(call.name, call.dtype, scatter_list);
    for (const Tensor& t : scatter_list) check_tensor(*g, caller, t, call.name, call.root);
    check_aliases(call.name, g->size(), scatter_list, call.outputs, caller.rank);
    call.inputs = scatter_list;
  } else if (!scatter_list.empty()) {
    throw std::invalid_argument("scatter: scatter_list is for the source rank only");
  }
  call.agree = {{"src", std::to_string(g->global_ranks[call.root])},
                {"shape", layout::to_string(tensor.shape())},
                {"dtype", ahbm::to_string(call.dtype)}};
  return collective(g, caller, std::move(call), async_op);
}

// --- point to point

DistributedContext::WorkPtr DistributedContext::pair_up(const GroupPtr& g, const Tensor& tensor, const Peer& peer,
                                                        uint32_t tag, bool sends, const char* name,
                                                        const std::shared_ptr<BatchedTransfers>& batch) {
  const Caller caller = begin(g, name);
  if (!caller.member) return nullptr;
  if (!caller.rank) {
    throw std::runtime_error(
        fmt::format("{} from the driver: a message goes from one rank to another, call it from rank threads", name));
  }
  const uint32_t self = *caller.rank, other = group_rank(*g, peer, name, sends ? "dst" : "src");
  if (self == other) {
    throw std::invalid_argument(
        fmt::format("{}: rank {} with itself, expected another rank", name, g->global_ranks[self]));
  }
  check_tensor(*g, caller, tensor, name);
  check_views(name, {tensor}, !sends);
  tensor.handle()->wait_pending();

  const GroupState::Pair pair{sends ? self : other, sends ? other : self, tag};
  auto& mine = (sends ? g->sends : g->receives)[pair];
  auto& theirs = sends ? g->receives : g->sends;
  auto work = std::make_shared<WorkState>();
  work->owner = this;
  work->device = &device();
  work->group = g;
  work->rank = self;
  if (!sends) work->outputs = {tensor};
  work->caller = current_process();
  work->batch = batch;

  Call call;
  call.name = sends ? "send" : "recv";
  call.collective = ccl::Collective::SendRecv;
  (sends ? call.inputs : call.outputs) = {tensor};
  call.dtype = tensor.dtype();
  call.root = std::get<0>(pair);
  call.peer = std::get<1>(pair);
  const auto waiting = theirs.find(pair);
  if (waiting == theirs.end() || waiting->second.empty()) {
    auto op = std::make_shared<Operation>();
    op->seq = 0x80000000u | g->next_transfer++;  // apart from the collectives' numbers in message headers
    op->call = call;
    op->call.inputs.clear();
    op->call.outputs.clear();
    op->calls.assign({std::min(self, other), std::max(self, other)});
    op->calls[self] = call;
    op->waits_for = fmt::format("{} by rank {} (tag {})", sends ? "recv" : "send", g->global_ranks[other], tag);
    op->record = std::make_shared<CollectiveRecord>();
    op->record->collective = ccl::Collective::SendRecv;
    op->record->seq = op->seq;
    op->record->group = g->number;
    op->record->world_size = 2;
    op->record->dtype = call.dtype;
    op->record->root = call.root;
    op->record->members = {g->global_ranks[call.root], g->global_ranks[call.peer]};
    op->record->spans.resize(2);
    work->operation = std::move(op);
    mine.push_back({work, tensor});
    if (batch != nullptr) ++joined(batch)->unpaired;
  } else {
    const GroupState::Post post = waiting->second.front();
    waiting->second.pop_front();
    if (waiting->second.empty()) theirs.erase(waiting);
    if (mine.empty()) (sends ? g->sends : g->receives).erase(pair);
    Operation& op = *post.work->operation;
    work->operation = post.work->operation;
    op.calls[self] = call;
    op.waits_for = "its connections";
    const Tensor& sent = sends ? tensor : post.tensor;
    const Tensor& received = sends ? post.tensor : tensor;
    if (sent.elements() != received.elements() || sent.dtype() != received.dtype()) {
      op.error = std::make_exception_ptr(std::runtime_error(
          fmt::format("send of rank {} to rank {} has {}, the recv of rank {} has {}: expected as many elements of the "
                      "same dtype",
                      g->global_ranks[call.root], g->global_ranks[call.peer], describe(sent),
                      g->global_ranks[call.peer], describe(received))));
      op.changed.notify(sc_core::SC_ZERO_TIME);
    }
    const std::shared_ptr<BatchedTransfers> met = joined(post.work->batch);
    if (met != nullptr) --met->unpaired;
    if (batch == nullptr || met == nullptr || op.error != nullptr) {
      work->batch = post.work->batch = nullptr;
      work->last = true;
      if (op.error == nullptr) g->ready.push_back(&op);
      if (met != nullptr) leave_when_paired(*g, met);
    } else {
      op.waits_for = "the other transfers of the batches that it is part of";
      const auto all = join(joined(batch), met);
      all->operations.push_back(work->operation);
      all->works.push_back(work);
      g->batched.insert(work->operation);
    }
  }
  return work;
}

Work DistributedContext::post(const GroupPtr& g, const Tensor& tensor, const Peer& peer, uint32_t tag, bool sends,
                              bool async_op, const char* name) {
  const WorkPtr work = pair_up(g, tensor, peer, tag, sends, name, nullptr);
  return work == nullptr ? Work() : start(g, work, async_op);
}

void DistributedContext::leave_when_paired(GroupState& g, const std::shared_ptr<BatchedTransfers>& batch) {
  if (batch->unpaired != 0 || batch->operations.empty()) return;
  // Any of the callers can lead; the others find their operation launched.
  for (const auto& weak : batch->works) {
    const WorkPtr leader = weak.lock();
    if (leader == nullptr || leader->operation->error != nullptr) continue;
    leader->batch = batch;
    leader->last = true;
    g.ready.push_back(leader->operation.get());
    leader->operation->changed.notify(sc_core::SC_ZERO_TIME);
    return;
  }
}

void DistributedContext::send(const Tensor& tensor, Peer dst, const ProcessGroup& which, uint32_t tag) {
  post(group_ptr(which), tensor, dst, tag, true, false, "send");
}

uint32_t DistributedContext::recv(const Tensor& tensor, Peer src, const ProcessGroup& which, uint32_t tag) {
  const GroupPtr g = group_ptr(which);
  post(g, tensor, src, tag, false, false, "recv");
  return src.in_group ? g->global_ranks.at(src.rank) : src.rank;
}

Work DistributedContext::isend(const Tensor& tensor, Peer dst, const ProcessGroup& which, uint32_t tag) {
  return post(group_ptr(which), tensor, dst, tag, true, true, "isend");
}

Work DistributedContext::irecv(const Tensor& tensor, Peer src, const ProcessGroup& which, uint32_t tag) {
  return post(group_ptr(which), tensor, src, tag, false, true, "irecv");
}

std::vector<Work> DistributedContext::batch_isend_irecv(const std::vector<P2POp>& ops) {
  if (ops.empty()) throw std::invalid_argument("batch_isend_irecv: the list is empty");
  for (const P2POp& op : ops) {
    if (op.group != ops.front().group) {
      throw std::invalid_argument("batch_isend_irecv: all of a batch must name the same group");
    }
  }
  const GroupPtr g = group_ptr(ops.front().group);
  const auto batch = std::make_shared<BatchedTransfers>();
  std::vector<WorkPtr> works;
  ++batch->unpaired;  // it is not complete yet
  for (const P2POp& op : ops) {
    const bool sends = op.kind == P2POp::Isend;
    works.push_back(pair_up(g, op.tensor, op.peer, op.tag, sends, sends ? "isend" : "irecv", batch));
  }
  const auto all = joined(batch);
  --all->unpaired;
  leave_when_paired(*g, all);
  std::vector<Work> out;
  for (const WorkPtr& work : works) out.push_back(work == nullptr ? Work() : start(g, work, true));
  return out;
}

// --- barriers

Work DistributedContext::barrier(const ProcessGroup& which, bool async_op) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "barrier");
  if (!caller.member) return {};
  Call call;
  call.name = "barrier";
  call.collective = ccl::Collective::Barrier;
  call.dtype = DType::Int32;
  if (g->settings.barrier_simulated) return collective(g, caller, std::move(call), async_op);
  arrive(*g, caller.rank, call);
  return {};
}

void DistributedContext::monitored_barrier(const ProcessGroup& which, Ps timeout) {
  const GroupPtr g = group_ptr(which);
  const Caller caller = begin(g, "monitored_barrier");
  if (!caller.member) return;
  Call call;
  call.name = "monitored_barrier";
  call.collective = ccl::Collective::Barrier;
  const std::shared_ptr<Operation> operation = arrive(*g, caller.rank, call);
  Operation& op = *operation;
  if (op.missing == 0) {
    op.launched = true;
    op.changed.notify(sc_core::SC_ZERO_TIME);
    if (op.error != nullptr) std::rethrow_exception(op.error);
    return;
  }
  const Ps deadline = models::now_ps() + timeout;
  device().await(op.changed,
                 [&] {
                   const Ps now = models::now_ps();
                   if (op.launched || op.error != nullptr || now >= deadline) return true;
                   op.changed.notify(models::to_sc_time(deadline - now));
                   return false;
                 },
                 {op.name(), [&op] { return op.missing_ranks(); }, nullptr});
  if (!op.launched && op.error == nullptr) {
    op.error = std::make_exception_ptr(
        std::runtime_error(fmt::format("{} of {}: {} did not call it within {} ns", op.name(), g->title(),
                                       op.missing_ranks(), static_cast<double>(timeout) / 1000.0)));
    // They have missed it: what they call next is the others' next one.
    for (uint32_t r = 0; r < g->size(); ++r) {
      if (op.arrived[r]) continue;
      op.arrived[r] = true;
      ++g->next_seq[r];
    }
    op.missing = 0;
    g->operations.erase(op.seq);
    op.changed.notify(sc_core::SC_ZERO_TIME);
  }
  if (op.error != nullptr) std::rethrow_exception(op.error);
}

}  // namespace ahbm::runtime::distributed
