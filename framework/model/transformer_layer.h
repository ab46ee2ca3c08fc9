#pragma once

#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"

namespace tessera {

/// How the branches of a layer join.
struct LayerForm {
  double dropout = 0;                    ///< of what each branch gives
  bool parallel = false;                 ///< both branches read the layer's input
  bool residual_after_norm = false;      ///< the residual is what the norm gives, not what it takes
  bool recomputes_feed_forward = false;  ///< in the backward pass, instead of keeping what is inside
};

/// One layer: x + dropout(attention(norm(x))), then the same with the feed-forward. A norm after a branch stands behind
/// its dropout. Owns its parts.
class TransformerLayer final : public Module {
 public:
  struct Parts {
    std::unique_ptr<Norm> before_attention, before_feed_forward;  ///< the second may be empty: the first serves both
    std::unique_ptr<Norm> after_attention, after_feed_forward;    ///< may be empty: none
    std::unique_ptr<SelfAttention> attention;
    std::unique_ptr<FeedForward> feed_forward;
  };
  /// `number` counts from 0 over the whole model.
  TransformerLayer(const std::string& name, std::int64_t number, const LayerForm& form, Parts parts);

  Var forward(Var x, const Pass& pass) const;

 private:
  std::uint64_t site(std::uint64_t which) const { return 4 * (static_cast<std::uint64_t>(number_) + 1) + which; }
  Var one_after_the_other(Var x, const Pass& pass) const;
  Var side_by_side(const Var& x, const Pass& pass) const;
  Var attend(const Var& normed, const Pass& pass) const;
  Var feed(const Var& normed, const Pass& pass) const;
  Var join(Var branch, const Var& residual, const Norm* after, std::uint64_t which, const Pass& pass) const;

  std::int64_t number_;
  LayerForm form_;
  Parts parts_;
};

}  // namespace tessera
