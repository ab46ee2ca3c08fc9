#pragma once

#include <array>
#include <memory>
#include <optional>

#include "framework/autograd/ops/columns.h"
#include "framework/nn/attention_layer.h"

namespace tessera::nn {

/// Configuration of multi-head latent attention of the unsharded model.
struct LatentAttentionSizes {
  std::int64_t hidden = 0;
  autograd::LatentHeads heads = {};
  std::optional<std::int64_t> query_rank;  ///< q_lora_rank; absent: queries are projected from x directly
  std::int64_t key_value_rank = 0;         ///< kv_lora_rank
  bool out_bias = false;
  double dropout = 0;             ///< of the attention probabilities, in [0, 1)
  Init init = {}, out_init = {};  ///< of linear_proj: out_init; of the others: init
  double scale = 1;               ///< of the scores
  bool recomputed = false;        ///< recompute the attention core and linear_proj in the backward pass
  bool recomputes_up = false;     ///< recompute the norms, up-projections and rotation that follow the compression
  std::optional<NormKind> norm;   ///< of the compressed queries and of the compressed keys and values; absent: none
};

/// Multi-head latent attention: keys and values of all heads are projected from one compressed vector per token, which
/// is what generation caches, with one rotary key for all heads. With query [plain | rotary] and key [plain | rotary]
/// of each head:
///
///   q       linear_q_proj x, or linear_q_up_proj q_layernorm(linear_q_down_proj x)
///   c, k_r  linear_kv_down_proj x
///   k, v    linear_kv_up_proj kv_layernorm(c)
///
/// Adjacent channels of the rotary parts are rotated as pairs. Megatron-LM then moves the pairs to the two halves of
/// the vector, in queries and keys alike, which changes no score.
///
/// Tensor-parallel ranks divide the heads: the rows of linear_q_proj, linear_q_up_proj and linear_kv_up_proj and the
/// columns of linear_proj. The rows of the down-projections are divided too, and their outputs gathered. Source: Liu et
/// al., arXiv:2405.04434; Megatron-LM core, MLASelfAttention.
class LatentAttention final : public Attention {
 public:
  /// `layer` counts from 0 over the whole model and keys the dropout. `rotary` has the tables of heads.rotary channels
  /// in the interleaved layout and must outlive this layer; nullptr: no rotary embedding.
  LatentAttention(const std::string& name, std::int64_t layer, const LatentAttentionSizes& sizes,
                  const RotaryEmbedding* rotary, const LayerMaker& maker);
  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override;

  /// Floats per token that generation caches.
  static std::int64_t cached_width(const LatentAttentionSizes& sizes) {
    return sizes.key_value_rank + sizes.heads.rotary;
  }

 private:
  /// What the heads of this rank are made from: x or the compressed queries; the compressed keys and values; the
  /// rotated rotary key of all tokens. The compressed ones before their norms.
  using Compressed = std::array<autograd::Var, 3>;
  Compressed compressed(const autograd::Var& x, const Pass& pass) const;
  autograd::Var queries(const autograd::Var& from, const Pass& pass) const;
  autograd::Var normed(const autograd::Var& keys_and_values) const;
  /// The fused projection (latent_heads) of this rank's heads.
  autograd::Var fused(const Compressed& from, const Pass& pass) const;
  /// The attention core on it.
  autograd::Var core(const autograd::Var& fused, const Pass& pass) const;
  /// Both, and linear_proj.
  autograd::Var mixed(const Compressed& from, const Pass& pass) const;
  autograd::Var cached(const autograd::Var& q, const autograd::Var& compressed, const autograd::Var& k_rotary,
                       const Pass& pass) const;

  LatentAttentionSizes sizes_;
  autograd::LatentHeads here_;  ///< the heads of this rank
  std::int64_t first_head_, layer_;
  const RotaryEmbedding* rotary_;
  std::unique_ptr<LinearLayer> out_, query_, query_up_, up_;
  std::unique_ptr<GatheredLinear> query_down_, down_;
  std::unique_ptr<Norm> query_norm_, norm_;
  std::vector<std::int64_t> rotated_queries_, rotated_key_ = {0};  ///< offsets of rotary parts in a row
};

}  // namespace tessera::nn
