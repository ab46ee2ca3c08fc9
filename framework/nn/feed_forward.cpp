#include "framework/nn/feed_forward.h"

#include "framework/autograd/ops/activation.h"

namespace tessera {
namespace {

class Mlp final : public FeedForward {
 public:
  Mlp(const std::string& name, Activation act, const FeedForwardSizes& s)
      : FeedForward(name),
        act_(act),
        fc1_(inner("linear_fc1"), s.hidden, s.inner, s.has_bias, s.init),
        fc2_(inner("linear_fc2"), s.inner, s.hidden, s.has_bias, s.out_init) {
    contains(fc1_);
    contains(fc2_);
  }
  Var forward(const Var& x, const Pass&) const override { return fc2_.forward(fc1_.forward(x, act_)); }

 private:
  Activation act_;
  LinearLayer fc1_, fc2_;
};

class GatedMlp final : public FeedForward {
 public:
  GatedMlp(const std::string& name, const FeedForwardSizes& s)
      : FeedForward(name),
        fc1_(inner("linear_fc1"), s.hidden, 2 * s.inner, s.has_bias, s.init),
        fc2_(inner("linear_fc2"), s.inner, s.hidden, s.has_bias, s.out_init) {
    contains(fc1_);
    contains(fc2_);
  }
  Var forward(const Var& x, const Pass&) const override { return fc2_.forward(gated(fc1_.forward(x), Activation::silu)); }

 private:
  LinearLayer fc1_, fc2_;
};

}  // namespace

std::unique_ptr<FeedForward> make_feed_forward(FeedForwardKind kind, const std::string& name,
                                               const FeedForwardSizes& sizes) {
  switch (kind) {
    case FeedForwardKind::gelu_tanh:
      return std::make_unique<Mlp>(name, Activation::gelu_tanh, sizes);
    case FeedForwardKind::gelu_erf:
      return std::make_unique<Mlp>(name, Activation::gelu_erf, sizes);
    case FeedForwardKind::swiglu:
      return std::make_unique<GatedMlp>(name, sizes);
  }
  throw BugError("broken promise: every kind of feed-forward is made here");
}

}  // namespace tessera
