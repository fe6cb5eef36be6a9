// Aids for finding out what a program with distributed tensors communicates, and where its parts lie.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/dtensor/dtensor.h"

namespace ahbm::dtensor {

/// A collective that was issued, as the backend saw it.
struct CommEvent {
  std::string kind;   ///< all_gather, all_reduce, ...
  uint32_t rank = 0;  ///< who issued it
  /// Of the mesh that was at work, ascending; several: merged steps on a flattened group. Empty: nobody's operator.
  std::vector<uint32_t> mesh_dims;
  /// The modules whose forward issued it, outermost first: Transformer, Transformer.layers.0, Transformer.layers.0.mlp.
  std::vector<std::string> modules;
  RankList group;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::Float32;
  int64_t elements = 0;  ///< that the rank hands in, padding included
  std::shared_ptr<const runtime::distributed::CollectiveRecord> record;

  std::string notation() const;               ///< all_reduce@0:max, all_gather@0+1, all_reduce@-1 of nobody
  Ps start() const { return record->start; }  ///< 0 until it ran
  Ps end() const { return record->end; }
};

/// Counts the collectives on rank groups that the calling rank issues while it lives, in all and by modules of
/// runtime/nn. Nests: outer scopes count too.
/// Made by the driver it counts every rank's. Traffic inside a SIP does not count.
class CommDebugMode {
 public:
  explicit CommDebugMode(Context& context);
  ~CommDebugMode();
  CommDebugMode(const CommDebugMode&) = delete;
  CommDebugMode& operator=(const CommDebugMode&) = delete;

  using Counts = std::map<std::string, uint32_t>;  ///< by kind
  Counts counts() const;
  /// Of every module that communicated, by its path; those inside it count too.
  std::map<std::string, Counts> module_counts() const;
  uint32_t count(const std::string& kind) const;
  uint32_t total() const { return static_cast<uint32_t>(m_log.size()); }
  /// In the order of the calls.
  const std::vector<CommEvent>& log() const { return m_log; }
  std::vector<std::string> sequence() const;  ///< notations of the log
  std::vector<int64_t> elements() const;
  void reset() { m_log.clear(); }
  /// A table: kind, mesh dimension, group, elements, simulated time; then the counts of modules, if there were any.
  std::string text() const;

 private:
  Context& m_context;
  uint32_t m_listener = 0;
  std::vector<CommEvent> m_log;
};

/// Row and column ranges of a 1-d or 2-d tensor and the ranks that hold them, as a table.
/// \throws ShapeMismatch for another number of dimensions
std::string visualize_sharding(const DTensorSpec& spec);
inline std::string visualize_sharding(const DTensor& t) {
  return visualize_sharding(t.spec());
}

/// One line per step: placements before and after, what happens, and the shapes and elements of a rank.
/// \param has_group  groups over several mesh dimensions, on which steps are merged
std::string explain(const RedistributePlan& plan, uint32_t rank, const HasGroup& has_group = nullptr);

}  // namespace ahbm::dtensor
