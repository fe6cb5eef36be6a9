#include "runtime/dtensor/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/context.h"

namespace ahbm::dtensor {

using runtime::distributed::ProcessGroup;

struct Session::Meeting {
  std::vector<std::string> texts;
  std::vector<bool> arrived;
  uint32_t missing = 0;
  sc_core::sc_event changed;
};

void Session::renew() {
  const uint64_t generation = m_context.distributed.generation();
  if (generation == m_generation) return;
  m_generation = generation;
  m_groups.clear();
  m_flattened.clear();
  m_places.clear();
}

void Session::mark_known(std::vector<bool>& known_by) const {
  auto& distributed = m_context.distributed;
  known_by.resize(distributed.get_world_size());
  if (is_rank()) {
    known_by.at(distributed.get_rank()) = true;
  } else {
    known_by.assign(known_by.size(), true);  // the driver speaks for all
  }
}

bool Session::knows(const std::vector<bool>& known_by) const {
  if (is_rank()) return known_by.at(rank());
  return std::find(known_by.begin(), known_by.end(), false) == known_by.end();
}

ProcessGroup Session::group(RankList ranks) {
  const uint32_t world = m_context.distributed.get_world_size();
  renew();
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() == world) return {};
  const auto found = m_groups.find(ranks);
  if (found != m_groups.end() && knows(found->second.known_by)) return found->second.group;
  Group& entry = m_groups[ranks];
  entry.group = m_context.distributed.new_group(ranks);
  mark_known(entry.known_by);
  return entry.group;
}

ProcessGroup Session::flattened_group(const RankList& ranks) {
  const ProcessGroup made = group(ranks);
  mark_known(m_flattened[ranks]);
  return made;
}

bool Session::is_flattened(const MeshLayout& mesh, const std::vector<uint32_t>& dims) {
  const std::vector<RankList> groups = mesh.groups(dims);
  return std::all_of(groups.begin(), groups.end(), [this](const RankList& ranks) {
    const auto found = m_flattened.find(ranks);
    return found != m_flattened.end() && knows(found->second);
  });
}

std::vector<MergedStep> Session::steps_of(const RedistributePlan& plan) {
  renew();
  if (m_flattened.empty()) return merge_steps(plan, nullptr);
  return merge_steps(plan, [&](const std::vector<uint32_t>& dims) { return is_flattened(*plan.mesh, dims); });
}

bool Session::is_rank() const {
  return m_context.distributed.is_bound(runtime::current_process());
}

uint32_t Session::rank() const {
  return m_context.distributed.get_rank();
}

std::vector<std::string> Session::exchange(const MeshLayout& mesh, const std::string& mine, const char* operation) {
  const std::optional<uint32_t> position = mesh.index_of(m_context.distributed.get_rank());
  if (!position || mesh.size() == 1) return {mine};
  renew();
  Place& place = m_places[mesh.ranks()];
  place.next.resize(mesh.size());
  const uint32_t number = place.next[*position]++;
  std::shared_ptr<Meeting>& open = place.open[number];
  if (open == nullptr) {
    open = std::make_shared<Meeting>();
    open->texts.resize(mesh.size());
    open->arrived.resize(mesh.size());
    open->missing = mesh.size();
  }
  const std::shared_ptr<Meeting> meeting = open;
  meeting->texts[*position] = mine;
  meeting->arrived[*position] = true;
  if (--meeting->missing == 0) {
    place.open.erase(number);
    meeting->changed.notify(sc_core::SC_ZERO_TIME);
  } else {
    const auto waits_for = [meeting, ranks = mesh.ranks()] {
      std::vector<uint32_t> absent;
      for (size_t i = 0; i < ranks.size(); ++i) {
        if (!meeting->arrived[i]) absent.push_back(ranks[i]);
      }
      return fmt::format("rank{} {}", absent.size() > 1 ? "s" : "", fmt::join(absent, ", "));
    };
    m_context.device().await(meeting->changed, [&] { return meeting->missing == 0; }, {operation, waits_for, nullptr});
  }
  return meeting->texts;
}

Session::Scopes& Session::scopes() {
  return m_scopes[runtime::current_process()];
}

void Session::tidy() {
  const auto it = m_scopes.find(runtime::current_process());
  if (it == m_scopes.end()) return;
  const Scopes& s = it->second;
  if (s.implicit_replication == 0 && s.explicit_redistribution == 0 && s.at_work.empty() && s.modules.empty())
    m_scopes.erase(it);
}

InModule::InModule(Session& session, const std::string& name)
    : m_session(session),
      m_operation(session,
                  Path{session.scopes().modules.empty() ? name : session.scopes().modules.back() + '.' + name}) {
  auto& modules = session.scopes().modules;
  modules.push_back(modules.empty() ? name : modules.back() + '.' + name);
}

InModule::~InModule() {
  m_session.scopes().modules.pop_back();
  m_session.tidy();
}

}  // namespace ahbm::dtensor
