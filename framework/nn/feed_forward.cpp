#include "framework/nn/feed_forward.h"

#include <algorithm>
#include <array>

#include "framework/autograd/ops/activation.h"

namespace tessera::nn {
namespace {

/// A dense network. linear_fc1 applies the activation itself unless the kind is gated: a gate needs both halves of the
/// outputs.
class Mlp final : public FeedForward {
 public:
  Mlp(const std::string& name, kernels::Activation act, bool gated, const FeedForwardSizes& s, const LayerMaker& maker)
      : FeedForward(name), act_(act), gate_(s.gate), gated_(gated), recomputes_activation_(s.recomputes_activation) {
    const int parts = gated ? 2 : 1;
    fc1_ = maker.column_parallel(inner("linear_fc1"),
                                 {.in = s.hidden,
                                  .out = parts * s.inner,
                                  .has_bias = s.has_bias,
                                  .init = s.init,
                                  .parts = parts_of_network(s.inner, parts)},
                                 rows_of_network(s.inner, parts, maker.tensor()));
    fc2_ = maker.row_parallel(
        inner("linear_fc2"),
        {.in = s.inner, .out = s.out > 0 ? s.out : s.hidden, .has_bias = s.has_bias, .init = s.out_init});
    contains(*fc1_);
    contains(*fc2_);
  }
  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override {
    const auto activated = gated_ ? autograd::gated(fc1_->forward(x, pass), act_, gate_) : fc1_->forward(x, act_, pass);
    auto y = fc2_->forward(activated, pass);
    if (recomputes_activation_) activated.tape().discard(activated);
    return y;
  }

 private:
  kernels::Activation act_;
  kernels::GateForm gate_;
  bool gated_, recomputes_activation_;
  std::unique_ptr<ActivatedLinearLayer> fc1_;
  std::unique_ptr<LinearLayer> fc2_;
};

/// One activation: its elementwise kind, its gated kind, and its function.
struct Row {
  FeedForwardKind alone, as_gate;
  kernels::Activation act;
};

constexpr std::array rows = {
    Row{FeedForwardKind::gelu_tanh, FeedForwardKind::geglu, kernels::Activation::gelu_tanh},
    Row{FeedForwardKind::gelu_erf, FeedForwardKind::geglu_erf, kernels::Activation::gelu_erf},
    Row{FeedForwardKind::quick_gelu, FeedForwardKind::quick_geglu, kernels::Activation::quick_gelu},
    Row{FeedForwardKind::silu, FeedForwardKind::swiglu, kernels::Activation::silu},
    Row{FeedForwardKind::relu, FeedForwardKind::reglu, kernels::Activation::relu},
    Row{FeedForwardKind::squared_relu, FeedForwardKind::squared_reglu, kernels::Activation::squared_relu}};

const Row& row_of(FeedForwardKind kind) {
  const auto* row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.alone == kind || r.as_gate == kind; });
  must(row != rows.end(), "every kind of feed-forward has an activation");
  return *row;
}

}  // namespace

std::vector<LinearPart> parts_of_network(std::int64_t inner, int parts) {
  if (parts == 1) return {};
  return {{"gate_proj", {{0, inner}}}, {"up_proj", {{inner, inner}}}};
}

TensorCut rows_of_network(std::int64_t inner, int parts, const TensorRank& tensor) {
  TensorCut cut;
  if (tensor.whole()) return cut;
  for (int part = 0; part < parts; ++part) {
    auto strip = tensor.part(0, inner, "channels of a feed-forward network").strips[0];
    strip.first += part * inner;
    cut.strips.push_back(strip);
  }
  return cut;
}

kernels::Activation activation_of(FeedForwardKind kind) { return row_of(kind).act; }
bool is_gated(FeedForwardKind kind) { return row_of(kind).as_gate == kind; }
FeedForwardKind gated(FeedForwardKind kind) { return row_of(kind).as_gate; }

std::unique_ptr<FeedForward> make_feed_forward(FeedForwardKind kind, const std::string& name,
                                               const FeedForwardSizes& sizes, const LayerMaker& maker) {
  return std::make_unique<Mlp>(name, activation_of(kind), is_gated(kind), sizes, maker);
}

}  // namespace tessera::nn
