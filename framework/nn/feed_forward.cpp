#include "framework/nn/feed_forward.h"

#include <algorithm>
#include <array>

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
  GatedMlp(const std::string& name, Activation act, const FeedForwardSizes& s)
      : FeedForward(name),
        act_(act),
        fc1_(inner("linear_fc1"), s.hidden, 2 * s.inner, s.has_bias, s.init),
        fc2_(inner("linear_fc2"), s.inner, s.hidden, s.has_bias, s.out_init) {
    contains(fc1_);
    contains(fc2_);
  }
  Var forward(const Var& x, const Pass&) const override { return fc2_.forward(gated(fc1_.forward(x), act_)); }

 private:
  Activation act_;
  LinearLayer fc1_, fc2_;
};

struct Row {
  FeedForwardKind alone, as_gate;
  Activation act;
};

constexpr std::array rows = {
    Row{FeedForwardKind::gelu_tanh, FeedForwardKind::geglu, Activation::gelu_tanh},
    Row{FeedForwardKind::gelu_erf, FeedForwardKind::geglu_erf, Activation::gelu_erf},
    Row{FeedForwardKind::quick_gelu, FeedForwardKind::quick_geglu, Activation::quick_gelu},
    Row{FeedForwardKind::silu, FeedForwardKind::swiglu, Activation::silu},
    Row{FeedForwardKind::relu, FeedForwardKind::reglu, Activation::relu},
    Row{FeedForwardKind::squared_relu, FeedForwardKind::squared_reglu, Activation::squared_relu}};

const Row& row_of(FeedForwardKind kind) {
  const auto* row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.alone == kind || r.as_gate == kind; });
  must(row != rows.end(), "every kind of feed-forward has an activation");
  return *row;
}

}  // namespace

Activation activation_of(FeedForwardKind kind) { return row_of(kind).act; }
bool is_gated(FeedForwardKind kind) { return row_of(kind).as_gate == kind; }
FeedForwardKind gated(FeedForwardKind kind) { return row_of(kind).as_gate; }

std::unique_ptr<FeedForward> make_feed_forward(FeedForwardKind kind, const std::string& name,
                                               const FeedForwardSizes& sizes) {
  const auto act = activation_of(kind);
  if (is_gated(kind)) return std::make_unique<GatedMlp>(name, act, sizes);
  return std::make_unique<Mlp>(name, act, sizes);
}

}  // namespace tessera
