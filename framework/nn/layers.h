#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/linear.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"

namespace tessera::nn {

/// Configuration of a linear layer of the unsharded model.
struct LinearSizes {
  std::int64_t in = 0, out = 0;
  bool has_bias = false;
  Init init = {};                              ///< of w; a bias begins with zeros
  ParameterRole role = ParameterRole::matrix;  ///< of w
};

/// y = x w^T + bias with w [out, in], on one rank or sharded over tensor-parallel ranks.
class LinearLayer : public Module {
 public:
  using Module::Module;
  /// x [.., in] to [.., out]; a sharded layer takes or gives this rank's part of a dimension (see LayerMaker), and
  /// communicates within the group of `pass`.
  virtual autograd::Var forward(const autograd::Var& x, const Pass& pass) const = 0;
  /// The weight on this rank, for operations that need it directly.
  virtual autograd::Leaf& weight() const = 0;
};

/// A linear layer whose outputs an activation may follow at once: whole, or column-parallel. The outputs of a
/// row-parallel layer are sums over ranks, which its own products alone are not.
class ActivatedLinearLayer : public LinearLayer {
 public:
  using LinearLayer::forward;
  using LinearLayer::LinearLayer;
  /// act(x w^T + bias), as one operation.
  virtual autograd::Var forward(const autograd::Var& x, kernels::Activation act, const Pass& pass) const = 0;
};

/// y = x w^T + bias of which every rank needs all outputs, although the rows of w are sharded over tensor-parallel
/// ranks: a projection that is not the first of a pair, because an operation on whole rows follows.
class GatheredLinear : public Module {
 public:
  using Module::Module;
  /// The outputs, in two parts.
  struct Parts {
    autograd::Var own;  ///< [B, T, first]; with sequence parallelism this rank's tokens: for layers that divide these
    autograd::Var all;  ///< [B, T, out - first] of all tokens, for operations that are sharded over the ranks; or empty
  };
  /// x [B, T, in], with sequence parallelism this rank's tokens. `first` is at most `out`.
  virtual Parts forward(const autograd::Var& x, std::int64_t first, const Pass& pass) const = 0;

 protected:
  /// y [.., out] cut behind column `first`.
  static Parts cut(autograd::Var y, std::int64_t first);
};

/// The position of a rank in its tensor-parallel group: which part of every sharded layer it has. Plain numbers, so
/// the model of any rank can be constructed in any process, for example to count what that rank holds. The group that
/// communicates comes with the pass (Pass::groups).
struct TensorRank {
  int rank = 0, ranks = 1;
  /// Sequence parallelism: outside the pairs of layers each rank has tokens [rank, rank + 1) * T / ranks of every
  /// sample. No effect on one rank. Source: Korthikanti et al., arXiv:2205.05198.
  bool sequence_parallel = false;

  bool whole() const { return ranks == 1; }
  bool cuts_sequence() const { return sequence_parallel && ranks > 1; }
  /// This rank's equal part of dimension `dim` with `extent` elements; on one rank, the whole without strips. Throws
  /// ShapeError if `ranks` does not divide `extent`; `what` names the elements there: "rows of an embedding".
  TensorCut part(std::size_t dim, std::int64_t extent, const char* what) const;
};

/// Creates the linear layers of a model, sharded or not. This base class makes whole layers, for one rank; parallel/
/// overrides it for tensor parallelism.
///
/// Layers are created in pairs: a column-parallel one, which divides its outputs, then a row-parallel one, which
/// divides its inputs, so that between them no communication is needed. Source: Shoeybi et al., arXiv:1909.08053.
class LayerMaker {
 public:
  LayerMaker() = default;
  explicit LayerMaker(const TensorRank& tensor) : tensor_(tensor) {}
  LayerMaker(const LayerMaker&) = default;
  LayerMaker& operator=(const LayerMaker&) = delete;
  virtual ~LayerMaker() = default;

  const TensorRank& tensor() const { return tensor_; }

  /// The first layer of a pair. `rows` are the rows of w and bias on this rank; without strips: all.
  virtual std::unique_ptr<ActivatedLinearLayer> column_parallel(const std::string& name, const LinearSizes& sizes,
                                                                TensorCut rows) const;
  /// The second layer of a pair. This rank has its equal part of the inputs.
  virtual std::unique_ptr<LinearLayer> row_parallel(const std::string& name, const LinearSizes& sizes) const;
  /// A layer of its own, whose rows are divided equally.
  virtual std::unique_ptr<GatheredLinear> gathered(const std::string& name, const LinearSizes& sizes) const;

 private:
  TensorRank tensor_;
};
/// The LayerMaker for one rank, which divides nothing.
const LayerMaker& whole_layers();

/// Normalization over the last dimension.
class Norm : public Module {
 public:
  using Module::Module;
  /// x and the result are [.., width].
  virtual autograd::Var forward(const autograd::Var& x) const = 0;
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

}  // namespace tessera::nn
