#pragma once

#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"

namespace tessera {

/// One layer: x + dropout(attention(norm(x))), then the same with the feed-forward. Owns its parts.
class TransformerLayer final : public Module {
 public:
  struct Parts {
    std::unique_ptr<Norm> before_attention, before_feed_forward;
    std::unique_ptr<SelfAttention> attention;
    std::unique_ptr<FeedForward> feed_forward;
  };
  /// `number` counts from 0 over the whole model.
  TransformerLayer(const std::string& name, std::int64_t number, double dropout, Parts parts);

  Var forward(Var x, const Pass& pass) const;

 private:
  std::uint64_t site(std::uint64_t which) const { return 4 * (static_cast<std::uint64_t>(number_) + 1) + which; }
  std::int64_t number_;
  double dropout_;
  Parts parts_;
};

}  // namespace tessera
