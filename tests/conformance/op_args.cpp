#include "tests/conformance/op_args.h"

namespace ahbm::conformance {

using namespace dtensor;

namespace {

LossReduction reduction_of(const YAML::Node& op) {
  const std::string name = op["reduction"] ? op["reduction"].as<std::string>() : "mean";
  if (name == "none") return LossReduction::None;
  if (name == "sum") return LossReduction::Sum;
  if (name != "mean") throw CaseError("unknown reduction '" + name + "'");
  return LossReduction::Mean;
}

}  // namespace

OpArgs args_of(const YAML::Node& op) {
  OpArgs a;
  if (op["dims"]) a.dims = dims_of(op["dims"]);
  if (op["dim"] && !op["dim"].IsNull()) {
    if (op["dim"].IsSequence()) {
      a.dims = dims_of(op["dim"]);
    } else {
      a.dim = number_of<int64_t>(op["dim"]);
    }
  }
  if (op["keepdim"]) a.keepdim = op["keepdim"].as<bool>();
  if (op["value"]) a.value = number_of<double>(op["value"]);
  if (op["p"]) a.p = number_of<double>(op["p"]);
  if (op["shape"]) a.sizes = dims_of(op["shape"]);
  if (op["size"]) a.sizes = op["size"].IsSequence() ? dims_of(op["size"]) : Dims{number_of<int64_t>(op["size"])};
  if (op["start"]) a.start = number_of<int64_t>(op["start"]);
  if (op["end"]) a.end = number_of<int64_t>(op["end"]);
  if (op["step"]) a.step = number_of<int64_t>(op["step"]);
  if (op["index"]) a.index = number_of<int64_t>(op["index"]);
  if (op["chunks"]) a.index = number_of<int64_t>(op["chunks"]);
  if (op["diagonal"]) a.index = number_of<int64_t>(op["diagonal"]);
  if (op["normalized_dims"]) a.normalized_dims = number_of<int64_t>(op["normalized_dims"]);
  if (op["causal"]) a.causal = op["causal"].as<bool>();
  if (op["linear"]) a.linear_partials = op["linear"].as<bool>();
  if (op["implicit_replication"]) a.implicit_replication = op["implicit_replication"].as<bool>();
  if (op["dtype"]) {
    a.dtype = parse_dtype(op["dtype"].as<std::string>());
    if (!a.dtype) throw CaseError("unknown dtype '" + op["dtype"].as<std::string>() + "'");
  }
  a.reduction = reduction_of(op);
  return a;
}

}  // namespace ahbm::conformance
