#pragma once

#include <memory>

#include "framework/nn/layers.h"
#include "framework/nn/pass.h"

namespace tessera {

/// Angles of rotary positions: tables for `positions` places, in double, rounded once. Source: Su et al.,
/// arXiv:2104.09864.
class RotaryEmbedding {
 public:
  /// `rotary_dim` channels of each head turn; pair i of them by base^(-2 i / rotary_dim) a position.
  RotaryEmbedding(std::int64_t rotary_dim, double base, RotaryLayout layout, std::int64_t positions);
  RotaryTables tables(std::span<const std::int64_t> head_offsets) const {
    return {dim_, layout_, cosine_, sine_, head_offsets};
  }

 private:
  std::int64_t dim_;
  RotaryLayout layout_;
  std::vector<float> cosine_, sine_;  // [positions, dim / 2]
};

/// What a self-attention is made of.
struct AttentionSizes {
  std::int64_t hidden, heads, groups, channels;  ///< groups: of keys and values; channels: of one head
  bool qkv_bias, out_bias;
  double dropout;
  Init init, out_init;
};

/// Self-attention with grouped heads. The fused projection linear_qkv has rows [group][its queries, its key, its
/// value][channel], as Megatron's, so that a cut over groups is a cut over rows.
class SelfAttention final : public Module {
 public:
  /// `layer` counts from 0 over the whole model; `rotary` may be nullptr and outlives this.
  SelfAttention(const std::string& name, std::int64_t layer, const AttentionSizes& sizes,
                const RotaryEmbedding* rotary);

  Var forward(const Var& x, const Pass& pass) const;  ///< [B, T, hidden] to [B, T, hidden], bias added, before dropout

 private:
  AttentionExtents extents(const Pass& pass) const;
  Var cached(const Var& qkv, const Pass& pass) const;

  AttentionSizes sizes_;
  std::int64_t layer_;
  const RotaryEmbedding* rotary_;
  LinearLayer qkv_, out_;
  std::vector<std::int64_t> turning_heads_;  ///< offsets of query and key heads in a row of the projection
};

}  // namespace tessera
