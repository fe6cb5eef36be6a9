#include "platform/cli/run_document.h"

#include <charconv>

#include "models/core/config/load_config.h"
#include "models/core/config/yaml_reader.h"
#include "models/core/stall.h"

namespace ahbm::platform {

namespace {

nlohmann::ordered_json to_json(const yaml::Node& node) {
  using Kind = yaml::Node::Kind;
  nlohmann::ordered_json out;
  switch (node.kind) {
    case Kind::Map:
      out = nlohmann::ordered_json::object();
      for (const auto& e : node.entries) out[e.key] = to_json(e.value);
      return out;
    case Kind::Sequence:
      out = nlohmann::ordered_json::array();
      for (const auto& item : node.items) out.push_back(to_json(item));
      return out;
    case Kind::Null:
      return nullptr;
    default:
      break;
  }
  if (!node.quoted && (node.scalar == "true" || node.scalar == "false")) return node.scalar == "true";
  uint64_t number = 0;
  const char* end = node.scalar.data() + node.scalar.size();
  const auto [ptr, ec] = std::from_chars(node.scalar.data(), end, number);
  if (!node.quoted && ec == std::errc() && ptr == end) return number;
  return node.scalar;
}

}  // namespace

nlohmann::ordered_json run_document(const std::string& command, const SystemConfig& config,
                                    const std::vector<std::string>& notes) {
  nlohmann::ordered_json out;
  out["command"] = command;
  out["version"] = AHBM_VERSION;
  out["config"] = to_json(yaml::Document::from_text(to_yaml(config), "effective").root_node());
  out["notes"] = notes;
  out["results"] = nlohmann::ordered_json::array();
  return out;
}

void add_failure(nlohmann::ordered_json& document, const std::exception* failure) {
  if (failure == nullptr) return;
  document["error"] = failure->what();
  const auto* stall = dynamic_cast<const StallError*>(failure);
  if (stall == nullptr) return;
  document["stall"] = nlohmann::ordered_json::array();
  for (const StallRow& r : stall->rows()) {
    document["stall"].push_back({{"who", r.who},
                                 {"operation", r.operation},
                                 {"pe", r.pe},
                                 {"queue", r.queue},
                                 {"direction", r.direction},
                                 {"credits", r.credits ? nlohmann::ordered_json(*r.credits) : nullptr},
                                 {"waits_for", r.waits_for}});
  }
}

}  // namespace ahbm::platform
