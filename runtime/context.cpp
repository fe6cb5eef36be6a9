#include "runtime/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "runtime/dtensor/session.h"
#include "runtime/random.h"

namespace ahbm::runtime {

namespace {

/// Of a rank thread: a program's own code runs there, and SystemC's default of 64 KiB has no guard that tells. Pages
/// that are not used cost nothing.
constexpr int kRankStackBytes = 1 << 20;

/// Of type E for those who catch it, a RankFailure for those who look closer.
template <typename E>
struct RankException final : E, RankFailure {
  RankException(const std::string& text, const RankFailure& failure) : E(text), RankFailure(failure) {}
  RankException(const E& base, const RankFailure& failure) : E(base), RankFailure(failure) {}
};

/// Throws `failure.original` again with rank and time in front, as the same standard type.
[[noreturn]] void throw_rank_failure(const RankFailure& failure) {
  const auto text = [&](const char* what) {
    return fmt::format("rank {} at {} ns: {}", failure.rank, static_cast<double>(failure.time) / 1000.0, what);
  };
  try {
    std::rethrow_exception(failure.original);
  } catch (const StallError& e) {
    throw RankException<StallError>(StallError(text(e.what()), e), failure);
  } catch (const ConfigError& e) {
    throw RankException<ConfigError>(text(e.what()), failure);
  } catch (const NotImplementedError& e) {
    throw RankException<NotImplementedError>(text(e.what()), failure);
  } catch (const std::invalid_argument& e) {
    throw RankException<std::invalid_argument>(text(e.what()), failure);
  } catch (const std::out_of_range& e) {
    throw RankException<std::out_of_range>(text(e.what()), failure);
  } catch (const std::logic_error& e) {
    throw RankException<std::logic_error>(text(e.what()), failure);
  } catch (const std::exception& e) {
    throw RankException<std::runtime_error>(text(e.what()), failure);
  } catch (...) {
    throw RankException<std::runtime_error>(text("an exception that is no std::exception"), failure);
  }
}

}  // namespace

Context::Context(Device& device, ccl::Registry* algorithms)
    : m_device(device), m_algorithms(algorithms), m_self(std::make_shared<Context*>(this)) {
  if (m_algorithms == nullptr) {
    m_own_algorithms = std::make_unique<ccl::Registry>();
    ccl::register_builtin_algorithms(*m_own_algorithms);
    m_algorithms = m_own_algorithms.get();
  }
  distributed.attach(*this);
}

Context::~Context() = default;

dtensor::Session& Context::dtensor_session() {
  if (m_dtensor_session == nullptr) m_dtensor_session = std::make_unique<dtensor::Session>(*this);
  return *m_dtensor_session;
}

void Context::set_device(uint32_t sip) {
  if (sip >= config().sips) {
    throw std::invalid_argument(
        fmt::format("set_device({}): the machine has {} SIPs, expected 0..{}", sip, config().sips, config().sips - 1));
  }
  m_devices[current_process()] = sip;
}

uint32_t Context::current_device() const {
  const auto bound = m_devices.find(current_process());
  if (bound != m_devices.end()) return bound->second;
  const std::optional<PeLocation> pe = distributed.own_pe();
  return pe ? value(pe->sip) : distributed.get_rank();
}

// --- tensors

std::vector<SipId> Context::sips_of(const DPPolicy& policy) const {
  if (policy.sips == SipScope::All) {
    std::vector<SipId> all;
    for (uint32_t s = 0; s < config().sips; ++s) all.push_back(SipId{s});
    return all;
  }
  const uint32_t sip = current_device();
  if (sip >= config().sips) {
    throw std::runtime_error(fmt::format(
        "rank {} has no SIP of its own: the machine has {}; bind the thread with set_device", sip, config().sips));
  }
  return {SipId{sip}};
}

Tensor Context::empty(const Shape& shape, DType dtype, const DPPolicy& policy) {
  m_device.check_os_thread("empty");
  const std::optional<PeLocation> pe = distributed.own_pe();
  if (pe && policy.sips == SipScope::Own) {
    DPPolicy whole = policy;
    whole.num_cubes = whole.num_pes = 1;
    auto on_pe = std::make_shared<TensorHandle>(m_device, layout::Layout(shape, dtype, whole, 1, 1), *pe);
    return Tensor(shape, dtype, whole, std::move(on_pe));
  }
  layout::Layout cut(shape, dtype, policy, config().cubes(), config().pes);
  auto handle = std::make_shared<TensorHandle>(m_device, std::move(cut), sips_of(policy));
  handle->set_context(m_self);
  return Tensor(shape, dtype, policy, std::move(handle));
}

Tensor Context::full(const Shape& shape, double v, DType dtype, const DPPolicy& policy) {
  Tensor t = empty(shape, dtype, policy);
  std::vector<uint8_t> data;
  if (config().simulation.functional) {
    data.resize(t.host_bytes());
    fill(dtype, data.data(), data.size() / item_bytes(dtype), v);
  }
  t.upload(data.empty() ? nullptr : data.data(), t.host_bytes());
  return t;
}

Tensor Context::arange(double start, double end, double step, DType dtype, const DPPolicy& policy) {
  if (!(step != 0.0) || !std::isfinite(start) || !std::isfinite(end) || !std::isfinite(step)) {
    throw std::invalid_argument(
        fmt::format("arange({}, {}, {}): all three must be finite and the step not 0", start, end, step));
  }
  if ((end - start) / step < 0) {
    throw std::invalid_argument(fmt::format("arange({}, {}, {}): the step leads away from the end", start, end, step));
  }
  const double count = std::ceil((end - start) / step);
  if (count > 0x1p40) throw std::invalid_argument(fmt::format("arange({}, {}, {}): too long", start, end, step));
  const auto n = static_cast<uint64_t>(count);
  Tensor t = empty({n}, dtype, policy);
  std::vector<uint8_t> data;
  if (config().simulation.functional) {
    data.resize(t.host_bytes());
    const uint64_t total = data.size() / item_bytes(dtype);
    for (uint64_t i = 0; i < total; ++i) {
      store_element(dtype, data.data(), i, start + static_cast<double>(i % n) * step);
    }
  }
  t.upload(data.empty() ? nullptr : data.data(), t.host_bytes());
  return t;
}

Tensor Context::rand(const Shape& shape, uint64_t seed, DType dtype, const DPPolicy& policy) {
  Tensor t = empty(shape, dtype, policy);
  std::vector<uint8_t> data;
  if (config().simulation.functional) {
    data.resize(t.host_bytes());
    fill_random(dtype, seed, 0, data.size() / item_bytes(dtype), data.data());
  }
  t.upload(data.empty() ? nullptr : data.data(), t.host_bytes());
  return t;
}

Tensor Context::from_host(const Shape& shape, DType dtype, const void* data, uint64_t bytes, const DPPolicy& policy) {
  Tensor t = empty(shape, dtype, policy);
  t.upload(data, bytes);
  return t;
}

// --- kernels

Launch Context::launch(const std::string& kernel, const std::vector<KernelArg>& args) {
  m_device.check_thread("launch");
  std::vector<Tensor> tensors;
  for (const KernelArg& a : args) {
    if (const auto* t = std::get_if<Tensor>(&a.value())) tensors.push_back(*t);
    if (const auto* e = std::get_if<ElementsOf>(&a.value())) tensors.push_back(e->tensor);
  }
  if (tensors.empty()) {
    throw std::invalid_argument(
        fmt::format("launch of {}: no argument is a tensor, so no PE is named; use launch_on", kernel));
  }
  for (const Tensor& t : tensors) {
    if (!t.is_view()) continue;
    throw std::invalid_argument(fmt::format(
        "launch of {}: {} is a view, and kernels get whole shards; give it contiguous()", kernel, describe(t)));
  }
  const TensorHandle& leader = tensors.front().checked_handle();
  std::vector<DeviceShard> places;
  for (const DeviceShard& s : leader.shards()) {
    if (s.bytes != 0) places.push_back(s);
  }
  const auto shard_of = [&](const Tensor& t, const DeviceShard& place) -> const DeviceShard& {
    const TensorHandle& h = t.checked_handle();
    const layout::Layout& l = h.layout();
    if (!h.on(place.sip) || value(place.cube) >= l.cubes() || value(place.pe) >= l.pes()) {
      throw std::invalid_argument(
          fmt::format("launch of {}: tensor {} ({}) has no shard on {}, where the first tensor has one", kernel,
                      layout::to_string(t.shape()), layout::to_string(t.policy()),
                      to_string(PeLocation{place.sip, place.cube, place.pe})));
    }
    return h.shard(place.sip, place.cube, place.pe);
  };

  LaunchRequest request;
  request.kernel = kernel;
  uint32_t index = 0;
  for (const DeviceShard& place : places) {
    PeLaunch pe;
    pe.pe = {place.sip, place.cube, place.pe};
    for (const KernelArg& a : args) {
      if (const auto* t = std::get_if<Tensor>(&a.value())) {
        pe.args.push_back(shard_of(*t, place).address);
      } else if (const auto* e = std::get_if<ElementsOf>(&a.value())) {
        pe.args.push_back(shard_of(e->tensor, place).bytes / item_bytes(e->tensor.dtype()));
      } else {
        pe.args.push_back(std::get<uint64_t>(a.value()));
      }
    }
    const layout::Layout& l = leader.layout();
    pe.program.program_rank = index / static_cast<uint32_t>(l.shards().size());
    pe.program.program_ranks = static_cast<uint32_t>(leader.sips().size());
    pe.program.program_rank =
        static_cast<uint32_t>(std::find(leader.sips().begin(), leader.sips().end(), place.sip) - leader.sips().begin());
    pe.program.program_cube = value(place.cube);
    pe.program.program_cubes = l.occupied_cubes();
    pe.program.program_pe = value(place.pe);
    pe.program.program_pes = l.pes();
    request.pes.push_back(std::move(pe));
    ++index;
  }
  for (const Tensor& t : tensors) {
    t.handle()->wait_writers();
    request.keep_alive.push_back(t.handle());
  }
  Launch launch = launch_each(std::move(request));
  for (const Tensor& t : tensors) t.handle()->add_pending(launch);
  return launch;
}

Launch Context::launch_on(const std::string& kernel, const std::vector<PeLocation>& pes,
                          const std::vector<uint64_t>& args) {
  LaunchRequest request;
  request.kernel = kernel;
  for (const PeLocation& pe : pes) {
    PeLaunch p;
    p.pe = pe;
    p.args = args;
    p.program.program_pe = static_cast<uint32_t>(request.pes.size());
    p.program.program_pes = static_cast<uint32_t>(pes.size());
    request.pes.push_back(std::move(p));
  }
  return launch_each(std::move(request));
}

Launch Context::launch_each(LaunchRequest request) {
  Launch launch = m_device.launch(std::move(request));
  note_launch(launch);
  return launch;
}

void Context::note_launch(const Launch& launch) {
  m_launches.erase(std::remove_if(m_launches.begin(), m_launches.end(),
                                  [](const auto& l) { return l.second->completed() && !l.second->failed(); }),
                   m_launches.end());
  m_launches.emplace_back(current_process(), launch);
}

void Context::synchronize() {
  m_device.check_thread("synchronize");
  const sc_core::sc_process_handle self = current_process();
  const bool everything = !distributed.is_bound(self);
  std::vector<Launch> mine;
  for (auto it = m_launches.begin(); it != m_launches.end();) {
    if (everything || it->first == self) {
      mine.push_back(it->second);
      it = m_launches.erase(it);
    } else {
      ++it;
    }
  }
  for (const Launch& l : mine) m_device.wait(l);
  if (everything) {
    distributed.drain();
  } else {
    distributed.drain(self);
  }
}

// --- threads

struct Context::Spawned {
  struct Rank {
    sc_core::sc_process_handle thread;
    bool ended = false;
  };
  Context& context;
  std::function<void(uint32_t)> fn;
  std::vector<Rank> ranks;
  uint32_t unfinished = 0;
  bool failed = false;
  RankFailure failure;
  sc_core::sc_event changed;

  explicit Spawned(Context& c, std::function<void(uint32_t)> f) : context(c), fn(std::move(f)) {}

  void body(uint32_t rank) {
    try {
      fn(rank);
    } catch (const sc_core::sc_unwind_exception&) {
      end(rank);  // killed: SystemC needs its exception back
      throw;
    } catch (...) {
      if (!failed) {
        failed = true;
        failure.rank = rank;
        failure.time = models::now_ps();
        failure.original = std::current_exception();
      }
    }
    end(rank);
  }

  void end(uint32_t rank) {
    ranks[rank].ended = true;
    --unfinished;
    changed.notify(sc_core::SC_ZERO_TIME);
  }

  /// Ends what still runs and takes the threads out of every registry.
  void clean_up() {
    for (Rank& r : ranks) {
      if (!r.ended && r.thread.valid() && !r.thread.terminated()) r.thread.kill();
    }
    for (Rank& r : ranks) {
      context.distributed.unbind_rank(r.thread);
      context.distributed.forget(r.thread);
      context.m_devices.erase(r.thread);
      context.m_device.supervise(r.thread, false);
    }
  }
};

void Context::spawn(const std::function<void(uint32_t)>& fn, uint32_t nprocs) {
  m_device.check_thread("spawn");
  if (nprocs == 0) throw std::invalid_argument("spawn: nprocs is 0, expected at least 1");
  if (!fn) throw std::invalid_argument("spawn: no function was given");

  Spawned spawned(*this, fn);
  spawned.ranks.resize(nprocs);
  spawned.unfinished = nprocs;
  struct CleanUp {  // also when the spawner itself is ended
    Spawned& spawned;
    bool done = false;
    void operator()() {
      if (!done) spawned.clean_up();
      done = true;
    }
    ~CleanUp() { (*this)(); }
  } clean_up{spawned};

  for (uint32_t r = 0; r < nprocs; ++r) {
    sc_core::sc_spawn_options options;
    options.set_stack_size(kRankStackBytes);
    const std::string name = sc_core::sc_gen_unique_name(fmt::format("rank{}", r).c_str());
    spawned.ranks[r].thread = sc_core::sc_spawn([&spawned, r] { spawned.body(r); }, name.c_str(), &options);
    distributed.bind_rank(spawned.ranks[r].thread, r);
    m_device.supervise(spawned.ranks[r].thread, true);
  }

  const sc_core::sc_time limit = models::to_sc_time(config().simulation.stall_limit);
  while (spawned.unfinished > 0 && !spawned.failed) {
    const uint32_t unfinished = spawned.unfinished;
    const uint64_t progress = m_device.progress();
    const sc_core::sc_time begin = sc_core::sc_time_stamp();
    sc_core::wait(limit, spawned.changed);
    // Two ranks may end in one delta cycle: the second notification finds everything counted already.
    if (sc_core::sc_time_stamp() - begin < limit) continue;
    if (spawned.failed || spawned.unfinished != unfinished || !m_device.stands_still(progress)) continue;
    std::vector<StallRow> rows;
    for (uint32_t r = 0; r < nprocs; ++r) {
      if (spawned.ranks[r].ended) continue;
      const std::string who = fmt::format("rank {}", r);
      if (const Device::Waiting* waiting = m_device.waiting(spawned.ranks[r].thread)) {
        for (StallRow& row : m_device.rows_of(*waiting, who)) rows.push_back(std::move(row));
      } else {
        rows.push_back({who, {}, {}, {}, {}, "something outside the runtime", {}});
      }
    }
    for (StallRow& row : distributed.helper_rows()) rows.push_back(std::move(row));
    const StallError error = m_device.stall_error(std::move(rows));
    clean_up();
    distributed.end_helpers();
    distributed.mark_failed("it stalled");
    throw error;
  }
  clean_up();
  if (spawned.failed) {
    distributed.end_helpers();
    distributed.mark_failed(fmt::format("rank {} threw", spawned.failure.rank));
    throw_rank_failure(spawned.failure);
  }

  // What nobody waited for.
  std::vector<Launch> launches;
  for (const auto& [thread, launch] : m_launches) {
    for (const auto& r : spawned.ranks) {
      if (r.thread == thread) launches.push_back(launch);
    }
  }
  for (const Launch& l : launches) m_device.wait(l);
  distributed.drain();
}

Driver::Driver(std::function<void()> fn, const char* name) : m_state(std::make_shared<State>()) {
  m_state->fn = std::move(fn);
  sc_core::sc_spawn(
      [state = m_state] {
        try {
          state->fn();
        } catch (const sc_core::sc_unwind_exception&) {
          throw;
        } catch (...) {
          state->error = std::current_exception();
        }
        state->done = true;
      },
      sc_core::sc_gen_unique_name(name));
}

void Driver::check() const {
  if (m_state->error) std::rethrow_exception(m_state->error);
  if (!m_state->done) {
    throw StallError(fmt::format("the simulation ended at {} ns before the driver did",
                                 static_cast<double>(models::now_ps()) / 1000.0));
  }
}

}  // namespace ahbm::runtime
