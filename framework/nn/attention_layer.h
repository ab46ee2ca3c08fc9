#pragma once

#include <memory>

#include "framework/autograd/ops/head_norm.h"
#include "framework/nn/layers.h"
#include "framework/nn/pass.h"
#include "framework/nn/rotary_embedding.h"

namespace tessera::nn {

/// Configuration of a self-attention layer of the unsharded model.
struct AttentionSizes {
  std::int64_t hidden = 0, heads = 0, groups = 0, channels = 0;  ///< groups: of keys and values; channels: of one head
  bool qkv_bias = false, out_bias = false;
  double dropout = 0;                      ///< of the attention probabilities, in [0, 1)
  Init init = {}, out_init = {};           ///< of linear_qkv and of linear_proj
  double scale = 1;                        ///< of the scores; usually 1 / sqrt(channels)
  double softcap = 0;                      ///< of the scores; 0: none
  bool windowed = false;                   ///< sliding-window attention: uses Pass::windowed instead of Pass::visible
  bool recomputed = false;                 ///< recompute the attention core and linear_proj in the backward pass
  std::optional<NormKind> head_norm = {};  ///< QK norm of each query and key head, before the rotary embedding
};

/// The heads of one tensor-parallel rank: `heads` query heads from `first_head` of the unsharded model, in `groups` key
/// and value heads.
struct HeadsOfRank {
  std::int64_t heads = 0, groups = 0, first_head = 0;
};
/// Those of a layer with `heads` query heads in `groups`. `tensor.ranks` must divide `heads`, and divide `groups` or be
/// a multiple of them: then each rank has a copy of one group's key and value head.
HeadsOfRank heads_of_rank(std::int64_t heads, std::int64_t groups, const TensorRank& tensor);

/// The attention part of a transformer layer: maps [B, T, hidden] to [B, T, hidden].
class Attention : public Module {
 public:
  using Module::Module;
  /// x and the result, which includes the output bias but not the residual dropout, are [B, T, hidden]; with sequence
  /// parallelism, this rank's tokens only.
  virtual autograd::Var forward(const autograd::Var& x, const Pass& pass) const = 0;
};

/// The core of attention between its projections, where the ranks of a context-parallel group, which have different
/// tokens of each sample, exchange them; parallel/ implements it.
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  /// As attention() (autograd/ops/attention.h), for e.T = e.S = pass.T tokens of each sample on this rank.
  ///
  ///   visible   [B * pass.S] queries, of all ranks
  ///   mask      first_element is that of this rank's first head in the unsharded sample of pass.S tokens
  ///   layer     counts from 0 over the whole model
  virtual autograd::Var attend(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                               const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask,
                               std::int64_t layer, const Pass& pass) const = 0;
};
/// The core of attention: pass.core, or attention() if the pass has none.
autograd::Var core_attention(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                             const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask, std::int64_t layer,
                             const Pass& pass);

/// Self-attention with grouped query heads (multi-head if groups == heads).
///
/// linear_qkv is one fused projection whose rows are ordered [group][query heads of the group, key, value][channel], as
/// in Megatron-LM, so that tensor parallelism over groups is a cut into row ranges. With more tensor-parallel ranks
/// than groups, the query heads of a group are divided and each rank has a copy of the group's key and value head.
///
/// Parameters: linear_qkv.{weight,bias}, linear_proj.{weight,bias}, and with QK norm q_layernorm.{weight,bias} and
/// k_layernorm.{weight,bias} [channels], shared by all heads.
class SelfAttention final : public Attention {
 public:
  /// `layer` counts from 0 over the whole model and keys the dropout. `rotary` may be nullptr (no rotary embedding) and
  /// must outlive this layer.
  SelfAttention(const std::string& name, std::int64_t layer, const AttentionSizes& sizes, const RotaryEmbedding* rotary,
                const LayerMaker& maker);

  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override;

 private:
  /// Layout of the fused projection on this rank.
  kernels::AttentionExtents extents(const Pass& pass) const;
  const kernels::VisibleKeys& seen(const Pass& pass) const { return sizes_.windowed ? pass.windowed : pass.visible; }
  /// QK norm, if the layer has one.
  autograd::Var normalised(autograd::Var qkv) const;
  /// The attention core on the fused projection.
  autograd::Var mixed(const autograd::Var& qkv, const Pass& pass) const;
  /// The same for generation, with the key/value cache.
  autograd::Var cached(const autograd::Var& qkv, const Pass& pass) const;

  TensorCut rows_here(const TensorRank& tensor) const;
  /// Registers the copies of key and value heads for gradient summation.
  void share_copies(const TensorRank& tensor);

  AttentionSizes sizes_;
  HeadsOfRank here_;
  std::int64_t layer_;
  const RotaryEmbedding* rotary_;
  std::unique_ptr<LinearLayer> qkv_, out_;
  /// Offsets of heads in a row of this rank's projection. turning_heads_: those with rotary embedding, queries and
  /// keys.
  std::vector<std::int64_t> turning_heads_, query_heads_, key_heads_;
  /// The parameters of a QK norm.
  struct HeadGain {
    Parameter* gain = nullptr;
    Parameter* bias = nullptr;
    autograd::HeadNorm of(std::span<const std::int64_t> heads) const {
      return {heads, &gain->leaf, bias ? &bias->leaf : nullptr};
    }
  };
  HeadGain query_norm_, key_norm_;
};

}  // namespace tessera::nn
