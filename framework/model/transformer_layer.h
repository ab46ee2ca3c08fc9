#pragma once

#include <span>

#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"

namespace tessera::model {

/// How the residual branches of a layer (attention and feed-forward network) are combined.
struct LayerForm {
  double dropout = 0;                    ///< dropout rate of the output of each branch, in [0, 1)
  bool parallel = false;                 ///< both branches read the layer's input (GPT-NeoX)
  bool residual_after_norm = false;      ///< the residual is the output of the norm before the branch, not its input
  double residual_multiplier = 1;        ///< of the output of each branch, before it is added
  bool recomputes_feed_forward = false;  ///< recompute the feed-forward network in the backward pass
  bool recomputes_norms = false;         ///< recompute the norms before the branches in the backward pass
};

/// A transformer layer: x = x + dropout(attention(norm(x))), then x = x + dropout(feed_forward(norm(x))), or variants
/// by LayerForm. A norm after a branch is applied after the dropout of the branch. Owns its parts. Activations are
/// [B, T, hidden]; with sequence parallelism, this rank's tokens only.
class TransformerLayer final : public nn::Module {
 public:
  /// The submodules; `attention` and `feed_forward` are required.
  struct Submodules {
    /// Null: the branch reads the residual itself; but with LayerForm::parallel and no `before_feed_forward`, both
    /// branches share the output of `before_attention`.
    std::unique_ptr<nn::Norm> before_attention, before_feed_forward;
    std::unique_ptr<nn::Norm> after_attention, after_feed_forward;  ///< null: no norm after the branch
    std::unique_ptr<nn::Attention> attention;
    std::unique_ptr<nn::FeedForward> feed_forward;
  };
  /// `number` is the index of the layer in the whole model, from 0; it keys the dropout.
  TransformerLayer(const std::string& name, std::int64_t number, const LayerForm& form, Submodules parts);

  /// x and the result are [B, T, hidden], in the residual type.
  autograd::Var forward(autograd::Var x, const nn::Pass& pass) const;

 private:
  /// Number of dropout site `which` of this layer: four sites per layer, after those of the embedding.
  std::uint64_t site(std::uint64_t which) const { return 4 * (static_cast<std::uint64_t>(number_) + 1) + which; }
  autograd::Var one_after_the_other(autograd::Var x, const nn::Pass& pass) const;
  autograd::Var side_by_side(const autograd::Var& x, const nn::Pass& pass) const;
  autograd::Var attend(const autograd::Var& normed, const nn::Pass& pass) const;
  autograd::Var feed(const autograd::Var& normed, const nn::Pass& pass) const;
  /// Called after the last operation of the forward pass that reads `normed`, the result of a norm before a branch:
  /// discards it if the backward pass recomputes it.
  void forget(autograd::Tape& tape, autograd::VarId normed) const;
  /// residual + dropout(branch), or residual + after(dropout(branch)) if `after` is not null. `which`: dropout site.
  autograd::Var join(autograd::Var branch, const autograd::Var& residual, const nn::Norm* after, std::uint64_t which,
                     const nn::Pass& pass) const;

  std::int64_t number_;
  LayerForm form_;
  Submodules parts_;
};

/// Runs consecutive layers that the backward pass recomputes together. Neither the layers nor what `pass` refers to may
/// be destroyed before the backward pass is done.
autograd::Var recomputed_layers(const autograd::Var& x, std::span<const std::unique_ptr<TransformerLayer>> layers,
                                const nn::Pass& pass);

}  // namespace tessera::model
