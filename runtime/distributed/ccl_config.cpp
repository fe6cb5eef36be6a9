#include "runtime/distributed/ccl_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "models/core/config/yaml_reader.h"
#include "models/core/suggest.h"

namespace ahbm::runtime::distributed {

namespace {

/// What may stand in `defaults` and in an algorithm's entry alike.
struct Common {
  yaml::Item<uint64_t> world_size;
  yaml::Item<RankMode> rank;
  yaml::Item<bool> barrier_simulated;
  yaml::Item<bool> accumulate_fp32;

  void read(yaml::Section& s) {
    world_size = s.count("world_size", 1, UINT32_MAX);
    rank = s.choice<RankMode>("rank", {{"sip", RankMode::Sip}, {"pe", RankMode::Pe}});
    barrier_simulated = s.choice<bool>("barrier", {{"none", false}, {"simulated", true}});
    accumulate_fp32 = s.choice<bool>("accumulate", {{"native", false}, {"fp32", true}});
  }
  void merge_into(CclSettings& out) const {
    if (world_size) out.world_size = static_cast<uint32_t>(*world_size);
    if (rank) out.rank = *rank;
    if (barrier_simulated) out.barrier_simulated = *barrier_simulated;
    if (accumulate_fp32) out.accumulate_fp32 = *accumulate_fp32;
  }
};

CclSettings merge(yaml::Document doc, const std::string& algorithm) {
  CclSettings out;
  std::string chosen = algorithm;
  {
    yaml::Section root = doc.root();
    Common defaults;
    {
      yaml::Section section = root.section("defaults");
      const auto name = section.text("algorithm");
      defaults.read(section);
      if (chosen.empty() && name) chosen = *name;
      if (chosen.empty())
        doc.error(section.position(), "defaults.algorithm is missing: which entry of algorithms runs");
    }
    defaults.merge_into(out);

    yaml::Section algorithms = root.section("algorithms");
    const std::vector<std::string> names = algorithms.keys();
    bool found = false;
    for (const std::string& name : names) {
      yaml::Section entry = algorithms.section(name);
      const auto module = entry.text("module");
      Common own;
      own.read(entry);
      if (!module) {
        if (!entry.has("module")) {
          doc.error(entry.position(),
                    fmt::format("algorithms.{}.module is missing: the algorithm module's name", name));
        }
        continue;
      }
      out.modules.push_back(*module);
      if (name != chosen) continue;
      found = true;
      own.merge_into(out);
      out.module = *module;
    }
    const bool automatic = chosen == kAutomatic;
    if (!found && !automatic && !chosen.empty() && std::find(names.begin(), names.end(), chosen) == names.end()) {
      doc.error(algorithms.position(), fmt::format("algorithm '{}' has no entry under algorithms{}; there are: {}",
                                                   chosen, did_you_mean(chosen, names),
                                                   names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
  }
  doc.throw_if_errors();
  out.algorithm = chosen;
  return out;
}

}  // namespace

const char* to_string(RankMode mode) {
  return mode == RankMode::Sip ? "sip" : "pe";
}

CclSettings load_ccl_config(const std::string& file, const std::string& algorithm) {
  CclSettings out = merge(yaml::Document::from_file(file), algorithm);
  out.file = file;
  return out;
}

CclSettings parse_ccl_config(const std::string& text, const std::string& source_name, const std::string& algorithm) {
  CclSettings out = merge(yaml::Document::from_text(text, source_name), algorithm);
  out.file = source_name;
  return out;
}

World resolve_world(const CclSettings& settings, const SystemConfig& config) {
  World world;
  world.size = settings.world_size.value_or(config.sips);
  world.mode = settings.rank.value_or(world.size > config.sips ? RankMode::Pe : RankMode::Sip);
  if (world.size > config.total_pes()) {
    throw std::invalid_argument(fmt::format("{}: world_size {} is more than the machine's {} PEs", settings.file,
                                            world.size, config.total_pes()));
  }
  if (world.mode == RankMode::Sip && world.size > config.sips) {
    throw std::invalid_argument(fmt::format("{}: world_size {} with rank: sip, but the machine has {} SIPs",
                                            settings.file, world.size, config.sips));
  }
  return world;
}

TopologyFacts topology_facts(const SystemConfig& config) {
  TopologyFacts f;
  f.sips = config.sips;
  f.topology = config.topology;
  f.sip_w = config.sip_w;
  f.sip_h = config.sip_h;
  f.cube_w = config.cube_w;
  f.cube_h = config.cube_h;
  if (uint64_t{f.sip_w} * f.sip_h != f.sips) {
    throw std::invalid_argument(fmt::format("SIP topology {} of {} x {} does not have the machine's {} SIPs",
                                            ahbm::to_string(f.topology), f.sip_w, f.sip_h, f.sips));
  }
  return f;
}

}  // namespace ahbm::runtime::distributed
