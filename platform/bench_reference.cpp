#include "platform/bench_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/nn/builder.h"
#include "runtime/random.h"

namespace ahbm::platform {

namespace {

/// y[rows x n] = x[rows x k] w[n x k]^T.
Numbers times_transposed(const Numbers& x, const Numbers& w, uint64_t k, uint64_t n) {
  Numbers wt(k * n);
  for (uint64_t j = 0; j < n; ++j) {
    for (uint64_t i = 0; i < k; ++i) wt[i * n + j] = w[j * k + i];
  }
  const uint64_t rows = k == 0 ? 0 : x.size() / k;
  Numbers y(rows * n, 0.0);
  for (uint64_t r = 0; r < rows; ++r) {
    double* const out = y.data() + r * n;
    for (uint64_t i = 0; i < k; ++i) {
      const double f = x[r * k + i];
      const double* const row = wt.data() + i * n;
      for (uint64_t j = 0; j < n; ++j) out[j] += f * row[j];
    }
  }
  return y;
}

Numbers sum(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i % b.size()];
  return a;
}

/// Softmax of `scores`, in place.
void soften(Numbers& scores) {
  const double peak = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& s : scores) total += s = std::exp(s - peak);
  for (double& s : scores) s /= total;
}

}  // namespace

std::vector<int64_t> BenchReference::token_sequence(const char* name) const {
  const auto values = nn::parameter_values(m_o.seed, name, {m_o.batch, m_o.length}, {0.5, 0.5}, DType::Float32);
  std::vector<int64_t> out;
  for (const double v : values) {
    const auto token = static_cast<int64_t>(v * static_cast<double>(m_o.vocabulary));
    out.push_back(std::clamp<int64_t>(token, 0, static_cast<int64_t>(m_o.vocabulary) - 1));
  }
  return out;
}

Numbers BenchReference::input() const {
  return nn::parameter_values(m_o.seed, "input", {m_o.batch, m_o.length, m_o.hidden}, {0, 1}, m_o.dtype);
}

Numbers BenchReference::bias(const std::string& name, uint64_t n) const {
  return nn::parameter_values(m_o.seed, name + ".bias", {n}, nn::kBiasInit, m_o.dtype);
}

Numbers BenchReference::linear(const Numbers& x, const std::string& name, uint64_t in, uint64_t out,
                               bool with_bias) const {
  const Numbers w = nn::parameter_values(m_o.seed, name + ".weight", {out, in}, nn::linear_init(in), m_o.dtype);
  Numbers y = times_transposed(x, w, in, out);
  return with_bias ? sum(std::move(y), bias(name, out)) : y;
}

Numbers BenchReference::norm(const Numbers& x, const std::string& name) const {
  const uint64_t h = m_o.hidden;
  const Numbers w = nn::parameter_values(m_o.seed, name + ".weight", {h}, nn::kNormWeightInit, m_o.dtype);
  const Numbers b = m_o.rms_norm ? Numbers(h, 0.0) : bias(name, h);
  const double epsilon = !m_o.rms_norm                 ? 1e-5
                         : m_o.dtype == DType::Float32 ? std::ldexp(1.0, -23)
                         : m_o.dtype == DType::Float16 ? std::ldexp(1.0, -10)
                                                       : std::ldexp(1.0, -7);
  Numbers y(x.size());
  for (uint64_t r = 0; r < x.size(); r += h) {
    double mean = 0;
    for (uint64_t i = 0; i < h && !m_o.rms_norm; ++i) mean += x[r + i] / static_cast<double>(h);
    double square = 0;
    for (uint64_t i = 0; i < h; ++i) square += (x[r + i] - mean) * (x[r + i] - mean) / static_cast<double>(h);
    for (uint64_t i = 0; i < h; ++i) y[r + i] = (x[r + i] - mean) / std::sqrt(square + epsilon) * w[i] + b[i];
  }
  return y;
}

Numbers BenchReference::mlp(const Numbers& x, const std::string& prefix) const {
  Numbers h = linear(x, prefix + "up", m_o.hidden, m_o.inner, m_o.bias);
  for (double& v : h) v = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
  return linear(h, prefix + "down", m_o.inner, m_o.hidden, m_o.bias);
}

Numbers BenchReference::attention(const Numbers& x, const std::string& prefix) const {
  const uint64_t h = m_o.hidden, d = h / m_o.heads, kv = m_o.kv_heads * d, t = m_o.length;
  const Numbers q = linear(x, prefix + "wq", h, h, m_o.bias);
  const Numbers k = linear(x, prefix + "wk", h, kv, m_o.bias);
  const Numbers v = linear(x, prefix + "wv", h, kv, m_o.bias);
  Numbers mixed(x.size(), 0.0);
  for (uint64_t b = 0; b < m_o.batch; ++b) {
    for (uint64_t head = 0; head < m_o.heads; ++head) {
      const uint64_t at = head / (m_o.heads / m_o.kv_heads) * d;
      for (uint64_t i = 0; i < t; ++i) {
        Numbers scores(i + 1, 0.0);
        for (uint64_t j = 0; j <= i; ++j) {
          for (uint64_t c = 0; c < d; ++c) {
            scores[j] += q[(b * t + i) * h + head * d + c] * k[(b * t + j) * kv + at + c];
          }
          scores[j] /= std::sqrt(static_cast<double>(d));
        }
        soften(scores);
        for (uint64_t j = 0; j <= i; ++j) {
          for (uint64_t c = 0; c < d; ++c) {
            mixed[(b * t + i) * h + head * d + c] += scores[j] * v[(b * t + j) * kv + at + c];
          }
        }
      }
    }
  }
  return linear(mixed, prefix + "wo", h, h, m_o.bias);
}

Numbers BenchReference::transformer() const {
  const uint64_t h = m_o.hidden;
  const Numbers table = nn::parameter_values(m_o.seed, "tokens.weight", {m_o.vocabulary, h}, nn::kTableInit, m_o.dtype);
  const Numbers places = nn::parameter_values(m_o.seed, "positions.weight", {m_o.length, h}, nn::kTableInit, m_o.dtype);
  Numbers x;
  for (const int64_t token : tokens()) {
    x.insert(x.end(), table.begin() + token * static_cast<int64_t>(h),
             table.begin() + (token + 1) * static_cast<int64_t>(h));
  }
  x = sum(std::move(x), places);
  for (uint64_t i = 0; i < m_o.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    const Numbers attended = attention(norm(x, layer + "attention_norm"), layer + "attention.");
    x = sum(std::move(x), attended);
    const Numbers passed = mlp(norm(x, layer + "mlp_norm"), layer + "mlp.");
    x = sum(std::move(x), passed);
  }
  return linear(norm(x, "norm"), "head", h, m_o.vocabulary, false);
}

Numbers BenchReference::output() const {
  if (m_o.bench == "tp_mlp") return mlp(input(), "");
  if (m_o.bench == "tp_attention") return attention(input(), "");
  return transformer();
}

double BenchReference::loss(const Numbers& logits, uint64_t first_sequence, uint64_t sequences) const {
  const std::vector<int64_t> wanted = targets();
  const uint64_t first = first_sequence * m_o.length, rows = sequences * m_o.length, n = m_o.vocabulary;
  double total = 0;
  for (uint64_t r = first; r < first + rows; ++r) {
    const double* const row = logits.data() + r * n;
    const double peak = *std::max_element(row, row + n);
    double sum = 0;
    for (uint64_t i = 0; i < n; ++i) sum += std::exp(row[i] - peak);
    total += std::log(sum) - (row[wanted[r]] - peak);
  }
  return total / static_cast<double>(rows);
}

}  // namespace ahbm::platform
