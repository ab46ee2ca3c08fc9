#pragma once

#include <memory>

#include "framework/autograd/ops/head_norm.h"
#include "framework/autograd/ops/whole_norm.h"
#include "framework/nn/layers.h"
#include "framework/nn/pass.h"
#include "framework/nn/rotary_embedding.h"

namespace tessera::nn {

/// Terms of the softmax's denominator that belong to no key: e^0 of each head (softmax_type off-by-one), or e^sink of
/// each head with a parameter (learnable).
enum class Sinks { none, zero, learnt };

/// Configuration of a self-attention layer of the unsharded model.
struct AttentionSizes {
  /// hidden size; number of query heads; number of key/value groups; head dimension
  std::int64_t hidden = 0, heads = 0, groups = 0, channels = 0;
  bool qkv_bias = false, out_bias = false;   ///< whether linear_qkv and linear_proj have a bias
  double dropout = 0;                        ///< dropout rate of the attention probabilities, in [0, 1)
  Init init = {}, out_init = {};             ///< initial distribution of linear_qkv and of linear_proj
  double scale = 1;                          ///< factor of the scores; usually 1 / sqrt(channels)
  double softcap = 0;                        ///< soft cap of the scores; 0: none
  bool fused_parts = true;                   ///< queries, keys and values can have adapters of their own
  bool windowed = false;                     ///< sliding-window attention: uses Pass::windowed instead of Pass::visible
  bool recomputed = false;                   ///< recompute the attention core and linear_proj in the backward pass
  std::optional<NormKind> head_norm = {};    ///< QK norm of queries and keys, before the rotary embedding
  bool norms_all_heads = false;              ///< the QK norm, an RMS norm, is over all heads together, not over each
  std::optional<kernels::Alibi> alibi = {};  ///< bias of the scores by distance, without the slopes; null: none
  Sinks sinks = Sinks::none;
};

/// The slopes of ALiBi of `heads` heads (arXiv:2108.12409): a geometric sequence; if `heads` is no power of 2, that of
/// the power of 2 below, then every other slope of the power of 2 above.
std::vector<float> alibi_slopes(std::int64_t heads);

/// The heads of one tensor-parallel rank: the query heads [first_head, first_head + heads) of the unsharded model, and
/// `groups` key heads and value heads.
struct HeadsOfRank {
  std::int64_t heads = 0, groups = 0, first_head = 0;
};
/// The heads of `tensor` in a layer with `heads` query heads in `groups` groups. `tensor.ranks` must divide `heads`,
/// and must divide `groups` or be a multiple of `groups`. If it is a larger multiple, several ranks have copies of the
/// same key head and value head.
HeadsOfRank heads_of_rank(std::int64_t heads, std::int64_t groups, const TensorRank& tensor);

/// The attention part of a transformer layer: maps [B, T, hidden] to [B, T, hidden].
class Attention : public Module {
 public:
  using Module::Module;
  /// x and the result, which includes the output bias but not the residual dropout, are [B, T, hidden]; with sequence
  /// parallelism, this rank's tokens only.
  virtual autograd::Var forward(const autograd::Var& x, const Pass& pass) const = 0;
};

/// The attention core (the part between the projections) under context parallelism: the ranks of the group have
/// different tokens of each sample, and exchange queries, keys or values. parallel/ implements it.
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  /// As attention() (autograd/ops/attention.h), for e.T = e.S = pass.T tokens of each sample on this rank.
  ///
  ///   visible   [B * pass.S] queries: of all ranks
  ///   mask      first_element is the index of this rank's first head in a sample's mask [heads, M, M], with M =
  ///             pass.mask_tokens()
  ///   layer     index of the layer in the whole model, from 0
  ///   sinks     of the heads of `e`
  virtual autograd::Var attend(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                               const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask,
                               std::int64_t layer, const Pass& pass, const autograd::HeadSinks& sinks) const = 0;
};
/// Runs the attention core: pass.core->attend(), or attention() (autograd/ops/attention.h) if pass.core is null.
autograd::Var core_attention(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                             const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask, std::int64_t layer,
                             const Pass& pass, const autograd::HeadSinks& sinks = {});

/// Self-attention with grouped query heads (multi-head if groups == heads).
///
/// linear_qkv is one fused projection whose rows are ordered [group][query heads of the group, key, value][channel], as
/// in Megatron-LM, so that tensor parallelism over groups divides the rows into ranges. With more tensor-parallel ranks
/// than groups, several ranks divide the query heads of a group, and each has a copy of the group's key and value head.
///
/// Parameters: linear_qkv.{weight,bias}, linear_proj.{weight,bias}, with QK norm q_layernorm.{weight,bias} and
/// k_layernorm.{weight,bias} [channels], shared by all heads, or with norms_all_heads [heads * channels] and
/// [groups * channels], of which a rank has those of its heads; and with learnt sinks core_attention.softmax_offset
/// [heads].
class SelfAttention final : public Attention {
 public:
  /// `layer` is the index of the layer in the whole model, from 0; it keys the dropout. `rotary` is not owned and must
  /// outlive this layer; nullptr: no rotary embedding, unless Pass::angles has one.
  SelfAttention(const std::string& name, std::int64_t layer, const AttentionSizes& sizes, const RotaryEmbedding* rotary,
                const LayerMaker& maker);

  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override;

 private:
  /// Layout of the fused projection on this rank.
  kernels::AttentionExtents extents(const Pass& pass) const;
  const kernels::VisibleKeys& seen(const Pass& pass) const { return sizes_.windowed ? pass.windowed : pass.visible; }
  void declare_norms(const LayerMaker& maker);
  void declare_whole_norms(const LayerMaker& maker);
  /// Applies the QK norm, if the layer has one.
  autograd::Var normalised(autograd::Var qkv, const Pass& pass) const;
  autograd::Var normalised_together(const autograd::Var& qkv, const Pass& pass) const;
  /// The attention core applied to the fused projection.
  autograd::Var mixed(const autograd::Var& qkv, const Pass& pass) const;
  /// The attention core in generation, with the key/value cache.
  autograd::Var cached(const autograd::Var& qkv, const Pass& pass) const;

  TensorCut rows_here(const TensorRank& tensor) const;
  void declare_sinks(const TensorRank& tensor);
  /// Whether this rank owns its key and value heads: with more ranks than groups the first of those that have a copy.
  bool owns_keys() const { return here_.first_head % (sizes_.heads / sizes_.groups) == 0; }

  AttentionSizes sizes_;
  HeadsOfRank here_;
  std::int64_t layer_;
  const RotaryEmbedding* rotary_;
  std::unique_ptr<LinearLayer> qkv_, out_;
  /// Offsets of heads in a row of this rank's projection. turning_heads_: all heads with rotary embedding, that is
  /// queries and keys.
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
  std::vector<float> slopes_;              ///< of this rank's heads; empty: no ALiBi
  std::vector<float> zeros_;               ///< the sinks of softmax_type off-by-one
  std::unique_ptr<autograd::Leaf> fixed_;  ///< a view of zeros_, or null
  autograd::HeadSinks sinks_;
  SumOverRanks add_up_;  ///< of norms_all_heads; empty: this rank has all heads
};

}  // namespace tessera::nn
