#pragma once

#include <memory>

#include "framework/nn/layers.h"
#include "framework/nn/pass.h"

namespace tessera {

/// The second half of a layer: anything that maps [B, T, hidden] to the same. Dense networks here; experts stand in the
/// same place.
class FeedForward : public Module {
 public:
  using Module::Module;
  virtual Var forward(const Var& x, const Pass& pass) const = 0;
};

/// The activation, alone or as the gate of a second product.
enum class FeedForwardKind {
  gelu_tanh,
  gelu_erf,
  quick_gelu,
  silu,
  relu,
  squared_relu,
  geglu,
  geglu_erf,
  quick_geglu,
  swiglu,
  reglu,
  squared_reglu
};
Activation activation_of(FeedForwardKind kind);
bool is_gated(FeedForwardKind kind);
/// The same activation as a gate.
FeedForwardKind gated(FeedForwardKind kind);

struct FeedForwardSizes {
  std::int64_t hidden, inner;
  bool has_bias;
  Init init, out_init;
};

/// linear_fc2(act(linear_fc1(x))). For a gated kind linear_fc1 has the rows [gate; up].
/// TensorCut over processes each has a part of the gate and the same part of up.
std::unique_ptr<FeedForward> make_feed_forward(FeedForwardKind kind, const std::string& name,
                                               const FeedForwardSizes& sizes, const LayerMaker& maker);

}  // namespace tessera
