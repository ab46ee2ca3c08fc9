#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/linear.h"
#include "framework/nn/module.h"

namespace tessera {

/// The extents of a linear layer of the unsplit model.
struct LinearSizes {
  std::int64_t in, out;
  bool has_bias;
  Init init;
};

/// y = x w^T + bias, w [out, in]: by one process, or by several that have a part of w each.
class LinearLayer : public Module {
 public:
  using Module::Module;
  virtual Var forward(const Var& x) const = 0;
  virtual Var forward(const Var& x, Activation act) const = 0;  ///< act(x w^T + bias)
  virtual Leaf& weight() const = 0;
};

/// How the layers of a model are cut over the processes that share them. This one: not at all. Layers are made in
/// pairs: the first of a pair cuts its outputs, the second its inputs, so that what lies between them stays apart.
/// Source: Shoeybi et al., arXiv:1909.08053.
class LayerMaker {
 public:
  virtual ~LayerMaker() = default;
  virtual int rank() const { return 0; }
  virtual int ranks() const { return 1; }
  /// Between the pairs each process has tokens [rank, rank + 1) * T / ranks of every sample. Source: Korthikanti et
  /// al., arXiv:2205.05198.
  virtual bool cuts_sequence() const { return false; }

  /// The first of a pair. `rows` of w and bias are here; none: all.
  virtual std::unique_ptr<LinearLayer> outputs_cut(const std::string& name, const LinearSizes& sizes,
                                                   TensorCut rows) const;
  /// The second of a pair: part rank() of its inputs are here.
  virtual std::unique_ptr<LinearLayer> inputs_cut(const std::string& name, const LinearSizes& sizes) const;
};
const LayerMaker& whole_layers();

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
