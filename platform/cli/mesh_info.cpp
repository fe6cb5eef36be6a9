#include "platform/cli/mesh_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "models/core/config/units.h"
#include "models/core/topology.h"
#include "runtime/layout/topology_cost.h"

namespace ahbm::platform {

namespace {

constexpr uint64_t kExampleBytes = 1 << 20;
constexpr size_t kGroupsShown = 8;

/// Whether a group is a whole row or column of the SIP grid, or how far its members lie apart.
std::string place_of(const SystemConfig& c, const dtensor::RankList& group) {
  if (group.size() < 2) return "single ranks: nothing is ever sent";
  const uint32_t stride = group[1] - group[0];
  const auto same = [&](auto part) {
    return std::all_of(group.begin(), group.end(), [&](uint32_t r) { return part(r) == part(group[0]); });
  };
  const bool grid = c.sip_h > 1;
  if (grid && group.size() == c.sip_w && same([&](uint32_t r) { return r / c.sip_w; })) return "rows of the SIP grid";
  if (grid && group.size() == c.sip_h && same([&](uint32_t r) { return r % c.sip_w; }))
    return "columns of the SIP grid";
  if (!grid && group.size() == c.sips) return "all SIPs";
  return stride == 1 ? "neighbouring ranks" : fmt::format("ranks {} apart", stride);
}

std::string list_groups(const std::vector<dtensor::RankList>& groups) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(groups.size(), kGroupsShown); ++i) {
    texts.push_back(fmt::format("{}", fmt::join(groups[i], " ")));
  }
  if (groups.size() > kGroupsShown) texts.emplace_back("...");
  return fmt::format("{}", fmt::join(texts, " | "));
}

std::string describe_dim(const SystemConfig& c, const SipGraph& graph, const dtensor::MeshLayout& mesh, uint32_t dim) {
  const std::vector<dtensor::RankList>& groups = mesh.groups(dim);
  const uint32_t n = mesh.shape()[dim];
  std::string out = fmt::format("  dim {}: {} group{} of {}, {}\n    {}\n", dim, groups.size(),
                                groups.size() == 1 ? "" : "s", n, place_of(c, groups.front()), list_groups(groups));
  if (n < 2) return out;
  const dtensor::RingLoad load = dtensor::ring_load(graph, groups);
  // A ring sends (n - 1) / n of the data twice, a step at a time.
  const double seconds = 2.0 * (n - 1) / n * static_cast<double>(kExampleBytes) * load.busiest_link /
                         static_cast<double>(c.sip_link.bytes_per_second);
  const Ps time = static_cast<Ps>(seconds * 1e12) + 2 * (n - 1) * load.longest_step * c.sip_link.latency;
  out += fmt::format("    a ring's step crosses up to {} link{}; with all groups at work a link carries {} ring{}\n",
                     load.longest_step, load.longest_step == 1 ? "" : "s", load.busiest_link,
                     load.busiest_link == 1 ? "" : "s");
  out += fmt::format("    all_reduce of {} by one-way rings in every group at once: about {}\n",
                     units::format_bytes(kExampleBytes), units::format_time(time));
  return out;
}

}  // namespace

std::vector<uint32_t> parse_mesh_shape(const std::string& text) {
  std::vector<uint32_t> out;
  uint32_t number = 0;
  bool digits = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] >= '0' && text[i] <= '9' && number < 100000) {
      number = number * 10 + static_cast<uint32_t>(text[i] - '0');
      digits = true;
    } else if ((i == text.size() || text[i] == 'x') && digits && number > 0) {
      out.push_back(number);
      number = 0;
      digits = false;
    } else {
      throw std::invalid_argument(
          fmt::format("mesh '{}': expected sizes joined by x, each at least 1, as 4x4 or 2x2x2", text));
    }
  }
  return out;
}

std::string describe_mesh(const SystemConfig& c, const std::vector<uint32_t>& shape) {
  uint64_t ranks = 1;
  for (const uint32_t n : shape) {
    ranks *= n;
    if (ranks <= c.sips) continue;
    throw std::invalid_argument(fmt::format("mesh {} has more ranks than {} has SIPs ({}): a rank is a SIP",
                                            fmt::join(shape, "x"), c.name, c.sips));
  }
  const dtensor::MeshPtr mesh = dtensor::MeshLayout::create(shape);
  const SipGraph graph(c);
  std::string out =
      fmt::format("Mesh {} on {} of {} SIPs: ranks row-major, rank = SIP\n", fmt::join(shape, "x"), ranks, c.sips);
  for (uint32_t d = 0; d < mesh->ndim(); ++d) out += describe_dim(c, graph, *mesh, d);
  return out;
}

}  // namespace ahbm::platform
