#include "runtime/nn/layers.h"

#include <fmt/format.h>

#include <numeric>

namespace ahbm::nn {

Linear::Linear(const Builder& at, uint64_t in, uint64_t out, bool bias)
    : m_weight(at.parameter("weight", {out, in}, linear_init(in))) {
  add_parameter("weight", m_weight);
  if (!bias) return;
  m_bias = at.parameter("bias", {out}, kBiasInit);
  add_parameter("bias", m_bias);
}

Embedding::Embedding(const Builder& at, uint64_t rows, uint64_t width)
    : m_weight(at.parameter("weight", {rows, width}, kTableInit)) {
  add_parameter("weight", m_weight);
}

Norm::Norm(const Builder& at, NormKind norm, uint64_t width)
    : m_norm(norm), m_weight(at.parameter("weight", {width}, kNormWeightInit)) {
  add_parameter("weight", m_weight);
  if (norm == NormKind::RmsNorm) return;
  m_bias = at.parameter("bias", {width}, kBiasInit);
  add_parameter("bias", m_bias);
}

Value Norm::forward(const Values& inputs) {
  return m_norm == NormKind::LayerNorm ? layer_norm(inputs.at(0), m_weight, m_bias) : rms_norm(inputs.at(0), m_weight);
}

// --- factory of plain layers

LayerFactory::Made LayerFactory::column(const Builder& at, uint64_t in, uint64_t out, bool bias) const {
  return std::make_unique<Linear>(at, in, out, bias);
}
LayerFactory::Made LayerFactory::row(const Builder& at, uint64_t in, uint64_t out, bool bias) const {
  return std::make_unique<Linear>(at, in, out, bias);
}
LayerFactory::Made LayerFactory::key_value(const Builder& at, uint64_t in, uint64_t heads, uint64_t width,
                                           bool bias) const {
  return std::make_unique<Linear>(at, in, heads * width, bias);
}
LayerFactory::Made LayerFactory::table(const Builder& at, uint64_t rows, uint64_t width, size_t) const {
  return std::make_unique<Embedding>(at, rows, width);
}
LayerFactory::Made LayerFactory::head(const Builder& at, uint64_t in, uint64_t out) const {
  return std::make_unique<Linear>(at, in, out, false);
}

// --- attention and MLP

void AttentionConfig::check() const {
  if (heads == 0 || hidden % heads != 0) {
    throw std::invalid_argument(fmt::format("{} heads of {} features: expected a divisor", heads, hidden));
  }
  if (heads % keys() != 0) {
    throw std::invalid_argument(fmt::format("{} key heads for {} query heads: expected a divisor", keys(), heads));
  }
}

Attention::Attention(const Builder& at, const LayerFactory& factory, const AttentionConfig& config)
    : m_config(config), m_heads(factory.heads(config.heads)) {
  config.check();
  m_wq = factory.column(at.at("wq"), config.hidden, config.hidden, config.bias);
  m_wk = factory.key_value(at.at("wk"), config.hidden, config.keys(), config.width(), config.bias);
  m_wv = factory.key_value(at.at("wv"), config.hidden, config.keys(), config.width(), config.bias);
  m_wo = factory.row(at.at("wo"), config.hidden, config.hidden, config.bias);
  add_child("wq", *m_wq);
  add_child("wk", *m_wk);
  add_child("wv", *m_wv);
  add_child("wo", *m_wo);
  factory.enter(*this);
}

Value Attention::heads_of(Module& projection, const Value& x) const {
  const Value features = projection(x);
  const auto width = static_cast<int64_t>(m_config.width());
  return transpose(view(features, {x.size(0), x.size(1), features.size(-1) / width, width}), 1, 2);
}

Value Attention::matching(const Value& query, const Value& kv) const {
  const auto group = static_cast<int64_t>(m_config.heads / m_config.keys());
  const int64_t keys = kv.size(1);
  if (group == 1) return kv;
  if (query.is_distributed()) {
    const auto cut = [](const Value& v) {
      const auto& ps = v.distributed().placements();
      return std::any_of(ps.begin(), ps.end(), [](const auto& p) { return dtensor::is_shard(p, 1); });
    };
    return cut(query) && !cut(kv) ? repeat_interleave(kv, 1, group) : kv;
  }
  if (query.size(1) == keys * group) return kv;
  const auto first = static_cast<int64_t>(m_heads.begin);
  return slice(repeat_interleave(kv, 1, group), 1, first, first + query.size(1));
}

Value Attention::forward(const Values& inputs) {
  const Value& x = inputs.at(0);
  const Value q = heads_of(*m_wq, x);
  const Value k = matching(q, heads_of(*m_wk, x));
  const Value v = matching(q, heads_of(*m_wv, x));
  const Value mixed = transpose(scaled_dot_product_attention(q, k, v, m_config.causal), 1, 2);
  return (*m_wo)(reshape(mixed, {x.size(0), x.size(1), mixed.size(2) * mixed.size(3)}));
}

Mlp::Mlp(const Builder& at, const LayerFactory& factory, uint64_t hidden, uint64_t inner, bool bias)
    : m_up(factory.column(at.at("up"), hidden, inner, bias)), m_down(factory.row(at.at("down"), inner, hidden, bias)) {
  add_child("up", *m_up);
  add_child("down", *m_down);
  factory.enter(*this);
}

Value Mlp::forward(const Values& inputs) {
  return (*m_down)(gelu((*m_up)(inputs.at(0))));
}

// --- the model

TransformerBlock::TransformerBlock(const Builder& at, const LayerFactory& factory, const TransformerConfig& config)
    : m_attention_norm(at.at("attention_norm"), config.norm, config.hidden()),
      m_attention(at.at("attention"), factory, config.attention),
      m_mlp_norm(at.at("mlp_norm"), config.norm, config.hidden()),
      m_mlp(at.at("mlp"), factory, config.hidden(), config.mlp_inner(), config.attention.bias) {
  add_child("attention_norm", m_attention_norm);
  add_child("attention", m_attention);
  add_child("mlp_norm", m_mlp_norm);
  add_child("mlp", m_mlp);
}

Value TransformerBlock::forward(const Values& inputs) {
  const Value x = add(inputs.at(0), m_attention(m_attention_norm(inputs.at(0))));
  return add(x, m_mlp(m_mlp_norm(x)));
}

Transformer::Transformer(const Builder& at, const LayerFactory& factory, const TransformerConfig& config)
    : m_tokens(factory.table(at.at("tokens"), config.vocabulary, config.hidden(), 1)),
      m_positions(factory.table(at.at("positions"), config.length, config.hidden(), 0)),
      m_norm(at.at("norm"), config.norm, config.hidden()),
      m_head(factory.head(at.at("head"), config.hidden(), config.vocabulary)) {
  std::vector<int64_t> indices(config.length);
  std::iota(indices.begin(), indices.end(), 0);
  m_position_indices = at.context().from_host({config.length}, DType::Int64, indices);
  add_child("tokens", *m_tokens);
  add_child("positions", *m_positions);
  for (uint64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("layers.{}", i);
    m_layers.push_back(std::make_unique<TransformerBlock>(at.at(name), factory, config));
    add_child(name, *m_layers.back());
  }
  add_child("norm", m_norm);
  add_child("head", *m_head);
  factory.enter(*m_head);
}

Value Transformer::forward(const Values& inputs) {
  Value x = add((*m_tokens)(inputs.at(0)), (*m_positions)(m_position_indices));
  for (const auto& layer : m_layers) x = (*layer)(x);
  return (*m_head)(m_norm(x));
}

}  // namespace ahbm::nn
