#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/linear.h"
#include "framework/nn/module.h"

namespace tessera {

/// Configuration of a linear layer of the unsharded model.
struct LinearSizes {
  std::int64_t in, out;
  bool has_bias;
  Init init;
};

/// y = x w^T + bias with w [out, in], on one rank or sharded over tensor-parallel ranks.
class LinearLayer : public Module {
 public:
  using Module::Module;
  /// x [.., in] to [.., out]; a sharded layer may take or give this rank's part of a dimension (see LayerMaker).
  virtual Var forward(const Var& x) const = 0;
  virtual Var forward(const Var& x, Activation act) const = 0;  ///< act(x w^T + bias)
  /// The weight on this rank, for operations that need it directly (tied embeddings).
  virtual Leaf& weight() const = 0;
};

/// Creates the linear layers of a model, sharded or not. This base class makes whole layers, for one rank; parallel/
/// overrides it for tensor parallelism.
///
/// Layers are created in pairs: a column-parallel one, which divides its outputs, then a row-parallel one, which
/// divides its inputs, so that between them no communication is needed. Source: Shoeybi et al., arXiv:1909.08053.
class LayerMaker {
 public:
  virtual ~LayerMaker() = default;
  virtual int rank() const { return 0; }   ///< tensor-parallel rank
  virtual int ranks() const { return 1; }  ///< tensor-parallel size
  /// Sequence parallelism: outside the pairs each rank has tokens [rank, rank + 1) * T / ranks of every sample. Source:
  /// Korthikanti et al., arXiv:2205.05198.
  virtual bool cuts_sequence() const { return false; }

  /// The first of a pair (column-parallel). `rows` are the rows of w and bias on this rank; empty: all.
  virtual std::unique_ptr<LinearLayer> outputs_cut(const std::string& name, const LinearSizes& sizes,
                                                   TensorCut rows) const;
  /// The second of a pair (row-parallel). This rank has the rank()-th of ranks() equal parts of the inputs.
  virtual std::unique_ptr<LinearLayer> inputs_cut(const std::string& name, const LinearSizes& sizes) const;
};
/// The LayerMaker for one rank, which divides nothing.
const LayerMaker& whole_layers();

/// Normalization over the last dimension.
class Norm : public Module {
 public:
  using Module::Module;
  /// x and the result are [.., width].
  virtual Var forward(const Var& x) const = 0;
};

/// The types of norms; kernels/norm.h has the formulas.
enum class Normalization { layer_norm, rms_norm };

/// What all norms of a model have in common.
struct NormKind {
  Normalization kind = Normalization::layer_norm;
  double eps = 1e-5;          ///< added to the variance or mean square
  bool zero_centred = false;  ///< the stored gain is 0 where the factor is 1 (apply_layernorm_1p)

  /// Added to the stored gain to get the factor.
  float gain_offset() const { return zero_centred ? 1.0F : 0.0F; }
  /// Initial value of the stored gain for the factor `factor`.
  Init gain(double factor = 1) const { return Init::constant(factor - (zero_centred ? 1 : 0)); }
};

/// A norm over `width` channels with the initial factor `first_gain`. Layer norm has a bias, RMS norm has none.
std::unique_ptr<Norm> make_norm(const NormKind& kind, const std::string& name, std::int64_t width,
                                double first_gain = 1);

}  // namespace tessera
