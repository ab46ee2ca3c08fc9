#pragma once

#include <memory>

#include "framework/nn/layers.h"
#include "framework/nn/pass.h"

namespace tessera::nn {

/// The feed-forward part of a transformer layer: maps [B, T, hidden] to [B, T, hidden]. The base class of dense
/// networks and of mixtures of experts.
class FeedForward : public Module {
 public:
  using Module::Module;
  /// x and the result are [B, T, hidden]; with sequence parallelism, this rank's tokens only.
  virtual autograd::Var forward(const autograd::Var& x, const Pass& pass) const = 0;
};

/// The activation of a feed-forward network, either elementwise or as the gate of a gated linear unit (..glu).
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
/// The activation function of a kind, gated or not.
kernels::Activation activation_of(FeedForwardKind kind);
/// Whether the kind is a gated linear unit.
bool is_gated(FeedForwardKind kind);
/// The gated kind with the same activation function.
FeedForwardKind gated(FeedForwardKind kind);

/// Configuration of a dense feed-forward network of the unsharded model.
struct FeedForwardSizes {
  std::int64_t hidden = 0, inner = 0;  ///< inner: ffn_hidden_size; a gated kind has 2 * inner outputs of linear_fc1
  bool has_bias = false;
  Init init = {}, out_init = {};       ///< of linear_fc1 and of linear_fc2
  bool recomputes_activation = false;  ///< the backward pass applies the activation again; its result is not kept
};

/// The rows of a linear_fc1 of `parts` blocks (2 for a gate and up, else 1) of `inner` rows on a rank, which has the
/// same range of each; without strips: all. Throws ShapeError if the ranks do not divide `inner`.
TensorCut rows_of_network(std::int64_t inner, int parts, const TensorRank& tensor);

/// A dense network: linear_fc2(act(linear_fc1(x))). For a gated kind linear_fc1 has the rows [gate; up]; under tensor
/// parallelism each rank has the same range of the gate and of up.
std::unique_ptr<FeedForward> make_feed_forward(FeedForwardKind kind, const std::string& name,
                                               const FeedForwardSizes& sizes, const LayerMaker& maker);

}  // namespace tessera::nn
