#pragma once

#include <memory>

#include "framework/kernels/activation.h"
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

/// The activation of a feed-forward network: elementwise, or for the kinds named ..glu of a gated linear unit.
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
/// The gated kind with the activation function of `kind`; `kind` itself if it is gated.
FeedForwardKind gated(FeedForwardKind kind);

/// Configuration of a dense feed-forward network of the unsharded model.
struct FeedForwardSizes {
  /// hidden size; ffn_hidden_size. linear_fc1 has `inner` outputs, or 2 * inner if the kind is gated.
  std::int64_t hidden = 0, inner = 0;
  std::int64_t out = 0;                ///< outputs of linear_fc2; 0: `hidden`
  bool has_bias = false;               ///< whether linear_fc1 and linear_fc2 have a bias
  kernels::GateForm gate = {};         ///< of a gated kind
  Init init = {}, out_init = {};       ///< initial distribution of linear_fc1 and of linear_fc2
  bool recomputes_activation = false;  ///< the result of the activation is not kept; the backward pass recomputes it
};

/// The rows of linear_fc1 on one tensor-parallel rank. linear_fc1 has `parts` blocks of `inner` rows (2 for gate and
/// up, else 1), and the rank has the same range of rows of each block. On one rank: all rows, without strips. Throws
/// ShapeError if the number of ranks does not divide `inner`.
TensorCut rows_of_network(std::int64_t inner, int parts, const TensorRank& tensor);

/// The named parts of a linear_fc1 with `parts` blocks of `inner` rows: gate and up; none if it is not gated.
std::vector<LinearPart> parts_of_network(std::int64_t inner, int parts);

/// Creates a dense network, linear_fc2(act(linear_fc1(x))), named `name`. For a gated kind linear_fc1 has the rows
/// [gate; up]. With tensor parallelism linear_fc1 is column-parallel (see rows_of_network) and linear_fc2 row-parallel.
std::unique_ptr<FeedForward> make_feed_forward(FeedForwardKind kind, const std::string& name,
                                               const FeedForwardSizes& sizes, const LayerMaker& maker);

}  // namespace tessera::nn
