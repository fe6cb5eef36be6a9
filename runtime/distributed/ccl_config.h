// ccl.yaml: which algorithm runs and how. `algorithms.<name>` overrides `defaults` key by key.
//
//   defaults:                      algorithms:
//     algorithm: ring | auto         ring:
//     world_size: 4                    module: ring
//     rank: sip | pe                   world_size: 2
//     barrier: none | simulated
//     accumulate: native | fp32
//
// `module` is the name of a registered module or, with a slash in it, a shared object: its path, relative to this file.
// Of an object with several modules an entry means the one of the entry's own name.
//
// All keys but `module` may stand in both; all but `algorithm` and `module` may be absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/core/config/system_config.h"

namespace ahbm::runtime::distributed {

/// How ranks count.
enum class RankMode : uint8_t {
  Sip,  ///< rank = SIP
  Pe,   ///< rank = flat PE index, SIP-major, then cube, then PE
};
const char* to_string(RankMode mode);  ///< sip, pe

/// `algorithm: auto`: every call takes the fastest algorithm by the closed forms. It needs no entry under `algorithms`;
/// `module` is then empty.
constexpr const char* kAutomatic = "auto";

/// The merged settings of one algorithm.
struct CclSettings {
  std::string algorithm;
  std::string module;
  std::optional<uint32_t> world_size;
  std::optional<RankMode> rank;
  bool barrier_simulated = false;
  bool accumulate_fp32 = false;
  std::string file;
  /// The modules of every entry of the file, in its order: a layout that `module` does not do is given to the first of
  /// them that does.
  std::vector<std::string> modules;
};

/// \param algorithm  overrides `defaults.algorithm` unless empty
/// \throws ConfigError for a missing file, unknown keys, wrong values or an algorithm that has no entry
CclSettings load_ccl_config(const std::string& file, const std::string& algorithm = {});
CclSettings parse_ccl_config(const std::string& text, const std::string& source_name,
                             const std::string& algorithm = {});

/// World size by the order algorithm > defaults > topology, and how its ranks count.
/// \throws std::invalid_argument for more ranks than PEs, or than SIPs with `rank: sip`
struct World {
  uint32_t size = 1;
  RankMode mode = RankMode::Sip;
};
World resolve_world(const CclSettings& settings, const SystemConfig& config);

/// What a collective needs to know of the machine's shape.
struct TopologyFacts {
  uint32_t sips = 1;
  SipTopology topology = SipTopology::Ring1d;
  uint32_t sip_w = 1, sip_h = 1;
  uint32_t cube_w = 1, cube_h = 1;
};
/// \throws std::invalid_argument when w * h is not the number of SIPs
TopologyFacts topology_facts(const SystemConfig& config);

}  // namespace ahbm::runtime::distributed
