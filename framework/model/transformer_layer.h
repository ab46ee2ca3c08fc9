#pragma once

#include <span>

#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"

namespace tessera::model {

/// How the residual branches of a layer are combined.
struct LayerForm {
  double dropout = 0;                    ///< of the output of each branch
  bool parallel = false;                 ///< both branches read the layer's input (GPT-NeoX)
  bool residual_after_norm = false;      ///< the residual is the output of the norm, not its input
  bool recomputes_feed_forward = false;  ///< recompute the feed-forward in the backward pass
  bool recomputes_norms = false;         ///< recompute the norms before the branches there, whose results are not kept
};

/// A transformer layer: x + dropout(attention(norm(x))), then the same with the feed-forward. A norm after a branch
/// follows its dropout. Owns its parts. Activations are [B, T, hidden], or this rank's tokens with sequence
/// parallelism.
class TransformerLayer final : public nn::Module {
 public:
  /// The submodules; `attention`, `feed_forward` and `before_attention` are required.
  struct Submodules {
    std::unique_ptr<nn::Norm> before_attention, before_feed_forward;  ///< the second may be null: the first serves both
    std::unique_ptr<nn::Norm> after_attention, after_feed_forward;    ///< null: none
    std::unique_ptr<nn::Attention> attention;
    std::unique_ptr<nn::FeedForward> feed_forward;
  };
  /// `number` is the layer's index in the whole model; it keys the dropout.
  TransformerLayer(const std::string& name, std::int64_t number, const LayerForm& form, Submodules parts);

  /// x and the result are [B, T, hidden], in the residual type.
  autograd::Var forward(autograd::Var x, const nn::Pass& pass) const;

 private:
  /// Key of a dropout site: four per layer, after those of the embedding.
  std::uint64_t site(std::uint64_t which) const { return 4 * (static_cast<std::uint64_t>(number_) + 1) + which; }
  autograd::Var one_after_the_other(autograd::Var x, const nn::Pass& pass) const;
  autograd::Var side_by_side(const autograd::Var& x, const nn::Pass& pass) const;
  autograd::Var attend(const autograd::Var& normed, const nn::Pass& pass) const;
  autograd::Var feed(const autograd::Var& normed, const nn::Pass& pass) const;
  /// Call when nothing in the forward pass reads the result of a norm before a branch any more.
  void forget(autograd::Tape& tape, autograd::VarId normed) const;
  /// Adds a branch to the residual, with dropout and an optional norm.
  autograd::Var join(autograd::Var branch, const autograd::Var& residual, const nn::Norm* after, std::uint64_t which,
                     const nn::Pass& pass) const;

  std::int64_t number_;
  LayerForm form_;
  Submodules parts_;
};

/// Consecutive layers, which are computed again together in the backward pass. They must outlive it.
autograd::Var recomputed_layers(const autograd::Var& x, std::span<const std::unique_ptr<TransformerLayer>> layers,
                                const nn::Pass& pass);

}  // namespace tessera::model
