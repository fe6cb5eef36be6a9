// `algorithm: auto`: the fastest algorithm by the closed forms, with the figures of the platform at hand.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ccl/algorithm.h"
#include "models/core/config/system_config.h"

namespace ahbm::ccl {

/// The figures that the closed forms take, of the group's links on this platform.
///  * latency: of the link (the slowest inside of the group), and of what a message passes in both SIPs: DMA set-up,
///    crossbars, the cube mesh, TCM, notification
///  * bandwidth: of the slowest link, less what headers of slots and packets take; at most what the credits of the
///  lanes'
///    queue pairs let through, n_slots messages per round trip
///  * node_bandwidth: of a lane's DMA channel or vector lanes, all lanes together
/// \param bytes S, as CostQuery counts it  \param ring shape of the connections between SIPs
CostQuery platform_figures(const SystemConfig& config, const Group& group, const CollectiveShape& shape, double bytes,
                           const RingShape& ring);
CostQuery platform_figures(const SystemConfig& config, const Group& group, const CollectiveShape& shape, double bytes);

/// The module's closed form with these figures, in seconds. Where links are absent, or the group is a part of a grid,
/// messages take longer ways and share links: the module's form asks for them. Of a form that does not, what absent
/// links change counts: how much fuller the fullest link is, and the longest detour in every pass.
double closed_form(const AlgorithmModule& module, const SystemConfig& config, const Group& group,
                   const CollectiveShape& shape, double bytes);

struct Candidate {
  const AlgorithmModule* module = nullptr;
  double seconds = 0;
  std::string refusal;  ///< why it cannot run; then `seconds` means nothing
};

struct Selection {
  const AlgorithmModule* module = nullptr;  ///< none fits: nullptr
  std::vector<std::string> no_room;         ///< names of those that only lacked room for their connections
  std::vector<Candidate> candidates;        ///< of the collective: those that fit, fastest first, then the others
  std::string text;                         ///< what was chosen and what the next best would take, or why nothing fits
};

/// Why there is no room for a module's connections at the moment, empty when there is. Asked of the fastest one first,
/// and of others only while the answer is no.
using RoomFor = std::function<std::string(const AlgorithmModule&)>;

/// What the closed forms have said lately, for who asks the same again and again: those of groups whose connections are
/// routed take up to milliseconds. For one registry, configuration and set of preferred modules.
class SelectionMemo {
 public:
  static constexpr size_t kCalls = 8;
  /// Candidates of this call, or null.
  const std::vector<Candidate>* find(Collective collective, const Group& group, const CollectiveShape& shape,
                                     double bytes, bool all) const;
  void keep(Collective collective, const Group& group, const CollectiveShape& shape, double bytes, bool all,
            std::vector<Candidate> candidates);

 private:
  struct Call {
    Collective collective;
    Group group;
    CollectiveShape shape;
    double bytes;
    bool all;  ///< modules beside the preferred ones
    std::vector<Candidate> candidates;
  };
  std::vector<Call> m_calls;
  size_t m_oldest = 0;
};

/// Of several equally fast ones the first by name.
/// \param bytes S, as CostQuery counts it  \param preferred modules to choose from, while one of them can run; empty:
/// all
Selection select_algorithm(const Registry& registry, Collective collective, const Group& group,
                           const CollectiveShape& shape, double bytes, const SystemConfig& config,
                           const std::set<const AlgorithmModule*>& preferred = {}, const RoomFor& no_room = {},
                           SelectionMemo* memo = nullptr);

/// Why a module cannot run this call, with the names of those that can; empty when it can.
std::string refusal_of(const Registry& registry, const AlgorithmModule& module, const Group& group,
                       const CollectiveShape& shape, const SystemConfig& config);

}  // namespace ahbm::ccl
