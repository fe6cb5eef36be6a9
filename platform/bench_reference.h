// The models of `bench` in plain loops of double precision on the host: nothing of the machine, the layers or the
// operators is used, except the values that parameters and inputs start with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/cli/bench.h"

namespace ahbm::platform {

using Numbers = std::vector<double>;

class BenchReference {
 public:
  explicit BenchReference(const BenchOptions& options) : m_o(options) {}

  /// Activations [batch, length, hidden] that tp_mlp and tp_attention take, rounded to the dtype.
  Numbers input() const;
  /// Tokens [batch, length], and those that the loss wants.
  std::vector<int64_t> tokens() const { return token_sequence("tokens"); }
  std::vector<int64_t> targets() const { return token_sequence("targets"); }

  /// What the bench's model gives for them: [batch, length, hidden], or logits [batch, length, vocabulary].
  Numbers output() const;
  /// Mean cross entropy of some sequences' logits.
  double loss(const Numbers& logits, uint64_t first_sequence, uint64_t sequences) const;

 private:
  std::vector<int64_t> token_sequence(const char* name) const;
  Numbers bias(const std::string& name, uint64_t n) const;
  Numbers linear(const Numbers& x, const std::string& name, uint64_t in, uint64_t out, bool with_bias) const;
  Numbers norm(const Numbers& x, const std::string& name) const;
  Numbers mlp(const Numbers& x, const std::string& prefix) const;
  Numbers attention(const Numbers& x, const std::string& prefix) const;
  Numbers transformer() const;

  BenchOptions m_o;
};

}  // namespace ahbm::platform
