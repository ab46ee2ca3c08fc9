#pragma once

#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"

namespace tessera {

/// How the residual branches of a layer are combined.
struct LayerForm {
  double dropout = 0;                    ///< of the output of each branch
  bool parallel = false;                 ///< both branches read the layer's input (GPT-NeoX)
  bool residual_after_norm = false;      ///< the residual is the output of the norm, not its input
  bool recomputes_feed_forward = false;  ///< recompute the feed-forward in the backward pass
};

/// A transformer layer: x + dropout(attention(norm(x))), then the same with the feed-forward. A norm after a branch
/// follows its dropout. Owns its parts. Activations are [B, T, hidden], or this rank's tokens with sequence
/// parallelism.
class TransformerLayer final : public Module {
 public:
  /// The submodules; `attention`, `feed_forward` and `before_attention` are required.
  struct Submodules {
    std::unique_ptr<Norm> before_attention, before_feed_forward;  ///< the second may be null: the first serves both
    std::unique_ptr<Norm> after_attention, after_feed_forward;    ///< null: none
    std::unique_ptr<Attention> attention;
    std::unique_ptr<FeedForward> feed_forward;
  };
  /// `number` is the layer's index in the whole model; it keys the dropout.
  TransformerLayer(const std::string& name, std::int64_t number, const LayerForm& form, Submodules parts);

  /// x and the result are [B, T, hidden], in the residual type.
  Var forward(Var x, const Pass& pass) const;

 private:
  /// Key of a dropout site: four per layer, after those of the embedding.
  std::uint64_t site(std::uint64_t which) const { return 4 * (static_cast<std::uint64_t>(number_) + 1) + which; }
  Var one_after_the_other(Var x, const Pass& pass) const;
  Var side_by_side(const Var& x, const Pass& pass) const;
  Var attend(const Var& normed, const Pass& pass) const;
  Var feed(const Var& normed, const Pass& pass) const;
  /// Adds a branch to the residual, with dropout and an optional norm.
  Var join(Var branch, const Var& residual, const Norm* after, std::uint64_t which, const Pass& pass) const;

  std::int64_t number_;
  LayerForm form_;
  Submodules parts_;
};

}  // namespace tessera
