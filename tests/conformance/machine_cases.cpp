#include "tests/conformance/machine_cases.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/dtensor/debug.h"
#include "runtime/dtensor/functions.h"
#include "runtime/nn/parallel.h"
#include "tests/conformance/op_table.h"

namespace ahbm::conformance {

using namespace dtensor;

namespace {

using Fields = std::vector<std::string>;

struct Output {
  DTensorSpec spec;
  Dims local_shape;
  std::vector<double> values;
};

/// What one rank saw.
struct Seen {
  std::string error = "none";  ///< kind
  std::string message;
  bool unexpected = false;  ///< an exception that is no kind of the format
  std::vector<Output> outputs;
  std::optional<bool> result;
  std::vector<std::string> sequence;
  std::vector<int64_t> elements;
  std::map<std::string, uint32_t> counts;
  YAML::Node answer;  ///< of a mesh query
};

std::vector<double> values_of(const Tensor& t) {
  const std::vector<uint8_t> bytes = t.to_host_bytes();
  std::vector<double> out(t.elements());
  for (size_t i = 0; i < out.size(); ++i) out[i] = load_element(t.dtype(), bytes.data(), i);
  return out;
}

Tensor tensor_of(Context& context, const Dims& shape, DType dtype, const std::function<double(uint64_t)>& rule) {
  const auto n = static_cast<uint64_t>(numel(shape));
  std::vector<uint8_t> data(n * item_bytes(dtype));
  for (uint64_t i = 0; i < n; ++i) store_element(dtype, data.data(), i, rule(i));
  return context.from_host(to_shape(shape), dtype, data.data(), data.size());
}

DeviceMesh device_mesh(Context& context, const MeshCase& mesh) {
  return DeviceMesh(context, "sip", mesh.shape, mesh.ranks, mesh.names);
}

/// An input of a case on one rank.
class Input {
 public:
  Input(Context& context, const YAML::Node& node, const DeviceMesh& case_mesh, DType dtype)
      : m_context(context),
        m_node(node),
        m_mesh(node["mesh"] ? device_mesh(context, mesh_of(node["mesh"])) : case_mesh),
        m_placements(placements_of(required(node, "placements"))),
        m_how(node["how"] ? node["how"].as<std::string>() : "distribute"),
        m_dtype(dtype),
        m_rule(parse_data(required(node, "data").as<std::string>(), m_local_rule)) {}

  DTensor build() const {
    if (m_how == "from_local") return local();
    if (m_how == "reinterpret") return reinterpreted();
    if (m_how != "distribute" && m_how != "distribute_varying") throw CaseError("unknown how '" + m_how + "'");
    DistributeOptions options;
    options.allow_partial = flag(m_node, "allow_partial");
    if (m_node["src"]) {
      options.src_data_rank = m_node["src"].IsNull() ? std::nullopt : std::optional(number_of<uint32_t>(m_node["src"]));
    }
    return distribute_tensor(global(m_how == "distribute_varying" ? 100.0 * m_mesh.get_rank() : 0), m_mesh,
                             m_placements, options);
  }
  /// Whether what building it communicates is part of what is counted.
  bool counts() const { return flag(m_node, "count_comm") || flag(m_node, "run_check"); }

 private:
  Tensor global(double offset) const {
    if (m_local_rule) throw CaseError("data rule local(...) takes how: from_local");
    return tensor_of(m_context, dims_of(required(m_node, "shape")), m_dtype,
                     [&](uint64_t k) { return m_rule(k, 0) + offset; });
  }

  DTensor local() const {
    const YAML::Node shapes = required(m_node, "local_shape");
    const bool each = shapes.size() > 0 && shapes[0].IsSequence();
    const size_t position = m_mesh.layout().index_of(m_mesh.get_rank()).value_or(0);
    const Dims shape = dims_of(each ? shapes[position] : shapes);
    FromLocalOptions options;
    options.run_check = flag(m_node, "run_check");
    if (m_node["shape"]) options.shape = dims_of(m_node["shape"]);
    if (m_node["stride"]) options.stride = dims_of(m_node["stride"]);
    const uint32_t rank = m_mesh.get_rank();
    const Tensor t = tensor_of(m_context, shape, m_dtype, [&](uint64_t k) { return m_rule(k, rank); });
    return from_local(t, m_mesh, m_placements, options);
  }

  DTensor reinterpreted() const {
    Placements plain = m_placements;
    for (Placement& p : plain) {
      if (is_partial(p)) p = Replicate{};
    }
    const DTensor t = distribute_tensor(global(0), m_mesh, plain);
    FromLocalOptions options;
    options.shape = t.shape();
    options.stride = t.spec().stride();
    return from_local(t.to_local(), m_mesh, m_placements, options);
  }

  Context& m_context;
  YAML::Node m_node;
  DeviceMesh m_mesh;
  Placements m_placements;
  std::string m_how;
  DType m_dtype;
  bool m_local_rule = false;
  DataRule m_rule;
};

void see_outputs(const std::vector<DTensor>& outputs, Seen& seen) {
  for (const DTensor& t : outputs) {
    const Tensor& local = t.to_local();
    seen.outputs.push_back({t.spec(), to_dims(local.shape()), values_of(local)});
  }
}

/// Makes groups over any two and more dimensions of a mesh, so that steps on them are merged.
void flatten_all(Context& context, MeshCase mesh) {
  mesh.names.clear();
  for (size_t d = 0; d < mesh.shape.size(); ++d) mesh.names.push_back("dim" + std::to_string(d));
  const DeviceMesh named = device_mesh(context, mesh);
  for (uint32_t mask = 1; mask < 1u << mesh.shape.size(); ++mask) {
    std::vector<std::string> names;
    for (size_t d = 0; d < mesh.shape.size(); ++d) {
      if ((mask >> d & 1) != 0) names.push_back(mesh.names[d]);
    }
    if (names.size() > 1) named.slice(names).flatten();
  }
}

void run_op_on_rank(Context& context, const YAML::Node& node, bool flattened, Seen& seen) {
  const DeviceMesh mesh = device_mesh(context, mesh_of(node["mesh"]));
  if (flattened) flatten_all(context, mesh_of(node["mesh"]));
  const OpCase op = parse_op_case(node["op"]);
  CommDebugMode comm(context);
  std::vector<DTensor> inputs;
  std::vector<DTensor> counted;
  for (const auto& n : node["inputs"]) {
    const Input input(context, n, mesh, op.input_dtype(inputs.size()));
    CommDebugMode building(context);
    inputs.push_back(input.build());
    if (input.counts()) {
      const auto sequence = building.sequence();
      const auto elements = building.elements();
      seen.sequence.insert(seen.sequence.end(), sequence.begin(), sequence.end());
      seen.elements.insert(seen.elements.end(), elements.begin(), elements.end());
      for (const auto& [kind, n_calls] : building.counts()) seen.counts[kind] += n_calls;
    }
  }
  comm.reset();
  OpResult result = op.run(context, mesh, inputs);
  context.synchronize();
  const auto sequence = comm.sequence();
  const auto elements = comm.elements();
  seen.sequence.insert(seen.sequence.end(), sequence.begin(), sequence.end());
  seen.elements.insert(seen.elements.end(), elements.begin(), elements.end());
  for (const auto& [kind, n_calls] : comm.counts()) seen.counts[kind] += n_calls;
  seen.result = result.truth;
  see_outputs(result.outputs, seen);
}

void run_mesh_on_rank(Context& context, const YAML::Node& node, Seen& seen) {
  const DeviceMesh mesh = device_mesh(context, mesh_of(node["mesh"]));
  const auto query = required(node, "query").as<std::string>();
  if (query == "slice") {
    seen.answer = YAML::Node(mesh.slice(required(node, "names").as<std::vector<std::string>>()).ranks());
  } else if (query == "local_rank") {
    if (!mesh.get_coordinate()) return;  // not asked there
    const YAML::Node dim = node["dim"];
    std::optional<MeshDim> which;
    if (dim && !dim.IsNull()) {
      int index = 0;
      if (!is_text(dim) && YAML::convert<int>::decode(dim, index)) {
        which.emplace(index);
      } else {
        which.emplace(dim.as<std::string>());
      }
    }
    seen.answer = YAML::Node(mesh.get_local_rank(which));
  } else if (query == "coords") {
    const auto c = mesh.get_coordinate();
    if (c) seen.answer = YAML::Node(std::vector<uint32_t>(c->begin(), c->end()));
  } else if (query == "groups") {
    // What the mesh says, checked against the members of the process groups.
    for (uint32_t d = 0; d < mesh.ndim(); ++d) {
      if (!mesh.get_coordinate()) continue;
      RankList ranks = mesh.layout().group(mesh.get_rank(), d);
      seen.answer.push_back(YAML::Node(ranks));
      std::sort(ranks.begin(), ranks.end());
      if (ranks != context.distributed.get_process_group_ranks(mesh.get_group(d))) {
        throw CaseError("the process group of mesh dimension " + std::to_string(d) + " has other ranks than the mesh");
      }
    }
  } else {
    throw CaseError("unknown query '" + query + "'");
  }
}

/// The test model of the layers, in the declared style.
void run_model_on_rank(Context& context, const YAML::Node& node, Seen& seen) {
  const DeviceMesh mesh = init_device_mesh(context, "sip", {4});
  nn::TransformerConfig config;
  config.layers = number_of<uint32_t>(required(node, "layers"));
  config.attention.hidden = 8;
  config.attention.heads = 4;
  config.vocabulary = 16;
  config.length = 8;
  nn::PlanOptions options;
  options.sequence_parallel = flag(node, "seq_parallel");
  nn::Transformer model(nn::Builder(context), nn::LayerFactory(), config);
  nn::parallelize_module(model, mesh, nn::transformer_plan(config, mesh.size(), options));
  const Tensor tokens =
      tensor_of(context, {1, 8}, DType::Int64, [](uint64_t k) { return static_cast<double>(k * 3 % 16); });
  CommDebugMode comm(context);
  model(tokens);
  seen.sequence = comm.sequence();
  seen.elements = comm.elements();
  seen.counts = comm.counts();
}

// --- comparing

void compare_counts(const char* what, const YAML::Node& expected, const std::map<std::string, uint32_t>& got,
                    Verdict& verdict) {
  std::map<std::string, uint32_t> wanted;
  if (!expected.IsMap()) throw CaseError(std::string(what) + " is no mapping of collectives to counts");
  for (const auto& entry : expected) {
    check_fields(expected, what, {"all_gather", "all_reduce", "reduce_scatter", "all_to_all", "broadcast", "scatter"});
    const auto n = number_of<uint32_t>(entry.second);
    if (n > 0) wanted[entry.first.as<std::string>()] = n;
  }
  if (wanted == got) return;
  YAML::Node node(YAML::NodeType::Map);
  for (const auto& [kind, n] : got) node[kind] = n;
  verdict.differ(what, one_line(expected), one_line(node));
}

/// Collectives: the same on every rank of the mesh, none on the others.
/// \param flattened  of a run with groups over several mesh dimensions, of which only counts are expected
void check_comm(const YAML::Node& expect, const std::vector<Seen>& seen, const RankList& members, bool flattened,
                Verdict& verdict) {
  const char* comm = flattened ? "comm_if_flattened_groups" : "comm";
  std::vector<int64_t> most;
  for (uint32_t rank = 0; rank < seen.size(); ++rank) {
    const Seen& s = seen[rank];
    const std::string of_rank = " of rank " + std::to_string(rank);
    if (std::find(members.begin(), members.end(), rank) == members.end()) {
      if (!s.sequence.empty()) verdict.differ("collectives" + of_rank + ", outside", "none", list_text(s.sequence));
      continue;
    }
    if (expect[comm]) compare_counts((comm + of_rank).c_str(), expect[comm], s.counts, verdict);
    if (expect["comm_seq"] && !flattened) {
      verdict.compare("comm_seq" + of_rank, list_text(expect["comm_seq"].as<std::vector<std::string>>()),
                      list_text(s.sequence));
    }
    most.resize(std::max(most.size(), s.elements.size()));
    for (size_t i = 0; i < s.elements.size(); ++i) most[i] = std::max(most[i], s.elements[i]);
    if (!verdict.passed()) return;
  }
  if (expect["comm_elems"] && !flattened) {
    verdict.compare("comm_elems", one_line(expect["comm_elems"]), one_line(YAML::Node(most)));
  }
}

void check_output(const YAML::Node& expect, const std::vector<Seen>& seen, size_t index, Verdict& verdict) {
  for (uint32_t rank = 0; rank < seen.size(); ++rank) {
    if (seen[rank].outputs.size() > index && seen[rank].outputs[index].spec == seen[0].outputs.at(index).spec) continue;
    verdict.fail("rank " + std::to_string(rank) + " has another spec than rank 0");
    return;
  }
  const DTensorSpec& spec = seen.at(0).outputs.at(index).spec;
  if (expect["placements"]) {
    verdict.compare("placements",
                    to_string(normalize(placements_of(expect["placements"]), spec.mesh()->ndim(),
                                        std::max<size_t>(spec.ndim(), 1))),
                    to_string(spec.placements()));
  }
  if (expect["shape"]) verdict.compare("shape", to_string(dims_of(expect["shape"])), to_string(spec.shape()));
  for (uint32_t rank = 0; rank < seen.size(); ++rank) {
    const Dims& got = seen[rank].outputs[index].local_shape;
    const Dims rule = local_shape(spec, rank);
    if (got != rule) {
      verdict.differ("local tensor of rank " + std::to_string(rank), to_string(rule), to_string(got));
    }
    if (expect["values"])
      check_values(expect, seen[rank].outputs[index].values, "rank " + std::to_string(rank), verdict);
  }
  if (!expect["locals"]) return;
  check_locals(expect["locals"], spec, verdict, [&](uint32_t rank, const YAML::Node& entry) {
    if (rank >= seen.size()) throw CaseError("expect.locals names rank " + std::to_string(rank));
    check_values(entry, seen[rank].outputs[index].values, "rank " + std::to_string(rank), verdict);
  });
}

/// Whether all ranks raised the expected error, or none if none is expected.
bool check_errors(const YAML::Node& expect, const std::vector<Seen>& seen, Verdict& verdict) {
  const std::string expected = expect["error"] ? expect["error"].as<std::string>() : "none";
  for (const auto& entry : expect["error"] ? expect : YAML::Node(YAML::NodeType::Map)) {
    const auto name = entry.first.as<std::string>();
    if (name != "error" && name != "comm" && name != "comm_seq") throw CaseError("expect." + name + " beside an error");
  }
  if (expect["error"] && expected == "none") throw CaseError("expect.error: none");
  for (uint32_t rank = 0; rank < seen.size(); ++rank) {
    const Seen& s = seen[rank];
    if (s.error == expected && !s.unexpected) continue;
    verdict.differ("error on rank " + std::to_string(rank), expected,
                   s.message.empty() ? s.error : s.error + " (" + s.message + ")");
    return false;
  }
  if (expected == "none") return true;
  for (const Seen& s : seen) {
    if (!s.sequence.empty()) verdict.fail("collectives " + list_text(s.sequence) + " before the error");
  }
  return false;
}

void check_op(const YAML::Node& node, const std::vector<Seen>& seen, bool flattened, Verdict& verdict) {
  const YAML::Node expect = node["expect"];
  check_fields(expect, "expect",
               {"placements", "shape", "locals", "comm", "comm_seq", "comm_elems", "comm_if_flattened_groups", "error",
                "outputs", "values", "result"});
  if (expect.size() == 0) throw CaseError("expect says nothing");
  if (!check_errors(expect, seen, verdict)) return;
  const RankList members = mesh_of(node["mesh"]).ranks;
  check_comm(expect, seen, members, flattened, verdict);
  if (expect["result"]) {
    if (expect["placements"] || expect["shape"] || expect["locals"] || expect["outputs"] || expect["values"]) {
      throw CaseError("expect.result beside what only tensors have");
    }
    for (const uint32_t rank : members) {
      if (!seen[rank].result) throw CaseError("expect.result, but the operator's result is a tensor");
      verdict.compare("result on rank " + std::to_string(rank), expect["result"].as<bool>() ? "true" : "false",
                      *seen[rank].result ? "true" : "false");
    }
    return;
  }
  const YAML::Node outputs = expect["outputs"];
  const size_t n = outputs ? outputs.size() : 1;
  for (const Seen& s : seen) {
    if (s.outputs.size() == n) continue;
    verdict.differ("number of outputs", std::to_string(n), std::to_string(s.outputs.size()));
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    if (outputs) check_fields(outputs[i], "expect.outputs", {"placements", "shape", "locals"});
    check_output(outputs ? outputs[i] : expect, seen, i, verdict);
  }
}

void check_mesh(const YAML::Node& node, const std::vector<Seen>& seen, Verdict& verdict) {
  const YAML::Node expect = node["expect"];
  check_fields(expect, "expect", {"groups", "coords", "submesh", "local_rank", "error"});
  if (expect.size() == 0) throw CaseError("expect says nothing");
  for (const char* field : {"coords", "submesh"}) {
    if (expect[field] && !expect[field].IsMap()) throw CaseError(std::string("expect.") + field + " is no mapping");
  }
  if (!check_errors(expect, seen, verdict)) return;
  const MeshCase mesh = mesh_of(node["mesh"]);
  if (expect["groups"]) {
    // Each group as its members see it, in the order of the mesh.
    const MeshPtr layout = layout_of(mesh);
    YAML::Node groups(YAML::NodeType::Sequence);
    for (uint32_t d = 0; d < layout->ndim(); ++d) {
      YAML::Node dim(YAML::NodeType::Sequence);
      for (const RankList& ranks : layout->groups(d)) {
        for (const uint32_t r : ranks) {
          verdict.compare("group of rank " + std::to_string(r), one_line(YAML::Node(ranks)),
                          one_line(seen.at(r).answer[d]));
        }
        dim.push_back(seen.at(ranks.front()).answer[d]);
      }
      groups.push_back(dim);
    }
    verdict.compare("groups", one_line(expect["groups"]), one_line(groups));
  }
  for (const char* field : {"coords", "submesh"}) {
    for (const auto& entry : expect[field]) {
      verdict.compare(std::string(field) + " of rank " + entry.first.Scalar(), one_line(entry.second),
                      one_line(seen.at(entry.first.as<uint32_t>()).answer));
    }
  }
  if (expect["local_rank"]) {
    YAML::Node all(YAML::NodeType::Sequence);
    for (const uint32_t r : mesh.ranks) all.push_back(seen.at(r).answer);
    verdict.compare("local_rank", one_line(expect["local_rank"]), one_line(all));
  }
}

void check_model(const YAML::Node& node, const std::vector<Seen>& seen, Verdict& verdict) {
  const YAML::Node expect = node["expect"];
  check_fields(expect, "expect", {"comm", "comm_seq", "error"});
  if (expect.size() == 0) throw CaseError("expect says nothing");
  if (check_errors(expect, seen, verdict)) check_comm(expect, seen, {0, 1, 2, 3}, false, verdict);
}

/// The exception of a rank as the format knows it.
void note_exception(Seen& seen, const std::exception& e) {
  seen.message = e.what();
  const auto* layout = dynamic_cast<const LayoutError*>(&e);
  seen.error = layout != nullptr ? layout->kind() : "another exception";
  seen.unexpected = layout == nullptr;
}

/// Runs something as every rank of a process group of its own.
std::vector<Seen> on_ranks(Context& context, const std::function<void(Seen&)>& body) {
  std::vector<Seen> seen(context.config().sips);
  // Rank threads end when the spawner does.
  struct Group {
    Context& context;
    explicit Group(Context& c) : context(c) { context.distributed.init_process_group(); }
    ~Group() { context.distributed.destroy_process_group(); }
  } group(context);
  context.spawn(
      [&](uint32_t rank) {
        try {
          body(seen[rank]);
        } catch (const sc_core::sc_unwind_exception&) {
          throw;
        } catch (const std::exception& e) {
          note_exception(seen[rank], e);
        }
      },
      context.config().sips);
  return seen;
}

}  // namespace

uint32_t world_of(const YAML::Node& node) {
  const auto kind = required(node, "kind").as<std::string>();
  Fields fields{"id", "kind", "source", "profile", "note", "expect"};
  uint32_t world = 4;
  if (kind == "op") {
    fields.insert(fields.end(), {"mesh", "inputs", "op"});
    world = mesh_of(required(node, "mesh")).world;
    for (const auto& in : required(node, "inputs")) {
      check_fields(in, "inputs",
                   {"shape", "data", "placements", "how", "local_shape", "stride", "run_check", "src", "mesh",
                    "count_comm", "allow_partial"});
      if (in["mesh"]) world = std::max(world, mesh_of(in["mesh"]).world);
    }
    const OpCase op = parse_op_case(required(node, "op"));
    if (node["inputs"].size() > op.max_inputs) {
      throw CaseError(std::to_string(node["inputs"].size()) + " inputs of " + op.name + ": expected at most " +
                      std::to_string(op.max_inputs));
    }
  } else if (kind == "mesh") {
    fields.insert(fields.end(), {"mesh", "query", "names", "dim"});
    world = mesh_of(required(node, "mesh")).world;
  } else if (kind == "model_counts") {
    fields.insert(fields.end(), {"layers", "seq_parallel"});
  } else {
    throw CaseError("unknown kind '" + kind + "'");
  }
  check_fields(node, "the case", fields);
  required(node, "expect");
  return world;
}

void run_machine_case(Context& context, const YAML::Node& node, Verdict& verdict) {
  const auto kind = node["kind"].as<std::string>();
  if (kind == "mesh") {
    check_mesh(node, on_ranks(context, [&](Seen& seen) { run_mesh_on_rank(context, node, seen); }), verdict);
  } else if (kind == "model_counts") {
    check_model(node, on_ranks(context, [&](Seen& seen) { run_model_on_rank(context, node, seen); }), verdict);
  } else {
    for (const bool flattened : {false, true}) {
      if (flattened && !(node["expect"].IsMap() && node["expect"]["comm_if_flattened_groups"])) break;
      check_op(node, on_ranks(context, [&](Seen& seen) { run_op_on_rank(context, node, flattened, seen); }), flattened,
               verdict);
    }
  }
}

}  // namespace ahbm::conformance
