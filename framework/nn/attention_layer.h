#pragma once

#include <memory>

#include "framework/autograd/ops/head_norm.h"
#include "framework/nn/layers.h"
#include "framework/nn/pass.h"
#include "framework/nn/rotary_embedding.h"

namespace tessera {

/// What a self-attention is made of.
struct AttentionSizes {
  std::int64_t hidden = 0, heads = 0, groups = 0, channels = 0;  ///< groups: of keys and values; channels: of one head
  bool qkv_bias = false, out_bias = false;
  double dropout = 0;
  Init init = {}, out_init = {};
  double scale = 1;                        ///< of the scores, usually 1 / sqrt(channels)
  double softcap = 0;                      ///< of the scores; 0: none
  bool windowed = false;                   ///< looks at the pass's window only
  bool recomputed = false;                 ///< what follows the projection is computed again in the backward pass
  std::optional<NormKind> head_norm = {};  ///< of each query and key head, before they turn
};

/// Self-attention with grouped heads. The fused projection linear_qkv has rows [group][its queries, its key, its
/// value][channel], as Megatron's, so that a cut over groups is a cut over rows. With more processes than groups the
/// queries of a group are cut and each process has a copy of its key and value. The gains of head norms are
/// q_layernorm.weight and k_layernorm.weight [channels], one for all heads.
class SelfAttention final : public Module {
 public:
  /// `layer` counts from 0 over the whole model; `rotary` may be nullptr and outlives this.
  SelfAttention(const std::string& name, std::int64_t layer, const AttentionSizes& sizes, const RotaryEmbedding* rotary,
                const LayerMaker& maker);

  Var forward(const Var& x, const Pass& pass) const;  ///< [B, T, hidden] to [B, T, hidden], bias added, before dropout

 private:
  AttentionExtents extents(const Pass& pass) const;
  const VisibleKeys& seen(const Pass& pass) const { return sizes_.windowed ? pass.windowed : pass.visible; }
  Var normalised(Var qkv) const;
  Var mixed(const Var& qkv, const Pass& pass) const;
  Var cached(const Var& qkv, const Pass& pass) const;

  /// The heads that are here: `heads` from `first_head` of the unsplit model on, in `groups`.
  struct Heads {
    std::int64_t heads, groups, first_head;
  };
  static Heads heads_here(const AttentionSizes& sizes, const LayerMaker& maker);
  TensorCut rows_here(const LayerMaker& maker) const;
  void share_copies(const LayerMaker& maker);

  AttentionSizes sizes_;
  Heads here_;
  std::int64_t layer_;
  const RotaryEmbedding* rotary_;
  std::unique_ptr<LinearLayer> qkv_, out_;
  /// Offsets in a row of the projection; turning are queries and keys.
  std::vector<std::int64_t> turning_heads_, query_heads_, key_heads_;
  struct HeadGain {
    Parameter* gain = nullptr;
    Parameter* bias = nullptr;
    HeadNorm of(std::span<const std::int64_t> heads) const {
      return {heads, &gain->leaf, bias ? &bias->leaf : nullptr};
    }
  };
  HeadGain query_norm_, key_norm_;
};

}  // namespace tessera
