// Kinds that no machine is needed for.
#include "runtime/layout/redistribute_plan.h"
#include "tests/conformance/case.h"

namespace ahbm::conformance {

using namespace dtensor;

namespace {

const std::vector<std::string>& common_and(std::vector<std::string>& fields) {
  for (const char* name : {"id", "kind", "source", "profile", "note", "expect"}) fields.emplace_back(name);
  return fields;
}

void check_chunk(const YAML::Node& c, Verdict& verdict) {
  const auto size = number_of<uint64_t>(required(c, "size"));
  const auto n = number_of<uint64_t>(required(c, "chunks"));
  constexpr uint64_t kMaxChunks = 1 << 16;
  if (n == 0 || n > kMaxChunks) throw CaseError("chunks: expected 1 to " + std::to_string(kMaxChunks));
  YAML::Node sizes(YAML::NodeType::Sequence), pads(YAML::NodeType::Sequence), offsets(YAML::NodeType::Sequence);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t count = owned_count(Shard{0}, size, n, i);
    sizes.push_back(count);
    pads.push_back(owned_count(Shard{0}, size, n, 0) - count);
    offsets.push_back(owned_ranges(Shard{0}, size, n, i).front().begin);
  }
  const YAML::Node expect = c["expect"];
  check_fields(expect, "expect", {"sizes", "pads", "offsets", "error"});
  if (expect.size() == 0) throw CaseError("expect says nothing");
  if (expect["sizes"]) verdict.compare("sizes", one_line(expect["sizes"]), one_line(sizes));
  if (expect["pads"]) verdict.compare("pads", one_line(expect["pads"]), one_line(pads));
  if (expect["offsets"]) verdict.compare("offsets", one_line(expect["offsets"]), one_line(offsets));
}

void check_plan(const YAML::Node& c, Verdict& verdict) {
  check_fields(c["expect"], "expect", {"steps", "error"});
  const Placements from = placements_of(required(c, "from"));
  const Placements to = placements_of(required(c, "to"));
  // Steps do not depend on sizes, only on how many dimensions there are.
  int ndim = 1;
  constexpr int kMaxDims = 64;
  for (const Placements* list : {&from, &to}) {
    for (const Placement& p : *list) {
      if (shard_dim(p) >= kMaxDims)
        throw CaseError("a tensor of more than " + std::to_string(kMaxDims) + " dimensions");
      ndim = std::max(ndim, shard_dim(p) + 1);
    }
  }
  const DTensorSpec source(layout_of(mesh_of(required(c, "mesh"))), from, Dims(static_cast<size_t>(ndim), 16),
                           DType::Float32);
  std::vector<std::string> steps;
  for (const PlanStep& s : plan_redistribute(source, to).steps) steps.push_back(to_string(s));
  verdict.compare("steps", list_text(required(c["expect"], "steps").as<std::vector<std::string>>()), list_text(steps));
}

}  // namespace

bool run_metadata_case(const YAML::Node& c, Verdict& verdict) {
  const auto kind = required(c, "kind").as<std::string>();
  std::vector<std::string> fields;
  if (kind == "chunk") {
    check_fields(c, "the case", common_and(fields = {"size", "chunks"}));
    required(c, "expect");
    check_chunk(c, verdict);
  } else if (kind == "shape_offset") {
    check_fields(c, "the case", common_and(fields = {"mesh", "shape", "placements"}));
    check_fields(required(c, "expect"), "expect", {"locals", "error"});
    const DTensorSpec spec(layout_of(mesh_of(required(c, "mesh"))), placements_of(required(c, "placements")),
                           dims_of(required(c, "shape")), DType::Float32);
    check_locals(required(c["expect"], "locals"), spec, verdict);
  } else if (kind == "global_info") {
    check_fields(c, "the case", common_and(fields = {"mesh", "local_shape", "local_stride", "placements"}));
    check_fields(required(c, "expect"), "expect", {"shape", "stride", "error"});
    const GlobalInfo info =
        global_info(*layout_of(mesh_of(required(c, "mesh"))), placements_of(required(c, "placements")),
                    dims_of(required(c, "local_shape")), dims_of(required(c, "local_stride")));
    verdict.compare("shape", to_string(dims_of(required(c["expect"], "shape"))), to_string(info.shape));
    verdict.compare("stride", to_string(dims_of(required(c["expect"], "stride"))), to_string(info.stride));
  } else if (kind == "plan") {
    check_fields(c, "the case", common_and(fields = {"mesh", "from", "to"}));
    required(c, "expect");
    check_plan(c, verdict);
  } else {
    return false;
  }
  if (c["expect"]["error"]) verdict.differ("error", c["expect"]["error"].Scalar(), "none");
  return true;
}

}  // namespace ahbm::conformance
