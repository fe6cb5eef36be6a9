// The layers of a transformer, and a small language model made of them. A model is written once: the factory says which
// classes stand for the layers that tensor parallelism cuts. Plain ones make a model for one SIP, which
// parallelize_module can distribute; those of megatron.h are parallel by themselves.
#pragma once

#include <memory>

#include "runtime/nn/builder.h"
#include "runtime/nn/module.h"

namespace ahbm::nn {

/// y = x W^T + b.
class Linear : public Module {
 public:
  Linear(const Builder& at, uint64_t in, uint64_t out, bool bias);
  const char* kind() const override { return "Linear"; }

 protected:
  Value forward(const Values& inputs) override { return linear(inputs.at(0), m_weight, m_bias); }

 private:
  Value m_weight, m_bias;  ///< [out, in], [out]
};

/// Rows of a table; indices are int64.
class Embedding : public Module {
 public:
  Embedding(const Builder& at, uint64_t rows, uint64_t width);
  const char* kind() const override { return "Embedding"; }

 protected:
  Value forward(const Values& inputs) override { return embedding(m_weight, inputs.at(0)); }

 private:
  Value m_weight;  ///< [rows, width]
};

enum class NormKind : uint8_t { LayerNorm, RmsNorm };

/// Over the last dimension, with weight and, of a LayerNorm, bias.
class Norm : public Module {
 public:
  Norm(const Builder& at, NormKind norm, uint64_t width);
  const char* kind() const override { return m_norm == NormKind::LayerNorm ? "LayerNorm" : "RmsNorm"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  NormKind m_norm;
  Value m_weight, m_bias;  ///< [width]
};

struct AttentionConfig {
  uint64_t hidden = 512;
  uint64_t heads = 8;
  uint64_t kv_heads = 0;  ///< of keys and values; 0: as many as `heads`, which must be a multiple
  bool bias = true;
  bool causal = true;
  uint64_t keys() const { return kv_heads == 0 ? heads : kv_heads; }
  uint64_t width() const { return hidden / heads; }
  /// \throws std::invalid_argument for heads that do not divide hidden, or kv_heads that do not divide heads
  void check() const;
};

class LayerFactory {
 public:
  virtual ~LayerFactory() = default;
  using Made = std::unique_ptr<Module>;
  /// A linear layer whose output features may be cut.
  virtual Made column(const Builder& at, uint64_t in, uint64_t out, bool bias) const;
  /// One whose input features may be cut; its output is whole, or cut along the sequence.
  virtual Made row(const Builder& at, uint64_t in, uint64_t out, bool bias) const;
  /// Makes keys or values: `heads` of `width` features.
  virtual Made key_value(const Builder& at, uint64_t in, uint64_t heads, uint64_t width, bool bias) const;
  /// \param sequence_dim  of the indices, and of the result
  virtual Made table(const Builder& at, uint64_t rows, uint64_t width, size_t sequence_dim) const;
  /// The last layer: logits, all of them or cut.
  virtual Made head(const Builder& at, uint64_t in, uint64_t out) const;
  /// Called by modules whose input must be whole along the sequence.
  virtual void enter(Module&) const {}
  /// The query heads that this rank works on.
  virtual Range heads(uint64_t all) const { return {0, all}; }
};

/// Softmax attention of [batch, length, hidden] with its four projections.
class Attention : public Module {
 public:
  Attention(const Builder& at, const LayerFactory& factory, const AttentionConfig& config);
  const char* kind() const override { return "Attention"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  Value heads_of(Module& projection, const Value& x) const;
  /// Keys or values as the attention of `query` takes them: repeated when query heads are cut and these are not.
  Value matching(const Value& query, const Value& kv) const;

  AttentionConfig m_config;
  Range m_heads;
  LayerFactory::Made m_wq, m_wk, m_wv, m_wo;
};

/// down(gelu(up(x))).
class Mlp : public Module {
 public:
  Mlp(const Builder& at, const LayerFactory& factory, uint64_t hidden, uint64_t inner, bool bias);
  const char* kind() const override { return "Mlp"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  LayerFactory::Made m_up, m_down;
};

struct TransformerConfig {
  uint64_t layers = 2;
  AttentionConfig attention;
  uint64_t inner = 0;  ///< of the MLP; 0: four times hidden
  uint64_t vocabulary = 1024;
  uint64_t length = 256;  ///< of the sequences
  NormKind norm = NormKind::LayerNorm;
  uint64_t hidden() const { return attention.hidden; }
  uint64_t mlp_inner() const { return inner == 0 ? 4 * hidden() : inner; }
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
class TransformerBlock : public Module {
 public:
  TransformerBlock(const Builder& at, const LayerFactory& factory, const TransformerConfig& config);
  const char* kind() const override { return "TransformerBlock"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  Norm m_attention_norm;
  Attention m_attention;
  Norm m_mlp_norm;
  Mlp m_mlp;
};

/// Token and position embedding, blocks, norm and head: tokens [batch, length] to logits [batch, length, vocabulary].
/// Children: tokens, positions, layers.N.{attention_norm, attention.{wq, wk, wv, wo}, mlp_norm, mlp.{up, down}}, norm,
/// head.
class Transformer : public Module {
 public:
  Transformer(const Builder& at, const LayerFactory& factory, const TransformerConfig& config);
  const char* kind() const override { return "Transformer"; }

 protected:
  Value forward(const Values& inputs) override;

 private:
  LayerFactory::Made m_tokens, m_positions;
  Tensor m_position_indices;
  std::vector<std::unique_ptr<TransformerBlock>> m_layers;
  Norm m_norm;
  LayerFactory::Made m_head;
};

}  // namespace ahbm::nn
