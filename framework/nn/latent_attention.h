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
  double dropout = 0;             ///< dropout rate of the attention probabilities, in [0, 1)
  Init init = {}, out_init = {};  ///< initial distribution of all projections but linear_proj, and of linear_proj
  double scale = 1;               ///< factor of the scores
  bool recomputed = false;        ///< recompute the attention core and linear_proj in the backward pass
  bool recomputes_up = false;     ///< recompute the norms, up-projections and rotation that follow the compression
  std::optional<NormKind> norm;   ///< norms of the compressed queries and of the compressed keys/values; absent: none
};

/// Multi-head latent attention: keys and values of all heads are projected from one compressed vector c per token, and
/// all heads share one rotary key k_r per token. Generation caches only c and k_r. Query and key of each head consist
/// of two parts, [plain | rotary]:
///
///   q       linear_q_proj x, or linear_q_up_proj q_layernorm(linear_q_down_proj x)
///   c, k_r  linear_kv_down_proj x                            kv_lora_rank and rotary channels
///   k, v    linear_kv_up_proj kv_layernorm(c)
///
/// Adjacent channels of the rotary parts are rotated as pairs. Megatron-LM then permutes the channels of queries and
/// keys in the same way, which changes no score.
///
/// Tensor-parallel ranks divide the heads: the rows of linear_q_proj, linear_q_up_proj and linear_kv_up_proj and the
/// columns of linear_proj. The rows of the down-projections are divided too, and their outputs gathered. Source: Liu et
/// al., arXiv:2405.04434; Megatron-LM core, MLASelfAttention.
class LatentAttention final : public Attention {
 public:
  /// `layer` is the index of the layer in the whole model, from 0; it keys the dropout. `rotary` has the tables for
  /// heads.rotary channels in the interleaved layout; it is not owned and must outlive this layer. nullptr: no rotary
  /// embedding.
  LatentAttention(const std::string& name, std::int64_t layer, const LatentAttentionSizes& sizes,
                  const RotaryEmbedding* rotary, const LayerMaker& maker);
  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override;

  /// Floats per token and layer that generation caches.
  static std::int64_t cached_width(const LatentAttentionSizes& sizes) {
    return sizes.key_value_rank + sizes.heads.rotary;
  }

 private:
  /// Inputs of the up-projections: {x or the compressed queries, the compressed keys and values, the rotary key of all
  /// tokens after rotation}. Compressed vectors are those before their norms.
  using Compressed = std::array<autograd::Var, 3>;
  Compressed compressed(const autograd::Var& x, const Pass& pass) const;
  autograd::Var queries(const autograd::Var& from, const Pass& pass) const;
  autograd::Var normed(const autograd::Var& keys_and_values) const;
  /// The fused projection (latent_heads) of this rank's heads.
  autograd::Var fused(const Compressed& from, const Pass& pass) const;
  /// The attention core applied to the fused projection.
  autograd::Var core(const autograd::Var& fused, const Pass& pass) const;
  /// linear_proj(core(fused(from))), with the activation recomputation that the sizes ask for.
  autograd::Var mixed(const Compressed& from, const Pass& pass) const;
  /// The attention core in generation, with the cache of compressed vectors and rotary keys.
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
