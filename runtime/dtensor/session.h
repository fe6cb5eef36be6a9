// What distributed tensors of one Context share: the strategy engine with its caches, the process groups of meshes, the
// scopes of every thread, and a meeting point for metadata.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/distributed/distributed.h"
#include "runtime/layout/strategy.h"

namespace ahbm::dtensor {

/// A call of a rank's program on distributed tensors, from its begin to its return.
struct OperationRecord {
  uint32_t rank = 0;
  std::string name;  ///< mm, redistribute S0R→RR, ...
  Ps begin = 0;
  Ps end = 0;
};

class Session {
 public:
  explicit Session(runtime::Context& context) : m_context(context) {}

  runtime::Context& context() const { return m_context; }
  StrategyEngine& engine() { return m_engine; }
  uint32_t rank() const;  ///< of the calling thread
  bool is_rank() const;   ///< whether the calling thread is one

  /// The process group of these ranks, in any order. Made on the caller's first request by new_group, so every rank of
  /// the world asks for the same groups in the same order. The whole world is the default group.
  runtime::distributed::ProcessGroup group(RankList ranks);
  size_t groups() const { return m_groups.size(); }
  /// Makes the group of these ranks as one over several mesh dimensions: plans may merge steps on it from then on.
  runtime::distributed::ProcessGroup flattened_group(const RankList& ranks);
  /// The steps of a plan as the calling rank carries them out: merged where its mesh has flattened groups for them.
  std::vector<MergedStep> steps_of(const RedistributePlan& plan);

  /// Every rank of the mesh brings a text and gets all of them, in mesh order. Metadata only: takes no simulated time.
  std::vector<std::string> exchange(const MeshLayout& mesh, const std::string& mine, const char* operation);

  /// Called when an operation begins, and when it has returned. Those of one rank nest.
  std::function<void(uint32_t rank, Ps begin)> on_operation_start;
  std::function<void(const OperationRecord&)> on_operation;

  struct Scopes {
    uint32_t implicit_replication = 0;
    uint32_t explicit_redistribution = 0;
    std::vector<const MeshLayout*> at_work;  ///< meshes whose operators the thread is in
    std::vector<std::string> modules;        ///< paths of the modules whose forward the thread is in, outermost first
  };
  /// Of the calling thread.
  Scopes& scopes();
  /// Forgets the calling thread when nothing of it is in force.
  void tidy();

 private:
  struct Group {
    runtime::distributed::ProcessGroup group;
    std::vector<bool> known_by;  ///< ranks that took part in making it
  };
  /// Whether the calling rank has made all groups over these dimensions by flattened_group.
  bool is_flattened(const MeshLayout& mesh, const std::vector<uint32_t>& dims);
  void mark_known(std::vector<bool>& known_by) const;
  bool knows(const std::vector<bool>& known_by) const;
  struct Meeting;
  struct Place {
    std::vector<uint32_t> next;  ///< by mesh position
    std::map<uint32_t, std::shared_ptr<Meeting>> open;
  };
  /// Groups and meetings end with the process group they were made under.
  void renew();

  runtime::Context& m_context;
  StrategyEngine m_engine;
  uint64_t m_generation = 0;
  std::map<RankList, Group> m_groups;
  std::map<RankList, std::vector<bool>> m_flattened;  ///< ranks that know of it, as in Group
  std::map<RankList, Place> m_places;
  std::map<sc_core::sc_process_handle, Scopes> m_scopes;
};

/// Tells of an operation when it dies, if somebody listens. `name()` makes the name then.
template <typename Name>
class NamedOperation {
 public:
  NamedOperation(Session& session, Name name) : m_session(session), m_name(std::move(name)), m_begin(now()) {
    if (m_session.on_operation_start && m_session.is_rank()) m_session.on_operation_start(m_session.rank(), m_begin);
  }
  ~NamedOperation() {
    if (m_session.on_operation && m_session.is_rank() && !sc_core::sc_is_unwinding())
      m_session.on_operation({m_session.rank(), m_name(), m_begin, now()});
  }
  NamedOperation(const NamedOperation&) = delete;
  NamedOperation& operator=(const NamedOperation&) = delete;

 private:
  static Ps now() { return sc_core::sc_time_stamp().value(); }
  Session& m_session;
  Name m_name;
  Ps m_begin;
};

/// The mesh that the calling thread's operators work on, while it lives: collectives are told apart by it.
class AtWork {
 public:
  AtWork(Session& session, const MeshLayout& mesh) : m_session(session) { session.scopes().at_work.push_back(&mesh); }
  ~AtWork() {
    m_session.scopes().at_work.pop_back();
    m_session.tidy();
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  Session& m_session;
};

/// The calling thread is in the forward of a module of that name, while it lives: collectives are counted by modules,
/// and a trace shows the module as an operation.
class InModule {
 public:
  InModule(Session& session, const std::string& name);
  ~InModule();
  InModule(const InModule&) = delete;
  InModule& operator=(const InModule&) = delete;

 private:
  struct Path {
    std::string text;
    const std::string& operator()() const { return text; }
  };
  Session& m_session;
  NamedOperation<Path> m_operation;
};

}  // namespace ahbm::dtensor
