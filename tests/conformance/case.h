// A case of the file format: reading values out of YAML, and a verdict. Fields that the format does not have, and
// values that cannot be read, are errors of the case.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/layout/dtensor_spec.h"

namespace ahbm::conformance {

/// The case itself is wrong, or asks for something that does not exist.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What was not as expected; empty: passed.
class Verdict {
 public:
  void differ(const std::string& what, const std::string& expected, const std::string& got) {
    m_problems.push_back(what + ": expected " + expected + ", got " + got);
  }
  void compare(const std::string& what, const std::string& expected, const std::string& got) {
    if (expected != got) differ(what, expected, got);
  }
  void fail(const std::string& text) { m_problems.push_back(text); }
  bool passed() const { return m_problems.empty(); }
  std::string text() const;

 private:
  std::vector<std::string> m_problems;
};

/// \throws CaseError naming the first field of the mapping that is not among `known`, or when it is no mapping
void check_fields(const YAML::Node& node, const std::string& where, const std::vector<std::string>& known);
/// \throws CaseError when there is none
YAML::Node required(const YAML::Node& node, const char* field);
bool flag(const YAML::Node& node, const char* field);

/// Whether a scalar is in quotes: a text, though it may look like a number.
bool is_text(const YAML::Node& node);
dtensor::Dims dims_of(const YAML::Node& node);
dtensor::Placements placements_of(const YAML::Node& node);
/// Flow style on one line, without spaces.
std::string one_line(const YAML::Node& node);
template <typename Range>
std::string list_text(const Range& range) {
  std::string out;
  for (const auto& v : range) out += (out.empty() ? "" : ", ") + std::string(v);
  return "[" + out + "]";
}

/// \throws CaseError for what is no number, and for one in quotes
template <typename T>
T number_of(const YAML::Node& node) {
  T out{};
  if (!node.IsScalar() || is_text(node) || !YAML::convert<T>::decode(node, out)) {
    throw CaseError("expected a number, not " + (is_text(node) ? '"' + node.Scalar() + '"' : one_line(node)));
  }
  return out;
}
/// \throws CaseError for what is no list of numbers
template <typename T>
std::vector<T> numbers_of(const YAML::Node& node) {
  if (!node.IsSequence()) throw CaseError("expected a list of numbers, not " + one_line(node));
  std::vector<T> out;
  for (const auto& v : node) out.push_back(number_of<T>(v));
  return out;
}

struct MeshCase {
  std::vector<uint32_t> shape;
  dtensor::RankList ranks;
  std::vector<std::string> names;
  uint32_t world = 0;
};
MeshCase mesh_of(const YAML::Node& node);
dtensor::MeshPtr layout_of(const MeshCase& mesh);

/// A rule for the values of a tensor: from element index (global, or local for `local`) and rank.
using DataRule = std::function<double(uint64_t index, uint32_t rank)>;
/// `is_local`: the index is one of the local tensor.
DataRule parse_data(const std::string& text, bool& is_local);

/// Checks shapes and offsets of ranks against `expect.locals`; the values are left to `values` (rank, entry).
void check_locals(const YAML::Node& locals, const dtensor::DTensorSpec& spec, Verdict& verdict,
                  const std::function<void(uint32_t, const YAML::Node&)>& values = nullptr);
/// Values, or sum and weighted sum, against what an entry says. rtol 1e-5.
void check_values(const YAML::Node& entry, const std::vector<double>& got, const std::string& where, Verdict& verdict);

/// Runs the cases that are about metadata: kinds chunk, shape_offset, global_info, plan. False: of another kind.
bool run_metadata_case(const YAML::Node& node, Verdict& verdict);

}  // namespace ahbm::conformance
