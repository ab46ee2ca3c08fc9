#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/linear.h"
#include "framework/nn/module.h"

namespace tessera {

/// y = x w^T + bias, w [out, in]. Megatron's ColumnParallelLinear and RowParallelLinear are this on one rank.
class LinearLayer final : public Module {
 public:
  LinearLayer(const std::string& name, std::int64_t in, std::int64_t out, bool has_bias, Init init);

  Var forward(const Var& x) const { return linear(x, weight_.leaf, bias()); }
  Var forward(const Var& x, Activation act) const { return linear_activation(x, weight_.leaf, bias(), act); }
  Leaf& weight() const { return weight_.leaf; }

 private:
  Leaf* bias() const { return bias_ ? &bias_->leaf : nullptr; }
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

/// What stands between the parts of a layer: normalisation over the last extent.
class Norm : public Module {
 public:
  using Module::Module;
  virtual Var forward(const Var& x) const = 0;
};

enum class Normalization { layer_norm, rms_norm };

/// What norms of a model have in common; `zero_centred`: the stored gain is 0 where the factor is 1
/// (apply_layernorm_1p).
struct NormKind {
  Normalization kind = Normalization::layer_norm;
  double eps = 1e-5;
  bool zero_centred = false;

  float gain_offset() const { return zero_centred ? 1.0F : 0.0F; }
  /// The stored gain whose factor is `factor`.
  Init gain(double factor = 1) const { return Init::constant(factor - (zero_centred ? 1 : 0)); }
};

/// A norm over `width` whose gain begins with the factor `first_gain`.
std::unique_ptr<Norm> make_norm(const NormKind& kind, const std::string& name, std::int64_t width,
                                double first_gain = 1);

}  // namespace tessera
